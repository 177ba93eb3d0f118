package epdns_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"epdns/internal/fakeapi"
)

// service is the manifest of a Service with annotations, each "name: value" in YAML,
// and with so many ready IPv4 pods.
func service(name string, pods int, annotations ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata:\n  namespace: shop\n  name: %s\n  annotations:\n", name)
	for _, a := range append([]string{"example.com/ttl: forever"}, annotations...) {
		fmt.Fprintf(&b, "    %s\n", a)
	}
	for at := 0; at < pods; at += 100 { // as many as a slice has
		fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata:\n  namespace: shop\n"+
			"  name: %s-%d\n  labels: {kubernetes.io/service-name: %s}\nendpoints:\n", name, at, name)
		for i := at; i < min(at+100, pods); i++ {
			fmt.Fprintf(&b, "- addresses: [10.7.%d.%d]\n", i/250, i%250+1)
		}
	}
	return b.String()
}

// TestCheck: each mistake has a line, and the exit status says whether there is one.
func TestCheck(t *testing.T) {
	const hundred = "an answer has %d A records, and a BIND that asks for others takes at most 100; the annotation registry.local/limit makes it fewer"
	for _, c := range []struct {
		what, config, manifests string
		says                    []string // on standard output
		faults                  string   // how many, if any
	}{
		{"nothing wrong", "", service("web", 1, "registry.local/ttl: 2s") + service("db", 0), []string{"no faults: 2 Services"}, ""},
		{"a single one", "", service("web", 1), []string{"no faults: 1 Service"}, ""},
		{"bad values", "", service("web", 1, "registry.local/ttl: 2h", `registry.local/limit: "8"`, "registry.local/order: best") + service("api", 0, `registry.local/min: "0"`), []string{
			`shop/api: annotation registry.local/min "0": not a whole number, 1 or more`,
			`shop/web: annotation registry.local/order "best": not shuffle, rotate, hash or fixed`,
			`shop/web: annotation registry.local/ttl "2h": not whole seconds from 0s to 1h`,
		}, "3 faults"},
		{"no knob", "", service("web", 1, "registry.local/tll: 2s"), []string{`shop/web: annotation registry.local/tll "2s": there is no such knob`}, "1 fault"},
		{"another prefix", "annotationPrefix: dns.example.com\n", service("web", 1, "registry.local/ttl: 2h", "dns.example.com/ttl: soon"), []string{
			`shop/web: annotation dns.example.com/ttl "soon": no duration such as 5s, 1m30s or 5 (seconds)`,
		}, "1 fault"},
		{"many", "", service("all", 101) + service("some", 100) + service("few", 300, `registry.local/limit: "8"`), []string{
			"warning: shop/all: " + fmt.Sprintf(hundred, 101), "no faults: 3 Services",
		}, ""},
		{"many, and a rule", "zones:\n- name: registry.local\n  rules: [{match: {name: all}, set: {limit: 5}}]\n", service("all", 101) + service("each", 101), []string{
			"warning: shop/each: " + fmt.Sprintf(hundred, 101), "no faults: 2 Services",
		}, ""},
		{"many in one of the zones", "zones:\n- {name: registry.local, defaults: {limit: 5}}\n- {name: cluster.local, layout: kubernetes}\n", service("all", 250, "registry.local/topology: off"), []string{
			"warning: shop/all: " + fmt.Sprintf(hundred, 250), "no faults: 1 Service",
		}, ""},
		{"many and a mistake", "", service("all", 101, "registry.local/limit: few"), []string{
			`shop/all: annotation registry.local/limit "few": not a whole number, 0 or more`, "warning: shop/all: " + fmt.Sprintf(hundred, 101),
		}, "1 fault"},
		{"what does nothing", "zones:\n- name: registry.local\n  rules:\n  - {match: {name: web}, set: {ttl: 2}}\n  - {match: {name: w*}, set: {ttl: 3}}\n  - {match: {name: none}, set: {ttl: 3}}\n",
			service("web", 1, `registry.local/min: "2"`, "registry.local/weights: web-9=2"), []string{
				"warning: zones[0].rules[1]: it decides for no Service: what it matches, rules before it match, too",
				"warning: zones[0].rules[2]: it matches no Service",
				"warning: shop/web: annotation registry.local/min: it counts with the topology nearest alone",
				"warning: shop/web: annotation registry.local/weights: no endpoint, node or zone there is web-9",
				"no faults: 1 Service",
			}, ""},
		{"nothing there", "zones:\n- name: registry.local\n  rules: [{match: {name: none}, set: {ttl: 3}}]\n", "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n", []string{
			"warning: no Service or EndpointSlice in ", "no faults: 0 Services",
		}, ""},
		{"slices alone", "", service("web", 1)[strings.Index(service("web", 1), "---\napiVersion: discovery"):], []string{
			"warning: only EndpointSlices could be read, and no Services, which have the annotations", "no faults: 1 Service",
		}, ""},
		{"a bad file", "zones:\n- name: registry.local\n  rules:\n  - set: {limit: few}\n", service("web", 1, "registry.local/ttl: 2h"), []string{
			`FILE:6: zones[0].rules[0].set.limit: "few" is not a whole number, 0 or more`,
		}, "1 fault"},
		{"an unknown key", "lisen: []\n", service("web", 1), []string{"FILE:3: lisen: unknown key; known here: "}, "1 fault"},
		{"a file with several, but what exists is known", "udpSize: 9\nlisten: \":53\"\nupstream: [dns]\n", service("web", 1, "registry.local/ttl: 2h"), []string{
			"FILE:3: udpSize: 9 is not", `FILE:4: listen: expected a list; write [":53"]`, `FILE:5: upstream[0]: "dns" is no server`,
			`shop/web: annotation registry.local/ttl "2h": `,
		}, "4 faults"},
		{"annotations that are no text, and others", "", service("web", 1, "registry.local/limit: 8", "registry.local/ttl: 2h") + service("api", 1, "registry.local/order: best"), []string{
			`MANIFESTS:9: Service "web": annotation registry.local/limit: 8 is a number; write it in quotes`,
			`shop/api: annotation registry.local/order "best": `, `shop/web: annotation registry.local/ttl "2h": `,
		}, "3 faults"},
		{"no YAML", "listen: [\n", "", []string{"FILE:3: did not find expected node content"}, "1 fault"},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			manifests := filepath.Join(dir, "all.yaml")
			if err := os.WriteFile(manifests, []byte(strings.ReplaceAll(c.manifests, "topology: off", `topology: "off"`)), 0o644); err != nil {
				t.Fatal(err)
			}
			file := settings(t, c.config)
			stdout, stderr, code := once(t, environment(), "check", "--manifests", manifests, "--config", file)
			lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
			same := len(lines) == len(c.says)
			for i := 0; same && i < len(lines); i++ {
				same = strings.HasPrefix(lines[i], strings.NewReplacer("FILE", file, "MANIFESTS", manifests).Replace(c.says[i]))
			}
			if !same {
				t.Errorf("it says:\n%sexpected:\n%s", stdout, strings.Join(c.says, "\n"))
			}
			want := ""
			if c.faults != "" {
				want = "epdns: " + c.faults + "\n"
			}
			if stderr != want || code != min(len(want), 1) {
				t.Errorf("exit status %d, on standard error: %q, expected %q", code, stderr, want)
			}
		})
	}
}

// TestNothingToServe: serve says that there is nothing in its files.
func TestNothingToServe(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, "--manifests", dir)
	p.logged(t, "no Service or EndpointSlice in "+dir)
	stdout, stderr, code := once(t, environment(), "check", "--manifests", dir)
	if want := "warning: no Service or EndpointSlice in " + dir + "\nno faults: 0 Services\n"; stdout != want || stderr != "" || code != 0 {
		t.Errorf("exit status %d: %q, %q", code, stdout, stderr)
	}
}

// TestCheckSource: the file says where to read, unless a flag does.
func TestCheckSource(t *testing.T) {
	file := settings(t, "source: {manifests: cluster}\n")
	stdout, stderr, code := once(t, environment(), "check", "--config", file)
	if !strings.HasPrefix(stdout, "no faults: ") || stderr != "" || code != 0 {
		t.Errorf("exit status %d: %q, %q", code, stdout, stderr)
	}
	stdout, stderr, code = once(t, environment(), "check", "--config", file, "--manifests", filepath.Join(filepath.Dir(file), "none"))
	if err := oneLine(stderr, "none: no such file or directory"); err != nil || stdout != "" || code != 1 {
		t.Errorf("exit status %d: %q, %v", code, stdout, err)
	}
}

// TestAnnotationProblems: they are counted and logged while they last.
func TestAnnotationProblems(t *testing.T) {
	manifests := filepath.Join(t.TempDir(), "all.yaml")
	replaceFile(t, manifests, service("web", 1, "registry.local/ttl: 2h", "registry.local/tll: 2s")+service("api", 1, "registry.local/fit: tight"))
	p := serve(t, "--manifests", manifests)
	problems := func(want float64) {
		t.Helper()
		eventually(t, func() error {
			if got := metric(p.metrics(t), "epdns_annotation_problems"); got != want {
				return fmt.Errorf("%v problems, expected %v", got, want)
			}
			return nil
		})
	}
	problems(3)
	p.logged(t, "annotations do nothing", "shop/web", "tll ", ": there is no such knob; ttl ", ": not whole seconds from 0s to 1h")
	p.logged(t, "annotations do nothing", "shop/api", "fit ", ": not truncate or cut")
	replaceFile(t, manifests, service("web", 2, "registry.local/ttl: 2h"))
	problems(1)
	replaceFile(t, manifests, service("web", 2, "registry.local/ttl: 2s"))
	problems(0)
	p.logged(t, "annotations are good again", "shop/web")
	var lines int
	for _, r := range p.log(t) {
		if strings.Contains(r.String(), "annotations ") {
			lines++
		}
	}
	if lines != 4 { // and of shop/api, which is gone, no other
		t.Errorf("%d lines of the log are about annotations:\n%v", lines, &p.stderr)
	}
}

// TestCheckCluster: the annotations of a cluster, as far as one has the right to see
// them.
func TestCheckCluster(t *testing.T) {
	api := newFakeAPI(t, false)
	for _, text := range strings.Split(service("web", 1, "registry.local/ttl: 2h"), "---\n")[1:] {
		manifest, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		o, err := fakeapi.Read(manifest)
		if err != nil {
			t.Fatal(err)
		}
		api.Apply(o)
	}
	check := func(code int, says string, fails ...string) {
		t.Helper()
		stdout, stderr, got := once(t, environment(), "check", "--kubeconfig", api.kubeconfig, "--timeout", "2s")
		if got != code || stdout != says {
			t.Errorf("exit status %d, expected %d: %s%s", got, code, stdout, stderr)
		}
		if code != 0 {
			if err := oneLine(stderr, fails...); err != nil {
				t.Error(err)
			}
		}
	}
	check(1, "shop/web: annotation registry.local/ttl \"2h\": not whole seconds from 0s to 1h\n", "1 fault")
	api.Forbid("Service", true)
	check(0, "warning: only EndpointSlices could be read, and no Services, which have the annotations\nno faults: 1 Service\n")
	api.Fail(http.StatusServiceUnavailable)
	check(1, "", "has not been read (the API server reports an error: ", "within 2s (--timeout)")
}
