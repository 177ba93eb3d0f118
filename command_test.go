package epdns_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sys/unix"
)

// TestMistakes: each ends the program with one line that says what is wrong, and
// a status that says whether the arguments are (2) or something else is (1).
func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	missing := filepath.Join(dir, "missing")
	noYAML := file("no-yaml.yaml", "kind: [Service\n")
	noAddresses := file("no-addresses.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n---\n"+
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: web-1}\nendpoints: many\n")
	noKubeconfig := file("no-kubeconfig", "clusters: [\n")
	noContext := file("no-context", "apiVersion: v1\nkind: Config\nclusters: []\ncontexts: []\n")

	for _, c := range []struct {
		what string
		args string
		code int
		says []string
	}{
		{"unknown command", "sevre", 2, []string{`"sevre"`, "; do you mean serve?"}},
		{"unknown command, like none", "web.shop", 2, []string{`unknown command "web.shop" for "epdns" (see epdns --help)`}},
		{"help for an unknown command", "help sevre", 2, []string{`"sevre"`, "; do you mean serve?", "epdns help --help"}},
		{"help for an unknown command below", "help serve now", 2, []string{`"now"`, `"epdns serve"`}},
		{"unknown flag", "serve --lisen :53", 2, []string{"--lisen; do you mean --listen?", "epdns serve --help"}},
		{"unknown flag, like none", "serve --port 53", 2, []string{"unknown flag: --port (see epdns serve --help)"}},
		{"unknown letter", "serve -l :53", 2, []string{"'l'", "epdns serve --help"}},
		{"flag without value", "serve --listen", 2, []string{"--listen", "epdns serve --help"}},
		{"too many arguments", "serve registry.local", 2, []string{`serve takes no arguments, such as "registry.local" (see epdns serve --help)`}},
		{"too many arguments", "demo now", 2, []string{"demo takes no arguments", "now", "epdns demo --help"}},
		{"too many arguments", "version 2", 2, []string{"version takes no arguments", "2", "epdns version --help"}},
		{"completion: another shell", "completion tcsh", 2, []string{"tcsh", "bash, zsh, fish, powershell"}},
		{"completion: no shell", "completion", 2, []string{"bash, zsh, fish, powershell"}},

		{"zone: the root", "serve --zone .", 2, []string{"zone", "root"}},
		{"zone: none", "serve --zone=", 2, []string{"zone"}},
		{"zone: empty label", "serve --zone registry..local", 2, []string{"registry..local"}},
		{"zone: long label", "serve --zone " + strings.Repeat("a", 64) + ".local", 2, []string{"63"}},
		{"zone: odd character", "serve --zone reg!stry.local", 2, []string{"reg!stry.local", "'!'"}},
		{"zone: reverse", "serve --zone 10.in-addr.arpa", 2, []string{"10.in-addr.arpa"}},
		{"zone: twice", "serve --zone registry.local --zone registry.local", 2, []string{"registry.local"}},
		{"zone: one in the other", "serve --zone registry.local --zone a.registry.local", 2, []string{`--zone: zone "a.registry.local": it lies within zone "registry.local"`}},
		{"zone: the other in it", "serve --zone a.registry.local --zone registry.local", 2, []string{`--zone: zone "registry.local": zone "a.registry.local" lies within it`}},
		{"listen: no port", "serve --listen 127.0.0.1", 2, []string{"--listen", "127.0.0.1"}},
		{"listen: port alone", "serve --listen 5300", 2, []string{"--listen", "5300"}},
		{"listen: no number", "serve --listen 127.0.0.1:dnss", 2, []string{"--listen", "dnss"}},
		{"listen: too large", "serve --listen 127.0.0.1:65536", 2, []string{"--listen", "65536"}},
		{"listen: a name", "serve --listen localhost:53", 2, []string{"--listen", "localhost"}},
		{"listen: IPv6 without brackets", "serve --listen ::1:53", 2, []string{"--listen", "::1:53"}},
		{"listen: demo", "demo --listen here", 2, []string{"--listen", "here"}},
		{"listen: demo, too large", "demo --listen :99999", 2, []string{`--listen: ":99999": "99999" is no port`}},
		{"http: demo", "demo --http here", 2, []string{`--http: "here" is not ADDR:PORT`}},
		{"http: demo, where DNS is", "demo --http :5300", 2, []string{"--http", "--listen", "same port"}},
		{"http", "serve --http 9153", 2, []string{`--http: "9153" is not ADDR:PORT`}},
		{"http: too large", "serve --http :99999", 2, []string{`--http: ":99999": "99999" is no port`}},
		{"http: where DNS is", "serve --listen 127.0.0.1:5310 --http 127.0.0.1:5310", 2, []string{"--http", "127.0.0.1:5310", "--listen", "same port"}},
		{"reverse", "serve --reverse 10.0.0.0/40", 2, []string{"--reverse", "10.0.0.0/40"}},
		{"reverse: twice", "serve --reverse 10.0.0.0/8 --reverse 10.1.0.0/16", 2, []string{"10.0.0.0/8", "10.1.0.0/16"}},
		{"reverse: bits", "serve --reverse 10.0.0.1/8", 2, []string{"--reverse: 10.0.0.1/8 has bits beyond its length; write 10.0.0.0/8"}},
		{"upstream: itself", "serve --listen 127.0.0.1:5300 --upstream 127.0.0.1:5300", 2, []string{"--upstream: 127.0.0.1:5300 is this server itself", "--listen"}},
		{"upstream: itself, by any address", "serve --listen :53 --upstream 127.0.0.53", 2, []string{"--upstream: 127.0.0.53:53 is this server itself"}},
		{"cookies: missing", "serve --cookie-secrets " + missing, 1, []string{"--cookie-secrets " + missing + ": no such file"}},
		{"nameserver", "serve --nameserver ns1", 2, []string{"--nameserver", "ns1"}},
		{"transfer-allow", "serve --transfer-allow all", 2, []string{"--transfer-allow", "all"}},
		{"log level", "serve --log-level loud", 2, []string{"--log-level", "loud"}},
		{"log format", "serve --log-format xml", 2, []string{"--log-format", "xml"}},
		{"two sources", "serve --manifests " + dir + " --kubeconfig " + noContext, 2, []string{"--manifests", "--kubeconfig"}},
		{"manifests: empty", "serve --manifests=", 2, []string{"--manifests is empty"}},
		{"kubeconfig: empty", "serve --kubeconfig=", 2, []string{"--kubeconfig is empty"}},
		{"state-dir: empty", "serve --state-dir=", 2, []string{"--state-dir is empty"}},
		{"config: empty", "serve --config=", 2, []string{"--config is empty"}},
		{"manifests: empty, for others", "lookup a.b --manifests=", 2, []string{"--manifests is empty"}},
		{"check: arguments", "check epdns.yaml", 2, []string{"--config epdns.yaml", "--manifests epdns.yaml", "epdns check --help"}},
		{"check: empty", "check --config=", 2, []string{"--config is empty"}},
		{"check: no time", "check --timeout 0s", 2, []string{"--timeout"}},
		{"check: no file", "check --config " + missing, 1, []string{missing, "no such file"}},
		{"version format", "version -o xml", 2, []string{"--output", "xml"}},
		{"status: arguments", "status web", 2, []string{"status takes no arguments", "epdns status --help"}},
		{"status: two servers", "status --server http://127.0.0.1:1 --selector app=dns", 2, []string{"--server", "--selector"}},
		{"status: no source", "status", 1, []string{"no cluster found", "--kubeconfig", "--server"}},
		{"man: no such page", "man lokup", 2, []string{`no page "lokup"; do you mean lookup?`, "epdns.yaml"}},
		{"man: one page in a directory", "man lookup --dir " + dir, 2, []string{"--dir", "lookup"}},
		{"man: no directory", "man --dir=", 2, []string{"--dir is empty"}},
		{"man: a file", "man --dir " + noYAML, 1, []string{noYAML, "not a directory"}},
		{"lookup: without the zone", "lookup web.shop --manifests testdata/cluster --short", 1, []string{"REFUSED", "do you mean web.shop.registry.local?"}},
		{"lookup: no server there", "lookup a.b --server http://127.0.0.1:1", 1, []string{"connection refused; is epdns running there?", "--http"}},
		{"lookup: a cluster's own name", "lookup web.shop.svc.cluster.local --manifests testdata/cluster --short", 1, []string{"REFUSED", "none of the zones: registry.local", "do you mean web.shop.registry.local?"}},

		{"manifests: missing", "serve --manifests " + missing, 1, []string{missing, "no such file"}},
		{"manifests: no YAML", "serve --manifests " + noYAML, 1, []string{noYAML, "document 1"}},
		{"manifests: no slice", "serve --manifests " + noAddresses, 1, []string{noAddresses, "document 2 (line 5)", "EndpointSlice"}},
		{"kubeconfig: missing", "serve --kubeconfig " + missing, 1, []string{missing, "no such file"}},
		{"kubeconfig: a directory", "serve --kubeconfig " + dir, 1, []string{dir}},
		{"kubeconfig: no YAML", "serve --kubeconfig " + noKubeconfig, 1, []string{noKubeconfig}},
		{"kubeconfig: nothing in it", "serve --kubeconfig " + noContext, 1, []string{noContext, "context"}},
		{"no source", "serve", 1, []string{"--kubeconfig", "--manifests"}},
		{"no source and no server", "watch shop/web", 1, []string{"no cluster found", "--kubeconfig", "--manifests", "or --server URL"}},
		{"no source and no server", "explain web.shop.registry.local", 1, []string{"no cluster found", "or --server URL"}},
		{"listen: not ours", "serve --manifests testdata/cluster --listen 192.0.2.199:5300", 1, []string{"192.0.2.199:5300", "no interface"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			args := strings.Fields(c.args)
			if args[0] == "serve" { // nothing but what is to fail, should it not
				args = append([]string{"serve", "--listen", "127.0.0.1:0", "--http", ""}, args[1:]...)
			}
			stdout, stderr, code := once(t, environment(), args...)
			if code != c.code {
				t.Errorf("exit status %d, expected %d", code, c.code)
			}
			if stdout != "" {
				t.Errorf("on standard output: %q", stdout)
			}
			if err := oneLine(stderr, c.says...); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestManyMistakes: each has a line, up to ten.
func TestManyMistakes(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		replaceFile(t, path, text)
		return path
	}
	config := settings(t, "lisen: []\nhttp: 9153\nzones:\n- name: a.local\n  defaults: {ttl: soon, limit: few}\n")
	manifest := file("all.yaml", service("web", 0, "registry.local/topology: off", "registry.local/limit: 8")+service("api", 0, "registry.local/min: 2"))
	many := file("many.yaml", strings.Repeat("---\nhello\n", 12))
	for _, c := range []struct {
		args string
		code int
		says []string // what the lines begin with
	}{
		{"--config " + config, 1, []string{"config " + config + ": line 3: lisen: unknown key", "config " + config + ": line 4: http: ",
			"config " + config + ": line 7: zones[0].defaults.ttl: ", "config " + config + ": line 7: zones[0].defaults.limit: "}},
		{"--manifests " + manifest, 1, []string{
			manifest + `: document 1 (line 2), line 9: Service "web": annotation registry.local/topology: off is a boolean; write it in quotes`,
			manifest + `: document 1 (line 2), line 10: Service "web": annotation registry.local/limit: 8 is a number; write it in quotes`,
			manifest + `: document 2 (line 12), line 19: Service "api": annotation registry.local/min: 2 is a number; write it in quotes`}},
		{"--manifests " + many, 1, append(slices.Repeat([]string{many + ": document "}, 10), "and 2 more")},
		{"--nsid a --upstream dns --reverse all --transfer-allow none", 2, []string{"--reverse: ", "--upstream: ", "--transfer-allow: "}},
	} {
		_, stderr, code := once(t, environment(), append([]string{"serve", "--listen", "127.0.0.1:0", "--http", ""}, strings.Fields(c.args)...)...)
		lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
		same := len(lines) == len(c.says)
		for i := 0; same && i < len(lines); i++ {
			same = strings.HasPrefix(lines[i], "epdns: "+c.says[i])
		}
		if !same || code != c.code {
			t.Errorf("%s: exit status %d, expected %d, and it says:\n%s\nexpected:\n%s", c.args, code, c.code, stderr, strings.Join(c.says, "\n"))
		}
	}
}

// oneLine checks that, the log aside, there is one line for people with these
// texts.
func oneLine(stderr string, says ...string) error {
	var lines []string
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "time=") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "epdns: ") || !strings.HasSuffix(lines[0], "\n") {
		return fmt.Errorf("not one line: %q", stderr)
	}
	var faults []error
	for _, s := range says {
		if !strings.Contains(lines[0], s) {
			faults = append(faults, fmt.Errorf("%q does not say %q", lines[0], s))
		}
	}
	return errors.Join(faults...)
}

// TestPortIsTaken: with SO_REUSEPORT a second process could take half of the
// questions without anybody noticing.
func TestPortIsTaken(t *testing.T) {
	first := serve(t, "--manifests", "testdata/cluster")
	udp, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	sharing := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var set error
		err := c.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		return errors.Join(err, set)
	}}
	shared, err := sharing.ListenPacket(t.Context(), "udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	webs := strings.TrimPrefix(first.http, "http://")

	for _, c := range []struct {
		what string
		args []string
		addr string
	}{
		{"by another epdns", []string{"serve", "--listen", first.dns.String(), "--http", ""}, first.dns.String()},
		{"by another epdns, of all addresses", []string{"serve", "--listen", fmt.Sprintf(":%d", first.dns.Port()), "--http", ""}, fmt.Sprintf(":%d", first.dns.Port())},
		{"in UDP", []string{"serve", "--listen", udp.LocalAddr().String(), "--http", ""}, udp.LocalAddr().String()},
		{"in UDP, by one who would share it", []string{"serve", "--listen", shared.LocalAddr().String(), "--http", ""}, shared.LocalAddr().String()},
		{"in TCP", []string{"serve", "--listen", tcp.Addr().String(), "--http", ""}, tcp.Addr().String()},
		{"for HTTP", []string{"serve", "--listen", "127.0.0.1:0", "--http", webs}, webs},
		{"for the demo", []string{"demo", "--listen", first.dns.String(), "--http", ""}, first.dns.String()},
		{"for HTTP of the demo", []string{"demo", "--listen", "127.0.0.1:0", "--http", webs}, webs},
	} {
		t.Run(c.what, func(t *testing.T) {
			if c.args[0] == "serve" {
				c.args = append(c.args, "--manifests", "testdata/cluster")
			}
			stdout, stderr, code := once(t, environment(), c.args...)
			if code != 1 || stdout != "" {
				t.Errorf("exit status %d, on standard output %q", code, stdout)
			}
			says := []string{"listen on " + c.addr, "in use"}
			if c.args[0] == "demo" { // where people may not know that they can choose
				says = append(says, map[bool]string{true: "(--listen", false: "(--http"}[c.addr != webs])
			}
			if err := oneLine(stderr, says...); err != nil {
				t.Error(err)
			}
		})
	}
	if err := first.answer(ask("jobs.shop.registry.local.", dns.TypeA), noerror("10.1.1.41")); err != nil {
		t.Errorf("the first one: %v", err)
	}
}

// silentCluster is the kubeconfig of an API server that never says anything: connections
// are taken by the kernel.
func silentCluster(t *testing.T) (path string) {
	t.Helper()
	api, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	path = filepath.Join(t.TempDir(), "kubeconfig")
	replaceFile(t, path, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: silent
clusters: [{name: silent, cluster: {server: "http://%s"}}]
users: [{name: nobody, user: {}}]
contexts: [{name: silent, context: {cluster: silent, user: nobody}}]
`, api.Addr()))
	return path
}

// TestBeforeTheFirstRead: until all that exists is known, a missing name may only
// be one that has not been read yet.
func TestBeforeTheFirstRead(t *testing.T) {
	p := listen(t, "--kubeconfig", silentCluster(t), "--reverse", "10.0.0.0/8")

	notReady := want{rcode: dns.RcodeServerFailure, ede: []uint16{dns.ExtendedErrorCodeNotReady}}
	for _, c := range []struct {
		name  string
		qtype uint16
		want  want
	}{
		{"web.shop.registry.local.", dns.TypeA, notReady},
		{"nope.registry.local.", dns.TypeA, notReady},
		{zone, dns.TypeSOA, notReady},
		{"11.1.1.10.in-addr.arpa.", dns.TypePTR, notReady},
		{"1.2.0.192.in-addr.arpa.", dns.TypePTR, refused()},
		{"www.example.com.", dns.TypeA, refused()},
	} {
		for _, q := range []question{ask(c.name, c.qtype), ask(c.name, c.qtype).overTCP()} {
			r, err := q.send(p.dns.Port())
			if err == nil {
				err = errors.Join(c.want.check(r), dig(t, q, p.dns.Port()).agrees(r))
			}
			if err != nil {
				t.Errorf("%v: %v", q, err)
			}
		}
	}
	if r, err := ask(zone, dns.TypeAXFR).overTCP().send(p.dns.Port()); err != nil || r.rcode != dns.RcodeServerFailure {
		t.Errorf("transfer: %+v, %v", r, err)
	}
	for path, want := range map[string]int{"/livez": http.StatusOK, "/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/metrics": http.StatusOK} {
		if code, body := p.get(t, path); code != want {
			t.Errorf("%s: %d, expected %d: %s", path, code, want, body)
		}
	}
	watching(t, "shop/web", "--server", p.http).says(t, p.http+" has not read all that exists yet; waiting")
	if v := metric(p.metrics(t), "epdns_synced"); v != 0 {
		t.Errorf("epdns_synced is %v", v)
	}
}

// TestStop: an idle connection of a resolver holds nothing up.
func TestStop(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(signal.String(), func(t *testing.T) {
			p := serve(t, "--manifests", "testdata/cluster")
			c, err := net.DialTimeout("tcp", p.dns.String(), patience)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := p.answer(ask("jobs.shop.registry.local.", dns.TypeA).overTCP(), noerror("10.1.1.41")); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			p.stop(t, signal)
			if took := time.Since(begun); took > 6*time.Second {
				t.Errorf("it took %v", took)
			}
			p.logged(t, "stopped")
		})
		t.Run("demo, "+signal.String(), func(t *testing.T) {
			p := launch(t, environment(), "demo", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
			p.demoPrinted(t)
			p.stop(t, signal)
		})
	}
}

func TestProbes(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster")
	for path, want := range map[string]int{"/livez": http.StatusOK, "/healthz": http.StatusOK, "/readyz": http.StatusOK, "/nope": http.StatusNotFound} {
		if code, body := p.get(t, path); code != want {
			t.Errorf("%s: %d, expected %d: %s", path, code, want, body)
		}
	}
}

// metrics are those of /metrics, as Prometheus reads them.
func (p *program) metrics(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	code, body := p.get(t, "/metrics")
	if code != http.StatusOK {
		t.Fatalf("/metrics: %d %s", code, body)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("/metrics: %v\n%s", err, body)
	}
	return families
}

// metric is the sum of a metric's values over the series with these labels, given
// as name, value, name, value.
func metric(families map[string]*dto.MetricFamily, name string, labels ...string) (sum float64) {
	for _, m := range families[name].GetMetric() {
		has := map[string]string{}
		for _, l := range m.GetLabel() {
			has[l.GetName()] = l.GetValue()
		}
		of := true
		for i := 0; i < len(labels); i += 2 {
			of = of && has[labels[i]] == labels[i+1]
		}
		if of {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

func TestMetrics(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster")
	before := p.metrics(t)
	send := func(q question, times int) {
		for range times {
			if _, err := q.send(p.dns.Port()); err != nil {
				t.Fatalf("%v: %v", q, err)
			}
		}
	}
	send(ask("web.shop.registry.local.", dns.TypeA), 5)
	send(ask("web.shop.registry.local.", dns.TypeSRV).overTCP(), 3)
	send(ask("nope.shop.registry.local.", dns.TypeA), 2)
	if n := len(transferred(t, p, zone, "AXFR")); n == 0 {
		t.Fatal("no transfer")
	}
	after := p.metrics(t)

	for _, c := range []struct {
		name   string
		labels []string
		more   float64
	}{
		{"epdns_dns_requests_total", nil, 11},
		{"epdns_dns_requests_total", []string{"proto", "udp"}, 7},
		{"epdns_dns_requests_total", []string{"proto", "tcp", "type", "SRV"}, 3},
		{"epdns_dns_responses_total", []string{"proto", "udp", "rcode", "NXDOMAIN"}, 2},
		{"epdns_dns_responses_total", []string{"rcode", "NOERROR"}, 9},
		{"epdns_dns_transfers_total", nil, 1},
	} {
		if more := metric(after, c.name, c.labels...) - metric(before, c.name, c.labels...); more != c.more {
			t.Errorf("%s %v: %v more, expected %v", c.name, c.labels, more, c.more)
		}
	}
	for _, c := range []struct {
		name   string
		labels []string
		value  float64
	}{
		{"epdns_build_info", []string{"goversion", runtime.Version()}, 1},
		{"epdns_synced", nil, 1},
		{"epdns_services", nil, 10},
		{"epdns_endpoints", []string{"ready", "true"}, 17},
		{"epdns_endpoints", []string{"ready", "false"}, 3},
	} {
		if v := metric(after, c.name, c.labels...); v != c.value {
			t.Errorf("%s %v is %v, expected %v", c.name, c.labels, v, c.value)
		}
	}
	for name, f := range after {
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", name)
		}
		if f.GetType() == dto.MetricType_COUNTER && !strings.HasSuffix(name, "_total") {
			t.Errorf("%s is a counter, and its name does not end in _total", name)
		}
	}
}

// sample is what must come of what the demo says to ask: RDATA as in the tables of
// answers. No list is a transfer.
var sample = map[string][]string{
	"web.shop.registry.local A":                        {"10.244.1.21", "10.244.1.22", "10.244.2.21", "10.244.2.22", "10.244.3.21", "10.244.3.22"},
	"+subnet=10.244.1.21/32 web.shop.registry.local A": {"10.244.1.21", "10.244.1.22", "10.244.2.21", "10.244.2.22", "10.244.3.21", "10.244.3.22"},
	"+subnet=10.244.3.21/32 web.shop.registry.local A": {"10.244.1.21", "10.244.1.22", "10.244.2.21", "10.244.2.22", "10.244.3.21", "10.244.3.22"},
	"web.shop.registry.local SRV": {
		"* * 8080 10-244-1-21.web.shop.registry.local.", "* * 9090 10-244-1-21.web.shop.registry.local.",
		"* * 8080 10-244-1-22.web.shop.registry.local.", "* * 9090 10-244-1-22.web.shop.registry.local.",
		"* * 8080 10-244-2-21.web.shop.registry.local.", "* * 9090 10-244-2-21.web.shop.registry.local.",
		"* * 8080 10-244-2-22.web.shop.registry.local.", "* * 9090 10-244-2-22.web.shop.registry.local.",
		"* * 8080 10-244-3-21.web.shop.registry.local.", "* * 9090 10-244-3-21.web.shop.registry.local.",
		"* * 8080 10-244-3-22.web.shop.registry.local.", "* * 9090 10-244-3-22.web.shop.registry.local."},
	"_metrics._tcp.web.shop.registry.local SRV": {
		"* * 9090 10-244-1-21.web.shop.registry.local.", "* * 9090 10-244-1-22.web.shop.registry.local.",
		"* * 9090 10-244-2-21.web.shop.registry.local.", "* * 9090 10-244-2-22.web.shop.registry.local.",
		"* * 9090 10-244-3-21.web.shop.registry.local.", "* * 9090 10-244-3-22.web.shop.registry.local."},
	"api.shop.registry.local AAAA":                                {"fd00:10:244:1::1f", "fd00:10:244:3::1f"},
	"db-0.db.data.registry.local A":                               {"10.244.1.10"},
	"10-244-1-21.web.shop.registry.local A":                       {"10.244.1.21"},
	"jobs.shop.registry.local A":                                  {"10.244.1.41"},
	"pg.shop.registry.local A":                                    {"db.data.registry.local.", "10.244.1.10", "10.244.2.10", "10.244.3.10"},
	"nope.shop.registry.local A":                                  {},
	"+subnet=10.244.1.21/32 _explain.web.shop.registry.local TXT": nil,
	"-x 10.244.1.21":                                              {"10-244-1-21.web.shop.registry.local."},
	"registry.local AXFR":                                         nil,
}

// suggested takes a line of the demo apart: the arguments for dig, and of these the
// question.
func suggested(line string, port uint16) (args []string, question string, ok bool) {
	rest, ok := strings.CutPrefix(line, fmt.Sprintf("dig @127.0.0.1 -p %d ", port))
	if !ok {
		return nil, "", false
	}
	question = strings.Join(slices.DeleteFunc(strings.Fields(rest), func(s string) bool {
		return s[0] == '+' && !strings.HasPrefix(s, "+subnet=")
	}), " ")
	return strings.Fields(line)[1:], question, true
}

// nearFirst checks that an answer for a pod begins with the two of its zone.
func nearFirst(question string, rrs []dns.RR) error {
	rest, ok := strings.CutPrefix(question, "+subnet=")
	if !ok {
		return nil
	}
	zone := rest[:len("10.244.1.")]
	if len(rrs) < 2 || !strings.HasPrefix(rdata(rrs[0]), zone) || !strings.HasPrefix(rdata(rrs[1]), zone) {
		return fmt.Errorf("pods %s… are not first: %v", zone, rrs)
	}
	return nil
}

// TestDemo does what the demo says.
func TestDemo(t *testing.T) {
	tool(t, "dig")
	p := launch(t, environment(), "demo", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	port := p.demoPrinted(t)
	asked := map[string]bool{}
	explained, looked, server := false, false, ""
	for _, line := range p.stdout.lines() {
		if strings.HasPrefix(line, "http://") {
			p.http = strings.TrimSuffix(line, "/")
			_, page := p.get(t, "/")
			if looked = strings.Contains(page, "Serving, up to date"); !looked {
				t.Errorf("%s: %s", line, page)
			}
			continue
		}
		if program, rest, ok := strings.Cut(line, " "); ok && strings.HasPrefix(rest, "explain ") {
			if _, err := os.Stat(program); err != nil {
				t.Errorf("%s: %v", line, err)
			}
			args := strings.Fields(rest)
			server = args[len(args)-1]
			stdout, stderr, code := once(t, environment(), args...)
			if explained = code == 0 && stderr == "" && strings.Contains(stdout, "zone-a"); !explained {
				t.Errorf("%s: exit status %d\n%s%s", line, code, stdout, stderr)
			}
			continue
		}
		args, question, ok := suggested(line, port)
		if !ok {
			if strings.HasPrefix(line, "dig") {
				t.Errorf("an unexpected line: %s", line)
			}
			continue
		}
		asked[question] = true
		want, known := sample[question]
		if !known {
			t.Errorf("%q is not known to the test", question)
			continue
		}
		out := runDig(t, args...)
		var rrs []dns.RR
		for l := range strings.Lines(out) {
			rr, err := dns.NewRR(l) // nil where it is a comment
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			if rr != nil {
				rrs = append(rrs, rr)
			}
		}
		switch {
		case strings.HasSuffix(question, " TXT"):
			if len(rrs) != 1 || !strings.Contains(out, "zone zone-a") {
				t.Errorf("%s: no explanation\n%s", line, out)
			}
		case want == nil:
			if len(rrs) < 30 || rrs[0].Header().Rrtype != dns.TypeSOA || rrs[0].String() != rrs[len(rrs)-1].String() {
				t.Errorf("%s: %d records\n%s", line, len(rrs), out)
			}
		case len(want) == 0:
			// The SOA says for how long that may be kept.
			if !strings.Contains(out, "status: NXDOMAIN") || len(rrs) != 1 || rrs[0].Header().Rrtype != dns.TypeSOA || rrs[0].Header().Ttl != 5 {
				t.Errorf("%s: does not show that there is no such name\n%s", line, out)
			}
		default:
			if err := errors.Join(sameSet(want, rrs), nearFirst(question, rrs)); err != nil {
				t.Errorf("%s: %v", line, err)
			}
		}
	}
	readme := 0
	for line := range strings.Lines(readFile(t, "README.md")) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "build/epdns ")
		if !ok || !strings.Contains(rest, " --server http://127.0.0.1:9153") || server == "" {
			continue
		}
		readme++
		args := strings.Fields(strings.Replace(rest, "http://127.0.0.1:9153", server, 1))
		if args[0] == "watch" {
			w := watching(t, args[1:]...)
			eventually(t, func() error {
				if strings.Contains(w.stdout.String(), "10.244.1.21") {
					return nil
				}
				return errors.Join(fmt.Errorf("README.md: %s: it shows %s", line, &w.stdout), w.running())
			})
			continue
		}
		if stdout, stderr, code := once(t, environment(), args...); code != 0 || stderr != "" || !strings.Contains(stdout, "10.244.1.21") {
			t.Errorf("README.md: %s: exit status %d\n%s%s", line, code, stdout, stderr)
		}
	}
	if readme != 3 {
		t.Errorf("README.md asks the demo %d times, expected 3", readme)
	}
	if !explained || !looked {
		t.Error("it does not say how to have an answer explained, or where the status page is")
	}
	for question := range sample {
		if !asked[question] {
			t.Errorf("it does not say to ask for %s", question)
		}
	}
	if p.stderr.String() != "" {
		t.Errorf("on standard error: %s", &p.stderr)
	}
}

// TestDemoWithoutDig: the answers are printed.
func TestDemoWithoutDig(t *testing.T) {
	p := launch(t, environment("PATH="), "demo", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	port := p.demoPrinted(t)
	if !strings.Contains(p.stdout.String(), "no dig on this machine") {
		t.Error("it does not say that there is no dig")
	}
	got := map[string][]dns.RR{}
	none := map[string]string{}
	question := ""
	for _, line := range p.stdout.lines() {
		if _, q, ok := suggested(line, port); ok {
			question = q
			continue
		}
		answer, ok := strings.CutPrefix(line, "  ")
		if !ok {
			continue
		}
		if rcode, ok := strings.CutSuffix(answer, ", no records"); ok {
			none[question] = rcode
			continue
		}
		rr, err := dns.NewRR(answer)
		if err != nil {
			t.Fatal(err)
		}
		got[question] = append(got[question], rr)
	}
	for question, want := range sample {
		if strings.HasSuffix(question, " TXT") {
			if rrs := got[question]; len(rrs) != 1 || !strings.Contains(rrs[0].String(), "zone zone-a") {
				t.Errorf("%s: no explanation: %v", question, got[question])
			}
			continue
		}
		if err := errors.Join(sameSet(want, got[question]), nearFirst(question, got[question])); err != nil {
			t.Errorf("%s: %v", question, err)
		}
	}
	if len(none) != 1 || none["nope.shop.registry.local A"] != "NXDOMAIN" {
		t.Errorf("without records: %v", none)
	}
}

var demoBegins = regexp.MustCompile(`^epdns serves a sample cluster on (127\.0\.0\.1:\d+): 6 Services, 14 of 16 endpoints ready\.$`)

// demoPrinted waits for the last line of the demo and returns the port it serves.
func (p *program) demoPrinted(t *testing.T) uint16 {
	t.Helper()
	eventually(t, func() error {
		if strings.HasSuffix(p.stdout.String(), "\nCtrl-C ends it.\n") {
			return nil
		}
		return errors.Join(fmt.Errorf("the demo has printed %q", &p.stdout), p.running())
	})
	m := demoBegins.FindStringSubmatch(p.stdout.lines()[0])
	if m == nil {
		t.Fatalf("the demo begins with %q", p.stdout.lines()[0])
	}
	return netip.MustParseAddrPort(m[1]).Port()
}

func TestVersion(t *testing.T) {
	stdout, stderr, code := once(t, environment(), "version", "-o", "json")
	var v struct{ Version, Revision, GoVersion, Platform string }
	d := json.NewDecoder(strings.NewReader(stdout))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil || code != 0 || stderr != "" {
		t.Fatalf("status %d, %v\n%s%s", code, err, stdout, stderr)
	}
	if v.Version == "" || v.GoVersion != runtime.Version() || v.Platform != runtime.GOOS+"/"+runtime.GOARCH {
		t.Errorf("%+v", v)
	}
	for _, arg := range []string{"version", "--version"} {
		stdout, stderr, code = once(t, environment(), arg)
		if want := fmt.Sprintf("epdns %s %s %s\n", v.Version, v.GoVersion, v.Platform); stdout != want || code != 0 || stderr != "" {
			t.Errorf("%s: status %d: %q%s, expected %q", arg, code, stdout, stderr, want)
		}
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"help"}, {"help", "serve"}, {"help", "help"}, {"serve", "--help"}, {"demo", "--help"}, {"version", "--help"}, {"check", "--help"}} {
		stdout, stderr, code := once(t, environment(), args...)
		if code != 0 || stderr != "" || !strings.Contains(stdout, "Usage:") {
			t.Errorf("epdns %v: status %d\n%s%s", args, code, stdout, stderr)
		}
	}
}
