package cluster

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// logLines is how much of the end of a component's log an error quotes.
	logLines = 15

	// logHead is how much of the beginning it quotes: a mistaken flag is there, with the usage
	// text after it.
	logHead = 3

	// grace is how long a component may take to end by itself. The API server uses most of it
	// when it has watches to close.
	grace = 8 * time.Second
)

// errPortTaken means that somebody took a port between our looking and the component's binding.
var errPortTaken = errors.New("port is taken")

// process is one run of a component.
type process struct {
	name Component
	cmd  *exec.Cmd
	log  string
	from int64         // where this run's log begins
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read after done

	mu     sync.Mutex
	wanted bool // that it ends
}

// startProcess starts argv with its output appended to log. ended is called when it ends
// without having been told to.
func startProcess(name Component, argv []string, dir, log string, ended func(error)) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer out.Close()
	info, err := out.Stat()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	// Nothing of the caller's environment (proxies, kubeconfigs, configuration below the home
	// directory) may change what a component does.
	cmd.Env = []string{"HOME=" + dir, "TMPDIR=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = procAttr()
	if err := onSpawner(cmd.Start); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p := &process{name: name, cmd: cmd, log: log, from: info.Size(), done: make(chan struct{})}
	go func() {
		err := cmd.Wait()
		if err == nil {
			err = errors.New("exit status 0")
		}
		p.err = err
		close(p.done)
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.wanted && ended != nil {
			ended(p.failure())
		}
	}()
	return p, nil
}

// failure describes the end of p. Only for use after done.
func (p *process) failure() error {
	log := p.logged()
	if strings.Contains(log, "address already in use") {
		return fmt.Errorf("%s ended: %w: %w; its log:\n%s", p.name, p.err, errPortTaken, log)
	}
	return fmt.Errorf("%s ended: %w; its log:\n%s", p.name, p.err, log)
}

func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// stop ends p, gently first.
func (p *process) stop() {
	p.expectEnd()
	p.cmd.Process.Signal(syscall.SIGTERM)
	p.cmd.Process.Signal(syscall.SIGCONT) // a test may have left it stopped
	select {
	case <-p.done:
	case <-time.After(grace):
		p.kill()
	}
}

// kill ends p at once.
func (p *process) kill() {
	p.expectEnd()
	p.cmd.Process.Kill()
	<-p.done
}

func (p *process) expectEnd() {
	p.mu.Lock()
	p.wanted = true
	p.mu.Unlock()
}

// onSpawner runs start on a thread that lives as long as this process. The kernel sends a
// child its parent-death signal when the thread that forked it ends, and the Go runtime ends
// threads at will, unless a goroutine holds them.
func onSpawner(start func() error) error {
	result := make(chan error, 1)
	spawner() <- func() { result <- start() }
	return <-result
}

var spawner = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})

// logged is the beginning and the end of what p has logged in this run.
func (p *process) logged() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return "(" + err.Error() + ")"
	}
	lines := strings.Split(strings.TrimSpace(string(b[min(p.from, int64(len(b))):])), "\n")
	if len(lines) > logHead+logLines {
		lines = slices.Replace(lines, logHead, len(lines)-logLines, "...")
	}
	return strings.Join(lines, "\n")
}

func lastLines(s string, n int) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
