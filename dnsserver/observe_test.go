package dnsserver

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/dnsserver/batch"
)

// Each value is in the first bucket that it is not larger than.
func TestHistograms(t *testing.T) {
	var o observed
	for _, d := range []time.Duration{0, 1, time.Microsecond, time.Microsecond + 1, 2 * time.Microsecond, 3 * time.Microsecond, time.Hour} {
		o.duration.add(d, 2)
	}
	for _, n := range []int{0, 32, 33, 512, 1232, 1233, 65535} {
		o.reply.add(n)
	}
	got := o.load()
	for bound, want := range map[float64]uint64{1e-6: 6, 2e-6: 10, 4e-6: 12, 1.048576: 12} {
		if n := got.Duration.Buckets[bound]; n != want {
			t.Errorf("%d took at most %v s, want %d", n, bound, want)
		}
	}
	if d := got.Duration; d.Count != 14 || d.Sum < 7200 || d.Sum > 7201 {
		t.Errorf("%d took %v s", d.Count, d.Sum)
	}
	for bound, want := range map[float64]uint64{32: 2, 64: 3, 256: 3, 512: 4, 1024: 4, 1232: 5, 1400: 6, 16384: 6, 65535: 7} {
		if n := got.ReplySize.Buckets[bound]; n != want {
			t.Errorf("%d have at most %v octets, want %d", n, bound, want)
		}
	}
}

// What gets no reply here is not in them.
func TestObservedBatch(t *testing.T) {
	var o observed
	o.batch([]batch.Message{{Data: make([]byte, 40), Reply: make([]byte, 100)}, {Data: make([]byte, 3)}}, time.Millisecond)
	got := o.load()
	if got.Duration.Count != 1 || got.QuerySize.Sum != 40 || got.ReplySize.Sum != 100 {
		t.Errorf("%+v", got)
	}
	o.batch([]batch.Message{{Data: make([]byte, 3)}}, time.Millisecond)
	if got := o.load(); got.Duration.Count != 1 {
		t.Errorf("%+v", got)
	}
}

// Over TCP each query is observed, over UDP some are.
func TestObserved(t *testing.T) {
	s := start(t, Config{Workers: 1})
	ask := func(network string, times int) {
		c, err := dns.Dial(network, s.Addrs()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for range times {
			if err := c.WriteMsg(question("web.shop.registry.local.", dns.TypeA)); err != nil {
				t.Fatal(err)
			}
			if _, err := c.ReadMsg(); err != nil {
				t.Fatal(err)
			}
		}
	}
	ask("udp", 3*observeEvery+observeEvery/2)
	ask("tcp", 5)
	// The last batch may be noted after its reply has come.
	deadline := time.Now().Add(patience)
	for s.Stats().Observed[UDP].Duration.Count < 3 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	got := s.Stats().Observed
	if udp, tcp := got[UDP], got[TCP]; udp.Duration.Count != 3 || tcp.Duration.Count != 5 || tcp.QuerySize.Count != 5 || udp.ReplySize.Sum <= udp.QuerySize.Sum || tcp.Duration.Sum <= 0 {
		t.Errorf("%+v", got)
	}
}
