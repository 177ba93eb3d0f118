package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// toolset is one module below test/tools and what is built from it. Each has a module of its
// own so that their dependencies never meet.
type toolset struct {
	dir      string // below test/tools
	module   string // whose version in go.mod is the toolset's version
	ldflags  func(version string) string
	programs []program
	stages   []string // directories of kwok stages in module, copied beside the programs
}

type program struct {
	name Component
	path string // of the main package
	cold string // how long a first build takes on two cores
}

// controlPlane is what a cluster consists of.
var controlPlane = []toolset{
	{
		dir:      "etcd",
		module:   "go.etcd.io/etcd/server/v3",
		programs: []program{{Etcd, "go.etcd.io/etcd/server/v3", "about 1 minute"}},
	},
	{
		dir:    "kubernetes",
		module: "k8s.io/kubernetes",
		// The controller manager refuses an API server that does not say its version.
		ldflags: kubernetesVersion,
		programs: []program{
			{APIServer, "k8s.io/kubernetes/cmd/kube-apiserver", "about 7 minutes"},
			{ControllerManager, "k8s.io/kubernetes/cmd/kube-controller-manager", "about 2 minutes"},
			{Scheduler, "k8s.io/kubernetes/cmd/kube-scheduler", "some seconds"},
		},
	},
	{
		dir:    "kwok",
		module: "sigs.k8s.io/kwok",
		ldflags: func(version string) string {
			return "-X sigs.k8s.io/kwok/pkg/consts.Version=" + version
		},
		programs: []program{{Kwok, "sigs.k8s.io/kwok/cmd/kwok", "about 2 minutes"}},
		stages:   []string{"kustomize/stage/node/fast", "kustomize/stage/pod/fast"},
	},
}

// What tests run beside a cluster.
const (
	coreDNS Component = "coredns"
	kubectl Component = "kubectl"
	helm    Component = "helm"
)

// besides are the toolsets of these, a program each.
var besides = []toolset{
	{
		dir:      "coredns",
		module:   "github.com/coredns/coredns",
		programs: []program{{coreDNS, "github.com/coredns/coredns", "about 3 minutes"}},
	},
	// Not among the API server's, which would have to be built again for its sake.
	{
		dir:      "kubectl",
		module:   "k8s.io/kubernetes",
		ldflags:  kubernetesVersion,
		programs: []program{{kubectl, "k8s.io/kubernetes/cmd/kubectl", "about 1 minute"}},
	},
	{
		dir:    "helm",
		module: "helm.sh/helm/v4",
		ldflags: func(version string) string {
			return "-X helm.sh/helm/v4/internal/version.version=" + version
		},
		programs: []program{{helm, "helm.sh/helm/v4/cmd/helm", "about 3 minutes"}},
	},
}

// CoreDNS returns the path of a CoreDNS, the forwarder that clusters have. It is built unless
// the cache has it.
func CoreDNS(ctx context.Context, o Options) (path string, err error) { return beside(ctx, o, coreDNS) }

// Kubectl returns the path of the kubectl of the API server's release. It is built unless the
// cache has it.
func Kubectl(ctx context.Context, o Options) (path string, err error) { return beside(ctx, o, kubectl) }

// Helm returns the path of a Helm. It is built unless the cache has it.
func Helm(ctx context.Context, o Options) (path string, err error) { return beside(ctx, o, helm) }

func beside(ctx context.Context, o Options, name Component) (path string, err error) {
	i := slices.IndexFunc(besides, func(t toolset) bool { return t.programs[0].name == name })
	b, err := build(ctx, o, besides[i:i+1])
	if err != nil {
		return "", err
	}
	return b.program[name], nil
}

func kubernetesVersion(version string) string {
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	const p = "-X k8s.io/component-base/version."
	return p + "gitVersion=" + version + " " + p + "gitMajor=" + major + " " + p + "gitMinor=" + minor
}

// built says where the programs lie.
type built struct {
	program map[Component]string
	stages  []string // kwok's stage files
}

// DefaultCache is the directory that holds the programs when [Options.Cache] is empty.
func DefaultCache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no directory for the built programs: %w", err)
	}
	return filepath.Join(dir, "epdns-test"), nil
}

// Build builds the programs that the cache lacks: those of a cluster and those that tests run
// beside it. When it lacks none, that takes milliseconds. Of several processes one builds and
// the others wait for it.
func Build(ctx context.Context, o Options) error {
	_, err := build(ctx, o, slices.Concat(controlPlane, besides))
	return err
}

// Built returns an error unless [Build] would have nothing to do. Tests ask it first, because a first
// build outlasts go test's default timeout.
func Built(o Options) error {
	tools, cache, err := places(o)
	if err != nil {
		return err
	}
	for _, t := range slices.Concat(controlPlane, besides) {
		version, dir, err := t.place(tools, cache)
		if err != nil {
			return err
		}
		if missing, _ := t.missing(version, dir); len(missing) > 0 || !t.hasStages(dir) {
			return errors.New("the control plane is not built yet: go run ./cmd/cluster build")
		}
	}
	return nil
}

func build(ctx context.Context, o Options, toolsets []toolset) (*built, error) {
	tools, cache, err := places(o)
	if err != nil {
		return nil, err
	}
	b := &built{program: map[Component]string{}}
	for _, t := range toolsets {
		version, dir, err := t.place(tools, cache)
		if err != nil {
			return nil, err
		}
		if err := t.build(ctx, o.progress(), filepath.Join(tools, t.dir), version, dir); err != nil {
			return nil, err
		}
		for _, p := range t.programs {
			b.program[p.name] = filepath.Join(dir, string(p.name))
		}
		if len(t.stages) > 0 {
			files, err := filepath.Glob(filepath.Join(dir, stagesDir, "*.yaml"))
			if err != nil {
				return nil, err
			}
			b.stages = append(b.stages, files...)
		}
	}
	return b, nil
}

// places finds the tool modules and the cache.
func places(o Options) (tools, cache string, err error) {
	if tools, err = toolsDir(); err != nil {
		return "", "", err
	}
	if cache = o.Cache; cache == "" {
		if cache, err = DefaultCache(); err != nil {
			return "", "", err
		}
	}
	// Components run in a directory of their own, so a relative path would not last.
	if cache, err = filepath.Abs(cache); err != nil {
		return "", "", err
	}
	return tools, filepath.Join(cache, runtime.GOOS+"-"+runtime.GOARCH), nil
}

// toolsDir finds test/tools: beside this source file or, when the path of the source was
// trimmed away, above the working directory.
func toolsDir() (string, error) {
	has := func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "kubernetes", "go.mod"))
		return err == nil
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if dir := filepath.Join(filepath.Dir(filepath.Dir(file)), "tools"); has(dir) {
			return dir, nil
		}
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		for _, below := range []string{"tools", "test/tools"} {
			if d := filepath.Join(dir, below); has(d) {
				return d, nil
			}
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("test/tools is not above %s: run this inside the repository", wd)
		}
	}
}

// stagesDir is where kwok's stage files lie, beside kwok.
const stagesDir = "stages"

// place returns the toolset's version and its directory in the cache. The directory's name
// changes with everything that goes into the programs, except the Go release: rebuilding
// Kubernetes for that would cost more than it shows.
func (t *toolset) place(tools, cache string) (version, dir string, err error) {
	mod, err := os.ReadFile(filepath.Join(tools, t.dir, "go.mod"))
	if err != nil {
		return "", "", err
	}
	sum, err := os.ReadFile(filepath.Join(tools, t.dir, "go.sum"))
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(mod)) {
		if f := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require ")); len(f) >= 2 && f[0] == t.module {
			version = f[1]
			break
		}
	}
	if version == "" {
		return "", "", fmt.Errorf("test/tools/%s/go.mod does not require %s", t.dir, t.module)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%q\n", mod, sum, t.flags(version))
	return version, filepath.Join(cache, fmt.Sprintf("%s-%s-%x", t.dir, version, h.Sum(nil)[:4])), nil
}

// flags are those of go build, without the output.
func (t *toolset) flags(version string) []string {
	ld := "-s -w"
	if t.ldflags != nil {
		ld += " " + t.ldflags(version)
	}
	return []string{"-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags=" + ld}
}

func (t *toolset) missing(version, dir string) ([]program, error) {
	var m []program
	for _, p := range t.programs {
		switch _, err := os.Stat(filepath.Join(dir, string(p.name))); {
		case errors.Is(err, os.ErrNotExist):
			m = append(m, p)
		case err != nil:
			return nil, err
		}
	}
	return m, nil
}

func (t *toolset) hasStages(dir string) bool {
	if len(t.stages) == 0 {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, stagesDir))
	return err == nil
}

// build fills dir from the module in src.
func (t *toolset) build(ctx context.Context, progress io.Writer, src, version, dir string) error {
	missing, err := t.missing(version, dir)
	if err != nil || len(missing) == 0 && t.hasStages(dir) {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	unlock, err := lock(ctx, filepath.Join(dir, "lock"), func() {
		fmt.Fprintf(progress, "another process builds %s %s, waiting for it\n", t.dir, version)
	})
	if err != nil {
		return fmt.Errorf("build %s: %w", t.dir, err)
	}
	defer unlock()
	// Somebody else may have built meanwhile.
	if missing, err = t.missing(version, dir); err != nil {
		return err
	}
	for _, p := range missing {
		fmt.Fprintf(progress, "building %s %s (%s the first time)\n", p.name, version, p.cold)
		begin := time.Now()
		final := filepath.Join(dir, string(p.name))
		// Only the holder of the lock writes this name, so a rest of a killed build is overwritten.
		half := final + ".building"
		args := append([]string{"build"}, t.flags(version)...)
		if _, err := goCommand(ctx, src, append(args, "-o", half, p.path)...); err != nil {
			return fmt.Errorf("build %s %s: %w", p.name, version, err)
		}
		if err := os.Rename(half, final); err != nil {
			return fmt.Errorf("build %s %s: %w", p.name, version, err)
		}
		fmt.Fprintf(progress, "built %s %s in %v\n", p.name, version, time.Since(begin).Round(time.Second))
	}
	if !t.hasStages(dir) {
		if err := t.copyStages(ctx, src, dir); err != nil {
			return fmt.Errorf("copy the stages of %s %s: %w", t.dir, version, err)
		}
	}
	return nil
}

func (t *toolset) copyStages(ctx context.Context, src, dir string) error {
	out, err := goCommand(ctx, src, "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", t.module)
	if err != nil {
		return err
	}
	half := filepath.Join(dir, stagesDir+".building")
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	if err := os.Mkdir(half, 0o755); err != nil {
		return err
	}
	for _, stages := range t.stages {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(out), stages, "*.yaml"))
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("no stage in %s", stages)
		}
		for _, f := range files {
			name := filepath.Base(f)
			if name == "kustomization.yaml" {
				continue
			}
			b, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(half, name), b, 0o644); err != nil {
				return err
			}
		}
	}
	return os.Rename(half, filepath.Join(dir, stagesDir))
}

// goCommand runs the go command in a tool module and returns what it printed on stdout.
func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// The same programs on every machine: neither a workspace, nor the caller's flags, nor a
	// C compiler may have a say.
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0", "PWD="+dir)
	cmd.Stdout, cmd.Stderr = &out, &errs
	// Interrupted, go build removes what it has half written.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		return "", fmt.Errorf("go %s: %w\n%s", args[0], err, lastLines(errs.String(), logLines))
	}
	return out.String(), nil
}

// lock takes the lock file at path; waiting is called once if somebody else holds it.
func lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			// Closing the file gives the lock back, as does the death of this process.
			return func() { f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if first {
			waiting()
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			f.Close()
			return nil, err
		}
	}
}
