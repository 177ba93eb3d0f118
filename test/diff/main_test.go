//go:build linux

// Package diff_test compares epdns with NSD, Knot and BIND. The zones that epdns hands out
// by AXFR are loaded into all three; then every name of them, and many that are not there,
// are asked of all four. What differs must be in the list in classes_test.go, which
// docs/differences.md explains. And it compares epdns with the CoreDNS of a real control
// plane, which has the same EndpointSlices; that list is in coreclasses_test.go.
//
// All of it runs in namespaces of its own (network, processes), so ports are free and
// nothing is left over.
package diff_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// Paths from here.
const (
	repository  = "../.."
	sample      = "../../registry/manifest/sample"
	testCluster = "../../testdata/cluster"
)

const (
	envInside = "EPDNS_TEST_INSIDE" // the temporary directory; set in the namespaces only
	envMapped = "EPDNS_TEST_MAPPED" // root there is not root outside
)

// epdns is the program under test.
var epdns string

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: starts other servers and a control plane")
		return
	}
	run := outside
	if dir := os.Getenv(envInside); dir != "" {
		run = func() (int, error) { return inside(m, dir) }
	}
	status, err := run()
	if err != nil {
		fmt.Fprintf(os.Stderr, "diff: %v\n", err)
		status = 1
	}
	os.Exit(status)
}

// outside builds epdns and runs this binary again in the namespaces.
func outside() (status int, err error) {
	if _, err := find("ip"); err != nil {
		return 0, errors.New("these tests need ip: sudo apt-get install iproute2")
	}
	dir, err := os.MkdirTemp("", "epdns-diff-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // the servers are other users
		return 0, err
	}
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "epdns"), "./cmd/epdns")
	build.Dir = repository
	build.Env = append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build epdns: %w\n%s", err, out)
	}

	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), envInside+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Geteuid() != 0 {
		cmd.Env = append(cmd.Env, envMapped+"=yes")
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	// The kernel sends the signal when the thread ends that started the child.
	runtime.LockOSThread()
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.Exited():
		return exit.ExitCode(), nil
	case errors.Is(err, syscall.EPERM):
		return 0, fmt.Errorf("these tests need namespaces of its own, so root or user namespaces: %w", err)
	}
	return 0, err
}

// inside runs the tests.
func inside(m *testing.M, dir string) (status int, err error) {
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return 0, fmt.Errorf("set up the loopback interface: %w\n%s", err, out)
	}
	epdns = filepath.Join(dir, "epdns")
	return m.Run(), nil
}
