package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"epdns/dnsserver"
	"epdns/registry"
	"epdns/zones"
)

// This file knows what should be answered, and chooses what to ask for.

// truth is what epdns answers, made from what exists, which may change meanwhile.
type truth struct {
	mu        sync.Mutex // of the responder
	responder *dnsserver.Responder
	from      []netip.Addr // askers in different places
}

// nowhere is in no cluster (RFC 5737).
var nowhere = netip.MustParseAddr("192.0.2.1")

// manyPlaces is from how many endpoints' places a question is asked to see whether that matters.
const manyPlaces = 8

func newTruth(store *zones.Store, services []*registry.Service) *truth {
	t := &truth{responder: dnsserver.NewResponder(dnsserver.Config{}, store), from: []netip.Addr{nowhere}}
	known := map[string]bool{}
	for _, svc := range services {
		for _, slice := range svc.Slices {
			for i := range slice.Endpoints.Len() {
				e := slice.Endpoints.At(i)
				if place := e.Zone + "/" + e.Node; len(t.from) <= manyPlaces && !known[place] {
					known[place] = true
					t.from = append(t.from, e.Addr)
				}
			}
		}
	}
	return t
}

// ask is the answer over TCP for one asker, nil where there is none.
func (t *truth) ask(name string, qtype uint16, from netip.Addr) *dns.Msg {
	q := lookupQuestion{name: name, qtype: qtype, from: from}
	t.mu.Lock()
	wire, err := q.answer(t.responder)
	t.mu.Unlock()
	if err != nil {
		return nil
	}
	m, err := unpackReply(wire)
	if err != nil {
		return nil
	}
	return m
}

// answer is the answer for one of whom nothing is known.
func (t *truth) answer(name string, qtype uint16) *dns.Msg { return t.ask(name, qtype, nowhere) }

// steady says whether all askers get the same records, whenever they ask.
func (t *truth) steady(name string, qtype uint16) bool {
	var first []string
	for i, from := range append(slices.Clone(t.from), t.from...) {
		m := t.ask(name, qtype, from)
		if m == nil {
			return false
		}
		data := recordSet(m)
		if i == 0 {
			first = data
		} else if !slices.Equal(data, first) {
			return false
		}
	}
	return true
}

// recordSet is the data of the answer's records, without priorities, in order.
func recordSet(m *dns.Msg) (all []string) {
	for _, rr := range m.Answer {
		data := recordData(rr)
		if srv, ok := rr.(*dns.SRV); ok {
			data = fmt.Sprint(srv.Port, " ", srv.Target)
		}
		all = append(all, strings.ToLower(data))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// least is the lowest TTL of the answer's records, or where there are none the SOA's: so long an
// answer is kept where it comes from, since MINIMUM stays epdns's on the way and is the same
// there (RFC 2308 section 5). It is -1 where nothing tells.
func least(m *dns.Msg) int {
	ttl := -1
	for _, rr := range m.Answer {
		if t := int(rr.Header().Ttl); ttl < 0 || t < ttl {
			ttl = t
		}
	}
	if ttl >= 0 {
		return ttl
	}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			return int(soa.Hdr.Ttl)
		}
	}
	return -1
}

// subject is something to ask for.
type subject struct {
	name  string
	qtype uint16
	role  role

	history history

	// What came.
	seen    []string // data of the records, in the order of the first reply
	highest int      // TTL
	failed  bool
}

func (s *subject) String() string {
	return strings.TrimSuffix(s.name, ".") + " " + dns.Type(s.qtype).String()
}

// role is what a subject is to show.
type role uint8

const (
	roleOrdinary role = iota // a few addresses
	roleMany                 // as many as there are
	roleShort                // a short TTL
	roleIPv6                 // addresses of that family
	rolePort                 // SRV
	roleReverse              // PTR
	roleNone                 // no records of that type
	roleMissing              // no such name
	roleNamed                // asked for by name
)

// A few are as many as tell an order from chance, and fit in any datagram.
const (
	fewLeast = 3
	fewMost  = 20
)

// maxLooked is how many Services are looked at to choose from.
const maxLooked = 5000

// choose takes a Service of each kind.
func (t *truth) choose(services []*registry.Service, zone zones.Zone) (chosen []*subject) {
	best := map[role]*subject{}
	worth := map[role]int{}
	better := func(r role, value int) bool { return best[r] == nil || value > worth[r] }
	take := func(r role, value int, name string, qtype uint16) {
		if better(r, value) {
			best[r], worth[r] = &subject{name: name, qtype: qtype, role: r}, value
		}
	}
	for _, svc := range services[:min(len(services), maxLooked)] {
		if svc.Object != nil && svc.Object.IsExternalName {
			continue
		}
		name := nameIn(svc.Key, zone)
		take(roleMissing, 0, unknownName()+name[len(svc.Name):], dns.TypeA)
		a, aaaa, srv := t.answer(name, dns.TypeA), t.answer(name, dns.TypeAAAA), t.answer(name, dns.TypeSRV)
		if a == nil || aaaa == nil || srv == nil || a.Rcode != dns.RcodeSuccess {
			continue
		}
		n := len(a.Answer)
		few := n <= fewMost && better(roleOrdinary, min(n, fewLeast))
		// Whether all get the same takes many answers: it is looked at last.
		if n > 0 && (few || better(roleMany, n) || better(roleShort, -least(a))) && t.steady(name, dns.TypeA) {
			if few {
				take(roleOrdinary, min(n, fewLeast), name, dns.TypeA)
			}
			take(roleMany, n, name, dns.TypeA)
			take(roleShort, -least(a), name, dns.TypeA)
		}
		switch {
		case n > 0 && len(aaaa.Answer) == 0:
			take(roleNone, 0, name, dns.TypeAAAA)
		case n == 0 && len(aaaa.Answer) == 0:
			take(roleNone, 1, name, dns.TypeA)
		}
		if len(aaaa.Answer) > 0 && len(aaaa.Answer) <= fewMost && better(roleIPv6, 0) && t.steady(name, dns.TypeAAAA) {
			take(roleIPv6, 0, name, dns.TypeAAAA)
		}
		if k := len(srv.Answer); k > 0 && k <= fewMost && len(sections(srv)[2]) > 0 && better(rolePort, 0) && t.steady(name, dns.TypeSRV) {
			take(rolePort, 0, name, dns.TypeSRV)
		}
	}
	for _, r := range slices.Sorted(maps.Keys(best)) {
		s := best[r]
		same := func(other *subject) bool { return other.name == s.name && other.qtype == s.qtype }
		if !slices.ContainsFunc(chosen, same) {
			chosen = append(chosen, s)
		}
	}
	if few := best[roleOrdinary]; few != nil {
		if name := t.reverseOf(few.name); name != "" {
			chosen = append(chosen, &subject{name: name, qtype: dns.TypePTR, role: roleReverse})
		}
	}
	return chosen
}

// reverseOf is the reverse name of the first address of a name, if there is one now, and has a
// PTR record.
func (t *truth) reverseOf(name string) string {
	m := t.answer(name, dns.TypeA)
	if m == nil || len(m.Answer) == 0 {
		return ""
	}
	a, ok := m.Answer[0].(*dns.A)
	if !ok {
		return ""
	}
	reverse, err := dns.ReverseAddr(a.A.String())
	if err != nil {
		return ""
	}
	if m = t.answer(reverse, dns.TypePTR); m == nil || len(m.Answer) == 0 {
		return ""
	}
	return reverse
}

// named are the subjects of --name: addresses, and ports where a name has those.
func (t *truth) named(names []string) (all []*subject) {
	for _, name := range names {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV} {
			if m := t.answer(dns.Fqdn(name), qtype); m != nil && (qtype == dns.TypeA || len(m.Answer) > 0) {
				all = append(all, &subject{name: dns.Fqdn(name), qtype: qtype, role: roleNamed})
			}
		}
	}
	return all
}

// nameIn is a Service's name in a zone, with its final dot.
func nameIn(key registry.Key, zone zones.Zone) string { return dns.Fqdn(serviceName(key, zone)) }

// history is which records an answer should have had, and when.
type history struct {
	mu    sync.Mutex
	last  map[string]time.Time // when each was there last
	since map[string]time.Time // from when on those are there that are
}

func (h *history) note(records []string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	since := make(map[string]time.Time, len(records))
	if h.last == nil {
		h.last = map[string]time.Time{}
	}
	for _, r := range records {
		h.last[r] = now
		since[r] = now
		if at, ok := h.since[r]; ok {
			since[r] = at
		}
	}
	h.since = since
}

// differences are the records of an answer that have not been right for so long, and those that
// have been for so long and are not in it. What was before the first note is not known.
func (h *history) differences(records []string, asked, first time.Time, allowed time.Duration) (stale, missing []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range records {
		last := h.last[r]
		if last.Before(first) {
			last = first
		}
		if _, still := h.since[r]; !still && asked.Sub(last) > allowed {
			stale = append(stale, r)
		}
	}
	for r, at := range h.since {
		if asked.Sub(at) > allowed && !slices.Contains(records, r) {
			missing = append(missing, r)
		}
	}
	slices.Sort(missing)
	return stale, missing
}

// follow notes what should be answered until ctx ends.
func (t *truth) follow(ctx context.Context, all []*subject) {
	const every = 100 * time.Millisecond // much less than a TTL
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		t.note(all)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (t *truth) note(all []*subject) {
	for _, s := range all {
		if m := t.answer(s.name, s.qtype); m != nil {
			s.history.note(recordSet(m), time.Now())
		}
	}
}
