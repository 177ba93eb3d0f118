package zones

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/miekg/dns"

	"epdns/registry"
)

// longest is the longest prefix of at most so many bits that holds all of a subnet, by
// looking at each; of equal ones the first.
func longest(list []netip.Prefix, of netip.Prefix, bits int) (best int) {
	best = -1
	for i, p := range list {
		if p.Bits() <= bits && p.Contains(of.Addr()) && (best < 0 || p.Bits() > list[best].Bits()) {
			best = i
		}
	}
	return best
}

// randomPrefix is one of few numbers, so that prefixes nest, and of every length.
func randomPrefix(r *rand.Rand) netip.Prefix {
	if r.IntN(2) == 0 {
		a := netip.AddrFrom4([4]byte{10, byte(r.IntN(3)) << 6, byte(r.IntN(2)) << 7, byte(r.IntN(4))})
		p, _ := a.Prefix(r.IntN(33))
		return p
	}
	b := [16]byte{0xfd, 1: byte(r.IntN(2)), 7: byte(r.IntN(2)), 8: byte(r.IntN(2)) << 7, 15: byte(r.IntN(4))}
	if r.IntN(8) == 0 {
		b = [16]byte{10: 0xff, 11: 0xff, 12: 10} // where IPv4 addresses are as numbers
	}
	p, _ := netip.AddrFrom16(b).Prefix(r.IntN(129))
	if p.Addr().Is4In6() {
		p, _ = p.Addr().Prefix(r.IntN(90))
	}
	return p
}

func bitsOf(p netip.Prefix) int {
	if p.Addr().Is4() {
		return p.Bits() + 96
	}
	return p.Bits()
}

// randomIn is an address of a prefix.
func randomIn(r *rand.Rand, p netip.Prefix) netip.Addr {
	b := p.Addr().As16()
	for i := bitsOf(p); i < 128; i++ {
		if r.IntN(2) == 0 {
			b[i/8] ^= 0x80 >> (i % 8)
		}
	}
	if a := netip.AddrFrom16(b); p.Addr().Is4() {
		return a.Unmap()
	} else {
		return a
	}
}

// The ranges find what looking at each prefix finds, and the same everywhere within as
// many bits as they say.
func TestRanges(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	sources := []Sources{FromNodes, FromPodCIDRs}
	for round := range 300 {
		var list []netip.Prefix
		var of []Sources
		var entries []rangeEntry
		for range r.IntN(12) {
			p := randomPrefix(r)
			if slices.Contains(list, p) {
				continue
			}
			list, of = append(list, p), append(of, sources[r.IntN(2)])
			// As it may be written, with bits beyond its length.
			entries = append(entries, newRange(netip.PrefixFrom(randomIn(r, p), p.Bits()), where{node: uint32(len(list))}, of[len(of)-1]))
		}
		ranges := newRanges(entries)
		look := func(of Sources, has []Sources, p netip.Prefix) int {
			var some []netip.Prefix
			var at []int
			for i := range list {
				if has[i]&of != 0 {
					some, at = append(some, list[i]), append(at, i)
				}
			}
			if i := longest(some, p, p.Bits()); i >= 0 {
				return at[i] + 1
			}
			return 0
		}
		for range 100 {
			asked := randomPrefix(r)
			if len(list) > 0 && r.IntN(3) > 0 { // at or near one of them
				p := list[r.IntN(len(list))]
				asked, _ = randomIn(r, p).Prefix(min(p.Addr().BitLen(), max(0, p.Bits()-3+r.IntN(9))))
			}
			if asked.Addr().Is4In6() {
				continue
			}
			use := []Sources{FromNodes, FromPodCIDRs, FromNodes | FromPodCIDRs}[r.IntN(3)]
			most := bitsOf(asked)
			e, piece := ranges.find(toNumber(asked.Addr()), most, use)
			got := 0
			if e != nil {
				got = int(e.where.node)
			}
			if want := look(use, of, asked); got != want {
				t.Fatalf("round %d: %v of %v finds %d, want %d of %v", round, asked, use, got, want, list)
			}
			// Whoever asks from the same block, with as many bits or fewer than the
			// block has, gets the same.
			same := ranges.same(toNumber(asked.Addr()), piece, e, most)
			if same < 0 || same > 128 {
				t.Fatal(same)
			}
			block, _ := asked.Addr().Prefix(max(0, same-bitsOf(netip.PrefixFrom(asked.Addr(), 0))))
			if same > most {
				continue // it is kept for the asked subnet alone
			}
			for range 20 {
				other, _ := randomIn(r, block).Prefix(asked.Bits())
				if want := look(use, of, other); want != got {
					t.Fatalf("round %d: %v finds %d and says that all of %v do, but %v finds %d of %v", round, asked, got, block, other, want, list)
				}
			}
			// And it is the largest such block, unless a source that does not count cuts it.
			if use == FromNodes|FromPodCIDRs && same > 0 && (e == nil || same > e.bits) && block.Bits() > 0 {
				larger, _ := block.Addr().Prefix(block.Bits() - 1)
				// IPv4 addresses are numbers among those of IPv6, which cuts that.
				found := larger.Contains(netip.MustParseAddr("::ffff:0:0"))
				for _, p := range list {
					if p.Bits() >= larger.Bits() && larger.Overlaps(p) {
						found = true
					}
				}
				if !found {
					t.Fatalf("round %d: %v could be good for all of %v and not only %v of %v", round, asked, larger, block, list)
				}
			}
		}
	}
}

// whereIs is the place and what told it, for an address or a subnet.
func whereIs(set *Set, q Question) string {
	var a asker
	set.locate(&q, &a)
	if a.neutral {
		return "neutral"
	}
	if a.source == 0 {
		return "unknown"
	}
	text := func(s string) string {
		if s == "" {
			return "-"
		}
		return s
	}
	id := &set.ids
	return fmt.Sprintf("%s/%s/%s by %v", text(id.nodes.text(a.node)), text(id.zones.text(a.zone)), text(id.regions.text(a.region)), a.source)
}

func aNode(name, zone, region string, addrs string, cidrs ...string) *registry.Node {
	n := &registry.Node{Name: name, Zone: zone, Region: region, Ready: true}
	if addrs != "" {
		n.Addresses = append(n.Addresses, netip.MustParseAddr(addrs))
	}
	for _, c := range cidrs {
		n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix(c))
	}
	return n
}

// system makes a Service of kube-system.
func system(name, label string, addrs ...string) *registry.Service {
	svc := &registry.Service{Key: registry.Key{Namespace: "kube-system", Name: name}, Exists: true, Object: &registry.Object{}}
	if label != "" {
		svc.Object.Labels = registry.Pairs{{Key: "k8s-app", Value: label}}
	}
	sl := &registry.Slice{Namespace: "kube-system", Name: name + "-1", Service: name}
	for _, a := range addrs {
		extend(sl, registry.Endpoint{Addr: netip.MustParseAddr(a), Node: "n1", Zone: "a", Region: "r", Ready: true, Serving: true})
	}
	svc.Slices = []*registry.Slice{sl}
	return svc
}

// named gives a Service another name and namespace.
func named(svc *registry.Service, namespace, name string) *registry.Service {
	svc.Key = registry.Key{Namespace: namespace, Name: name}
	for _, sl := range svc.Slices {
		sl.Namespace, sl.Service = namespace, name
	}
	return svc
}

func mustPrefixes(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// Each source of a place, and which one comes first.
func TestPlaces(t *testing.T) {
	nodes := []*registry.Node{
		aNode("n1", "a", "r", "192.0.2.1", "10.1.0.0/24", "fd00:1::/64"),
		aNode("n2", "b", "r", "192.0.2.2", "10.2.0.0/16"),
		aNode("n3", "b", "r", "192.0.2.3", "10.2.3.0/24"),
		aNode("n4", "b", "", "192.0.2.4"),
	}
	unready := aNode("n5", "c", "s", "192.0.2.5")
	unready.Ready = false
	nodes = append(nodes, unready, aNode("n6", "b", "r", "192.0.2.5"))
	services := func(t *testing.T) []*registry.Service {
		return []*registry.Service{
			named(serving(t, "", "10.1.0.9 n2/b/r", "10.1.0.10 n2/b/r dead", "10.9.0.1 n1/a/r unready", "10.9.0.2 n1/a/r", "192.0.2.1 n1/a/r", "fd00:1::9 n3/b/r slice=2"), "one", "x"),
			named(serving(t, "", "10.9.0.1 n2/b/r", "10.9.0.2 n2/b/r created=9 slice=9", "10.9.0.3 -/-/-", "10.9.0.4 -/a/-"), "two", "y"),
			named(serving(t, "", "10.9.0.3 n3/b/r unready"), "three", "z"),
			system("kube-dns", "", "10.8.0.1", "192.0.2.3"),
			system("coredns", "kube-dns", "10.8.0.2"),
			system("other", "x", "10.8.0.3"),
			named(system("kube-dns", "kube-dns", "10.8.0.4"), "default", "kube-dns"),
		}
	}
	clients := Clients{
		TrustedForwarders: mustPrefixes("198.51.100.53/32", "198.51.100.54/32"),
		SharedCaches:      mustPrefixes("198.51.100.54/32"),
		Places: []PlaceRange{
			{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Zone: "a"},
			{Prefix: netip.MustParsePrefix("198.51.100.128/25"), Zone: "x", Region: "y"},
			{Prefix: netip.MustParsePrefix("198.51.100.7/32"), Node: "n2"},
			{Prefix: netip.MustParsePrefix("198.51.100.8/32"), Node: "elsewhere", Zone: "b"},
			{Prefix: netip.MustParsePrefix("10.2.3.4/32"), Zone: "a"},
			{Prefix: netip.MustParsePrefix("::/0"), Region: "six"},
		},
	}
	for _, c := range []struct {
		what, ask string
		off       Sources
		want      string
	}{
		{"an endpoint, before its podCIDR", "10.1.0.9", 0, "n2/b/r by endpoints"},
		{"one that does not serve", "10.1.0.10", 0, "n2/b/r by endpoints"},
		{"IPv6", "fd00:1::9", 0, "n3/b/r by endpoints"},
		{"ready beats not ready", "10.9.0.1", 0, "n2/b/r by endpoints"},
		{"the newer slice", "10.9.0.2", 0, "n2/b/r by endpoints"},
		{"who knows beats who does not", "10.9.0.3", 0, "n3/b/r by endpoints"},
		{"the region of a zone", "10.9.0.4", 0, "-/a/r by endpoints"},
		{"hostNetwork", "192.0.2.1", 0, "n1/a/r by endpoints"},
		{"a Node", "192.0.2.2", 0, "n2/b/r by nodes"},
		{"a Node without region", "192.0.2.4", 0, "n4/b/r by nodes"},
		{"of two Nodes the one that is ready", "192.0.2.5", 0, "n6/b/r by nodes"},
		{"a podCIDR", "10.1.0.99", 0, "n1/a/r by podCIDRs"},
		{"the longest", "10.2.3.4", 0, "n3/b/r by podCIDRs"},
		{"the other", "10.2.4.4", 0, "n2/b/r by podCIDRs"},
		{"IPv6", "fd00:1::99", 0, "n1/a/r by podCIDRs"},
		{"a configured place, with the region of its zone", "198.51.100.1", 0, "-/a/r by places"},
		{"the longest", "198.51.100.129", 0, "-/x/y by places"},
		{"a Node's", "198.51.100.7", 0, "n2/b/r by places"},
		{"of a Node that is not there", "198.51.100.8", 0, "elsewhere/b/r by places"},
		{"nowhere: IPv6 prefixes hold no IPv4 addresses", "203.0.113.1", 0, "unknown"},
		{"but IPv6 ones", "2001:db8::1", 0, "-/-/six by places"},

		{"no endpoints", "10.1.0.9", FromEndpoints, "n1/a/r by podCIDRs"},
		{"no podCIDRs", "10.2.3.4", FromPodCIDRs, "-/a/r by places"},
		{"no Nodes", "192.0.2.2", FromNodes, "unknown"},
		{"no places", "198.51.100.1", FromPlaces, "unknown"},
		{"nothing", "10.1.0.9", ^Sources(0), "unknown"},

		{"cluster DNS by its name", "10.8.0.1", 0, "neutral"},
		{"by its label", "10.8.0.2", 0, "neutral"},
		{"on a Node's address", "192.0.2.3", 0, "neutral"},
		{"another label", "10.8.0.3", 0, "n1/a/r by endpoints"},
		{"another namespace", "10.8.0.4", 0, "n1/a/r by endpoints"},
		{"whatever is off", "10.8.0.1", ^Sources(0), "neutral"},
		{"a configured cache", "198.51.100.54", 0, "neutral"},
		{"a trusted forwarder has its own place", "198.51.100.53", 0, "-/a/r by places"},

		{"a subnet of one address", "/10.1.0.9/32", 0, "n2/b/r by endpoints"},
		{"a subnet is no endpoint", "/10.1.0.0/30", 0, "n1/a/r by podCIDRs"},
		{"wider than the podCIDR", "/10.1.0.0/23", 0, "unknown"},
		{"wider than the longest", "/10.2.0.0/20", 0, "n2/b/r by podCIDRs"},
		{"a Node's", "/192.0.2.2/32", 0, "n2/b/r by nodes"},
		{"no Node's", "/192.0.2.2/31", 0, "unknown"},
		{"a place's", "/198.51.100.0/24", 0, "-/a/r by places"},
		{"cluster DNS asks for itself", "/10.8.0.1/32", 0, "n1/a/r by endpoints"},
		{"for nobody in particular", "/0.0.0.0/0", 0, "neutral"},
		{"IPv6", "/fd00:1::/64", 0, "n1/a/r by podCIDRs"},
		{"wider", "/fd00:1::/48", 0, "-/-/six by places"},
	} {
		t.Run(c.what+" "+c.ask, func(t *testing.T) {
			cl := clients
			cl.Off = c.off
			b, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}, Clients: cl})
			if err != nil {
				t.Fatal(err)
			}
			b.SetNodes(nodes)
			set := b.Build(services(t), someTime)
			q := Question{From: netip.MustParseAddr("198.51.100.54")}
			if c.ask[0] == '/' {
				q.Subnet = netip.MustParsePrefix(c.ask[1:])
			} else {
				q.From = netip.MustParseAddr(c.ask)
			}
			if got := whereIs(set, q); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
	b, _ := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}, Clients: clients})
	set := b.Build(nil, someTime)
	for addr, want := range map[string]bool{"198.51.100.53": true, "198.51.100.54": true, "198.51.100.55": false} {
		if got := set.Trusts(netip.MustParseAddr(addr)); got != want {
			t.Errorf("trusts %s: %t", addr, got)
		}
	}
	clients.Off = FromECS
	b, _ = NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}, Clients: clients})
	if b.Build(nil, someTime).Trusts(netip.MustParseAddr("198.51.100.53")) {
		t.Error("with ecs off nobody is trusted")
	}
}

// An endpoint that several slices have, alike in name, is where the one says that is
// ready, else the newer.
func TestTwinsTellThePlace(t *testing.T) {
	for _, c := range []struct{ what, first, second, want string }{
		{"ready", "n1/a/r unready created=9", "n2/b/r created=1", "n2/b/r by endpoints"},
		{"newer", "n1/a/r created=1", "n2/b/r created=9", "n2/b/r by endpoints"},
		{"older", "n1/a/r created=9", "n2/b/r created=1", "n1/a/r by endpoints"},
		{"who knows", "-/-/- created=9", "n2/b/r created=1 unready", "n2/b/r by endpoints"},
		{"newer after 2038", "n1/a/r created=2147483600", "n2/b/r created=2147483700", "n2/b/r by endpoints"},
	} {
		for _, pods := range [][2]string{{"pod=p", "pod=p"}, {"pod=p", "pod=q"}} {
			set := served(t, serving(t, "", "10.0.0.1 "+c.first+" "+pods[0], "10.0.0.1 "+c.second+" slice=2 "+pods[1]))
			if got := whereIs(set, Question{From: netip.MustParseAddr("10.0.0.1")}); got != c.want {
				t.Errorf("%s, pods %v: %s, want %s", c.what, pods, got, c.want)
			}
			k := asks(t, set)
			if got := texts(k.at("", "b.pin._zone."+web, dns.TypeA)); len(got) != 1 && c.want[0:2] == "n2" {
				t.Errorf("%s, pods %v: zone b has %v", c.what, pods, got)
			}
		}
	}
}

// The scope of an answer, RFC 7871 section 7.2.1.
func TestScope(t *testing.T) {
	nodes := []*registry.Node{
		aNode("n1", "a", "r", "192.0.2.1", "10.1.0.0/16"),
		aNode("n2", "b", "r", "", "10.1.128.0/20"),
		aNode("n3", "b", "r", "", "fd00:1::/64"),
	}
	clients := Clients{Places: []PlaceRange{{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Zone: "a"}, {Prefix: netip.MustParsePrefix("10.0.0.0/8"), Zone: "c"}}}
	for _, c := range []struct {
		what, knobs, subnet, name string
		typ                       uint16
		want                      int
	}{
		{"an endpoint", "", "10.1.0.9/32", web, dns.TypeA, 32},
		{"IPv6", "", "fd00:1::9/128", web, dns.TypeA, 128},
		{"a Node", "", "192.0.2.1/32", web, dns.TypeA, 32},
		{"a range, where others are within", "", "10.1.7.0/24", web, dns.TypeA, 17},
		{"a range next to another", "", "10.1.144.0/24", web, dns.TypeA, 20},
		{"a range within", "", "10.1.128.0/24", web, dns.TypeA, 20},
		{"IPv6 range", "", "fd00:1::/96", web, dns.TypeA, 64},
		{"a place", "", "198.51.100.7/32", web, dns.TypeA, 24},
		{"a place with podCIDRs within", "", "10.2.0.0/24", web, dns.TypeA, 15},
		{"unknown", "", "203.0.113.0/24", web, dns.TypeA, 24},
		{"unknown IPv6", "", "2001:db8::/56", web, dns.TypeA, 56},
		{"nobody in particular", "", "0.0.0.0/0", web, dns.TypeA, 0},
		{"topology off", "topology=off", "10.1.0.9/32", web, dns.TypeA, 0},
		{"hash: no less than the source", "order=hash; topology=off", "10.1.7.0/24", web, dns.TypeA, 24},
		{"hash", "order=hash", "10.1.7.0/24", web, dns.TypeA, 24},
		{"hash, unknown", "order=hash", "203.0.113.0/24", web, dns.TypeA, 24},
		{"hash, nobody", "order=hash", "0.0.0.0/0", web, dns.TypeA, 0},
		{"an endpoint's own name", "", "10.1.7.0/24", "10-1-0-9." + web, dns.TypeA, 0},
		{"own name with hash", "order=hash", "10.1.7.0/24", "10-1-0-9." + web, dns.TypeA, 0},
		{"NODATA", "", "10.1.7.0/24", web, dns.TypeTXT, 0},
		{"NODATA of a family", "", "10.1.7.0/24", "10-1-0-9." + web, dns.TypeAAAA, 0},
		{"NXDOMAIN", "", "10.1.7.0/24", "nope." + web, dns.TypeA, 0},
		{"elsewhere", "", "10.1.7.0/24", "nope.example.", dns.TypeA, 0},
		{"the apex", "", "10.1.7.0/24", "registry.local.", dns.TypeSOA, 0},
		{"PTR", "", "10.1.7.0/24", "9.0.1.10.in-addr.arpa.", dns.TypePTR, 0},
		{"SRV", "", "10.1.7.0/24", "_http._tcp." + web, dns.TypeSRV, 17},
		{"pin: only the order depends on it", "", "10.1.7.0/24", "b.pin._zone." + web, dns.TypeA, 17},
		{"one endpoint alone", "", "10.1.7.0/24", "c.pin._zone." + web, dns.TypeA, 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			b, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}, Clients: clients})
			if err != nil {
				t.Fatal(err)
			}
			b.SetNodes(nodes)
			k := asks(t, b.Build([]*registry.Service{serving(t, c.knobs, "10.1.0.9 n2/b/r", "10.1.0.10 n2/b/r", "10.9.0.1 n1/a/r", "10.9.0.2 n5/c/r", "fd00:1::9 n3/b/r slice=2")}, someTime))
			k.ask(&Question{Name: k.parse(c.name), Type: c.typ, From: netip.MustParseAddr("192.0.2.53"), Subnet: netip.MustParsePrefix(c.subnet)}, nil)
			if got := k.answer.Scope(); got != c.want {
				t.Errorf("/%d, want /%d", got, c.want)
			}
			k.answer.Explain() // of whatever there is
		})
	}
}

// podCIDRs that lie are not believed: more than a tenth, of at least twenty.
func TestLyingPodCIDRs(t *testing.T) {
	nodes := []*registry.Node{aNode("n1", "a", "r", "192.0.2.1", "10.1.0.0/24"), aNode("n2", "b", "r", "192.0.2.2", "10.2.0.0/24")}
	// honest endpoints on n1 and liars, which are on n2 in n1's podCIDR.
	mix := func(honest, liars, host int) *registry.Service {
		var list []string
		for i := range honest {
			list = append(list, fmt.Sprintf("10.1.0.%d n1/a/r", i+1))
		}
		for i := range liars {
			list = append(list, fmt.Sprintf("10.1.0.%d n2/b/r", 100+i))
		}
		for i := range host {
			list = append(list, fmt.Sprintf("192.0.2.%d n1/a/r", 100+i))
		}
		return serving(t, "", list...)
	}
	b, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}})
	if err != nil {
		t.Fatal(err)
	}
	b.SetNodes(nodes)
	other := func(lie bool) string {
		if lie {
			return "unknown"
		}
		return "n1/a/r by podCIDRs"
	}
	for _, c := range []struct {
		what                string
		honest, liars, host int
		lie                 bool
	}{
		{"none", 30, 0, 0, false},
		{"a tenth", 27, 3, 0, false},
		{"more", 26, 3, 0, true},
		{"too few to tell", 9, 10, 0, false},
		{"just as many", 10, 10, 0, true},
		{"and back", 30, 1, 0, false},
		{"all", 0, 30, 0, true},
		{"gone", 0, 0, 0, false},
	} {
		set := b.Build([]*registry.Service{mix(c.honest, c.liars, c.host)}, someTime)
		if got := whereIs(set, Question{From: netip.MustParseAddr("10.1.0.250")}); got != other(c.lie) {
			t.Errorf("%s: %s", c.what, got)
		}
	}
	// Addresses of Nodes count for nothing: 27 and 3 of 30, and not of 54.
	all := slices.Clone(nodes)
	for i := range 24 {
		all = append(all, aNode(fmt.Sprintf("h%d", i), "a", "r", fmt.Sprintf("192.0.2.%d", 100+i)))
	}
	b.SetNodes(all)
	if got := whereIs(b.Build([]*registry.Service{mix(26, 3, 24)}, someTime), Question{From: netip.MustParseAddr("10.1.0.250")}); got != "unknown" {
		t.Errorf("hostNetwork aside: %s", got)
	}
	// The Nodes change: what was a lie is none now.
	b.SetNodes(append(all, aNode("n0", "b", "r", "", "10.1.0.96/27")))
	all[1].PodCIDRs = append(all[1].PodCIDRs, netip.MustParsePrefix("10.1.0.100/30"))
	b.SetNodes(all)
	if got := whereIs(b.Build(nil, someTime), Question{From: netip.MustParseAddr("10.1.0.250")}); got != "n1/a/r by podCIDRs" {
		t.Errorf("after the Nodes changed: %s", got)
	}
}
