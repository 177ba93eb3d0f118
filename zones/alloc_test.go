//go:build !race

package zones

import (
	"fmt"
	"net/netip"
	"testing"

	"epdns/registry"
)

// ranked is a Service whose endpoints are in two zones on many nodes, some of them not
// ready, with hints and both families.
func ranked(t testing.TB, n int, knobs string) *registry.Service {
	var endpoints []string
	for i := range n {
		zone := "ab"[i%2 : i%2+1]
		e := fmt.Sprintf("10.%d.%d.%d n%s%d/%s/r zones=%s", 1+i>>16, i>>8&255, i&255, zone, i/40, zone, zone)
		if i%8 == 4 {
			e += " unready"
		}
		endpoints = append(endpoints, e)
	}
	for i := range n / 10 {
		endpoints = append(endpoints, fmt.Sprintf("fd00::%x na%d/a/r zones=a slice=2", i+1, i/4))
	}
	return serving(t, knobs, endpoints...)
}

// Neither Lookup nor AppendTo allocates, whatever is asked and whoever asks.
func TestAnswersAllocateNothing(t *testing.T) {
	names := []struct {
		name string
		typ  uint16
	}{
		{web, TypeA}, {web, TypeAAAA}, {web, TypeSRV}, {"_http._tcp." + web, TypeSRV}, {"10-1-0-3." + web, TypeA}, {web, TypeTXT}, {web, TypeANY},
		{"nope." + web, TypeA}, {"a.pin._zone." + web, TypeA}, {"_http._tcp.na1.prefer._node." + web, TypeSRV}, {"r.pin._region._all." + web, TypeSRV},
		{"nope.pin._zone." + web, TypeA}, {"_serving." + web, TypeA}, {"_all." + web, TypeSRV}, {"3.0.1.10.in-addr.arpa.", TypePTR}, {"9.9.9.10.in-addr.arpa.", TypePTR},
		{"registry.local.", TypeSOA}, {"nope.shop.registry.local.", TypeA},
	}
	askers := []Question{
		{From: netip.MustParseAddr("10.1.0.2")}, {From: netip.MustParseAddr("192.0.2.1")}, {From: netip.MustParseAddr("10.7.0.1")},
		{From: netip.MustParseAddr("198.51.100.1")}, {From: netip.MustParseAddr("203.0.113.1")}, {From: netip.MustParseAddr("fd00::1")},
		{From: netip.MustParseAddr("192.0.2.53"), Subnet: netip.MustParsePrefix("10.7.0.0/24")}, {From: netip.MustParseAddr("192.0.2.53"), Subnet: netip.MustParsePrefix("10.1.0.2/32")},
		{From: netip.MustParseAddr("192.0.2.54")},
	}
	for _, topology := range topologies.names {
		for _, order := range orders.names {
			for _, weights := range []string{"", "; weights=zone:a=3, node:na1=0"} {
				for _, limit := range []string{"", "; limit=5"} {
					knobs := "topology=" + topology + "; order=" + order + weights + limit
					b, err := NewBuilder(Config{
						Zones:   []Zone{DefaultZone("registry.local")},
						Reverse: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
						Clients: Clients{
							SharedCaches: mustPrefixes("192.0.2.54/32"),
							Places:       []PlaceRange{{Prefix: netip.MustParsePrefix("198.51.100.0/24"), Zone: "b"}},
						},
					})
					if err != nil {
						t.Fatal(err)
					}
					b.SetNodes([]*registry.Node{aNode("na0", "a", "r", "192.0.2.1", "10.7.0.0/24")})
					set := b.Build([]*registry.Service{ranked(t, 100, knobs)}, someTime)
					a, out := NewAnswer(), make([]byte, 0, 1<<16)
					for _, size := range []int{512, 1 << 16} {
						for _, n := range names {
							for _, q := range askers {
								q.Name, _ = ParseName(n.name)
								q.Type = n.typ
								if got := testing.AllocsPerRun(10, func() {
									set.Lookup(&q, a)
									out, _, _ = a.AppendTo(out[:headerSize], 0, size, size)
									a.Scope()
									a.Place()
								}); got != 0 {
									t.Errorf("%s: %s %d from %v for %v: %v allocations", knobs, n.name, n.typ, q.From, q.Subnet, got)
								}
							}
						}
					}
				}
			}
		}
	}
}

// Nor do answers of a Service in parts.
func TestPartsAllocateNothing(t *testing.T) {
	for _, knobs := range []string{"topology=order", "topology=hints", "topology=nearest; min=20", "topology=off", "topology=order; order=rotate; limit=5"} {
		set := served(t, ranked(t, 2000, knobs))
		svc, _ := set.services[0].getString("\x03web\x04shop")
		if svc.parts == nil || len(svc.parts.list) < 5 {
			t.Fatalf("%s: it is not in parts", knobs)
		}
		a, out := NewAnswer(), make([]byte, 0, 1<<16)
		for _, name := range []string{"", "_http._tcp.", "10-1-0-3.", "nope.", "a.pin._zone.", "_serving.", "_http._tcp.na1.prefer._node._all.", "nope.pin._zone."} {
			q := Question{From: netip.MustParseAddr("10.1.0.2")}
			q.Name, _ = ParseName(name + web)
			for _, q.Type = range []uint16{TypeA, TypeAAAA, TypeSRV, TypeTXT} {
				for _, size := range []int{512, 1 << 16} {
					if got := testing.AllocsPerRun(10, func() {
						set.Lookup(&q, a)
						out, _, _ = a.AppendTo(out[:headerSize], 0, size, size)
					}); got != 0 {
						t.Errorf("%s: %s%d within %d: %v allocations", knobs, name, q.Type, size, got)
					}
				}
			}
		}
	}
}

// Nor do the scopes of host names that several endpoints have.
func TestSharedScopesAllocateNothing(t *testing.T) {
	for _, knobs := range []string{"", "order=fixed", "order=hash; weights=zone:a=3", "weights=zone:a=3", "order=rotate; limit=3"} {
		var endpoints []string
		for i := range 60 {
			endpoints = append(endpoints, fmt.Sprintf("10.0.0.%d n%d/%s/r host=h%d", i+1, i%7, "ab"[i%2:i%2+1], i%25))
		}
		set := served(t, serving(t, knobs, endpoints...))
		a, out := NewAnswer(), make([]byte, 0, 1<<16)
		q := Question{Type: TypeSRV, From: netip.MustParseAddr("10.0.0.2")}
		for _, name := range []string{"a.pin._zone.", "_http._tcp.b.prefer._zone.", "n3.pin._node.", "nope.prefer._zone."} {
			q.Name, _ = ParseName(name + web)
			records := 0
			if got := testing.AllocsPerRun(10, func() {
				set.Lookup(&q, a)
				var n Counts
				out, n, _ = a.AppendTo(out[:headerSize], 0, 1<<16, 1<<16)
				records = int(n.Answer)
			}); got != 0 || records == 0 {
				t.Errorf("%s: %s: %v allocations for %d records", knobs, name, got, records)
			}
		}
	}
}

// BenchmarkRanked is an answer of ten A records out of N, for somebody who has a place.
func BenchmarkRanked(b *testing.B) {
	policies := []struct{ name, knobs string }{
		{"order", "topology=order"}, {"hints", "topology=hints"}, {"nearest", "topology=nearest; min=10"}, {"off", "topology=off"},
		{"rotate", "topology=order; order=rotate"}, {"fixed", "topology=order; order=fixed"}, {"hints-fixed", "topology=hints; order=fixed"},
		{"hash", "topology=order; order=hash"}, {"hash-off", "topology=off; order=hash"},
		{"weights", "topology=order; weights=zone:a=3, zone:b=2, node:nb1=5"}, {"hints-weights", "topology=hints; weights=zone:a=3, zone:b=2, node:na1=5"},
		{"hash-weights", "topology=order; order=hash; weights=zone:a=3, zone:b=2, node:na1=5"},
		{"limit-10", "topology=order; limit=10"},
	}
	for _, p := range policies {
		for _, n := range []int{10, 100, 1000, 5000} {
			for _, typ := range []uint16{TypeA, TypeSRV} {
				if typ == TypeSRV && p.name != "order" && p.name != "nearest" && p.name != "limit-10" {
					continue
				}
				name := fmt.Sprintf("%s/%d", p.name, n)
				if typ == TypeSRV {
					name = p.name + "-SRV" + name[len(p.name):]
				}
				b.Run(name, func(b *testing.B) {
					builder, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}})
					if err != nil {
						b.Fatal(err)
					}
					knobs := p.knobs + "; fit=cut"
					if typ == TypeSRV && p.name != "limit-10" {
						knobs += "; limit=10"
					}
					set := builder.Build([]*registry.Service{ranked(b, n, knobs)}, someTime)
					a, out := NewAnswer(), make([]byte, 0, 1<<16)
					q := Question{Type: typ, From: netip.MustParseAddr("10.1.0.2")}
					q.Name, _ = ParseName(web)
					start := headerSize + len(q.Name) + 4
					room := start + 10*sizeA
					if typ == TypeSRV || p.name == "limit-10" {
						room = 1 << 16
					}
					records := 0
					b.ReportAllocs()
					for b.Loop() {
						set.Lookup(&q, a)
						var c Counts
						out, c, _ = a.AppendTo(out[:start], 0, room, start)
						records = int(c.Answer)
					}
					b.ReportMetric(float64(records), "records")
				})
			}
		}
	}
}
