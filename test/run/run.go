// Package run builds epdns from the repository and runs it for the commands that
// measure it.
package run

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Repository is the root of the checkout that the working directory lies in.
func Repository(ctx context.Context) (string, error) {
	root, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	return strings.TrimSpace(string(root)), nil
}

// Build builds the program as it is released, into a directory, and returns its path.
func Build(ctx context.Context, root, dir string) (string, error) {
	bin := filepath.Join(dir, "epdns")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", bin, "./cmd/epdns")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build epdns: %w: %s", err, out)
	}
	return bin, nil
}

// Server is a running epdns.
type Server struct {
	DNS     string // the address it answers on
	HTTP    string // and the one of /readyz and the like
	Started time.Time

	cmd   *exec.Cmd
	ended chan struct{} // closed when its log has ended, as it does with the process
}

// Serve starts epdns on a cluster and returns once its sockets are bound. Stop must be called.
// What epdns logs beyond information goes to stderr.
func Serve(bin, kubeconfig string) (*Server, error) {
	s := &Server{Started: time.Now(), ended: make(chan struct{})}
	s.cmd = exec.Command(bin, "serve", "--kubeconfig", kubeconfig,
		"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-format", "json")
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(stderr)
	var last string
	for (s.DNS == "" || s.HTTP == "") && lines.Scan() {
		last = lines.Text()
		var line struct {
			Msg  string   `json:"msg"`
			DNS  []string `json:"dns"`
			HTTP string   `json:"http"`
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil || line.Msg != "listening" {
			continue
		}
		if line.HTTP != "" {
			s.HTTP = line.HTTP
		}
		if len(line.DNS) > 0 {
			s.DNS = line.DNS[0]
		}
	}
	go func() {
		defer close(s.ended)
		for lines.Scan() {
			if !strings.Contains(lines.Text(), `"level":"INFO"`) {
				fmt.Fprintln(os.Stderr, lines.Text())
			}
		}
	}()
	if s.DNS == "" || s.HTTP == "" {
		return nil, errors.Join(fmt.Errorf("epdns ended before it listened: %s", last), s.Stop())
	}
	return s, nil
}

// PID is that of the process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Ready waits until epdns has read the cluster, and says how long that took from its start.
func (s *Server) Ready(ctx context.Context) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.HTTP+"/readyz", nil)
	if err != nil {
		return 0, err
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return time.Since(s.Started), nil
			}
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-s.ended:
			return 0, errors.New("epdns ended before it was ready")
		case <-tick.C:
		}
	}
}

// Stop ends epdns. It is an error if it had failed before.
func (s *Server) Stop() error {
	return end("epdns", s.cmd, func() error {
		<-s.ended // to the end of the log first, which Wait would cut off
		return s.cmd.Wait()
	})
}

// End ends a program, gently first. It is an error if the program had failed before, or does
// not end.
func End(name string, cmd *exec.Cmd) error { return end(name, cmd, cmd.Wait) }

func end(name string, cmd *exec.Cmd, wait func() error) error {
	const grace = 5 * time.Second
	asked := cmd.Process.Signal(syscall.SIGTERM) == nil // if it has ended, waiting says how
	t := time.AfterFunc(grace, func() { cmd.Process.Kill() })
	defer t.Stop()
	err := wait()
	var exit *exec.ExitError
	if err == nil {
		return nil
	}
	if errors.As(err, &exit) && asked {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGTERM {
			return nil
		}
	}
	return fmt.Errorf("%s ended: %w", name, err)
}
