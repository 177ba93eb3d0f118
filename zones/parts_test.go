package zones

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"epdns/registry"
)

// crowd is a random Service of many endpoints, most of the time one that is compiled in
// parts.
type crowd struct {
	*world
	svc    registry.Service
	last   int  // of the endpoints that were made
	shares bool // some on one node have a host name together
	dual   bool // some have an address of each family
}

var crowdNodes = []string{"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10", "n11", "n12", "n13", "n14", "n15", "n16", "n17", "n18", "n19"}

func newCrowd(seed uint64, n int) *crowd {
	c := &crowd{world: newWorld(seed), shares: seed%4 == 1, dual: seed%3 == 0}
	c.svc = registry.Service{Key: registry.Key{Namespace: "shop", Name: "web"}, Exists: true, Object: &registry.Object{}}
	for c.last < n {
		c.change(c.slice())
	}
	return c
}

// slice is a slice that may be changed: one that is there, or a new one.
func (c *crowd) slice() *registry.Slice {
	if n := len(c.svc.Slices); n > 0 && c.r.IntN(4) > 0 {
		sl := *c.svc.Slices[c.r.IntN(n)]
		return &sl
	}
	sl := &registry.Slice{Namespace: "shop", Name: fmt.Sprintf("web-%03d", c.r.IntN(1000)), Service: "web", Created: int64(c.r.IntN(5))}
	sl.Ports = []registry.Port{{Name: "http", Number: uint16(8080 + c.r.IntN(2))}}
	if c.r.IntN(5) == 0 {
		sl.Ports = append(sl.Ports, registry.Port{Name: "metrics", Number: 9090})
	}
	for range 1 + c.r.IntN(6) {
		extend(sl, c.pod()...)
	}
	return sl
}

// pod is the endpoints of a pod, which may have an address of each family.
func (c *crowd) pod() []registry.Endpoint {
	e := c.endpoint()
	if !c.dual || !e.Addr.Is4() || c.r.IntN(4) > 0 {
		return []registry.Endpoint{e}
	}
	other := e
	other.Addr = c.sixth()
	return []registry.Endpoint{e, other}
}

// sixth is the IPv6 address of the last one made.
func (c *crowd) sixth() netip.Addr {
	return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(c.last), 14: byte(c.last >> 8)})
}

func (c *crowd) endpoint() registry.Endpoint {
	c.last++
	n := c.r.IntN(len(crowdNodes))
	e := registry.Endpoint{
		Addr: netip.AddrFrom4([4]byte{10, byte(c.r.IntN(2)), byte(c.last >> 8), byte(c.last)}), Pod: fmt.Sprintf("pod-%d", c.r.IntN(1000)*1000+c.last),
		Node: crowdNodes[n], Zone: worldZones[n%3], Region: []string{"coast", "hills", "coast"}[n%3], Ready: true, Serving: true,
	}
	switch c.r.IntN(12) {
	case 0:
		e.Addr = c.sixth()
	case 1:
		e.Hostname = fmt.Sprintf("web-%d", c.last)
	case 2:
		e.Node, e.Zone, e.Region = "", "", ""
	case 3:
		if c.shares {
			e.Hostname = "on-" + e.Node
		}
	}
	return e
}

// put puts a slice where it belongs, as the registry does, and in a list of its own.
func (c *crowd) change(sl *registry.Slice) {
	list := slices.DeleteFunc(slices.Clone(c.svc.Slices), func(s *registry.Slice) bool { return s.Name == sl.Name })
	at, _ := slices.BinarySearchFunc(list, sl.Name, func(s *registry.Slice, name string) int {
		return slices.Compare([]byte(s.Name), []byte(name))
	})
	c.svc.Slices = slices.Insert(list, at, sl)
}

// step makes a random change and returns the Service as it is then.
func (c *crowd) step() *registry.Service {
	sl := c.slice()
	list := sl.Endpoints.List()
	one := func() *registry.Endpoint { return &list[c.r.IntN(len(list))] }
	switch k := c.r.IntN(100); {
	case len(list) == 0 || k < 20:
		list = append(list, c.pod()...)
	case k < 45:
		at := c.r.IntN(len(list))
		list = slices.Delete(list, at, at+1)
	case k < 60:
		*one() = c.endpoint()
	case k < 70:
		e := one()
		e.Ready, e.Serving, e.Terminating = c.r.IntN(2) == 0, c.r.IntN(2) == 0, c.r.IntN(2) == 0
	case k < 75:
		if hints := registry.NewHints([]string{pick(c.world, worldZones...)}, nil); c.r.IntN(2) == 0 {
			for i := range list {
				list[i].Hints = hints
			}
		}
	case k < 78: // all of them
		hints := c.r.IntN(2) == 0
		ready := c.r.IntN(3) > 0
		for i := range c.svc.Slices {
			s := *c.svc.Slices[i]
			alter(&s, func(_ int, e *registry.Endpoint) {
				e.Hints = registry.Hints{}
				if e.Ready = ready; hints && e.Zone != "" {
					e.Hints = registry.NewHints([]string{e.Zone}, nil)
				}
			})
			c.change(&s)
		}
	case k < 84:
		values := []registry.Pairs{
			{{Key: "topology", Value: "nearest"}}, {{Key: "limit", Value: "3"}, {Key: "topology", Value: "hints"}}, {{Key: "publish", Value: "all"}},
			{{Key: "fallback", Value: "serving"}}, {{Key: "order", Value: "hash"}}, {{Key: "ttl", Value: "9"}}, {{Key: "topology", Value: "off"}}, {}, {}, {},
		}
		c.svc.Object = &registry.Object{Annotations: values[c.r.IntN(len(values))]}
	case k < 87: // in two slices
		*one() = c.svc.Slices[0].Endpoints.At(0)
	case k < 89:
		one().Hostname = "web-0"
	case k < 91:
		one().Zone = "b"
	case k < 93:
		one().Pod = "10-0-0-1"
	case k < 97 && len(c.svc.Slices) > 3:
		c.svc.Slices = slices.Delete(slices.Clone(c.svc.Slices), 1, 2)
		svc := c.svc
		return &svc
	}
	sl.Endpoints = registry.NewEndpoints(list...)
	c.change(sl)
	svc := c.svc
	return &svc
}

// someNodes are Nodes of a crowd, of which one may say that its zone is in another region.
func (c *crowd) someNodes() (list []*registry.Node) {
	odd := c.r.IntN(4 * len(crowdNodes))
	for i, name := range crowdNodes {
		n := &registry.Node{Name: name, Zone: worldZones[i%3], Region: []string{"coast", "hills", "coast"}[i%3], Ready: true}
		if i == odd {
			n.Region = "plains"
		}
		if c.r.IntN(3) > 0 {
			list = append(list, n)
		}
	}
	return list
}

// A Service in parts answers, and explains its answers, as the same one compiled whole,
// whatever has become of it, and most of a change leaves most portions as they were.
func TestPartsAnswerAsTheWhole(t *testing.T) {
	asked, inParts, stayed, remade := 0, 0, 0, 0
	for seed := range uint64(9) {
		c := newCrowd(seed, 20+2*int(seed))
		config := testConfig()
		if seed%3 == 2 {
			config.ChurnTTL = 2 * time.Second
		}
		divided, _ := NewBuilder(config)
		whole, _ := NewBuilder(config)
		divided.room.sizes = sizes{whole: 6, most: 12, usual: 5, least: 3}
		whole.room.sizes = sizes{whole: 1 << 30}
		now := someTime
		for step := range 40 {
			was, _ := divided.last.services[0].getString("\x03web\x04shop")
			svc := []*registry.Service{c.step()}
			if c.r.IntN(12) == 0 {
				nodes := c.someNodes()
				divided.SetNodes(nodes)
				whole.SetNodes(nodes)
			}
			now = now.Add(time.Duration(c.r.IntN(12)) * time.Second)
			one, two := divided.Build(svc, now), whole.Build(svc, now)
			checkIndex(t, divided)
			if got, want := dump(t, one), dump(t, two); got != want {
				t.Fatalf("seed %d, step %d: in parts:\n%s\n\nwhole:\n%s", seed, step, got, want)
			}
			is, _ := one.services[0].getString("\x03web\x04shop")
			if is.parts == nil {
				continue
			}
			inParts++
			for _, p := range is.parts.list {
				if n := len(p.of); n > divided.room.sizes.most {
					t.Fatalf("seed %d, step %d: a portion has %d endpoints", seed, step, n)
				}
				if was != nil && was.parts != nil && slices.Contains(was.parts.list, p) {
					stayed++
				} else {
					remade++
				}
			}
			if step%8 == 0 {
				c.asked = 0
				c.compareAnswers(t, one, two)
				asked += c.asked
				c.compareExplanations(t, one, two)
			}
		}
	}
	t.Logf("%d steps in parts, %d portions stayed and %d were made, %d questions", inParts, stayed, remade, asked)
	if inParts < 100 || stayed < remade || asked < 1000 {
		t.Errorf("%d steps in parts, %d portions stayed and %d were made, %d questions", inParts, stayed, remade, asked)
	}
}

// compareExplanations asks both Sets why, for each endpoint's own name and some others.
func (c *crowd) compareExplanations(t *testing.T, one, two *Set) {
	t.Helper()
	x, y := asks(t, one), asks(t, two)
	names := slices.Clone(worldNames)
	for range 10 {
		sl := pick(c.world, c.svc.Slices...)
		for _, e := range sl.Endpoints.All() {
			names = append(names, pick(c.world, e.Pod, dashed(e.Addr))+".")
		}
	}
	for _, name := range names {
		q := Question{Name: x.parse(name + "web.shop.registry.local."), Type: pick(c.world, uint16(TypeA), TypeAAAA, TypeSRV)}
		q.From = netip.MustParseAddr(pick(c.world, "10.0.0.1", "10.1.0.2", "10.0.0.20", "203.0.113.9"))
		if got, want := x.ask(&q, nil).String(), y.ask(&q, nil).String(); got != want {
			t.Fatalf("%+v: in parts:\n%s\nwhole:\n%s", q, got, want)
		}
		if got, want := x.answer.Explain(), y.answer.Explain(); !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v: in parts:\n%+v\nwhole:\n%+v", q, got, want)
		}
	}
}

// podsOfBothFamilies are 2,000 on 40 nodes, in slices of 100 endpoints. Networks hand
// out addresses in no order of their nodes.
func podsOfBothFamilies() *registry.Service {
	svc := &registry.Service{Key: registry.Key{Namespace: "shop", Name: "web"}, Exists: true, Object: &registry.Object{}}
	for i := range 2000 {
		if i%100 == 0 {
			for _, family := range []string{"v4", "v6"} {
				svc.Slices = append(svc.Slices, &registry.Slice{Namespace: "shop", Name: fmt.Sprintf("web-%s-%02d", family, i/100), Service: "web"})
			}
		}
		for j, e := range podOfBothFamilies(i) {
			sl := svc.Slices[len(svc.Slices)-2+j]
			extend(sl, e)
		}
	}
	slices.SortFunc(svc.Slices, func(a, b *registry.Slice) int { return strings.Compare(a.Name, b.Name) })
	return svc
}

func podOfBothFamilies(i int) [2]registry.Endpoint {
	node, n := i*7919%40, uint32(i)*2654435761
	e := registry.Endpoint{Pod: fmt.Sprintf("web-%05d", i), Node: fmt.Sprintf("node-%d", node), Zone: fmt.Sprintf("zone-%d", node%3), Ready: true, Serving: true}
	other := e
	e.Addr = netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
	other.Addr = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 13: byte(n >> 16), 14: byte(n >> 8), 15: byte(n)})
	return [2]registry.Endpoint{e, other}
}

// Both addresses of a pod have its name, and so are in one part: a Service of such pods
// is in parts, and stays so whichever come and go.
func TestPodsOfBothFamiliesInParts(t *testing.T) {
	b := newTestBuilder(t)
	svc := podsOfBothFamilies()
	r := rand.New(rand.NewPCG(1, 2))
	for change := range 60 {
		b.Build([]*registry.Service{svc}, someTime)
		for at := range b.last.services {
			s, _ := b.last.services[at].getString("\x03web\x04shop")
			if s.parts == nil {
				t.Fatalf("after %d changes it is not in parts", change)
			}
		}
		next := *svc
		next.Slices = slices.Clone(svc.Slices)
		i, half := r.IntN(len(svc.Slices)/2), len(svc.Slices)/2
		at := r.IntN(100)
		for j, e := range podOfBothFamilies(2000 + change) {
			sl := *next.Slices[i+j*half]
			list := sl.Endpoints.List()
			list[at] = e
			sl.Endpoints = registry.NewEndpoints(list...)
			next.Slices[i+j*half] = &sl
		}
		svc = &next
	}
}
