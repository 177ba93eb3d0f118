package kube

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fakeAPI is an API server with three kinds and a history. It speaks JSON only.
type fakeAPI struct {
	mu        sync.Mutex
	version   int
	objects   map[string]map[string]metav1.Object // resource → namespace/name
	history   map[string][]fakeEvent
	expired   int             // versions up to here are gone
	forbidden map[string]bool // resource
	code      int             // answer everything with this, if set
	endless   bool            // streaming lists have no end
	requests  []*http.Request // all so far
	changed   chan struct{}   // closed at each change
}

type fakeEvent struct {
	version int
	what    string
	object  metav1.Object
}

func newFakeAPI() *fakeAPI {
	return &fakeAPI{
		version:   100,
		objects:   map[string]map[string]metav1.Object{"services": {}, "endpointslices": {}, "nodes": {}},
		history:   map[string][]fakeEvent{},
		forbidden: map[string]bool{},
		changed:   make(chan struct{}),
	}
}

// set changes the server under its lock and wakes the watches.
func (a *fakeAPI) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	close(a.changed)
	a.changed = make(chan struct{})
}

func resourceOf(o metav1.Object) string {
	switch o.(type) {
	case *corev1.Service:
		return "services"
	case *corev1.Node:
		return "nodes"
	}
	return "endpointslices"
}

func nameOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

func (a *fakeAPI) put(o metav1.Object) {
	a.set(func() {
		a.version++
		o.SetResourceVersion(strconv.Itoa(a.version))
		what := "ADDED"
		if a.objects[resourceOf(o)][nameOf(o)] != nil {
			what = "MODIFIED"
		}
		a.objects[resourceOf(o)][nameOf(o)] = o
		a.history[resourceOf(o)] = append(a.history[resourceOf(o)], fakeEvent{a.version, what, o})
	})
}

func (a *fakeAPI) delete(o metav1.Object) {
	a.set(func() {
		a.version++
		o.SetResourceVersion(strconv.Itoa(a.version))
		delete(a.objects[resourceOf(o)], nameOf(o))
		a.history[resourceOf(o)] = append(a.history[resourceOf(o)], fakeEvent{a.version, "DELETED", o})
	})
}

// expire forgets the history: watches end with 410.
func (a *fakeAPI) expire() {
	a.set(func() {
		a.version++
		a.expired = a.version
		clear(a.history)
	})
}

func (a *fakeAPI) count(match func(*http.Request) bool) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.requests {
		if match(r) {
			n++
		}
	}
	return n
}

func isList(resource string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return strings.HasSuffix(r.URL.Path, "/"+resource) && r.URL.Query().Get("watch") == ""
	}
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	namespace := ""
	if _, rest, ok := strings.Cut(r.URL.Path, "/namespaces/"); ok {
		namespace, _, _ = strings.Cut(rest, "/")
	}
	q := r.URL.Query()
	a.mu.Lock()
	a.requests = append(a.requests, r)
	w.Header().Set("Content-Type", "application/json")
	switch {
	case a.code != 0:
		defer a.mu.Unlock()
		refuse(w, a.code, metav1.StatusReasonUnknown, "something is wrong")
	case a.forbidden[resource]:
		defer a.mu.Unlock()
		refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, resource+" is forbidden: User \"epdns\" cannot list it")
	case q.Get("watch") != "":
		a.mu.Unlock()
		a.watch(w, r, resource, namespace, q)
	default:
		defer a.mu.Unlock()
		a.list(w, resource, namespace)
	}
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(gone(code, reason, message))
}

func gone(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
}

func (a *fakeAPI) selected(resource, namespace string) []metav1.Object {
	out := []metav1.Object{}
	for _, o := range a.objects[resource] {
		if namespace == "" || o.GetNamespace() == namespace {
			out = append(out, o)
		}
	}
	return out
}

func (a *fakeAPI) list(w http.ResponseWriter, resource, namespace string) {
	kind, version := "ServiceList", "v1"
	switch resource {
	case "endpointslices":
		kind, version = "EndpointSliceList", "discovery.k8s.io/v1"
	case "nodes":
		kind = "NodeList"
	}
	json.NewEncoder(w).Encode(map[string]any{
		"kind": kind, "apiVersion": version,
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(a.version)},
		"items":    a.selected(resource, namespace),
	})
}

func (a *fakeAPI) watch(w http.ResponseWriter, r *http.Request, resource, namespace string, q url.Values) {
	send := func(what string, object any) {
		json.NewEncoder(w).Encode(map[string]any{"type": what, "object": object})
		w.(http.Flusher).Flush()
	}
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	a.mu.Lock()
	if q.Get("sendInitialEvents") == "true" {
		from = a.version
		for _, o := range a.selected(resource, namespace) {
			send("ADDED", o)
		}
		if !a.endless {
			send("BOOKMARK", bookmark(resource, from))
		}
	}
	w.(http.Flusher).Flush()
	for {
		if from < a.expired {
			send("ERROR", gone(http.StatusGone, metav1.StatusReasonExpired, "too old resource version"))
			a.mu.Unlock()
			return
		}
		for _, e := range a.history[resource] {
			if e.version > from && (namespace == "" || e.object.GetNamespace() == namespace) {
				send(e.what, e.object)
			}
		}
		from = a.version
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-r.Context().Done():
			return
		case <-changed:
		}
		a.mu.Lock()
	}
}

func bookmark(resource string, version int) metav1.Object {
	m := metav1.ObjectMeta{
		ResourceVersion: strconv.Itoa(version),
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}
	switch resource {
	case "services":
		return &corev1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service", APIVersion: "v1"}, ObjectMeta: m}
	case "nodes":
		return &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: m}
	}
	return &discoveryv1.EndpointSlice{TypeMeta: sliceType, ObjectMeta: m}
}

// pipe carries requests to a handler without a socket, so that a test may run in a
// bubble of fake time.
type pipe struct {
	handler http.Handler

	connects     atomic.Bool // requests get as far as a connection
	refused      atomic.Bool // as if nobody listened
	cutsEarly    atomic.Bool // connections end before an answer
	stuck        atomic.Bool // requests get no answer
	holdsStreams atomic.Bool // streaming lists get no answer

	mu      sync.Mutex
	streams []context.CancelFunc
}

func (p *pipe) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.refused.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if p.cutsEarly.Load() {
		return nil, io.EOF
	}
	ctx, cancel := context.WithCancel(r.Context())
	if trace := httptrace.ContextClientTrace(ctx); p.connects.Load() && trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	if p.stuck.Load() || p.holdsStreams.Load() && r.URL.Query().Get("sendInitialEvents") == "true" {
		defer cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p.mu.Lock()
	p.streams = append(p.streams, cancel)
	p.mu.Unlock()
	body, out := io.Pipe()
	w := &pipeWriter{header: http.Header{}, out: out, ready: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() { out.CloseWithError(io.EOF) })
	go func() {
		defer stop()
		p.handler.ServeHTTP(w, r.WithContext(ctx))
		w.Flush()
		out.Close()
	}()
	select {
	case <-w.ready:
	case <-ctx.Done():
		cancel()
		return nil, ctx.Err()
	}
	return &http.Response{
		StatusCode: w.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: pipeBody{body, cancel}, Request: r, ContentLength: -1,
	}, nil
}

// cut ends all streams.
func (p *pipe) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.streams {
		cancel()
	}
	p.streams = nil
}

type pipeWriter struct {
	header http.Header
	code   int
	out    *io.PipeWriter
	ready  chan struct{}
	once   sync.Once
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(code int) {
	w.once.Do(func() {
		w.code = code
		close(w.ready)
	})
}

func (w *pipeWriter) Flush() { w.WriteHeader(http.StatusOK) }

func (w *pipeWriter) Write(b []byte) (int, error) {
	w.Flush()
	return w.out.Write(b)
}

type pipeBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b pipeBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}
