package epdns_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

var lookupStatus = regexp.MustCompile(`^;; status: (\w+), flags:((?: \w+)*); answer: (\d+), authority: (\d+), additional: (\d+)$`)

// readLookup reads what "epdns lookup" prints, as far as it is what dig says too.
func readLookup(out string) (*dug, error) {
	d := &dug{flags: map[string]bool{}}
	section := -1
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		switch m := lookupStatus.FindStringSubmatch(line); {
		case m != nil:
			d.status = m[1]
			for _, f := range strings.Fields(m[2]) {
				d.flags[f] = true
			}
			for i := range d.counts {
				fmt.Sscan(m[3+i], &d.counts[i])
			}
		case strings.HasSuffix(line, " SECTION:"):
			section = slices.Index([]string{";; ANSWER SECTION:", ";; AUTHORITY SECTION:", ";; ADDITIONAL SECTION:"}, line)
		case strings.HasPrefix(line, ";; extended error: "):
			var code uint16
			fmt.Sscanf(line, ";; extended error: %d", &code)
			d.ede = append(d.ede, code)
		case line != "":
			rr, err := dns.NewRR(line)
			if err != nil || section < 0 {
				return nil, errors.Join(fmt.Errorf("unexpected line %q", line), err)
			}
			d.sections[section] = append(d.sections[section], rr)
		}
	}
	for s, rrs := range d.sections {
		if len(rrs) != d.counts[s] {
			return nil, fmt.Errorf("%d %s records, and %d in the status line", len(rrs), sectionNames[s], d.counts[s])
		}
	}
	return d, nil
}

// same says where two replies differ, the order of records aside.
func (d *dug) same(o *dug) error {
	var faults []error
	must := func(ok bool, format string, args ...any) {
		if !ok {
			faults = append(faults, fmt.Errorf(format, args...))
		}
	}
	must(d.status == o.status, "status %s and %s", d.status, o.status)
	must(fmt.Sprint(d.flags) == fmt.Sprint(o.flags), "flags %v and %v", d.flags, o.flags)
	must(slices.Equal(d.ede, o.ede), "extended errors %d and %d", d.ede, o.ede)
	for s := range d.sections {
		a, b := whole(d.sections[s]), whole(o.sections[s])
		must(slices.Equal(a, b), "%s records %q and %q", sectionNames[s], a, b)
	}
	return errors.Join(faults...)
}

// What lookup answers, from the files or by a server, is what dig gets.
func TestLookupAgreesWithDig(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster")
	for _, c := range []struct {
		name  string
		qtype uint16
	}{
		{"web.shop.registry.local.", dns.TypeA},
		{"web.shop.registry.local.", dns.TypeAAAA},
		{"web.shop.registry.local.", dns.TypeSRV},
		{"WEB.Shop.registry.local.", dns.TypeA},
		{"_http._tcp.web.shop.registry.local.", dns.TypeSRV},
		{"10-1-1-11.web.shop.registry.local.", dns.TypeANY},
		{"pg.shop.registry.local.", dns.TypeA},
		{"billing.shop.registry.local.", dns.TypeAAAA},
		{"nope.shop.registry.local.", dns.TypeA},
		{"shop.registry.local.", dns.TypeTXT},
		{"registry.local.", dns.TypeSOA},
		{"registry.local.", dns.TypeNS},
		{"www.example.com.", dns.TypeA},
		{"11.1.1.10.in-addr.arpa.", dns.TypePTR},
	} {
		q := ask(c.name, c.qtype).overTCP()
		want := dig(t, q, p.dns.Port())
		exit := 0
		if want.status == "REFUSED" {
			exit = 1
		}
		for _, from := range [][]string{{"--manifests", "testdata/cluster"}, {"--server", p.http}} {
			args := append([]string{"lookup", c.name, typeText(c.qtype)}, from...)
			stdout, stderr, code := once(t, environment(), args...)
			got, err := readLookup(stdout)
			if err == nil {
				err = got.same(want)
			}
			if err != nil || code != exit || (stderr == "") != (exit == 0) {
				t.Errorf("%v %s: %v, exit status %d, expected %d, %s\n%s", q, from[0], err, code, exit, stderr, stdout)
			}
		}
	}
}

func TestLookupForms(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster")
	for _, from := range [][]string{{"--manifests", "testdata/cluster"}, {"--server", p.http}} {
		lookup := func(args ...string) string {
			t.Helper()
			stdout, stderr, code := once(t, environment(), append(append([]string{"lookup"}, args...), from...)...)
			if code != 0 || stderr != "" {
				t.Errorf("lookup %q: exit status %d, %s", args, code, stderr)
			}
			return stdout
		}
		if got := lookup("10.1.1.11", "--short"); got != "10-1-1-11.web.shop.registry.local.\n" {
			t.Errorf("by address: %q", got)
		}
		if got := lookup("jobs.shop.registry.local", "--short", "--from", "10.1.1.11"); got != "10.1.1.41\n" {
			t.Errorf("short: %q", got)
		}
		var reply struct {
			Status string
			Answer []struct{ Name, Type, Data string }
		}
		got := lookup("jobs.shop.registry.local", "-o", "json")
		if err := json.Unmarshal([]byte(got), &reply); err != nil || reply.Status != "NOERROR" || len(reply.Answer) != 1 ||
			reply.Answer[0].Name != "jobs.shop.registry.local." || reply.Answer[0].Type != "A" || reply.Answer[0].Data != "10.1.1.41" {
			t.Errorf("JSON: %v, %s", err, got)
		}
	}
	stdout, _, code := once(t, environment(), "lookup", "jobs.shop.k8s.test", "--short", "--zone", "registry.local", "--zone", "k8s.test", "--manifests", "testdata/cluster")
	if code != 0 || stdout != "10.1.1.41\n" {
		t.Errorf("in another zone: exit status %d, %q", code, stdout)
	}
}

// What a reader would miss in the answer is said beside it.
func TestLookupSays(t *testing.T) {
	trusting := settings(t, "clients: {trustedForwarders: [127.0.0.1]}\n")
	p := serve(t, "--manifests", "testdata/cluster")
	here, there := []string{"--manifests", "testdata/cluster"}, []string{"--server", p.http}
	trusted := append([]string{"--config", trusting}, here...)
	for _, c := range []struct {
		args   string
		from   [][]string
		stderr string
	}{
		{"jobs.shop.registry.local --short", [][]string{here, there}, ""},
		{"nope.shop.registry.local --short", [][]string{here, there}, "epdns: no records for nope.shop.registry.local. A: NXDOMAIN\n"},
		{"jobs.shop.registry.local MX --short", [][]string{here, there}, "epdns: no records for jobs.shop.registry.local. MX: NOERROR\n"},
		{"nope.shop.registry.local", [][]string{here, there}, ""},
		{"wbe.shop.registry.local", [][]string{here}, "epdns: there is no Service shop/wbe; do you mean shop/web?\n"},
		{"web.shpo.registry.local", [][]string{here}, "epdns: there is no Service shpo/web; do you mean shop/web?\n"},
		{"wbe -n shop", [][]string{here}, "epdns: there is no Service shop/wbe; do you mean shop/web?\n"},
		{"jobs -n shop --short", [][]string{here, there}, ""},
		{"shop/jobs -o table", [][]string{here, there}, ""},
		{"web.shop.svc.registry.local", [][]string{here}, "epdns: there is no svc in the names of registry.local; do you mean web.shop.registry.local?\n"},
		{"nope.shop.registry.local -o table", [][]string{here, there}, "epdns: no records for nope.shop.registry.local. A: NXDOMAIN\n"},
		{"jobs.shop.registry.local --subnet 10.1.2.0/24", [][]string{here, there}, "epdns: subnet 10.1.2.0/24 does not count: 127.0.0.1 is no trusted forwarder, or the source ecs is off\n"},
		{"jobs.shop.registry.local --subnet 10.1.2.0/24", [][]string{trusted}, ""},
		{"jobs.shop.registry.local --subnet 10.1.2.0/24 --from 127.0.0.2", [][]string{trusted}, "epdns: subnet 10.1.2.0/24 does not count: 127.0.0.2 is no trusted forwarder, or the source ecs is off\n"},
	} {
		for _, from := range c.from {
			_, stderr, code := once(t, environment(), append(append([]string{"lookup"}, strings.Fields(c.args)...), from...)...)
			if stderr != c.stderr || code != 0 {
				t.Errorf("lookup %s %s: exit status %d, it says %q, want %q", c.args, from[0], code, stderr, c.stderr)
			}
		}
	}
}

func TestLookupMistakes(t *testing.T) {
	nobody := closedPort(t)
	// Connections are taken by the kernel and never answered.
	silent, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	replaceFile(t, kubeconfig, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: silent
clusters: [{name: silent, cluster: {server: "http://%s"}}]
users: [{name: nobody, user: {}}]
contexts: [{name: silent, context: {cluster: silent, user: nobody}}]
`, silent.Addr()))
	// It is up, and has read nothing yet.
	waiting := listen(t, "--kubeconfig", kubeconfig)

	mistakes(t, []mistake{
		{"lookup", 2, []string{"lookup what? NAME [TYPE]", "epdns lookup --help"}},
		{"explain", 2, []string{"explain what? NAME [TYPE]", "epdns explain --help"}},
		{"lookup a.b A IN", 2, []string{`"IN"`, "epdns lookup --help"}},
		{"lookup @127.0.0.1 a.b", 2, []string{`"@127.0.0.1"`, "NAME and then TYPE", "--server"}},
		{"lookup a.b A @127.0.0.1", 2, []string{`"@127.0.0.1"`, "--server"}},
		{"lookup srv a.b", 2, []string{"the order is NAME and then TYPE: lookup a.b srv"}},
		{"explain A a.b", 2, []string{"the order is NAME and then TYPE: explain a.b A"}},
		{"lookup shop/near --manifests testdata/missing", 1, []string{"testdata/missing"}},
		{"lookup near", 2, []string{"do you mean near.NAMESPACE.registry.local", "--namespace"}},
		{"explain near --zone k8s.test", 2, []string{"do you mean near.NAMESPACE.k8s.test", "--namespace"}},
		{"explain data/near --namespace shop", 2, []string{"data/near is in no namespace that --namespace names"}},
		{"lookup a..b", 2, []string{"NAME", `"a..b"`}},
		{"lookup a.b FOO", 2, []string{"TYPE", `"FOO"`}},
		{"lookup a.b AXFR", 2, []string{"AXFR", "dig"}},
		{"lookup 10.0.0.1 A", 2, []string{"TYPE", "PTR"}},
		{"lookup a.b --from here", 2, []string{"--from", `"here"`}},
		{"lookup a.b --zone a..b --manifests testdata/cluster", 2, []string{"zone", "a..b"}},
		{"lookup a.b --output xml", 2, []string{"--output", `"xml"`, "text, table, wide, json or yaml"}},
		{"lookup a.b --short -o json", 2, []string{"--short", "json"}},
		{"lookup a.b --color red", 2, []string{"--color", `"red"`}},
		{"lookup a.b --timeout 0s", 2, []string{"--timeout"}},
		{"lookup a.b --timeout soon", 2, []string{"--timeout", "soon"}},
		{"lookup a.b --server localhost", 2, []string{"--server", `"localhost"`}},
		{"lookup a.b --server http://127.0.0.1:1 --zone a", 2, []string{"--server", "--zone"}},
		{"lookup a.b --server http://127.0.0.1:1 --config x", 2, []string{"--server", "--config"}},
		{"lookup a.b --config=", 2, []string{"--config is empty"}},
		{"lookup a.b --config testdata/missing", 1, []string{"config testdata/missing: no such file"}},
		{"lookup a.b --server http://127.0.0.1:1 --kubeconfig x", 2, []string{"--server", "--kubeconfig"}},
		{"lookup a.b --server http://" + nobody, 1, []string{nobody, "connection refused"}},
		{"lookup a.b --timeout 100ms --server http://" + silent.Addr().String(), 1, []string{silent.Addr().String(), "100ms", "--timeout"}},
		{"lookup a.registry.local --timeout 100ms --server " + waiting.http, 1, []string{waiting.http, "not ready", "--timeout"}},
		{"lookup a.registry.local --timeout 100ms --kubeconfig " + kubeconfig, 1, []string{kubeconfig, "--timeout"}},
		{"lookup a.registry.local --manifests testdata/missing", 1, []string{"testdata/missing"}},
	})
}

// The pods of a cluster, asked for without a server and through one.
func TestKubeLookup(t *testing.T) {
	k := newKube(t)
	server := serve(t, "--kubeconfig", k.config)
	ns := k.namespace("epdns-lookup")
	k.create(ns, deployment("web"))
	pods := k.follow(server, "web", ns, "app=web", 3, dashes)
	var want []string
	for _, pod := range pods {
		want = append(want, pod.Status.PodIP)
	}
	for _, from := range [][]string{{"--kubeconfig", k.config}, {"--server", server.http}} {
		stdout, stderr, code := once(t, environment(), append([]string{"lookup", "web." + ns + ".registry.local", "--short"}, from...)...)
		if code != 0 || stderr != "" {
			t.Errorf("%s: exit status %d, %s", from[0], code, stderr)
		}
		if err := equal(from[0], strings.Fields(stdout), want); err != nil {
			t.Error(err)
		}
	}
}
