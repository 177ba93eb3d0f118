//go:build linux

package rank_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"epdns/test/run"

	"github.com/miekg/dns"
)

// corefile has a way through CoreDNS to epdns on each port. CoreDNS asks as a Pod of the
// cluster's DNS at DNSPOD and ECSPOD, of which epdns believes the latter, and as node-1 at NODE.
const corefile = `
registry.local:53 {
    errors
    bind COREDNS
    forward . DNSPOD
}
registry.local:54 {
    errors
    bind COREDNS
    cache {
        success 9984 3600 0
        denial 9984 1800 0
    }
    forward . DNSPOD
}
registry.local:55 {
    errors
    bind COREDNS
    rewrite edns0 subnet set 32 128
    forward . ECSPOD
}
registry.local:56 {
    errors
    bind COREDNS
    cache {
        success 9984 3600 0
        denial 9984 1800 0
    }
    rewrite edns0 subnet set 32 128
    forward . ECSPOD
}
registry.local:57 {
    errors
    bind COREDNS
    rewrite edns0 subnet set 32 128
    forward . DNSPOD
}
registry.local:58 {
    errors
    bind COREDNS
    cache 30
    forward . NODE
}
registry.local:59 {
    errors
    bind COREDNS
    rewrite edns0 subnet set 24 56 revert
    forward . ECSPOD
}
`

// The ways.
const (
	plainWay     = coreIP + ":53"
	cachedWay    = coreIP + ":54" // as deploy/snippets/coredns.Corefile
	subnetWay    = coreIP + ":55"
	leakyWay     = coreIP + ":56" // with the subnet and a cache
	disbelieved  = coreIP + ":57"
	nodeLocalWay = coreIP + ":58"
	widerWay     = coreIP + ":59" // with a subnet as wide as a podCIDR
)

// through asks for a Service by one of the ways.
func through(t *testing.T, network, way string, from netip.Addr, service string, typ uint16, subnet string) *dns.Msg {
	t.Helper()
	return question{network: network, from: from, server: way, name: full(service), typ: typ, subnet: subnet}.must(t)
}

// askedFrom makes programs of the namespace that ask at this address of epdns's do so from
// another one, if they don't choose.
func askedFrom(t *testing.T, at string, from netip.Addr) {
	t.Helper()
	cmd := exec.Command("ip", "route", "replace", "local", at+"/32", "dev", "lo", "table", "local",
		"proto", "kernel", "scope", "host", "src", from.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// serveBehindCoreDNS runs both. The Pods of the cluster's DNS are those behind the real Service
// kube-dns, and CoreDNS has their addresses.
func serveBehindCoreDNS(t *testing.T) {
	t.Helper()
	pods, err := list(t.Context(), "kube-system", "kube-dns")
	if err != nil {
		t.Fatal(err)
	}
	askedFrom(t, dnsPodIP, pods[0].addr())
	askedFrom(t, ecsPodIP, pods[1].addr())
	askedFrom(t, nodeDNSIP, nodeIP(0))
	t.Logf("CoreDNS asks as Pods on %s and %s", pods[0].NodeName, pods[1].NodeName)
	serve(t, fmt.Sprintf("{trustedForwarders: [%v]}", pods[1].addr()))
	path := filepath.Join(t.TempDir(), "Corefile")
	text := strings.NewReplacer("COREDNS", coreIP, "DNSPOD", dnsPodIP, "ECSPOD", ecsPodIP, "NODE", nodeDNSIP).Replace(corefile)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(coreDNS, "-conf", path)
	cmd.Env = []string{}
	p := run.ForTest(t, cmd)
	for _, way := range []string{plainWay, cachedWay, subnetWay, leakyWay, disbelieved, nodeLocalWay, widerWay} {
		p.Eventually(t, func() error {
			// No name that a test asks for: what is cached comes from the test.
			q := question{network: "tcp", from: nodeIP(0), server: way, name: "dns-version.registry.local.", typ: dns.TypeTXT}
			_, err := q.put()
			return err
		})
	}
}

// placed are Services whose answers depend on the asker, each by another policy.
var placed = []string{"zone-headless", "node-headless", "near", "plain"}

// neutral says what is wrong with an answer that is to suit everybody: it has all, and SRV
// records prefer nobody.
func neutral(t *testing.T, network, way string, from netip.Addr, service string) error {
	t.Helper()
	all := endpoints(t, service)
	everybody := those(all, (*endpoint).ready)
	if err := sameSet(addrs(through(t, network, way, from, service, dns.TypeA, "")), everybody); err != nil {
		return err
	}
	got := targets(through(t, network, way, from, service, dns.TypeSRV, ""))
	return checkTargets(all, place{}, onNode, everybody, got)
}

// asDirect says what is wrong with an answer that is to be the one that this asker would get
// from epdns itself.
func asDirect(t *testing.T, network, way string, from netip.Addr, service string) error {
	t.Helper()
	want := sorted(addrs(ask(t, network, from, service, dns.TypeA)))
	if err := sameSet(addrs(through(t, network, way, from, service, dns.TypeA, "")), want); err != nil {
		return err
	}
	direct := targets(ask(t, network, from, service, dns.TypeSRV))
	got := targets(through(t, network, way, from, service, dns.TypeSRV, ""))
	if fmt.Sprint(got) != fmt.Sprint(direct) { // maps print in order
		return fmt.Errorf("the SRV records are %v, want %v", got, direct)
	}
	return nil
}

func TestCoreDNS(t *testing.T) {
	serveBehindCoreDNS(t)
	all := askers(t)
	networks := []string{"udp", "tcp"}
	each := func(t *testing.T, way string, check func(t *testing.T, network, way string, from netip.Addr, service string) error) {
		t.Helper()
		for _, a := range all {
			for _, service := range placed {
				for _, network := range networks {
					if err := check(t, network, way, a.addr, service); err != nil {
						t.Errorf("%s asks for %s over %s: %v", a.what, service, network, err)
					}
				}
			}
		}
	}
	// Without a subnet CoreDNS asks for everybody, so nobody is preferred, its own neighbours
	// least of all; and a cache does no harm.
	t.Run("a Pod of the cluster's DNS", func(t *testing.T) { each(t, plainWay, neutral) })
	t.Run("with a cache", func(t *testing.T) { each(t, cachedWay, neutral) })
	// Nor is a subnet believed that just any Pod could have sent.
	t.Run("with a subnet that is not believed", func(t *testing.T) { each(t, disbelieved, neutral) })

	// With the subnet of each asker, each gets what is his.
	t.Run("with a subnet", func(t *testing.T) { each(t, subnetWay, asDirect) })

	// Who could tell for whom he asks, and does not, asks for everybody.
	t.Run("believed, and without a subnet", func(t *testing.T) {
		pods, err := list(t.Context(), "kube-system", "kube-dns")
		if err != nil {
			t.Fatal(err)
		}
		all := endpoints(t, "plain")
		for _, subnet := range []string{"", "0.0.0.0/0"} {
			reply := question{network: "tcp", from: pods[1].addr(), server: epdnsIP, name: full("plain"), typ: dns.TypeSRV, subnet: subnet}.must(t)
			if err := checkTargets(all, place{}, onNode, those(all, (*endpoint).ready), targets(reply)); err != nil {
				t.Errorf("subnet %q: %v", subnet, err)
			}
		}
	})

	// Of a Node, the podCIDR is enough to know where its Pods are.
	t.Run("with a wider subnet", func(t *testing.T) {
		for i := range nodes {
			for _, service := range placed {
				if err := asDirect(t, "udp", widerWay, strangerOn(i), service); err != nil {
					t.Errorf("%s for one on %s: %v", service, nodes[i].node, err)
				}
			}
		}
	})

	t.Run("the scope", func(t *testing.T) {
		pod := those(endpoints(t, "plain"), (*endpoint).ready)[0]
		for _, test := range []struct {
			what, way string
			from      netip.Addr
			typ       uint16
			want      int // -1: there is none in the reply
		}{
			{"an endpoint", subnetWay, pod, dns.TypeA, 32},
			{"an address in a podCIDR", subnetWay, strangerOn(2), dns.TypeA, 24},
			{"a Node", subnetWay, nodeIP(2), dns.TypeA, 32},
			{"a stranger", subnetWay, netip.MustParseAddr("198.51.100.9"), dns.TypeA, 32},
			{"nothing depends on it", subnetWay, nodeIP(2), dns.TypeAAAA, 0},
			{"taken back", widerWay, strangerOn(2), dns.TypeA, -1},
			{"not believed", disbelieved, nodeIP(2), dns.TypeA, -1},
		} {
			reply := through(t, "udp", test.way, test.from, "zone-headless", test.typ, "")
			if got := scope(reply); got != test.want {
				t.Errorf("%s: scope %d, want %d:\n%v", test.what, got, test.want, reply)
			}
		}
		// CoreDNS puts what it sees in place of what an asker says, so nobody can pass for another.
		lie := addrs(through(t, "udp", subnetWay, nodeIP(2), "zone-headless", dns.TypeA, "10.243.0.1/32"))
		if err := sameSet(lie, sorted(addrs(ask(t, "udp", nodeIP(2), "zone-headless", dns.TypeA)))); err != nil {
			t.Errorf("who says that he is on another Node: %v", err)
		}
	})

	// The counts tell which of it was which.
	for _, place := range []string{"neutral", "ecs", "endpoints", "nodes", "podCIDRs", "unknown"} {
		if n := metric(t, fmt.Sprintf("epdns_answers_by_place_total{place=%q}", place)); n == "0" || n == "" {
			t.Errorf("%s answers by place %s", n, place)
		}
	}
}

// A cache behind which askers in different places stand gives one of them what is another's:
// CoreDNS's has no regard for the subnet, whether it is told of the scope or not.
func TestCoreDNSLeak(t *testing.T) {
	serveBehindCoreDNS(t)
	for _, service := range []string{"zone-headless", "node-headless", "near"} {
		for _, network := range []string{"udp", "tcp"} {
			a, c := strangerOn(0), strangerOn(2)
			mine := sorted(addrs(ask(t, network, a, service, dns.TypeA)))
			his := sorted(addrs(ask(t, network, c, service, dns.TypeA)))
			if slices.Equal(mine, his) {
				t.Fatalf("%s is the same for all", service)
			}
			first := sorted(addrs(through(t, network, leakyWay, a, service, dns.TypeA, "")))
			second := through(t, network, leakyWay, c, service, dns.TypeA, "")
			t.Logf("%s: zone-a asks and gets %v; then zone-c, with scope %d, %v", service, first, scope(second), sorted(addrs(second)))
			if err := sameSet(addrs(second), first); err != nil {
				t.Errorf("%s over %s: CoreDNS's cache has become aware of places, docs/coredns.md says otherwise: %v", service, network, err)
			}
		}
	}
}

// NodeLocal DNSCache asks as its Node: all who ask it are there, so its cache is right.
func TestNodeLocal(t *testing.T) {
	serveBehindCoreDNS(t)
	for _, service := range placed {
		for _, network := range []string{"udp", "tcp"} {
			for range 2 { // the second time from the cache
				for _, a := range askers(t) {
					if a.place == nodes[0] {
						if err := asDirect(t, network, nodeLocalWay, a.addr, service); err != nil {
							t.Errorf("%s asks for %s over %s: %v", a.what, service, network, err)
						}
					}
				}
			}
		}
	}
}

// unboundConf has Unbound keep what epdns answers by the subnets for which it holds.
const unboundConf = `
server:
    interface: COREDNS@60
    access-control: 0.0.0.0/0 allow
    do-daemonize: no
    use-syslog: no
    chroot: ""
    username: ""
    pidfile: ""
    directory: "DIR"
    do-not-query-localhost: no
    module-config: "subnetcache iterator"
    send-client-subnet: ECSPOD
    max-client-subnet-ipv4: 32
    max-client-subnet-ipv6: 128
stub-zone:
    name: registry.local
    stub-addr: ECSPOD
remote-control:
    control-enable: no
`

// A cache that has regard for scopes is right for all who ask it, and asks once for a podCIDR.
func TestUnbound(t *testing.T) {
	serveBehindCoreDNS(t)
	const way = coreIP + ":60"
	dir := t.TempDir()
	path := filepath.Join(dir, "unbound.conf")
	text := strings.NewReplacer("COREDNS", coreIP, "ECSPOD", ecsPodIP, "DIR", dir).Replace(unboundConf)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	program, err := run.Copied("unbound", dir)
	if err != nil {
		t.Fatal(err)
	}
	p := run.ForTest(t, exec.Command(program, "-d", "-c", path))
	p.Eventually(t, func() error {
		_, err := question{network: "tcp", from: nodeIP(0), server: way, name: "dns-version.registry.local.", typ: dns.TypeTXT}.put()
		return err
	})
	for range 2 { // the second time from the cache
		for _, a := range askers(t) {
			for _, service := range placed {
				want := sorted(addrs(ask(t, "udp", a.addr, service, dns.TypeA)))
				if err := sameSet(addrs(through(t, "udp", way, a.addr, service, dns.TypeA, "")), want); err != nil {
					t.Errorf("%s asks for %s: %v", a.what, service, err)
				}
			}
		}
	}
	const count = `epdns_dns_requests_total{family="1",proto="udp",type="A"}`
	through(t, "udp", way, strangerOn(0), "node-headless", dns.TypeA, "")
	before := metric(t, count)
	for i := range 20 { // Pods of one Node, all new
		through(t, "udp", way, netip.AddrFrom4([4]byte{10, 244, 1, byte(200 + i)}), "node-headless", dns.TypeA, "")
	}
	if after := metric(t, count); after != before {
		t.Errorf("%s was %s and is %s after questions from one podCIDR", count, before, after)
	}
	through(t, "udp", way, netip.MustParseAddr("198.51.100.200"), "node-headless", dns.TypeA, "")
	if after := metric(t, count); after == before {
		t.Errorf("%s is still %s after a question from elsewhere", count, after)
	}
}
