//go:build linux

package diff_test

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// This file says what names below a Service mean that are in no transfer, and what a live
// answer may hold of a set that is: views, scopes, limits.

// zoneName is that of the clusters that are compared with zones.
const zoneName = "registry.local."

// facts are what manifests say that no zone file can.
type facts struct {
	// What is above the namespaces.
	under string
	// Names that exist and have no record, but for those of Services.
	bare map[string]bool
	// Other spellings of names that have records.
	spellings map[string]string
	// Addresses outside the reverse zones, by reverse name.
	outside map[string]netip.Addr
	// Services by name, but for aliases.
	services map[string]*serviceFacts
}

func newFacts(under string) facts {
	return facts{under: under, bare: map[string]bool{}, spellings: map[string]string{}, outside: map[string]netip.Addr{}, services: map[string]*serviceFacts{}}
}

// serviceFacts are those of one Service.
type serviceFacts struct {
	object object // its manifest
	pods   []pod
	ports  map[string]bool  // such as "_http._tcp"
	found  map[string][]pod // by address and by the target of SRV records, the first ones first

	// How it is tuned; 0 is the default.
	limit                 int
	cuts                  bool // the answer rather than TC
	ttlEmpty, ttlNXDomain uint32
}

// service adds a Service.
func (f *facts) service(name string, ports ...string) *serviceFacts {
	s := &serviceFacts{ports: map[string]bool{}, ttlEmpty: ttlEmpty, ttlNXDomain: ttlNXDomain}
	for _, p := range ports {
		s.ports[p] = true
	}
	f.services[name] = s
	f.bare[parent(name)] = true // the namespace
	return s
}

// learn adds the Services that a zone has and nobody named: they have a view of all. Their
// endpoints have no host names.
func (f *facts) learn(w *world) {
	for name := range w.types {
		labels := dns.SplitDomainName(name)
		at := slices.Index(labels, "_all")
		if at < 0 || f.services[strings.Join(labels[at+1:], ".")+"."] != nil {
			continue
		}
		svc := strings.Join(labels[at+1:], ".") + "."
		s := f.service(svc)
		for name := range w.types {
			if port, ok := strings.CutSuffix(name, "._all."+svc); ok && strings.Contains(port, ".") {
				s.ports[port] = true
			}
		}
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			for _, rr := range w.sets[set{"_all." + svc, qtype}] {
				s.pods = append(s.pods, pod{addr: netip.MustParseAddr(data(rr))})
			}
		}
	}
}

// serviceOf is the Service that a name is at or below, and what comes before its name.
func (f *facts) serviceOf(name string) (s *serviceFacts, svc string, before []string) {
	labels := dns.SplitDomainName(strings.ToLower(name))
	at := len(labels) - dns.CountLabel(f.under) - 2
	if at < 0 || !dns.IsSubDomain(f.under, name) {
		return nil, "", nil
	}
	svc = strings.Join(labels[at:], ".") + "."
	return f.services[svc], svc, labels[:at]
}

// meaning is what a name below a Service means.
type meaning struct {
	*serviceFacts
	svc     string
	base    string // the name in the zone that has the records, "" for those in between
	viewed  bool
	explain bool
	scoped  bool
	scope   string // such as "_zone"
	value   string
	prefers bool // all where nothing is there
}

// means reads a name as DESIGN has it, nil if it is not one of those that a Service has but
// for its endpoints.
func (f *facts) means(name string) *meaning {
	s, svc, rest := f.serviceOf(name)
	if s == nil {
		return nil
	}
	m := &meaning{serviceFacts: s, svc: svc, base: svc}
	pop := func() (last string) {
		last, rest = rest[len(rest)-1], rest[:len(rest)-1]
		return last
	}
	between := func() *meaning { m.base = ""; return m }
	if n := len(rest); n > 0 && slices.Contains([]string{"_ready", "_serving", "_all"}, rest[n-1]) {
		m.base, m.viewed = pop()+"."+svc, true
	}
	if n := len(rest); n > 0 && slices.Contains([]string{"_zone", "_node", "_region"}, rest[n-1]) {
		m.scoped, m.scope = true, pop()
		if len(rest) == 0 {
			return between()
		}
		switch pop() {
		case "prefer":
			m.prefers = true
		case "pin":
		default:
			return nil
		}
		if len(rest) == 0 {
			return between()
		}
		// No label of a value begins with an underscore.
		first := len(rest)
		for first > 0 && rest[first-1][0] != '_' {
			first--
		}
		if first == len(rest) {
			return nil
		}
		m.value = strings.Join(rest[first:], ".")
		rest = rest[:first]
	}
	switch {
	case len(rest) == 0:
		return m
	case len(rest) == 1 && rest[0] == "_explain" && !m.viewed && !m.scoped:
		m.explain = true
		return m
	case len(rest) == 1:
		for p := range s.ports {
			if parent(p) == rest[0] {
				return between()
			}
		}
	case len(rest) == 2 && s.ports[rest[0]+"."+rest[1]]:
		m.base = rest[0] + "." + rest[1] + "." + m.base
		return m
	}
	return nil
}

// holds are the records of a type that a name has, all of those that answers are made of.
func (w *world) holds(m *meaning, qtype uint16) []dns.RR {
	all := w.sets[set{m.base, qtype}]
	if !m.scoped {
		return all
	}
	in := slices.DeleteFunc(slices.Clone(all), func(rr dns.RR) bool { return !w.at(m, rr) })
	if len(in) == 0 && m.prefers {
		return all
	}
	return in
}

// at says whether a record is that of a pod which is where the name says. Of several pods with
// one address the first counts; of those with one host name each whose address is shown.
func (w *world) at(m *meaning, rr dns.RR) bool {
	pods := m.found[endpoint(rr)]
	if rr.Header().Rrtype != dns.TypeSRV {
		pods = pods[:min(1, len(pods))]
	} else if len(pods) > 1 {
		service := m.base // or its view
		if dns.CountLabel(service) >= dns.CountLabel(m.svc)+2 {
			service = parent(parent(service)) // without the port
		}
		pods = slices.DeleteFunc(slices.Clone(pods), func(p pod) bool {
			return !slices.ContainsFunc([]uint16{dns.TypeA, dns.TypeAAAA}, func(t uint16) bool {
				return slices.ContainsFunc(w.sets[set{service, t}], func(rr dns.RR) bool { return data(rr) == p.addr.String() })
			})
		})
	}
	return slices.ContainsFunc(pods, func(p pod) bool {
		return strings.EqualFold(map[string]string{"_zone": p.zone, "_node": p.node, "_region": p.region}[m.scope], m.value)
	})
}

// index finds the pods that have an address, and those that SRV records lead to.
func (s *serviceFacts) index(svc string) {
	s.found = map[string][]pod{}
	for _, p := range s.pods {
		label := p.host
		if label == "" {
			label = dashed(p.addr)
		}
		target := strings.ToLower(label + "." + svc)
		s.found[target] = append(s.found[target], p)
		s.found[p.addr.String()] = append(s.found[p.addr.String()], p)
	}
	for _, pods := range s.found {
		slices.SortStableFunc(pods, func(p, q pod) int {
			return cmp.Or(cmp.Compare(p.region, q.region), cmp.Compare(p.zone, q.zone), cmp.Compare(p.node, q.node), p.addr.Compare(q.addr))
		})
	}
}

// endpoint is what a record has of the endpoint: its address, or the name that it leads to.
func endpoint(rr dns.RR) string {
	if srv, ok := rr.(*dns.SRV); ok {
		return strings.ToLower(srv.Target)
	}
	return data(rr)
}

// endpoints is how many there are in some records.
func endpoints(records []dns.RR) int {
	all := map[string]bool{}
	for _, rr := range records {
		all[endpoint(rr)] = true
	}
	return len(all)
}

// empty says whether a name has no record at all at the moment.
func (w *world) empty(m *meaning) bool {
	return m.base != "" && !slices.ContainsFunc([]uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV}, func(t uint16) bool { return len(w.holds(m, t)) > 0 })
}

// asMeant says whether our reply is what the name means.
func (p *pair) asMeant(m *meaning) bool {
	if m == nil || m.base == "" || m.explain || p.ours.Rcode != dns.RcodeSuccess {
		return false
	}
	if p.q.qtype == dns.TypeANY && !p.w.empty(m) {
		return p.ours.minimal()
	}
	var whole []dns.RR
	for _, rr := range p.w.holds(m, p.q.qtype) {
		rr = dns.Copy(rr)
		rr.Header().Name = p.ours.last()
		whole = append(whole, rr)
	}
	if len(whole) == 0 {
		return p.ours.nodata() && p.ours.keptFor(p.w.negative(m, p.ours.last()))
	}
	got := slices.DeleteFunc(slices.Clone(p.ours.Answer), func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeCNAME })
	if !within(texts(got), texts(whole)) {
		return false
	}
	want, have := endpoints(whole), endpoints(got)
	if m.limit > 0 {
		want = min(want, m.limit)
	}
	// Each endpoint that is answered is answered with all its records.
	full := slices.DeleteFunc(whole, func(rr dns.RR) bool {
		return !slices.ContainsFunc(got, func(g dns.RR) bool { return endpoint(g) == endpoint(rr) })
	})
	switch {
	case p.ours.Truncated:
		return !m.cuts && have <= want
	case m.cuts && have < want:
		return have > 0 && p.ours.size+sizeOf(whole[0]) > p.q.way.limit() // all are about as long
	}
	return have == want && len(got) == len(full)
}

// keptFor says whether a negative reply is for that long.
func (r *reply) keptFor(ttl uint32) bool {
	return r.soa() != nil && r.soa().Hdr.Ttl == ttl && r.soa().Minttl == ttl
}

// negative is how long it is kept that there is nothing of a type at a name.
func (w *world) negative(m *meaning, name string) uint32 {
	if m != nil && w.empty(m) {
		return m.ttlEmpty
	}
	if s, _, _ := w.facts.serviceOf(name); s != nil {
		return s.ttlNXDomain
	}
	return ttlNXDomain
}

// How long it is kept, unless a Service says so, that nothing is published at a name, and that
// there is no such name or type.
const (
	ttlEmpty    = 2
	ttlNXDomain = 5
)

// study completes what is known of Services, and finds the addresses of endpoints that have no
// name, to which records of a view lead.
func (w *world) study() {
	w.facts.learn(w)
	w.hidden = map[set][]dns.RR{}
	for name, s := range w.facts.services {
		s.index(name)
		for _, rr := range w.sets[set{"_all." + name, dns.TypeSRV}] {
			target := endpoint(rr)
			if w.types[target] != nil {
				continue
			}
			for _, p := range s.found[target] {
				h := dns.RR_Header{Name: target, Class: dns.ClassINET, Ttl: rr.Header().Ttl}
				var addr dns.RR
				if p.addr.Is4() {
					h.Rrtype = dns.TypeA
					addr = &dns.A{Hdr: h, A: p.addr.AsSlice()}
				} else {
					h.Rrtype = dns.TypeAAAA
					addr = &dns.AAAA{Hdr: h, AAAA: p.addr.AsSlice()}
				}
				k := set{target, h.Rrtype}
				if !slices.ContainsFunc(w.hidden[k], func(rr dns.RR) bool { return text(rr) == text(addr) }) {
					w.hidden[k] = append(w.hidden[k], addr)
				}
			}
		}
	}
}

// names are some that a Service has and a transfer has not, and some that it has not, either.
func (s *serviceFacts) names(rnd *rand.Rand, svc string) map[string]bool {
	all := map[string]bool{"_explain." + svc: true, "_explain._all." + svc: true, "x._explain." + svc: true}
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	ports := slices.Sorted(maps.Keys(s.ports))
	views := []string{"", "_ready.", "_serving.", "_all."}
	for _, view := range views {
		for _, p := range ports {
			all[p+"."+view+svc], all[parent(p)+"."+view+svc] = true, true
		}
		all[view+svc] = true
	}
	for _, scope := range []string{"_zone.", "_node.", "_region."} {
		all[pick("", "pin.", "prefer.", "any.", "x.any.", "_tcp.pin.x.")+scope+pick(views...)+svc] = true
	}
	if !s.placed() {
		return all
	}
	ports = append(ports, "", "", "", "", "_tcp")
	missing := []string{"_missing._tcp", "_http._sctp", "x._missing._tcp", "x._http._tcp", "_x._http._tcp", "x._x"}
	for range 24 {
		p := s.pods[rnd.IntN(len(s.pods))]
		scope, value := "_zone", p.zone
		switch rnd.IntN(4) {
		case 0:
			scope, value = "_node", p.node
		case 1:
			scope, value = "_region", p.region
		}
		switch rnd.IntN(8) {
		case 0:
			value = "nowhere"
		case 1:
			value = mixCase(rnd, value)
		case 2:
			value = "x." + value
		}
		name := pick("pin.", "prefer.") + scope + "." + pick(views...) + svc
		if value != "" {
			name = value + "." + name
		}
		port := pick(ports...)
		if rnd.IntN(6) == 0 {
			port = pick(missing...)
		}
		if port != "" {
			name = port + "." + name
		}
		all[name] = true
	}
	return all
}

// placed says whether it is known where some endpoint is.
func (s *serviceFacts) placed() bool {
	return slices.ContainsFunc(s.pods, func(p pod) bool { return p.zone != "" })
}

// checkTransfer holds the transferred zone against the manifests that were made: at the names
// of a Service and its views are the addresses of who is meant, whatever the limit; and what
// is made up for the asker is nowhere.
func (w *world) checkTransfer(t *testing.T) {
	for name := range w.types {
		for _, label := range dns.SplitDomainName(name) {
			if slices.Contains([]string{"_zone", "_node", "_region", "_explain"}, label) {
				t.Errorf("in the transfer: %s", name)
			}
		}
	}
	compared := 0
	for _, svc := range slices.Sorted(maps.Keys(w.facts.services)) {
		s := w.facts.services[svc]
		if s.object == nil || s.weighted() {
			continue
		}
		for view, shown := range s.views() {
			want := map[string]bool{}
			for _, p := range s.pods {
				if slices.Contains(shown, p.state) {
					want[p.addr.String()] = true
				}
			}
			got := map[string]bool{}
			for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
				for _, rr := range w.sets[set{view + svc, qtype}] {
					got[data(rr)] = true
				}
			}
			if !maps.Equal(got, want) {
				t.Fatalf("in the transfer %s%s has %d addresses, the manifests have %d", view, svc, len(got), len(want))
			}
			compared += len(want)
		}
	}
	if compared > 0 {
		t.Logf("%d addresses at the names of Services and views are transferred, as the manifests have them", compared)
	}
}

func (s *serviceFacts) annotation(key string) string {
	value, _ := s.object["metadata"].(object)["annotations"].(object)["registry.local/"+key].(string)
	return value
}

func (s *serviceFacts) weighted() bool { return s.annotation("weights") != "" }

// views are the states that endpoints are in, of which each view has the addresses.
func (s *serviceFacts) views() map[string][]state {
	v := map[string][]state{
		"_ready.":   {ready, unsaid, early},
		"_serving.": {ready, unsaid, leaving},
		"_all.":     {ready, unsaid, starting, leaving, done, early},
	}
	v[""] = v["_"+cmp.Or(s.annotation("publish"), "ready")+"."]
	if slices.ContainsFunc(s.pods, func(p pod) bool { return slices.Contains(v[""], p.state) }) {
		return v
	}
	switch s.annotation("fallback") {
	case "serving":
		v[""] = []state{leaving}
	case "all":
		v[""] = v["_all."]
	}
	return v
}
