package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"epdns/dnsserver"
	"epdns/registry"
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
	Prefix      string         `yaml:"annotationPrefix"`
	Zones       []zoneConfig   `yaml:"zones"`
	Reverse     []string       `yaml:"reverse"`
	Clients     clientsConfig  `yaml:"clients"`
	ExplainTXT  bool           `yaml:"explainTXT"`
	ChurnTTL    string         `yaml:"churnTTL"`
	Nameserver  []string       `yaml:"nameserver"`
	Upstream    []string       `yaml:"upstream"`
	UDPSize     int            `yaml:"udpSize"`
	NSID        string         `yaml:"nsid"`
	HideVersion bool           `yaml:"hideVersion"`
	Cookies     cookiesConfig  `yaml:"cookies"`
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
	TrustedForwarders []string      `yaml:"trustedForwarders"`
	SharedCaches      []string      `yaml:"sharedCaches"`
	Places            []placeConfig `yaml:"places"`
	Sources           placeSources  `yaml:"sources"`
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
		Listen:  []string{":5300"},
		HTTP:    "127.0.0.1:9153",
		Prefix:  registry.DefaultAnnotationPrefix,
		Zones:   make([]zoneConfig, 1),
		Clients: clientsConfig{Sources: placeSources{ECS: true, Endpoints: true, Nodes: true, PodCIDRs: true, Places: true}},
		UDPSize: 1232,
		TCP:     tcpConfig{Idle: "12s", Write: "2s", PerSource: 64, Total: 1024},

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
	prefix      string // of annotations

	// Files that readSecrets reads into dns: of cookies, and of each key in dns.TSIG.
	cookieFile string
	tsigFiles  []string
}

// fault is what is wrong with the value of a key, such as zones[0].name.
type fault struct {
	key string
	err error
}

func (f *fault) Error() string { return f.key + ": " + f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// settings returns a *fault for the first value that is wrong.
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
		prefix:      c.Prefix,
	}
	if err := s.source.check(); err != nil {
		return nil, err
	}
	if len(c.Listen) == 0 {
		return nil, &fault{"listen", errors.New("no address to listen on is given")}
	}
	for i, l := range c.Listen {
		if err := dnsserver.CheckListen(l); err != nil {
			return nil, &fault{fmt.Sprintf("listen[%d]", i), err}
		}
	}
	s.dns.Listen = c.Listen
	if err := c.checkHTTP(); err != nil {
		return nil, &fault{"http", err}
	}
	if len(validation.IsDNS1123Subdomain(c.Prefix)) > 0 {
		return nil, &fault{"annotationPrefix", fmt.Errorf("%q is no domain name such as example.com, in lower case", c.Prefix)}
	}
	var err error
	if s.zones, err = c.zonesConfig(); err != nil {
		return nil, err
	}
	if s.dns.Upstream, err = parseEach("upstream", c.Upstream, parseUpstream, nil); err != nil {
		return nil, err
	}
	if s.dns.Transfer, err = parseEach("transfer.allow", c.Transfer.Allow, parsePrefix, nil); err != nil {
		return nil, err
	}
	if s.dns.TSIG, s.tsigFiles, err = c.Transfer.keys(); err != nil {
		return nil, err
	}
	if s.dns.Notify, err = parseEach("transfer.notify", c.Transfer.Notify, parseSecondary, checkTwice); err != nil {
		return nil, err
	}
	if err := dnsserver.CheckUDPSize(c.UDPSize); err != nil {
		return nil, &fault{"udpSize", err}
	}
	s.dns.UDPSize = c.UDPSize
	if err := dnsserver.CheckNSID(c.NSID); err != nil {
		return nil, &fault{"nsid", err}
	}
	s.dns.NSID = c.NSID
	if !c.HideVersion {
		s.dns.Version = "epdns " + readBuildInfo().Version
	}
	s.cookieFile = c.Cookies.SecretFile
	if s.dns.TCP, err = c.TCP.check(); err != nil {
		return nil, err
	}
	s.dns.TLS, err = c.TLS.check()
	return s, err
}

// keys are the keys without their secrets, and the files that these are in.
func (c *transferConfig) keys() (keys []dnsserver.TSIGKey, files []string, err error) {
	for i, k := range c.TSIG {
		at := fmt.Sprintf("transfer.tsig[%d].", i)
		if _, err := zones.ParseName(k.Name); err != nil || k.Name == "" {
			return nil, nil, &fault{at + "name", cmp.Or(err, errors.New("no name is given"))}
		}
		for _, other := range c.TSIG[:i] {
			if sameName(k.Name, other.Name) {
				return nil, nil, &fault{at + "name", fmt.Errorf("%q is given twice", k.Name)}
			}
		}
		if err := dnsserver.CheckTSIGAlgorithm(k.Algorithm); err != nil {
			return nil, nil, &fault{at + "algorithm", err}
		}
		if k.SecretFile == "" {
			return nil, nil, &fault{at + "secretFile", errors.New("no file is given")}
		}
		keys = append(keys, dnsserver.TSIGKey{Name: k.Name, Algorithm: k.Algorithm})
		files = append(files, k.SecretFile)
	}
	return keys, files, nil
}

// readSecrets reads the files that hold secrets.
func (s *settings) readSecrets() (err error) {
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
		if err := read("cookies.secretFile", s.cookieFile, func(text []byte) (err error) {
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
	paths := []*string{&c.Source.Kubeconfig, &c.Source.Manifests, &c.Cookies.SecretFile, &c.TLS.Cert, &c.TLS.Key}
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
// it finds is then wrong with the last one.
func (c *config) zonesConfig() (out zones.Config, err error) {
	if len(c.Zones) == 0 {
		return out, &fault{"zones", out.Validate()}
	}
	for i, z := range c.Zones {
		out.Zones = append(out.Zones, zones.DefaultZone(z.Name))
		zone := &out.Zones[i]
		for _, v := range []struct {
			key string
			set func() error
		}{
			{"name", func() error { return nil }},
			{"layout", func() error { return zone.Layout.UnmarshalText([]byte(z.Layout)) }},
			{"empty", func() error { return zone.Empty.UnmarshalText([]byte(z.Empty)) }},
			{"endpointNames", func() error { return zone.EndpointNames.UnmarshalText([]byte(z.EndpointNames)) }},
		} {
			err := v.set()
			if err == nil {
				err = out.Validate()
			}
			if err != nil {
				return out, &fault{fmt.Sprintf("zones[%d].%s", i, v.key), err}
			}
		}
		if zone.Defaults, err = z.Defaults.values(fmt.Sprintf("zones[%d].defaults", i)); err != nil {
			return out, err
		}
		for j, r := range z.Rules {
			rule, err := r.rule(fmt.Sprintf("zones[%d].rules[%d]", i, j))
			if err != nil {
				return out, err
			}
			zone.Rules = append(zone.Rules, rule)
		}
	}
	out.Reverse, err = parseEach("reverse", c.Reverse, parsePrefix, func(p []netip.Prefix) error {
		out.Reverse = p
		return out.Validate()
	})
	if err != nil {
		return out, err
	}
	out.Nameservers, err = parseEach("nameserver", c.Nameserver, parseNameserver, func(a []netip.Addr) error {
		out.Nameservers = a
		return out.Validate()
	})
	if err != nil {
		return out, err
	}
	if err := c.Clients.into(&out); err != nil {
		return out, err
	}
	out.NoExplain = !c.ExplainTXT
	if err = parseDuration(c.ChurnTTL, &out.ChurnTTL); err == nil {
		err = out.Validate()
	}
	if err != nil {
		return out, &fault{"churnTTL", err}
	}
	return out, nil
}

// values are what v says under a key.
func (v knobValues) values(key string) (zones.Values, error) {
	for _, k := range zones.Knobs() {
		if text, ok := v[k.Name]; ok {
			if err := k.Check(text); err != nil {
				return nil, &fault{key + "." + k.Name, fmt.Errorf("%q is %w", text, err)}
			}
		}
	}
	return zones.Values(v), nil
}

func (r *ruleConfig) rule(key string) (out zones.Rule, err error) {
	for _, v := range []struct {
		key, text string
		check     func(string) error
	}{
		{"namespace", r.Match.Namespace, zones.CheckGlob},
		{"name", r.Match.Name, zones.CheckGlob},
		{"selector", r.Match.Selector, zones.CheckSelector},
	} {
		if err := v.check(v.text); err != nil {
			return out, &fault{key + ".match." + v.key, err}
		}
	}
	out = zones.Rule{Namespace: r.Match.Namespace, Name: r.Match.Name, Selector: r.Match.Selector}
	out.Set, err = r.Set.values(key + ".set")
	return out, err
}

// into puts what is known of clients into out, which is good so far.
func (c *clientsConfig) into(out *zones.Config) error {
	for _, list := range []struct {
		key  string
		from []string
		to   *[]netip.Prefix
	}{
		{"clients.trustedForwarders", c.TrustedForwarders, &out.Clients.TrustedForwarders},
		{"clients.sharedCaches", c.SharedCaches, &out.Clients.SharedCaches},
	} {
		if _, err := parseEach(list.key, list.from, parsePrefix, func(p []netip.Prefix) error {
			*list.to = p
			return out.Validate()
		}); err != nil {
			return err
		}
	}
	for i, p := range c.Places {
		key := fmt.Sprintf("clients.places[%d]", i)
		prefix, err := parsePrefix(p.CIDR)
		if err != nil {
			return &fault{key + ".cidr", err}
		}
		out.Clients.Places = append(out.Clients.Places, zones.PlaceRange{Prefix: prefix, Node: p.Node, Zone: p.Zone, Region: p.Region})
		if err := out.Validate(); err != nil {
			return &fault{key, err}
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
	return nil
}

func (c *tcpConfig) check() (out dnsserver.TCPConfig, err error) {
	for _, v := range []struct {
		key, text string
		to        *time.Duration
	}{{"tcp.idle", c.Idle, &out.Idle}, {"tcp.write", c.Write, &out.Write}} {
		if err := parseDuration(v.text, v.to); err != nil {
			return out, &fault{v.key, err}
		}
		if *v.to <= 0 {
			return out, &fault{v.key, fmt.Errorf("%v is not more than 0", *v.to)}
		}
	}
	for _, v := range []struct {
		key string
		n   int
		to  *int
	}{{"tcp.perSource", c.PerSource, &out.PerSource}, {"tcp.total", c.Total, &out.Total}} {
		if v.n < 1 {
			return out, &fault{v.key, fmt.Errorf("%d is not 1 or more", v.n)}
		}
		*v.to = v.n
	}
	if c.PerSource > c.Total {
		return out, &fault{"tcp.perSource", fmt.Errorf("%d is more than the total of %d", c.PerSource, c.Total)}
	}
	return out, nil
}

// check does not read the files.
func (c *tlsConfig) check() (out dnsserver.TLSConfig, err error) {
	for i, l := range c.Listen {
		if err := dnsserver.CheckListen(l); err != nil {
			return out, &fault{fmt.Sprintf("tls.listen[%d]", i), err}
		}
	}
	for _, f := range []struct{ key, path string }{{"tls.cert", c.Cert}, {"tls.key", c.Key}} {
		switch {
		case f.path == "" && len(c.Listen) > 0:
			return out, &fault{f.key, errors.New("no file is given")}
		case f.path != "" && len(c.Listen) == 0:
			return out, &fault{"tls.listen", fmt.Errorf("no address to listen on is given, beside %s", f.key)}
		}
	}
	if len(c.Listen) == 0 {
		return out, nil
	}
	return dnsserver.TLSConfig{Listen: c.Listen, Cert: c.Cert, Key: c.Key}, nil
}

// parseEach parses a list. Check, if there is one, is asked about what there is of
// it after each value.
func parseEach[T any](key string, texts []string, parse func(string) (T, error), check func([]T) error) (out []T, err error) {
	for i, text := range texts {
		v, err := parse(text)
		if err == nil {
			out = append(out, v)
			if check != nil {
				err = check(out)
			}
		}
		if err != nil {
			return nil, &fault{fmt.Sprintf("%s[%d]", key, i), err}
		}
	}
	return out, nil
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
	return p.Masked(), nil
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

// checkHTTP comes after the check of Listen.
func (c *config) checkHTTP() error {
	if c.HTTP == "" {
		return nil
	}
	if err := dnsserver.CheckListen(c.HTTP); err != nil {
		return err
	}
	for i, l := range c.Listen {
		if collide(l, c.HTTP) {
			return fmt.Errorf("%q and listen[%d] (--listen), %q, cannot have the same port", c.HTTP, i, l)
		}
	}
	return nil
}

// collide says whether TCP cannot listen on both addresses. No address is all of
// both families; for HTTP, the one that stands for all of a family is so too.
func collide(dns, http string) bool {
	parse := func(text string) (netip.Addr, int) {
		host, port, _ := net.SplitHostPort(text)
		addr, _ := netip.ParseAddr(host)
		n, _ := net.LookupPort("tcp", port)
		return addr, n
	}
	d, port := parse(dns)
	h, other := parse(http)
	return port == other && port != 0 && (d == h || !d.IsValid() || !h.IsValid() || h.IsUnspecified() ||
		d.IsUnspecified() && d.Is4() == h.Is4())
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
	{"http", "http", func(c, flags *config) { c.HTTP = flags.HTTP }},
	{"zone", "zones", func(c, flags *config) { c.Zones = asDescribed(flags.Zones, c.Zones) }},
	{"reverse", "reverse", func(c, flags *config) { c.Reverse = flags.Reverse }},
	{"nameserver", "nameserver", func(c, flags *config) { c.Nameserver = flags.Nameserver }},
	{"upstream", "upstream", func(c, flags *config) { c.Upstream = flags.Upstream }},
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

// asFlag makes a fault an error in the arguments, under the name of the flag.
func asFlag(err error) error {
	var f *fault
	if !errors.As(err, &f) {
		return err
	}
	for _, k := range flagKeys {
		if f.key == k.key || strings.HasPrefix(f.key, k.key+"[") {
			return usageError{&fault{"--" + k.flag, f.err}}
		}
	}
	return usageError{f}
}
