package zones

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// What becomes of endpoints.
const (
	whyAnswered = "answered"
	whySpilled  = "answered, for a part of the load"
	whyPart     = "answered in part, the rest does not fit"
	whyTier     = "a nearer tier has enough"
	whyDrawn    = "not drawn for this answer: a nearer tier takes most of the load"
	whyHints    = "not meant for the asker's place"
	whyLimit    = "beyond the limit"
	whyFit      = "does not fit"
	whyScope    = "not in the scope"
	whyWeight   = "weight 0"
	whyFamily   = "an address of the other family"
	whyNoPort   = "no such port"
	whyUnnamed  = "no port has a name"
	whyNameless = "no name that a record could lead to"
	whyOther    = "has another name"
	whyHidden   = "neither ready nor serving"
)

// recompile is what the Service of a zone was compiled from, as far as an explanation
// needs it. Records have the numbers that they have there.
func (a *Answer) recompile(s *service, z *zone) *compiler {
	settings, _ := z.knobs.settings(s.source)
	// Numbers that are given here, to what the Set does not know, are forgotten.
	ids := a.set.ids
	for _, n := range []*names{&ids.nodes, &ids.zones, &ids.regions} {
		n.list = slices.Clip(n.list)
	}
	c := &compiler{
		service:  &service{suffix: s.suffix},
		settings: &settings, podNames: z.endpointNames == ByPod, ids: &ids, regions: a.set.atlas.regions, room: newRoom(),
	}
	c.collect(s.source)
	c.publish()
	c.addresses()
	c.owners()
	c.srvs()
	return c
}

// explained is an endpoint of the compiler on its way into an Explanation.
func (e *endpoint) explained() ExplainedEndpoint {
	return ExplainedEndpoint{
		Address: e.addr.String(), Name: e.name(), Pod: e.pod, Node: e.node, Zone: e.zone, Region: e.region,
		Conditions: e.condition.String(), Weight: int(e.weight),
	}
}

// outcomes finds out what becomes of the endpoints of one Service.
type outcomes struct {
	*Answer
	c    *compiler
	name partsBelow
	near [4]span // of the asker

	group    []uint32       // endpoints that a name of their own leads to
	member   map[uint32]int // of a record, in the set
	position map[int]int    // of a member, in the order of the answer
	written  map[uint32]int // of a record, in the message
	head     map[uint32]int // of the place of a record: the endpoint that is shown for it
}

func (a *Answer) outcomes() *outcomes {
	o := &outcomes{Answer: a, c: a.recompile(a.service, a.zone), name: a.below()}
	o.near = a.service.areas.near(a.asker.where)
	if !a.decision.placed {
		o.near = [4]span{3: a.service.areas.all()}
	}
	if a.own || a.RCode == NXDomain && !a.viewed && o.name.label != "" {
		o.group, _ = o.c.answering(o.c.meant(o.name.label))
	}
	o.readAnswer()
	return o
}

// explainEndpoints says of each endpoint what became of it.
func (a *Answer) explainEndpoints(e *Explanation) {
	o := a.outcomes()
	eps := o.c.eps
	shown, reasons, weighted := o.toChoose()
	if !weighted && !a.own && slices.ContainsFunc(shown, func(records []uint32) bool { return len(records) > 0 }) {
		e.step("all of them have the weight 0, so nobody is left out for it")
	}
	if w := &o.c.settings.Weights; !w.none() && !a.own && len(eps) > 0 && !slices.ContainsFunc(eps, func(e endpoint) bool {
		_, named := w.find(e.host, e.pod, e.addr, e.node, e.zone)
		return named
	}) {
		e.step("weights name none of the endpoints")
	}
	o.head = map[uint32]int{}
	for i := range eps {
		for _, k := range shown[i] {
			// Of endpoints with one record the one that tells its place, else the first.
			place := o.place(k)
			if had, ok := o.head[place]; !ok || uint32(i) == place && had != i {
				o.head[place] = i
			}
		}
	}
	for i := range eps { // whoever has the same name may have other ports
		if len(shown[i]) > 0 {
			if head := o.head[o.place(shown[i][0])]; head != i {
				shown[head] = unique(append(shown[head], shown[i]...))
			}
		}
	}

	tiers := make([]ExplainedTier, 4)
	type answered struct {
		at int
		ExplainedEndpoint
	}
	var first []answered
	var rest []int
	all := make([]ExplainedEndpoint, len(eps))
	tierOf := make([]int, len(eps)) // of those that were to choose from, else -1
	for i := range eps {
		all[i] = eps[i].explained()
		x := &all[i]
		tierOf[i] = -1
		place := uint32(i)
		if len(shown[i]) > 0 {
			place = o.place(shown[i][0])
		}
		tier := o.tier(place)
		x.Tier = o.tierName(tier)
		if x.Why = reasons[i]; len(shown[i]) == 0 {
			rest = append(rest, i)
			continue
		}
		if head := o.head[place]; head != i {
			x.Why = "shares the records of " + eps[head].text()
			rest = append(rest, i)
			continue
		}
		at, why := o.outcome(shown[i], tier)
		x.Why = why
		if why != whyScope {
			tierOf[i] = tier
			tiers[tier].Endpoints++
		}
		if at >= 0 {
			x.Answered = true
			tiers[tier].Answered++
			first = append(first, answered{at, *x})
		} else {
			rest = append(rest, i)
		}
	}
	o.drawn(tiers, all, tierOf)
	slices.SortFunc(first, func(a, b answered) int { return cmp.Compare(a.at, b.at) })
	for i := range first {
		e.Endpoints = append(e.Endpoints, first[i].ExplainedEndpoint)
	}
	for _, i := range rest {
		e.Endpoints = append(e.Endpoints, all[i])
	}
	for t := range tiers {
		if tiers[t].Endpoints > 0 {
			tiers[t].Tier = o.tierName(t)
			e.Tiers = append(e.Tiers, tiers[t])
		}
	}
	e.Records = o.count(all, shown)
}

// toChoose are the records of each endpoint that there were to choose from, why there
// are none, and whether weights counted.
func (o *outcomes) toChoose() (shown [][]uint32, reasons []string, weighted bool) {
	eps := o.c.eps
	shown, reasons = make([][]uint32, len(eps)), make([]string, len(eps))
	for i := range eps {
		shown[i], reasons[i] = o.records(uint32(i))
		weighted = weighted || len(shown[i]) > 0 && eps[i].weight > 0
	}
	for i := range eps {
		if weighted && eps[i].weight == 0 && len(shown[i]) > 0 && !o.own {
			shown[i], reasons[i] = nil, whyWeight
		}
	}
	return shown, reasons, weighted
}

// meant are the endpoints that a label means, whether it leads to them or not.
func (c *compiler) meant(label string) (group []uint32) {
	if i, ok := c.searchLabel([]byte(label)); ok {
		return c.owner(i)
	}
	if addr, isAddr := parseDashed([]byte(label)); isAddr {
		for i := range c.eps {
			if c.eps[i].addr == addr {
				group = append(group, uint32(i))
			}
		}
	}
	return group
}

// readAnswer finds the records of the set that was answered, and which of them are in
// the message.
func (o *outcomes) readAnswer() {
	a, r := o.Answer, &o.Answer.records
	o.member, o.position, o.written = map[uint32]int{}, map[int]int{}, map[uint32]int{}
	if r.set == nil {
		return
	}
	for i := range uint32(r.n) {
		for _, k := range a.numbers(i) {
			o.member[k] = int(i)
		}
	}
	for at, endpoint := range o.order {
		o.position[int(endpoint)] = at
	}
	if o.isNegative {
		return
	}
	if o.glue && len(o.appended) > 0 {
		for at, srv := range o.appended {
			before := a.numbersBefore()
			if srv.in != nil {
				before = srv.in.number
			}
			o.written[before+srv.record] = at
		}
		return
	}
	for at, endpoint := range o.order[:o.decision.written] { // each has one record
		o.written[a.numbers(endpoint)[0]] = at
	}
}

// numbers are the records of an endpoint of the set, by their numbers among all of the
// Service, as recompile has them.
func (a *Answer) numbers(endpoint uint32) (all []uint32) {
	r, before := &a.records, a.numbersBefore()
	if r.ranking != nil && r.pieces != nil {
		var of *piece
		of, endpoint = r.find(endpoint)
		r, before = &of.rrset, of.number
	}
	for at := r.first(endpoint); at < r.after(endpoint); at++ {
		all = append(all, before+r.at(at))
	}
	return all
}

// numbersBefore is how many records of the Service are in parts before the one that the
// set is of, if it is of one.
func (a *Answer) numbersBefore() (n uint32) {
	for p := range a.service.all {
		switch a.records.list {
		case &p.v4.list, &p.v6.list, &p.srv:
			return n
		}
		switch l := a.records.list; {
		case a.glue:
			n += uint32(p.srv.len())
		case l.size == sizeA:
			n += uint32(p.v4.len())
		default:
			n += uint32(p.v6.len())
		}
	}
	return 0
}

// place is the endpoint of a record by such a number.
func (o *outcomes) place(record uint32) uint32 {
	switch {
	case o.glue:
		return o.c.srv.place(record)
	case o.Answer.records.size == sizeA:
		return o.c.v4.place(record)
	}
	return o.c.v6.place(record)
}

// records are those by which an endpoint can be answered; where there are none, why.
func (o *outcomes) records(i uint32) (records []uint32, why string) {
	a, e := o.Answer, &o.c.eps[i]
	r := &a.records
	switch {
	case a.RCode == NXDomain && slices.Contains(o.group, i):
		return nil, whyHidden + ", so it has no name"
	case a.RCode == NXDomain:
		return nil, "the name does not exist"
	case r.set == nil || o.name.isPort && !a.glue:
		return nil, "no records of type " + typeText(a.question.Type)
	case a.own && !slices.Contains(o.group, i) && o.shares(e):
		return nil, "not " + readyWord(o.c.settings.Publish) + ", and others of this name are"
	case a.own && !slices.Contains(o.group, i):
		return nil, whyOther
	case !a.glue && e.addr.Is4() != (r.list == &a.part.v4.list):
		return nil, whyFamily
	case !a.own && !o.shown(e.condition):
		return nil, "not " + readyWord(o.readiness())
	case !a.glue:
		return []uint32{o.c.eps[i].record}, ""
	case e.kind == noName:
		return nil, whyNameless
	case len(e.ports) == 0:
		return nil, whyUnnamed
	}
	why = whyNoPort
	for j, p := range e.ports {
		if !o.name.has(p.Port) {
			continue
		}
		if !a.own && !o.shown(p.condition) {
			why = "not " + readyWord(o.readiness()) + " at that port"
			continue
		}
		records = append(records, e.srv[j])
	}
	return unique(records), why
}

// shares says whether the name asked for is also an endpoint's.
func (o *outcomes) shares(e *endpoint) bool {
	label := o.name.label
	if _, ok := o.c.searchLabel([]byte(label)); ok {
		return e.host == label || e.pod == label && slices.IndexFunc(o.c.eps, func(e endpoint) bool { return e.host == label }) < 0
	}
	addr, ok := parseDashed([]byte(label))
	return ok && addr == e.addr
}

// readiness is what the name asks for: a view, or what the Service publishes.
func (o *outcomes) readiness() Readiness {
	if o.viewed {
		return o.viewOf
	}
	return o.c.settings.Publish
}

// shown says whether the name shows what is in a condition.
func (o *outcomes) shown(c condition) bool {
	if o.viewed {
		return readinessRules[o.viewOf](c)
	}
	return o.c.shown(c)
}

// tier is the nearest tier that holds a place.
func (o *outcomes) tier(place uint32) int {
	return slices.IndexFunc(o.near[:], func(t span) bool { return t.start <= int(place) && int(place) < t.end })
}

func (o *outcomes) tierName(tier int) string {
	if !o.decision.placed {
		return tierAll
	}
	return tierNames[tier]
}

// outcome is where in the message the first of an endpoint's records is, or -1, and
// why.
func (o *outcomes) outcome(records []uint32, tier int) (at int, why string) {
	d := &o.decision
	at, whole := -1, true
	records = o.together(records)
	for _, k := range records {
		if n, ok := o.written[k]; !ok {
			whole = false
		} else if at < 0 || n < at {
			at = n
		}
	}
	position, ordered := o.positionOf(records)
	nearest := d.placed && d.topology == TopologyNearest
	switch chosen := o.chosen(&o.Answer.records); {
	case at >= 0 && !whole:
		return at, whyPart
	case at >= 0 && nearest && d.share < 1 && tier > int(d.tier) && o.priority(position) == uint16(d.tier):
		return at, whySpilled
	case at >= 0:
		return at, whyAnswered
	case ordered:
		return -1, whyFit
	case o.scope.given && !slices.ContainsFunc(records, func(k uint32) bool {
		return o.isChosen(chosen, o.member[k])
	}):
		return -1, whyScope
	case d.hinted && !o.hinted(records):
		return -1, whyHints
	case nearest && !o.glue && tier > int(d.tier):
		return -1, whyTier
	case !o.own && o.service.limit > 0 && len(o.order) >= int(o.service.limit):
		return -1, whyLimit
	}
	return -1, whyFit
}

// priority is that of a place in the order of the answer.
func (o *outcomes) priority(position int) uint16 {
	i := slices.IndexFunc(o.segments, func(s segment) bool { return position < s.end })
	return o.segments[i].priority
}

// together are all records of the members that some records are of.
func (o *outcomes) together(records []uint32) (all []uint32) {
	for _, k := range records {
		all = append(all, o.numbers(uint32(o.member[k]))...)
	}
	return unique(all)
}

// hinted says whether one of the records is meant for the asker's place.
func (o *outcomes) hinted(records []uint32) bool {
	for _, m := range o.Answer.records.hints.of(o.asker.where) {
		for _, k := range records {
			if o.member[k] == int(m) {
				return true
			}
		}
	}
	return false
}

// drawn tells those that were not drawn for the spill of TopologyNearest from those
// of tiers of which nobody was to be.
func (o *outcomes) drawn(tiers []ExplainedTier, all []ExplainedEndpoint, tierOf []int) {
	d := &o.decision
	if !d.placed || d.topology != TopologyNearest || d.share >= 1 {
		return
	}
	next := int(d.tier) + 1
	for next < len(tiers)-1 && tiers[next].Endpoints == 0 {
		next++
	}
	for i := range all {
		if all[i].Why == whyTier && (tierOf[i] == next || tiers[tierOf[i]].Answered > 0) {
			all[i].Why = whyDrawn
		}
	}
}

// count is how many records the answer has with those that do not fit.
func (o *outcomes) count(all []ExplainedEndpoint, shown [][]uint32) (n int) {
	if o.Answer.records.set == nil || o.isNegative {
		return 0
	}
	more := len(o.c.eps) // endpoints beyond the order that the limit allows
	if o.service.limit > 0 && !o.own {
		more = max(0, int(o.service.limit)-len(o.order))
	}
	for i := range all {
		switch _, ordered := o.positionOf(shown[i]); {
		case all[i].Why != whyFit && all[i].Why != whyAnswered && all[i].Why != whySpilled && all[i].Why != whyPart:
			continue
		case !ordered && more == 0:
			continue
		case !ordered:
			more--
		}
		n += len(o.together(shown[i]))
	}
	return n
}

func (o *outcomes) positionOf(records []uint32) (at int, ok bool) {
	for _, k := range records {
		if at, ok = o.position[o.member[k]]; ok {
			break
		}
	}
	return at, ok
}

// text tells an endpoint from others.
func (e *endpoint) text() string {
	switch name := cmp.Or(e.pod, e.host); name {
	case "":
		return e.addr.String()
	default:
		return fmt.Sprintf("%s (%v)", name, e.addr)
	}
}

// explainHolders says of each Service that has an address what it calls it.
func (a *Answer) explainHolders(e *Explanation) {
	named := 0
	ttl := uint32(math.MaxUint32)
	var rest []ExplainedEndpoint
	for i := range a.holders {
		s, _ := a.set.services[0].getString(a.holders[i].by.key)
		svc := s.source.Key.String()
		label := ""
		if a.holders[i].named {
			called := nameText(s.appendCanonical(nil, a.ptrAddr))
			label, _, _ = strings.Cut(called, ".")
			e.step("Service %s calls it %s", svc, called)
			ttl = min(ttl, s.ttl)
			named++
		} else {
			e.step("Service %s has no name for it", svc)
		}
		c := a.recompile(s, a.set.cfg.zones[0])
		var head *endpoint
		for j := range c.eps {
			ep := &c.eps[j]
			if ep.addr != a.ptrAddr {
				continue
			}
			x := ep.explained()
			x.Service = svc
			switch {
			case label == "" && !ep.named:
				x.Why = "neither published nor serving"
			case label == "":
				x.Why = whyNameless
			case x.Name != label || !ep.named:
				x.Why = "the address has another name"
			case head != nil:
				x.Why = "shares the records of " + head.text()
			case named > a.decision.written:
				head, x.Why = ep, whyFit
			default:
				head, x.Answered, x.Why = ep, true, whyAnswered
			}
			if x.Answered {
				e.Endpoints = append(e.Endpoints, x)
			} else {
				rest = append(rest, x)
			}
		}
	}
	e.Endpoints = append(e.Endpoints, rest...)
	e.Records = named
	if named > 1 {
		e.step("TTL %d s, the shortest of theirs", ttl)
	} else {
		e.step("TTL %d s", ttl)
	}
}
