// Package run builds epdns from the repository, and runs it and other programs: for the tests
// and for the commands that measure.
//
// A [Process] is any program. It keeps what the program writes, so that an error can quote it.
// [Serve] runs epdns, and [ForTest] a program for as long as a test.
package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Repository is the root of the checkout, or of the unpacked source, that the working directory
// lies in.
func Repository() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if mod, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && strings.HasPrefix(string(mod), "module epdns\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("the module epdns is not above %s: run this inside the repository", wd)
		}
	}
}

// Copied copies a program of the system into a directory and returns its path there: what
// AppArmor lets a program read goes by the path that it was started from, and files of ours are
// not among that.
func Copied(program, dir string) (string, error) {
	path, err := exec.LookPath(program)
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, filepath.Base(path))
	return path, os.WriteFile(path, b, 0o755)
}

// Build builds epdns as it is released, but for its version, into a directory and returns the
// path of the program. It needs no other file.
func Build(ctx context.Context, root, dir string) (string, error) {
	return build(ctx, root, dir, "CGO_ENABLED=0", "-ldflags=-s -w")
}

// BuildRace is [Build] with the race detector, which needs a C compiler.
func BuildRace(ctx context.Context, root, dir string) (string, error) {
	return build(ctx, root, dir, "CGO_ENABLED=1", "-race")
}

func build(ctx context.Context, root, dir, env string, flags ...string) (string, error) {
	bin := filepath.Join(dir, "epdns")
	// Without the version it needs no git.
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-o", bin}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./cmd/epdns")...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env, "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build epdns: %w\n%s", err, out)
	}
	return bin, nil
}

// Server is a running epdns.
type Server struct {
	*Process
	DNS     string // the address it answers on
	HTTP    string // and the one of /readyz and the like
	Started time.Time
}

// pollEvery is how exact a measured time to ready is.
const pollEvery = 2 * time.Millisecond

// Serve starts epdns on a cluster and returns once its sockets are bound. Stop must be called.
// What epdns logs beyond information goes to stderr, too.
func Serve(bin, kubeconfig string) (*Server, error) {
	cmd := exec.Command(bin, "serve", "--lameduck=0", "--kubeconfig", kubeconfig,
		"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-format", "json")
	cmd.Stderr = &warnings{to: os.Stderr}
	return ServeBy(cmd)
}

// ServeBy is [Serve] with a command of one's own, which logs in JSON.
func ServeBy(cmd *exec.Cmd) (*Server, error) {
	s := &Server{Started: time.Now()}
	var err error
	if s.Process, err = Start(cmd); err != nil {
		return nil, err
	}
	ctx, cancel := withGrace()
	defer cancel()
	if err := s.Until(ctx, pollEvery, s.listening); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// listening reads the addresses in the log.
func (s *Server) listening() error {
	for text := range strings.Lines(s.Log()) {
		var line struct {
			Msg  string   `json:"msg"`
			DNS  []string `json:"dns"`
			HTTP string   `json:"http"`
		}
		if json.Unmarshal([]byte(text), &line) != nil || line.Msg != "listening" {
			continue
		}
		if line.HTTP != "" {
			s.HTTP = line.HTTP
		}
		if len(line.DNS) > 0 {
			s.DNS = line.DNS[0]
		}
	}
	if s.DNS == "" || s.HTTP == "" {
		return errors.New("epdns does not say where it listens")
	}
	return nil
}

// Ready waits until epdns has read the cluster, and says how long that took from its start.
func (s *Server) Ready(ctx context.Context) (time.Duration, error) {
	err := s.Until(ctx, pollEvery, func() error {
		_, err := Get("http://" + s.HTTP + "/readyz")
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("wait until epdns is ready: %w", err)
	}
	return time.Since(s.Started), nil
}

// warnings passes on the lines of a log that are more than information.
type warnings struct {
	to   io.Writer
	line []byte // as far as it has come
}

func (w *warnings) Write(p []byte) (int, error) {
	w.line = append(w.line, p...)
	for {
		end := bytes.IndexByte(w.line, '\n') + 1
		if end == 0 {
			return len(p), nil
		}
		if line := w.line[:end]; !bytes.Contains(line, []byte(`"level":"INFO"`)) {
			w.to.Write(line)
		}
		w.line = w.line[end:]
	}
}
