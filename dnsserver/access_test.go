package dnsserver

import (
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func prefixesOf(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// Who is denied may not ask, whoever else is allowed.
func TestAccess(t *testing.T) {
	none := prefixesOf()
	for _, c := range []struct {
		what        string
		allow, deny []netip.Prefix
		may, mayNot string // addresses
	}{
		{"nothing said", none, none, "192.0.2.1 ::1 10.0.0.1", ""},
		{"some denied", none, prefixesOf("192.0.2.0/25", "2001:db8::/32"), "192.0.2.128 ::ffff:192.0.2.128 2001:db9::1", "192.0.2.0 192.0.2.127 ::ffff:192.0.2.1 2001:db8:ffff::1"},
		{"some allowed", prefixesOf("10.0.0.0/8", "fd00::/8"), none, "10.255.0.1 fdff::1", "11.0.0.1 192.0.2.1 ::1 127.0.0.1"},
		{"some of them denied", prefixesOf("10.0.0.0/8"), prefixesOf("10.1.0.0/16"), "10.0.0.1 10.2.0.1", "10.1.0.1 11.0.0.1"},
		{"all that is allowed denied", prefixesOf("10.1.2.3/32"), prefixesOf("10.0.0.0/8"), "", "10.1.2.3 10.0.0.1 11.0.0.1"},
		{"one family", prefixesOf("0.0.0.0/0"), none, "1.2.3.4 ::ffff:1.2.3.4", "2001:db8::1"},
		{"the other", prefixesOf("::/0"), none, "2001:db8::1", "1.2.3.4"},
		{"an interface's", none, prefixesOf("fe80::/10"), "", "fe80::1%2 fe80::1"},
	} {
		a := newAccess(c.allow, c.deny)
		for i, list := range []string{c.may, c.mayNot} {
			for _, addr := range strings.Fields(list) {
				if got := a.admits(netip.MustParseAddr(addr).Unmap()); got != (i == 0) {
					t.Errorf("%s: %s: %v", c.what, addr, got)
				}
			}
		}
	}
}

// Whatever a denied address asks is REFUSED, and says why.
func TestDenied(t *testing.T) {
	s := *everything
	s.access = newAccess(nil, prefixesOf("127.0.0.0/8"))
	r := newResponder(cluster(t))
	r.use(&s)
	all := append([]packet{
		{"A", query1(0, webA)}, {"EDNS", query1(0, bigA, opt(1232, 0))}, {"no such name", query1(0, in("nope", dns.TypeA))}, {"PTR", query1(0, in("1.0.0.10.in-addr.arpa.", dns.TypePTR))},
	}, everyOption...)
	for _, p := range all {
		var m dns.Msg
		for _, transport := range []Transport{UDP, TCP, TLS} {
			out := r.Respond(nil, p.in, client, Via{transport, local})
			if err := m.Unpack(out); err != nil {
				t.Fatalf("%s: %v", p.what, err)
			}
			if len(m.Answer)+len(m.Ns) > 0 {
				t.Errorf("%s over %v: it is answered: %v", p.what, transport, &m)
			}
			if m.Rcode != dns.RcodeRefused {
				continue // what is wrong with the query is said all the same
			}
			if o := m.IsEdns0(); o != nil {
				if err := ede(edeProhibited)(p.in, out, &m); err != nil {
					t.Errorf("%s over %v: %v", p.what, transport, err)
				}
			}
		}
	}
	for _, p := range all[:4] {
		if out := r.Respond(nil, p.in, client, Via{UDP, local}); out[3]&0xf != dns.RcodeRefused {
			t.Errorf("%s: %x", p.what, out)
		}
	}
}

// Over sockets: one who is denied gets REFUSED over UDP and no connection, another is
// answered; and so it is after the settings have changed.
func TestDeniedServer(t *testing.T) {
	cfg := Config{Listen: []string{"127.0.0.1:0"}, Deny: prefixesOf("127.0.0.2/32")}
	s := start(t, cfg)
	ask := func(source string) (udp, tcp int) {
		addr := s.Addrs()[0].String()
		client := dns.Client{Timeout: patience, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(source)}, Timeout: patience}}
		m, _, err := client.Exchange(question("web.shop.registry.local.", dns.TypeA), addr)
		if err != nil {
			t.Fatal(err)
		}
		udp = m.Rcode
		client = dns.Client{Net: "tcp", Timeout: patience, Dialer: &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}, Timeout: patience}}
		if m, _, err = client.Exchange(question("web.shop.registry.local.", dns.TypeA), addr); err != nil {
			return udp, -1
		}
		return udp, m.Rcode
	}
	for _, c := range []struct {
		source   string
		udp, tcp int
	}{{"127.0.0.2", dns.RcodeRefused, -1}, {"127.0.0.3", dns.RcodeSuccess, dns.RcodeSuccess}} {
		if udp, tcp := ask(c.source); udp != c.udp || tcp != c.tcp {
			t.Errorf("%s: %d over UDP, %d over TCP; want %d, %d", c.source, udp, tcp, c.udp, c.tcp)
		}
	}
	if n := s.Stats().TCPDenied; n != 1 {
		t.Errorf("%d connections are counted as denied", n)
	}
	open := dial(t, s)
	open.Write(framed(t, question("web.shop.registry.local.", dns.TypeA)))
	if m := read(t, open); m.Rcode != dns.RcodeSuccess {
		t.Fatal(m)
	}
	cfg.Deny, cfg.Allow = nil, prefixesOf("127.0.0.2/32")
	c, err := s.Prepare(cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.Commit()
	if udp, tcp := ask("127.0.0.2"); udp != dns.RcodeSuccess || tcp != dns.RcodeSuccess {
		t.Errorf("allowed now: %d over UDP, %d over TCP", udp, tcp)
	}
	if udp, tcp := ask("127.0.0.3"); udp != dns.RcodeRefused || tcp != -1 {
		t.Errorf("not allowed any more: %d over UDP, %d over TCP", udp, tcp)
	}
	// A connection that is open stays, and gets nothing, not even a zone.
	for _, q := range []*dns.Msg{question("web.shop.registry.local.", dns.TypeA), question("registry.local.", dns.TypeAXFR)} {
		open.Write(framed(t, q))
		if m := read(t, open); m.Rcode != dns.RcodeRefused || len(m.Answer) > 0 {
			t.Errorf("over a connection from before: %v", m)
		}
	}
}

// TCP connections take half of the descriptors.
func TestConnectionsWithinDescriptors(t *testing.T) {
	for _, c := range []struct{ total, descriptors, want, lines int }{
		{1024, 1 << 20, 1024, 0}, {1024, 2048, 1024, 0}, {1024, 64, 32, 1}, {20, 64, 20, 0}, {20, 1, 1, 1},
	} {
		var log lines
		got := TCPConfig{Total: c.total, Idle: time.Second}.within(c.descriptors, slog.New(slog.NewTextHandler(&log, nil)))
		if got.Total != c.want || got.Idle != time.Second || log.count("file descriptors") != c.lines {
			t.Errorf("%d of %d descriptors: %d, %d lines", c.total, c.descriptors, got.Total, log.count(""))
		}
	}
}
