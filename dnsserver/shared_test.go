package dnsserver

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// everything is a server that has all there is to have.
var everything = newShared(&Config{
	NSID: strings.Repeat("n", maxNSID), Version: "epdns v1", Cookies: []CookieSecret{{1}, {2}}, TSIG: tsigKeys,
	TCP: TCPConfig{Idle: 12 * time.Second},
})

// packet is a query.
type packet struct {
	what string
	in   []byte
}

var everyOption = []packet{
	{"new cookie", query1(0, webA, opt(1232, 0, cookieOption(8)))},
	{"good cookie", query1(0, webA, opt(1232, 0, option(optionCookie, goodCookie()...)))},
	{"bad cookie", query1(0, webA, opt(1232, 0, cookieOption(24)))},
	{"cookie of 7 octets", query1(0, webA, opt(1232, 0, cookieOption(7)))},
	{"only a cookie", message(0, [4]int{0, 0, 0, 1}, opt(1232, 0, cookieOption(24)))},
	{"NSID", query1(0, webA, opt(1232, 0, option(optionNSID)))},
	{"keepalive", query1(0, webA, opt(1232, 0, option(optionKeepalive)))},
	{"padding", query1(0, webA, opt(1232, 0, option(optionPadding, 0, 0, 0)))},
	{"all options", query1(0, bigA, opt(1232, do, option(optionNSID), cookieOption(8), option(optionKeepalive), option(65001, 1, 2, 3)))},
	{"all options and an extended error", query1(0, in("example.com.", dns.TypeA), opt(1232, do, option(optionNSID), cookieOption(8), option(optionKeepalive)))},
	{"version.bind", ch("version.bind.", dns.TypeTXT)},
	{"id.server", ch("id.server.", dns.TypeTXT)},
	{"EDNS version 1", query1(0, webA, opt(1232, 1<<16))},
}

func goodCookie() []byte {
	c, _ := everything.cookies.appendReply(nil, clientCookie, client.Addr())
	return c
}

// Whatever is in the OPT, a reply is no longer than the asker takes, and an extended
// error is what is left out first.
func TestOptionsFit(t *testing.T) {
	r := newResponder(cluster(t))
	r.shared = everything
	long := strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("b", 59) + "."
	kept := false
	for size := uint16(512); size < 700; size++ {
		for _, q := range [][]byte{bigA, webA, in("nope", dns.TypeA), in(long, dns.TypeA), in("_http._tcp.web", dns.TypeSRV)} {
			out := r.Respond(nil, query1(0, q, opt(size, 0, option(optionNSID), cookieOption(8))), client, Via{UDP, local})
			var m dns.Msg
			if err := m.Unpack(out); err != nil {
				t.Fatal(err)
			}
			o := m.IsEdns0()
			if len(out) > int(size) || o == nil || len(o.Option) < 2 {
				t.Fatalf("size %d: %d octets:\n%v", size, len(out), &m)
			}
			if len(o.Option) == 3 {
				kept = true
			}
		}
	}
	if !kept {
		t.Error("no reply has its extended error")
	}
}

// The limit that is configured holds, and is told.
func TestUDPSize(t *testing.T) {
	for _, size := range []int{512, 1400} {
		s := start(t, Config{UDPSize: size})
		out := exchanged(t, s, "udp", query1(0, bigA, opt(4096, 0)))
		var m dns.Msg
		if err := m.Unpack(out); err != nil {
			t.Fatal(err)
		}
		if len(out) > size || len(out)+16 <= size || !m.Truncated || m.IsEdns0().UDPSize() != uint16(size) {
			t.Errorf("%d octets where %d are allowed:\n%v", len(out), size, &m)
		}
	}
	for n, ok := range map[int]bool{-1: false, 0: false, 511: false, 512: true, 1232: true, 1400: true, 1401: false, 65536: false} {
		if err := CheckUDPSize(n); (err == nil) != ok {
			t.Errorf("%d: %v", n, err)
		}
	}
}

// A spoofed question brings no flood: what each reply has for each octet of its
// question, over UDP, is bounded by the largest reply.
func TestAmplification(t *testing.T) {
	r := newResponder(cluster(t))
	for _, p := range []packet{
		{"without EDNS", query1(0, bigA)}, {"with EDNS", query1(0, bigA, opt(65535, do))}, {"SRV", query1(0, in("_http._tcp.big", dns.TypeSRV), opt(65535, 0))},
		{"ANY", query1(0, in("big", dns.TypeANY), opt(65535, 0))}, {"NXDOMAIN", query1(0, in("nope", dns.TypeA), opt(65535, 0))},
	} {
		out := r.Respond(nil, p.in, client, Via{UDP, local})
		if factor := float64(len(out)) / float64(len(p.in)); factor > 1232.0/30 || binary.BigEndian.Uint16(p.in[10:]) == 0 && len(out) > 512 {
			t.Errorf("%s: %d octets for %d", p.what, len(out), len(p.in))
		}
	}
}

// A query of nothing but records costs what its length says (the other servers'
// trouble was with names made of pointers).
func TestManyPointers(t *testing.T) {
	var q query
	in := query1(0, webA, pointers(5000)...)
	start := time.Now()
	for range 100 {
		if _, ok := q.parse(in); !ok {
			t.Fatal("not read")
		}
	}
	if each := time.Since(start) / 100; each > 20*time.Millisecond {
		t.Errorf("%d octets take %v", len(in), each)
	}
}
