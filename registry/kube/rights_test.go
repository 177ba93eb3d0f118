package kube

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"epdns/internal/fakeapi"
	"epdns/registry"
)

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
		w.wantLines(1, "level=WARN msg=\"no right to list Nodes: there are no regions, ")
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
			after(5 * rightsInterval)
			if w.synced() || w.status(0).Off {
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

// restore has the store show Service shop/web as a process before this one left it.
func (w *world) restore(address string) {
	w.t.Helper()
	before := registry.NewStore(slog.New(slog.DiscardHandler))
	before.Services("").Replace([]*corev1.Service{service("web")})
	before.Slices("").Replace([]*discoveryv1.EndpointSlice{slice("web", "web-1", address)})
	var octets bytes.Buffer
	if err := before.Dump(&octets); err != nil {
		w.t.Fatal(err)
	}
	d, err := registry.ReadDump(&octets)
	if err != nil {
		w.t.Fatal(err)
	}
	w.store.Restore(d)
	w.src.Insist, w.src.InsistOn = true, []string{"Service", "Node"}
}

// wantOff says which feeds are to be off, in the order of Status.
func (w *world) wantOff(when string, want ...bool) {
	w.t.Helper()
	for i, st := range w.src.Status() {
		if st.Off != want[i] {
			w.t.Errorf("%s: %s in %q is off: %t", when, st.Kind, st.Namespace, st.Off)
		}
	}
}

// A kind of which there is something to serve already is not done without at once where it
// may not be read, but after a minute in which EndpointSlices could be: they are shown then.
func TestForbiddenAndInsisted(t *testing.T) {
	for _, kind := range []string{"Service", "Node"} {
		for _, back := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.restore("10.0.0.9")
				w.api.Forbid(kind, true)
				w.api.Forbid("EndpointSlice", true)
				w.run()
				after(5 * rightsInterval)
				w.wantOff("while nothing can be read", false, false, false)
				w.api.Forbid("EndpointSlice", false)
				after(rightsInterval / 2)
				w.wantOff("at first", false, false, false)
				w.wantAddresses("web", "10.0.0.9")
				if w.synced() {
					t.Errorf("it is synced without %ss", kind)
				}
				w.wantLines(1, "no right to read "+strings.ToLower(kind)+"s in all namespaces; what is known stays, trying again")

				w.api.Forbid(kind, !back)
				after(rightsInterval)
				if !w.synced() || (w.store.Snapshot("shop", "web").Object == nil) != (kind == "Service" && !back) {
					t.Error("it is not synced, or the Service is another one")
				}
				w.wantAddresses("web", "10.0.0.1")
				w.api.Apply(slice("web", "web-1", "10.0.0.2"))
				synctest.Wait()
				w.wantAddresses("web", "10.0.0.2")
				if back {
					w.wantOff("when it is back", false, false, false)
					return
				}
				w.wantOff("in the end", false, kind == "Service", kind == "Node")
				w.wantLines(1, "level=WARN msg=\"no right to list "+kind+"s: ")
				w.wantLines(0, "was=\"no right to read "+strings.ToLower(kind)) // it is not watched again
				w.api.Forbid(kind, false)
				after(rightsInterval)
				w.wantOff("much later", false, false, false)
			})
		}
	}
}

// Of several namespaces one that may not be read any more, as it may be gone, does not hold up
// the others for longer than a minute.
func TestNamespaceForbiddenAndInsisted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "shop", "data")
		var refused atomic.Value // a part of paths
		w.pipe.handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			if part := refused.Load().(string); part != "" && strings.Contains(r.URL.Path, part) {
				http.Error(rw, "no", http.StatusForbidden)
				return
			}
			w.api.ServeHTTP(rw, r)
		})
		w.restore("10.0.0.9")
		refused.Store("/namespaces/")
		w.run()
		after(5 * rightsInterval)
		w.wantOff("while neither can be read", false, false, false, false, false)
		w.wantAddresses("web", "10.0.0.9")

		refused.Store("/namespaces/data/")
		after(rightsInterval / 2)
		w.wantOff("at first", false, false, false, false, false)
		w.wantAddresses("web", "10.0.0.9")
		after(rightsInterval)
		w.wantOff("in the end", false, false, true, true, false)
		if !w.synced() {
			t.Error("it is not synced")
		}
		w.wantAddresses("web", "10.0.0.1")
		w.wantLines(1, "level=WARN msg=\"no right to list EndpointSlices: Services there have no endpoints; asking again every minute\" in=\"namespace data\"")

		refused.Store("")
		after(rightsInterval)
		w.wantOff("when it is back", false, false, false, false, false)
	})
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
