package zones

import (
	"fmt"
	"net/netip"
	"testing"

	"epdns/registry"
)

// An answer is capped where it leaves out what is as good, and says so by no other sign.
func TestCapped(t *testing.T) {
	var endpoints []string
	for i := range 60 {
		endpoints = append(endpoints, fmt.Sprintf("10.0.0.%d n%d/%s/r", i+1, i, "ab"[i%2:i%2+1]))
	}
	for _, tt := range []struct {
		knobs string
		typ   uint16
		room  int
		want  bool
	}{
		{"", TypeA, 4096, false},
		{"", TypeA, 512, false}, // it is cut, which TC tells
		{"limit=60", TypeA, 4096, false},
		{"limit=59", TypeA, 4096, true},
		{"limit=59", TypeSRV, 65535, true},
		{"limit=5", TypeAAAA, 4096, false},
		{"fit=cut", TypeA, 4096, false},
		{"fit=cut", TypeA, 512, true},
		{"fit=cut", TypeSRV, 512, true},
		{"topology=nearest", TypeA, 4096, false}, // the rest is left out since it is not as near
	} {
		b, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}})
		if err != nil {
			t.Fatal(err)
		}
		b.SetNodes([]*registry.Node{aNode("n0", "a", "r", "192.0.2.1", "10.7.0.0/24")})
		set := b.Build([]*registry.Service{serving(t, tt.knobs, endpoints...)}, someTime)
		name, err := ParseName(web)
		if err != nil {
			t.Fatal(err)
		}
		a := NewAnswer()
		set.Lookup(&Question{Name: name, Type: tt.typ, From: netip.MustParseAddr("10.0.0.1")}, a)
		_, _, cut := a.AppendTo(append(make([]byte, headerSize), append(name, 0, byte(tt.typ), 0, 1)...), 0, tt.room, tt.room)
		if got := !cut && a.Capped(); got != tt.want {
			t.Errorf("%q, type %d, %d octets: capped %t", tt.knobs, tt.typ, tt.room, got)
		}
	}
}
