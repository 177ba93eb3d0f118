//go:build linux

// Package forwarders_test goes the ways to epdns that docs/forwarders.md shows: each forwarder
// is started as it is shipped, with its file of deploy/snippets, and asked. What that page says
// of each is compared with what comes, and so is what epdns check --through says, with good
// settings and with bad ones.
//
// All of it runs in namespaces of its own (network, mounts, processes). The loopback interface
// there has epdns's address of the snippets, and one for each forwarder.
package forwarders_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"epdns/test/cluster"
	"epdns/test/debian"
	"epdns/test/netns"
	"epdns/test/run"
)

// epdnsIP is epdns in deploy/snippets.
const epdnsIP = "10.96.0.53"

// Paths from here.
const (
	repository = "../.."
	snippets   = "../../deploy/snippets"
)

// Programs, by path.
var epdns, coreDNS, resolved, musl string // resolved is the directory of its package

func TestMain(m *testing.M) {
	// With one of IPv6, glibc asks for those, too.
	addresses := []string{epdnsIP + "/32", "169.254.20.10/32", "fd00:10:244:1::1/128"}
	for i := range 200 { // for forwarders
		addresses = append(addresses, fmt.Sprintf("10.96.1.%d/32", i+1))
	}
	netns.Main(netns.Tests{
		Programs: []netns.Program{
			{Name: "unbound", Package: "unbound"},
			{Name: "named", Package: "bind9"},
			{Name: "dnsmasq", Package: "dnsmasq-base"},
			{Name: "kresd", Package: "knot-resolver"},
			{Name: "getent", Package: "libc-bin"},
			{Name: "musl-gcc", Package: "musl-tools"},
		},
		Prepare:   prepare,
		Addresses: addresses,
		Run:       func(dir string) (int, error) { return inside(m, dir) },
	})
}

// prepare builds, and gets what may not be installed.
func prepare(dir string) error {
	if err := cluster.Built(cluster.Options{}); err != nil {
		return err
	}
	if _, err := run.Build(context.Background(), repository, dir); err != nil {
		return err
	}
	out, err := exec.Command("musl-gcc", "-static", "-Wall", "-o", filepath.Join(dir, "musl"), "../deploy/testdata/lookup.c").CombinedOutput()
	if err != nil {
		return fmt.Errorf("musl-gcc: %w\n%s", err, out)
	}
	unpacked, err := debian.Unpack("systemd-resolved", "libsystemd-shared")
	if err != nil {
		return err
	}
	return os.Symlink(unpacked, filepath.Join(dir, "systemd"))
}

// inside makes a host of the namespaces, and runs the tests.
func inside(m *testing.M, dir string) (status int, err error) {
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0); err != nil {
		return 0, fmt.Errorf("open the low ports: %w", err)
	}
	// systemd-resolved asks nobody unless there is another network than loopback.
	for _, command := range []string{"link add net0 type veth peer name net1", "link set net1 up", "link set net0 up", "address add 10.255.0.1/24 dev net0"} {
		if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			return 0, fmt.Errorf("ip %s: %w\n%s", command, err, out)
		}
	}
	epdns = filepath.Join(dir, "epdns")
	resolved = filepath.Join(dir, "systemd")
	musl = filepath.Join(dir, "musl")
	if coreDNS, err = cluster.CoreDNS(context.Background(), cluster.Options{}); err != nil {
		return 0, err
	}
	return m.Run(), nil
}
