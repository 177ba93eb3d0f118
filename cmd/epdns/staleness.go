package main

import (
	"time"

	"epdns/registry/kube"
	"epdns/zones"
)

// Staleness is about what is known, and not about when it last changed: a cluster in which
// nothing happens for a day is known as well as any. What is known ages from the moment on
// in which one of the watches has lost its server. That is told, in answers to who knows
// extended errors, in metrics and in the log, and changes nothing else: answers, their TTLs
// and whether epdns is ready stay as they are.

const (
	// defaultStaleAfter is longer than an API server takes to start again, or a watch to
	// be opened at another one.
	defaultStaleAfter = time.Minute

	// staleEvery is how often the watches are looked at.
	staleEvery = time.Second
)

// feedSource is a source that can lose what it watches.
type feedSource interface{ Status() []kube.FeedStatus }

// lost is until when what is known is known to be right: the earliest time of all watches
// that are lost, or that of what was restored. It is zero while all is well.
func (p *pipeline) lost() (asOf time.Time) {
	if p.restored.Load() {
		return time.Unix(0, p.asOf.Load())
	}
	w, ok := p.source.(feedSource)
	if !ok {
		return asOf
	}
	for _, f := range w.Status() {
		if !f.Off && !f.Lost.IsZero() && (asOf.IsZero() || f.Lost.Before(asOf)) {
			asOf = f.Lost
		}
	}
	return asOf
}

// age is how old what is known may be: 0 while no watch is lost. It may be called from any
// goroutine.
func (p *pipeline) age(now time.Time) time.Duration { return ageAt(p.lost(), now) }

// ageAt is how long ago something was. A clock that was set back makes nothing younger
// than nothing.
func ageAt(asOf, now time.Time) time.Duration {
	if asOf.IsZero() {
		return 0
	}
	return max(0, now.Sub(asOf))
}

// mark is a Set as it is to be served now. It belongs to the goroutine of publish.
func (p *pipeline) mark(set *zones.Set) *zones.Set {
	if !p.stale && !p.restored.Load() {
		return set // as it was a second ago: the watches are many, and Sets come often
	}
	if asOf := p.staleSince(time.Now()); !asOf.IsZero() {
		return set.Stale(asOf)
	}
	return set
}

// staleSince is zero, or as of when answers are while they are stale. What was restored
// is so from the start.
func (p *pipeline) staleSince(now time.Time) time.Time {
	asOf := p.lost()
	after := time.Duration(p.staleAfter.Load())
	if p.restored.Load() || after > 0 && ageAt(asOf, now) > after {
		return asOf
	}
	return time.Time{}
}

// lookAtStaleness serves what is served already under the mark that it should have now.
// It belongs to the goroutine of publish.
func (p *pipeline) lookAtStaleness() {
	asOf := p.staleSince(time.Now())
	p.stale = !asOf.IsZero()
	if !p.zones.Load().AsOf().Equal(asOf) {
		p.serve(p.builder.Last())
	}
}

// tellStaleness logs where answers begin to be stale, and where they end.
func (p *pipeline) tellStaleness(before, after *zones.Set) {
	was, is := before.AsOf(), after.AsOf()
	switch {
	case was.IsZero() && !is.IsZero():
		p.log.Warn("answers are stale from now on: the last state that is known is served", "as_of", is.UTC().Format(time.RFC3339))
	case !was.IsZero() && is.IsZero():
		p.log.Info("answers are up to date again", "after", time.Since(was).Round(time.Second).String())
	}
}
