package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// shell starts a script that says when it has come to "up".
func shell(t *testing.T, script string) *Process {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() // what the test has left
		<-p.ended
	})
	Eventually(t, func() error {
		if !strings.Contains(p.Log(), "up\n") {
			return errors.New("it does not come up")
		}
		return nil
	})
	return p
}

// The last command of each is what the signal meets.
const forever = "; echo up; while :; do sleep 0.01; done"

// What a program makes of the signal that asks it to end, and what Stop makes of that.
func TestStop(t *testing.T) {
	for _, test := range []struct {
		what, script string
		want         string // in the error
	}{
		{"status 0", "trap 'exit 0' TERM", ""},
		{"dies of it", ":", ""},
		{"fails", "trap 'echo no disk >&2; exit 3' TERM", "does not end well (exit status 3), its log:\nup\nno disk\n"},
		{"dies of another signal", "trap 'kill -QUIT $$' TERM", "does not end well (signal: quit"},
	} {
		t.Run(test.what, func(t *testing.T) {
			p := shell(t, test.script+forever)
			if err := p.Running(); err != nil {
				t.Errorf("before: %v", err)
			}
			switch err := p.Stop(); {
			case err == nil && test.want != "":
				t.Errorf("no error, want %q", test.want)
			case err != nil && (test.want == "" || !strings.Contains(err.Error(), test.want)):
				t.Errorf("%v, want %q", err, test.want)
			}
			if p.Running() == nil {
				t.Error("it has not ended")
			}
			if err := p.Stop(); err != nil {
				t.Errorf("the second time: %v", err)
			}
		})
	}
}

// A program that has ended by itself is found out, with what it wrote, however well it ended.
func TestEnded(t *testing.T) {
	p := shell(t, "echo up; echo out of work >&2")
	const want = "has ended (exit status 0), its log:\nup\nout of work\n"
	tries := 0
	err := p.Until(t.Context(), time.Millisecond, func() error {
		tries++
		return errors.New("no answer")
	})
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("while waiting for it: %v, want %q", err, want)
	}
	// Another may answer in its place.
	if err := p.Until(t.Context(), time.Millisecond, func() error { return nil }); err == nil {
		t.Error("what it was waited for has come, from whom")
	}
	if err := p.Stop(); err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("when stopped: %v, want %q", err, want)
	}
}

func TestUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries, begin := 0, time.Now()
		fail := func(n int) func() error {
			return func() error {
				if tries++; tries <= n {
					return fmt.Errorf("try %d", tries)
				}
				return nil
			}
		}
		if err := Until(t.Context(), time.Second, fail(3)); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("the fourth try comes after %v, want 3s", took)
		}

		tries = 0
		late := errors.New("late")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 2500*time.Millisecond, late)
		defer cancel()
		err := Until(ctx, time.Second, fail(100))
		if !errors.Is(err, late) || err.Error() != "late: try 3" {
			t.Errorf("%v, want the cause and the last error", err)
		}
	})
}

func TestGet(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/well" {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprint(w, "page ", r.URL.Path)
	}))
	defer s.Close()
	if page, err := Get(s.URL + "/well"); err != nil || string(page) != "page /well" {
		t.Errorf("%q, %v", page, err)
	}
	want := "get " + s.URL + "/unwell: 503 Service Unavailable: page /unwell"
	if page, err := Get(s.URL + "/unwell"); err == nil || err.Error() != want {
		t.Errorf("%q, %v, want %q", page, err, want)
	}
}

// Lines that are more than information get through, however they are cut.
func TestWarnings(t *testing.T) {
	var out bytes.Buffer
	w := &warnings{to: &out}
	for _, part := range []string{`{"level":"IN`, "FO\",\"msg\":\"a\"}\n{\"level\"", ":\"WARN\"}\npanic: b\n{\"level\":\"INFO\"}\n"} {
		if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if want := "{\"level\":\"WARN\"}\npanic: b\n"; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}
