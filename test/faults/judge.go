//go:build linux

package faults

import (
	"fmt"
	"slices"
	"time"
)

// judgement is what the answers of a trial were.
type judgement struct {
	asked, silent, wrong  int
	stale                 int           // no longer right, but as right as could be
	retry                 int           // SERVFAIL where nothing could be known
	wrongFor              time.Duration // in which an answer was wrong
	recovered             time.Duration // from the end of a cut to the last that was stale, at most
	resting, restingWrong int           // when all had come to rest
	p50, p99              time.Duration
}

// again is how soon answers were right again.
func (j *judgement) again() string {
	if j.recovered == 0 {
		return "at once"
	}
	return brief(j.recovered)
}

func (j *judgement) seconds() string {
	if j.wrong == 0 {
		return ""
	}
	return fmt.Sprintf(" within %s", brief(j.wrongFor))
}

// shown is how many wrong answers are told of.
const shown = 5

// judge holds answers against what was true. They may be as old as lag, and after the begin of a
// cut as old as that until fresh after its end. From rest on they must be exact.
func (t *trial) judge(all []answer, fresh time.Duration, rest time.Time) *judgement {
	j := &judgement{}
	var took []time.Duration
	var wrongUntil time.Time
	slices.SortFunc(all, func(a, b answer) int { return a.at.Compare(b.at) })
	for i := range all {
		a := &all[i]
		j.asked++
		within := func(s span) bool { return !a.at.Before(s.after) && !a.at.After(s.until) }
		if a.outcome == silence {
			if slices.ContainsFunc(t.excuse, within) {
				j.asked--
				continue
			}
			j.silent++
			if j.silent <= shown {
				t.logf("  %s: no reply about %s", a.at.Format(clock), a.service)
			}
			continue
		}
		took = append(took, a.took)
		if a.outcome == servfail && slices.ContainsFunc(t.waiting, within) {
			j.retry++
			continue
		}
		right := t.oracle.right(a, a.at.Add(-lag))
		if !a.at.Before(rest) {
			j.resting++
			if !right {
				j.restingWrong++
			}
		}
		if right {
			continue
		}
		if c := t.cutAt(a.at, fresh); c != nil && t.oracle.right(a, c.from.Add(-lag)) {
			j.stale++
			if !c.to.IsZero() {
				j.recovered = max(j.recovered, a.at.Sub(c.to))
			}
			continue
		}
		j.wrong++
		if end := a.at.Add(askEvery); end.After(wrongUntil) {
			j.wrongFor += end.Sub(later(a.at, wrongUntil))
			wrongUntil = end
		}
		if j.wrong <= shown {
			t.logf("  %s: %s %s with %v, EDE %v, for %s, which %s", a.at.Format(clock), a.service, a.outcome, a.addresses, a.ede, family(a), t.oracle.now(a.service))
		}
	}
	slices.Sort(took)
	if len(took) > 0 {
		j.p50, j.p99 = took[len(took)/2], took[len(took)*99/100]
	}
	return j
}

const clock = "15:04:05.000"

func family(a *answer) string {
	if a.ipv4 {
		return "A"
	}
	return "AAAA"
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// cutAt is the cut that excuses what is answered at a time. Cuts that overlap count from the first.
func (t *trial) cutAt(at time.Time, fresh time.Duration) *cut {
	for i := range t.cuts {
		c := &t.cuts[i]
		// Where fresh is missed, the answers are late, not wrong: recovered tells.
		if !at.Before(c.from) && (c.to.IsZero() || at.Before(c.to.Add(fresh+missed))) {
			return c
		}
	}
	return nil
}

// missed is how much later than asked for answers are still counted as late.
const missed = 10 * time.Second
