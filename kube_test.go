package epdns_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
)

// The tests in this file change a real cluster and watch the answers follow. They
// need EPDNS_TEST_KUBECONFIG, an administrator's; "make e2e" makes a control plane
// and sets it, together with the kubeconfigs of two users without rights.

const (
	envAdmin   = "EPDNS_TEST_KUBECONFIG"
	envLimited = "EPDNS_TEST_KUBECONFIG_LIMITED"
	envNobody  = "EPDNS_TEST_KUBECONFIG_NOBODY"
)

// kube is a cluster under test.
type kube struct {
	*testing.T
	dynamic.Interface
	config string // path of the administrator's kubeconfig
}

func newKube(t *testing.T) *kube {
	t.Helper()
	path := os.Getenv(envAdmin)
	if path == "" {
		t.Skipf("%s is not set: make e2e sets it", envAdmin)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 1000, 1000
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &kube{t, client, path}
}

var resources = map[string]schema.GroupVersionResource{
	"Namespace":          {Version: "v1", Resource: "namespaces"},
	"Service":            {Version: "v1", Resource: "services"},
	"ServiceAccount":     {Version: "v1", Resource: "serviceaccounts"},
	"Pod":                {Version: "v1", Resource: "pods"},
	"Deployment":         {Group: "apps", Version: "v1", Resource: "deployments"},
	"StatefulSet":        {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"EndpointSlice":      {Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	"ClusterRole":        {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	"ClusterRoleBinding": {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
}

// namespace makes a namespace that goes when the test ends.
func (k *kube) namespace(name string) string {
	k.Helper()
	k.create("", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}")
	return name
}

// create makes the objects of a YAML text, in the namespace they name or else the
// one given, and takes them away when the test ends.
func (k *kube) create(namespace, text string) {
	k.Helper()
	for _, doc := range strings.Split(text, "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			k.Fatalf("%v:\n%s", err, doc)
		}
		r := k.resource(o.GetKind(), cmp.Or(o.GetNamespace(), namespace))
		if _, err := r.Create(k.Context(), &o, metav1.CreateOptions{}); err != nil {
			k.Fatalf("create %s %s: %v", o.GetKind(), o.GetName(), err)
		}
		k.Cleanup(func() {
			_ = r.Delete(context.Background(), o.GetName(), metav1.DeleteOptions{}) // the test may have done so
		})
	}
}

func (k *kube) resource(kind, namespace string) dynamic.ResourceInterface {
	k.Helper()
	gvr, ok := resources[kind]
	if !ok {
		k.Fatalf("no resource is known for kind %q", kind)
	}
	if namespace == "" {
		return k.Resource(gvr)
	}
	return k.Resource(gvr).Namespace(namespace)
}

func (k *kube) patch(kind, namespace, name, patch string, subresources ...string) {
	k.Helper()
	_, err := k.resource(kind, namespace).Patch(k.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		k.Fatalf("patch %s %s/%s: %v", kind, namespace, name, err)
	}
}

func (k *kube) delete(kind, namespace, name string) {
	k.Helper()
	if err := k.resource(kind, namespace).Delete(k.Context(), name, metav1.DeleteOptions{}); err != nil {
		k.Fatalf("delete %s %s/%s: %v", kind, namespace, name, err)
	}
}

// ready are the pods that the API itself says are ready, by name.
func (k *kube) ready(namespace, selector string) map[string]corev1.Pod {
	k.Helper()
	list, err := k.resource("Pod", namespace).List(k.Context(), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		k.Fatal(err)
	}
	out := map[string]corev1.Pod{}
	for _, item := range list.Items {
		var p corev1.Pod
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &p); err != nil {
			k.Fatal(err)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil && p.Status.PodIP != "" {
				out[p.Name] = p
			}
		}
	}
	return out
}

// follow waits until n pods are ready and everything that is answered for their
// Service is what they say: A, SRV, PTR and each pod's own name.
func (k *kube) follow(p *program, service, namespace, selector string, n int, label func(corev1.Pod) string) map[string]corev1.Pod {
	k.Helper()
	base := service + "." + namespace + ".registry.local."
	var pods map[string]corev1.Pod
	eventually(k.T, func() error {
		if pods = k.ready(namespace, selector); len(pods) != n {
			return fmt.Errorf("%d pods are ready, not %d", len(pods), n)
		}
		var addresses, targets []string
		for _, pod := range pods {
			addresses = append(addresses, pod.Status.PodIP)
			targets = append(targets, "0 1 8080 "+label(pod)+"."+base)
		}
		if err := equal("A "+base, answered(k.T, p, base, "A"), addresses); err != nil {
			return err
		}
		return equal("SRV _http._tcp."+base, answered(k.T, p, "_http._tcp."+base, "SRV"), targets)
	})
	for name, pod := range pods {
		canonical := label(pod) + "." + base
		for _, q := range [][3]string{
			{canonical, "A", pod.Status.PodIP},
			{name + "." + base, "A", pod.Status.PodIP},
			{reverse(k.T, pod.Status.PodIP), "PTR", canonical},
		} {
			if err := equal(q[1]+" "+q[0], answered(k.T, p, q[0], q[1]), []string{q[2]}); err != nil {
				k.Fatal(err)
			}
		}
	}
	return pods
}

// lookUp asks the program through dig.
func lookUp(t *testing.T, p *program, name, typ string) *dug {
	t.Helper()
	return dig(t, ask(name, dns.StringToType[typ]), p.dns.Port())
}

// answered is what it answers: the records, without owner, TTL and class.
func answered(t *testing.T, p *program, name, typ string) (out []string) {
	t.Helper()
	for _, rr := range lookUp(t, p, name, typ).sections[0] {
		out = append(out, rdata(rr))
	}
	return out
}

// equal compares two lists as sets.
func equal(what string, got, want []string) error {
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s: answered %q, want %q", what, got, want)
	}
	return nil
}

func reverse(t *testing.T, ip string) string {
	t.Helper()
	name, err := dns.ReverseAddr(ip)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

func dashes(p corev1.Pod) string { return strings.ReplaceAll(p.Status.PodIP, ".", "-") }

const workload = `
apiVersion: apps/v1
kind: %[1]s
metadata: {name: %[2]s}
spec:
  replicas: 3
  serviceName: %[2]s
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      containers:
      - {name: main, image: none, ports: [{name: web, containerPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: %[2]s}
spec:
  clusterIP: %[3]s
  selector: {app: %[2]s}
  ports: [{name: http, port: 80, targetPort: web}]`

func deployment(name string) string {
	text := fmt.Sprintf(workload, "Deployment", name, `""`)
	return strings.Replace(text, "  serviceName: "+name+"\n", "", 1)
}

// A Deployment behind a ClusterIP: created, scaled, a pod deleted, one not ready,
// scaled to nothing, the Service deleted.
func TestKubeDeployment(t *testing.T) {
	k := newKube(t)
	p := serve(t, "--kubeconfig", k.config)
	ns := k.namespace("epdns-deployment")
	k.create(ns, deployment("web"))
	pods := k.follow(p, "web", ns, "app=web", 3, dashes)

	k.patch("Deployment", ns, "web", `{"spec":{"replicas":5}}`)
	k.follow(p, "web", ns, "app=web", 5, dashes)

	gone := slices.Sorted(mapKeys(pods))[0]
	k.delete("Pod", ns, gone)
	after := k.follow(p, "web", ns, "app=web", 5, dashes) // another takes its place
	if _, still := after[gone]; still {
		t.Fatalf("pod %s was deleted and is still there", gone)
	}
	if d := lookUp(t, p, gone+".web."+ns+".registry.local.", "A"); d.status != "NXDOMAIN" {
		t.Fatalf("a deleted pod still has a name:\n%v", d)
	}

	sick := slices.Sorted(mapKeys(after))[0]
	setReady(k, ns, sick, "False")
	k.follow(p, "web", ns, "app=web", 4, dashes)
	if d := lookUp(t, p, sick+".web."+ns+".registry.local.", "A"); d.status != "NXDOMAIN" {
		t.Fatalf("a pod that is not ready has a name:\n%v", d)
	}
	setReady(k, ns, sick, "True")
	k.follow(p, "web", ns, "app=web", 5, dashes)

	k.patch("Deployment", ns, "web", `{"spec":{"replicas":0}}`)
	for _, q := range [][2]string{{"web", "A"}, {"_http._tcp.web", "SRV"}, {"_tcp.web", "A"}} {
		eventually(t, func() error {
			d := lookUp(t, p, q[0]+"."+ns+".registry.local.", q[1])
			if d.status != "NOERROR" || len(d.sections[0]) > 0 {
				return fmt.Errorf("want NODATA from a Service scaled to nothing:\n%v", d)
			}
			return nil
		})
	}

	k.delete("Service", ns, "web")
	eventually(t, func() error {
		if d := lookUp(t, p, "web."+ns+".registry.local.", "A"); d.status != "NXDOMAIN" {
			return fmt.Errorf("want NXDOMAIN from a Service that is gone:\n%v", d)
		}
		return nil
	})
}

func setReady(k *kube, namespace, pod, status string) {
	k.Helper()
	k.patch("Pod", namespace, pod, `{"status":{"conditions":[{"type":"Ready","status":"`+status+`"}]}}`, "status")
}

func mapKeys[V any](m map[string]V) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// A StatefulSet behind a headless Service: each pod has a host name of its own.
func TestKubeStatefulSet(t *testing.T) {
	k := newKube(t)
	p := serve(t, "--kubeconfig", k.config)
	ns := k.namespace("epdns-statefulset")
	k.create(ns, fmt.Sprintf(workload, "StatefulSet", "db", "None"))
	hostname := func(p corev1.Pod) string { return p.Name }
	first := k.follow(p, "db", ns, "app=db", 3, hostname)

	// The pod that comes back has the name of the one that went, and often its address.
	uid := first["db-1"].UID
	k.delete("Pod", ns, "db-1")
	eventually(t, func() error {
		if p, ok := k.ready(ns, "app=db")["db-1"]; !ok || p.UID == uid {
			return fmt.Errorf("the new db-1 is not there yet")
		}
		return nil
	})
	k.follow(p, "db", ns, "app=db", 3, hostname)
}

// An alias is followed; slices of both families, made by hand, are one Service.
func TestKubeExternalNameAndDualStack(t *testing.T) {
	k := newKube(t)
	p := serve(t, "--kubeconfig", k.config)
	ns := k.namespace("epdns-kinds")
	k.create(ns, deployment("web")+`
---
apiVersion: v1
kind: Service
metadata: {name: alias}
spec: {type: ExternalName, externalName: web.`+ns+`.registry.local}
---
apiVersion: v1
kind: Service
metadata: {name: hand}
spec: {ports: [{name: dns, port: 53, protocol: UDP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: hand-6, labels: {kubernetes.io/service-name: hand}}
addressType: IPv6
endpoints: [{addresses: ["2001:db8::53"]}]
ports: [{name: dns, port: 5353, protocol: UDP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: hand-4, labels: {kubernetes.io/service-name: hand}}
addressType: IPv4
endpoints: [{addresses: [192.0.2.53]}]
ports: [{name: dns, port: 53, protocol: UDP}]`)
	pods := k.follow(p, "web", ns, "app=web", 3, dashes)

	base := "." + ns + ".registry.local."
	want := []string{"web" + base}
	for _, pod := range pods {
		want = append(want, pod.Status.PodIP)
	}
	for _, c := range []struct {
		name, typ string
		want      []string
	}{
		{"alias" + base, "A", want},
		{"hand" + base, "A", []string{"192.0.2.53"}},
		{"hand" + base, "AAAA", []string{"2001:db8::53"}},
		{"_dns._udp.hand" + base, "SRV", []string{"0 1 53 192-0-2-53.hand" + base, "0 1 5353 2001-db8--53.hand" + base}},
	} {
		eventually(t, func() error {
			return equal(c.typ+" "+c.name, answered(t, p, c.name, c.typ), slices.Clone(c.want))
		})
	}
}

const slicesOnly = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: epdns-slices}
rules: [{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}]`

// binding gives a ClusterRole to the user "limited".
const binding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s-limited}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: limited}]`

// limited binds a ClusterRole to a user who has no other right, waits until the
// API server knows, and returns the user's kubeconfig.
func (k *kube) limited(role string, resource string) string {
	k.Helper()
	path := os.Getenv(envLimited)
	if path == "" {
		k.Fatalf("%s is not set", envLimited)
	}
	k.create("", fmt.Sprintf(binding, role))
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		k.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		k.Fatal(err)
	}
	eventually(k.T, func() error {
		_, err := client.Resource(resources[resource]).List(k.Context(), metav1.ListOptions{Limit: 1})
		return err
	})
	return path
}

// warnings are the lines of the log that are more than information.
func warnings(t *testing.T, p *program) (out []record) {
	t.Helper()
	for _, r := range p.log(t) {
		if r["level"] != "INFO" {
			out = append(out, r)
		}
	}
	return out
}

// With the right to list and watch EndpointSlices and no other, everything that
// slices tell is answered, and the log says once what is off.
func TestKubeSlicesOnly(t *testing.T) {
	k := newKube(t)
	ns := k.namespace("epdns-rights")
	k.create("", slicesOnly)
	p := serve(t, "--kubeconfig", k.limited("epdns-slices", "EndpointSlice"))
	k.create(ns, deployment("web"))
	k.follow(p, "web", ns, "app=web", 3, dashes)
	w := warnings(t, p)
	text := fmt.Sprint(w)
	if len(w) != 2 || !strings.Contains(text, "list and watch services") || !strings.Contains(text, "list and watch nodes") {
		t.Fatalf("want one warning for Services and one for Nodes: %v", w)
	}
}

// The rights in deploy/base/rbac.yaml are accepted by the API server, and are all that
// is needed.
func TestKubeShippedRights(t *testing.T) {
	k := newKube(t)
	rbac, err := os.ReadFile("deploy/base/rbac.yaml")
	if err != nil {
		t.Fatal(err)
	}
	k.create("", string(rbac))
	ns := k.namespace("epdns-shipped")
	p := serve(t, "--kubeconfig", k.limited("epdns", "Service"))
	k.create(ns, "apiVersion: v1\nkind: Service\nmetadata: {name: alias}\nspec: {type: ExternalName, externalName: www.example.com}")
	eventually(t, func() error {
		return equal("the alias", answered(t, p, "alias."+ns+".registry.local.", "CNAME"), []string{"www.example.com."})
	})
	if w := warnings(t, p); len(w) > 0 {
		t.Fatalf("warnings: %v", w)
	}
}

// Without any right there is nothing to serve: one line says what to grant.
func TestKubeNoRights(t *testing.T) {
	newKube(t)
	nobody := os.Getenv(envNobody)
	if nobody == "" {
		t.Fatalf("%s is not set", envNobody)
	}
	_, stderr, code := once(t, environment(), "serve", "--kubeconfig", nobody, "--listen", "127.0.0.1:0", "--http", "")
	if code != 1 {
		t.Errorf("exit status %d, expected 1", code)
	}
	if err := oneLine(stderr, "grant list and watch endpointslices.discovery.k8s.io", "ClusterRole"); err != nil {
		t.Error(err)
	}
}

// Only the namespaces that were named are watched, and served.
func TestKubeNamespaces(t *testing.T) {
	k := newKube(t)
	in, out := k.namespace("epdns-in"), k.namespace("epdns-out")
	k.create(in, deployment("web"))
	k.create(out, deployment("web"))
	p := serve(t, "--kubeconfig", k.config, "--namespace", in)
	k.follow(p, "web", in, "app=web", 3, dashes)
	eventually(t, func() error {
		if n := len(k.ready(out, "app=web")); n != 3 {
			return fmt.Errorf("%d pods are ready, not 3", n)
		}
		return nil
	})
	if d := lookUp(t, p, "web."+out+".registry.local.", "A"); d.status != "NXDOMAIN" {
		t.Fatalf("want NXDOMAIN from a namespace that is not watched:\n%v", d)
	}
}

// A context that is not there is named, with those that are.
func TestKubeContext(t *testing.T) {
	k := newKube(t)
	_, stderr, code := once(t, environment(), "serve", "--kubeconfig", k.config, "--context", "nowhere")
	if code != 1 {
		t.Errorf("exit status %d, expected 1", code)
	}
	if err := oneLine(stderr, k.config, "nowhere", "admin"); err != nil {
		t.Error(err)
	}
}
