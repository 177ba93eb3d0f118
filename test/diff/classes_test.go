//go:build linux

package diff_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// This file says which differences from NSD, Knot and BIND are meant, and counts them.
// docs/differences.md has the reasons.

// pair is a reply of ours and one to the same question of another server.
type pair struct {
	w            *world
	q            question
	peer         server
	ours, theirs *reply
}

// class is a difference that is meant.
type class struct {
	name     string
	explains aspect
	when     func(p *pair) bool
}

// classes are tried in this order; each takes what it explains.
var classes = []class{
	{"NS records beside an answer", authority, func(p *pair) bool {
		return len(p.ours.Answer) > 0 && len(p.ours.Ns) == 0 && p.theirs.onlyNS() && p.w.covers(p.theirs.authority)
	}},
	{"type ANY", answer | tc, func(p *pair) bool {
		return p.q.qtype == dns.TypeANY && p.ours.minimal() && (p.theirs.positive() || p.theirs.Truncated) && p.w.covers(p.theirs.answer)
	}},
	{"a limited answer", tc | answer | authority, func(p *pair) bool {
		m := p.w.facts.means(p.ours.last())
		return m != nil && !m.scoped && m.limit > 0 && (p.theirs.positive() || p.theirs.Truncated) && p.asMeant(m)
	}},
	{"an answer that is cut to fit", tc | answer | authority, func(p *pair) bool {
		m := p.w.facts.means(p.ours.last())
		return m != nil && !m.scoped && m.cuts && p.theirs.Truncated && p.asMeant(m)
	}},
	{"a scoped name", rcode | tc | answer | authority, func(p *pair) bool {
		m := p.w.facts.means(p.ours.last())
		return m != nil && m.scoped && p.theirs.nxdomain() && p.asMeant(m)
	}},
	{"how an answer comes about", rcode | tc | answer | authority, func(p *pair) bool {
		m := p.w.facts.means(p.ours.last())
		return m != nil && m.explain && p.theirs.nxdomain() && p.explains(m)
	}},
	{"a name without records", rcode, func(p *pair) bool {
		m := p.w.facts.means(p.ours.last())
		return p.ours.nodata() && p.theirs.nxdomain() && (p.w.facts.bare[p.ours.last()] || m != nil && !m.explain && (m.base == "" || p.w.empty(m)))
	}},
	{"nothing published", authority, func(p *pair) bool {
		m := p.w.facts.means(p.ours.last())
		return p.ours.nodata() && m != nil && p.w.empty(m) && p.ours.keptFor(m.ttlEmpty) && p.theirs.soa() != nil && sameSOA(p.ours.soa(), p.theirs.soa())
	}},
	{"a time of the Service's own", authority, func(p *pair) bool {
		s, _, _ := p.w.facts.serviceOf(p.ours.last())
		return s != nil && s.ttlNXDomain != ttlNXDomain && p.ours.keptFor(s.ttlNXDomain) && p.theirs.soa() != nil && sameSOA(p.ours.soa(), p.theirs.soa())
	}},
	{"another spelling of an address", rcode | answer | authority, func(p *pair) bool {
		canonical := p.w.facts.spellings[p.ours.last()]
		return canonical != "" && p.theirs.nxdomain() && p.answersAs(canonical)
	}},
	{"a known address elsewhere", rcode | aa | answer | authority, func(p *pair) bool {
		return p.w.facts.outside[p.q.name].IsValid() && p.theirs.Rcode == dns.RcodeRefused && p.pointsTo(p.w.facts.outside[p.q.name])
	}},
	{"what a cut reply holds", answer | authority, func(p *pair) bool {
		return p.ours.Truncated && p.theirs.Truncated && p.w.covers(p.ours.answer) && p.w.covers(p.theirs.answer)
	}},
	{"names that are not compressed", tc | answer | authority, func(p *pair) bool {
		return p.ours.Truncated && !p.theirs.Truncated && (p.q.qtype == dns.TypePTR || len(p.ours.aliases()) > 0) &&
			uncompressed(p.theirs) > p.q.way.limit() && within(p.ours.answer, p.theirs.answer) && p.w.covers(p.theirs.answer)
	}},
	{"a set larger than a message", rcode | aa | tc | answer | authority, func(p *pair) bool {
		// Knot fails, BIND has not got it.
		return (p.peer == knot || p.peer == bind) && p.w.asksForHuge(p.q.qtype, p.ours.last()) && (p.ours.Truncated || p.ours.minimal()) && p.w.covers(p.theirs.answer)
	}},
	{"a chain of eight aliases or more", rcode | tc | answer | authority, func(p *pair) bool {
		return len(p.ours.aliases()) == maxChain && len(p.ours.Answer) == maxChain && len(p.ours.Ns) == 0 &&
			(within(p.ours.answer, p.theirs.answer) || p.theirs.Truncated && p.w.covers(p.theirs.answer))
	}},
	{"NSD: an alias into another zone", answer | authority, func(p *pair) bool {
		return p.peer == nsd && len(p.ours.aliases()) > 0 && p.w.apex(p.ours.last()) != "" && p.w.apex(p.ours.last()) != p.w.apex(p.q.name) &&
			within(p.ours.answer, p.theirs.answer)
	}},
	{"Knot: a chain of more than five aliases", rcode | tc | answer | authority, func(p *pair) bool {
		const most = 5
		return p.peer == knot && len(p.ours.aliases()) > most && p.theirs.Rcode == dns.RcodeSuccess &&
			len(p.theirs.Answer) == most && within(p.theirs.answer, p.ours.answer)
	}},
	{"BIND: a loop of aliases", rcode, func(p *pair) bool {
		return p.peer == bind && p.ours.Rcode == dns.RcodeSuccess && p.theirs.Rcode == dns.RcodeServerFailure && p.ours.loops()
	}},
	{"BIND: TC for what does not belong to the answer", tc, func(p *pair) bool {
		return p.peer == bind && !p.ours.Truncated && p.theirs.Truncated && slices.Equal(p.ours.answer, p.theirs.answer)
	}},
	{"BIND: owners in another case are not compressed", tc | answer | authority, func(p *pair) bool {
		return p.peer == bind && strings.ToLower(p.q.name) != p.q.name && !p.ours.Truncated && p.theirs.Truncated && within(p.theirs.answer, p.ours.answer)
	}},
	{"BIND: a SOA that is not to be kept", authority, func(p *pair) bool {
		return p.peer == bind && p.q.qtype == dns.TypeSOA && p.ours.soa() != nil && p.theirs.soa() != nil &&
			p.theirs.soa().Hdr.Ttl == 0 && sameSOA(p.ours.soa(), p.theirs.soa())
	}},
}

// maxChain is how many aliases epdns follows.
const maxChain = 8

// explains says whether our reply is one TXT record that says where the Service's answer comes
// from, or that there is nothing else.
func (p *pair) explains(m *meaning) bool {
	switch p.q.qtype {
	case dns.TypeTXT:
		if p.ours.Truncated {
			return len(p.ours.Answer) == 0
		}
		if len(p.ours.Answer) != 1 {
			return false
		}
		txt, ok := p.ours.Answer[0].(*dns.TXT)
		return ok && len(txt.Txt) > 1
	case dns.TypeANY:
		return p.ours.minimal()
	}
	return p.ours.nodata() && p.ours.keptFor(m.ttlNXDomain)
}

// minimal says whether a reply is that which stands for all types.
func (r *reply) minimal() bool {
	return len(r.answer) == 1 && strings.HasSuffix(r.answer[0], "\thinfo\t\"rfc8482\" \"\"")
}

// loops says whether the aliases in a reply come round.
func (r *reply) loops() bool {
	been := map[string]bool{}
	for _, rr := range r.aliases() {
		been[strings.ToLower(rr.Header().Name)] = true
	}
	return been[r.last()]
}

// within says whether all of one list are in another.
func within(some, all []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// uncompressed is how long a reply would be if no name in its answer but the owners was
// compressed.
func uncompressed(r *reply) int {
	const header, fixedOPT = 12, 11
	size := header + len(r.Question[0].Name) + 1 + 4
	for _, rr := range r.Answer {
		size += sizeOf(rr)
	}
	if r.IsEdns0() != nil {
		size += fixedOPT
	}
	return size
}

// asksForHuge says whether a set that no message holds is part of the answer.
func (w *world) asksForHuge(qtype uint16, name string) bool {
	return w.huge[set{name, qtype}] || qtype == dns.TypeANY && w.huge[set{name, dns.TypeSRV}]
}

// answersAs says whether our reply is what the zone has at another name.
func (p *pair) answersAs(name string) bool {
	if p.q.qtype == dns.TypeANY {
		return p.ours.minimal()
	}
	here := p.w.sets[set{name, p.q.qtype}]
	want := p.ours.aliases()
	for _, rr := range here {
		rr = dns.Copy(rr)
		rr.Header().Name = p.ours.last()
		want = append(want, rr)
	}
	return p.ours.Rcode == dns.RcodeSuccess && slices.Equal(texts(want), p.ours.answer) && p.ours.nodata() == (len(here) == 0)
}

// pointsTo says whether our reply has PTR records to names that have an address, or none
// if it is not what was asked for.
func (p *pair) pointsTo(addr netip.Addr) bool {
	switch p.q.qtype {
	case dns.TypePTR:
	case dns.TypeANY:
		return p.ours.minimal()
	default:
		return p.ours.nodata() && strings.EqualFold(p.ours.soa().Hdr.Name, p.q.name)
	}
	for _, rr := range p.ours.Answer {
		ptr, ok := rr.(*dns.PTR)
		if !ok || !slices.ContainsFunc([]uint16{dns.TypeA, dns.TypeAAAA}, func(t uint16) bool {
			return slices.ContainsFunc(p.w.sets[set{ptr.Ptr, t}], func(rr dns.RR) bool { return strings.HasSuffix(text(rr), "\t"+addr.String()) })
		}) {
			return false
		}
	}
	return len(p.ours.Answer) > 0
}

// sameSOA says whether two SOA records are alike but for how long they are kept.
func sameSOA(a, b *dns.SOA) bool {
	c := *b
	c.Hdr.Ttl, c.Minttl = a.Hdr.Ttl, a.Minttl
	return text(a) == text(&c)
}

// counts are the outcome.
type counts struct {
	names   int
	replies int
	same    [servers]int
	classes map[string]*[servers]int
	faults  map[string]*fault // by what is alike in them
	exists  existence
}

func newCounts() *counts {
	return &counts{classes: map[string]*[servers]int{}, faults: map[string]*fault{}, exists: existence{}}
}

// fault is a difference that is not meant, or something else that must not be.
type fault struct {
	err   error // of the first
	times int
}

// fault notes one that is like others of its kind.
func (n *counts) fault(kind string, err error) {
	if n.faults[kind] == nil {
		n.faults[kind] = &fault{err: err}
	}
	n.faults[kind].times++
}

// compare holds our reply against the others'.
func (n *counts) compare(w *world, q question, replies []*reply) {
	n.replies++
	if err := n.exists.note(q.name, replies[ours]); err != nil {
		n.fault("existence", fmt.Errorf("%v: %w", q, err))
	}
	if err := w.checkAdditional(q, replies[ours]); err != nil {
		n.fault("additional", fmt.Errorf("%v: %w\n    %v", q, err, replies[ours]))
	}
	for s := nsd; s < servers; s++ {
		p := &pair{w, q, s, replies[ours], replies[s]}
		left := differences(p.ours, p.theirs)
		if left == 0 {
			n.same[s]++
			continue
		}
		for _, c := range classes {
			if left&c.explains != 0 && c.when(p) {
				left &^= c.explains
				n.count(c.name, s)
			}
		}
		if left != 0 {
			kind := fmt.Sprint(s, left, p.ours.Rcode, p.theirs.Rcode, p.ours.Truncated, p.theirs.Truncated, q.qtype == dns.TypeANY)
			n.fault(kind, fmt.Errorf("%v: %v differ\n    epdns: %v\n    %v: %v", q, left, p.ours, s, p.theirs))
		}
	}
}

func (n *counts) count(class string, s server) {
	if n.classes[class] == nil {
		n.classes[class] = &[servers]int{}
	}
	n.classes[class][s]++
}

func (n *counts) add(m *counts) {
	n.names += m.names
	maps.Copy(n.exists, m.exists)
	n.replies += m.replies
	for s := range servers {
		n.same[s] += m.same[s]
	}
	for name, c := range m.classes {
		for s := range servers {
			for range c[s] {
				n.count(name, s)
			}
		}
	}
	for kind, f := range m.faults {
		if n.faults[kind] == nil {
			n.faults[kind] = f
		} else {
			n.faults[kind].times += f.times
		}
	}
}

// log writes the counts as a table.
func (n *counts) log(t *testing.T, what string) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d names, %d questions\n| | NSD | Knot | BIND |\n|---|---|---|---|\n", what, n.names, n.replies)
	row := func(name string, c *[servers]int) {
		fmt.Fprintf(&b, "| %s | %d | %d | %d |\n", name, c[nsd], c[knot], c[bind])
	}
	row("the same reply", &n.same)
	for _, name := range slices.Sorted(maps.Keys(n.classes)) {
		row(name, n.classes[name])
	}
	t.Log(b.String())
}
