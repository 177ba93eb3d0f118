package registry

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// cluster is a cluster of equal Services.
type cluster struct{ services, slices, endpoints int } // slices of a Service, endpoints of a slice

func (c cluster) String() string {
	return fmt.Sprintf("services=%d/slices=%d/endpoints=%d", c.services, c.slices, c.endpoints)
}

func (c cluster) size() int { return c.services * c.slices * c.endpoints }

// service is Service n as the API has it.
func (c cluster) service(n int) *corev1.Service {
	name := fmt.Sprintf("web-%05d", n)
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns-", n%10), Name: name, UID: uid(n), Labels: map[string]string{"app": name}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
}

// slice is slice i of Service n, as the controller makes it.
func (c cluster) slice(n, i int) *discoveryv1.EndpointSlice {
	of := c.service(n)
	o := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: of.Namespace, Name: fmt.Sprintf("%s-%05d", of.Name, i), UID: uid(n<<16 | i),
			Labels: map[string]string{discoveryv1.LabelServiceName: of.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(8080))}},
	}
	for e := range c.endpoints {
		at := (n*c.slices+i)*c.endpoints + e
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.%d.%d.%d", at>>16&255, at>>8&255, at&255)},
			NodeName:  ptr(fmt.Sprint("node-", e%50)),
			Zone:      ptr(fmt.Sprint("zone-", e%3)),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("%s-7d4b9c-%05d", of.Name, at)},
		})
	}
	return o
}

func uid(n int) types.UID { return types.UID(fmt.Sprintf("4c2b7f0e-0b1c-4a53-9d2a-%012d", n)) }

// store is a store that has read the cluster.
func (c cluster) store() *Store {
	s := NewStore(quiet)
	services, sliceFeed, nodes := s.Services(""), s.Slices(""), s.Nodes()
	var ns []*corev1.Node
	for n := range 50 {
		ns = append(ns, node(fmt.Sprint("node-", n), fmt.Sprint("zone-", n%3)))
	}
	nodes.Replace(ns)
	var list []*Digest
	for n := range c.services {
		list = append(list, services.Digest(c.service(n)))
	}
	services.ReplaceDigests(list)
	list = nil
	for n := range c.services {
		for i := range c.slices {
			list = append(list, sliceFeed.Digest(c.slice(n, i)))
		}
	}
	sliceFeed.ReplaceDigests(list)
	return s
}

// heap is what is in use on the heap.
func heap() int {
	runtime.GC()
	runtime.GC() // what finalizers and weak pointers held goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// What is kept of an endpoint, with its share of its slice and its Service. The bounds
// are half as much again as it is: they are there for who doubles it without noticing.
func TestHeapOfAnEndpoint(t *testing.T) {
	for _, c := range []struct {
		cluster
		most int // octets an endpoint
	}{
		{cluster{2000, 1, 10}, 200},
		{cluster{1000, 1, 20}, 140},
		{cluster{1, 200, 100}, 80},
	} {
		before := heap()
		s := c.store()
		each := (heap() - before) / c.size()
		if n := s.Stats().Endpoints; n != int64(c.size()) {
			t.Fatalf("%v: %d endpoints", c, n)
		}
		t.Logf("%v: %d octets an endpoint", c, each)
		if each > c.most {
			t.Errorf("%v: %d octets an endpoint, more than %d", c, each, c.most)
		}
		runtime.KeepAlive(s)
	}
}

// An object that was read leaves nothing behind that is as large as itself.
func TestHeapAfterChanges(t *testing.T) {
	c := cluster{10, 2, 100}
	s := c.store()
	f := s.Slices("")
	follower := s.FollowAll()
	change := func(ready bool) {
		for n := range c.services {
			o := c.slice(n, 1)
			o.Endpoints[7].Conditions.Ready = &ready
			f.Put(o)
			follower.Take()
		}
	}
	change(false)
	before := heap()
	for i := range 100 {
		change(i%2 == 0)
	}
	if grown := heap() - before; grown > 64<<10 {
		t.Errorf("the heap has grown by %d octets in %d changes", grown, 100*c.services)
	} else {
		t.Logf("the heap has grown by %d octets in %d changes", grown, 100*c.services)
	}
	runtime.KeepAlive(s)
}

// Snapshots share what did not change, and stay as they are.
func TestSnapshotsStay(t *testing.T) {
	s := NewStore(quiet)
	f := s.Slices("")
	var taken []*Service
	var texts []string
	text := func(svc *Service) string {
		var b strings.Builder
		for _, sl := range svc.Slices {
			fmt.Fprint(&b, sl.Namespace, "/", sl.Name, " ", sl.Service, " ", sl.Endpoints.List(), "; ")
		}
		return b.String()
	}
	for step, change := range []func(){
		func() { f.Put(slice("b", "1", "web", "10.0.0.1")) },
		func() { f.Put(slice("d", "2", "web", "10.0.0.2")) }, // behind
		func() { f.Put(slice("a", "3", "web", "10.0.0.3")) }, // in front
		func() { f.Put(slice("b", "1", "web", "10.0.0.4")) }, // another state
		func() { f.Put(slice("b", "1", "api", "10.0.0.4")) }, // moves away
		func() { f.Put(slice("c", "4", "web", "10.0.0.5")) }, // between
		func() { f.Put(slice("b", "1", "web", "10.0.0.4")) }, // and back
		func() { f.Delete(slice("a", "3", "web")) },
		func() {
			f.Replace([]*discoveryv1.EndpointSlice{slice("d", "2", "web", "10.0.0.6"), slice("e", "5", "web", "10.0.0.7")})
		},
	} {
		change()
		svc := s.Snapshot("shop", "web")
		taken, texts = append(taken, svc), append(texts, text(svc))
		if !slices.IsSortedFunc(svc.Slices, func(a, b *Slice) int { return strings.Compare(a.Name, b.Name) }) {
			t.Errorf("step %d: %s is not in order", step, texts[step])
		}
		for i := range taken {
			if now := text(taken[i]); now != texts[i] {
				t.Errorf("step %d has changed the snapshot of step %d from %s to %s", step, i, texts[i], now)
			}
		}
	}
	if want := "shop/d web "; !strings.HasPrefix(texts[len(texts)-1], want) || strings.Count(texts[len(texts)-1], ";") != 2 {
		t.Errorf("in the end there is %s", texts[len(texts)-1])
	}
}

// BenchmarkPut is one endpoint of a Service that changes, from the decoded slice to the
// snapshot.
func BenchmarkPut(b *testing.B) {
	for _, c := range []cluster{{1, 1, 10}, {1, 1, 100}, {1, 500, 100}} {
		b.Run(c.String(), func(b *testing.B) {
			s := c.store()
			f, follower := s.Slices(""), s.FollowAll()
			follower.Take()
			var states [2]*discoveryv1.EndpointSlice // a feed reads objects and keeps nothing of them
			for i := range states {
				ready := i == 0
				states[i] = c.slice(0, c.slices/2)
				states[i].Endpoints[c.endpoints/2].Conditions.Ready = &ready
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				f.Put(states[(i+1)%2])
				follower.Take()
			}
		})
	}
}

// BenchmarkReplace is an initial list.
func BenchmarkReplace(b *testing.B) {
	c := cluster{1000, 1, 10}
	var objects []*discoveryv1.EndpointSlice
	for n := range c.services {
		objects = append(objects, c.slice(n, 0))
	}
	b.ReportAllocs()
	for b.Loop() {
		s := NewStore(quiet)
		s.Slices("").Replace(objects)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(c.size()), "ns/endpoint")
}
