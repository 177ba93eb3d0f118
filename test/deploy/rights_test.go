//go:build linux

package deploy_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"epdns/test/run"

	"github.com/miekg/dns"
)

// token is one of the service account of deploy/base, as the kubelet would ask for it.
func token(t *testing.T) string {
	t.Helper()
	var answer struct{ Status struct{ Token string } }
	request(t, http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/epdns/token",
		map[string]any{"spec": map[string]any{"expirationSeconds": 3600}}, &answer)
	if answer.Status.Token == "" {
		t.Fatal("the API server gave no token")
	}
	return answer.Status.Token
}

// may asks the API server for a right of the service account.
func may(t *testing.T, verb, group, resource string) bool {
	t.Helper()
	type object = map[string]any
	var answer struct{ Status struct{ Allowed bool } }
	request(t, http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", object{
		"spec": object{
			"user":               "system:serviceaccount:" + namespace + ":epdns",
			"groups":             []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
			"resourceAttributes": object{"verb": verb, "group": group, "resource": resource},
		},
	}, &answer)
	return answer.Status.Allowed
}

// With the rights of deploy/base everything is served, with those of the overlay what the
// slices tell, and the log says once what is off.
func TestRights(t *testing.T) {
	deployed(t)
	for _, test := range []struct {
		dir      string
		more     bool     // than EndpointSlices
		alias    int      // what is said of an ExternalName Service
		warnings []string // in any order
	}{
		{"base", true, dns.RcodeSuccess, nil},
		{"overlays/minimal", false, dns.RcodeNameError, []string{"list and watch services", "list and watch nodes"}},
	} {
		t.Run(test.dir, func(t *testing.T) {
			if _, err := apply("-k", filepath.Join(shipped, test.dir)); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if _, err := apply("-k", filepath.Join(shipped, "base")); err != nil {
					t.Error(err)
				}
			})
			// The API server hears of a changed role a moment later.
			for _, right := range []struct {
				verb, group, resource string
				want                  bool
			}{
				{"list", "discovery.k8s.io", "endpointslices", true},
				{"watch", "discovery.k8s.io", "endpointslices", true},
				{"list", "", "services", test.more},
				{"watch", "", "services", test.more},
				{"list", "", "nodes", test.more},
				{"watch", "", "nodes", test.more},
				{"get", "", "nodes", false},
				{"list", "", "pods", false},
				{"list", "", "secrets", false},
				{"list", "", "configmaps", false},
				{"update", "discovery.k8s.io", "endpointslices", false},
			} {
				run.Eventually(t, func() error {
					if got := may(t, right.verb, right.group, right.resource); got != right.want {
						return fmt.Errorf("may %s %s: %v", right.verb, right.resource, got)
					}
					return nil
				})
			}

			p := serve(t)
			const server = "127.0.0.1"
			want{answer: []string{"A 10.244.1.11", "A 10.244.2.12"}, ttl: 5}.check(t, server+":5300", "web.shop.registry.local.", "A")
			if reply, err := ask("udp", server+":5300", "alias.shop.registry.local.", "A"); err != nil || reply.Rcode != test.alias {
				t.Errorf("alias: %v\n%v", err, reply)
			}
			warnings := warnings(p.Log())
			if len(warnings) != len(test.warnings) {
				t.Fatalf("%d warnings, want %d:\n%s", len(warnings), len(test.warnings), strings.Join(warnings, ""))
			}
			for _, want := range test.warnings {
				if !slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, want) }) {
					t.Errorf("%q is in no warning:\n%s", want, strings.Join(warnings, ""))
				}
			}
		})
	}
}
