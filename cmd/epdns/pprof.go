package main

import (
	"context"
	"net/http"
	"net/http/pprof"
	"time"
)

// handleProfiles has /debug/pprof among the pages: for this machine only, whatever else is
// open to others, and only where it was asked for.
func (h *httpServer) handleProfiles(mux *http.ServeMux) {
	for path, page := range map[string]http.HandlerFunc{
		"/debug/pprof/":        pprof.Index, // and by name what there is of the heap, goroutines and so on
		"/debug/pprof/cmdline": pprof.Cmdline,
		"/debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol":  pprof.Symbol,
		"/debug/pprof/trace":   pprof.Trace,
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if !h.profiles.Load() || !overLoopback(r) || !byAddress(r.Host) {
				http.NotFound(w, r)
				return
			}
			page(unhurried(w, r))
		})
	}
}

// unhurried lets a page take as long as it was asked to. What is profiled takes longer than
// the other pages may: their limit is lifted, and hidden from package pprof, which looks for
// it at the server.
func unhurried(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Time{})
	control.SetWriteDeadline(time.Time{})
	return w, r.WithContext(context.WithValue(r.Context(), http.ServerContextKey, nil))
}
