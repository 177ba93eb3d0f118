package zones

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/miekg/dns"
)

// However large a Service is and however its endpoints are chosen, one that leaves takes
// nothing from an asker but itself. Some Services here have an index of their endpoints,
// some have not, and some lose it.
func TestHashOfLargeServices(t *testing.T) {
	const limit, gone = 5, "10.0.0.17" // in zone b
	for _, n := range []int{100, 256, 257, 1000} {
		var endpoints []string
		for i, e := range many(n) {
			endpoints = append(endpoints, e+" zones="+"ab"[i%2:i%2+1])
		}
		for _, knobs := range []string{"topology=off", "topology=order", "topology=hints", "topology=nearest", "topology=order; weights=zone:a=3, node:b2=9"} {
			knobs += "; order=hash; limit=5"
			before := asks(t, served(t, serving(t, knobs, endpoints...)))
			after := asks(t, served(t, serving(t, knobs, slices.Delete(slices.Clone(endpoints), 17, 18)...)))
			had := 0
			for i := range 100 {
				before.from = netip.AddrFrom4([4]byte{10, 7, byte(i >> 8), byte(i)})
				after.from = before.from
				for _, q := range []struct{ place, name string }{{"", web}, {"-/b/r", web}, {"", "b.pin._zone." + web}} {
					x, y := texts(before.at(q.place, q.name, dns.TypeA)), texts(after.at(q.place, q.name, dns.TypeA))
					kept := slices.DeleteFunc(slices.Clone(x), func(a string) bool { return a == gone })
					if len(kept) < len(x) {
						had++
					}
					if len(x) != limit || len(y) != limit || !slices.Equal(kept, y[:len(kept)]) {
						t.Fatalf("%d endpoints, %s: %v asks for %s from %q: %v, and without %s %v", n, knobs, before.from, q.name, q.place, x, gone, y)
					}
				}
			}
			if had == 0 {
				t.Errorf("%d endpoints, %s: nobody had the one that left", n, knobs)
			}
		}
	}
}

// Sets of the same endpoints have one index, which costs memory.
func TestHashIndexIsShared(t *testing.T) {
	for _, c := range []struct {
		knobs     string
		n, others int
		shared    bool
	}{
		{"order=hash", 1000, 0, true},
		{"order=hash; weights=zone:a=3", 1000, 0, true},
		{"order=hash", 1000, 300, false}, // IPv6 ones, which SRV has, too
	} {
		endpoints := many(c.n)
		for i := range c.others {
			endpoints = append(endpoints, fmt.Sprintf("fd00::%x a0/a/r", i+1))
		}
		var svc *service
		served(t, serving(t, c.knobs, endpoints...)).services[0].all(func(_ string, s *service) bool {
			svc = s
			return true
		})
		a, srv := svc.published.a.index, svc.published.srv.index
		if a == nil || srv == nil || (a == srv) != c.shared {
			t.Errorf("%s, %d and %d endpoints: %p for A, %p for SRV", c.knobs, c.n, c.others, a, srv)
		}
		if aaaa := svc.published.aaaa; aaaa.ranking != nil && (aaaa.index != nil) != (c.others > 256) {
			t.Errorf("%d endpoints of IPv6: %p", c.others, aaaa.index)
		}
	}
}
