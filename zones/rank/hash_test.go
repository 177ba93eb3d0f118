package rank

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// byDefinition are all targets of a tier in the order of Hash, found the long way.
func byDefinition(asker uint64, t *Targets, tier Tier) []uint32 {
	s := scheduleOf(asker)
	type one struct {
		due    float64
		number uint32
	}
	var all []one
	for i := range tier.Len() {
		number := t.number(tier.at(i))
		key, weight := t.Keys[number], 1.0
		if t.Weights != nil {
			weight = float64(t.Weights[number])
		}
		step := (s.factor*(key>>(16*s.table)%(1<<slotBits)) + s.offset) % slots
		due := float64(step) - jitter*float64(Mix(s.salt^key))/(1<<64)
		if due < 0 {
			due += slots
		}
		all = append(all, one{-math.Log1p(-due/slots) / weight, number})
	}
	slices.SortFunc(all, func(a, b one) int {
		if a.due < b.due {
			return -1
		}
		return 1
	})
	numbers := make([]uint32, len(all))
	for i := range all {
		numbers[i] = all[i].number
	}
	return numbers
}

// someOf lists about two of three of the first n numbers.
func someOf(n int, r *rand.PCG) (list []uint32) {
	for i := range uint32(n) {
		if r.Uint64()%3 > 0 {
			list = append(list, i)
		}
	}
	return list
}

// A walk, a scan and the choice between them find what the definition says, of any tier
// and list.
func TestHashWays(t *testing.T) {
	c := seeded()
	below := func(n int) int { return int(c.Rand.Uint64() % uint64(n)) }
	walks, lists := 0, 0
	for round := range 3000 {
		n := 1 + below(1<<(1+below(11)))
		lopsided := append(slices.Repeat([]uint16{1}, 50), 60000)
		weights := [][]uint16{nil, nil, {1, 7, 1, 300}, {1, 2, 3}, {5}, lopsided}[below(6)]
		tt := targets(Hash, n, weights...)
		size := n
		if below(2) == 0 {
			tt.List = someOf(n, c.Rand)
			size = len(tt.List)
			if weights != nil {
				tt.Sums = NewSums(tt.Weights, tt.List)
			}
			if below(4) == 0 {
				tt.Sums = nil
			}
			lists++
		}
		ends := []int{0, below(size + 1), below(size + 1), size}
		slices.Sort(ends)
		tier, want := Tier{ends[0], ends[1], ends[2], ends[3]}, 1+below(1<<below(9))
		if want = min(want, tier.Len()); want == 0 {
			continue
		}
		c.Key = uint64(round)
		right := byDefinition(c.Key, tt, tier)[:want]
		check := func(way string, got []uint32) {
			if !slices.Equal(got, right) {
				t.Fatalf("asker %d, %d targets, %d listed, weights %v, %v: a %s finds %v, want %v", round, n, len(tt.List), weights, tier, way, got, right)
			}
		}
		s := scheduleOf(c.Key)
		c.scan(s, tt, tier, want, math.Inf(1))
		check("scan", c.take(nil, want))
		check("rank", c.Rank(nil, tt, tier, want))
		if tt.Index != nil {
			c.walk(s, tt, tier, want)
			check("walk", c.take(nil, want))
			walks++
		}
	}
	if walks < 500 || lists < 500 {
		t.Errorf("%d walks, %d lists", walks, lists)
	}
}

// A walk comes upon each slot at the step that the times are made of.
func TestScheduleIsAPermutation(t *testing.T) {
	for asker := range uint64(20) {
		s := scheduleOf(asker)
		stride := uint32(inverses()[s.factor])
		at := position{slot: uint32(slots-s.offset) * stride % slots}
		seen := make([]bool, slots)
		for step := range uint32(slots) {
			if seen[at.slot] || at.slot >= slots || at.step != step {
				t.Fatalf("asker %d sees slot %d twice, or at step %d as %d", asker, at.slot, step, at.step)
			}
			seen[at.slot] = true
			if at.slot < 1<<slotBits {
				key := uint64(at.slot) << (16 * s.table)
				if got := stepOf(s.seen(key)); got != step {
					t.Fatalf("asker %d: slot %d is seen at step %d, and its time is of step %d", asker, at.slot, step, got)
				}
			}
			at.advance(stride)
		}
	}
}

// The order of an asker is part of what replicas agree on, those of other versions, too.
func TestHashNeverChanges(t *testing.T) {
	tt, c := targets(Hash, 1000), seeded()
	weighted := targets(Hash, 1000, 1, 2, 3)
	for asker, want := range map[uint64][2][]uint32{
		0:              {{137, 696, 443, 398, 411}, {137, 443, 398, 113, 545}},
		1:              {{55, 629, 866, 435, 69}, {629, 55, 866, 197, 757}},
		math.MaxUint64: {{541, 398, 457, 175, 461}, {541, 398, 461, 457, 503}},
	} {
		c.Key = asker
		all := Tier{0, 1000, 1000, 1000}
		if got, weighed := c.Rank(nil, tt, all, 5), c.Rank(nil, weighted, all, 5); !slices.Equal(got, want[0]) || !slices.Equal(weighed, want[1]) {
			t.Errorf("asker %d: %v and by weight %v, want %v", asker, got, weighed, want)
		}
	}
}

// excess is by how much some counts differ from each other, beyond chance: the standard
// deviation of what they are of, as a part of the average. What chance itself may do
// once in some thousands of times is allowed for.
func excess(counts []float64) float64 {
	n, mean, sum := float64(len(counts)), 0.0, 0.0
	for _, c := range counts {
		mean += c / n
	}
	for _, c := range counts {
		sum += (c - mean) * (c - mean)
	}
	ratio := sum / (n - 1) / mean // chi-square by its degrees of freedom
	return math.Sqrt(max(0, ratio-1-4*math.Sqrt(2/(n-1))) / mean)
}

// Over many askers, whose keys follow each other, all targets come first as often, and
// are as often among the first. What is left are the slots that targets share, and the
// ones seen soon after others.
func TestHashIsEven(t *testing.T) {
	for _, c := range []struct {
		n, want, askers int
	}{
		{2, 1, 100_000}, {3, 2, 100_000}, {10, 3, 100_000}, {100, 10, 100_000}, {1000, 10, 200_000}, {5000, 10, 400_000},
	} {
		tt, client := targets(Hash, c.n), seeded()
		first, among := make([]float64, c.n), make([]float64, c.n)
		var got []uint32
		for asker := range c.askers {
			client.Key = uint64(asker)
			got = client.Rank(got[:0], tt, Tier{0, c.n, c.n, c.n}, c.want)
			first[got[0]]++
			for _, i := range got {
				among[i]++
			}
		}
		if e := excess(first); e > 0.04 {
			t.Errorf("of %d, who comes first differs by %.3f", c.n, e)
		}
		if e := excess(among); e > 0.02 {
			t.Errorf("of %d, who is among the first %d differs by %.3f", c.n, c.want, e)
		}
		t.Logf("of %d: first %.4f, among %d %.4f", c.n, excess(first), c.want, excess(among))
	}
}

// Two targets are together among the first as often as any two, unless they share a slot.
func TestHashPairs(t *testing.T) {
	const n, want, askers = 60, 6, 200_000
	tt, c := targets(Hash, n), seeded()
	var together [n][n]float64
	var got []uint32
	for asker := range askers {
		c.Key = uint64(asker)
		got = c.Rank(got[:0], tt, Tier{0, n, n, n}, want)
		for _, i := range got {
			for _, j := range got {
				together[i][j]++
			}
		}
	}
	var pairs []float64
	for i := range n {
		for j := range i {
			shared := false
			for table := range tables {
				shared = shared || slot(tt.Keys[i], table) == slot(tt.Keys[j], table)
			}
			if !shared {
				pairs = append(pairs, together[i][j])
			}
		}
	}
	if e := excess(pairs); e > 0.03 || len(pairs) < n*(n-1)/2-10 {
		t.Errorf("of %d pairs, how often they are together differs by %.3f", len(pairs), e)
	}
	t.Logf("%.4f", excess(pairs))
}

// Each target comes first as often as its weight says.
func TestHashWeights(t *testing.T) {
	const askers = 10_000
	for _, c := range []struct {
		n       int
		weights []uint16
	}{
		{2, []uint16{1, 3}}, {2, []uint16{1, 60000}}, {3, []uint16{1, 2, 3}}, {4, []uint16{10, 30, 60, 100}}, {40, []uint16{10, 30, 60, 100}},
		{100, append(slices.Repeat([]uint16{600}, 99), 60000)}, {1000, []uint16{1, 2, 3}}, {5000, []uint16{10, 30, 60, 100}},
	} {
		tt, client := targets(Hash, c.n, c.weights...), seeded()
		firsts := make([]float64, len(c.weights)) // by weight
		for asker := range askers {
			client.Key = uint64(asker)
			firsts[int(client.Rank(nil, tt, Tier{0, c.n, c.n, c.n}, 1)[0])%len(c.weights)]++
		}
		sum := 0.0
		for _, w := range c.weights {
			sum += float64(w)
		}
		for i, w := range c.weights {
			if got, want := firsts[i]/askers, float64(w)/sum; math.Abs(got-want) > 0.02 {
				t.Errorf("%d targets, weights %v: weight %d comes first in %.3f of the answers, want %.3f", c.n, c.weights, w, got, want)
			}
		}
	}
}

// The same asker gets the same targets; when one leaves, only those who had it get
// another, and keep the rest; and one that joins takes only its share. So it is where a
// set gets or loses its index, too.
func TestHashMovesOnlyItsShare(t *testing.T) {
	const want, askers = 5, 2000
	for _, n := range []int{2, 10, 100, fewest - 1, fewest, fewest + 1, 1000, 5000} {
		for _, weights := range [][]uint16{nil, {1, 5, 10}} {
			without, with := targets(Hash, n, weights...), targets(Hash, n+1, weights...)
			c, had := seeded(), 0
			for asker := range uint64(askers) {
				c.Key = asker
				before := c.Rank(nil, with, Tier{0, n + 1, n + 1, n + 1}, want)
				if again := c.Rank(nil, with, Tier{0, n + 1, n + 1, n + 1}, want); !slices.Equal(before, again) {
					t.Fatal("not the same twice")
				}
				after := c.Rank(nil, without, Tier{0, n, n, n}, want)
				kept := slices.DeleteFunc(slices.Clone(before), func(i uint32) bool { return i == uint32(n) })
				if len(kept) < len(before) {
					had++
				}
				if !slices.Equal(kept, after[:len(kept)]) {
					t.Fatalf("%d targets, weights %v: asker %d had %v, and has %v without %d", n+1, weights, asker, before, after, n)
				}
				// The same one leaves the tier, and not the set.
				if after := c.Rank(nil, with, Tier{0, n, n + 1, n + 1}, want); !slices.Equal(kept, after[:len(kept)]) {
					t.Fatalf("%d targets, weights %v: asker %d had %v, and has %v without %d in its tier", n+1, weights, asker, before, after, n)
				}
			}
			if share := float64(min(want, n+1)) / float64(n+1); weights == nil && math.Abs(float64(had)/askers-share) > 0.04 {
				t.Errorf("%d targets: %d of %d askers had it, want a share of %.3f", n+1, had, askers, share)
			}
		}
	}
}

// BenchmarkHash is for one asker after the other, unlike BenchmarkRank.
func BenchmarkHash(b *testing.B) {
	for _, want := range []int{2, 10, 70} {
		for _, n := range []int{10, 30, 100, 300, 1000, 5000, 50000} {
			for _, weights := range [][]uint16{nil, {1, 2, 3}} {
				b.Run(fmt.Sprintf("want=%d/weights=%t/n=%d", want, weights != nil, n), func(b *testing.B) {
					c, tt := seeded(), targets(Hash, n, weights...)
					dst := c.Rank(nil, tt, Tier{0, n, n, n}, want)
					for b.Loop() {
						c.Key++
						dst = c.Rank(dst[:0], tt, Tier{0, n, n, n}, want)
					}
				})
			}
		}
	}
}

// BenchmarkHashWays has both ways, for the choice between them.
func BenchmarkHashWays(b *testing.B) {
	for _, want := range []int{1, 10, 70} {
		for _, n := range []int{fewest, 500, 1000, 2000} {
			for _, weights := range [][]uint16{nil, {1, 2, 3}} {
				for _, way := range []string{"scan", "walk"} {
					b.Run(fmt.Sprintf("want=%d/weights=%t/n=%d/%s", want, weights != nil, n, way), func(b *testing.B) {
						c, tt := seeded(), targets(Hash, n, weights...)
						tier, likely := Tier{0, n, n, n}, likelyEnough(want)
						for b.Loop() {
							c.Key++
							if s := scheduleOf(c.Key); way == "walk" {
								c.walk(s, tt, tier, want)
							} else if !c.scan(s, tt, tier, want, likely) {
								c.scan(s, tt, tier, want, math.Inf(1))
							}
						}
					})
				}
			}
		}
	}
}

func BenchmarkNewIndex(b *testing.B) {
	for _, n := range []int{fewest, 1000, 5000, 50000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			tt := targets(Hash, n)
			b.ReportAllocs()
			for b.Loop() {
				NewIndex(tt.Keys, nil)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/target")
		})
	}
}
