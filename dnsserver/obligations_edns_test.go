package dnsserver

import (
	"encoding/binary"
	"strings"

	"github.com/miekg/dns"
)

const do = 1 << 15

// ourName is the option NSID with what the servers here are called.
var ourName = options("3 6570646e732d37")

var ednsObligations = []obligation{
	{rule: "RFC 6891 6.1.1: no OPT without one in the query", in: query1(0, webA), want: []check{noError, ten, noOPT}},
	{rule: "RFC 6891 6.1.1: an OPT for an OPT, and nothing in it", in: query1(0, webA, opt(1232, 0)), want: []check{noError, ten, noOptions}},
	{rule: "RFC 3225 3: DO comes back", in: query1(0, webA, opt(1232, do)), want: []check{noError, ten, is("DO", func(m *dns.Msg) bool { return m.IsEdns0().Do() })}},
	{rule: "RFC 6891 6.1.4: other flags do not come back", in: query1(0, webA, opt(1232, 0x4080)), want: []check{noError, ten, is("no flags", func(m *dns.Msg) bool { return m.IsEdns0().Hdr.Ttl&0xffff == 0 })}},
	{rule: "RFC 6891 6.1.3: version 1 is BADVERS, with version 0", in: query1(0, webA, opt(1232, 1<<16)), want: []check{badvers, bare, noOptions}},
	{rule: "RFC 8906 8.2.4: version 1 with an option is BADVERS without it", in: query1(0, webA, opt(1232, 1<<16, option(100))), want: []check{badvers, bare, noOptions}},
	{rule: "RFC 6891 6.1.3: what a later version may have in place of options is BADVERS too", in: query1(0, webA, opt(1232, 255<<16, []byte{1})), want: []check{badvers, bare, noOptions}},
	{rule: "RFC 6891 6.1.1: two OPTs are FORMERR", in: query1(0, webA, opt(1232, 0), opt(1232, 0)), want: []check{formerr, bare, notLonger}},
	{rule: "RFC 6891 6.1.2: an OPT elsewhere than at the root is FORMERR", in: query1(0, webA, record("a.", dns.TypeOPT, 1232, 0, nil)), want: []check{formerr, bare, notLonger}},
	{rule: "RFC 6891 6.1.2: an option past its record is FORMERR", in: query1(0, webA, opt(1232, 0, []byte{0, 10, 0, 8})), want: []check{formerr, bare, notLonger}},
	{rule: "RFC 6891 6.1.2: half an option is FORMERR", in: query1(0, webA, opt(1232, 0, []byte{0, 10})), want: []check{formerr, bare, notLonger}},
	{rule: "RFC 6891 6.1.1: a record past the message is FORMERR", in: query1(0, webA, opt(1232, 0, option(100, 1, 2, 3))[:14]), want: []check{formerr, bare, notLonger}},
	{rule: "RFC 6891 6.1.1: records behind the OPT do not matter", in: query1(0, webA, opt(1232, 0), record("a.", dns.TypeA, 1, 0, make([]byte, 4))), want: []check{noError, ten, noOptions}},
	{rule: "RFC 8906 8.2.3: an unknown option is ignored and does not come back", in: query1(0, webA, opt(1232, 0, option(65001, 0xaa))), want: []check{noError, ten, noOptions}},
	{rule: "RFC 8906 8.2.8: several options at once", in: query1(0, webA, opt(1232, do, option(dns.EDNS0NSID), option(dns.EDNS0SUBNET, 0, 0, 0, 0), option(dns.EDNS0EXPIRE), option(100))), want: []check{noError, ten, ourName}},
	{rule: "RFC 7871 7.2.1: a subnet is ignored by who has no use for it", in: query1(0, webA, opt(1232, 0, option(dns.EDNS0SUBNET, 0, 1, 24, 0, 10, 0, 0))), want: []check{noError, ten, noOptions}},
	{rule: "RFC 7871 7.2.1: also one that is odd", in: query1(0, webA, opt(1232, 0, option(dns.EDNS0SUBNET, 0, 9))), want: []check{noError, ten, noOptions}},
	{rule: "RFC 7830 4: padding is ignored where nothing is encrypted", in: query1(0, webA, opt(1232, 0, option(dns.EDNS0PADDING, make([]byte, 100)...))), want: []check{noError, ten, noOptions}},

	{rule: "RFC 7828 3.3.1: a keepalive over UDP is ignored", only: "udp", in: query1(0, webA, opt(1232, 0, option(optionKeepalive))), want: []check{noError, ten, noOptions}},
	{rule: "RFC 7828 3.3.2: over TCP the time that is allowed comes back", only: "tcp", in: query1(0, webA, opt(1232, 0, option(optionKeepalive))), want: []check{noError, ten, is("12 s", keepalive(120))}},
	{rule: "RFC 7828 3.2.1: a time in a query is not for us", in: query1(0, webA, opt(1232, 0, option(optionKeepalive, 0, 100))), want: []check{noError, ten, noOptions}},
	{rule: "RFC 7828 3.3.2: an error has it, too", only: "tcp", in: query1(0, in("example.com.", dns.TypeA), opt(1232, 0, option(optionKeepalive))), want: []check{refused, bare, is("12 s", keepalive(120))}},

	{rule: "RFC 8914 4.21: REFUSED comes with Not Authoritative", in: query1(0, in("example.com.", dns.TypeA), opt(1232, 0)), want: []check{refused, bare, ede(dns.ExtendedErrorCodeNotAuthoritative)}},
	{rule: "RFC 8914 4.22: another class comes with Not Supported", in: query1(0, asked("a.", dns.TypeA, dns.ClassHESIOD), opt(1232, 0)), want: []check{refused, bare, ede(dns.ExtendedErrorCodeNotSupported)}},
	{rule: "RFC 8914 4.22: AXFR over UDP comes with Not Supported", only: "udp", in: query1(0, in("registry.local.", dns.TypeAXFR), opt(1232, 0)), want: []check{notimp, bare, ede(dns.ExtendedErrorCodeNotSupported)}},
	{rule: "RFC 8914 3: no extended error without EDNS", in: query1(0, in("example.com.", dns.TypeA)), want: []check{refused, bare, noOPT}},
	{rule: "RFC 8914 2: an answer has none", in: query1(0, in("nope", dns.TypeA), opt(1232, 0)), want: []check{nxdomain, noOptions}},
}

// keepalive: the option says so, in units of 100 ms.
func keepalive(units uint16) func(m *dns.Msg) bool {
	return func(m *dns.Msg) bool {
		for _, x := range m.IsEdns0().Option {
			if k, ok := x.(*dns.EDNS0_TCP_KEEPALIVE); ok {
				return k.Timeout == units
			}
		}
		return false
	}
}

var (
	bigA    = in("big", dns.TypeA)
	partial = is("some answers", func(m *dns.Msg) bool { return len(m.Answer) > 10 && len(m.Answer) < 200 })

	// An A record that points to the question has 16 octets.
	full = func(limit int) check {
		return func(_, out []byte, _ *dns.Msg) error {
			if len(out) > limit || len(out)+16 <= limit {
				return within(0)(nil, out, nil)
			}
			return nil
		}
	}

	sizeObligations = []obligation{
		{rule: "RFC 1035 4.2.1: without EDNS a reply over UDP has 512 octets, as many records as fit, and TC", only: "udp", in: query1(0, bigA), want: []check{noError, tc, partial, full(512)}},
		{rule: "RFC 6891 6.2.5: with EDNS it has what the client takes", only: "udp", in: query1(0, bigA, opt(1000, 0)), want: []check{noError, tc, partial, full(1000), noOptions}},
		{rule: "RFC 6891 6.2.3: less than 512 is 512", only: "udp", in: query1(0, bigA, opt(100, 0)), want: []check{noError, tc, partial, full(512), noOptions}},
		{rule: "RFC 6891 6.2.3: 0 is 512", only: "udp", in: query1(0, bigA, opt(0, 0)), want: []check{noError, tc, partial, full(512), noOptions}},
		{rule: "RFC 9715 3.2: no more than 1232 for who takes more", only: "udp", in: query1(0, bigA, opt(4096, 0)), want: []check{noError, tc, partial, full(1232), noOptions}},
		{rule: "RFC 6891 6.2.5: room is kept for the options", only: "udp", in: query1(0, bigA, opt(600, 0, option(dns.EDNS0NSID))), want: []check{noError, tc, partial, full(600), ourName}},
		{rule: "RFC 2181 9: additional records are left out without TC", only: "udp", in: query1(0, in("_http._tcp.web", dns.TypeSRV), opt(650, 0)), want: []check{noError, whole, is("all answers, some addresses", func(m *dns.Msg) bool { return len(m.Answer) == 10 && len(m.Extra) < 11 })}},
		{rule: "RFC 2181 9: a set that is cut is TC, and has no additional records", only: "udp", in: query1(0, in("_http._tcp.big", dns.TypeSRV), opt(1232, 0)), want: []check{noError, tc, within(1232), is("no addresses", func(m *dns.Msg) bool { return len(m.Extra) == 1 })}},
		{rule: "RFC 7766 5: over TCP all of it", only: "tcp", in: query1(0, bigA), want: []check{noError, whole, sections(200, 0, 0)}},
		{rule: "RFC 7766 5: over TCP the size in the OPT means nothing to the answer", only: "tcp", in: query1(0, in("_http._tcp.big", dns.TypeSRV), opt(512, 0)), want: []check{noError, whole, sections(200, 0, 0)}},
		{rule: "RFC 2181 9: additional records stay within that size", only: "tcp", in: query1(0, in("_http._tcp.web", dns.TypeSRV), opt(650, 0)), want: []check{noError, whole, within(650), is("all answers, some addresses", func(m *dns.Msg) bool { return len(m.Answer) == 10 && len(m.Extra) > 1 && len(m.Extra) < 11 })}},
		{rule: "RFC 6891 6.2.3: a question of 255 octets leaves room for the rest", only: "udp", in: query1(0, in(strings.Repeat(strings.Repeat("a", 63)+".", 3)+strings.Repeat("b", 44)+".registry.local.", dns.TypeA), opt(512, 0, option(dns.EDNS0NSID))), want: []check{nxdomain, whole, within(512), negative}},
	}
)

var clientCookie = []byte{1, 2, 3, 4, 5, 6, 7, 8}

// freshCookie: one option, the client's eight octets and sixteen of ours.
var freshCookie = is("a whole cookie", func(m *dns.Msg) bool {
	o := m.IsEdns0()
	if o == nil || len(o.Option) == 0 {
		return false
	}
	c, ok := o.Option[0].(*dns.EDNS0_COOKIE)
	return ok && len(c.Cookie) == 2*cookieSize && strings.HasPrefix(c.Cookie, "010203040506070801000000")
})

func cookieOption(n int) []byte {
	return option(optionCookie, append(clientCookie, make([]byte, 40)...)[:n]...)
}

var cookieObligations = []obligation{
	{rule: "RFC 7873 5.2: who has no cookies ignores them", in: query1(0, webA, opt(1232, 0, cookieOption(8))), want: []check{noError, ten, noOptions}},
	{rule: "RFC 6891 6.1.2: and does not look at their length", in: query1(0, webA, opt(1232, 0, cookieOption(7))), want: []check{noError, ten, noOptions}},
	{rule: "RFC 7873 5.4: without cookies, no question is FORMERR", in: message(0, [4]int{0, 0, 0, 1}, opt(1232, 0, cookieOption(8))), want: []check{formerr, bare}},

	{rule: "RFC 7873 5.2.3: a client's cookie gets the answer and a server's", cookies: true, in: query1(0, webA, opt(1232, 0, cookieOption(8))), want: []check{noError, ten, freshCookie}},
	{rule: "RFC 7873 5.2.4: a bad server cookie gets the answer and a good one", cookies: true, in: query1(0, webA, opt(1232, 0, cookieOption(24))), want: []check{noError, ten, freshCookie}},
	{rule: "RFC 7873 4: 16 octets are legal", cookies: true, in: query1(0, webA, opt(1232, 0, cookieOption(16))), want: []check{noError, ten, freshCookie}},
	{rule: "RFC 7873 4: 40 octets are legal", cookies: true, in: query1(0, webA, opt(1232, 0, cookieOption(40))), want: []check{noError, ten, freshCookie}},
	{rule: "RFC 7873 5.2.2: 7 octets are FORMERR", cookies: true, in: query1(0, webA, opt(1232, 0, cookieOption(7))), want: []check{formerr, bare, noOptions}},
	{rule: "RFC 7873 5.2.2: no octets are FORMERR", cookies: true, in: query1(0, webA, opt(1232, 0, cookieOption(0))), want: []check{formerr, bare, noOptions}},
	{rule: "RFC 7873 5.2.2: 9 octets are FORMERR", cookies: true, in: query1(0, webA, opt(1232, 0, cookieOption(9))), want: []check{formerr, bare, noOptions}},
	{rule: "RFC 7873 5.2.2: 15 octets are FORMERR", cookies: true, in: query1(0, webA, opt(1232, 0, cookieOption(15))), want: []check{formerr, bare, noOptions}},
	{rule: "RFC 7873 5.2.2: 41 octets are FORMERR", cookies: true, in: query1(0, webA, opt(1232, 0, cookieOption(41))), want: []check{formerr, bare, noOptions}},
	{rule: "RFC 7873 5.2: of several the first counts", cookies: true, in: query1(0, webA, opt(1232, 0, cookieOption(8), cookieOption(7))), want: []check{noError, ten, freshCookie}},
	{rule: "RFC 7873 5.2.1: who has none gets none", cookies: true, in: query1(0, webA, opt(1232, 0)), want: []check{noError, ten, noOptions}},
	{rule: "RFC 7873 5.2.3: NXDOMAIN has one", cookies: true, in: query1(0, in("nope", dns.TypeA), opt(1232, 0, cookieOption(8))), want: []check{nxdomain, negative, freshCookie}},
	{rule: "RFC 7873 5.2.3: REFUSED has one, and its extended error", cookies: true, in: query1(0, in("example.com.", dns.TypeA), opt(1232, 0, cookieOption(8))), want: []check{refused, bare, freshCookie, ede(dns.ExtendedErrorCodeNotAuthoritative)}},
	{rule: "RFC 7873 5.2.3: a reply that is cut has one", cookies: true, only: "udp", in: query1(0, bigA, opt(512, 0, cookieOption(8))), want: []check{noError, tc, partial, full(512), freshCookie}},
	{rule: "RFC 7873 5.4: no question and a client's cookie is NOERROR with a server's", cookies: true, in: message(0, [4]int{0, 0, 0, 1}, opt(1232, 0, cookieOption(8))), want: []check{noError, bare, freshCookie}},
	{rule: "RFC 7873 5.4: no question and a bad server cookie is BADCOOKIE with a good one", cookies: true, in: message(0, [4]int{0, 0, 0, 1}, opt(1232, 0, cookieOption(24))), want: []check{rcode(dns.RcodeBadCookie), bare, freshCookie}},
	{rule: "RFC 7873 5.4: no question and no cookie is FORMERR", cookies: true, in: message(0, [4]int{0, 0, 0, 1}, opt(1232, 0)), want: []check{formerr, bare, noOptions}},
	{rule: "RFC 7873 5.4: no question and a cookie that is not legal is FORMERR", cookies: true, in: message(0, [4]int{0, 0, 0, 1}, opt(1232, 0, cookieOption(7))), want: []check{formerr, bare, noOptions}},
}

// told: one TXT record of class CH that nobody is to keep.
func told(text string) check {
	return is(text, func(m *dns.Msg) bool {
		if len(m.Answer) != 1 {
			return false
		}
		txt, ok := m.Answer[0].(*dns.TXT)
		return ok && txt.Hdr.Class == dns.ClassCHAOS && txt.Hdr.Ttl == 0 && txt.Hdr.Name == m.Question[0].Name && strings.Join(txt.Txt, "") == text
	})
}

func ch(name string, typ uint16) []byte { return query1(0, asked(name, typ, dns.ClassCHAOS)) }

var identityObligations = []obligation{
	{rule: "RFC 5001 2.2: NSID for who asks", in: query1(0, webA, opt(1232, 0, option(dns.EDNS0NSID))), want: []check{noError, ten, ourName}},
	{rule: "RFC 5001 2.2: not for who does not", in: query1(0, webA, opt(1232, 0)), want: []check{noError, ten, noOptions}},
	{rule: "RFC 5001 2.1: what the query says there means nothing", in: query1(0, webA, opt(1232, 0, option(dns.EDNS0NSID, 9, 9))), want: []check{noError, ten, ourName}},
	{rule: "RFC 5001 2.2: errors have it", in: query1(0, in("web", 0), opt(1232, 0, option(dns.EDNS0NSID))), want: []check{formerr, bare, ourName}},
	{rule: "RFC 4892 3: id.server", in: ch("id.server.", dns.TypeTXT), want: []check{noError, told("epdns-7")}},
	{rule: "RFC 4892 2: hostname.bind, in any spelling", in: ch("HostName.Bind.", dns.TypeTXT), want: []check{noError, told("epdns-7")}},
	{rule: "RFC 4892 2: version.bind", in: ch("version.bind.", dns.TypeTXT), want: []check{noError, told("epdns v1")}},
	{rule: "RFC 4892 2: version.server", in: ch("version.server.", dns.TypeTXT), want: []check{noError, told("epdns v1")}},
	{rule: "RFC 4892 2: type ANY has the same", in: ch("version.bind.", dns.TypeANY), want: []check{noError, told("epdns v1")}},
	{rule: "RFC 4892 3: no version where none is to be told", cookies: true, in: ch("version.bind.", dns.TypeTXT), want: []check{refused, bare, notAA}},
	{rule: "RFC 4892 2: another type is REFUSED", in: ch("version.bind.", dns.TypeA), want: []check{refused, bare, notAA}},
	{rule: "RFC 4892 2: another name is REFUSED", in: ch("authors.bind.", dns.TypeTXT), want: []check{refused, bare, notAA}},
	{rule: "RFC 4892 2: the names mean nothing in class IN", in: query1(0, in("version.bind.", dns.TypeTXT)), want: []check{refused, bare, notAA}},
	{rule: "RFC 1035 3.2.4: our zones are not in class CH", in: ch("web.shop.registry.local.", dns.TypeA), want: []check{refused, bare, notAA}},
}

// tsigRecord is one without a good MAC.
func tsigRecord(name string) []byte {
	rdata := append(wireName("hmac-sha256."), 0, 0, 0x6b, 0x49, 0xd2, 0, 0x01, 0x2c, 0, 32)
	rdata = append(rdata, make([]byte, 32)...)
	return record(name, dns.TypeTSIG, dns.ClassANY, 0, append(rdata, 0x12, 0x34, 0, 0, 0, 0))
}

// tsigError: the reply's TSIG has this error and no MAC.
func tsigError(code uint16) check {
	return is("a TSIG record with an error, not signed", func(m *dns.Msg) bool {
		t := m.IsTsig()
		return t != nil && t.Error == code && t.MACSize == 0
	})
}

var otherObligations = []obligation{
	{rule: "RFC 8945 5.2.1: an unknown key is NOTAUTH with BADKEY", in: query1(0, webA, tsigRecord("nobody.key.")), want: []check{rcode(dns.RcodeNotAuth), tsigError(dns.RcodeBadKey)}},
	{rule: "RFC 8945 5.1: a TSIG that is not last is FORMERR", in: query1(0, webA, tsigRecord("a."), opt(1232, 0)), want: []check{formerr, bare}},
	{rule: "RFC 8945 5.1: two TSIGs are FORMERR", in: query1(0, webA, tsigRecord("a."), tsigRecord("a.")), want: []check{formerr, bare}},
	{rule: "RFC 8945 4.2: a TSIG of another class is FORMERR", in: query1(0, webA, record("a.", dns.TypeTSIG, 1, 0, nil)), want: []check{formerr, bare}},
	{rule: "RFC 8945 4.2: half a TSIG is FORMERR", in: query1(0, webA, record("a.", dns.TypeTSIG, dns.ClassANY, 0, wireName("hmac-sha256."))), want: []check{formerr, bare}},
	{rule: "RFC 7766 8: a long query over TCP is answered", only: "tcp", in: query1(0, webA, opt(1232, 0, option(dns.EDNS0PADDING, make([]byte, 3900)...))), want: []check{noError, ten}},
	{rule: "RFC 1035 4.1.4: thousands of records with pointers are read in one pass", only: "udp", in: query1(0, webA, pointers(5000)...), want: []check{noError, ten}},
}

// pointers are records whose owner is a pointer to the one before.
func pointers(n int) (out [][]byte) {
	at := headerSize + len(webA)
	for i := range n {
		to := uint16(headerSize)
		if i > 0 && at-12 < 1<<14 {
			to = uint16(at - 12)
		}
		r := binary.BigEndian.AppendUint16(nil, 0xc000|to)
		out = append(out, append(r, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0))
		at += 12
	}
	return out
}
