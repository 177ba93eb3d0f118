//go:build linux

package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"epdns/test/cluster"
	"epdns/test/run"
)

// strict is a cluster with nothing in it, as some providers have it: Pods of a system priority
// run only where a quota speaks of them. Nodes are in three zones. It is started once; who has
// changed it leaves it as it was.
var strict = sync.OnceValues(func() (*cluster.Cluster, error) {
	path := filepath.Join(filepath.Dir(epdns), "admission.yaml")
	if err := os.WriteFile(path, []byte(admission), 0o644); err != nil {
		return nil, err
	}
	c, err := cluster.Start(context.Background(), cluster.Options{
		Nodes: 3,
		Args: map[cluster.Component][]string{
			cluster.APIServer: {"--admission-control-config-file=" + path},
			// Replicas follow soon.
			cluster.ControllerManager: {"--horizontal-pod-autoscaler-sync-period=1s"},
		},
	})
	if err == nil {
		stopStrict = c.Stop
	}
	return c, err
})

// stopStrict ends it, if it runs.
var stopStrict = func() error { return nil }

const admission = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ResourceQuota
  configuration:
    apiVersion: apiserver.config.k8s.io/v1
    kind: ResourceQuotaConfiguration
    limitedResources:
    - resource: pods
      matchScopes:
      - scopeName: PriorityClass
        operator: In
        values: [system-cluster-critical, system-node-critical]
`

func strictCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	c, err := strict()
	if err != nil {
		t.Fatal(err)
	}
	run.Eventually(t, func() error { // the test before has deleted its namespaces
		var list struct {
			Items []struct{ Metadata struct{ Name string } }
		}
		err := c.Request(t.Context(), http.MethodGet, "/api/v1/namespaces", nil, &list)
		for _, n := range list.Items {
			if name := n.Metadata.Name; name != "default" && !strings.HasPrefix(name, "kube-") {
				err = errors.Join(err, fmt.Errorf("namespace %s is still there", name))
			}
		}
		return err
	})
	return c
}

// create makes an object as the administrator.
func create(t *testing.T, c *cluster.Cluster, path string, object any) error {
	t.Helper()
	return c.Request(t.Context(), http.MethodPost, path, object, nil)
}

// Each overlay is accepted without a warning by a fresh cluster that enforces Pod security and
// limits priorities, gets as many Pods as it says, where it says, changes nothing when it is
// applied again, and leaves nothing when it is deleted. (base is in TestBase and TestInstall;
// minimal differs from it by its rights alone, see there.)
func TestOverlays(t *testing.T) {
	c := strictCluster(t)
	type object = map[string]any
	for _, o := range []object{
		{"metadata": object{"name": "shop"}},
		{"metadata": object{"name": "restricted", "labels": object{"pod-security.kubernetes.io/enforce": "restricted"}}},
	} {
		if err := create(t, c, "/api/v1/namespaces", o); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, name := range []string{"shop", "restricted"} {
			if err := c.Request(context.Background(), http.MethodDelete, "/api/v1/namespaces/"+name, nil, nil); err != nil {
				t.Error(err)
			}
		}
	})
	// A user who is administrator of one namespace.
	err := create(t, c, "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/rolebindings", object{
		"metadata": object{"name": "tenant"},
		"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
		"subjects": []object{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": cluster.Limited}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tenant, err := c.KubeconfigFor(cluster.Limited)
	if err != nil {
		t.Fatal(err)
	}
	quotaless := object{"metadata": object{"name": "critical"}, "spec": object{
		"priorityClassName": "system-cluster-critical", "containers": []object{{"name": "c", "image": "c"}}}}
	if err := create(t, c, "/api/v1/namespaces/shop/pods?dryRun=All", quotaless); err == nil || !strings.Contains(err.Error(), "insufficient quota") {
		t.Errorf("a critical Pod without a quota: %v", err)
	}

	for _, test := range []struct {
		dir, namespace, workload string
		by                       string // kubeconfig
		pods                     int    // each on a node, and in a zone, of its own
		priority                 string
		unrestricted             string // what Pod security says where it is restricted
	}{
		{"overlays/single", "epdns", "deployments/epdns", c.Kubeconfig, 1, "", ""},
		{"overlays/ha", "epdns", "deployments/epdns", c.Kubeconfig, 3, "system-cluster-critical", ""},
		{"overlays/namespaced", "shop", "deployments/epdns", tenant, 2, "", ""},
		{"overlays/node-local", "epdns-node-local", "daemonsets/epdns", c.Kubeconfig, 3, "system-node-critical", "host namespaces"},
	} {
		t.Run(test.dir, func(t *testing.T) {
			dir := filepath.Join(shipped, test.dir)
			t.Cleanup(func() {
				if t.Failed() { // before it was deleted, perhaps
					controlWith(test.by, "delete", "--ignore-not-found", "--wait=false", "-k", dir)
				}
			})
			if _, err := controlWith(test.by, "apply", "-k", dir); err != nil {
				t.Fatal(err)
			}
			if _, err := controlWith(test.by, "-n", test.namespace, "rollout", "status", test.workload, "--timeout=2m"); err != nil {
				t.Fatal(err)
			}
			run.Eventually(t, func() error {
				var list struct {
					Items []struct {
						Spec   struct{ NodeName string }
						Status struct{ Phase string }
					}
				}
				err := c.Request(t.Context(), http.MethodGet, "/api/v1/namespaces/"+test.namespace+"/pods", nil, &list)
				nodes := map[string]bool{}
				for _, p := range list.Items {
					if p.Status.Phase == "Running" {
						nodes[p.Spec.NodeName] = true
					}
				}
				if err == nil && (len(list.Items) != test.pods || len(nodes) != test.pods) {
					err = fmt.Errorf("%d Pods on nodes %v, want %d", len(list.Items), nodes, test.pods)
				}
				return err
			})
			out, err := controlWith(test.by, "apply", "--dry-run=server", "-k", dir)
			if err != nil {
				t.Fatal(err)
			}
			for object, what := range applied(t, test.dir, out) {
				if what != "unchanged (server dry run)" {
					t.Errorf("applied again: %s is %s", object, what)
				}
			}

			p := podOf(t, c, "apis/apps/v1/namespaces/"+test.namespace+"/"+test.workload)
			if p.spec.PriorityClassName != test.priority {
				t.Errorf("the priority is %q, want %q", p.spec.PriorityClassName, test.priority)
			}
			delete(p.spec.all, "priorityClassName")
			err = create(t, c, "/api/v1/namespaces/restricted/pods?dryRun=All", object{"metadata": object{"name": "epdns"}, "spec": p.spec.all})
			if why := refused(err); test.unrestricted == "" && err != nil || !strings.Contains(why, test.unrestricted) || test.unrestricted != "" && why == "" {
				t.Errorf("where Pod security is restricted: %v, want %q", err, test.unrestricted)
			}

			if _, err := controlWith(test.by, "delete", "-k", dir); err != nil {
				t.Fatal(err)
			}
			if left := leftovers(t, c); len(left) > 0 {
				t.Errorf("after it was deleted there still are %q", left)
			}
		})
	}
}

// refused is what the API server says where it forbids something.
func refused(err error) string {
	if status, ok := errors.AsType[*cluster.StatusError](err); ok && status.Code == http.StatusForbidden {
		return status.Message
	}
	return ""
}

// leftovers are the objects that are epdns's by their label or name, of all kinds that deploy/ has.
func leftovers(t *testing.T, c *cluster.Cluster) (left []string) {
	t.Helper()
	const kinds = "namespaces,serviceaccounts,clusterroles,clusterrolebindings,roles,rolebindings,deployments,daemonsets,services," +
		"poddisruptionbudgets,horizontalpodautoscalers,networkpolicies,resourcequotas"
	out, err := controlWith(c.Kubeconfig, "get", kinds, "--all-namespaces", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct {
				Name   string
				Labels map[string]string
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		if o.Metadata.Labels["app.kubernetes.io/name"] == "epdns" || strings.HasPrefix(o.Metadata.Name, "epdns") {
			left = append(left, o.Kind+" "+o.Metadata.Name)
		}
	}
	return left
}

// All components together are accepted over base, and what they name is there.
func TestComponents(t *testing.T) {
	deployed(t)
	if _, err := apply("-f", "testdata/monitors.yaml"); err != nil {
		t.Fatal(err)
	}
	if _, err := control("wait", "--for=condition=Established", "crd/podmonitors.monitoring.coreos.com",
		"crd/servicemonitors.monitoring.coreos.com"); err != nil {
		t.Fatal(err)
	}
	dir := kustomization(t, "resources:\n- ROOT/base\ncomponents:\n- ROOT/components/network-policy\n- ROOT/components/autoscaling\n"+
		"- ROOT/components/pod-monitor\n- ROOT/components/service-monitor\n- ROOT/components/no-nodes\n- ROOT/components/endpointslices-only\n")
	out, err := apply("--dry-run=server", "-k", dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"networkpolicy.networking.k8s.io/epdns created", "horizontalpodautoscaler.autoscaling/epdns created",
		"podmonitor.monitoring.coreos.com/epdns created", "servicemonitor.monitoring.coreos.com/epdns created", "service/epdns-metrics created",
		"clusterrole.rbac.authorization.k8s.io/epdns configured"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}

	// Ports by name must be the container's: nobody else would say that they are not.
	var names []string
	for _, p := range podOf(t, kube, "apis/apps/v1/namespaces/"+namespace+"/deployments/epdns").spec.Containers[0].Ports {
		names = append(names, p.Name)
	}
	type port struct{ Port, TargetPort any }
	out, err = control("create", "--dry-run=client", "-o", "json", "-f", filepath.Join(shipped, "components/network-policy/networkpolicy.yaml"),
		"-f", filepath.Join(shipped, "components/pod-monitor/podmonitor.yaml"), "-f", filepath.Join(shipped, "components/service-monitor/service.yaml"),
		"-f", filepath.Join(shipped, "components/service-monitor/servicemonitor.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var o struct {
			Kind string
			Spec struct {
				Ingress             []struct{ Ports []port }
				PodMetricsEndpoints []port
				Endpoints           []port // of a ServiceMonitor: the Service's, which are called as the container's
				Ports               []port // of a Service
			}
		}
		if err := d.Decode(&o); err != nil {
			t.Fatal(err)
		}
		ports := append(o.Spec.PodMetricsEndpoints, o.Spec.Endpoints...)
		for _, p := range o.Spec.Ports {
			ports = append(ports, port{Port: p.TargetPort})
		}
		for _, i := range o.Spec.Ingress {
			ports = append(ports, i.Ports...)
		}
		for _, p := range ports {
			seen++
			if name, _ := p.Port.(string); !slices.Contains(names, name) {
				t.Errorf("%s: the container has no port %v but %q", o.Kind, p.Port, names)
			}
		}
	}
	if seen != 6 {
		t.Errorf("%d ports are named, want 6", seen)
	}
}

// What deploy/README.md makes of the overlay for one namespace has no other namespace in it.
func TestReadmeNamespaced(t *testing.T) {
	overlay, _ := block(t, section(t, "Rights"), "yaml")
	out, err := control("kustomize", kustomization(t, strings.ReplaceAll(overlay, "epdns/deploy/", "ROOT/")))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out, "- --namespace=team\n") || strings.Contains(out, "shop") {
		t.Errorf("it is not of namespace team alone:\n%s", out)
	}
	namespaced := 0
	for line := range strings.Lines(out) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "namespace: "); ok {
			if namespaced++; name != "team" {
				t.Errorf("there is a namespace %s", name)
			}
		}
	}
	if kinds := strings.Count("\n"+out, "\nkind: "); namespaced != kinds+1 { // and the subject of the RoleBinding
		t.Errorf("%d namespaces in %d objects", namespaced, kinds)
	}
}

// What deploy/README.md says of a configuration is accepted, and the file is where epdns looks for it.
func TestReadmeConfiguration(t *testing.T) {
	deployed(t)
	text, _ := block(t, section(t, "Configuration"), "yaml")
	dir := kustomization(t, "resources:\n- ROOT/base\n"+text)
	const config = "apiVersion: epdns/v1alpha1\nkind: Config\nlameduck: 9s\n"
	if err := os.WriteFile(filepath.Join(dir, "epdns.yaml"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := apply("--dry-run=server", "-o", "json", "-k", dir)
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct{ Name string }
			Data     map[string]string
			Spec     struct {
				Template struct {
					Spec struct {
						Containers []container
						Volumes    []struct{ ConfigMap struct{ Name string } }
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{} // by ConfigMap and name
	var args, mounts, volumes []string
	for _, o := range list.Items {
		for name, content := range o.Data {
			files[o.Metadata.Name+"/"+name] = content
		}
		for _, c := range o.Spec.Template.Spec.Containers {
			args = append(args, c.Args...)
			for _, m := range c.VolumeMounts {
				mounts = append(mounts, m.MountPath)
			}
		}
		for _, v := range o.Spec.Template.Spec.Volumes {
			volumes = append(volumes, v.ConfigMap.Name)
		}
	}
	if files["epdns/epdns.yaml"] != config || !slices.Contains(args, "--config=/etc/epdns/epdns.yaml") ||
		!slices.Contains(mounts, "/etc/epdns") || !slices.Contains(volumes, "epdns") {
		t.Errorf("the files are %q, the arguments %q, mounted are %q of the ConfigMaps %q", files, args, mounts, volumes)
	}
}

// kustomization makes a directory with one in which ROOT stands for that of deploy/.
func kustomization(t *testing.T, text string) (dir string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs(shipped)
	if err != nil {
		t.Fatal(err)
	}
	if root, err = filepath.Rel(dir, root); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(strings.ReplaceAll(text, "ROOT", root)), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// deploy/README.md speaks of each overlay and component that there is, and of no other.
func TestReadmeNames(t *testing.T) {
	readme, err := os.ReadFile(filepath.Join(shipped, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"overlays", "components"} {
		entries, err := os.ReadDir(filepath.Join(shipped, kind))
		if err != nil {
			t.Fatal(err)
		}
		var rows []string
		for line := range strings.Lines(string(readme)) {
			if name, ok := strings.CutPrefix(line, "| `"+kind+"/"); ok {
				name, _, _ = strings.Cut(name, "`")
				rows = append(rows, name)
			}
		}
		slices.Sort(rows)
		var there []string
		for _, e := range entries {
			there = append(there, e.Name())
		}
		if !slices.Equal(rows, there) {
			t.Errorf("the tables of README.md have the %s %q, and there are %q", kind, rows, there)
		}
	}
}
