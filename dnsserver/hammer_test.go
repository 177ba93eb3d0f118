package dnsserver

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/miekg/dns"
)

var hammer = flag.Int("hammer", 200_000, "packets for TestHammer")

// Packets that began as queries and had octets changed, added and taken away: none
// brings Respond down, every reply can be read, and nothing grows.
func TestHammer(t *testing.T) {
	r := newResponder(cluster(t))
	rnd := rand.New(rand.NewPCG(1, 2))
	var seeds [][]byte
	for _, name := range []string{"web.shop.registry.local.", "_http._tcp.big.shop.registry.local.", "3.0.0.10.in-addr.arpa.",
		"alias.shop.registry.local.", "2001-db8--1.one.shop.registry.local.", "registry.local.", "example.com.", "."} {
		for _, typ := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypePTR, dns.TypeANY, dns.TypeSOA, dns.TypeIXFR, 65280} {
			q := question(name, typ)
			if rnd.IntN(2) == 0 {
				q.SetEdns0(uint16(rnd.IntN(5000)), true)
			}
			msg, err := q.Pack()
			if err != nil {
				t.Fatal(err)
			}
			seeds = append(seeds, msg)
		}
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	msg, out := make([]byte, 0, 2048), make([]byte, 0, maxTCPSize)
	var early uint64
	replies := 0
	for i := range *hammer {
		msg = append(msg[:0], seeds[rnd.IntN(len(seeds))]...)
		for range rnd.IntN(4) {
			switch at := rnd.IntN(len(msg)); rnd.IntN(4) {
			case 0:
				msg[at] ^= 1 << rnd.IntN(8)
			case 1:
				msg[at] = byte(rnd.Uint32())
			case 2:
				msg = msg[:max(1, at)]
			case 3:
				msg = append(msg, msg[at:]...)[:min(len(msg)+rnd.IntN(40), 2*len(msg)-at)]
			}
		}
		transport := Transport(rnd.IntN(transports))
		out = r.Respond(out[:0], msg, client, Via{transport, local})
		if len(out) > 0 {
			replies++
			var m dns.Msg
			if err := m.Unpack(out); err != nil {
				t.Fatalf("packet %d, %x: reply %x: %v", i, msg, out, err)
			}
			if transport == UDP && len(out) > maxUDPSize || r.pads && len(out)%paddingBlock != 0 && len(out) < 65532 {
				t.Fatalf("packet %d, %x: reply of %d octets over %v", i, msg, len(out), transport)
			}
		}
		if i == *hammer/10 {
			early = heap()
		}
	}
	if late := heap(); late > early+64<<10 {
		t.Errorf("the heap grew from %d to %d octets", early, late)
	}
	if replies < *hammer/2 {
		t.Errorf("only %d of %d packets had a reply", replies, *hammer)
	}
	t.Logf("%d packets, %d replies", *hammer, replies)
}
