package registry

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is held is compared as it is stored: with what an endpoint has from its Node.
func TestCompare(t *testing.T) {
	s := NewStore(quiet)
	sliceFeed, serviceFeed, nodeFeed := s.Slices(""), s.Services(""), s.Nodes()
	node := func(zone string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "n", Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
	}
	placed := func(address string) *discoveryv1.EndpointSlice {
		o := slice("web-1", "1", "web", address)
		name := "n1"
		o.Endpoints[0].NodeName = &name
		return o
	}
	nodeFeed.Replace([]*corev1.Node{node("zone-a")})
	serviceFeed.Replace([]*corev1.Service{service("web", "w"), service("not.a.label", "x")})
	sliceFeed.Replace([]*discoveryv1.EndpointSlice{placed("10.0.0.1")})

	labelled := service("web", "w")
	labelled.Labels = map[string]string{"a": "b"}
	for _, c := range []struct {
		what string
		have Comparison
		want Comparison
	}{
		{"the same slice", sliceFeed.Compare(sliceFeed.Digest(placed("10.0.0.1"))), Same},
		{"another address", sliceFeed.Compare(sliceFeed.Digest(placed("10.0.0.2"))), Differs},
		{"another uid", sliceFeed.Compare(sliceFeed.Digest(slice("web-1", "2", "web", "10.0.0.1"))), Differs},
		{"another slice", sliceFeed.Compare(sliceFeed.Digest(slice("web-2", "1", "web", "10.0.0.1"))), Absent},
		{"the same Service", serviceFeed.Compare(serviceFeed.Digest(service("web", "w"))), Same},
		{"another label", serviceFeed.Compare(serviceFeed.Digest(labelled)), Differs},
		{"one of which nothing is kept", serviceFeed.Compare(serviceFeed.Digest(service("not.a.label", "x"))), Same},
		{"another Service", serviceFeed.Compare(serviceFeed.Digest(service("db", "w"))), Absent},
		{"the same Node", nodeFeed.Compare(nodeFeed.Digest(node("zone-a"))), Same},
		{"another zone", nodeFeed.Compare(nodeFeed.Digest(node("zone-b"))), Differs},
	} {
		if c.have != c.want {
			t.Errorf("%s: %d, want %d", c.what, c.have, c.want)
		}
	}

	for _, c := range []struct {
		names func(func(namespace, name string))
		want  string
	}{
		{sliceFeed.Names, "shop/web-1"},
		{s.Slices("data").Names, ""},
		{serviceFeed.Names, "shop/web"},
		{nodeFeed.Names, "/n1"},
	} {
		var have []string
		c.names(func(namespace, name string) { have = append(have, namespace+"/"+name) })
		slices.Sort(have)
		if got := strings.Join(have, " "); got != c.want {
			t.Errorf("names %q, want %q", got, c.want)
		}
	}
}

// A list that lacks most of a large Service leaves that as it is, and all others are as it
// says.
func TestRelistKeeps(t *testing.T) {
	large := func(name, service string, from, n int) *discoveryv1.EndpointSlice {
		var addresses []string
		for i := range n {
			addresses = append(addresses, fmt.Sprint("10.0.0.", from+i))
		}
		return slice(name, name, service, addresses...)
	}
	guard := &Guard{Above: 4, Share: 0.5, Until: func(Key) int64 { return 77 }}
	count := func(s *Store, name string) (n int) {
		if svc := s.Snapshot("shop", name); svc != nil {
			for _, slice := range svc.Slices {
				n += slice.Endpoints.Len()
			}
		}
		return n
	}

	s := NewStore(quiet)
	f := s.Slices("")
	list := func(objects ...*discoveryv1.EndpointSlice) []*Digest { return digests(f, objects) }
	f.Relist(list(large("web-1", "web", 0, 3), large("web-2", "web", 3, 3), large("db-1", "db", 0, 4), large("x-1", "x", 0, 6)), nil)
	kept := f.Relist(list(large("web-1", "web", 0, 2), large("x-1", "x", 0, 3)), guard)
	if len(kept) != 1 || kept[0] != (Key{"shop", "web"}) {
		t.Fatalf("kept %v", kept)
	}
	if w, d, x := count(s, "web"), count(s, "db"), count(s, "x"); w != 6 || d != 0 || x != 3 {
		t.Errorf("web %d, db %d, x %d endpoints", w, d, x)
	}
	if svc := s.Snapshot("shop", "web"); svc.Held != 77 {
		t.Errorf("held until %d", svc.Held)
	}

	// An event beats what is kept; the next list that is believed ends it, and nothing of it
	// stays behind.
	f.Put(large("web-1", "web", 0, 1))
	if n := count(s, "web"); n != 4 {
		t.Errorf("web has %d endpoints after an event", n)
	}
	guard.Until = func(Key) int64 { return 0 }
	guard.Above = 0
	if kept := f.Relist(list(large("web-1", "web", 0, 1), large("x-1", "x", 0, 3)), guard); len(kept) != 0 {
		t.Errorf("kept %v", kept)
	}
	if svc := s.Snapshot("shop", "web"); svc.Held != 0 || count(s, "web") != 1 || len(s.kept) != 0 {
		t.Errorf("held until %d, %d endpoints, %d kept", svc.Held, count(s, "web"), len(s.kept))
	}

	// With Services listed, one that is gone is not kept.
	guard.Until = func(Key) int64 { return 78 }
	f.Relist(list(large("web-1", "web", 0, 6), large("db-1", "db", 0, 6)), nil)
	services := s.Services("")
	services.Replace([]*corev1.Service{service("web", "w")})
	if kept := f.Relist(nil, guard); len(kept) != 1 || kept[0].Name != "web" {
		t.Errorf("kept %v", kept)
	}

	// What is kept and then goes by events is no trouble when the Service comes again.
	services.Replace(nil)
	f.Delete(large("web-1", "web", 0, 1))
	services.Replace([]*corev1.Service{service("web", "w")})
	f.Relist(list(large("web-1", "web", 0, 6)), guard)
	if svc := s.Snapshot("shop", "web"); svc == nil || svc.Held != 0 || count(s, "web") != 6 || len(s.kept) != 0 {
		t.Errorf("%+v, %d kept", svc, len(s.kept))
	}
}

// Whatever comes in whichever order, events and lists, a Service has what its slices have
// at that moment: nothing of those that are gone or are another Service's by now.
func TestUnionOfSlices(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		some := func(name string) *discoveryv1.EndpointSlice {
			var addresses []string
			for range r.IntN(4) {
				addresses = append(addresses, fmt.Sprint("10.0.0.", r.IntN(9)))
			}
			return slice(name, fmt.Sprint(name, r.IntN(2)), []string{"web", "db", ""}[r.IntN(3)], addresses...)
		}
		s := NewStore(quiet)
		f := s.Slices("")
		exist := map[string]*discoveryv1.EndpointSlice{}
		for step := range 60 {
			name := fmt.Sprint("s", r.IntN(5))
			switch r.IntN(5) {
			case 0: // a list of something else
				clear(exist)
				for i := range 5 {
					if name := fmt.Sprint("s", i); r.IntN(2) == 0 {
						exist[name] = some(name)
					}
				}
				f.Relist(digests(f, slices.Collect(maps.Values(exist))), nil)
			case 1:
				if have := exist[name]; have != nil {
					f.Delete(have)
					delete(exist, name)
				}
			case 2: // that of another object of the name
				f.Delete(slice(name, "other", "web"))
			default:
				exist[name] = some(name)
				f.Put(exist[name])
			}
			for _, service := range []string{"web", "db"} {
				var want []string
				for _, name := range slices.Sorted(maps.Keys(exist)) {
					if o := exist[name]; o.Labels[discoveryv1.LabelServiceName] == service {
						want = append(want, show(&Service{Exists: true, Slices: []*Slice{f.Digest(o).of.(*Slice)}}))
					}
				}
				have := []string(nil)
				if svc := s.Snapshot("shop", service); svc != nil {
					for _, slice := range svc.Slices {
						have = append(have, show(&Service{Exists: true, Slices: []*Slice{slice}}))
					}
				}
				if !slices.Equal(have, want) {
					t.Fatalf("seed %d, step %d: %s has %q, want %q", seed, step, service, have, want)
				}
			}
			for name, o := range exist {
				if c := f.Compare(f.Digest(o)); c != Same {
					t.Fatalf("seed %d, step %d: %s is compared as %d", seed, step, name, c)
				}
			}
		}
	}
}
