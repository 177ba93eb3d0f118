// Package debian gets programs of Debian packages that must not be installed, since that would
// change the machine: systemd-resolved takes over /etc/resolv.conf.
package debian

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"epdns/test/cluster"
)

// Unpack returns a directory with the files of packages of the machine's own release, unpacked
// and not installed. It is in the cache of built programs, and made once.
func Unpack(packages ...string) (dir string, err error) {
	cache, err := cluster.DefaultCache()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(cache, "debian", codename(), packages[0])
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), "get-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := download(tmp, packages); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(tmp, "*.deb"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		if err := run(tmp, "dpkg-deb", "--extract", file, filepath.Join(tmp, "unpacked")); err != nil {
			return "", err
		}
	}
	// Whole or not at all, as other tests may be at it. Who comes second finds it there.
	if err := os.Rename(filepath.Join(tmp, "unpacked"), dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	return dir, nil
}

// codename is what the machine's release is called.
func codename() string {
	text, _ := os.ReadFile("/etc/os-release")
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "VERSION_CODENAME="); ok {
			return name
		}
	}
	return "unknown"
}

// download downloads packages, and if that fails once more with new lists: where nothing was
// installed before, there are none.
func download(dir string, packages []string) error {
	get := append([]string{"-qq", "-o", "APT::Sandbox::User=root", "download"}, packages...)
	if run(dir, "apt-get", get...) == nil {
		return nil
	}
	if err := run(dir, "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300", "update"); err != nil {
		return err
	}
	return run(dir, "apt-get", get...)
}

func run(dir, name string, args ...string) error {
	var stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, &stderr)
	}
	return nil
}
