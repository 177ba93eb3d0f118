package zones

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/registry"
)

// Slices that don't agree about a node, or spell one zone in two ways: who is on the
// node, or in the zone, is so all the same.
func TestPlacesThatDoNotAgree(t *testing.T) {
	for _, c := range []struct {
		what      string
		endpoints []string
		from      string
		pinned    string // <value>.pin.<scope>
		near, pin string
	}{
		{"a node in two zones", []string{"10.0.0.1 n1/a/r", "10.0.0.2 n1/b/r slice=2", "10.0.0.3 n2/c/r"}, "n1/-/-", "n1.pin._node", "1 2", "1 2"},
		{"a node in a zone, and in none", []string{"10.0.0.1 n1/-/-", "10.0.0.2 n1/a/r", "10.0.0.3 n2/b/r"}, "n1/-/-", "a.pin._zone", "1 2", "1 2"},
		{"a zone in two spellings", []string{"10.0.0.1 n1/Eu/r", "10.0.0.2 n2/b/r", "10.0.0.3 n3/eu/r"}, "-/eu/r", "eu.pin._zone", "1 3", "1 3"},
	} {
		k := asks(t, served(t, serving(t, "topology=nearest", c.endpoints...)))
		near, pin := short(k.at(c.from, web, dns.TypeA)), short(k.at("", c.pinned+"."+web, dns.TypeA))
		sorted := func(s string) string {
			f := strings.Fields(s)
			slices.Sort(f)
			return strings.Join(f, " ")
		}
		if sorted(near) != c.near || sorted(pin) != c.pin {
			t.Errorf("%s: nearest %q, want %q; pinned %q, want %q", c.what, near, c.near, pin, c.pin)
		}
	}
}

// What a spilling tier keeps does not depend on how large the weights are that all have.
func TestSpillWithOneWeight(t *testing.T) {
	for _, weights := range []string{"zone:a=1,zone:b=1", "zone:a=1000,zone:b=1000", "zone:a=65535,zone:b=65535", "zone:a=1000,zone:b=1001"} {
		svc := serving(t, "topology=nearest", slices.Concat(in(1, "n1/a/r", "..xx"), in(2, "n2/b/r", ".."))...)
		svc.Object.Annotations = append(svc.Object.Annotations, registry.Pair{Key: "weights", Value: weights})
		m := asks(t, served(t, svc)).at("n1/a/r", "_http._tcp."+web, dns.TypeSRV)
		sum := map[byte]float64{}
		for _, rr := range m.Answer {
			s := rr.(*dns.SRV)
			sum[s.Target[len("10-0-")]] += float64(s.Weight)
		}
		if share := sum['1'] / (sum['1'] + sum['2']); math.Abs(share-0.7) > 0.002 {
			t.Errorf("%s: %v, the near ones get %.3f", weights, sum, share)
		}
	}
}

// An alias whose chain alone does not fit is explained like any other.
func TestExplainChainThatDoesNotFit(t *testing.T) {
	ns := strings.Repeat("n", 63)
	name := func(i int) string { return strings.Repeat(string(rune('a'+i)), 63) }
	all := []*registry.Service{serving(t, "", "10.0.0.1 n1/a/r", "10.0.0.2 n2/b/r")}
	for i := range 8 {
		target := name(i+1) + "." + ns + ".registry.local"
		if i == 7 {
			target = "web.shop.registry.local"
		}
		all = append(all, &registry.Service{Key: registry.Key{Namespace: ns, Name: name(i)}, Exists: true,
			Object: &registry.Object{IsExternalName: true, ExternalName: target}})
	}
	set, a := served(t, all...), NewAnswer()
	for _, typ := range []uint16{TypeSRV, TypeA} {
		wire, err := ParseName(name(0) + "." + ns + ".registry.local")
		if err != nil {
			t.Fatal(err)
		}
		set.Lookup(&Question{Name: wire, Type: typ}, a)
		msg := append(append(make([]byte, headerSize), wire...), 0, byte(typ), 0, classIN)
		if _, n, cut := a.AppendTo(msg, 0, 1200, 1200); !cut || n.Answer == 0 {
			t.Fatalf("type %d: %+v, cut %v", typ, n, cut)
		}
		if lines := a.Explain().Lines(); len(lines) == 0 {
			t.Errorf("type %d: nothing is explained", typ)
		}
	}
}

// With order fixed a name that several endpoints share has them by address, too.
func TestSharedNameInFixedOrder(t *testing.T) {
	svc := serving(t, "order=fixed", "10.0.0.3 n1/a/r host=db", "10.0.0.1 n2/b/r host=db", "10.0.0.2 n3/c/r host=db")
	if got := short(asks(t, served(t, svc)).at("n2/b/r", "db."+web, dns.TypeA)); got != "1 2 3" {
		t.Errorf("%q", got)
	}
}

// A Node that comes changes no TTL, and no serial rises where nothing has changed.
func TestChurnIsOfTheService(t *testing.T) {
	b, err := NewBuilder(Config{Zones: []Zone{{Name: "registry.local"}}, ChurnTTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	now := someTime
	b.Build([]*registry.Service{behind("web", "shop", "-/a/10.0.0.1")}, now)
	now = now.Add(time.Hour)
	b.SetNodes([]*registry.Node{{Name: "n1", Zone: "z", Region: "r"}})
	b.Build(nil, now)
	if m := ask(t, b.Last(), "web.shop.registry.local.", dns.TypeA); m.Answer[0].Header().Ttl != 5 {
		t.Errorf("a Node comes: TTL %d", m.Answer[0].Header().Ttl)
	}
	b.Build([]*registry.Service{behind("web", "shop", "-/a/10.0.0.2")}, now)
	now = now.Add(10 * time.Second)
	b.Build([]*registry.Service{behind("web", "shop", "-/a/10.0.0.3")}, now)
	if at := b.Next(); !at.Equal(now.Add(churnFor)) {
		t.Errorf("a change is superseded, and next is at %v", at)
	}
	if set := b.Tick(now.Add(21 * time.Second)); set != nil {
		t.Errorf("serial %d, though nothing has changed", set.Serial())
	}
}

// What weights may cost is bounded.
func TestTooManyWeights(t *testing.T) {
	if _, err := parseWeights(strings.Repeat("web=1,", maxWeights)); err == nil || !strings.Contains(err.Error(), "longer than 8192 octets") {
		t.Error(err)
	}
}

// Names of nodes and zones that are gone are forgotten, Nodes or not, and what is
// there is found as before.
func TestForgottenNames(t *testing.T) {
	b, err := NewBuilder(Config{Zones: []Zone{{Name: "registry.local"}}})
	if err != nil {
		t.Fatal(err)
	}
	b.SetNodes([]*registry.Node{{Name: "n1", Zone: "a", Region: "r"}})
	stays := behind("stays", "shop", "-/a/10.0.0.1")
	alter(stays.Slices[0], func(_ int, e *registry.Endpoint) { e.Node, e.Zone = "n1", "a" })
	b.Build([]*registry.Service{stays}, someTime)
	for i := range 3 * spareNames {
		svc := behind("web", "shop", "-/a/10.0.0.2")
		alter(svc.Slices[0], func(_ int, e *registry.Endpoint) {
			e.Node, e.Zone = fmt.Sprintf("node-%d", i), fmt.Sprintf("zone-%d", i)
		})
		b.Build([]*registry.Service{svc}, someTime)
	}
	if n := b.ids.len(); n > 2*spareNames {
		t.Errorf("%d names are known", n)
	}
	for _, name := range []string{"a.pin._zone.stays", "n1.pin._node.stays", "r.pin._region.stays"} {
		if got := answers(t, b.Last(), name+".shop.registry.local.", dns.TypeA); got != "10.0.0.1" {
			t.Errorf("%s: %s", name, got)
		}
	}
}
