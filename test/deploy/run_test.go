//go:build linux

package deploy_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// This file starts programs and waits for things.

// grace is how long anything may take that is over in a moment on an idle machine.
const grace = 20 * time.Second

// eventually tries until there is no error.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	deadline := time.After(grace)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("after %v still: %v", grace, err)
		case <-tick.C:
		}
	}
}

// output is what a process writes, readable while it runs.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// process is a program that runs until the test ends.
type process struct {
	log   output
	ended chan struct{}
	err   error // read after ended
}

// start starts cmd. At the end of the test it is told to end, and must do so without error.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		if err := p.running(); err != nil {
			t.Error(err)
		}
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(grace):
			t.Errorf("%s does not end", cmd.Path)
			cmd.Process.Kill()
			<-p.ended
		}
		if p.err != nil {
			t.Errorf("%s ended with: %v", cmd.Path, p.err)
		}
		if t.Failed() {
			t.Logf("%s:\n%v", strings.Join(cmd.Args, " "), &p.log)
		}
	})
	return p
}

// running returns an error once p has ended.
func (p *process) running() error {
	select {
	case <-p.ended:
		return fmt.Errorf("a process has ended: %v\n%v", p.err, &p.log)
	default:
		return nil
	}
}

// warnings are the lines in which epdns says more than what it does.
func (p *process) warnings() (lines []string) {
	for line := range strings.Lines(p.log.String()) {
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
// there for the service account, as an unprivileged user. It returns when epdns is ready.
func serve(t *testing.T, args ...string) *process {
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
	api, err := url.Parse(kube.Server)
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{
		Path: "/epdns",
		Dir:  "/",
		Args: append(append([]string{"/epdns"}, deployment(t).Spec.Template.Spec.Containers[0].Args...), args...),
		Env:  []string{"KUBERNETES_SERVICE_HOST=" + api.Hostname(), "KUBERNETES_SERVICE_PORT=" + api.Port()},
		SysProcAttr: &syscall.SysProcAttr{
			Chroot:     root,
			Credential: &syscall.Credential{Uid: nobody, Gid: nobody},
		},
	}
	if os.Getenv(envMapped) != "" {
		cmd.SysProcAttr.Credential = nil // there is no other user
	}
	p := start(t, cmd)
	for _, probe := range []string{"/livez", "/readyz"} {
		eventually(t, func() error {
			if err := p.running(); err != nil {
				t.Fatal(err)
			}
			return get("http://127.0.0.1:9153" + probe)
		})
	}
	return p
}

func get(url string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", url, resp.Status, body)
	}
	return nil
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
	p := start(t, cmd)
	eventually(t, func() error {
		if err := p.running(); err != nil {
			t.Fatal(err)
		}
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
