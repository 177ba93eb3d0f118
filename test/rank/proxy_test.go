//go:build linux

package rank_test

import "net/netip"

// proxied are the endpoints to which kube-proxy leads a client on a node in a zone, by
// https://kubernetes.io/docs/reference/networking/virtual-ips/#traffic-distribution:
// hints of nodes count where all ready endpoints have them and one of these is meant for the
// node; hints of zones count likewise; else it is all that are ready. The names are empty where
// the client's place is not known.
func proxied(all []endpoint, node, zone string) []netip.Addr {
	forNode := func(e *endpoint) bool {
		for _, n := range e.Hints.ForNodes {
			if n.Name == node {
				return true
			}
		}
		return false
	}
	forZone := func(e *endpoint) bool {
		for _, z := range e.Hints.ForZones {
			if z.Name == zone {
				return true
			}
		}
		return false
	}
	nodesCount, zonesCount := true, true
	for i := range all {
		if e := &all[i]; e.ready() {
			nodesCount = nodesCount && len(e.Hints.ForNodes) > 0
			zonesCount = zonesCount && len(e.Hints.ForZones) > 0
		}
	}
	ready := func(also func(*endpoint) bool) []netip.Addr {
		return those(all, func(e *endpoint) bool { return e.ready() && also(e) })
	}
	if addrs := ready(forNode); nodesCount && len(addrs) > 0 {
		return addrs
	}
	if addrs := ready(forZone); zonesCount && len(addrs) > 0 {
		return addrs
	}
	return ready(func(*endpoint) bool { return true })
}
