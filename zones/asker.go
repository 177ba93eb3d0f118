package zones

import (
	"net/netip"

	"epdns/zones/rank"
)

// asker is who asks, as far as answers depend on it.
type asker struct {
	where
	source  Sources // what told the place, 0 where it is not known
	neutral bool    // a shared cache, which asks for many places, or who hides for whom he asks
	key     uint64  // for Hash
	same    int     // bits of the subnet within which every asker gets the same answer
}

// locate finds out where an asker is: by the subnet that a trusted forwarder gives,
// else by its own address. The first source that knows decides. It fills a, which is new.
func (s *Set) locate(q *Question, a *asker) {
	addr, most := q.From, 128
	if q.Subnet.IsValid() {
		addr = q.Subnet.Addr()
		if most = q.Subnet.Bits(); addr.Is4() {
			most += 96
		}
		if q.Subnet.Bits() == 0 {
			a.neutral = true // who does not want to be located
			return
		}
	} else if s.cfg.sharedCaches.contains(addr) {
		a.neutral = true
		return
	}
	if !addr.IsValid() {
		return
	}
	n := toNumber(addr)
	a.key = rank.Mix(rank.Mix(n.hi) ^ n.lo)
	if most == 128 {
		holders := s.index.get(addr)
		if anyClusterDNS(holders) && !q.Subnet.IsValid() {
			a.neutral = true
			return
		}
		if best := bestOf(holders); best != nil && s.without&FromEndpoints == 0 {
			a.where, a.source, a.same = *best.place, FromEndpoints, 128
			return
		}
	}
	of := ^s.without
	if e, at := s.atlas.cluster.find(n, most, of); e != nil {
		a.where, a.source = e.where, e.source
		if q.Subnet.IsValid() {
			a.same = s.atlas.cluster.same(n, at, e, most)
		}
		return
	}
	if e, at := s.atlas.places.find(n, most, of); e != nil {
		a.where, a.source = e.where, e.source
		if q.Subnet.IsValid() {
			_, in := s.atlas.cluster.find(n, most, of)
			a.same = max(s.atlas.places.same(n, at, e, most), s.atlas.cluster.same(n, in, nil, most))
		}
		return
	}
	a.same = most
}

// AsksForMany says whether who asks from an address asks for others: a trusted forwarder,
// a shared cache, the cluster's own DNS.
func (s *Set) AsksForMany(from netip.Addr) bool {
	return s.cfg.forwarders.contains(from) || s.cfg.sharedCaches.contains(from) || anyClusterDNS(s.index.get(from))
}

// MayAskForMany says whether a trusted forwarder or a shared cache may be in a prefix. It looks at all
// that are configured, and not at the cluster's own DNS.
func (s *Set) MayAskForMany(in netip.Prefix) bool {
	return s.cfg.forwarders.overlaps(in) || s.cfg.sharedCaches.overlaps(in)
}

// Trusts says whether a forwarder's EDNS Client Subnet is to be believed.
func (s *Set) Trusts(forwarder netip.Addr) bool {
	return s.without&FromECS == 0 && s.cfg.forwarders.contains(forwarder)
}
