package zones

import (
	"fmt"
	"net/netip"
	"strings"
)

// Clients says what is known of those who ask. The zero value is a good default.
type Clients struct {
	// TrustedForwarders are those whose EDNS Client Subnet (RFC 7871) is believed.
	TrustedForwarders []netip.Prefix

	// SharedCaches ask for many places at once and get the neutral answer, unless
	// they say for whom they ask. The endpoints of the cluster's own DNS are known
	// besides.
	SharedCaches []netip.Prefix

	// Places tell where addresses are that nothing in the cluster tells of. The
	// longest prefix counts.
	Places []PlaceRange

	// Visibility are addresses that see some namespaces only. The longest prefix counts.
	Visibility []Visibility

	// Off are the sources of places that are passed over.
	Off Sources
}

// PlaceRange is where the addresses of a prefix are. What is empty is not known; a
// zone alone takes the region that its Nodes have.
type PlaceRange struct {
	Prefix             netip.Prefix
	Node, Zone, Region string
}

// Sources is a set of the sources that tell an asker's place, in order of precedence.
type Sources uint8

const (
	FromECS       Sources = 1 << iota // what a trusted forwarder says
	FromEndpoints                     // the endpoints of all Services
	FromNodes                         // the InternalIPs of Nodes
	FromPodCIDRs                      // the podCIDRs of Nodes
	FromPlaces                        // Clients.Places
)

var sourceNames = []string{"ecs", "endpoints", "nodes", "podCIDRs", "places"}

// String lists the sources by the names that configuration files have.
func (s Sources) String() string {
	var names []string
	for i, name := range sourceNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// validate names the first thing that is wrong.
func (c *Clients) validate() error {
	for _, list := range []struct {
		what     string
		prefixes []netip.Prefix
	}{{"trusted forwarder", c.TrustedForwarders}, {"shared cache", c.SharedCaches}} {
		for _, p := range list.prefixes {
			if !validPrefix(p) {
				return fmt.Errorf("%s %v is no prefix of addresses", list.what, p)
			}
		}
	}
	given := make(map[netip.Prefix]bool, len(c.Places))
	for _, p := range c.Places {
		switch {
		case !validPrefix(p.Prefix):
			return fmt.Errorf("place %v is no prefix of addresses", p.Prefix)
		case p.Node == "" && p.Zone == "" && p.Region == "":
			return fmt.Errorf("place %v has neither node, zone nor region", p.Prefix)
		case given[p.Prefix.Masked()]:
			return fmt.Errorf("place %v is given twice", p.Prefix)
		}
		given[p.Prefix.Masked()] = true
	}
	return checkVisibility(c.Visibility)
}

func validPrefix(p netip.Prefix) bool {
	return p.IsValid() && !p.Addr().Is4In6() && p.Addr().Zone() == ""
}
