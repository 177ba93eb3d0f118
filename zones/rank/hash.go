package rank

import (
	"math"
	"math/bits"
)

// Hash is rendezvous hashing: each asker and each target have a time between them, and
// the targets that are due first come first. When one leaves, the times of the others
// stay, and so only its own share moves; one that joins takes its share and no more.
// The times are made so that the early ones can be found without a look at all others.
//
// A target's key puts it into a slot, one of 16,411, which is a prime. An asker sees the
// slots in an order of its own, slot s at step factor*s + offset modulo that prime:
//
//	step           0      1     2      3     4 …   to an asker with factor 2, offset 1807
//	slot        7302  15508  7303  15509  7304 …
//
// A target is due when its slot is seen, or up to jitter steps before, on the fraction
// of a step. Over all askers that is any time at all, and the times of two targets have
// nothing to do with each other, unless both are in one slot.
//
// The first targets are found in one of two ways: from the time of each (scan), or going
// through the slots in the asker's order until what is still to come is due too late
// (walk). Both find the same, so nothing moves where a set grows from the one way into
// the other.
//
// With weights, a time is made exponentially distributed and divided by the weight: so
// each target is due first as often as its weight says.

const (
	// slots: with more of them there is more to walk through, with fewer of them more
	// targets share one, and with it their askers. It is the least prime above
	// 1<<slotBits.
	slots    = 16411
	slotBits = 14

	// tables is how many slots a target has. Each asker uses one of them, so that targets
	// that share a slot do so for a quarter of the askers.
	tables = 4

	// A time is a part of the 1<<64 that all steps take, turn is that of one step. It is
	// rounded up, so that the sum of many does not fall below the step that it is in.
	turn = (1<<64-1)/slots + 1

	// jitter, in steps, keeps targets whose slot is shared, or seen soon after another
	// one, from being the first less often than others. A walk is longer by it.
	jitter = 16
)

// schedule is when an asker sees the slots.
type schedule struct {
	salt           uint64
	table          int
	factor, offset uint64 // below slots, and factor is not 0
}

func scheduleOf(asker uint64) schedule {
	m := Mix(asker + 0x9e3779b97f4a7c15) // askers' keys need not be mixed
	const some = 1<<31 - 1
	return schedule{salt: m, table: int(m >> 62), factor: m>>31&some*(slots-1)>>31 + 1, offset: m & some * slots >> 31}
}

// slot is where the key of a target puts it.
func slot(key uint64, table int) uint32 {
	return uint32(key>>(table*(64/tables)&63)) & (1<<slotBits - 1)
}

// seen is when the slot of a target is seen. The sum of turns runs over with each round
// through the slots, which is the modulo.
func (s schedule) seen(key uint64) uint64 {
	return s.factor*turn*uint64(slot(key, s.table)) + s.offset*turn
}

// due is when a target is due whose slot is seen at a time. Before the first step is
// after the last one.
func (s schedule) due(seen, key uint64) uint64 {
	early, _ := bits.Mul64(Mix(s.salt^key), jitter*turn)
	return seen - early
}

// latest is when the slot of a target can be seen that is due by a time.
func latest(due uint64) uint64 {
	if due > math.MaxUint64-jitter*turn {
		return math.MaxUint64
	}
	return due + jitter*turn
}

// hash appends the targets that are due first.
func (c *Client) hash(dst []uint32, t *Targets, tier Tier, want int) []uint32 {
	s := scheduleOf(c.Key)
	likely := likelyEnough(want)
	switch {
	case t.Index != nil && t.walkPays(tier, want, likely):
		c.walk(s, t, tier, want)
	case likely > float64(tier.Len())/2 || !c.scan(s, t, tier, want, likely):
		c.scan(s, t, tier, want, math.Inf(1))
	}
	return c.take(dst, want)
}

// likelyEnough is how many targets must be due on the average for as many as are wanted
// to be due nearly always.
func likelyEnough(want int) float64 { return float64(want) + 3*math.Sqrt(float64(want)) + 2 }

// walkPays says whether a walk is likely to take less time than a scan.
func (t *Targets) walkPays(tier Tier, want int, likely float64) bool {
	n := float64(tier.Len())
	part := float64(want) / n // of the slots, to be walked
	if t.Weights != nil {
		if t.Sums == nil {
			return false
		}
		part = float64(want) * t.Index.heaviest / float64(t.Sums.of(tier))
	}
	// In nanoseconds, about, as measured with askers that take turns.
	const ofStep, ofTarget, ofLook, ofKept = 1.4, 60, 1, 35
	ofMember := 0.0
	if t.List != nil {
		ofMember = 50
	}
	steps := part*slots + jitter
	met := steps / slots * float64(len(t.Index.numbers[0]))
	return steps*ofStep+met*(ofTarget+ofMember) < n*ofLook+likely*ofKept
}

// scan keeps the targets that are due first, by looking at each. It passes over those
// that are due after as many as are likely, and says whether it has all that is wanted
// without them.
func (c *Client) scan(s schedule, t *Targets, tier Tier, want int, likely float64) bool {
	if t.Weights != nil {
		return c.scanWeighted(s, t, tier, want, likely)
	}
	limit := uint64(math.MaxUint64)
	if part := likely / float64(tier.Len()); part < 1 { // not so if it is infinite
		limit = uint64(part * (1 << 64))
	}
	c.keyed = c.keyed[:0]
	keys, list, last, found := t.Keys, t.List, latest(limit), false
	for _, run := range [2][2]int{{tier.Start, tier.End}, {tier.Start2, tier.End2}} {
		for at := run[0]; at < run[1]; at++ {
			number := uint32(at)
			if list != nil {
				number = list[at]
			}
			key := keys[number]
			if seen := s.seen(key); seen <= last {
				if due, full := c.keep(s.due(seen, key), number, want); full && due <= limit {
					last, found = latest(due), true
				}
			}
		}
	}
	return found
}

// scanWeighted is scan with weights.
func (c *Client) scanWeighted(s schedule, t *Targets, tier Tier, want int, likely float64) bool {
	limit := math.Inf(1)
	if t.Sums != nil {
		limit = likely / float64(t.Sums.of(tier))
	}
	c.keyed = c.keyed[:0]
	found := false
	for _, run := range [2][2]int{{tier.Start, tier.End}, {tier.Start2, tier.End2}} {
		for at := run[0]; at < run[1]; at++ {
			number := t.number(at)
			key, weight := t.Keys[number], t.Weights[number]
			// -log(1-u) is at least u.
			if seen := s.seen(key); float64(seen>>11) <= limit*float64(weight)*(1<<53)+(jitter+1)*(turn>>11) {
				due, full := c.keep(lot(^s.due(seen, key), weight), number, want)
				if longest := math.Float64frombits(due); full && longest <= limit {
					limit, found = longest, true
				}
			}
		}
	}
	return found
}

// walk keeps the targets that are due first, by going through the slots.
func (c *Client) walk(s schedule, t *Targets, tier Tier, want int) {
	x := t.Index
	cells, numbers := &x.cells[s.table], x.numbers[s.table]
	stride := uint32(x.inverse[s.factor])
	c.keyed = c.keyed[:0]
	longest := math.Inf(1)
	at := position{slot: uint32(slots-s.offset) * stride % slots}
	for last := uint32(slots - 1); at.seek(cells, stride, last); at.advance(stride) {
		cell, in := cells[at.slot/cellSlots], at.slot%cellSlots
		i := int(cell>>32) + bits.OnesCount32(uint32(cell)&((1<<in-1)*(1<<cellSlots+1)))
		for numbers[i]>>numberBits != in { // where a slot before has more than two
			i++
		}
		end := i + 1
		if cell>>(cellSlots+in)&1 != 0 {
			end = int(cells[at.slot/cellSlots+1] >> 32)
		}
		for ; i < end && numbers[i]>>numberBits == in; i++ {
			number := numbers[i] & (1<<numberBits - 1)
			if !t.in(tier, number) {
				continue
			}
			key := t.Keys[number]
			due := s.due(s.seen(key), key)
			if t.Weights == nil {
				if due, full := c.keep(due, number, want); full {
					last = stepOf(latest(due))
				}
				continue
			}
			weight := t.Weights[number]
			if float64(due>>11) > longest*float64(weight)*(1<<53)+turn>>11 { // -log(1-u) is at least u
				continue
			}
			if due, full := c.keep(lot(^due, weight), number, want); full {
				longest = math.Float64frombits(due)
				last = uint32(min(longest*x.heaviest*slots+jitter+1, slots-1))
			}
		}
	}
}

// stepOf is the step that a time is in.
func stepOf(time uint64) uint32 {
	step, _ := bits.Mul64(time, slots)
	return uint32(step)
}

// position is the slot that an asker sees at a step.
type position struct{ step, slot uint32 }

func (p *position) advance(stride uint32) {
	p.step++
	if p.slot += stride; p.slot >= slots {
		p.slot -= slots
	}
}

// seek goes on to the next slot that has targets, until the last step.
func (p *position) seek(cells *cells, stride, last uint32) bool {
	step, slot := p.step, p.slot
	for ; step <= last; step++ {
		if cells[slot/cellSlots]>>(slot%cellSlots)&1 != 0 {
			p.step, p.slot = step, slot
			return true
		}
		slot += stride
		if past := slot - slots; slot >= slots {
			slot = past
		}
	}
	return false
}

// in says whether a target is in a tier.
func (t *Targets) in(tier Tier, number uint32) bool {
	if t.List == nil {
		return tier.has(int(number))
	}
	i, j := tier.Start, max(tier.End, tier.End2)
	for i < j {
		if h := int(uint(i+j) >> 1); t.List[h] < number {
			i = h + 1
		} else {
			j = h
		}
	}
	return i < len(t.List) && t.List[i] == number && tier.has(i)
}
