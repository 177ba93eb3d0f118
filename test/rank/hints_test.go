//go:build linux

package rank_test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

// asker is somebody, and where that is.
type asker struct {
	what string
	addr netip.Addr
	place
}

// askers are, on each Node, a Pod behind a Service, a Pod that only the podCIDR tells of, and
// the Node itself, as which NodeLocal DNSCache and Pods in the host's network ask; and one of
// whom nothing is known.
func askers(t *testing.T) (all []asker) {
	t.Helper()
	all = append(all, asker{"a stranger", netip.MustParseAddr("198.51.100.9"), place{}})
	pods := map[string]netip.Addr{}
	for _, e := range endpoints(t, "plain") {
		pods[e.NodeName] = e.addr()
	}
	for i, n := range nodes {
		all = append(all,
			asker{"a Pod of web on " + n.node, pods[n.node], n},
			asker{"some Pod on " + n.node, strangerOn(i), n},
			asker{n.node, nodeIP(i), n})
	}
	return all
}

// Whoever asks for a Service with hints gets those to whom kube-proxy would lead him, and for
// one without hints all, near ones first.
func TestHints(t *testing.T) {
	serve(t, "{}")
	all := []string{"plain", "plain-headless", "lean-plain"}
	for service := range hinting {
		all = append(all, service)
	}
	for _, service := range all {
		t.Run(service, func(t *testing.T) {
			list := endpoints(t, service)
			sizes := map[int]int{}
			for _, a := range askers(t) {
				want := proxied(list, a.node, a.zone)
				for _, network := range []string{"udp", "tcp"} {
					answer := addrs(ask(t, network, a.addr, service, dns.TypeA))
					err := sameSet(answer, want)
					if err == nil && a.place != (place{}) {
						err = nearFirst(list, a.place, answer)
					}
					if err != nil {
						t.Errorf("%s over %s: %v", a.what, network, err)
					}
				}
				// Whom an SRV client turns to first are those nearest, who are in the set.
				got := targets(ask(t, "tcp", a.addr, service, dns.TypeSRV))
				if err := checkTargets(list, a.place, onNode, want, got); err != nil {
					t.Errorf("%s: %v", a.what, err)
				}
				sizes[len(want)]++
			}
			for _, i := range []int{0, 2} { // in zone-a and zone-c
				answer := dig(t, strangerOn(i), service)
				if err := sameSet(answer, proxied(list, nodes[i].node, nodes[i].zone)); err != nil {
					t.Errorf("dig: %v", err)
				}
				t.Logf("dig -b %v (%s): %s", strangerOn(i), nodes[i].zone, shown(list, answer))
			}
			t.Logf("askers by the number of addresses they get: %v", sizes)
			if _, hints := hinting[service]; hints && len(sizes) < 2 {
				t.Error("the hints make no difference to anybody")
			}
		})
	}
}

// checkTargets says what is wrong with SRV records of these members: their priorities are
// tiers, of which those up to nearest are one, or all the same where the asker's place is not
// known.
func checkTargets(all []endpoint, asker place, nearest int, members []netip.Addr, got map[netip.Addr]target) error {
	if len(got) != len(members) {
		return fmt.Errorf("SRV records are %v, want those of %v", got, members)
	}
	at := map[netip.Addr]place{}
	for i := range all {
		at[all[i].addr()] = all[i].place()
	}
	for _, addr := range members {
		r, ok := got[addr]
		want := 0
		if asker != (place{}) {
			want = max(nearest, asker.tier(at[addr]))
		}
		if !ok || r.priority != want || r.weight < 1 {
			return fmt.Errorf("the SRV record of %v is %v (%v), want priority %d", addr, r, ok, want)
		}
	}
	return nil
}
