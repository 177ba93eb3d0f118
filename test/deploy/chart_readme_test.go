//go:build linux

package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"epdns/test/cluster"
)

// The commands of the chart's README work as they stand, one after the other, and leave nothing. Of
// "helm test" TestChartInstall runs the container, which nobody does here.
func TestChartReadme(t *testing.T) {
	c := strictCluster(t)
	helm, err := cluster.Helm(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(chart + "/README.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	values, _ := block(t, string(readme), "yaml")
	for name, text := range map[string]string{
		"values.yaml": values,
		"epdns.yaml":  "apiVersion: epdns/v1alpha1\nkind: Config\nlameduck: 9s\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	deploy, err := filepath.Abs(shipped)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(deploy, filepath.Join(dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	sh := func(command string) error {
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + filepath.Dir(helm) + ":" + filepath.Dir(kubectl) + ":" + os.Getenv("PATH"), "KUBECONFIG=" + c.Kubeconfig, "HOME=" + c.Dir}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
		return err
	}
	t.Cleanup(func() {
		sh("helm uninstall epdns-node-local -n epdns-node-local --ignore-not-found; helm uninstall epdns -n epdns --ignore-not-found; " +
			"kubectl delete namespace epdns epdns-node-local --wait=false --ignore-not-found")
	})
	ran := 0
	for text := string(readme); strings.Contains(text, "```sh\n"); {
		var commands string
		commands, text = block(t, text, "sh")
		for command := range strings.Lines(commands) {
			if command = strings.TrimSpace(command); strings.HasPrefix(command, "helm test ") {
				continue
			}
			if sh(command) != nil {
				return
			}
			ran++
			if strings.Contains(command, "--set-file config=epdns.yaml") {
				if text := configMap(t, c, namespace, "epdns")["epdns.yaml"]; !strings.Contains(text, "lameduck: 9s\n") {
					t.Errorf("the configuration is\n%s", text)
				}
			}
		}
	}
	if ran < 6 {
		t.Errorf("%d commands are found, which cannot be all", ran)
	}
}
