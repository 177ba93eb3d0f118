package epdns_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// This file builds the program, runs it as people do, and says how it ended.

// epdns is the program under test.
var epdns string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if epdns = os.Getenv(envIsolated); epdns != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "epdns-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	epdns = filepath.Join(dir, "epdns")
	args := []string{"build", "-buildvcs=false", "-o", epdns}
	if underRace() {
		args = append(args, "-race")
	}
	if out, err := exec.Command("go", append(args, "./cmd/epdns")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go %s: %v\n%s", strings.Join(args, " "), err, out)
		return 1
	}
	return m.Run()
}

// underRace says whether the race detector watches the tests; the program is then
// built with it, too.
func underRace() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// grace is how long anything may take that is over in a moment on an idle machine.
const grace = time.Minute

// eventually tries until there is no error.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	deadline := time.After(grace)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("after %v still: %v", grace, err)
		case <-tick.C:
		}
	}
}

// output is what a process writes, readable while it runs.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// lines are the whole lines so far.
func (o *output) lines() []string {
	all := strings.Split(o.String(), "\n")
	return all[:len(all)-1]
}

// program is a run of the built program.
type program struct {
	cmd            *exec.Cmd
	stdout, stderr output
	ended          chan struct{}
	err            error // of Wait; read after ended
	stopped        bool  // it was told to end

	dns  netip.AddrPort // the first address it listens on
	http string         // base URL, empty for none
}

// environment is ours without what would change what the program does, and with
// the variables given. The race detector would wait a second at each end.
func environment(vars ...string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "KUBE") || strings.HasPrefix(v, "HOME=")
	})
	return append(append(env, "HOME=/nonexistent", "GORACE=atexit_sleep_ms=0"), vars...)
}

// launch starts the program. When the test ends it is stopped, and must then have
// ended well.
func launch(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	return launchAs(t, exec.Command(epdns, args...), env)
}

// launchAs is launch by a command that becomes the program.
func launchAs(t *testing.T, cmd *exec.Cmd, env []string) *program {
	t.Helper()
	p := &program{cmd: cmd, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = &p.stdout, &p.stderr, env
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		if !p.stopped {
			p.stop(t, syscall.SIGTERM)
		}
		if t.Failed() {
			t.Logf("%s\n%v%v", strings.Join(p.cmd.Args[1:], " "), &p.stdout, &p.stderr)
		}
	})
	return p
}

// stop asks the program to end and checks how it does. Under the race detector a
// race makes it exit with 66.
func (p *program) stop(t *testing.T, signal os.Signal) {
	t.Helper()
	p.stopped = true
	if err := p.running(); err != nil {
		t.Error(err)
	}
	p.cmd.Process.Signal(signal)
	select {
	case <-p.ended:
	case <-time.After(grace):
		t.Errorf("still running %v after: %v", grace, signal)
		p.cmd.Process.Signal(syscall.SIGQUIT) // for the stacks
		<-p.ended
	}
	if p.err != nil {
		t.Errorf("told to end (%v), it ended with: %v", signal, p.err)
	}
	for _, sign := range []string{"panic", "DATA RACE", "fatal error"} {
		if strings.Contains(p.stderr.String(), sign) {
			t.Errorf("its log has a %s", sign)
		}
	}
}

// running returns an error once the program has ended.
func (p *program) running() error {
	select {
	case <-p.ended:
		return fmt.Errorf("the program has ended: %v\n%v", p.err, &p.stderr)
	default:
		return nil
	}
}

// record is a line of the log.
type record map[string]any

func (r record) String() string {
	b, _ := json.Marshal(map[string]any(r))
	return string(b)
}

// log is the log so far, which has nothing but lines of JSON.
func (p *program) log(t *testing.T) (all []record) {
	t.Helper()
	for _, line := range p.stderr.lines() {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// logged waits for a line of the log with all of these texts.
func (p *program) logged(t *testing.T, texts ...string) {
	t.Helper()
	eventually(t, func() error {
		for _, r := range p.log(t) {
			if !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(r.String(), s) }) {
				return nil
			}
		}
		return errors.Join(fmt.Errorf("no line of the log says %q", texts), p.running())
	})
}

// listen starts "epdns serve" and waits until it has said where it listens: on
// free ports of 127.0.0.1, and without a wait at its end, unless the arguments say
// something else.
func listen(t *testing.T, args ...string) *program {
	t.Helper()
	return listenAs(t, exec.Command(epdns), args...)
}

// listenAs is listen by a command that becomes the program, to which the arguments are
// added.
func listenAs(t *testing.T, cmd *exec.Cmd, args ...string) *program {
	t.Helper()
	given := func(flag string) bool { return slices.Contains(args, flag) }
	all := []string{"serve", "--log-format", "json"}
	if !given("--listen") {
		all = append(all, "--listen", "127.0.0.1:0")
	}
	if !given("--http") {
		all = append(all, "--http", "127.0.0.1:0")
	}
	if !given("--lameduck") {
		all = append(all, "--lameduck", "0")
	}
	cmd.Args = append(append(cmd.Args, all...), args...)
	p := launchAs(t, cmd, environment())
	eventually(t, func() error {
		for _, r := range p.log(t) {
			if r["msg"] != "listening" {
				continue
			}
			if addr, ok := r["http"].(string); ok {
				p.http = "http://" + addr
			}
			if addrs, ok := r["dns"].([]any); ok && len(addrs) > 0 {
				var err error
				p.dns, err = netip.ParseAddrPort(fmt.Sprint(addrs[0]))
				return err
			}
		}
		if err := p.running(); err != nil {
			t.Fatal(err)
		}
		return errors.New("it does not say where it listens")
	})
	return p
}

// serve starts "epdns serve" and waits until it is ready.
func serve(t *testing.T, args ...string) *program {
	t.Helper()
	return serveAs(t, exec.Command(epdns), args...)
}

// serveAs is serve by a command that becomes the program.
func serveAs(t *testing.T, cmd *exec.Cmd, args ...string) *program {
	t.Helper()
	p := listenAs(t, cmd, args...)
	eventually(t, func() error {
		if code, body := p.get(t, "/readyz"); code != http.StatusOK {
			return errors.Join(fmt.Errorf("/readyz: %d %s", code, body), p.running())
		}
		return nil
	})
	return p
}

// get fetches a page.
func (p *program) get(t *testing.T, path string) (code int, body string) {
	t.Helper()
	client := http.Client{Timeout: grace, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(p.http + path)
	if err != nil {
		t.Fatal(errors.Join(err, p.running()))
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// once runs the program to its end.
func once(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), grace)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, epdns, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &errs, env
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("epdns %s: still running after %v\n%s", strings.Join(args, " "), grace, &errs)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
