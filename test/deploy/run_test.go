//go:build linux

package deploy_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"epdns/test/cluster"
	"epdns/test/netns"
	"epdns/test/run"
)

// This file starts programs.

// warnings are the lines in which epdns says more than what it does.
func warnings(log string) (lines []string) {
	for line := range strings.Lines(log) {
		if !strings.Contains(line, " level=INFO ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// serve runs epdns as a Pod of deploy/base does.
func serve(t *testing.T, args ...string) *run.Process {
	t.Helper()
	return podOf(t, kube, "apis/apps/v1/namespaces/"+namespace+"/deployments/epdns").serve(t, args...)
}

// pod is a Pod that a workload makes, and the cluster it is in.
type pod struct {
	cluster   *cluster.Cluster
	namespace string
	spec      podSpec
}

// podSpec has the few fields that the tests look at, and all of them.
type podSpec struct {
	ServiceAccountName, PriorityClassName string
	SecurityContext                       struct{ RunAsUser int }
	InitContainers, Containers            []container
	all                                   map[string]any
}

type container struct {
	Image         string
	Command, Args []string
	Ports         []struct{ Name string }
	VolumeMounts  []struct{ MountPath string }
}

// podOf is the Pod of a workload, by the path of that in the API.
func podOf(t *testing.T, c *cluster.Cluster, path string) pod {
	t.Helper()
	var workload struct {
		Metadata struct{ Namespace string }
		Spec     struct {
			Template struct{ Spec json.RawMessage }
		}
	}
	if err := c.Request(t.Context(), http.MethodGet, "/"+path, nil, &workload); err != nil {
		t.Fatal(err)
	}
	p := pod{cluster: c, namespace: workload.Metadata.Namespace}
	for _, into := range []any{&p.spec, &p.spec.all} {
		if err := json.Unmarshal(workload.Spec.Template.Spec, into); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// token is one of the Pod's service account, as the kubelet would ask for it.
func (p pod) token(t *testing.T) string {
	t.Helper()
	var answer struct{ Status struct{ Token string } }
	err := p.cluster.Request(t.Context(), http.MethodPost,
		"/api/v1/namespaces/"+p.namespace+"/serviceaccounts/"+p.spec.ServiceAccountName+"/token",
		map[string]any{"spec": map[string]any{"expirationSeconds": 3600}}, &answer)
	if err == nil && answer.Status.Token == "" {
		err = errors.New("the API server gave no token")
	}
	if err != nil {
		t.Fatal(err)
	}
	return answer.Status.Token
}

// nodeIP is what the Pods of DaemonSets have for the address of their node.
const nodeIP = "127.0.0.1"

// serve runs the Pod's program with the Pod's arguments and those given, in a root directory with nothing
// but the program and what the kubelet puts there for the service account and as volumes, as the
// Pod's user. It returns when epdns is ready.
func (p pod) serve(t *testing.T, args ...string) *run.Process {
	t.Helper()
	cmd := p.command(t, args...)
	process := run.ForTest(t, cmd)
	web := ""
	for _, arg := range cmd.Args { // the last one counts
		if addr, ok := strings.CutPrefix(arg, "--http="); ok {
			web = addr
		}
	}
	if strings.HasPrefix(web, ":") {
		web = nodeIP + web
	}
	web = strings.Replace(web, "["+nodeIP+"]", nodeIP, 1) // brackets are for IPv6, and may be there
	for _, probe := range []string{"/livez", "/readyz"} {
		process.Eventually(t, func() error {
			_, err := run.Get("http://" + web + probe)
			return err
		})
	}
	return process
}

// command is that of the Pod's container.
func (p pod) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	root := t.TempDir()
	program, err := os.ReadFile(epdns)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(p.cluster.Dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	const account = "var/run/secrets/kubernetes.io/serviceaccount"
	if err := os.MkdirAll(filepath.Join(root, account), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"epdns":                program,
		account + "/ca.crt":    ca,
		account + "/token":     []byte(p.token(t)),
		account + "/namespace": []byte(p.namespace),
	} {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	container := p.spec.Containers[0]
	for _, m := range container.VolumeMounts { // of emptyDirs, in which the kubelet lets everybody write
		dir := filepath.Join(root, m.MountPath)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	api, err := url.Parse(p.cluster.Server)
	if err != nil {
		t.Fatal(err)
	}
	argv := slices.Concat([]string{"/epdns"}, container.Args, args)
	for i, arg := range argv {
		argv[i] = strings.ReplaceAll(arg, "$(NODE_IP)", nodeIP)
	}
	cmd := &exec.Cmd{
		Path:        "/epdns",
		Dir:         "/",
		Args:        argv,
		Env:         []string{"KUBERNETES_SERVICE_HOST=" + api.Hostname(), "KUBERNETES_SERVICE_PORT=" + api.Port()},
		SysProcAttr: &syscall.SysProcAttr{Chroot: root},
	}
	if user := p.spec.SecurityContext.RunAsUser; user != 0 && !netns.Mapped() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}
	}
	return cmd
}

// forward runs CoreDNS with a Corefile and returns when it answers at the address.
func forward(t *testing.T, corefile, address string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(path, []byte(corefile), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(coreDNS, "-conf", path)
	cmd.Env = []string{}
	run.ForTest(t, cmd).Eventually(t, func() error {
		// Not a name that a test asks for: what it gets must not come from the cache.
		_, err := ask("tcp", address, "dns-version.registry.local.", "TXT")
		return err
	})
}

// snippet is a file of deploy/snippets. CoreDNS's has no "bind", since it has a network of its
// own in a cluster; here it is told which of the addresses is its.
func snippet(t *testing.T, name, bind string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(shipped, "snippets", name))
	if err != nil {
		t.Fatal(err)
	}
	if bind == "" {
		return string(b)
	}
	return strings.ReplaceAll(string(b), "    errors\n", "    errors\n    bind "+bind+"\n")
}
