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

// This file says which differences from CoreDNS are meant, and counts them.
// docs/differences.md has the reasons.

// corePair is a reply of ours and CoreDNS's to the same question.
type corePair struct {
	w            *world
	f            *coreFacts
	q            question
	name         string // in small letters
	ours, theirs *reply
}

// coreClass is a difference that is meant.
type coreClass struct {
	name     string
	explains aspect
	when     func(p *corePair) bool
}

// coreClasses are tried in this order; each takes what it explains.
var coreClasses = []coreClass{
	// Reverse zones.
	{"reverse names outside the prefixes", rcode | aa | answer | authority, func(p *corePair) bool {
		return p.reverse() && p.w.apex(p.name) == "" && p.ours.Rcode == dns.RcodeRefused && len(p.ours.Answer) == 0
	}},
	{"the top of a reverse zone", rcode | answer | authority, func(p *corePair) bool {
		return p.reverse() && p.w.apex(p.name) == p.name && p.ours.Rcode == dns.RcodeSuccess && len(p.theirs.Answer) == 0 && p.theirs.soa() != nil
	}},
	{"a reverse name, asked for another type", rcode, func(p *corePair) bool {
		return p.reverse() && p.q.qtype != dns.TypePTR && p.ours.nodata() && p.theirs.nxdomain() &&
			(slices.Equal(p.w.types[p.name], []uint16{dns.TypePTR}) || strings.EqualFold(p.ours.soa().Hdr.Name, p.name))
	}},
	{"the SOA of a reverse zone", authority, func(p *corePair) bool {
		return p.reverse() && p.ours.soa() != nil && p.theirs.soa() != nil && dns.CountLabel(p.theirs.soa().Hdr.Name) == 2 &&
			dns.IsSubDomain(p.theirs.soa().Hdr.Name, p.ours.soa().Hdr.Name) && sameTimes(p.ours.soa(), p.theirs.soa())
	}},

	// Endpoints.
	{"an endpoint that shuts down", rcode | answer | authority, func(p *corePair) bool {
		return p.theirs.nxdomain() && p.oursIs(p.f.leaving[p.name])
	}},
	{"other names of an endpoint", rcode | answer | authority, func(p *corePair) bool {
		return p.theirs.nxdomain() && p.oursIs(p.f.second[p.name])
	}},
	{"an address with a host name and without", answer, func(p *corePair) bool {
		return len(p.theirs.Answer) > len(p.ours.Answer) && p.more(func(rr dns.RR) bool { return p.f.twins[target(rr)] }) ||
			p.f.twins[p.name] && p.q.qtype == dns.TypeSRV && len(p.theirs.Answer) == 1 && p.f.twins[target(p.theirs.Answer[0])]
	}},
	{"a host name that is another's address", rcode | answer | authority, func(p *corePair) bool {
		return p.f.confused[p.name] && p.w.covers(p.ours.answer) || p.q.qtype == dns.TypeSRV && len(p.theirs.Answer) > len(p.ours.Answer) &&
			p.more(func(rr dns.RR) bool { return p.f.confused[target(rr)] })
	}},

	// Services.
	{"a Service with addresses of its own", tc | answer | authority, func(p *corePair) bool {
		svc := p.f.service(p.name)
		return svc != "" && p.f.kinds[svc] == vip && p.ours.Rcode == dns.RcodeSuccess && p.w.covers(p.ours.answer) && p.endpointsAlone()
	}},
	{"an alias, asked for other types", answer | authority, func(p *corePair) bool {
		return p.alias() && p.q.qtype != dns.TypeA && p.q.qtype != dns.TypeAAAA && p.theirs.nodata()
	}},
	{"an alias that leads to nothing", rcode | answer, func(p *corePair) bool {
		return p.alias() && len(p.ours.Answer) == 1 && p.ours.soa() != nil && p.theirs.nodata()
	}},
	{"nothing published", rcode, func(p *corePair) bool {
		return p.f.empty[p.f.service(p.name)] && p.ours.nodata() && p.theirs.nxdomain()
	}},
	{"nothing published, kept for less long", authority, func(p *corePair) bool {
		m := p.means()
		return (p.f.empty[p.f.service(p.name)] || m != nil && m.scoped && p.w.empty(m)) && p.ours.keptFor(ttlEmpty) && p.theirs.soa() != nil && sameSOA(p.ours.soa(), p.theirs.soa())
	}},
	{"the zone's own names, asked for another type", rcode, func(p *corePair) bool {
		return (p.name == coreZone || p.name == "ns.dns."+coreZone || p.name == "dns-version."+coreZone) && p.ours.nodata() && p.theirs.nxdomain()
	}},
	{"a name without records", rcode, func(p *corePair) bool {
		types, exists := p.w.types[p.name]
		m := p.means()
		return (exists && len(types) == 0 || m != nil && m.base == "") && p.ours.nodata() && p.theirs.nxdomain()
	}},
	{"a namespace without Services", rcode, func(p *corePair) bool {
		return p.ours.nxdomain() && p.theirs.nodata() && (p.name == bareNamespace+".svc."+coreZone || strings.HasPrefix(p.name, "kube-"))
	}},
	{"the name pod", rcode, func(p *corePair) bool {
		return p.ours.nxdomain() && p.theirs.nodata() && p.name == "pod."+coreZone
	}},
	{"the TTL of dns-version", answer, func(p *corePair) bool {
		return p.name == "dns-version."+coreZone && p.q.qtype == dns.TypeTXT && len(p.ours.Answer) == 1 && len(p.theirs.Answer) == 1 &&
			p.theirs.answer[0] == strings.Replace(p.ours.answer[0], "\t5\t", "\t28800\t", 1)
	}},

	// Views and scopes.
	{"a view", rcode | tc | answer | authority, func(p *corePair) bool {
		m := p.means()
		return m != nil && m.viewed && p.theirs.nxdomain() && (p.pair().asMeant(m) || p.ours.nodata() && m.base == "")
	}},
	{"how an answer comes about", rcode | tc | answer | authority, func(p *corePair) bool {
		m := p.means()
		return m != nil && m.explain && p.theirs.nxdomain() && p.pair().explains(m)
	}},
	{"a scope other than a zone", rcode | tc | answer | authority, func(p *corePair) bool {
		m := p.means()
		return m != nil && m.scoped && m.scope != "_zone" && p.theirs.nxdomain() && p.pair().asMeant(m)
	}},
	{"the zones of a Service with addresses of its own", rcode | tc | answer | authority, func(p *corePair) bool {
		m := p.means()
		return m != nil && m.scoped && p.f.kinds[m.svc] == vip && p.theirs.nxdomain() && p.pair().asMeant(m)
	}},
	{"a port in a zone", rcode | tc | answer | authority, func(p *corePair) bool {
		m, rest, found := p.means(), "", false
		for _, directive := range []string{".pin._zone.", ".prefer._zone."} {
			if _, after, ok := strings.Cut(p.name, directive); ok && p.name[0] == '_' {
				rest, found = after, true
			}
		}
		if !found || p.f.kinds[rest] != headless || p.theirs.Rcode != dns.RcodeSuccess {
			return false
		}
		// For CoreDNS it is a zone that nobody is in.
		all := p.w.holds(&meaning{serviceFacts: p.f.model.services[rest], svc: rest, base: rest}, p.q.qtype)
		return p.among(p.theirs.Answer, all) && (m == nil && p.ours.nxdomain() || m != nil && m.base == "" && p.ours.nodata() || p.pair().asMeant(m))
	}},
	{"a zone with addresses of the other family", answer | authority, func(p *corePair) bool {
		m := p.means()
		if m == nil || !m.prefers || m.scope != "_zone" || !p.theirs.nodata() || !p.pair().asMeant(m) {
			return false
		}
		pinned := *m
		pinned.prefers = false
		return !p.w.empty(&pinned) && len(p.w.holds(&pinned, p.q.qtype)) == 0
	}},
	{"a zone of a Service that is not there", rcode, func(p *corePair) bool {
		m := p.means()
		return m != nil && m.scoped && p.f.empty[m.svc] && p.ours.nxdomain() && p.theirs.nodata()
	}},

	// Types.
	{"SOA at a name that is not there", rcode, func(p *corePair) bool {
		return p.q.qtype == dns.TypeSOA && p.ours.nxdomain() && p.theirs.nodata()
	}},
	{"SRV weights", answer, func(p *corePair) bool {
		return p.q.qtype == dns.TypeSRV && len(p.ours.Answer) == len(p.theirs.Answer) && p.more(func(dns.RR) bool { return false }) &&
			!slices.ContainsFunc(p.ours.Answer, func(rr dns.RR) bool { return rr.(*dns.SRV).Weight != 1 })
	}},

	// Ports.
	{"addresses at a port's name", tc | answer | authority, func(p *corePair) bool {
		svc := p.f.service(p.name)
		here := p.w.sets[set{svc, p.q.qtype}]
		return (p.q.qtype == dns.TypeA || p.q.qtype == dns.TypeAAAA) && len(p.w.sets[set{p.name, dns.TypeSRV}]) > 0 && p.ours.nodata() &&
			!slices.ContainsFunc(p.theirs.Answer, func(rr dns.RR) bool {
				return !slices.ContainsFunc(here, func(h dns.RR) bool { return data(rr) == data(h) })
			})
	}},
	{"a port's name without underscores", rcode | tc | answer | authority, func(p *corePair) bool {
		svc := p.f.service(p.name)
		labels := dns.SplitDomainName(p.name)
		return svc != "" && dns.CountLabel(p.name) == dns.CountLabel(svc)+2 && (len(labels[0]) < 2 || labels[0][0] != '_' || len(labels[1]) < 2 || labels[1][0] != '_') &&
			p.ours.nxdomain() && p.theirs.Rcode == dns.RcodeSuccess
	}},
	{"ports without a name", answer | authority, func(p *corePair) bool {
		return p.q.qtype == dns.TypeSRV && len(p.theirs.Answer) > len(p.ours.Answer) && p.more(func(rr dns.RR) bool {
			return p.f.unnamed[fmt.Sprint(p.f.service(p.name), " ", rr.(*dns.SRV).Port)]
		})
	}},

	// Size.
	{"TC for what does not belong to the answer", tc, func(p *corePair) bool {
		return p.q.qtype == dns.TypeSRV && !p.ours.Truncated && p.theirs.Truncated && len(p.theirs.Answer) == len(p.ours.Answer) &&
			p.more(func(dns.RR) bool { return false })
	}},
	{"what a cut reply holds", answer, func(p *corePair) bool {
		return p.ours.Truncated && p.theirs.Truncated && p.within(p.ours.Answer) && p.within(p.theirs.Answer)
	}},
}

// means is what the name means below a Service.
func (p *corePair) means() *meaning { return p.f.model.means(p.name) }

// pair is the same pair of replies.
func (p *corePair) pair() *pair { return &pair{p.w, p.q, coreDNS, p.ours, p.theirs} }

// reverse says whether the name is one of an address, or above such names.
func (p *corePair) reverse() bool {
	return dns.IsSubDomain("in-addr.arpa.", p.name) || dns.IsSubDomain("ip6.arpa.", p.name)
}

// alias says whether the name is that of an alias, and we say so.
func (p *corePair) alias() bool {
	kind, ok := p.f.kinds[p.name]
	return ok && kind == alias && len(p.ours.aliases()) == 1
}

// oursIs says whether our reply is that of an endpoint with the address.
func (p *corePair) oursIs(addr netip.Addr) bool {
	if !addr.IsValid() || p.ours.Rcode != dns.RcodeSuccess {
		return false
	}
	switch p.q.qtype {
	case dns.TypeA, dns.TypeAAAA:
		if (p.q.qtype == dns.TypeA) == addr.Is4() {
			return len(p.ours.Answer) == 1 && data(p.ours.Answer[0]) == addr.String()
		}
	case dns.TypeSRV, dns.TypePTR:
		if len(p.ours.Answer) > 0 {
			return true
		}
	}
	return p.ours.nodata()
}

// endpointsAlone says whether our answer names endpoints, and CoreDNS's the Service or its
// addresses.
func (p *corePair) endpointsAlone() bool {
	svc := p.f.service(p.name)
	return !slices.ContainsFunc(p.theirs.Answer, func(rr dns.RR) bool {
		return !slices.Contains(serviceIPs, data(rr)) && data(rr) != "10.96.0.1" && target(rr) != svc
	})
}

// more says whether CoreDNS has all our records, whatever the weights, and such others.
func (p *corePair) more(such func(dns.RR) bool) bool {
	ours := map[string]bool{}
	for _, rr := range p.ours.Answer {
		ours[weightless(rr)] = true
	}
	found := 0
	for _, rr := range p.theirs.Answer {
		switch {
		case ours[weightless(rr)]:
			found++
		case !such(rr):
			return false
		}
	}
	return found == len(p.ours.Answer) && p.theirs.Rcode == dns.RcodeSuccess && p.ours.Rcode == dns.RcodeSuccess
}

// within says whether all these records are the zones', whatever the weights.
func (p *corePair) within(records []dns.RR) bool {
	if m := p.means(); m != nil {
		return p.among(records, p.w.holds(m, p.q.qtype))
	}
	return p.among(records, p.w.sets[set{p.name, p.q.qtype}])
}

// among says whether records are some of others, whatever their owners and weights.
func (p *corePair) among(some, all []dns.RR) bool {
	plain := func(rr dns.RR) string {
		rr = dns.Copy(rr)
		rr.Header().Name = "."
		return weightless(rr)
	}
	here := map[string]bool{}
	for _, rr := range all {
		here[plain(rr)] = true
	}
	return !slices.ContainsFunc(some, func(rr dns.RR) bool { return !here[plain(rr)] })
}

// weightless is the text of a record; of an SRV record without the weight.
func weightless(rr dns.RR) string {
	if srv, ok := rr.(*dns.SRV); ok {
		c := *srv
		c.Weight = 0
		return text(&c)
	}
	return text(rr)
}

// data is the text of what a record holds.
func data(rr dns.RR) string { return strings.TrimPrefix(rr.String(), rr.Header().String()) }

// target is the name that a record points to, if any.
func target(rr dns.RR) string {
	switch rr := rr.(type) {
	case *dns.SRV:
		return dns.CanonicalName(rr.Target)
	case *dns.PTR:
		return dns.CanonicalName(rr.Ptr)
	}
	return ""
}

// sameTimes says whether two SOA records are alike but for the names.
func sameTimes(a, b *dns.SOA) bool {
	return a.Refresh == b.Refresh && a.Retry == b.Retry && a.Expire == b.Expire && a.Minttl == b.Minttl && a.Hdr.Ttl == b.Hdr.Ttl
}

// zeroSerials makes all serials the same: they are seconds in which something changed, of
// which each server keeps count for itself.
func zeroSerials(r *reply) {
	for _, section := range [][]dns.RR{r.Answer, r.Ns} {
		for _, rr := range section {
			if soa, ok := rr.(*dns.SOA); ok {
				soa.Serial = 0
			}
		}
	}
	r.answer, r.authority = texts(r.Answer), texts(r.Ns)
}

// coreCounts are the outcome.
type coreCounts struct {
	names, replies, same int
	classes              map[string]int
	faults               map[string]*fault
	exists               existence
}

func newCoreCounts() *coreCounts {
	return &coreCounts{classes: map[string]int{}, faults: map[string]*fault{}, exists: existence{}}
}

func (n *coreCounts) fault(kind string, err error) {
	if n.faults[kind] == nil {
		n.faults[kind] = &fault{err: err}
	}
	n.faults[kind].times++
}

// compare holds our reply against CoreDNS's.
func (n *coreCounts) compare(w *world, f *coreFacts, q question, our, their *reply) {
	n.replies++
	if err := n.exists.note(q.name, our); err != nil {
		n.fault("existence", fmt.Errorf("%v: %w", q, err))
	}
	if err := w.checkAdditional(q, our); err != nil {
		n.fault("additional", fmt.Errorf("%v: %w\n    %v", q, err, our))
	}
	zeroSerials(our)
	zeroSerials(their)
	p := &corePair{w, f, q, dns.CanonicalName(q.name), our, their}
	left := differences(our, their)
	if left == 0 {
		n.same++
		return
	}
	for _, c := range coreClasses {
		if left&c.explains != 0 && c.when(p) {
			left &^= c.explains
			n.classes[c.name]++
		}
	}
	if left != 0 {
		kind := fmt.Sprint(left, our.Rcode, their.Rcode, our.Truncated, their.Truncated, dns.Type(q.qtype), len(our.Answer) > 0, len(their.Answer) > 0)
		n.fault(kind, fmt.Errorf("%v: %v differ\n    epdns: %v\n    CoreDNS: %v", q, left, our, their))
	}
}

// report tells the first of each kind of fault.
func (n *coreCounts) report(t *testing.T, meant func(name string) bool) {
	t.Helper()
	if b := n.exists.broken(meant); len(b) > 0 {
		t.Errorf("%s\n    and %d more like it", b[0], len(b)-1)
	}
	for _, kind := range slices.Sorted(maps.Keys(n.faults)) {
		t.Errorf("%v\n    and %d more like it", n.faults[kind].err, n.faults[kind].times-1)
	}
}

// logCore writes the counts as a table. A class of which there is nothing has no reason to
// stay.
func logCore(t *testing.T, meanings []string, outcome []*coreCounts) {
	t.Helper()
	var b strings.Builder
	row := func(name string, count func(*coreCounts) int) (total int) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, n := range outcome {
			fmt.Fprintf(&b, " %d |", count(n))
			total += count(n)
		}
		b.WriteByte('\n')
		return total
	}
	fmt.Fprintf(&b, "%d names, %d questions\n| | %s |\n|---|---|---|\n", outcome[0].names, outcome[0].replies, strings.Join(meanings, " | "))
	row("the same reply", func(n *coreCounts) int { return n.same })
	for _, c := range coreClasses {
		if row(c.name, func(n *coreCounts) int { return n.classes[c.name] }) == 0 {
			t.Errorf("nothing differs by %q", c.name)
		}
	}
	t.Log(b.String())
}
