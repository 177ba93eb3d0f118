package epdns_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// These are the answers of the built program over real sockets, for the small
// cluster of testdata/cluster. Every one is asked for over UDP and TCP, by us and
// by dig, and addresses, services and pointers by nslookup too.

// want is what an answer must be.
type want struct {
	rcode      int
	answer     []string // OWNER TYPE RDATA; RDATA alone where both are as asked
	additional []string // OWNER TYPE RDATA
	soa        string   // owner of the SOA of a negative answer
	negative   uint32   // and how long it holds
	ede        []uint16
}

func noerror(rdata ...string) want { return want{answer: rdata} }

// with adds what must be in the additional section.
func (w want) with(records ...string) want { w.additional = records; return w }

// under gives a negative answer's zone where it is not the usual one.
func (w want) under(apex string) want { w.soa = apex; return w }

// after puts the alias before the answer.
func (w want) after(owner, target string) want {
	w.answer = append([]string{owner + " CNAME " + target}, w.answer...)
	return w
}

func nodata() want   { return want{soa: zone, negative: 5} }
func empty() want    { return want{soa: zone, negative: 2} } // nothing at the moment
func nxdomain() want { return want{rcode: dns.RcodeNameError, soa: zone, negative: 5} }
func refused() want {
	return want{rcode: dns.RcodeRefused, ede: []uint16{dns.ExtendedErrorCodeNotAuthoritative}}
}

const (
	ten  = "10.in-addr.arpa."
	six1 = "1.6.0.0.0.0.0.0.0.0.0.0.0.0.0.0.1.0.0.0.1.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa."
)

var table = []struct {
	what, name string
	qtype      uint16
	want       want
}{
	{"a Service is its pods, not its ClusterIP", "web.shop.registry.local.", dns.TypeA, noerror("10.1.1.11", "10.1.1.12", "10.1.2.11", "10.1.3.11")},
	{"a Service of one family", "web.shop.registry.local.", dns.TypeAAAA, nodata()},
	{"a Service of the other family", "voice.data.registry.local.", dns.TypeA, nodata()},
	{"the other family", "voice.data.registry.local.", dns.TypeAAAA, noerror("2001:db8:1:1::61", "2001:db8:1:3::61")},
	{"dual stack", "api.shop.registry.local.", dns.TypeA, noerror("10.1.1.21", "10.1.2.21")},
	{"dual stack", "api.shop.registry.local.", dns.TypeAAAA, noerror("2001:db8:1:1::21", "2001:db8:1:2::21")},
	{"headless", "db.data.registry.local.", dns.TypeA, noerror("10.1.1.51", "10.1.2.51", "10.1.3.51")},
	{"ready pods alone", "jobs.shop.registry.local.", dns.TypeA, noerror("10.1.1.41")},
	{"a type that no Service has", "web.shop.registry.local.", dns.TypeTXT, nodata()},
	{"letter case does not matter", "WEB.Shop.rEgIsTrY.local.", dns.TypeA, noerror("10.1.1.11", "10.1.1.12", "10.1.2.11", "10.1.3.11")},

	{"both ports of every pod", "web.shop.registry.local.", dns.TypeSRV, noerror(
		"* * 8080 10-1-1-11.web.shop.registry.local.", "* * 9090 10-1-1-11.web.shop.registry.local.",
		"* * 8080 10-1-1-12.web.shop.registry.local.", "* * 9090 10-1-1-12.web.shop.registry.local.",
		"* * 8080 10-1-2-11.web.shop.registry.local.", "* * 9090 10-1-2-11.web.shop.registry.local.",
		"* * 8080 10-1-3-11.web.shop.registry.local.", "* * 9090 10-1-3-11.web.shop.registry.local.",
	).with("10-1-1-11.web.shop.registry.local. A 10.1.1.11", "10-1-1-12.web.shop.registry.local. A 10.1.1.12",
		"10-1-2-11.web.shop.registry.local. A 10.1.2.11", "10-1-3-11.web.shop.registry.local. A 10.1.3.11")},
	{"one port by its name", "_metrics._tcp.web.shop.registry.local.", dns.TypeSRV, noerror(
		"* * 9090 10-1-1-11.web.shop.registry.local.", "* * 9090 10-1-1-12.web.shop.registry.local.",
		"* * 9090 10-1-2-11.web.shop.registry.local.", "* * 9090 10-1-3-11.web.shop.registry.local.",
	).with("10-1-1-11.web.shop.registry.local. A 10.1.1.11", "10-1-1-12.web.shop.registry.local. A 10.1.1.12",
		"10-1-2-11.web.shop.registry.local. A 10.1.2.11", "10-1-3-11.web.shop.registry.local. A 10.1.3.11")},
	{"a name whose number differs from pod to pod", "_http._tcp.till.shop.registry.local.", dns.TypeSRV, noerror(
		"* * 8080 10-1-1-31.till.shop.registry.local.", "* * 8080 10-1-2-31.till.shop.registry.local.", "* * 9090 10-1-3-31.till.shop.registry.local.",
	).with("10-1-1-31.till.shop.registry.local. A 10.1.1.31", "10-1-2-31.till.shop.registry.local. A 10.1.2.31", "10-1-3-31.till.shop.registry.local. A 10.1.3.31")},
	{"without host names, a target for each family", "_grpc._tcp.api.shop.registry.local.", dns.TypeSRV, noerror(
		"* * 9000 10-1-1-21.api.shop.registry.local.", "* * 9000 10-1-2-21.api.shop.registry.local.",
		"* * 9000 2001-db8-1-1--21.api.shop.registry.local.", "* * 9000 2001-db8-1-2--21.api.shop.registry.local.",
	).with("10-1-1-21.api.shop.registry.local. A 10.1.1.21", "10-1-2-21.api.shop.registry.local. A 10.1.2.21",
		"2001-db8-1-1--21.api.shop.registry.local. AAAA 2001:db8:1:1::21", "2001-db8-1-2--21.api.shop.registry.local. AAAA 2001:db8:1:2::21")},
	{"host names as targets", "_postgres._tcp.db.data.registry.local.", dns.TypeSRV, noerror(
		"* * 5432 db-0.db.data.registry.local.", "* * 5432 db-1.db.data.registry.local.", "* * 5432 db-2.db.data.registry.local.",
	).with("db-0.db.data.registry.local. A 10.1.1.51", "db-1.db.data.registry.local. A 10.1.2.51", "db-2.db.data.registry.local. A 10.1.3.51")},
	{"a UDP port", "_sip._udp.voice.data.registry.local.", dns.TypeSRV, noerror(
		"* * 5060 2001-db8-1-1--61.voice.data.registry.local.", "* * 5060 2001-db8-1-3--61.voice.data.registry.local.",
	).with("2001-db8-1-1--61.voice.data.registry.local. AAAA 2001:db8:1:1::61", "2001-db8-1-3--61.voice.data.registry.local. AAAA 2001:db8:1:3::61")},
	{"a UDP port asked for as TCP", "_sip._tcp.voice.data.registry.local.", dns.TypeSRV, nxdomain()},
	{"a port name has services alone", "_http._tcp.web.shop.registry.local.", dns.TypeA, nodata()},
	{"a port that nobody has", "_https._tcp.web.shop.registry.local.", dns.TypeSRV, nxdomain()},
	{"between the Service and its ports", "_tcp.web.shop.registry.local.", dns.TypeSRV, nodata()},
	{"a protocol without ports", "_sctp.web.shop.registry.local.", dns.TypeSRV, nxdomain()},

	{"a pod by its host name", "db-1.db.data.registry.local.", dns.TypeA, noerror("10.1.2.51")},
	{"its services", "db-1.db.data.registry.local.", dns.TypeSRV, noerror("* * 5432 db-1.db.data.registry.local.").
		with("db-1.db.data.registry.local. A 10.1.2.51")},
	{"a pod by its address, host name or not", "10-1-2-51.db.data.registry.local.", dns.TypeA, noerror("10.1.2.51")},
	{"a pod by its name", "web-6d8f9c7b54-hf7mv.web.shop.registry.local.", dns.TypeA, noerror("10.1.2.11")},
	{"a pod by its address", "10-1-3-11.web.shop.registry.local.", dns.TypeA, noerror("10.1.3.11")},
	{"a pod by its address, the other type", "10-1-3-11.web.shop.registry.local.", dns.TypeAAAA, nodata()},
	{"an IPv6 address", "2001-db8-1-3--61.voice.data.registry.local.", dns.TypeAAAA, noerror("2001:db8:1:3::61")},
	{"another spelling of it", "2001-0db8-1-3-0-0-0-61.voice.data.registry.local.", dns.TypeAAAA, noerror("2001:db8:1:3::61")},
	{"both addresses of a pod by its name", "api-5b9c6d4f7-zt8ql.api.shop.registry.local.", dns.TypeA, noerror("10.1.2.21")},
	{"both addresses of a pod by its name", "api-5b9c6d4f7-zt8ql.api.shop.registry.local.", dns.TypeAAAA, noerror("2001:db8:1:2::21")},
	{"a pod that leaves and still serves, by its own name", "10-1-3-41.jobs.shop.registry.local.", dns.TypeA, noerror("10.1.3.41")},
	{"a pod that starts", "10-1-2-41.jobs.shop.registry.local.", dns.TypeA, nxdomain()},
	{"a pod that is done", "10-1-1-42.jobs.shop.registry.local.", dns.TypeA, nxdomain()},
	{"another Service's pod", "10-1-1-21.web.shop.registry.local.", dns.TypeA, nxdomain()},
	{"below a pod", "a.db-1.db.data.registry.local.", dns.TypeA, nxdomain()},

	{"a Service without pods", "quiet.shop.registry.local.", dns.TypeA, empty()},
	{"a Service without pods", "quiet.shop.registry.local.", dns.TypeSRV, empty()},
	{"the port of a Service without pods", "_http._tcp.quiet.shop.registry.local.", dns.TypeSRV, empty()},
	{"no such Service", "nope.shop.registry.local.", dns.TypeA, nxdomain()},
	{"no such namespace", "web.nope.registry.local.", dns.TypeA, nxdomain()},
	{"a namespace", "shop.registry.local.", dns.TypeA, nodata()},
	{"a name with nothing in it", "nope.registry.local.", dns.TypeA, nxdomain()},
	{"another namespace's Service", "db.shop.registry.local.", dns.TypeA, nxdomain()},
	{"an asterisk is a label", "*.shop.registry.local.", dns.TypeA, nxdomain()},

	{"an alias to somebody else's name", "billing.shop.registry.local.", dns.TypeA, noerror().after("billing.shop.registry.local.", "billing.example.com.")},
	{"an alias itself", "billing.shop.registry.local.", dns.TypeCNAME, noerror("billing.example.com.")},
	{"an alias within the zone", "pg.shop.registry.local.", dns.TypeA, noerror("db.data.registry.local. A 10.1.1.51",
		"db.data.registry.local. A 10.1.2.51", "db.data.registry.local. A 10.1.3.51").after("pg.shop.registry.local.", "db.data.registry.local.")},
	{"an alias to a name without this type", "pg.shop.registry.local.", dns.TypeAAAA, nodata().after("pg.shop.registry.local.", "db.data.registry.local.")},
	{"an alias to nothing", "lost.shop.registry.local.", dns.TypeA, nxdomain().after("lost.shop.registry.local.", "nothing.data.registry.local.")},
	{"below an alias", "db-0.pg.shop.registry.local.", dns.TypeA, nxdomain()},

	{"the zone's name server", zone, dns.TypeNS, noerror("ns.dns.registry.local.")},
	{"the zone's start", zone, dns.TypeSOA, noerror("ns.dns.registry.local. hostmaster.registry.local. * 7200 1800 86400 5")},
	{"the zone has no address", zone, dns.TypeA, nodata()},
	{"above the name server", "dns.registry.local.", dns.TypeA, nodata()},
	{"a name server that was asked on loopback has no address for others", "ns.dns.registry.local.", dns.TypeA, nodata()},
	{"the version of the names", "dns-version.registry.local.", dns.TypeTXT, noerror(`"1.1.0"`)},
	{"the version of the names", "dns-version.registry.local.", dns.TypeA, nodata()},

	{"who has an address", "12.1.1.10.in-addr.arpa.", dns.TypePTR, noerror("10-1-1-12.web.shop.registry.local.")},
	{"who has an address, with a host name", "51.3.1.10.in-addr.arpa.", dns.TypePTR, noerror("db-2.db.data.registry.local.")},
	{"an address that nobody has", "99.1.1.10.in-addr.arpa.", dns.TypePTR, nxdomain().under(ten)},
	{"above addresses", "1.10.in-addr.arpa.", dns.TypePTR, nodata().under(ten)},
	{"no address", "x.1.1.10.in-addr.arpa.", dns.TypePTR, nxdomain().under(ten)},
	{"an address has pointers alone", "12.1.1.10.in-addr.arpa.", dns.TypeA, nodata().under(ten)},
	{"the reverse zone", ten, dns.TypeNS, noerror("ns.dns.registry.local.")},
	{"the reverse zone", ten, dns.TypeSOA, noerror("ns.dns.registry.local. hostmaster.registry.local. * 7200 1800 86400 5")},
	{"a known address outside of the reverse zones", six1, dns.TypePTR, noerror("2001-db8-1-1--61.voice.data.registry.local.")},
	{"a known address outside of the reverse zones", six1, dns.TypeA, nodata().under(six1)},
	{"an unknown address outside of the reverse zones", "9" + six1[1:], dns.TypePTR, refused()},
	{"an unknown address outside of the reverse zones", "1.2.0.192.in-addr.arpa.", dns.TypePTR, refused()},

	{"somebody else's name", "www.example.com.", dns.TypeA, refused()},
	{"above the zone", "local.", dns.TypeNS, refused()},
	{"the root", ".", dns.TypeNS, refused()},
}

func TestAnswers(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster", "--reverse", "10.0.0.0/8")
	for _, c := range table {
		t.Run(fmt.Sprintf("%s/%s %s", c.what, c.name, typeText(c.qtype)), func(t *testing.T) {
			var first *reply
			for _, q := range []question{ask(c.name, c.qtype), ask(c.name, c.qtype).overTCP()} {
				r, err := q.send(p.dns.Port())
				if err != nil {
					t.Fatalf("%v: %v", q, err)
				}
				if err := c.want.check(r); err != nil {
					t.Errorf("%v: %v", q, err)
				}
				if err := dig(t, q, p.dns.Port()).agrees(r); err != nil {
					t.Errorf("%v: %v", q, err)
				}
				if first == nil {
					first = r
				}
			}
			if c.qtype == dns.TypeA || c.qtype == dns.TypeSRV || c.qtype == dns.TypePTR {
				want := looked{status: rcodeName(first.rcode)}
				if first.rcode == dns.RcodeSuccess {
					for _, rr := range first.asked() {
						want.names = append(want.names, rdata(rr))
					}
					slices.Sort(want.names)
				}
				if got := nslookup(t, c.name, c.qtype, p.dns); got.status != want.status || !slices.Equal(got.names, want.names) {
					t.Errorf("nslookup has %v, expected %v", got, want)
				}
			}
		})
	}
}

// check says where a reply is not as wanted.
func (w want) check(r *reply) error {
	var faults []error
	if r.rcode != w.rcode {
		faults = append(faults, fmt.Errorf("%s, expected %s", rcodeName(r.rcode), rcodeName(w.rcode)))
	}
	if r.Truncated {
		faults = append(faults, errors.New("TC is set"))
	}
	if !slices.Equal(r.ede(), w.ede) {
		faults = append(faults, fmt.Errorf("extended errors %d, expected %d", r.ede(), w.ede))
	}
	if err := w.sameRecords(w.answer, r, answers); err != nil {
		faults = append(faults, err)
	}
	if err := w.sameRecords(w.additional, r, additionals); err != nil {
		faults = append(faults, err)
	}
	for _, rr := range r.sections[answers] {
		if ttl := rr.Header().Ttl; ttl != 5 {
			faults = append(faults, fmt.Errorf("TTL is %d: %v", ttl, rr))
		}
		// Nothing is ranked for an asker whose place is not known.
		if s, ok := rr.(*dns.SRV); ok && (s.Priority != r.asked()[0].(*dns.SRV).Priority || s.Weight == 0) {
			faults = append(faults, fmt.Errorf("priority or weight: %v", rr))
		}
	}
	switch authority := r.sections[authorities]; {
	case w.soa == "":
		if len(authority) > 0 {
			faults = append(faults, fmt.Errorf("in the authority section: %v", authority))
		}
	case len(authority) != 1:
		faults = append(faults, fmt.Errorf("in the authority section, where a SOA alone belongs: %v", authority))
	default:
		// Caches take the one or the other number.
		soa, ok := authority[0].(*dns.SOA)
		if !ok || soa.Hdr.Name != w.soa || soa.Hdr.Ttl != w.negative || soa.Minttl != w.negative {
			faults = append(faults, fmt.Errorf("%v, expected a SOA of %s that holds for %d s", authority[0], w.soa, w.negative))
		}
	}
	return errors.Join(faults...)
}

// sameRecords compares a section with what it must hold.
func (w want) sameRecords(want []string, r *reply, section int) error {
	type set struct{ owner, qtype string }
	wanted, got := map[set][]string{}, map[set][]dns.RR{}
	for _, s := range want {
		k := set{strings.ToLower(r.question.Name), typeText(r.question.Qtype)}
		if f := strings.Fields(s); len(f) > 2 && strings.HasSuffix(f[0], ".") && dns.StringToType[f[1]] != 0 {
			k, s = set{f[0], f[1]}, strings.Join(f[2:], " ")
		}
		wanted[k] = append(wanted[k], s)
	}
	for _, rr := range r.sections[section] {
		k := set{strings.ToLower(rr.Header().Name), typeText(rr.Header().Rrtype)}
		got[k] = append(got[k], rr)
		if wanted[k] == nil {
			wanted[k] = []string{}
		}
	}
	var faults []error
	for k, patterns := range wanted {
		if err := sameSet(patterns, got[k]); err != nil {
			faults = append(faults, fmt.Errorf("%s section, %s %s: %w", sectionNames[section], k.owner, k.qtype, err))
		}
	}
	return errors.Join(faults...)
}

func TestNameserverAddresses(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster", "--nameserver", "192.0.2.53", "--nameserver", "2001:db8::53")
	for _, c := range []struct {
		qtype uint16
		want  want
	}{
		{dns.TypeA, noerror("192.0.2.53")},
		{dns.TypeAAAA, noerror("2001:db8::53")},
		{dns.TypeTXT, nodata()},
	} {
		q := ask("ns.dns.registry.local.", c.qtype)
		r, err := q.send(p.dns.Port())
		if err == nil {
			err = errors.Join(c.want.check(r), dig(t, q, p.dns.Port()).agrees(r))
		}
		if err != nil {
			t.Errorf("%v: %v", q, err)
		}
	}
}

func TestSeveralZones(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster", "--zone", "registry.local", "--zone", "svc.example.org.")
	for _, q := range []question{ask("jobs.shop.registry.local.", dns.TypeA), ask("jobs.shop.svc.example.org.", dns.TypeA)} {
		r, err := q.send(p.dns.Port())
		if err == nil {
			err = errors.Join(noerror("10.1.1.41").check(r), dig(t, q, p.dns.Port()).agrees(r))
		}
		if err != nil {
			t.Errorf("%v: %v", q, err)
		}
	}
}

// TestSizes asks for a set that no datagram holds, with all the sizes that an
// asker may announce.
func TestSizes(t *testing.T) {
	const pods = 200
	var all []string
	for i := range pods {
		all = append(all, fmt.Sprintf("10.2.%d.%d", i/100, 1+i%100))
	}
	p := serve(t, "--manifests", writeService(t, t.TempDir(), "shop", "crowd", all...))
	name := "crowd.shop.registry.local."

	whole, err := ask(name, dns.TypeA).overTCP().send(p.dns.Port())
	if err == nil {
		err = noerror(all...).check(whole)
	}
	if err != nil {
		t.Fatal(err)
	}
	members := map[string]bool{}
	for _, a := range all {
		members[a] = true
	}
	for _, c := range []struct {
		noedns          bool
		announced, most int
	}{
		{true, 0, 512},
		{false, 0, 512},
		{false, 511, 512},
		{false, 512, 512},
		{false, 513, 513},
		{false, 1000, 1000},
		{false, 1232, 1232},
		// Above 1232 packets could be broken up on the way (RFC 9715).
		{false, 1233, 1232},
		{false, 4096, 1232},
		{false, 65535, 1232},
	} {
		q := ask(name, dns.TypeA)
		q.noedns, q.bufsize = c.noedns, uint16(c.announced)
		t.Run(strings.ReplaceAll(q.String(), " ", ","), func(t *testing.T) {
			r, err := q.send(p.dns.Port())
			if err != nil {
				t.Fatal(err)
			}
			if err := dig(t, q, p.dns.Port()).agrees(r); err != nil {
				t.Error(err)
			}
			if len(r.wire) > c.most {
				t.Errorf("%d octets, at most %d are expected", len(r.wire), c.most)
			}
			if !r.Truncated {
				t.Error("TC is not set")
			}
			// As many as fit: one more of 16 octets would not.
			if len(r.wire)+16 <= c.most {
				t.Errorf("%d octets, with room for one more record in %d", len(r.wire), c.most)
			}
			for _, rr := range r.sections[answers] {
				if !members[rdata(rr)] {
					t.Errorf("not one of the set: %v", rr)
				}
			}
		})
	}

	// By itself dig goes on over TCP.
	out := runDig(t, "@127.0.0.1", "-p", fmt.Sprint(p.dns.Port()), "+noall", "+comments", "+answer", "-q", name, "-t", "A")
	d, err := readDig(out)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "Truncated, retrying in TCP mode") || len(d.sections[answers]) != pods {
		t.Errorf("dig ends with %d records:\n%s", len(d.sections[answers]), out)
	}
}

// TestOrder asks until the order changes, which takes one more question with a
// chance of 23 in 24.
func TestOrder(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster")
	set := noerror("10.1.1.11", "10.1.1.12", "10.1.2.11", "10.1.3.11")
	for _, tcp := range []bool{false, true} {
		q := ask("web.shop.registry.local.", dns.TypeA)
		q.tcp = tcp
		orders := map[string]bool{}
		for range 50 {
			r, err := q.send(p.dns.Port())
			if err == nil {
				err = set.check(r)
			}
			if err != nil {
				t.Fatal(err)
			}
			var order []string
			for _, rr := range r.asked() {
				order = append(order, rdata(rr))
			}
			if orders[strings.Join(order, " ")] = true; len(orders) > 1 {
				break
			}
		}
		if len(orders) == 1 {
			t.Errorf("%v: always in one order: %v", q, orders)
		}
	}
}

// TestQuestionsInOneSegment: glibc sends A and AAAA so, and others send even less
// than one at a time.
func TestQuestionsInOneSegment(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster")
	c, err := net.DialTimeout("tcp", p.dns.String(), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(grace))

	questions := []question{
		ask("api.shop.registry.local.", dns.TypeA).overTCP(),
		ask("api.shop.registry.local.", dns.TypeAAAA).overTCP(),
		ask("nope.shop.registry.local.", dns.TypeA).overTCP(),
		ask("_grpc._tcp.api.shop.registry.local.", dns.TypeSRV).overTCP(),
	}
	var queries [][]byte
	var segment []byte
	for _, q := range questions {
		query, err := q.pack()
		if err != nil {
			t.Fatal(err)
		}
		queries = append(queries, query)
		segment = append(segment, prefixed(query)...)
	}
	answered := func(q question, query []byte) {
		t.Helper()
		wire, err := readMessage(c)
		if err != nil {
			t.Fatalf("%v: %v", q, err)
		}
		r, err := parseReply(wire)
		if err == nil {
			err = r.check(&q, query)
		}
		if err != nil {
			t.Errorf("%v: %v", q, err)
		}
	}
	if _, err := c.Write(segment); err != nil {
		t.Fatal(err)
	}
	for i, q := range questions {
		answered(q, queries[i])
	}
	// The connection stays: an octet at a time, and the end of one question with
	// the beginning of the next.
	for i := range segment[:len(segment)/2] {
		if _, err := c.Write(segment[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Write(segment[len(segment)/2:]); err != nil {
		t.Fatal(err)
	}
	for i, q := range questions {
		answered(q, queries[i])
	}
}

// TestReplySource asks a wildcard listener on several addresses. Ours and dig both
// refuse a reply from another address than the one that was asked.
func TestReplySource(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster", "--listen", ":0")
	for _, to := range []string{"127.0.0.1", "127.0.0.2", "127.200.1.9", "::1"} {
		for _, tcp := range []bool{false, true} {
			q := ask("jobs.shop.registry.local.", dns.TypeA)
			q.to, q.tcp = netip.MustParseAddr(to), tcp
			r, err := q.send(p.dns.Port())
			if err == nil {
				err = errors.Join(noerror("10.1.1.41").check(r), dig(t, q, p.dns.Port()).agrees(r))
			}
			if err != nil {
				t.Errorf("%v to %s: %v", q, to, err)
			}
		}
	}
}

func TestSeveralAddresses(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster", "--listen", "127.0.0.1:0", "--listen", "[::1]:0")
	var ports []uint16
	for _, r := range p.log(t) {
		if addrs, ok := r["dns"].([]any); ok {
			for _, a := range addrs {
				ports = append(ports, netip.MustParseAddrPort(fmt.Sprint(a)).Port())
			}
		}
	}
	if len(ports) != 2 {
		t.Fatalf("it listens on ports %v", ports)
	}
	for i, to := range []string{"127.0.0.1", "::1"} {
		q := ask("jobs.shop.registry.local.", dns.TypeA)
		q.to = netip.MustParseAddr(to)
		r, err := q.send(ports[i])
		if err == nil {
			err = noerror("10.1.1.41").check(r)
		}
		if err != nil {
			t.Errorf("%v to %s: %v", q, to, err)
		}
	}
}
