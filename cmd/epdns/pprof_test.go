package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// Profiles are for this machine, whatever else is open to others, and for nobody where they
// were not asked for.
func TestProfilesAreForThisMachine(t *testing.T) {
	const here, ours, other = "127.0.0.1:40000", "192.0.2.1:9153", "192.0.2.2:40000"
	for _, c := range []struct {
		from, to, host  string
		asked, detailed bool
		want            int
	}{
		{here, "127.0.0.1:9153", "127.0.0.1:9153", true, false, http.StatusOK},
		{here, "127.0.0.1:9153", "127.0.0.1:9153", false, true, http.StatusNotFound},
		{other, ours, ours, true, false, http.StatusNotFound},
		{other, ours, ours, true, true, http.StatusNotFound},
		{here, "127.0.0.1:9153", "epdns.example", true, true, http.StatusNotFound},
	} {
		var h httpServer
		h.profiles.Store(c.asked)
		h.details.Store(c.detailed)
		mux := http.NewServeMux()
		h.handleProfiles(mux)
		for _, page := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"} {
			w, r := httptest.NewRecorder(), request(page, c.from, c.to)
			r.Host = c.host
			if mux.ServeHTTP(w, r); w.Code != c.want {
				t.Errorf("%s from %s to %s (%s): %d, want %d", page, c.from, c.to, c.host, w.Code, c.want)
			}
		}
	}
}
