// Package fakeapi is a Kubernetes API server for tests: a store with a history, to be
// listed and watched. What it answers is what "Kubernetes API Concepts" says, in
// protobuf or in JSON as the client asks; what goes wrong with it is what a test tells
// it to. It validates no objects and knows no users.
package fakeapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Object is an object of one of the kinds that a Server has.
type Object interface {
	runtime.Object
	metav1.Object
}

// ID is what an object is called within its kind.
type ID struct{ Namespace, Name string }

// kinds are those that a Server has, with their resources.
var kinds = map[string]struct {
	group    schema.GroupVersion
	resource string
}{
	"Namespace":     {corev1.SchemeGroupVersion, "namespaces"},
	"Node":          {corev1.SchemeGroupVersion, "nodes"},
	"Service":       {corev1.SchemeGroupVersion, "services"},
	"EndpointSlice": {discoveryv1.SchemeGroupVersion, "endpointslices"},
}

// HasKind says whether objects of a kind can be applied.
func HasKind(kind string) bool {
	_, has := kinds[kind]
	return has
}

// Read reads an object, as JSON. Fields that are not known are an error.
func Read(manifest []byte) (Object, error) {
	var meta metav1.PartialObjectMetadata
	if err := json.Unmarshal(manifest, &meta); err != nil {
		return nil, err
	}
	k, known := kinds[meta.Kind]
	switch {
	case !known:
		return nil, fmt.Errorf("kind %q is none of those served", meta.Kind)
	case meta.APIVersion != k.group.String():
		return nil, fmt.Errorf("%s is of %s, not of %q", meta.Kind, k.group, meta.APIVersion)
	case meta.Name == "":
		return nil, fmt.Errorf("a %s without a name", meta.Kind)
	}
	o := newOf(meta.Kind)
	_, _, err := strictJSON.Decode(manifest, nil, o)
	return o, err
}

// newOf makes an object of a kind, with nothing in it but that.
func newOf(kind string) Object {
	gvk := kinds[kind].group.WithKind(kind)
	o, err := scheme.New(gvk)
	if err != nil {
		panic("fakeapi: " + err.Error())
	}
	o.GetObjectKind().SetGroupVersionKind(gvk)
	return o.(Object)
}

// Server is an API server: a handler of HTTP requests. Its methods may be called from
// any goroutine, at any time.
type Server struct {
	// Freshness is how long a request waits for a version that is not there yet.
	Freshness time.Duration
	// JSONOnly is a server, or a proxy before it, that has no protobuf. Like Freshness it
	// is not changed any more after the first request.
	JSONOnly bool
	// VersionPrefix stands before the numbers of resource versions, which are none then.
	// It is not changed any more once there is an object.
	VersionPrefix string
	// Minor is the second number of the server's version, which begins with 1. It may be
	// changed while nobody asks. Where it is empty the version is not told.
	Minor string

	mux *http.ServeMux

	mu        sync.Mutex
	version   uint64
	events    []event
	compacted uint64        // what is older is forgotten
	changed   chan struct{} // closed at each change
	watches   map[*watch]struct{}
	faults

	requests []Request
	replays  []replay
	listed   map[string]uint64 // kind → version of the last list
}

// event is a change.
type event struct {
	version uint64
	what    string // ADDED, MODIFIED or DELETED
	kind    string
	id      ID
	object  Object // not changed any more
	untold  bool   // to watches
}

// replay is an event that was sent though it is not newer than the last list.
type replay struct {
	at   time.Time
	kind string
}

// firstVersion is that of the empty store.
const firstVersion = 100

// New makes a server with an empty store, of version 100.
func New() *Server {
	s := &Server{
		Freshness: 3 * time.Second,
		mux:       http.NewServeMux(),
		version:   firstVersion,
		compacted: firstVersion,
		changed:   make(chan struct{}),
		watches:   map[*watch]struct{}{},
		faults:    newFaults(),
		listed:    map[string]uint64{},
	}
	s.mux.HandleFunc("GET /version", s.serveVersion)
	for kind, k := range kinds {
		base := "/apis/" + k.group.String()
		if k.group.Group == "" {
			base = "/api/" + k.group.Version
		}
		serve := func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, kind) }
		s.mux.HandleFunc("GET "+base+"/"+k.resource, serve)
		s.mux.HandleFunc("GET "+base+"/namespaces/{namespace}/"+k.resource, serve)
	}
	return s
}

// set changes something and wakes all who wait for a change.
func (s *Server) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// Apply creates an object or puts it in the place of another. The caller's own stays
// the caller's.
func (s *Server) Apply(o Object) {
	s.set(func() { s.apply(o, false) })
}

// Delete takes an object away.
func (s *Server) Delete(kind string, id ID) (err error) {
	s.set(func() { err = s.remove(kind, id, false) })
	return err
}

// What follows, as far as visible, needs s.mu.

func (s *Server) apply(o Object, untold bool) {
	o = o.DeepCopyObject().(Object)
	types, _, err := scheme.ObjectKinds(o)
	if err != nil || !HasKind(types[0].Kind) {
		panic(fmt.Sprintf("fakeapi: a %T is none of what is served", o))
	}
	o.GetObjectKind().SetGroupVersionKind(types[0])
	e := event{what: "ADDED", kind: types[0].Kind, id: ID{o.GetNamespace(), o.GetName()}, object: o, untold: untold}
	if s.find(e.kind, e.id) != nil {
		e.what = "MODIFIED"
	}
	s.record(e)
}

func (s *Server) remove(kind string, id ID, untold bool) error {
	o := s.find(kind, id)
	if o == nil {
		return fmt.Errorf("there is no %s %s/%s", kind, id.Namespace, id.Name)
	}
	s.record(event{what: "DELETED", kind: kind, id: id, object: o.DeepCopyObject().(Object), untold: untold})
	return nil
}

// find returns an object that exists, or nil.
func (s *Server) find(kind string, id ID) Object {
	for _, e := range slices.Backward(s.events) {
		if e.kind == kind && e.id == id {
			if e.what == "DELETED" {
				return nil
			}
			return e.object
		}
	}
	return nil
}

// record adds an event, whose object gets the version of the event.
func (s *Server) record(e event) {
	s.version++
	e.version = s.version
	e.object.SetResourceVersion(s.versionText(s.version))
	s.events = append(s.events, e)
}

func (s *Server) versionText(version uint64) string {
	return s.VersionPrefix + strconv.FormatUint(version, 10)
}

// state are the objects as of a version, in the order of their keys.
func (s *Server) state(kind, namespace string, version uint64) (out []runtime.Object) {
	last := map[ID]event{}
	for _, e := range s.events {
		if e.version <= version && e.kind == kind && (namespace == "" || namespace == e.id.Namespace) {
			last[e.id] = e
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(last), func(a, b ID) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	}) {
		if last[id].what != "DELETED" {
			out = append(out, last[id].object)
		}
	}
	return out
}

// visible is the version that a list of any version, and watches, know of.
func (s *Server) visible() uint64 {
	switch n := len(s.events); {
	case s.lag == 0:
		return s.version
	case s.lag >= n:
		return firstVersion
	default:
		return s.events[n-1-s.lag].version
	}
}

// Counts is what clients asked for within some time.
type Counts struct {
	Lists     int // whole states, read with LIST or at the begin of a watch
	Watches   int
	Replayed  int  // events that were not newer than the last list
	Bookmarks bool // all watches asked for them
}

// Counts are those of a kind, or of all with "".
func (s *Server) Counts(kind string, from, to time.Time) Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	within := func(k string, at time.Time) bool {
		return (kind == "" || kind == k) && !at.Before(from) && !at.After(to)
	}
	c := Counts{Bookmarks: true}
	for _, r := range s.requests {
		if !within(r.Kind, r.at) {
			continue
		}
		if r.whole() {
			c.Lists++
		}
		if r.Watch {
			c.Watches++
			c.Bookmarks = c.Bookmarks && r.bookmarks
		}
	}
	for _, r := range s.replays {
		if within(r.kind, r.at) {
			c.Replayed++
		}
	}
	return c
}

// Requests are all that came and were understood so far.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}
