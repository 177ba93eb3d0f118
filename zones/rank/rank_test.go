package rank

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func seeded() *Client { return &Client{Rand: rand.NewPCG(1, 2)} }

// targets makes n of them with these weights, round and round, and keys.
func targets(order Order, n int, weights ...uint16) *Targets {
	t := &Targets{Order: order}
	for i := range n {
		t.Keys = append(t.Keys, Mix(uint64(i)+1))
		if len(weights) > 0 {
			t.Weights = append(t.Weights, weights[i%len(weights)])
		}
		t.Sorted = append(t.Sorted, uint32(i))
	}
	if t.Weights != nil {
		t.Sums = NewSums(t.Weights, nil)
	}
	if order == Hash {
		t.Index = NewIndex(t.Keys, t.Weights)
	}
	slices.SortFunc(t.Sorted, func(i, j uint32) int { return cmp.Compare(t.Keys[i], t.Keys[j]) })
	return t
}

// What is spared changes nothing: Fixed takes those with the smallest keys.
func TestFixedOfATier(t *testing.T) {
	c := seeded()
	for round := range 2000 {
		n := 1 + c.Rand.Uint64()%200
		from, to := int(c.Rand.Uint64()%(n+1)), int(c.Rand.Uint64()%(n+1))
		tier := Tier{0, min(from, to), max(from, to), int(n)}
		want := int(c.Rand.Uint64() % 12)
		for _, weights := range [][]uint16{nil, {1, 7, 1, 300}} {
			tt := targets(Fixed, int(n), weights...)
			var all []uint32
			for i := range tier.Len() {
				all = append(all, uint32(tier.at(i)))
			}
			slices.SortFunc(all, func(i, j uint32) int { return cmp.Compare(tt.Keys[i], tt.Keys[j]) })
			if got := c.Rank(nil, tt, tier, want); !slices.Equal(got, all[:min(want, len(all))]) {
				t.Fatalf("round %d, weights %v, %v of %d: %v, want %d of %v", round, weights, tier, n, got, want, all)
			}
		}
	}
}

// Whatever the order, what comes out is distinct members of the tier, as many as are
// wanted and there.
func TestRankIsASubset(t *testing.T) {
	c := seeded()
	for _, order := range []Order{Shuffle, Rotate, Hash, Fixed} {
		for _, weights := range [][]uint16{nil, {1, 2, 3}, {1, 60000}} {
			for _, n := range []int{1, 2, 3, 10, 1000} {
				for _, tier := range []Tier{{0, n, n, n}, {0, n / 3, n / 2, n}, {n / 2, n / 2, n / 2, n}, {0, 0, 0, 0}} {
					for _, want := range []int{0, 1, n / 5, n, n + 5} {
						c.Turn++
						got := c.Rank([]uint32{1 << 30}, targets(order, n, weights...), tier, want)
						what := fmt.Sprintf("order %d weights %v n %d tier %v want %d: %v", order, weights, n, tier, want, got)
						if got[0] != 1<<30 || len(got)-1 != min(tier.Len(), want) {
							t.Fatal(what)
						}
						got = slices.Sorted(slices.Values(got[1:]))
						if len(slices.Compact(got)) != len(got) {
							t.Fatal("not distinct: ", what)
						}
						for _, v := range got {
							if i := int(v); !(tier.Start <= i && i < tier.End || tier.Start2 <= i && i < tier.End2) {
								t.Fatal("not of the tier: ", what)
							}
						}
						for i, v := range c.identity {
							if int(v) != i {
								t.Fatalf("the client's list is not restored at %d: %s", i, what)
							}
						}
					}
				}
			}
		}
	}
}

func TestRankMembers(t *testing.T) {
	tt := targets(Shuffle, 10)
	tt.List = []uint32{2, 3, 5, 7}
	got := seeded().Rank(nil, tt, Tier{1, 4, 4, 4}, 9)
	if slices.Sort(got); !slices.Equal(got, []uint32{3, 5, 7}) {
		t.Fatal(got)
	}
	// By weight, where few are wanted of many.
	some := targets(Shuffle, 100, 1, 3)
	for i := range uint32(40) {
		some.List = append(some.List, 2*i+i%2) // 0, 3, 4, 7: of weights 1, 3, 1, 3
	}
	some.Sums = NewSums(some.Weights, some.List)
	c, heavy := seeded(), 0
	for range 10_000 {
		got := c.Rank(nil, some, Tier{0, 40, 40, 40}, 1)
		if !slices.Contains(some.List, got[0]) {
			t.Fatal(got)
		}
		heavy += int(got[0] % 2)
	}
	if heavy < 7250 || heavy > 7750 {
		t.Errorf("%d of 10,000 have three quarters of the weight", heavy)
	}
}

// Of N rounds, chi-square of how often each target came first must not be beyond what
// chance does once in 10,000 times.
func TestShuffleIsUniform(t *testing.T) {
	const n, rounds = 20, 100_000
	for _, want := range []int{1, 3, n} {
		var first [n]float64
		c, tt := seeded(), targets(Shuffle, n)
		for range rounds {
			first[c.Rank(nil, tt, Tier{0, 7, 7, n}, want)[0]]++
		}
		chi := 0.0
		for _, f := range first {
			chi += (f - rounds/n) * (f - rounds/n) / (rounds / n)
		}
		if chi > 50.8 { // 19 degrees of freedom, p = 0.0001
			t.Errorf("want %d: chi-square %.1f", want, chi)
		}
	}
}

// Each target comes first as often as its weight says, in each of the ways that
// weights are drawn by.
func TestWeights(t *testing.T) {
	const rounds = 10_000
	for _, c := range []struct {
		what    string
		order   Order
		n, want int
		weights []uint16
	}{
		{"all of them", Shuffle, 4, 4, []uint16{10, 30, 60, 100}},
		{"few of many", Shuffle, 40, 2, []uint16{10, 30, 60, 100}},
		{"most of them", Shuffle, 12, 7, []uint16{10, 30, 60, 100}},
		{"one has nearly all", Shuffle, 40, 10, append([]uint16{60000}, slices.Repeat([]uint16{1}, 39)...)},
	} {
		t.Run(c.what, func(t *testing.T) {
			tt, client := targets(c.order, c.n, c.weights...), seeded()
			firsts := make([]float64, len(c.weights))
			for range rounds {
				firsts[int(client.Rank(nil, tt, Tier{0, c.n, c.n, c.n}, c.want)[0])%len(c.weights)]++
			}
			sum := 0.0
			for _, w := range c.weights {
				sum += float64(w)
			}
			for i, w := range c.weights {
				if w < 10 {
					continue // too rare to count
				}
				if got, want := firsts[i]/rounds, float64(w)/sum; math.Abs(got-want) > 0.05*max(want, 0.2) {
					t.Errorf("weight %d comes first in %.3f of the answers, want %.3f", w, got, want)
				}
			}
		})
	}
}

func TestRotateAndFixed(t *testing.T) {
	c := seeded()
	tt := targets(Rotate, 5)
	for i := range uint32(12) {
		c.Turn = i
		got := c.Rank(nil, tt, Tier{0, 2, 3, 5}, 4)
		all := []uint32{0, 1, 3, 4}
		if want := append(slices.Clone(all[i%4:]), all[:i%4]...); !slices.Equal(got, want) {
			t.Errorf("turn %d: %v, want %v", i, got, want)
		}
	}
	tt = &Targets{Order: Fixed, Keys: []uint64{3, 1, 2, 0}}
	if got := c.Rank(nil, tt, Tier{0, 4, 4, 4}, 3); !slices.Equal(got, []uint32{3, 1, 2}) {
		t.Errorf("fixed: %v", got)
	}
}

func TestNothingIsAllocated(t *testing.T) {
	for _, order := range []Order{Shuffle, Rotate, Hash, Fixed} {
		for _, weights := range [][]uint16{nil, {1, 2, 3}} {
			c, tt := seeded(), targets(order, 1000, weights...)
			dst := c.Rank(nil, tt, Tier{0, 1000, 1000, 1000}, 1000)
			if n := testing.AllocsPerRun(100, func() {
				dst = c.Rank(dst[:0], tt, Tier{0, 100, 300, 1000}, 10)
				dst = c.Rank(dst[:0], tt, Tier{0, 100, 300, 1000}, 900)
			}); n != 0 {
				t.Errorf("order %d, weights %v: %v allocations", order, weights, n)
			}
		}
	}
}

func BenchmarkRank(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 5000} {
		for _, order := range []Order{Shuffle, Rotate, Hash, Fixed} {
			for _, weights := range [][]uint16{nil, {1, 2, 3}} {
				b.Run(fmt.Sprintf("order=%d/weights=%t/n=%d", order, weights != nil, n), func(b *testing.B) {
					c, tt := seeded(), targets(order, n, weights...)
					dst := c.Rank(nil, tt, Tier{0, n, n, n}, 10)
					b.ReportAllocs()
					for b.Loop() {
						dst = c.Rank(dst[:0], tt, Tier{0, n, n, n}, 10)
					}
				})
			}
		}
	}
}
