package epdns_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// This file runs the commands of pages that need a control plane, or half an hour.

// kubeBefore is what has been done in the cluster when the pages' commands are typed, and kubeAfter
// takes it away again.
const (
	kubeBefore = `
kubectl create namespace epdns
kubectl create namespace shop
kubectl -n shop create deployment web --image=nginx:alpine --replicas=3
kubectl -n shop create service clusterip web --tcp=80
kubectl -n shop rollout status deployment/web
kubectl -n kube-system create configmap coredns --from-literal=Corefile='.:53 {
    errors
}'
`
	kubeAfter = `
kubectl delete -k . --ignore-not-found
kubectl delete namespace epdns shop --ignore-not-found
kubectl -n kube-system delete configmap coredns
`
)

// kubeEditor adds what a page says to the Corefile in the file that kubectl has it edit.
const kubeEditor = `#!/bin/bash
sed 's/^/    /' "$DESK/home/deploy/snippets/coredns.Corefile" >"$DESK/block"
sed -i "/^  Corefile: /r $DESK/block" "$1"
`

// TestKubePageShell runs what is for a cluster, on the machine, in the order of the pages.
func TestKubePageShell(t *testing.T) {
	k := newKube(t)
	order, of := pageCommands(t, byKube)
	d := newDesk(t, k.config)
	d.tools(t)
	d.file(t, "editor", kubeEditor)
	d.env = append(d.env, "KUBE_EDITOR="+filepath.Join(d.dir, "editor"))
	// The overlay of deploy/README.md, beside a checkout.
	for _, b := range blocks("deploy/README.md", readFile(t, "deploy/README.md")) {
		if b.heading == "Install" && b.language == "yaml" {
			d.file(t, "home/kustomization.yaml", strings.Join(b.lines, "\n")+"\n")
		}
	}
	root, err := os.Getwd()
	if err == nil {
		err = os.Symlink(root, filepath.Join(d.home, "epdns"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := d.sh(context.Background(), "", kubeAfter); err != nil {
			t.Error(err)
		}
	})
	if _, err := d.sh(t.Context(), "", kubeBefore); err != nil {
		t.Fatal(err)
	}
	for _, path := range order {
		for _, c := range of[path] {
			d.run(t, c)
		}
	}
}

// tools puts kubectl and helm into the PATH.
func (d *desk) tools(t *testing.T) {
	t.Helper()
	for _, name := range []string{"kubectl", "helm"} {
		if err := os.Symlink(os.Getenv(clusterTools[name]), filepath.Join(d.dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKubePageFlags has kubectl and helm look at the flags of what stands within the text of pages.
func TestKubePageFlags(t *testing.T) {
	newKube(t)
	d := newDesk(t, os.DevNull)
	d.tools(t)
	d.file(t, "bin/kubectl-epdns", deskEpdns)
	inline := regexp.MustCompile("`((?:kubectl|helm) [^`]+)`") // those that end with a flag are the beginning of one
	count := 0
	for _, path := range pages(t) {
		for _, m := range inline.FindAllStringSubmatch(readFile(t, path), -1) {
			for _, words := range shellCommands(m[1]) {
				if words[0] != "kubectl" && words[0] != "helm" || strings.HasPrefix(words[len(words)-1], "-") {
					continue
				}
				if at := slices.Index(words, "--"); at >= 0 {
					words = words[:at] // the rest is for another program
				}
				count++
				cmd := exec.CommandContext(t.Context(), words[0], append(words[1:], "--help")...)
				cmd.Path, cmd.Err = filepath.Join(d.dir, "bin", words[0]), nil
				cmd.Env = d.env
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s: %q: %v\n%s", path, words, err, out)
				}
			}
		}
	}
	if count < 10 {
		t.Errorf("%d commands are found, which cannot be all", count)
	}
}

// shorter are the arguments with which what takes minutes, and is of the module test/, takes seconds.
var shorter = []struct{ command, arguments string }{
	{"run ./cmd/bench", "--seconds 0.1 --rounds 1 --services 20 --only epdns,floor,A10,udp"},
	{"run ./cmd/bench scale", "--seconds 0.1 --only epdns,100"},
	{"run ./cmd/drain", "--repetitions 1 --svg chart.svg"},
	{"run ./cmd/measure propagation", "--updates 5"},
	{"run ./cmd/measure scale", "--services 20 --endpoints 2 --settle 1s"},
	{"run ./cmd/image --tag dev --version ", "--version v0 --platform linux/amd64"},
}

// makeTargets are the targets of Makefile: what runs them, which is the command here where there is
// one, or else a file, or a test of what they run.
var makeTargets = []struct {
	target string
	run    string // by TestKubePageLong
	by     string // a file that runs it, or directory and function of the test of what it runs
	why    string // it is not run as it is
}{
	{target: "run", by: "README.md"}, // whose commands are run
	{target: "image", by: "deploy/README.md"},
	{target: "test", by: ".ci/run"},
	{target: "e2e", by: ".ci/run"},
	{target: "lint", by: ".ci/run"},
	{target: "fuzz", by: ".ci/run"},
	{target: "tools", by: "Makefile"},
	{target: "tools-e2e", by: "Makefile"},
	{target: "build", by: "Makefile"},
	{target: "check", by: ".ci/run", why: "lint and tests, which are run one by one"},
	{target: "faults", by: "test/faults TestFaults", why: "twenty minutes"},
	{target: "soak", by: "test/faults TestSoak", why: "two hours of an idle machine; the test is a minute of it"},
	{target: "man", run: "make man && man build/man/man1/epdns-explain.1"},
	{target: "chart", run: "cp -L ../bin/helm build/ && make chart GO=true && ls build/epdns-*.tgz"},
	{target: "install.yaml", run: "cp deploy/install.yaml before && rm deploy/install.yaml && make install.yaml && cmp before deploy/install.yaml"},
	{target: "measure", run: "make measure"},
	{target: "bench", run: "make bench"},
	{target: "cluster", run: `timeout --signal=INT 5m make cluster >up & until grep KUBECONFIG up; do kill -0 $!; sleep 0.1; done; kill -INT $!; wait $! || :`},
	{target: "clean", run: "mkdir made && make clean BUILD=made && [ ! -e made ] && echo clean"},
}

// Each target of Makefile is known above, those that pages speak of are there, and make would run
// them all.
func TestMakeTargets(t *testing.T) {
	t.Parallel()
	makefile := readFile(t, "Makefile")
	var there []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z][-.a-z0-9]*):( |$)`).FindAllStringSubmatch(makefile, -1) {
		there = append(there, m[1])
	}
	var known []string
	for _, target := range makeTargets {
		known = append(known, target.target)
		if out, err := exec.CommandContext(t.Context(), "make", "-n", target.target).CombinedOutput(); err != nil || len(out) == 0 {
			t.Errorf("make -n %s: %v\n%s", target.target, err, out)
		}
		dir, name, isTest := strings.Cut(target.by, " ")
		switch {
		case target.why != "":
			t.Logf("not run as it is: make %s: %s (%s)", target.target, target.why, target.by)
		case target.run != "" || isTest || strings.Contains(readFile(t, target.by), "make "+target.target):
		case !regexp.MustCompile(`(?m)^[a-z][-.a-z0-9]*:.* ` + target.target + `\b`).MatchString(readFile(t, target.by)):
			t.Errorf("%s does not run %s", target.by, target.target)
		}
		if isTest && !hasTest(t, dir, name) {
			t.Errorf("%s has no test %s, which is to run what make %s does", dir, name, target.target)
		}
	}
	slices.Sort(there)
	slices.Sort(known)
	if !slices.Equal(there, known) {
		t.Errorf("Makefile has the targets %q, and makeTargets %q", there, known)
	}
	for _, path := range pages(t) {
		for _, m := range regexp.MustCompile("`make ([a-z][-.a-z0-9]*)").FindAllStringSubmatch(readFile(t, path), -1) {
			if !slices.Contains(there, m[1]) {
				t.Errorf("%s: there is no target %s", path, m[1])
			}
		}
	}
}

// TestKubePageLong runs what takes minutes or writes into the checkout: in a copy of it, with
// arguments that make it short.
func TestKubePageLong(t *testing.T) {
	newKube(t)
	order, of := pageCommands(t, byLong)
	d := newDesk(t, os.DevNull)
	d.limit = 10 * grace // what they run is compiled anew, as it is in another directory
	d.tools(t)
	d.copy(t)
	var script strings.Builder
	script.WriteString("#!/bin/bash\nset -eu\ncase \"$*\" in\n")
	for _, s := range shorter {
		fmt.Fprintf(&script, "'%s') set -- \"$@\" %s ;;\n", s.command, s.arguments)
	}
	real, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(&script, "esac\nexec %s \"$@\"\n", real)
	d.file(t, "bin/go", script.String())
	for _, path := range order {
		t.Run(strings.ReplaceAll(path, "/", " "), func(t *testing.T) {
			t.Parallel() // most of them wait
			for _, c := range of[path] {
				d.run(t, c)
			}
		})
	}
	t.Run("make", func(t *testing.T) {
		t.Parallel()
		for _, target := range makeTargets {
			if target.run != "" {
				t.Run(target.target, func(t *testing.T) { d.run(t, command{block: block{page: "Makefile"}, text: target.run}) })
			}
		}
	})
}

// copy has the desk's checkout be one, as far as it is not made, and its caches those of the machine.
func (d *desk) copy(t *testing.T) {
	t.Helper()
	d.env = append(d.env, "HOME="+os.Getenv("HOME"))
	if err := os.RemoveAll(d.home); err != nil {
		t.Fatal(err)
	}
	const text = `mkdir "$1"
for file in * .ci; do [ "$file" = build ] || cp -a "$file" "$1"; done
[ ! -e .git ] || ln -s "$PWD/.git" "$1"
`
	if out, err := exec.CommandContext(t.Context(), "bash", "-euc", text, "bash", d.home).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
