//go:build linux

package faults

import (
	"context"
	"slices"
	"sync"
	"time"

	"epdns/test/run"
)

// marker is a Service that changes in order to be seen: how long that takes from the moment in which
// the API server has acknowledged it.
type marker struct {
	mu   sync.Mutex
	seen []sighting
}

type sighting struct {
	at   time.Time // of the acknowledgement
	took time.Duration
}

const (
	// markEvery is far more than a change takes.
	markEvery = 250 * time.Millisecond

	// markFor is how long a change is looked for. In a fault it may never be seen.
	markFor = 2 * time.Second

	// lookEvery is how exact it is.
	lookEvery = time.Millisecond
)

// run changes the Service and looks for the change until ctx ends.
func (m *marker) run(ctx context.Context, w *world, server string) {
	for tick := time.NewTicker(markEvery); ; {
		if at, took, ok := w.sight(ctx, server); ok {
			m.mu.Lock()
			m.seen = append(m.seen, sighting{at, took})
			m.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// sight makes one change and looks for it.
func (w *world) sight(ctx context.Context, server string) (at time.Time, took time.Duration, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, markFor)
	defer cancel()
	s := w.marker
	s.mu.Lock()
	defer s.mu.Unlock()
	now := w.fresh(0)
	s.slices[0] = []endpoint{now}
	if w.put(ctx, s, 0) != nil {
		return at, 0, false
	}
	at = time.Now()
	err := run.Until(ctx, lookEvery, func() error {
		if a := ask(ctx, server, s.name, true); slices.Contains(a.addresses, now.address) {
			return nil
		}
		return context.DeadlineExceeded
	})
	return at, time.Since(at), err == nil
}

// latencies are the median and the 99th percentile of what was seen outside of cuts.
func (m *marker) latencies(cuts []cut, fresh time.Duration) (p50, p99 time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var took []time.Duration
	for _, s := range m.seen {
		if !slices.ContainsFunc(cuts, func(c cut) bool {
			return s.at.Add(s.took).After(c.from) && (c.to.IsZero() || s.at.Before(c.to.Add(fresh)))
		}) {
			took = append(took, s.took)
		}
	}
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100]
}
