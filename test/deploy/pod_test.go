//go:build linux

package deploy_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"epdns/test/netns"
)

// rest stands for what a cluster's CoreDNS has besides: Services by ClusterIP, through cache
// and loadbalance, and nothing else.
const rest = `
.:53 {
    errors
    bind ` + clusterDNS + `
    cache 30
    loadbalance
    template IN A web.shop.svc.cluster.local {
        answer "{{ .Name }} 30 IN A 10.96.7.7"
    }
    template ANY ANY web.shop.svc.cluster.local {
        rcode NOERROR
    }
    template ANY ANY {
        rcode NXDOMAIN
    }
}
`

// uncached is what NodeLocal DNSCache does with all else.
const uncached = `
.:53 {
    errors
    bind ` + nodeLocal + `
    forward . ` + clusterDNS + `
}
`

// As a Pod with the shipped dnsConfig, programs find exactly the ready addresses, by full and
// by short names, whichever C library they have; and so they do with epdns alone.
func TestPod(t *testing.T) {
	deployed(t)
	// With an upstream, epdns can be a Pod's only nameserver, too.
	servePods(t, "--upstream="+clusterDNS)
	forward(t, snippet(t, "coredns.Corefile", clusterDNS)+rest, clusterDNS)
	forward(t, snippet(t, "nodelocaldns.Corefile", "")+uncached, nodeLocal)
	musl := filepath.Join(t.TempDir(), "lookup")
	if out, err := exec.Command("musl-gcc", "-static", "-Wall", "-o", musl, "testdata/lookup.c").CombinedOutput(); err != nil {
		t.Fatalf("musl-gcc: %v\n%s", err, out)
	}
	netns.Mount(t, "/etc/nsswitch.conf", "hosts: files dns\n") // a desktop's gives .local to mDNS
	resolvConf := netns.Mount(t, "/etc/resolv.conf", "")

	var pod struct {
		Spec struct {
			DNSConfig struct {
				Nameservers, Searches []string
				Options               []struct{ Name, Value string }
			}
		}
	}
	shippedObject(t, "pod.yaml", &pod)
	config := pod.Spec.DNSConfig
	// As the kubelet writes it.
	lines := "search " + strings.Join(config.Searches, " ") + "\noptions"
	for _, o := range config.Options {
		lines += fmt.Sprintf(" %s:%s", o.Name, o.Value)
	}
	if want := []string{clusterDNS}; !slices.Equal(config.Nameservers, want) {
		t.Fatalf("the nameservers are %q, want %q", config.Nameservers, want)
	}

	web := []string{"10.244.1.11", "10.244.2.12"}
	for _, server := range []string{clusterDNS, nodeLocal, epdnsIP} {
		if err := os.WriteFile(resolvConf, []byte("nameserver "+server+"\n"+lines+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for library, argv := range map[string][]string{"glibc": {"getent", "ahosts"}, "musl": {musl}} {
			for _, test := range []struct {
				what, name string
				want       []string
			}{
				{"a full name", "web.shop.registry.local", web},
				{"a full name, with its dot", "web.shop.registry.local.", web},
				{"a Service of the namespace", "web", web},
				{"a Service of a namespace", "web.shop", web},
				{"an alias", "alias", web},
				{"a Pod", "10-244-1-11.web", web[:1]},
				{"a Service of both families", "db", []string{"10.244.1.20", "10.244.1.21", "10.244.1.22", "10.244.1.23", "10.244.1.24",
					"10.244.1.25", "fd00:10:244:1::20"}},
				{"a ClusterIP", "web.shop.svc", []string{"10.96.7.7"}},
				{"nobody is ready", "idle", nil},
				{"no such name", "none", nil},
			} {
				t.Run(strings.Join([]string{server, library, test.what}, "/"), func(t *testing.T) {
					got, err := addresses(append(slices.Clone(argv), test.name)...)
					if err != nil {
						t.Fatal(err)
					}
					if !slices.Equal(got, test.want) {
						t.Errorf("%s: %q, want %q", test.name, got, test.want)
					}
				})
			}
		}
	}
}

// addresses runs a program that looks a name up and returns what it found, sorted and each once.
func addresses(argv ...string) (found []string, err error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(argv[0], argv[1:]...)
	// Not the caller's LOCALDOMAIN or RES_OPTIONS.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 2 {
		return nil, nil // not found
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, &stderr)
	}
	for line := range strings.Lines(stdout.String()) {
		// getent goes on with the type of socket and the name.
		if f := strings.Fields(line); len(f) > 0 {
			found = append(found, f[0])
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
