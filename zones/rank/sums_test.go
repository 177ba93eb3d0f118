package rank

import (
	"slices"
	"testing"
)

// Each part of a tier's sum leads to the target that has it, whatever the weights.
func TestSumsFind(t *testing.T) {
	c := seeded()
	for _, weights := range [][]uint16{
		{1}, {3}, {65535}, {1, 2, 3}, {1, 60000}, {60000, 1, 1}, slices.Repeat([]uint16{1}, 100), slices.Repeat([]uint16{7, 9}, 100),
		append(slices.Repeat([]uint16{1}, 300), 60000), append([]uint16{60000}, slices.Repeat([]uint16{2, 1}, 200)...),
	} {
		list := someOf(len(weights), c.Rand)
		for _, l := range [][]uint32{nil, list} {
			n := len(weights)
			if l != nil {
				n = len(l)
			}
			sums := NewSums(weights, l)
			for range 20 {
				ends := []int{0, int(c.below(uint64(n + 1))), int(c.below(uint64(n + 1))), n}
				slices.Sort(ends)
				tier := Tier{ends[0], ends[1], ends[2], ends[3]}
				v := uint64(0)
				for i := range tier.Len() {
					at := tier.at(i)
					number := at
					if l != nil {
						number = int(l[at])
					}
					weight := uint64(weights[number])
					for _, v := range []uint64{v, v + weight/2, v + weight - 1} {
						if got := sums.find(tier, v); got != at {
							t.Fatalf("weights %v, list %v, %v: %d leads to %d, want %d", weights, l, tier, v, got, at)
						}
					}
					v += weight
				}
				if got := sums.of(tier); got != v {
					t.Fatalf("weights %v, list %v, %v: the sum is %d, want %d", weights, l, tier, got, v)
				}
			}
		}
	}
}

func BenchmarkNewSums(b *testing.B) {
	weights := slices.Repeat([]uint16{1, 2, 3, 4}, 1250)
	b.ReportAllocs()
	for b.Loop() {
		NewSums(weights, nil)
	}
}
