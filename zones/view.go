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
	n        int // endpoints
	*ranking     // nil: the first n records of the list, one of each endpoint, and no more to know
}

// ranking is which records a set has, and what more is known of their endpoints.
type ranking struct {
	records []uint32 // in order of their places; nil: the first n
	heads   []uint32 // where the records of each endpoint begin; nil: each has one
	weights []uint16 // nil: the same for all
	sums    *rank.Sums
	keys    []uint64    // for Hash and Fixed
	index   *rank.Index // for Hash
	sorted  []uint32    // for Fixed
	hints   *hints
	spread  []placed // for scopes: where each endpoint is, by place; nil: where its first record is
	pieces  []piece  // of a Service in parts; nil: one part has all of them
	guide   []uint16 // to the pieces
}

// placed is an endpoint of a set, and one of the places where it is. That may be several
// where several endpoints of the Service are one target of SRV records.
type placed struct{ place, member uint32 }

// rrset is a set and the list that its records are of.
type rrset struct {
	*list
	*set
}

// span is endpoints or records from start up to end.
type span struct{ start, end int }

func (s span) len() int { return s.end - s.start }

// first is where the records of an endpoint of a set begin, for at.
func (s *set) first(endpoint uint32) uint32 {
	if s.ranking != nil && s.heads != nil {
		return s.heads[endpoint]
	}
	return endpoint
}

// after is where they end.
func (s *set) after(endpoint uint32) uint32 {
	switch {
	case s.ranking == nil || s.heads == nil:
		return endpoint + 1
	case int(endpoint)+1 < len(s.heads):
		return s.heads[endpoint+1]
	}
	return uint32(len(s.records)) // sets with heads have records
}

// at is a record of the list.
func (s *set) at(i uint32) uint32 {
	if s.ranking != nil && s.records != nil {
		return s.records[i]
	}
	return i
}

// count is the number of records.
func (s *set) count() int {
	switch {
	case s.ranking == nil:
		return s.n
	case s.heads != nil:
		return len(s.records)
	case s.pieces != nil:
		last := &s.pieces[len(s.pieces)-1]
		return int(last.records) + last.set.count()
	}
	return s.n
}

// plain says whether the set is the first records of its list.
func (s *set) plain() bool {
	return s.ranking == nil || s.records == nil && s.heads == nil && s.pieces == nil
}

// before is how many of the endpoints, or of the members among them where those are
// given, stand before a place.
func (r *rrset) before(members []uint32, place uint32) int {
	i, j := 0, r.n
	switch {
	case members != nil: // which are in order of their places
		end := uint32(r.before(nil, place))
		for j = len(members); i < j; {
			if h := int(uint(i+j) >> 1); members[h] < end {
				i = h + 1
			} else {
				j = h
			}
		}
		return i
	case r.plain() && r.pos == nil:
		return min(int(place), r.n)
	case r.ranking != nil && r.pieces != nil:
		return r.beforeInPieces(place)
	}
	for i < j {
		if h := int(uint(i+j) >> 1); r.place(r.at(r.first(uint32(h)))) < place {
			i = h + 1
		} else {
			j = h
		}
	}
	return i
}

// areas are the endpoints of a Service by their places: a run for each node, zone and
// region, in order of places.
type areas struct {
	runs           []run    // of nodes, then of zones, then of regions
	zones, regions int32    // where those begin
	byNode         []uint32 // nodes in order of their numbers, where there are many
}

// run is the endpoints of a node, zone or region: from the end of the one before.
type run struct{ id, end uint32 }

// fewNodes are looked at one by one.
const fewNodes = 16

// newAreas puts endpoints, which stand in order of their places, together.
func newAreas(eps []endpoint) (a areas) {
	put := func(id func(where) uint32, differ func(v, w where) bool) {
		for i := range eps {
			if i > 0 && !differ(eps[i-1].where, eps[i].where) {
				a.runs[len(a.runs)-1].end++
				continue
			}
			a.runs = append(a.runs, run{id(eps[i].where), uint32(i) + 1})
		}
	}
	otherRegion := func(v, w where) bool { return v.region != w.region }
	otherZone := func(v, w where) bool { return v.zone != w.zone || otherRegion(v, w) }
	put(func(w where) uint32 { return w.node }, func(v, w where) bool { return v != w })
	a.zones = int32(len(a.runs))
	put(func(w where) uint32 { return w.zone }, otherZone)
	a.regions = int32(len(a.runs))
	put(func(w where) uint32 { return w.region }, otherRegion)
	a.runs = slices.Clip(a.runs)
	a.sortNodes()
	return a
}

func (a *areas) sortNodes() {
	if n := int(a.zones); n > fewNodes {
		a.byNode = make([]uint32, n)
		for i := range a.byNode {
			a.byNode[i] = uint32(i)
		}
		slices.SortStableFunc(a.byNode, func(i, j uint32) int { return cmp.Compare(a.runs[i].id, a.runs[j].id) })
	}
}

func (a *areas) ofNodes() []run   { return a.runs[:a.zones] }
func (a *areas) ofZones() []run   { return a.runs[a.zones:a.regions] }
func (a *areas) ofRegions() []run { return a.runs[a.regions:] }

// spanOf are the endpoints of one of the runs.
func spanOf(runs []run, i int) span {
	start := 0
	if i > 0 {
		start = int(runs[i-1].end)
	}
	return span{start, int(runs[i].end)}
}

// holding is the run that an endpoint is in.
func holding(runs []run, endpoint int) int {
	i, j := 0, len(runs)-1
	for i < j {
		if h := int(uint(i+j) >> 1); int(runs[h].end) <= endpoint {
			i = h + 1
		} else {
			j = h
		}
	}
	return i
}

// all are all endpoints.
func (a *areas) all() span {
	if len(a.runs) == 0 {
		return span{}
	}
	return span{0, int(a.runs[len(a.runs)-1].end)}
}

// at is the place of an endpoint.
func (a *areas) at(endpoint uint32) where {
	is := func(runs []run) uint32 { return runs[holding(runs, int(endpoint))].id }
	return where{is(a.ofNodes()), is(a.ofZones()), is(a.ofRegions())}
}

// node are the endpoints on a node.
func (a *areas) node(node uint32) (s span, ok bool) {
	nodes := a.ofNodes()
	if node == 0 {
		return s, false
	}
	if a.byNode == nil {
		for i := range nodes {
			if nodes[i].id == node {
				return spanOf(nodes, i), true
			}
		}
		return s, false
	}
	i, j := 0, len(a.byNode)
	for i < j {
		if h := int(uint(i+j) >> 1); nodes[a.byNode[h]].id < node {
			i = h + 1
		} else {
			j = h
		}
	}
	if i < len(a.byNode) && nodes[a.byNode[i]].id == node {
		return spanOf(nodes, int(a.byNode[i])), true
	}
	return s, false
}

// zone are the endpoints in a zone.
func (a *areas) zone(zone uint32) (s span, ok bool) {
	zones := a.ofZones()
	for i := range zones {
		if zone != 0 && zones[i].id == zone {
			return spanOf(zones, i), true
		}
	}
	return s, false
}

// regionAt is the region of some endpoints of one region.
func (a *areas) regionAt(s span) uint32 {
	regions := a.ofRegions()
	return regions[holding(regions, s.start)].id
}

// region are the endpoints in a region.
func (a *areas) region(region uint32) (s span, ok bool) {
	regions := a.ofRegions()
	for i := range regions {
		if region != 0 && regions[i].id == region {
			return spanOf(regions, i), true
		}
	}
	return s, false
}

// near are the endpoints on the node, in the zone and in the region of a place, and
// all of them: each span lies within the next. Where the node or the zone has
// endpoints here, theirs are the zone and region that count.
func (a *areas) near(p where) (t [4]span) {
	t[3] = a.all()
	node, onNode := a.node(p.node)
	if onNode {
		p = a.at(uint32(node.start))
	}
	zone, inZone := a.zone(p.zone)
	if inZone {
		p.region = a.regionAt(zone)
	}
	region, inRegion := a.region(p.region)
	switch {
	case inRegion:
		t[2] = region
	case inZone:
		t[2] = zone
	case onNode:
		t[2] = node
	}
	switch {
	case inZone:
		t[1] = zone
	case onNode:
		t[1] = node
	default:
		t[1] = span{t[2].start, t[2].start}
	}
	t[0] = span{t[1].start, t[1].start}
	if onNode {
		t[0] = node
	}
	return t
}

// hints are the endpoints of a set that are meant for nodes and zones, by kube-proxy's
// rule: hints of nodes count where every ready endpoint has one, hints of zones
// likewise.
type hints struct {
	nodes, zones []hinted // in order of the numbers

	ready              bool // somebody is,
	allNodes, allZones bool // and all who are have hints of nodes, or of zones
}

// settle leaves what counts by the rule, nil where nothing does.
func (h *hints) settle() *hints {
	noneReady := func(m hinted) bool { return !m.ready }
	if !h.ready || !h.allNodes {
		h.nodes = nil
	}
	if !h.ready || !h.allZones {
		h.zones = nil
	}
	h.nodes, h.zones = slices.DeleteFunc(h.nodes, noneReady), slices.DeleteFunc(h.zones, noneReady)
	if len(h.nodes)+len(h.zones) == 0 {
		return nil
	}
	return h
}

type hinted struct {
	id      uint32
	members []uint32   // endpoints of the set
	sums    *rank.Sums // of their weights
	sorted  []uint32   // by address, as ranking.sorted
	ready   bool       // one of them is
}

// of are the endpoints that are meant for a place: those for the node, else those for
// the zone; nil where hints do not count there.
func (h *hints) of(p where) []uint32 {
	if m := h.find(p); m != nil {
		return m.members
	}
	return nil
}

func (h *hints) find(p where) *hinted {
	if h == nil {
		return nil
	}
	if m := hintedFor(h.nodes, p.node); m != nil {
		return m
	}
	return hintedFor(h.zones, p.zone)
}

func hintedFor(list []hinted, id uint32) *hinted {
	if id == 0 {
		return nil
	}
	i, ok := slices.BinarySearchFunc(list, id, func(h hinted, id uint32) int { return cmp.Compare(h.id, id) })
	if !ok {
		return nil
	}
	return &list[i]
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
	if c.topology == TopologyNearest && !c.partial {
		c.ready = &ready{}
		for i := range c.eps {
			c.ready.count(c.eps[i].condition)
		}
	}
}

// count adds an endpoint.
func (r *ready) count(c condition) {
	if len(r.all) == 0 {
		r.ready, r.all = append(r.ready, 0), append(r.all, 0)
	}
	ready, all := r.ready[len(r.ready)-1], r.all[len(r.all)-1]
	if !c.terminating {
		all++
		if c.ready {
			ready++
		}
	}
	r.ready, r.all = append(r.ready, ready), append(r.all, all)
}

// view makes the sets of those that have a condition.
func (c *compiler) view(shown func(condition) bool) (v view) {
	m := members{c: c, shown: shown}
	v.a = m.set(&c.v4.list, func(e *endpoint) []uint32 { return c.address(e, true) })
	v.aaaa = m.set(&c.v6.list, func(e *endpoint) []uint32 { return c.address(e, false) })
	ofPort := func(is func(registry.Port) bool) func(*endpoint) []uint32 {
		return func(e *endpoint) []uint32 {
			c.few = c.few[:0]
			for i, p := range e.ports {
				if i < len(e.srv) && shown(p.condition) && is(p.Port) {
					c.few = append(c.few, e.srv[i])
				}
			}
			return c.few
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
	c.few = append(c.few[:0], e.record)
	return c.few
}

// members makes sets of the endpoints that are shown. The records of an endpoint are
// good until those of another are asked for.
type members struct {
	c       *compiler
	shown   func(condition) bool
	indexed *ranking // the last one with an index
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
	all := c.many[:0]
	for i := range c.eps {
		if e := &c.eps[i]; m.shown(e.condition) && in(e) {
			all = append(all, records(e)...)
		}
	}
	c.many = all
	all = unique(all)
	r := &ranking{}
	for i, record := range all {
		if i == 0 || l.place(record) != l.place(all[i-1]) {
			r.heads = append(r.heads, uint32(i))
		}
	}
	s = set{n: len(r.heads), ranking: r}
	if s.n == len(all) {
		r.heads = nil
	}
	if r.heads != nil || len(all) > 0 && int(all[len(all)-1]) != len(all)-1 {
		r.records, r.heads = slices.Clone(all), slices.Clip(r.heads)
	}
	m.rank(l, &s, records)
	if l == &c.srv && c.spreads {
		r.spread = m.spread(l, &s, records, in)
	}
	if r.records == nil && r.weights == nil && r.keys == nil && r.hints == nil && r.spread == nil {
		s.ranking = nil
	}
	return s
}

// spread are the places of a set's endpoints, nil where their records tell them.
func (m *members) spread(l *list, s *set, records func(*endpoint) []uint32, in func(*endpoint) bool) (all []placed) {
	member := s.members()
	for i := range m.c.eps {
		if e := &m.c.eps[i]; m.shown(e.condition) && in(e) {
			for _, r := range records(e) {
				all = append(all, placed{uint32(i), member[r]})
			}
		}
	}
	all = slices.Clip(slices.Compact(all)) // the records of one endpoint are of one member
	if len(all) == s.n && !slices.ContainsFunc(all, func(p placed) bool { return l.place(s.at(s.first(p.member))) != p.place }) {
		return nil
	}
	return all
}

// members are the endpoints of a set by each of its records.
func (s *set) members() map[uint32]uint32 {
	of := make(map[uint32]uint32, s.n)
	for i := range uint32(s.n) {
		for at := s.first(i); at < s.after(i); at++ {
			of[s.at(at)] = i
		}
	}
	return of
}

// rank finds out what more is to be known of a set.
func (m *members) rank(l *list, s *set, records func(*endpoint) []uint32) {
	c, r := m.c, s.ranking
	of := func(i uint32) *endpoint { return &c.eps[l.place(s.at(s.first(i)))] }
	for i := range uint32(s.n) {
		if w := max(1, of(i).weight); w != max(1, of(0).weight) {
			r.weights = make([]uint16, s.n)
			break
		}
	}
	for i := range r.weights {
		r.weights[i] = max(1, of(uint32(i)).weight)
	}
	if r.weights != nil {
		r.sums = rank.NewSums(r.weights, nil)
	}
	switch c.order {
	case rank.Hash:
		r.keys = make([]uint64, s.n)
		seed := c.hashSeed()
		for i := range r.keys {
			r.keys[i] = hashKey(seed, of(uint32(i)).addr)
		}
		m.index(r)
	case rank.Fixed:
		r.keys, r.sorted = make([]uint64, s.n), make([]uint32, s.n)
		for i := range r.sorted {
			r.sorted[i] = uint32(i)
		}
		slices.SortStableFunc(r.sorted, func(i, j uint32) int { return of(i).addr.Compare(of(j).addr) })
		for rank, i := range r.sorted {
			r.keys[i] = uint64(rank)
		}
	}
	if c.topology == TopologyHints {
		r.hints = m.hints(l, s, records)
		r.rankHinted()
	}
}

// rankHinted finds out of those who are meant for each place what is known of all.
func (r *ranking) rankHinted() {
	if r.hints == nil {
		return
	}
	for _, list := range [][]hinted{r.hints.nodes, r.hints.zones} {
		for i := range list {
			h := &list[i]
			if r.weights != nil {
				h.sums = rank.NewSums(r.weights, h.members)
			}
			if r.sorted != nil {
				h.sorted = make([]uint32, len(h.members))
				for j := range h.sorted {
					h.sorted[j] = uint32(j)
				}
				slices.SortFunc(h.sorted, func(i, j uint32) int { return cmp.Compare(r.keys[h.members[i]], r.keys[h.members[j]]) })
			}
		}
	}
}

// index makes the index of a set's keys. Sets of the same endpoints have one together.
func (m *members) index(r *ranking) {
	if had := m.indexed; had != nil && slices.Equal(had.keys, r.keys) && slices.Equal(had.weights, r.weights) {
		r.keys, r.index = had.keys, had.index
		return
	}
	if r.index = rank.NewIndex(r.keys, r.weights); r.index != nil {
		m.indexed = r
	}
}

// hashSeed is what the keys of a Service's endpoints are made with.
func (c *compiler) hashSeed() uint64 {
	h := uint64(len(c.suffix))
	for _, b := range c.suffix {
		h = rank.Mix(h ^ uint64(b))
	}
	return h
}

// hashKey tells an endpoint from others, alike on every replica: by its address and its
// Service.
func hashKey(seed uint64, addr netip.Addr) uint64 {
	n := toNumber(addr)
	return rank.Mix(rank.Mix(seed^n.hi) ^ n.lo)
}

// hints sorts out whom the endpoints of a set are meant for.
func (m *members) hints(l *list, s *set, records func(*endpoint) []uint32) *hints {
	c := m.c
	member := s.members()
	nodes, zones := map[uint32]*hinted{}, map[uint32]*hinted{}
	h := &hints{allNodes: true, allZones: true}
	for i := range c.eps {
		e := &c.eps[i]
		if !m.shown(e.condition) {
			continue
		}
		forNodes, forZones := e.hints.Nodes(), e.hints.Zones()
		of := records(e)
		for _, r := range of {
			n, ok := member[r]
			if !ok {
				continue // of weight 0
			}
			for _, name := range forNodes {
				hint(nodes, c.ids.nodes.give(name), n, e.ready)
			}
			for _, name := range forZones {
				hint(zones, c.ids.zones.give(name), n, e.ready)
			}
		}
		if len(of) > 0 && e.ready {
			h.ready = true
			h.allNodes = h.allNodes && len(forNodes) > 0
			h.allZones = h.allZones && len(forZones) > 0
		}
	}
	h.nodes, h.zones = hintList(nodes), hintList(zones)
	if c.partial {
		return h
	}
	return h.settle()
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

// hintList puts them in order.
func hintList(byID map[uint32]*hinted) (list []hinted) {
	for _, h := range byID {
		h.members = unique(h.members)
		list = append(list, *h)
	}
	slices.SortFunc(list, func(a, b hinted) int { return cmp.Compare(a.id, b.id) })
	return list
}
