package run

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// ForTest starts a program for as long as a test: [Process.Stop] at its end must find nothing
// wrong. A test that fails logs what the program has written.
func ForTest(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		} else if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(cmd.Args, " "), p.Log())
		}
	})
	return p
}

// tryEvery is short against what a person notices.
const tryEvery = 20 * time.Millisecond

// Eventually tries until there is no error. The test fails at once if there still is one after
// [Grace].
func Eventually(t testing.TB, try func() error) {
	t.Helper()
	ctx, cancel := withGrace()
	defer cancel()
	if err := Until(ctx, tryEvery, try); err != nil {
		t.Fatal(err)
	}
}

// Eventually is the function of that name, and fails at once when the program has ended.
func (p *Process) Eventually(t testing.TB, try func() error) {
	t.Helper()
	ctx, cancel := withGrace()
	defer cancel()
	if err := p.Until(ctx, tryEvery, try); err != nil {
		t.Fatal(err)
	}
}
