package dnsserver

import (
	"strings"

	"github.com/miekg/dns"
)

const (
	typeHTTPS, typeSVCB, typeTLSA, typeCAA, typeNAPTR = 65, 64, 52, 257, 35
	typeMAILB, typeMAILA                              = 253, 254
)

// uncompressed: the targets of SRV records are written out (RFC 2782).
func uncompressed(_, out []byte, m *dns.Msg) error {
	return is("targets written out", func(m *dns.Msg) bool {
		for _, rr := range m.Answer {
			if !strings.Contains(string(out), string(wireName(rr.(*dns.SRV).Target))) {
				return false
			}
		}
		return true
	})(nil, out, m)
}

var answerObligations = []obligation{
	{rule: "RFC 2308 2.2: a type that a name has not is NODATA, with the SOA", in: query1(0, in("web", dns.TypeAAAA)), want: []check{noError, aa, negative}},
	{rule: "RFC 2308 2.2: and the other way round", in: query1(0, in("one", dns.TypeA)), want: []check{noError, aa, negative}},
	{rule: "RFC 2308 2.1: a name that is not there is NXDOMAIN, with the SOA", in: query1(0, in("nope", dns.TypeA)), want: []check{nxdomain, aa, negative}},
	{rule: "RFC 8020 2: for every type", in: query1(0, in("nope", dns.TypeSRV)), want: []check{nxdomain, aa, negative}},
	{rule: "RFC 8020 2: and below it", in: query1(0, in("a.b.nope", dns.TypeA)), want: []check{nxdomain, aa, negative}},
	{rule: "RFC 8020 2: a namespace is an empty non-terminal", in: query1(0, in("shop.registry.local.", dns.TypeA)), want: []check{noError, aa, negative}},
	{rule: "RFC 8020 2: a protocol is an empty non-terminal", in: query1(0, in("_tcp.web", dns.TypeSRV)), want: []check{noError, aa, negative}},
	{rule: "RFC 8020 2: reverse names above addresses are empty non-terminals", in: query1(0, in("0.10.in-addr.arpa.", dns.TypePTR)), want: []check{noError, aa, negative}},
	{rule: "RFC 4343 3: octets beyond ASCII are not letters", in: query1(0, in(`w\195\137b`, dns.TypeA)), want: []check{nxdomain, aa, negative}},
	{rule: "RFC 4592 2.3: an asterisk is a label like any other", in: query1(0, in("*", dns.TypeA)), want: []check{nxdomain, aa, negative}},
	{rule: "RFC 1034 4.2.1: the apex has one SOA", in: query1(0, in("registry.local.", dns.TypeSOA)), want: []check{noError, aa, sections(1, 0, 0)}},
	// On loopback there is no address to tell: other machines have their own.
	{rule: "RFC 1034 4.2.1: the apex has an NS", in: query1(0, in("registry.local.", dns.TypeNS)), want: []check{noError, aa, sections(1, 0, 0)}},
	{rule: "RFC 2181 5.2: records of a set have one TTL", in: query1(0, webA), want: []check{noError, ten, sameTTL}},
	{rule: "RFC 2181 5.2: SRV records too", in: query1(0, in("_http._tcp.web", dns.TypeSRV), opt(1232, 0)), want: []check{noError, sections(10, 0, 10), sameTTL}},
	{rule: "RFC 2782: targets are not compressed", in: query1(0, in("_http._tcp.web", dns.TypeSRV), opt(1232, 0)), want: []check{noError, uncompressed}},
	{rule: "RFC 2782: targets have addresses and are no aliases", in: query1(0, in("10-0-0-1.web", dns.TypeA)), want: []check{noError, sections(1, 0, 0)}},
	{rule: "RFC 2782: without endpoints there is no target, the root neither", in: query1(0, in("empty", dns.TypeSRV)), want: []check{noError, aa, negative}},
	{rule: "RFC 2181 5: an alias has no other data and is followed within our zones", in: query1(0, in("alias", dns.TypeA)), want: []check{noError, aa, sections(11, 0, 0)}},
	{rule: "RFC 1034 3.6.2: an alias that leads out ends there", in: query1(0, in("out", dns.TypeA)), want: []check{noError, aa, sections(1, 0, 0)}},
	{rule: "RFC 1034 3.6.2: an alias that leads to itself ends", in: query1(0, in("loop", dns.TypeA)), want: []check{noError, aa, sections(1, 0, 0)}},

	{rule: "RFC 3597 2: an unknown type at a name is NODATA", in: query1(0, in("web", 65280)), want: []check{noError, aa, negative}},
	{rule: "RFC 3597 2: an unknown type at no name is NXDOMAIN", in: query1(0, in("nope", 65280)), want: []check{nxdomain, aa, negative}},
	{rule: "RFC 8906 8.1.2: TYPE1000 at the apex is NODATA", in: query1(0, in("registry.local.", 1000)), want: []check{noError, aa, negative}},
	{rule: "RFC 9460 2: HTTPS is NODATA", in: query1(0, in("web", typeHTTPS)), want: []check{noError, aa, negative}},
	{rule: "RFC 9460 2: SVCB is NODATA", in: query1(0, in("web", typeSVCB)), want: []check{noError, aa, negative}},
	{rule: "RFC 6698 2: TLSA is NODATA", in: query1(0, in("_http._tcp.web", typeTLSA)), want: []check{noError, aa, negative}},
	{rule: "RFC 8659 4: CAA is NODATA", in: query1(0, in("web", typeCAA)), want: []check{noError, aa, negative}},
	{rule: "RFC 3403 4: NAPTR is NODATA", in: query1(0, in("web", typeNAPTR)), want: []check{noError, aa, negative}},
	{rule: "RFC 4035 3.1.4.1: DS at an unsigned apex is NODATA", in: query1(0, in("registry.local.", dns.TypeDS)), want: []check{noError, aa, negative}},
	{rule: "RFC 4035 3.1: DNSKEY at an unsigned apex is NODATA", in: query1(0, in("registry.local.", dns.TypeDNSKEY)), want: []check{noError, aa, negative}},
	{rule: "RFC 6895 3.1: type 0 is FORMERR", in: query1(0, in("web", 0)), want: []check{formerr, bare}},
	{rule: "RFC 6891 6.1.1: nobody asks for OPT", in: query1(0, in("web", dns.TypeOPT)), want: []check{formerr, bare}},
	{rule: "RFC 8945 4.2: nobody asks for TSIG", in: query1(0, in("web", dns.TypeTSIG)), want: []check{formerr, bare}},
	{rule: "RFC 1035 3.2.3: MAILB is NODATA", in: query1(0, in("web", typeMAILB)), want: []check{noError, aa, negative}},
	{rule: "RFC 1035 3.2.3: MAILA is NODATA", in: query1(0, in("web", typeMAILA)), want: []check{noError, aa, negative}},
	{rule: "RFC 8482 4.2: ANY is one HINFO", in: query1(0, in("web", dns.TypeANY)), want: []check{noError, aa, sections(1, 0, 0), is("HINFO RFC8482", func(m *dns.Msg) bool { return m.Answer[0].(*dns.HINFO).Cpu == "RFC8482" })}},
	{rule: "RFC 8482 4.2: also of a Service of 200, which so amplifies nothing", in: query1(0, in("big", dns.TypeANY), opt(4096, 0)), want: []check{noError, sections(1, 0, 0), within(100)}},

	{rule: "RFC 1034 4.3.1: a name in nobody's zone is REFUSED", in: query1(0, in("example.com.", dns.TypeA)), want: []check{refused, bare, notAA}},
	{rule: "RFC 1034 4.3.1: the root is REFUSED", in: query1(flagRD, in(".", dns.TypeNS)), want: []check{refused, bare, notAA}},
	{rule: "RFC 1034 4.3.1: the parent is REFUSED", in: query1(0, in("local.", dns.TypeSOA)), want: []check{refused, bare, notAA}},
	{rule: "RFC 1035 3.2.4: class HS is REFUSED", in: query1(0, asked("registry.local.", dns.TypeSOA, dns.ClassHESIOD)), want: []check{refused, bare, notAA}},
	{rule: "RFC 2136 2.4: class NONE is REFUSED", in: query1(0, asked("registry.local.", dns.TypeSOA, dns.ClassNONE)), want: []check{refused, bare, notAA}},
	{rule: "RFC 1035 6.2: an answer to class ANY is not authoritative", in: query1(0, asked("web.shop.registry.local.", dns.TypeA, dns.ClassANY)), want: []check{noError, notAA, ten}},

	{rule: "Kubernetes DNS 2.2: dns-version is there", in: query1(0, in("dns-version.registry.local.", dns.TypeTXT)), want: []check{noError, aa, sections(1, 0, 0)}},
	{rule: "RFC 1035 3.5: an address in a reverse zone has its names", in: query1(0, in("3.0.0.10.in-addr.arpa.", dns.TypePTR)), want: []check{noError, aa, sections(1, 0, 0)}},
	{rule: "RFC 2308 2.1: an address that nobody has is NXDOMAIN in a reverse zone", in: query1(0, in("250.0.0.10.in-addr.arpa.", dns.TypePTR)), want: []check{nxdomain, aa, negative}},

	{rule: "RFC 5936 4.2: AXFR over UDP is NOTIMP", only: "udp", in: query1(0, in("registry.local.", dns.TypeAXFR)), want: []check{notimp, bare}},
	{rule: "RFC 1995 2: IXFR over UDP gets the SOA alone, which says to ask over TCP", only: "udp",
		in:   message(0, [4]int{1, 0, 1, 0}, in("registry.local.", dns.TypeIXFR), record("registry.local.", dns.TypeSOA, 1, 0, append([]byte{0, 0}, make([]byte, 20)...))),
		want: []check{noError, aa, sections(1, 0, 0)}},
	{rule: "RFC 1995 3: IXFR without an SOA is FORMERR", in: query1(0, in("registry.local.", dns.TypeIXFR)), want: []check{formerr, bare}},
	{rule: "RFC 1995 3: IXFR with something else in its place is FORMERR", in: message(0, [4]int{1, 0, 1, 0}, in("registry.local.", dns.TypeIXFR), opt(1232, 0)), want: []check{formerr, bare}},
	{rule: "RFC 5936 2.2.1: AXFR below an apex is NOTAUTH", only: "tcp", in: query1(0, in("shop.registry.local.", dns.TypeAXFR)), want: []check{rcode(dns.RcodeNotAuth), bare}},
	{rule: "RFC 5936 2.2.1: AXFR of a zone elsewhere is REFUSED", only: "tcp", in: query1(0, in("example.com.", dns.TypeAXFR)), want: []check{refused, bare}},
}
