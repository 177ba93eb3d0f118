package zones

import "net/netip"

// lies counts the addresses of endpoints whose Nodes are known, hostNetwork aside, and
// those of them that lie in a podCIDR of another Node: some networks give podCIDRs no
// meaning.
type lies struct{ of, in int }

// tooMany says that podCIDRs tell nothing. There is one threshold both ways, so that
// replicas agree whatever they have seen before.
func (l *lies) tooMany() bool { return l.of >= 20 && l.in*10 > l.of }

// count counts an address that has these holders.
func (l *lies) count(a *atlas, addr netip.Addr, holders []holder, by int) {
	best := bestOf(holders)
	if best == nil || best.place.node == 0 {
		return
	}
	n := toNumber(addr)
	if e, _ := a.cluster.find(n, 128, FromNodes); e != nil {
		return
	}
	l.of += by
	if e, _ := a.cluster.find(n, 128, FromPodCIDRs); e != nil && e.where.node != best.place.node {
		l.in += by
	}
}

// move counts by another atlas: anew what lies in prefixes that only one of them has.
func (l *lies) move(from, to *atlas, x *index) {
	if from == to {
		return
	}
	differ := newRanges(difference(from.cluster.entries, to.cluster.entries))
	differ.eachIn(x, func(addr netip.Addr, holders []holder) bool {
		l.count(from, addr, holders, -1)
		l.count(to, addr, holders, 1)
		return true
	})
}

// difference is what only one of two lists of entries has.
func difference(a, b []rangeEntry) (out []rangeEntry) {
	for len(a) > 0 || len(b) > 0 {
		c := 0
		switch {
		case len(b) == 0:
			c = -1
		case len(a) == 0:
			c = 1
		default:
			c = a[0].compare(&b[0])
		}
		switch {
		case c < 0:
			out, a = append(out, a[0]), a[1:]
		case c > 0:
			out, b = append(out, b[0]), b[1:]
		default:
			if a[0].where != b[0].where || a[0].source != b[0].source {
				out = append(out, a[0])
			}
			a, b = a[1:], b[1:]
		}
	}
	return out
}

// eachIn calls yield for each address of the index that lies in one of the prefixes. It
// looks up the lists that they could have, or where those are more, goes through all.
func (r *ranges) eachIn(x *index, yield func(addr netip.Addr, holders []holder) bool) {
	some := func(addr netip.Addr, holders []holder) bool { return !r.contains(addr) || yield(addr, holders) }
	lists := 0
	for i := range r.entries {
		if e := &r.entries[i]; e.parent < 0 {
			if lists += e.lists(); lists > x.lists.len() {
				x.all(some)
				return
			}
		}
	}
	done := uint128{0, 1} // no list begins there
	for i := range r.entries {
		e := &r.entries[i]
		at := e.first.without(uint128{0, lastMask})
		if e.parent >= 0 || at == done {
			continue // they have been in the list before
		}
		for range e.lists() {
			done = at
			var buf [16]byte
			key, _ := listKey(&buf, at.addr())
			list, _ := x.lists.get(key)
			eachHeld(string(key), list.holders, some)
			at = at.or(uint128{0, lastMask}).next()
		}
	}
}

// lists is how many lists of an index a prefix has a part in, at most 1<<32.
func (e *rangeEntry) lists() int { return 1 << min(max(0, 128-lastBits-e.bits), 32) }
