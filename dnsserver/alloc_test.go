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

func TestRespondDoesNotAllocate(t *testing.T) {
	r := newResponder(cluster(t), &counters{})
	for _, p := range paths {
		for _, transport := range []Transport{UDP, TCP} {
			q := question(p.name, p.typ)
			if p.edns {
				q.SetEdns0(1232, false)
			}
			msg, err := q.Pack()
			if err != nil {
				t.Fatal(err)
			}
			out := make([]byte, 0, maxTCPSize)
			if n := testing.AllocsPerRun(100, func() { out = r.Respond(out[:0], msg, client, Via{transport, local}) }); n != 0 {
				t.Errorf("%s over %v: %v allocations", p.what, transport, n)
			}
		}
	}
}

func BenchmarkRespond(b *testing.B) {
	r := newResponder(cluster(b), &counters{})
	for _, p := range paths {
		b.Run(p.what, func(b *testing.B) {
			q := question(p.name, p.typ)
			if p.edns {
				q.SetEdns0(1232, false)
			}
			msg, err := q.Pack()
			if err != nil {
				b.Fatal(err)
			}
			out := make([]byte, 0, maxTCPSize)
			b.ReportAllocs()
			for b.Loop() {
				out = r.Respond(out[:0], msg, client, Via{UDP, local})
			}
		})
	}
}
