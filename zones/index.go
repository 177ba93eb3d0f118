package zones

import (
	"math/bits"
	"net/netip"
)

// index tells which Services of the first zone have an address. Like a table it never
// changes.
//
// Holders stand in lists, one for all addresses that differ in their last six bits
// only. Networks hand out addresses from ranges no smaller, so an address costs little
// but its holders.
type index struct{ lists table[listed] }

// listed is one list, in order of addresses, and a bit for each address that it has.
type listed struct {
	has     uint64
	holders []holder
}

const (
	lastBits = 6
	lastMask = 1<<lastBits - 1
)

// holder is a Service that has an address, and what it says of it. PTR records are
// of those that name it: who calls it by a host name comes first, then it is by key
// (Kubernetes DNS specification 2.4.3).
type holder struct {
	by          *indexed
	place       *where // nil: not known
	created     uint32
	ready       bool
	named, host bool
	last        uint8 // bits of the address
}

// indexed is a Service, the same for all its addresses and as long as it says the same.
type indexed struct {
	key        string // in services
	clusterDNS bool   // the addresses are those of the cluster's own DNS
	hidden     bool   // it is not in the zone and names nothing
}

// standing is how much it counts what is said of an address: more where it is ready, else
// in the newer slice. 0 stands for nothing said.
type standing uint64

func standingOf(ready bool, created uint32) standing {
	s := standing(created)
	if ready {
		s |= 1 << 32
	}
	return s
}

func (h *holder) standing() standing { return standingOf(h.ready, h.created) }

// before says whether h comes before other of the same address.
func (h *holder) before(other *holder) bool {
	if h.host != other.host {
		return h.host
	}
	return h.by.key < other.by.key
}

// bestOf is the one that knows best where an address is, nil if none does.
func bestOf(holders []holder) (best *holder) {
	for i := range holders {
		if h := &holders[i]; h.place != nil && (best == nil || h.standing() > best.standing()) {
			best = h
		}
	}
	return best
}

func anyNamed(holders []holder) bool {
	for i := range holders {
		if holders[i].named {
			return true
		}
	}
	return false
}

func anyClusterDNS(holders []holder) bool {
	for i := range holders {
		if holders[i].by.clusterDNS {
			return true
		}
	}
	return false
}

// get is who has an address.
func (x *index) get(addr netip.Addr) []holder {
	var buf [16]byte
	key, last := listKey(&buf, addr)
	list, _ := x.lists.get(key)
	bit := uint64(1) << last
	if list.has&bit == 0 {
		return nil
	}
	i := bits.OnesCount64(list.has & (bit - 1)) // addresses before it, which have a holder or more
	for list.holders[i].last != last {
		i++
	}
	j := i + 1
	for j < len(list.holders) && list.holders[j].last == last {
		j++
	}
	return list.holders[i:j:j]
}

// all calls yield for each address in no particular order until it returns false.
func (x *index) all(yield func(addr netip.Addr, holders []holder) bool) {
	x.lists.all(func(key string, list listed) bool { return eachHeld(key, list.holders, yield) })
}

// eachHeld calls yield for each address of a list.
func eachHeld(key string, list []holder, yield func(addr netip.Addr, holders []holder) bool) bool {
	for len(list) > 0 {
		var buf [16]byte
		octets := append(buf[:0], key...)
		octets[len(octets)-1] |= list[0].last
		addr, _ := netip.AddrFromSlice(octets)
		_, j := held(list, list[0].last)
		if !yield(addr, list[:j:j]) {
			return false
		}
		list = list[j:]
	}
	return true
}

// listKey is the key of the list that an address is in, and its last bits.
func listKey(buf *[16]byte, addr netip.Addr) (key []byte, last uint8) {
	key = addrKey(buf, addr)
	end := len(key) - 1
	last = key[end] & lastMask
	key[end] &^= lastMask
	return key, last
}

// held is where in a list the holders of one address are.
func held(list []holder, last uint8) (i, j int) {
	for j = len(list); i < j; {
		if h := int(uint(i+j) >> 1); list[h].last < last {
			i = h + 1
		} else {
			j = h
		}
	}
	for j < len(list) && list[j].last == last {
		j++
	}
	return i, j
}
