package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strings"
	"testing"
)

// What servers say of themselves, and what is made of it.
func TestSeenServer(t *testing.T) {
	const metrics = `# HELP epdns_build_info x
# TYPE epdns_build_info gauge
epdns_build_info{goversion="go1.26",version="v1.2.3"} 1
epdns_synced 1
epdns_stale 0
epdns_answers_age_seconds 0
epdns_services 12
epdns_endpoints{ready="false"} 3
epdns_endpoints{ready="true"} 1e+02
epdns_zone_serial 1.79603809e+09
epdns_annotation_problems 2
`
	for _, c := range []struct {
		what           string
		code           int
		ready, metrics string
		want           seenServer
		knows          string
	}{
		{"all is well", 200, "[+]dns ok\n[+]sync ok\nreadyz check passed\n", metrics,
			seenServer{Ready: true, Version: "v1.2.3", Synced: true, Services: 12, Endpoints: 103, ReadyEnds: 100, Serial: 1796038090, Problems: 2}, "current"},
		{"nothing has been read", 503, "[+]dns ok\n[-]sync failed: cluster x has not been read yet\nreadyz check failed\n", "epdns_synced 0\n",
			seenServer{Why: []string{"sync failed: cluster x has not been read yet"}}, "nothing-yet"},
		{"stale", 200, "[+]dns ok\n", "epdns_synced 1\nepdns_stale 1\nepdns_answers_age_seconds 125.2\n",
			seenServer{Ready: true, Synced: true, Stale: true, Age: 125.2}, "stale,2m5s-old"},
		{"a while ago", 200, "[+]dns ok\n", "epdns_synced 1\nepdns_answers_age_seconds 12\n", seenServer{Ready: true, Synced: true, Age: 12}, "12s-old"},
		{"after a restart", 200, "[+]dns ok\n", "epdns_synced 1\nepdns_state_restored 1\nepdns_answers_age_seconds 60\n",
			seenServer{Ready: true, Synced: true, Restored: true, Age: 60}, "restored,1m0s-old"},
		{"somebody else", 200, "<html>hello\nthere", "", seenServer{Error: "/readyz says 200: <html>hello"}, "-"},
		{"not for us", 403, `{"message":"pods is forbidden"}`, "", seenServer{Error: `/readyz says 403: pods is forbidden`}, "-"},
		{"who would rather have the terminal", 503, "[-]sync \x1b[2Jfailed\r\n", "\nepdns_build_info{version=\"\x1b]0;x\a\"} 1\n",
			seenServer{Why: []string{"sync ?[2Jfailed"}, Version: `\u001b]0;x\u0007`}, "nothing-yet"},
		{"and says so nowhere", 404, "\x1b[2J\u202egone", "", seenServer{Error: "/readyz says 404: ?[2J?gone"}, "-"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/readyz":
				if r.URL.RawQuery != "verbose" {
					t.Errorf("%s: asked for %v", c.what, r.URL)
				}
				w.WriteHeader(c.code)
				w.Write([]byte(c.ready))
			case "/metrics":
				w.Write([]byte(c.metrics))
			}
		}))
		u, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		var got seenServer
		got.ask(t.Context(), u, server.Client())
		server.Close()
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, expected %+v", c.what, got, c.want)
		}
		if knows := got.answersFrom().text; knows != c.knows {
			t.Errorf("%s: it knows %q, expected %q", c.what, knows, c.knows)
		}
		var out bytes.Buffer
		if err := printStatus(&out, []seenServer{got}); err != nil || strings.Count(out.String(), "\n") != 2 {
			t.Errorf("%s: %v\n%s", c.what, err, &out)
		}
	}
}

// Where nobody is at a URL that was given, it is said what the URL is of.
func TestSeenNobody(t *testing.T) {
	server := httptest.NewServer(nil)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	got := seenServer{URL: server.URL}
	got.ask(t.Context(), u, http.DefaultClient)
	if got.Ready || !strings.Contains(got.Error, "refused") || !strings.Contains(got.Error, "the address of --http") {
		t.Errorf("%+v", got)
	}
}

// Whatever is at a URL, it is read as metrics without harm.
func FuzzReadMetrics(f *testing.F) {
	f.Add("epdns_build_info{version=\"v1\"} 1\n")
	f.Add("\nepdns_build_info{a=\"b\",version=\"v1\"} 1\nx NaN\n# y 1\n \n")
	f.Fuzz(func(t *testing.T, text string) {
		for name := range readMetrics(text) {
			if !strings.Contains(text, name) {
				t.Errorf("it has no %q", name)
			}
		}
		if v := metricLabel(text, "epdns_build_info", "version"); !strings.Contains(text, v) {
			t.Errorf("it has no %q", v)
		}
	})
}
