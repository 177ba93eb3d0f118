package fakeapi

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// faults are what goes wrong on purpose.
type faults struct {
	code        int                      // of the answer to everything, 0: all is well
	forbidden   map[string]bool          // kind
	endless     bool                     // streaming lists have no end
	lag         int                      // events that lists of any version, and watches, do not know yet
	slow        map[string]time.Duration // kind → how late its state is
	goneWatch   map[string]bool          // kind → its next watch is sent a 410
	goneRequest map[string]bool          // kind → its next watch is answered 410
	damaged     map[string]Damage        // kind → of the first event of its next watch
	early       time.Duration            // age at which watches end
	earlyUntil  time.Time
	older       int    // so many of the next lists of a kind
	olderKind   string // are as of
	olderThan   int    // so many events ago
}

func newFaults() faults {
	return faults{
		forbidden:   map[string]bool{},
		slow:        map[string]time.Duration{},
		goneWatch:   map[string]bool{},
		goneRequest: map[string]bool{},
		damaged:     map[string]Damage{},
	}
}

// refusal is the error that a request is answered with, or nil. It needs s.mu.
func (s *Server) refusal(r *Request) *metav1.Status {
	resource := kinds[r.Kind].resource
	switch {
	case s.code != 0:
		return status(s.code, metav1.StatusReasonUnknown, "something is wrong")
	case s.forbidden[r.Kind]:
		return status(http.StatusForbidden, metav1.StatusReasonForbidden, resource+` is forbidden: User "anybody" cannot list it`)
	case r.Watch && s.goneRequest[r.Kind]:
		delete(s.goneRequest, r.Kind)
		return expired(r.number(), s.version)
	}
	return nil
}

// Fail answers every request with an error. 0 ends that.
func (s *Server) Fail(code int) { s.set(func() { s.code = code }) }

// Forbid answers requests for a kind with 403. Watches that run go on.
func (s *Server) Forbid(kind string, yes bool) { s.set(func() { s.forbidden[kind] = yes }) }

// Endless leaves out the bookmarks that end streaming lists.
func (s *Server) Endless(yes bool) { s.set(func() { s.endless = yes }) }

// Compact forgets all but the last versions.
func (s *Server) Compact(keep uint64) {
	s.set(func() { s.compacted = max(s.compacted, s.version-min(keep, s.version)) })
}

// Advance uses up versions, as other kinds do.
func (s *Server) Advance(versions uint64) { s.set(func() { s.version += versions }) }

// Announce sends a bookmark into all watches that asked for such.
func (s *Server) Announce() {
	s.set(func() {
		for w := range s.watches {
			w.bookmark = true
		}
	})
}

// Expire forgets all history and sends a 410 into every watch.
func (s *Server) Expire() {
	s.set(func() {
		s.version++
		s.compacted = s.version
		for w := range s.watches {
			w.gone = true
		}
	})
}

// ExpireWatches sends a 410 into the watches of a kind, or the next one.
func (s *Server) ExpireWatches(kind string) {
	s.set(func() {
		if !s.eachWatch(kind, func(w *watch) { w.gone = true }) {
			s.goneWatch[kind] = true
		}
	})
}

// ExpireRequest answers the next watch of a kind with 410.
func (s *Server) ExpireRequest(kind string) { s.set(func() { s.goneRequest[kind] = true }) }

// eachWatch calls f for the watches of a kind that run, and says whether there are
// any. It needs s.mu.
func (s *Server) eachWatch(kind string, f func(*watch)) (runs bool) {
	for w := range s.watches {
		if w.Kind == kind {
			f(w)
			runs = true
		}
	}
	return runs
}

// Damage is what may happen to an event on its way.
type Damage string

// What a client does not understand, and in which part.
const (
	CutMessage  Damage = "message"      // the message ends in its middle
	CutObject   Damage = "object"       // the object does, in a message that is well
	BadField    Damage = "field"        // a field is of another type
	UnknownKind Damage = "unknown-kind" // the object is a Pod
	OtherKind   Damage = "other-kind"   // the object is a Node, in a watch of something else
)

// Damages are all there are.
func Damages() []Damage { return []Damage{CutMessage, CutObject, BadField, UnknownKind, OtherKind} }

// Damage damages the next event that watches of a kind are sent, or the first one of
// the next watch. In the store all is well.
func (s *Server) Damage(kind string, how Damage) error {
	if !slices.Contains(Damages(), how) {
		return fmt.Errorf("damage %q is none of %q", how, Damages())
	}
	s.set(func() {
		if !s.eachWatch(kind, func(w *watch) { w.damage = how }) {
			s.damaged[kind] = how
		}
	})
	return nil
}

// Swap puts an object in the place of another, without a word to the watches.
func (s *Server) Swap(kind string, old ID, by Object) (err error) {
	s.set(func() {
		s.apply(by, true)
		err = s.remove(kind, old, true)
	})
	return err
}

// ApplySilently and DeleteSilently are Apply and Delete without a word to the watches.
func (s *Server) ApplySilently(o Object) { s.set(func() { s.apply(o, true) }) }

// DeleteSilently is Delete without a word to the watches.
func (s *Server) DeleteSilently(kind string, id ID) (err error) {
	s.set(func() { err = s.remove(kind, id, true) })
	return err
}

// Older has the next states of a kind that are read be as of some events ago, whatever is
// asked for: an API server that is behind and does not know it.
func (s *Server) Older(kind string, lists, events int) {
	s.set(func() { s.older, s.olderKind, s.olderThan = lists, kind, events })
}

// Restore goes back to a version: the store is restored from a backup. Watches that run are
// told nothing, and nothing until what they asked for is there.
func (s *Server) Restore(version uint64) {
	s.set(func() {
		s.events = slices.DeleteFunc(s.events, func(e event) bool { return e.version > version })
		s.version = version
		s.compacted = min(s.compacted, version)
	})
}

// Version is that of the newest change.
func (s *Server) Version() uint64 { return s.current() }

// Replay sends an event once more into the watches of a kind: that an object is, or was, as
// it was some versions of it ago.
func (s *Server) Replay(kind string, id ID, ago int) (err error) {
	s.set(func() {
		for _, e := range slices.Backward(s.events) {
			if e.kind != kind || e.id != id {
				continue
			}
			if ago--; ago < 0 {
				s.eachWatch(kind, func(w *watch) {
					if w.namespace == "" || w.namespace == id.Namespace {
						w.replay = append(w.replay, e)
					}
				})
				return
			}
		}
		err = fmt.Errorf("there are not so many versions of %s %s/%s", kind, id.Namespace, id.Name)
	})
	return err
}

// LagBehind makes lists of any version and watches know nothing of the last events.
func (s *Server) LagBehind(events int) { s.set(func() { s.lag = events }) }

// SlowDown makes the state of a kind late: a LIST as a whole, a streaming list after
// its first object.
func (s *Server) SlowDown(kind string, d time.Duration) { s.set(func() { s.slow[kind] = d }) }

// EndEarly ends watches at an age, for some time.
func (s *Server) EndEarly(age, during time.Duration) {
	s.set(func() { s.early, s.earlyUntil = age, time.Now().Add(during) })
}
