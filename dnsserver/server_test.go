package dnsserver

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	return startLogged(t, cfg, quiet)
}

// startLogged does the same with a log.
func startLogged(t *testing.T, cfg Config, log *slog.Logger) *Server {
	t.Helper()
	if cfg.Listen == nil {
		cfg.Listen = []string{"127.0.0.1:0"}
	}
	s, err := Listen(cfg, cluster(t), log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("Serve does not end")
		}
	})
	return s
}

func dial(t *testing.T, s *Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func framed(t *testing.T, m *dns.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)
}

func read(t *testing.T, c net.Conn) *dns.Msg {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	var n [2]byte
	if _, err := io.ReadFull(c, n[:]); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint16(n[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		t.Fatal(err)
	}
	var m dns.Msg
	if err := m.Unpack(b); err != nil {
		t.Fatal(err)
	}
	return &m
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			t.Fatal(what)
		}
		time.Sleep(time.Millisecond)
	}
}

// closed waits until the other side has closed a connection.
func closed(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection is still open")
	}
}

// glibc sends the questions for A and AAAA in one segment, and some send a message
// octet by octet.
func TestTCPFraming(t *testing.T) {
	s := start(t, Config{})
	c := dial(t, s)
	a, aaaa := question("web.shop.registry.local.", dns.TypeA), question("web.shop.registry.local.", dns.TypeAAAA)
	if _, err := c.Write(append(framed(t, a), framed(t, aaaa)...)); err != nil {
		t.Fatal(err)
	}
	if m := read(t, c); m.Id != a.Id || len(m.Answer) != 10 {
		t.Fatalf("the first question:\n%v", m)
	}
	if m := read(t, c); m.Id != aaaa.Id || len(m.Ns) != 1 {
		t.Fatalf("the second question:\n%v", m)
	}
	for _, b := range framed(t, a) {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if m := read(t, c); len(m.Answer) != 10 {
		t.Fatalf("octet by octet:\n%v", m)
	}
	// Half-closed: what was asked is still answered.
	if _, err := c.Write(framed(t, a)); err != nil {
		t.Fatal(err)
	}
	c.(*net.TCPConn).CloseWrite()
	if m := read(t, c); len(m.Answer) != 10 {
		t.Fatalf("after a half-close:\n%v", m)
	}
	closed(t, c)
}

// A connection carries as many questions as come, answered in their order, and one
// that is kept in reserve for ten seconds (CoreDNS) is still there.
func TestTCPManyQuestions(t *testing.T) {
	if idle := (Config{}).withDefaults().TCP.Idle; idle <= 10*time.Second {
		t.Errorf("a connection may be idle for %v", idle)
	}
	s := start(t, Config{})
	c := dial(t, s)
	const n = 500
	go func() {
		for i := range n {
			q := question("one.shop.registry.local.", dns.TypeAAAA)
			q.Id = uint16(i)
			if b, err := q.Pack(); err == nil {
				c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
			}
		}
	}()
	for i := range n {
		if m := read(t, c); int(m.Id) != i || len(m.Answer) != 1 {
			t.Fatalf("in place of reply %d:\n%v", i, m)
		}
	}
}

func TestTCPRubbish(t *testing.T) {
	s := start(t, Config{})
	for _, in := range []string{"\x00\x00", "\x00\x05hello", "\x10\x01 longer than any query", "\x00\x0c\x12\x34\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00"} {
		c := dial(t, s)
		if _, err := io.WriteString(c, in); err != nil {
			t.Fatal(err)
		}
		closed(t, c)
	}
	until(t, "connections are left", func() bool { return s.Stats().TCPConnections == 0 })
}

func TestTCPIdle(t *testing.T) {
	s := start(t, Config{TCP: TCPConfig{Idle: 50 * time.Millisecond}})
	closed(t, dial(t, s))
}

// At a limit, the connection that has been idle longest makes room.
func TestTCPLimits(t *testing.T) {
	for what, limits := range map[string]TCPConfig{"per source": {PerSource: 2}, "in all": {Total: 2}} {
		t.Run(what, func(t *testing.T) {
			s := start(t, Config{TCP: limits})
			ask := framed(t, question("web.shop.registry.local.", dns.TypeA))
			answered := func(c net.Conn) {
				t.Helper()
				if _, err := c.Write(ask); err != nil {
					t.Fatal(err)
				}
				if m := read(t, c); len(m.Answer) != 10 {
					t.Fatalf("%v", m)
				}
			}
			first, second := dial(t, s), dial(t, s)
			answered(second)
			answered(first) // now the second one has been idle longer
			third := dial(t, s)
			answered(third)
			closed(t, second)
			answered(first)
			if n := s.Stats().TCPRejected; n != 1 {
				t.Fatalf("%d connections were turned away", n)
			}
			if out := exchanged(t, s, "udp", query1(0, webA)); len(out) == 0 {
				t.Fatal("UDP is not served")
			}
		})
	}
}

// Who asks and never reads is cut off, and holds nothing.
func TestTCPNeverReads(t *testing.T) {
	s := start(t, Config{TCP: TCPConfig{Write: 100 * time.Millisecond}})
	c := dial(t, s)
	c.(*net.TCPConn).SetReadBuffer(4096)
	ask := framed(t, question("_http._tcp.big.shop.registry.local.", dns.TypeSRV))
	c.SetWriteDeadline(time.Now().Add(patience))
	for {
		if _, err := c.Write(ask); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal("the server goes on reading from who never reads")
			}
			break // it has closed the connection
		}
	}
	until(t, "the connection is still counted", func() bool { return s.Stats().TCPConnections == 0 })
}

func TestTransfers(t *testing.T) {
	s := start(t, Config{})
	addr := s.Addrs()[0].String()
	soa := question("registry.local.", dns.TypeSOA)
	m, err := dns.Exchange(soa, addr)
	if err != nil {
		t.Fatal(err)
	}
	serial := m.Answer[0].(*dns.SOA).Serial

	records := func(q *dns.Msg) (out []dns.RR, err error) {
		env, err := new(dns.Transfer).In(q, addr)
		if err != nil {
			return nil, err
		}
		for e := range env {
			if e.Error != nil {
				return nil, e.Error
			}
			out = append(out, e.RR...)
		}
		return out, nil
	}
	for _, c := range []struct {
		what string
		q    *dns.Msg
		n    int    // records; 0: any number above 500
		err  string // what the refusal says
	}{
		{"a zone of several messages", new(dns.Msg).SetAxfr("registry.local."), 0, ""},
		{"a reverse zone", new(dns.Msg).SetAxfr("10.in-addr.arpa."), 2 + 1 + 210, ""},
		{"IXFR from an older serial", new(dns.Msg).SetIxfr("registry.local.", serial-1, "", ""), 0, ""},
		{"IXFR from this serial", new(dns.Msg).SetIxfr("registry.local.", serial, "", ""), 1, ""},
		{"a Service is no zone", new(dns.Msg).SetAxfr("shop.registry.local."), 0, "bad xfr rcode: 9"},
		{"somebody else's zone", new(dns.Msg).SetAxfr("example.com."), 0, "bad xfr rcode: 5"},
	} {
		t.Run(c.what, func(t *testing.T) {
			rrs, err := records(c.q)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%d records, %v; want %q", len(rrs), err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.n > 0 && len(rrs) != c.n || c.n == 0 && len(rrs) < 500 {
				t.Fatalf("%d records, want %d", len(rrs), c.n)
			}
			first, ok1 := rrs[0].(*dns.SOA)
			last, ok2 := rrs[len(rrs)-1].(*dns.SOA)
			if !ok1 || !ok2 || first.Serial != serial || last.Serial != serial {
				t.Fatalf("from %v to %v", rrs[0], rrs[len(rrs)-1])
			}
		})
	}
	if n := s.Stats().Transfers; n != 4 {
		t.Fatalf("%d transfers are counted", n)
	}
}

// A transfer that is under way when the server stops is finished.
func TestStopFinishesTransfers(t *testing.T) {
	s, err := Listen(Config{Listen: []string{"127.0.0.1:0"}}, cluster(t), quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.Serve(ctx)
	}()
	c := dial(t, s)
	if _, err := c.Write(framed(t, new(dns.Msg).SetAxfr("registry.local."))); err != nil {
		t.Fatal(err)
	}
	first := read(t, c)
	stop()
	last := first.Answer[len(first.Answer)-1]
	for _, soa := last.(*dns.SOA); !soa; _, soa = last.(*dns.SOA) {
		m := read(t, c)
		last = m.Answer[len(m.Answer)-1]
	}
	closed(t, c)
	select {
	case <-served:
	case <-time.After(patience):
		t.Fatal("Serve does not end")
	}
}

// Sources are counted by what one host has to itself.
func TestSourceOf(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.7": "192.0.2.7/32", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64", "::1": "::/64",
	} {
		if got := sourceOf(netip.MustParseAddr(addr)).String(); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}

// Only loopback may have a transfer unless others are allowed.
func TestMayTransfer(t *testing.T) {
	s := newShared(&Config{Transfer: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/28"), netip.MustParsePrefix("2001:db8::/32")}})
	for addr, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true,
		"192.0.2.15": true, "192.0.2.16": false, "2001:db8::7": true, "2001:db9::7": false, "10.0.0.1": false,
	} {
		if got := s.mayTransfer(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
}

func TestListenErrors(t *testing.T) {
	busy := start(t, Config{})
	for addr, want := range map[string]string{
		busy.Addrs()[0].String(): "taken by another program",
		"192.0.2.1:5300":         "no interface has this address",
		"localhost:5300":         `"localhost" is no IP address`,
		"127.0.0.1":              "is not ADDR:PORT",
		"127.0.0.1:dns?":         `"dns?" is no port`,
	} {
		_, err := Listen(Config{Listen: []string{"127.0.0.1:0", addr}}, cluster(t), quiet)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), addr) {
			t.Errorf("%s: %v; want %q", addr, err, want)
		}
	}
	port := strings.TrimPrefix(busy.Addrs()[0].String(), "127.0.0.1")
	busy.Close()
	if _, err := Listen(Config{Listen: []string{"127.0.0.1" + port, port}}, cluster(t), quiet); err == nil || !strings.Contains(err.Error(), "127.0.0.1"+port+", which is listened on as well") {
		t.Errorf("one's own port: %v", err)
	}
	// UDP alone is noticed too, although others share it by SO_REUSEPORT.
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	if _, err := Listen(Config{Listen: []string{udp.LocalAddr().String()}}, cluster(t), quiet); err == nil || !strings.Contains(err.Error(), "taken") {
		t.Errorf("a UDP port that is taken: %v", err)
	}
}
