//go:build linux

package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"epdns/test/cluster"
	"epdns/test/run"
)

// lines are those of a text, sorted.
func lines(text string) []string {
	all := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(all)
	return all
}

// As kubectl's plugin, epdns takes what people know from kubectl, and calls itself so.
func TestPlugin(t *testing.T) {
	admin := kube.Kubeconfig
	want := []string{"10.20.1.1", "10.20.1.2"}
	for _, line := range []string{
		"kubectl epdns lookup web -n shop --short",
		"kubectl epdns lookup web --namespace=shop --short",
		"kubectl epdns lookup shop/web --short",
		"kubectl epdns lookup svc/web -n shop --short",
		"kubectl epdns lookup web.shop.registry.local --short",
		"kubectl epdns lookup web -n shop --short --context \"$(kubectl config current-context)\"",
	} {
		if got := lines(good(t, admin, line)); !slices.Equal(got, want) {
			t.Errorf("%s: %q, expected %q", line, got, want)
		}
	}

	// The namespace of the context is that of a name alone.
	own := filepath.Join(t.TempDir(), "kubeconfig")
	data, err := os.ReadFile(admin)
	if err == nil {
		err = os.WriteFile(own, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, stderr, _ := runs(t, own, "kubectl epdns lookup web --short")
	if want := "kubectl epdns: there is no Service default/web; do you mean shop/web?\n"; !strings.Contains(stderr, want) {
		t.Errorf("in namespace default: %q, expected %q", stderr, want)
	}
	good(t, own, "kubectl config set-context --current --namespace=shop")
	if got := lines(good(t, own, "kubectl epdns lookup web --short")); !slices.Equal(got, want) {
		t.Errorf("in the context's namespace: %q", got)
	}

	// Who asks is found wherever that is.
	got := good(t, own, "kubectl epdns explain web --from 10.20.2.1")
	for _, part := range []string{"web.shop.registry.local. A over UDP\n", "Service shop/web in zone registry.local.", "the address is an endpoint's of Service data/db"} {
		if !strings.Contains(got, part) {
			t.Errorf("explain does not say %q:\n%s", part, got)
		}
	}

	for _, c := range []struct {
		line, says string
		code       int
	}{
		{"kubectl epdns explain --help", "kubectl epdns explain NAME [TYPE] [flags]", 0},
		{"kubectl epdns explain --help", "\n  kubectl epdns explain web -n shop", 0},
		{"kubectl epdns --help", "Start with: kubectl epdns demo", 0},
		{"kubectl epdns watch --help", "kubectl epdns watch [NAMESPACE/]SERVICE [flags]", 0},
		{"kubectl epdns explian", `kubectl epdns: unknown command "explian" for "kubectl epdns"; do you mean explain? (see kubectl epdns --help)`, 2},
		{"kubectl epdns lookup web -n shop --tmeout 1s", "kubectl epdns: unknown flag: --tmeout; do you mean --timeout? (see kubectl epdns lookup --help)", 2},
		{"kubectl epdns lookup wbe -n shop", "kubectl epdns: there is no Service shop/wbe; do you mean shop/web?", 0},
		{"kubectl epdns lookup web -n shop --context nowhere", `no context "nowhere" (there are: `, 1},
	} {
		stdout, stderr, code := runs(t, admin, c.line)
		if code != c.code || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("%s: exit status %d, expected %d and %q:\n%s%s", c.line, code, c.code, c.says, stdout, stderr)
		}
	}
	if strings.Contains(good(t, admin, "epdns explain --help"), "kubectl epdns") {
		t.Error("epdns calls itself a plugin of kubectl")
	}
}

// Somebody without rights is told the commands that give them, which do; and who may read one
// namespace gets what is in it.
func TestRights(t *testing.T) {
	limited, err := kube.KubeconfigFor(cluster.Limited)
	if err != nil {
		t.Fatal(err)
	}
	commands := func(line string) string {
		t.Helper()
		stdout, stderr, code := runs(t, limited, line)
		_, command, ok := strings.Cut(strings.TrimSpace(stderr), "): ")
		if code != 1 || stdout != "" || !ok || !strings.Contains(stderr, "no right to read them") || !strings.HasPrefix(command, "kubectl create ") || strings.Contains(command, "\n") {
			t.Fatalf("%s: exit status %d\n%s%s", line, code, stdout, stderr)
		}
		return command
	}
	lookup := "kubectl epdns lookup web -n shop --short"
	command := commands("kubectl epdns watch web -n shop") // which needs that namespace only
	if want := "kubectl create role epdns-read "; !strings.HasPrefix(command, want) {
		t.Errorf("for one namespace: %s", command)
	}
	wide := commands(lookup)
	if want := "kubectl create clusterrole epdns-read "; !strings.HasPrefix(wide, want) {
		t.Errorf("for all: %s", wide)
	}

	good(t, kube.Kubeconfig, command)
	stdout, stderr, code := runs(t, limited, lookup)
	if code != 0 || len(lines(stdout)) != 2 || !strings.Contains(stderr, "kubectl epdns: warning: only namespace shop may be read") {
		t.Errorf("with the right to one namespace: exit status %d\n%s%s", code, stdout, stderr)
	}

	good(t, kube.Kubeconfig, wide)
	stdout, stderr, code = runs(t, limited, lookup)
	if code != 0 || len(lines(stdout)) != 2 || stderr != "" {
		t.Errorf("with all rights: exit status %d\n%s%s", code, stdout, stderr)
	}
	good(t, kube.Kubeconfig, "kubectl delete clusterrole/epdns-read clusterrolebinding/epdns-read-"+cluster.Limited+
		" && kubectl delete -n shop role/epdns-read rolebinding/epdns-read-"+cluster.Limited)
}

// Wrong credentials are an error at once.
func TestCredentials(t *testing.T) {
	own := filepath.Join(t.TempDir(), "kubeconfig")
	data, err := os.ReadFile(kube.Kubeconfig)
	if err == nil {
		err = os.WriteFile(own, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	good(t, own, "kubectl config set-credentials stranger --token=nobodys && kubectl config set-context --current --user=stranger")
	stdout, stderr, code := runs(t, own, "kubectl epdns lookup web -n shop")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "the API server does not accept our credentials") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("exit status %d\n%s%s", code, stdout, stderr)
	}
}

// The servers in a cluster are found and asked through the API server.
func TestStatus(t *testing.T) {
	admin := kube.Kubeconfig
	if _, stderr, code := runs(t, admin, "kubectl epdns status"); code != 1 ||
		!strings.Contains(stderr, "no Pod with app.kubernetes.io/name=epdns in all namespaces") {
		t.Errorf("without one: exit status %d, %s", code, stderr)
	}
	run.ForTest(t, exec.Command(epdns, "serve", "--kubeconfig", admin, "--lameduck=0", "--listen", podIP+":5300", "--http", podIP+":9153"))
	pod := func(name, labels, ip string) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "pod.yaml")
		text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {namespace: data, name: %s, labels: {%s}}\n"+
			"spec: {schedulerName: nobody, containers: [{name: epdns, image: epdns, ports: [{name: http, containerPort: 9153}]}]}\n", name, labels)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		good(t, admin, "kubectl apply -f "+path)
		if ip != "" {
			good(t, admin, fmt.Sprintf(`kubectl -n data patch pod %s --subresource=status --type=merge -p '{"status":{"phase":"Running","podIP":%q,"podIPs":[{"ip":%q}]}}'`, name, ip, ip))
		}
		t.Cleanup(func() { good(t, admin, "kubectl -n data delete pod --force --grace-period=0 "+name) })
	}
	pod("epdns-0", "app.kubernetes.io/name: epdns", podIP)
	pod("epdns-evicted", "app.kubernetes.io/name: epdns", "") // which is no server any more
	good(t, admin, `kubectl -n data patch pod epdns-evicted --subresource=status --type=merge -p '{"status":{"phase":"Failed","reason":"Evicted"}}'`)
	var got []struct {
		Namespace, Pod                      string
		Ready, Synced, Stale                bool
		Services, Endpoints, ReadyEndpoints int
	}
	run.Eventually(t, func() error {
		stdout, stderr, code := runs(t, admin, "kubectl epdns status -o json")
		if code != 0 {
			return fmt.Errorf("exit status %d\n%s%s", code, stdout, stderr)
		}
		return json.Unmarshal([]byte(stdout), &got)
	})
	if len(got) != 1 || got[0].Pod != "epdns-0" || got[0].Namespace != "data" || !got[0].Ready || !got[0].Synced || got[0].Stale ||
		got[0].Services < 3 || got[0].ReadyEndpoints < 3 || got[0].Endpoints < got[0].ReadyEndpoints {
		t.Errorf("it says %+v", got)
	}
	table := good(t, admin, "kubectl epdns status -n data")
	t.Log("\n" + table)
	if f := strings.Fields(table); len(f) < 14 || !slices.Equal(f[:7], []string{"SERVER", "NODE", "READY", "KNOWS", "SERVICES", "ENDPOINTS", "VERSION"}) ||
		!slices.Equal(f[7:11], []string{"data/epdns-0", "-", "yes", "current"}) {
		t.Errorf("the table is\n%s", table)
	}

	// One that is not there yet is not ready, and the others are told all the same.
	pod("epdns-1", "app.kubernetes.io/name: epdns", "")
	stdout, stderr, code := runs(t, admin, "kubectl epdns status")
	if code != 1 || !strings.Contains(stdout, "data/epdns-0") || !strings.Contains(stderr, "kubectl epdns: data/epdns-1: the Pod is Pending\n") ||
		!strings.Contains(stderr, "kubectl epdns: 1 of 2 servers not ready\n") {
		t.Errorf("exit status %d\n%s%s", code, stdout, stderr)
	}
	if out := good(t, admin, "kubectl epdns status --server http://"+podIP+":9153 -o yaml"); !strings.Contains(out, "ready: true") {
		t.Errorf("by its URL: %s", out)
	}
}
