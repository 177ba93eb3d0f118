//go:build linux

// Package clients_test runs programs that find their servers by DNS, as they are shipped,
// against epdns: the C library musl, Go's resolver, HAProxy, Prometheus, CoreDNS, gRPC. What
// each must find, and why, is in testdata/cases/client.
//
// All of it runs in namespaces of its own (network, mounts, processes). The loopback interface
// there has the addresses of epdns, of what stands beside it and of all pods, so that port 53
// and /etc/resolv.conf are used as on any machine; and what is left over ends with them.
package clients_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"epdns/test/cluster"
	"epdns/test/run"
)

const (
	epdnsIP = "10.96.0.53"
	otherIP = "10.96.0.54" // another server, which is a trap or a cluster's DNS
	pods    = "10.20.0.1/16"
	podIPv6 = "fd00:10:20::1"
)

const (
	envInside = "EPDNS_TEST_INSIDE" // the temporary directory; set in the namespaces only
	envLookup = "EPDNS_TEST_LOOKUP" // what to look up with Go's resolver, and nothing else
)

// Programs, by path. musl is lookup.c with that library.
var epdns, musl, coreDNS, grpc string

func TestMain(m *testing.M) {
	flag.Parse()
	if what := os.Getenv(envLookup); what != "" {
		lookup(what)
		return
	}
	if testing.Short() {
		fmt.Println("skipped: starts the clients")
		return
	}
	start := outside
	if dir := os.Getenv(envInside); dir != "" {
		start = func() (int, error) {
			if err := furnish(); err != nil {
				return 0, err
			}
			epdns, musl, grpc = filepath.Join(dir, "epdns"), filepath.Join(dir, "lookup"), filepath.Join(dir, "grpc")
			var err error
			if coreDNS, err = cluster.CoreDNS(context.Background(), cluster.Options{}); err != nil {
				return 0, err
			}
			return m.Run(), nil
		}
	}
	status, err := start()
	if err != nil {
		fmt.Fprintf(os.Stderr, "clients: %v\n", err)
		status = 1
	}
	os.Exit(status)
}

// needed are the programs that the tests run, and Debian's packages with them.
var needed = []struct{ program, in string }{
	{"ip", "iproute2"},
	{"musl-gcc", "musl-tools"},
	{"busybox", "busybox-static"},
	{"nslookup", "bind9-dnsutils"},
	{"haproxy", "haproxy"},
	{"prometheus", "prometheus"},
}

// outside builds what is built and runs this binary again in the namespaces.
func outside() (status int, err error) {
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin") // where Debian puts servers
	var missing []string
	for _, n := range needed {
		if _, err := exec.LookPath(n.program); err != nil {
			missing = append(missing, n.in)
		}
	}
	if missing != nil {
		return 0, fmt.Errorf("these tests need more programs: sudo apt-get install %s", strings.Join(missing, " "))
	}
	// The first time, this takes minutes.
	if _, err := cluster.CoreDNS(context.Background(), cluster.Options{}); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "epdns-clients-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if _, err := run.Build(context.Background(), "../..", dir); err != nil {
		return 0, err
	}
	out, err := exec.Command("musl-gcc", "-static", "-Wall", "-o", filepath.Join(dir, "lookup"), "testdata/lookup.c").CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("musl-gcc: %w\n%s", err, out)
	}
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "grpc"), ".")
	build.Dir = "grpc" // which is a module of its own
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build grpc: %w\n%s", err, out)
	}

	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), envInside+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Geteuid() != 0 {
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
		return 0, fmt.Errorf("these tests need namespaces of their own, so root or user namespaces: %w", err)
	}
	return 0, err
}

// furnish makes the namespaces a machine with a network.
func furnish() error {
	// Nothing that is mounted here may show outside.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	ip := exec.Command("ip", "-batch", "-")
	ip.Stdin = strings.NewReader("link set lo up\n" +
		"address add " + epdnsIP + "/32 dev lo\n" +
		"address add " + otherIP + "/32 dev lo\n" +
		// On a loopback interface, all of the prefix is local.
		"address add " + pods + " dev lo\n" +
		"address add " + podIPv6 + "/128 dev lo\n")
	if out, err := ip.CombinedOutput(); err != nil {
		return fmt.Errorf("set up the loopback interface: %w\n%s", err, out)
	}
	return nil
}
