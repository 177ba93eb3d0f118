package kube

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func writeKubeconfig(t *testing.T, file, server string) {
	t.Helper()
	text := `apiVersion: v1
kind: Config
current-context: admin
clusters:
- name: local
  cluster: {server: "` + server + `"}
- name: other
  cluster: {server: "https://192.0.2.1:6443"}
users:
- name: admin
  user: {}
contexts:
- name: admin
  context: {cluster: local, user: admin}
- name: other
  context: {cluster: other, user: admin}
- name: broken
  context: {cluster: nowhere, user: admin}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "good")
	writeKubeconfig(t, good, "https://127.0.0.1:6443")
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	garbage := write("garbage", "{ this is: [not a kubeconfig")
	empty := write("empty", "")
	noCurrent := write("nocurrent", "contexts: [{name: a, context: {cluster: c}}]\nclusters: [{name: c, cluster: {server: 'https://x'}}]\n")
	missing := filepath.Join(dir, "missing")

	for _, tc := range []struct {
		name string
		env  string // KUBECONFIG
		cfg  Config
		want string   // of String
		errs []string // parts of the error
	}{
		{name: "file", cfg: Config{Kubeconfig: good},
			want: "cluster https://127.0.0.1:6443 (context admin of " + good + ")"},
		{name: "file and context", cfg: Config{Kubeconfig: good, Context: "other"},
			want: "cluster https://192.0.2.1:6443 (context other of " + good + ")"},
		{name: "environment", env: good,
			want: "cluster https://127.0.0.1:6443 (context admin of " + good + ")"},
		{name: "environment, one of two missing", env: missing + string(filepath.ListSeparator) + good,
			want: "cluster https://127.0.0.1:6443 (context admin of " + good + ")"},
		{name: "file wins", env: garbage, cfg: Config{Kubeconfig: good, Context: "other"},
			want: "cluster https://192.0.2.1:6443 (context other of " + good + ")"},
		{name: "missing file", env: good, cfg: Config{Kubeconfig: missing}, errs: []string{missing, "no such file"}},
		{name: "not a kubeconfig", cfg: Config{Kubeconfig: garbage}, errs: []string{garbage}},
		{name: "directory", cfg: Config{Kubeconfig: dir}, errs: []string{dir, "is a directory"}},
		{name: "empty file", cfg: Config{Kubeconfig: empty}, errs: []string{empty, "no contexts"}},
		{name: "no current context", cfg: Config{Kubeconfig: noCurrent}, errs: []string{noCurrent, "--context", "there are: a"}},
		{name: "unknown context", cfg: Config{Kubeconfig: good, Context: "nope"},
			errs: []string{good, `no context "nope"`, "admin, broken, other"}},
		{name: "context without a cluster", cfg: Config{Kubeconfig: good, Context: "broken"}, errs: []string{good, `"broken"`}},
		{name: "nothing found", env: missing, errs: []string{"KUBERNETES_SERVICE_HOST is not set", missing, "--kubeconfig FILE", "--manifests DIR"}},
		{name: "bad namespace", cfg: Config{Kubeconfig: good, Namespaces: []string{"shop", "a/b"}}, errs: []string{`namespace "a/b"`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tc.env)
			t.Setenv("KUBERNETES_SERVICE_HOST", "")
			src, err := New(tc.cfg, slog.New(slog.DiscardHandler))
			if tc.errs == nil {
				if err != nil {
					t.Fatal(err)
				}
				if src.String() != tc.want {
					t.Errorf("String() = %q, want %q", src, tc.want)
				}
				return
			}
			if err == nil {
				t.Fatalf("no error, but %s", src)
			}
			for _, want := range tc.errs {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of several lines: %q", err)
			}
		})
	}
}

func TestNamespaces(t *testing.T) {
	cfg := Config{Namespaces: []string{"shop", "data", "shop"}}
	have, err := cfg.namespaces()
	if err != nil || strings.Join(have, " ") != "data shop" {
		t.Errorf("%v, %v", have, err)
	}
}
