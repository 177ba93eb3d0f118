package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Grace is how long anything may take that is over in a moment on an idle machine.
const Grace = time.Minute

func withGrace() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.Background(), Grace, fmt.Errorf("after %v still", Grace))
}

// Process is a program that runs until [Process.Stop]. Any goroutine may call its methods.
type Process struct {
	cmd     *exec.Cmd
	log     output
	ended   chan struct{} // closed when it has ended and all of its log is there
	stopped sync.Once
}

// Start starts a program. What it writes is kept for [Process.Log], and goes to Stdout and Stderr
// of cmd, too, if those are set. Stop must be called.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.log.and(cmd.Stdout), p.log.and(cmd.Stderr)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	go func() {
		defer close(p.ended)
		cmd.Wait() // ProcessState says how it went
	}()
	return p, nil
}

// Log is what the program has written so far.
func (p *Process) Log() string { return p.log.String() }

// PID is that of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Running returns an error, with the log, once the program has ended.
func (p *Process) Running() error {
	select {
	case <-p.ended:
		return p.failure("has ended")
	default:
		return nil
	}
}

// failure is for use after the end.
func (p *Process) failure(what string) error {
	return fmt.Errorf("%s %s (%v), its log:\n%s", p.cmd.Path, what, p.cmd.ProcessState, p.Log())
}

// Stop asks the program to end, and waits until it has. It is an error, with the log, if the
// program had ended before, fails at its end, or has to be killed. A second call does nothing.
func (p *Process) Stop() (err error) {
	p.stopped.Do(func() { err = p.stop() })
	return err
}

func (p *Process) stop() error {
	if err := p.Running(); err != nil {
		return err
	}
	p.cmd.Process.Signal(syscall.SIGTERM) // if it ends now, that shows below
	select {
	case <-p.ended:
	case <-time.After(Grace):
		p.cmd.Process.Kill()
		<-p.ended
		return p.failure("does not end when asked to")
	}
	s := p.cmd.ProcessState
	// Some, such as HAProxy, leave it to the signal to end them.
	if ws, ok := s.Sys().(syscall.WaitStatus); s.Success() || ok && ws.Signaled() && ws.Signal() == syscall.SIGTERM {
		return nil
	}
	return p.failure("does not end well")
}

// Until is [Until], and gives up when the program has ended.
func (p *Process) Until(ctx context.Context, every time.Duration, try func() error) error {
	err := until(ctx, every, p.ended, try)
	if ended := p.Running(); ended != nil {
		return ended // which is the reason, or somebody else has its address
	}
	return err
}

// Until tries, at once and then at this interval, until there is no error. If ctx ends before
// that, the error is its cause and the last one of try.
func Until(ctx context.Context, every time.Duration, try func() error) error {
	return until(ctx, every, nil, try)
}

func until(ctx context.Context, every time.Duration, ended <-chan struct{}, try func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-ended:
			return err
		case <-tick.C:
		}
	}
}

// Get fetches a page. Another status than 200 is an error, which quotes the page.
func Get(url string) ([]byte, error) {
	resp, err := pages.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w: %s", url, err, body)
	}
	return body, nil
}

// pages does not wait for a server that is stuck; who asks again finds it well or ended.
var pages = http.Client{Timeout: 3 * time.Second}

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

// and writes to w, too, if there is one.
func (o *output) and(w io.Writer) io.Writer {
	if w == nil {
		return o
	}
	return io.MultiWriter(o, w)
}
