package epdns_test

import (
	"bytes"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/internal/freeport"
)

// This file has a check go through servers that are none, that are wrong or that lie. Real
// forwarders are in test/forwarders.

// quick are settings in which no answer is kept for long.
const quick = "zones:\n- name: registry.local\n  defaults: {ttl: 1s, ttl-empty: 1s, ttl-nxdomain: 1s}\n"

const sampleFiles = "registry/manifest/sample"

// TestCheckThrough: what becomes of answers on the way has a line.
func TestCheckThrough(t *testing.T) {
	t.Parallel()
	config := settings(t, quick)
	server := serve(t, "--manifests", sampleFiles, "--config", config).dns.String()
	records := func(name string, qtype uint16, change func(m *dns.Msg)) middle {
		return func(q, m *dns.Msg, _ bool) *dns.Msg {
			if strings.HasPrefix(q.Question[0].Name, name) && q.Question[0].Qtype == qtype {
				change(m)
			}
			return m
		}
	}
	zero := func(software string) middle {
		return func(q, m *dns.Msg, _ bool) *dns.Msg {
			if q.Question[0].Qclass == dns.ClassCHAOS {
				m.Answer[0].(*dns.TXT).Txt = []string{software}
			}
			for _, rr := range m.Answer {
				rr.Header().Ttl = 0
			}
			return m
		}
	}
	var wg sync.WaitGroup
	for _, c := range []struct {
		what   string
		change middle
		says   []string // begins of the lines of the way, … is any text; no faults if there is none
		faults string
	}{
		{"epdns itself", nil, []string{`through ADDR: it calls itself "epdns `, "through ADDR: …questions, answered as epdns answers"}, ""},
		{"nothing is done", func(_, m *dns.Msg, _ bool) *dns.Msg { return m }, []string{`through ADDR: it calls itself "epdns `, "through ADDR: …questions, answered as epdns answers"}, ""},
		{"a name for terminals", func(q, m *dns.Msg, _ bool) *dns.Msg {
			if q.Question[0].Qclass == dns.ClassCHAOS {
				m.Answer[0].(*dns.TXT).Txt = []string{`\027[31mdnsmasq\010`, "ü"}
			}
			return m
		}, []string{`through ADDR: it calls itself "\027[31mdnsmasq\010 \195\188"`, "through ADDR: …questions, answered as epdns answers"}, ""},
		{"another zone of the name", records("dns-version.", dns.TypeTXT, func(m *dns.Msg) { m.Answer[0].(*dns.TXT).Txt = []string{"1.0.0"} }),
			[]string{"through ADDR: registry.local: its answer for dns-version.registry.local TXT is not epdns's"}, "1 fault"},
		{"no route, to roots", records("dns-version.", dns.TypeTXT, func(m *dns.Msg) { m.Rcode, m.Answer = dns.RcodeNameError, nil }),
			[]string{"through ADDR: registry.local: NXDOMAIN: it asks others than epdns, such as the root servers, which know of no local; "}, "1 fault"},
		{"no resolver", records("dns-version.", dns.TypeTXT, func(m *dns.Msg) { m.Rcode, m.Answer = dns.RcodeNotImplemented, nil }),
			[]string{"through ADDR: registry.local: NOTIMP for dns-version.registry.local TXT; is this a resolver?"}, "1 fault"},
		{"an old address", records("db.", dns.TypeA, func(m *dns.Msg) { m.Answer[0].(*dns.A).A = net.IP{10, 9, 9, 9} }),
			[]string{"through ADDR: db.data.registry.local A: it still has what epdns has not had for 2s: 10.9.9.9; "}, "1 fault"},
		{"nothing but old addresses", records("db.", dns.TypeA, func(m *dns.Msg) { m.Answer = m.Answer[:1]; m.Answer[0].(*dns.A).A = net.IP{10, 9, 9, 9} }),
			[]string{"through ADDR: db.data.registry.local A: it has nothing of what epdns has for 2s: 10.9.9.9 in place of "}, "1 fault"},
		{"a record less", records("db.", dns.TypeA, func(m *dns.Msg) { m.Answer = m.Answer[1:] }),
			[]string{"through ADDR: db.data.registry.local A: it has 2 of 3 records, without what epdns has had for 2s: 10.244."}, "1 fault"},
		{"a long TTL", records("db.", dns.TypeA, func(m *dns.Msg) {
			m.Answer[0].Header().Ttl, m.Answer[1].Header().Ttl, m.Answer[2].Header().Ttl = 3600, 3600, 3600
		}),
			[]string{"through ADDR: db.data.registry.local A: it keeps this for 3600 s, and epdns says 1 s: docs/forwarders.md has", "warning: through ADDR: whether answers are fresh was not looked at for db.data.registry.local A, which may be kept for longer than there is time; --timeout 1h"}, "1 fault"},
		{"a TTL of 0", zero("dnsmasq-2.90"), []string{"through ADDR: …: what is over is given once more, with a TTL of 0 s, however old: leave use-stale-cache out"}, "1 fault"},
		{"the last second of an answer", zero("unbound 1.17.1"), nil, ""},
		{"a long TTL of what is not there", func(_, m *dns.Msg, _ bool) *dns.Msg {
			for _, rr := range m.Ns {
				rr.Header().Ttl = 4
			}
			return m
		}, []string{"warning: through ADDR: …it keeps this for 4 s, and epdns says 1 s: "}, ""},
		{"no such name where there are no records", func(q, m *dns.Msg, _ bool) *dns.Msg {
			if len(m.Answer) == 0 {
				m.Rcode = dns.RcodeNameError
			}
			return m
		}, []string{"through ADDR: db.data.registry.local AAAA: NXDOMAIN, and by epdns the name exists without such records"}, "1 fault"},
		{"no records where there is no such name", records("epdns-check-", dns.TypeA, func(m *dns.Msg) { m.Rcode = dns.RcodeSuccess }),
			[]string{"through ADDR: epdns-check-…registry.local A: no records, and epdns says NXDOMAIN"}, "1 fault"},
		{"an answer for everything", records("epdns-check-", dns.TypeA, func(m *dns.Msg) {
			m.Rcode, m.Answer = dns.RcodeSuccess, []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: m.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.IP{192, 0, 2, 80}}}
		}), []string{"through ADDR: epdns-check-…registry.local A: 1 record, and epdns has none; "}, "1 fault"},
		{"cut, and no TCP", func(q, m *dns.Msg, tcp bool) *dns.Msg {
			switch {
			case tcp:
				return nil
			case len(m.Answer) > 2:
				m.Truncated, m.Answer = true, m.Answer[:1]
			}
			return m
		}, []string{"through ADDR: …: a part comes over UDP, and the rest does not over TCP ("}, "1 fault"},
		{"no IPv6 addresses", func(q, m *dns.Msg, _ bool) *dns.Msg {
			if q.Question[0].Qtype == dns.TypeAAAA {
				m.Answer = nil
			}
			return m
		}, []string{"through ADDR: api.shop.registry.local AAAA: no records, and epdns has 2 records: IPv6 addresses do not get through; "}, "1 fault"},
		{"no more answers", func(q, m *dns.Msg, _ bool) *dns.Msg {
			if q.Question[0].Qtype == dns.TypeSRV {
				return nil
			}
			return m
		}, []string{"through ADDR: …SRV: no answer within 5s, though there was one for registry.local"}, "1 fault"},
	} {
		at := server
		if c.change != nil {
			at = between(t, server, c.change)
		}
		// They wait most of the time.
		wg.Go(func() {
			checkThrough(t, c.what, at, c.says, c.faults, "--manifests", sampleFiles, "--config", config, "--timeout", "15s")
		})
	}
	wg.Wait()
}

// checkThrough runs a check, and compares the lines of the way.
func checkThrough(t *testing.T, what, at string, says []string, faults string, args ...string) {
	t.Helper()
	stdout, stderr, code := once(t, environment(), append([]string{"check", "--through", at}, args...)...)
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(stdout, at, "ADDR")) {
		identified := strings.Contains(line, "it calls itself") && !strings.Contains(strings.Join(says, ""), "it calls itself")
		ordered := strings.Contains(line, "changing orders")
		unremarkable := strings.Contains(line, "answered as epdns") && !strings.Contains(strings.Join(says, ""), "answered as epdns")
		if strings.Contains(line, "through ") && !identified && !ordered && !unremarkable {
			lines = append(lines, line)
		}
	}
	same := len(lines) == len(says)
	for i := 0; same && i < len(lines); i++ {
		begin, rest, _ := strings.Cut(says[i], "…")
		same = strings.HasPrefix(lines[i], begin) && strings.Contains(lines[i], rest)
	}
	want := ""
	if faults != "" {
		want = "epdns: " + faults + "\n"
	}
	if !same || stderr != want || code != min(len(want), 1) {
		t.Errorf("%s: exit status %d, on standard error: %q, expected %q\n%s\nexpected:\n%s", what, code, stderr, want, stdout, strings.Join(says, "\n"))
	}
	if good := strings.Contains(stdout, "no faults: "); good != (faults == "") {
		t.Errorf("%s: it says that there are no faults: %v\n%s", what, good, stdout)
	}
}

// middle changes a reply; nil is silence.
type middle func(query, reply *dns.Msg, tcp bool) *dns.Msg

// between is a server that asks another, by the same transport, and changes what it says.
func between(t *testing.T, server string, change middle) (at string) {
	t.Helper()
	pipe := func(tcp bool) dns.HandlerFunc {
		return func(w dns.ResponseWriter, q *dns.Msg) {
			client := dns.Client{Net: map[bool]string{true: "tcp", false: "udp"}[tcp], Timeout: grace}
			reply, _, err := client.Exchange(q, server)
			if err != nil {
				t.Errorf("ask %s for %v: %v", server, q.Question, err)
				return
			}
			if reply = change(q, reply, tcp); reply != nil {
				w.WriteMsg(reply)
			} else if tcp {
				w.Close()
			}
		}
	}
	return answer(t, pipe(false), pipe(true))
}

// answer answers at one port over UDP, and over TCP unless that handler is nil.
func answer(t *testing.T, udp, tcp dns.Handler) (at string) {
	t.Helper()
	at = freeport.Local(t)
	conn, err := net.ListenPacket("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	servers := []*dns.Server{{PacketConn: conn, Handler: udp}}
	if tcp != nil {
		listener, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, &dns.Server{Listener: listener, Handler: tcp})
	}
	for _, s := range servers {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go s.ActivateAndServe()
		<-started
		t.Cleanup(func() { s.Shutdown() })
	}
	return at
}

// TestCheckThroughSubnets: a cache that has no regard for subnets is found out.
func TestCheckThroughSubnets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := service("near", 0, "registry.local/topology: nearest", `registry.local/limit: "1"`) +
		`---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
addressType: IPv4
metadata: {namespace: shop, name: near-1, labels: {kubernetes.io/service-name: near}}
endpoints:
- {addresses: [10.7.1.1], zone: zone-a, nodeName: a}
- {addresses: [10.7.2.1], zone: zone-b, nodeName: b}
` + service("all", 3)
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	config := settings(t, quick[:strings.Index(quick, "ttl: 1s")]+"ttl: 4s}\nclients: {trustedForwarders: [127.0.0.0/8]}\n")
	server := serve(t, "--manifests", dir, "--config", config).dns.String()
	type kept struct {
		reply *dns.Msg
		at    time.Time
	}
	var mu sync.Mutex
	cache := map[dns.Question]kept{}
	regardless := between(t, server, func(q, m *dns.Msg, _ bool) *dns.Msg {
		mu.Lock()
		defer mu.Unlock()
		k, ok := cache[q.Question[0]]
		if !ok || time.Since(k.at) > 4*time.Second {
			k = kept{m, time.Now()}
			cache[q.Question[0]] = k
		}
		m = k.reply.Copy()
		m.Id = q.Id
		for _, rr := range m.Answer {
			rr.Header().Ttl -= uint32(time.Since(k.at).Seconds())
		}
		return m
	})
	args := []string{"--manifests", dir, "--config", config, "--timeout", "15s"}
	checkThrough(t, "a cache without regard", regardless, []string{"through ADDR: near.shop.registry.local A: it asks for its clients' subnets and keeps the answer for all: others get what suits the first; "}, "1 fault", args...)
	checkThrough(t, "no cache", server, nil, "", args...)
}

// TestCheckThroughNobody: what is no resolver is told, with what to do.
func TestCheckThroughNobody(t *testing.T) {
	t.Parallel()
	secure := httptest.NewUnstartedServer(nil)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of who greets otherwise
	secure.StartTLS()
	t.Cleanup(secure.Close)
	silent := func(dns.ResponseWriter, *dns.Msg) {}
	junk := func(text func(q *dns.Msg) []byte) string {
		return answer(t, dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) { w.Write(text(q)) }), nil)
	}
	packed := func(q *dns.Msg, change func(m *dns.Msg)) []byte {
		m := new(dns.Msg).SetReply(q)
		change(m)
		wire, err := m.Pack()
		if err != nil {
			t.Error(err)
		}
		return wire
	}
	var wg sync.WaitGroup
	for _, c := range []struct {
		what, at, says string
	}{
		{"a closed port", closedPort(t), "through ADDR: nothing listens on port "},
		{"nobody answers", answer(t, dns.HandlerFunc(silent), nil), "through ADDR: no answer: does the resolver run"},
		{"TCP alone", tcpOnly(t, func(c net.Conn) {
			(&dns.Conn{Conn: c}).ReadMsg()
			io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
			c.Close()
		}), "through ADDR: nothing listens on UDP port …and who listens on TCP speaks no DNS: "},
		{"DNS over TCP alone", tcpOnly(t, func(c net.Conn) {
			conn := &dns.Conn{Conn: c}
			if q, err := conn.ReadMsg(); err == nil {
				conn.WriteMsg(new(dns.Msg).SetReply(q))
			}
			c.Close()
		}), "through ADDR: it answers over TCP alone, and nothing listens on UDP port "},
		{"TLS", secure.Listener.Addr().String(), "through ADDR: it speaks TLS there; give the address and port at which it takes plain DNS"},
		{"no DNS", junk(func(*dns.Msg) []byte { return []byte("hello") }), "through ADDR: what comes is no DNS: 5 octets"},
		{"another ID", junk(func(q *dns.Msg) []byte { return packed(q, func(m *dns.Msg) { m.Id++ }) }), "through ADDR: what comes has another ID than the question"},
		{"another question", junk(func(q *dns.Msg) []byte {
			return packed(q, func(m *dns.Msg) { m.Question[0].Name = "www.example.com." })
		}), "through ADDR: what comes is the reply to another question"},
		{"an echo", junk(func(q *dns.Msg) []byte { return packed(q, func(m *dns.Msg) { m.Response = false }) }), "through ADDR: what comes is a question and no reply"},
		{"damaged", junk(func(q *dns.Msg) []byte { return append(packed(q, func(m *dns.Msg) {})[:20], 0xc0, 0x14) }), "through ADDR: what comes cannot be read: "},
	} {
		wg.Go(func() { checkThrough(t, c.what, c.at, []string{c.says}, "1 fault", "--manifests", sampleFiles) })
	}
	wg.Wait()
}

// tcpOnly serves connections.
func tcpOnly(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

// TestCheckThroughElsewhere: a reply from another address is no client's.
func TestCheckThroughElsewhere(t *testing.T) {
	t.Parallel()
	asked, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer asked.Close()
	other, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := asked.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			buf[2] |= 0x80 // a reply
			other.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	from := other.LocalAddr().(*net.UDPAddr).AddrPort()
	want := "through ADDR: the reply comes from " + netip.AddrPortFrom(from.Addr().Unmap(), from.Port()).String() + ", and no client takes it: "
	checkThrough(t, "another address", asked.LocalAddr().String(), []string{want}, "1 fault", "--manifests", sampleFiles)
}

// TestCheckThroughArguments: what is wrong in the arguments is told before anything is read.
func TestCheckThroughArguments(t *testing.T) {
	for _, c := range []struct {
		args string
		says string
	}{
		{"--through dns.example", `--through: "dns.example" is no server to ask, such as 192.0.2.53`},
		{"--through 127.0.0.1:0", `--through: "127.0.0.1:0" is no server to ask`},
		{"--through=", `--through: "" is no server to ask`},
		{"--through 0.0.0.0", `--through: "0.0.0.0" is no server to ask`},
		{"--name web.shop.registry.local", "--name says what to ask for --through a resolver, which is not given"},
		{"--through 127.0.0.1 --name a..b", `--name: "a..b" is no domain name: a label is empty`},
		{"--through 127.0.0.1 --name www.example.com", `--name "www.example.com" is in none of the zones`},
	} {
		stdout, stderr, code := once(t, environment(), append([]string{"check", "--manifests", sampleFiles}, strings.Fields(c.args)...)...)
		if code != 2 || stdout != "" || !strings.HasPrefix(stderr, "epdns: "+c.says) || bytes.Count([]byte(stderr), []byte("\n")) != 1 {
			t.Errorf("%s: exit status %d, %q %q, expected 2 and %q", c.args, code, stdout, stderr, c.says)
		}
	}
}

// TestCheckThroughName: a name can be asked for whatever it is.
func TestCheckThroughName(t *testing.T) {
	t.Parallel()
	config := settings(t, quick)
	server := serve(t, "--manifests", sampleFiles, "--config", config).dns.String()
	missing := between(t, server, func(q, m *dns.Msg, _ bool) *dns.Msg {
		if q.Question[0].Name == "web.shop.registry.local." && q.Question[0].Qtype == dns.TypeA {
			m.Answer = m.Answer[:1]
		}
		return m
	})
	args := []string{"--manifests", sampleFiles, "--config", config, "--name"}
	checkThrough(t, "of a bad answer", missing, []string{"through ADDR: web.shop.registry.local A: it has 1 of "}, "1 fault", append(args, "web.shop.registry.local")...)
	checkThrough(t, "of a good answer", missing, nil, "", append(args, "Api.shop.registry.local.")...)
}
