package dnsserver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"epdns/zones"
)

// faulty is an Authority that panics at these of its calls, counted from 1.
type faulty struct {
	*zones.Store
	calls atomic.Int64
	at    func(call int64) bool
}

func (f *faulty) Load() *zones.Set {
	if f.at(f.calls.Add(1)) {
		panic("a mistake made on purpose")
	}
	return f.Store.Load()
}

// Of a batch, only who asks what cannot be answered has SERVFAIL; where the batch
// cannot be looked at as a whole, nobody has.
func TestPanicOverUDP(t *testing.T) {
	for _, c := range []struct {
		what   string
		at     int64 // the first call is for the whole batch
		failed int   // which of the questions; -1: none
	}{
		{"the batch", 1, -1},
		{"the first question", 2, 0},
		{"the one between", 3, 1},
		{"the last one", 4, 2},
	} {
		t.Run(c.what, func(t *testing.T) {
			var log bytes.Buffer
			a := &faulty{Store: cluster(t), at: func(call int64) bool { return call == c.at }}
			s, err := Listen(Config{Listen: []string{"127.0.0.1:0"}, Workers: 1}, a, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			conn, err := net.Dial("udp", s.Addrs()[0].String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(patience))
			for i := range 3 {
				m := question("web.shop.registry.local.", dns.TypeA)
				m.Id = uint16(i)
				b, err := m.Pack()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := conn.Write(b); err != nil {
					t.Fatal(err)
				}
			}
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { s.Serve(ctx) })
			in := make([]byte, maxUDPSize)
			for range 3 {
				n, err := conn.Read(in)
				if err != nil {
					t.Fatal(err)
				}
				var m dns.Msg
				if err := m.Unpack(in[:n]); err != nil {
					t.Fatal(err)
				}
				want := dns.RcodeSuccess
				if int(m.Id) == c.failed {
					want = dns.RcodeServerFailure
				}
				if m.Rcode != want || len(m.Question) != 1 || (len(m.Answer) == 10) != (want == dns.RcodeSuccess) {
					t.Errorf("question %d:\n%v", m.Id, &m)
				}
			}
			stop()
			wg.Wait()
			st := s.Stats()
			if n := st.Responses[ResponseKind{UDP, "NOERROR"}] + st.Responses[ResponseKind{UDP, "SERVFAIL"}]; st.Panics != 1 || n != 3 {
				t.Errorf("%d panics, %d replies are counted", st.Panics, n)
			}
			if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "a mistake made on purpose") || !strings.Contains(text, "panics_test.go") {
				t.Errorf("the log: %s", text)
			}
		})
	}
}

// What comes behind a panic in a batch is limited as it would be without.
func TestPanicKeepsLimit(t *testing.T) {
	a := &faulty{Store: cluster(t), at: func(call int64) bool { return call == 2 }}
	s, err := Listen(Config{Listen: []string{"127.0.0.1:0"}, Workers: 1, RateLimit: RateLimitConfig{PerSecond: 1}}, a, quiet)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("udp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 3 { // before Serve, so that they are one batch
		if _, err := conn.Write(webA0); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Serve(ctx) })
	defer wg.Wait()
	defer stop()
	var st Stats
	until(t, "not all are dealt with", func() bool {
		st = s.Stats()
		return st.Responses[ResponseKind{UDP, "SERVFAIL"}]+st.Responses[ResponseKind{UDP, "NOERROR"}]+st.LimitDropped == 3
	})
	if st.Panics != 1 || st.LimitDropped != 1 {
		t.Errorf("%d panics, %d replies beyond the limit, want one of each", st.Panics, st.LimitDropped)
	}
}

// A connection goes on after a question that cannot be answered, and so do others.
func TestPanicOverTCP(t *testing.T) {
	cfg := Config{Listen: []string{"127.0.0.1:0"}, TLS: TLSConfig{Listen: []string{"127.0.0.1:0"}}}
	cfg.TLS.Cert, cfg.TLS.Key = makeCertificate(t, t.TempDir(), 1, tomorrow())
	var until atomic.Int64 // calls that are good, -1: all
	until.Store(-1)
	s, err := Listen(cfg, &faulty{Store: cluster(t), at: func(int64) bool { return until.Load() >= 0 && until.Add(-1) < 0 }}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Serve(ctx) })
	defer wg.Wait()
	defer stop()
	for i, c := range []net.Conn{dial(t, s), secured(t, s)} {
		for j, want := range []int{dns.RcodeSuccess, dns.RcodeServerFailure, dns.RcodeSuccess} {
			if want == dns.RcodeServerFailure {
				until.Store(0)
			}
			q := question("web.shop.registry.local.", dns.TypeA)
			if _, err := c.Write(framed(t, q)); err != nil {
				t.Fatal(err)
			}
			if m := read(t, c); m.Id != q.Id || m.Rcode != want {
				t.Errorf("connection %d, question %d:\n%v", i, j, m)
			}
		}
	}
	// Of a transfer some may have left: there is no message to end it with.
	c := dial(t, s)
	until.Store(1) // who may have one is looked up, too
	if _, err := c.Write(framed(t, new(dns.Msg).SetAxfr("registry.local."))); err != nil {
		t.Fatal(err)
	}
	closed(t, c)
	if n := s.Stats().Panics; n != 3 {
		t.Errorf("%d panics are counted", n)
	}
}

// Many panics are few lines of the log.
func TestPanicLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var p panics
		for i := range 60 {
			p.note(slog.New(slog.NewTextHandler(&log, nil)), fmt.Sprint("number ", i), []byte{1, 2})
			time.Sleep(time.Second)
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 6 || !strings.Contains(lines[1], "number 10") || !strings.Contains(lines[1], "unsaid=9") || !strings.Contains(lines[1], "query=0102") {
			t.Errorf("%d lines: %.300q", len(lines), lines)
		}
		if n := p.n.Load(); n != 60 {
			t.Errorf("%d are counted", n)
		}
	})
}

// Whatever comes, there is something to say to it, or nothing.
func TestAfterPanic(t *testing.T) {
	for what, msg := range map[string][]byte{"nothing": nil, "half a header": webA[:6], "a response": {11: 0, 2: 0x80}} {
		if out := afterPanic(nil, msg); out != nil {
			t.Errorf("%s: %x", what, out)
		}
	}
}
