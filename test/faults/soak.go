//go:build linux

package faults

import (
	"context"
	"fmt"
	"time"
)

// soakPart is how often during a soak answers are judged, and forgotten; soakPartShort where trials
// are short, which is more than it takes to recover from a cut.
const (
	soakPart      = time.Minute
	soakPartShort = 2 * freshWithin
)

// Soak changes and asks for a long time, and lets nothing go wrong but what that does: the watch
// is cut off once in a while.
func (l *Lab) Soak(ctx context.Context, d time.Duration) (*Result, error) {
	f := &Fault{Name: "soak", Title: fmt.Sprintf("%v of changes (%d a second) and questions", d, churnRate), run: func(ctx context.Context, t *trial) error {
		return t.soak(ctx, d)
	}}
	return l.Run(ctx, f)
}

func (t *trial) soak(ctx context.Context, d time.Duration) error {
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	var memory, goroutines []float64 // at the end of each part
	var asked, wrong, silent, load, lost int
	var worst time.Duration
	every := t.long(soakPart, soakPartShort)
	begun := time.Now()
	for part := 0; time.Since(begun) < d; part++ {
		from := time.Now()
		t.cuts = nil
		if part%5 == 4 {
			t.cut()
			t.proxy.Reset()
			t.heal()
		}
		r, err := t.pace(t.server.DNS, every)
		if err == nil {
			err = t.wait(ctx, 0)
		}
		if err != nil {
			return err
		}
		load, lost = load+r.Asked, lost+r.Asked-r.Replies() // late ones are not lost
		answers := t.asking.take()
		if err := t.looked(ctx, time.Now()); err != nil {
			return err
		}
		j := t.judge(answers, freshWithin, time.Now())
		asked, wrong, silent = asked+j.asked, wrong+j.wrong, silent+j.silent
		worst = max(worst, j.p99)
		t.oracle.forget(from)
		now, err := scrape(t.server)
		if err != nil {
			return err
		}
		memory = append(memory, now[t.memory()]/1e6)
		goroutines = append(goroutines, now["go_goroutines"])
		t.logf("  %v: %s questions, %d wrong, %d without a reply, 99 %% within %s, %.0f MB, %.0f goroutines", time.Since(begun).Round(time.Second),
			thousands(j.asked), j.wrong, j.silent, brief(j.p99), memory[part], goroutines[part])
	}
	changes := t.world.changes.Load()
	drift, err := t.metric("epdns_audit_drift_total")
	if err != nil {
		return err
	}
	t.cuts = nil
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	t.check(silent == 0, "all questions answered during it", "%s of %s", thousands(asked-silent), thousands(asked))
	t.check(float64(lost) <= 1e-6*float64(load), "of the load, one in a million lost at most", "%s of %s", thousands(lost), thousands(load))
	t.check(wrong == 0, "none wrong during it", "%s", thousands(wrong))
	if !t.Short { // what the first minutes take is caches and pools
		third := len(memory) / 3
		early, late := mean(memory[third:2*third+1]), mean(memory[2*third:])
		t.check(late <= 1.05*early+1, "memory of the last third at most 5 % above that of the second", "%.1f and %.1f MB", late, early)
	}
	t.check(goroutines[len(goroutines)-1] <= goroutines[0]+10, "no goroutines more", "%.0f and %.0f", goroutines[0], goroutines[len(goroutines)-1])
	t.check(drift == 0, "no drift", "%.0f", drift)
	t.note("%s changes, 99 %% of a minute's replies within %s at worst", thousands(int(changes)), brief(worst))
	return nil
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(max(len(values), 1))
}

// memory is the metric that must not rise. The race detector keeps more and more for itself, of
// which Go's runtime knows nothing.
func (t *trial) memory() string {
	if t.Race {
		return "go_memstats_sys_bytes"
	}
	return "process_resident_memory_bytes"
}

// looked waits until the oracle knows what was true at a time.
func (t *trial) looked(ctx context.Context, at time.Time) error {
	return t.until(ctx, readyWithin, func() error {
		if seen := t.oracle.seen(); seen.Before(at) {
			return fmt.Errorf("the oracle looked last at %s", seen.Format(clock))
		}
		return nil
	})
}

// take are the answers since it was called last.
func (k *asking) take() []answer {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.all
	k.all = nil
	return all
}

// forget lets go of what was over before.
func (o *oracle) forget(before time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, h := range []*history{&o.services, &o.slices} {
		for name, spans := range h.spans {
			for len(spans) > 1 && spans[0].until.Before(before) {
				spans = spans[1:]
			}
			h.spans[name] = append([]span(nil), spans...)
		}
	}
}
