package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"epdns/dnsserver"
	"epdns/registry/kube"
	"epdns/registry/manifest"
	"epdns/zones"
)

// lost is a source whose watch has been lost since then.
type lost struct {
	*manifest.Source
	since time.Time
}

func (l *lost) Status() []kube.FeedStatus {
	return []kube.FeedStatus{{Kind: "EndpointSlice", Lost: l.since}, {Kind: "Node", Off: true, Lost: time.Unix(1, 0), Missed: "no regions", Grant: "nodes"}}
}

// What is known may be as old as it gets, unless there is a limit.
func TestReadyMaxAge(t *testing.T) {
	for _, c := range []struct {
		what      string
		most, age time.Duration // no age: not lost
		says      string        // empty: ready
	}{
		{"in touch, no limit", 0, 0, ""},
		{"lost, no limit", 0, 100 * time.Hour, ""},
		{"in touch, a limit", time.Minute, 0, ""},
		{"lost for less", time.Minute, 30 * time.Second, ""},
		{"lost for longer", time.Minute, 2 * time.Minute, "[-]age failed: what is known is 2m0s old, more than readyMaxAge, 1m0s\n"},
	} {
		source := &lost{Source: manifest.New(manifest.Sample(), "sample", quiet)}
		if c.age > 0 {
			source.since = time.Now().Add(-c.age)
		}
		p, err := newPipeline(source, zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}}, quiet)
		if err != nil {
			t.Fatal(err)
		}
		p.synced.Store(true)
		p.readyMaxAge.Store(int64(c.most))
		dns := dnsserver.New(p.zones, quiet)
		w := httptest.NewRecorder()
		serveReady(p, dns)(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		body := strings.Replace(w.Body.String(), "[-]dns failed: questions are not answered yet\n", "[+]dns ok\n", 1)
		if w.Code != http.StatusServiceUnavailable || strings.Contains(body, "[-]") != (c.says != "") || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d %s", c.what, w.Code, w.Body)
		}
		// A kind that may not be listed is said, and is no failure.
		if off := "[+]nodes off: no regions; grant nodes\n"; strings.Count(body, off) != 1 {
			t.Errorf("%s: %q is not said once: %s", c.what, off, body)
		}
	}
}
