//go:build linux

package diff_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"epdns/test/run"

	"github.com/miekg/dns"
)

// TestSecondaries: NSD and Knot, with epdns for their primary, follow each change of the
// forward and of the reverse zone at once. Of themselves they would ask two hours later.
func TestSecondaries(t *testing.T) {
	dir := t.TempDir()
	manifests := filepath.Join(dir, "manifests")
	if err := os.Mkdir(manifests, 0o755); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "epdns.yaml")
	text := fmt.Sprintf("apiVersion: epdns/v1alpha1\nkind: Config\nreverse: [10.0.0.0/8]\nnameserver: [192.0.2.53]\ntransfer: {notify: [%q, %q]}\n",
		nsd.address(), knot.address())
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := openUp(dir); err != nil {
		t.Fatal(err)
	}

	// has waits until both secondaries have these addresses, and no others, and their names.
	client := dns.Client{Timeout: time.Second}
	has := func(addrs ...string) {
		t.Helper()
		began := time.Now()
		ask := func(s server, name string, qtype uint16) (data []string, err error) {
			r, _, err := client.Exchange(new(dns.Msg).SetQuestion(name, qtype), s.address())
			if err != nil {
				return nil, err
			}
			for _, rr := range r.Answer {
				data = append(data, strings.TrimPrefix(rr.String(), rr.Header().String()))
			}
			slices.Sort(data)
			return data, nil
		}
		for _, s := range []server{nsd, knot} {
			run.Eventually(t, func() error {
				if got, err := ask(s, "web.shop."+zoneName, dns.TypeA); err != nil || !slices.Equal(got, addrs) {
					return fmt.Errorf("%v has the addresses %q, want %q: %v", s, got, addrs, err)
				}
				for _, addr := range addrs {
					want := strings.ReplaceAll(addr, ".", "-") + ".web.shop." + zoneName
					if got, err := ask(s, reverse(addr), dns.TypePTR); err != nil || !slices.Equal(got, []string{want}) {
						return fmt.Errorf("%v says that %s is %q, want %q: %v", s, addr, got, want, err)
					}
				}
				return nil
			})
			t.Logf("%v has %q after %v", s, addrs, time.Since(began).Round(10*time.Millisecond))
		}
	}

	writeWeb(t, manifests, "10.1.0.1")
	serve(t, "--manifests", manifests, "--zone", zoneName, "--config", config)
	for _, s := range []server{nsd, knot} {
		startSecondary(t, s, zoneName, reverseApex("10.0.0.0/8"))
	}
	has("10.1.0.1")
	writeWeb(t, manifests, "10.1.0.1", "10.1.0.2")
	has("10.1.0.1", "10.1.0.2")
	writeWeb(t, manifests, "10.1.0.2", "10.1.0.3")
	has("10.1.0.2", "10.1.0.3")
}

// writeWeb writes Service web with these addresses.
func writeWeb(t *testing.T, dir string, addrs ...string) {
	t.Helper()
	text := `apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080}]
endpoints:
`
	for _, addr := range addrs {
		text += fmt.Sprintf("- addresses: [%s]\n", addr)
	}
	// At once: what is half written is nobody's.
	half := filepath.Join(t.TempDir(), "web.yaml")
	if err := os.WriteFile(half, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(half, filepath.Join(dir, "web.yaml")); err != nil {
		t.Fatal(err)
	}
}

// startSecondary starts a server that gets these zones from ours.
func startSecondary(t *testing.T, s server, apexes ...string) {
	t.Helper()
	dir := t.TempDir()
	if err := openUp(dir); err != nil {
		t.Fatal(err)
	}
	args, err := configure(s, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	var c strings.Builder
	primary := strings.Replace(ours.address(), ":", "@", 1)
	switch s {
	case nsd:
		for _, apex := range apexes {
			fmt.Fprintf(&c, "zone:\n name: %q\n zonefile: \"%s/%szone\"\n request-xfr: %s NOKEY\n allow-notify: 127.0.0.1 NOKEY\n", apex, dir, apex, primary)
		}
	case knot:
		fmt.Fprintf(&c, "remote:\n  - id: epdns\n    address: %s\nacl:\n  - id: epdns\n    address: 127.0.0.1\n    action: notify\nzone:\n", primary)
		for _, apex := range apexes {
			fmt.Fprintf(&c, "  - domain: %q\n    master: epdns\n    acl: epdns\n", apex)
		}
	}
	conf := args[len(args)-1]
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.TrimSuffix(string(text), "zone:\n") + c.String())
	if err := os.WriteFile(conf, text, 0o644); err != nil {
		t.Fatal(err)
	}
	program, err := run.Copied(programs[s].Name, dir)
	if err != nil {
		t.Fatal(err)
	}
	launch(t, exec.Command(program, args...))
	t.Logf("%v: %s", s, version(s))
}
