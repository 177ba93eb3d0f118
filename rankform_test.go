package epdns_test

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// What the cases of testdata/cases/rank say besides those of testdata/cases/dns is
// tested here, as caseform_test.go does for the rest.

func TestRankForm(t *testing.T) {
	const q, kept = "QUERY a. A\n ", "QUERY a. A\n answer-count: 1\n keep: x\nQUERY a. A\n "
	for _, c := range []struct{ text, err string }{
		{"QUERY a. A repeat=0\n", `1: option "repeat=0"`},
		{"QUERY a. A repeat=101\n", `1: option "repeat=101"`},
		{"QUERY a. A repeat\n", `1: option "repeat"`},
		{q + "answer-count: 3..2\n", `2: check "answer-count: 3..2"`},
		{q + "answer-count: 2..\n", `2: check "answer-count: 2.."`},
		{q + "neg-ttl: short\n", `2: check "neg-ttl: short"`},
		{q + "!answer-subset-of: 10.0.0.1\n", `2: unknown check "!answer-subset-of"`},
		{q + "answer-tiers: 10.0.0.1 |\n", `2: check "answer-tiers: 10.0.0.1 |"`},
		{q + "answer-tiers: 10.0.0.1,,10.0.0.2\n", `2: check "answer-tiers: 10.0.0.1,,10.0.0.2"`},
		{q + "answer-tiers: 10.0.0.1 | 10.0.0.1\n", `2: check "answer-tiers: 10.0.0.1 | 10.0.0.1"`},
		{q + "srv-tiers: a., b\n", `2: check "srv-tiers: a., b"`},
		{q + "srv-tiers: a. | A.\n", `2: check "srv-tiers: a. | A."`},
		{q + "ecs-scope: some\n", `2: check "ecs-scope: some"`},
		{q + "ecs-scope: 32..24\n", `2: check "ecs-scope: 32..24"`},
		{q + "ecs-scope: none|\n", `2: check "ecs-scope: none|"`},
		{q + "keep: x\n", "1: a QUERY without checks"},
		{q + "keep: x y\n", "2: keep:"},
		{q + "same: set x\n keep: x\n", `2: check "same: set x": nothing is kept`},
		{kept + "same: set y\n", `5: check "same: set y": nothing is kept`},
		{kept + "same: x\n", `5: check "same: x"`},
		{kept + "!same: sets x\n", `5: check "!same: sets x"`},
		{kept + "shares: 0 x\n", `5: check "shares: 0 x"`},
		{kept + "shares: x\n", `5: check "shares: x"`},
		{kept + "shares: 1 y\n", `5: check "shares: 1 y": nothing is kept`},
		{kept + "some same: set y\n", `5: check "same: set y": nothing is kept`},
		{kept + "some keep: x\n", `5: check "some keep: x"`},
		{q + "some answer-set: 10.0.0.1\n", `2: check "some answer-set: 10.0.0.1"`},
		{q + "some answer-subset-of: 10.0.0.1\n", `2: check "some answer-subset-of: 10.0.0.1"`},
		{q + "some some rcode=NOERROR\n", `2: check "some some rcode=NOERROR"`},
		{q + "some answer-first:\n", `2: check "answer-first:" says nothing`},
		{q + "some answer-last: 10.0.0.1\n", `2: unknown check "answer-last"`},
		{q + "some\n", `2: check "some" says nothing`},
	} {
		_, err := parseExpect(c.text)
		if err == nil || !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%q: %v, expected %s", c.text, err, c.err)
		}
	}
	var e expectation
	if err := e.add(1, "keep: x"); err == nil {
		t.Error("an answer is kept where no question is")
	}
}

// handmade is a reply to a question for web.shop.registry.local. with these records
// in its answer and its authority section, each "TYPE RDATA" with a TTL in front.
func handmade(t *testing.T, qtype uint16, answer, authority []string) *reply {
	t.Helper()
	m := new(dns.Msg).SetQuestion("web.shop.registry.local.", qtype)
	records := func(texts []string) (rrs []dns.RR) {
		for _, s := range texts {
			rr, err := dns.NewRR("web.shop.registry.local. " + s)
			if err != nil {
				t.Fatal(err)
			}
			rrs = append(rrs, rr)
		}
		return rrs
	}
	m.Answer, m.Ns = records(answer), records(authority)
	wire, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	r, err := parseReply(wire)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// addressReplies makes replies out of "1 2 3 / 2 3 1", where 1 is 10.0.0.1 and /
// parts replies.
func addressReplies(t *testing.T, text string) (all []*reply) {
	t.Helper()
	for one := range strings.SplitSeq(text, "/") {
		var answer []string
		for _, n := range strings.Fields(one) {
			answer = append(answer, "5 A 10.0.0."+n)
		}
		all = append(all, handmade(t, dns.TypeA, answer, nil))
	}
	return all
}

// holdsOf says why the checks, parted by ";", do not hold of replies.
func holdsOf(t *testing.T, checks string, replies ...*reply) []error {
	t.Helper()
	e, err := parseExpect("QUERY web.shop.registry.local. A\n " + strings.ReplaceAll(checks, ";", "\n ") + "\n")
	if err != nil {
		t.Fatal(err)
	}
	return e[0].judge(replies)
}

// TestRankChecks: each check holds of replies that are so, and of no others.
func TestRankChecks(t *testing.T) {
	for _, c := range []struct {
		replies, checks string
		holds           bool
	}{
		{"1 2 3", "answer-count: 3", true},
		{"1 2 3", "answer-count: 2", false},
		{"1 2 3", "answer-count: 2..3", true},
		{"1 2 3", "answer-count: 3..4", true},
		{"1 2 3", "answer-count: 1..2", false},
		{"1 2 3", "answer-count: 4..9", false},
		{"1 2 3", "!answer-count: 4..9", true},
		{"1 2 3", "!answer-count: 1..9", false},
		{"1 2 / 1 2 3", "answer-count: 2", false},
		{"1 2 3 / 1 2", "answer-count: 2", false},
		{"1 2 3 / 1 2", "some answer-count: 2", true},
		{"1 2 3 / 1 2", "some answer-count: 1", false},
		{"", "answer-subset-of: 10.0.0.1", true},
		{"2 1", "answer-subset-of: 10.0.0.1;answer-subset-of: 10.0.0.2;answer-subset-of: 10.0.0.3", true},
		{"2 1", "answer-subset-of: 10.0.0.1;answer-subset-of: 10.0.0.3", false},
		{"1 / 2", "answer-subset-of: 10.0.0.1", false},
		{"2 1 3", "answer-tiers: 10.0.0.1, 10.0.0.2 | 10.0.0.3", true},
		{"2 1 3 / 1 2 3", "answer-tiers: 10.0.0.1, 10.0.0.2 | 10.0.0.3", true},
		{"2 1 3 / 1 3 2", "answer-tiers: 10.0.0.1, 10.0.0.2 | 10.0.0.3", false},
		{"2 1", "answer-tiers: 10.0.0.1, 10.0.0.2 | 10.0.0.3", false},
		{"2", "answer-tiers: 10.0.0.1, 10.0.0.2", false},
		{"", "answer-tiers: 10.0.0.1", false},
		{"2 1 3 4", "answer-tiers: 10.0.0.1, 10.0.0.2 | 10.0.0.3", false},
		{"1", "srv-tiers: a.", false},
		{"1 2", "answer-ttl: 5", true},
		{"1 2", "answer-ttl: 6", false},
		{"1 2", "answer-ttl: <=6", true},
		{"1 2", "answer-ttl: <=4", false},
		{"", "ecs-scope: none", true},
		{"", "ecs-scope: none|0", true},
		{"", "ecs-scope: 0", false},
		{"1 2 / 2 1", "answer-set: 10.0.0.1;answer-set: 10.0.0.2", true},
		{"1 2 / 2", "answer-set: 10.0.0.1;answer-set: 10.0.0.2", false},
		{"1 2 / 1 3", "answer-first: 10.0.0.1", true},
		{"1 2 / 2 1", "answer-first: 10.0.0.1", false},
		{"1 2 / 2 1", "some answer-first: 10.0.0.1;some answer-first: 10.0.0.2", true},
		{"1 2 / 1 2", "some answer-first: 10.0.0.1;some answer-first: 10.0.0.2", false},
		{"1 / 1 2", "some answer-has: 10.0.0.2", true},
		{"1 / 1", "some answer-has: 10.0.0.2", false},
		{"1 / 2", "some rcode=NOERROR", true},
		{"1 / 2", "some rcode=NXDOMAIN", false},
	} {
		faults := holdsOf(t, c.checks, addressReplies(t, c.replies)...)
		if (len(faults) == 0) != c.holds {
			t.Errorf("%s of %q: %v", c.checks, c.replies, faults)
		}
		if !c.holds && len(faults) > 0 && !strings.HasPrefix(faults[0].Error(), "2: ") && !strings.HasPrefix(faults[0].Error(), "3: ") {
			t.Errorf("%s: the fault has no line: %v", c.checks, faults[0])
		}
	}
}

// TestKept: a reply is held to the one that was kept last.
func TestKept(t *testing.T) {
	for _, c := range []struct {
		kept, replies, checks string
		holds                 bool
	}{
		{"1 2 3", "3 1 2", "same: set x", true},
		{"1 2 3", "3 1", "same: set x", false},
		{"1 2", "1 2 3", "same: set x", false},
		{"1 2 3", "1 2 3", "same: order x", true},
		{"1 2 3", "2 3 1", "same: order x", false},
		{"1 2 3", "1 2", "same: order x", false},
		{"1 2 3", "1 2 3 / 2 3 1 / 3 1 2", "same: cycle x", true},
		{"1 2 3", "1 3 2", "same: cycle x", false},
		{"1 2 3", "1 2", "same: cycle x", false},
		{"", "", "same: cycle x;same: set x;same: order x", true},
		{"", "1", "same: cycle x", false},
		{"1", "", "same: cycle x", false},
		{"1 2 3", "2 1 3", "!same: order x", true},
		{"1 2 3", "1 2 3", "!same: order x", false},
		{"1 2 3", "2 3 1", "!same: cycle x", false},
		{"1 2 3", "1 2 3 / 2 1 3", "!same: order x", false},
		{"1 2 3", "1 2 3 / 2 1 3", "some !same: order x", true},
		{"1 2 3", "1 2 3 / 1 2 3", "some !same: order x", false},
		{"1 2 3", "2 1 3 / 1 2 3", "some same: order x", true},
		{"1 2 3", "2 3 4", "shares: 2 x", true},
		{"1 2 3", "2 3 4", "shares: 3 x", false},
		{"1 2 3", "2 3 4 / 3 4", "shares: 2 x", false},
		{"1 2 3 / 2 3", "2 3", "same: order x", true}, // the last of several
		{"1 2 3 / 2 3", "1 2 3", "same: order x", false},
		{"1 2", "1 2 / 2 1", "same: order x;keep: x", false}, // the one before, not itself
	} {
		e, err := parseExpect("QUERY web.shop.registry.local. A\n rcode=NOERROR\n keep: x\n" +
			"QUERY web.shop.registry.local. A\n " + strings.ReplaceAll(c.checks, ";", "\n ") + "\n")
		if err != nil {
			t.Fatal(err)
		}
		if faults := e[0].judge(addressReplies(t, c.kept)); faults != nil {
			t.Fatal(faults)
		}
		if faults := e[1].judge(addressReplies(t, c.replies)); (len(faults) == 0) != c.holds {
			t.Errorf("%s of %q after %q: %v", c.checks, c.replies, c.kept, faults)
		}
	}

	e, err := parseExpect("QUERY a. A\n rcode=NOERROR\n keep: x\nQUERY a. A\n rcode=NOERROR\n keep: x\nQUERY a. A\n same: order x\n")
	if err != nil {
		t.Fatal(err)
	}
	e[0].judge(addressReplies(t, "1 2"))
	e[1].judge(addressReplies(t, "2 1"))
	if faults := e[2].judge(addressReplies(t, "2 1")); faults != nil {
		t.Errorf("kept again: %v", faults)
	}
}

func TestServiceTiers(t *testing.T) {
	const a, b, c = "5 SRV %d 1 80 A.example.", "5 SRV %d 1 80 b.example.", "5 SRV %d 1 80 c.example."
	for _, l := range []struct {
		answer string // priorities of a, b, c, and of another port of c; - for no record
		tiers  string
		holds  bool
	}{
		{"1 1 2 2", "a.example., b.example. | c.example.", true},
		{"0 0 9 9", "b.example., A.EXAMPLE. | c.example.", true},
		{"1 2 3 3", "a.example. | b.example. | c.example.", true},
		{"4 4 4 4", "a.example., b.example., c.example.", true},
		{"1 2 3 3", "a.example., b.example. | c.example.", false},
		{"1 1 1 1", "a.example., b.example. | c.example.", false},
		{"2 2 1 1", "a.example., b.example. | c.example.", false},
		{"1 1 2 3", "a.example., b.example. | c.example.", false},
		{"1 1 2 2", "a.example. | c.example.", false},
		{"1 - 2 2", "a.example., b.example. | c.example.", false},
		{"1 - 2 2", "a.example. | c.example.", true},
		{"1 1 2 1", "a.example., b.example., c.example.", false},
	} {
		var answer []string
		for i, p := range strings.Fields(l.answer) {
			var n int
			if _, err := fmt.Sscan(p, &n); err == nil {
				answer = append(answer, fmt.Sprintf([]string{a, b, c, strings.Replace(c, "80", "81", 1)}[i], n))
			}
		}
		faults := holdsOf(t, "srv-tiers: "+l.tiers, handmade(t, dns.TypeSRV, answer, nil))
		if (len(faults) == 0) != l.holds {
			t.Errorf("%s of %q: %v", l.tiers, l.answer, faults)
		}
	}
}

func TestNegativeTTL(t *testing.T) {
	const soa = "%d SOA ns. root. 1 2 3 4 %d"
	for _, c := range []struct {
		ttl, minimum int
		check        string
		holds        bool
	}{
		{5, 5, "neg-ttl: 5", true},
		{5, 9, "neg-ttl: 5", true},
		{9, 5, "neg-ttl: 5", true}, // a cache takes the smaller one
		{9, 9, "neg-ttl: 5", false},
		{4, 9, "neg-ttl: 5", false},
		{9, 4, "neg-ttl: 5", false},
		{4, 9, "neg-ttl: <=5", true},
		{9, 4, "neg-ttl: <=5", false},
		{6, 6, "neg-ttl: <=5", false},
		{0, 0, "neg-ttl: 0", true},
	} {
		r := handmade(t, dns.TypeA, nil, []string{fmt.Sprintf(soa, c.ttl, c.minimum)})
		if faults := holdsOf(t, c.check, r); (len(faults) == 0) != c.holds {
			t.Errorf("%s of TTL %d, MINIMUM %d: %v", c.check, c.ttl, c.minimum, faults)
		}
	}
	two := []string{fmt.Sprintf(soa, 5, 5), fmt.Sprintf(soa, 5, 6)}
	for _, authority := range [][]string{nil, two} {
		if holdsOf(t, "neg-ttl: 5", handmade(t, dns.TypeA, nil, authority)) == nil {
			t.Errorf("it holds of %q", authority)
		}
	}
}

func TestSubnetScope(t *testing.T) {
	for _, c := range []struct {
		option, check string
		holds         bool
	}{
		{"000110180a01", "ecs-scope: 24", true},
		{"000110180a01", "ecs-scope: 24..32", true},
		{"000110180a01", "ecs-scope: none|0|24", true},
		{"000110180a01", "ecs-scope: 25..32", false},
		{"000110180a01", "ecs-scope: none", false},
		{"000110180a01", "ecs-scope: none|0", false},
		{"000110000a01", "ecs-scope: none|0", true},
		{"000110000a01", "ecs-scope: 0", true},
		{"000110180a02", "ecs-scope: 24", false},
		{"000111180a01", "ecs-scope: 24", false},
		{"000210180a01", "ecs-scope: 24", false},
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
		if err != nil {
			t.Fatal(err)
		}
		e, err := parseExpect("QUERY web.shop.registry.local. A ecs=10.1.2.3/16\n " + c.check + "\n")
		if err != nil {
			t.Fatal(err)
		}
		if faults := e[0].judge([]*reply{r}); (len(faults) == 0) != c.holds {
			t.Errorf("%s of %s: %v", c.check, c.option, faults)
		}
	}
}

// TestRepeat: a question is asked as often as its case says.
func TestRepeat(t *testing.T) {
	e, err := parseExpect("QUERY a. A repeat=7\n rcode=NOERROR\nQUERY a. A\n rcode=NOERROR\n")
	if err != nil {
		t.Fatal(err)
	}
	if e[0].repeat != 7 || e[1].repeat != 1 {
		t.Errorf("%d times and %d times, expected 7 and 1", e[0].repeat, e[1].repeat)
	}
}
