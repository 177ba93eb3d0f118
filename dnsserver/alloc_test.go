//go:build !race

package dnsserver

import (
	"testing"

	"github.com/miekg/dns"
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
	r := newResponder(cluster(t), &counters{})
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

func BenchmarkRespond(b *testing.B) {
	r := newResponder(cluster(b), &counters{})
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
