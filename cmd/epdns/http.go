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
type httpServer struct {
	net.Listener
	handler http.Handler
	log     *slog.Logger
}

func listenHTTP(addr string, p *pipeline, dns *dnsserver.Server, log *slog.Logger) (*httpServer, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen on %s for HTTP: %w", addr, err)
	}
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
	return &httpServer{l, mux, log}, nil
}

// Run serves until ctx ends.
func (h *httpServer) Run(ctx context.Context) error {
	s := &http.Server{
		Handler:           h.handler,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(h.log.Handler(), slog.LevelWarn),
	}
	stop := context.AfterFunc(ctx, func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if s.Shutdown(end) != nil {
			s.Close()
		}
	})
	defer stop()
	if err := s.Serve(h.Listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve HTTP: %w", err)
	}
	return nil
}
