//go:build linux

package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"epdns/test/cluster"
	"epdns/test/run"
)

// namespace is that of deploy/base.
const namespace = "epdns"

// apply runs kubectl apply and returns what it printed.
func apply(args ...string) (string, error) { return control(append([]string{"apply"}, args...)...) }

// control runs kubectl as the administrator.
func control(args ...string) (string, error) { return controlWith(kube.Kubeconfig, args...) }

// controlWith runs kubectl with a command that prints something, and returns that. A warning of
// the API server, such as that of Pod security, is an error.
func controlWith(kubeconfig string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(kubectl, args...)
	cmd.Env = []string{"KUBECONFIG=" + kubeconfig, "HOME=" + filepath.Dir(kubeconfig)}
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err == nil && stderr.Len() > 0 {
		err = errors.New("it says something on stderr")
	}
	if err == nil && stdout.Len() == 0 {
		err = errors.New("it prints nothing")
	}
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, &stderr)
	}
	return stdout.String(), nil
}

// deployed applies deploy/base and what the tests look up, once.
func deployed(t *testing.T) {
	t.Helper()
	if err := deployOnce(); err != nil {
		t.Fatal(err)
	}
}

var deployOnce = sync.OnceValue(func() error {
	if _, err := apply("-k", filepath.Join(shipped, "base")); err != nil {
		return err
	}
	_, err := apply("-f", "testdata/shop.yaml")
	return err
})

// The few fields that the tests look at.
type (
	deploymentObject struct {
		Spec   struct{ Replicas int }
		Status struct{ UpdatedReplicas, AvailableReplicas int }
	}
	slice struct {
		Endpoints []struct {
			Conditions struct{ Ready bool }
			Zone       string
		}
		Ports []struct {
			Name, Protocol string
			Port           int
		}
	}
)

// request is a request of the administrator.
func request(t *testing.T, method, path string, in, out any) {
	t.Helper()
	if err := kube.Request(t.Context(), method, path, in, out); err != nil {
		t.Fatal(err)
	}
}

func deployment(t *testing.T) (d deploymentObject) {
	t.Helper()
	request(t, http.MethodGet, "/apis/apps/v1/namespaces/"+namespace+"/deployments/epdns", nil, &d)
	return d
}

// deploy/base is accepted without a warning, its Pods run where Pod security is enforced, in
// different zones, and stand behind the Service.
func TestBase(t *testing.T) {
	deployed(t)
	run.Eventually(t, func() error {
		d := deployment(t)
		if d.Spec.Replicas != 2 || d.Status.UpdatedReplicas != 2 || d.Status.AvailableReplicas != 2 {
			return fmt.Errorf("%d replicas, %d updated, %d available", d.Spec.Replicas, d.Status.UpdatedReplicas, d.Status.AvailableReplicas)
		}
		return nil
	})
	run.Eventually(t, func() error {
		var list struct{ Items []slice }
		request(t, http.MethodGet, "/apis/discovery.k8s.io/v1/namespaces/"+namespace+"/endpointslices", nil, &list)
		var ports, zones []string
		for _, s := range list.Items {
			for _, p := range s.Ports {
				ports = append(ports, fmt.Sprintf("%s %s %d", p.Name, p.Protocol, p.Port))
			}
			for _, e := range s.Endpoints {
				if e.Conditions.Ready {
					zones = append(zones, e.Zone)
				}
			}
		}
		slices.Sort(ports)
		if want := []string{"dns UDP 5300", "dns-tcp TCP 5300"}; !slices.Equal(ports, want) {
			return fmt.Errorf("the Service leads to %q, want %q", ports, want)
		}
		if len(zones) != 2 || zones[0] == zones[1] {
			return fmt.Errorf("Pods are ready in zones %q, want two different ones", zones)
		}
		return nil
	})
	run.Eventually(t, func() error {
		var pdb struct {
			Status struct{ ExpectedPods, DisruptionsAllowed int }
		}
		request(t, http.MethodGet, "/apis/policy/v1/namespaces/"+namespace+"/poddisruptionbudgets/epdns", nil, &pdb)
		if pdb.Status.ExpectedPods != 2 || pdb.Status.DisruptionsAllowed != 1 {
			return fmt.Errorf("of %d Pods %d may be disrupted", pdb.Status.ExpectedPods, pdb.Status.DisruptionsAllowed)
		}
		return nil
	})

	t.Run("Pod security is enforced", func(t *testing.T) {
		type object = map[string]any
		err := kube.Request(t.Context(), http.MethodPost, "/api/v1/namespaces/"+namespace+"/pods?dryRun=All", object{
			"metadata": object{"name": "careless"},
			"spec":     object{"containers": []object{{"name": "careless", "image": "careless"}}},
		}, nil)
		if status, ok := errors.AsType[*cluster.StatusError](err); !ok || status.Code != http.StatusForbidden {
			t.Errorf("a Pod that is not restricted: %v", err)
		}
	})

	t.Run("applied again, nothing changes", func(t *testing.T) {
		out, err := apply("-k", filepath.Join(shipped, "base"))
		if err != nil {
			t.Fatal(err)
		}
		for object, what := range applied(t, "base", out) {
			if what != "unchanged" {
				t.Errorf("%s is %s", object, what)
			}
		}
	})

	t.Run("the overlay changes the rights and nothing else", func(t *testing.T) {
		out, err := apply("--dry-run=server", "-k", filepath.Join(shipped, "overlays/minimal"))
		if err != nil {
			t.Fatal(err)
		}
		for object, what := range applied(t, "overlays/minimal", out) {
			if want := object == "clusterrole.rbac.authorization.k8s.io/epdns"; want != (what == "configured (server dry run)") {
				t.Errorf("%s is %s", object, what)
			}
		}
	})
}

// applied is what became of each object of a directory of deploy, but for the PodDisruptionBudget,
// of which kubectl always says that it is configured: its selector is replaced, not merged.
func applied(t *testing.T, dir, out string) map[string]string {
	t.Helper()
	m := map[string]string{}
	for line := range strings.Lines(out) {
		object, what, _ := strings.Cut(strings.TrimSpace(line), " ")
		m[object] = what
	}
	rendered, err := control("kustomize", filepath.Join(shipped, dir))
	if err != nil {
		t.Fatal(err)
	}
	if objects := strings.Count("\n"+rendered, "\nkind: "); len(m) != objects {
		t.Errorf("of the %d objects of %s, kubectl speaks of %d:\n%s", objects, dir, len(m), out)
	}
	delete(m, "poddisruptionbudget.policy/epdns")
	return m
}

// The snippets that are objects are accepted.
func TestSnippetsAccepted(t *testing.T) {
	deployed(t)
	for _, name := range []string{"nodelocaldns.yaml", "pod.yaml"} {
		if _, err := apply("--dry-run=server", "-f", filepath.Join(shipped, "snippets", name)); err != nil {
			t.Error(err)
		}
	}
}

// The block that node-cache makes of a stub domain is the one in nodelocaldns.Corefile.
func TestStubDomain(t *testing.T) {
	deployed(t)
	var config struct{ Data struct{ StubDomains string } }
	shippedObject(t, "nodelocaldns.yaml", &config)
	var domains map[string][]string
	if err := json.Unmarshal([]byte(config.Data.StubDomains), &domains); err != nil {
		t.Fatal(err)
	}
	var blocks strings.Builder
	for domain, servers := range domains {
		// As in k8s.io/dns, cmd/node-cache/app/configmap.go.
		fmt.Fprintf(&blocks, "%s:53 {\n    errors\n    cache 30\n    bind %s\n    forward . %s\n}\n", domain, nodeLocal, strings.Join(servers, " "))
	}
	var bare strings.Builder
	for line := range strings.Lines(snippet(t, "nodelocaldns.Corefile", "")) {
		if !strings.HasPrefix(line, "#") {
			bare.WriteString(line)
		}
	}
	if bare.String() != blocks.String() {
		t.Errorf("nodelocaldns.Corefile has\n%s\nand nodelocaldns.yaml leads to\n%s", &bare, &blocks)
	}
}

// shippedObject decodes a file of deploy/snippets that has one object.
func shippedObject(t *testing.T, name string, into any) {
	t.Helper()
	text, err := control("create", "--dry-run=server", "-o", "json", "-f", filepath.Join(shipped, "snippets", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}
