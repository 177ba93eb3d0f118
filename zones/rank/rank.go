// Package rank puts targets in order: numbers in, numbers out. It knows neither
// names nor addresses.
//
// A Ranker is immutable and may be used by any number of goroutines at once;
// what one question needs to write to is in its Client.
package rank

import (
	"math/bits"
	"math/rand/v2"
)

// Ranker orders the targets 0 to n-1 for one asker.
type Ranker interface {
	// Rank appends target indexes to dst, best first, each at most once, and at
	// most want of them. It must not block, allocate (but to grow dst or the
	// client's scratch) or keep dst. Same n, client and randomness: same order.
	Rank(dst []uint32, n, want int, c *Client) []uint32
}

// Client is what a Ranker may know of the asker, and its room to work in. It
// belongs to one goroutine.
type Client struct {
	// Rand is the only source of chance, so that a test can fix it.
	Rand *rand.PCG

	// identity holds 0, 1, 2 … between two calls.
	identity []uint32
}

// NewClient returns a Client with its own random numbers.
func NewClient() *Client {
	return &Client{Rand: rand.NewPCG(rand.Uint64(), rand.Uint64())}
}

// below is a number from 0 to n-1, each as likely as the others but for a bias
// of less than n/2^64 (Lemire's multiplication).
func (c *Client) below(n int) int {
	hi, _ := bits.Mul64(c.Rand.Uint64(), uint64(n))
	return int(hi)
}

// Shuffle gives every order the same chance.
var Shuffle Ranker = shuffle{}

type shuffle struct{}

// Rank is the first want steps of a Fisher-Yates shuffle on the client's list of
// 0, 1, 2 …, taken back afterwards in reverse. So drawing 10 of 50,000 costs as
// much as drawing 10 of 20.
func (shuffle) Rank(dst []uint32, n, want int, c *Client) []uint32 {
	for i := len(c.identity); i < n; i++ {
		c.identity = append(c.identity, uint32(i))
	}
	want = min(want, n)
	id := c.identity[:n]
	start := len(dst)
	for i := range want {
		j := i + c.below(n-i)
		id[i], id[j] = id[j], id[i]
		dst = append(dst, id[i])
	}
	// What stood at i was swapped with where the value drawn had stood. Undoing
	// needs no list of the swaps: every position below want, and every position
	// that a drawn value came from, gets its own number back.
	for _, v := range dst[start:] {
		id[v] = v
	}
	for i := range want {
		id[i] = uint32(i)
	}
	return dst
}
