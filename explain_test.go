package epdns_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// manifestsOfCrowd are a directory with a Service shop/crowd of so many endpoints, and
// what its annotations are.
func manifestsOfCrowd(t *testing.T, n int, annotations string) string {
	t.Helper()
	var text strings.Builder
	fmt.Fprintf(&text, "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: crowd, annotations: {%s}}\n---\n", annotations)
	text.WriteString("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n" +
		"metadata: {namespace: shop, name: crowd-1, labels: {kubernetes.io/service-name: crowd}}\n" +
		"ports: [{name: http, port: 8080, protocol: TCP}]\nendpoints:\n")
	for i := range n {
		fmt.Fprintf(&text, "- addresses: [10.0.%d.%d]\n", i/256, i%256)
	}
	dir := t.TempDir()
	replaceFile(t, filepath.Join(dir, "crowd.yaml"), text.String())
	return dir
}

// readExplain reads the answer at the end of an explanation, and the endpoints that are
// said to be in it.
func readExplain(out string) (answer *dug, answered []string, err error) {
	explanation, text, ok := strings.Cut(out, "\nANSWER\n")
	if !ok {
		return nil, nil, fmt.Errorf("there is no answer")
	}
	_, table, _ := strings.Cut(explanation, "\nENDPOINTS\n")
	address := -1
	for line := range strings.Lines(table) {
		fields := strings.Fields(line)
		switch {
		case address < 0:
			address = slices.Index(fields, "ADDRESS")
		case len(fields) > address && fields[0] != "-" && fields[0] != "and":
			answered = append(answered, fields[address])
		}
	}
	answer, err = readLookup(text)
	return answer, answered, err
}

// What explain prints as the answer, from the files or by a server, is what dig gets,
// and what it explains.
func TestExplainAgreesWithDig(t *testing.T) {
	crowd := manifestsOfCrowd(t, 150, "")
	servers := map[string]*program{}
	for _, manifests := range []string{"testdata/cluster", crowd} {
		servers[manifests] = serve(t, "--manifests", manifests)
	}
	for _, c := range []struct {
		manifests string
		name      string
		qtype     uint16
		tcp       bool
		cut       bool
	}{
		{"testdata/cluster", "web.shop.registry.local.", dns.TypeA, false, false},
		{"testdata/cluster", "web.shop.registry.local.", dns.TypeAAAA, false, false},
		{"testdata/cluster", "web.shop.registry.local.", dns.TypeSRV, false, false},
		{"testdata/cluster", "WEB.Shop.registry.local.", dns.TypeA, true, false},
		{"testdata/cluster", "_http._tcp.web.shop.registry.local.", dns.TypeSRV, false, false},
		{"testdata/cluster", "_all.jobs.shop.registry.local.", dns.TypeA, false, false},
		{"testdata/cluster", "10-1-1-11.web.shop.registry.local.", dns.TypeA, false, false},
		{"testdata/cluster", "pg.shop.registry.local.", dns.TypeA, false, false},
		{"testdata/cluster", "billing.shop.registry.local.", dns.TypeAAAA, false, false},
		{"testdata/cluster", "nope.shop.registry.local.", dns.TypeA, false, false},
		{"testdata/cluster", "registry.local.", dns.TypeSOA, false, false},
		{"testdata/cluster", "www.example.com.", dns.TypeA, false, false},
		{"testdata/cluster", "11.1.1.10.in-addr.arpa.", dns.TypePTR, false, false},
		{"testdata/cluster", "_explain.jobs.shop.registry.local.", dns.TypeTXT, false, false},
		{crowd, "crowd.shop.registry.local.", dns.TypeA, false, true},
		{crowd, "crowd.shop.registry.local.", dns.TypeSRV, false, true},
		{crowd, "crowd.shop.registry.local.", dns.TypeA, true, false},
	} {
		p := servers[c.manifests]
		q := ask(c.name, c.qtype)
		q.tcp = c.tcp
		want := dig(t, q, p.dns.Port())
		if want.flags["tc"] != c.cut {
			t.Errorf("%v: dig has flags %v", q, want.flags)
		}
		for _, from := range [][]string{{"--manifests", c.manifests}, {"--server", p.http}} {
			args := append([]string{"explain", c.name, typeText(c.qtype), fmt.Sprintf("--tcp=%t", c.tcp)}, from...)
			stdout, stderr, code := once(t, environment(), args...)
			got, answered, err := readExplain(stdout)
			if err == nil && c.cut { // by chance, others; targets are not of one length
				n, wanted := len(got.sections[0]), len(want.sections[0])
				if !got.flags["tc"] || n == 0 || c.qtype == dns.TypeA && n != wanted {
					err = fmt.Errorf("flags %v, %d records and %d", got.flags, n, wanted)
				}
			} else if err == nil {
				err = got.same(want)
			}
			if err != nil || code != 0 || stderr != "" {
				t.Errorf("%v %s: %v, exit status %d, %s\n%s", q, from[0], err, code, stderr, stdout)
				continue
			}
			var addresses []string
			for _, rr := range got.sections[0] {
				switch rr := rr.(type) {
				case *dns.A:
					addresses = append(addresses, rr.A.String())
				case *dns.AAAA:
					addresses = append(addresses, rr.AAAA.String())
				}
			}
			if (c.qtype == dns.TypeA || c.qtype == dns.TypeAAAA) && !slices.Equal(addresses, answered) {
				t.Errorf("%v %s: answered are %q, in the answer are %q\n%s", q, from[0], answered, addresses, stdout)
			}
		}
	}
}

// The TXT record that explains, through dig.
func TestExplainTXT(t *testing.T) {
	config := filepath.Join(t.TempDir(), "epdns.yaml")
	replaceFile(t, config, "apiVersion: epdns/v1alpha1\nkind: Config\nexplainTXT: false\n")
	long := strings.Repeat("x", 250)
	dir := manifestsOfCrowd(t, 150, fmt.Sprintf("registry.local/ttl: 7s, registry.local/odd: %s, registry.local/odder: %s", long, long))
	p := serve(t, "--manifests", dir)
	off := serve(t, "--manifests", dir, "--config", config)

	answer := func(q question) (text []string) {
		d := dig(t, q, p.dns.Port())
		if d.status != "NOERROR" {
			t.Errorf("%v: %s", q, d.status)
		}
		for _, rr := range d.sections[0] {
			if rr.Header().Ttl != 0 {
				t.Errorf("%v: TTL %d", q, rr.Header().Ttl)
			}
			text = append(text, rr.(*dns.TXT).Txt...)
		}
		return text
	}
	q := ask("_explain.crowd.shop.registry.local.", dns.TypeTXT)
	if d := dig(t, q, p.dns.Port()); !d.flags["tc"] || len(d.sections[0]) != 0 {
		t.Errorf("over UDP: flags %v, %d records", d.flags, len(d.sections[0]))
	}
	for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
		q := q.overTCP()
		q.from = netip.MustParseAddr(from)
		text := answer(q)
		for _, want := range []string{"asker " + from, "knob ttl: 7s (annotation)", "service shop/crowd", "73 endpoints fit: TC is set, and TCP has the rest", "TTL 7 s"} {
			if !slices.Contains(text, want) {
				t.Errorf("from %s there is no %q among %q", from, want, text)
			}
		}
		if n := len(text); n < 80 || !strings.HasPrefix(text[n-1], "73. 10.0.") {
			t.Errorf("from %s there are %d strings: %q", from, n, text)
		}
	}
	if d := dig(t, q, off.dns.Port()); d.status != "NXDOMAIN" {
		t.Errorf("where it is off: %s", d.status)
	}
}

func TestExplainForms(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster")
	var x struct {
		Transport   string
		Explanation struct {
			Asker     struct{ Address, Unbelieved string }
			Service   string
			Endpoints []struct {
				Address, Why string
				Answered     bool
			}
		}
		Reply   struct{ Status string }
		Message []byte
	}
	for _, from := range [][]string{{"--manifests", "testdata/cluster"}, {"--server", p.http}} {
		stdout, stderr, code := once(t, environment(), append([]string{"explain", "jobs.shop.registry.local", "-o", "json", "--from", "192.0.2.1", "--subnet", "10.0.0.0/24"}, from...)...)
		err := json.Unmarshal([]byte(stdout), &x)
		e := x.Explanation
		var m dns.Msg
		if err != nil || code != 0 || stderr != "" || x.Transport != "udp" || x.Reply.Status != "NOERROR" || m.Unpack(x.Message) != nil || len(m.Answer) != 1 ||
			e.Asker.Address != "192.0.2.1" || e.Asker.Unbelieved != "10.0.0.0/24" || e.Service != "shop/jobs" ||
			len(e.Endpoints) == 0 || e.Endpoints[0].Address != "10.1.1.41" || !e.Endpoints[0].Answered || e.Endpoints[0].Why != "answered" {
			t.Errorf("%s: exit status %d, %s, %v\n%s", from[0], code, stderr, err, stdout)
		}
	}
	if code, body := p.get(t, "/explain?name=jobs.shop.registry.local&format=text"); code != 200 || !strings.Contains(body, "\nENDPOINTS\n") {
		t.Errorf("over HTTP: %d %s", code, body)
	}
	stdout, _, code := once(t, environment(), "lookup", "jobs.shop.registry.local", "--short", "--subnet", "10.0.0.0/24", "--server", p.http)
	if code != 0 || stdout != "10.1.1.41\n" {
		t.Errorf("lookup with a subnet: exit status %d, %q", code, stdout)
	}
}

func TestExplainMistakes(t *testing.T) {
	nobody := closedPort(t)
	mistakes(t, []mistake{
		{"explain", 2, []string{"epdns explain --help"}},
		{"explain a A IN", 2, []string{"epdns explain --help"}},
		{"explain a..b", 2, []string{"NAME", `"a..b"`}},
		{"explain a.b FOO", 2, []string{"TYPE", `"FOO"`}},
		{"explain a.b --from here", 2, []string{"--from", `"here"`}},
		{"explain a.b --subnet 10.0.0.0/33", 2, []string{"--subnet", `"10.0.0.0/33"`}},
		{"explain a.b --subnet ::ffff:10.0.0.0/120", 2, []string{"--subnet", `"::ffff:10.0.0.0/120"`}},
		{"explain a.b --output xml", 2, []string{"--output", `"xml"`}},
		{"explain a.b --short", 2, []string{"--short"}},
		{"explain a.b --timeout 0s", 2, []string{"--timeout"}},
		{"explain a.b --tcp=often", 2, []string{"--tcp", "often"}},
		{"explain a.b --server localhost", 2, []string{"--server", `"localhost"`}},
		{"explain a.b --server http://127.0.0.1:1 --config x", 2, []string{"--server", "--config"}},
		{"explain a.b --config=", 2, []string{"--config is empty"}},
		{"explain a.b --server http://" + nobody, 1, []string{nobody, "connection refused"}},
		{"explain a.registry.local --manifests testdata/missing", 1, []string{"testdata/missing"}},
	})
}
