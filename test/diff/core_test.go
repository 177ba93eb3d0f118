//go:build linux

package diff_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"epdns/test/cluster"
	"epdns/test/run"

	"github.com/miekg/dns"
)

// coreTypes are what epdns and CoreDNS are asked for at every name.
var coreTypes = []uint16{
	dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypePTR, dns.TypeTXT, dns.TypeNS, dns.TypeSOA, dns.TypeMX, dns.TypeCNAME,
}

// coreWays are how.
var coreWays = []way{plain, edns, tcp}

// coreIP is a second address of CoreDNS's, which calls itself by it. It does not by those on
// loopback, nor by one that it is bound to.
const coreIP = "192.0.2.53"

// TestCoreDNS compares epdns with CoreDNS's plugin kubernetes on one control plane, in both
// meanings that a Service with nothing ready may have.
func TestCoreDNS(t *testing.T) {
	if err := cluster.Built(cluster.Options{}); err != nil {
		t.Fatal(err)
	}
	kube, err := cluster.Start(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kube.Stop(); err != nil {
			t.Error(err)
		}
	})
	all := coreServices()
	if err := create(t.Context(), kube, all); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	b, err := os.ReadFile(kube.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	write(t, kubeconfig, string(b))
	if err := openUp(dir); err != nil {
		t.Fatal(err)
	}
	f := newCoreFacts(all)
	startCoreDNS(t, dir, kubeconfig)
	meanings := []string{"nodata", "nxdomain"}
	var outcome []*coreCounts
	for _, empty := range meanings {
		t.Run("empty: "+empty, func(t *testing.T) {
			config := filepath.Join(dir, "epdns.yaml")
			write(t, config, fmt.Sprintf(`apiVersion: epdns/v1alpha1
kind: Config
source: {kubeconfig: %q}
zones:
- {name: cluster.local, layout: kubernetes, endpointNames: address, empty: %s}
reverse: [%q, %q]
nameserver: [%s]
`, kubeconfig, empty, podPrefixes[0], podPrefixes[1], coreIP))
			serve(t, "--config", config)
			zones := []*zone{}
			for _, apex := range []string{coreZone, reverseApex(podPrefixes[0]), reverseApex(podPrefixes[1])} {
				z, err := transfer(dir, apex)
				if err != nil {
					t.Fatal(err)
				}
				zones = append(zones, z)
			}
			w := newWorld(zones, f.model)
			w.study()
			names := map[string]bool{}
			for _, name := range f.names {
				names[name] = true
			}
			for name := range w.types {
				names[name] = true
			}
			began := time.Now()
			n := newCoreCounts()
			a := asker{of: []server{ours, coreDNS}}
			defer a.close()
			for name := range names {
				for _, qtype := range coreTypes {
					for _, way := range coreWays {
						q := question{name, qtype, way}
						replies, err := a.ask(q)
						if err != nil {
							t.Fatal(err)
						}
						n.compare(w, f, q, replies[0], replies[1])
					}
				}
			}
			n.names = len(names)
			t.Logf("%d questions took %v", n.replies, time.Since(began).Round(time.Millisecond))
			n.report(t, func(name string) bool {
				// Views go by what there is, the name of the Service by what is ready.
				m := f.model.means(name)
				return empty == "nxdomain" && m != nil && m.viewed && f.empty[m.svc]
			})
			outcome = append(outcome, n)
		})
	}
	if len(outcome) == len(meanings) { // else not all were run
		logCore(t, meanings, outcome)
	}
}

// write writes a file that the servers may read.
func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// startCoreDNS starts CoreDNS with nothing but the plugin kubernetes, and waits until it has
// read the cluster.
func startCoreDNS(t *testing.T, dir, kubeconfig string) {
	t.Helper()
	path, err := cluster.CoreDNS(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ip", "address", "add", coreIP+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("add an address: %v\n%s", err, out)
	}
	_, port, _ := strings.Cut(coreDNS.address(), ":")
	corefile := filepath.Join(dir, "Corefile")
	write(t, corefile, fmt.Sprintf(`cluster.local:%[1]s in-addr.arpa:%[1]s ip6.arpa:%[1]s {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        kubeconfig %[2]s
        ttl 5
        zonal
    }
}
`, port, kubeconfig))
	program, err := run.Copied(path, dir)
	if err != nil {
		t.Fatal(err)
	}
	p := launch(t, exec.Command(program, "-conf", corefile))
	p.Eventually(t, func() error {
		// A name that is not there is SERVFAIL until all has been read.
		r, err := dns.Exchange(new(dns.Msg).SetQuestion("missing.shop.svc."+coreZone, dns.TypeA), coreDNS.address())
		if err == nil && r.Rcode != dns.RcodeNameError {
			err = fmt.Errorf("CoreDNS has not read the cluster: %v\n%v", r, p.Log())
		}
		return err
	})
	version, err := exec.Command(path, "-version").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Log(strings.Join(strings.Fields(string(version)), " "))
}
