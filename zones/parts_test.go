package zones

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"epdns/registry"
)

// crowd is a random Service of many endpoints, most of the time one that is compiled in
// parts.
type crowd struct {
	*world
	svc  registry.Service
	last int // of the endpoints that were made
}

var crowdNodes = []string{"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9", "n10", "n11", "n12", "n13", "n14", "n15", "n16", "n17", "n18", "n19"}

func newCrowd(seed uint64, n int) *crowd {
	c := &crowd{world: newWorld(seed)}
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
		sl.Endpoints = slices.Clone(sl.Endpoints)
		return &sl
	}
	sl := &registry.Slice{Namespace: "shop", Name: fmt.Sprintf("web-%03d", c.r.IntN(1000)), Service: "web", Created: int64(c.r.IntN(5))}
	sl.Ports = []registry.Port{{Name: "http", Number: uint16(8080 + c.r.IntN(2))}}
	if c.r.IntN(5) == 0 {
		sl.Ports = append(sl.Ports, registry.Port{Name: "metrics", Number: 9090})
	}
	for range 1 + c.r.IntN(6) {
		sl.Endpoints = append(sl.Endpoints, c.endpoint())
	}
	return sl
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
		e.Addr = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(c.last), 14: byte(c.last >> 8)})
	case 1:
		e.Hostname = fmt.Sprintf("web-%d", c.last)
	case 2:
		e.Node, e.Zone, e.Region = "", "", ""
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
	one := func() *registry.Endpoint { return &sl.Endpoints[c.r.IntN(len(sl.Endpoints))] }
	switch k := c.r.IntN(100); {
	case len(sl.Endpoints) == 0 || k < 20:
		sl.Endpoints = append(sl.Endpoints, c.endpoint())
	case k < 45:
		at := c.r.IntN(len(sl.Endpoints))
		sl.Endpoints = slices.Delete(sl.Endpoints, at, at+1)
	case k < 60:
		*one() = c.endpoint()
	case k < 70:
		e := one()
		e.Ready, e.Serving, e.Terminating = c.r.IntN(2) == 0, c.r.IntN(2) == 0, c.r.IntN(2) == 0
	case k < 75:
		if hints := registry.NewHints([]string{pick(c.world, worldZones...)}, nil); c.r.IntN(2) == 0 {
			for i := range sl.Endpoints {
				sl.Endpoints[i].Hints = hints
			}
		}
	case k < 78: // all of them
		hints := c.r.IntN(2) == 0
		ready := c.r.IntN(3) > 0
		for i := range c.svc.Slices {
			s := *c.svc.Slices[i]
			s.Endpoints = slices.Clone(s.Endpoints)
			for j := range s.Endpoints {
				e := &s.Endpoints[j]
				e.Hints = registry.Hints{}
				if e.Ready = ready; hints && e.Zone != "" {
					e.Hints = registry.NewHints([]string{e.Zone}, nil)
				}
			}
			c.change(&s)
		}
	case k < 84:
		values := []registry.Pairs{
			{{Key: "topology", Value: "nearest"}}, {{Key: "limit", Value: "3"}, {Key: "topology", Value: "hints"}}, {{Key: "publish", Value: "all"}},
			{{Key: "fallback", Value: "serving"}}, {{Key: "order", Value: "hash"}}, {{Key: "ttl", Value: "9"}}, {{Key: "topology", Value: "off"}}, {}, {}, {},
		}
		c.svc.Object = &registry.Object{Annotations: values[c.r.IntN(len(values))]}
	case k < 87: // in two slices
		*one() = c.svc.Slices[0].Endpoints[0:1:1][0]
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
	c.change(sl)
	svc := c.svc
	return &svc
}

// A Service in parts answers, and explains its answers, as the same one compiled whole,
// whatever has become of it, and most of a change leaves most portions as they were.
func TestPartsAnswerAsTheWhole(t *testing.T) {
	asked, inParts, stayed, remade := 0, 0, 0, 0
	for seed := range uint64(12) {
		c := newCrowd(seed, 20+3*int(seed))
		divided, whole := newTestBuilder(t), newTestBuilder(t)
		divided.room.sizes = sizes{whole: 6, most: 9, usual: 5, least: 3}
		whole.room.sizes = sizes{whole: 1 << 30}
		for step := range 40 {
			was, _ := divided.last.services[0].getString("\x03web\x04shop")
			svc := []*registry.Service{c.step()}
			one, two := divided.Build(svc, someTime), whole.Build(svc, someTime)
			if got, want := dump(t, one), dump(t, two); got != want {
				t.Fatalf("seed %d, step %d: in parts:\n%s\n\nwhole:\n%s", seed, step, got, want)
			}
			now, _ := one.services[0].getString("\x03web\x04shop")
			if now.parts == nil {
				continue
			}
			inParts++
			for _, p := range now.parts.list {
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
		for i := range sl.Endpoints {
			names = append(names, pick(c.world, sl.Endpoints[i].Pod, dashed(sl.Endpoints[i].Addr))+".")
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
