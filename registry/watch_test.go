package registry

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// tell writes down what a watch tells: "web ADDED 10.0.0.1, CHANGED 10.0.0.2!".
func tell(svc *Service, changes []Change) string {
	var b strings.Builder
	b.WriteString(svc.Name)
	if !svc.Exists {
		b.WriteString(" gone")
	}
	for i, c := range changes {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %v %v", c.Type, c.Addr)
		if !c.Ready {
			b.WriteString("!")
		}
	}
	return b.String()
}

// listener collects what a watch tells. Inside a synctest bubble, synctest.Wait
// waits until it has told all.
type listener struct {
	mu   sync.Mutex
	told []string
}

func (l *listener) heard() []string {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.told
	l.told = nil
	return out
}

func (l *listener) note(svc *Service, changes []Change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, tell(svc, changes))
}

func expect(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := NewStore(quiet)
		f, services := s.Slices(""), s.Services("")
		var l listener
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for svc, changes := range s.Watch(ctx, "shop", "web") {
				l.note(svc, changes)
			}
		}()
		f.Put(slice("a", "1", "web", "10.0.0.1"))
		expect(t, "before the sync", l.heard())
		services.Off()
		f.Replace([]*discoveryv1.EndpointSlice{slice("a", "1", "web", "10.0.0.1", "10.0.0.2!")})
		expect(t, "what is there", l.heard(), "web ADDED 10.0.0.1, ADDED 10.0.0.2!")
		f.Put(slice("a", "1", "web", "10.0.0.2", "10.0.0.3"))
		expect(t, "a change", l.heard(), "web REMOVED 10.0.0.1, CHANGED 10.0.0.2, ADDED 10.0.0.3")
		f.Put(slice("a", "1", "web", "10.0.0.2", "10.0.0.3"))
		expect(t, "no change", l.heard())
		f.Put(slice("b", "2", "other", "10.0.0.9"))
		expect(t, "another Service", l.heard())
		f.Replace([]*discoveryv1.EndpointSlice{slice("a", "1", "web", "10.0.0.3")})
		expect(t, "a list that lacks one", l.heard(), "web REMOVED 10.0.0.2")
		f.Replace(nil)
		expect(t, "a list that lacks all", l.heard(), "web gone REMOVED 10.0.0.3")
		f.Put(slice("a", "3", "web", "10.0.0.3"))
		expect(t, "back", l.heard(), "web ADDED 10.0.0.3")
		services.Replace([]*corev1.Service{service("web", "7")})
		expect(t, "the object is known now", l.heard(), "web")
		stop()
		<-ended
		if len(s.ofOne) > 0 {
			t.Error("the store remembers a watch that has ended")
		}
	})
}

func TestWatchWhatDoesNotExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore(quiet)
		f := s.Slices("")
		f.Replace(nil)
		var l listener
		go func() {
			for svc, changes := range s.Watch(t.Context(), "shop", "web") {
				l.note(svc, changes)
			}
		}()
		expect(t, "at first", l.heard(), "web gone")
		f.Put(slice("a", "1", "web", "10.0.0.1"))
		expect(t, "later", l.heard(), "web ADDED 10.0.0.1")
	})
}

func TestWatchAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore(quiet)
		f := s.Slices("")
		f.Replace([]*discoveryv1.EndpointSlice{slice("a", "1", "web", "10.0.0.1"), slice("b", "2", "db", "10.0.0.2")})
		var l listener
		go func() {
			for svc, changes := range s.WatchAll(t.Context()) {
				l.note(svc, changes)
			}
		}()
		expect(t, "what is there", l.heard(), "db ADDED 10.0.0.2", "web ADDED 10.0.0.1")
		f.Delete(slice("b", "2", "db"))
		expect(t, "one goes", l.heard(), "db gone REMOVED 10.0.0.2")
		f.Put(slice("c", "3", "new", "10.0.0.3"))
		expect(t, "one comes", l.heard(), "new ADDED 10.0.0.3")
	})
}

// A slow reader gets the sum of what it missed, and hinders nobody.
func TestWatchFolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore(quiet)
		f := s.Slices("")
		f.Replace([]*discoveryv1.EndpointSlice{slice("a", "1", "web", "10.0.0.1")})
		var slow, fast listener
		busy := make(chan struct{})
		go func() {
			for svc, changes := range s.Watch(t.Context(), "shop", "web") {
				slow.note(svc, changes)
				<-busy
			}
		}()
		go func() {
			for svc, changes := range s.Watch(t.Context(), "shop", "web") {
				fast.note(svc, changes)
			}
		}()
		expect(t, "at first", slow.heard(), "web ADDED 10.0.0.1")
		fast.heard()
		for i := range 1000 {
			f.Put(slice("a", "1", "web", "10.0.0.1", fmt.Sprintf("10.0.1.%d", i%200)))
			if i%100 == 0 && len(fast.heard()) == 0 {
				t.Fatal("the fast reader waits for the slow one")
			}
		}
		f.Put(slice("a", "1", "web", "10.0.0.1", "10.0.0.7"))
		busy <- struct{}{}
		expect(t, "the sum", slow.heard(), "web ADDED 10.0.0.7")
		close(busy)
	})
}

// Many loops end with one context.
func TestWatchManyEndTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore(quiet)
		f := s.Slices("")
		f.Replace(nil)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var l listener
		for i := range 100 {
			wg.Go(func() {
				for svc, changes := range s.Watch(ctx, "shop", fmt.Sprint("svc-", i%10)) {
					l.note(svc, changes)
				}
			})
		}
		if n := len(l.heard()); n != 100 {
			t.Errorf("%d of 100 loops began", n)
		}
		f.Put(slice("a", "1", "svc-3", "10.0.0.1"))
		if n := len(l.heard()); n != 10 {
			t.Errorf("%d of 10 loops heard", n)
		}
		stop()
		wg.Wait()
		if len(s.ofOne) > 0 || len(s.ofAll) > 0 {
			t.Error("the store remembers watches that have ended")
		}
	})
}

// Leaving the loop ends the watch as well.
func TestWatchBreak(t *testing.T) {
	s := NewStore(quiet)
	s.Slices("").Replace(nil)
	for range s.Watch(t.Context(), "shop", "web") {
		break
	}
	if len(s.ofOne) > 0 {
		t.Error("the store remembers a watch that has ended")
	}
}

// A change each second for a day, and memory stays where it was.
func TestWatchADay(t *testing.T) {
	const day = 24 * 60 * 60
	s := NewStore(quiet)
	f := s.Slices("")
	f.Replace([]*discoveryv1.EndpointSlice{slice("a", "1", "web")})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	seen := make(chan string)
	go func() {
		for svc := range s.Watch(ctx, "shop", "web") {
			if m := svc.Members(); len(m) > 0 {
				seen <- m[0].Addr.String()
			}
		}
	}()
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var early uint64
	for i := range day {
		a := fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
		f.Put(slice("a", "1", "web", a))
		if got := <-seen; got != a {
			t.Fatalf("change %d: %s, want %s", i, got, a)
		}
		if i == day/100 {
			early = heap()
		}
	}
	// Six octets kept of each change would be half a megabyte.
	if late := heap(); late > early+512<<10 {
		t.Fatalf("the heap grew from %d to %d octets in %d changes", early, late, day)
	} else {
		t.Logf("heap after %d changes: %d octets, after %d: %d", day/100, early, day, late)
	}
}

func TestMembers(t *testing.T) {
	s := NewStore(quiet)
	f := s.Slices("")
	a, b := slice("a", "1", "web", "10.0.0.1!", "10.0.0.2"), slice("b", "2", "web", "10.0.0.1", "10.0.0.3!")
	a.Ports = []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(80))}}
	b.Ports = []discoveryv1.EndpointPort{{Name: ptr("metrics"), Port: ptr(int32(90))}}
	f.Put(a)
	f.Put(b)
	var got []string
	for _, m := range s.Snapshot("shop", "web").Members() {
		http, _ := m.Port("http")
		metrics, _ := m.Port("metrics")
		got = append(got, fmt.Sprintln(m.Addr, m.Ready, m.Slice, http, metrics))
	}
	expect(t, "one in two slices is one, ready in either, with the ports of both", got,
		"10.0.0.1 true a 80 90\n", "10.0.0.2 true a 80 0\n", "10.0.0.3 false b 0 90\n")
	if m := (*Service)(nil).Members(); m != nil {
		t.Errorf("behind no Service is nobody: %v", m)
	}
}
