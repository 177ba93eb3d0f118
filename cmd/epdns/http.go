package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"epdns/dnsserver"
)

// httpServer answers probes and scrapes.
//
//	/livez, /healthz   the process works; says nothing of the cluster, whose
//	                   outage must not have all replicas restarted
//	/readyz            questions should come here; see ready.go
//	/metrics           for Prometheus
//	/watch, /lookup,
//	/explain           see details.go
//	/                  the status page; see page.go
//	/debug/pprof       see pprof.go
type httpServer struct {
	handler http.Handler
	log     *slog.Logger
	failed  chan error
	room    *httpRoom
	streams streams
	page    *page
	beside  []func(context.Context) // run while it does

	// details opens to others what is for this machine only, and profiles adds what is
	// never for others.
	details, profiles atomic.Bool

	mu      sync.Mutex // of what follows
	addr    string     // as it was given; empty: none
	current *httpListener
	ctx     context.Context // of Run
}

// httpListener is one address that is served.
type httpListener struct {
	net.Listener
	server *http.Server
	ended  chan struct{}
}

// newHTTP returns a server that listens nowhere yet.
func newHTTP(p *pipeline, dns *dnsserver.Server, log *slog.Logger) *httpServer {
	h := &httpServer{log: log, failed: make(chan error, 1), room: newHTTPRoom(log), streams: make(streams, maxStreams)}
	h.page = newPage(p, dns, h)
	h.beside = append(h.beside, h.page.rates.run)
	live := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", live)
	mux.HandleFunc("GET /healthz", live)
	mux.HandleFunc("GET /readyz", serveReady(p, dns))
	mux.Handle("GET /metrics", promhttp.HandlerFor(newMetrics(p, dns, h.room), promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	mux.Handle("GET /watch", h.detailed(h.streams.limited(serveWatch(p.registry))))
	mux.Handle("GET /lookup", h.detailed(serveLookup(dns.NewResponder)))
	mux.Handle("GET /explain", h.detailed(serveExplain(dns.NewResponder, h.page.begin)))
	h.page.handle(mux)
	h.handleProfiles(mux)
	h.handler = mux
	return h
}

// listenHTTP returns a server that listens on addr.
func listenHTTP(addr string, p *pipeline, dns *dnsserver.Server, log *slog.Logger) (*httpServer, error) {
	h := newHTTP(p, dns, log)
	l, err := h.bind(addr)
	if err != nil {
		return nil, err
	}
	h.moveTo(addr, l)
	return h, nil
}

// Addr is where it listens, nil for nowhere.
func (h *httpServer) Addr() net.Addr {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.current == nil {
		return nil
	}
	return h.current.Addr()
}

// bind binds an address to be moved to: none where it is the one already, or empty. What
// is served stays as it is.
func (h *httpServer) bind(addr string) (net.Listener, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if addr == "" || addr == h.addr {
		return nil, nil
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		if h.current != nil && errors.Is(err, syscall.EADDRINUSE) && portOf(addr) == portOf(h.current.Addr().String()) {
			return nil, fmt.Errorf("listen on %s for HTTP: %s, which is listened on until then, has that port: a restart can change it", addr, h.addr)
		}
		return nil, fmt.Errorf("listen on %s for HTTP: %w", addr, dnsserver.ExplainListen(err))
	}
	return l, nil
}

func portOf(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	return port
}

// moveTo serves on what bind has bound, and where that was before no more, but for
// replies that are under way.
func (h *httpServer) moveTo(addr string, l net.Listener) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if addr == h.addr {
		return
	}
	old := h.current
	h.addr, h.current = addr, nil
	if l != nil {
		h.current = &httpListener{Listener: l, ended: make(chan struct{})}
		h.start()
	}
	if old != nil {
		go old.shutdown()
	}
}

// start serves what is current, within Run. It needs h.mu.
func (h *httpServer) start() {
	c := h.current
	if c == nil || h.ctx == nil {
		return
	}
	ctx, stop := context.WithCancel(h.ctx) // streams end with it
	c.server = &http.Server{
		Handler:           h.handler,
		MaxHeaderBytes:    16 << 10,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second, // of a body, too, which no request needs
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(h.log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnState:         h.room.note,
	}
	c.server.RegisterOnShutdown(stop)
	go func() {
		defer close(c.ended)
		if err := c.server.Serve(c.Listener); !errors.Is(err, http.ErrServerClosed) {
			select {
			case h.failed <- fmt.Errorf("serve HTTP: %w", err):
			default:
			}
		}
	}()
}

// shutdown lets go of the address, and waits a second for replies that are under way.
func (c *httpListener) shutdown() {
	if c.server == nil {
		c.Close()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if c.server.Shutdown(ctx) != nil {
		c.server.Close()
	}
	<-c.ended
}

// Run serves until ctx ends, and a second more for replies that are under way.
func (h *httpServer) Run(ctx context.Context) error {
	h.mu.Lock()
	h.ctx = ctx
	h.start()
	h.mu.Unlock()
	for _, run := range h.beside {
		go run(ctx)
	}
	var err error
	select {
	case <-ctx.Done():
	case err = <-h.failed:
	}
	h.mu.Lock()
	last := h.current
	h.current, h.ctx = nil, nil
	h.mu.Unlock()
	if last != nil {
		last.shutdown()
	}
	return err
}
