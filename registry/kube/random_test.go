package kube

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"epdns/internal/fakeapi"
	"epdns/registry"
)

// step is something that happens, and what it happens to. All that is random about it is
// in here, and its operation takes what it needs.
type step struct {
	number    int // from 1 on
	name      string
	do        func(*world, step)
	kind      string
	id        fakeapi.ID // of a slice of its Service web
	addresses []string
	yes       bool
	n         int // 0 to 49
	pause     time.Duration
	rest      bool // until all that follows from it has happened
}

func (s step) String() string {
	return fmt.Sprintf("%d %s: %s, %s/%s %v, %t, %d; then %v %t", s.number, s.name, s.kind, s.id.Namespace, s.id.Name, s.addresses, s.yes, s.n, s.pause, s.rest)
}

// slice is on a Node that there may be.
func (s step) slice() fakeapi.Object {
	o := slice("web", s.id.Name, s.addresses...)
	o.Namespace = s.id.Namespace
	for i := range o.Endpoints {
		o.Endpoints[i].NodeName = &nodeNames[i%len(nodeNames)]
	}
	return o
}

// rising is a slice that has a higher address with each step.
func (s step) rising() fakeapi.Object {
	return slice("rising", "rising-1", netip.AddrFrom4([4]byte{10, 1, 0, byte(s.number)}).String())
}

func (s step) service() fakeapi.ID { return fakeapi.ID{Namespace: s.id.Namespace, Name: "web"} }

func (s step) node() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   nodeNames[s.n%len(nodeNames)],
		Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("zone-", s.n%5)},
	}}
}

var (
	randomKinds = []string{"EndpointSlice", "Service", "Node"}
	nodeNames   = []string{"n1", "n2"}
	errReset    = errors.New("reset")
)

// operations are what happens to a cluster and on the way to it. What is there more than
// once happens more often.
var operations = []struct {
	name string
	do   func(*world, step)
}{
	{"a slice is applied", func(w *world, s step) { w.api.Apply(s.slice()) }},
	{"a slice is applied", func(w *world, s step) { w.api.Apply(s.slice()) }},
	{"a slice is applied", func(w *world, s step) { w.api.Apply(s.slice()) }},
	{"a slice is applied, no watch is told", func(w *world, s step) { w.api.ApplySilently(s.slice()) }},
	{"a slice is deleted", func(w *world, s step) { w.api.Delete("EndpointSlice", s.id) }},
	{"a slice is deleted, no watch is told", func(w *world, s step) { w.api.DeleteSilently("EndpointSlice", s.id) }},
	{"Service rising moves", func(w *world, s step) { w.api.Apply(s.rising()) }},
	{"Service rising moves", func(w *world, s step) { w.api.Apply(s.rising()) }},
	{"a Service is applied or deleted", func(w *world, s step) {
		if s.yes {
			w.api.Delete("Service", s.service())
			return
		}
		o := service("web")
		o.Namespace = s.id.Namespace
		w.api.Apply(o)
	}},
	{"a Node is applied or deleted", func(w *world, s step) {
		if s.yes {
			w.api.Delete("Node", fakeapi.ID{Name: s.node().Name})
			return
		}
		w.api.Apply(s.node())
	}},
	{"a Node is applied, no watch is told", func(w *world, s step) { w.api.ApplySilently(s.node()) }},
	{"other kinds change", func(w *world, s step) { w.api.Advance(uint64(s.n)) }},
	{"bookmarks", func(w *world, _ step) { w.api.Announce() }},
	{"watches get 410", func(w *world, s step) { w.api.ExpireWatches(s.kind) }},
	{"history is compacted", func(w *world, s step) { w.api.Compact(uint64(s.n % 20)) }},
	{"connections break", func(w *world, _ step) { w.pipe.cut(errReset) }},
	{"there is no server, or there is one again", func(w *world, s step) {
		w.pipe.refused.Store(s.yes)
		if s.n%2 == 0 {
			w.pipe.cut(errReset)
		}
	}},
	{"a right goes or comes back", func(w *world, s step) { w.api.Forbid(s.kind, s.yes) }},
	{"the server lags behind or catches up", func(w *world, s step) { w.api.LagBehind(s.n % 3) }},
	{"the next list is older", func(w *world, s step) { w.api.Older(s.kind, 1, 1+s.n%furthest) }},
	{"watches get 410, and the list is older", func(w *world, s step) {
		w.api.Older("EndpointSlice", 1, 1+s.n%furthest)
		w.api.ExpireWatches("EndpointSlice")
	}},
	{restores, nil}, // see TestRandomFaults
}

// furthest is how many events ago an older list may be.
const furthest = 12

// restores is the operation that happens once at most: there is one backup.
const restores = "the store is restored from a backup"

func randomStep(r *rand.Rand, number int) step {
	op := operations[r.IntN(len(operations))]
	s := step{
		number: number, name: op.name, do: op.do,
		kind: randomKinds[r.IntN(len(randomKinds))],
		id:   fakeapi.ID{Namespace: []string{"shop", "data"}[r.IntN(2)], Name: fmt.Sprint("web-", r.IntN(6))},
		yes:  r.IntN(2) == 0,
		n:    r.IntN(50),
		rest: r.IntN(2) == 0,
	}
	for i := range r.IntN(5) {
		s.addresses = append(s.addresses, fmt.Sprint("10.0.", r.IntN(200), ".", i))
	}
	switch r.IntN(3) {
	case 0:
		s.pause = time.Duration(r.IntN(3000)) * time.Millisecond
	case 1:
		s.pause = time.Duration(r.IntN(40)) * time.Second
	}
	return s
}

// Whatever goes wrong, in whatever order: a Service that exists all the time is never
// without its endpoint, and none goes back to an endpoint from before unless the API server
// insists on it. Some minutes after the last fault all is as if there had been
// none: the store has what one has that is filled anew, who follows it has been told, all
// watches are well, no Service is held, and versions are kept of what exists alone.
//
// The number of a subtest is the seed of its steps.
func TestRandomFaults(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomFaults(t, seed) })
		})
	}
}

func randomFaults(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	var namespaces []string
	if r.IntN(2) == 0 {
		namespaces = []string{"data", "shop"}
	}
	w := newWorld(t, namespaces...)
	if r.IntN(2) == 0 {
		w.api.Minor = "34"
	}
	w.src.AuditEvery = time.Minute
	w.src.MassEmpty = MassEmpty{Above: 4, Share: 0.5, Hold: 10 * time.Second}
	w.api.Apply(service("pinned"))
	w.api.Apply(slice("pinned", "pinned-1", "10.9.9.9"))
	w.api.Apply(service("rising"))
	for range furthest { // so that no list is from before them
		w.api.Apply(step{}.rising())
	}
	w.run()
	backup := w.api.Version()

	var past []string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d, steps:\n%s", seed, strings.Join(past, "\n"))
		}
	})
	f := newFollowed(w)
	defer f.Close()
	go f.follow()
	for i := range 60 {
		s := randomStep(r, i+1)
		if s.name != restores {
			s.do(w, s)
		} else if s.n%3 == 0 && !f.restored.Swap(true) {
			w.api.Restore(backup)
		}
		past = append(past, time.Now().Format("15:04:05.000 ")+s.String())
		time.Sleep(s.pause)
		if s.rest {
			synctest.Wait()
		}
	}

	w.pipe.refused.Store(false)
	for _, kind := range randomKinds {
		w.api.Forbid(kind, false)
		w.api.Older(kind, 0, 0)
	}
	w.api.LagBehind(0)
	for range 40 {
		after(10 * time.Second)
		w.api.Announce()
	}
	synctest.Wait()
	f.wantAll()

	fresh := worldOf(t, w.api, namespaces...)
	fresh.run()
	if have, want := contents(w.store), contents(fresh.store); have != want {
		t.Errorf("seed %d: the store has\n%swant\n%s", seed, have, want)
	}
	for i, st := range w.src.Status() {
		if !st.Connected || !st.Lost.IsZero() || st.Held != 0 {
			t.Errorf("seed %d: status %+v", seed, st)
		}
		if have, want := len(w.src.feeds[i].held.objects), len(fresh.src.feeds[i].held.objects); have != want {
			t.Errorf("seed %d: %s: versions of %d objects, and there are %d", seed, st.Kind, have, want)
		}
	}
}

// followed is what somebody knows who follows a store.
type followed struct {
	*registry.Follower
	*world
	services map[registry.Key]*registry.Service
	nodes    []*registry.Node

	rising   netip.Addr  // of Service rising, when it was looked at last
	restored atomic.Bool // from here on it may be lower
}

func newFollowed(w *world) *followed {
	return &followed{Follower: w.store.FollowAll(), world: w, services: map[registry.Key]*registry.Service{}}
}

// follow looks at each change, or some at once, until the test has ended.
func (f *followed) follow() {
	for f.look() {
		select {
		case <-f.Changed():
		case <-f.t.Context().Done():
			return
		}
	}
}

// look takes what has changed, and says whether all is well: Services pinned and rising
// have to be.
func (f *followed) look() bool {
	for _, svc := range f.Take() {
		f.services[svc.Key] = svc
	}
	if nodes, changed := f.TakeNodes(); changed {
		f.nodes = nodes
	}
	for _, name := range []string{"pinned", "rising"} {
		for _, svc := range []*registry.Service{f.store.Snapshot("shop", name), f.services[registry.Key{Namespace: "shop", Name: name}]} {
			if len(svc.Members()) != 1 {
				f.t.Errorf("%s: Service %s is %+v", f.t.Name(), name, svc)
				return false
			}
		}
	}
	rising := f.store.Snapshot("shop", "rising").Members()[0].Addr
	if rising.Less(f.rising) && !f.restored.Load() && f.olderTaken() == 0 {
		f.t.Errorf("%s: Service rising has gone back from %v to %v", f.t.Name(), f.rising, rising)
		return false
	}
	f.rising = rising
	return true
}

// olderTaken counts the lists that were taken though they were older.
func (f *followed) olderTaken() (n uint64) {
	for _, st := range f.src.Status() {
		n += st.OlderTaken
	}
	return n
}

// wantAll compares what was taken with what there is.
func (f *followed) wantAll() {
	f.t.Helper()
	for k, svc := range f.services {
		now := f.store.Snapshot(k.Namespace, k.Name)
		if svc.Exists && now != svc || !svc.Exists && now != nil {
			f.t.Errorf("%s: of Service %v the follower knows %+v, and it is %+v", f.t.Name(), k, svc, now)
		}
	}
	if !slices.Equal(f.nodes, f.store.AllNodes()) {
		f.t.Errorf("%s: of Nodes the follower knows %v, and they are %v", f.t.Name(), f.nodes, f.store.AllNodes())
	}
}

// contents are all Services and Nodes of a store.
func contents(s *registry.Store) string {
	f := s.FollowAll()
	defer f.Close()
	var lines []string
	for _, svc := range f.Take() {
		line := fmt.Sprintf("%v, its object %t:", svc.Key, svc.Object != nil)
		for _, sl := range svc.Slices {
			line += " " + sl.Name
		}
		lines = append(lines, fmt.Sprintf("%s %+v\n", line, svc.Members()))
	}
	slices.Sort(lines)
	for _, n := range s.AllNodes() {
		lines = append(lines, fmt.Sprintf("%+v\n", *n))
	}
	return strings.Join(lines, "")
}
