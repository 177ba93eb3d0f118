//go:build !race

package zones

import (
	"net/netip"
	"testing"

	"epdns/registry"
)

// Who sees a part of it costs no allocation either.
func TestVisibilityAllocatesNothing(t *testing.T) {
	b, err := NewBuilder(Config{
		Zones:   []Zone{DefaultZone("registry.local")},
		Reverse: mustPrefixes("10.0.0.0/8"),
		Clients: Clients{Visibility: []Visibility{{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Namespaces: []string{"team-*", "s*p"}}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	hidden := named(serving(t, "", "10.0.0.1 n1/a/r", "10.0.0.2 n2/b/r"), "other", "web")
	set := b.Build([]*registry.Service{serving(t, "", "10.0.0.1 n1/a/r"), hidden}, someTime)
	a, out := NewAnswer(), make([]byte, 0, 4096)
	for _, name := range []string{"web.shop.registry.local", "web.other.registry.local", "1.0.0.10.in-addr.arpa", "2.0.0.10.in-addr.arpa", "0.10.in-addr.arpa", "other.registry.local"} {
		wire, err := ParseName(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, from := range []string{"203.0.113.1", "198.51.100.1"} {
			q := Question{Name: wire, Type: TypePTR, From: netip.MustParseAddr(from)}
			if n := testing.AllocsPerRun(100, func() {
				set.Lookup(&q, a)
				a.AppendTo(append(out[:0], make([]byte, headerSize)...), 0, 512, 0)
			}); n != 0 {
				t.Errorf("%s from %s: %v allocations", name, from, n)
			}
		}
	}
}
