//go:build linux

package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"epdns/test/run"
)

// podLoopback is 127.0.0.1 of the Pods of epdns, which have no network of their own here.
const podLoopback = "127.0.0.9"

// portForwards has kwok do what a kubelet does for "kubectl port-forward".
const portForwards = `apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterPortForward
metadata: {name: epdns}
spec:
  selector: {matchNamespaces: [` + namespace + `]}
  forwards:
  - {ports: [9153], target: {address: ` + podLoopback + `, port: 9153}}
`

// The command of docs/status-page.md brings the status page of a Pod to who types it.
func TestPortForward(t *testing.T) {
	deployed(t)
	if _, err := control("-n", namespace, "rollout", "status", "deployment/epdns", "--timeout=1m"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(repository + "/docs/status-page.md")
	if err != nil {
		t.Fatal(err)
	}
	_, visible, _ := strings.Cut(string(text), "\n## Who can see it\n")
	command, _ := block(t, visible, "sh")
	serve(t, "--lameduck=0", "--http="+podLoopback+":9153")
	const page = "http://localhost:9153/"
	if _, err := run.Get(page); err == nil {
		t.Fatalf("somebody answers at %s before %s", page, command)
	}
	cmd := exec.Command("sh", "-c", "exec "+command)
	cmd.Env = []string{"PATH=" + filepath.Dir(kubectl) + ":" + os.Getenv("PATH"), "KUBECONFIG=" + kube.Kubeconfig, "HOME=" + kube.Dir}
	forward := run.ForTest(t, cmd)
	forward.Eventually(t, func() error {
		got, err := run.Get(page)
		// A page that is not for who asks does not say where it is.
		if err == nil && !strings.Contains(string(got), "<dt>HTTP</dt><dd>"+podLoopback+":9153</dd>") {
			err = fmt.Errorf("%s is\n%s", page, got)
		}
		return err
	})
	if err := forward.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := run.Get(page); err == nil {
		t.Error("the page is there without it")
	}
}
