package epdns_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fakeAPI is an API server: a store with a history, to be listed and watched, over
// HTTP/2 and TLS. What it answers is what "Kubernetes API Concepts" says; what goes
// wrong with it is what a test tells it to. It speaks JSON, checks no objects and
// knows no users.
type fakeAPI struct {
	*gate
	kubeconfig string
	client     *http.Client  // one more that it trusts
	freshness  time.Duration // how long a request waits for a version that is not there yet

	mu        sync.Mutex
	version   uint64
	events    []apiEvent
	compacted uint64 // what is older is forgotten
	changed   chan struct{}
	watches   map[*apiWatch]struct{}

	lag         int                      // events that lists of any version, and watches, do not know yet
	slow        map[string]time.Duration // kind → how late its state is
	goneWatch   map[string]bool          // kind → its next watch is sent a 410
	goneRequest map[string]bool          // kind → its next watch is answered 410
	early       time.Duration            // age at which watches end
	earlyUntil  time.Time

	requests []apiRequest
	replays  []apiReplay
	listed   map[string]uint64 // kind → version of the last list
}

// apiObject is an object as in JSON. Once it is in the store it is not changed.
type apiObject map[string]any

// apiEvent is a change.
type apiEvent struct {
	version uint64
	what    string // ADDED, MODIFIED or DELETED
	kind    string
	id      objectID
	object  apiObject
}

type objectID struct{ namespace, name string }

// apiReplay is an event that was sent though it is not newer than the last list.
type apiReplay struct {
	at   time.Time
	kind string
}

// apiKinds are the kinds that it has.
var apiKinds = map[string]struct{ group, resource string }{
	"Namespace":     {"v1", "namespaces"},
	"Node":          {"v1", "nodes"},
	"Service":       {"v1", "services"},
	"EndpointSlice": {"discovery.k8s.io/v1", "endpointslices"},
}

// firstVersion is that of the empty store.
const firstVersion = 100

// newFakeAPI starts one. It ends with the test.
func newFakeAPI(t *testing.T) *fakeAPI {
	t.Helper()
	a := &fakeAPI{
		gate:        newGate(t),
		freshness:   3 * time.Second,
		version:     firstVersion,
		compacted:   firstVersion,
		changed:     make(chan struct{}),
		watches:     map[*apiWatch]struct{}{},
		slow:        map[string]time.Duration{},
		goneWatch:   map[string]bool{},
		goneRequest: map[string]bool{},
		listed:      map[string]uint64{},
	}
	mux := http.NewServeMux()
	for kind, k := range apiKinds {
		base := "/apis/" + k.group
		if k.group == "v1" {
			base = "/api/v1"
		}
		serve := func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, kind) }
		mux.HandleFunc("GET "+base+"/"+k.resource, serve)
		mux.HandleFunc("GET "+base+"/namespaces/{namespace}/"+k.resource, serve)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, status(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource"))
	})
	server := httptest.NewUnstartedServer(mux)
	server.Listener.Close()
	server.Listener = a.gate
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of connections that were cut
	server.EnableHTTP2 = true
	server.StartTLS()
	a.client = server.Client()
	t.Cleanup(func() {
		a.gate.Close()
		server.Close()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	a.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	replaceFile(t, a.kubeconfig, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: fake
clusters: [{name: fake, cluster: {server: "https://%s", certificate-authority-data: %s}}]
users: [{name: anybody, user: {}}]
contexts: [{name: fake, context: {cluster: fake, user: anybody}}]
`, a.addr, base64.StdEncoding.EncodeToString(ca)))
	return a
}

// set changes something and wakes all who wait for a change.
func (a *fakeAPI) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	close(a.changed)
	a.changed = make(chan struct{})
}

// apply creates an object or puts it in the place of another.
func (a *fakeAPI) apply(o apiObject) error {
	kind, id, err := identify(o)
	if err != nil {
		return err
	}
	a.set(func() {
		what := "ADDED"
		if _, exists := a.find(kind, id); exists {
			what = "MODIFIED"
		}
		a.record(what, kind, id, o)
	})
	return nil
}

// delete takes an object away.
func (a *fakeAPI) delete(kind string, id objectID) (err error) {
	a.set(func() {
		if o, exists := a.find(kind, id); exists {
			a.record("DELETED", kind, id, o)
		} else {
			err = fmt.Errorf("there is no %s %s/%s", kind, id.namespace, id.name)
		}
	})
	return err
}

func identify(o apiObject) (kind string, id objectID, err error) {
	kind, _ = o["kind"].(string)
	meta, _ := o["metadata"].(map[string]any)
	id.namespace, _ = meta["namespace"].(string)
	id.name, _ = meta["name"].(string)
	k, known := apiKinds[kind]
	switch {
	case !known:
		err = fmt.Errorf("kind %q is none of those served", kind)
	case o["apiVersion"] != k.group:
		err = fmt.Errorf("%s is of %s, not of %v", kind, k.group, o["apiVersion"])
	case id.name == "":
		err = fmt.Errorf("a %s without a name", kind)
	}
	return kind, id, err
}

// What follows, as far as visible, needs a.mu.

func (a *fakeAPI) find(kind string, id objectID) (apiObject, bool) {
	for _, e := range slices.Backward(a.events) {
		if e.kind == kind && e.id == id {
			return e.object, e.what != "DELETED"
		}
	}
	return nil, false
}

// record adds an event, whose object gets the version of the event.
func (a *fakeAPI) record(what, kind string, id objectID, o apiObject) {
	a.version++
	o = maps.Clone(o)
	meta := maps.Clone(o["metadata"].(map[string]any))
	meta["resourceVersion"] = strconv.FormatUint(a.version, 10)
	o["metadata"] = meta
	a.events = append(a.events, apiEvent{a.version, what, kind, id, o})
}

// state are the objects as of a version, in the order of their keys.
func (a *fakeAPI) state(kind, namespace string, version uint64) (out []apiObject) {
	last := map[objectID]apiEvent{}
	for _, e := range a.events {
		if e.version <= version && e.kind == kind && (namespace == "" || namespace == e.id.namespace) {
			last[e.id] = e
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(last), func(a, b objectID) int {
		return cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	}) {
		if last[id].what != "DELETED" {
			out = append(out, last[id].object)
		}
	}
	return out
}

// visible is the version that a list of any version, and watches, know of.
func (a *fakeAPI) visible() uint64 {
	switch n := len(a.events); {
	case a.lag == 0:
		return a.version
	case a.lag >= n:
		return firstVersion
	default:
		return a.events[n-1-a.lag].version
	}
}

// apiRequest is a LIST or a WATCH.
type apiRequest struct {
	at        time.Time
	kind      string
	namespace string

	version string
	match   metav1.ResourceVersionMatch
	limit   int    // of a page
	page    string // which one to go on with

	watch     bool
	bookmarks bool
	initial   *bool // sendInitialEvents
	timeout   time.Duration
}

// whole says whether the answer is the whole state, or begins with it.
func (r *apiRequest) whole() bool {
	if !r.watch {
		return r.page == ""
	}
	if r.initial != nil {
		return *r.initial
	}
	return r.version == "" || r.version == "0"
}

// number is the version asked for.
func (r *apiRequest) number() uint64 {
	n, _ := strconv.ParseUint(r.version, 10, 64) // it was read once before
	return n
}

// readRequest takes everything a client may ask. What it does not know is an
// error: nothing may be left out of an answer for being overlooked.
func readRequest(q url.Values) (r apiRequest, err error) {
	for name, values := range q {
		value := values[0]
		switch name {
		case "watch":
			r.watch, err = strconv.ParseBool(value)
		case "allowWatchBookmarks":
			r.bookmarks, err = strconv.ParseBool(value)
		case "sendInitialEvents":
			var initial bool
			initial, err = strconv.ParseBool(value)
			r.initial = &initial
		case "resourceVersion":
			if r.version = value; value != "" {
				_, err = strconv.ParseUint(value, 10, 64)
			}
		case "resourceVersionMatch":
			r.match = metav1.ResourceVersionMatch(value)
		case "limit":
			r.limit, err = strconv.Atoi(value)
		case "continue":
			r.page = value
		case "timeoutSeconds":
			var seconds int
			seconds, err = strconv.Atoi(value)
			r.timeout = time.Duration(seconds) * time.Second
		default:
			err = fmt.Errorf("it is not known here")
		}
		if err != nil {
			return r, fmt.Errorf("parameter %s=%s: %w", name, value, err)
		}
	}
	exact, notOlder := r.match == metav1.ResourceVersionMatchExact, r.match == metav1.ResourceVersionMatchNotOlderThan
	switch {
	case r.match != "" && !exact && !notOlder:
		err = fmt.Errorf("resourceVersionMatch: %q", r.match)
	case r.watch && (r.limit != 0 || r.page != ""):
		err = fmt.Errorf("limit and continue are for lists")
	case r.watch && (r.initial == nil) != (r.match == ""), r.watch && exact:
		err = fmt.Errorf("sendInitialEvents: with a watch it needs and is needed by resourceVersionMatch=NotOlderThan")
	case !r.watch && r.initial != nil:
		err = fmt.Errorf("sendInitialEvents is for watches")
	case !r.watch && r.match != "" && r.version == "", exact && r.version == "0":
		err = fmt.Errorf("resourceVersionMatch=%s: not with resourceVersion=%q", r.match, r.version)
	case r.page != "" && r.version != "" && r.version != "0":
		err = fmt.Errorf("continue: not with a resourceVersion")
	}
	return r, err
}

func (a *fakeAPI) serve(w http.ResponseWriter, hr *http.Request, kind string) {
	if accept := hr.Header.Get("Accept"); accept != "" && !strings.Contains(accept, "application/json") && !strings.Contains(accept, "*/*") {
		refuse(w, status(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only application/json is served"))
		return
	}
	r, err := readRequest(hr.URL.Query())
	if err != nil {
		refuse(w, status(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error()))
		return
	}
	r.at, r.kind, r.namespace = time.Now(), kind, hr.PathValue("namespace")
	a.mu.Lock()
	a.requests = append(a.requests, r)
	a.mu.Unlock()
	if r.watch {
		a.watch(hr.Context(), w, &r)
		return
	}
	list, fault := a.list(hr.Context(), &r)
	if fault != nil {
		refuse(w, fault)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(list)
}

func status(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
}

func refuse(w http.ResponseWriter, s *metav1.Status) {
	w.Header().Set("Content-Type", "application/json")
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	w.WriteHeader(int(s.Code))
	json.NewEncoder(w).Encode(s)
}

func expired(version, oldest uint64) *metav1.Status {
	return status(http.StatusGone, metav1.StatusReasonExpired, fmt.Sprintf("too old resource version: %d (%d)", version, oldest))
}

func tooLarge(version, current uint64) *metav1.Status {
	s := status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, fmt.Sprintf("Too large resource version: %d, current: %d", version, current))
	s.Details = &metav1.StatusDetails{
		Causes:            []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}},
		RetryAfterSeconds: 1,
	}
	return s
}

// notOlder waits until a version is there, and returns the one that is.
func (a *fakeAPI) notOlder(ctx context.Context, version uint64) (uint64, *metav1.Status) {
	late := time.NewTimer(a.freshness)
	defer late.Stop()
	for {
		a.mu.Lock()
		visible, changed := a.visible(), a.changed
		a.mu.Unlock()
		if visible >= version {
			return visible, nil
		}
		select {
		case <-changed:
		case <-late.C:
			return 0, tooLarge(version, visible)
		case <-ctx.Done():
			return 0, tooLarge(version, visible)
		}
	}
}

// exactly returns a version that is asked for by itself.
func (a *fakeAPI) exactly(version uint64) (uint64, *metav1.Status) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case version < a.compacted:
		return 0, expired(version, a.compacted)
	case version > a.version:
		return 0, tooLarge(version, a.version)
	}
	return version, nil
}

func (a *fakeAPI) current() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.version
}

// apiPage is where the next page of a list begins.
type apiPage struct {
	Version uint64
	From    int
}

func (a *fakeAPI) list(ctx context.Context, r *apiRequest) (any, *metav1.Status) {
	if !a.delay(ctx, r.kind) {
		return nil, status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the client has gone")
	}
	var page apiPage
	var fault *metav1.Status
	limit := r.limit
	switch {
	case r.page != "":
		token, err := base64.RawURLEncoding.DecodeString(r.page)
		if err == nil {
			err = json.Unmarshal(token, &page)
		}
		if err != nil {
			return nil, status(http.StatusBadRequest, metav1.StatusReasonBadRequest, "continue: "+err.Error())
		}
		_, fault = a.exactly(page.Version)
	case r.version == "":
		page.Version = a.current()
	case r.version == "0":
		limit = 0 // of what is at hand there are no pages
		page.Version, fault = a.notOlder(ctx, 0)
	case r.match == metav1.ResourceVersionMatchExact, r.match == "" && limit > 0:
		page.Version, fault = a.exactly(r.number())
	default:
		page.Version, fault = a.notOlder(ctx, r.number())
	}
	if fault != nil {
		return nil, fault
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.listed[r.kind] = page.Version
	all := a.state(r.kind, r.namespace, page.Version)
	items := []apiObject{}
	for _, o := range all[min(page.From, len(all)):] {
		o = maps.Clone(o)
		delete(o, "kind") // as it is in lists
		delete(o, "apiVersion")
		items = append(items, o)
	}
	meta := map[string]any{"resourceVersion": strconv.FormatUint(page.Version, 10)}
	if limit > 0 && len(items) > limit {
		items = items[:limit]
		page.From += limit
		token, _ := json.Marshal(page) // two numbers
		meta["continue"] = base64.RawURLEncoding.EncodeToString(token)
	}
	return map[string]any{"kind": r.kind + "List", "apiVersion": apiKinds[r.kind].group, "metadata": meta, "items": items}, nil
}

// delay sits out how late the state of a kind is.
func (a *fakeAPI) delay(ctx context.Context, kind string) bool {
	a.mu.Lock()
	d := a.slow[kind]
	a.mu.Unlock()
	if d == 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// apiWatch is a watch that is open.
type apiWatch struct {
	*apiRequest
	version   uint64 // all up to here has been sent
	bookmark  bool   // one is to be sent
	gone      bool   // a 410 is to be sent
	exhausted bool   // it has ended
}

// frame is an event of a watch.
type frame struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

func (a *fakeAPI) watch(ctx context.Context, w http.ResponseWriter, r *apiRequest) {
	a.mu.Lock()
	gone := a.goneRequest[r.kind]
	delete(a.goneRequest, r.kind)
	a.mu.Unlock()
	if gone {
		refuse(w, expired(r.number(), a.current()))
		return
	}
	var version uint64
	var fault *metav1.Status
	switch {
	case r.version == "":
		version, fault = a.notOlder(ctx, a.current())
	case r.version == "0", r.whole():
		version, fault = a.notOlder(ctx, r.number())
	default:
		version = r.number()
	}
	if fault != nil {
		refuse(w, fault)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	send := func(frames ...frame) {
		for _, f := range frames {
			json.NewEncoder(w).Encode(f) // where it fails ctx ends
		}
		w.(http.Flusher).Flush()
	}
	send()

	a.mu.Lock()
	aw := &apiWatch{apiRequest: r, version: version, gone: a.goneWatch[r.kind]}
	delete(a.goneWatch, r.kind)
	a.watches[aw] = struct{}{}
	var initial []frame
	switch {
	case r.whole():
		a.listed[r.kind] = version
		for _, o := range a.state(r.kind, r.namespace, version) {
			initial = append(initial, frame{"ADDED", o})
		}
		if r.initial != nil && r.bookmarks {
			initial = append(initial, bookmark(r.kind, version, map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
		}
	case version < a.compacted && r.version != "0" && r.version != "":
		aw.exhausted = true
		initial = append(initial, frame{"ERROR", expired(version, a.compacted)})
	}
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.watches, aw)
	}()

	if r.whole() {
		// Where it is slow the first object is there and the others are late.
		first := 0
		if len(initial) > 0 && initial[0].Type == "ADDED" {
			first = 1
		}
		send(initial[:first]...)
		if !a.delay(ctx, r.kind) {
			return
		}
		initial = initial[first:]
	}
	if len(initial) > 0 {
		send(initial...)
	}
	for !aw.exhausted {
		frames, changed, left := a.next(aw)
		if len(frames) > 0 {
			send(frames...)
		}
		if aw.exhausted {
			return
		}
		end := time.NewTimer(left)
		select {
		case <-ctx.Done():
			aw.exhausted = true
		case <-changed:
		case <-end.C:
		}
		end.Stop()
	}
}

// next is what a watch has not been told yet, what says that there is more, and
// how long it may last.
func (a *fakeAPI) next(w *apiWatch) (frames []frame, changed <-chan struct{}, left time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	visible := a.visible()
	for _, e := range a.events {
		if e.version <= w.version || e.version > visible || e.kind != w.kind || w.namespace != "" && w.namespace != e.id.namespace {
			continue
		}
		frames = append(frames, frame{e.what, e.object})
		if e.version <= a.listed[e.kind] {
			a.replays = append(a.replays, apiReplay{time.Now(), e.kind})
		}
	}
	w.version = max(w.version, visible)
	if w.bookmark && w.bookmarks {
		frames = append(frames, bookmark(w.kind, w.version, nil))
	}
	w.bookmark = false
	if w.gone {
		frames = append(frames, frame{"ERROR", expired(w.version, a.version)})
	}
	now := time.Now()
	left = 24 * time.Hour
	if w.timeout > 0 {
		left = w.timeout - now.Sub(w.at)
	}
	if now.Before(a.earlyUntil) {
		left = min(left, a.early-now.Sub(w.at))
	}
	w.exhausted = w.gone || left <= 0
	return frames, a.changed, left
}

func bookmark(kind string, version uint64, annotations map[string]string) frame {
	meta := map[string]any{"resourceVersion": strconv.FormatUint(version, 10), "creationTimestamp": nil}
	if annotations != nil {
		meta["annotations"] = annotations
	}
	return frame{"BOOKMARK", apiObject{"kind": kind, "apiVersion": apiKinds[kind].group, "metadata": meta}}
}

// What follows goes wrong on purpose.

// compact forgets all but the last versions.
func (a *fakeAPI) compact(keep uint64) {
	a.set(func() { a.compacted = max(a.compacted, a.version-min(keep, a.version)) })
}

// advance uses up versions, as other kinds do.
func (a *fakeAPI) advance(versions uint64) { a.set(func() { a.version += versions }) }

// announce sends a bookmark into all watches that asked for such.
func (a *fakeAPI) announce() {
	a.set(func() {
		for w := range a.watches {
			w.bookmark = true
		}
	})
}

// expireWatches sends a 410 into the watches of a kind, or the next one.
func (a *fakeAPI) expireWatches(kind string) {
	a.set(func() {
		a.goneWatch[kind] = true
		for w := range a.watches {
			if w.kind == kind {
				w.gone = true
				delete(a.goneWatch, kind)
			}
		}
	})
}

// expireRequest answers the next watch of a kind with 410.
func (a *fakeAPI) expireRequest(kind string) { a.set(func() { a.goneRequest[kind] = true }) }

func (a *fakeAPI) lagBehind(events int) { a.set(func() { a.lag = events }) }

func (a *fakeAPI) slowDown(kind string, d time.Duration) { a.set(func() { a.slow[kind] = d }) }

// endEarly ends watches at an age, for some time.
func (a *fakeAPI) endEarly(age, during time.Duration) {
	a.set(func() { a.early, a.earlyUntil = age, time.Now().Add(during) })
}

// apiCounts is what clients asked for within some time.
type apiCounts struct {
	lists, watches, replayed int
	bookmarks                bool // all watches asked for them
}

// counts are those of a kind, or of all.
func (a *fakeAPI) counts(kind string, from, to time.Time) apiCounts {
	a.mu.Lock()
	defer a.mu.Unlock()
	within := func(k string, at time.Time) bool {
		return (kind == "" || kind == k) && !at.Before(from) && !at.After(to)
	}
	c := apiCounts{bookmarks: true}
	for _, r := range a.requests {
		if !within(r.kind, r.at) {
			continue
		}
		if r.whole() {
			c.lists++
		}
		if r.watch {
			c.watches++
			c.bookmarks = c.bookmarks && r.bookmarks
		}
	}
	for _, r := range a.replays {
		if within(r.kind, r.at) {
			c.replayed++
		}
	}
	return c
}
