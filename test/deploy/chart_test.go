//go:build linux

package deploy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"epdns/test/cluster"
	"epdns/test/netns"
	"epdns/test/run"
)

// chart is the Helm chart, and everything a file of values that sets all there is in it.
const (
	chart      = shipped + "/chart"
	everything = "testdata/chart.yaml"
	instead    = "testdata/instead.yaml" // what excludes some of that
)

// helm runs Helm, as the administrator of a cluster if there is one, and returns what it printed.
func helm(t *testing.T, c *cluster.Cluster, args ...string) (string, error) {
	t.Helper()
	program, err := cluster.Helm(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	if c != nil {
		cmd.Env = append(cmd.Env, "KUBECONFIG="+c.Kubeconfig)
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("helm %s: %w\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return string(out), nil
}

func mustHelm(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	out, err := helm(t, c, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// values are the files of values that are tried: none is the default.
func values(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(chart + "/examples/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("there is no example: %v", err)
	}
	return append([]string{"", everything, instead}, files...)
}

// with is the flag for a file of values.
func with(file string) []string {
	if file == "" {
		return nil
	}
	return []string{"-f", file}
}

type object = map[string]any

// render is what a release "epdns" of the chart in namespace epdns is made of, without its test.
func render(t *testing.T, args ...string) []object {
	t.Helper()
	return objects(t, mustHelm(t, nil, append([]string{"template", "epdns", chart, "-n", namespace, "--skip-tests"}, args...)...))
}

func objects(t *testing.T, text string) (all []object) {
	t.Helper()
	for d := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o object
		if err := d.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		if o != nil {
			all = append(all, o)
		}
	}
}

// at is what stands in an object under keys, nil where nothing does.
func at(o any, keys ...string) any {
	for _, key := range keys {
		m, _ := o.(object)
		o = m[key]
	}
	return o
}

func TestChartLint(t *testing.T) {
	for _, file := range values(t) {
		out := mustHelm(t, nil, append([]string{"lint", "--strict", chart}, with(file)...)...)
		if !strings.Contains(out, "1 chart(s) linted, 0 chart(s) failed") {
			t.Errorf("%s:\n%s", file, out)
		}
	}
}

// By default the chart means what deploy/base does, and with an example what the overlay of that
// name does: the same objects, but for the Namespace, names and labels.
func TestChartMeansBase(t *testing.T) {
	for _, test := range []struct{ values, dir string }{
		{"", "base"},
		{"single", "overlays/single"},
		{"ha", "overlays/ha"},
		{"minimal", "overlays/minimal"},
		{"namespaced", "overlays/namespaced"},
		{"node-local", "overlays/node-local"},
	} {
		t.Run(test.dir, func(t *testing.T) {
			file := ""
			if test.values != "" {
				file = filepath.Join(chart, "examples", test.values+".yaml")
			}
			rendered, err := control("kustomize", filepath.Join(shipped, test.dir))
			if err != nil {
				t.Fatal(err)
			}
			got, want := meaning(render(t, with(file)...)), meaning(objects(t, rendered))
			for _, kind := range slices.Sorted(maps.Keys(want)) {
				if _, ok := got[kind]; !ok {
					t.Errorf("the chart has no %s", kind)
				}
			}
			for _, kind := range slices.Sorted(maps.Keys(got)) {
				if !reflect.DeepEqual(got[kind], want[kind]) {
					g, _ := yaml.Marshal(got[kind])
					w, _ := yaml.Marshal(want[kind])
					t.Errorf("%s: the chart has\n%s\nand %s\n%s", kind, g, test.dir, w)
				}
			}
		})
	}
}

// meaning is what objects say by their kinds, of which there is one each.
func meaning(all []object) map[string]object {
	m := map[string]object{}
	for _, o := range all {
		kind := o["kind"].(string)
		if kind == "Namespace" { // which a chart cannot make for itself
			continue
		}
		delete(o, "metadata")
		forget(o)
		m[kind] = o
	}
	return m
}

// forget drops what may differ: names, labels, and what is
// the default of Kubernetes in one and not said in the other.
func forget(v any) {
	switch v := v.(type) {
	case object:
		for _, key := range []string{"labels", "matchLabels", "selector", "serviceAccountName", "roleRef", "subjects", "scaleTargetRef"} {
			delete(v, key)
		}
		for key, is := range (object{"imagePullPolicy": "IfNotPresent", "type": "ClusterIP", "runAsNonRoot": false}) {
			if reflect.DeepEqual(v[key], is) {
				delete(v, key)
			}
		}
		for _, inner := range v {
			forget(inner)
		}
	case []any:
		for _, inner := range v {
			forget(inner)
		}
	}
}

// What is rendered is accepted without a warning by a real API server, whatever the values, and by
// Pod security "restricted" but for what is in the nodes' network.
func TestChartAccepted(t *testing.T) {
	c := strictCluster(t)
	for _, name := range []string{"monitors.yaml", "prometheusrule.yaml"} {
		if _, err := controlWith(c.Kubeconfig, "apply", "-f", "testdata/"+name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := controlWith(c.Kubeconfig, "wait", "--for=condition=Established", "crd/podmonitors.monitoring.coreos.com",
		"crd/servicemonitors.monitoring.coreos.com", "crd/prometheusrules.monitoring.coreos.com"); err != nil {
		t.Fatal(err)
	}
	namespaces := []object{
		{"metadata": object{"name": "shop"}},
		{"metadata": object{"name": "team-b"}},
		{"metadata": object{"name": "charted", "labels": object{
			"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}}},
		{"metadata": object{"name": "charted-host", "labels": object{"pod-security.kubernetes.io/enforce": "privileged"}}},
	}
	for _, o := range namespaces {
		if err := create(t, c, "/api/v1/namespaces", o); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, o := range namespaces {
			if err := c.Request(context.Background(), http.MethodDelete, "/api/v1/namespaces/"+at(o, "metadata", "name").(string), nil, nil); err != nil {
				t.Error(err)
			}
		}
	})
	for _, file := range values(t) {
		t.Run(file, func(t *testing.T) {
			namespace := "charted"
			if strings.HasSuffix(file, "node-local.yaml") {
				namespace = "charted-host"
			}
			text := mustHelm(t, nil, append([]string{"template", "epdns", chart, "-n", namespace}, with(file)...)...)
			path := filepath.Join(t.TempDir(), "rendered.yaml")
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			out, err := controlWith(c.Kubeconfig, "apply", "--dry-run=server", "-f", path)
			if err != nil {
				t.Fatal(err)
			}
			all := objects(t, text)
			if lines := strings.Count(out, " created (server dry run)\n"); lines != len(all) {
				t.Errorf("of %d objects %d are accepted:\n%s", len(all), lines, out)
			}
			for _, o := range all {
				spec, _ := at(o, "spec", "template", "spec").(object)
				if spec == nil {
					continue
				}
				delete(spec, "priorityClassName") // which has a quota of its own
				delete(spec, "serviceAccountName")
				err := create(t, c, "/api/v1/namespaces/charted/pods?dryRun=All", object{"metadata": object{"name": "epdns"}, "spec": spec})
				if host := namespace == "charted-host"; host != strings.Contains(refused(err), "host namespaces") || !host && err != nil {
					t.Errorf("where Pod security is restricted: %v", err)
				}
			}
			if file != everything {
				return
			}
			kinds := map[string]int{}
			for _, o := range all {
				kinds[o["kind"].(string)]++
			}
			want := map[string]int{"ConfigMap": 1, "ClusterRole": 1, "ClusterRoleBinding": 1, "Role": 2, "RoleBinding": 2, "Service": 1,
				"ServiceAccount": 1, "Deployment": 1, "PodDisruptionBudget": 1, "HorizontalPodAutoscaler": 1, "NetworkPolicy": 1,
				"PodMonitor": 1, "PrometheusRule": 1, "ResourceQuota": 1, "Pod": 1}
			if !maps.Equal(kinds, want) {
				t.Errorf("there are %v, want %v", kinds, want)
			}
		})
	}
}

// Wrong values are refused with a message that says which.
func TestChartRefuses(t *testing.T) {
	for _, test := range []struct{ set, want string }{
		{"replicas=3", "replicas"},
		{"image.name=epdns", "name"},
		{"image.repository=registry.example/epdns:v1", "/image/repository"},
		{"image.tag=v1+dirty", "/image/tag"},
		{"image.digest=4f53", "/image/digest"},
		{"image.pullPolicy=Sometimes", "/image/pullPolicy"},
		{"kind=StatefulSet", "/kind"},
		{"replicaCount=-1", "/replicaCount"},
		{"replicaCount=two", "/replicaCount"},
		{"dnsPort=70000", "/dnsPort"},
		{"listenAddress=localhost", "/listenAddress"},
		{"namespaces={Shop}", "/namespaces/0"},
		{"namespaces={shop,shop}", "/namespaces"},
		{"extraArgs={serve}", "/extraArgs/0"},
		{"rbac.pods=true", "pods"},
		{"rbac.create=sure", "/rbac/create"},
		{"service.type=ExternalName", "/service/type"},
		{"service.clusterIP=ten", "/service/clusterIP"},
		{"service.clusterIP=None", "/service/clusterIP"}, // port 53 would lead nowhere
		{"service.ipFamilies={IPv5}", "/service/ipFamilies/0"},
		{"state.sizeLimit=large", "/state/sizeLimit"},
		{"podDisruptionBudget.maxUnavailable=half", "/podDisruptionBudget/maxUnavailable"},
		{"autoscaling.targetCPU=80%", "/autoscaling/targetCPU"},
		{"networkPolicy.apiServerPorts={}", "/networkPolicy/apiServerPorts"},
		{"podMonitor.interval=often", "/podMonitor/interval"},
		{"serviceMonitor.interval=often", "/serviceMonitor/interval"},
		{"podMonitor.enabled=true,serviceMonitor.enabled=true", "serviceMonitor.enabled: with podMonitor.enabled"},
		{"resources.limit.memory=1Gi", "limit"},
		{"resources.limits.memory=much", "/resources/limits/memory"},
		{"config.listen={:53}", "config.listen: the chart sets this by the value dnsPort and listenAddress"},
		{"config.http=:80", "config.http: the chart sets this by the value httpPort"},
		{"config=listen: [", "config: "},
		{"config.source.namespaces={shop},namespaces={shop}", "config.source.namespaces"},
		{"kind=DaemonSet,autoscaling.enabled=true", "autoscaling.enabled: a DaemonSet"},
		{"autoscaling.enabled=true,autoscaling.minReplicas=20", "autoscaling.minReplicas: more than maxReplicas"},
		{"hostNetwork=true", "hostNetwork: two Pods"},
		{"kind=DaemonSet,hostNetwork=true,networkPolicy.enabled=true", "networkPolicy.enabled: a NetworkPolicy does not hold"},
		{"resourceQuota.enabled=true", "resourceQuota.enabled: the quota is of a priorityClassName"},
	} {
		t.Run(test.set, func(t *testing.T) {
			set := "--set"
			if strings.HasPrefix(test.set, "config=") {
				set = "--set-literal"
			}
			if _, err := helm(t, nil, "template", "epdns", chart, set, test.set); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
	// A chart that has this one among its dependencies adds these.
	for _, set := range []string{"global.registry=registry.example", "enabled=true"} {
		if _, err := helm(t, nil, "template", "epdns", chart, "--set", set); err != nil {
			t.Error(err)
		}
	}
}

// What values make of the program's arguments, its configuration and its rights.
func TestChartValues(t *testing.T) {
	t.Run("arguments", func(t *testing.T) {
		for _, test := range []struct {
			set  string
			want []string
		}{
			{"kind=Deployment", []string{"serve", "--http=:9153", "--state-dir=/var/lib/epdns"}},
			{"state.enabled=false,httpPort=80", []string{"serve", "--http=:80"}},
			{"dnsPort=53", []string{"serve", "--listen=:53", "--http=:9153", "--state-dir=/var/lib/epdns"}},
			{"listenAddress=fd00::11", []string{"serve", "--listen=[fd00::11]:5300", "--http=:9153", "--state-dir=/var/lib/epdns"}},
			{"namespaces={a,b},extraArgs={--lameduck=9s}", []string{"serve", "--http=:9153", "--state-dir=/var/lib/epdns", "--namespace=a", "--namespace=b", "--lameduck=9s"}},
			{"config.lameduck=9s", []string{"serve", "--config=/etc/epdns/epdns.yaml", "--http=:9153", "--state-dir=/var/lib/epdns"}},
		} {
			deployment := ofKind(t, render(t, "--set", test.set), "Deployment")
			var got []string
			for _, arg := range at(deployment, "spec", "template", "spec", "containers").([]any)[0].(object)["args"].([]any) {
				got = append(got, arg.(string))
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%s: %q, want %q", test.set, got, test.want)
			}
		}
	})

	// A configuration arrives as it was meant, in each of its forms.
	t.Run("configuration", func(t *testing.T) {
		text := "  # as it is, the blanks too\napiVersion: epdns/v1alpha1\nkind: Config\nzones:\n- name: text.example\n"
		file := filepath.Join(t.TempDir(), "epdns.yaml")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			args []string
			want []string
		}{
			{with(everything), []string{"apiVersion: epdns/v1alpha1\n", "kind: Config\n", "topology: \"off\"\n", "total: 1000000\n", "ttl: 2s\n"}},
			{[]string{"--set-file", "config=" + file}, []string{text}},
		} {
			got, _ := at(ofKind(t, render(t, test.args...), "ConfigMap"), "data", "epdns.yaml").(string)
			for _, want := range test.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in:\n%s", want, got)
				}
			}
			path := filepath.Join(t.TempDir(), "epdns.yaml")
			// The key for transfers is a file of the cluster.
			got = strings.ReplaceAll(got, "/etc/epdns-secrets/", filepath.Dir(path)+"/")
			for name, content := range map[string]string{path: got, filepath.Join(filepath.Dir(path), "secondary.key"): "c2l4dGVlbiBvY3RldHMh\n"} {
				if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if out, err := exec.Command(epdns, "check", "--config", path, "--manifests", "testdata/shop.yaml").CombinedOutput(); err != nil {
				t.Errorf("epdns check: %v\n%s%s", err, out, got)
			}
		}
	})

	t.Run("rights", func(t *testing.T) {
		for _, test := range []struct {
			set  string
			want []string
		}{
			{"rbac.create=true", []string{"ClusterRole: endpointslices services nodes"}},
			{"rbac.nodes=false", []string{"ClusterRole: endpointslices services"}},
			{"rbac.services=false", []string{"ClusterRole: endpointslices nodes"}},
			{"namespaces={a,b}", []string{"ClusterRole: nodes", "Role a: endpointslices services", "Role b: endpointslices services"}},
			{"namespaces={a},rbac.nodes=false,rbac.services=false", []string{"Role a: endpointslices"}},
			{"rbac.create=false", nil},
		} {
			var got []string
			for _, o := range render(t, "--set", test.set) {
				if kind := o["kind"].(string); kind == "ClusterRole" || kind == "Role" {
					if in, ok := at(o, "metadata", "namespace").(string); ok {
						kind += " " + in
					}
					kind += ":"
					for _, rule := range o["rules"].([]any) {
						if verbs := at(rule, "verbs"); !reflect.DeepEqual(verbs, []any{"list", "watch"}) {
							t.Errorf("%s: the verbs are %v", test.set, verbs)
						}
						for _, resource := range at(rule, "resources").([]any) {
							kind += " " + resource.(string)
						}
					}
					got = append(got, kind)
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("%s: %q, want %q", test.set, got, test.want)
			}
		}
	})
}

// ofKind is the one object of a kind.
func ofKind(t *testing.T, all []object, kind string) object {
	t.Helper()
	i := slices.IndexFunc(all, func(o object) bool { return o["kind"] == kind })
	if i < 0 {
		t.Fatalf("there is no %s", kind)
	}
	return all[i]
}

// The chart is installed in a cluster, tells what to do, answers, is tested by Helm, changed without
// its Pods being replaced, upgraded, and is gone without a trace.
func TestChartInstall(t *testing.T) {
	if netns.Mapped() {
		t.Skip("the image's user is none here: run the tests as root")
	}
	c := strictCluster(t)
	if err := create(t, c, "/api/v1/namespaces", object{"metadata": object{"name": namespace, "labels": object{
		"pod-security.kubernetes.io/enforce": "restricted"}}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Request(context.Background(), http.MethodDelete, "/api/v1/namespaces/"+namespace, nil, nil); err != nil {
			t.Error(err)
		}
	})
	const path = "/apis/apps/v1/namespaces/" + namespace + "/deployments/epdns"
	settings := []string{"--set", "config.zones[0].name=chart.example", "--set", "service.clusterIP=" + epdnsIP}
	out := mustHelm(t, c, append([]string{"install", "epdns", chart, "-n", namespace, "--wait", "--timeout=2m"}, settings...)...)
	for _, want := range []string{
		"dig @" + epdnsIP + " SERVICE.NAMESPACE.chart.example\n",
		"  chart.example:53 {\n",
		"forward . " + epdnsIP + " {\n",
		"make image",
		"helm -n epdns test epdns",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in what Helm says:\n%s", want, out)
		}
	}

	// tested has Helm test the release, and the Pod that this makes run.
	tested := func(t *testing.T) (out string, pod, err error) {
		ran := make(chan error, 1)
		go func() { ran <- actKubelet(t, c, "epdns-test") }()
		out, err = helm(t, c, "test", "epdns", "-n", namespace, "--timeout=2m")
		return out, <-ran, err
	}
	t.Run("test that fails", func(t *testing.T) { // nobody answers yet
		_, pod, err := tested(t)
		if !strings.Contains(fmt.Sprint(pod), "connection refused") || !strings.Contains(fmt.Sprint(err), "pod epdns-test failed") {
			t.Errorf("without epdns the Pod ends with %v, and helm test with %v", pod, err)
		}
	})

	p := podOf(t, c, strings.TrimPrefix(path, "/"))
	epdns := run.ForTest(t, p.contained(t, "--lameduck=0", "--listen="+epdnsIP+":53").command(t))
	epdns.Eventually(t, func() error {
		_, err := run.Get("http://127.0.0.1:9153/readyz")
		return err
	})
	want{answer: []string{"A 192.0.2.1"}, ttl: 5}.check(t, epdnsIP, "kubernetes.default.chart.example.", "A")

	t.Run("test", func(t *testing.T) {
		out, ranErr, err := tested(t)
		if ranErr != nil || err != nil {
			t.Fatal(ranErr, err)
		}
		if !strings.Contains(out, "Succeeded") {
			t.Errorf("helm test:\n%s", out)
		}
	})

	// Only the ConfigMap changes, and epdns has it.
	var before, after struct{ Metadata struct{ Generation int } }
	request := func(into any) {
		t.Helper()
		if err := c.Request(t.Context(), http.MethodGet, path, nil, into); err != nil {
			t.Fatal(err)
		}
	}
	request(&before)
	mustHelm(t, c, append([]string{"upgrade", "epdns", chart, "-n", namespace, "--wait", "--timeout=2m", "--set", "config.lameduck=9s"}, settings...)...)
	request(&after)
	if after.Metadata.Generation != before.Metadata.Generation {
		t.Errorf("a changed configuration made generation %d of the Deployment %d", before.Metadata.Generation, after.Metadata.Generation)
	}
	if text := configMap(t, c, namespace, "epdns")["epdns.yaml"]; !strings.Contains(text, "lameduck: 9s\n") {
		t.Errorf("the configuration is\n%s", text)
	}

	mustHelm(t, c, append([]string{"upgrade", "epdns", chart, "-n", namespace, "--wait", "--timeout=2m", "--set", "replicaCount=3,image.tag=v2,state.enabled=false"}, settings...)...)
	var d struct {
		Spec   struct{ Replicas int }
		Status struct{ UpdatedReplicas, AvailableReplicas int }
	}
	request(&d)
	if d.Spec.Replicas != 3 || d.Status.UpdatedReplicas != 3 || d.Status.AvailableReplicas != 3 {
		t.Errorf("after the upgrade there are %+v", d)
	}
	if image := podOf(t, c, strings.TrimPrefix(path, "/")).spec.Containers[0].Image; image != "epdns:v2" {
		t.Errorf("after the upgrade the image is %s", image)
	}
	mustHelm(t, c, "rollback", "epdns", "-n", namespace, "--wait", "--timeout=2m")
	if image := podOf(t, c, strings.TrimPrefix(path, "/")).spec.Containers[0].Image; image != "epdns:dev" {
		t.Errorf("after the rollback the image is %s", image)
	}

	mustHelm(t, c, "uninstall", "epdns", "-n", namespace, "--wait", "--timeout=2m")
	run.Eventually(t, func() error {
		left := slices.DeleteFunc(leftovers(t, c), func(o string) bool { return o == "Namespace "+namespace })
		out, err := exec.Command(kubectl, "--kubeconfig", c.Kubeconfig, "-n", namespace, "get", "pods,configmaps,secrets", "-o", "name").Output()
		for line := range strings.Lines(string(out)) {
			if line != "configmap/kube-root-ca.crt\n" {
				left = append(left, strings.TrimSpace(line))
			}
		}
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("there still are %q", left)
		}
		return err
	})
}

// actKubelet runs the container of a Pod, once it is there, and tells the API how that ended.
func actKubelet(t *testing.T, c *cluster.Cluster, name string) error {
	ctx, cancel := context.WithTimeout(t.Context(), run.Grace)
	defer cancel()
	path := "/api/v1/namespaces/" + namespace + "/pods/" + name
	p := pod{cluster: c, namespace: namespace}
	err := run.Until(ctx, 20*time.Millisecond, func() error {
		var o struct {
			Spec   json.RawMessage
			Status struct{ Phase string }
		}
		if err := c.Request(ctx, http.MethodGet, path, nil, &o); err != nil {
			return err
		}
		if o.Status.Phase != "Running" { // which kwok says: from here on it leaves the Pod alone
			return fmt.Errorf("Pod %s is %s", name, o.Status.Phase)
		}
		return errors.Join(json.Unmarshal(o.Spec, &p.spec), json.Unmarshal(o.Spec, &p.spec.all))
	})
	if err != nil {
		return err
	}
	container := p.contained(t)
	container.files["/etc/hosts"] = epdnsIP + " epdns." + namespace + ".svc\n"
	phase := "Succeeded"
	out, runErr := container.command(t).CombinedOutput()
	if runErr != nil {
		phase = "Failed"
		runErr = fmt.Errorf("%q: %w\n%s", p.spec.Containers[0].Args, runErr, out)
	} else if !strings.Contains(string(out), "1.1.0") {
		runErr = fmt.Errorf("%q prints\n%s", p.spec.Containers[0].Args, out)
	}
	return errors.Join(runErr, c.Request(ctx, http.MethodPatch, path+"/status", object{"status": object{"phase": phase}}, nil))
}

// README.md of the chart has all values with their defaults and what values.yaml says of them, and
// the chart has the alerts that docs has.
func TestChartPages(t *testing.T) {
	text, err := os.ReadFile(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	want := "| value | default | |\n|---|---|---|\n" + strings.Join(rows("", doc.Content[0], ""), "")
	readme, err := os.ReadFile(chart + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), want) {
		t.Errorf("deploy/chart/README.md should have this table:\n%s", want)
	}
	// Its blocks of values are taken.
	for i, block := range strings.Split(string(readme), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		file := filepath.Join(t.TempDir(), "values.yaml")
		if err := os.WriteFile(file, []byte(block), 0o644); err != nil {
			t.Fatal(err)
		}
		all := render(t, "-f", file)
		if strings.Contains(block, "config:") && at(ofKind(t, all, "ConfigMap"), "data", "epdns.yaml") == nil {
			t.Errorf("block %d makes no configuration:\n%s", i+1, block)
		}
	}
	copied, err := os.ReadFile(chart + "/files/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	alerts, err := os.ReadFile(repository + "/docs/alerts.yaml")
	if err != nil || string(copied) != string(alerts) {
		t.Errorf("deploy/chart/files/alerts.yaml is not docs/alerts.yaml (%v): make chart copies it", err)
	}
}

// rows are those of the table for the keys of a mapping. A key without a comment of its own has
// that of the key before.
func rows(prefix string, n *yaml.Node, before string) (out []string) {
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		comment := strings.Join(strings.Fields(strings.ReplaceAll(key.HeadComment, "#", " ")), " ")
		if comment == "" {
			comment = before
		}
		before = comment
		path := prefix + key.Value
		if value.Kind == yaml.MappingNode && ours(path) && len(value.Content) > 0 {
			out = append(out, rows(path+".", value, comment)...)
			continue
		}
		var v any
		if err := value.Decode(&v); err != nil {
			panic(err)
		}
		text, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		out = append(out, fmt.Sprintf("| `%s` | `%s` | %s |\n", path, text, comment))
	}
	return out
}

// ours says whether the keys below one are the chart's, and not those of a Kubernetes object.
func ours(path string) bool {
	return slices.Contains([]string{"image", "rbac", "serviceAccount", "service", "state", "podDisruptionBudget", "autoscaling",
		"networkPolicy", "podMonitor", "serviceMonitor", "prometheusRule", "resourceQuota"}, path)
}
