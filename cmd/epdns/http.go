package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"epdns/dnsserver"
)

// httpServer answers probes and scrapes.
//
//	/livez, /healthz   the process works; says nothing of the cluster, whose
//	                   outage must not have all replicas restarted
//	/readyz            all that exists has been read once
//	/metrics           for Prometheus
//	/watch, /lookup,
//	/explain           see details.go
type httpServer struct {
	net.Listener
	handler http.Handler
	log     *slog.Logger

	// details opens to others what is for this machine only. It is set before Run.
	details bool
}

func listenHTTP(addr string, p *pipeline, dns *dnsserver.Server, log *slog.Logger) (*httpServer, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s for HTTP: %w", addr, dnsserver.ExplainListen(err))
	}
	h := &httpServer{Listener: l, log: log}
	live := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", live)
	mux.HandleFunc("GET /healthz", live)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !p.synced.Load() {
			http.Error(w, "not ready: "+p.source.String()+" has not been read yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(newMetrics(p, dns), promhttp.HandlerOpts{}))
	mux.Handle("GET /watch", h.detailed(serveWatch(p.registry)))
	mux.Handle("GET /lookup", h.detailed(serveLookup(dns.NewResponder)))
	mux.Handle("GET /explain", h.detailed(serveExplain(dns.NewResponder)))
	h.handler = mux
	return h, nil
}

// Run serves until ctx ends, and a second more for replies that are under way.
func (h *httpServer) Run(ctx context.Context) error {
	s := &http.Server{
		Handler:           h.handler,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(h.log.Handler(), slog.LevelWarn),
		// Streams end with ctx.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if s.Shutdown(end) != nil {
			s.Close()
		}
	})
	err := s.Serve(h.Listener)
	if !stop() {
		<-ended
	}
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}
