package zones

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"epdns/registry"
)

// layoutCluster has Service web with a named and an unnamed pod, and empty with
// nothing that has a name.
func layoutCluster() []*registry.Service {
	addr := netip.MustParseAddr
	key := func(name string) registry.Key { return registry.Key{Namespace: "shop", Name: name} }
	return []*registry.Service{
		{Key: key("web"), Exists: true, Slices: []*registry.Slice{{
			Namespace: "shop", Name: "web-1", Service: "web",
			Ports: []registry.Port{{Name: "http", Number: 8080}},
			Endpoints: registry.NewEndpoints(
				registry.Endpoint{Addr: addr("10.0.0.1"), Hostname: "first", Pod: "web-x", Ready: true},
				registry.Endpoint{Addr: addr("10.0.0.2"), Pod: "web-y", Ready: true},
				registry.Endpoint{Addr: addr("10.0.0.3"), Pod: "web.with.dots", Ready: true},
			),
		}}},
		{Key: key("empty"), Exists: true, Object: &registry.Object{Ports: []registry.Port{{Name: "http", Number: 80}}}, Slices: []*registry.Slice{{
			Namespace: "shop", Name: "empty-1", Service: "empty",
			Endpoints: registry.NewEndpoints(registry.Endpoint{Addr: addr("10.0.1.1")}),
		}}},
		{Key: key("closing"), Exists: true, Slices: []*registry.Slice{{
			Namespace: "shop", Name: "closing-1", Service: "closing",
			Endpoints: registry.NewEndpoints(registry.Endpoint{Addr: addr("10.0.2.1"), Serving: true, Terminating: true}),
		}}},
	}
}

func TestZoneChoices(t *testing.T) {
	zone := func(change func(*Zone)) Config {
		z := DefaultZone("example.")
		change(&z)
		return Config{Zones: []Zone{z}}
	}
	short := zone(func(*Zone) {})
	kubernetes := zone(func(z *Zone) { z.Layout = Kubernetes })
	letter := zone(func(z *Zone) { z.Empty = Nonexist })
	byPod := zone(func(z *Zone) { z.EndpointNames = ByPod })
	const nodata = "NOERROR"
	for _, c := range []struct {
		what string
		cfg  Config
		name string
		typ  uint16
		want string // rcode, or texts of the answer
	}{
		{"layout short", short, "web.shop.example.", dns.TypeA, "10.0.0.1 10.0.0.2 10.0.0.3"},
		{"layout short, the other one's name", short, "web.shop.svc.example.", dns.TypeA, "NXDOMAIN"},
		{"layout kubernetes", kubernetes, "web.shop.svc.example.", dns.TypeA, "10.0.0.1 10.0.0.2 10.0.0.3"},
		{"layout kubernetes, SRV targets", kubernetes, "_http._tcp.web.shop.svc.example.", dns.TypeSRV, "first.web.shop.svc.example. 10-0-0-2.web.shop.svc.example."},
		{"layout kubernetes, a pod", kubernetes, "first.web.shop.svc.example.", dns.TypeA, "10.0.0.1"},
		{"layout kubernetes, the other one's name", kubernetes, "web.shop.example.", dns.TypeA, "NXDOMAIN"},
		{"layout kubernetes, svc", kubernetes, "svc.example.", dns.TypeA, nodata},
		{"layout kubernetes, namespace", kubernetes, "shop.svc.example.", dns.TypeA, nodata},
		{"layout kubernetes, no such namespace", kubernetes, "nope.svc.example.", dns.TypeA, "NXDOMAIN"},
		{"layout kubernetes, name server", kubernetes, "dns.example.", dns.TypeA, nodata},
		{"layout kubernetes, not below svc", kubernetes, "dns.svc.example.", dns.TypeA, "NXDOMAIN"},
		{"layout kubernetes, version", kubernetes, "dns-version.example.", dns.TypeTXT, "1.1.0"},
		{"layout kubernetes, no pods' subtree", kubernetes, "10-0-0-1.shop.pod.example.", dns.TypeA, "NXDOMAIN"},
		{"layout kubernetes, PTR", kubernetes, "2.0.0.10.in-addr.arpa.", dns.TypePTR, "10-0-0-2.web.shop.svc.example."},
		{"empty is there", short, "empty.shop.example.", dns.TypeA, nodata},
		{"and so are its port names", short, "_http._tcp.empty.shop.example.", dns.TypeSRV, nodata},
		{"empty is not there, by the letter", letter, "empty.shop.example.", dns.TypeA, "NXDOMAIN"},
		{"for no type", letter, "empty.shop.example.", dns.TypeTXT, "NXDOMAIN"},
		{"and so nothing below", letter, "_http._tcp.empty.shop.example.", dns.TypeSRV, "NXDOMAIN"},
		{"by the letter, with a pod that still has its name", letter, "closing.shop.example.", dns.TypeA, nodata},
		{"which is this", letter, "10-0-2-1.closing.shop.example.", dns.TypeA, "10.0.2.1"},
		{"by the letter, others as ever", letter, "web.shop.example.", dns.TypeA, "10.0.0.1 10.0.0.2 10.0.0.3"},
		{"names by pod", byPod, "_http._tcp.web.shop.example.", dns.TypeSRV, "first.web.shop.example. web-y.web.shop.example. 10-0-0-3.web.shop.example."},
		{"names by pod, PTR", byPod, "2.0.0.10.in-addr.arpa.", dns.TypePTR, "web-y.web.shop.example."},
		{"names by pod, a host name goes first", byPod, "1.0.0.10.in-addr.arpa.", dns.TypePTR, "first.web.shop.example."},
		{"names by pod, one that is no label", byPod, "3.0.0.10.in-addr.arpa.", dns.TypePTR, "10-0-0-3.web.shop.example."},
	} {
		t.Run(c.what, func(t *testing.T) {
			b, err := NewBuilder(c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			m := ask(t, b.Build(layoutCluster(), someTime), c.name, c.typ)
			if rcode := dns.RcodeToString[m.Rcode]; strings.ToUpper(c.want) == c.want && !strings.Contains(c.want, ".") {
				if rcode != c.want || len(m.Answer) > 0 || len(m.Ns) != 1 {
					t.Fatalf("want %s:\n%v", c.want, m)
				}
				return
			}
			wants := strings.Fields(c.want)
			if c.typ == dns.TypeA && len(m.Answer) != len(wants) {
				t.Fatalf("want %s:\n%v", c.want, m)
			}
			for _, want := range wants {
				if !strings.Contains(m.String(), want) {
					t.Fatalf("%s is missing:\n%v", want, m)
				}
			}
		})
	}
}

func TestValidate(t *testing.T) {
	prefix := netip.MustParsePrefix
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "no zone"},
		{Config{Zones: []Zone{DefaultZone("")}}, "the root cannot be served"},
		{Config{Zones: []Zone{DefaultZone("a..b")}}, "empty label"},
		{Config{Zones: []Zone{DefaultZone(strings.Repeat("x", 64) + ".local")}}, "more than 63 octets"},
		{Config{Zones: []Zone{DefaultZone("ex ample")}}, `character ' ' is not allowed`},
		{Config{Zones: []Zone{DefaultZone("10.in-addr.arpa")}}, "given as prefixes"},
		{Config{Zones: []Zone{DefaultZone("local"), DefaultZone("registry.local")}}, "within"},
		{Config{Zones: []Zone{DefaultZone("a.local"), DefaultZone("A.local.")}}, "given twice"},
		{Config{Zones: []Zone{DefaultZone("arpa")}}, "given as prefixes"},
		{Config{Zones: []Zone{DefaultZone(strings.Repeat("a.", 122))}}, "no room for names"},
		{Config{Zones: []Zone{{Name: "local", Layout: 7}}}, "no such choice"},
		{Config{Zones: []Zone{{Name: "local", Defaults: Values{"ttl": "1500ms"}}}}, "not whole seconds"},
		{Config{Zones: []Zone{{Name: "local", Defaults: Values{"ttl-empty": "2h"}}}}, "ttl-empty"},
		{Config{Zones: []Zone{DefaultZone("local")}, Reverse: []netip.Prefix{prefix("10.0.0.0/8"), prefix("10.1.0.0/16")}}, "overlap"},
		{Config{Zones: []Zone{DefaultZone("local")}, Nameservers: []netip.Addr{netip.IPv4Unspecified()}}, "no address to ask"},
		{Config{Zones: []Zone{DefaultZone("local")}, Nameservers: []netip.Addr{netip.MustParseAddr("::ffff:192.0.2.9")}}, "no address to ask"},
		{Config{Zones: []Zone{DefaultZone("local")}, Nameservers: []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("192.0.2.9")}}, "given twice"},
		{Config{Zones: []Zone{DefaultZone("local"), DefaultZone("example.com")}, Reverse: []netip.Prefix{prefix("10.0.0.0/8"), prefix("fd00::/8")}}, ""},
	} {
		err := c.cfg.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v; want %q", c.cfg, err, c.want)
		}
	}
}
