//go:build linux

package rank_test

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

// The place of an asker, by each source that there is; the priorities of SRV records tell
// which one epdns takes it to be.
func TestAskers(t *testing.T) {
	serve(t, `
  places:
  - {cidr: 203.0.113.0/25, zone: zone-c}
  - {cidr: 203.0.113.64/26, node: node-2}
  - {cidr: 203.0.113.128/25, region: coast}
  - {cidr: "2001:db8:1::/64", zone: zone-b}`)
	list := endpoints(t, "plain")
	everybody := those(list, (*endpoint).ready)
	all := askers(t)
	for addr, p := range map[string]place{
		"203.0.113.9":    {"", "zone-c", "hills"}, // the region is its Nodes'
		"203.0.113.65":   {"node-2", "zone-b", "coast"},
		"203.0.113.130":  {"", "", "coast"},
		"2001:db8:1::99": {"", "zone-b", "coast"},
		"198.51.100.77":  {},
		"10.243.0.99":    {}, // the Nodes' network, but no Node
		"10.244.99.1":    {}, // the Pods' network, but nobody's podCIDR
	} {
		a := netip.MustParseAddr(addr)
		all = append(all, asker{addr, a, p})
	}
	for _, a := range all {
		for _, network := range []string{"udp", "tcp"} {
			got := targets(ask(t, network, a.addr, "plain", dns.TypeSRV))
			if err := checkTargets(list, a.place, onNode, everybody, got); err != nil {
				t.Errorf("%s over %s: %v", a.what, network, err)
			}
		}
	}
}

// A source that is switched off tells nothing, and the next one does.
func TestSourcesOff(t *testing.T) {
	list := endpoints(t, "plain")
	everybody := those(list, (*endpoint).ready)
	for _, test := range []struct {
		off   string
		known map[string]bool // who is still known to be on node-1
	}{
		{"endpoints: false", map[string]bool{"pod": true, "stranger": true, "node": true}}, // podCIDRs know Pods too
		{"podCIDRs: false", map[string]bool{"pod": true, "stranger": false, "node": true}},
		{"nodes: false", map[string]bool{"pod": true, "stranger": true, "node": false}},
		{"endpoints: false, podCIDRs: false", map[string]bool{"pod": false, "stranger": false, "node": true}},
	} {
		t.Run(test.off, func(t *testing.T) {
			serve(t, "{sources: {"+test.off+"}}")
			pod := those(list, func(e *endpoint) bool { return e.NodeName == "node-1" })[0]
			for what, addr := range map[string]netip.Addr{"pod": pod, "stranger": strangerOn(0), "node": nodeIP(0)} {
				at := place{}
				if test.known[what] {
					at = nodes[0]
				}
				got := targets(ask(t, "udp", addr, "plain", dns.TypeSRV))
				if err := checkTargets(list, at, onNode, everybody, got); err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
}
