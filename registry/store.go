package registry

import (
	"cmp"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Store is the state of all Services. Sources write to it through feeds; one
// mutex orders them. Readers take snapshots without a lock.
//
//	store.Slices("").Replace(list)           // a source, after each list
//	store.Snapshot("shop", "web")            // anybody, at any time
//	for svc, changes := range store.Watch(ctx, "shop", "web") { … }
type Store struct {
	log    *slog.Logger
	prefix string // of the annotations that are kept

	// services maps Key to *entry. It is written under mu, read without.
	services sync.Map

	mu      sync.Mutex
	slices  map[sliceName]*Slice
	nodes   map[string]*Node
	sites   map[unique.Handle[site]]unique.Handle[site] // what endpoints say of where they are → with what their Nodes say
	places  uint64                                      // rises with each change of nodes
	feeds   []*feedState
	scopes  map[string]bool     // scope of a Service feed ("" is all) → it is on
	touched map[*entry]struct{} // by the change under way
	ofAll   map[*Follower]struct{}
	ofOne   map[Key]map[*Follower]struct{}
	warned  map[objectID]string // the problems that were logged last
	kept    map[*entry]struct{} // those whose slices are kept though a list lacked them

	synced chan struct{} // closed once all feeds are synced
	held   *Dumped       // what is shown before that, where something was restored

	stats struct {
		services, slices, endpoints, ready atomic.Int64
		skipped                            atomic.Uint64
	}
}

// entry is what is known of one Service, whether it exists or not.
type entry struct {
	key    Key
	object *Object
	slices []*Slice // by name
	shown  bool     // a snapshot has slices, too: they must not change any more
	kept   int64    // until when slices are those that a list lacked, Unix seconds; 0: they are not

	// now is the snapshot, nil where there is no such Service. It is all that is read
	// without the lock.
	now atomic.Pointer[Service]
}

// sliceName identifies an EndpointSlice.
type sliceName struct{ namespace, name string }

type feedState struct{ synced bool }

// DefaultAnnotationPrefix is what the annotations meant for epdns begin with.
const DefaultAnnotationPrefix = "registry.local"

// Option is a choice that NewStore takes.
type Option func(*Store)

// AnnotationPrefix says which annotations of Services are kept: those that begin
// with prefix and a slash. It is DefaultAnnotationPrefix unless given.
func AnnotationPrefix(prefix string) Option { return func(s *Store) { s.prefix = prefix + "/" } }

// NewStore returns an empty store that is not synced. It logs one line for each
// object of which something had to be left out.
func NewStore(log *slog.Logger, options ...Option) *Store {
	s := &Store{
		log:     log,
		prefix:  DefaultAnnotationPrefix + "/",
		slices:  map[sliceName]*Slice{},
		nodes:   map[string]*Node{},
		sites:   map[unique.Handle[site]]unique.Handle[site]{},
		scopes:  map[string]bool{},
		touched: map[*entry]struct{}{},
		ofAll:   map[*Follower]struct{}{},
		ofOne:   map[Key]map[*Follower]struct{}{},
		warned:  map[objectID]string{},
		kept:    map[*entry]struct{}{},
		synced:  make(chan struct{}),
	}
	for _, o := range options {
		o(s)
	}
	return s
}

// Snapshot returns the Service as it is now, or nil where there is none, as far as is
// known: before Synced has closed, nil may be a Service that has not been read yet. It
// takes no lock and may be called from any goroutine.
func (s *Store) Snapshot(namespace, name string) *Service {
	if e := s.find(Key{namespace, name}); e != nil {
		return e.now.Load()
	}
	return nil
}

// All yields each Service as it is now, in no particular order. It takes no lock and may be
// called from any goroutine; a Service that changes meanwhile is yielded as it was or as it
// is.
func (s *Store) All() iter.Seq[*Service] {
	return func(yield func(*Service) bool) {
		for e := range s.all("") {
			if svc := e.now.Load(); svc != nil && !yield(svc) {
				return
			}
		}
	}
}

// find returns what is known of a Service, or nil.
func (s *Store) find(k Key) *entry {
	if e, ok := s.services.Load(k); ok {
		return e.(*entry)
	}
	return nil
}

// all are the entries within a scope.
func (s *Store) all(scope string) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		s.services.Range(func(_, v any) bool {
			e := v.(*entry)
			return !within(scope, e.key.Namespace) || yield(e)
		})
	}
}

// Synced is closed once every feed has had its first Replace or is off. What the
// store holds before that is only a part of what exists.
func (s *Store) Synced() <-chan struct{} { return s.synced }

// Stats are counts of what the store holds, but for Skipped, which only grows.
type Stats struct {
	Services, Slices  int64
	Nodes             int64
	Endpoints, Ready  int64
	Skipped           uint64 // objects of which something was left out, each time it was read
	ServicesAreListed bool   // false where, in all or some namespaces, slices alone make a Service exist
}

// Stats may be called from any goroutine.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	listed := len(s.scopes) > 0
	for _, on := range s.scopes {
		listed = listed && on
	}
	nodes, h := int64(len(s.nodes)), s.held
	s.mu.Unlock()
	if h != nil {
		stats := h.stats
		stats.Services, stats.Skipped = s.stats.services.Load(), s.stats.skipped.Load()
		return stats
	}
	return Stats{
		Nodes:             nodes,
		Services:          s.stats.services.Load(),
		Slices:            s.stats.slices.Load(),
		Endpoints:         s.stats.endpoints.Load(),
		Ready:             s.stats.ready.Load(),
		Skipped:           s.stats.skipped.Load(),
		ServicesAreListed: listed,
	}
}

// Slices opens a feed for the EndpointSlices of a namespace, or of all where
// namespace is empty.
func (s *Store) Slices(namespace string) SliceFeed {
	return &sliceFeed{s, namespace, s.open()}
}

// Services opens a feed for the Services of a namespace, or of all where
// namespace is empty. As long as it is on, a Service within it exists with its
// object; while it is off or not opened, a Service exists while a slice names it.
func (s *Store) Services(namespace string) ServiceFeed {
	return &serviceFeed{s, namespace, s.open()}
}

func (s *Store) open() *feedState {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &feedState{}
	s.feeds = append(s.feeds, f)
	return f
}

// done marks a feed as synced and, where it was the last one, the store. Snapshots are
// published before, so that whoever waits sees all of them; also what Restore held back.
func (s *Store) done(f *feedState) {
	if f.synced {
		return
	}
	f.synced = true
	for _, f := range s.feeds {
		if !f.synced {
			return
		}
	}
	s.release()
	select {
	case <-s.synced: // a feed opened after the sync
	default:
		close(s.synced)
	}
}

type sliceFeed struct {
	store *Store
	scope string
	state *feedState
}

func (f *sliceFeed) Digest(o *discoveryv1.EndpointSlice) *Digest {
	d := Digest{from: triggerTime(o.Annotations[corev1.EndpointsLastChangeTriggerTime])}
	slice, problems := translateSlice(o)
	d.namespace, d.name, d.of, d.problems = slice.Namespace, slice.Name, slice, problems
	return &d
}

func (f *sliceFeed) Replace(objects []*discoveryv1.EndpointSlice) {
	f.ReplaceDigests(digests(f, objects))
}

func (f *sliceFeed) ReplaceDigests(list []*Digest) { f.Relist(list, nil) }

func (f *sliceFeed) Put(o *discoveryv1.EndpointSlice) { f.PutDigest(f.Digest(o)) }

func (f *sliceFeed) PutDigest(d *Digest) {
	f.store.write(nil, func() {
		f.store.putSlice(d)
		f.store.came(d.of.(*Slice).Key(), d.came, d.from)
	})
}

func (f *sliceFeed) Delete(o *discoveryv1.EndpointSlice) { f.DeleteDigest(f.Digest(o)) }

func (f *sliceFeed) DeleteDigest(d *Digest) {
	f.store.write(nil, func() {
		n := sliceName{d.namespace, d.name}
		if have := f.store.slices[n]; have != nil && have.UID == d.of.(*Slice).UID {
			f.store.removeSlice(n, have)
			f.store.came(have.Key(), d.came, 0) // it was last changed long before
		}
	})
}

func (f *sliceFeed) Off() { f.Replace(nil) }

type serviceFeed struct {
	store *Store
	scope string
	state *feedState
}

func (f *serviceFeed) Digest(o *corev1.Service) *Digest {
	object, problems := translateService(o, f.store.prefix)
	return &Digest{namespace: shared(o.Namespace), name: strings.Clone(o.Name), of: object, problems: problems}
}

func (f *serviceFeed) Replace(objects []*corev1.Service) { f.replace(digests(f, objects), true) }

func (f *serviceFeed) ReplaceDigests(list []*Digest) { f.replace(list, true) }

func (f *serviceFeed) Off() { f.replace(nil, false) }

func (f *serviceFeed) replace(list []*Digest, on bool) {
	listed := make(map[Key]struct{}, len(list))
	f.store.write(f.state, func() {
		if f.store.scopes[f.scope] != on {
			f.store.scopes[f.scope] = on
			for e := range f.store.all(f.scope) { // the meaning of "exists" has changed
				f.store.touched[e] = struct{}{}
			}
		}
		for _, d := range list {
			listed[Key{d.namespace, d.name}] = struct{}{}
			f.store.putService(d)
		}
		for e := range f.store.all(f.scope) {
			if _, ok := listed[e.key]; !ok && e.object != nil {
				f.store.dropService(e)
			}
		}
		for id := range f.store.warned { // also of those that were never there
			if _, ok := listed[Key{id.namespace, id.name}]; !ok && id.kind == kindService && within(f.scope, id.namespace) {
				delete(f.store.warned, id)
			}
		}
	})
}

func (f *serviceFeed) Put(o *corev1.Service) { f.PutDigest(f.Digest(o)) }

func (f *serviceFeed) PutDigest(d *Digest) {
	f.store.write(nil, func() {
		f.store.putService(d)
		f.store.came(Key{d.namespace, d.name}, d.came, 0)
	})
}

func (f *serviceFeed) Delete(o *corev1.Service) { f.DeleteDigest(f.Digest(o)) }

func (f *serviceFeed) DeleteDigest(d *Digest) {
	f.store.write(nil, func() {
		gone := d.of.(*Object) // nil where there could not be such a Service
		if e := f.store.find(Key{d.namespace, d.name}); e != nil && e.object != nil && gone != nil && e.object.UID == gone.UID {
			f.store.dropService(e)
			f.store.came(e.key, d.came, 0)
		}
		delete(f.store.warned, objectID{kindService, d.namespace, d.name})
	})
}

func within(scope, namespace string) bool { return scope == "" || scope == namespace }

// write runs one change under the lock, publishes the snapshots that it touched,
// marks the feed that made it and wakes the followers. The order matters: who is
// woken must find the snapshot.
func (s *Store) write(f *feedState, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	for e := range s.touched {
		if s.held != nil {
			break // release goes over all
		}
		s.publish(e)
		s.wake(e.key)
	}
	s.touched = emptied(s.touched)
	if f != nil {
		s.done(f)
	}
}

// publish makes the snapshot of one Service from its parts.
func (s *Store) publish(e *entry) {
	if e.object == nil && len(e.slices) == 0 {
		s.services.Delete(e.key)
		delete(s.kept, e)
	}
	var next *Service
	if e.object != nil || len(e.slices) > 0 && !s.listed(e.key.Namespace) {
		next = &Service{Key: e.key, Exists: true, Object: e.object, Slices: slices.Clip(e.slices), Held: e.kept}
		e.shown = true
	}
	before := e.now.Swap(next)
	switch {
	case before == nil && next != nil:
		s.stats.services.Add(1)
	case before != nil && next == nil:
		s.stats.services.Add(-1)
	}
}

// listed says whether the Service objects of a namespace are known.
func (s *Store) listed(namespace string) bool { return s.scopes[""] || s.scopes[namespace] }

func (s *Store) putSlice(d *Digest) {
	next := d.of.(*Slice)
	s.borrowPlaces(next)
	s.report(objectID{kindSlice, d.namespace, d.name}, d.problems)
	n := sliceName{d.namespace, d.name}
	have := s.slices[n]
	if have != nil && equalSlice(have, next) {
		return
	}
	s.setSlice(n, have, next)
}

// setSlice puts what a slice contributes in the place of what it contributed before,
// either of which may be nil.
func (s *Store) setSlice(n sliceName, have, next *Slice) {
	if have != nil {
		s.count(have, -1)
		if next == nil || next.Service != have.Service {
			s.unlink(have)
		}
	}
	if next == nil {
		delete(s.slices, n)
		return
	}
	s.count(next, 1)
	s.slices[n] = next
	if next.Service != "" {
		s.link(next)
	}
}

// link puts a slice into its Service, where it may take the place of another of its name.
func (s *Store) link(next *Slice) {
	e := s.entry(next.Key())
	next.Namespace, next.Service = e.key.Namespace, e.key.Name // one copy of them
	i, found := e.find(next.Name)
	switch {
	case found && e.shown:
		e.slices = slices.Clone(e.slices)
		e.slices[i] = next
	case found:
		e.slices[i] = next
	default: // clipped, so that it is a new list where a snapshot has this one
		if e.shown {
			e.slices = slices.Clip(e.slices)
		}
		e.slices = slices.Insert(e.slices, i, next)
	}
	e.shown = false
	s.touched[e] = struct{}{}
}

// unlink takes a slice out of its Service, if it is in one.
func (s *Store) unlink(have *Slice) {
	if have.Service == "" {
		return
	}
	e := s.entry(have.Key())
	if i, found := e.find(have.Name); found {
		if e.shown {
			e.slices, e.shown = slices.Clone(e.slices), false
		}
		e.slices = slices.Delete(e.slices, i, i+1)
	}
	s.touched[e] = struct{}{}
}

// find is where a slice is or would be.
func (e *entry) find(name string) (at int, found bool) {
	return slices.BinarySearchFunc(e.slices, name, func(s *Slice, name string) int { return cmp.Compare(s.Name, name) })
}

// removeSlice forgets a slice that exists no more.
func (s *Store) removeSlice(n sliceName, have *Slice) {
	s.setSlice(n, have, nil)
	delete(s.warned, objectID{kindSlice, n.namespace, n.name})
}

func (s *Store) putService(d *Digest) {
	next := d.of.(*Object)
	s.report(objectID{kindService, d.namespace, d.name}, d.problems)
	e := s.entry(Key{d.namespace, d.name})
	switch {
	case next == nil:
		e.object = nil
		s.touched[e] = struct{}{} // so that the entry goes again
		return
	case e.object != nil && equalObject(e.object, next):
		return
	}
	e.object = next
	s.touched[e] = struct{}{}
}

func (s *Store) dropService(e *entry) {
	e.object = nil
	s.touched[e] = struct{}{}
}

func (s *Store) entry(k Key) *entry {
	e := s.find(k)
	if e == nil {
		// Not the texts of a slice, which would keep all texts of it.
		k = Key{shared(k.Namespace), strings.Clone(k.Name)}
		e = &entry{key: k}
		s.services.Store(k, e)
	}
	return e
}

func (s *Store) count(slice *Slice, by int64) {
	var ready int64
	for i := range slice.Endpoints.Len() {
		if slice.Endpoints.Ready(i) {
			ready++
		}
	}
	s.stats.slices.Add(by)
	s.stats.endpoints.Add(by * int64(slice.Endpoints.Len()))
	s.stats.ready.Add(by * ready)
}

// report counts an object with problems and logs it when they are new.
func (s *Store) report(id objectID, problems []string) {
	if len(problems) == 0 {
		delete(s.warned, id)
		return
	}
	s.stats.skipped.Add(1)
	text := strings.Join(problems, "; ")
	if s.warned[id] != text {
		s.warned[id] = text
		s.log.Warn("left out what cannot be used", "object", id.String(), "why", text)
	}
}

// objectID names an object for people.
type objectID struct{ kind, namespace, name string }

const (
	kindSlice   = "EndpointSlice"
	kindService = "Service"
	kindNode    = "Node"
)

func (o objectID) String() string {
	if o.namespace == "" {
		return o.kind + " " + o.name
	}
	return o.kind + " " + o.namespace + "/" + o.name
}

func equalSlice(a, b *Slice) bool {
	return a.UID == b.UID && a.Service == b.Service &&
		slices.Equal(a.Ports, b.Ports) && a.Endpoints.equal(b.Endpoints)
}

func equalObject(a, b *Object) bool {
	return a.UID == b.UID && a.IsExternalName == b.IsExternalName &&
		a.ExternalName == b.ExternalName && slices.Equal(a.Ports, b.Ports) &&
		a.TrafficDistribution == b.TrafficDistribution && a.Kind == b.Kind &&
		slices.Equal(a.Labels, b.Labels) && slices.Equal(a.Annotations, b.Annotations)
}
