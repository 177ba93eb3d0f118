//go:build !race

package dnsserver

import (
	"testing"
	"time"
)

// Replies that are counted and those beyond the limit cost no allocation.
func TestLimitedReplyDoesNotAllocate(t *testing.T) {
	for _, perSecond := range []int{1, maxPerSecond} {
		s := *everything
		s.limiter = limitedTo(perSecond, 2, "203.0.113.0/24")
		r := newResponder(cluster(t))
		r.use(&s)
		r.moment = second
		for _, p := range packed(t) {
			out := make([]byte, 0, maxTCPSize)
			if n := testing.AllocsPerRun(100, func() { out = r.Respond(out[:0], p.in, client, Via{UDP, local}) }); n != 0 {
				t.Errorf("%d a second, %s: %v allocations", perSecond, p.what, n)
			}
		}
	}
}

// BenchmarkLimited is BenchmarkRespond with a limit: that nobody reaches, and that has been
// reached.
func BenchmarkLimited(b *testing.B) {
	for _, how := range []string{"off", "counted", "beyond"} {
		b.Run(how, func(b *testing.B) {
			s := *everything
			switch how {
			case "counted":
				s.limiter = limitedTo(maxPerSecond, 2)
			case "beyond":
				s.limiter = limitedTo(1, 0)
			}
			r := newResponder(cluster(b))
			r.use(&s)
			began := time.Now()
			for _, p := range packed(b) {
				b.Run(p.what, func(b *testing.B) {
					out := make([]byte, 0, maxTCPSize)
					b.ReportAllocs()
					for i := 0; b.Loop(); i++ {
						if i%turn == 0 && s.limiter != nil {
							r.moment = int64(time.Since(began)/time.Microsecond) + 1 // as once a batch
							if how == "counted" {
								r.moment *= 100 // so that it is never reached
							}
						}
						out = r.Respond(out[:0], p.in, client, Via{UDP, local})
					}
				})
			}
		})
	}
}
