package fakeapi

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if _, pattern := s.mux.Handler(r); pattern == "" {
		s.format(r).refuse(w, status(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource"))
		return
	}
	s.mux.ServeHTTP(w, r)
}

func (s *Server) serveVersion(w http.ResponseWriter, r *http.Request) {
	if s.Minor == "" {
		s.format(r).refuse(w, status(http.StatusNotFound, metav1.StatusReasonNotFound, "the server does not tell its version"))
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	json.NewEncoder(w).Encode(version.Info{Major: "1", Minor: s.Minor, GitVersion: "v1." + s.Minor + ".0"})
}

func (s *Server) serve(w http.ResponseWriter, hr *http.Request, kind string) {
	f := s.format(hr)
	if f == nil {
		f.refuse(w, status(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "nothing that is accepted is served"))
		return
	}
	r, err := readRequest(hr.URL.Query(), s.VersionPrefix)
	if err != nil {
		f.refuse(w, status(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error()))
		return
	}
	r.at, r.Kind, r.namespace, r.Header = time.Now(), kind, hr.PathValue("namespace"), hr.Header
	s.mu.Lock()
	s.requests = append(s.requests, r)
	fault := s.refusal(&r)
	s.mu.Unlock()
	if fault == nil && r.Watch {
		fault = s.watch(hr.Context(), w, f, &r)
	} else if fault == nil {
		var list runtime.Object
		if list, fault = s.list(hr.Context(), &r); fault == nil {
			f.answer(w, http.StatusOK, list)
		}
	}
	if fault != nil {
		f.refuse(w, fault)
	}
}

func status(code int, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
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
func (s *Server) notOlder(ctx context.Context, version uint64) (uint64, *metav1.Status) {
	late := time.NewTimer(s.Freshness)
	defer late.Stop()
	for {
		s.mu.Lock()
		visible, changed := s.visible(), s.changed
		s.mu.Unlock()
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
func (s *Server) exactly(version uint64) (uint64, *metav1.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case version < s.compacted:
		return 0, expired(version, s.compacted)
	case version > s.version:
		return 0, tooLarge(version, s.version)
	}
	return version, nil
}

func (s *Server) current() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version
}

// page is where the next page of a list begins.
type page struct {
	Version uint64
	From    int
}

func (s *Server) list(ctx context.Context, r *Request) (runtime.Object, *metav1.Status) {
	if !s.delay(ctx, r.Kind) {
		return nil, status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the client has gone")
	}
	var page page
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
		_, fault = s.exactly(page.Version)
	case r.version == "":
		page.Version = s.current()
	case r.version == "0":
		limit = 0 // of what is at hand there are no pages
		page.Version, fault = s.notOlder(ctx, 0)
	case r.match == metav1.ResourceVersionMatchExact, r.match == "" && limit > 0:
		page.Version, fault = s.exactly(r.number())
	default:
		page.Version, fault = s.notOlder(ctx, r.number())
	}
	if fault != nil {
		return nil, fault
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	page.Version = s.olderVersion(r, page.Version)
	s.listed[r.Kind] = page.Version
	all := s.state(r.Kind, r.namespace, page.Version)
	items := []runtime.Object{}
	for _, o := range all[min(page.From, len(all)):] {
		o = o.DeepCopyObject()
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as it is in lists
		items = append(items, o)
	}
	next := ""
	if limit > 0 && len(items) > limit {
		items = items[:limit]
		page.From += limit
		token, _ := json.Marshal(page) // two numbers
		next = base64.RawURLEncoding.EncodeToString(token)
	}
	return listOf(r.Kind, items, s.versionText(page.Version), next), nil
}

// olderVersion is the version that a list has in place of the right one.
func (s *Server) olderVersion(r *Request, right uint64) uint64 {
	if s.older == 0 || s.olderKind != r.Kind || r.page != "" {
		return right
	}
	s.older--
	if at := len(s.events) - 1 - s.olderThan; at >= 0 {
		return s.events[at].version
	}
	return firstVersion
}

// listOf makes a list as it is sent. next is where the next page begins.
func listOf(kind string, items []runtime.Object, version, next string) runtime.Object {
	gvk := kinds[kind].group.WithKind(kind + "List")
	list, err := scheme.New(gvk)
	if err == nil {
		err = meta.SetList(list, items)
	}
	if err != nil {
		panic("fakeapi: " + err.Error())
	}
	list.GetObjectKind().SetGroupVersionKind(gvk)
	m := list.(metav1.ListMetaAccessor).GetListMeta()
	m.SetResourceVersion(version)
	m.SetContinue(next)
	return list
}

// delay sits out how late the state of a kind is.
func (s *Server) delay(ctx context.Context, kind string) bool {
	s.mu.Lock()
	d := s.slow[kind]
	s.mu.Unlock()
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

// watch is a watch that is open.
type watch struct {
	*Request
	version   uint64  // all up to here has been sent
	bookmark  bool    // one is to be sent
	gone      bool    // a 410 is to be sent
	damage    Damage  // of the next event
	exhausted bool    // it has ended
	replay    []event // to be sent once more
}

// frame is an event of a watch, as it is sent.
type frame struct {
	what   string
	object runtime.Object
	damage Damage
}

// watch sends events until the watch ends, unless it does not even begin.
func (s *Server) watch(ctx context.Context, w http.ResponseWriter, f *format, r *Request) *metav1.Status {
	var version uint64
	var fault *metav1.Status
	switch {
	case r.version == "":
		version, fault = s.notOlder(ctx, s.current())
	case r.version == "0", r.whole():
		version, fault = s.notOlder(ctx, r.number())
	default:
		version = r.number()
	}
	if fault != nil {
		return fault
	}
	w.Header().Set("Content-Type", f.streamType())
	send := func(frames ...frame) {
		for _, e := range frames {
			f.send(w, e) // where it fails ctx ends
		}
		w.(http.Flusher).Flush()
	}

	s.mu.Lock()
	aw := &watch{Request: r, version: version, gone: s.goneWatch[r.Kind], damage: s.damaged[r.Kind]}
	delete(s.goneWatch, r.Kind)
	delete(s.damaged, r.Kind)
	s.watches[aw] = struct{}{}
	var initial []frame
	switch {
	case r.whole():
		version = s.olderVersion(r, version)
		aw.version, s.listed[r.Kind] = version, version
		for _, o := range s.state(r.Kind, r.namespace, version) {
			initial = append(initial, frame{"ADDED", o, aw.takeDamage()})
		}
		if r.initial != nil && r.bookmarks && !s.endless {
			initial = append(initial, bookmark(r.Kind, s.versionText(version), map[string]string{metav1.InitialEventsAnnotationKey: "true"}))
		}
	case version < s.compacted && r.version != "0" && r.version != "":
		aw.exhausted = true
		initial = append(initial, frame{what: "ERROR", object: expired(version, s.compacted)})
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watches, aw)
	}()

	send() // the head: who has it misses nothing from here on
	if r.whole() {
		// Where it is slow the first object is there and the others are late.
		first := 0
		if len(initial) > 0 && initial[0].what == "ADDED" {
			first = 1
		}
		send(initial[:first]...)
		if !s.delay(ctx, r.Kind) {
			return nil
		}
		initial = initial[first:]
	}
	if len(initial) > 0 {
		send(initial...)
	}
	for !aw.exhausted {
		frames, changed, left := s.next(aw)
		if len(frames) > 0 {
			send(frames...)
		}
		if aw.exhausted {
			break
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
	return nil
}

// takeDamage returns what is to happen to an event, once.
func (w *watch) takeDamage() Damage {
	d := w.damage
	w.damage = ""
	return d
}

// next is what a watch has not been told yet, what says that there is more, and
// how long it may last.
func (s *Server) next(w *watch) (frames []frame, changed <-chan struct{}, left time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	visible := s.visible()
	for _, e := range s.events {
		if e.version <= w.version || e.version > visible || e.untold || e.kind != w.Kind || w.namespace != "" && w.namespace != e.id.Namespace {
			continue
		}
		frames = append(frames, frame{e.what, e.object, w.takeDamage()})
		if e.version <= s.listed[e.kind] {
			s.replays = append(s.replays, replay{time.Now(), e.kind})
		}
	}
	for _, e := range w.replay {
		frames = append(frames, frame{e.what, e.object, ""})
	}
	w.replay = nil
	w.version = max(w.version, visible)
	if w.bookmark && w.bookmarks {
		frames = append(frames, bookmark(w.Kind, s.versionText(w.version), nil))
	}
	w.bookmark = false
	if w.gone {
		frames = append(frames, frame{what: "ERROR", object: expired(w.version, s.version)})
	}
	now := time.Now()
	left = 24 * time.Hour
	if w.timeout > 0 {
		left = w.timeout - now.Sub(w.at)
	}
	if now.Before(s.earlyUntil) {
		left = min(left, s.early-now.Sub(w.at))
	}
	w.exhausted = w.gone || left <= 0
	return frames, s.changed, left
}

func bookmark(kind, version string, annotations map[string]string) frame {
	o := newOf(kind)
	o.SetResourceVersion(version)
	o.SetAnnotations(annotations)
	return frame{what: "BOOKMARK", object: o}
}
