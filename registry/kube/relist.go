package kube

import (
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"epdns/registry"
)

// RelistReason is why a whole state was read again.
type RelistReason uint8

const (
	RelistOther   RelistReason = iota
	RelistExpired              // the API server has forgotten where the watch was (410)
	RelistEvent                // an event was an error, or not understood
	RelistAudit                // an audit found that what is held is wrong
	RelistOlder                // the list before was older than what is held
	RelistHeld                 // the list before lacked most endpoints of a Service

	relistReasons // how many there are
)

func (r RelistReason) String() string {
	return [relistReasons]string{"other", "expired", "event", "audit", "older", "held"}[r]
}

// relist ends the watch, for a reason of ours, and has the whole state read again: as new
// as the cluster is, and not only as new as the last event.
func (f *feed) relist(why RelistReason) {
	f.mu.Lock()
	f.held.insist = true
	f.ask(why)
	w := f.stream
	f.mu.Unlock()
	if w != nil {
		w.expire()
	}
}

// ask notes that the state is to be read again as soon as there is a watch. It needs f.mu.
func (f *feed) ask(why RelistReason) {
	f.reason, f.wanted = why, true
}

// expiry is the event that makes a reflector read the whole state.
var expiry = watch.Event{Type: watch.Error, Object: &metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
	Message: "the state is read again",
}}

// MassEmpty says which Services keep their endpoints for a while though a list lacks most
// of them. Events, and Services that are gone, take effect at once.
type MassEmpty struct {
	Above int           // Services with more endpoints than that are meant
	Share float64       // if a list lacks more than this part of them, 0 to 1
	Hold  time.Duration // for how long; 0 or less is never
}

// guard is what keeps Services as they are in the relist that comes. It is nil where
// nothing does.
func (f *feed) guard() *registry.Guard {
	f.mu.Lock()
	defer f.mu.Unlock()
	m, now := f.src.MassEmpty, time.Now()
	if f.kind != endpointSlices || m.Hold <= 0 || f.status.Lists == 0 {
		return nil
	}
	f.until = map[registry.Key]time.Time{}
	return &registry.Guard{Above: m.Above, Share: m.Share, Until: func(k registry.Key) int64 {
		until, again := f.holding[k]
		switch {
		case !again:
			until = now.Add(m.Hold)
		case !now.Before(until):
			return 0
		}
		f.until[k] = until
		return until.Unix()
	}}
}

// keeping says which Services the relist has left as they were. When the first of them has
// been kept for long enough, the state is read again: what it lacks then is gone.
func (f *feed) keeping(kept []registry.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.holding
	f.holding, f.until = f.until, nil
	f.status.Held = len(kept)
	if f.holdTimer != nil {
		f.holdTimer.Stop()
		f.holdTimer = nil
	}
	if len(kept) == 0 {
		return
	}
	var fresh []string
	var first time.Time
	for _, k := range kept {
		if _, again := before[k]; !again {
			fresh = append(fresh, k.String())
		}
		if until := f.holding[k]; first.IsZero() || until.Before(first) {
			first = until
		}
	}
	if len(fresh) > 0 {
		f.status.Holds += uint64(len(fresh))
		slices.Sort(fresh)
		f.src.log.Warn("a list lacks most endpoints of Services; those from before are kept until it is read again",
			"server", f.src.server, "in", f.scope(), "services", firstFew(fresh), "count", len(fresh), "for", f.src.MassEmpty.Hold)
	}
	f.holdTimer = time.AfterFunc(time.Until(first), func() { f.relist(RelistHeld) })
}
