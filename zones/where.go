package zones

import (
	"cmp"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"strings"

	"epdns/registry"
)

// where is a place by numbers, which ids gives to names. 0 is not known.
type where struct{ node, zone, region uint32 }

// ids gives numbers to the names of nodes, zones and regions. A name keeps its
// number as long as the Builder lives; Sets share the tables.
type ids struct {
	nodes, zones, regions names
}

// len is how many names have numbers.
func (i *ids) len() int { return len(i.nodes.list) + len(i.zones.list) + len(i.regions.list) }

// names numbers names from 1 on, whatever their case, as they are compared in DNS.
type names struct {
	table table[uint32]
	list  []string // list[n-1] is name n as it was first spelled
}

// find is the number of a name, lower-cased, 0 where it has none.
func (n *names) find(name []byte) uint32 {
	id, _ := n.table.get(name)
	return id
}

// text is the name of a number, empty for 0.
func (n *names) text(id uint32) string {
	if id == 0 {
		return ""
	}
	return n.list[id-1]
}

// give is the number of a name, a new one where it has none.
func (n *names) give(name string) uint32 {
	if name == "" {
		return 0
	}
	key := strings.ToLower(name)
	if id, ok := n.table.getString(key); ok {
		return id
	}
	n.list = append(n.list, name)
	e := n.table.edit()
	e.set(key, uint32(len(n.list)))
	n.table = e.done()
	return uint32(len(n.list))
}

func (i *ids) give(node, zone, region string) where {
	return where{i.nodes.give(node), i.zones.give(zone), i.regions.give(region)}
}

// atlas tells where addresses are that no Service has: from the Nodes and from the
// configuration. It never changes once made.
type atlas struct {
	cluster ranges // InternalIPs and podCIDRs
	places  ranges // Clients.Places
	regions map[uint32]uint32
}

// newAtlas makes the atlas of these Nodes.
func newAtlas(nodes []*registry.Node, clients *Clients, id *ids) *atlas {
	a := &atlas{regions: map[uint32]uint32{}}
	byName := map[string]*registry.Node{}
	for _, n := range nodes {
		byName[n.Name] = n
		if w := id.give(n.Name, n.Zone, n.Region); w.zone != 0 && w.region != 0 {
			// Zones lie in one region. Where the labels say otherwise the first counts.
			if _, ok := a.regions[w.zone]; !ok {
				a.regions[w.zone] = w.region
			}
		}
	}
	// A Node that does not say its region is in that of its zone.
	place := func(n *registry.Node) where {
		w := id.give(n.Name, n.Zone, n.Region)
		w.region = orElse(w.region, a.regions[w.zone])
		return w
	}
	var list []rangeEntry
	// Of two Nodes with one address, one that is ready counts.
	sorted := slices.Clone(nodes)
	slices.SortStableFunc(sorted, func(a, b *registry.Node) int {
		if a.Ready != b.Ready {
			return sign(b.Ready)
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, n := range sorted {
		w := place(n)
		if clients.Off&FromNodes == 0 {
			for _, addr := range n.Addresses {
				list = append(list, newRange(netip.PrefixFrom(addr, addr.BitLen()), w, FromNodes))
			}
		}
	}
	for _, n := range sorted {
		if clients.Off&FromPodCIDRs == 0 {
			for _, p := range n.PodCIDRs {
				list = append(list, newRange(p, place(n), FromPodCIDRs))
			}
		}
	}
	a.cluster = newRanges(list)
	list = nil
	if clients.Off&FromPlaces == 0 {
		for _, p := range clients.Places {
			w := id.give(p.Node, p.Zone, p.Region)
			if n := byName[p.Node]; n != nil {
				w.zone = orElse(w.zone, id.zones.give(n.Zone))
				w.region = orElse(w.region, id.regions.give(n.Region))
			}
			w.region = orElse(w.region, a.regions[w.zone])
			list = append(list, newRange(p.Prefix, w, FromPlaces))
		}
	}
	a.places = newRanges(list)
	return a
}

func orElse(id, other uint32) uint32 {
	if id == 0 {
		return other
	}
	return id
}

// uint128 is an address as a number; IPv4 addresses are those of ::ffff:0:0/96.
type uint128 struct{ hi, lo uint64 }

func toNumber(addr netip.Addr) uint128 {
	b := addr.As16()
	return uint128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

// addr is the address of a number.
func (n uint128) addr() netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], n.hi)
	binary.BigEndian.PutUint64(b[8:], n.lo)
	return netip.AddrFrom16(b).Unmap()
}

func (n uint128) less(m uint128) bool { return n.hi < m.hi || n.hi == m.hi && n.lo < m.lo }

// mask has the low ones of a prefix of so many bits: those of the last address in it.
func lowOnes(bits int) uint128 {
	switch {
	case bits == 0:
		return uint128{^uint64(0), ^uint64(0)}
	case bits <= 64:
		return uint128{^uint64(0) >> bits, ^uint64(0)}
	case bits < 128:
		return uint128{0, ^uint64(0) >> (bits - 64)}
	}
	return uint128{}
}

func (n uint128) or(m uint128) uint128      { return uint128{n.hi | m.hi, n.lo | m.lo} }
func (n uint128) without(m uint128) uint128 { return uint128{n.hi &^ m.hi, n.lo &^ m.lo} }

func (n uint128) next() uint128 {
	lo, carry := bits.Add64(n.lo, 1, 0)
	return uint128{n.hi + carry, lo}
}

// ranges is a set of prefixes, laid flat: the whole of the addresses is cut where a
// prefix begins or ends, so that one binary search finds the longest one that an
// address lies in, and how far around it the answer is the same.
type ranges struct {
	starts  []uint128 // of the pieces, the first is 0
	piece   []int32   // the innermost entry of each, -1 for none
	entries []rangeEntry
}

// rangeEntry is a prefix and what is there. Bits are those of an IPv6 address.
type rangeEntry struct {
	first  uint128
	bits   int
	parent int32 // the entry around it, -1 for none
	where  where
	source Sources
}

func newRange(p netip.Prefix, w where, source Sources) rangeEntry {
	n := p.Bits()
	if p.Addr().Is4() {
		n += 96
	}
	return rangeEntry{first: toNumber(p.Addr()).without(lowOnes(n)), bits: n, where: w, source: source}
}

// compare is the order of prefixes: one that others are in comes before them.
func (e *rangeEntry) compare(f *rangeEntry) int {
	switch {
	case e.first.less(f.first):
		return -1
	case f.first.less(e.first):
		return 1
	}
	return cmp.Compare(e.bits, f.bits)
}

func (e *rangeEntry) last() uint128 { return e.first.or(lowOnes(e.bits)) }

// newRanges takes prefixes; of equal ones the first counts.
func newRanges(list []rangeEntry) ranges {
	slices.SortStableFunc(list, func(a, b rangeEntry) int { return a.compare(&b) })
	list = slices.CompactFunc(list, func(a, b rangeEntry) bool { return a.compare(&b) == 0 })
	r := ranges{starts: []uint128{{}}, piece: []int32{-1}, entries: list}
	cut := func(at uint128, entry int32) {
		if last := len(r.starts) - 1; r.starts[last] == at {
			r.piece[last] = entry
			return
		}
		r.starts, r.piece = append(r.starts, at), append(r.piece, entry)
	}
	open := int32(-1)
	shut := func(before uint128, all bool) { // ends what ends before an address
		for open >= 0 && (all || list[open].last().less(before)) {
			if end := list[open].last().next(); end != (uint128{}) {
				cut(end, list[open].parent)
			}
			open = list[open].parent
		}
	}
	for i := range list {
		shut(list[i].first, false)
		list[i].parent = open
		open = int32(i)
		cut(list[i].first, open)
	}
	shut(uint128{}, true)
	return r
}

// find is the longest prefix of at most so many bits, of one of the sources, that an
// address lies in, nil for none, and the piece that the address lies in.
func (r *ranges) find(n uint128, most int, of Sources) (e *rangeEntry, piece int) {
	i, j := 0, len(r.starts)
	for i+1 < j {
		if h := int(uint(i+j) >> 1); n.less(r.starts[h]) {
			j = h
		} else {
			i = h
		}
	}
	least := 0
	if n.hi == 0 && n.lo>>32 == 0xffff {
		least = 96 // IPv6 prefixes, ::/0 among them, hold no IPv4 addresses
	}
	for at := r.piece[i]; at >= 0; at = r.entries[at].parent {
		if e := &r.entries[at]; least <= e.bits && e.bits <= most && e.source&of != 0 {
			return e, i
		}
	}
	return nil, i
}

// same is how many bits of an address all those share that find the same as it: what
// find returned for it and most.
func (r *ranges) same(n uint128, piece int, e *rangeEntry, most int) (bits int) {
	if e != nil {
		bits = e.bits
	}
	if at := r.piece[piece]; at >= 0 && r.entries[at].bits > most {
		return r.entries[at].bits // whoever asks with more bits may find more
	}
	for ; bits < 128; bits++ {
		ones := lowOnes(bits)
		first, last := n.without(ones), n.or(ones)
		if !first.less(r.starts[piece]) && (piece+1 == len(r.starts) || last.less(r.starts[piece+1])) {
			break
		}
	}
	return bits
}

// contains says whether any of the prefixes holds an address.
func (r *ranges) contains(addr netip.Addr) bool {
	if len(r.entries) == 0 || !addr.IsValid() {
		return false
	}
	e, _ := r.find(toNumber(addr), 128, ^Sources(0))
	return e != nil
}

// overlaps says whether a prefix has an address in common with one of the ranges. It looks at all of
// them.
func (r *ranges) overlaps(p netip.Prefix) bool {
	q := newRange(p, where{}, 0)
	return slices.ContainsFunc(r.entries, func(e rangeEntry) bool {
		otherFamily := p.Addr().Is4() && e.bits < 96
		return !otherFamily && !e.last().less(q.first) && !q.last().less(e.first)
	})
}

func prefixes(list []netip.Prefix) ranges {
	var entries []rangeEntry
	for _, p := range list {
		entries = append(entries, newRange(p, where{}, ^Sources(0)))
	}
	return newRanges(entries)
}
