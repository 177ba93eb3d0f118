package dnsserver

import (
	"encoding/hex"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The vectors of SipHash's authors: the key and the messages are 00 01 02 …
func TestSipHash(t *testing.T) {
	var key [16]byte
	for i := range key {
		key[i] = byte(i)
	}
	msg := make([]byte, 64)
	for i := range msg {
		msg[i] = byte(i)
	}
	for n, want := range map[int]uint64{
		0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 7: 0xab0200f58b01d137, 8: 0x93f5f5799a932462, 15: 0xa129ca6149be45e5,
	} {
		if got := sipHash(&key, msg[:n]); got != want {
			t.Errorf("of %d octets: %x, want %x", n, got, want)
		}
	}
}

func at(now uint32, secrets ...string) *cookies {
	c := &cookies{now: func() uint32 { return now }}
	for _, s := range secrets {
		parsed, err := ParseCookieSecrets([]byte(s))
		if err != nil {
			panic(err)
		}
		c.secrets = append(c.secrets, parsed...)
	}
	return c
}

// The examples of RFC 9018, appendix A.
func TestCookieExamples(t *testing.T) {
	const one, old, rolled = "e5e973e5a6b2a43f48e7dc849e37bfcf", "dd3bdf9344b678b185a6f5cb60fca715", "445536bcd2513298075a5d379663c962"
	for _, c := range []struct {
		what, from string
		c          *cookies
		query, out string
		good       bool
	}{
		{"a new client", "198.51.100.100", at(1559731985, one), "2464c4abcf10c957", "2464c4abcf10c957 01000000 5cf79f11 1f8130c3eee29480", false},
		{"the same, renewed", "198.51.100.100", at(1559734385, one), "2464c4abcf10c957 01000000 5cf79f11 1f8130c3eee29480", "2464c4abcf10c957 01000000 5cf7a871 d4a564a1442aca77", true},
		{"reserved octets that are not zero", "203.0.113.203", at(1559734700, one), "fc93fc62807ddb86 01abcdef 5cf78f71 a314227b6679ebf5", "fc93fc62807ddb86 01000000 5cf7a9ac f73a7810aca2381e", false},
		{"IPv6 and another secret", "2001:db8:220:1:59de:d0f4:8769:82b8", at(1559741961, rolled, old), "22681ab97d52c298 01000000 5cf7c579 26556bd0934c72f8", "22681ab97d52c298 01000000 5cf7c609 a6bb79d16625507a", true},
	} {
		out, good := c.c.appendReply(nil, unhex(t, c.query), netip.MustParseAddr(c.from))
		if want := unhex(t, c.out); string(out) != string(want) || good != c.good {
			t.Errorf("%s: %x, good %t; want %x, good %t", c.what, out, good, want, c.good)
		}
	}
}

// Who may come back with what, and when.
func TestCookieCheck(t *testing.T) {
	const first, second, made = "000102030405060708090a0b0c0d0e0f", "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", 1_800_000_000
	from := netip.MustParseAddr("192.0.2.7")
	cookie, _ := at(made, first).appendReply(nil, []byte("12345678"), from)
	changed := func(i int) []byte {
		b := []byte(string(cookie))
		b[i] ^= 1
		return b
	}
	for _, c := range []struct {
		what       string
		c          *cookies
		cookie     []byte
		from       string
		good, kept bool
	}{
		{"at once", at(made, first), cookie, "192.0.2.7", true, true},
		{"from an address in IPv6 form", at(made, first), cookie, "::ffff:192.0.2.7", true, true},
		{"after half an hour", at(made+1800, first), cookie, "192.0.2.7", true, true},
		{"after more", at(made+1801, first), cookie, "192.0.2.7", true, false},
		{"after an hour", at(made+3600, first), cookie, "192.0.2.7", true, false},
		{"after more than an hour", at(made+3601, first), cookie, "192.0.2.7", false, false},
		{"five minutes before it was made", at(made-300, first), cookie, "192.0.2.7", true, false},
		{"before that", at(made-301, first), cookie, "192.0.2.7", false, false},
		{"from elsewhere", at(made, first), cookie, "192.0.2.8", false, false},
		{"another client's", at(made, first), changed(0), "192.0.2.7", false, false},
		{"another version", at(made, first), changed(8), "192.0.2.7", false, false},
		{"another time", at(made, first), changed(15), "192.0.2.7", false, false},
		{"another hash", at(made, first), changed(23), "192.0.2.7", false, false},
		{"longer", at(made, first), append(changed(0), 0), "192.0.2.7", false, false},
		{"another secret", at(made, second), cookie, "192.0.2.7", false, false},
		{"the secret that is on its way out", at(made, second, first), cookie, "192.0.2.7", true, false},
		{"the secret that others have already", at(made, first, second), cookie, "192.0.2.7", true, true},
	} {
		out, good := c.c.appendReply(nil, c.cookie, netip.MustParseAddr(c.from))
		if kept := string(out) == string(c.cookie); good != c.good || kept != c.kept || len(out) != cookieSize {
			t.Errorf("%s: good %t, kept %t: %x", c.what, good, kept, out)
		}
		if again, good := c.c.appendReply(nil, out, netip.MustParseAddr(c.from)); !good || string(again) != string(out) && c.good {
			t.Errorf("%s: what it got is not good: %x, then %x", c.what, out, again)
		}
	}
	// Seconds wrap in 2106.
	wrapped, _ := at(1<<32-10, first).appendReply(nil, []byte("12345678"), from)
	if _, good := at(20, first).appendReply(nil, wrapped, from); !good {
		t.Error("a cookie does not outlive the wrap of 32 bits")
	}
}

func TestParseCookieSecrets(t *testing.T) {
	const one = "000102030405060708090a0b0c0d0e0f"
	for text, says := range map[string]string{
		one: "", one + "\n": "", "\n" + strings.ToUpper(one) + "\r\n" + one + "\n\n": "",
		"": "no secret", "\n": "no secret", one + "\n" + one + "\n" + one: "3 secrets", one[1:]: "line 1: a secret has 32 hexadecimal digits, not 31",
		one + "\n" + "g" + one[1:]: "line 2: a secret has hexadecimal digits only", one + one: "not 64",
	} {
		_, err := ParseCookieSecrets([]byte(text))
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
		if err != nil && strings.Contains(err.Error(), one[:6]) {
			t.Errorf("a secret is told: %v", err)
		}
	}
}

// What goes to an upstream has no cookie of ours, and what comes back has one.
func TestUpstreamCookies(t *testing.T) {
	got := make(chan *dns.Msg, 10)
	up := elsewhere(t, func(w dns.ResponseWriter, q *dns.Msg) {
		got <- q.Copy()
		has192(w, q)
	})
	s := start(t, Config{Upstream: []netip.AddrPort{up}, Cookies: []CookieSecret{{1}}})
	for _, network := range []string{"udp", "tcp"} {
		q := question("example.com.", dns.TypeA)
		q.SetEdns0(1232, true)
		o := q.IsEdns0()
		o.Option = append(o.Option, &dns.EDNS0_LOCAL{Code: 65001, Data: []byte{7}}, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0102030405060708"}, &dns.EDNS0_NSID{Code: dns.EDNS0NSID})
		m, _, err := (&dns.Client{Net: network}).Exchange(q, s.Addrs()[0].String())
		if err != nil {
			t.Fatal(err)
		}
		if a, ok := m.Answer[0].(*dns.A); !ok || !a.A.Equal(net.IPv4(192, 0, 2, 1)) {
			t.Fatalf("%s: %v", network, m)
		}
		if o := m.IsEdns0(); o == nil || len(o.Option) != 1 || !strings.HasPrefix(o.Option[0].(*dns.EDNS0_COOKIE).Cookie, "010203040506070801000000") {
			t.Errorf("%s: the reply has not one cookie of ours:\n%v", network, m)
		}
		if o := (<-got).IsEdns0(); o == nil || len(o.Option) != 2 || !o.Do() || o.UDPSize() != 1232-28 {
			t.Errorf("%s: the upstream was asked with %v", network, o)
		}
	}
}
