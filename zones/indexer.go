package zones

import (
	"net/netip"
	"slices"

	"epdns/registry"
)

// This file moves the addresses of Services in the index: those that are new, gone, or of
// which they say something else.

// indexer keeps the index, and what is counted by it.
type indexer struct {
	reverse  []reverseZone
	podCIDRs lies // how far the podCIDRs can be believed
	places   map[where]*where

	// Of one Build.
	lists  *edit[listed]
	blocks *edit[int]
	atlas  *atlas // that podCIDRs are counted by

	// The list that is being changed, which is the next address's too as a rule.
	open    []byte // its key, empty for none
	list    []holder
	changed bool

	// Room, and what is in it of the Service that is moved.
	was, now []found
	tales    []tale
}

// tale is what slices that have changed say of an address: as they were, and as they are.
type tale struct {
	addr    netip.Addr
	was, is standing
	whole   bool // is takes in what the other slices say
}

// keptRoom is for how many addresses room is kept for the next Build: enough for what
// changes usually, some 250 KB.
const keptRoom = 6000

// start begins the changes of one Build.
func (x *indexer) start(from *index, blocks *table[int], atlas *atlas) {
	x.lists, x.blocks, x.atlas = from.lists.edit(), blocks.edit(), atlas
}

// done ends them.
func (x *indexer) done() (index, table[int]) {
	x.close()
	lists, blocks := x.lists.done(), x.blocks.done()
	x.lists, x.blocks, x.atlas = nil, nil, nil
	if cap(x.was)+cap(x.now)+cap(x.tales) > keptRoom {
		x.was, x.now, x.tales = nil, nil, nil
	}
	return index{lists}, blocks
}

// move puts a Service as it is now in the place of what it was. Either is nil where
// there is none. What both have in common costs little, and their common parts nothing.
func (x *indexer) move(key string, old, now *service) {
	var was *indexed
	if old != nil {
		was = old.indexed
	}
	if now != nil {
		is := indexed{key, isClusterDNS(now.source), now.hidden}
		if now.indexed = was; was == nil || *was != is {
			now.indexed = new(indexed)
			*now.indexed = is
		}
	}
	all := was == nil || now == nil || now.indexed != was
	x.was, x.now = appendFound(x.was[:0], old, now, all), appendFound(x.now[:0], now, old, all)
	x.compare(old, now)
	a, b, tales := x.was, x.now, x.tales
	for len(a)+len(b) > 0 {
		c := 0
		switch {
		case len(b) == 0:
			c = -1
		case len(a) == 0:
			c = 1
		default:
			c = a[0].addr.Compare(b[0].addr)
		}
		if c < 0 {
			x.put(a[0].addr, was, nil)
			a = a[1:]
			continue
		}
		addr := b[0].addr
		for len(tales) > 0 && tales[0].addr.Less(addr) {
			tales = tales[1:]
		}
		var told *tale
		if len(tales) > 0 && tales[0].addr == addr {
			told = &tales[0]
		}
		h, w := b[0].holder(now.indexed)
		if c > 0 {
			x.complete(&h, w, told, 0)
			x.put(addr, was, &h)
		} else {
			before, at := a[0].holder(was)
			if h != before || w != at || told != nil && told.was != told.is {
				x.complete(&h, w, told, x.standing(addr, was))
				x.put(addr, was, &h)
			}
			a = a[1:]
		}
		b = b[1:]
	}
	clear(x.was) // which would keep parts
	clear(x.now)
}

// found is where an address of a Service is.
type found struct {
	addr   netip.Addr
	part   *part
	record uint32
}

// appendFound appends the addresses of a Service in order; not those of portions that another
// has too, unless all are wanted.
func appendFound(dst []found, s, other *service, all bool) []found {
	if s == nil {
		return dst
	}
	if s.parts == nil {
		return s.part.appendFound(dst)
	}
	for _, q := range s.parts.list {
		if all || other.parts == nil || !other.parts.has(q) {
			dst = q.part.appendFound(dst)
		}
	}
	slices.SortFunc(dst, func(a, b found) int { return a.addr.Compare(b.addr) })
	return dst
}

// appendFound appends the addresses of a part: those of each family in order.
func (p *part) appendFound(dst []found) []found {
	for _, f := range [...]*addresses{p.v4, p.v6} {
		for _, record := range f.order {
			addr, _ := netip.AddrFromSlice(f.record(record)[fixedSize:])
			dst = append(dst, found{addr, p, record})
		}
	}
	return dst
}

// holder is what a Service says of the address, and where that is; not how much that
// counts.
func (f *found) holder(by *indexed) (h holder, at where) {
	in := f.part.family(f.addr)
	name := in.name(int(f.record))
	h = holder{by: by, named: name != unnamed && !by.hidden, host: name != byAddress && name&podNamed == 0}
	return h, f.part.areas.at(in.place(f.record))
}

// complete adds to a holder where it says that the address is, and how much that counts:
// by what slices that have changed say, and by how much it counted so far.
func (x *indexer) complete(h *holder, w where, told *tale, so standing) {
	if told != nil && told.whole {
		so = told.is
	} else if told != nil {
		so = max(so, told.is)
	}
	h.ready, h.created = so>>32 != 0, uint32(so)
	if w == (where{}) {
		return
	}
	if h.place = x.places[w]; h.place == nil {
		if x.places == nil {
			x.places = map[where]*where{}
		}
		h.place = new(where)
		*h.place = w
		x.places[w] = h.place
	}
}

// standing is how much it counts so far what a Service says of an address.
func (x *indexer) standing(addr netip.Addr, by *indexed) standing {
	last := x.find(addr)
	for i, end := held(x.list, last); i < end; i++ {
		if x.list[i].by == by {
			return x.list[i].standing()
		}
	}
	return 0
}

// compare tells tales, in order of addresses, of the slices that have changed.
func (x *indexer) compare(old, now *service) {
	x.tales = x.tales[:0]
	for was, is := range pairs(old.slices(), now.slices()) {
		if was == is {
			continue
		}
		gone := func(i int) {
			x.tales = append(x.tales, tale{addr: was.Endpoints.Addr(i), was: standingOf(was.Endpoints.Ready(i), uint32(was.Created))})
		}
		come := func(i int) {
			x.tales = append(x.tales, tale{addr: is.Endpoints.Addr(i), is: standingOf(is.Endpoints.Ready(i), uint32(is.Created))})
		}
		if inParts(old, now) {
			unlike(was, is, gone, come)
			continue
		}
		for i := range lenOf(was) {
			gone(i)
		}
		for i := range lenOf(is) {
			come(i)
		}
	}
	slices.SortFunc(x.tales, func(a, b tale) int { return a.addr.Compare(b.addr) })
	n := 0
	for _, t := range x.tales {
		if n > 0 && x.tales[n-1].addr == t.addr {
			last := &x.tales[n-1]
			last.was, last.is = max(last.was, t.was), max(last.is, t.is)
			continue
		}
		x.tales[n] = t
		n++
	}
	x.tales = x.tales[:n]
	x.complement(old, now)
}

// complement looks into the slices that have not changed for addresses of which the
// others say less than before: these may say more than that now.
func (x *indexer) complement(old, now *service) {
	var some [1024]bool // the bits of such addresses
	bits := func(addr netip.Addr) int {
		a := addr.As16()
		return int(a[14]&3)<<8 | int(a[15])
	}
	any := false
	for i := range x.tales {
		if t := &x.tales[i]; t.is < t.was && now != nil {
			if _, t.whole = now.holds(t.addr).findAddr(t.addr); t.whole {
				some[bits(t.addr)], any = true, true
			}
		}
	}
	if !any || inParts(old, now) {
		return
	}
	for was, sl := range pairs(old.slices(), now.slices()) {
		if was != sl {
			continue
		}
		for i := range sl.Endpoints.Len() {
			addr := sl.Endpoints.Addr(i)
			if !some[bits(addr)] {
				continue
			}
			at, ok := slices.BinarySearchFunc(x.tales, addr, func(t tale, addr netip.Addr) int { return t.addr.Compare(addr) })
			if ok && x.tales[at].whole {
				x.tales[at].is = max(x.tales[at].is, standingOf(sl.Endpoints.Ready(i), uint32(sl.Created)))
			}
		}
	}
}

// inParts says whether a Service has been in parts and still is: then each address is in one
// slice, and there once.
func inParts(old, now *service) bool {
	return old != nil && old.parts != nil && now != nil && now.parts != nil
}

// slices are those that addresses come from.
func (s *service) slices() []*registry.Slice {
	if s == nil || s.external {
		return nil
	}
	return s.source.Slices
}

// put puts a holder in the place of the one that a Service was for an address. Either
// is nil where there is none.
func (x *indexer) put(addr netip.Addr, was *indexed, is *holder) {
	last := x.find(addr)
	i, j := held(x.list, last)
	x.podCIDRs.count(x.atlas, addr, x.list[i:j], -1)
	named := anyNamed(x.list[i:j])
	for k := i; k < j && was != nil; k++ {
		if x.list[k].by == was {
			x.list = slices.Delete(x.list, k, k+1)
			j--
		}
	}
	if is != nil {
		is.last = last
		k := i
		for k < j && x.list[k].before(is) {
			k++
		}
		x.list = slices.Insert(x.list, k, *is)
		j++
	}
	x.podCIDRs.count(x.atlas, addr, x.list[i:j], 1)
	if anyNamed(x.list[i:j]) != named {
		x.countBlocks(addr, sign(!named))
	}
	x.changed = true
}

// find opens the list that an address is in.
func (x *indexer) find(addr netip.Addr) (last uint8) {
	var buf [16]byte
	key, last := listKey(&buf, addr)
	if string(key) != string(x.open) {
		x.close()
		x.open = append(x.open, key...)
		list, _ := x.lists.get(key)
		x.list = append(x.list, list.holders...)
	}
	return last
}

// close takes over the changes of a list.
func (x *indexer) close() {
	switch {
	case !x.changed:
	case len(x.list) == 0:
		x.lists.remove(string(x.open))
	default:
		list := listed{holders: slices.Clone(x.list)}
		for i := range x.list {
			list.has |= 1 << x.list[i].last
		}
		x.lists.set(string(x.open), list)
	}
	clear(x.list)
	x.open, x.list, x.changed = x.open[:0], x.list[:0], false
}

// countBlocks counts an address in each reverse name between its own and the apex
// of the reverse zone it lies in. They exist while anything is below (RFC 8020).
func (x *indexer) countBlocks(addr netip.Addr, by int) {
	for _, z := range x.reverse {
		if !z.block.contains(addr) {
			continue
		}
		for n := z.block.n + 1; n < z.block.parts; n++ {
			above := blockOf(addr, n)
			add(x.blocks, string(above.key()), by)
		}
	}
}
