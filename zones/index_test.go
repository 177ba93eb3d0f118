package zones

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"epdns/registry"
)

// village is a few Services and Nodes that change, as snapshots of the registry: a slice
// that has not changed is the same one.
type village struct {
	r        *rand.Rand
	services map[registry.Key]*registry.Service
	nodes    []*registry.Node
}

// addr is one of a few, so that Services share them and slices have twins.
func (v *village) addr() netip.Addr {
	n := v.r.IntN(100)
	switch {
	case n < 4: // hostNetwork
		return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})
	case n < 12:
		return netip.MustParseAddr(fmt.Sprintf("2001:db8:0:%x::%x", n%3, 60+n))
	case n < 14:
		return netip.MustParseAddr(fmt.Sprintf("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff%02x", 0xf0+n))
	}
	return netip.AddrFrom4([4]byte{10, 0, byte(n % 4), byte(n)})
}

func (v *village) slice(key registry.Key, name string, n int) *registry.Slice {
	sl := &registry.Slice{Namespace: key.Namespace, Name: name, Service: key.Name, Created: int64(v.r.IntN(4))}
	sl.Ports = []registry.Port{{Name: "http", Number: 80}}
	for range n {
		node := v.r.IntN(5)
		e := registry.Endpoint{Addr: v.addr(), Ready: v.r.IntN(3) > 0, Node: fmt.Sprintf("n%d", node), Zone: fmt.Sprintf("z%d", node%2)}
		e.Serving = e.Ready || v.r.IntN(2) == 0
		e.Terminating = !e.Ready && e.Serving
		switch v.r.IntN(6) {
		case 0:
			e.Node, e.Zone = "", ""
		case 1:
			e.Hostname = fmt.Sprintf("h%d", v.r.IntN(3))
		case 2:
			e.Hostname = "10-0-0-20" // somebody else's address
		}
		extend(sl, e)
	}
	return sl
}

// change makes the next snapshot of a Service.
func (v *village) change() *registry.Service {
	keys := []registry.Key{{Namespace: "shop", Name: "web"}, {Namespace: "shop", Name: "db"}, {Namespace: "kube-system", Name: "dns"}, {Namespace: "shop", Name: "api"}}
	key := keys[v.r.IntN(len(keys))]
	old := v.services[key]
	s := &registry.Service{Key: key, Exists: true, Object: &registry.Object{}}
	if v.r.IntN(3) == 0 {
		s.Object.Labels = registry.Pairs{{Key: "k8s-app", Value: "kube-dns"}}
	}
	if v.r.IntN(12) == 0 {
		s.Object.IsExternalName, s.Object.ExternalName = true, "example.org"
	}
	if old != nil {
		s.Slices = slices.Clone(old.Slices)
		if v.r.IntN(3) > 0 {
			s.Object = old.Object
		}
		if v.r.IntN(12) == 0 {
			delete(v.services, key)
			return &registry.Service{Key: key}
		}
	}
	for range 1 + v.r.IntN(2) {
		name := fmt.Sprintf("s%d", v.r.IntN(4))
		i, has := slices.BinarySearchFunc(s.Slices, name, func(sl *registry.Slice, name string) int { return strings.Compare(sl.Name, name) })
		switch n := 1 + v.r.IntN(6); {
		case !has:
			s.Slices = slices.Insert(s.Slices, i, v.slice(key, name, n))
		case v.r.IntN(4) == 0:
			s.Slices = slices.Delete(s.Slices, i, i+1)
		case v.r.IntN(2) == 0: // some endpoints are ready now, or no longer
			sl := *s.Slices[i]
			alter(&sl, func(_ int, e *registry.Endpoint) {
				if v.r.IntN(2) == 0 {
					e.Ready = !e.Ready
				}
			})
			s.Slices[i] = &sl
		default:
			s.Slices[i] = v.slice(key, name, n)
		}
	}
	v.services[key] = s
	return s
}

// settle makes other Nodes.
func (v *village) settle() []*registry.Node {
	v.nodes = nil
	for i := range 5 {
		if v.r.IntN(4) == 0 {
			continue
		}
		n := &registry.Node{Name: fmt.Sprintf("n%d", i), Zone: fmt.Sprintf("z%d", i%2), Region: fmt.Sprintf("r%d", v.r.IntN(4)/3), Ready: true}
		n.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}
		for _, p := range []string{
			fmt.Sprintf("10.0.%d.0/24", i), fmt.Sprintf("10.0.%d.%d/27", v.r.IntN(4), v.r.IntN(4)*32), fmt.Sprintf("2001:db8:0:%x::/64", i),
			fmt.Sprintf("2001:db8:0:%x::40/123", i), "10.0.0.0/8", "::/0", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00/120",
		} {
			if v.r.IntN(4) == 0 {
				n.PodCIDRs = append(n.PodCIDRs, netip.MustParsePrefix(p))
			}
		}
		v.nodes = append(v.nodes, n)
	}
	return v.nodes
}

// checkIndex holds the index against what the Services and their slices say, address by
// address.
func checkIndex(t *testing.T, b *Builder) {
	t.Helper()
	s := b.Last()
	want := map[netip.Addr][]holder{}
	for key, svc := range s.services[0].all {
		told := map[netip.Addr]standing{}
		for _, sl := range svc.source.Slices {
			for _, e := range sl.Endpoints.All() {
				told[e.Addr] = max(told[e.Addr], standingOf(e.Ready, uint32(sl.Created)))
			}
		}
		for addr := range svc.addrs() {
			p := svc.holds(addr)
			record, _ := p.findAddr(addr)
			h := holder{by: &indexed{key, isClusterDNS(svc.source), false}, created: uint32(told[addr]), ready: told[addr]>>32 != 0}
			if w := p.areas.at(p.family(addr).place(uint32(record))); w != (where{}) {
				h.place = &w
			}
			h.named = p.family(addr).name(record) != unnamed && !svc.hidden
			_, h.host = p.nameOf(addr)
			want[addr] = append(want[addr], h)
		}
	}
	text := func(holders []holder) (all []string) {
		for _, h := range holders {
			place := where{}
			if h.place != nil {
				place = *h.place
			}
			all = append(all, fmt.Sprintf("%q DNS %v place %v created %d ready %v named %v host %v", h.by.key, h.by.clusterDNS, place, h.created, h.ready, h.named, h.host))
		}
		return all
	}
	n := 0
	for addr, holders := range s.index.all {
		n++
		if !slices.IsSortedFunc(holders, func(a, b holder) int { return sign(b.before(&a)) }) {
			t.Fatalf("%v: not in order: %v", addr, text(holders))
		}
		slices.SortFunc(want[addr], func(a, b holder) int { return sign(b.before(&a)) })
		if got, want := text(holders), text(want[addr]); !slices.Equal(got, want) {
			t.Fatalf("%v is of\n%v, want\n%v", addr, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if got := text(s.index.get(addr)); !slices.Equal(got, text(holders)) {
			t.Fatalf("%v is found to be of %v, and passed as of %v", addr, got, text(holders))
		}
	}
	if n != len(want) {
		t.Fatalf("%d addresses, want %d", n, len(want))
	}
	for range 20 {
		if addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(200 + rand.IntN(50))}); len(s.index.get(addr)) > 0 {
			t.Fatalf("%v is of somebody", addr)
		}
	}
	var count lies
	blocks := indexer{reverse: s.cfg.reverse, blocks: (&table[int]{}).edit()}
	for addr, holders := range s.index.all {
		count.count(s.atlas, addr, holders, 1)
		if anyNamed(holders) {
			blocks.countBlocks(addr, 1)
		}
	}
	if b.index.podCIDRs != count {
		t.Fatalf("lies are counted %+v, and anew %+v", b.index.podCIDRs, count)
	}
	if blocks.blocks.len() != s.blocks.len() {
		t.Fatalf("%d reverse names, and counted anew %d", s.blocks.len(), blocks.blocks.len())
	}
	for key, n := range s.blocks.all {
		if m, _ := blocks.blocks.getString(key); n != m {
			t.Fatalf("reverse name %x: %d addresses, and counted anew %d", key, n, m)
		}
	}
}

// After each change the index is what the Services as they are then make it: shared
// addresses, twins in slices, hostNetwork and the cluster's DNS included, in parts and whole.
func TestIndexFollowsChanges(t *testing.T) {
	shared, inParts := 0, 0
	for seed := range uint64(20) {
		v := &village{r: rand.New(rand.NewPCG(seed, 9)), services: map[registry.Key]*registry.Service{}}
		b := newTestBuilder(t)
		if seed%2 == 0 {
			b.room.sizes = sizes{whole: 6, most: 5, usual: 3, least: 2}
		}
		for range 120 {
			var changed []*registry.Service
			for range v.r.IntN(4) {
				s := v.change()
				changed = slices.DeleteFunc(changed, func(o *registry.Service) bool { return o.Key == s.Key })
				changed = append(changed, s)
			}
			if v.r.IntN(4) == 0 {
				b.SetNodes(v.settle())
			}
			before := b.Last()
			was := len(slices.Collect(keysOf(&before.index)))
			b.Build(changed, someTime)
			checkIndex(t, b)
			if n := len(slices.Collect(keysOf(&before.index))); n != was {
				t.Fatalf("an index that was published had %d addresses, and has %d", was, n)
			}
			for _, holders := range b.Last().index.all {
				shared += count(len(holders) > 1)
			}
			for _, s := range b.Last().services[0].all {
				inParts += count(s.parts != nil)
			}
		}
	}
	if shared == 0 || inParts == 0 {
		t.Fatalf("%d shared addresses and %d Services in parts: the test has tested nothing", shared, inParts)
	}
}

func keysOf(x *index) func(func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		x.all(func(addr netip.Addr, _ []holder) bool { return yield(addr) })
	}
}

// Addresses in prefixes are the same ones, whether lists are looked up or all are gone through.
func TestEachIn(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var x indexer
	x.start(&index{}, &table[int]{}, &atlas{})
	by := &indexed{key: "k"}
	for i := range 3000 {
		addr := netip.AddrFrom4([4]byte{10, byte(r.IntN(3)), byte(i >> 8), byte(i)})
		if i%10 == 0 {
			addr = netip.MustParseAddr(fmt.Sprintf("ffff:ffff:ffff:ffff:ffff:ffff:ffff:%x", 0xffff-i*7))
		}
		x.put(addr, nil, &holder{by: by})
	}
	of, _ := x.done()
	for range 300 {
		var list []rangeEntry
		for range 1 + r.IntN(4) {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(r.IntN(3)), byte(r.IntN(12)), byte(r.IntN(256))}), 20+r.IntN(13))
			if r.IntN(4) == 0 {
				p = netip.PrefixFrom(netip.MustParseAddr("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), 112+r.IntN(17))
			}
			list = append(list, newRange(p.Masked(), where{}, FromPodCIDRs))
		}
		in := newRanges(list)
		seen := map[netip.Addr]int{}
		in.eachIn(&of, func(addr netip.Addr, _ []holder) bool { seen[addr]++; return true })
		n := 0
		of.all(func(addr netip.Addr, _ []holder) bool {
			if in.contains(addr) {
				if n++; seen[addr] != 1 {
					t.Fatalf("%v comes %d times", addr, seen[addr])
				}
			}
			return true
		})
		if n != len(seen) {
			t.Fatalf("%d addresses, want %d", len(seen), n)
		}
	}
}

// BenchmarkIndex is what it costs to find the place of an asker that is an endpoint, any
// of N, and to answer for its reverse name.
func BenchmarkIndex(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		builder, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}})
		if err != nil {
			b.Fatal(err)
		}
		var all []*registry.Service
		for i := range n {
			all = append(all, someService(i, 0))
		}
		set := builder.Build(all, someTime)
		r := rand.New(rand.NewPCG(1, 2))
		addr := func() netip.Addr {
			n := r.IntN(10 * n)
			return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
		}
		b.Run(fmt.Sprintf("place/%d", 10*n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var who asker
				if set.locate(&Question{From: addr()}, &who); who.source != FromEndpoints {
					b.Fatal("not found")
				}
			}
		})
		b.Run(fmt.Sprintf("PTR/%d", 10*n), func(b *testing.B) {
			a, name, out := NewAnswer(), []byte(nil), make([]byte, 0, 512)
			q := Question{Type: TypePTR}
			b.ReportAllocs()
			for b.Loop() {
				of := blockOf(addr(), 4)
				name = appendReverse(name[:0], &of)
				q.Name = name
				set.Lookup(&q, a)
				if _, n, _ := a.AppendTo(out[:headerSize], 0, 512, 0); n.Answer != 1 {
					b.Fatal("no answer")
				}
			}
		})
	}
}
