//go:build !race

package dnsserver

import (
	"testing"

	"github.com/miekg/dns"

	"epdns/dnsserver/batch"
)

// To look at a batch costs its worker no allocation, whether there is room or not.
func TestTopDoesNotAllocate(t *testing.T) {
	top := newTop()
	messages := []batch.Message{{Reply: replyTo("web.shop.registry.local.", dns.TypeA)}, {}}
	if n := testing.AllocsPerRun(2*topRingSize, func() {
		top.every.Store(1)
		top.batch(1, messages)
		top.one(messages[0].Reply)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkTop is what a batch of 16 costs more: where it is not looked at, where it is,
// and where there is no room for it.
func BenchmarkTop(b *testing.B) {
	messages := make([]batch.Message, 16)
	for i := range messages {
		messages[i].Reply = replyTo("web.shop.registry.local.", dns.TypeA)
	}
	for _, bb := range []struct {
		name    string
		every   uint32
		drained bool
	}{{"left out", 1 << 20, true}, {"taken", 1, true}, {"no room", 1, false}} {
		b.Run(bb.name, func(b *testing.B) {
			top := newTop()
			var e sampled
			for b.Loop() {
				top.every.Store(bb.every)
				top.batch(1, messages)
				for bb.drained && top.ring.take(&e) {
				}
			}
		})
	}
}
