//go:build linux

package deploy_test

import (
	"flag"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"epdns/test/cluster"
)

var update = flag.Bool("update", false, "write deploy/install.yaml")

// deploy/install.yaml is what deploy/base renders to.
func TestInstallFile(t *testing.T) {
	rendered, err := control("kustomize", filepath.Join(shipped, "base"))
	if err != nil {
		t.Fatal(err)
	}
	want := "# deploy/base in one file, for kubectl apply -f. \"make install.yaml\" writes it.\n" + rendered
	path := filepath.Join(shipped, "install.yaml")
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s is not what base renders to (%v): make install.yaml", path, err)
	}
}

// section is what deploy/README.md has under a heading, and block the first block of a language
// in it.
func section(t *testing.T, heading string) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(shipped, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, text, ok := strings.Cut(string(readme), "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("README.md has no section %q", heading)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

func block(t *testing.T, section, language string) (text, rest string) {
	t.Helper()
	_, text, ok := strings.Cut(section, "```"+language+"\n")
	if !ok {
		t.Fatalf("the section has no block of %s", language)
	}
	text, rest, _ = strings.Cut(text, "```")
	return text, rest
}

// The commands of deploy/README.md lead from nothing to an answer, each way, and back to nothing.
// The container is ours to start: there are no kubelets. How long each took is logged.
func TestInstall(t *testing.T) {
	c := strictCluster(t)
	ways := section(t, "Install")
	overlay, ways := block(t, ways, "yaml")
	kustomize, ways := block(t, ways, "sh")
	file, _ := block(t, ways, "sh")
	remove, _ := block(t, section(t, "Uninstall"), "sh")
	for _, way := range []struct{ what, commands, undo string }{
		{"an overlay", kustomize, remove},
		{"install.yaml", file, "kubectl delete -f epdns/deploy/install.yaml\n"},
	} {
		t.Run(way.what, func(t *testing.T) {
			dir := kustomization(t, overlay)
			checkout, err := filepath.Abs(repository)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(checkout, filepath.Join(dir, "epdns")); err != nil {
				t.Fatal(err)
			}
			total := time.Duration(0)
			took := func(what string, began time.Time) {
				d := time.Since(began)
				total += d
				t.Logf("%6.2f s  %s", d.Seconds(), what)
			}
			sh := func(command string) string {
				t.Helper()
				cmd := exec.Command("sh", "-c", command)
				cmd.Dir = dir
				cmd.Env = []string{"PATH=" + filepath.Dir(kubectl) + ":" + os.Getenv("PATH"), "KUBECONFIG=" + c.Kubeconfig, "HOME=" + c.Dir}
				began := time.Now()
				out, err := cmd.CombinedOutput()
				took(command, began)
				if err != nil {
					t.Fatalf("%s: %v\n%s", command, err, out)
				}
				return string(out)
			}
			answers := 0
			for command := range strings.Lines(way.commands) {
				command, _, _ = strings.Cut(strings.TrimSpace(command), "   #")
				out := sh(command)
				switch {
				case strings.Contains(command, " rollout status "):
					p := podOf(t, c, "apis/apps/v1/namespaces/epdns/deployments/epdns")
					if image := p.spec.Containers[0].Image; image != "registry.example/epdns:v1" {
						t.Errorf("the image is %s", image)
					}
					address := localService(t, c)
					began := time.Now()
					p.serve(t, "--listen="+address+":53")
					took("(the program, from its start to /readyz)", began)
				case strings.HasPrefix(command, "dig "):
					answers++
					if !strings.Contains(out, "192.0.2.1") {
						t.Errorf("%s prints %q, want the API server's address", command, out)
					}
				}
			}
			t.Logf("%6.2f s  in all", total.Seconds())
			if answers == 0 {
				t.Error("no command asks anything")
			}
			for command := range strings.Lines(way.undo) {
				command, _, _ = strings.Cut(strings.TrimSpace(command), "   #")
				sh(command)
			}
			if left := leftovers(t, c); len(left) > 0 {
				t.Errorf("after it was removed there still are %q", left)
			}
		})
	}
}

// localService gives this machine the ClusterIP of Service epdns.
func localService(t *testing.T, c *cluster.Cluster) (address string) {
	t.Helper()
	var service struct{ Spec struct{ ClusterIP string } }
	if err := c.Request(t.Context(), http.MethodGet, "/api/v1/namespaces/epdns/services/epdns", nil, &service); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("ip", "address", "replace", service.Spec.ClusterIP+"/32", "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("ip: %v\n%s", err, out)
	}
	return service.Spec.ClusterIP
}
