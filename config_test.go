package epdns_test

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// settings makes a configuration file, beside which is testdata/cluster.
func settings(t *testing.T, text string) (path string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "cluster"), os.DirFS("testdata/cluster")); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "epdns.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: epdns/v1alpha1\nkind: Config\n"+text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// digs asks through dig.
func digs(t *testing.T, p *program, name string, qtype uint16) []string {
	t.Helper()
	q := ask(name, qtype)
	q.to = p.dns.Addr()
	return dig(t, q, p.dns.Port()).brief()
}

// brief are the status and the records of the answer, or the SOA of a negative one,
// each with its TTL.
func (d *dug) brief() (out []string) {
	for _, rr := range slices.Concat(d.sections[answers], d.sections[authorities]) {
		if soa, ok := rr.(*dns.SOA); ok {
			out = append(out, fmt.Sprintf("SOA %s %d %d", soa.Hdr.Name, soa.Hdr.Ttl, soa.Minttl))
		} else {
			out = append(out, fmt.Sprintf("%s %d %s", typeText(rr.Header().Rrtype), rr.Header().Ttl, rdata(rr)))
		}
	}
	slices.Sort(out)
	return append([]string{d.status}, out...)
}

const twoZones = `
source: {manifests: cluster}
zones:
- name: registry.local
  defaults: {ttl: 7, ttl-empty: 3s, ttl-nxdomain: 0}
- name: cluster.local
  layout: kubernetes
  empty: nxdomain
  endpointNames: pod
  defaults: {ttl: 1m, ttl-nxdomain: 11s}
reverse: [10.0.0.0/8]
nameserver: [192.0.2.53]
`

// TestConfigFile: each zone is served as the file says, and looked up so.
func TestConfigFile(t *testing.T) {
	file := settings(t, twoZones)
	all := serve(t, "--config", file)
	one := serve(t, "--config", file, "--zone", "Cluster.local.", "--nameserver", "192.0.2.54")
	for _, c := range []struct {
		of    *program
		name  string
		qtype uint16
		want  []string
	}{
		{all, "jobs.shop.registry.local.", dns.TypeA, []string{"NOERROR", "A 7 10.1.1.41"}},
		{all, "quiet.shop.registry.local.", dns.TypeA, []string{"NOERROR", "SOA registry.local. 3 3"}},
		{all, "nope.shop.registry.local.", dns.TypeA, []string{"NXDOMAIN", "SOA registry.local. 0 0"}},
		{all, "jobs.shop.svc.cluster.local.", dns.TypeA, []string{"NOERROR", "A 60 10.1.1.41"}},
		{all, "jobs.shop.svc.cluster.local.", dns.TypeSRV, []string{"NOERROR", "SRV 60 0 1 8080 jobs-5f7c9d6b8-q4xwd.jobs.shop.svc.cluster.local."}},
		{all, "quiet.shop.svc.cluster.local.", dns.TypeA, []string{"NXDOMAIN", "SOA cluster.local. 2 2"}},
		{all, "jobs.shop.cluster.local.", dns.TypeA, []string{"NXDOMAIN", "SOA cluster.local. 11 11"}},
		{all, "ns.dns.registry.local.", dns.TypeA, []string{"NOERROR", "A 7 192.0.2.53"}},
		{all, "41.1.1.10.in-addr.arpa.", dns.TypePTR, []string{"NOERROR", "PTR 7 10-1-1-41.jobs.shop.registry.local."}},

		{one, "jobs.shop.registry.local.", dns.TypeA, []string{"REFUSED"}},
		{one, "jobs.shop.svc.cluster.local.", dns.TypeA, []string{"NOERROR", "A 60 10.1.1.41"}},
		{one, "ns.dns.cluster.local.", dns.TypeA, []string{"NOERROR", "A 60 192.0.2.54"}},
		{one, "41.1.1.10.in-addr.arpa.", dns.TypePTR, []string{"NOERROR", "PTR 60 jobs-5f7c9d6b8-q4xwd.jobs.shop.svc.cluster.local."}},
	} {
		if got := digs(t, c.of, c.name, c.qtype); !slices.Equal(got, c.want) {
			t.Errorf("%s %s of %v: %q, expected %q", c.name, typeText(c.qtype), c.of.cmd.Args[4:], got, c.want)
		}
		if c.name == "ns.dns.cluster.local." {
			continue // of a flag that lookup does not have
		}
		args := []string{"lookup", c.name, typeText(c.qtype), "--config", file}
		if c.of == one {
			args = append(args, "--zone", "Cluster.local.")
		}
		stdout, stderr, code := once(t, environment(), args...)
		d, err := readLookup(stdout)
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		if got := d.brief(); !slices.Equal(got, c.want) || (code == 0) != (d.status != "REFUSED") {
			t.Errorf("%q: %q, exit status %d, expected %q\n%s", args, got, code, c.want, stderr)
		}
	}
}

// TestConfigListens: the addresses of the file are bound, and not where flags give
// others.
func TestConfigListens(t *testing.T) {
	file := settings(t, "source: {manifests: cluster}\nlisten: [\"127.0.0.1:0\", \"[::1]:0\"]\nhttp: \"\"\n")
	p := launch(t, environment(), "serve", "--log-format", "json", "--lameduck", "0", "--config", file)
	p.logged(t, `"listening"`, `127.0.0.1:`, `[::1]:`)
	for _, r := range p.log(t) {
		if r["http"] != nil {
			t.Errorf("it has HTTP: %v", r)
		}
	}
	q := serve(t, "--config", file)
	if q.dns.Addr() != netip.MustParseAddr("127.0.0.1") || strings.Contains(q.stderr.String(), "[::1]") {
		t.Errorf("it listens on what the file says too:\n%v", &q.stderr)
	}
}

// TestConfigHTTPDetails: only with httpDetails do others than loopback learn what is
// in the cluster.
func TestConfigHTTPDetails(t *testing.T) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(addrs, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast()
	})
	if i < 0 {
		t.Skip("this machine has no IPv4 address but loopback's")
	}
	for details, want := range map[bool]int{false: http.StatusForbidden, true: http.StatusOK} {
		p := serve(t, "--http", ":0", "--config", settings(t, fmt.Sprintf("source: {manifests: cluster}\nhttpDetails: %t\n", details)))
		p.http = strings.Replace(p.http, "[::]", addrs[i].(*net.IPNet).IP.String(), 1)
		if code, body := p.get(t, "/lookup?name=jobs.shop.registry.local&type=A"); code != want {
			t.Errorf("httpDetails: %t: %d %q, expected %d", details, code, body, want)
		}
	}
}

// TestUpstreamFlag: names outside the zones are passed on, whether a flag or the
// file says to whom.
func TestUpstreamFlag(t *testing.T) {
	above := serve(t, "--manifests", "testdata/cluster", "--zone", "above.local")
	for _, args := range [][]string{
		{"--manifests", "testdata/cluster", "--upstream", above.dns.String()},
		{"--config", settings(t, fmt.Sprintf("source: {manifests: cluster}\nupstream: [\"%v\"]\n", above.dns))},
	} {
		p := serve(t, args...)
		for name, want := range map[string][]string{
			"jobs.shop.registry.local.": {"NOERROR", "A 5 10.1.1.41"},
			"jobs.shop.above.local.":    {"NOERROR", "A 5 10.1.1.41"},
			"jobs.shop.below.local.":    {"REFUSED"},
		} {
			if got := digs(t, p, name, dns.TypeA); !slices.Equal(got, want) {
				t.Errorf("%s with %q: %q, expected %q", name, args, got, want)
			}
		}
	}
}

// TestBadConfigFile: one line, with the place where there is one.
func TestBadConfigFile(t *testing.T) {
	good := settings(t, "source: {manifests: cluster}\n")
	missing := filepath.Join(filepath.Dir(good), "missing")
	for _, c := range []struct {
		what, file string
		flags      []string
		code       int
		says       string
	}{
		{"missing", missing, nil, 1, "config " + missing + ": no such file or directory"},
		{"a directory", filepath.Dir(good), nil, 1, "config " + filepath.Dir(good) + ": is a directory"},
		{"a manifest", "testdata/cluster/web.yaml", nil, 1, `config testdata/cluster/web.yaml: line 35: a second document begins`},
		{"no source there", settings(t, "source:\n  manifests: nothing\n"), nil, 1, "nothing: no such file or directory"},
		{"bad TTL", settings(t, "zones:\n- name: registry.local\n  defaults:\n    ttl: 5 s\n"), nil, 1, `line 6: zones[0].defaults.ttl: "5 s" is no duration`},
		{"bad TTL of a zone that is not served", settings(t, "zones:\n- name: a.local\n  defaults: {ttl: 2h}\n"), []string{"--zone", "registry.local"}, 1, "line 5: zones[0].defaults.ttl: "},
		{"unknown key", settings(t, "lisen: \":53\"\n"), nil, 1, "line 3: lisen: unknown key"},
		{"bad YAML", settings(t, "listen: [\n"), nil, 1, "near line "},
		{"bad flag beside it", good, []string{"--zone", "."}, 2, `--zone: zone ".": `},
	} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"serve", "--listen", "127.0.0.1:0", "--http", "", "--config", c.file}, c.flags...)
			stdout, stderr, code := once(t, environment(), args...)
			if code != c.code || stdout != "" {
				t.Errorf("exit status %d, expected %d; on standard output: %q", code, c.code, stdout)
			}
			if err := oneLine(stderr, c.says); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestConfigReference: what is printed can be used as it is.
func TestConfigReference(t *testing.T) {
	text, stderr, code := once(t, environment(), "serve", "--config-reference")
	if code != 0 || stderr != "" {
		t.Fatalf("exit status %d: %s", code, stderr)
	}
	path := filepath.Join(t.TempDir(), "epdns.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p := serve(t, "--config", path, "--manifests", "testdata/cluster")
	if err := p.answer(ask("jobs.shop.registry.local.", dns.TypeA), noerror("10.1.1.41")); err != nil {
		t.Error(err)
	}
}
