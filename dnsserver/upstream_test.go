package dnsserver

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// elsewhere is a server that has every name, at 192.0.2.1, and says what it was asked.
func elsewhere(t *testing.T, handle dns.HandlerFunc) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenPacket("udp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{Listener: l, Handler: handle}, {PacketConn: pc, Handler: handle}} {
		started := make(chan struct{})
		s.NotifyStartedFunc = func() { close(started) }
		go s.ActivateAndServe()
		<-started
		t.Cleanup(func() { s.Shutdown() })
	}
	return l.Addr().(*net.TCPAddr).AddrPort()
}

func has192(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	m.Answer = append(m.Answer, &dns.A{
		Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60},
		A:   net.IPv4(192, 0, 2, 1),
	})
	if o := q.IsEdns0(); o != nil {
		m.SetEdns0(o.UDPSize(), o.Do())
	}
	w.WriteMsg(m)
}

func TestUpstream(t *testing.T) {
	dead := netip.MustParseAddrPort("127.0.0.1:1") // tcpmux: refused at once
	for what, upstreams := range map[string][]netip.AddrPort{
		"one":                {elsewhere(t, has192)},
		"the first one dead": {dead, elsewhere(t, has192)},
		"the first two dead": {dead, netip.MustParseAddrPort("127.0.0.1:2"), elsewhere(t, has192)},
	} {
		t.Run(what, func(t *testing.T) {
			s := start(t, Config{Upstream: upstreams, Workers: 1})
			addr := s.Addrs()[0].String()
			for _, network := range []string{"udp", "tcp"} {
				c := dns.Client{Net: network, Timeout: patience}
				for _, ask := range []struct {
					name    string
					ra, aa  bool
					rcode   int
					answers int
				}{
					{"www.Example.com.", true, false, dns.RcodeSuccess, 1},
					{"7.2.0.192.in-addr.arpa.", true, false, dns.RcodeSuccess, 1},
					{"web.shop.registry.local.", false, true, dns.RcodeSuccess, 10},
					{"nope.shop.registry.local.", false, true, dns.RcodeNameError, 0},
					{"3.0.0.10.in-addr.arpa.", false, true, dns.RcodeSuccess, 0},
				} {
					q := question(ask.name, dns.TypeA)
					q.SetEdns0(1232, true)
					m, _, err := c.Exchange(q, addr)
					if err != nil {
						t.Fatalf("%s over %s: %v", ask.name, network, err)
					}
					if m.Question[0].Name != ask.name || m.RecursionAvailable != ask.ra || m.Authoritative != ask.aa || m.Rcode != ask.rcode || len(m.Answer) != ask.answers {
						t.Errorf("%s over %s:\n%v", ask.name, network, m)
					}
				}
			}
			if st := s.Stats(); st.Upstream != 4 || st.UpstreamFailures != 0 {
				t.Errorf("%d passed, %d failed", st.Upstream, st.UpstreamFailures)
			}
		})
	}
}

// Where no upstream answers, the asker is told, and our own names do not wait.
func TestUpstreamSilent(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := start(t, Config{Upstream: []netip.AddrPort{silent.LocalAddr().(*net.UDPAddr).AddrPort()}, Workers: 1})
	addr := s.Addrs()[0].String()
	failed := make(chan *dns.Msg, 1)
	go func() {
		m, _, err := (&dns.Client{Timeout: patience}).Exchange(question("example.com.", dns.TypeA), addr)
		if err != nil {
			t.Error(err)
		}
		failed <- m
	}()
	until(t, "the question is not passed on", func() bool { return s.Stats().Upstream == 1 })
	before := time.Now()
	if m, err := dns.Exchange(question("web.shop.registry.local.", dns.TypeA), addr); err != nil || len(m.Answer) != 10 {
		t.Fatalf("%v %v", m, err)
	}
	select {
	case <-failed:
		t.Fatalf("our own name took as long as somebody else's: %v", time.Since(before))
	default:
	}
	if m := <-failed; m == nil || m.Rcode != dns.RcodeServerFailure || !m.RecursionAvailable {
		t.Errorf("%v", m)
	}
	if st := s.Stats(); st.UpstreamFailures != 1 {
		t.Errorf("%d failures are counted", st.UpstreamFailures)
	}
}

// A reply to another question, or under another ID, is not taken.
func TestUpstreamForged(t *testing.T) {
	forger := elsewhere(t, func(w dns.ResponseWriter, q *dns.Msg) {
		wrong := q.Copy()
		wrong.Question[0].Name = "bank.example."
		has192(w, wrong)
		other := q.Copy()
		other.Id++
		has192(w, other)
		right := q.Copy()
		m := new(dns.Msg).SetRcode(right, dns.RcodeNameError)
		w.WriteMsg(m)
	})
	s := start(t, Config{Upstream: []netip.AddrPort{forger}, Workers: 1})
	m, err := dns.Exchange(question("example.com.", dns.TypeA), s.Addrs()[0].String())
	if err != nil || m.Rcode != dns.RcodeNameError {
		t.Fatalf("%v %v", m, err)
	}
}

// A question that comes back to us, because an upstream is ourselves or asks us,
// goes round once and not for ever.
func TestUpstreamLoop(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free now
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().(*net.TCPAddr).AddrPort()
	l.Close()
	s := start(t, Config{Listen: []string{addr.String()}, Upstream: []netip.AddrPort{addr}, Workers: 1})
	m, _, err := (&dns.Client{Timeout: patience}).Exchange(question("example.com.", dns.TypeA), addr.String())
	if err != nil || m.Rcode != dns.RcodeServerFailure {
		t.Fatalf("%v %v", m, err)
	}
	if n := s.Stats().Upstream; n > 4 {
		t.Errorf("one question was passed on %d times", n)
	}
}

// The same question of many at a time is asked for once, and each gets the reply
// under an ID of its own.
func TestUpstreamCrowd(t *testing.T) {
	var asked atomic.Int32
	open := make(chan struct{})
	s := start(t, Config{Workers: 1, Upstream: []netip.AddrPort{elsewhere(t, func(w dns.ResponseWriter, q *dns.Msg) {
		asked.Add(1)
		<-open
		has192(w, q)
	})}})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			m, _, err := (&dns.Client{Timeout: patience}).Exchange(question("example.com.", dns.TypeA), s.Addrs()[0].String())
			if err != nil || len(m.Answer) != 1 { // the client compares the IDs
				t.Errorf("%v %v", m, err)
			}
		})
	}
	until(t, "not all questions have come", func() bool { return s.Stats().Upstream == 20 })
	close(open)
	wg.Wait()
	if n := asked.Load(); n > 2 {
		t.Errorf("the upstream was asked %d times", n)
	}
}
