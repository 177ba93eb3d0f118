package zones

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"epdns/registry"
)

// scopedService has endpoints in zones a and b.c, on nodes with dots, and one of each
// readiness.
func scopedService(t testing.TB, knobs string) *registry.Service {
	svc := serving(t, knobs,
		"10.0.0.1 n1.example/a/r",
		"10.0.0.2 n1.example/a/r unready",
		"10.0.0.3 n2.example/b.c/r host=h",
		"10.0.0.4 n3.example/b.c/r dead",
		"10.0.0.5 n4.example/Upper/South closing",
		"10.0.0.6 -/-/-",
		"fd00::1 n1.example/a/r slice=2 port=admin:9090",
		"10.0.0.7 n5.example/a/r slice=3 port=admin:9090",
	)
	return svc
}

// Names of Services in all their parts: a view, a scope, a port, for each type.
func TestScopedNames(t *testing.T) {
	const nx, no = "NXDOMAIN", "NOERROR"
	for _, c := range []struct {
		name         string // before the Service's
		a, aaaa, srv string
		other        string // of any other type
	}{
		{"", "1 3 6 7", "1", "1 1 6 7 h", no},

		// Views.
		{"_ready", "1 3 6 7", "1", "1 1 6 7 h", no},
		{"_serving", "1 2 3 5 6 7", "1", "1 1 2 5 6 7 h", no},
		{"_all", "1 2 3 4 5 6 7", "1", "1 1 2 4 5 6 7 h", no},
		{"_ALL", "1 2 3 4 5 6 7", "1", "1 1 2 4 5 6 7 h", no},
		{"_none", nx, nx, nx, nx},
		{"x._all", nx, nx, nx, nx},
		{"h._all", nx, nx, nx, nx},
		{"_all._all", nx, nx, nx, nx},
		{"10-0-0-2._all", nx, nx, nx, nx},

		// Ports.
		{"_http._tcp", no, no, "1 6 h", no},
		{"_admin._tcp", no, no, "1 7", no},
		{"_tcp", no, no, no, no},
		{"_udp", nx, nx, nx, nx},
		{"_http._udp", nx, nx, nx, nx},
		{"_http._tcp._all", no, no, "1 2 4 5 6 h", no},
		{"_tcp._all", no, no, no, no},
		{"_udp._all", nx, nx, nx, nx},
		{"http._tcp", nx, nx, nx, nx},
		{"x._http._tcp", nx, nx, nx, nx},

		// Scopes and what is above them.
		{"_zone", no, no, no, no},
		{"pin._zone", no, no, no, no},
		{"prefer._zone", no, no, no, no},
		{"other._zone", nx, nx, nx, nx},
		{"a.other._zone", nx, nx, nx, nx},
		{"_node", no, no, no, no},
		{"_region", no, no, no, no},
		{"a.pin._zone", "1 7", "1", "1 1 7", no},
		{"A.PIN._ZONE", "1 7", "1", "1 1 7", no},
		{"b.c.pin._zone", "3", no, "h", no},
		{"c.pin._zone", no, no, no, no},
		{"x.b.c.pin._zone", no, no, no, no},
		{"upper.pin._zone", no, no, no, no},
		{"nope.pin._zone", no, no, no, no},
		{"a.prefer._zone", "1 7", "1", "1 1 7", no},
		{"b.c.prefer._zone", "3", "1", "h", no},
		{"nope.prefer._zone", "1 3 6 7", "1", "1 1 6 7 h", no},
		{"n1.example.pin._node", "1", "1", "1 1", no},
		{"n3.example.pin._node", no, no, no, no},
		{"n3.example.prefer._node", "1 3 6 7", "1", "1 1 6 7 h", no},
		{"r.pin._region", "1 3 7", "1", "1 1 7 h", no},
		{"a.pin._region", no, no, no, no},
		{"n1.example.pin._zone", no, no, no, no},

		// With a port in front, after which prefer is judged.
		{"_http._tcp.a.pin._zone", no, no, "1", no},
		{"_admin._tcp.a.pin._zone", no, no, "1 7", no},
		{"_admin._tcp.b.c.pin._zone", no, no, no, no},
		{"_admin._tcp.b.c.prefer._zone", no, no, "1 7", no},
		{"_http._tcp.b.c.pin._zone", no, no, "h", no},
		{"_http._tcp.nope.prefer._zone", no, no, "1 6 h", no},
		{"_tcp.a.pin._zone", no, no, no, no},
		{"_udp.a.pin._zone", nx, nx, nx, nx},
		{"_http._udp.a.pin._zone", nx, nx, nx, nx},
		{"_nope._tcp.a.pin._zone", nx, nx, nx, nx},
		{"x._nope._tcp.a.pin._zone", nx, nx, nx, nx},
		{"x._tcp.a.pin._zone", nx, nx, nx, nx},
		{"x._http._tcp.a.pin._zone", nx, nx, nx, nx},
		{"_tcp.pin._zone", nx, nx, nx, nx},
		{"_http._tcp.pin._zone", nx, nx, nx, nx},

		// In a view.
		{"_zone._all", no, no, no, no},
		{"pin._zone._all", no, no, no, no},
		{"a.pin._zone._all", "1 2 7", "1", "1 1 2 7", no},
		{"b.c.pin._zone._all", "3 4", no, "4 h", no},
		{"b.c.pin._zone._serving", "3", no, "h", no},
		{"upper.pin._zone._serving", "5", no, "5", no},
		{"south.pin._region._all", "5", no, "5", no},
		{"_http._tcp.b.c.pin._zone._all", no, no, "4 h", no},
		{"_all.a.pin._zone", nx, nx, nx, nx},
		{"n3.example.prefer._node._all", "4", "1", "4", no},

		// Endpoints' own.
		{"h", "3", no, "h", no},
		{"10-0-0-3", "3", no, "h", no},
		{"10-0-0-1", "1", no, "1", no},
		{"10-0-0-2", "2", no, "2", no}, // it serves
		{"10-0-0-5", "5", no, "5", no},
		{"10-0-0-4", nx, nx, nx, nx}, // it does not
		{"fd00--1", no, "1", "1", no},
		{"10-0-0-9", nx, nx, nx, nx},
		{"x.h", nx, nx, nx, nx},
		{"_x.h", nx, nx, nx, nx},
	} {
		for _, limit := range []string{"", "limit=9", "topology=nearest; order=fixed", "topology=hints; order=rotate"} {
			k := asks(t, served(t, scopedService(t, limit)))
			name := strings.TrimPrefix(c.name+"."+web, ".")
			for typ, want := range map[uint16]string{dns.TypeA: c.a, dns.TypeAAAA: c.aaaa, dns.TypeSRV: c.srv, dns.TypeTXT: c.other, dns.TypeMX: c.other} {
				if got := short(k.at("", name, typ)); got != want {
					t.Errorf("%s: %s %s: %s, want %s", limit, name, dns.TypeToString[typ], got, want)
				}
			}
			// ANY is answered where there is anything, RFC 8482.
			any := k.at("", name, dns.TypeANY)
			has := strings.Trim(c.a+c.aaaa+c.srv, "NOERXDMAI") != ""
			if (len(any.Answer) == 1) != has || dns.RcodeToString[any.Rcode] == nx != (c.other == nx) {
				t.Errorf("%s ANY:\n%v", name, any)
			}
		}
	}
}

// A name that a Service publishes, or _serving would, answers; _all leads to addresses
// whatever their own names do.
func TestHiddenEndpoints(t *testing.T) {
	endpoints := []string{"10.0.0.1", "10.0.0.2 unready", "10.0.0.3 closing", "10.0.0.4 dead"}
	for _, c := range []struct{ knobs, published, named string }{
		{"", "1", "1 2 3"},
		{"publish=serving", "1 2 3", "1 2 3"},
		{"publish=all", "1 2 3 4", "1 2 3 4"},
		{"fallback=all", "1", "1 2 3"},
	} {
		k := asks(t, served(t, serving(t, c.knobs, endpoints...)))
		if got := short(k.at("", web, dns.TypeA)); got != c.published {
			t.Errorf("%s: %s, want %s", c.knobs, got, c.published)
		}
		var names []string
		for i := range endpoints {
			if m := k.at("", fmt.Sprintf("10-0-0-%d.%s", i+1, web), dns.TypeA); len(m.Answer) == 1 {
				names = append(names, fmt.Sprint(i+1))
			} else if m.Rcode != dns.RcodeNameError {
				t.Errorf("%s: endpoint %d is NODATA", c.knobs, i+1)
			}
		}
		if got := strings.Join(names, " "); got != c.named {
			t.Errorf("%s: named are %s, want %s", c.knobs, got, c.named)
		}
		if m := k.at("", "_all."+web, dns.TypeSRV); len(m.Answer) != 4 || len(m.Extra) != 4 {
			t.Errorf("%s: _all SRV has %d records and %d addresses", c.knobs, len(m.Answer), len(m.Extra))
		}
	}
	k := asks(t, served(t, serving(t, "fallback=all", endpoints[1:]...)))
	if got := short(k.at("", web, dns.TypeA)) + "; " + short(k.at("", "10-0-0-4."+web, dns.TypeA)); got != "2 3 4; 4" {
		t.Errorf("fallback to all: %s", got)
	}
}

// A limit is one of endpoints: in SRV, in scopes and in views, but not at a name that
// several endpoints have.
func TestLimit(t *testing.T) {
	var endpoints []string
	for i := range 8 {
		endpoints = append(endpoints, fmt.Sprintf("10.0.0.%d n/%s/r host=h%d", i+1, "ab"[i%2:i%2+1], i/4), fmt.Sprintf("10.0.0.%d n/%s/r host=h%d slice=2 port=admin:1", i+1, "ab"[i%2:i%2+1], i/4))
	}
	for i := range 8 {
		endpoints = append(endpoints, fmt.Sprintf("10.0.1.%d n/%s/r", i+1, "ab"[i%2:i%2+1]), fmt.Sprintf("10.0.1.%d n/%s/r slice=2 port=admin:1", i+1, "ab"[i%2:i%2+1]))
	}
	k := asks(t, served(t, serving(t, "limit=3", endpoints...)))
	for name, want := range map[string][2]int{ // A and SRV
		"":                          {3, 6},
		"_all.":                     {3, 6},
		"a.pin._zone.":              {3, 6},
		"nope.prefer._zone._ready.": {3, 6},
		"_http._tcp.":               {0, 3},
		"_http._tcp.a.pin._zone.":   {0, 3},
		"h0.":                       {4, 2},
		"h1.":                       {4, 2},
	} {
		for range 20 {
			a, srv := k.at("n/a/r", name+web, dns.TypeA), k.at("n/a/r", name+web, dns.TypeSRV)
			if len(a.Answer) != want[0] || len(srv.Answer) != want[1] {
				t.Errorf("%s: %d A and %d SRV, want %v", name, len(a.Answer), len(srv.Answer), want)
			}
		}
	}
}

// By the letter of the specification a Service without names is not there, but its views
// are where they have something; with anybody named it is.
func TestNonexistentAndViews(t *testing.T) {
	zone := DefaultZone("registry.local")
	zone.Empty = Nonexist
	for _, c := range []struct {
		endpoints []string
		want      map[string]string
	}{
		{nil, map[string]string{"": "NXDOMAIN", "_all.": "NXDOMAIN", "_http._tcp.": "NXDOMAIN", "_zone.": "NXDOMAIN", "a.pin._zone.": "NXDOMAIN", "_explain.": "NXDOMAIN"}},
		{[]string{"10.0.0.1 n/a/r dead"}, map[string]string{"": "NXDOMAIN", "_all.": "1", "_serving.": "NXDOMAIN", "_ready.": "NXDOMAIN", "_zone.": "NXDOMAIN", "a.pin._zone.": "NXDOMAIN", "a.pin._zone._all.": "1", "_zone._all.": "NOERROR", "10-0-0-1.": "NXDOMAIN"}},
		{[]string{"10.0.0.1 n/a/r unready"}, map[string]string{"": "NOERROR", "_all.": "1", "_serving.": "1", "_ready.": "NOERROR", "a.pin._zone.": "NOERROR", "10-0-0-1.": "1"}},
		{[]string{"10.0.0.1 n/a/r"}, map[string]string{"": "1", "_all.": "1", "a.pin._zone.": "1", "b.pin._zone.": "NOERROR", "b.prefer._zone.": "1"}},
	} {
		b, err := NewBuilder(Config{Zones: []Zone{zone}})
		if err != nil {
			t.Fatal(err)
		}
		k := asks(t, b.Build([]*registry.Service{serving(t, "", c.endpoints...)}, someTime))
		for name, want := range c.want {
			m := k.at("", name+web, dns.TypeA)
			if got := short(m); got != want {
				t.Errorf("%v: %s: %s, want %s", c.endpoints, name, got, want)
			}
			if m.Rcode == dns.RcodeNameError && len(m.Ns) != 1 {
				t.Errorf("%v: %s has no SOA:\n%v", c.endpoints, name, m)
			}
		}
	}
}

// Nothing exists below a name that does not (RFC 8020), whatever it is made of.
func TestNothingBelowNXDomain(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	labels := strings.Fields("a b c x _tcp _udp _http _admin _zone _node _region pin prefer _all _ready _serving _explain h 10-0-0-1 n1 example nope _nope")
	k := asks(t, served(t, scopedService(t, "")))
	exists := func(name string) bool { return k.at("", name, dns.TypeA).Rcode == dns.RcodeSuccess }
	below := 0
	for range 20_000 {
		name := web
		for range 1 + r.IntN(6) {
			above := exists(name)
			name = labels[r.IntN(len(labels))] + "." + name
			if exists(name) {
				below++
				if !above {
					t.Fatalf("%s exists, and what is above it does not", name)
				}
			} else if r.IntN(4) > 0 {
				break
			}
		}
	}
	if below < 300 {
		t.Fatalf("only %d names exist", below)
	}
}

// A host name that several endpoints have is in each scope that one of them is in, of those
// that the name shows and that have the port.
func TestScopesOfSharedNames(t *testing.T) {
	endpoints := []string{
		"10.0.0.1 n1/a/r host=same", "10.0.0.2 n2/b/r host=same", "10.0.0.3 n2/b/r host=other", "10.0.0.4 n3/c/s host=same unready",
		"10.0.0.5 n4/d/s", "10.0.0.2 n2/b/r host=same slice=2 port=admin:9090",
		"10.0.0.6 n1/a/r host=late unready", "10.0.0.7 n2/b/r host=late", "fd00::8 n2/b/r host=late slice=3",
	}
	for _, knobs := range []string{
		"", "order=fixed", "order=hash", "order=rotate", "weights=same=5, other=2", "topology=nearest", "topology=hints", "topology=off",
		"limit=5; weights=same=5; order=fixed", "order=hash; weights=late=7",
	} {
		k := asks(t, served(t, serving(t, knobs, endpoints...)))
		for _, c := range []struct{ name, srv, a string }{
			{"", "5 late same same other", "1 2 3 5 7"},
			{"a.pin._zone", "same same", "1"},
			{"b.pin._zone", "late same same other", "2 3 7"},
			{"c.pin._zone", "NOERROR", "NOERROR"},
			{"c.prefer._zone", "5 late same same other", "1 2 3 5 7"},
			{"d.prefer._zone", "5", "5"},
			{"n1.pin._node", "same same", "1"},
			{"n2.pin._node", "late same same other", "2 3 7"},
			{"r.pin._region", "late same same other", "1 2 3 7"},
			{"s.pin._region", "5", "5"},
			{"_http._tcp.a.pin._zone", "same", "NOERROR"},
			{"_http._tcp.b.pin._zone", "late same other", "NOERROR"},
			{"_admin._tcp.a.pin._zone", "NOERROR", "NOERROR"},
			{"_admin._tcp.b.pin._zone", "same", "NOERROR"},
			{"a.pin._zone._all", "late same same", "1 6"},
			{"c.pin._zone._all", "same same", "4"},
			{"s.pin._region._all", "5 same same", "4 5"},
		} {
			for _, from := range []string{"", "n1/a/r", "n2/b/r", "n9/c/s"} {
				name := strings.TrimPrefix(c.name+"."+web, ".")
				if strings.Contains(knobs, "limit") && len(strings.Fields(c.srv)) > 5 {
					continue
				}
				if strings.Contains(knobs, "nearest") && from != "" && !strings.Contains(c.name, "._") {
					continue // who asks chooses
				}
				if got := short(k.at(from, name, dns.TypeSRV)); got != c.srv {
					t.Errorf("%s: %s SRV from %q: %s, want %s", knobs, name, from, got, c.srv)
				}
				if got := short(k.at(from, name, dns.TypeA)); got != c.a {
					t.Errorf("%s: %s A from %q: %s, want %s", knobs, name, from, got, c.a)
				}
			}
		}
	}
	// Weighted by zone, who gets nothing does not count.
	k := asks(t, served(t, serving(t, "weights=zone:a=0", endpoints...)))
	if got := short(k.at("", "a.pin._zone."+web, dns.TypeSRV)); got != "NOERROR" {
		t.Errorf("weight 0 in zone a: %s", got)
	}
	// All of them share one name.
	k = asks(t, served(t, serving(t, "", "10.0.0.1 n1/a/r host=same", "10.0.0.2 n2/b/r host=same")))
	for _, zone := range []string{"a", "b"} {
		if got := short(k.at("", zone+".pin._zone."+web, dns.TypeSRV)); got != "same" {
			t.Errorf("one name in zone %s: %s", zone, got)
		}
	}
}

// A zone is all endpoints that say they are in it, whatever the labels of their Nodes.
func TestZoneInSeveralRegions(t *testing.T) {
	for _, nodes := range [][]*registry.Node{nil, {aNode("n1", "a", "r", ""), aNode("n2", "a", "s", "")}, {aNode("n3", "a", "t", "")}} {
		b, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}})
		if err != nil {
			t.Fatal(err)
		}
		b.SetNodes(nodes)
		k := asks(t, b.Build([]*registry.Service{serving(t, "", "10.0.0.1 n1/a/r", "10.0.0.2 n2/a/s", "10.0.0.3 n3/a/-", "10.0.0.4 -/a/-", "10.0.0.5 n5/b/s", "10.0.0.6 n6/b/-")}, someTime))
		if got := short(k.at("", "a.pin._zone."+web, dns.TypeA)); got != "1 2 3 4" {
			t.Errorf("zone a: %s", got)
		}
		if got := short(k.at("", "b.pin._zone."+web, dns.TypeA)); got != "5 6" {
			t.Errorf("zone b: %s", got)
		}
	}
}

// The longest names there can be, with views and scopes, answer or do not exist, and
// never more than 255 octets are written.
func TestLongScopedNames(t *testing.T) {
	long := strings.Repeat("v", 63)
	for _, octets := range []int{120, 200, 225, 232, 240} {
		zone := strings.Repeat("z.", octets/2-1) + "z"
		b, err := NewBuilder(Config{Zones: []Zone{DefaultZone(zone)}})
		if err != nil {
			t.Fatal(err)
		}
		k := asks(t, b.Build([]*registry.Service{named(serving(t, "", "10.0.0.1 "+long+"/"+long+"/r", "10.0.0.2 n/a/r unready", "fd00::1 n/a/r slice=2"), "n", "s")}, someTime))
		for _, name := range []string{"", "_all.", "a.pin._zone.", long + ".pin._zone.", long + ".pin._node._serving.", "_http._tcp." + long + ".prefer._zone._all.", "_http._tcp._serving."} {
			if _, err := ParseName(name + "s.n." + zone); err != nil {
				continue // nobody can ask
			}
			for _, typ := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypeTXT} {
				if m := k.at("", name+"s.n."+zone, typ); m.Rcode != dns.RcodeSuccess {
					t.Errorf("zone of %d octets: %s%s is %s", octets, name, dns.TypeToString[typ], dns.RcodeToString[m.Rcode])
				}
			}
		}
		wire, _ := ParseName(zone)
		records, _ := k.set.Transfer(wire, netip.Addr{})
		for r := range records {
			if n := nameLen(r); n > maxName {
				t.Errorf("zone of %d octets: an owner of %d", octets, n)
			}
		}
	}
}
