package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"epdns/internal/fakeapi"
	"epdns/registry"
)

func slice(service, name string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID("uid-" + name),
			Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

func service(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name)},
	}
}

// logBuffer collects log lines.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *logBuffer) lines(with string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for l := range strings.Lines(b.buf.String()) {
		if strings.Contains(l, with) {
			n++
		}
	}
	return n
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// world is a source at work on a fake cluster, in fake time.
type world struct {
	t     *testing.T
	api   *fakeapi.Server
	pipe  *pipe
	src   *Source
	store *registry.Store
	log   *logBuffer
	ended chan error
}

// newWorld has Service shop/web with one endpoint.
func newWorld(t *testing.T, namespaces ...string) *world {
	t.Helper()
	return newWorldOn(t, fakeapi.New(), namespaces...)
}

func newWorldOn(t *testing.T, api *fakeapi.Server, namespaces ...string) *world {
	t.Helper()
	api.Apply(service("web"))
	api.Apply(slice("web", "web-1", "10.0.0.1"))
	return worldOf(t, api, namespaces...)
}

// worldOf has what there is.
func worldOf(t *testing.T, api *fakeapi.Server, namespaces ...string) *world {
	t.Helper()
	w := &world{t: t, api: api, log: &logBuffer{}, ended: make(chan error, 1)}
	w.pipe = &pipe{handler: w.api}
	w.pipe.connects.Store(true)
	if namespaces == nil {
		namespaces = []string{""}
	}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	src, err := newSource(&rest.Config{Host: "http://cluster", Transport: w.pipe}, "cluster http://cluster (test)", namespaces, log)
	if err != nil {
		t.Fatal(err)
	}
	w.src = src
	w.store = registry.NewStore(slog.New(slog.DiscardHandler))
	return w
}

// run starts the source and ends it with the test.
func (w *world) run() {
	ctx, cancel := context.WithCancel(w.t.Context())
	go func() { w.ended <- w.src.Run(ctx, w.store) }()
	w.t.Cleanup(func() {
		cancel()
		synctest.Wait()
		if len(w.ended) != 1 {
			w.t.Error("Run has not returned at once")
		} else if err := <-w.ended; err != nil {
			w.t.Errorf("Run: %v", err)
		}
		if w.t.Failed() {
			w.t.Logf("log:\n%s", w.log)
		}
	})
	synctest.Wait()
}

// after lets fake time pass until everything has come to rest.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// delete deletes an object of namespace shop.
func (w *world) delete(kind, name string) {
	w.t.Helper()
	if err := w.api.Delete(kind, fakeapi.ID{Namespace: "shop", Name: name}); err != nil {
		w.t.Fatal(err)
	}
}

// lists counts the LISTs of a kind.
func (w *world) lists(kind string) (n int) {
	for _, r := range w.api.Requests() {
		if r.Kind == kind && !r.Watch {
			n++
		}
	}
	return n
}

func (w *world) synced() bool {
	select {
	case <-w.store.Synced():
		return true
	default:
		return false
	}
}

func (w *world) wantAddresses(service string, want ...string) {
	w.t.Helper()
	svc := w.store.Snapshot("shop", service)
	if svc == nil {
		w.t.Fatalf("Service %s does not exist", service)
	}
	var have []string
	for _, s := range svc.Slices {
		for _, e := range s.Endpoints.All() {
			have = append(have, e.Addr.String())
		}
	}
	if strings.Join(have, " ") != strings.Join(want, " ") {
		w.t.Errorf("%s has %v, want %v", service, have, want)
	}
}

func (w *world) wantLines(n int, with string) {
	w.t.Helper()
	if have := w.log.lines(with); have != n {
		w.t.Errorf("%d log lines with %q, want %d", have, with, n)
	}
}

// status returns that of the slices (0) or services (1) of the first scope.
func (w *world) status(i int) FeedStatus { return w.src.Status()[i] }

func TestFollowsTheCluster(t *testing.T) {
	for _, namespaces := range [][]string{nil, {"shop"}, {"data", "shop"}} {
		t.Run(strings.Join(namespaces, ","), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, namespaces...)
				w.run()
				if !w.synced() {
					t.Fatal("not synced")
				}
				w.wantAddresses("web", "10.0.0.1")

				w.api.Apply(slice("web", "web-2", "10.0.0.2"))
				synctest.Wait()
				w.wantAddresses("web", "10.0.0.1", "10.0.0.2")

				w.api.Apply(slice("web", "web-1", "10.0.0.9"))
				synctest.Wait()
				w.wantAddresses("web", "10.0.0.9", "10.0.0.2")

				w.delete("EndpointSlice", "web-2")
				synctest.Wait()
				w.wantAddresses("web", "10.0.0.9")

				placed := slice("web", "web-1", "10.0.0.9")
				nodeName := "n1"
				placed.Endpoints[0].NodeName = &nodeName
				w.api.Apply(placed)
				w.api.Apply(&corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}},
				})
				synctest.Wait()
				if zone := w.store.Snapshot("shop", "web").Members()[0].Zone; zone != "zone-a" {
					t.Errorf("zone %q of an endpoint on a Node in zone-a", zone)
				}

				w.delete("Service", "web")
				synctest.Wait()
				if w.store.Snapshot("shop", "web") != nil {
					t.Error("deleted Service still exists")
				}
				for _, st := range w.src.Status() {
					if st.Mode != "watchlist" || !st.Synced || !st.Connected || st.Off || st.Lists != 1 || st.Skipped != 0 {
						t.Errorf("status %+v", st)
					}
				}
				w.wantLines(0, "")
			})
		})
	}
}

func TestNodesForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Forbid("Node", true)
		w.run()
		if !w.synced() {
			t.Fatal("a feed that is off counts as synced")
		}
		w.wantAddresses("web", "10.0.0.1")
		after(5 * time.Minute)
		w.wantLines(1, "level=WARN msg=\"no right to list Nodes: an endpoint without a zone of its own has none")
		w.wantLines(1, "")
		w.api.Forbid("Node", false)
		after(time.Minute)
		w.wantLines(1, "level=INFO msg=\"Nodes may be listed now")
	})
}

func TestServicesForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Forbid("Service", true)
		w.api.Apply(slice("orphan", "orphan-1", "10.0.0.5"))
		w.run()
		if !w.synced() {
			t.Fatal("a feed that is off counts as synced")
		}
		w.wantAddresses("orphan", "10.0.0.5")
		if st := w.status(1); !st.Off || !st.Synced {
			t.Errorf("status %+v", st)
		}
		after(50 * time.Second)
		if n := w.lists("Service"); n != 1 {
			t.Errorf("%d lists of services within the first minute", n)
		}
		after(5 * time.Minute)
		if n := w.lists("Service"); n != 6 {
			t.Errorf("%d lists of services in five minutes, want one each", n)
		}
		w.wantLines(1, "")
		w.wantLines(1, "level=WARN msg=\"no right to list Services")

		w.api.Forbid("Service", false)
		after(time.Minute)
		if st := w.status(1); st.Off || st.Lists != 1 {
			t.Errorf("status %+v", st)
		}
		if w.store.Snapshot("shop", "orphan") != nil {
			t.Error("with Services listed, slices alone make none")
		}
		w.wantAddresses("web", "10.0.0.1")
		w.wantLines(1, "level=INFO msg=\"Services may be listed now")
		w.wantLines(2, "")

		// Taken away again, the state stays.
		w.api.Forbid("Service", true)
		w.api.Expire()
		after(5 * time.Minute)
		if st := w.status(1); st.Off || st.Connected || st.LastError == "" {
			t.Errorf("status %+v", st)
		}
		w.wantAddresses("web", "10.0.0.1")
		w.wantLines(1, "no right to read services in all namespaces; what is known stays")
		w.wantLines(3, "")

		w.api.Forbid("Service", false)
		after(10 * time.Second)
		w.wantLines(1, "watching again")
		w.wantLines(4, "")
	})
}

func TestSlicesForbidden(t *testing.T) {
	for _, tc := range []struct {
		name       string
		namespaces []string
		deny       func(*fakeapi.Server)
		want       []string
	}{
		{"everywhere", nil, func(a *fakeapi.Server) { a.Forbid("EndpointSlice", true) },
			[]string{"endpointslices.discovery.k8s.io", "http://cluster", "cannot list", "grant list and watch endpointslices.discovery.k8s.io in all namespaces (ClusterRole)"}},
		{"in a namespace", []string{"shop"}, func(a *fakeapi.Server) { a.Forbid("EndpointSlice", true) },
			[]string{"in namespace shop (Role)"}},
		{"credentials", nil, func(a *fakeapi.Server) { a.Fail(http.StatusUnauthorized) },
			[]string{"does not accept our credentials", "cluster http://cluster (test)"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, tc.namespaces...)
				tc.deny(w.api)
				err := w.src.Run(t.Context(), w.store)
				if err == nil {
					t.Fatal("no error")
				}
				for _, want := range tc.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("error %q lacks %q", err, want)
					}
				}
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("error of several lines: %q", err)
				}
			})
		})
	}
}

// Where there is something to serve already, a right that is lost is asked for again.
func TestSlicesForbiddenAndInsisted(t *testing.T) {
	for _, deny := range []func(a *fakeapi.Server, yes bool){
		func(a *fakeapi.Server, yes bool) { a.Forbid("EndpointSlice", yes) },
		func(a *fakeapi.Server, yes bool) {
			if a.Fail(http.StatusUnauthorized); !yes {
				a.Fail(0)
			}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.src.Insist = true
			deny(w.api, true)
			w.run()
			after(time.Minute)
			if w.synced() {
				t.Error("it is synced without EndpointSlices")
			}
			w.wantLines(1, "what is known stays, trying again")
			deny(w.api, false)
			after(10 * time.Second)
			if !w.synced() {
				t.Fatal("it is not synced")
			}
			w.wantAddresses("web", "10.0.0.1")
		})
	}
}

// A kind of which there is something to serve already is not switched off where it may not
// be read at the start.
func TestForbiddenAndInsisted(t *testing.T) {
	for _, kind := range []string{"Service", "Node"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.src.Insist, w.src.InsistOn = true, []string{kind}
			w.api.Forbid(kind, true)
			w.run()
			after(time.Minute)
			if w.synced() {
				t.Errorf("it is synced without %ss", kind)
			}
			for _, st := range w.src.Status() {
				if st.Off {
					t.Errorf("%s is off", st.Kind)
				}
			}
			w.wantLines(1, "what is known stays, trying again")
			w.api.Forbid(kind, false)
			after(10 * time.Second)
			if !w.synced() || w.store.Snapshot("shop", "web").Object == nil {
				t.Error("it is not synced, or the Service is not there")
			}
		})
	}
}

// The identity is that of the cluster and of what is read of it.
func TestIdentity(t *testing.T) {
	for _, c := range []struct {
		namespaces []string
		want       string
	}{
		{[]string{""}, "http://cluster, all namespaces"},
		{[]string{"shop", "data"}, "http://cluster, namespace data, namespace shop"},
		{[]string{"data", "shop"}, "http://cluster, namespace data, namespace shop"},
	} {
		if got := newWorld(t, c.namespaces...).src.Identity(); got != c.want {
			t.Errorf("%q: %s", c.namespaces, got)
		}
	}
}

func TestSlicesForbiddenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		w.api.Forbid("EndpointSlice", true)
		w.api.Expire()
		after(time.Minute)
		w.wantAddresses("web", "10.0.0.1")
		w.wantLines(1, "no right to read endpointslices.discovery.k8s.io")
	})
}

func TestUnreachableAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.pipe.refused.Store(true)
		w.run()
		after(time.Hour)
		if w.synced() {
			t.Fatal("synced with nothing")
		}
		w.wantLines(1, "level=WARN msg=\"no connection to the API server")
		w.wantLines(1, "")
		if st := w.status(0); st.Synced || st.Connected || !strings.Contains(st.LastError, "connection refused") {
			t.Errorf("status %+v", st)
		}

		w.pipe.refused.Store(false)
		after(7 * time.Second) // the longest pause, with jitter
		w.wantAddresses("web", "10.0.0.1")
		if !w.synced() {
			t.Error("not synced")
		}
		w.wantLines(1, "level=INFO msg=\"watching again")
		w.wantLines(2, "")
		if st := w.status(0); st.Mode != "watchlist" {
			t.Errorf("mode %q after a time without connection", st.Mode)
		}
	})
}

func TestLostLater(t *testing.T) {
	for _, how := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, errors.New("http2: client connection lost")} {
		t.Run(how.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.run()
				after(time.Minute)
				w.pipe.refused.Store(true)
				w.pipe.cut(how)
				after(time.Hour)
				w.wantAddresses("web", "10.0.0.1")
				if st := w.status(0); st.Connected || !st.Synced {
					t.Errorf("status %+v", st)
				}
				w.api.Apply(slice("web", "web-2", "10.0.0.2")) // meanwhile

				w.pipe.refused.Store(false)
				after(7 * time.Second)
				w.wantAddresses("web", "10.0.0.1", "10.0.0.2")
				w.wantLines(1, "level=WARN msg=\"no connection")
				w.wantLines(1, "watching again")
				w.wantLines(2, "")
				if st := w.status(0); st.Lists != 1 || !st.Connected {
					t.Errorf("status %+v: the watch should have gone on where it was", st)
				}
			})
		})
	}
}

// client-go shows a watch that timed out or was cut off before it began as one that
// is empty. It is a lost connection all the same.
func TestWatchCutBeforeItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		w.pipe.cutsEarly.Store(true)
		w.pipe.cut(io.EOF)
		after(time.Minute)
		w.wantAddresses("web", "10.0.0.1")
		if w.status(0).Connected {
			t.Error("connected")
		}
		w.wantLines(1, "level=WARN msg=\"no connection")
		w.pipe.cutsEarly.Store(false)
		after(7 * time.Second)
		w.wantLines(1, "watching again")
		w.wantLines(2, "")
	})
}

// A server in trouble is not a missing right: nothing is off, nothing is synced.
func TestErrorsAtStart(t *testing.T) {
	for _, code := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusNotFound} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.api.Fail(code)
				w.run()
				after(10 * time.Minute)
				if w.synced() || w.status(1).Off {
					t.Error("taken for an answer")
				}
				w.api.Fail(0)
				after(7 * time.Second)
				if !w.synced() {
					t.Error("not synced")
				}
				if warned, mended := w.log.lines("level=WARN"), w.log.lines("watching again"); warned == 0 || warned != mended {
					t.Errorf("%d warnings, %d of them taken back", warned, mended)
				}
			})
		})
	}
}

// A server that sends lists object by object is asked for those.
func TestVersionDecides(t *testing.T) {
	for _, c := range []struct{ minor, mode string }{
		{"", "watchlist"},
		{"32", "watchlist"},
		{"33", "list"},
		{"36+", "list"},
		{"next", "watchlist"},
	} {
		t.Run(c.minor, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.api.Minor = c.minor
				w.run()
				if !w.synced() {
					t.Fatal("not synced")
				}
				w.wantAddresses("web", "10.0.0.1")
				w.api.Apply(slice("web", "web-2", "10.0.0.2"))
				synctest.Wait()
				w.wantAddresses("web", "10.0.0.1", "10.0.0.2")
				w.api.Expire()
				after(time.Second)
				for _, st := range w.src.Status()[:2] {
					if st.Mode != c.mode || st.Lists != 2 || !st.Connected {
						t.Errorf("status %+v, want mode %s and 2 lists", st, c.mode)
					}
				}
				w.wantLines(0, "")
			})
		})
	}
}

// An answer that has begun and does not go on is given up.
func TestListThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Minor = "33"
		w.pipe.stalls.Store(true)
		w.run()
		after(listSilence + time.Second)
		if st := w.status(0); st.Synced || st.LastError != errNoAnswer.Error() {
			t.Errorf("status %+v", st)
		}
		w.wantLines(1, "level=WARN msg=\"no connection")
		w.pipe.stalls.Store(false)
		after(listSilence + 7*time.Second) // the attempt under way, and the longest pause
		if st := w.status(0); !w.synced() || st.Mode != "list" {
			t.Errorf("status %+v", st)
		}
		w.wantLines(2, "")
	})
}

// A version that was not told is asked for again, and waited for no longer than for a
// streaming list that brings nothing.
func TestVersionIsNotTold(t *testing.T) {
	for _, c := range []struct {
		what  string
		fault func(*pipe) *atomic.Bool
		mode  string // meanwhile
	}{
		{"no connection", func(p *pipe) *atomic.Bool { return &p.refused }, ""},
		{"no answer", func(p *pipe) *atomic.Bool { return &p.holdsVersion }, "watchlist"},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.api.Minor = "33"
				c.fault(w.pipe).Store(true)
				w.run()
				after(w.src.SyncDeadline + time.Second)
				if st := w.status(0); st.Mode != c.mode {
					t.Errorf("status %+v, want mode %q", st, c.mode)
				}
				c.fault(w.pipe).Store(false)
				w.api.Expire()
				after(7 * time.Second) // the longest pause, with jitter
				if st := w.status(0); st.Mode != "list" {
					t.Errorf("status %+v, want mode list", st)
				}
			})
		})
	}
}

func TestStreamingListWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Endless(true)
		w.run()
		after(w.src.SyncDeadline - time.Second)
		if w.synced() {
			t.Fatal("synced too early")
		}
		after(2 * time.Second)
		if !w.synced() {
			t.Fatal("not synced after the deadline")
		}
		w.wantAddresses("web", "10.0.0.1")
		for i := range 2 {
			if st := w.status(i); st.Mode != "list" || !st.Connected {
				t.Errorf("status %+v", st)
			}
		}
		w.wantLines(1, "using LIST and WATCH")
		w.wantLines(1, "")

		w.api.Apply(slice("web", "web-2", "10.0.0.2"))
		synctest.Wait()
		w.wantAddresses("web", "10.0.0.1", "10.0.0.2")

		w.api.Expire() // no streaming list this time
		after(time.Second)
		if st := w.status(0); st.Lists != 2 || st.Mode != "list" {
			t.Errorf("status %+v", st)
		}
	})
}

// A proxy that cuts endless lists short must not win time by it.
func TestStreamingListCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Endless(true)
		w.run()
		for range 4 {
			after(3 * time.Second)
			w.pipe.cut(io.EOF)
		}
		synctest.Wait()
		if !w.synced() {
			t.Error("not synced")
		}
	})
}

// A large cluster's list takes longer than the deadline and comes to its end, as long
// as something comes.
func TestStreamingListThatGetsOn(t *testing.T) {
	for _, c := range []struct {
		what   string
		slices int
		took   time.Duration // less than this
		mode   string
	}{
		{"longer than the deadline", 10, streamLimit, "watchlist"},
		{"longer than any list may take", 100, streamLimit + 30*time.Second, "list"},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for i := range c.slices {
					w.api.Apply(slice("web", fmt.Sprint("web-", i+2), fmt.Sprint("10.0.1.", i)))
				}
				w.pipe.pause.Store(int64(4 * time.Second)) // an event is two pieces
				w.run()
				after(2 * w.src.SyncDeadline)
				if w.synced() {
					t.Fatal("synced too early")
				}
				after(c.took - 2*w.src.SyncDeadline)
				if !w.synced() {
					t.Fatal("not synced")
				}
				if n := w.store.Stats().Endpoints; n != int64(c.slices)+1 {
					t.Errorf("%d endpoints", n)
				}
				if st := w.status(0); st.Mode != c.mode {
					t.Errorf("status %+v, want mode %s", st, c.mode)
				}
			})
		})
	}
}

// The deadline judges streams, not connections: where nothing is answered at all,
// streaming lists are not given up.
func TestDeadlineNeedsAnAnswer(t *testing.T) {
	for _, connected := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.pipe.connects.Store(connected)
			w.pipe.stuck.Store(true)
			w.run()
			after(time.Hour)
			if st := w.status(0); st.Synced || st.LastError != errNoAnswer.Error() {
				t.Errorf("status %+v", st)
			}
			w.wantLines(1, "level=WARN msg=\"no connection")
			w.pipe.stuck.Store(false)
			after(3 * time.Minute)
			if !w.synced() {
				t.Fatal("not synced")
			}
			w.api.Expire()
			after(time.Minute)
			if st := w.status(0); st.Mode != "watchlist" {
				t.Errorf("status %+v", st)
			}
			w.wantLines(0, "using LIST and WATCH")
			w.wantLines(2, "")
		})
	}
}

// A proxy may hold back the head of a streaming list until there is a body. That is
// an endless list, too.
func TestStreamingListWithoutHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.pipe.holdsStreams.Store(true)
		w.run()
		after(w.src.SyncDeadline + time.Second)
		if !w.synced() {
			t.Fatal("not synced after the deadline")
		}
		w.wantLines(1, "using LIST and WATCH")
		w.wantLines(1, "")
	})
}

// 410: the state is read again and replaced in one step.
func TestExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		after(time.Minute)
		follower := w.store.FollowAll()
		follower.Take()
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-follower.Changed():
				}
				for _, svc := range follower.Take() {
					if !svc.Exists || len(svc.Slices) == 0 {
						t.Errorf("%s was empty for a moment", svc.Key)
					}
				}
			}
		}()
		// A change that no watch tells.
		err := w.api.Swap("EndpointSlice", fakeapi.ID{Namespace: "shop", Name: "web-1"}, slice("web", "web-2", "10.0.0.2"))
		if err != nil {
			t.Fatal(err)
		}
		w.api.Expire()
		synctest.Wait()
		w.wantAddresses("web", "10.0.0.2")
		if st := w.status(0); st.Lists != 2 || st.Relists() != 1 {
			t.Errorf("status %+v", st)
		}
		w.wantLines(0, "")
	})
}

// After an object that can't be decoded the state is read again; one that can and is of
// another kind is passed over. Neither goes unnoticed.
func TestDamagedEvents(t *testing.T) {
	for _, jsonOnly := range []bool{false, true} {
		for _, damage := range fakeapi.Damages() {
			t.Run(fmt.Sprintf("%s,json=%t", damage, jsonOnly), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.api.JSONOnly = jsonOnly
					w.run()
					after(time.Minute)
					if err := w.api.Damage("EndpointSlice", damage); err != nil {
						t.Fatal(err)
					}
					w.api.Apply(slice("web", "web-1", "10.0.0.2"))
					w.api.Apply(slice("web", "web-1", "10.0.0.3"))
					after(time.Second)
					w.wantAddresses("web", "10.0.0.3")
					w.api.Apply(slice("web", "web-1", "10.0.0.4"))
					synctest.Wait()
					w.wantAddresses("web", "10.0.0.4")

					relists, skipped, lines := uint64(1), uint64(0), 1
					switch {
					case damage == fakeapi.OtherKind:
						relists, skipped, lines = 0, 1, 0
					case damage == fakeapi.CutMessage:
						relists, lines = 0, 0 // the stream is broken, and the next one goes on where it was
					}
					if st := w.status(0); st.Relists() != relists || st.Skipped != skipped || !st.Connected || (st.LastError != "") != (lines > 0) {
						t.Errorf("status %+v", st)
					}
					w.wantLines(lines, "level=WARN msg=\"an event of a watch is not understood")
					w.wantLines(lines, "")
				})
			})
		}
	}
}

// A server or a proxy that damages every watch is not asked without a pause, and is
// one line in the log.
func TestDamageWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		for range 120 {
			if err := w.api.Damage("EndpointSlice", fakeapi.BadField); err != nil {
				t.Fatal(err)
			}
			w.api.Apply(slice("web", "web-1", "10.0.0.2"))
			after(time.Second)
		}
		w.wantAddresses("web", "10.0.0.2")
		if n := w.status(0).Lists; n > 40 {
			t.Errorf("%d lists in two minutes", n)
		}
		w.wantLines(1, "level=WARN msg=\"an event of a watch is not understood")
		w.wantLines(1, "")
	})
}

// No event and no bookmark for longer than bookmarks take: the watch is opened
// again, from where it was.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		after(silence + time.Second)
		st := w.status(0)
		if st.Reopened != 1 || !st.Connected || st.Relists() != 0 {
			t.Errorf("status %+v", st)
		}
		w.api.Apply(slice("web", "web-2", "10.0.0.2"))
		synctest.Wait()
		w.wantAddresses("web", "10.0.0.1", "10.0.0.2")
		after(silence - time.Second)
		if st := w.status(0); st.Reopened != 1 {
			t.Errorf("status %+v: an event counts as life", st)
		}
		w.wantLines(0, "")
	})
}

// Foreign objects are counted.
func TestSinkIgnoresOtherTypes(t *testing.T) {
	w := newWorld(t)
	s := newSink(w.src.feeds[0], w.store.Slices(""))
	s.Replace([]any{slice("web", "web-1", "10.0.0.1"), service("web"), nil}, "1")
	s.Add("text")
	s.Update(nil)
	s.Delete(service("web"))
	if st := w.status(0); st.Skipped != 5 || st.Lists != 1 {
		t.Errorf("status %+v", st)
	}
	w.wantAddresses("web", "10.0.0.1")
}

// The real client, over a socket, from a kubeconfig.
func TestOverHTTP(t *testing.T) {
	api := fakeapi.New()
	api.Apply(service("web"))
	api.Apply(slice("web", "web-1", "10.0.0.1"))
	server := httptest.NewServer(api)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "config")
	writeKubeconfig(t, file, server.URL)

	src, err := New(Config{Kubeconfig: file}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if want := "cluster " + server.URL + " (context admin of " + file + ")"; src.String() != want {
		t.Errorf("String() = %q, want %q", src, want)
	}
	store := registry.NewStore(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- src.Run(ctx, store) }()
	<-store.Synced()
	if store.Snapshot("shop", "web") == nil {
		t.Error("Service web does not exist")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, r := range api.Requests() {
		if agent := r.Header.Get("User-Agent"); !strings.HasPrefix(agent, "epdns/") {
			t.Errorf("user agent %q", agent)
		}
		if a := r.Header.Get("Accept"); !strings.HasPrefix(a, "application/vnd.kubernetes.protobuf") || !strings.Contains(a, "json") {
			t.Errorf("accept %q", a)
		}
	}
}

func TestPingSettingsAreTheUsers(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "77")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "")
	os.Unsetenv("HTTP2_PING_TIMEOUT_SECONDS")
	undo := setPings()
	if have := os.Getenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS"); have != "77" {
		t.Errorf("the user's setting became %q", have)
	}
	if have := os.Getenv("HTTP2_PING_TIMEOUT_SECONDS"); have != "4" {
		t.Errorf("ping timeout is %q", have)
	}
	undo()
	if have, set := os.LookupEnv("HTTP2_PING_TIMEOUT_SECONDS"); set {
		t.Errorf("%q was left behind", have)
	}
}
