//go:build linux

// Package clients_test runs programs that find their servers by DNS, as they are shipped,
// against epdns: the C library musl, Go's resolver, HAProxy, Prometheus, CoreDNS, gRPC. What
// each must find, and why, is in testdata/cases/client.
//
// All of it runs in namespaces of its own (network, mounts, processes). The loopback interface
// there has the addresses of epdns, of what stands beside it and of all pods, so that port 53
// and /etc/resolv.conf are used as on any machine; and what is left over ends with them. Tests that
// wait for clients' intervals have namespaces to themselves, and run side by side.
package clients_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"epdns/test/cluster"
	"epdns/test/netns"
	"epdns/test/run"
)

const (
	epdnsIP    = "10.96.0.53"
	otherIP    = "10.96.0.54" // another server, which is a trap or a cluster's DNS
	upstreamIP = "10.96.0.55" // who knows what epdns does not
	pods       = "10.20.0.1/16"
)

var podsIPv6 = []string{"fd00:10:20::11", "fd00:10:20::12", "fd00:10:20::13", "fd00:10:20::14"}

// built is the directory of programs that were built, and these are their paths. musl is
// testdata/lookup.c with that library, glibc is it with the machine's, goLookup is lookup with this Go.
var built, epdns, musl, glibc, goLookup, coreDNS, grpc string

// python is Debian's, which has the library that lookup.py needs; there may be others.
const python = "/usr/bin/python3"

func TestMain(m *testing.M) {
	netns.Main(netns.Tests{
		Programs: []netns.Program{
			{Name: "musl-gcc", Package: "musl-tools"},
			{Name: "busybox", Package: "busybox-static"},
			{Name: "nslookup", Package: "bind9-dnsutils"},
			{Name: "haproxy", Package: "haproxy"},
			{Name: "prometheus", Package: "prometheus"},
			{Name: "nft", Package: "nftables"},
			{Name: "conntrack", Package: "conntrack"},
			{Name: "nginx", Package: "nginx"},
			{Name: "drill", Package: "ldnsutils"},
			{Name: "kdig", Package: "knot-dnsutils"},
			{Name: "node", Package: "nodejs"},
			{Name: "javac", Package: "default-jdk-headless"},
		},
		Prepare:   prepare,
		Addresses: append([]string{epdnsIP + "/32", otherIP + "/32", upstreamIP + "/32", pods}, podsIPv6...),
		Run: func(dir string) (int, error) {
			built = dir
			for path, name := range map[*string]string{&epdns: "epdns", &musl: "musl", &glibc: "glibc", &goLookup: "lookup", &grpc: "grpc"} {
				*path = filepath.Join(dir, name)
			}
			// They wait most of the time.
			if err := flag.Set("test.parallel", "16"); err != nil {
				return 0, err
			}
			var err error
			if coreDNS, err = cluster.CoreDNS(context.Background(), cluster.Options{}); err != nil {
				return 0, err
			}
			status := m.Run()
			if status == 0 {
				err = allSeen()
			}
			return status, err
		},
	})
}

// prepare builds what is built.
func prepare(dir string) error {
	if err := cluster.Built(cluster.Options{}); err != nil {
		return err
	}
	if _, err := run.Build(context.Background(), "../..", dir); err != nil {
		return err
	}
	// Not static, for another version of the library to run it, too.
	out, err := exec.Command("musl-gcc", "-Wall", "-o", filepath.Join(dir, "musl"), "testdata/lookup.c").CombinedOutput()
	if err != nil {
		return fmt.Errorf("musl-gcc: %w\n%s", err, out)
	}
	if out, err := exec.Command("gcc", "-Wall", "-o", filepath.Join(dir, "glibc"), "testdata/lookup.c").CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w\n%s", err, out)
	}
	if out, err := exec.Command("javac", "-d", dir, "testdata/Lookup.java").CombinedOutput(); err != nil {
		return fmt.Errorf("javac: %w\n%s", err, out)
	}
	if out, err := exec.Command(python, "-c", "import dns.resolver").CombinedOutput(); err != nil {
		return fmt.Errorf("%s needs more: sudo apt-get install python3-dnspython: %w\n%s", python, err, out)
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "grpc"), ".")
	build.Dir = "grpc" // which is a module of its own
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build grpc: %w\n%s", err, out)
	}
	if err := buildLookup(filepath.Join(dir, "lookup")); err != nil {
		return err
	}
	return prepareOptional(dir)
}
