package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"epdns/dnsserver"
)

// The status page is for people who want to see what a server knows and does:
//
//	/                             what it is, how it goes, what is asked for most
//	/services, /service, /ask     see page_services.go and page_ask.go
//	/live?view=…                  what changes on one of these, as server-sent events
//	/status.json, /status         the first of them for programs; see page_status.go
//	/page/…                       style, script and icon
//
// It is as /watch for this machine, unless it was opened to others. All of it is made here
// and works without the script, which only puts what is new in its place. Nothing is loaded
// from elsewhere, and a policy has the browser see to that. Whatever a cluster has in it is
// text: html/template escapes it.

// page makes them.
type page struct {
	p    *pipeline
	dns  *dnsserver.Server
	http *httpServer

	build     buildInfo
	rates     *rates
	directory *directory
	busy      chan struct{} // places for who has much to do

	mu   sync.Mutex
	rest *time.Timer // until nobody counts what is asked for most
}

const (
	// maxBusy is how many explanations are made at once: each takes one processor, of a
	// Service of 100,000 endpoints for some tenths of a second.
	maxBusy = 2

	// busyWait is how long others wait for their turn.
	busyWait = 5 * time.Second

	// lookedAt is for how long a page counts as looked at: so long is counted what is
	// asked for most.
	lookedAt = 10 * time.Minute

	// liveEvery is how often what is shown is looked at.
	liveEvery = time.Second
)

func newPage(p *pipeline, dns *dnsserver.Server, h *httpServer) *page {
	return &page{
		p: p, dns: dns, http: h, build: readBuildInfo(),
		rates:     &rates{dns: dns},
		directory: &directory{store: p.registry, changes: p.publishes.Load},
		busy:      make(chan struct{}, maxBusy),
	}
}

// handle has the pages among those of a server.
func (g *page) handle(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", g.serveRoot)
	for path, of := range g.views() {
		if path != "/" {
			mux.Handle("GET "+path, g.http.detailed(g.serveView(of)))
		}
	}
	mux.Handle("GET /live", g.http.detailed(g.http.streams.limited(g.serveLive)))
	mux.Handle("GET /status.json", g.http.detailed(g.serveStatus))
	mux.Handle("GET /status", g.http.detailed(g.serveStatusOrPage))
	mux.Handle("GET /page/{file}", g.http.detailed(serveFile))
}

// viewOf makes what a URL shows.
type viewOf func(context.Context, *url.URL) (*view, error)

func (g *page) views() map[string]viewOf {
	return map[string]viewOf{"/": g.overview, "/services": g.services, "/service": g.service, "/ask": g.ask}
}

// view is what one page shows.
type view struct {
	Title    string
	Nav      string // which of the pages it is
	Template string
	Status   int // of HTTP; 0: 200
	Data     any

	// Parts are the templates of what may change while it is looked at, each in an
	// element of that id; Version is another one when they may have. nil: always.
	Parts   []string
	Version any

	// Make, unless nil, makes Data: what takes long is not made where Version is the same.
	Make func(context.Context) (any, error)

	Live string // the URL of the stream of that
	Head *pageStatus
}

// viewSince makes what a URL shows, without Parts and Data if its Version is the one before.
func (g *page) viewSince(ctx context.Context, of viewOf, u *url.URL, before any) (*view, error) {
	v, err := of(ctx, u)
	if err != nil {
		return nil, err
	}
	if v.Version != nil && v.Version == before {
		v.Parts = nil
		return v, nil
	}
	if v.Make != nil {
		v.Data, err = v.Make(ctx)
	}
	return v, err
}

// head is what the head of each page shows.
func (g *page) head() *pageStatus {
	now := time.Now()
	s := &pageStatus{Build: g.build, Time: now, Ready: true}
	g.ready(s, now)
	return s
}

// serveRoot is the status page, for whom it is; others learn what there is for them.
func (g *page) serveRoot(w http.ResponseWriter, r *http.Request) {
	if g.http.isFor(r) {
		g.serveView(g.overview)(w, r)
		return
	}
	protect(w)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprint(w, `epdns, a DNS server.

/livez, /readyz   whether it works, and whether it is ready (/readyz?verbose)
/metrics          for Prometheus

The status page is for this machine only, and so are /status.json, /watch, /lookup and /explain.
From elsewhere: kubectl port-forward POD 9153, or ssh -L 9153:localhost:9153 HOST, and then
http://localhost:9153/. "httpDetails: true" in the configuration opens them to all who get here.
`)
}

// overview is the first page.
func (g *page) overview(_ context.Context, u *url.URL) (*view, error) {
	if _, err := parameters(u); err != nil {
		return nil, errorOf(http.StatusBadRequest, err)
	}
	s := g.status(time.Now())
	return &view{Title: "Status", Nav: "status", Template: "overview", Parts: []string{"state", "numbers", "zones", "watches", "problems", "top", "server"}, Data: overviewView{
		pageStatus: s, Bars: barsOf(g.rates.bars()), askView: askView{Types: askTypes, Type: "A", page: g},
	}}, nil
}

type overviewView struct {
	*pageStatus
	askView
	Bars bars
}

// bars are heights of 0 to 100, and the rate that is 100.
type bars struct {
	Most    float64
	Heights []bar
}

type bar struct{ X, Y, H int }

// barSpace is the room of a bar, of which a part is left free.
const barSpace = 4

func barsOf(rates []float64) (b bars) {
	for _, r := range rates {
		b.Most = max(b.Most, r)
	}
	for i, r := range rates {
		h := 0
		if r > 0 {
			h = max(2, int(r*40/b.Most))
		}
		b.Heights = append(b.Heights, bar{i * barSpace, 40 - h, h})
	}
	return b
}

// begin waits for a place among those who have much to do. done gives it back.
func (g *page) begin(ctx context.Context) (done func(), err error) {
	late := time.NewTimer(busyWait)
	defer late.Stop()
	select {
	case g.busy <- struct{}{}:
		return func() { <-g.busy }, nil
	case <-late.C:
		return nil, errBusy
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// look notes that somebody looks: what is asked for most is counted from now on.
func (g *page) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dns.CountTop(true)
	if g.rest == nil {
		g.rest = time.AfterFunc(lookedAt, func() { g.dns.CountTop(false) })
	}
	g.rest.Reset(lookedAt)
}

// serveView answers with a page.
func (g *page) serveView(of viewOf) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g.look()
		v, err := g.viewSince(r.Context(), of, r.URL, nil)
		if err != nil {
			v = &view{Title: "Error", Template: "error", Status: statusOf(err), Data: err.Error()}
			if v.Status == http.StatusServiceUnavailable {
				w.Header().Set("Retry-After", "5")
			}
		}
		v.Head = g.head()
		if len(v.Parts) > 0 {
			query := r.URL.Query()
			query.Set("view", strings.TrimPrefix(r.URL.Path, "/"))
			v.Live = "live?" + query.Encode()
		}
		var out bytes.Buffer
		if err := templates().ExecuteTemplate(&out, "page", v); err != nil {
			g.http.log.Error("make a page", "path", r.URL.Path, "error", err)
			http.Error(w, "the page cannot be made: "+err.Error(), http.StatusInternalServerError)
			return
		}
		protect(w)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if v.Status != 0 {
			w.WriteHeader(v.Status)
		}
		w.Write(out.Bytes())
	}
}

// protect sets what browsers are to see to.
func protect(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "+
		"form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// serveLive streams the parts of a page that are other ones than before: an event is a JSON
// object of HTML by the id of its element. Nothing is made again where nothing has happened.
func (g *page) serveLive(w http.ResponseWriter, r *http.Request) {
	u := *r.URL
	query := u.Query()
	path := "/" + query.Get("view")
	query.Del("view")
	u.RawQuery = query.Encode()
	of, ok := g.views()[path]
	if !ok {
		badRequest(w, fmt.Errorf("parameter %q: %q is no page", "view", cut(path[1:])))
		return
	}
	v, err := g.viewSince(r.Context(), of, &u, nil)
	if err != nil {
		http.Error(w, err.Error(), statusOf(err))
		return
	}
	if len(v.Parts) == 0 {
		badRequest(w, fmt.Errorf("parameter %q: nothing changes on %q while it is looked at", "view", path[1:]))
		return
	}
	protect(w)
	send := beginStream(w)
	if r.Method == http.MethodHead {
		return
	}
	g.live(r.Context(), v, func(before any) (*view, error) { return g.viewSince(r.Context(), of, &u, before) }, send)
}

func (g *page) live(ctx context.Context, v *view, since func(before any) (*view, error), send func([]byte) bool) {
	tick := time.NewTicker(liveEvery)
	defer tick.Stop()
	sent, silent, gone := map[string]string{}, time.Now(), false
	var version any
	for {
		g.look()
		if v != nil {
			v.Head = g.head()
			version, gone = v.Version, false
			news, err := v.news(sent)
			if err != nil {
				g.http.log.Error("make a part of a page", "error", err)
				return
			}
			if len(news) > 0 {
				silent = time.Now()
				if !send(appendEvent(nil, "", news)) {
					return
				}
			}
		}
		if time.Since(silent) >= heartbeat {
			silent = time.Now()
			if !send([]byte(": alive\n\n")) {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var err error
		if v, err = since(version); err == nil {
			continue
		}
		v = nil // it may be back, or there may be a place to make it
		if statusOf(err) == http.StatusNotFound && !gone {
			gone, version = true, nil
			clear(sent) // whatever comes then is news
			if !send(appendEvent(nil, "gone", nil)) {
				return
			}
		}
	}
}

// news are the parts that are not as they were sent, as JSON; nothing where there are none.
func (v *view) news(sent map[string]string) ([]byte, error) {
	news := map[string]string{}
	for _, part := range append([]string{"head"}, v.Parts...) {
		var out strings.Builder
		data := v.Data
		if part == "head" {
			data = v.Head
		}
		if err := templates().ExecuteTemplate(&out, part, data); err != nil {
			return nil, err
		}
		if text := out.String(); sent[part] != text {
			sent[part], news[part] = text, text
		}
	}
	if len(news) == 0 {
		return nil, nil
	}
	return json.Marshal(news)
}

//go:embed page
var pageFiles embed.FS

// templates are parsed when they are first needed.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(template.FuncMap{
		"num": numberText, "rate": rateText, "share": shareText, "small": secondsText,
		"since": sinceText, "span": spanText, "sinceSpan": func(now, at time.Time) string { return durationText(now.Sub(at)) },
		"share64":   func(of, all int64) int { return share(int(of), int(all)) },
		"inc":       func(i int) int { return i + 1 },
		"byCount":   byCount,
		"placeName": placeName,
		"condition": conditionTone,
		"spaced":    func(list string) string { return strings.ReplaceAll(list, ",", ", ") },
	}).ParseFS(pageFiles, "page/*.html"))
})

// file is a file that pages need, with a tag that tells it from other versions.
type file struct {
	form, tag string
	text      []byte
}

var files = sync.OnceValue(func() map[string]file {
	out := map[string]file{}
	for name, form := range map[string]string{
		"page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		text, err := fs.ReadFile(pageFiles, path.Join("page", name))
		if err != nil {
			panic("epdns: " + err.Error())
		}
		sum := sha256.Sum256(text)
		out[name] = file{form, `"` + hex.EncodeToString(sum[:8]) + `"`, text}
	}
	return out
})

func serveFile(w http.ResponseWriter, r *http.Request) {
	f, ok := files()[r.PathValue("file")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	protect(w)
	w.Header().Set("Content-Type", f.form)
	w.Header().Set("Cache-Control", "no-cache") // but a look whether it is the same
	w.Header().Set("ETag", f.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.text))
}

// statusError is an error with a status of HTTP.
type statusError struct {
	error
	status int
}

func (e statusError) Unwrap() error { return e.error }

func errorOf(status int, err error) error { return statusError{err, status} }

func statusOf(err error) int {
	if e := (statusError{}); errors.As(err, &e) {
		return e.status
	}
	return http.StatusInternalServerError
}
