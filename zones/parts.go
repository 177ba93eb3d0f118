package zones

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"
	"strings"
)

// A Service of many endpoints is compiled in parts, so that a change of one of its
// slices costs what the slice does, and not what the Service does: the parts that it
// does not concern stay as they are. Parts stand in the order of places, so that what
// is near to an asker is still a few runs of endpoints, of several parts.

// parts are the records of such a Service.
type parts struct {
	list  []*portion
	at    []uint32      // by id, where in the list a portion is
	names table[uint32] // host names and pod names → the id of the portion that has it
	addrs table[uint32] // addresses likewise
	nodes int           // of all portions

	// What the portions were made by.
	made  rules
	by    publishing
	ports []portName
}

// portion is a part with a name, and what it was made from.
type portion struct {
	part
	id    uint32
	of    []input // in order of places
	count tally
}

// last is the last of what it was made from.
func (p *portion) last() *input { return &p.of[len(p.of)-1] }

// piece is the records of a set that one portion has.
type piece struct {
	rrset
	part *part

	// What stands before it: endpoints of the set, its records, endpoints and records of
	// all, and nodes.
	start, records, place, number, nodes uint32
}

// all yields the parts of a Service in order.
func (s *service) all(yield func(*part) bool) {
	if s.parts == nil {
		yield(&s.part)
		return
	}
	for _, p := range s.parts.list {
		if !yield(&p.part) {
			return
		}
	}
}

// countNodes is how many nodes there may be in all parts.
func (s *service) countNodes() int {
	if s.parts != nil {
		return s.parts.nodes
	}
	return s.part.countNodes()
}

// noPart has nothing.
var noPart = part{v4: noAddresses[0], v6: noAddresses[1]}

// called is the part that has a host or pod name.
func (p *parts) called(name []byte) *part {
	if id, ok := p.names.get(name); ok {
		return &p.list[p.at[id]].part
	}
	return &noPart
}

// holds is the part that has an address.
func (p *parts) holds(addr netip.Addr) *part {
	var buf [16]byte
	if id, ok := p.addrs.get(addrKey(&buf, addr)); ok {
		return &p.list[p.at[id]].part
	}
	return &noPart
}

// find is where in the list the portion is that has an address.
func (p *parts) find(addr netip.Addr) (at int, ok bool) {
	var buf [16]byte
	id, ok := p.addrs.get(addrKey(&buf, addr))
	if !ok {
		return 0, false
	}
	return int(p.at[id]), true
}

// find is the piece that an endpoint of the set is in, and its number there.
func (r *rrset) find(endpoint uint32) (*piece, uint32) {
	i := int(r.guide[endpoint/guided])
	for i+1 < len(r.pieces) && r.pieces[i+1].start <= endpoint {
		i++
	}
	return &r.pieces[i], endpoint - r.pieces[i].start
}

// guided is how many endpoints share an entry of a guide, which is the piece that the
// first of them is in: the others are in that or one of the next few.
const guided = 64

func guide(pieces []piece, n int) []uint16 {
	g, i := make([]uint16, (n+guided-1)/guided), 0
	for at := range g {
		for i+1 < len(pieces) && int(pieces[i+1].start) <= at*guided {
			i++
		}
		g[at] = uint16(i)
	}
	return g
}

// having is what has the records of an endpoint, and its number there.
func (r *rrset) having(endpoint uint32) (*rrset, uint32) {
	if r.ranking == nil || r.pieces == nil {
		return r, endpoint
	}
	p, local := r.find(endpoint)
	return &p.rrset, local
}

// beforeInPieces is before for a set in pieces.
func (r *rrset) beforeInPieces(place uint32) int {
	i := sort.Search(len(r.pieces), func(i int) bool { return r.pieces[i].place > place }) - 1
	if i < 0 {
		return 0
	}
	p := &r.pieces[i]
	return int(p.start) + p.before(nil, place-p.place)
}

// octets is how long a record is, about.
func (r *rrset) octets() int {
	if r.ranking != nil && r.pieces != nil {
		return r.pieces[0].octets()
	}
	return len(r.wire) / max(1, r.len())
}

// has says whether a portion of another list is in this, too.
func (p *parts) has(q *portion) bool {
	return int(q.id) < len(p.at) && int(p.at[q.id]) < len(p.list) && p.list[p.at[q.id]] == q
}

// file notes which portion has each name and address. It fails if two portions have one.
func (p *parts) file(r *room, had *parts, made []*portion) bool {
	var gone []*portion
	if had != nil {
		p.names, p.addrs = had.names, had.addrs
		for _, q := range had.list {
			if !p.has(q) {
				gone = append(gone, q)
			}
		}
	}
	r.gone, r.come = appendLabels(r.gone[:0], gone), appendLabels(r.come[:0], made)
	ok := refile(&p.names, r.gone, r.come, false)
	clear(r.gone) // which would keep the portions' texts
	clear(r.come)
	if !ok {
		return false
	}
	r.gone, r.come = appendAddresses(r.gone[:0], gone), appendAddresses(r.come[:0], made)
	ok = refile(&p.addrs, r.gone, r.come, true)
	clear(r.gone)
	clear(r.come)
	return ok
}

// filed is a name or an address, and the portion that has it.
type filed struct {
	key string
	id  uint32
}

func appendLabels(dst []filed, list []*portion) []filed {
	for _, p := range list {
		for i := range p.labels {
			dst = append(dst, filed{p.labels[i].name, p.id})
		}
	}
	return dst
}

func appendAddresses(dst []filed, list []*portion) []filed {
	for _, p := range list {
		for _, f := range p.families() {
			all := string(f.wire) // one text, of which each address is a part
			for _, i := range f.order {
				at := int(i) * f.size
				dst = append(dst, filed{all[at+fixedSize : at+f.size], p.id})
			}
		}
	}
	return dst
}

// refile makes a table of what was there before one of what is there now. Keys that are cut
// from longer texts are copied, so that the table does not keep those.
func refile(in *table[uint32], before, now []filed, cut bool) bool {
	for _, list := range [][]filed{before, now} {
		byKey := func(a, b filed) int { return cmp.Or(strings.Compare(a.key, b.key), cmp.Compare(a.id, b.id)) }
		if !slices.IsSortedFunc(list, byKey) {
			slices.SortFunc(list, byKey)
		}
	}
	e := in.edit()
	for len(before)+len(now) > 0 {
		switch {
		case len(now) > 1 && now[0].key == now[1].key:
			return false
		case len(now) == 0 || len(before) > 0 && before[0].key < now[0].key:
			e.remove(before[0].key)
			before = before[1:]
		case len(before) == 0 || now[0].key < before[0].key:
			if _, had := e.getString(now[0].key); had {
				return false
			}
			key := now[0].key
			if cut {
				key = strings.Clone(key)
			}
			e.set(key, now[0].id)
			now = now[1:]
		default:
			if before[0].id != now[0].id {
				e.set(now[0].key, now[0].id)
			}
			before, now = before[1:], now[1:]
		}
	}
	*in = e.done()
	return true
}

// assemble makes what the parts have together.
func (c *compiler) assemble(p *parts, old *service) bool {
	var t tally
	for _, q := range p.list {
		t.add(&q.count)
	}
	c.parts, c.named = p, t.named > 0
	if !c.joinAreas(old) {
		return false
	}
	c.published = c.joinView(func(q *portion) *view { return &q.published })
	if t.odd == 0 {
		return true
	}
	for r := range readinessRules {
		v := c.joinView(func(q *portion) *view { return q.view(Readiness(r)) })
		c.views[r] = &v
	}
	if c.topology == TopologyNearest {
		c.ready = &ready{}
		for _, q := range p.list {
			for i := range q.of {
				c.ready.count(q.of[i].condition)
			}
		}
	}
	return true
}

// joinAreas puts the areas of all portions together. It fails if a node or a zone is in
// two places.
func (c *compiler) joinAreas(old *service) bool {
	a := &c.areas
	join := func(of func(*areas) []run, same func(v, w where) bool) {
		first, before, last := len(a.runs), uint32(0), where{}
		for _, p := range c.parts.list {
			for i, r := range of(&p.areas) {
				if i == 0 && len(a.runs) > first && same(last, p.of[0].where) {
					a.runs = a.runs[:len(a.runs)-1]
				}
				a.runs = append(a.runs, run{r.id, before + r.end})
			}
			before += uint32(len(p.of))
			last = p.last().where
		}
	}
	join((*areas).ofNodes, func(v, w where) bool { return v == w })
	a.zones = int32(len(a.runs))
	join((*areas).ofZones, func(v, w where) bool { return v.zone == w.zone && v.region == w.region })
	a.regions = int32(len(a.runs))
	join((*areas).ofRegions, func(v, w where) bool { return v.region == w.region })
	a.runs = slices.Clip(a.runs)
	if old != nil && sameRuns(a.ofNodes(), old.areas.ofNodes()) && sameRuns(a.ofZones(), old.areas.ofZones()) {
		a.byNode = old.areas.byNode
		return true
	}
	a.sortNodes()
	return a.distinct()
}

func sameRuns(a, b []run) bool {
	return slices.EqualFunc(a, b, func(a, b run) bool { return a.id == b.id })
}

// distinct says whether each node and each zone has one run.
func (a *areas) distinct() bool {
	seen := make(map[uint32]bool, len(a.runs))
	for _, runs := range [][]run{a.ofNodes(), a.ofZones()} {
		clear(seen)
		for _, r := range runs {
			if r.id != 0 && seen[r.id] {
				return false
			}
			seen[r.id] = true
		}
	}
	return true
}

// joinView makes a view of those of all portions.
func (c *compiler) joinView(of func(*portion) *view) (v view) {
	v.a = c.joinSet(func(p *portion) rrset { return rrset{&p.v4.list, &of(p).a} })
	v.aaaa = c.joinSet(func(p *portion) rrset { return rrset{&p.v6.list, &of(p).aaaa} })
	v.srv = c.joinSet(func(p *portion) rrset { return rrset{&p.srv, &of(p).srv} })
	v.ports = make([]set, len(c.ports))
	for i := range v.ports {
		v.ports[i] = c.joinSet(func(p *portion) rrset { return rrset{&p.srv, &of(p).ports[i]} })
	}
	return v
}

func (c *compiler) joinSet(of func(*portion) rrset) (s set) {
	pieces := make([]piece, 0, len(c.parts.list))
	next := piece{}
	for _, p := range c.parts.list {
		next.rrset, next.part = of(p), &p.part
		if next.n > 0 {
			pieces = append(pieces, next)
		}
		next.start += uint32(next.n)
		next.records += uint32(next.set.count())
		next.place += uint32(len(p.of))
		next.number += uint32(next.list.len())
		next.nodes += uint32(p.countNodes())
	}
	if len(pieces) == 0 {
		return set{}
	}
	s = set{n: int(next.start), ranking: &ranking{pieces: pieces, guide: guide(pieces, int(next.start))}}
	if c.topology == TopologyHints {
		s.hints = joinHints(pieces)
	}
	return s
}

// joinHints makes hints of those of all pieces.
func joinHints(pieces []piece) *hints {
	all := &hints{allNodes: true, allZones: true}
	nodes, zones := map[uint32]*hinted{}, map[uint32]*hinted{}
	join := func(to map[uint32]*hinted, from []hinted, before uint32) {
		for _, h := range from {
			if to[h.id] == nil {
				to[h.id] = &hinted{id: h.id}
			}
			m := to[h.id]
			m.ready = m.ready || h.ready
			for _, i := range h.members {
				m.members = append(m.members, before+i)
			}
		}
	}
	for i := range pieces {
		p := &pieces[i]
		if p.ranking == nil || p.hints == nil {
			continue
		}
		join(nodes, p.hints.nodes, p.start)
		join(zones, p.hints.zones, p.start)
		if p.hints.ready {
			all.ready = true
			all.allNodes = all.allNodes && p.hints.allNodes
			all.allZones = all.allZones && p.hints.allZones
		}
	}
	all.nodes, all.zones = hintList(nodes), hintList(zones)
	return all.settle()
}
