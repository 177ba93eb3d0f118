package kube

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
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
