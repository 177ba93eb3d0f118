package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"epdns/dnsserver"
	"epdns/registry/kube"
	"epdns/zones"
)

// settings are a config that has been checked, as each room wants its part.
type settings struct {
	source      sourceFlags
	zones       zones.Config
	dns         dnsserver.Config
	http        string
	httpDetails bool
	pprof       bool
	prefix      string // of annotations
	staleAfter  time.Duration
	logLevel    slog.Level
	stateDir    string // empty for none
	stateMaxAge time.Duration
	lameduck    time.Duration
	readyMaxAge time.Duration // 0: any

	// Files that readSecrets reads into dns: of cookies, and of each key in dns.TSIG.
	cookieFile string
	tsigFiles  []string
}

// settings are good but for what its error, mistakes, tells of: such values are left
// out or have their defaults.
func (c *config) settings() (*settings, error) {
	s := &settings{
		source: sourceFlags{
			manifests:  c.Source.Manifests,
			kubeconfig: c.Source.Kubeconfig,
			context:    c.Source.Context,
			namespaces: c.Source.Namespaces,
		},
		http:        c.HTTP,
		httpDetails: c.HTTPDetails,
		pprof:       c.Pprof,
		prefix:      c.Prefix,
		stateDir:    c.StateDir,
	}
	var m mistakes
	m.note(s.source.check())
	s.dns.Listen = c.Listen
	c.checkAddresses(&m)
	if len(validation.IsDNS1123Subdomain(c.Prefix)) > 0 {
		m.add("annotationPrefix", fmt.Errorf("%q is no domain name such as example.com, in lower case", c.Prefix))
	}
	m.add("lameduck", parseAge(c.Lameduck, &s.lameduck))
	m.add("readyMaxAge", parseAge(c.ReadyMaxAge, &s.readyMaxAge))
	m.add("stateMaxAge", parseAge(c.StateMaxAge, &s.stateMaxAge))
	c.watching(&s.source, &m)
	m.add("staleAfter", parseAge(c.StaleAfter, &s.staleAfter))
	if s.logLevel.UnmarshalText([]byte(c.LogLevel)) != nil {
		m.add("logLevel", fmt.Errorf("%q is not debug, info, warn or error", c.LogLevel))
	}
	m.add("queryLog.sample", dnsserver.CheckQueryLog(c.QueryLog.Sample))
	s.dns.QueryLog = c.QueryLog.Sample
	s.zones = c.zonesConfig(&m)
	s.dns.Upstream = parseEach(&m, "upstream", c.Upstream, parseUpstream, c.checkLoop)
	s.dns.Allow = parseEach(&m, "allow", c.Allow, parsePrefix, nil)
	s.dns.Deny = parseEach(&m, "deny", c.Deny, parsePrefix, nil)
	s.dns.RateLimit = c.RateLimit.check(&m)
	s.dns.Transfer = parseEach(&m, "transfer.allow", c.Transfer.Allow, parsePrefix, nil)
	s.dns.TSIG, s.tsigFiles = c.Transfer.keys(&m)
	s.dns.Notify = parseEach(&m, "transfer.notify", c.Transfer.Notify, parseSecondary, checkTwice)
	m.add("udpSize", dnsserver.CheckUDPSize(c.UDPSize))
	s.dns.UDPSize = c.UDPSize
	m.add("nsid", dnsserver.CheckNSID(c.NSID))
	s.dns.NSID = c.NSID
	if !c.HideVersion {
		s.dns.Version = "epdns " + readBuildInfo().Version
	}
	s.cookieFile = c.Cookies.SecretFile
	s.dns.TCP = c.TCP.check(&m)
	s.dns.TLS = c.TLS.check(&m)
	return s, m.err()
}

func (c *rateLimit) check(m *mistakes) (out dnsserver.RateLimitConfig) {
	m.add("rateLimit.perSecond", dnsserver.CheckRateLimit(c.PerSecond))
	m.add("rateLimit.slip", dnsserver.CheckSlip(c.Slip))
	out.PerSecond, out.Slip = c.PerSecond, c.Slip
	out.Exempt = parseEach(m, "rateLimit.exempt", c.Exempt, parsePrefix, nil)
	return out
}

// watching is how a cluster is watched.
func (c *config) watching(f *sourceFlags, m *mistakes) {
	f.auditEvery = orNever(c.audits(m))
	if err := parseDuration(c.SyncWithin, &f.syncDeadline); err != nil {
		m.add("syncDeadline", err)
	} else if f.syncDeadline < time.Second {
		m.add("syncDeadline", fmt.Errorf("%v is less than 1s", f.syncDeadline))
	}
	f.massEmpty = c.MassEmpty.check(m)
	f.massEmpty.Hold = orNever(f.massEmpty.Hold)
}

// orNever says "never" as kube.Config does, in which 0 is the default.
func orNever(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

func (c *config) audits(m *mistakes) (every time.Duration) {
	if err := parseDuration(c.AuditEvery, &every); err != nil {
		m.add("auditEvery", err)
	} else if every != 0 && every < time.Second {
		m.add("auditEvery", fmt.Errorf("%v is neither 0 (never) nor 1s or more", every))
		return 0
	}
	return every
}

func (c *massEmpty) check(m *mistakes) kube.MassEmpty {
	out := kube.MassEmpty{Above: c.Above, Share: c.Share}
	if c.Above < 0 {
		m.add("massEmpty.above", fmt.Errorf("%d is less than 0", c.Above))
	}
	if !(c.Share >= 0 && c.Share <= 1) {
		m.add("massEmpty.share", fmt.Errorf("%v is not between 0 and 1", c.Share))
	}
	if err := parseDuration(c.Hold, &out.Hold); err != nil {
		m.add("massEmpty.hold", err)
	} else if out.Hold < 0 {
		m.add("massEmpty.hold", fmt.Errorf("%v is less than 0", out.Hold))
	}
	return out
}

// keys are the keys without their secrets, and the files that these are in.
func (c *transferConfig) keys(m *mistakes) (keys []dnsserver.TSIGKey, files []string) {
	for i, k := range c.TSIG {
		at := fmt.Sprintf("transfer.tsig[%d].", i)
		m.add(at+"name", dnsserver.CheckTSIGName(k.Name))
		for _, other := range c.TSIG[:i] {
			if sameName(k.Name, other.Name) {
				m.add(at+"name", fmt.Errorf("%q is given twice", k.Name))
			}
		}
		m.add(at+"algorithm", dnsserver.CheckTSIGAlgorithm(k.Algorithm))
		if k.SecretFile == "" {
			m.add(at+"secretFile", errors.New("no file is given"))
		}
		keys = append(keys, dnsserver.TSIGKey{Name: k.Name, Algorithm: k.Algorithm})
		files = append(files, k.SecretFile)
	}
	return keys, files
}

// readSecrets reads the files that hold secrets. given says which flags were.
func (s *settings) readSecrets(given func(flag string) bool) (err error) {
	read := func(key, path string, parse func(text []byte) error) error {
		text, err := os.ReadFile(path)
		if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
			err = pe.Err
		}
		if err == nil {
			err = parse(text)
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", key, path, err)
		}
		return nil
	}
	if s.cookieFile != "" {
		key := "cookies.secretFile"
		if given("cookie-secrets") {
			key = "--cookie-secrets"
		}
		if err := read(key, s.cookieFile, func(text []byte) (err error) {
			s.dns.Cookies, err = dnsserver.ParseCookieSecrets(text)
			return err
		}); err != nil {
			return err
		}
	}
	for i, path := range s.tsigFiles {
		if err := read(fmt.Sprintf("transfer.tsig[%d].secretFile", i), path, func(text []byte) (err error) {
			s.dns.TSIG[i].Secret, err = dnsserver.ParseTSIGSecret(text)
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// relativeTo makes the files that it names relative to a directory.
func (c *config) relativeTo(dir string) {
	paths := []*string{&c.Source.Kubeconfig, &c.Source.Manifests, &c.StateDir, &c.Cookies.SecretFile, &c.TLS.Cert, &c.TLS.Key}
	for i := range c.Transfer.TSIG {
		paths = append(paths, &c.Transfer.TSIG[i].SecretFile)
	}
	for _, p := range paths {
		if *p != "" && *p != "-" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

func (c *tcpConfig) check(m *mistakes) (out dnsserver.TCPConfig) {
	for _, v := range []struct {
		key, text string
		to        *time.Duration
	}{{"tcp.idle", c.Idle, &out.Idle}, {"tcp.write", c.Write, &out.Write}} {
		if err := parseDuration(v.text, v.to); err != nil {
			m.add(v.key, err)
		} else if *v.to <= 0 {
			m.add(v.key, fmt.Errorf("%v is not more than 0", *v.to))
		}
	}
	for _, v := range []struct {
		key string
		n   int
		to  *int
	}{{"tcp.perSource", c.PerSource, &out.PerSource}, {"tcp.total", c.Total, &out.Total}} {
		if v.n < 1 {
			m.add(v.key, fmt.Errorf("%d is not 1 or more", v.n))
		}
		*v.to = v.n
	}
	if c.PerSource > c.Total && c.Total > 0 {
		m.add("tcp.perSource", fmt.Errorf("%d is more than the total of %d", c.PerSource, c.Total))
	}
	return out
}

// check does not read the files. The addresses have been checked.
func (c *tlsConfig) check(m *mistakes) (out dnsserver.TLSConfig) {
	for _, f := range []struct{ key, path string }{{"tls.cert", c.Cert}, {"tls.key", c.Key}} {
		switch {
		case f.path == "" && len(c.Listen) > 0:
			m.add(f.key, errors.New("no file is given"))
		case f.path != "" && len(c.Listen) == 0:
			m.add("tls.listen", fmt.Errorf("no address to listen on is given, beside %s", f.key))
			return out
		}
	}
	if len(c.Listen) == 0 {
		return out
	}
	return dnsserver.TLSConfig{Listen: c.Listen, Cert: c.Cert, Key: c.Key}
}
