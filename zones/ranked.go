package zones

import (
	"math"

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
	if x := r.ranking; x != nil && !a.own {
		a.targets.Weights, a.targets.Sums, a.targets.Keys = x.weights, x.sums, x.keys
	}
	if s.order == rank.Rotate && !a.own {
		a.client.Turn = s.turn.Add(1)
	}
	d := &a.decision
	*d = decision{topology: topology, share: 1, want: want, tier: 3}
	if all.len() < 2 || topology == TopologyOff && s.order != rank.Hash || a.own {
		a.tier(rank.Tier{Start: all.start, End: all.end}, want, 0)
		return
	}
	a.ask()
	a.client.Key = a.asker.key
	if a.asker.neutral && s.order == rank.Hash {
		a.targets.Order = rank.Shuffle
	}
	if a.asker.where == (where{}) || topology == TopologyOff {
		a.tier(rank.Tier{Start: all.start, End: all.end}, want, 0)
		return
	}
	d.placed = true
	var members []uint32
	if topology == TopologyHints {
		if x := r.ranking; x != nil {
			members = x.hints.of(a.asker.where)
		}
		if a.targets.List = members; members != nil {
			all, a.targets.Sums, d.hinted = span{0, len(members)}, nil, true
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

// cut is the part of a span that lies within another; if nothing does, it is empty.
func (s span) cut(by span) span {
	s.start = min(max(s.start, by.start), by.end)
	return span{s.start, max(s.start, min(s.end, by.end))}
}

// within are the endpoints of the set at these places.
func (a *Answer) within(places span) span {
	return span{a.records.before(nil, uint32(places.start)), a.records.before(nil, uint32(places.end))}
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
		tiers[t] = a.within(near[t])
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
		for ; far > 0 && next < 4; next++ {
			had := len(a.order)
			a.tier(outside(tiers[next], tiers[next-1]), min(want, had+far), uint16(chosen))
			far -= len(a.order) - had
		}
		return
	}
	a.tier(rank.Tier{Start: in.start, End: in.end}, want, uint16(chosen))
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
			a.scaleWeights(in, out, share)
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
	if high, low := part(far), part(far-1); high > low && a.client.Chance() >= (rest-low)/(high-low) {
		far--
	}
	return far
}

// scaleWeights sets the scales of two segments so that clients divide their load
// between them: the first gets its share, the second the rest. The smallest weight
// becomes 100 if the largest can be as many times as large.
func (a *Answer) scaleWeights(in span, out rank.Tier, share float64) {
	t := &a.targets
	sum := func(start, end int) (n uint64, least, most uint16) {
		least = math.MaxUint16
		for i := start; i < end; i++ {
			w := uint16(1)
			if t.Weights != nil {
				w = t.Weights[i]
			}
			n, least, most = n+uint64(w), min(least, w), max(most, w)
		}
		return n, least, most
	}
	nearSum, nearLeast, nearMost := sum(in.start, in.end)
	farSum, farLeast, farMost := sum(out.Start, out.End)
	sum2, least2, most2 := sum(out.Start2, out.End2)
	farSum, farLeast, farMost = farSum+sum2, min(farLeast, least2), max(farMost, most2)
	if nearSum == 0 || farSum == 0 || share <= 0 {
		return
	}
	ratio := float64(nearSum) * (1 - share) / share / float64(farSum)
	least := min(float64(nearLeast), float64(farLeast)*ratio)
	most := max(float64(nearMost), float64(farMost)*ratio)
	scale := min(100/least, math.MaxUint16/most)
	a.segments[0].scale, a.segments[1].scale = scale, scale*ratio
}
