package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/miekg/dns"

	"epdns/registry/manifest"
	"epdns/zones"
)

// askExplain has a question explained over HTTP.
func askExplain(t *testing.T, p *pipeline, query string, accept ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/explain?"+query, nil)
	r.Header["Accept"] = accept
	w := httptest.NewRecorder()
	serveExplain(responders(p.zones), atOnce)(w, r)
	if w.Code != http.StatusOK {
		t.Fatalf("%s: %d %s", query, w.Code, w.Body)
	}
	return w
}

func TestServeExplain(t *testing.T) {
	p := samplePipeline(t)
	for _, c := range []struct {
		query     string
		transport string
		rcode     int
		service   string
		endpoints int
		step      string
	}{
		{"name=web.shop.registry.local&from=10.244.1.21", "udp", dns.RcodeSuccess, "shop/web", 6, "topology order: all, near first"},
		{"name=web.shop.registry.local&type=SRV&tcp=true", "tcp", dns.RcodeSuccess, "shop/web", 6, "the asker's place is not known: all, in any order"},
		{"name=pg.shop.registry.local", "udp", dns.RcodeSuccess, "data/db", 3, "pg.shop.registry.local. is an alias of db.data.registry.local., by a Service of type ExternalName"},
		{"name=10.244.1.21", "udp", dns.RcodeSuccess, "", 1, "Service shop/web calls it 10-244-1-21.web.shop.registry.local."},
		{"name=nope.shop.registry.local", "udp", dns.RcodeNameError, "", 0, "no Service nope in namespace shop: NXDOMAIN, for 5 s"},
		{"name=www.example.com", "udp", dns.RcodeRefused, "", 0, "the name is in none of the zones (registry.local.): REFUSED"},
	} {
		w := askExplain(t, p, c.query)
		var x explained
		if err := json.Unmarshal(w.Body.Bytes(), &x); err != nil || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%s: %v, %v", c.query, w.Header(), err)
			continue
		}
		m, err := unpackReply(x.Message)
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		if reply := newReplyJSON(m); !reflect.DeepEqual(reply, x.Reply) {
			t.Errorf("%s: the reply is %+v, the message %+v", c.query, x.Reply, reply)
		}
		e := x.Explanation
		if x.Transport != c.transport || m.Rcode != c.rcode || e.Service != c.service || len(e.Endpoints) != c.endpoints || !strings.Contains(strings.Join(e.Steps, "\n")+"\n", c.step+"\n") {
			t.Errorf("%s: %+v, reply %v", c.query, x, m)
		}
	}
}

func TestServeExplainForms(t *testing.T) {
	p := samplePipeline(t)
	for _, c := range []struct {
		query  string
		accept []string
		text   bool
	}{
		{"", nil, false},
		{"", []string{"*/*"}, false},
		{"", []string{"text/html,application/xhtml+xml,*/*;q=0.8"}, false},
		{"", []string{"text/plain"}, true},
		{"", []string{"text/html, text/plain;q=0.5"}, true},
		{"", []string{"text/html", "text/plain"}, true},
		{"", []string{"application/json, text/plain"}, false},
		{"&format=text", []string{"application/json"}, true},
		{"&format=json", []string{"text/plain"}, false},
	} {
		w := askExplain(t, p, "name=jobs.shop.registry.local"+c.query, c.accept...)
		want := map[bool]string{true: "text/plain; charset=utf-8", false: "application/json"}[c.text]
		if got := w.Header().Get("Content-Type"); got != want || strings.HasPrefix(w.Body.String(), "{") == c.text {
			t.Errorf("%q, Accept %q: %s, want %s\n%s", c.query, c.accept, got, want, w.Body)
		}
	}
}

// A subnet counts if a trusted forwarder sends it, and else it is said that it does not.
func TestExplainSubnet(t *testing.T) {
	cfg := zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}}
	cfg.Clients.TrustedForwarders = []netip.Prefix{netip.MustParsePrefix("192.0.2.53/32")}
	p := pipelineOf(t, manifest.New(manifest.Sample(), "sample", quiet), cfg)
	for query, want := range map[string]string{
		"from=192.0.2.53&subnet=10.244.1.21": "192.0.2.53 for 10.244.1.21/32: node node-a1, zone zone-a\n" +
			"  the subnet that the forwarder gives is an endpoint's of Service shop/web\n  the answer is good for /32 of the subnet\n",
		"from=192.0.2.54&subnet=10.244.1.0/24": "192.0.2.54\n" +
			"  not known: the address is no endpoint's, no Node's, in no podCIDR, and in no configured place;\n" +
			"  subnet 10.244.1.0/24 does not count: the asker is no trusted forwarder\n",
	} {
		w := askExplain(t, p, "format=text&name=web.shop.registry.local&"+query)
		if !strings.Contains(w.Body.String(), "\nWHO ASKS\n  "+want) {
			t.Errorf("%s:\n%s", query, w.Body)
		}
	}
}

// crowd is a Service of so many endpoints.
func crowd(n int, annotations string) fstest.MapFS {
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: crowd, annotations: {%s}}\n---\n", annotations)
	text.WriteString("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n" +
		"metadata: {namespace: shop, name: crowd-1, labels: {kubernetes.io/service-name: crowd}}\nendpoints:\n")
	for i := range n {
		fmt.Fprintf(&text, "- addresses: [10.0.%d.%d]\n", i/256, i%256)
	}
	return fstest.MapFS{"crowd.yaml": {Data: []byte(text.String())}}
}

// A Service that is too large for a BIND in between is warned of, also where the answer
// at hand was cut; and what is not answered is not listed without end.
func TestExplainCrowd(t *testing.T) {
	const warning = "warning: an answer has %d A records, and a BIND that asks for others takes at most 100; the knob limit makes it fewer TIERS"
	for _, c := range []struct {
		n           int
		annotations string
		warns       int
		more        string
	}{
		{100, "", 0, ""},
		{101, "", 101, ""},
		{101, "registry.local/limit: '8'", 0, ""},
		{300, "", 300, "  and 127 more: does not fit\n"},
		{300, "registry.local/limit: '20'", 0, "  and 180 more: beyond the limit\n"},
	} {
		p := pipelineOf(t, manifest.New(crowd(c.n, c.annotations), "crowd", quiet), zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}})
		got := askExplain(t, p, "name=crowd.shop.registry.local&format=text").Body.String()
		if warns := strings.Contains(got, "warning"); warns != (c.warns > 0) || warns && !strings.Contains(strings.Join(strings.Fields(got), " "), fmt.Sprintf(warning, c.warns)) {
			t.Errorf("%d endpoints, %q, want a warning of %d:\n%s", c.n, c.annotations, c.warns, got)
		}
		if !strings.Contains(got, "\nANSWER\n") || c.more != "" && !strings.Contains(got, c.more) || c.more == "" && strings.Contains(got, " more: ") {
			t.Errorf("%d endpoints, %q, want %q:\n%s", c.n, c.annotations, c.more, got)
		}
	}
}

// The examples of the page are what the program prints.
func TestExplainPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/explain.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	serial := regexp.MustCompile(`serial \d+`)
	blocks := regexp.MustCompile("(?s)```\n\\$ epdns (explain [^\n]*)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) == 0 {
		t.Fatal("the page has no example")
	}
	for _, b := range blocks {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), strings.Fields(b[1]), &stdout, &stderr); code != exitOK || stderr.Len() > 0 {
			t.Errorf("%s: exit status %d, %s", b[1], code, &stderr)
		}
		if got := serial.ReplaceAllString(stdout.String(), "serial 1795990000"); got != b[2] {
			t.Errorf("%s prints:\n%s\nand not:\n%s", b[1], got, b[2])
		}
	}
}

func TestWrap(t *testing.T) {
	long := strings.TrimSpace(strings.Repeat("word ", 40)) + " " + strings.Repeat("x", 2*explainWidth)
	var out bytes.Buffer
	wrap(&out, "  1. ", long, explainWidth, func(line string) string { return line })
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	for i, line := range lines {
		lead := "     "
		if i == 0 {
			lead = "  1. "
		}
		if !strings.HasPrefix(line, lead) || line[len(lead)] == ' ' || len(line) > explainWidth && !strings.Contains(line, "xx") {
			t.Errorf("line %d is %q", i, line)
		}
	}
	if got := strings.Join(strings.Fields(out.String())[1:], " "); got != long {
		t.Errorf("it prints %q", got)
	}
}
