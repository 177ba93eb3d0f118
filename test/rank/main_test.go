//go:build linux

// Package rank_test asks epdns for Services of a real control plane from many places: the
// Nodes lie in three zones and two regions, the scheduler has spread the Pods over them, the
// EndpointSlice controller has written hints, and askers have the addresses of Pods, of Nodes
// and of strangers. Where hints decide, answers are compared with kube-proxy's rule, which is
// written here once more (see proxy_test.go).
//
// All of it, the control plane included, runs in namespaces of its own (network, mounts,
// processes), so that whoever asks has the address that the test says. It is one control plane
// for all tests: each leaves it as it was.
package rank_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"epdns/test/cluster"
	"epdns/test/netns"
	"epdns/test/run"
)

// Addresses in the namespace. Behind each of epdns's last three stands a route that lets
// programs which ask there do so from an address that is chosen; see askedFrom.
const (
	epdnsIP   = "10.96.0.53"
	dnsPodIP  = "10.96.0.61"
	ecsPodIP  = "10.96.0.62"
	nodeDNSIP = "10.96.0.63"
	coreIP    = "10.96.0.10"
)

// What the tests work with.
var (
	kube    *cluster.Cluster
	kubectl string // path
	coreDNS string // path
	epdns   string // path
)

func TestMain(m *testing.M) {
	netns.Main(netns.Tests{
		Programs: []netns.Program{{Name: "dig", Package: "bind9-dnsutils"}, {Name: "unbound", Package: "unbound"}},
		Prepare: func(dir string) error {
			if err := cluster.Built(cluster.Options{}); err != nil {
				return err
			}
			_, err := run.Build(context.Background(), "../..", dir)
			return err
		},
		Addresses: []string{
			epdnsIP + "/32", dnsPodIP + "/32", ecsPodIP + "/32", nodeDNSIP + "/32", coreIP + "/32",
			"10.243.0.1/16",   // Nodes
			"10.244.0.1/16",   // Pods
			"198.51.100.1/24", // strangers
			"203.0.113.1/24",  // strangers of whom the configuration tells
			"2001:db8:1::1/128", "2001:db8:1::99/128",
		},
		Run: func(dir string) (int, error) { return inside(m, dir) },
	})
}

// inside starts the control plane and runs the tests when all is there that they ask for.
func inside(m *testing.M, dir string) (status int, err error) {
	ctx := context.Background()
	epdns = filepath.Join(dir, "epdns")
	if kubectl, err = cluster.Kubectl(ctx, cluster.Options{}); err != nil {
		return 0, err
	}
	if coreDNS, err = cluster.CoreDNS(ctx, cluster.Options{}); err != nil {
		return 0, err
	}
	if kube, err = cluster.Start(ctx, cluster.Options{Nodes: len(nodes)}); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, kube.Stop()) }()
	for _, n := range nodes {
		region := map[string]any{"metadata": map[string]any{"labels": map[string]string{"topology.kubernetes.io/region": n.region}}}
		if err := kube.Request(ctx, http.MethodPatch, "/api/v1/nodes/"+n.node, region, nil); err != nil {
			return 0, err
		}
	}
	if _, err := control("apply", "-f", "testdata/cluster.yaml"); err != nil {
		return 0, err
	}
	// A machine that has nothing else to do needs four seconds.
	wait, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("after %v still", time.Minute))
	defer cancel()
	if err := run.Until(wait, pollEvery, complete); err != nil {
		return 0, fmt.Errorf("wait for the controllers: %w", err)
	}
	return m.Run(), nil
}
