package registry

import (
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

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

	// snapshots maps Key to *Service. It is written under mu, read without.
	snapshots sync.Map

	mu       sync.Mutex
	services map[Key]*entry
	slices   map[sliceName]*Slice
	nodes    map[string]*Node
	places   uint64 // rises with each change of nodes
	feeds    []*feedState
	scopes   map[string]bool  // scope of a Service feed ("" is all) → it is on
	touched  map[Key]struct{} // by the change under way
	ofAll    map[*Follower]struct{}
	ofOne    map[Key]map[*Follower]struct{}
	warned   map[objectID]string // the problems that were logged last

	synced chan struct{} // closed once all feeds are synced

	stats struct {
		services, slices, endpoints, ready atomic.Int64
		skipped                            atomic.Uint64
	}
}

// entry is what is known of one Service, whether it exists or not.
type entry struct {
	object *Object
	slices []*Slice // by name
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
		log:      log,
		prefix:   DefaultAnnotationPrefix + "/",
		services: map[Key]*entry{},
		slices:   map[sliceName]*Slice{},
		nodes:    map[string]*Node{},
		scopes:   map[string]bool{},
		touched:  map[Key]struct{}{},
		ofAll:    map[*Follower]struct{}{},
		ofOne:    map[Key]map[*Follower]struct{}{},
		warned:   map[objectID]string{},
		synced:   make(chan struct{}),
	}
	for _, o := range options {
		o(s)
	}
	return s
}

// Snapshot returns the Service as it is now, or nil where there is none. It
// takes no lock and may be called from any goroutine.
func (s *Store) Snapshot(namespace, name string) *Service {
	if v, ok := s.snapshots.Load(Key{namespace, name}); ok {
		return v.(*Service)
	}
	return nil
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
	nodes := int64(len(s.nodes))
	s.mu.Unlock()
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

// done marks a feed as synced and, where it was the last one, the store.
// Snapshots are published before, so that whoever waits sees all of them.
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

func (f *sliceFeed) Replace(objects []*discoveryv1.EndpointSlice) {
	listed := make(map[sliceName]struct{}, len(objects))
	f.store.write(f.state, func() {
		for _, o := range objects {
			listed[sliceName{o.Namespace, o.Name}] = struct{}{}
			f.store.putSlice(o)
		}
		for n, have := range f.store.slices {
			if _, ok := listed[n]; !ok && within(f.scope, n.namespace) {
				f.store.removeSlice(n, have)
			}
		}
	})
}

func (f *sliceFeed) Put(o *discoveryv1.EndpointSlice) {
	f.store.write(nil, func() { f.store.putSlice(o) })
}

func (f *sliceFeed) Delete(o *discoveryv1.EndpointSlice) {
	f.store.write(nil, func() {
		n := sliceName{o.Namespace, o.Name}
		if have := f.store.slices[n]; have != nil && have.UID == string(o.UID) {
			f.store.removeSlice(n, have)
		}
	})
}

func (f *sliceFeed) Off() { f.Replace(nil) }

type serviceFeed struct {
	store *Store
	scope string
	state *feedState
}

func (f *serviceFeed) Replace(objects []*corev1.Service) { f.replace(objects, true) }

func (f *serviceFeed) Off() { f.replace(nil, false) }

func (f *serviceFeed) replace(objects []*corev1.Service, on bool) {
	listed := make(map[Key]struct{}, len(objects))
	f.store.write(f.state, func() {
		if f.store.scopes[f.scope] != on {
			f.store.scopes[f.scope] = on
			for k := range f.store.services { // the meaning of "exists" has changed
				if within(f.scope, k.Namespace) {
					f.store.touched[k] = struct{}{}
				}
			}
		}
		for _, o := range objects {
			listed[Key{o.Namespace, o.Name}] = struct{}{}
			f.store.putService(o)
		}
		for k, e := range f.store.services {
			if _, ok := listed[k]; !ok && e.object != nil && within(f.scope, k.Namespace) {
				f.store.dropService(k, e)
			}
		}
		for id := range f.store.warned { // also of those that were never there
			if _, ok := listed[Key{id.namespace, id.name}]; !ok && id.kind == kindService && within(f.scope, id.namespace) {
				delete(f.store.warned, id)
			}
		}
	})
}

func (f *serviceFeed) Put(o *corev1.Service) {
	f.store.write(nil, func() { f.store.putService(o) })
}

func (f *serviceFeed) Delete(o *corev1.Service) {
	f.store.write(nil, func() {
		k := Key{o.Namespace, o.Name}
		if e := f.store.services[k]; e != nil && e.object != nil && e.object.UID == string(o.UID) {
			f.store.dropService(k, e)
		}
		delete(f.store.warned, objectID{kindService, o.Namespace, o.Name})
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
	for k := range s.touched {
		s.publish(k)
		s.wake(k)
	}
	clear(s.touched)
	if f != nil {
		s.done(f)
	}
}

// publish makes the snapshot of one Service from its parts.
func (s *Store) publish(k Key) {
	e := s.services[k]
	if e != nil && e.object == nil && len(e.slices) == 0 {
		delete(s.services, k)
		e = nil
	}
	if e == nil || e.object == nil && s.listed(k.Namespace) {
		if _, had := s.snapshots.LoadAndDelete(k); had {
			s.stats.services.Add(-1)
		}
		return
	}
	svc := &Service{Key: k, Exists: true, Object: e.object, Slices: slices.Clone(e.slices)}
	if _, had := s.snapshots.Swap(k, svc); !had {
		s.stats.services.Add(1)
	}
}

// listed says whether the Service objects of a namespace are known.
func (s *Store) listed(namespace string) bool { return s.scopes[""] || s.scopes[namespace] }

func (s *Store) putSlice(o *discoveryv1.EndpointSlice) {
	next, problems := translateSlice(o)
	s.borrowPlaces(next)
	s.report(objectID{kindSlice, o.Namespace, o.Name}, problems)
	n := sliceName{o.Namespace, o.Name}
	if have := s.slices[n]; have != nil {
		if equalSlice(have, next) {
			return
		}
		s.dropSlice(n, have)
	}
	s.addSlice(n, next)
}

// addSlice adds what a slice contributes.
func (s *Store) addSlice(n sliceName, next *Slice) {
	s.slices[n] = next
	s.count(next, 1)
	if next.Service == "" {
		return
	}
	e := s.entry(next.Key())
	i, _ := slices.BinarySearchFunc(e.slices, next.Name, func(s *Slice, name string) int { return cmp.Compare(s.Name, name) })
	e.slices = slices.Insert(e.slices, i, next)
	s.touched[next.Key()] = struct{}{}
}

// removeSlice forgets a slice that exists no more.
func (s *Store) removeSlice(n sliceName, have *Slice) {
	s.dropSlice(n, have)
	delete(s.warned, objectID{kindSlice, n.namespace, n.name})
}

// dropSlice takes away what a slice contributes.
func (s *Store) dropSlice(n sliceName, have *Slice) {
	delete(s.slices, n)
	s.count(have, -1)
	if have.Service == "" {
		return
	}
	e := s.entry(have.Key())
	e.slices = slices.DeleteFunc(e.slices, func(s *Slice) bool { return s == have })
	s.touched[have.Key()] = struct{}{}
}

func (s *Store) putService(o *corev1.Service) {
	next, problems := translateService(o, s.prefix)
	s.report(objectID{kindService, o.Namespace, o.Name}, problems)
	k := Key{o.Namespace, o.Name}
	e := s.entry(k)
	switch {
	case next == nil:
		e.object = nil
		s.touched[k] = struct{}{} // so that the entry goes again
		return
	case e.object != nil && equalObject(e.object, next):
		return
	}
	e.object = next
	s.touched[k] = struct{}{}
}

func (s *Store) dropService(k Key, e *entry) {
	e.object = nil
	s.touched[k] = struct{}{}
}

func (s *Store) entry(k Key) *entry {
	e := s.services[k]
	if e == nil {
		e = &entry{}
		s.services[k] = e
	}
	return e
}

func (s *Store) count(slice *Slice, by int64) {
	var ready int64
	for i := range slice.Endpoints {
		if slice.Endpoints[i].Ready {
			ready++
		}
	}
	s.stats.slices.Add(by)
	s.stats.endpoints.Add(by * int64(len(slice.Endpoints)))
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
		slices.Equal(a.Ports, b.Ports) && slices.Equal(a.Endpoints, b.Endpoints)
}

func equalObject(a, b *Object) bool {
	return a.UID == b.UID && a.IsExternalName == b.IsExternalName &&
		a.ExternalName == b.ExternalName && slices.Equal(a.Ports, b.Ports) &&
		a.TrafficDistribution == b.TrafficDistribution &&
		slices.Equal(a.Labels, b.Labels) && slices.Equal(a.Annotations, b.Annotations)
}
