//go:build linux

package deploy_test

import (
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

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

// nobody is the user in deploy/base/deployment.yaml.
const nobody = 65532

// serve runs epdns as the Pod does: with the arguments of the Deployment in the cluster and
// those given, in a root directory with nothing but the program and what the kubelet puts
// there for the service account and as volumes, as an unprivileged user. It returns when epdns is ready.
func serve(t *testing.T, args ...string) *run.Process {
	t.Helper()
	root := t.TempDir()
	program, err := os.ReadFile(epdns)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(kube.Dir, "ca.crt"))
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
		account + "/token":     []byte(token(t)),
		account + "/namespace": []byte(namespace),
	} {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	container := deployment(t).Spec.Template.Spec.Containers[0]
	for _, m := range container.VolumeMounts { // of emptyDirs, in which the kubelet lets everybody write
		dir := filepath.Join(root, m.MountPath)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	api, err := url.Parse(kube.Server)
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{
		Path:        "/epdns",
		Dir:         "/",
		Args:        slices.Concat([]string{"/epdns"}, container.Args, args),
		Env:         []string{"KUBERNETES_SERVICE_HOST=" + api.Hostname(), "KUBERNETES_SERVICE_PORT=" + api.Port()},
		SysProcAttr: &syscall.SysProcAttr{Chroot: root},
	}
	if !netns.Mapped() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	p := run.ForTest(t, cmd)
	for _, probe := range []string{"/livez", "/readyz"} {
		p.Eventually(t, func() error {
			_, err := run.Get("http://127.0.0.1:9153" + probe)
			return err
		})
	}
	return p
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
