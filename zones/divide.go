package zones

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"epdns/registry"
	"epdns/zones/rank"
)

// This file decides which endpoints make a portion, and makes anew those that a change
// concerns. It knows but the usual: each address in one slice and once, each host name,
// pod name, node and zone in one place, no weights, and no order that is of all endpoints
// together. Where a Service is different it is compiled whole, as a small one is.

// sizes are counts of endpoints.
type sizes struct {
	whole int // the most that a Service has which is not divided
	most  int // of a portion
	usual int
	least int // a smaller portion joins the one before, if that is no larger than usual
}

// A change is about two portions as a rule, that of the address which is gone and that of the
// new one. Half the size costs as much less for each, and more for what all portions cost.
var usualSizes = sizes{whole: 512, most: 256, usual: 128, least: 32}

// input is what the slice that has an endpoint says of it.
type input struct {
	identity
	where
	condition
	created int64
	hints   registry.Hints
	ports   []registry.Port
}

func (i *input) equal(j *input) bool {
	return i.identity == j.identity && i.where == j.where && i.condition == j.condition &&
		i.created == j.created && i.hints == j.hints && slices.Equal(i.ports, j.ports)
}

// draft is a portion that stays, or what the next ones are to be made of.
type draft struct {
	stays  *portion
	inputs []input
	id     uint32 // of the first that is made
}

// inParts compiles a Service in parts, if it is one for that.
func (c *compiler) inParts(svc *registry.Service, old *service) bool {
	n := 0
	for _, sl := range svc.Slices {
		n += sl.Endpoints.Len()
	}
	if n <= c.sizes.whole || c.order != rank.Shuffle && c.order != rank.Rotate || !c.settings.Weights.none() {
		return false
	}
	var had *parts
	var last trial
	if old != nil {
		had, last = old.parts, old.trial
	}
	if last.in > 0 {
		c.trial = trial{last.in - 1, last.pause}
		return false
	}
	c.trial = last.again()
	drafts, ok := c.change(svc, old, n)
	if !ok {
		if drafts, ok = c.divide(svc); !ok {
			return false
		}
		had = nil
	}
	total := c.tally(drafts)
	topology := c.topology.settled(total.hinted > 0 || svc.Object != nil && svc.Object.TrafficDistribution != "")
	next := &parts{by: c.publishing(&total), made: c.rules, ports: c.ports}
	next.made.topology = topology
	if had != nil && (next.by != had.by || next.made != had.made || !slices.Equal(next.ports, had.ports)) {
		drafts, had = together(drafts), nil
	}
	was := c.rules
	c.topology = topology
	if c.shown, c.fallsBack = next.by.rule(&total); !c.make(next, had, drafts) || !c.assemble(next, old) {
		c.rules, c.fallsBack, c.named = was, false, false
		c.part, c.parts = part{v4: noAddresses[0], v6: noAddresses[1]}, nil
		return false
	}
	c.trial = trial{}
	return true
}

// trial is when a Service is next tried in parts that it could not be in: what stands in
// the way may be gone soon, or stay for ever, and it costs more than the Service whole.
type trial struct {
	in    uint8 // after so many changes
	pause uint8 // so many after that one, if it fails, too
}

// maxPause is how many changes pass without a trial at most.
const maxPause = 63

// again is the next trial after one that has failed.
func (t trial) again() trial { return trial{t.pause, min(2*t.pause+1, maxPause)} }

// divide takes all endpoints of a Service, if it is one for parts.
func (c *compiler) divide(svc *registry.Service) ([]draft, bool) {
	c.collect(svc)
	if c.united || len(c.eps) < len(c.reports) {
		c.united = false
		return nil, false
	}
	for eps := range c.sameAddress() {
		if len(eps) > 1 {
			return nil, false
		}
	}
	return []draft{{inputs: c.inputs()}}, true
}

// together makes one draft of all.
func together(drafts []draft) []draft {
	var all draft
	for _, d := range drafts {
		if d.stays != nil {
			d.inputs = d.stays.of
		}
		all.inputs = append(all.inputs, d.inputs...)
	}
	return []draft{all}
}

// change finds the portions that differ from those that were, and what they are to be
// made of. It tells where all is better made anew.
func (c *compiler) change(svc *registry.Service, old *service, n int) ([]draft, bool) {
	if old == nil || old.parts == nil || len(old.parts.at) > 4*len(old.parts.list)+c.sizes.most {
		return nil, false
	}
	was, now := c.compareSlices(old.source.Slices, svc.Slices)
	if len(was)+len(now) > n {
		return nil, false
	}
	c.drafted = c.drafted[:0]
	edits := map[int]*portionEdit{} // by place in the list
	at := func(i int) *portionEdit {
		if edits[i] == nil {
			edits[i] = &portionEdit{}
		}
		return edits[i]
	}
	for i, j := 0, 0; i < len(was) || j < len(now); {
		d := 0
		switch {
		case i == len(was):
			d = 1
		case j == len(now):
			d = -1
		default:
			d = was[i].addr.Compare(now[j].addr)
		}
		if d == 0 && was[i].equal(&now[j]) {
			i, j = i+1, j+1
			continue
		}
		if d <= 0 {
			in, ok := old.parts.find(was[i].addr)
			if !ok {
				return nil, false
			}
			at(in).drop = append(at(in).drop, was[i].addr)
			i++
		}
		if d >= 0 {
			in := &now[j]
			if _, there := old.parts.find(in.addr); d > 0 && there || j > 0 && now[j-1].addr == in.addr || !old.areas.agrees(in.where) {
				return nil, false
			}
			e := at(c.portionFor(old.parts.list, in))
			e.add = append(e.add, *in)
			j++
		}
	}
	var drafts []draft
	for i, p := range old.parts.list {
		e := edits[i]
		if e == nil {
			drafts = append(drafts, draft{stays: p})
			continue
		}
		from := len(c.drafted)
		for _, in := range p.of {
			if _, dropped := slices.BinarySearchFunc(e.drop, in.addr, netip.Addr.Compare); !dropped {
				c.drafted = append(c.drafted, in)
			}
		}
		c.drafted = append(c.drafted, e.add...)
		inputs := c.drafted[from:len(c.drafted):len(c.drafted)]
		if last := len(drafts) - 1; last >= 0 && len(inputs) < c.sizes.least && drafts[last].len() <= c.sizes.usual {
			drafts[last] = draft{inputs: append(drafts[last].copy(), inputs...), id: drafts[last].number()}
		} else if len(inputs) > 0 {
			drafts = append(drafts, draft{inputs: inputs, id: p.id})
		}
	}
	return drafts, len(drafts) > 0
}

// portionFor is where in a list the portion is that an endpoint which is new belongs to: the
// last that begins before it, or the next one if that begins with its node.
func (c *compiler) portionFor(list []*portion, in *input) int {
	next := sort.Search(len(list), func(i int) bool { return c.compare(&list[i].of[0], in) > 0 })
	switch {
	case next == 0:
		return 0
	case next < len(list) && list[next].of[0].where == in.where && list[next-1].last().where != in.where:
		return next
	}
	return next - 1
}

// portionEdit is what leaves a portion, in order of addresses, and what comes.
type portionEdit struct {
	drop []netip.Addr
	add  []input
}

func (d *draft) len() int {
	if d.stays != nil {
		return len(d.stays.of)
	}
	return len(d.inputs)
}

func (d *draft) copy() []input {
	if d.stays != nil {
		return slices.Clone(d.stays.of)
	}
	return d.inputs
}

func (d *draft) number() uint32 {
	if d.stays != nil {
		return d.stays.id
	}
	return d.id
}

// compareSlices returns what the slices say that only one of the two lists has, in order
// of addresses; what it can't easily tell both have may be in both. Both are in order of names.
func (c *compiler) compareSlices(old, next []*registry.Slice) (was, now []input) {
	was, now = c.was[:0], c.now[:0]
	for a, b := range pairs(old, next) {
		if a != b {
			unlike(a, b,
				func(i int) { was = append(was, c.input(a, i)) },
				func(i int) { now = append(now, c.input(b, i)) })
		}
	}
	byAddress := func(a, b input) int { return a.addr.Compare(b.addr) }
	slices.SortFunc(was, byAddress)
	slices.SortFunc(now, byAddress)
	c.was, c.now = was, now
	return was, now
}

// pairs yields the slices of two lists by name, with nil for one that is not there. Both are
// in order of names.
func pairs(old, next []*registry.Slice) iter.Seq2[*registry.Slice, *registry.Slice] {
	return func(yield func(was, is *registry.Slice) bool) {
		for len(old)+len(next) > 0 {
			var was, is *registry.Slice
			d := 0
			switch {
			case len(old) == 0:
				d = 1
			case len(next) == 0:
				d = -1
			case old[0] != next[0]:
				d = strings.Compare(old[0].Name, next[0].Name)
			}
			if d <= 0 {
				was, old = old[0], old[1:]
			}
			if d >= 0 {
				is, next = next[0], next[1:]
			}
			if !yield(was, is) {
				return
			}
		}
	}
}

// unlike calls gone and come for the endpoints of either slice that the other has not, and
// for some that it has, where many have changed. A slice that is not there is nil. Endpoints
// keep their order when others come and go, so that a look at the next one mostly tells.
func unlike(was, is *registry.Slice, gone, come func(i int)) {
	i, j, m, n := 0, 0, lenOf(was), lenOf(is)
	if was != nil && is != nil && was.Created == is.Created && slices.Equal(was.Ports, is.Ports) {
		same := func(i, j int) bool { return i < m && j < n && was.Endpoints.At(i) == is.Endpoints.At(j) }
	alike:
		for i < m && j < n {
			switch {
			case same(i, j):
				i, j = i+1, j+1
			case same(i+1, j+1):
				gone(i)
				come(j)
				i, j = i+1, j+1
			case same(i+1, j):
				gone(i)
				i++
			case same(i, j+1):
				come(j)
				j++
			default:
				break alike
			}
		}
	}
	for ; i < m; i++ {
		gone(i)
	}
	for ; j < n; j++ {
		come(j)
	}
}

// lenOf is how many endpoints a slice has, which may be nil.
func lenOf(sl *registry.Slice) int {
	if sl == nil {
		return 0
	}
	return sl.Endpoints.Len()
}

// input is what a slice says of one of its endpoints.
func (c *compiler) input(sl *registry.Slice, i int) input {
	e := sl.Endpoints.At(i)
	w := c.ids.give(e.Node, e.Zone, e.Region)
	if r := c.regions[w.zone]; r != 0 {
		w.region = r
	}
	return input{c.identify(&e), w, conditionOf(&e), sl.Created, e.Hints, sl.Ports}
}

// agrees says whether a place is where those of the same node, or zone, are.
func (a *areas) agrees(w where) bool {
	if s, ok := a.node(w.node); ok {
		return a.at(uint32(s.start)) == w
	}
	if s, ok := a.zone(w.zone); ok {
		return a.regionAt(s) == w.region
	}
	return true
}

// compare is the order in which locate puts endpoints.
func (c *compiler) compare(a, b *input) int {
	if a.where != b.where {
		return cmp.Or(
			compareFolded(c.ids.regions.text(a.region), c.ids.regions.text(b.region)),
			compareFolded(c.ids.zones.text(a.zone), c.ids.zones.text(b.zone)),
			compareFolded(c.ids.nodes.text(a.node), c.ids.nodes.text(b.node)))
	}
	return cmp.Or(a.addr.Compare(b.addr), strings.Compare(a.host, b.host), strings.Compare(a.pod, b.pod))
}

// make makes the portions of the drafts that do not stay, and files all.
func (c *compiler) make(next, had *parts, drafts []draft) bool {
	if had != nil {
		next.at = slices.Clone(had.at)
	}
	var made []*portion
	for _, d := range drafts {
		if d.stays != nil {
			next.list = append(next.list, d.stays)
			continue
		}
		portions, ok := c.portions(d.inputs)
		if !ok {
			return false
		}
		for i, p := range portions {
			if p.id = d.id; i > 0 || had == nil {
				p.id = uint32(len(next.at))
				next.at = append(next.at, 0)
			}
		}
		next.list, made = append(next.list, portions...), append(made, portions...)
	}
	for i, p := range next.list {
		next.at[p.id] = uint32(i)
		next.nodes += p.countNodes()
	}
	return next.file(c.room, had, made)
}

// portions compiles endpoints, in as many portions as that takes.
func (c *compiler) portions(in []input) (out []*portion, ok bool) {
	p := compiler{
		service:  &service{suffix: c.suffix, rules: c.rules, ports: c.ports},
		settings: c.settings, podNames: c.podNames, ids: c.ids, regions: c.regions, shown: c.shown, partial: true, room: c.room,
	}
	p.v4, p.v6 = noAddresses[0], noAddresses[1]
	p.mix(in)
	p.locate()
	if p.united {
		return nil, false
	}
	in = p.inputs()
	if len(in) > c.sizes.most {
		for len(in) > 0 {
			n := (len(in) + c.sizes.usual - 1) / c.sizes.usual // portions that are to come
			size := c.cut(in, len(in)/n)
			more, ok := c.portions(in[:size])
			if !ok {
				return nil, false
			}
			out, in = append(out, more...), in[size:]
		}
		return out, true
	}
	p.markPublished()
	p.records()
	if p.spreads || len(p.taken) > 0 {
		return nil, false
	}
	made := &portion{part: p.part, of: in}
	for i := range in {
		made.count.note(&in[i])
	}
	made.count.named = count(p.named)
	return []*portion{made}, true
}

// cut is where to end a portion of at least about so many: between two nodes if it can
// be. The addresses of a pod are on one node, and they have a name together, which no two
// portions may have.
func (c *compiler) cut(in []input, about int) int {
	for n := about; n <= min(len(in), c.sizes.most); n++ {
		if n == len(in) || in[n].where.node != in[n-1].where.node {
			return n
		}
	}
	return about
}

// mix takes endpoints as merge does.
func (c *compiler) mix(in []input) {
	order := resize(&c.byAddress, len(in))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(i, j uint32) int { return in[i].addr.Compare(in[j].addr) })
	c.mixed, c.portsOf = c.mixed[:0], c.portsOf[:0]
	for _, i := range order {
		i := &in[i]
		from := len(c.portsOf)
		c.listPorts(i.ports, i.condition)
		c.mixed = append(c.mixed, endpoint{
			identity: i.identity, condition: i.condition, hints: i.hints, weight: defaultWeight,
			node: c.ids.nodes.text(i.where.node), zone: c.ids.zones.text(i.where.zone), region: c.ids.regions.text(i.where.region),
			told:   telling{i.where.node != 0 || i.where.zone != 0, i.ready, i.created},
			listed: i.ports, ports: c.portsOf[from:],
		})
	}
	c.dividePorts()
}

// inputs are what the endpoints were made from, in order of places.
func (c *compiler) inputs() []input {
	in := make([]input, len(c.eps))
	for i := range c.eps {
		e := &c.eps[i]
		in[i] = input{e.identity, e.where, e.condition, e.told.created, e.hints, e.listed}
	}
	return in
}

// tally is what all endpoints of a Service decide together: how many there are of each
// kind.
type tally struct{ ready, draining, serving, odd, hinted, named int }

func (t *tally) note(i *input) {
	t.ready += count(i.ready)
	t.serving += count(i.serving)
	t.draining += count(isDraining(i.condition))
	t.odd += count(!i.ready || !i.serving)
	t.hinted += count(i.hints != registry.Hints{})
}

func (t *tally) add(u *tally) {
	t.ready += u.ready
	t.serving += u.serving
	t.draining += u.draining
	t.odd += u.odd
	t.hinted += u.hinted
	t.named += u.named
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

func (c *compiler) tally(drafts []draft) (t tally) {
	for _, d := range drafts {
		if d.stays != nil {
			t.add(&d.stays.count)
		}
		for i := range d.inputs {
			t.note(&d.inputs[i])
		}
	}
	return t
}

// publishing is who is published.
type publishing struct {
	publish  Readiness
	fallback Fallback
	falls    bool // nobody has that Readiness
}

func (c *compiler) publishing(t *tally) publishing {
	some := [...]bool{Ready: t.ready > 0, Serving: t.serving > 0, All: true}
	return publishing{c.settings.Publish, c.settings.Fallback, !some[c.settings.Publish]}
}

// rule is whom to publish, and whether the fallback does.
func (p *publishing) rule(t *tally) (shown func(condition) bool, fallsBack bool) {
	if !p.falls {
		return readinessRules[p.publish], false
	}
	return fallbackRules[p.fallback], p.fallback == FallbackAll || p.fallback == FallbackServing && t.draining > 0
}
