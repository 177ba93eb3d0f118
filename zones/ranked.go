package zones

import (
	"encoding/binary"
	"math"
	"sync/atomic"

	"epdns/zones/rank"
)

// segment is a run of a ranked answer that clients of SRV records see as one.
type segment struct {
	end      int    // of the run in Answer.order
	priority uint16 // RFC 2782, lower ones first: the number of the tier
	scale    float64
}

// rank puts the endpoints of the set that is answered in order, as many as are wanted,
// into a.order and a.segments. Which ones, and in which order, is decided here alone.
func (a *Answer) rank(want int) {
	a.order, a.segments = a.order[:0], a.segments[:0]
	r, s := &a.records, a.service
	topology := s.topology
	all := a.chosen(r)
	if a.scope.given && topology != TopologyOff {
		topology = TopologyOrder // the scope has chosen
	}
	if s.limit > 0 && !a.own {
		want = min(want, int(s.limit))
	}
	a.targets = rank.Targets{Order: s.order}
	switch x := r.ranking; {
	case a.own && s.order == rank.Fixed: // as they stand, which is the same for all
		a.targets.Order, a.client.Turn = rank.Rotate, 0
	case a.own:
		a.targets.Order = rank.Shuffle
	case x != nil:
		a.targets.Weights, a.targets.Sums = x.weights, x.sums
		a.targets.Keys, a.targets.Index, a.targets.Sorted = x.keys, x.index, x.sorted
	}
	var members []uint32
	if a.listed { // rank does without what is not known of these
		members = a.members
		a.targets.List, a.targets.Sums, a.targets.Sorted = members, nil, nil
	}
	if s.order == rank.Rotate && !a.own {
		a.client.Turn = s.turnOf(r.list).Add(1)
	}
	d := &a.decision
	d.topology, d.share, d.tier, d.of, d.bound = topology, 1, 3, all.len(), want
	d.placed, d.hinted, d.written = false, false, 0
	if all.len() < 2 || topology == TopologyOff && s.order != rank.Hash || a.own {
		a.tier(rank.Tier{Start: all.start, End: all.end}, want, 0)
		return
	}
	a.ask()
	a.client.Key, a.luck = a.asker.key, a.asker.key
	if a.asker.neutral && s.order == rank.Hash {
		a.targets.Order = rank.Shuffle
	}
	if a.asker.where == (where{}) || topology == TopologyOff {
		a.tier(rank.Tier{Start: all.start, End: all.end}, want, 0)
		return
	}
	d.placed = true
	if topology == TopologyHints {
		if x := r.ranking; x != nil {
			if h := x.hints.find(a.asker.where); h != nil {
				members = h.members
				all, d.hinted, d.of = span{0, len(members)}, true, len(members)
				a.targets.List, a.targets.Sums, a.targets.Sorted = members, h.sums, h.sorted
			}
		}
	}
	near := s.areas.near(a.asker.where)
	if topology == TopologyNearest {
		a.nearest(near, want)
		return
	}
	inner := span{}
	for t, places := range near {
		outer := span{r.before(members, uint32(places.start)), r.before(members, uint32(places.end))}
		outer = outer.cut(all)
		if t == 0 {
			inner = span{outer.start, outer.start}
		}
		a.tier(rank.Tier{Start: outer.start, End: inner.start, Start2: inner.end, End2: outer.end}, want, uint16(t))
		inner = outer
	}
}

// turnOf counts the answers of a type.
func (s *service) turnOf(l *list) *atomic.Uint32 {
	switch l {
	case &s.v4.list:
		return &s.turns.a
	case &s.v6.list:
		return &s.turns.aaaa
	}
	return &s.turns.srv
}

// cut is the part of a span that lies within another; if nothing does, it is empty.
func (s span) cut(by span) span {
	s.start = min(max(s.start, by.start), by.end)
	return span{s.start, max(s.start, min(s.end, by.end))}
}

// within are the endpoints of the set at these places.
func (r *rrset) within(places span) span {
	return span{r.before(nil, uint32(places.start)), r.before(nil, uint32(places.end))}
}

// tier adds a tier to the order.
func (a *Answer) tier(t rank.Tier, want int, priority uint16) {
	a.order = a.client.Rank(a.order, &a.targets, t, want-len(a.order))
	if n := len(a.segments); t.Len() > 0 && (n == 0 || a.segments[n-1].end < len(a.order)) {
		a.segments = append(a.segments, segment{len(a.order), priority, 1})
	}
}

// nearest answers the nearest tier that has enough, and everything nearer. Where part
// of it is not ready, the next tier takes part of the load: by some of its endpoints
// in A and AAAA answers, by weights in SRV answers, which hold everybody.
func (a *Answer) nearest(near [4]span, want int) {
	var tiers [4]span
	chosen := 3
	for t := range near {
		tiers[t] = a.records.within(near[t])
		if t < chosen && tiers[t].len() >= max(1, int(a.service.min)) && a.service.ready.share(near[t]) > 0 {
			chosen = t
		}
	}
	next := chosen + 1
	for next < 4 && tiers[next] == tiers[chosen] {
		next++
	}
	share := a.service.ready.share(near[chosen])
	spills := share < 1 && next < 4
	a.decision.tier = int8(chosen)
	if spills {
		a.decision.share = share
	}
	in := tiers[chosen]
	if !a.glue {
		far := 0 // endpoints of the next tiers
		if spills {
			far = a.spilled(in.len(), share, want)
		}
		a.tier(rank.Tier{Start: in.start, End: in.end}, min(want-far, in.len()), uint16(chosen))
		had := len(a.order)
		for ; len(a.order) < had+far && next < 4; next++ {
			a.tier(outside(tiers[next], tiers[next-1]), min(want, had+far), uint16(chosen))
		}
		a.mix(had)
		return
	}
	far := 0
	if spills && a.service.fit == Cut {
		want = max(1, min(want, a.fitting)) // those of the next tier must fit, too
	}
	if spills && want <= in.len() { // some of those few are far, so that weights can do the rest
		if far = 1; want > 1 {
			far = max(1, int(math.Round(float64(want)*(1-share))))
		} else if a.lot() < share {
			far = 0
		}
	}
	a.tier(rank.Tier{Start: in.start, End: in.end}, want-far, uint16(chosen))
	for ; next < 4; next++ {
		out := outside(tiers[next], tiers[next-1])
		if out.Len() == 0 {
			continue
		}
		priority := uint16(next)
		if spills {
			priority = uint16(chosen)
		}
		a.tier(out, want, priority)
		if spills && len(a.segments) == 2 {
			a.scaleWeights(share)
		}
		spills = false
	}
}

// outside is a span without the one in it.
func outside(outer, inner span) rank.Tier {
	return rank.Tier{Start: outer.start, End: inner.start, Start2: inner.end, End2: outer.end}
}

// spilled is how many endpoints of the next tiers an answer gets beside near ones that
// take a share of the load, so that the far ones take the rest of it on the whole.
func (a *Answer) spilled(near int, share float64, want int) int {
	rest := 1 - share
	if near == 0 || rest <= 0 {
		return 0
	}
	// far/(near+far), or far/want where the answer is limited to fewer.
	part := func(far int) float64 { return float64(far) / float64(min(near+far, max(want, 1))) }
	far := int(math.Ceil(float64(near) * rest / share))
	if near+far > want {
		far = int(math.Ceil(float64(want) * rest))
	}
	if far == 0 {
		return 0
	}
	if high, low := part(far), part(far-1); high > low && a.lot() >= (rest-low)/(high-low) {
		far--
	}
	return far
}

// lot is a number from 0 up to but not 1, by chance where the order of endpoints is,
// and else always the same: for the asker, or for all.
func (a *Answer) lot() float64 {
	switch a.targets.Order {
	case rank.Hash:
		a.luck = rank.Mix(a.luck + 1)
		return float64(a.luck>>11) / (1 << 53)
	case rank.Fixed:
		return 0.5
	}
	return a.client.Chance()
}

// mix puts those from place near on among those before, for the many clients that take
// the first address: each place is as likely for each, and both keep their own order.
func (a *Answer) mix(near int) {
	if near == 0 || near == len(a.order) || a.targets.Order == rank.Fixed {
		return
	}
	a.far = append(a.far[:0], a.order[near:]...)
	for far := len(a.far); far > 0 && near > 0; {
		if i := near + far - 1; a.lot()*float64(near+far) < float64(far) {
			far--
			a.order[i] = a.far[far]
		} else {
			near--
			a.order[i] = a.order[near]
		}
		if near == 0 {
			copy(a.order, a.far[:far])
		}
	}
	a.segments = append(a.segments[:0], segment{len(a.order), a.segments[0].priority, 1})
}

// scaleWeights sets the scales of two segments so that clients divide their load
// between them: the first gets its share, the second the rest. The smallest weight
// becomes 100 if the largest can be as many times as large.
func (a *Answer) scaleWeights(share float64) {
	near, far := a.sumWeights(0, a.segments[0].end), a.sumWeights(a.segments[0].end, a.segments[1].end)
	if near.all == 0 || far.all == 0 || share <= 0 {
		return
	}
	ratio := near.all * (1 - share) / share / far.all
	least, most := min(near.least, far.least*ratio), max(near.most, far.most*ratio)
	scale := min(100/least, math.MaxUint16/most)
	a.segments[0].scale, a.segments[1].scale = scale, scale*ratio
}

// weightSum is what the weights of some endpoints come to.
type weightSum struct{ all, least, most float64 }

func (a *Answer) sumWeights(start, end int) (w weightSum) {
	for i, endpoint := range a.order[start:end] {
		r, endpoint := a.records.having(endpoint)
		weight := float64(binary.BigEndian.Uint16(r.record(r.at(r.first(endpoint)))[fixedSize+2:]))
		if w.all += weight; i == 0 {
			w.least = weight
		}
		w.least, w.most = min(w.least, weight), max(w.most, weight)
	}
	return w
}
