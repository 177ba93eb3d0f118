package zones

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"epdns/registry"
)

// behind makes Service shop/web of endpoints written as "host/pod/address", with a
// dash for what is missing and a "!" at the end of one that serves but is not ready.
func behind(name, namespace string, endpoints ...string) *registry.Service {
	sl := &registry.Slice{Namespace: namespace, Name: name + "-1", Service: name, Ports: []registry.Port{{Name: "http", Number: 80}}}
	for _, text := range endpoints {
		part := strings.Split(strings.TrimSuffix(strings.ReplaceAll(text, "-/", "/"), "!"), "/")
		extend(sl, registry.Endpoint{
			Hostname: part[0], Pod: part[1], Addr: netip.MustParseAddr(part[2]),
			Ready: !strings.HasSuffix(text, "!"), Serving: true,
		})
	}
	return &registry.Service{Key: registry.Key{Namespace: namespace, Name: name}, Exists: true, Slices: []*registry.Slice{sl}}
}

// extend adds endpoints to a slice that nobody has yet.
func extend(sl *registry.Slice, more ...registry.Endpoint) {
	sl.Endpoints = registry.NewEndpoints(append(sl.Endpoints.List(), more...)...)
}

// alter changes those of such a slice.
func alter(sl *registry.Slice, change func(i int, e *registry.Endpoint)) {
	list := sl.Endpoints.List()
	for i := range list {
		change(i, &list[i])
	}
	sl.Endpoints = registry.NewEndpoints(list...)
}

func answers(t *testing.T, set *Set, name string, typ uint16) string {
	t.Helper()
	m := ask(t, set, name, typ)
	var out []string
	for _, rr := range append(m.Answer, m.Extra...) {
		f := strings.Fields(rr.String())
		out = append(out, f[len(f)-1])
	}
	if len(out) == 0 {
		return dns.RcodeToString[m.Rcode]
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Labels that mean several endpoints, or something else to somebody else.
func TestSharedLabels(t *testing.T) {
	const web = "web.shop.registry.local."
	for _, c := range []struct {
		what      string
		endpoints []string
		name      string
		typ       uint16
		want      string
	}{
		{"one host name, both ready", []string{"w/-/10.0.0.1", "w/-/10.0.0.2"}, "w." + web, dns.TypeA, "10.0.0.1 10.0.0.2"},
		{"one of them shuts down", []string{"w/-/10.0.0.1", "w/-/10.0.0.2!"}, "w." + web, dns.TypeA, "10.0.0.1"},
		{"nor do SRV records lead to it", []string{"w/-/10.0.0.1", "w/-/10.0.0.2!"}, web, dns.TypeSRV, "10.0.0.1 w." + web},
		{"all of them do", []string{"w/-/10.0.0.1!", "w/-/10.0.0.2!"}, "w." + web, dns.TypeA, "10.0.0.1 10.0.0.2"},
		{"a host name like another's address", []string{"10-0-0-1/-/10.0.0.9", "-/p/10.0.0.1"}, "10-0-0-1." + web, dns.TypeA, "10.0.0.9"},
		{"that one is called by its pod", []string{"10-0-0-1/-/10.0.0.9", "-/p/10.0.0.1"}, web, dns.TypeSRV, "10-0-0-1." + web + " 10.0.0.1 10.0.0.9 p." + web},
		{"and so is its address", []string{"10-0-0-1/-/10.0.0.9", "-/p/10.0.0.1"}, "1.0.0.10.in-addr.arpa.", dns.TypePTR, "p." + web},
		{"or by nothing", []string{"10-0-0-1/-/10.0.0.9", "-/-/10.0.0.1"}, web, dns.TypeSRV, "10-0-0-1." + web + " 10.0.0.9"},
		{"and so is its address", []string{"10-0-0-1/-/10.0.0.9", "-/-/10.0.0.1"}, "1.0.0.10.in-addr.arpa.", dns.TypePTR, "NXDOMAIN"},
		{"a host name beats a pod's name", []string{"p/-/10.0.0.1", "-/p/10.0.0.2"}, "p." + web, dns.TypeA, "10.0.0.1"},
		{"two pods on one host", []string{"a/-/10.0.0.1", "b/-/10.0.0.1"}, "1.0.0.10.in-addr.arpa.", dns.TypePTR, "a." + web},
		{"which each have their name", []string{"a/-/10.0.0.1", "b/-/10.0.0.1"}, web, dns.TypeSRV, "10.0.0.1 10.0.0.1 a." + web + " b." + web},
	} {
		t.Run(c.what, func(t *testing.T) {
			set := newTestBuilder(t).Build([]*registry.Service{behind("web", "shop", c.endpoints...)}, someTime)
			if got := answers(t, set, c.name, c.typ); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A Service that calls an address by a host name goes first, also where that comes
// to be or ceases.
func TestPointersInOrder(t *testing.T) {
	b := newTestBuilder(t)
	order := func(services ...*registry.Service) (out []string) {
		for _, rr := range ask(t, b.Build(services, someTime), "1.0.0.10.in-addr.arpa.", dns.TypePTR).Answer {
			out = append(out, strings.TrimSuffix(rr.(*dns.PTR).Ptr, ".shop.registry.local."))
		}
		return out
	}
	for i, c := range []struct{ got, want []string }{
		{order(behind("a", "shop", "-/-/10.0.0.1"), behind("b", "shop", "h/-/10.0.0.1")), []string{"h.b", "10-0-0-1.a"}},
		{order(behind("c", "shop", "h/-/10.0.0.1")), []string{"h.b", "h.c", "10-0-0-1.a"}},
		{order(behind("b", "shop", "-/-/10.0.0.1")), []string{"h.c", "10-0-0-1.a", "10-0-0-1.b"}},
		{order(behind("a", "shop", "g/-/10.0.0.1")), []string{"g.a", "h.c", "10-0-0-1.b"}},
		{order(behind("c", "shop")), []string{"g.a", "10-0-0-1.b"}},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("step %d: %v, want %v", i, c.got, c.want)
		}
	}
}

// ns.dns is the zone's name server unless a Service of that name has addresses.
func TestNameserverService(t *testing.T) {
	b, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}, Nameservers: []netip.Addr{netip.MustParseAddr("192.0.2.53")}})
	if err != nil {
		t.Fatal(err)
	}
	external := &registry.Service{Key: registry.Key{Namespace: "dns", Name: "ns"}, Exists: true, Object: &registry.Object{IsExternalName: true, ExternalName: "example.com"}}
	for _, c := range []struct {
		svc  *registry.Service
		want string
	}{
		{nil, "192.0.2.53"},
		{behind("ns", "dns", "-/-/10.0.0.1"), "10.0.0.1"},
		{behind("ns", "dns"), "192.0.2.53"},
		{external, "192.0.2.53"},
	} {
		var changed []*registry.Service
		if c.svc != nil {
			changed = append(changed, c.svc)
		}
		set := b.Build(changed, someTime)
		if got := answers(t, set, "ns.dns.registry.local.", dns.TypeA); got != c.want {
			t.Errorf("%v: %q, want %q", c.svc, got, c.want)
		}
		if got := answers(t, set, "registry.local.", dns.TypeNS); got != c.want+" ns.dns.registry.local." {
			t.Errorf("%v: NS has %q", c.svc, got)
		}
	}
}

// Names that would be too long are left out, in each zone for itself, and no
// message or transfer holds a broken one.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("x", 63)
	for _, octets := range []int{100, 190, 230, 240} {
		zone := strings.Repeat("z.", octets/2-1) + "z"
		b, err := NewBuilder(Config{Zones: []Zone{DefaultZone(zone), DefaultZone("k8s.example")}, Reverse: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
		if err != nil {
			t.Fatal(err)
		}
		var services []*registry.Service
		for _, name := range []string{"a", "bb", strings.Repeat("s", 30), long} {
			svc := behind(name, name, long+"/-/10.0.0.1", "-/"+long+"/10.0.0.2", "-/-/10.0.0.3", "-/-/2001:db8::1", "h/-/10.0.0.4")
			svc.Slices[0].Ports = append(svc.Slices[0].Ports, registry.Port{Name: long[:62], Number: 81, Protocol: registry.SCTP})
			services = append(services, svc)
		}
		set := b.Build(services, someTime)
		dump(t, set) // reads every record
		for i := 1; i <= 4; i++ {
			ask(t, set, fmt.Sprintf("%d.0.0.10.in-addr.arpa.", i), dns.TypePTR)
		}
		for _, name := range []string{"a.a.", long + "." + long + "."} {
			if got := answers(t, set, name+"k8s.example.", dns.TypeA); !strings.Contains(got, "10.0.0.1") {
				t.Errorf("zone of %d octets: %s in the other zone: %q", octets, name, got)
			}
			_, above, _ := strings.Cut(name, ".")
			if got := answers(t, set, above+"k8s.example.", dns.TypeA); got != "NOERROR" {
				t.Errorf("zone of %d octets: the namespace in the other zone is %q", octets, got)
			}
		}
	}
}
