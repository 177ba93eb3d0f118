//go:build linux

package rank_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// This file tells what is in the cluster, by the API server and nobody else.

// pollEvery is short against the second within which a change is to be seen.
const pollEvery = 10 * time.Millisecond

// place is where somebody is. What is empty is not known.
type place struct{ node, zone, region string }

// nodes are those that cluster.AddNodes makes, but for the region, of which these tests need two.
var nodes = []place{
	{"node-1", "zone-a", "coast"}, {"node-2", "zone-b", "coast"}, {"node-3", "zone-c", "hills"},
	{"node-4", "zone-a", "coast"}, {"node-5", "zone-b", "coast"}, {"node-6", "zone-c", "hills"},
}

// nodeIP is the InternalIP of nodes[i].
func nodeIP(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 243, 0, byte(i + 1)}) }

// strangerOn is an address of which only the podCIDR of nodes[i] tells: no Pod has it.
func strangerOn(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 244, byte(i + 1), 250}) }

// whereIs is a Node by its name.
func whereIs(node string) place {
	for _, p := range nodes {
		if p.node == node {
			return p
		}
	}
	return place{}
}

// Tiers, as SRV priorities have them.
const (
	onNode = iota
	inZone
	inRegion
	anywhere
)

// tier is how far an endpoint is from an asker.
func (asker place) tier(endpoint place) int {
	switch {
	case asker.node != "" && asker.node == endpoint.node:
		return onNode
	case asker.zone != "" && asker.zone == endpoint.zone:
		return inZone
	case asker.region != "" && asker.region == endpoint.region:
		return inRegion
	}
	return anywhere
}

// control runs kubectl as the administrator.
func control(args ...string) (string, error) {
	cmd := exec.Command(kubectl, append([]string{"--kubeconfig", kube.Kubeconfig}, args...)...)
	cmd.Env = []string{"HOME=" + kube.Dir}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

// mustControl is control where nothing may go wrong.
func mustControl(t *testing.T, args ...string) {
	t.Helper()
	if _, err := control(args...); err != nil {
		t.Fatal(err)
	}
}

// endpoint is one as a slice has it. The lists in hints are empty where it has none.
type endpoint struct {
	Addresses  []string
	Conditions struct{ Ready, Serving, Terminating *bool }
	NodeName   string
	Zone       string
	TargetRef  struct{ Name string }
	Hints      struct{ ForNodes, ForZones []struct{ Name string } }
}

func (e *endpoint) addr() netip.Addr { return netip.MustParseAddr(e.Addresses[0]) }
func (e *endpoint) place() place     { return whereIs(e.NodeName) }

// What is missing of conditions is read as the API says.
func (e *endpoint) ready() bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }
func (e *endpoint) terminating() bool {
	return e.Conditions.Terminating != nil && *e.Conditions.Terminating
}
func (e *endpoint) serving() bool {
	if e.Conditions.Serving == nil {
		return e.ready()
	}
	return *e.Conditions.Serving
}

// list are the endpoints in all slices of a Service, as the API server lists them now.
func list(ctx context.Context, namespace, service string) (all []endpoint, err error) {
	var slices struct {
		Items []struct{ Endpoints []endpoint }
	}
	path := "/apis/discovery.k8s.io/v1/namespaces/" + namespace + "/endpointslices?labelSelector=" +
		url.QueryEscape("kubernetes.io/service-name="+service)
	if err := kube.Request(ctx, http.MethodGet, path, nil, &slices); err != nil {
		return nil, err
	}
	for _, s := range slices.Items {
		all = append(all, s.Endpoints...)
	}
	return all, nil
}

// endpoints is list of a Service in namespace shop.
func endpoints(t *testing.T, service string) []endpoint {
	t.Helper()
	all, err := list(t.Context(), "shop", service)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// those are the addresses of the endpoints of which this is true, sorted.
func those(all []endpoint, are func(*endpoint) bool) (addrs []netip.Addr) {
	for i := range all {
		if are(&all[i]) {
			addrs = append(addrs, all[i].addr())
		}
	}
	return sorted(addrs)
}

func sorted(addrs []netip.Addr) []netip.Addr {
	addrs = slices.Clone(addrs)
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}

// hinting are the Services whose slices carry hints, and whether these are for nodes, too.
var hinting = map[string]bool{
	"zone": false, "zone-headless": false, "close": false, "close-headless": false, "aware": false, "lean-zone": false,
	"leaver-zone": false, "leaver-fallback": false,
	"node": true, "node-headless": true, "lean-node": true,
}

// replicas are those of the Deployments, by the first part of their Services' names.
var replicas = map[string]int{"lean": 2, "leaver": 6, "weak": 2}

// complete says what the controllers have not done yet.
func complete() error {
	services := []string{"plain", "plain-headless", "lean-plain", "tuned", "weak", "near", "leaver-near", "leaver-serving"}
	for name := range hinting {
		services = append(services, name)
	}
	for _, name := range services {
		all, err := list(context.Background(), "shop", name)
		if err != nil {
			return err
		}
		first, _, _ := strings.Cut(name, "-")
		want, ok := replicas[first]
		if !ok {
			want = 12
		}
		forNodes, hints := hinting[name]
		n := 0
		for i := range all {
			e := &all[i]
			if e.ready() && e.Zone != "" && (len(e.Hints.ForZones) > 0) == hints && (len(e.Hints.ForNodes) > 0) == forNodes {
				n++
			}
		}
		if n != want || n != len(all) {
			return fmt.Errorf("of %d endpoints of %s %d are as they should be, want %d: %+v", len(all), name, n, want, all)
		}
	}
	dns, err := list(context.Background(), "kube-system", "kube-dns")
	if err == nil && len(dns) != 2 {
		err = errors.New("the cluster's DNS does not run")
	}
	return err
}
