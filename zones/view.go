package zones

import (
	"cmp"
	"net/netip"
	"slices"

	"epdns/registry"
	"epdns/zones/rank"
)

// view is a Service as one Readiness shows it.
type view struct {
	a, aaaa, srv set
	ports        []set // SRV, as service.ports
}

// set is records of one list that answer together.
type set struct {
	records []uint32 // in order of their places; nil: the first n
	heads   []uint32 // where the records of each endpoint begin; nil: each has one
	n       int      // endpoints
	*ranking
}

// ranking is what more is known of a set's endpoints.
type ranking struct {
	weights []uint16 // nil: the same for all
	sums    []uint64
	keys    []uint64 // for Hash and Fixed
	hints   *hints
}

// rrset is a set and the list that its records are of.
type rrset struct {
	*list
	set
}

// span is endpoints or records from start up to end.
type span struct{ start, end int }

func (s span) len() int { return s.end - s.start }

// first and last are the records of one endpoint of a set, in set.records.
func (s *set) first(endpoint uint32) uint32 {
	if s.heads != nil {
		return s.heads[endpoint]
	}
	return endpoint
}

func (s *set) after(endpoint uint32) uint32 {
	switch {
	case s.heads == nil:
		return endpoint + 1
	case int(endpoint)+1 < len(s.heads):
		return s.heads[endpoint+1]
	}
	return uint32(len(s.records)) // sets with heads have records
}

// at is the record at a place of set.records.
func (s *set) at(i uint32) uint32 {
	if s.records != nil {
		return s.records[i]
	}
	return i
}

// count is the number of records.
func (s *set) count() int {
	if s.heads != nil {
		return len(s.records)
	}
	return s.n
}

// before is how many of the endpoints, or of the members among them where those are
// given, stand before a place.
func (r *rrset) before(members []uint32, place uint32) int {
	i, j := 0, r.n
	if members != nil {
		j = len(members)
	} else if r.records == nil && r.heads == nil && r.pos == nil {
		return min(int(place), r.n)
	}
	for i < j {
		h := int(uint(i+j) >> 1)
		endpoint := uint32(h)
		if members != nil {
			endpoint = members[h]
		}
		if r.place(r.at(r.first(endpoint))) < place {
			i = h + 1
		} else {
			j = h
		}
	}
	return i
}

// area is the run of endpoints of one node, zone or region.
type area struct {
	where      // a zone's has no node, a region's no zone
	start, end uint32
}

func (a *area) span() span { return span{int(a.start), int(a.end)} }

// areas are the endpoints of a Service by their places.
type areas struct {
	nodes, zones, regions []area   // in order of places
	byNode                []uint32 // nodes in order of their numbers, where there are many
}

// fewNodes are looked at one by one.
const fewNodes = 16

// newAreas puts endpoints, which stand in order of their places, together.
func newAreas(eps []endpoint) (a areas) {
	put := func(list []area, w where, i int) []area {
		if n := len(list); n > 0 && list[n-1].where == w {
			list[n-1].end = uint32(i) + 1
			return list
		}
		return append(list, area{w, uint32(i), uint32(i) + 1})
	}
	for i := range eps {
		w := eps[i].where
		a.nodes = put(a.nodes, w, i)
		a.zones = put(a.zones, where{zone: w.zone, region: w.region}, i)
		a.regions = put(a.regions, where{region: w.region}, i)
	}
	a.nodes, a.zones, a.regions = slices.Clip(a.nodes), slices.Clip(a.zones), slices.Clip(a.regions)
	if len(a.nodes) > fewNodes {
		a.byNode = make([]uint32, len(a.nodes))
		for i := range a.byNode {
			a.byNode[i] = uint32(i)
		}
		slices.SortStableFunc(a.byNode, func(i, j uint32) int { return cmp.Compare(a.nodes[i].node, a.nodes[j].node) })
	}
	return a
}

// all are all endpoints.
func (a *areas) all() span {
	if len(a.nodes) == 0 {
		return span{}
	}
	return span{0, int(a.nodes[len(a.nodes)-1].end)}
}

// at is the place of an endpoint.
func (a *areas) at(endpoint uint32) where {
	i, _ := slices.BinarySearchFunc(a.nodes, endpoint, func(n area, e uint32) int {
		if n.end <= e {
			return -1
		}
		return 1
	})
	return a.nodes[i].where
}

// node is the area of a node, nil if it has no endpoints here.
func (a *areas) node(node uint32) *area {
	switch {
	case node == 0:
		return nil
	case a.byNode == nil:
		for i := range a.nodes {
			if a.nodes[i].node == node {
				return &a.nodes[i]
			}
		}
		return nil
	}
	i, j := 0, len(a.byNode)
	for i < j {
		if h := int(uint(i+j) >> 1); a.nodes[a.byNode[h]].node < node {
			i = h + 1
		} else {
			j = h
		}
	}
	if i < len(a.byNode) && a.nodes[a.byNode[i]].node == node {
		return &a.nodes[a.byNode[i]]
	}
	return nil
}

func (a *areas) zone(zone, region uint32) *area {
	var other *area // of that name in another region, which is the same for want of a better
	for i := range a.zones {
		if z := &a.zones[i]; zone != 0 && z.zone == zone {
			if z.region == region {
				return z
			}
			other = z
		}
	}
	return other
}

func (a *areas) region(region uint32) *area {
	for i := range a.regions {
		if region != 0 && a.regions[i].region == region {
			return &a.regions[i]
		}
	}
	return nil
}

// near are the endpoints on the node, in the zone and in the region of a place, and
// all of them: each span lies within the next. Where the node or the zone has
// endpoints here, theirs are the zone and region that count.
func (a *areas) near(p where) (t [4]span) {
	t[3] = a.all()
	node := a.node(p.node)
	if node != nil {
		p = node.where
	}
	zone := a.zone(p.zone, p.region)
	if zone != nil {
		p.region = zone.region
	}
	region := a.region(p.region)
	switch {
	case region != nil:
		t[2] = region.span()
	case zone != nil:
		t[2] = zone.span()
	case node != nil:
		t[2] = node.span()
	}
	switch {
	case zone != nil:
		t[1] = zone.span()
	case node != nil:
		t[1] = node.span()
	default:
		t[1] = span{t[2].start, t[2].start}
	}
	t[0] = span{t[1].start, t[1].start}
	if node != nil {
		t[0] = node.span()
	}
	return t
}

// hints are the endpoints of a set that are meant for nodes and zones, by kube-proxy's
// rule: hints of nodes count where every ready endpoint has one, hints of zones
// likewise.
type hints struct {
	nodes, zones []hinted // in order of the numbers
}

type hinted struct {
	id      uint32
	members []uint32 // endpoints of the set
	ready   bool     // one of them is
}

// of are the endpoints that are meant for a place: those for the node, else those for
// the zone; nil where hints do not count there.
func (h *hints) of(p where) []uint32 {
	if h == nil {
		return nil
	}
	if m := hintedFor(h.nodes, p.node); m != nil {
		return m
	}
	return hintedFor(h.zones, p.zone)
}

func hintedFor(list []hinted, id uint32) []uint32 {
	if id == 0 {
		return nil
	}
	i, ok := slices.BinarySearchFunc(list, id, func(h hinted, id uint32) int { return cmp.Compare(h.id, id) })
	if !ok {
		return nil
	}
	return list[i].members
}

// ready counts, before each endpoint and in all, those that are ready and those that
// are there, the terminating ones in neither.
type ready struct{ ready, all []uint32 }

// share is the part of the traffic of its clients that a span of endpoints takes:
// all of it while most of them are ready, by Envoy's overprovisioning factor.
func (r *ready) share(s span) float64 {
	if r == nil {
		return 1
	}
	all := r.all[s.end] - r.all[s.start]
	if all == 0 {
		return 1
	}
	return min(1, overprovisioning*float64(r.ready[s.end]-r.ready[s.start])/float64(all))
}

const overprovisioning = 1.4

// viewAll makes the sets that the Service's own names answer with: what it publishes,
// and each other view that is not the same.
func (c *compiler) viewAll() {
	c.published = c.view(c.shown)
	plain := true
	for i := range c.eps {
		e := &c.eps[i]
		plain = plain && e.ready && e.serving
		for _, p := range e.ports {
			plain = plain && p.ready && p.serving
		}
	}
	if plain {
		return
	}
	for r, shown := range readinessRules {
		v := c.view(shown)
		c.views[r] = &v
	}
	if c.topology == TopologyNearest {
		c.countReady()
	}
}

func (c *compiler) countReady() {
	r := &ready{ready: make([]uint32, len(c.eps)+1), all: make([]uint32, len(c.eps)+1)}
	for i := range c.eps {
		e := &c.eps[i]
		r.ready[i+1], r.all[i+1] = r.ready[i], r.all[i]
		if !e.terminating {
			r.all[i+1]++
			if e.ready {
				r.ready[i+1]++
			}
		}
	}
	c.ready = r
}

// view makes the sets of those that have a condition.
func (c *compiler) view(shown func(condition) bool) (v view) {
	m := members{c: c, shown: shown}
	v.a = m.set(&c.v4.list, func(e *endpoint) []uint32 { return c.address(e, true) })
	v.aaaa = m.set(&c.v6.list, func(e *endpoint) []uint32 { return c.address(e, false) })
	ofPort := func(is func(registry.Port) bool) func(*endpoint) []uint32 {
		return func(e *endpoint) (records []uint32) {
			for i, p := range e.ports {
				if i < len(e.srv) && shown(p.condition) && is(p.Port) {
					records = append(records, e.srv[i])
				}
			}
			return records
		}
	}
	v.srv = m.set(&c.srv, ofPort(func(registry.Port) bool { return true }))
	v.ports = make([]set, len(c.ports))
	for i, name := range c.ports {
		v.ports[i] = m.set(&c.srv, ofPort(func(p registry.Port) bool { return p.Name == name.name && p.Protocol == name.protocol }))
	}
	return v
}

// address is the A or the AAAA record of an endpoint.
func (c *compiler) address(e *endpoint, v4 bool) []uint32 {
	if e.addr.Is4() != v4 {
		return nil
	}
	return []uint32{c.at[e.addr]}
}

// members makes sets of the endpoints that are shown.
type members struct {
	c     *compiler
	shown func(condition) bool
}

// set makes the set of the records that endpoints have of one list. Who has the
// weight 0 is left out, unless there is nobody else.
func (m *members) set(l *list, records func(*endpoint) []uint32) set {
	out := m.collect(l, records, func(e *endpoint) bool { return e.weight > 0 })
	if out.n == 0 {
		out = m.collect(l, records, func(*endpoint) bool { return true })
	}
	return out
}

func (m *members) collect(l *list, records func(*endpoint) []uint32, in func(*endpoint) bool) (s set) {
	c := m.c
	var all []uint32
	for i := range c.eps {
		if e := &c.eps[i]; m.shown(e.condition) && in(e) {
			all = append(all, records(e)...)
		}
	}
	all = unique(all)
	for i, r := range all {
		if i == 0 || l.place(r) != l.place(all[i-1]) {
			s.heads = append(s.heads, uint32(i))
		}
	}
	s.n = len(s.heads)
	if s.n == len(all) {
		s.heads = nil
	}
	s.heads = slices.Clip(s.heads)
	if s.heads != nil || len(all) > 0 && int(all[len(all)-1]) != len(all)-1 {
		s.records = slices.Clip(all)
	}
	s.ranking = m.rank(l, &s, records)
	return s
}

// rank is what more is to be known of a set, nil if nothing is.
func (m *members) rank(l *list, s *set, records func(*endpoint) []uint32) *ranking {
	c := m.c
	var r ranking
	weighted := false
	for i := range s.n {
		w := max(1, c.eps[l.place(s.at(s.first(uint32(i))))].weight)
		r.weights = append(r.weights, w)
		weighted = weighted || w != r.weights[0]
	}
	if !weighted {
		r.weights = nil
	} else {
		r.sums = make([]uint64, s.n+1)
		for i, w := range r.weights {
			r.sums[i+1] = r.sums[i] + uint64(w)
		}
	}
	switch c.order {
	case rank.Hash:
		for i := range s.n {
			r.keys = append(r.keys, c.hashKey(&c.eps[l.place(s.at(s.first(uint32(i))))]))
		}
	case rank.Fixed:
		r.keys = make([]uint64, s.n)
		byAddr := make([]uint32, s.n)
		for i := range byAddr {
			byAddr[i] = uint32(i)
		}
		addr := func(i uint32) netip.Addr { return c.eps[l.place(s.at(s.first(i)))].addr }
		slices.SortStableFunc(byAddr, func(i, j uint32) int { return addr(i).Compare(addr(j)) })
		for rank, i := range byAddr {
			r.keys[i] = uint64(rank)
		}
	}
	if c.topology == TopologyHints {
		r.hints = m.hints(l, s, records)
	}
	if r.weights == nil && r.keys == nil && r.hints == nil {
		return nil
	}
	return &r
}

// hashKey tells an endpoint from others, alike on every replica: by its address and
// its Service.
func (c *compiler) hashKey(e *endpoint) uint64 {
	h := uint64(len(c.suffix))
	for _, b := range c.suffix {
		h = rank.Mix(h ^ uint64(b))
	}
	n := toNumber(e.addr)
	return rank.Mix(rank.Mix(h^n.hi) ^ n.lo)
}

// hints sorts out whom the endpoints of a set are meant for.
func (m *members) hints(l *list, s *set, records func(*endpoint) []uint32) *hints {
	c := m.c
	member := make(map[uint32]uint32, s.n) // of each record
	for i := range uint32(s.n) {
		for at := s.first(i); at < s.after(i); at++ {
			member[s.at(at)] = i
		}
	}
	nodes, zones := map[uint32]*hinted{}, map[uint32]*hinted{}
	allNodes, allZones, anyReady := true, true, false
	for i := range c.eps {
		e := &c.eps[i]
		if !m.shown(e.condition) {
			continue
		}
		forNodes, forZones := e.hints.Nodes(), e.hints.Zones()
		in := false
		for _, r := range records(e) {
			n, ok := member[r]
			if !ok {
				continue
			}
			in = true
			for _, name := range forNodes {
				hint(nodes, c.ids.nodes.give(name), n, e.ready)
			}
			for _, name := range forZones {
				hint(zones, c.ids.zones.give(name), n, e.ready)
			}
		}
		if in && e.ready {
			anyReady = true
			allNodes = allNodes && len(forNodes) > 0
			allZones = allZones && len(forZones) > 0
		}
	}
	h := &hints{}
	if anyReady && allNodes {
		h.nodes = hintList(nodes)
	}
	if anyReady && allZones {
		h.zones = hintList(zones)
	}
	if h.nodes == nil && h.zones == nil {
		return nil
	}
	return h
}

func hint(byID map[uint32]*hinted, id, member uint32, ready bool) {
	h := byID[id]
	if h == nil {
		h = &hinted{id: id}
		byID[id] = h
	}
	h.members = append(h.members, member)
	h.ready = h.ready || ready
}

// hintList are those for whom somebody is ready.
func hintList(byID map[uint32]*hinted) (list []hinted) {
	for _, h := range byID {
		if h.members = unique(h.members); h.ready {
			list = append(list, *h)
		}
	}
	slices.SortFunc(list, func(a, b hinted) int { return cmp.Compare(a.id, b.id) })
	return list
}
