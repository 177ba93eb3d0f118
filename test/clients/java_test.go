//go:build linux

package clients_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"epdns/test/netns"
)

// Java keeps answers itself, by its own clock.
func TestJava(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	lookupConf(t)

	// What it does without that.
	var row Row
	t.Run("without its cache", func(t *testing.T) {
		java := startTeller(t, javaKeeping(t, "0", "0")...)
		row = watchLookups(t, []way{java.withTargets(java.way("Java `InetAddress`", "java", "inet"), "srv")})[0]
	})

	usual, short := startTeller(t, "java", "--add-exports=java.base/sun.net=ALL-UNNAMED", "-cp", built, "Lookup"), startTeller(t, javaKeeping(t, "2", "1")...)
	find := func(java teller, name string, n int) error {
		if r := java.look(t, "inet", name); len(r.found) != n {
			return fmt.Errorf("Java finds %q %s for %s, want %d addresses", r.found, r.says, name, n)
		}
		return nil
	}
	finds := func(java teller, name string, n int) {
		t.Helper()
		if err := find(java, name, n); err != nil {
			t.Fatal(err)
		}
	}
	seconds := func(which string) time.Duration {
		t.Helper()
		n, err := strconv.Atoi(usual.look(t, "policy", which).found[0])
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * time.Second
	}
	there, gone := seconds("get"), seconds("getNegative")

	// That epdns does not know yet is a failure like any other.
	const bulb = "bulb.dock.registry.local."
	begin := time.Now()
	t.Run("not synced", func(t *testing.T) {
		serve(t, "livez", "--kubeconfig="+unreachable(t))
		finds(usual, bulb, 0)
	})
	dir := serveLamp(t, 2)
	if find(usual, bulb, 1) == nil && time.Since(begin) < gone-time.Second {
		t.Errorf("it finds %s %v after a failure", bulb, time.Since(begin))
	}

	begin = time.Now()
	for _, java := range []teller{usual, short} {
		finds(java, lampName, 2)
		finds(java, farName, 0)
	}
	dir.lamp(t, addresses(11, 13), nil)
	dir.write(t, "far", far, nil)
	// keeps waits until this Java finds what there is now, which must not be sooner.
	keeps := func(java teller, name string, n int, keeps time.Duration) {
		t.Helper()
		within(t, keeps+grace, 50*time.Millisecond, func() error { return find(java, name, n) })
		if took := time.Since(begin); took < keeps-time.Second {
			t.Errorf("%s is kept for %v, want %v", name, took, keeps)
		} else {
			t.Logf("%s is kept for %v, at most", name, took)
		}
	}
	keeps(short, farName, len(far), time.Second)
	keeps(short, lampName, 3, 2*time.Second)
	keeps(usual, farName, len(far), gone)
	keeps(usual, lampName, 3, there)
	row.TTL = fmt.Sprintf("keeps addresses for %.0f s, failures for %.0f s", there.Seconds(), gone.Seconds())
	observed(t, row)
}

// javaKeeping is the command of a Java that keeps addresses and failures for so many seconds.
func javaKeeping(t *testing.T, addresses, failures string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dns.security")
	content := fmt.Sprintf("networkaddress.cache.ttl=%s\nnetworkaddress.cache.negative.ttl=%s\n", addresses, failures)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"java", "-Djava.security.properties=" + path, "-cp", built, "Lookup"}
}
