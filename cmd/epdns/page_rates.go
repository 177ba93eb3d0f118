package main

import (
	"context"
	"sync"
	"time"

	"epdns/dnsserver"
)

// rates are how many questions came, of late. They are noted all the time, so that who looks
// sees what was before.
type rates struct {
	dns *dnsserver.Server

	mu   sync.Mutex
	past []rateSample // the oldest first
}

type rateSample struct {
	at    time.Time
	total uint64
}

const (
	rateEvery = 5 * time.Second
	rateKept  = 61 // five minutes
)

// run notes until ctx ends.
func (r *rates) run(ctx context.Context) {
	tick := time.NewTicker(rateEvery)
	defer tick.Stop()
	for r.note(time.Now(), r.total()); ; {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			r.note(now, r.total())
		}
	}
}

func (r *rates) total() (n uint64) {
	for _, of := range r.dns.Stats().Requests {
		n += of
	}
	return n
}

func (r *rates) note(now time.Time, total uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.past) == rateKept {
		copy(r.past, r.past[1:])
		r.past = r.past[:rateKept-1]
	}
	r.past = append(r.past, rateSample{now, total})
}

// now is how many come in a second: since the last sample that is old enough to tell.
func (r *rates) now(now time.Time, total uint64) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := len(r.past) - 1; i >= 0; i-- {
		if s := r.past[i]; now.Sub(s.at) >= rateEvery/2 || i == 0 && now.After(s.at) {
			return rateOf(s, rateSample{now, total})
		}
	}
	return 0
}

// bars are how many came in a second in each span of rateEvery, the last one at the end.
func (r *rates) bars() []float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]float64, rateKept-1)
	for i := 1; i < len(r.past); i++ {
		out[len(out)-len(r.past)+i] = rateOf(r.past[i-1], r.past[i])
	}
	return out
}

func rateOf(before, after rateSample) float64 {
	took := after.at.Sub(before.at).Seconds()
	if took <= 0 || after.total < before.total {
		return 0
	}
	return float64(after.total-before.total) / took
}
