//go:build linux

package faults

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"

	"epdns/test/netns"
	"epdns/test/run"
)

// Programs are those that faults are made with.
var Programs = []netns.Program{{Name: "nft", Package: "nftables"}, {Name: "prlimit", Package: "util-linux"}, {Name: "taskset", Package: "util-linux"}, {Name: "unshare", Package: "util-linux"}}

// Machine says what was measured, and where.
func Machine() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	root, err := run.Repository()
	if err != nil {
		return "", err
	}
	describe := exec.Command("git", "describe", "--always", "--dirty", "--match=")
	describe.Dir = root
	version, err := describe.Output()
	if err != nil {
		return "", fmt.Errorf("git describe: %w", err)
	}
	release, _, _ := bytes.Cut(u.Release[:], []byte{0})
	return fmt.Sprintf("%d processors for all, the control plane included; Linux %s, %s, epdns %s.",
		runtime.NumCPU(), release, runtime.Version(), bytes.TrimSpace(version)), nil
}
