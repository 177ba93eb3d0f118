//go:build linux

package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"epdns/test/run"
)

// The processors.
const (
	serverCPU = 0
	askerCPU  = 1
	anyCPU    = -1
)

// urgent is the niceness of those that are measured, if they may have it: what else runs on their
// processor has to wait.
const urgent = -20

// startOn starts a program that runs, with all that it starts, on one processor, before others
// there. The kernel ends it when this process ends, however it does.
func startOn(cpu int, cmd *exec.Cmd) (p *run.Process, err error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	done := make(chan struct{})
	spawner() <- func() {
		defer close(done)
		var before, only unix.CPUSet
		if err = unix.SchedGetaffinity(0, &before); err != nil {
			return
		}
		if cpu != anyCPU {
			only.Set(cpu)
			if err = unix.SchedSetaffinity(0, &only); err != nil {
				err = fmt.Errorf("run %s on processor %d: %w", cmd.Path, cpu, err)
				return
			}
			defer unix.SchedSetaffinity(0, &before)
			if unix.Setpriority(unix.PRIO_PROCESS, 0, urgent) == nil {
				defer unix.Setpriority(unix.PRIO_PROCESS, 0, 0)
			}
			cmd.SysProcAttr.Setsid = true
		}
		if p, err = run.Start(cmd); err == nil && cpu != anyCPU {
			// Where the kernel weighs sessions, niceness counts only within one, and this among them.
			os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", p.PID()), []byte(strconv.Itoa(urgent)), 0)
		}
	}
	<-done
	return p, err
}

// spawner does what it is given on a thread of its own, which is the parent that a child's
// signal goes by and whose processors it inherits.
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

// family is a process and all below it.
func family(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	children := map[int][]int{}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// PID (name) state PPID, and the name may be anything.
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if len(fields) > 1 {
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], child)
		}
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all, nil
}

// cpuTime is how long all threads of some processes have run, as the scheduler counts it.
func cpuTime(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
		if err != nil {
			return 0, err
		}
		if len(tasks) == 0 {
			return 0, fmt.Errorf("process %d is not there, or the kernel has no schedstat", pid)
		}
		for _, path := range tasks {
			b, err := os.ReadFile(path)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				continue // a thread has ended
			}
			if err != nil {
				return 0, err
			}
			var ran int64
			if _, err := fmt.Sscan(string(b), &ran); err != nil {
				return 0, fmt.Errorf("read %s: %w", path, err)
			}
			sum += time.Duration(ran)
		}
	}
	return sum, nil
}

// idleTime is how long a processor has had nothing to do, as far as the kernel tells: in
// hundredths of a second.
func idleTime(cpu int) (time.Duration, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(b), fmt.Sprintf("\ncpu%d ", cpu))
	line, _, _ := strings.Cut(rest, "\n")
	var user, nice, system, idle, wait int64
	if _, err := fmt.Sscan(line, &user, &nice, &system, &idle, &wait); err != nil {
		return 0, fmt.Errorf("processor %d in /proc/stat: %w", cpu, err)
	}
	return time.Duration(idle+wait) * 10 * time.Millisecond, nil
}

// resident is VmRSS of some processes, in MiB. What they share counts in each.
func resident(pids []int) (sum float64, err error) {
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, err
		}
		_, rest, ok := strings.Cut(string(b), "\nVmRSS:")
		var kb float64
		if !ok {
			return 0, fmt.Errorf("no VmRSS in /proc/%d/status", pid)
		}
		if _, err := fmt.Sscan(rest, &kb); err != nil {
			return 0, fmt.Errorf("VmRSS of process %d: %w", pid, err)
		}
		sum += kb / 1024
	}
	return sum, nil
}
