//go:build linux

// Package cli_test uses the program as people do who have a cluster: as a plugin of a real
// kubectl on a real control plane, in shells that complete its arguments, and by its manual
// pages.
//
// All of it, the control plane included, runs in namespaces of its own (network, mounts,
// processes). The loopback interface there has the address of a Pod in which epdns runs.
package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"epdns/test/cluster"
	"epdns/test/netns"
	"epdns/test/run"
)

// podIP is the address of the Pod.
const podIP = "10.99.0.7"

// What the tests work with.
var (
	kube    *cluster.Cluster
	kubectl string // path
	epdns   string // path
	bin     string // directory with epdns, kubectl, and the names of the plugin
)

func TestMain(m *testing.M) {
	netns.Main(netns.Tests{
		Programs: []netns.Program{
			{Name: "bash", Package: "bash"}, {Name: "zsh", Package: "zsh"}, {Name: "fish", Package: "fish"},
			{Name: "mandoc", Package: "mandoc"},
		},
		Prepare: func(dir string) error {
			if _, err := os.Stat(bashCompletion); err != nil {
				return fmt.Errorf("bash-completion is not installed: %w", err)
			}
			if err := cluster.Built(cluster.Options{}); err != nil {
				return err
			}
			_, err := run.Build(context.Background(), "../..", dir)
			return err
		},
		Addresses: []string{podIP + "/32"},
		Run:       func(dir string) (int, error) { return inside(m, dir) },
	})
}

func inside(m *testing.M, dir string) (status int, err error) {
	ctx := context.Background()
	if kubectl, err = cluster.Kubectl(ctx, cluster.Options{}); err != nil {
		return 0, err
	}
	// The program is in the directory by its own name already.
	bin = filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		return 0, err
	}
	epdns = filepath.Join(bin, "epdns")
	for name, to := range map[string]string{
		"epdns": filepath.Join(dir, "epdns"), "kubectl": kubectl,
		"kubectl-epdns": filepath.Join(dir, "epdns"), "kubectl_complete-epdns": filepath.Join(dir, "epdns"),
	} {
		if err := os.Symlink(to, filepath.Join(bin, name)); err != nil {
			return 0, err
		}
	}
	if kube, err = cluster.Start(ctx, cluster.Options{Nodes: 1}); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, kube.Stop()) }()
	if err := os.WriteFile(filepath.Join(dir, "shop.yaml"), []byte(shop), 0o644); err != nil {
		return 0, err
	}
	cmd := exec.Command(kubectl, "--kubeconfig", kube.Kubeconfig, "apply", "-f", filepath.Join(dir, "shop.yaml"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return m.Run(), nil
}

// shop has two Services, whose endpoints nobody but the manifest makes.
const shop = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: None, ports: [{name: http, port: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.20.1.1], zone: zone-a}, {addresses: [10.20.1.2], zone: zone-b}]
---
apiVersion: v1
kind: Service
metadata: {name: jobs, namespace: shop}
spec: {clusterIP: None, ports: [{name: http, port: 8080}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: data}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: data}
spec: {clusterIP: None, ports: [{name: pg, port: 5432}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db-1, namespace: data, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{name: pg, port: 5432, protocol: TCP}]
endpoints: [{addresses: [10.20.2.1], zone: zone-a}]
`

// environment is that of somebody who uses this kubeconfig.
func environment(kubeconfig string, vars ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "KUBE") && !strings.HasPrefix(v, "PATH=") && !strings.HasPrefix(v, "HOME=") && !strings.HasPrefix(v, "LC_") {
			env = append(env, v)
		}
	}
	return append(append(env, "PATH="+bin+":/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/nonexistent", "KUBECONFIG="+kubeconfig, "TERM=xterm", "LANG=C.UTF-8"), vars...)
}

// runs runs a command line to its end.
func runs(t *testing.T, kubeconfig, line string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), run.Grace) // also when a test ends
	defer cancel()
	var out, errs strings.Builder
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &errs, environment(kubeconfig)
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// good is what a command line prints, which must end well.
func good(t *testing.T, kubeconfig, line string) string {
	t.Helper()
	stdout, stderr, code := runs(t, kubeconfig, line)
	if code != 0 {
		t.Fatalf("%s: exit status %d\n%s%s", line, code, stdout, stderr)
	}
	return stdout
}
