package epdns_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Configurations, Corefiles and objects that a page shows are taken by whom they are for.

// pages are all that people read.
func pages(t *testing.T) (all []string) {
	t.Helper()
	all = []string{"README.md"}
	for _, dir := range []string{"docs", "deploy"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".md" {
				all = append(all, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// pageBlocks are the blocks of all pages.
func pageBlocks(t *testing.T) (all []block) {
	t.Helper()
	for _, page := range pages(t) {
		all = append(all, blocks(page, readFile(t, page))...)
	}
	return all
}

// Blocks of YAML that are a configuration, or a part of one, can be used.
func TestPageConfigurations(t *testing.T) {
	t.Parallel()
	count := 0
	for _, b := range pageBlocks(t) {
		config := configOf(t, b)
		if config == "" {
			continue
		}
		count++
		path := filepath.Join(t.TempDir(), "epdns.yaml")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if stdout, stderr, code := once(t, environment(), "check", "--config", path, "--manifests", "registry/manifest/sample"); code != 0 {
			t.Errorf("%s: exit status %d\n%s%s", b.where(0), code, stdout, stderr)
		}
	}
	if count < 10 {
		t.Errorf("%d blocks of configuration are found, which cannot be all", count)
	}
}

// configOf is the file that a block stands for, or nothing.
func configOf(t *testing.T, b block) string {
	t.Helper()
	if b.language != "yaml" {
		return ""
	}
	text := strings.Join(b.lines, "\n") + "\n"
	if strings.HasPrefix(text, "apiVersion: epdns/") {
		return text
	}
	for _, line := range b.lines {
		key, _, _ := strings.Cut(line, ":")
		if slices.Contains(configKeys(t), key) {
			return "apiVersion: epdns/v1alpha1\nkind: Config\n" + text
		}
	}
	return ""
}

// configKeys are the top keys of a configuration that no object of Kubernetes has.
func configKeys(t *testing.T) (keys []string) {
	t.Helper()
	reference, err := os.ReadFile("cmd/epdns/reference.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-zA-Z]+):`).FindAllSubmatch(reference, -1) {
		if key := string(m[1]); key != "apiVersion" && key != "kind" {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestKubePageCorefiles has a CoreDNS start with each Corefile on pages, in a network of its own.
func TestKubePageCorefiles(t *testing.T) {
	newKube(t)
	if !isolated(t, nil) {
		return
	}
	count := 0
	for _, b := range pageBlocks(t) {
		corefile := strings.Join(b.lines, "\n") + "\n"
		if !strings.Contains(corefile, ":53 {\n") {
			continue
		}
		count++
		path := filepath.Join(t.TempDir(), "Corefile")
		if err := os.WriteFile(path, []byte(corefile), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), grace)
		cmd := exec.CommandContext(ctx, os.Getenv(clusterTools["coredns"]), "-conf", path)
		var out output
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		eventually(t, func() error {
			if strings.Contains(out.String(), "\nCoreDNS-") { // it has started
				return nil
			}
			select {
			case err := <-ended:
				t.Fatalf("%s: %v\n%v", b.where(0), err, &out)
			default:
			}
			return fmt.Errorf("%s: CoreDNS says %v", b.where(0), &out)
		})
		cancel()
		<-ended
	}
	if count == 0 {
		t.Error("no Corefile is found")
	}
}

// clusterTools are the variables that "make e2e" sets to the paths of programs.
var clusterTools = map[string]string{"kubectl": "EPDNS_TEST_KUBECTL", "helm": "EPDNS_TEST_HELM", "coredns": "EPDNS_TEST_COREDNS"}

// TestKubePageObjects has the API server look at the objects of Kubernetes on pages that have a
// spec; others are parts of one.
func TestKubePageObjects(t *testing.T) {
	k := newKube(t)
	count := 0
	for _, b := range pageBlocks(t) {
		object := strings.Join(b.lines, "\n")
		if b.language != "yaml" || !pageObject.MatchString(object) || notInCluster.MatchString(object) || !strings.Contains(object, "\nspec:") {
			continue
		}
		count++
		cmd := exec.CommandContext(t.Context(), os.Getenv(clusterTools["kubectl"]), "apply", "--dry-run=server", "-f", "-")
		cmd.Stdin = strings.NewReader(regexp.MustCompile(`(?m)^(  namespace: ).*$`).ReplaceAllString(object, "${1}default"))
		cmd.Env = environment("KUBECONFIG=" + k.config)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", b.where(0), err, out)
		}
	}
	if count == 0 {
		t.Error("no object is found")
	}
}

var (
	pageObject = regexp.MustCompile(`(?m)^apiVersion: .*\nkind: |^kind: .*\napiVersion: `)
	// Of these, the plain API server knows nothing.
	notInCluster = regexp.MustCompile(`(?m)^apiVersion: (epdns|kustomize\.config\.k8s\.io|monitoring\.coreos\.com)/`)
)
