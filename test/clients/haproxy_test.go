//go:build linux

package clients_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// haproxy is a running one. Its backends are by_srv and by_a.
type haproxy struct {
	*process
	socket string
}

// startHAProxy starts one with this nameserver and these more lines for the resolvers.
func startHAProxy(t *testing.T, nameserver, more string) haproxy {
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

resolvers epdns
    nameserver d1 `+nameserver+`
    `+more+`
    resolve_retries 3
    timeout resolve 1s
    timeout retry 1s
    hold valid 5s
    hold obsolete 2s
    hold nx 2s
    hold other 2s

frontend in
    bind 127.0.0.1:8404
    default_backend by_srv

backend by_srv
    balance roundrobin
    server-template s 60 _http._tcp.lamp.dock.registry.local resolvers epdns check init-addr none resolve-prefer ipv4

backend by_a
    server-template a 60 lamp.dock.registry.local:8080 resolvers epdns check init-addr none resolve-prefer ipv4
`), 0o644); err != nil {
		t.Fatal(err)
	}
	h.process = start(t, "haproxy", "-db", "-f", config)
	eventually(t, func() error {
		if err := h.running(); err != nil {
			t.Fatal(err)
		}
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

// named is the state of a server that has its name from an SRV record.
const named = "64"

// up are the addresses of the servers that are up, by name, such as "by_a/a1".
func (h haproxy) up(t *testing.T) map[string]string {
	t.Helper()
	out, err := h.show("servers state")
	if err != nil {
		t.Fatal(err)
	}
	up := map[string]string{}
	for line := range strings.Lines(out) {
		// be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state ...
		if f := strings.Fields(line); len(f) > 6 && f[5] == "2" && (f[6] == "0" || f[6] == named) {
			up[f[1]+"/"+f[3]] = f[4]
		}
	}
	return up
}

// becomes waits until both backends have exactly these up, or so many of them.
func (h haproxy) becomes(t *testing.T, want []string, n int) {
	t.Helper()
	slices.Sort(want)
	eventually(t, func() error {
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
}

// steady fails if a server changes while each question is asked again this many times.
func (h haproxy) steady(t *testing.T, w *wire, times int) {
	t.Helper()
	w.reset(t)
	before := h.up(t)
	eventually(t, func() error {
		if now := h.up(t); !maps.Equal(now, before) {
			t.Fatalf("the servers change with nothing changed: %v, then %v", before, now)
		}
		asked := map[string]int{}
		for _, m := range w.replies(t) {
			asked[m.Question[0].Name]++
		}
		for _, name := range []string{srvName, lampName} {
			if asked[name] < times {
				return fmt.Errorf("%s was asked for %d times", name, asked[name])
			}
		}
		return nil
	})
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

func TestHAProxy(t *testing.T) {
	servePods(t)
	dir := serveLamp(t, 2)
	w := capture(t)
	const large = "accepted_payload_size 8192"

	t.Run("changes", func(t *testing.T) {
		begin := time.Now()
		h := startHAProxy(t, epdnsIP+":53", large)
		h.becomes(t, twoPods, 2)
		if took := time.Since(begin); took > 3*time.Second {
			t.Errorf("two servers are up after %v", took)
		}
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
		h.becomes(t, many, 20)
		h.steady(t, w, 5)
		// One goes, and then all.
		dir.lamp(t, many[:19], many[19:])
		h.becomes(t, many[:19], 19)
		dir.lamp(t, nil, many)
		h.becomes(t, nil, 0)
		begin = time.Now()
		dir.lamp(t, many[4:5], nil)
		h.becomes(t, many[4:5], 1)
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("the first one is up again after %v", took)
		}
		h.understood(t)
	})

	t.Run("512 octets", func(t *testing.T) {
		many := addresses(1, 20)
		dir.lamp(t, many, nil)
		w.reset(t)
		h := startHAProxy(t, epdnsIP+":53", "")
		eventually(t, func() error {
			n := 0
			for name := range h.up(t) {
				if strings.HasPrefix(name, "by_a/") {
					n++
				}
			}
			if n != len(many) {
				return fmt.Errorf("backend by_a has %d up", n)
			}
			return nil
		})
		dir.lamp(t, addresses(1, 40), nil)
		w.reset(t)
		eventually(t, func() error {
			for _, m := range w.replies(t) {
				if m.Question[0].Qtype == dns.TypeA && m.Question[0].Name == lampName {
					if !m.Truncated || m.size > 512 {
						t.Fatalf("%d octets, TC %v: %v", m.size, m.Truncated, m)
					}
					if c := h.counters(t); c["truncated"] == "0" {
						return fmt.Errorf("HAProxy counts no truncated reply: %v", c)
					}
					return nil
				}
			}
			return fmt.Errorf("by_a did not ask again")
		})
	})

	// More than a datagram holds, and the SRV reply is just within the 8192 octets of HAProxy.
	many := addresses(1, 110)
	dir.lamp(t, many, nil)
	t.Run("over TCP", func(t *testing.T) {
		h := startHAProxy(t, "tcp@"+epdnsIP+":53", large)
		h.becomes(t, many, 60)
		h.steady(t, w, 3)
		h.understood(t)
	})
	// Over UDP, what it is told does not fit.
	for _, typ := range []uint16{dns.TypeA, dns.TypeSRV} {
		m := new(dns.Msg).SetQuestion(map[uint16]string{dns.TypeA: lampName, dns.TypeSRV: srvName}[typ], typ)
		m.SetEdns0(8192, false)
		reply, err := exchange("udp", m)
		if err != nil || !reply.Truncated {
			t.Errorf("%d pods over UDP: %v\n%v", len(many), err, reply)
		}
	}

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
