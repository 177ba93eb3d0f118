package kube

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"epdns/registry"
)

// This file is for watches that are wrong and do not know it: a server may leave out
// events, and no client would be told. From time to time the state is read as it is in the
// cluster, and compared with what is held.

// AuditResult is what came of an audit.
type AuditResult uint8

const (
	AuditClean        AuditResult = iota // what is held is what exists
	AuditDrift                           // it is not: the state is read again
	AuditOlder                           // the cluster is older than what is held: the same
	AuditInconclusive                    // there was no watch to compare with, or something else had the state read again
	AuditFailed                          // the list could not be read

	auditResults // how many there are
)

func (r AuditResult) String() string {
	return [auditResults]string{"clean", "drift", "older", "inconclusive", "failed"}[r]
}

const (
	// auditSettles is how long a watch must bring nothing until a difference is one.
	// What a list has, a watch is told within milliseconds, if it is told at all.
	auditSettles = 5 * time.Second

	// auditPatience is how long that is waited for. A watch that is so far behind all
	// this time has other troubles.
	auditPatience = time.Minute
)

// audits runs one audit after the other until ctx ends, so that each feed has its turn
// within AuditEvery, or earlier where there is reason to doubt its watch. Never two at a
// time: a list of everything is work for the API server.
func (s *Source) audits(ctx context.Context) {
	if s.AuditEvery <= 0 {
		return
	}
	pause := func() time.Duration {
		p := s.AuditEvery / time.Duration(len(s.feeds))
		// Replicas that were started together should not go on together.
		return p - time.Duration(rand.Int64N(int64(p)/4+1))
	}
	doubted := map[*feed]time.Time{}
	timer := time.NewTimer(pause())
	defer timer.Stop()
	for next := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			s.feeds[next].audit(ctx)
			next = (next + 1) % len(s.feeds)
			timer.Reset(pause())
		case d := <-s.doubted:
			if last, again := doubted[d.feed]; again && time.Since(last) < s.AuditEvery {
				continue // of a server without bookmarks every watch is silent
			}
			doubted[d.feed] = time.Now()
			if !sleep(ctx, time.Until(d.at.Add(auditSettles))) { // the watch has been opened again
				return
			}
			d.feed.audit(ctx)
		}
	}
}

// doubt is of a feed whose watch was silent or lost.
type doubt struct {
	feed *feed
	at   time.Time
}

// doubt asks for an audit of a feed.
func (s *Source) doubt(f *feed) {
	select {
	case s.doubted <- doubt{f, time.Now()}:
	default:
	}
}

// audit is one comparison of what is held with what exists.
type audit struct {
	*feed
	began time.Time
	lists uint64 // that were read when it began
	known uint64 // the version that was known then

	version uint64            // of what exists
	exists  map[name]struct{} // all of it
	differ  []digest          // what is held otherwise, or not
}

func (f *feed) audit(ctx context.Context) {
	if f.snapshot().Off {
		return
	}
	a := audit{feed: f, exists: map[name]struct{}{}}
	if !a.begin() {
		a.done(AuditInconclusive, 0)
		return
	}
	defer a.end()
	result, wrong := a.run(ctx)
	if ctx.Err() != nil {
		return
	}
	a.done(result, len(wrong))
	log := f.src.log.With("server", f.src.server, "kind", f.kind.name, "in", f.scope())
	switch result {
	case AuditDrift:
		log.Warn("audit: what is held differs from the cluster; reading the state again", "objects", len(wrong), "which", firstFew(wrong))
		f.relist(RelistAudit)
	case AuditOlder:
		log.Warn("audit: the cluster is older than what is held; reading the state again", "version", a.version, "known", a.known)
		f.relist(RelistAudit)
	}
}

// begin says whether there is a watch to be compared with, at rest.
func (a *audit) begin() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.status.Connected || !a.status.Synced || a.wanted || len(a.holding) > 0 {
		return false
	}
	a.began, a.lists, a.known = time.Now(), a.status.Lists, a.held.version
	a.held.touched = map[name]uint64{}
	return true
}

func (a *audit) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.held.touched = nil
}

// undisturbed says whether the watch is the one it was.
func (a *audit) undisturbed() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status.Connected && a.status.Lists == a.lists && !a.wanted
}

// run returns the objects that are wrong, as texts for people.
func (a *audit) run(ctx context.Context) (AuditResult, []string) {
	version, err := a.lister.listAll(ctx, a.compare)
	a.version = parseVersion(version)
	switch {
	case err != nil:
		a.failedAudit(ctx, err)
		return AuditFailed, nil
	case !a.undisturbed():
		return AuditInconclusive, nil
	case a.version != 0 && a.version < a.known:
		a.mu.Lock()
		a.held.olderOnce = true // with the list that follows
		a.mu.Unlock()
		return AuditOlder, nil
	}
	if len(a.differ) == 0 && len(a.extra()) == 0 {
		return AuditClean, nil
	}
	if !a.caughtUp(ctx) {
		return AuditInconclusive, nil
	}
	wrong := a.wrong()
	switch {
	case !a.undisturbed(): // what is held has become another state while it was looked at
		return AuditInconclusive, nil
	case len(wrong) > 0:
		return AuditDrift, wrong
	}
	return AuditClean, nil
}

// compare looks at an object that exists. What is equal is let go of.
func (a *audit) compare(o runtime.Object) {
	d, ok := o.(digest)
	if !ok {
		return // of another kind
	}
	a.exists[d.id()] = struct{}{}
	if a.holds.Compare(d.Digest) != registry.Same {
		a.differ = append(a.differ, d)
	}
}

// extra are the names of what is held and does not exist.
func (a *audit) extra() (names [][2]string) {
	a.holds.Names(func(namespace, object string) {
		if _, ok := a.exists[nameOf(namespace, object)]; !ok {
			names = append(names, [2]string{namespace, object})
		}
	})
	return names
}

// caughtUp waits until the watch has brought all that was in the list: as long as it may
// be behind, a difference says nothing.
func (a *audit) caughtUp(ctx context.Context) bool {
	listed := time.Now()
	for a.undisturbed() {
		a.mu.Lock()
		passed := a.version != 0 && a.held.version >= a.version
		last := a.status.LastEvent
		a.mu.Unlock()
		if last.Before(listed) {
			last = listed
		}
		switch {
		case passed, time.Since(last) >= auditSettles:
			return true
		case time.Since(listed) >= auditPatience || !sleep(ctx, 50*time.Millisecond):
			return false
		}
	}
	return false
}

// wrong is what still differs, but for what has changed after the list.
func (a *audit) wrong() (objects []string) {
	var left []digest
	for _, d := range a.differ {
		if a.holds.Compare(d.Digest) != registry.Same {
			left = append(left, d)
		}
	}
	extra := a.extra()
	// After the comparison: what an event has changed by then is noted before it is.
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range left {
		if !a.changed(d.id()) {
			objects = append(objects, objectText(d.Namespace(), d.Name()))
		}
	}
	for _, n := range extra {
		if !a.changed(nameOf(n[0], n[1])) {
			objects = append(objects, objectText(n[0], n[1]))
		}
	}
	slices.Sort(objects)
	return objects
}

// changed says whether an event has told of an object what the list could not have. It
// needs the feed's mutex.
func (a *audit) changed(object name) bool {
	version, touched := a.held.touched[object]
	return touched && (version == 0 || a.version == 0 || version > a.version)
}

// done counts an audit.
func (a *audit) done(result AuditResult, wrong int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status.Audits[result]++
	a.status.Drift += uint64(wrong)
	switch result {
	case AuditClean, AuditDrift, AuditOlder:
		a.status.LastAudit = time.Now()
		a.auditFails = false
	}
	if result == AuditClean {
		a.proved(a.began)
	}
}

// failedAudit tells of a list that could not be read, once until one can.
func (f *feed) failedAudit(ctx context.Context, err error) {
	f.mu.Lock()
	told := f.auditFails
	f.auditFails = ctx.Err() == nil
	f.mu.Unlock()
	if !told && ctx.Err() == nil {
		f.src.log.Warn("audit: the list could not be read; what is held is not compared",
			"server", f.src.server, "kind", f.kind.name, "in", f.scope(), "err", reason(err))
	}
}

func objectText(namespace, object string) string {
	if namespace == "" {
		return object
	}
	return namespace + "/" + object
}

// firstFew names some of many.
func firstFew(names []string) string {
	const few = 5
	if len(names) > few {
		return strings.Join(names[:few], " ") + " …"
	}
	return strings.Join(names, " ")
}
