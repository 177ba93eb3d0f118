//go:build linux

// Package audit_test has Zonemaster and DNSViz judge zones of epdns, as their registries would
// before they delegate them. What both find is in docs/conformance.md; anything else is an error,
// and so is anything there that is not found any more.
//
// All of it runs in namespaces of its own, with a root and two more zones by NSD, from which
// those of epdns are delegated to two replicas. The addresses there are such as the Internet
// has, since a name server with another one is what both would complain of first.
package audit_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"epdns/test/netns"
	"epdns/test/run"

	"github.com/miekg/dns"
)

const sample = "../../registry/manifest/sample"

// parent are the addresses of the server above, and replicas those of epdns, as testdata has
// them.
var (
	parent   = []string{"8.1.1.1", "2a01:1::1"}
	replicas = [][]string{{"9.96.0.53", "2a0e:96::53"}, {"9.97.0.53", "2a0f:97::53"}}
)

// epdns is the program under test.
var epdns string

func TestMain(m *testing.M) {
	var addresses []string
	for _, of := range append(replicas, parent) {
		addresses = append(addresses, of[0]+"/32", of[1]+"/128")
	}
	netns.Main(netns.Tests{
		Programs: []netns.Program{
			{Name: "nsd", Package: "nsd"},
			{Name: "zonemaster-cli", Package: "zonemaster-cli"},
			{Name: "dnsviz", Package: "dnsviz"},
		},
		Prepare: func(dir string) error {
			_, err := run.Build(context.Background(), "../..", dir)
			return err
		},
		Addresses: addresses,
		Run: func(dir string) (int, error) {
			epdns = filepath.Join(dir, "epdns")
			return m.Run(), nil
		},
	})
}

// internet starts all servers and returns when they answer.
func internet(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	startParent(t, dir)

	secrets := filepath.Join(dir, "cookies")
	if err := os.WriteFile(secrets, []byte("000102030405060708090a0b0c0d0e0f\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, addresses := range replicas {
		args := []string{"serve", "--config=testdata/epdns.yaml", "--manifests=" + sample, "--cookie-secrets=" + secrets, "--http=", "--lameduck=0"}
		for _, a := range addresses {
			args = append(args, "--listen="+net.JoinHostPort(a, "53"))
		}
		p := run.ForTest(t, exec.Command(epdns, args...))
		var serial uint32
		p.Eventually(t, func() (err error) {
			serial, err = serialAt(addresses[0], "registry.local.")
			return err
		})
		if i > 0 {
			continue
		}
		// Replicas seldom start in the same second. Here they never do, so that what is said of
		// their serials is always said.
		p.Eventually(t, func() error {
			if now := uint32(time.Now().Unix()); now <= serial {
				return fmt.Errorf("it is %d, and that is the serial of %s", now, addresses[0])
			}
			return nil
		})
	}
}

// startParent runs NSD with the zones above.
func startParent(t *testing.T, dir string) {
	t.Helper()
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	var c strings.Builder
	fmt.Fprintf(&c, "server:\n server-count: 1\n username: \"\"\n zonesdir: %q\n", testdata)
	fmt.Fprintf(&c, " database: \"\"\n pidfile: \"\"\n xfrdfile: \"%s/xfrd.state\"\n zonelistfile: \"%[1]s/zone.list\"\n", dir)
	fmt.Fprintf(&c, " rrl-ratelimit: 0\n rrl-whitelist-ratelimit: 0\n") // Debian has a limit
	for _, a := range parent {
		fmt.Fprintf(&c, " ip-address: %s\n", a)
	}
	fmt.Fprintf(&c, "remote-control:\n control-enable: no\n")
	for apex, file := range map[string]string{".": "root.zone", "local.": "local.zone", "arpa.": "arpa.zone"} {
		fmt.Fprintf(&c, "zone:\n name: %q\n zonefile: %q\n", apex, file)
	}
	path := filepath.Join(dir, "nsd.conf")
	if err := os.WriteFile(path, []byte(c.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	p := run.ForTest(t, exec.Command("nsd", "-d", "-c", path))
	p.Eventually(t, func() error {
		_, err := serialAt(parent[0], "arpa.")
		return err
	})
}

// serialAt asks a server for the serial of a zone.
func serialAt(address, apex string) (uint32, error) {
	client := dns.Client{Timeout: time.Second}
	reply, _, err := client.Exchange(new(dns.Msg).SetQuestion(apex, dns.TypeSOA), net.JoinHostPort(address, "53"))
	if err != nil {
		return 0, err
	}
	if len(reply.Answer) != 1 {
		return 0, fmt.Errorf("%s has no SOA of %s:\n%v", address, apex, reply)
	}
	return reply.Answer[0].(*dns.SOA).Serial, nil
}

// output runs a program to its end and returns what it writes.
func output(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, complaints.String())
	}
	return out
}
