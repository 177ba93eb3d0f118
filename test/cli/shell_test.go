//go:build linux

package cli_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"epdns/test/run"
)

// bashCompletion is what scripts for bash need.
const bashCompletion = "/usr/share/bash-completion/bash_completion"

// shell is an interactive shell on a terminal.
type shell struct {
	keys *os.File
	mu   sync.Mutex
	seen strings.Builder
}

// newShell starts a shell that uses this cluster.
func newShell(t *testing.T, argv ...string) *shell {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(keys.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 150})
	}
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.Env = environment(kube.Kubeconfig, "HOME="+t.TempDir())
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tty.Close()
	s := &shell{keys: keys}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 4096)
		for {
			n, err := keys.Read(buf)
			s.mu.Lock()
			s.seen.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		keys.Close()
		<-done
	})
	return s
}

// types types, and waits for what is to be seen then: again after a while, since a completion
// has its time, which a busy machine may need for something else.
func (s *shell) types(t *testing.T, keys, sees string) {
	t.Helper()
	const patience = 5 * time.Second
	var typed time.Time
	run.Eventually(t, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		seen := s.seen.String()
		if strings.Contains(shown(seen), sees) {
			s.seen.Reset()
			return nil
		}
		if time.Since(typed) > patience {
			typed = time.Now()
			s.seen.Reset()
			if _, err := io.WriteString(s.keys, keys); err != nil {
				return err
			}
		}
		return fmt.Errorf("after %q there is no %q to be seen: %q", keys, sees, seen)
	})
}

// controls are what moves the cursor, chooses colours or gives the window a title.
var controls = regexp.MustCompile("\x1b(\\[[0-9;?]*[a-zA-Z]|\\][^\a]*\a|\\([A-B])")

// shown is a text without them, in which each line begins where the cursor went to its
// beginning.
func shown(text string) string {
	return strings.ReplaceAll(controls.ReplaceAllString(text, ""), "\r", "\n")
}

// What the cluster has is completed, in each shell as it is used.
func TestCompletion(t *testing.T) {
	for _, c := range []struct {
		argv  []string
		setup string
	}{
		{[]string{"bash", "--norc", "--noprofile", "-i"}, "source " + bashCompletion + "; source <(epdns completion bash); source <(kubectl completion bash)"},
		{[]string{"zsh", "-f", "-i"}, "autoload -U compinit; compinit -u -D; source <(epdns completion zsh); source <(kubectl completion zsh)"},
		{[]string{"fish", "--no-config", "-i"}, "epdns completion fish | source; kubectl completion fish | source"},
	} {
		t.Run(c.argv[0], func(t *testing.T) {
			t.Parallel()
			s := newShell(t, c.argv...)
			s.types(t, c.setup+"; echo set''up\r", "\nsetup\n")
			for typed, line := range map[string]string{
				"epdns watch shop/j":                             "epdns watch shop/jobs",
				"epdns explain jobs.sh":                          "epdns explain jobs.shop.registry.local",
				"epdns lookup --namespace da":                    "epdns lookup --namespace data",
				"epdns lookup -n data d":                         "epdns lookup -n data db",
				"epdns lookup db.data.registry.local --color al": "epdns lookup db.data.registry.local --color always",
				"kubectl epdns expl":                             "kubectl epdns explain",
				"kubectl epdns lookup -n shop jo":                "kubectl epdns lookup -n shop jobs",
			} {
				// Then to the beginning of the line, so that it is printed and not run.
				s.types(t, typed+"\t\x01echo \r", "\n"+line+"\n")
			}
		})
	}
}

// The manual pages have nothing that mandoc would change, and man shows them.
func TestManual(t *testing.T) {
	dir := t.TempDir()
	good(t, kube.Kubeconfig, "SOURCE_DATE_EPOCH=1796000000 epdns man --dir "+dir)
	pages := lines(good(t, kube.Kubeconfig, "cd "+dir+" && find . -type f"))
	if len(pages) < 12 {
		t.Errorf("there are only %q", pages)
	}
	for _, p := range pages {
		if out, _, code := runs(t, kube.Kubeconfig, "cd "+dir+" && mandoc -T lint -W warning "+p); code != 0 || out != "" {
			t.Errorf("%s: %s", p, out)
		}
	}
	text := good(t, kube.Kubeconfig, "epdns man lookup | mandoc -T utf8 | col -b")
	for _, part := range []string{"epdns lookup NAME [TYPE]", "-n, --namespace", "--timeout DURATION", "EXIT STATUS", "epdns.yaml(5)"} {
		if !strings.Contains(text, part) {
			t.Errorf("epdns-lookup(1) does not have %q:\n%s", part, text)
		}
	}
	text = good(t, kube.Kubeconfig, "epdns man epdns.yaml | mandoc -T utf8 | col -b")
	for _, part := range []string{"zones[].defaults.ttl", "The default is 5s.", "massEmpty.share"} {
		if !strings.Contains(text, part) {
			t.Errorf("epdns.yaml(5) does not have %q", part)
		}
	}
}
