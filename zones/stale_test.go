package zones

import (
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/registry"
)

// A stale Set answers as it did, and says that it may be wrong where it says what exists.
func TestStale(t *testing.T) {
	newBuilder := func() *Builder {
		b, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := newBuilder()
	fresh := b.Build([]*registry.Service{behind("web", "shop", "-/a/10.0.0.1")}, someTime)
	asOf := someTime.Add(-time.Hour)
	stale := fresh.Stale(asOf)
	if !stale.AsOf().Equal(asOf) || !fresh.AsOf().IsZero() {
		t.Errorf("as of %v and %v", stale.AsOf(), fresh.AsOf())
	}
	unsynced := newBuilder().Last().Stale(asOf)
	for _, tt := range []struct {
		what, name string
		typ        uint16
		set        *Set
		rcode      uint8
		ede        uint16
	}{
		{"an answer", "web.shop.registry.local.", TypeA, stale, NoError, EDEStale},
		{"no record of the type", "web.shop.registry.local.", TypeAAAA, stale, NoError, EDEStale},
		{"no such name", "nope.shop.registry.local.", TypeA, stale, NXDomain, EDEStaleNXDomain},
		{"somebody else's name", "example.com.", TypeA, stale, Refused, EDENotAuthoritative},
		{"nothing is known", "web.shop.registry.local.", TypeA, unsynced, ServFail, EDENotReady},
		{"fresh", "web.shop.registry.local.", TypeA, fresh, NoError, 0},
		{"fresh, no such name", "nope.shop.registry.local.", TypeA, fresh, NXDomain, 0},
	} {
		name, err := ParseName(tt.name)
		if err != nil {
			t.Fatal(err)
		}
		a := NewAnswer()
		tt.set.Lookup(&Question{Name: name, Type: tt.typ}, a)
		if a.RCode != tt.rcode || a.EDE != tt.ede {
			t.Errorf("%s: RCODE %d, extended error %d; want %d and %d", tt.what, a.RCode, a.EDE, tt.rcode, tt.ede)
		}
	}
	for _, name := range []string{"web.shop.registry.local.", "nope.shop.registry.local.", "registry.local."} {
		for _, typ := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypeSOA} {
			if before, after := ask(t, fresh, name, typ).String(), ask(t, stale, name, typ).String(); before != after {
				t.Errorf("stale, the answer is\n%s\nand was\n%s", after, before)
			}
		}
	}

	// People are told, and transfers and serials go on.
	a := NewAnswer()
	name, _ := ParseName("web.shop.registry.local.")
	stale.Lookup(&Question{Name: name, Type: TypeA}, a)
	a.AppendTo(append(make([]byte, headerSize), append(name, 0, 1, 0, 1)...), 0, 1232, 1232)
	e := a.Explain()
	if e.AsOf == nil || !e.AsOf.Equal(asOf) || !strings.Contains(strings.Join(e.Lines(), "\n"), "stale: this is as of "+asOf.UTC().Format(time.RFC3339)) {
		t.Errorf("as of %v, with the steps %q", e.AsOf, e.Steps)
	}
	if fresh.Serial() != stale.Serial() || fresh.TransferSerial() != stale.TransferSerial() || !b.Frozen() {
		t.Errorf("serials %d and %d, of transfers %d and %d", fresh.Serial(), stale.Serial(), fresh.TransferSerial(), stale.TransferSerial())
	}
}
