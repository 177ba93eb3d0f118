package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"epdns/dnsserver"
	"epdns/registry"
	"epdns/registry/manifest"
	"epdns/zones"
)

// grace is how long anything may take that is over in a moment on an idle machine.
const grace = 20 * time.Second

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// samplePipeline runs on the sample cluster until the test ends.
func samplePipeline(t *testing.T) *pipeline {
	t.Helper()
	return pipelineOf(t, manifest.New(manifest.Sample(), "sample", quiet), zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}})
}

// pipelineOf runs on a source until the test ends, and has read it.
func pipelineOf(t *testing.T, source registry.Source, cfg zones.Config) *pipeline {
	t.Helper()
	p, err := newPipeline(source, cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { p.Run(ctx) })
	t.Cleanup(func() { stop(); wg.Wait() })
	if !awaitSync(t.Context(), p) {
		t.Fatal("not synced")
	}
	return p
}

// atOnce lets everybody begin.
func atOnce(context.Context) (done func(), err error) { return func() {}, nil }

// request is one from and to these addresses.
func request(url, from, to string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, url, nil)
	r.RemoteAddr = from
	addr, _ := net.ResolveTCPAddr("tcp", to)
	return r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(addr)))
}

func TestDetailsAreForThisMachine(t *testing.T) {
	const here, ours, other = "127.0.0.1:40000", "192.0.2.1:9153", "192.0.2.2:40000"
	for _, c := range []struct {
		from, to string
		details  bool
		want     int
		host     string // empty: to
	}{
		{here, "127.0.0.1:9153", false, http.StatusOK, ""},
		{"[::1]:40000", "[::1]:9153", false, http.StatusOK, ""},
		{"[::ffff:127.0.0.1]:40000", "[::ffff:127.0.0.1]:9153", false, http.StatusOK, ""},
		{here, ours, false, http.StatusOK, ""},
		{ours, ours, false, http.StatusForbidden, ""},
		{other, ours, false, http.StatusForbidden, ""},
		{other, ours, true, http.StatusOK, ""},
		{"pipe", ours, false, http.StatusForbidden, ""},
		{here, "127.0.0.1:9153", false, http.StatusOK, "localhost:9153"},
		{here, "127.0.0.1:9153", false, http.StatusOK, "localhost"},
		{here, "127.0.0.1:9153", false, http.StatusForbidden, "evil.example:9153"},
		{here, "127.0.0.1:9153", true, http.StatusOK, "epdns.example:9153"},
	} {
		var h httpServer
		h.details.Store(c.details)
		w, r := httptest.NewRecorder(), request("/lookup", c.from, c.to)
		r.Host = cmp.Or(c.host, c.to)
		h.detailed(func(w http.ResponseWriter, _ *http.Request) {})(w, r)
		if w.Code != c.want {
			t.Errorf("from %s to %s, details %t: %d, want %d", c.from, c.to, c.details, w.Code, c.want)
		}
		if w.Code == http.StatusForbidden && !strings.Contains(w.Body.String(), "/lookup is for this machine only; httpDetails: true") {
			t.Errorf("it says %q", w.Body)
		}
	}
}

func TestDetailsParameters(t *testing.T) {
	store := registry.NewStore(quiet)
	mux := http.NewServeMux()
	mux.Handle("GET /watch", serveWatch(store))
	mux.Handle("GET /lookup", serveLookup(responders(&zones.Store{})))
	mux.Handle("GET /explain", serveExplain(responders(&zones.Store{}), atOnce))
	for _, c := range []struct{ path, says string }{
		{"/watch", `"service"`},
		{"/watch?service=shop", `"service"`},
		{"/watch?service=shop/Web", `"service"`},
		{"/watch?service=shop/web&service=shop/api", `"service"`},
		{"/watch?service=shop/web&all=true", `"all"`},
		{"/watch?all=maybe", `"all"`},
		{"/watch?all=false", `"service"`},
		{"/watch?al=true", `"al"`},
		{"/watch?all=%zz", "query"},
		{"/lookup", `"name"`},
		{"/lookup?name=", `"name"`},
		{"/lookup?name=a..b", `"name"`},
		{"/lookup?name=a%20b", `"name"`},
		{"/lookup?name=a.b&type=FOO", `"type"`},
		{"/lookup?name=a.b&type=AXFR", `"type"`},
		{"/lookup?name=10.0.0.1&type=A", `"type"`},
		{"/lookup?name=a.b&from=me", `"from"`},
		{"/lookup?name=a.b&from=10.0.0.1&via=tcp", `"via"`},
		{"/lookup?name=a.b&subnet=10.0.0.0/33", `"subnet"`},
		{"/lookup?name=a.b&tcp=true", `"tcp"`},
		{"/lookup?name=a.b&format=dns", `"format"`},
		{"/lookup?name=shop/web", "do you mean web.shop.registry.local?"},
		{"/explain?name=shop/web", "do you mean web.shop.registry.local?"},
		{"/explain", `"name"`},
		{"/explain?name=a..b", `"name"`},
		{"/explain?name=a.b&type=AXFR", `"type"`},
		{"/explain?name=a.b&from=me", `"from"`},
		{"/explain?name=a.b&subnet=here", `"subnet"`},
		{"/explain?name=a.b&tcp=yes", `"tcp"`},
		{"/explain?name=a.b&format=yaml", `"format"`},
		{"/explain?name=a.b&format=text&format=json", `"format"`},
		{"/explain?name=a.b&via=tcp", `"via"`},
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, c.path, nil))
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), c.says) || strings.Count(w.Body.String(), "\n") != 1 {
			t.Errorf("%s: %d %q, want 400 with %s", c.path, w.Code, w.Body, c.says)
		}
	}
}

// responders are of a server that serves these zones.
func responders(a dnsserver.Authority) func() *dnsserver.Responder {
	return func() *dnsserver.Responder { return dnsserver.NewResponder(dnsserver.Config{}, a) }
}

func TestServeLookup(t *testing.T) {
	p := samplePipeline(t)
	for _, c := range []struct {
		query  string
		rcode  int
		answer int
		first  string
	}{
		{"name=db-0.db.data.registry.local&type=A", dns.RcodeSuccess, 1, "db-0.db.data.registry.local."},
		{"name=DB-0.db.data.registry.local.", dns.RcodeSuccess, 1, "DB-0.db.data.registry.local."},
		{"name=web.shop.registry.local&type=srv&from=10.244.1.21", dns.RcodeSuccess, 12, "web.shop.registry.local."},
		{"name=10.244.1.21", dns.RcodeSuccess, 1, "21.1.244.10.in-addr.arpa."},
		{"name=nope.shop.registry.local&type=TYPE65280", dns.RcodeNameError, 0, ""},
		{"name=www.example.com", dns.RcodeRefused, 0, ""},
	} {
		w := httptest.NewRecorder()
		serveLookup(responders(p.zones))(w, httptest.NewRequest(http.MethodGet, "/lookup?"+c.query, nil))
		m, err := unpackReply(w.Body.Bytes())
		if err != nil || w.Code != http.StatusOK || w.Header().Get("Content-Type") != dnsMessage {
			t.Errorf("%s: %d %v %v", c.query, w.Code, w.Header(), err)
			continue
		}
		if m.Rcode != c.rcode || len(m.Answer) != c.answer || c.answer > 0 && m.Answer[0].Header().Name != c.first {
			t.Errorf("%s: %v", c.query, m)
		}
	}
}

func TestServeLookupForms(t *testing.T) {
	p := samplePipeline(t)
	const json, text = "application/json", "text/plain; charset=utf-8"
	for _, c := range []struct {
		query, accept, form, begins string
	}{
		{"", "", dnsMessage, ""},
		{"", "*/*", dnsMessage, ""},
		{"", "text/html,application/xhtml+xml,*/*;q=0.8", dnsMessage, ""},
		{"", dnsMessage + ", text/plain", dnsMessage, ""},
		{"", "text/html, text/plain;q=0.5", text, ";; status: NOERROR, flags: qr aa rd; answer: 1,"},
		{"", "application/json", json, `{"name":"jobs.shop.registry.local.","type":"A","status":"NOERROR",`},
		{"&format=json", "text/plain", json, `{"name":"jobs.shop.registry.local.","type":"A","status":"NOERROR",`},
		{"&format=text", dnsMessage, text, ";; status: NOERROR, flags: qr aa rd; answer: 1,"},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/lookup?name=jobs.shop.registry.local"+c.query, nil)
		if c.accept != "" {
			r.Header.Set("Accept", c.accept)
		}
		serveLookup(responders(p.zones))(w, r)
		if got := w.Header().Get("Content-Type"); got != c.form || w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), c.begins) {
			t.Errorf("%q, Accept %q: %d %s, want %s\n%s", c.query, c.accept, w.Code, got, c.form, w.Body)
		}
	}
}

// pipes is a listener of connections within the process.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return pipeAddr{} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-p.done:
		return nil, errors.New("closed")
	}
}

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// A stream waits for the sync, is never silent for long, outlives the time that
// other replies may take, and ends with the server. The bubble ends only if no
// goroutine is left.
func TestWatchStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := registry.NewStore(quiet)
		mux := http.NewServeMux()
		mux.Handle("GET /watch", serveWatch(store))
		l := newPipes()
		h := &httpServer{handler: mux, log: quiet, room: newHTTPRoom(quiet)}
		h.moveTo("pipes", l)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := h.Run(ctx); err != nil {
				t.Error(err)
			}
		})

		client := &http.Client{Transport: &http.Transport{DialContext: l.dial}}
		resp, err := client.Get("http://epdns/watch?all=true")
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(resp.Body)
		begun := time.Now()
		expect := func(prefix string, after time.Duration) {
			t.Helper()
			for lines.Scan() {
				if lines.Text() == "" {
					continue
				}
				if !strings.HasPrefix(lines.Text(), prefix) || time.Since(begun) != after {
					t.Fatalf("%q after %v, want %q after %v", lines.Text(), time.Since(begun), prefix, after)
				}
				return
			}
			t.Fatalf("the stream ended: %v", lines.Err())
		}
		expect(": epdns", 0)
		expect("event: waiting", 0)
		expect("data: ", 0)
		expect(": alive", heartbeat)

		source := manifest.New(manifest.Sample(), "sample", quiet)
		wg.Go(func() { source.Run(ctx, store) })
		<-store.Synced()
		n := int(store.Stats().Endpoints)
		for range n {
			expect(`data: {"time":`, heartbeat)
		}
		expect("event: services", heartbeat)
		expect(fmt.Sprintf("data: %d", store.Stats().Services), heartbeat)
		for i := range 20 { // five minutes
			expect(": alive", time.Duration(i+2)*heartbeat)
		}
		stop()
		if lines.Scan() && lines.Text() != "" || lines.Scan() {
			t.Errorf("behind the end: %q", lines.Text())
		}
		if lines.Err() != nil {
			t.Errorf("the stream was cut: %v", lines.Err())
		}
		resp.Body.Close()
		client.CloseIdleConnections()
		wg.Wait()
		if took := time.Since(begun) - 21*heartbeat; took > time.Second {
			t.Errorf("it took %v to end", took)
		}
	})
}

// A reader who does not read is let go.
func TestWatchStreamStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := registry.NewStore(quiet)
		l := newPipes()
		h := &httpServer{handler: serveWatch(store), log: quiet, room: newHTTPRoom(quiet)}
		h.moveTo("pipes", l)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { h.Run(ctx) })
		c, err := l.dial(ctx, "", "")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "GET /watch?all=true HTTP/1.1\r\nHost: epdns\r\n\r\n")
		synctest.Wait()
		if !streaming() {
			t.Error("there is no stream")
		}
		time.Sleep(2 * patience) // of the bubble's clock
		synctest.Wait()
		if streaming() {
			t.Error("the stream still waits for its reader")
		}
		c.Close()
		stop()
		wg.Wait()
	})
}

// streaming says whether there is a goroutine that sends changes.
func streaming() bool {
	var stacks bytes.Buffer
	pprof.Lookup("goroutine").WriteTo(&stacks, 1)
	return strings.Contains(stacks.String(), ".streamChanges+")
}

// Whoever goes takes the stream along.
func TestWatchStreamsLeaveNothing(t *testing.T) {
	p := samplePipeline(t)
	server := httptest.NewServer(serveWatch(p.registry))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	for range 20 {
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/watch?all=true", nil)
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	if !streaming() {
		t.Error("there is no stream")
	}
	cancel()
	deadline := time.After(grace)
	for streaming() {
		select {
		case <-deadline:
			t.Fatal("a stream is still there")
		case <-time.After(time.Millisecond):
		}
	}
}
