//go:build linux

// Package deploy_test applies deploy/ to a real control plane and goes the ways on which
// clients of a cluster reach epdns: CoreDNS, NodeLocal DNSCache, a Pod's resolv.conf.
//
// All of it, the control plane included, runs in namespaces of its own (network, mounts,
// processes). The loopback interface there has the addresses that deploy/snippets names, so
// those files are used as they are, port 53 included; and what is left over ends with them.
package deploy_test

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
)

// Addresses in deploy/snippets.
const (
	clusterDNS = "10.96.0.10"    // CoreDNS
	epdnsIP    = "10.96.0.53"    // the Service epdns
	nodeLocal  = "169.254.20.10" // NodeLocal DNSCache
)

// podIP makes this namespace one of both families, in which glibc asks for AAAA, too.
const podIP = "fd00:10:244:1::1"

// Paths from here.
const (
	repository = "../.."
	shipped    = "../../deploy"
)

// What the tests work with.
var (
	kube    *cluster.Cluster
	kubectl string // path
	coreDNS string // path
	epdns   string // path
)

const (
	envInside = "EPDNS_TEST_INSIDE" // the temporary directory; set in the namespaces only
	envMapped = "EPDNS_TEST_MAPPED" // root there is not root outside
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: starts a control plane")
		return
	}
	run := outside
	if dir := os.Getenv(envInside); dir != "" {
		run = func() (int, error) { return inside(m, dir) }
	}
	status, err := run()
	if err != nil {
		fmt.Fprintf(os.Stderr, "deploy: %v\n", err)
		status = 1
	}
	os.Exit(status)
}

// outside makes what needs the network and runs this binary again in the namespaces.
func outside() (status int, err error) {
	if err := needed("ip", "iproute2"); err != nil {
		return 0, err
	}
	if err := needed("getent", "libc-bin"); err != nil {
		return 0, err
	}
	if err := needed("musl-gcc", "musl-tools"); err != nil {
		return 0, err
	}
	built, err := cluster.Built(cluster.Options{})
	if err != nil {
		return 0, err
	}
	if !built {
		return 0, errors.New("the control plane is not built yet: go run ./cmd/cluster build")
	}
	dir, err := os.MkdirTemp("", "epdns-deploy-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "epdns"), "./cmd/epdns")
	build.Dir = repository
	// As for an image with nothing else in it.
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
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
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
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
		return 0, fmt.Errorf("these tests need namespaces of their own, so root or user namespaces: %w", err)
	}
	return 0, err
}

// needed says which Debian package a missing program is in.
func needed(program, pkg string) error {
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("these tests need %s: sudo apt-get install %s", program, pkg)
	}
	return nil
}

// inside runs the tests.
func inside(m *testing.M, dir string) (status int, err error) {
	if err := furnish(); err != nil {
		return 0, err
	}
	ctx := context.Background()
	epdns = filepath.Join(dir, "epdns")
	if kubectl, err = cluster.Kubectl(ctx, cluster.Options{}); err != nil {
		return 0, err
	}
	if coreDNS, err = cluster.CoreDNS(ctx, cluster.Options{}); err != nil {
		return 0, err
	}
	// A Node in each zone.
	if kube, err = cluster.Start(ctx, cluster.Options{Nodes: 3}); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, kube.Stop()) }()
	return m.Run(), nil
}

// furnish makes the namespaces what a node's are.
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
		"address add " + clusterDNS + "/32 dev lo\n" +
		"address add " + epdnsIP + "/32 dev lo\n" +
		"address add " + nodeLocal + "/32 dev lo\n" +
		"address add " + podIP + "/128 dev lo\n")
	if out, err := ip.CombinedOutput(); err != nil {
		return fmt.Errorf("set up the loopback interface: %w\n%s", err, out)
	}
	// As container runtimes have it. epdns has no need of it in a cluster, where the Service has
	// port 53; here it plays the Service, too.
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0); err != nil {
		return fmt.Errorf("open the low ports: %w", err)
	}
	return nil
}
