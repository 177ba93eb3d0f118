package main

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"epdns/dnsserver"
	"epdns/registry"
	"epdns/registry/kube"
	"epdns/zones"
)

// config is all that serve can be told, as people write it: in a file under these
// keys, and by flags, which fill the same fields. Settings checks it.
type config struct {
	APIVersion  string         `yaml:"apiVersion"`
	Kind        string         `yaml:"kind"`
	Source      sourceConfig   `yaml:"source"`
	Listen      []string       `yaml:"listen"`
	HTTP        string         `yaml:"http"`
	HTTPDetails bool           `yaml:"httpDetails"`
	Pprof       bool           `yaml:"pprof"`
	Lameduck    string         `yaml:"lameduck"`
	ReadyMaxAge string         `yaml:"readyMaxAge"`
	Prefix      string         `yaml:"annotationPrefix"`
	StateDir    string         `yaml:"stateDir"`
	StateMaxAge string         `yaml:"stateMaxAge"`
	AuditEvery  string         `yaml:"auditEvery"`
	SyncWithin  string         `yaml:"syncDeadline"`
	MassEmpty   massEmpty      `yaml:"massEmpty"`
	Zones       []zoneConfig   `yaml:"zones"`
	Reverse     []string       `yaml:"reverse"`
	Clients     clientsConfig  `yaml:"clients"`
	StaleAfter  string         `yaml:"staleAfter"`
	LogLevel    string         `yaml:"logLevel"`
	QueryLog    queryLogConfig `yaml:"queryLog"`
	ExplainTXT  bool           `yaml:"explainTXT"`
	ChurnTTL    string         `yaml:"churnTTL"`
	Nameserver  []string       `yaml:"nameserver"`
	Upstream    []string       `yaml:"upstream"`
	UDPSize     int            `yaml:"udpSize"`
	NSID        string         `yaml:"nsid"`
	HideVersion bool           `yaml:"hideVersion"`
	Cookies     cookiesConfig  `yaml:"cookies"`
	Allow       []string       `yaml:"allow"`
	Deny        []string       `yaml:"deny"`
	RateLimit   rateLimit      `yaml:"rateLimit"`
	Transfer    transferConfig `yaml:"transfer"`
	TCP         tcpConfig      `yaml:"tcp"`
	TLS         tlsConfig      `yaml:"tls"`
}

type sourceConfig struct {
	Kubeconfig string   `yaml:"kubeconfig"`
	Context    string   `yaml:"context"`
	Manifests  string   `yaml:"manifests"`
	Namespaces []string `yaml:"namespaces"`
}

type zoneConfig struct {
	Name          string       `yaml:"name"`
	Layout        string       `yaml:"layout"`
	Empty         string       `yaml:"empty"`
	EndpointNames string       `yaml:"endpointNames"`
	Namespaces    []string     `yaml:"namespaces"`
	Selector      string       `yaml:"selector"`
	Defaults      knobValues   `yaml:"defaults"`
	Rules         []ruleConfig `yaml:"rules"`
}

// knobValues are texts by the names of zones.Knobs. It has those that the file has.
type knobValues map[string]string

type ruleConfig struct {
	Match matchConfig `yaml:"match"`
	Set   knobValues  `yaml:"set"`
}

type matchConfig struct {
	Namespace string `yaml:"namespace"`
	Name      string `yaml:"name"`
	Selector  string `yaml:"selector"`
}

type clientsConfig struct {
	TrustedForwarders []string           `yaml:"trustedForwarders"`
	SharedCaches      []string           `yaml:"sharedCaches"`
	Places            []placeConfig      `yaml:"places"`
	Visibility        []visibilityConfig `yaml:"visibility"`
	Sources           placeSources       `yaml:"sources"`
}

type visibilityConfig struct {
	CIDR       string   `yaml:"cidr"`
	Namespaces []string `yaml:"namespaces"`
}

type placeConfig struct {
	CIDR   string `yaml:"cidr"`
	Node   string `yaml:"node"`
	Zone   string `yaml:"zone"`
	Region string `yaml:"region"`
}

type placeSources struct {
	ECS       bool `yaml:"ecs"`
	Endpoints bool `yaml:"endpoints"`
	Nodes     bool `yaml:"nodes"`
	PodCIDRs  bool `yaml:"podCIDRs"`
	Places    bool `yaml:"places"`
}

type massEmpty struct {
	Above int     `yaml:"above"`
	Share float64 `yaml:"share"`
	Hold  string  `yaml:"hold"`
}

type rateLimit struct {
	PerSecond int      `yaml:"perSecond"`
	Slip      int      `yaml:"slip"`
	Exempt    []string `yaml:"exempt"`
}

type queryLogConfig struct {
	Sample float64 `yaml:"sample"`
}

type cookiesConfig struct {
	SecretFile string `yaml:"secretFile"`
}

type transferConfig struct {
	Allow  []string     `yaml:"allow"`
	TSIG   []tsigConfig `yaml:"tsig"`
	Notify []string     `yaml:"notify"`
}

type tsigConfig struct {
	Name       string `yaml:"name"`
	Algorithm  string `yaml:"algorithm"`
	SecretFile string `yaml:"secretFile"`
}

func (t *tsigConfig) setDefaults() { t.Algorithm = "hmac-sha256" }

type tcpConfig struct {
	Idle      string `yaml:"idle"`
	Write     string `yaml:"write"`
	PerSource int    `yaml:"perSource"`
	Total     int    `yaml:"total"`
}

type tlsConfig struct {
	Listen []string `yaml:"listen"`
	Cert   string   `yaml:"cert"`
	Key    string   `yaml:"key"`
}

// reference is a configuration file that changes nothing: every key has its default.
//
//go:embed reference.yaml
var reference string

func defaultConfig() *config {
	c := &config{
		Listen: []string{":5300"},
		HTTP:   "127.0.0.1:9153",
		Prefix: registry.DefaultAnnotationPrefix,

		Lameduck:    "5s",
		ReadyMaxAge: "0",
		StateMaxAge: "24h",
		AuditEvery:  "5m",
		SyncWithin:  "10s",
		MassEmpty:   massEmpty{Above: 20, Share: 0.8, Hold: "10s"},

		Zones:   make([]zoneConfig, 1),
		Clients: clientsConfig{Sources: placeSources{ECS: true, Endpoints: true, Nodes: true, PodCIDRs: true, Places: true}},
		UDPSize: 1232,
		TCP:     tcpConfig{Idle: "12s", Write: "2s", PerSource: 64, Total: 1024},

		RateLimit:  rateLimit{Slip: 2},
		StaleAfter: "60s",
		LogLevel:   "info",
		ExplainTXT: true,
		ChurnTTL:   "0",
	}
	c.Zones[0].setDefaults()
	c.Zones[0].Name = "registry.local"
	return c
}

// setDefaults fills all but the name.
func (z *zoneConfig) setDefaults() {
	d := zones.DefaultZone("")
	*z = zoneConfig{Layout: d.Layout.String(), Empty: d.Empty.String(), EndpointNames: d.EndpointNames.String()}
}

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
	f.auditEvery = c.audits(m)
	if err := parseDuration(c.SyncWithin, &f.syncDeadline); err != nil {
		m.add("syncDeadline", err)
	} else if f.syncDeadline < time.Second {
		m.add("syncDeadline", fmt.Errorf("%v is less than 1s", f.syncDeadline))
	}
	f.massEmpty = c.MassEmpty.check(m)
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

// zonesConfig hands one value after the other to the check of package zones: what
// it finds is then wrong with the last one, which is left out.
func (c *config) zonesConfig(m *mistakes) (out zones.Config) {
	if len(c.Zones) == 0 {
		m.add("zones", out.Validate())
	}
	for i, z := range c.Zones {
		at := fmt.Sprintf("zones[%d].", i)
		zone := zones.DefaultZone(z.Name)
		m.add(at+"layout", zone.Layout.UnmarshalText([]byte(z.Layout)))
		m.add(at+"empty", zone.Empty.UnmarshalText([]byte(z.Empty)))
		m.add(at+"endpointNames", zone.EndpointNames.UnmarshalText([]byte(z.EndpointNames)))
		zone.Namespaces = parseEach(m, at+"namespaces", z.Namespaces, parseNamespaces, nil)
		if err := zones.CheckSelector(z.Selector); err != nil {
			m.add(at+"selector", err)
		} else {
			zone.Selector = z.Selector
		}
		zone.Defaults = z.Defaults.values(m, at+"defaults")
		for j, r := range z.Rules {
			zone.Rules = append(zone.Rules, r.rule(m, fmt.Sprintf("%srules[%d]", at, j)))
		}
		if z.Name == "" {
			m.add(at+"name", errors.New("missing; every zone needs a name"))
			continue
		}
		out.Zones = append(out.Zones, zone)
		if err := out.Validate(); err != nil {
			m.add(at+"name", err)
			out.Zones = out.Zones[:len(out.Zones)-1]
		}
	}
	if len(out.Zones) == 0 {
		return out // which no value makes valid
	}
	out.Reverse = parseEach(m, "reverse", c.Reverse, parsePrefix, func(p []netip.Prefix) error {
		out.Reverse = p
		return out.Validate()
	})
	out.Nameservers = parseEach(m, "nameserver", c.Nameserver, parseNameserver, func(a []netip.Addr) error {
		out.Nameservers = a
		return out.Validate()
	})
	c.Clients.into(m, &out)
	out.NoExplain = !c.ExplainTXT
	err := parseDuration(c.ChurnTTL, &out.ChurnTTL)
	if err == nil {
		err = out.Validate()
	}
	if err != nil {
		m.add("churnTTL", err)
		out.ChurnTTL = 0
	}
	return out
}

// values are what v says under a key, but for what is wrong.
func (v knobValues) values(m *mistakes, key string) zones.Values {
	out := maps.Clone(v)
	for _, k := range zones.Knobs() {
		if text, ok := v[k.Name]; ok {
			if err := k.Check(text); err != nil {
				m.add(key+"."+k.Name, fmt.Errorf("%q is %w", text, err))
				delete(out, k.Name)
			}
		}
	}
	return zones.Values(out)
}

func (r *ruleConfig) rule(m *mistakes, key string) (out zones.Rule) {
	for _, v := range []struct {
		key, text string
		check     func(string) error
		to        *string
	}{
		{"namespace", r.Match.Namespace, zones.CheckGlob, &out.Namespace},
		{"name", r.Match.Name, zones.CheckGlob, &out.Name},
		{"selector", r.Match.Selector, zones.CheckSelector, &out.Selector},
	} {
		if err := v.check(v.text); err != nil {
			m.add(key+".match."+v.key, err)
			continue
		}
		*v.to = v.text
	}
	out.Set = r.Set.values(m, key+".set")
	return out
}

// into puts what is known of clients into out, which is good so far and stays so.
func (c *clientsConfig) into(m *mistakes, out *zones.Config) {
	for _, list := range []struct {
		key  string
		from []string
		to   *[]netip.Prefix
	}{
		{"clients.trustedForwarders", c.TrustedForwarders, &out.Clients.TrustedForwarders},
		{"clients.sharedCaches", c.SharedCaches, &out.Clients.SharedCaches},
	} {
		*list.to = parseEach(m, list.key, list.from, parsePrefix, func(p []netip.Prefix) error {
			*list.to = p
			return out.Validate()
		})
	}
	for i, p := range c.Places {
		key := fmt.Sprintf("clients.places[%d]", i)
		prefix, err := parsePrefix(p.CIDR)
		if err != nil {
			m.add(key+".cidr", err)
			continue
		}
		before := out.Clients.Places
		out.Clients.Places = append(before, zones.PlaceRange{Prefix: prefix, Node: p.Node, Zone: p.Zone, Region: p.Region})
		if err := out.Validate(); err != nil {
			m.add(key, err)
			out.Clients.Places = before
		}
	}
	for i, v := range c.Visibility {
		key := fmt.Sprintf("clients.visibility[%d]", i)
		prefix, err := parsePrefix(v.CIDR)
		if err != nil {
			m.add(key+".cidr", err)
			continue
		}
		before := out.Clients.Visibility
		namespaces := parseEach(m, key+".namespaces", v.Namespaces, parseNamespaces, nil)
		out.Clients.Visibility = append(before, zones.Visibility{Prefix: prefix, Namespaces: namespaces})
		if err := out.Validate(); err != nil {
			m.add(key, err)
			out.Clients.Visibility = before
		}
	}
	for source, on := range map[zones.Sources]bool{
		zones.FromECS:       c.Sources.ECS,
		zones.FromEndpoints: c.Sources.Endpoints,
		zones.FromNodes:     c.Sources.Nodes,
		zones.FromPodCIDRs:  c.Sources.PodCIDRs,
		zones.FromPlaces:    c.Sources.Places,
	} {
		if !on {
			out.Clients.Off |= source
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

// parseEach parses a list, but for what is wrong. Check, if there is one, is asked
// about what there is of it after each value.
func parseEach[T any](m *mistakes, key string, texts []string, parse func(string) (T, error), check func([]T) error) (out []T) {
	for i, text := range texts {
		v, err := parse(text)
		if err == nil {
			out = append(out, v)
			if check != nil {
				if err = check(out); err != nil {
					out = out[:len(out)-1]
				}
			}
		}
		m.add(fmt.Sprintf("%s[%d]", key, i), err)
	}
	return out
}

// parsePrefix reads a CIDR prefix; an address alone is the prefix of that address.
func parsePrefix(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("%q is no prefix such as 10.0.0.0/8", text)
	}
	if p != p.Masked() {
		return p, fmt.Errorf("%s has bits beyond its length; write %v", text, p.Masked())
	}
	return p, nil
}

// parseNamespaces reads a glob of namespaces.
func parseNamespaces(glob string) (string, error) {
	if glob == "" {
		return "", errors.New("no namespace is empty; * is all of them")
	}
	return glob, zones.CheckGlob(glob)
}

func parseNameserver(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return a, fmt.Errorf("%q is no IP address", text)
	}
	return a, nil
}

// parseUpstream reads ADDR or ADDR:PORT.
func parseUpstream(text string) (netip.AddrPort, error) {
	ap, err := netip.ParseAddrPort(text)
	if a, aerr := netip.ParseAddr(text); aerr == nil {
		ap, err = netip.AddrPortFrom(a, 53), nil
	}
	if err != nil || dnsserver.CheckUpstream(ap) != nil {
		return ap, fmt.Errorf("%q is no server to ask, such as 192.0.2.53 or [2001:db8::53]:5353", text)
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()), nil
}

// parseSecondary reads ADDR or ADDR:PORT.
func parseSecondary(text string) (netip.AddrPort, error) {
	ap, err := parseUpstream(text)
	if err != nil {
		return ap, fmt.Errorf("%q is no secondary to tell, such as 192.0.2.54 or [2001:db8::54]:5353", text)
	}
	return ap, nil
}

// checkTwice says whether the last address is one of those before.
func checkTwice(addrs []netip.AddrPort) error {
	last := len(addrs) - 1
	if slices.Contains(addrs[:last], addrs[last]) {
		return fmt.Errorf("%v is given twice", addrs[last])
	}
	return nil
}

// parseDuration reads Go's form, or a bare number of seconds.
func parseDuration(text string, to *time.Duration) (err error) {
	unit := ""
	if strings.Trim(text, "0123456789.") == "" {
		unit = "s"
	}
	if *to, err = time.ParseDuration(text + unit); err != nil {
		return fmt.Errorf("%q is no duration such as 5s, 1m30s or 5 (seconds)", text)
	}
	return nil
}

// parseAge reads a duration that is not below 0.
func parseAge(text string, to *time.Duration) error {
	err := parseDuration(text, to)
	if err == nil && *to < 0 {
		err, *to = fmt.Errorf("%q is less than 0", text), 0
	}
	return err
}

// flagKeys are the flags that say the same as a key, and what it is to say it.
var flagKeys = []struct {
	flag, key string
	set       func(c, flags *config)
}{
	{"kubeconfig", "source.kubeconfig", func(c, flags *config) { c.Source.Kubeconfig = flags.Source.Kubeconfig }},
	{"context", "source.context", func(c, flags *config) { c.Source.Context = flags.Source.Context }},
	{"manifests", "source.manifests", func(c, flags *config) { c.Source.Manifests = flags.Source.Manifests }},
	{"namespace", "source.namespaces", func(c, flags *config) { c.Source.Namespaces = flags.Source.Namespaces }},
	{"listen", "listen", func(c, flags *config) { c.Listen = flags.Listen }},
	{"pprof", "pprof", func(c, flags *config) { c.Pprof = flags.Pprof }},
	{"http", "http", func(c, flags *config) { c.HTTP = flags.HTTP }},
	{"lameduck", "lameduck", func(c, flags *config) { c.Lameduck = flags.Lameduck }},
	{"state-dir", "stateDir", func(c, flags *config) { c.StateDir = flags.StateDir }},
	{"zone", "zones", func(c, flags *config) { c.Zones = asDescribed(flags.Zones, c.Zones) }},
	{"reverse", "reverse", func(c, flags *config) { c.Reverse = flags.Reverse }},
	{"nameserver", "nameserver", func(c, flags *config) { c.Nameserver = flags.Nameserver }},
	{"upstream", "upstream", func(c, flags *config) { c.Upstream = flags.Upstream }},
	{"log-level", "logLevel", func(c, flags *config) { c.LogLevel = flags.LogLevel }},
	{"nsid", "nsid", func(c, flags *config) { c.NSID = flags.NSID }},
	{"cookie-secrets", "cookies.secretFile", func(c, flags *config) { c.Cookies.SecretFile = flags.Cookies.SecretFile }},
	{"transfer-allow", "transfer.allow", func(c, flags *config) { c.Transfer.Allow = flags.Transfer.Allow }},
}

// override lets the flags that were given beat what c says. A source that a flag
// names is not mixed with one of the other kind.
func (c *config) override(flags *config, given func(flag string) bool) {
	switch {
	case given("manifests"):
		c.Source = sourceConfig{}
	case given("kubeconfig"):
		c.Source.Manifests, c.Source.Context = "", "" // a context is one of its own file's
	case given("context") || given("namespace"):
		c.Source.Manifests = ""
	}
	for _, f := range flagKeys {
		if given(f.flag) {
			f.set(c, flags)
		}
	}
}

// asDescribed are the zones named, each with the settings that it has in the file.
func asDescribed(named, file []zoneConfig) (out []zoneConfig) {
	for _, z := range named {
		for _, f := range file {
			if sameName(z.Name, f.Name) {
				z = f
			}
		}
		out = append(out, z)
	}
	return out
}

func sameName(a, b string) bool {
	x, xerr := zones.ParseName(a)
	y, yerr := zones.ParseName(b)
	return xerr == nil && yerr == nil && bytes.Equal(x, y)
}
