package epdns_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// The readers of cases and replies are tested here: what they let pass, nothing
// else would find.

// TestCaseForm: what a case file says and the reader does not know must not pass
// for a check that holds.
func TestCaseForm(t *testing.T) {
	for _, c := range []struct{ text, err string }{
		{"", "0: no QUERY"},
		{"# nothing\n", "0: no QUERY"},
		{"  rcode=NOERROR\n", "1: a check before"},
		{"QUERY a. A\n", "1: a QUERY without checks"},
		{"QUERY a. A\n  rcode=NOERROR\n\nQUERY b. A\n", "4: a QUERY without checks"},
		{"ASK a. A\n", `1: "ASK"`},
		{"QUERY a.\n", "1: QUERY needs"},
		{"QUERY a A\n", `1: "a" is no absolute name`},
		{"QUERY a. B\n", `1: "B" is no type`},
		{"QUERY a. TYPE65536\n", `1: "TYPE65536" is no type`},
		{"QUERY a. A udp\n", `1: unknown option "udp"`},
		{"QUERY a. A tcp=yes\n", `1: option "tcp=yes"`},
		{"QUERY a. A bufsize=70000\n", `1: option "bufsize=70000"`},
		{"QUERY a. A edns-version=256\n", `1: option "edns-version=256"`},
		{"QUERY a. A opt=3\n", `1: option "opt=3"`},
		{"QUERY a. A opt=3:0\n", `1: option "opt=3:0"`},
		{"QUERY a. A to=here\n", `1: option "to=here"`},
		{"QUERY a. A from=here\n", `1: option "from=here"`},
		{"QUERY a. A ecs=10.0.0.0\n", `1: option "ecs=10.0.0.0"`},
		{"QUERY a. A\n  answer-sets: 10.0.0.1\n", `2: unknown check "answer-sets"`},
		{"QUERY a. A\n  !answer-set: 10.0.0.1\n", `2: unknown check "!answer-set"`},
		{"QUERY a. A\n  !rcode=NOERROR\n", `2: check "!rcode=NOERROR" says nothing`},
		{"QUERY a. A\n  rcode=\n", `2: check "rcode=" says nothing`},
		{"QUERY a. A\n  rcode=NXDOMAINS\n", `2: check "rcode=NXDOMAINS"`},
		{"QUERY a. A\n  answer-count: many\n", `2: check "answer-count: many"`},
		{"QUERY a. A\n  answer-all: 10\n", `2: check "answer-all: 10"`},
		{"QUERY a. A\n  answer-all: /(/\n", `2: check "answer-all: /(/"`},
		{"QUERY a. A\n  answer-ttl: five\n", `2: check "answer-ttl: five"`},
		{"QUERY a. A\n  additional-has: a. A\n", `2: check "additional-has: a. A"`},
		{"QUERY a. A\n  authority: NS a.\n", `2: check "authority: NS a."`},
		{"QUERY a. A\n  flags: aa,xx\n", `2: check "flags: aa,xx"`},
		{"QUERY a. A\n  max-size: 1k\n", `2: check "max-size: 1k"`},
		{"QUERY a. A\n  question-echo: yes\n", `2: check "question-echo: yes"`},
		{"QUERY a. A\n  opt: some\n", `2: check "opt: some"`},
		{"QUERY a. A\n  !opt-has: NSID\n", `2: check "!opt-has: NSID"`},
		{"QUERY a. A\n  ecs: valid\n", `2: check "ecs: valid"`},
		{"QUERY a. A\n  srv-compression: all\n", `2: check "srv-compression: all"`},
	} {
		_, err := parseExpect(c.text)
		if err == nil || !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%q: %v, expected %s", c.text, err, c.err)
		}
	}
}

// TestCaseChecks: each check holds of a reply that is so, and of no other.
func TestCaseChecks(t *testing.T) {
	const query = "QUERY web.shop.registry.local. SRV opt=100:beef ecs=10.1.0.0/16\n"
	records := func(texts ...string) (rrs []dns.RR) {
		for _, s := range texts {
			rr, err := dns.NewRR(s)
			if err != nil {
				t.Fatal(err)
			}
			rrs = append(rrs, rr)
		}
		return rrs
	}
	m := new(dns.Msg).SetQuestion("web.shop.registry.local.", dns.TypeSRV)
	m.Response, m.Authoritative = true, true
	m.Answer = records("web.shop.registry.local. 5 SRV 0 1 80 a.registry.local.", "web.shop.registry.local. 5 SRV 0 2 81 a.registry.local.")
	m.Ns = records("registry.local. 7 SOA ns.registry.local. root.registry.local. 1 2 3 4 6")
	m.Extra = records("a.registry.local. 5 A 10.0.0.1", "a.registry.local. 5 AAAA 2001:db8::1")
	m.SetEdns0(1232, false)
	m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: 100, Data: []byte{0xbe, 0xef}}}
	plain, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	// A target that is a pointer to the question's name, in place of the root.
	bare := new(dns.Msg).SetQuestion("web.shop.registry.local.", dns.TypeSRV)
	bare.Answer = records("web.shop.registry.local. 5 SRV 0 1 80 .")
	pointer, err := bare.Pack()
	if err != nil {
		t.Fatal(err)
	}
	pointer = append(pointer[:len(pointer)-1], 0xc0, 12)
	pointer[len(pointer)-9]++ // RDLENGTH

	for _, c := range []struct {
		wire   []byte
		checks string
		holds  bool
	}{
		{plain, "rcode=NOERROR", true},
		{plain, "rcode=NXDOMAIN|NOERROR", true},
		{plain, "rcode=NXDOMAIN|REFUSED", false},
		{plain, "answer-set: 0 1 80 a.registry.local.\n answer-set: 0 2 81 A.registry.local.", true},
		{plain, "answer-set: * * * a.registry.local.\n answer-set: 0 2 81 a.registry.local.", true},
		{plain, "answer-set: 0 2 81 a.registry.local.\n answer-set: * * * a.registry.local.", true},
		{plain, "answer-set: * * 80 a.registry.local.", false},
		{plain, "answer-set: * * 80 a.registry.local.\n answer-set: * * 80 a.registry.local.", false},
		{plain, "answer-first: 0 1 80 a.registry.local.", true},
		{plain, "answer-first: 0 2 81 a.registry.local.", false},
		{plain, "answer-first: 0 2 81 a.registry.local.\n answer-first: 0 1 80 a.registry.local.", true},
		{plain, "answer-has: * * 81 a.registry.local.", true},
		{plain, "answer-has: * * 82 a.registry.local.", false},
		{plain, "!answer-has: * * 82 a.registry.local.", true},
		{plain, "!answer-has: * * 81 a.registry.local.", false},
		{plain, "answer-count: 2", true},
		{plain, "answer-count: 3", false},
		{plain, "!answer-count: 3", true},
		{plain, "!answer-count: 2", false},
		{plain, "answer-all: /^0 [12] 8/", true},
		{plain, "answer-all: /80/", false},
		{plain, "answer-ttl: <=5", true},
		{plain, "answer-ttl: <=4", false},
		{plain, "additional-has: A.registry.local. AAAA 2001:db8:0::1", true},
		{plain, "additional-has: a.registry.local. AAAA 2001:db8::2", false},
		{plain, "additional-has: b.registry.local. AAAA 2001:db8::1", false},
		{plain, "additional-count: 2", true},
		{plain, "additional-count: 3", false},
		{plain, "authority: SOA registry.local.", true},
		{plain, "authority: SOA local.", false},
		{plain, "authority: none", false},
		{plain, "neg-ttl: <=7", false}, // above MINIMUM
		{plain, "flags: aa,rd", true},
		{plain, "flags: aa,tc", false},
		{plain, "!flags: tc,ra", true},
		{plain, "!flags: tc,aa", false},
		{plain, fmt.Sprintf("max-size: %d", len(plain)), true},
		{plain, fmt.Sprintf("max-size: %d", len(plain)-1), false},
		{plain, "question-echo: exact", true},
		{plain, "opt: present", true},
		{plain, "opt: none", false},
		{plain, "opt-has: 100", true},
		{plain, "opt-has: 3", false},
		{plain, "!opt-has: 3", true},
		{plain, "!opt-has: 100", false},
		{plain, "!opt-echo: 100", false},
		{plain, "!opt-echo: 3", true},
		{plain, "ecs: none-or-valid", true},
		{plain, "srv-compression: none", true},
		{pointer, "srv-compression: none", false},
		{pointer, "authority: none", true},
		{pointer, "neg-ttl: <=7", false}, // no SOA
		{pointer, "opt: none", true},
	} {
		e, err := parseExpect(query + " " + c.checks + "\n")
		if err != nil {
			t.Errorf("%s: %v", c.checks, err)
			continue
		}
		r, err := parseReply(c.wire)
		if err != nil {
			t.Fatal(err)
		}
		var faults []error
		for _, check := range e[0].checks {
			faults = append(faults, check.holds(&e[0].question, r))
		}
		if err := errors.Join(faults...); (err == nil) != c.holds {
			t.Errorf("%s: %v", c.checks, err)
		}
	}
}

// TestClientSubnet: a server may leave the option out, or give it back with a
// scope.
func TestClientSubnet(t *testing.T) {
	e, err := parseExpect("QUERY web.shop.registry.local. A ecs=10.1.2.3/16\n  ecs: none-or-valid\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		option string
		holds  bool
	}{
		{"000110000a01", true},
		{"000110100a01", true},
		{"000110200a01", true},
		{"000110210a01", false}, // more bits than an address has
		{"000110100a02", false},
		{"000118100a0102", false},
		{"000210100a01", false},
	} {
		data, err := hex.DecodeString(c.option)
		if err != nil {
			t.Fatal(err)
		}
		m := new(dns.Msg).SetQuestion("web.shop.registry.local.", dns.TypeA)
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = []dns.EDNS0{&dns.EDNS0_LOCAL{Code: dns.EDNS0SUBNET, Data: data}}
		wire, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		r, err := parseReply(wire)
		if err == nil {
			err = e[0].checks[0].holds(&e[0].question, r)
		}
		if (err == nil) != c.holds {
			t.Errorf("%s: %v", c.option, err)
		}
	}
}

// TestReplyCheck breaks a good reply in each way that is checked for.
func TestReplyCheck(t *testing.T) {
	q := ask("web.shop.registry.local.", dns.TypeA)
	rr := func(s string) dns.RR {
		r, err := dns.NewRR(s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const soa = "registry.local. 5 SOA ns.dns.registry.local. hostmaster.registry.local. 1 2 3 4 5"
	for _, c := range []struct {
		fault  string // none where empty
		change func(m *dns.Msg)
	}{
		{"", func(*dns.Msg) {}},
		{"", func(m *dns.Msg) { m.Answer, m.Ns = nil, []dns.RR{rr(soa)} }},
		{"", func(m *dns.Msg) { m.Rcode, m.Authoritative, m.Answer = dns.RcodeRefused, false, nil }},
		{"", func(m *dns.Msg) { m.Truncated, m.Answer = true, nil }},
		{"", func(m *dns.Msg) { m.Answer = []dns.RR{rr("web.shop.registry.local. 5 CNAME example.com.")} }},
		{"", func(m *dns.Msg) {
			m.Rcode, m.Answer, m.Ns = dns.RcodeNameError, []dns.RR{rr("web.shop.registry.local. 5 CNAME a.registry.local.")}, []dns.RR{rr(soa)}
		}},
		{"ID ", func(m *dns.Msg) { m.Id++ }},
		{"QR ", func(m *dns.Msg) { m.Response = false }},
		{"opcode ", func(m *dns.Msg) { m.Opcode = dns.OpcodeNotify }},
		{"RA ", func(m *dns.Msg) { m.RecursionAvailable = true }},
		{"RD ", func(m *dns.Msg) { m.RecursionDesired = false }},
		{"AA ", func(m *dns.Msg) { m.Authoritative = false }},
		{"question ", func(m *dns.Msg) { m.Question[0].Name = "api.shop.registry.local." }},
		{"question ", func(m *dns.Msg) { m.Question[0].Qtype = dns.TypeAAAA }},
		{"question ", func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS }},
		{"OPT ", func(m *dns.Msg) { m.Extra = nil }},
		{"EDNS version", func(m *dns.Msg) { m.IsEdns0().SetVersion(1) }},
		{"twice ", func(m *dns.Msg) { m.Answer = append(m.Answer, m.Answer[0]) }},
		{"two TTLs ", func(m *dns.Msg) { m.Answer = append(m.Answer, rr("Web.shop.registry.local. 6 A 10.0.0.2")) }},
		{"SOA of ", func(m *dns.Msg) { m.Ns = []dns.RR{rr(soa)} }},
		{"SOA of ", func(m *dns.Msg) { m.Truncated, m.Ns = true, []dns.RR{rr(soa)} }},
		{"SOA of ", func(m *dns.Msg) { m.Answer, m.Ns = nil, []dns.RR{rr("shop." + soa)} }},
		{"0 SOA records ", func(m *dns.Msg) { m.Answer = nil }},
		{"0 SOA records ", func(m *dns.Msg) { m.Rcode = dns.RcodeNameError }},
		{"2 SOA records ", func(m *dns.Msg) { m.Answer, m.Ns = nil, []dns.RR{rr(soa), rr(soa + "0")} }},
		{" octets, at most 1232 ", func(m *dns.Msg) {
			for i := range 30 {
				m.Answer = append(m.Answer, rr(fmt.Sprintf("web.shop.registry.local. 5 A 10.0.1.%d", i)))
			}
		}},
	} {
		query, err := q.pack()
		if err != nil {
			t.Fatal(err)
		}
		m := new(dns.Msg)
		if err := m.Unpack(query); err != nil {
			t.Fatal(err)
		}
		m.Response, m.Authoritative = true, true
		m.Answer = []dns.RR{rr("web.shop.registry.local. 5 A 10.0.0.1")}
		c.change(m)
		wire, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		r, err := parseReply(wire)
		if err == nil {
			err = r.check(&q, query)
		}
		if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
			t.Errorf("%v\n%v, expected %q", m, err, c.fault)
		}
		if _, err := parseReply(append(wire[:len(wire):len(wire)], 0)); err == nil {
			t.Error("an octet behind the last record is not noticed")
		}
		wire[11]++
		if _, err := parseReply(wire); err == nil {
			t.Error("a missing record is not noticed")
		}
	}
}
