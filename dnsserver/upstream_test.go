package dnsserver

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/internal/freeport"
)

// elsewhere is a server that has every name, at 192.0.2.1, and says what it was asked.
func elsewhere(t *testing.T, handle dns.HandlerFunc) netip.AddrPort {
	t.Helper()
	at := freeport.Local(t)
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenPacket("udp", at)
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
	return netip.MustParseAddrPort(at)
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
	addr := netip.MustParseAddrPort(freeport.Local(t))
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

// Whatever size an asker gives, an upstream is asked for no more than ours over UDP, and a reply
// that is longer all the same has the asker come over TCP, where it goes as it is.
func TestUpstreamSize(t *testing.T) {
	var told atomic.Int32 // to the upstream; 0: nothing
	// Asked for N.example, it has N octets.
	upstream := elsewhere(t, func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetRcode(q, dns.RcodeNameError)
		told.Store(0)
		if o := q.IsEdns0(); o != nil {
			told.Store(int32(o.UDPSize()))
			m.SetEdns0(4096, o.Do())
		}
		octets, _ := strconv.Atoi(strings.TrimSuffix(q.Question[0].Name, ".example."))
		out, err := m.Pack()
		if err != nil {
			t.Error(err)
			return
		}
		w.Write(append(out, make([]byte, octets-len(out))...))
	})
	cookie := option(optionCookie, clientCookie...)
	for _, c := range []struct {
		what        string
		opt         []byte
		udpSize     int
		told, limit int
	}{
		{"without EDNS", nil, 0, 0, 512},
		{"less than is allowed", opt(300, 0), 0, 300, 512},
		{"less than ours", opt(1000, 0), 0, 1000, 1000},
		{"more than ours", opt(4096, flagDO), 0, 1232, 1232},
		{"most", opt(65535, flagDO), 0, 1232, 1232},
		{"most, where ours is larger", opt(65535, 0), 1400, 1400, 1400},
		{"most, with a cookie", opt(65535, 0, cookie), 0, 1232 - optionSize - cookieSize, 1232},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := start(t, Config{UDPSize: c.udpSize, Cookies: []CookieSecret{{1}}, Upstream: []netip.AddrPort{upstream}, Workers: 1})
			conn, err := net.Dial("udp", s.Addrs()[0].String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.SetDeadline(time.Now().Add(patience))
			for _, octets := range []int{200, c.limit, c.limit + 1, 5000} {
				q := query1(0, in(fmt.Sprintf("%d.example.", octets), dns.TypeTXT))
				if c.opt != nil {
					q = query1(0, in(fmt.Sprintf("%d.example.", octets), dns.TypeTXT), c.opt)
				}
				if _, err := conn.Write(q); err != nil {
					t.Fatal(err)
				}
				out := make([]byte, maxTCPSize)
				n, err := conn.Read(out)
				if err != nil {
					t.Fatal(err)
				}
				var m dns.Msg
				if err := m.Unpack(out[:n]); err != nil {
					t.Fatal(err)
				}
				if got := int(told.Load()); got != c.told {
					t.Errorf("the upstream is told %d, want %d", got, c.told)
				}
				if n > c.limit || m.Truncated != (octets > c.limit) || m.Truncated == (n >= octets) {
					t.Errorf("%d of %d octets, %d are allowed; TC: %v", n, octets, c.limit, m.Truncated)
				}
				if len(m.Question) != 1 || m.Rcode != dns.RcodeNameError || !m.RecursionAvailable || (m.IsEdns0() != nil) != (c.opt != nil) {
					t.Errorf("%d octets:\n%v", octets, &m)
				}
				out = exchanged(t, s, "tcp", q)
				if err := m.Unpack(out); err != nil || len(out) < octets || m.Truncated {
					t.Errorf("%d of %d octets over TCP: %v", len(out), octets, err)
				}
			}
		})
	}
}

// However many questions of one address wait, it has its share of the places, over UDP and
// over TCP, and others are answered.
func TestUpstreamShare(t *testing.T) {
	open := make(chan struct{})
	s := start(t, Config{Workers: 1, Upstream: []netip.AddrPort{elsewhere(t, func(w dns.ResponseWriter, q *dns.Msg) {
		if strings.HasPrefix(q.Question[0].Name, "slow") {
			<-open
		}
		has192(w, q)
	})}})
	answer := sync.OnceFunc(func() { close(open) })
	t.Cleanup(answer)
	overUDP := func(source string) net.Conn {
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(source)}, net.UDPAddrFromAddrPort(s.Addrs()[0]))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(patience))
		return c
	}
	send := func(c net.Conn, name string) {
		if _, err := c.Write(query1(0, in(name, dns.TypeA))); err != nil {
			t.Fatal(err)
		}
	}
	receive := func(c net.Conn, rcode int) {
		t.Helper()
		out := make([]byte, maxTCPSize)
		n, err := c.Read(out)
		if err != nil {
			t.Fatal(err)
		}
		var m dns.Msg
		if err := m.Unpack(out[:n]); err != nil || m.Rcode != rcode || !m.RecursionAvailable {
			t.Fatalf("%v, want %s:\n%v", err, dns.RcodeToString[rcode], &m)
		}
	}
	overTCP := func(source, name string) net.Conn {
		c := connect(t, s, netip.MustParseAddr(source))
		c.Write(framed(t, question(name, dns.TypeA)))
		return c
	}
	taken := func(source string) int {
		p := &s.shared.Load().upstream.places
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.of[sourceOf(netip.MustParseAddr(source))]
	}

	const beyond = 20
	greedy := overUDP("127.0.0.2")
	for i := range upstreamPerSource + beyond {
		send(greedy, fmt.Sprintf("slow%d.example.", i))
	}
	for range beyond {
		receive(greedy, dns.RcodeServerFailure)
	}
	if m := read(t, overTCP("127.0.0.2", "example.com.")); m.Rcode != dns.RcodeServerFailure {
		t.Errorf("over TCP it has more:\n%v", m)
	}
	if st := s.Stats(); st.Upstream != upstreamPerSource+beyond+1 || st.UpstreamFailures != beyond+1 {
		t.Errorf("%d passed, %d failed", st.Upstream, st.UpstreamFailures)
	}
	waits := overTCP("127.0.0.3", "slow.example.")
	until(t, "over TCP nothing is taken", func() bool { return taken("127.0.0.3") == 1 })
	other := overUDP("127.0.0.4")
	send(other, "example.com.")
	receive(other, dns.RcodeSuccess)

	answer()
	for range upstreamPerSource {
		receive(greedy, dns.RcodeSuccess)
	}
	if m := read(t, waits); m.Rcode != dns.RcodeSuccess {
		t.Errorf("who waited over TCP:\n%v", m)
	}
	until(t, "the places are not given back", func() bool { return taken("127.0.0.2")+taken("127.0.0.3")+taken("127.0.0.4") == 0 })
	send(greedy, "example.com.")
	receive(greedy, dns.RcodeSuccess)
}

// There are so many places for all, and so many for one source, which in IPv6 is a network.
func TestPlaces(t *testing.T) {
	p := places{of: map[netip.Prefix]int{}}
	source := func(addr string) netip.Prefix { return sourceOf(netip.MustParseAddr(addr)) }
	take := func(addr string, n int) (got int) {
		for range n {
			if p.take(source(addr)) {
				got++
			}
		}
		return got
	}
	for _, c := range []struct {
		source string
		want   int
	}{
		{"10.0.0.1", upstreamPerSource},
		{"10.0.0.1", 0},
		{"10.0.0.2", upstreamPerSource},
		{"2001:db8::1", upstreamPerSource},
		{"2001:db8::2", 0},
		{"2001:db8:0:1::2", upstreamPerSource},
	} {
		if got := take(c.source, 2*upstreamPerSource); got != c.want {
			t.Errorf("%s has %d places, want %d", c.source, got, c.want)
		}
	}
	for i := range 2 * upstreamInFlight {
		take(fmt.Sprintf("10.1.%d.%d", i/256, i%256), 1)
	}
	if p.taken != upstreamInFlight || take("192.0.2.1", 1) != 0 {
		t.Errorf("%d places", p.taken)
	}
	p.give(source("10.0.0.1"))
	if take("192.0.2.1", 2) != 1 {
		t.Error("a place that is free is not taken once")
	}
}

// A question that is longer than any needs to be is not held for an upstream.
func TestUpstreamLongQuery(t *testing.T) {
	s := start(t, Config{Workers: 1, Upstream: []netip.AddrPort{elsewhere(t, has192)}})
	q := question("example.com.", dns.TypeA)
	q.SetEdns0(1232, false)
	o := q.IsEdns0()
	o.Option = append(o.Option, &dns.EDNS0_PADDING{Padding: make([]byte, maxQuery)})
	m, _, err := (&dns.Client{Timeout: patience}).Exchange(q, s.Addrs()[0].String())
	if err != nil || m.Rcode != dns.RcodeServerFailure {
		t.Fatalf("%v\n%v", err, m)
	}
	if st := s.Stats(); st.Upstream != 1 || st.UpstreamFailures != 1 {
		t.Errorf("%d passed, %d failed", st.Upstream, st.UpstreamFailures)
	}
}
