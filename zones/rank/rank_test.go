package rank

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func seeded() *Client { return &Client{Rand: rand.NewPCG(1, 2)} }

func TestShuffleIsAPermutation(t *testing.T) {
	c := seeded()
	for _, n := range []int{0, 1, 2, 3, 10, 1000} {
		for _, want := range []int{0, 1, n / 2, n, n + 5} {
			got := Shuffle.Rank(nil, n, want, c)
			if len(got) != min(n, want) {
				t.Fatalf("n=%d want=%d: got %d indexes", n, want, len(got))
			}
			sorted := slices.Clone(got)
			slices.Sort(sorted)
			if len(slices.Compact(sorted)) != len(got) || len(got) > 0 && int(sorted[len(sorted)-1]) >= n {
				t.Fatalf("n=%d want=%d: not distinct numbers below n: %v", n, want, got)
			}
			for i, v := range c.identity {
				if int(v) != i {
					t.Fatalf("n=%d want=%d: the client's list is not restored at %d: %d", n, want, i, v)
				}
			}
		}
	}
}

func TestShuffleAppends(t *testing.T) {
	got := Shuffle.Rank([]uint32{7, 8}, 3, 3, seeded())
	if len(got) != 5 || got[0] != 7 || got[1] != 8 {
		t.Fatalf("got %v", got)
	}
}

// Every target must be first, and be anywhere in a cut set, as often as the others.
func TestShuffleIsEven(t *testing.T) {
	const n, want, rounds = 10, 3, 100_000
	c := seeded()
	var first, in [n]float64
	var dst []uint32
	for range rounds {
		dst = Shuffle.Rank(dst[:0], n, want, c)
		first[dst[0]]++
		for _, v := range dst {
			in[v]++
		}
	}
	for i := range n {
		if share := first[i] / rounds * n; math.Abs(share-1) > 0.05 {
			t.Errorf("target %d is first %.3f times as often as it should be", i, share)
		}
		if share := in[i] / rounds * n / want; math.Abs(share-1) > 0.05 {
			t.Errorf("target %d is in the set %.3f times as often as it should be", i, share)
		}
	}
}

func TestSameSeedSameOrder(t *testing.T) {
	a := Shuffle.Rank(nil, 50, 50, seeded())
	b := Shuffle.Rank(nil, 50, 50, seeded())
	if !slices.Equal(a, b) {
		t.Fatalf("%v\n%v", a, b)
	}
}

func BenchmarkShuffle(b *testing.B) {
	for _, n := range []int{10, 50_000} {
		b.Run("", func(b *testing.B) {
			c := seeded()
			dst := Shuffle.Rank(nil, n, 10, c)
			b.ReportAllocs()
			for b.Loop() {
				dst = Shuffle.Rank(dst[:0], n, 10, c)
			}
		})
	}
}
