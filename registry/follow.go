package registry

import (
	"context"
	"time"
)

// Follower is told which Services change: one, or all of them. It belongs to one
// goroutine. However slow that is, it hinders nobody, and what it has yet to take
// is at most one entry for each Service.
type Follower struct {
	store *Store
	key   Key  // of the Service that is followed,
	all   bool // unless all are
	wake  chan struct{}
	dirty map[Key]struct{} // under store.mu

	places uint64 // what store.places was when TakeNodes was called last

	// Under store.mu, and what the last Take took of it. They are nil until KeepTimes.
	times, taken []ChangeTime
}

// ChangeTime is when a change came that a source told of by itself, and not within a
// whole list.
type ChangeTime struct {
	Service Key
	Came    time.Time // when its object began to be read
	From    time.Time // what happened in the cluster that made it, zero where it does not say
}

// maxTimes bounds the times that are kept for one Take. Those of a burst that is longer
// tell nothing more.
const maxTimes = 4096

// KeepTimes has Times tell of all changes from now on.
func (f *Follower) KeepTimes() {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	f.times, f.taken = make([]ChangeTime, 0, 64), make([]ChangeTime, 0, 64)
}

// Times are those of the changes that the last Take took, until the next one.
func (f *Follower) Times() []ChangeTime { return f.taken }

// came tells followers of everything when a change came, if it is one. It needs s.mu.
func (s *Store) came(k Key, at time.Time, from int64) {
	if len(s.touched) == 0 || k.Name == "" || s.held != nil {
		return
	}
	if at.IsZero() {
		at = time.Now()
	}
	t := ChangeTime{Service: k, Came: at}
	if from != 0 {
		t.From = time.UnixMilli(from)
	}
	for f := range s.ofAll {
		if f.times != nil && len(f.times) < maxTimes {
			f.times = append(f.times, t)
		}
	}
}

// Follow returns a Follower of one Service. Close it when it is not needed any more.
func (s *Store) Follow(namespace, name string) *Follower {
	return s.follow(&Follower{key: Key{namespace, name}})
}

// FollowAll returns a Follower of all Services. What exists already counts as changed.
func (s *Store) FollowAll() *Follower { return s.follow(&Follower{all: true}) }

func (s *Store) follow(f *Follower) *Follower {
	f.store = s
	f.wake = make(chan struct{}, 1)
	f.dirty = map[Key]struct{}{}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !f.all {
		if s.ofOne[f.key] == nil {
			s.ofOne[f.key] = map[*Follower]struct{}{}
		}
		s.ofOne[f.key][f] = struct{}{}
		f.mark(f.key)
		return f
	}
	s.ofAll[f] = struct{}{}
	if s.places > 0 {
		f.wakeUp()
	}
	for e := range s.all("") {
		if e.now.Load() != nil {
			f.mark(e.key)
		}
	}
	return f
}

// Changed wakes the follower when there is something to Take. A burst of changes
// is one wake-up.
func (f *Follower) Changed() <-chan struct{} { return f.wake }

// Take returns the Services that changed since the last Take, each once and as it
// is now, in no particular order. A Service that is gone has Exists false.
func (f *Follower) Take() []*Service {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	select {
	case <-f.wake: // what it would tell of is taken now
	default:
	}
	out := make([]*Service, 0, len(f.dirty))
	for k := range f.dirty {
		out = append(out, f.store.now(k))
	}
	f.dirty = emptied(f.dirty)
	f.times, f.taken = f.taken[:0], f.times
	return out
}

// TakeNodes returns all Nodes as they are now, in order of their names, and whether
// they are others than when it was called last. A follower of everything is woken
// when they are.
func (f *Follower) TakeNodes() (nodes []*Node, changed bool) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	if f.places == f.store.places {
		return nil, false
	}
	f.places = f.store.places
	return f.store.nodesNow(), true
}

// Close ends the follower. Changed wakes no more.
func (f *Follower) Close() {
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.ofAll, f)
	delete(s.ofOne[f.key], f)
	if len(s.ofOne[f.key]) == 0 {
		delete(s.ofOne, f.key)
	}
	clear(f.dirty)
}

// mark notes a change. It needs store.mu.
func (f *Follower) mark(k Key) {
	f.dirty[k] = struct{}{}
	f.wakeUp()
}

func (f *Follower) wakeUp() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// wake tells a change to those who follow. It needs s.mu.
func (s *Store) wake(k Key) {
	for f := range s.ofAll {
		f.mark(k)
	}
	for f := range s.ofOne[k] {
		f.mark(k)
	}
}

// now is the Service as it is, never nil.
func (s *Store) now(k Key) *Service {
	if svc := s.Snapshot(k.Namespace, k.Name); svc != nil {
		return svc
	}
	return &Service{Key: k}
}

// wait waits for the sync, without which "nothing" means "not known yet".
func (s *Store) wait(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.synced:
		return true
	}
}
