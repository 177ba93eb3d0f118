//go:build linux

package deploy_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"epdns/test/cluster"
	"epdns/test/netns"
)

// The commands of the chart's README work as they stand, one after the other, and leave nothing.
func TestChartReadme(t *testing.T) {
	if netns.Mapped() {
		t.Skip("the image's user is none here: run the tests as root")
	}
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
	// tested runs what has a Pod run, which is ours to do, and epdns, which that Pod asks.
	tested := func(command string) error {
		epdns := podOf(t, c, "apis/apps/v1/namespaces/"+namespace+"/deployments/epdns").serve(t, "--lameduck=0", "--listen="+epdnsIP+":53")
		pod := make(chan error, 1)
		go func() { pod <- actKubelet(t, c, "epdns-test") }()
		failed := sh(command)
		if err := errors.Join(<-pod, epdns.Stop()); err != nil {
			t.Errorf("%s: %v", command, err)
			return err
		}
		return failed
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
			command = strings.TrimSpace(command)
			run := sh
			if strings.HasPrefix(command, "helm test ") {
				run = tested
			}
			if run(command) != nil {
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
	if ran < 7 {
		t.Errorf("%d commands are found, which cannot be all", ran)
	}
}
