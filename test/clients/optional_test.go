//go:build linux

package clients_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"epdns/test/cluster"
)

// This file has what is not on every machine: programs of a later Debian, and an old Go. A test
// that needs one is skipped where it cannot be had.

const (
	laterDebian = "trixie"
	oldGo       = "go1.20.14"
)

// optional are the programs, by the name of the file in the temporary directory, and how each is
// got to a path.
var optional = map[string]func(path string) error{
	"later-musl": func(path string) error {
		return later("musl", "usr/lib/*-linux-musl/libc.so", path)
	},
	"busybox-later": func(path string) error {
		return later("busybox-static", "usr/bin/busybox", path)
	},
	"lookup-" + oldGo: func(path string) error { return buildLookup(path, "GOTOOLCHAIN="+oldGo) },
}

// prepareOptional gets those that can be had. Of the others it leaves the reason.
func prepareOptional(dir string) error {
	for name, get := range optional {
		path := filepath.Join(dir, name)
		if err := get(path); err != nil {
			if err := os.WriteFile(path+".missing", []byte(err.Error()), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// need is the path of an optional program. Without it, the test is skipped.
func need(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(built, name)
	if reason, err := os.ReadFile(path + ".missing"); err == nil {
		t.Skipf("there is no %s: %s", name, reason)
	}
	return path
}

// buildLookup builds the program that looks up with Go's resolver. It is not built as part of
// this module, of which old releases know nothing, and which might change what new ones do.
func buildLookup(path string, env ...string) error {
	source, err := filepath.Abs("lookup/main.go")
	if err != nil {
		return err
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, source)
	build.Dir = filepath.Dir(path)
	build.Env = append(append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS="), env...)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build lookup %s: %w\n%s", env, err, out)
	}
	return nil
}

// later links a file of a package of a later Debian to path. The package is not installed, but
// lies in the cache.
func later(name, file, path string) error {
	cache, err := cluster.DefaultCache()
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, laterDebian, name)
	if _, err := os.Stat(dir); err != nil {
		if err := unpackLater(name, dir); err != nil {
			return fmt.Errorf("get %s of Debian %s: %w", name, laterDebian, err)
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, file))
	if err != nil {
		return err
	}
	if len(found) != 1 {
		return fmt.Errorf("the package %s of Debian %s has %d of %s", name, laterDebian, len(found), file)
	}
	return os.Symlink(found[0], path)
}

// unpackLater downloads a package with apt, which keeps what it knows of the later release apart
// from what it knows of the machine's, and unpacks it to dir.
func unpackLater(name, dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "get-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	// It comes from where the machine's own packages come from.
	release, err := output("", "sh", "-c", `. /etc/os-release && echo "$VERSION_CODENAME"`)
	if err != nil {
		return err
	}
	mirrors, err := output("", "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Component: main",
		"Release: "+strings.TrimSpace(release))
	if err != nil {
		return err
	}
	mirror, _, _ := strings.Cut(mirrors, "\n")
	if mirror == "" {
		return errors.New("apt does not say where Debian's packages are")
	}
	sources := filepath.Join(tmp, "later.list")
	line := "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] " + mirror + " " + laterDebian + " main\n"
	if err := os.WriteFile(sources, []byte(line), 0o644); err != nil {
		return err
	}
	lists := filepath.Join(tmp, "lists")
	if err := os.MkdirAll(filepath.Join(lists, "partial"), 0o755); err != nil {
		return err
	}
	for _, what := range [][]string{{"update"}, {"download", name}} {
		_, err := output(tmp, "apt-get", append([]string{"-qq", "-o", "Dir::Etc::SourceList=" + sources, "-o", "Dir::Etc::SourceParts=/dev/null",
			"-o", "Dir::State::Lists=" + lists, "-o", "Dir::Cache=" + filepath.Join(tmp, "cache"), "-o", "Acquire::Languages=none",
			"-o", "APT::Sandbox::User=root", // any other may not write here
		}, what...)...)
		if err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(tmp, name+"_*.deb"))
	if err != nil {
		return err
	}
	if len(packages) != 1 {
		return fmt.Errorf("apt has downloaded %q", packages)
	}
	// Whole or not at all, as other tests may be at it.
	if _, err := output("", "dpkg-deb", "--extract", packages[0], filepath.Join(tmp, "unpacked")); err != nil {
		return err
	}
	return os.Rename(filepath.Join(tmp, "unpacked"), dir)
}

// output runs a program in a directory, or here, and returns what it writes.
func output(dir, name string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, &stderr)
	}
	return stdout.String(), nil
}
