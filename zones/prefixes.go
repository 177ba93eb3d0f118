package zones

import "net/netip"

// Prefixes is a set of prefixes. It never changes; asking it costs no allocation. A nil
// one is empty.
type Prefixes struct{ ranges ranges }

// NewPrefixes returns the set of these, nil for none.
func NewPrefixes(list []netip.Prefix) *Prefixes {
	if len(list) == 0 {
		return nil
	}
	return &Prefixes{prefixes(list)}
}

// Contains says whether an address lies in one of the prefixes. An IPv4 address lies in
// IPv4 prefixes alone.
func (p *Prefixes) Contains(addr netip.Addr) bool { return p != nil && p.ranges.contains(addr) }

// Overlaps says whether one of the prefixes has an address in common with another one. It looks at
// all of them.
func (p *Prefixes) Overlaps(other netip.Prefix) bool { return p != nil && p.ranges.overlaps(other) }
