package epdns_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// This file runs a test in a network of its own, in which questions may come from any
// address.

// envIsolated has, for the tests inside, the path of the program under test.
const envIsolated = "EPDNS_TEST_ISOLATED"

// isolated runs the test that calls it once more, by itself, in a new network
// namespace whose loopback interface has these addresses besides its own. It is true
// inside; outside it is false, and what went wrong inside has been reported.
//
// Root may do this, and where users may have namespaces everybody. Where nobody may,
// the test is skipped, but not under CI.
func isolated(t *testing.T, addresses []netip.Addr) bool {
	t.Helper()
	if os.Getenv(envIsolated) != "" {
		addAddresses(t, addresses)
		return true
	}
	// As root without a user namespace: in one, root could read only what is its own.
	ways := []uintptr{0, syscall.CLONE_NEWUSER}
	if os.Geteuid() != 0 {
		ways = ways[1:]
	}
	var denied error
	for _, way := range ways {
		if denied = again(t, way); denied == nil {
			return false
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal(denied)
	}
	t.Skip(denied)
	return false
}

// framing is what tells how tests began and ended.
var framing = regexp.MustCompile(`(?m)^ *(=== |--- |PASS$|FAIL$).*\n?`)

// again runs this test in new namespaces and reports how it ended. An error says why
// there are no such namespaces.
func again(t *testing.T, flags uintptr) error {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.v", "-test.run", "^" + strings.ReplaceAll(regexp.QuoteMeta(t.Name()), "/", "$/^") + "$"}
	if deadline, ok := t.Deadline(); ok {
		args = append(args, "-test.timeout", time.Until(deadline).String())
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), envIsolated+"="+epdns)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		// With processes of their own, for whatever the test has started to end with it.
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | flags,
		Pdeathsig:  syscall.SIGKILL,
	}
	if flags&syscall.CLONE_NEWUSER != 0 {
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	// The kernel sends Pdeathsig when the thread ends that started the process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	switch exit := (*exec.ExitError)(nil); {
	case err != nil && !errors.As(err, &exit):
		return fmt.Errorf("this test needs a network namespace, so root or user namespaces: %w", err)
	case err != nil:
		t.Errorf("%v\n%s", err, framing.ReplaceAll(out, nil))
	case !strings.Contains(string(out), "--- PASS: "+t.Name()+" "):
		t.Errorf("it did not run:\n%s", framing.ReplaceAll(out, nil))
	}
	return nil
}

// addAddresses gives the loopback interface addresses, and switches it on.
func addAddresses(t *testing.T, addresses []netip.Addr) {
	t.Helper()
	batch := "link set lo up\n"
	for _, a := range addresses {
		if !a.IsLoopback() {
			batch += fmt.Sprintf("address add %v/%d dev lo\n", a, a.BitLen())
		}
	}
	path, err := exec.LookPath("ip")
	if err != nil {
		path = "/usr/sbin/ip" // not in every user's PATH
	}
	ip := exec.Command(path, "-batch", "-")
	ip.Stdin = strings.NewReader(batch)
	if out, err := ip.CombinedOutput(); err != nil {
		t.Fatalf("set up the loopback interface with ip (apt-get install iproute2): %v\n%s", err, out)
	}
	// An IPv6 address has no route, and cannot be used, until the kernel has come round
	// to its detection of duplicates (RFC 4862 section 5.4), also where there can be none.
	for _, a := range addresses {
		eventually(t, func() error {
			self := net.UDPAddrFromAddrPort(netip.AddrPortFrom(a, 1))
			c, err := net.DialUDP("udp", &net.UDPAddr{IP: self.IP}, self)
			if err != nil {
				return err
			}
			return c.Close()
		})
	}
}
