//go:build linux

package clients_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"epdns/test/netns"
	"epdns/test/run"

	"github.com/miekg/dns"
)

// haproxy is a running one. Its backends are by_srv and by_a.
type haproxy struct {
	*run.Process
	socket string
}

// startHAProxy starts one with this nameserver and these more lines for the resolvers.
func startHAProxy(t *testing.T, nameserver, more string) haproxy {
	t.Helper()
	return runHAProxy(t, "by_srv", `
resolvers epdns
    nameserver d1 `+nameserver+`
    `+more+`
    resolve_retries 3
    timeout resolve 1s
    timeout retry 1s
    hold valid 5s
    hold obsolete 10s
    hold nx 10s

backend by_srv
    balance roundrobin
    server-template s 60 _http._tcp.lamp.dock.registry.local resolvers epdns check init-addr none resolve-prefer ipv4

backend by_a
    server-template a 60 lamp.dock.registry.local:8080 resolvers epdns check init-addr none resolve-prefer ipv4
`)
}

// haproxyIn is where each takes connections.
const haproxyIn = "127.0.0.1:8404"

// runHAProxy starts one with these resolvers and backends, of which this one has what comes in.
func runHAProxy(t *testing.T, backend, sections string) haproxy {
	t.Helper()
	return listenHAProxy(t, `
frontend in
    bind `+haproxyIn+`
    default_backend `+backend+`
`+sections)
}

// listenHAProxy starts one with these sections behind the usual ones.
func listenHAProxy(t *testing.T, sections string) haproxy {
	t.Helper()
	dir := t.TempDir()
	h := haproxy{socket: filepath.Join(dir, "stats")}
	config := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(config, []byte(`
global
    stats socket `+h.socket+` level admin

defaults
    mode tcp
    timeout connect 5s
    timeout client 5s
    timeout server 5s
`+sections), 0o644); err != nil {
		t.Fatal(err)
	}
	h.Process = start(t, "haproxy", "-db", "-f", config)
	h.Eventually(t, func() error {
		_, err := h.show("info")
		return err
	})
	return h
}

func (h haproxy) show(what string) (string, error) {
	conn, err := net.DialTimeout("unix", h.socket, grace)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(grace))
	if _, err := fmt.Fprintf(conn, "show %s\n", what); err != nil {
		return "", err
	}
	out, err := io.ReadAll(conn)
	return string(out), err
}

// Bits of what an administrator, or a name, has made of a server.
const (
	maintenance = 0x20 // its name has no address
	named       = 0x40 // it has its name from an SRV record
)

// server is the state of one.
type server struct {
	address string
	running bool
	admin   int
	weight  int
}

func (s server) up() bool { return s.running && s.admin&^named == 0 }

// servers are those of both backends, by name, such as "by_a/a1".
func (h haproxy) servers(t *testing.T) map[string]server {
	t.Helper()
	out, err := h.show("servers state")
	if err != nil {
		t.Fatal(err)
	}
	servers := map[string]server{}
	for line := range strings.Lines(out) {
		// be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight ...
		f := strings.Fields(line)
		if len(f) < 8 || f[0] == "#" {
			continue
		}
		admin, err := strconv.Atoi(f[6])
		weight, err2 := strconv.Atoi(f[7])
		if err != nil || err2 != nil {
			t.Fatalf("the state of a server: %q", line)
		}
		servers[f[1]+"/"+f[3]] = server{f[4], f[5] == "2", admin, weight}
	}
	return servers
}

// up are the addresses of the servers that are up.
func (h haproxy) up(t *testing.T) map[string]string {
	t.Helper()
	up := map[string]string{}
	for name, s := range h.servers(t) {
		if s.up() {
			up[name] = s.address
		}
	}
	return up
}

// becomes waits, at most so long, until both backends have exactly these up, or so many of them.
// It says how long that was.
func (h haproxy) becomes(t *testing.T, limit time.Duration, want []string, n int) (took time.Duration) {
	t.Helper()
	slices.Sort(want)
	begin := time.Now()
	within(t, limit, 20*time.Millisecond, func() error {
		got := map[string][]string{}
		for name, address := range h.up(t) {
			backend, _, _ := strings.Cut(name, "/")
			got[backend] = append(got[backend], address)
		}
		for _, backend := range []string{"by_srv", "by_a"} {
			up := got[backend]
			slices.Sort(up)
			if n == len(want) && !slices.Equal(up, want) || len(slices.Compact(up)) != n {
				return fmt.Errorf("backend %s has up %q, want %d of %q", backend, up, n, want)
			}
		}
		return nil
	})
	return time.Since(begin)
}

// becomesByA waits until backend by_a has so many up.
func (h haproxy) becomesByA(t *testing.T, want int) {
	t.Helper()
	h.Eventually(t, func() error {
		n := 0
		for name := range h.up(t) {
			if strings.HasPrefix(name, "by_a/") {
				n++
			}
		}
		if n != want {
			return fmt.Errorf("backend by_a has %d up, want %d", n, want)
		}
		return nil
	})
}

// steady fails if a server changes in a minute, in which both names are asked for again and again.
func (h haproxy) steady(t *testing.T, w *wire) {
	t.Helper()
	w.reset(t)
	before := h.up(t)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); <-tick.C {
		if now := h.up(t); !maps.Equal(now, before) {
			t.Fatalf("the servers change with nothing changed: %v, then %v", before, now)
		}
	}
	asked := map[string]int{}
	for _, m := range w.replies(t) {
		asked[m.Question[0].Name]++
	}
	for _, name := range []string{srvName, lampName} {
		if asked[name] < 10 {
			t.Errorf("%s was asked for %d times in a minute", name, asked[name])
		}
	}
}

// counters are those of the nameserver.
func (h haproxy) counters(t *testing.T) map[string]string {
	t.Helper()
	out, err := h.show("resolvers epdns")
	if err != nil {
		t.Fatal(err)
	}
	counters := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(out))
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok {
			counters[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	return counters
}

// counts returns an error while this counter is 0.
func (h haproxy) counts(t *testing.T, name string) error {
	t.Helper()
	counters := h.counters(t)
	if n, err := strconv.Atoi(counters[name]); err != nil || n == 0 {
		return fmt.Errorf("HAProxy counts %s: %q in %v", name, counters[name], counters)
	}
	return nil
}

func (h haproxy) stop(t *testing.T) {
	t.Helper()
	if err := h.Stop(); err != nil {
		t.Error(err)
	}
}

// understood fails if HAProxy made nothing of a reply.
func (h haproxy) understood(t *testing.T) {
	t.Helper()
	counters := h.counters(t)
	for _, name := range []string{"invalid", "other", "too_big"} {
		if counters[name] != "0" {
			t.Errorf("HAProxy counts %s: %q in %v", name, counters[name], counters)
		}
	}
}

const (
	lampName = "lamp.dock.registry.local."
	srvName  = "_http._tcp.lamp.dock.registry.local."
)

const large = "accepted_payload_size 8192"

func TestHAProxy(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	servePods(t)
	dir := serveLamp(t, 2)
	w := capture(t)
	h := startHAProxy(t, epdnsIP+":53", large)
	h.becomes(t, grace, twoPods, 2)
	glue := false
	for _, m := range w.replies(t) {
		if m.Question[0].Qtype != dns.TypeSRV {
			continue
		}
		glue = true
		n := 0
		for _, rr := range m.Extra {
			if rr.Header().Rrtype == dns.TypeA {
				n++
			}
		}
		if n != 2 || len(m.Ns) != 0 {
			t.Errorf("SRV without the addresses, or with authority section: %v", m)
		}
	}
	if !glue {
		t.Error("no SRV question was seen")
	}

	many := addresses(1, 20)
	dir.lamp(t, many, nil)
	h.becomes(t, grace, many, 20)
	h.steady(t, w)

	// One goes, and then all.
	before := h.up(t)
	dir.lamp(t, many[:19], many[19:])
	took := h.becomes(t, 10*time.Second+grace, many[:19], 19)
	t.Logf("one that is not ready is down after %v", took)
	if took < 8*time.Second { // since HAProxy last saw it, which may be some time ago
		t.Errorf("one that is not ready is down after %v already", took)
	}
	after := h.servers(t)
	for name, address := range before {
		if s := after[name]; address == many[19] && s.admin&maintenance == 0 {
			t.Errorf("%s, which was %s, is not in maintenance: %+v", name, address, s)
		}
	}
	dir.lamp(t, nil, many)
	t.Logf("all are down %v after none is ready", h.becomes(t, 45*time.Second, nil, 0)) // hold other is 30 s
	dir.lamp(t, many[4:5], nil)
	t.Logf("the first one is up again after %v", h.becomes(t, grace, many[4:5], 1))
	h.understood(t)
}

// The size is HAProxy's default, 512 octets.
func TestHAProxySmall(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	servePods(t)
	dir := serveLamp(t, 20)
	w := capture(t)
	h := startHAProxy(t, epdnsIP+":53", "")
	h.becomesByA(t, 20)
	for _, m := range w.replies(t) {
		if q := m.Question[0]; q.Name == lampName && q.Qtype == dns.TypeA && m.size != 12+30+20*16+11 {
			t.Errorf("%d octets: %v", m.size, m)
		}
	}
	dir.lamp(t, addresses(1, 40), nil)
	w.reset(t)
	h.Eventually(t, func() error {
		for _, m := range w.replies(t) {
			if m.Question[0].Qtype == dns.TypeA && m.Question[0].Name == lampName {
				if !m.Truncated || m.size > 512 {
					t.Fatalf("%d octets, TC %v: %v", m.size, m.Truncated, m)
				}
				return h.counts(t, "truncated")
			}
		}
		return errors.New("by_a did not ask again")
	})
	h.stop(t)

	// TCP alone is no cure, since HAProxy reads no more than that size there either.
	h = startHAProxy(t, "tcp@"+epdnsIP+":53", "")
	h.Eventually(t, func() error { return h.counts(t, "too_big") })
	h.stop(t)
	h = startHAProxy(t, epdnsIP+":53", large)
	h.becomesByA(t, 40)
	h.stop(t)
	h = startHAProxy(t, "tcp@"+epdnsIP+":53", large)
	h.becomes(t, grace, addresses(1, 40), 40)
}

// There are more pods than a datagram has room for, or HAProxy with the addresses of all.
func TestHAProxyLarge(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	servePods(t)
	many := addresses(1, 120)
	dir := serveLamp(t, 120)
	w := capture(t)
	h := startHAProxy(t, epdnsIP+":53", large)
	h.Eventually(t, func() error {
		cut := map[string]bool{}
		for _, m := range w.replies(t) { // the capture checks the size
			cut[m.Question[0].Name] = cut[m.Question[0].Name] || m.Truncated
		}
		if !cut[srvName] || !cut[lampName] {
			return fmt.Errorf("cut replies over UDP: %v", cut)
		}
		return nil
	})
	h.stop(t)

	w.reset(t)
	h = startHAProxy(t, "tcp@"+epdnsIP+":53", large)
	h.becomes(t, grace, many, 60)
	h.steady(t, w)
	h.understood(t)
	extra := 0
	for _, m := range w.replies(t) {
		if m.size > 8192 {
			t.Errorf("%d octets for HAProxy: %v", m.size, m)
		}
		if m.Question[0].Name == srvName {
			extra = len(m.Extra) - 1 // the OPT
		}
	}
	t.Logf("the SRV reply has %d addresses for its %d targets", extra, len(many))

	dir.lamp(t, addresses(1, 150), nil)
	reply, err := ask("tcp", srvName, dns.TypeSRV)
	if err != nil || len(reply.Answer) != 150 {
		t.Fatalf("150 pods: %v\n%v", err, reply)
	}
	for _, rr := range reply.Answer {
		if srv, ok := rr.(*dns.SRV); !ok || srv.Weight < 1 {
			t.Errorf("weight: %v", rr)
		}
	}
}
