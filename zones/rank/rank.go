// Package rank puts targets in order: numbers in, numbers out. It knows neither
// names nor addresses.
//
// Targets stand in a list, those of one place side by side. A Tier is a piece of
// that list, nearer ones come first, and within a tier the Order and the weights
// decide. What one question needs to write to is in its Client; all else is only
// read, by any number of goroutines at once.
package rank

import (
	"cmp"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// Order is how the targets of one tier are put in order.
type Order uint8

const (
	Shuffle Order = iota // by chance, weights counting
	Rotate               // as they stand, beginning with another one each time
	Hash                 // by the asker, who gets the same ones as long as they are there
	Fixed                // by Keys, the same for all
)

// Tier is up to two runs of the list: [Start, End) and then [Start2, End2).
type Tier struct{ Start, End, Start2, End2 int }

// Len is the number of targets in a tier.
func (t *Tier) Len() int { return t.End - t.Start + t.End2 - t.Start2 }

// has says whether a place in the list is in the tier.
func (t *Tier) has(at int) bool { return t.Start <= at && at < t.End || t.Start2 <= at && at < t.End2 }

// at is the place in the list of target i of the tier.
func (t *Tier) at(i int) int {
	if n := t.End - t.Start; i >= n {
		return t.Start2 + i - n
	}
	return t.Start + i
}

// Targets is what is ranked.
type Targets struct {
	// List holds the targets' numbers, in ascending order; nil is 0, 1, 2 …
	List []uint32

	Order Order

	// Weights of each target, by its number; nil is the same for all. None is 0.
	Weights []uint16
	// Sums of the weights of the list; nil: they are not known.
	Sums *Sums

	// Keys of each target, by its number: for Hash what tells it from others, for
	// Fixed its rank.
	Keys []uint64
	// Index of the Keys and the Weights, for Hash; nil: none.
	Index *Index
	// Sorted are the places in the list in order of the Keys, for Fixed.
	Sorted []uint32
}

func (t *Targets) number(at int) uint32 {
	if t.List == nil {
		return uint32(at)
	}
	return t.List[at]
}

// Client is what is known of the asker, and room to work in. It belongs to one
// goroutine.
type Client struct {
	// Rand is the only source of chance, so that a test can fix it.
	Rand *rand.PCG

	Key  uint64 // of the asker, for Hash
	Turn uint32 // for Rotate

	identity []uint32 // 0, 1, 2 … between two calls
	keyed    []keyed
	drawn    []uint32 // round in which each target was drawn
	round    uint32
}

type keyed struct {
	key uint64
	at  uint32
}

// NewClient returns a Client with its own random numbers.
func NewClient() *Client {
	return &Client{Rand: rand.NewPCG(rand.Uint64(), rand.Uint64())}
}

// Rank appends at most want targets of one tier to dst, best first, each once. It
// allocates only to grow dst and the client's room. Same targets, tier, client and
// chance: same order.
//
// What it costs depends on want, and not on how many targets there are, but where many of
// a tier are wanted, where Hash has no Index, or one that the tier, the list or uneven
// weights make useless, and for Fixed if the tier is a small part of the targets.
func (c *Client) Rank(dst []uint32, t *Targets, tier Tier, want int) []uint32 {
	n, start := tier.Len(), len(dst)
	if want = min(want, n); want <= 0 {
		return dst
	}
	switch {
	case n == 1:
		return append(dst, t.number(tier.at(0)))
	case t.Order == Rotate:
		first := int(c.Turn % uint32(n))
		for i := range want {
			dst = append(dst, t.number(tier.at((first+i)%n)))
		}
		return dst
	case t.Order == Hash && t.Keys != nil:
		return c.hash(dst, t, tier, want)
	case t.Order == Fixed && t.Sorted != nil && n*rare >= len(t.Sorted):
		for _, at := range t.Sorted {
			if tier.has(int(at)) {
				if dst = append(dst, t.number(int(at))); len(dst) == start+want {
					break
				}
			}
		}
		return dst
	case t.Order == Fixed && t.Keys != nil:
		return c.best(dst, t, tier, want, ranked)
	case t.Weights == nil:
		return c.shuffle(dst, t, tier, want)
	case t.Sums != nil && want*3 <= n*2:
		return c.draw(dst, t, tier, want)
	}
	return c.best(dst, t, tier, want, c.weighted)
}

// Chance is a number from 0 up to but not 1.
func (c *Client) Chance() float64 { return float64(c.Rand.Uint64()>>11) / (1 << 53) }

// below is a number from 0 to n-1, each as likely as the others but for a bias
// of less than n/2^64 (Lemire's multiplication).
func (c *Client) below(n uint64) uint64 {
	hi, _ := bits.Mul64(c.Rand.Uint64(), n)
	return hi
}

// shuffle is the first want steps of a Fisher-Yates shuffle on the client's list of
// 0, 1, 2 …, taken back afterwards in reverse. So drawing 10 of 50,000 costs as
// much as drawing 10 of 20.
func (c *Client) shuffle(dst []uint32, t *Targets, tier Tier, want int) []uint32 {
	n := tier.Len()
	for i := len(c.identity); i < n; i++ {
		c.identity = append(c.identity, uint32(i))
	}
	id := c.identity[:n]
	start := len(dst)
	luck, spent := uint64(0), uint64(math.MaxUint32)
	for i := range want {
		// As in below, but what the multiplication leaves of a random number is the next
		// one, as long as the choices made of it are fewer than 2^32.
		left := uint64(n - i)
		if spent *= left; spent > math.MaxUint32 {
			luck, spent = c.Rand.Uint64(), left
		}
		var j uint64
		j, luck = bits.Mul64(luck, left)
		j += uint64(i)
		id[i], id[j] = id[j], id[i]
		dst = append(dst, id[i])
	}
	// What stood at i was swapped with where the value drawn had stood. Undoing
	// needs no list of the swaps: every position below want, and every position
	// that a drawn value came from, gets its own number back.
	drawn := dst[start:]
	for _, v := range drawn {
		id[v] = v
	}
	for i := range want {
		id[i] = uint32(i)
	}
	if t.List == nil && tier.End-tier.Start == n && tier.Start == 0 {
		return dst // the list is the numbers
	}
	for i, v := range drawn {
		drawn[i] = t.number(tier.at(int(v)))
	}
	return dst
}

// draw draws targets by their weights, those that were drawn before counting no
// more: it tries again when it meets one. Where that happens too often, because few
// targets have most of the weight, all are put in order.
func (c *Client) draw(dst []uint32, t *Targets, tier Tier, want int) []uint32 {
	if n := len(t.Sums.before); len(c.drawn) < n {
		c.drawn = make([]uint32, n+n/2)
		c.round = 0
	}
	if c.round++; c.round == 0 { // wrapped
		clear(c.drawn)
		c.round = 1
	}
	start := len(dst)
	sum := t.Sums.of(tier)
	for tries := 4 * want; len(dst)-start < want; tries-- {
		if tries == 0 {
			return c.drawRest(dst, start, t, tier, want)
		}
		i := t.Sums.find(tier, c.below(sum))
		if c.drawn[i] == c.round {
			continue
		}
		c.drawn[i] = c.round
		dst = append(dst, uint32(i))
	}
	return t.numbered(dst, start)
}

// drawRest goes on with draw where a few targets have nearly all the weight: it leaves
// out those that were drawn, as gaps in the sums.
func (c *Client) drawRest(dst []uint32, start int, t *Targets, tier Tier, want int) []uint32 {
	before := t.Sums.before
	gaps := c.keyed[:0] // the drawn targets, in order: where they are among the sums of the tier
	gap := func(i uint32) {
		k := keyed{before[i], i}
		if int(i) >= tier.Start2 && tier.End2 > tier.Start2 && int(i) >= tier.End {
			k.key -= before[tier.Start2] - before[tier.End]
		}
		k.key -= before[tier.Start]
		at, _ := slices.BinarySearchFunc(gaps, k, func(a, b keyed) int { return cmp.Compare(a.key, b.key) })
		gaps = slices.Insert(gaps, at, k)
	}
	left := t.Sums.of(tier)
	for _, i := range dst[start:] {
		gap(i)
		left -= uint64(t.Weights[t.number(int(i))])
	}
	for len(dst)-start < want {
		v := c.below(left)
		for _, g := range gaps {
			if v < g.key {
				break
			}
			v += uint64(t.Weights[t.number(int(g.at))])
		}
		i := uint32(t.Sums.find(tier, v))
		gap(i)
		left -= uint64(t.Weights[t.number(int(i))])
		dst = append(dst, i)
	}
	c.keyed = gaps
	return t.numbered(dst, start)
}

// numbered puts the targets' numbers in the place of their places in the list.
func (t *Targets) numbered(dst []uint32, start int) []uint32 {
	for i, at := range dst[start:] {
		dst[start+i] = t.number(int(at))
	}
	return dst
}

// rare is the part of all targets, one of so many, below which a tier's own are looked
// at one by one rather than looked for among all.
const rare = 8

// fewKept are kept in order. More of them are kept as a heap, the last one on top.
const fewKept = 128

// keep keeps a target if it is one of the first so far, of which want are wanted. When
// there are as many, it returns the key of the last: who is above comes too late.
func (c *Client) keep(key uint64, number uint32, want int) (last uint64, full bool) {
	k, kept := keyed{key, number}, c.keyed
	switch {
	case want > fewKept:
		return c.keepMany(k, want)
	case len(kept) < want:
		kept = append(kept, k)
		c.keyed = kept
	case !k.less(kept[want-1]):
		return kept[want-1].key, true
	}
	i := len(kept) - 1
	for ; i > 0 && k.less(kept[i-1]); i-- {
		kept[i] = kept[i-1]
	}
	kept[i] = k
	return kept[len(kept)-1].key, len(kept) == want
}

func (c *Client) keepMany(k keyed, want int) (last uint64, full bool) {
	switch {
	case len(c.keyed) < want:
		c.keyed = append(c.keyed, k)
		up(c.keyed)
	case k.less(c.keyed[0]):
		c.keyed[0] = k
		down(c.keyed)
	}
	return c.keyed[0].key, len(c.keyed) == want
}

// take appends what was kept, the first one first.
func (c *Client) take(dst []uint32, want int) []uint32 {
	if want > fewKept {
		slices.SortFunc(c.keyed, func(a, b keyed) int {
			if a.less(b) {
				return -1
			}
			return 1
		})
	}
	for i := range c.keyed {
		dst = append(dst, c.keyed[i].at)
	}
	return dst
}

// best appends the targets with the smallest keys, in order of the keys.
func (c *Client) best(dst []uint32, t *Targets, tier Tier, want int, key func(t *Targets, n uint32) uint64) []uint32 {
	c.keyed = c.keyed[:0]
	for i := range tier.Len() {
		number := t.number(tier.at(i))
		c.keep(key(t, number), number, want)
	}
	return c.take(dst, want)
}

func (a keyed) less(b keyed) bool { return a.key < b.key || a.key == b.key && a.at < b.at }

func up(heap []keyed) {
	for i := len(heap) - 1; i > 0; {
		above := (i - 1) / 2
		if !heap[above].less(heap[i]) {
			return
		}
		heap[i], heap[above] = heap[above], heap[i]
		i = above
	}
}

func down(heap []keyed) {
	for i := 0; ; {
		below := 2*i + 1
		if below >= len(heap) {
			return
		}
		if right := below + 1; right < len(heap) && heap[below].less(heap[right]) {
			below = right
		}
		if !heap[i].less(heap[below]) {
			return
		}
		heap[i], heap[below] = heap[below], heap[i]
		i = below
	}
}

// ranked is the key of Fixed.
func ranked(t *Targets, n uint32) uint64 { return t.Keys[n] }

// weighted is a key by chance: the order of the keys is that of drawing by weight,
// one after the other (Efraimidis and Spirakis, 2006).
func (c *Client) weighted(t *Targets, n uint32) uint64 { return lot(c.Rand.Uint64(), t.Weights[n]) }

// lot turns a random number into a time of waiting, shorter by the weight. Floating
// point numbers that are not negative are in order of their bits.
func lot(random uint64, weight uint16) uint64 {
	return math.Float64bits(-math.Log(uniform(random)) / float64(weight))
}

// uniform is a number between 0 and 1, and neither.
func uniform(random uint64) float64 { return (float64(random>>11) + 0.5) / (1 << 53) }

// Mix spreads a number over all 64 bits (the finalizer of SplitMix64). It never
// changes: replicas must agree.
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}
