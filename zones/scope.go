package zones

import (
	"cmp"
	"slices"
)

// A scope names where the endpoints of an answer are, whoever asks:
//
//	<value>.pin._zone.<svc>.<ns>        those in that zone, or nothing
//	<value>.prefer._zone.<svc>.<ns>     those in that zone, or all if there are none
//
// _node and _region likewise. This is the grammar of CoreDNS's zonal names, for every
// Service, and with _<port>._<proto> in front. The value is all labels left of the
// directive, joined by dots, in any case. Where several endpoints share a host name, it
// is in each scope that one of them is in.

// scope is the part of a Service that a name asks for.
type scope struct {
	given   bool
	prefers bool // all, where nothing is there
	there   bool // something is
	places  span
}

func isScope(label []byte) bool {
	switch string(label) {
	case "_zone", "_node", "_region":
		return true
	}
	return false
}

// scoped answers for a name of n labels before the Service or its view, the last of
// which is a scope's.
func (a *Answer) scoped(name []byte, n int, v *view, typ uint16) {
	if n == 1 {
		a.nodata(false)
		return
	}
	switch string(a.label(name, n-2)) {
	case "pin":
	case "prefer":
		a.scope.prefers = true
	default:
		a.nxdomain()
		return
	}
	values := n - 2
	if values == 0 {
		a.nodata(false)
		return
	}
	// No label of a value begins with an underscore: what does is a protocol, and what
	// stands before it a port. Nothing else is there, or it would be below a name that
	// does not exist (RFC 8020).
	first := values
	for first > 0 && !isUnderscored(a.label(name, first-1)) {
		first--
	}
	if first == values || first > 2 {
		a.nxdomain()
		return
	}
	a.scope.given = true
	a.scope.places, a.scope.there = a.area(a.label(name, n-1), a.joined(name, first, values))
	switch first {
	case 0:
		a.answer(typ, &v.a, &v.aaaa, &v.srv)
	case 1:
		a.protocol(name, typ)
	case 2:
		a.port(name, v, typ)
	}
}

// joined is labels first to end of a name, joined by dots.
func (a *Answer) joined(name []byte, first, end int) []byte {
	a.value = a.value[:0]
	for i := first; i < end; i++ {
		if i > first {
			a.value = append(a.value, '.')
		}
		a.value = append(a.value, a.label(name, i)...)
	}
	return a.value
}

// area are the Service's endpoints in what a scope's label and value name.
func (a *Answer) area(label, value []byte) (places span, ok bool) {
	areas := &a.service.areas
	switch string(label) {
	case "_zone":
		return areas.zone(a.set.ids.zones.find(value))
	case "_node":
		return areas.node(a.set.ids.nodes.find(value))
	}
	return areas.region(a.set.ids.regions.find(value))
}

// chosen are the endpoints of a set that its scope chooses, all where there is none. Where
// listed says so, they are the members in that span, in order, until it is called again.
func (a *Answer) chosen(r *rrset) span {
	a.listed = false
	switch {
	case r.set == nil:
		return span{}
	case !a.scope.given:
		return span{0, r.n}
	}
	in := a.inScope(r)
	if in.len() == 0 && a.scope.prefers {
		a.listed = false
		return span{0, r.n}
	}
	return in
}

// inScope are the endpoints of a set that are where the scope says, as chosen has them.
func (a *Answer) inScope(r *rrset) span {
	a.listed = false
	switch {
	case !a.scope.there:
		return span{}
	case r.ranking == nil || r.spread == nil:
		return r.within(a.scope.places)
	}
	a.listed, a.members = true, a.members[:0]
	byPlace := func(p placed, place int) int { return cmp.Compare(int(p.place), place) }
	for at, _ := slices.BinarySearchFunc(r.spread, a.scope.places.start, byPlace); at < len(r.spread) && int(r.spread[at].place) < a.scope.places.end; at++ {
		a.members = append(a.members, r.spread[at].member)
	}
	a.members = unique(a.members)
	return span{0, len(a.members)}
}

// isChosen says whether an endpoint is one of those that chosen returned.
func (a *Answer) isChosen(in span, endpoint int) bool {
	if a.listed {
		_, ok := slices.BinarySearch(a.members[in.start:in.end], uint32(endpoint))
		return ok
	}
	return in.start <= endpoint && endpoint < in.end
}
