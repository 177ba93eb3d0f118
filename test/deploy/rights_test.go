//go:build linux

package deploy_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"epdns/test/run"

	"github.com/miekg/dns"
)

// rights are what a service account may do in a namespace, as "kubectl auth can-i --list" has it.
func rights(t *testing.T, account, namespace string) (lines []string) {
	t.Helper()
	out, err := control("auth", "can-i", "--list", "--no-headers", "--as=system:serviceaccount:"+account, "-n", namespace)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	slices.Sort(lines)
	return lines
}

const (
	mayReadSlices   = "endpointslices.discovery.k8s.io [] [] [list watch]"
	mayReadNodes    = "nodes [] [] [list watch]"
	mayReadServices = "services [] [] [list watch]"

	missedNodes    = "there are no regions, an endpoint has no other zone than its EndpointSlice says, and who asks has no place unless it is an endpoint"
	missedServices = "aliases (ExternalName) and annotations of Services are not known, and a Service exists while an EndpointSlice names it"
)

// off is a kind that may not be listed.
type off struct{ kind, resource, missed, where string }

// With each set of rights that is shipped, the program runs as the account that is shipped, has
// exactly those rights, answers what they allow, and says what is off, once in its log, in a
// metric and in /readyz?verbose.
func TestRights(t *testing.T) {
	deployed(t)
	everybody := map[string][]string{} // what every account may, by namespace
	for _, namespace := range []string{"shop", "kube-system"} {
		everybody[namespace] = rights(t, "default:default", namespace)
	}
	noNodes := kustomization(t, "resources:\n- ROOT/base\ncomponents:\n- ROOT/components/no-nodes\n")
	both := kustomization(t, "resources:\n- ROOT/base\n- ROOT/overlays/node-local\n")
	const (
		deployment = "apis/apps/v1/namespaces/epdns/deployments/epdns"
		everywhere = "in all namespaces (ClusterRole)"
	)
	for _, test := range []struct {
		what, dir, workload string
		remove              string   // what is not base's
		accounts            []string // the first is the workload's
		there, elsewhere    []string // rights in namespace shop, and in another one
		alias, other        int      // what is said of an ExternalName Service, and of a Service of another namespace
		off                 []off
	}{
		{"base", filepath.Join(shipped, "base"), deployment, "", []string{"epdns:epdns"},
			[]string{mayReadSlices, mayReadNodes, mayReadServices}, []string{mayReadSlices, mayReadNodes, mayReadServices},
			dns.RcodeSuccess, dns.RcodeSuccess, nil},
		{"no-nodes", noNodes, deployment, "", []string{"epdns:epdns"},
			[]string{mayReadSlices, mayReadServices}, []string{mayReadSlices, mayReadServices},
			dns.RcodeSuccess, dns.RcodeSuccess, []off{{"Node", "nodes", missedNodes, everywhere}}},
		{"minimal", filepath.Join(shipped, "overlays/minimal"), deployment, "", []string{"epdns:epdns"},
			[]string{mayReadSlices}, []string{mayReadSlices},
			dns.RcodeNameError, dns.RcodeSuccess, []off{{"Node", "nodes", missedNodes, everywhere}, {"Service", "services", missedServices, everywhere}}},
		{"namespaced", filepath.Join(shipped, "overlays/namespaced"), "apis/apps/v1/namespaces/shop/deployments/epdns",
			"overlays/namespaced", []string{"shop:epdns"},
			[]string{mayReadSlices, mayReadServices}, nil,
			dns.RcodeSuccess, dns.RcodeNameError, []off{{"Node", "nodes", missedNodes, everywhere}}},
		{"node-local beside base", both, "apis/apps/v1/namespaces/epdns-node-local/daemonsets/epdns",
			"overlays/node-local", []string{"epdns-node-local:epdns", "epdns:epdns"},
			[]string{mayReadSlices, mayReadNodes, mayReadServices}, []string{mayReadSlices, mayReadNodes, mayReadServices},
			dns.RcodeSuccess, dns.RcodeSuccess, nil},
	} {
		t.Run(test.what, func(t *testing.T) {
			if _, err := apply("-k", test.dir); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if test.remove != "" {
					if _, err := control("delete", "--wait=false", "-k", filepath.Join(shipped, test.remove)); err != nil {
						t.Error(err)
					}
				}
				if _, err := apply("-k", filepath.Join(shipped, "base")); err != nil {
					t.Error(err)
				}
			})
			// The API server hears of a changed role a moment later.
			for _, in := range []struct {
				namespace string
				want      []string
			}{{"shop", test.there}, {"kube-system", test.elsewhere}} {
				for _, account := range test.accounts {
					run.Eventually(t, func() error {
						got := slices.DeleteFunc(rights(t, account, in.namespace), func(line string) bool {
							return slices.Contains(everybody[in.namespace], line)
						})
						if !slices.Equal(got, in.want) {
							return fmt.Errorf("%s may in namespace %s: %q, want %q", account, in.namespace, got, in.want)
						}
						return nil
					})
				}
			}

			p := podOf(t, kube, test.workload).serve(t, "--listen="+epdnsIP+":5300", "--http="+nodeIP+":9153")
			const server = epdnsIP + ":5300"
			want{answer: []string{"A 10.244.1.11", "A 10.244.2.12"}, ttl: 5}.check(t, server, "web.shop.registry.local.", "A")
			for name, rcode := range map[string]int{"alias.shop.registry.local.": test.alias, "epdns.epdns.registry.local.": test.other} {
				if reply, err := ask("udp", server, name, "A"); err != nil || reply.Rcode != rcode {
					t.Errorf("%s: %v, want %s\n%v", name, err, dns.RcodeToString[rcode], reply)
				}
			}

			log := warnings(p.Log())
			if len(log) != len(test.off) {
				t.Errorf("%d warnings, want %d:\n%s", len(log), len(test.off), strings.Join(log, ""))
			}
			ready, err := run.Get("http://" + nodeIP + ":9153/readyz?verbose")
			if err != nil {
				t.Fatal(err)
			}
			metrics, err := run.Get("http://" + nodeIP + ":9153/metrics")
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range test.off {
				grant := "list and watch " + o.resource + " " + o.where
				line := fmt.Sprintf("no right to list %ss: %s; asking again every minute", o.kind, o.missed)
				if !slices.ContainsFunc(log, func(w string) bool { return strings.Contains(w, line) && strings.Contains(w, grant) }) {
					t.Errorf("no warning says %q and %q:\n%s", line, grant, strings.Join(log, ""))
				}
				if line := fmt.Sprintf("[+]%s off: %s; grant %s\n", o.resource, o.missed, grant); !strings.Contains(string(ready), line) {
					t.Errorf("%q is not in /readyz?verbose:\n%s", line, ready)
				}
			}
			seen := 0
			for line := range strings.Lines(string(metrics)) {
				if !strings.HasPrefix(line, "epdns_watch_off{") {
					continue
				}
				seen++
				is := slices.ContainsFunc(test.off, func(o off) bool { return strings.Contains(line, fmt.Sprintf("kind=%q", o.kind)) })
				if is != strings.HasSuffix(line, " 1\n") {
					t.Errorf("a metric is %s", line)
				}
			}
			if seen != 3 {
				t.Errorf("epdns_watch_off has %d lines, want one of each kind", seen)
			}
		})
	}
}
