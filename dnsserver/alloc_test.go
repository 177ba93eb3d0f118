//go:build !race

package dnsserver

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/registry"
	"epdns/zones"
)

// paths are the ways through Respond that must cost no allocation.
var paths = []struct {
	what, name string
	typ        uint16
	edns       bool
}{
	{"A", "web.shop.registry.local.", dns.TypeA, true},
	{"A, cut", "big.shop.registry.local.", dns.TypeA, false},
	{"AAAA", "one.shop.registry.local.", dns.TypeAAAA, true},
	{"SRV", "_http._tcp.web.shop.registry.local.", dns.TypeSRV, true},
	{"endpoint", "10-0-0-3.web.shop.registry.local.", dns.TypeA, true},
	{"PTR", "3.0.0.10.in-addr.arpa.", dns.TypePTR, true},
	{"PTR IPv6", "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", dns.TypePTR, true},
	{"CNAME", "alias.shop.registry.local.", dns.TypeA, true},
	{"NODATA", "web.shop.registry.local.", dns.TypeAAAA, true},
	{"NXDOMAIN", "nope.shop.registry.local.", dns.TypeA, true},
	{"NXDOMAIN endpoint", "1-2-3-zz.web.shop.registry.local.", dns.TypeA, true},
	{"NS", "registry.local.", dns.TypeNS, true},
	{"REFUSED", "example.com.", dns.TypeA, true},
}

// packed are the paths as packets, with those of the options.
func packed(t testing.TB) (out []packet) {
	for _, p := range paths {
		q := question(p.name, p.typ)
		if p.edns {
			q.SetEdns0(1232, false)
		}
		msg, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, packet{p.what, msg})
	}
	return append(out, everyOption...)
}

func TestRespondDoesNotAllocate(t *testing.T) {
	r := newResponder(cluster(t))
	r.shared = everything
	for _, p := range packed(t) {
		for _, transport := range []Transport{UDP, TCP, TLS} {
			out := make([]byte, 0, maxTCPSize)
			if n := testing.AllocsPerRun(100, func() { out = r.Respond(out[:0], p.in, client, Via{transport, local}) }); n != 0 {
				t.Errorf("%s over %v: %v allocations", p.what, transport, n)
			}
		}
	}
}

// rankedCluster has Service shop/web with these knobs, in two zones; client is trusted
// and on one of its nodes.
func rankedCluster(t testing.TB, knobs ...registry.Pair) *zones.Store {
	t.Helper()
	svc := &registry.Service{Key: registry.Key{Namespace: "shop", Name: "web"}, Exists: true, Object: &registry.Object{Annotations: knobs}}
	sl := &registry.Slice{Namespace: "shop", Name: "web-1", Service: "web", Ports: []registry.Port{{Name: "http", Number: 8080}}}
	var endpoints []registry.Endpoint
	for i := range 60 {
		zone := "ab"[i%2 : i%2+1]
		endpoints = append(endpoints, registry.Endpoint{
			Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), Node: zone + "1", Zone: zone, Region: "r",
			Hints: registry.NewHints([]string{zone}, nil), Ready: i%6 > 1, Serving: true,
		})
	}
	sl.Endpoints = registry.NewEndpoints(endpoints...)
	svc.Slices = []*registry.Slice{sl}
	b, err := zones.NewBuilder(zones.Config{
		Zones: []zones.Zone{zones.DefaultZone("registry.local")},
		Clients: zones.Clients{
			TrustedForwarders: []netip.Prefix{netip.PrefixFrom(client.Addr(), 32)},
			Places:            []zones.PlaceRange{{Prefix: netip.MustParsePrefix("127.0.0.0/8"), Zone: "b"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.SetNodes([]*registry.Node{{Name: "a1", Zone: "a", Region: "r", Ready: true, PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")}}})
	out := &zones.Store{}
	out.Publish(b.Build([]*registry.Service{svc}, time.Unix(1_800_000_000, 0)))
	return out
}

// Replies that depend on who asks cost no allocation either: by each policy, with and
// without a subnet that a forwarder gives.
func TestRankedReplyDoesNotAllocate(t *testing.T) {
	var packets []packet
	for _, name := range []string{"web.shop", "_http._tcp.web.shop", "_all.web.shop", "b.pin._zone.web.shop", "_http._tcp.a1.prefer._node._serving.web.shop", "10-0-0-2.web.shop", "no.pin._zone.web.shop"} {
		for _, typ := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypeAAAA} {
			for _, subnet := range []string{"", "10.0.0.2/32", "10.0.9.0/24", "192.0.2.0/24", "0.0.0.0/0"} {
				q := question(name+".registry.local.", typ)
				q.SetEdns0(1232, false)
				if subnet != "" {
					p := netip.MustParsePrefix(subnet)
					q.IsEdns0().Option = append(q.IsEdns0().Option, &dns.EDNS0_SUBNET{
						Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: uint8(p.Bits()), Address: p.Addr().AsSlice(),
					})
				}
				msg, err := q.Pack()
				if err != nil {
					t.Fatal(err)
				}
				packets = append(packets, packet{fmt.Sprintf("%s %s %s", name, dns.TypeToString[typ], subnet), msg})
			}
		}
	}
	for _, topology := range []string{"order", "hints", "nearest", "off"} {
		for _, order := range []string{"shuffle", "rotate", "hash", "fixed"} {
			for _, weights := range []string{"", "zone:a=3, 10-0-0-2=9, 10-0-0-3=0"} {
				r := newResponder(rankedCluster(t, registry.Pair{Key: "order", Value: order}, registry.Pair{Key: "topology", Value: topology}, registry.Pair{Key: "weights", Value: weights}))
				r.shared = everything
				out := make([]byte, 0, maxTCPSize)
				for _, p := range packets {
					for _, transport := range []Transport{UDP, TCP} {
						if n := testing.AllocsPerRun(20, func() { out = r.Respond(out[:0], p.in, client, Via{transport, local}) }); n != 0 {
							t.Errorf("%s, %s, weights %q: %s over %v: %v allocations", topology, order, weights, p.what, transport, n)
						}
					}
				}
			}
		}
	}
}

func BenchmarkRespond(b *testing.B) {
	r := newResponder(cluster(b))
	r.shared = everything
	for _, p := range packed(b) {
		b.Run(p.what, func(b *testing.B) {
			out := make([]byte, 0, maxTCPSize)
			b.ReportAllocs()
			for b.Loop() {
				out = r.Respond(out[:0], p.in, client, Via{UDP, local})
			}
		})
	}
}
