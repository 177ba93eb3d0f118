package dnsserver

import (
	"bytes"

	"github.com/miekg/dns"
)

var (
	webA = in("web", dns.TypeA)

	headerObligations = []obligation{
		{rule: "RFC 1035 4.1.1: id, opcode, RD and question come back, with QR and AA and without RA and Z", in: query1(flagRD, webA), want: []check{noError, aa, ten}},
		{rule: "RFC 4343 4.1: the question comes back in the asker's spelling", in: query1(0, in("wEb.SHOP.Registry.local.", dns.TypeA)), want: []check{noError, aa, ten}},
		{rule: "RFC 4035 3.1.6: CD comes back and AD does not, which is for validated data", in: query1(flagRD|flagCD|1<<5, webA), want: []check{noError, ten}},
		{rule: "RFC 1035 4.1.1: AA, RA and Z of a query mean nothing", in: query1(flagAA|1<<7|1<<6, webA), want: []check{noError, ten}},
		{rule: "RFC 8906 8.1.3: the reserved bit is not an error and does not come back", in: query1(1<<6, in("registry.local.", dns.TypeSOA)), want: []check{noError, aa, sections(1, 0, 0)}},
		{rule: "RFC 8906 8.1.4: a query without RD is answered", in: query1(0, in("registry.local.", dns.TypeSOA)), want: []check{noError, aa, sections(1, 0, 0)}},
		{rule: "RFC 1035 4.1.1: TC of a query means nothing", in: query1(flagTC, webA), want: []check{noError, ten, whole}},
		{rule: "RFC 1035 4.1.1: a response is never answered", in: query1(flagQR, webA)},
		{rule: "RFC 1035 4.1.1: less than a header is never answered", in: query1(0, nil)[:11]},

		{rule: "RFC 1035 4.1.2: a header that promises a question is FORMERR", in: query1(0, nil), want: []check{formerr, bare, notLonger}},
		{rule: "RFC 1035 4.1.4: a name that points to itself is FORMERR", in: query1(0, []byte{0xc0, 0x0c, 0, 1, 0, 1}), want: []check{formerr, bare, notLonger}},
		{rule: "RFC 6891 5: a label of type 01 is FORMERR", in: query1(0, []byte{0x41, 'a', 0, 0, 1, 0, 1}), want: []check{formerr, bare, notLonger}},
		{rule: "RFC 1035 4.1.4: a label of type 10 is FORMERR", in: query1(0, []byte{0x81, 'a', 0, 0, 1, 0, 1}), want: []check{formerr, bare, notLonger}},
		{rule: "RFC 1035 2.3.4: a name of more than 255 octets is FORMERR", in: query1(0, append(bytes.Repeat(append([]byte{63}, bytes.Repeat([]byte("a"), 63)...), 4), 0, 0, 1, 0, 1)), want: []check{formerr, bare, notLonger}},
		{rule: "RFC 1035 4.1.2: a name cut short is FORMERR", in: query1(0, webA[:6]), want: []check{formerr, bare, notLonger}},
		{rule: "RFC 1035 4.1.2: a question without its class is FORMERR", in: query1(0, webA[:len(webA)-2]), want: []check{formerr, bare, notLonger}},
		{rule: "RFC 9619 4: two questions are FORMERR", in: message(0, [4]int{2, 0, 0, 0}, webA, webA), want: []check{formerr, bare, notLonger}},
		{rule: "RFC 9619 4: no question is FORMERR", in: message(0, [4]int{}), want: []check{formerr, bare, notLonger}},
		{rule: "RFC 1035 4.1.1: an answer in a query is FORMERR", in: message(0, [4]int{1, 1, 0, 0}, webA, record("a.", dns.TypeA, 1, 0, make([]byte, 4))), want: []check{formerr, bare, notLonger}},
		{rule: "RFC 1035 4.1.1: authority in a query is FORMERR", in: message(0, [4]int{1, 0, 1, 0}, webA, record("a.", dns.TypeA, 1, 0, make([]byte, 4))), want: []check{formerr, bare, notLonger}},
		{rule: "RFC 1035 4.1.1: 65535 records promised and none there are FORMERR", in: message(0, [4]int{1, 0, 0, 65535}, webA), want: []check{formerr, bare, notLonger}},
		{rule: "RFC 1034 3.7: other additional records do not matter", in: query1(0, webA, record("a.", dns.TypeA, 1, 0, make([]byte, 4))), want: []check{noError, ten, noOPT}},
		{rule: "RFC 1035 4.2: octets behind the message do not matter", in: append(query1(0, webA), 0xff, 0xff, 0xff), want: []check{noError, ten}},

		{rule: "RFC 3425 2: IQUERY is NOTIMP", in: query1(1<<11, webA), want: []check{notimp, bare, notLonger}},
		{rule: "RFC 1035 4.1.1: STATUS is NOTIMP", in: query1(2<<11, webA), want: []check{notimp, bare, notLonger}},
		{rule: "RFC 6895 2.2: opcode 3 is NOTIMP", in: query1(3<<11, webA), want: []check{notimp, bare, notLonger}},
		{rule: "RFC 8490 5.1: DSO is NOTIMP", in: message(6<<11, [4]int{}), want: []check{notimp, bare, notLonger}},
		{rule: "RFC 8906 8.1.5: opcodes from 7 on are NOTIMP, with nothing but a header", in: message(7<<11, [4]int{}), want: []check{notimp, bare, notLonger}},
		{rule: "RFC 8906 8.1.5: opcode 15 is NOTIMP, with nothing but a header", in: message(15<<11, [4]int{}), want: []check{notimp, bare, notLonger}},
		{rule: "RFC 2136 3.1.1: UPDATE is REFUSED, since nothing is to be changed here", in: query1(5<<11, in("registry.local.", dns.TypeSOA)), want: []check{refused, bare, notLonger}},
		// Not NOTAUTH: we are primary for these zones, and it is the sender who is none.
		{rule: "RFC 1996 3.10: NOTIFY is REFUSED, since nobody is our primary", in: query1(4<<11|flagAA, in("registry.local.", dns.TypeSOA)), want: []check{refused, bare, notLonger}},
	}
)
