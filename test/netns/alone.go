//go:build linux

package netns

import (
	"flag"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// envAlone is the test that has these namespaces to itself.
const envAlone = "EPDNS_TEST_ALONE"

// Alone gives a test namespaces of its own, so that it can run beside others that use the same
// addresses and files. It runs the test there, in another process, and then reports that it is
// done:
//
//	func TestLong(t *testing.T) {
//		if netns.Alone(t) {
//			return
//		}
//
// How many run at a time is for the flag -parallel to say, whose default is meant for tests that
// compute.
func Alone(t *testing.T) (done bool) {
	t.Helper()
	if os.Getenv(envAlone) == t.Name() {
		return false
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pattern := "^" + t.Name() + "$"
	if _, sub, ok := strings.Cut(flag.Lookup("test.run").Value.String(), "/"); ok {
		pattern += "/" + sub
	}
	cmd := exec.Command(self, "-test.v", "-test.run="+pattern)
	cmd.Env = append(os.Environ(), envAlone+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		Pdeathsig:  syscall.SIGKILL,
	}
	// The kernel sends the signal when the thread ends that started the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	switch {
	case err != nil:
		t.Error(err)
	case strings.Contains(string(out), "--- SKIP: "+t.Name()+" "):
		t.SkipNow()
	}
	return true
}
