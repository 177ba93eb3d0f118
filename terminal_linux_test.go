package epdns_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// This file looks at the program as people do, on a terminal.

// newTerminal is a terminal of so many columns: what people see of it, and what programs get.
func newTerminal(t *testing.T, columns int) (seen, given *os.File) {
	t.Helper()
	seen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { seen.Close() })
	fd := int(seen.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: uint16(columns)}); err != nil {
		t.Fatal(err)
	}
	if given, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return seen, given
}

// onTerminal is what people see of a run of the program.
func onTerminal(t *testing.T, columns int, env []string, args ...string) string {
	t.Helper()
	seen, given := newTerminal(t, columns)
	cmd := exec.CommandContext(t.Context(), epdns, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = given, given, given, env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	given.Close()
	text := make(chan string)
	go func() {
		b, _ := io.ReadAll(seen) // ends with an error of its own when the last program has gone
		text <- strings.ReplaceAll(string(b), "\r\n", "\n")
	}()
	cmd.Wait()
	select {
	case text := <-text:
		return text
	case <-time.After(grace):
		t.Fatalf("epdns %q: the terminal is still in use", args)
		return ""
	}
}

var colours = regexp.MustCompile("\x1b\\[[0-9;]*m")

// There are colours on a terminal, and nowhere else unless they are asked for.
func TestColours(t *testing.T) {
	args := []string{"explain", "jobs.shop.registry.local", "--manifests", "testdata/cluster"}
	plain, _, code := once(t, environment(), args...)
	if code != 0 || colours.MatchString(plain) {
		t.Fatalf("in a pipe: exit status %d\n%q", code, plain)
	}
	serial := regexp.MustCompile(`serial \d+`)
	plain = serial.ReplaceAllString(plain, "")
	for _, c := range []struct {
		env, args string
		want      bool
	}{
		{"TERM=xterm", "", true},
		{"TERM=xterm NO_COLOR=", "", true}, // which has to have a value to say anything
		{"TERM=xterm NO_COLOR=1", "", false},
		{"TERM=xterm NO_COLOR=1", "--color=always", true},
		{"TERM=xterm", "--color=never", false},
		{"TERM=dumb", "", false},
	} {
		got := onTerminal(t, 200, environment(strings.Fields(c.env)...), append(slices.Clone(args), strings.Fields(c.args)...)...)
		if colours.MatchString(got) != c.want {
			t.Errorf("%s %s: colours are expected: %v\n%q", c.env, c.args, c.want, got)
		}
		if bare := serial.ReplaceAllString(colours.ReplaceAllString(got, ""), ""); bare != plain {
			t.Errorf("%s %s: but for colours it is\n%s\nand not\n%s", c.env, c.args, bare, plain)
		}
	}
	for args, want := range map[string]bool{
		"lookup jobs.shop.registry.local --color always":         true,
		"lookup jobs.shop.registry.local -o json --color always": false,
		"watch shop/jobs --color always":                         true,
	} {
		cmd := exec.CommandContext(t.Context(), epdns, append(strings.Fields(args), "--manifests", "testdata/cluster")...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		n, _ := out.Read(buf)
		cmd.Process.Kill()
		cmd.Wait()
		if n == 0 || colours.Match(buf[:n]) != want {
			t.Errorf("%s: colours are expected: %v\n%q", args, want, buf[:n])
		}
	}
}

// However narrow a terminal is, no line of a table or a sentence is broken by it, and a
// wider one shows more.
func TestTerminalWidth(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/cluster")); err != nil {
		t.Fatal(err)
	}
	watch := func(columns int, args ...string) []string {
		t.Helper()
		seen, given := newTerminal(t, columns)
		cmd := exec.CommandContext(t.Context(), epdns, append([]string{"watch", "--manifests", dir, "--color=never"}, args...)...)
		cmd.Stdout, cmd.Stderr, cmd.Env = given, given, environment("TERM=xterm")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		given.Close()
		var text output
		done := make(chan struct{})
		go func() {
			defer close(done)
			io.Copy(&text, seen)
		}()
		eventually(t, func() error {
			if n := strings.Count(text.String(), "ADDED"); n < 3 {
				return fmt.Errorf("%d endpoints of 3 are there:\n%v", n, &text)
			}
			return nil
		})
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("watch: %v", err)
		}
		<-done
		return strings.Split(strings.TrimSpace(strings.ReplaceAll(text.String(), "\r\n", "\n")), "\n")
	}
	before := 0
	for _, columns := range []int{70, 80, 100, 120, 140, 200} {
		lines := watch(columns, "shop/jobs")
		heads := strings.Fields(lines[0])
		if len(heads) < before || !slices.Contains(heads, "ADDRESS") || !slices.Contains(heads, "CONDITIONS") {
			t.Errorf("%d columns show %q", columns, heads)
		}
		before = len(heads)
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > columns {
				t.Errorf("%d columns: %d in %q", columns, n, line)
			}
		}
		if columns >= 80 && !strings.Contains(strings.Join(lines, "\n"), "jobs-5f7c9d6b8-q4xwd") {
			t.Errorf("%d columns do not show the pods:\n%s", columns, strings.Join(lines, "\n"))
		}
	}
	if before != 10 {
		t.Errorf("a wide terminal shows %d columns, not 10", before)
	}
	if lines := watch(80, "shop/jobs", "-o", "wide"); len(strings.Fields(lines[0])) != 11 {
		t.Errorf("-o wide: %q", lines[0])
	}

	for _, columns := range []int{60, 80, 100, 160} {
		got := onTerminal(t, columns, environment("TERM=dumb"), "explain", "shop/web", "--from", "198.51.100.7", "--manifests", "testdata/cluster")
		text, _, ok := strings.Cut(got, "\nANSWER\n")
		if !ok || !strings.Contains(text, "not known: the address") {
			t.Fatalf("%d columns:\n%s", columns, got)
		}
		for line := range strings.Lines(text) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > min(columns, 110) {
				t.Errorf("%d columns: %d in %q", columns, n, line)
			}
		}
		help := onTerminal(t, columns, environment("TERM=dumb"), "serve", "--help")
		_, flags, ok := strings.Cut(help, "\nFlags:\n")
		for line := range strings.Lines(flags) {
			if n := utf8.RuneCountInString(line); !ok || n > columns+1 {
				t.Errorf("%d columns: %d in the help's %q", columns, n, line)
			}
		}
	}
}

// Who reads of a pipe as much as is wanted hears nothing of it, and need not wait.
func TestReaderGoes(t *testing.T) {
	for _, args := range []string{"watch --all", "watch shop/jobs -o json"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr output
		cmd := exec.CommandContext(t.Context(), epdns, append(strings.Fields(args), "--manifests", "testdata/cluster")...)
		cmd.Stdout, cmd.Stderr, cmd.Env = w, &stderr, environment()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if n, err := r.Read(make([]byte, 100)); n == 0 {
			t.Fatal(err)
		}
		r.Close()
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-ended:
		case <-time.After(grace):
			t.Fatalf("%s: still running", args)
		}
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		if broken := status.Signaled() && status.Signal() == syscall.SIGPIPE; !broken && status.ExitStatus() != 141 || stderr.String() != "" {
			t.Errorf("%s: it ended with %v, and said %q", args, cmd.ProcessState, &stderr)
		}
	}
	// A disk that is full is something else.
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for _, args := range []string{"lookup jobs.shop.registry.local", "explain jobs.shop.registry.local -o yaml", "watch shop/jobs"} {
		var stderr output
		cmd := exec.CommandContext(t.Context(), epdns, append(strings.Fields(args), "--manifests", "testdata/cluster")...)
		cmd.Stdout, cmd.Stderr, cmd.Env = full, &stderr, environment()
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("%s: %v", args, err)
		}
		if err := oneLine(stderr.String(), "no space left on device"); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// slowCluster is an API server that sends so many EndpointSlices at once, and says that
// they are all when it is let. It has no Services and no Nodes for anybody.
func slowCluster(t *testing.T, slices int) (kubeconfig string, let func()) {
	t.Helper()
	open := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/discovery.k8s.io/v1/endpointslices", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("sendInitialEvents") != "true" {
			http.Error(w, "only streaming lists", http.StatusNotImplemented)
			return
		}
		w.Header().Set("Content-Type", "application/json;stream=watch")
		event := func(typ string, object map[string]any) {
			object["apiVersion"], object["kind"] = "discovery.k8s.io/v1", "EndpointSlice"
			json.NewEncoder(w).Encode(map[string]any{"type": typ, "object": object})
		}
		for i := range slices {
			event("ADDED", map[string]any{"addressType": "IPv4",
				"metadata": map[string]any{"namespace": "shop", "name": fmt.Sprintf("web-%d", i), "uid": fmt.Sprint(i), "resourceVersion": "7",
					"labels": map[string]string{"kubernetes.io/service-name": "web"}},
				"endpoints": []map[string]any{{"addresses": []string{fmt.Sprintf("10.0.%d.%d", i/250, i%250)}}}})
		}
		w.(http.Flusher).Flush()
		select {
		case <-open:
		case <-r.Context().Done():
			return
		}
		event("BOOKMARK", map[string]any{"metadata": map[string]any{"resourceVersion": "7", "annotations": map[string]string{"k8s.io/initial-events-end": "true"}}})
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc("/api/v1/", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"not for you"}`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	replaceFile(t, kubeconfig, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: slow
clusters: [{name: slow, cluster: {server: %q}}]
users: [{name: nobody, user: {}}]
contexts: [{name: slow, context: {cluster: slow, user: nobody}}]
`, server.URL))
	return kubeconfig, func() { close(open) }
}

// Somebody who waits for a large cluster sees how far it is, and afterwards nothing of that.
func TestReadingIsSeen(t *testing.T) {
	kubeconfig, let := slowCluster(t, 1234)
	seen, given := newTerminal(t, 120)
	cmd := exec.CommandContext(t.Context(), epdns, "lookup", "shop/web", "AAAA", "-o", "json", "--kubeconfig", kubeconfig)
	stdout := &output{}
	cmd.Stdout, cmd.Stderr, cmd.Env = stdout, given, environment("TERM=xterm")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	given.Close()
	var screen output
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(&screen, seen)
	}()
	eventually(t, func() error {
		if !strings.Contains(screen.String(), "\rreading 1,234 EndpointSlices …") {
			return fmt.Errorf("it shows %q", &screen)
		}
		return nil
	})
	let()
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v, it shows %q", err, &screen)
	}
	<-done
	if !strings.Contains(stdout.String(), `"status":"NOERROR"`) {
		t.Errorf("it prints %s", stdout)
	}
	_, rest, ok := strings.Cut(screen.String(), "\r\x1b[K")
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "epdns: warning: no right to list ") {
			t.Errorf("it says besides %q", line)
		}
	}
	if !ok || strings.Count(rest, "\n") != 2 {
		t.Errorf("it shows %q", &screen)
	}
}

// A server says so in its log, now and then.
func TestReadingIsLogged(t *testing.T) {
	kubeconfig, let := slowCluster(t, 300)
	p := listen(t, "--kubeconfig", kubeconfig)
	p.logged(t, "still reading", `"endpointslices":300`, `"after":"`)
	let()
	p.logged(t, `"msg":"serving"`)
}

// What cannot be reached is not waited for, and the error says what it may be.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	nobody := closedPort(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	replaceFile(t, path, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: gone
clusters: [{name: gone, cluster: {server: "http://%s"}}]
users: [{name: nobody, user: {}}]
contexts: [{name: gone, context: {cluster: gone, user: nobody}}]
`, nobody))
	for _, args := range []string{"lookup web.shop.registry.local", "explain web -n shop", "watch shop/web", "check"} {
		began := time.Now()
		stdout, stderr, code := once(t, environment(), append(strings.Fields(args), "--kubeconfig", path)...)
		if took := time.Since(began); code != 1 || stdout != "" || took > 9*time.Second {
			t.Errorf("%s: exit status %d after %v, %q", args, code, took, stdout)
		}
		if strings.Contains(stderr, "time=") {
			t.Errorf("%s: it logs: %s", args, stderr)
		}
		if err := oneLine(stderr, path, nobody, "connection refused; is it running, and is this the cluster that is meant (--context, --kubeconfig)?"); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}
