//go:build !race

package dnsserver

import (
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"
)

// To log a query costs its worker no allocation, whether there is room or not.
func TestQueryLogDoesNotAllocate(t *testing.T) {
	r := newResponder(cluster(t))
	settings := *everything
	settings.queries = (*queryLog)(nil).withShare(1, quiet, new(atomic.Uint64))
	r.shared = &settings
	msg, err := question("web.shop.registry.local.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, 0, maxTCPSize)
	if n := testing.AllocsPerRun(2*queryLogSize, func() {
		l := r.logged()
		out = r.Respond(out[:0], msg, client, Via{UDP, local})
		l.note(r, client, UDP, msg, out)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkLogged is what a query costs more where there is a log: with none, with one that
// leaves it out, and with one that takes it.
func BenchmarkLogged(b *testing.B) {
	msg, err := question("web.shop.registry.local.", dns.TypeA).Pack()
	if err != nil {
		b.Fatal(err)
	}
	for _, bb := range []struct {
		name  string
		share float64
	}{{"off", 0}, {"left out", 1e-9}, {"taken", 1}} {
		b.Run(bb.name, func(b *testing.B) {
			r := newResponder(cluster(b))
			settings := *everything
			settings.queries = (*queryLog)(nil).withShare(bb.share, quiet, new(atomic.Uint64))
			r.shared = &settings
			out := make([]byte, 0, maxTCPSize)
			var e queryEntry
			for b.Loop() {
				l := r.logged()
				out = r.Respond(out[:0], msg, client, Via{UDP, local})
				if l != nil {
					l.note(r, client, UDP, msg, out)
					l.take(&e)
				}
			}
		})
	}
}
