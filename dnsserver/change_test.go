package dnsserver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/internal/freeport"
)

// change puts a configuration in force.
func change(t *testing.T, s *Server, cfg Config) {
	t.Helper()
	c, err := s.Prepare(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.Commit()
}

// answerOf asks once, over UDP or TCP.
func answerOf(network string, addr netip.AddrPort, m *dns.Msg) (*dns.Msg, error) {
	r, _, err := (&dns.Client{Net: network, Timeout: patience}).Exchange(m, addr.String())
	return r, err
}

func version() *dns.Msg {
	m := question("version.bind.", dns.TypeTXT)
	m.Question[0].Qclass = dns.ClassCHAOS
	return m
}

// Other settings hold for the next query, on sockets and connections that stay.
func TestChangeSettings(t *testing.T) {
	cfg := Config{Listen: []string{"127.0.0.1:0"}, Version: "one"}
	s := start(t, cfg)
	at := s.Addrs()
	open := dial(t, s)
	for _, v := range []string{"one", "two", ""} {
		cfg.Version = v
		change(t, s, cfg)
		want := fmt.Sprintf("[version.bind.\t0\tCH\tTXT\t%q]", v)
		if v == "" {
			want = "[]"
		}
		if m, err := answerOf("udp", at[0], version()); err != nil || fmt.Sprint(m.Answer) != want {
			t.Errorf("over UDP %v, %v; want %s", m, err, want)
		}
		if _, err := open.Write(framed(t, version())); err != nil {
			t.Fatal(err)
		}
		if m := read(t, open); fmt.Sprint(m.Answer) != want {
			t.Errorf("over TCP %v, want %s", m.Answer, want)
		}
	}
	if got := s.Addrs(); fmt.Sprint(got) != fmt.Sprint(at) {
		t.Errorf("it listens on %v, before on %v", got, at)
	}
}

// Addresses come and go; a connection of one that has gone is answered on. What was
// counted stays counted.
func TestChangeAddresses(t *testing.T) {
	a, b := freeport.Local(t), freeport.Local(t)
	s := start(t, Config{Listen: []string{a}})
	var overUDP uint64
	answers := func(addr string) bool {
		t.Helper()
		has := map[string]bool{}
		for _, network := range []string{"udp", "tcp"} {
			m, err := answerOf(network, netip.MustParseAddrPort(addr), question("web.shop.registry.local.", dns.TypeA))
			has[network] = err == nil && len(m.Answer) == 10
		}
		if has["udp"] {
			overUDP++
		}
		return has["udp"] || has["tcp"]
	}
	open := dial(t, s)
	if !answers(a) || answers(b) {
		t.Fatal("before a change")
	}
	change(t, s, Config{Listen: []string{b, a}})
	if !answers(a) || !answers(b) || s.Addrs()[0].String() != b {
		t.Fatal("with another address")
	}
	change(t, s, Config{Listen: []string{b}})
	until(t, "it does not let go", func() bool { return !answers(a) })
	if !answers(b) {
		t.Fatal("without the first address")
	}
	if _, err := open.Write(framed(t, question("web.shop.registry.local.", dns.TypeA))); err != nil {
		t.Fatal(err)
	}
	if m := read(t, open); len(m.Answer) != 10 {
		t.Errorf("a connection that was there:\n%v", m)
	}
	if n := s.Stats().Responses[ResponseKind{UDP, "NOERROR"}]; n != overUDP {
		t.Errorf("%d replies are counted, want %d", n, overUDP)
	}
}

// Where one thing cannot be had, nothing changes, and nothing is left bound.
func TestChangeFails(t *testing.T) {
	s := start(t, Config{Listen: []string{"127.0.0.1:0"}, Version: "one"})
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free := freeport.Local(t)
	port := s.Addrs()[0].Port()
	for _, c := range []struct {
		what string
		cfg  Config
		says string
	}{
		{"an address that is taken", Config{Listen: []string{"127.0.0.1:0", free, taken.Addr().String()}}, "taken by another program"},
		{"all addresses where one is listened on", Config{Listen: []string{fmt.Sprint(":", port), free}}, "a restart can change it"},
		{"one that is listened on, and all", Config{Listen: []string{free, "127.0.0.1:0", fmt.Sprint(":", port)}}, "has that port"},
		{"no address", Config{}, "no address"},
		{"an upstream that is none", Config{Listen: []string{"127.0.0.1:0"}, Upstream: make([]netip.AddrPort, 1)}, "upstream"},
		{"no certificate", Config{Listen: []string{"127.0.0.1:0", free}, TLS: TLSConfig{Listen: []string{"127.0.0.1:0"}, Cert: "/nowhere"}}, "/nowhere"},
	} {
		c.cfg.Version = "two"
		if _, err := s.Prepare(c.cfg); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", c.what, err, c.says)
		}
		if m, err := answerOf("udp", s.Addrs()[0], version()); err != nil || !strings.Contains(fmt.Sprint(m.Answer), "one") {
			t.Errorf("%s: then %v, %v", c.what, m, err)
		}
		again, err := net.Listen("tcp", free)
		if err != nil {
			t.Fatalf("%s: %v", c.what, err)
		}
		again.Close()
	}
}

// Changes while questions come lose none of them.
func TestChangeUnderLoad(t *testing.T) {
	cfg := Config{Listen: []string{"127.0.0.1:0"}}
	s := start(t, cfg)
	conn, err := net.Dial("udp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, stop := context.WithCancel(t.Context())
	var answered atomic.Int64
	lost := make(chan error, 1)
	go func() {
		in := make([]byte, maxUDPSize)
		for ctx.Err() == nil {
			conn.SetDeadline(time.Now().Add(patience))
			if _, err := conn.Write(query1(0, webA)); err != nil {
				lost <- err
				return
			}
			if _, err := conn.Read(in); err != nil {
				lost <- err
				return
			}
			answered.Add(1)
		}
		lost <- nil
	}()
	for i := range 100 {
		cfg.Version = fmt.Sprint(i)
		cfg.Listen = []string{"127.0.0.1:0"}
		if i%2 == 0 {
			cfg.Listen = append(cfg.Listen, "127.0.0.2:0")
		}
		change(t, s, cfg)
		before := answered.Load()
		until(t, "no answer", func() bool { return answered.Load() > before })
	}
	stop()
	if err := <-lost; err != nil {
		t.Errorf("after %d answers: %v", answered.Load(), err)
	}
}

// What has come when the server stops is answered: datagrams in the socket, connections
// that were opened, queries that were sent on them.
func TestStopAnswersWhatHasCome(t *testing.T) {
	s, err := Listen(Config{Listen: []string{"127.0.0.1:0"}}, cluster(t), quiet)
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.Dial("udp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	const n = 100 // whose replies a socket has room for
	for range n {
		if _, err := udp.Write(query1(0, webA)); err != nil {
			t.Fatal(err)
		}
	}
	tcp := dial(t, s)
	if _, err := tcp.Write(framed(t, question("web.shop.registry.local.", dns.TypeA))); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop() // before the first one is read
	s.Serve(ctx)
	udp.SetDeadline(time.Now().Add(patience))
	for i := range n {
		if _, err := udp.Read(make([]byte, maxUDPSize)); err != nil {
			t.Fatalf("after %d of %d: %v", i, n, err)
		}
	}
	if m := read(t, tcp); len(m.Answer) != 10 {
		t.Errorf("over TCP:\n%v", m)
	}
}

// Two servers that share an address: the one that stops loses nothing.
func TestReusePort(t *testing.T) {
	cfg := Config{Listen: []string{"127.0.0.1:0"}, ReusePort: true}
	old := start(t, cfg)
	cfg.Listen = []string{old.Addrs()[0].String()}
	if _, err := Listen(Config{Listen: cfg.Listen}, cluster(t), quiet); err == nil {
		t.Error("one that does not share has the address, too")
	}
	s := start(t, cfg)
	for _, network := range []string{"udp", "tcp"} {
		for range 20 {
			if m, err := answerOf(network, s.Addrs()[0], question("web.shop.registry.local.", dns.TypeA)); err != nil || len(m.Answer) != 10 {
				t.Errorf("%s: %v, %v", network, m, err)
			}
		}
	}
}
