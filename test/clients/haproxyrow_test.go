//go:build linux

package clients_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"epdns/test/netns"
	"epdns/test/run"

	"github.com/miekg/dns"
)

// This file has what docs/clients/haproxy.md says beyond the case in testdata/cases/client.

// in are the servers of a backend that are up, by address, and the weight of each.
func (h haproxy) in(t *testing.T, backend string) map[string]int {
	t.Helper()
	up := map[string]int{}
	for name, s := range h.servers(t) {
		if strings.HasPrefix(name, backend+"/") && s.up() {
			up[s.address] = s.weight
		}
	}
	return up
}

// has waits until a backend has exactly these servers up, and says how long that took.
func (h haproxy) has(t *testing.T, backend string, want []string) time.Duration {
	t.Helper()
	begin := time.Now()
	h.Eventually(t, func() error {
		if got := slices.Sorted(maps.Keys(h.in(t, backend))); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			return fmt.Errorf("backend %s has up %q, want %q", backend, got, want)
		}
		return nil
	})
	return time.Since(begin)
}

// sent is how many questions the nameserver was sent.
func (h haproxy) sent(t *testing.T) int {
	t.Helper()
	counters := h.counters(t)
	n, err := strconv.Atoi(counters["sent"])
	if err != nil {
		t.Fatalf("HAProxy counts %v", counters)
	}
	return n
}

// asks waits until it was sent so many more.
func (h haproxy) asks(t *testing.T, more int) {
	t.Helper()
	before := h.sent(t)
	h.Eventually(t, func() error {
		if n := h.sent(t) - before; n < more {
			return fmt.Errorf("HAProxy has asked %d times more, want %d", n, more)
		}
		return nil
	})
}

// serves counts which servers so many connections have.
func serves(t *testing.T, n int) map[string]int {
	t.Helper()
	count := map[string]int{}
	for range n {
		who, err := whoServes(haproxyIn)
		if err != nil {
			t.Fatal(err)
		}
		count[who]++
	}
	return count
}

// The shipped configuration follows Service lamp.
func TestHAProxyFollows(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	servePods(t)
	dir, m := manifestsOf(t, twoPods)
	// Who asks is in zone-a. The TTL is no help to those who look at it.
	args := []string{"--manifests=" + string(m), "--config=" + configured(t, "defaults: {ttl: 1h, ttl-empty: 1h, ttl-nxdomain: 1h}",
		"clients: {places: [{cidr: "+epdnsIP+"/32, zone: zone-a}]}")}
	server := serve(t, "readyz", args...)
	w := capture(t)
	h := runHAProxy(t, "web", snippet(t, "haproxy.cfg"))
	t.Logf("up %v after its start", h.has(t, "web", twoPods))

	dir.lamp(t, addresses(1, 20), nil)
	t.Logf("18 more are up after %v", h.has(t, "web", addresses(1, 20)))
	dir.lamp(t, addresses(1, 5), nil)
	t.Logf("15 of 20 are gone after %v", h.has(t, "web", addresses(1, 5)))
	// HAProxy has weights of 1 to 256, a 256th rounded up; priorities are those of the zones.
	m.service(t, map[string]string{"registry.local/weights": "10-20-1-11=2560, 10-20-1-12=257, 10-20-1-13=256", "registry.local/topology": "order"},
		[]pod{{address: "10.20.1.11", zone: "zone-a"}, {address: "10.20.1.12", zone: "zone-b"}, {address: "10.20.1.13", zone: "zone-b"}})
	h.has(t, "web", addresses(11, 13))
	want := map[string]int{"10.20.1.11": 10, "10.20.1.12": 2, "10.20.1.13": 1}
	h.Eventually(t, func() error {
		if got := h.in(t, "web"); !maps.Equal(got, want) {
			return fmt.Errorf("weights %v, want %v", got, want)
		}
		return nil
	})
	const rounds = 5
	got := serves(t, 13*rounds)
	for address, weight := range want {
		if n := got[address]; n < rounds*weight-2 || n > rounds*weight+2 {
			t.Errorf("of %d connections %s has %d: %v", 13*rounds, address, n, got)
		}
	}
	priorities := map[uint16]bool{}
	for _, m := range w.replies(t) {
		for _, rr := range m.Answer {
			if srv, ok := rr.(*dns.SRV); ok {
				priorities[srv.Priority] = true
			}
		}
	}
	if len(priorities) < 2 {
		t.Errorf("all priorities are %v", priorities)
	}

	for _, m := range w.replies(t) {
		if m.network != "tcp" || m.Question[0].Qtype != dns.TypeSRV {
			t.Errorf("HAProxy asks more than it should: %v", m)
		}
	}

	// One that restarts.
	before := h.in(t, "web")
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	h.asks(t, 3)
	serve(t, "readyz", args...)
	h.asks(t, 3)
	if after := h.in(t, "web"); !maps.Equal(before, after) {
		t.Errorf("after a restart of epdns %v, before %v", after, before)
	}
	dir.lamp(t, twoPods, nil)
	h.has(t, "web", twoPods)

	dir.lamp(t, addresses(1, 120), nil)
	h.Eventually(t, func() error {
		if n := len(h.in(t, "web")); n != 100 {
			return fmt.Errorf("%d are up, want as many as the template has", n)
		}
		return nil
	})
}

// A pod with an address of each family is one server or two, by what it is called.
func TestHAProxyDualStack(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	servePods(t)
	_, m := manifestsOf(t, nil)
	pods := [][]pod{
		{{address: "10.20.1.11", name: "lamp-a"}, {address: "10.20.1.12", name: "lamp-b"}},
		{{address: podsIPv6[0], name: "lamp-a"}, {address: podsIPv6[1], name: "lamp-b"}},
	}
	m.service(t, nil, pods...)
	for names, want := range map[string][]string{
		"address": {"10.20.1.11", "10.20.1.12", podsIPv6[0], podsIPv6[1]},
		"pod":     twoPods,
	} {
		server := serve(t, "readyz", "--manifests="+string(m), "--config="+configured(t, "endpointNames: "+names))
		// Which family it has of a name with both does not depend on what it should prefer.
		for _, family := range []string{"ipv4", "ipv6"} {
			h := runHAProxy(t, "web", snippet(t, "haproxy.cfg", "resolve-prefer ipv4", "resolve-prefer "+family, " check", ""))
			h.has(t, "web", want)
			h.asks(t, 3)
			h.has(t, "web", want)
			h.stop(t)
		}
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// holds are how long HAProxy keeps what it had, by what it hears instead.
var holds = []string{"obsolete", "nx", "other", "refused", "timeout"}

// backends that find the same by SRV and by A, with templates of one size.
func backends(size int) string {
	return fmt.Sprintf(`
backend by_srv
    server-template s %d _http._tcp.lamp.dock.registry.local resolvers epdns init-addr none resolve-prefer ipv4

backend by_a
    server-template a %d lamp.dock.registry.local:8080 resolvers epdns init-addr none resolve-prefer ipv4
`, size, size)
}

// patience has a HAProxy for each hold, which is short there and all others long.
type patience map[string]haproxy

func startPatience(t *testing.T, nameserver string) patience {
	t.Helper()
	all := patience{}
	// A busy machine answers within timeout retry; one question that nobody answers would count as
	// "timeout", whatever the answers before it were.
	for _, short := range holds {
		resolvers := "resolvers epdns\n    nameserver d1 " + nameserver + "\n    accepted_payload_size 8192\n    resolve_retries 2\n" +
			"    timeout resolve 500ms\n    timeout retry 2s\n"
		for _, hold := range holds {
			resolvers += "    hold " + hold + " " + map[bool]string{true: "1s", false: "1h"}[hold == short] + "\n"
		}
		all[short] = listenHAProxy(t, resolvers+backends(3))
	}
	return all
}

// have waits until both backends of all have these up.
func (all patience) have(t *testing.T, want []string) {
	t.Helper()
	for _, h := range all {
		for _, backend := range []string{"by_srv", "by_a"} {
			h.has(t, backend, want)
		}
	}
}

// drop says which hold it was after which each backend has less up, once something has happened.
func (all patience) drop(t *testing.T, happen func()) (bySRV, byA string) {
	t.Helper()
	backends := []string{"by_srv", "by_a"}
	count := func() map[string]int {
		n := map[string]int{}
		for hold, h := range all {
			for _, backend := range backends {
				n[backend+" "+hold] = len(h.in(t, backend))
			}
		}
		return n
	}
	lost := map[string][]string{}
	before := count()
	happen()
	look := func() {
		lost = map[string][]string{}
		now := count()
		for _, hold := range holds {
			for _, backend := range backends {
				if key := backend + " " + hold; now[key] < before[key] {
					lost[backend] = append(lost[backend], "`hold "+hold+"`")
				}
			}
		}
	}
	all["other"].Eventually(t, func() error {
		look()
		if len(lost) < len(backends) {
			return errors.New("no server goes")
		}
		return nil
	})
	// The others are not just late.
	sent := map[string]int{}
	for hold, h := range all {
		sent[hold] = h.sent(t)
	}
	for hold, h := range all {
		h.Eventually(t, func() error {
			if n := h.sent(t) - sent[hold]; n < 8 {
				return fmt.Errorf("HAProxy has asked %d times more", n)
			}
			return nil
		})
	}
	look()
	name := func(backend string) string { return "all go after " + strings.Join(lost[backend], " or ") }
	return name("by_srv"), name("by_a")
}

// TestHAProxyRow sees what the table says of HAProxy.
func TestHAProxyRow(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	bySRV := Row{Client: "HAProxy, by SRV", Page: "haproxy", Search: none, Order: none}
	byA := Row{Client: "HAProxy, by A", Page: "haproxy", Search: none, Order: none, SRV: none}
	servePods(t)
	dir, m := manifestsOf(t, twoPods)
	args := []string{"--manifests=" + string(m), "--config=" + configured(t, "defaults: {ttl: 1h, ttl-empty: 1h, ttl-nxdomain: 1h}",
		"clients: {places: [{cidr: "+epdnsIP+"/32, zone: zone-a}]}")}
	server := serve(t, "readyz", args...)
	all := startPatience(t, epdnsIP+":53")
	all.have(t, twoPods)

	one, oneByA := all.drop(t, func() { dir.lamp(t, twoPods[:1], nil) })
	t.Logf("one is gone: by SRV %s, by A %s", one, oneByA)
	if want := "all go after `hold obsolete`"; one != want || oneByA != want {
		t.Errorf("want %s", want)
	}
	for backend, row := range map[string]*Row{"by_srv": &bySRV, "by_a": &byA} {
		// The TTL is 1 h.
		if n := len(all["obsolete"].in(t, backend)); n == 1 {
			row.TTL = "not looked at: asks every `timeout resolve`"
		}
	}
	dir.lamp(t, twoPods, nil)
	all.have(t, twoPods)
	bySRV.Empty, byA.Empty = all.drop(t, func() { dir.lamp(t, nil, twoPods) })
	dir.lamp(t, twoPods, nil)
	all.have(t, twoPods)
	bySRV.Gone, byA.Gone = all.drop(t, func() { dir.noLamp(t) })
	dir.lamp(t, twoPods, nil)
	all.have(t, twoPods)
	var ignorant *run.Process
	bySRV.Failed, byA.Failed = all.drop(t, func() {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
		ignorant = serveIgnorant(t)
	})
	if err := ignorant.Stop(); err != nil {
		t.Fatal(err)
	}
	server = serve(t, "readyz", args...)
	all.have(t, twoPods)
	away, awayByA := all.drop(t, func() {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("epdns is away: by SRV %s, by A %s", away, awayByA)
	for _, h := range all {
		h.stop(t)
	}
	serve(t, "readyz", args...)

	m.service(t, map[string]string{"registry.local/weights": "10-20-1-11=2560, 10-20-1-12=1", "registry.local/topology": "order"},
		[]pod{{address: "10.20.1.11", zone: "zone-b"}, {address: "10.20.1.12", zone: "zone-a"}})
	eventually(t, func() error {
		reply, err := ask("tcp", srvName, dns.TypeSRV)
		if err == nil && (len(reply.Answer) != 2 || !strings.Contains(reply.String(), " 2560 8080 ")) {
			err = fmt.Errorf("epdns answers\n%v", reply)
		}
		return err
	})
	h := runHAProxy(t, "by_srv", "resolvers epdns\n    nameserver d1 "+epdnsIP+":53\n    "+large+"\n"+backends(3))
	h.has(t, "by_srv", twoPods)
	weights := h.in(t, "by_srv")
	if got := serves(t, 24); got["10.20.1.12"] > 0 && got["10.20.1.11"] > got["10.20.1.12"] {
		// The second one has the better priority.
		bySRV.SRV = fmt.Sprintf("weight 2560 counts as %d, 1 as %d; priority is not used", weights["10.20.1.11"], weights["10.20.1.12"])
	}
	h.stop(t)

	dir.lamp(t, addresses(1, 200), nil)
	up := map[string][2]int{}
	for _, network := range []string{"", "tcp@"} {
		h := runHAProxy(t, "by_srv", "resolvers epdns\n    nameserver d1 "+network+epdnsIP+":53\n    "+large+"\n    timeout resolve 200ms\n"+backends(250))
		h.asks(t, 10)
		up[network] = [2]int{len(h.in(t, "by_srv")), len(h.in(t, "by_a"))}
		h.stop(t)
	}
	for i, row := range []*Row{&bySRV, &byA} {
		row.Many = fmt.Sprintf("UDP: %s; `tcp@`: %s", howMany(up[""][i]), howMany(up["tcp@"][i]))
	}
	observed(t, bySRV)
	observed(t, byA)
}

// howMany of 200 that is.
func howMany(n int) string {
	switch n {
	case 0:
		return "none"
	case 200:
		return "all"
	}
	return "some" // names of targets are of different lengths
}

// serveIgnorant runs an epdns that cannot read its cluster, and says so with SERVFAIL.
func serveIgnorant(t *testing.T) *run.Process {
	t.Helper()
	return serve(t, "livez", "--kubeconfig="+unreachable(t))
}
