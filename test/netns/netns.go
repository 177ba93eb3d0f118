//go:build linux

// Package netns runs the tests of a package in namespaces of their own: network, mounts,
// processes. Every port of their loopback interface is free, it may have any address, files of
// the system can be covered by others, and what is left over ends with the tests. They start
// twice, outside and inside:
//
//	func TestMain(m *testing.M) {
//		netns.Main(netns.Tests{
//			Programs:  []netns.Program{{Name: "dig", Package: "bind9-dnsutils"}},
//			Prepare:   func(dir string) error { ... },                // outside
//			Addresses: []string{"10.96.0.53/32"},                     // inside, from here on
//			Run:       func(dir string) (int, error) { ...; return m.Run(), nil },
//		})
//	}
//
// Root can do this, and where users may have namespaces any user; see [Mapped].
package netns

import (
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
)

// Tests are those of a package, and what they need. The directory of Prepare and Run is the same,
// temporary one; any user may read in it.
type Tests struct {
	// Programs must be there, in PATH or where Debian puts servers. ip is needed in any case.
	Programs []Program

	// Prepare, unless nil, does outside what needs the machine's network, and builds.
	Prepare func(dir string) error

	// Addresses are given to the loopback interface, besides those that it has, as ip-address
	// takes them: "10.96.0.53/32". All of a prefix that is shorter becomes local.
	Addresses []string

	// Run runs the tests inside and returns the status to exit with.
	Run func(dir string) (status int, err error)
}

// Program is a program, and the package of Debian that has it.
type Program struct{ Name, Package string }

const (
	envInside = "EPDNS_TEST_INSIDE" // the temporary directory; set in the namespaces only
	envMapped = "EPDNS_TEST_MAPPED" // root there is not root outside
)

// Main is all of a TestMain. It parses the flags, does nothing under -short, and does not return.
func Main(tests Tests) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("skipped: starts other programs")
		os.Exit(0)
	}
	status, err := tests.Start()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
		status = 1
	}
	os.Exit(status)
}

// Start is [Main] for a command: it looks at no flags, and returns the status to exit with.
func (tests Tests) Start() (status int, err error) {
	if dir := os.Getenv(envInside); dir != "" {
		return tests.inside(dir)
	}
	return tests.outside()
}

// Mapped reports whether the user has no rights outside: then root is the only user there is
// inside, and is that user.
func Mapped() bool { return os.Getenv(envMapped) != "" }

// outside prepares, then runs this program again in the namespaces.
func (tests Tests) outside() (status int, err error) {
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin")
	if err := find(append([]Program{{"ip", "iproute2"}}, tests.Programs...)); err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "epdns-tests-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return 0, err
	}
	if tests.Prepare != nil {
		if err := tests.Prepare(dir); err != nil {
			return 0, err
		}
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
	exit, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case ended && exit.Exited():
		return exit.ExitCode(), nil
	case errors.Is(err, syscall.EPERM):
		return 0, fmt.Errorf("these tests need namespaces of their own, so root or user namespaces: %w", err)
	}
	return 0, err
}

// find says which packages of Debian are missing.
func find(programs []Program) error {
	var missing []string
	for _, p := range programs {
		if _, err := exec.LookPath(p.Name); err != nil {
			missing = append(missing, p.Package)
		}
	}
	if missing != nil {
		return fmt.Errorf("these tests need more programs: sudo apt-get install %s", strings.Join(missing, " "))
	}
	return nil
}

func (tests Tests) inside(dir string) (status int, err error) {
	// Nothing that is mounted here may show outside.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return 0, fmt.Errorf("make the mounts private: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return 0, fmt.Errorf("mount /proc: %w", err)
	}
	var batch strings.Builder
	fmt.Fprintln(&batch, "link set lo up")
	for _, address := range tests.Addresses {
		if strings.Contains(address, ":") {
			address += " nodad" // else it can be bound only when the kernel finds time to look for others
		}
		fmt.Fprintf(&batch, "address add %s dev lo\n", address)
	}
	ip := exec.Command("ip", "-batch", "-")
	ip.Stdin = strings.NewReader(batch.String())
	if out, err := ip.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("set up the loopback interface: %w\n%s", err, out)
	}
	return tests.Run(dir)
}

// Mount covers a file of the system by a new one with this content until the test ends. It
// returns the path at which that one can be written.
func Mount(t testing.TB, over, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(over))
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(path, over, "", syscall.MS_BIND, ""); err != nil {
		t.Fatalf("mount over %s: %v", over, err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(over, 0); err != nil {
			t.Errorf("unmount %s: %v", over, err)
		}
	})
	return path
}
