package registry

// This file is for sources whose lists may be wrong: a server that answers with less than
// there is, or a watch that left something out. They compare, and take away with care.

// Guard says which Services keep their endpoints though a list lacks most of them.
type Guard struct {
	Above int     // it is for Services with more endpoints than that
	Share float64 // of which the list takes away more than this part

	// Until is asked about each of these. What is held of a Service stays as it is until
	// the next list, if there is a time, in Unix seconds; the time is for readers of the
	// snapshot. It must not call the Store.
	Until func(Key) int64
}

// Comparison is what a Store holds of an object.
type Comparison uint8

const (
	Same    Comparison = iota // just that
	Absent                    // nothing
	Differs                   // something else
)

// Relist implements [Feed].
func (f *sliceFeed) Relist(list []*Digest, guard *Guard) (kept []Key) {
	s := f.store
	listed := make(map[sliceName]struct{}, len(list))
	s.write(f.state, func() {
		stay := s.shrunk(f.scope, list, guard)
		for _, d := range list {
			listed[sliceName{d.namespace, d.name}] = struct{}{}
			if _, ok := stay[d.of.(*Slice).Key()]; !ok {
				s.putSlice(d)
			}
		}
		for n, have := range s.slices {
			if _, ok := listed[n]; ok || !within(f.scope, n.namespace) {
				continue
			}
			if _, ok := stay[have.Key()]; !ok {
				s.removeSlice(n, have)
			}
		}
		for e := range s.kept {
			if _, ok := stay[e.key]; !ok && within(f.scope, e.key.Namespace) {
				s.hold(e, 0)
			}
		}
		for k, until := range stay {
			s.hold(s.entry(k), until)
			kept = append(kept, k)
		}
	})
	return kept
}

// shrunk are the Services that guard keeps from what a list says of them, each with the
// time until when. One that does not exist is not kept.
func (s *Store) shrunk(scope string, list []*Digest, guard *Guard) map[Key]int64 {
	if guard == nil {
		return nil
	}
	type counts struct{ held, listed int }
	large := map[Key]*counts{}
	for e := range s.all(scope) {
		c := counts{}
		for _, slice := range e.slices {
			c.held += slice.Endpoints.Len()
		}
		if c.held > guard.Above && (e.object != nil || !s.listed(e.key.Namespace)) {
			large[e.key] = &c
		}
	}
	if len(large) == 0 {
		return nil
	}
	for _, d := range list {
		slice := d.of.(*Slice)
		if c := large[slice.Key()]; c != nil {
			c.listed += slice.Endpoints.Len()
		}
	}
	stay := map[Key]int64{}
	for k, c := range large {
		if float64(c.held-c.listed) <= guard.Share*float64(c.held) {
			continue
		}
		if until := guard.Until(k); until != 0 {
			stay[k] = until
		}
	}
	return stay
}

// hold notes that the slices of a Service are kept until a time, or not any more.
func (s *Store) hold(e *entry, until int64) {
	if e.kept == until {
		return
	}
	e.kept = until
	s.touched[e] = struct{}{}
	if until == 0 {
		delete(s.kept, e)
	} else {
		s.kept[e] = struct{}{}
	}
}

// Compare implements [Feed].
func (f *sliceFeed) Compare(d *Digest) Comparison {
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	next := d.of.(*Slice)
	s.borrowPlaces(next)
	have := s.slices[sliceName{d.namespace, d.name}]
	return comparison(have, next, equalSlice)
}

// Names implements [Feed].
func (f *sliceFeed) Names(each func(namespace, name string)) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	for n := range f.store.slices {
		if within(f.scope, n.namespace) {
			each(n.namespace, n.name)
		}
	}
}

// Relist implements [Feed]. Nothing is kept of Services.
func (f *serviceFeed) Relist(list []*Digest, _ *Guard) []Key {
	f.replace(list, true)
	return nil
}

// Compare implements [Feed].
func (f *serviceFeed) Compare(d *Digest) Comparison {
	s := f.store
	s.mu.Lock()
	defer s.mu.Unlock()
	var have *Object
	if e := s.find(Key{d.namespace, d.name}); e != nil {
		have = e.object
	}
	return comparison(have, d.of.(*Object), equalObject)
}

// Names implements [Feed].
func (f *serviceFeed) Names(each func(namespace, name string)) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	for e := range f.store.all(f.scope) {
		if e.object != nil {
			each(e.key.Namespace, e.key.Name)
		}
	}
}

// Relist implements [Feed]. Nothing is kept of Nodes.
func (f *nodeFeed) Relist(list []*Digest, _ *Guard) []Key {
	f.ReplaceDigests(list)
	return nil
}

// Compare implements [Feed].
func (f *nodeFeed) Compare(d *Digest) Comparison {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	return comparison(f.store.nodes[d.name], d.of.(*Node), equalNode)
}

// Names implements [Feed].
func (f *nodeFeed) Names(each func(namespace, name string)) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	for name := range f.store.nodes {
		each("", name)
	}
}

// comparison looks at two things of which either may be nil: an object may be one of which
// nothing is kept.
func comparison[T any](have, next *T, equal func(a, b *T) bool) Comparison {
	switch {
	case have == nil && next == nil:
		return Same
	case have == nil:
		return Absent
	case next != nil && equal(have, next):
		return Same
	}
	return Differs
}
