//go:build linux

package deploy_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"epdns/test/netns"
	"epdns/test/run"
)

// nodeEpdns is the address in deploy/overlays/node-local. Nobody has it at first.
const nodeEpdns = "169.254.20.11"

// limitTo makes programs that this test starts from now on what a container is that has these
// capabilities: root keeps no others, and nothing can give more.
func limitTo(t *testing.T, capabilities ...uintptr) {
	t.Helper()
	// It is the thread's, which ends with the test: it is never unlocked.
	runtime.LockOSThread()
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains(capabilities, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) { // not of this kernel
			t.Fatalf("drop capability %d: %v", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
}

// lowPorts makes ports below this one a matter of capabilities, as on a node.
func lowPorts(t *testing.T, below string) {
	t.Helper()
	const path = "/proc/sys/net/ipv4/ip_unprivileged_port_start"
	before, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, []byte(below), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(path, before, 0); err != nil {
			t.Error(err)
		}
	})
}

// On a node whose low ports are closed, the init container's command makes the address, and
// epdns answers there and nowhere else on port 53, beside NodeLocal DNSCache, with the one
// capability that it has, and sees which Pod asks. While it is replaced, nobody who has the
// Service as second address is without an answer.
func TestNodeLocal(t *testing.T) {
	deployed(t)
	dir := filepath.Join(shipped, "overlays/node-local")
	if _, err := apply("-k", dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := control("delete", "--wait=false", "-k", dir); err != nil {
			t.Error(err)
		}
	})
	p := podOf(t, kube, "apis/apps/v1/namespaces/epdns-node-local/daemonsets/epdns")
	// Started before the ports are closed: these two stand for what has a network of its own.
	servePods(t, "--http="+nodeIP+":9154")
	forward(t, snippet(t, "nodelocaldns.Corefile", ""), nodeLocal)
	netns.Mount(t, "/etc/nsswitch.conf", "hosts: files dns\n")
	netns.Mount(t, "/etc/resolv.conf", "nameserver "+nodeEpdns+"\nnameserver "+epdnsIP+"\n")

	inPod := podNetwork(t)

	limitTo(t, unix.CAP_NET_ADMIN, unix.CAP_NET_BIND_SERVICE)
	lowPorts(t, "1024")
	for range 2 { // the Pod starts again
		init := p.spec.InitContainers[0].Command
		if out, err := exec.Command("busybox", init...).CombinedOutput(); err != nil {
			t.Fatalf("busybox %s: %v\n%s", strings.Join(init, " "), err, out)
		}
	}
	limitTo(t, unix.CAP_NET_BIND_SERVICE)

	// The capability is no use to another user: that is why the Pod's is root.
	if !netns.Mapped() {
		cmd := p.command(t)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65532, Gid: 65532}
		other, err := run.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		run.Eventually(t, func() error {
			if err = other.Running(); err == nil {
				return errors.New("epdns runs as user 65532")
			}
			return nil
		})
		if !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), nodeEpdns+":53") {
			t.Errorf("as user 65532: %v", err)
		}
	}

	first := p.serve(t, "--lameduck=1s")
	web := want{answer: []string{"A 10.244.1.11", "A 10.244.2.12"}, ttl: 5}
	for _, server := range []string{nodeEpdns, nodeLocal, epdnsIP} {
		web.check(t, server, "web.shop.registry.local.", "A")
	}
	if reply, err := ask("udp", "127.0.0.1", "web.shop.registry.local.", "A"); err == nil {
		t.Errorf("another address of the node answers:\n%v", reply)
	}

	// What comes from a Pod has the Pod's address.
	if out := inPod("dig", "+short", "@"+nodeEpdns, "_explain.web.shop.registry.local", "TXT"); !strings.Contains(out, "asker "+askingPod+":") {
		t.Errorf("epdns explains to the Pod:\n%s", out)
	}

	// A Pod's look-ups go on for as long as the Pod of the node is replaced.
	var look lookups
	look.start()
	t.Cleanup(look.end) // should the test end before
	alone := func() bool {
		_, err := ask("udp", nodeEpdns, "web.shop.registry.local.", "A")
		return err == nil
	}
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	ended, before := time.Now(), look.done.Load()
	if alone() {
		t.Error("it answers though it has ended")
	}
	run.Eventually(t, func() error { // a container takes its time to start
		if n := look.done.Load() - before; n < 20 {
			return fmt.Errorf("%d look-ups while nobody is there", n)
		}
		return nil
	})
	p.serve(t)
	if !alone() {
		t.Error("the new one does not answer")
	}
	gap, meanwhile := time.Since(ended), look.done.Load()-before
	look.end()
	t.Logf("nobody was at %s for %v: of %d look-ups meanwhile and %d in all the slowest took %v, %d failed",
		nodeEpdns, gap.Round(time.Millisecond), meanwhile, look.done.Load(), look.slowest.Round(time.Millisecond), len(look.failed))
	if len(look.failed) > 0 {
		t.Errorf("look-ups that failed: %q", look.failed)
	}
}

// askingPod is an endpoint of Service web, and has a network of its own in these tests.
const askingPod = "10.244.1.11"

// podNetwork makes a Pod's network as a container network does that routes: a pair of interfaces
// between it and the node's. What it returns runs a program there and returns what that prints.
func podNetwork(t *testing.T) (inPod func(argv ...string) string) {
	t.Helper()
	pause := exec.Command("sleep", "infinity")
	pause.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	pid := fmt.Sprint(run.ForTest(t, pause).PID())
	inPod = func(argv ...string) string {
		t.Helper()
		var out []byte
		var err error
		done := make(chan struct{})
		go func() { // not on a thread that limitTo has had
			defer close(done)
			out, err = exec.Command("nsenter", append([]string{"--target=" + pid, "--net", "--"}, argv...)...).CombinedOutput()
		}()
		if <-done; err != nil {
			t.Fatalf("in the Pod's network: %s: %v\n%s", strings.Join(argv, " "), err, out)
		}
		return string(out)
	}
	for _, args := range []string{
		"link add pod type veth peer name eth0 netns " + pid,
		"address add 10.244.1.1/24 dev pod",
		"link set pod up",
	} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", args, err, out)
		}
	}
	for _, args := range []string{
		"address add " + askingPod + "/24 dev eth0",
		"link set eth0 up",
		"route add default via 10.244.1.1",
	} {
		inPod(append([]string{"ip"}, strings.Fields(args)...)...)
	}
	return inPod
}

// lookups are glibc's for a Service, one after the other.
type lookups struct {
	done    atomic.Int64
	stop    atomic.Bool
	ended   chan struct{}
	slowest time.Duration // once they have ended
	failed  []string
}

func (l *lookups) start() {
	l.ended = make(chan struct{})
	go func() {
		defer close(l.ended)
		for !l.stop.Load() {
			began := time.Now()
			got, err := addresses("getent", "ahosts", "web.shop.registry.local")
			l.slowest = max(l.slowest, time.Since(began))
			if err != nil || !slices.Equal(got, []string{"10.244.1.11", "10.244.2.12"}) {
				l.failed = append(l.failed, fmt.Sprintf("%q, %v", got, err))
			}
			l.done.Add(1)
		}
	}()
}

func (l *lookups) end() {
	l.stop.Store(true)
	<-l.ended
}
