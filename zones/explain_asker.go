package zones

import (
	"net/netip"
	"slices"
	"strings"
)

// explainAsker says who asks, where that is, and what told it.
func (a *Answer) explainAsker() ExplainedAsker {
	id, q := &a.set.ids, a.question
	e := ExplainedAsker{
		Node: id.nodes.text(a.asker.node), Zone: id.zones.text(a.asker.zone), Region: id.regions.text(a.asker.region),
	}
	if q.From.IsValid() {
		e.Address = q.From.String()
	}
	e.How = a.placeFound()
	if q.Subnet.IsValid() {
		e.Subnet = q.Subnet.String()
	} else if q.Unbelieved.IsValid() {
		e.Unbelieved = q.Unbelieved.String()
		why := "the asker is no trusted forwarder"
		if a.set.without&FromECS != 0 {
			why = "the source ecs is off"
		}
		e.How += "; subnet " + e.Unbelieved + " does not count: " + why
	}
	if a.set.Disbelieved()&FromPodCIDRs != 0 {
		e.How += "; podCIDRs are not believed, since too many endpoints lie in those of other Nodes"
	}
	if a.sight != nil {
		e.How += "; " + a.sight.String()
	}
	return e
}

// placeFound is how the asker's place was found, or why not.
func (a *Answer) placeFound() string {
	q, s := a.question, a.set
	who, addr, most := "the address", q.From, 128
	if q.Subnet.IsValid() {
		who, addr = "the subnet that the forwarder gives", q.Subnet.Addr()
		if most = q.Subnet.Bits(); addr.Is4() {
			most += 96
		}
	}
	n := toNumber(addr)
	holders := s.index.get(addr)
	switch {
	case a.hides():
		return "not known: the forwarder does not tell for whom it asks"
	case a.asker.neutral && s.cfg.sharedCaches.contains(addr):
		return "a shared cache, as is configured, which asks for many places"
	case a.asker.neutral:
		i := slices.IndexFunc(holders, func(h holder) bool { return h.by.clusterDNS })
		how := who + " is an endpoint's" + a.naming(" of ", &holders[i]) + ", the cluster's own DNS, which asks for many places"
		if e, _ := s.atlas.cluster.find(n, 128, FromNodes); e != nil {
			how += "; it has the address of Node " + s.ids.nodes.text(e.where.node) + ", so all that asks from there counts as it"
		}
		return how
	case a.asker.source == FromEndpoints:
		return who + " is an endpoint's" + a.naming(" of Service ", bestOf(holders))
	case a.asker.source == FromNodes:
		return who + " is an InternalIP of Node " + s.ids.nodes.text(a.asker.node)
	case a.asker.source == FromPodCIDRs:
		e, _ := s.atlas.cluster.find(n, most, ^s.without)
		return who + " is in podCIDR " + e.prefix().String() + " of Node " + s.ids.nodes.text(a.asker.node)
	case a.asker.source == FromPlaces:
		e, _ := s.atlas.places.find(n, most, ^s.without)
		return who + " is in the configured place " + e.prefix().String()
	}
	var none []string
	for _, in := range []struct {
		source Sources
		text   string
	}{{FromEndpoints, "no endpoint's"}, {FromNodes, "no Node's"}, {FromPodCIDRs, "in no podCIDR"}, {FromPlaces, "in no configured place"}} {
		if s.without&in.source == 0 && (most == 128 || in.source != FromEndpoints) {
			none = append(none, in.text)
		}
	}
	if len(none) == 0 {
		return "not known: every source is off"
	}
	last := len(none) - 1
	if last > 0 {
		none[last] = "and " + none[last]
	}
	return "not known: " + who + " is " + strings.Join(none, ", ")
}

// naming names the Service of a holder behind some words, if the asker sees it.
func (a *Answer) naming(words string, h *holder) string {
	if !a.sees(h) {
		return ""
	}
	return words + serviceText(h.by.key)
}

// hides says whether a forwarder asks for somebody who is not to be located (RFC 7871
// section 7.1.2).
func (a *Answer) hides() bool {
	return a.question.Subnet.IsValid() && a.question.Subnet.Bits() == 0
}

// serviceText is a Service's key as namespace/name.
func serviceText(key string) string {
	name := []byte(key)
	n := 1 + int(name[0])
	return string(name[n+1:]) + "/" + string(name[1:n])
}

// prefix is the entry as it was given.
func (e *rangeEntry) prefix() netip.Prefix {
	if addr := e.first.addr(); addr.Is4() && e.bits >= 96 {
		return netip.PrefixFrom(addr, e.bits-96)
	} else {
		return netip.PrefixFrom(netip.AddrFrom16(addr.As16()), e.bits)
	}
}

// Disbelieved are the sources of places that are passed over though nobody switched
// them off, since they contradict what is known of endpoints.
func (s *Set) Disbelieved() Sources { return s.without &^ s.cfg.clients.Off }
