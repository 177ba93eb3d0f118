package rank

import "math/bits"

// Sums are the weights of a list of targets, added up, so that one can be drawn by its
// weight. They never change.
type Sums struct {
	before []uint64 // each target of the list, and all of them

	// at is, for each multiple of 1<<shift up to all, the last target that no more is
	// before. There are about as many as targets, so that between two of them is about
	// one.
	at    []uint32
	shift int
}

// NewSums adds up the weights of the targets of a list; nil is all that have weights.
func NewSums(weights []uint16, list []uint32) *Sums {
	n := len(list)
	if list == nil {
		n = len(weights)
	}
	s := &Sums{before: make([]uint64, n+1)}
	for i := range n {
		number := i
		if list != nil {
			number = int(list[i])
		}
		s.before[i+1] = s.before[i] + uint64(weights[number])
	}
	if n == 0 {
		return s
	}
	all := s.before[n]
	s.shift = bits.Len64(all / uint64(n))
	s.at = make([]uint32, all>>s.shift+2)
	last := 0
	for i := range s.at {
		for last+1 < n && s.before[last+1] <= uint64(i)<<s.shift {
			last++
		}
		s.at[i] = uint32(last)
	}
	return s
}

// of is the sum of the weights in a tier.
func (s *Sums) of(tier Tier) uint64 {
	sum := s.before[tier.End] - s.before[tier.Start]
	if tier.End2 > tier.Start2 {
		sum += s.before[tier.End2] - s.before[tier.Start2]
	}
	return sum
}

// find is the place in the list of the target of a tier that has the weight v of the
// tier's sum.
func (s *Sums) find(tier Tier, v uint64) int {
	if v += s.before[tier.Start]; v >= s.before[tier.End] {
		v += s.before[tier.Start2] - s.before[tier.End]
	}
	i, j := int(s.at[v>>s.shift]), int(s.at[v>>s.shift+1])+1
	for i+1 < j { // before[i] <= v < before[j]
		if h := int(uint(i+j) >> 1); s.before[h] <= v {
			i = h
		} else {
			j = h
		}
	}
	return i
}
