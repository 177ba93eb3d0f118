//go:build linux

// Package deploy_test applies deploy/ to a real control plane and goes the ways on which
// clients of a cluster reach epdns: CoreDNS, NodeLocal DNSCache, a Pod's resolv.conf.
//
// All of it, the control plane included, runs in namespaces of its own (network, mounts,
// processes). The loopback interface there has the addresses that deploy/snippets names, so
// those files are used as they are, port 53 included; and what is left over ends with them.
package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"epdns/test/cluster"
	"epdns/test/netns"
	"epdns/test/run"
)

// Addresses in deploy/snippets.
const (
	clusterDNS = "10.96.0.10"    // CoreDNS
	epdnsIP    = "10.96.0.53"    // the Service epdns
	nodeLocal  = "169.254.20.10" // NodeLocal DNSCache
)

// podIP makes this namespace one of both families, in which glibc asks for AAAA, too.
const podIP = "fd00:10:244:1::1"

// Paths from here.
const (
	repository = "../.."
	shipped    = "../../deploy"
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
		Programs: []netns.Program{
			{Name: "getent", Package: "libc-bin"},
			{Name: "musl-gcc", Package: "musl-tools"},
			{Name: "dig", Package: "bind9-dnsutils"},
			{Name: "busybox", Package: "busybox-static"},
			{Name: "skopeo", Package: "skopeo"},
			{Name: "umoci", Package: "umoci"},
			{Name: "runc", Package: "runc"},
			{Name: "docker-registry", Package: "docker-registry"},
		},
		Prepare: func(dir string) error {
			if err := cluster.Built(cluster.Options{}); err != nil {
				return err
			}
			_, err := run.Build(context.Background(), repository, dir)
			return err
		},
		Addresses: []string{clusterDNS + "/32", epdnsIP + "/32", nodeLocal + "/32", podIP + "/128"},
		Run:       func(dir string) (int, error) { return inside(m, dir) },
	})
}

// inside makes the namespaces what a node's are, and runs the tests.
func inside(m *testing.M, dir string) (status int, err error) {
	// As container runtimes have it. epdns has no need of it in a cluster, where the Service has
	// port 53; here it plays the Service, too.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0); err != nil {
		return 0, fmt.Errorf("open the low ports: %w", err)
	}
	ctx := context.Background()
	epdns = filepath.Join(dir, "epdns")
	if kubectl, err = cluster.Kubectl(ctx, cluster.Options{}); err != nil {
		return 0, err
	}
	if coreDNS, err = cluster.CoreDNS(ctx, cluster.Options{}); err != nil {
		return 0, err
	}
	forwards := filepath.Join(dir, "forwards.yaml")
	if err := os.WriteFile(forwards, []byte(portForwards), 0o644); err != nil {
		return 0, err
	}
	// A Node in each zone.
	kube, err = cluster.Start(ctx, cluster.Options{Nodes: 3, Args: map[cluster.Component][]string{cluster.Kwok: {"--config=" + forwards}}})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, kube.Stop(), stopStrict()) }()
	return m.Run(), nil
}
