package zones

// A scope names where the endpoints of an answer are, whoever asks:
//
//	<value>.pin._zone.<svc>.<ns>        those in that zone, or nothing
//	<value>.prefer._zone.<svc>.<ns>     those in that zone, or all if there are none
//
// _node and _region likewise. This is the grammar of CoreDNS's zonal names, for every
// Service, and with _<port>._<proto> in front. The value is all labels left of the
// directive, joined by dots, in any case.

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
		return areas.zone(a.set.ids.zones.find(value), 0)
	case "_node":
		return areas.node(a.set.ids.nodes.find(value))
	}
	return areas.region(a.set.ids.regions.find(value))
}

// chosen are the endpoints of a set that its scope chooses, all where there is none.
func (a *Answer) chosen(r *rrset) span {
	switch {
	case r.set == nil:
		return span{}
	case !a.scope.given:
		return span{0, r.n}
	}
	var in span
	if a.scope.there {
		in = r.within(a.scope.places)
	}
	if in.len() == 0 && a.scope.prefers {
		return span{0, r.n}
	}
	return in
}
