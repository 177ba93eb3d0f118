//go:build linux

package forwarders_test

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// finding is what epdns check --through says of a forwarder with some setting.
type finding struct {
	forwarder string
	setting   string
	more      string   // the setting in the forwarder's words, see forwarder.start
	says      []string // of each line the begin, in order, but for those of order; … is any text
	fault     bool
}

// Parts of lines that several have.
const (
	noReverse  = "warning: through ADDR: 20.1.244.10.in-addr.arpa PTR: "
	without    = "warning: through ADDR: brief.shop.registry.local SRV: the addresses of the targets are left out, and clients such as HAProxy ask for each: "
	ownBlock   = "only\nregistry.local {\n    errors\n    CACHE\n    forward . 10.96.0.53\n}\n"
	stubUnits  = "stub-zone:\n    name: registry.local\n    stub-addr: 10.96.0.53\n"
	forwardOne = "\nzones:\nzone \"registry.local\" { type forward; forward only; forwarders { 10.96.0.53; }; };\n"
)

func block(cache string) string { return strings.ReplaceAll(ownBlock, "CACHE", cache) }

var findings = []finding{
	{"CoreDNS", "as the snippet has it", "", nil, false},
	{"CoreDNS", "cache 30", block("cache 30"), []string{
		"through ADDR: zero.shop.registry.local A: it keeps this for 5 s, and epdns says 0 s: if it is CoreDNS, in the zone's block, give cache a minimum of 0",
		"warning: through ADDR: idle.shop.registry.local A: it keeps this for 5 s, and epdns says 2 s: ",
		noReverse + "REFUSED",
	}, true},
	{"CoreDNS", "a minimum TTL", block("cache {\n        success 9984 3600 60\n        denial 9984 1800 60\n    }"), []string{
		"through ADDR: db.shop.registry.local A: it keeps this for …and epdns says 5 s: ",
		"through ADDR: idle.shop.registry.local A: it keeps this for …and epdns says 2 s: ",
		noReverse + "REFUSED",
		"warning: through ADDR: whether answers are fresh was not looked at for db.shop.registry.local A, many.shop.registry.local A, zero.shop.registry.local A and ",
	}, true},
	{"CoreDNS", "serve_stale", block("cache {\n        success 9984 3600 0\n        denial 9984 1800 0\n        serve_stale\n    }"), []string{
		noReverse + "REFUSED",
		"through ADDR: db.shop.registry.local A…: what is over is given once more, with a TTL of 0 s, however old: if it is CoreDNS, leave serve_stale out",
	}, true},
	{"CoreDNS", "no block for the zone", "only\nexample.com {\n    errors\n    forward . 10.96.0.53\n}\n", []string{
		"through ADDR: registry.local: REFUSED: it has no way to epdns for this zone, or does not serve this machine; if it is CoreDNS, its Corefile needs a block for the zone",
	}, true},
	{"CoreDNS", "a wrong address", "only\nregistry.local {\n    errors\n    forward . 10.96.0.99\n}\n", []string{
		"through ADDR: registry.local: SERVFAIL: it does not reach epdns",
	}, true},
	{"NodeLocal DNSCache", "as the snippet has it", "", []string{
		"through ADDR: zero.shop.registry.local A: it keeps this for 5 s, and epdns says 0 s: its stub domains have cache 30",
		"warning: through ADDR: idle.shop.registry.local A: it keeps this for 5 s, and epdns says 2 s: ",
		noReverse + "REFUSED: the way back from addresses does not lead to epdns, which clients can do without; reverse zones go to the cluster's CoreDNS",
	}, true},
	{"kube-dns", "a stub domain", "", []string{
		without + "it does not keep them in its cache",
		noReverse + "REFUSED, Not Ready",
	}, false},
	{"unbound", "as the snippet has it, with private-address", "server:\n    private-address: 10.0.0.0/8\n    private-address: fd00::/8\n", nil, false},
	{"unbound", "private-address", "only\nserver:\n    domain-insecure: registry.local\n    private-address: 10.0.0.0/8\n" + stubUnits, []string{
		without + "minimal-responses: no leaves them in",
		noReverse + "NXDOMAIN",
		`through ADDR: db.shop.registry.local A: no records, and epdns has 6 records: private addresses are dropped, as if they came from outside (DNS rebinding); private-address drops them: it needs private-domain: "registry.local"`,
	}, true},
	{"unbound", "DNSSEC", "only\n" + stubUnits, []string{
		`through ADDR: registry.local: SERVFAIL with DNSSEC, and an answer without; the zone is not signed: it needs domain-insecure: "registry.local"`,
	}, true},
	{"unbound", "no stub-zone", "only\nserver:\n    domain-insecure: local\n", []string{
		"through ADDR: registry.local: SERVFAIL: it does not reach epdns",
	}, true},
	{"unbound", "cache-min-ttl", "server:\n    cache-min-ttl: 60\n", []string{
		"through ADDR: db.shop.registry.local A: it keeps this for …and epdns says 5 s: cache-min-ttl must be 0",
		"through ADDR: idle.shop.registry.local A: it keeps this for …and epdns says 2 s: cache-min-ttl must be 0",
		"warning: through ADDR: whether answers are fresh was not looked at",
	}, true},
	{"unbound", "serve-expired", "server:\n    serve-expired: yes\n", []string{
		"through ADDR: db.shop.registry.local A…: what is over is given once more, with a TTL of 30 s, however old: serve-expired must be no",
	}, true},
	{"BIND", "as the snippet has it", "", nil, false},
	{"BIND", "without max-records-per-type", "only\nvalidate-except { \"registry.local\"; };" + forwardOne, []string{
		"through ADDR: many.shop.registry.local A: SERVFAIL, and epdns has 200 records; it needs max-records-per-type 0",
		noReverse + "NXDOMAIN",
	}, true},
	{"BIND", "DNSSEC", "only" + forwardOne, []string{
		`through ADDR: registry.local: SERVFAIL with DNSSEC, and an answer without; the zone is not signed: it needs validate-except { "registry.local"; }`,
	}, true},
	{"BIND", "deny-answer-addresses", "deny-answer-addresses { 10.0.0.0/8; };", []string{
		`through ADDR: db.shop.registry.local A: SERVFAIL, and epdns has 6 records: private addresses are dropped, as if they came from outside (DNS rebinding); deny-answer-addresses drops them: it needs except-from { "registry.local"; }`,
	}, true},
	{"BIND", "min-cache-ttl", "min-cache-ttl 60;", []string{
		"through ADDR: db.shop.registry.local A: it keeps this for …and epdns says 5 s: min-cache-ttl and min-ncache-ttl must be 0",
		"warning: through ADDR: whether answers are fresh was not looked at",
	}, true},
	{"dnsmasq", "as the snippet has it, with stop-dns-rebind", "stop-dns-rebind\n", []string{without}, false},
	{"dnsmasq", "stop-dns-rebind", "only\nserver=/registry.local/10.96.0.53\nstop-dns-rebind\n", []string{
		without,
		noReverse + "REFUSED, Not Ready: the way back from addresses does not lead to epdns, which clients can do without; it needs rev-server",
		"through ADDR: db.shop.registry.local A: no records, Blocked, and epdns has 6 records: private addresses are dropped, as if they came from outside (DNS rebinding); stop-dns-rebind drops them: it needs rebind-domain-ok=/registry.local/",
	}, true},
	{"dnsmasq", "filter-AAAA", "filter-AAAA\n", []string{
		without,
		"through ADDR: db.shop.registry.local AAAA: no records, Filtered, and epdns has 1 record: IPv6 addresses do not get through; leave filter-AAAA out",
	}, true},
	{"dnsmasq", "filterwin2k", "filterwin2k\n", []string{
		"through ADDR: brief.shop.registry.local SRV: no records, and epdns has 1 record: SRV does not get through; leave filterwin2k out",
	}, true},
	{"dnsmasq", "min-cache-ttl", "min-cache-ttl=60\n", []string{
		"through ADDR: db.shop.registry.local A: it keeps this for …and epdns says 5 s: leave min-cache-ttl, neg-ttl and local-ttl out",
		without,
		"through ADDR: idle.shop.registry.local A: it keeps this for …and epdns says 2 s: ",
		"warning: through ADDR: whether answers are fresh was not looked at",
	}, true},
	{"dnsmasq", "use-stale-cache", "use-stale-cache\n", []string{
		without,
		"through ADDR: db.shop.registry.local A…: it says that its answer is stale (Stale Answer); leave use-stale-cache out",
	}, true},
	{"Knot Resolver", "as the snippet has it", "", []string{without}, false},
	{"Knot Resolver", "policy.STUB", "only\npolicy.add(policy.suffix(policy.STUB('10.96.0.53'), policy.todnames({'registry.local'})))\n", []string{
		"through ADDR: zero.shop.registry.local A: it keeps this for 5 s, and epdns says 0 s: ",
		without,
		"warning: through ADDR: idle.shop.registry.local A: it keeps this for 5 s, and epdns says 2 s: ",
		noReverse + "NXDOMAIN",
	}, true},
	{"Knot Resolver", "rebinding", "modules.load('rebinding < iterate')\n", []string{
		"through ADDR: db.shop.registry.local A: REFUSED, Prohibited: EIM4, and epdns has 6 records: private addresses are dropped, as if they came from outside (DNS rebinding); the module rebinding drops them",
	}, true},
	{"systemd-resolved", "as the snippet has it", "", nil, false},
	{"systemd-resolved", "no route", "only\n[Resolve]\nDNS=10.96.0.53\nDNSSEC=no\n", []string{
		"through ADDR: registry.local: REFUSED: it has no way to epdns for this zone, or does not serve this machine; it needs Domains=~registry.local beside DNS=ADDRESS",
	}, true},
}

// What epdns check --through says of each forwarder, as it is meant and with settings that harm.
func TestThrough(t *testing.T) {
	dir := shop(t)
	serve(t, dir)
	var wg sync.WaitGroup
	for _, f := range findings {
		if named(t, f.forwarder).at == "" {
			wg.Go(f.after(t, dir))
		}
	}
	for _, f := range findings {
		if named(t, f.forwarder).at != "" {
			t.Run(f.forwarder+", "+f.setting, func(t *testing.T) { f.after(t, dir)() })
		}
	}
	wg.Wait()
}

// after starts the forwarder, and returns what checks it.
func (f finding) after(t *testing.T, dir string) func() {
	t.Helper()
	by := named(t, f.forwarder)
	at := by.address()
	by.start(t, at, f.more).Eventually(t, func() error {
		_, err := ask("udp", at, "ready.registry.local.", dns.TypeTXT)
		return err
	})
	return func() { f.check(t, dir, at) }
}

// check runs epdns check, and compares what it says of the way.
func (f finding) check(t *testing.T, dir, at string) {
	var stdout, stderr bytes.Buffer
	// As much time as a busy machine may need, and less than the longest TTL here.
	cmd := exec.Command(epdns, "check", "--manifests="+dir, "--through="+at, "--timeout=25s")
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Error(err)
		return
	}
	// Where the forwarder has a cache, and how it turns its answers, is the page's to say.
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(stdout.String(), at, "ADDR")) {
		if strings.Contains(line, "through ADDR") && !strings.Contains(line, "calls itself") && !strings.Contains(line, "changing orders") &&
			!strings.Contains(line, "answered as epdns answers") {
			lines = append(lines, line)
		}
	}
	same := len(lines) == len(f.says)
	for i := 0; same && i < len(lines); i++ {
		begin, rest, _ := strings.Cut(f.says[i], "…")
		same = strings.HasPrefix(lines[i], begin) && strings.Contains(lines[i], rest)
	}
	if code := cmd.ProcessState.ExitCode(); !same || (code == 1) != f.fault || code > 1 {
		t.Errorf("%s, %s: exit status %d:\n%s%s\nexpected, with a fault %v:\n%s", f.forwarder, f.setting, code, &stdout, &stderr, f.fault, strings.Join(f.says, "\n"))
	}
}
