//go:build linux

package clients_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// This file has the programs and libraries that look up a name when told to: how each is told,
// and where in what it prints the answer is.

// way is one way to look up.
type way struct {
	client, page string // as in Row

	// addresses looks up those of a name, and so do searching, where short names need to be asked
	// for in another way, and again, which does so twice in one process.
	addresses func(t *testing.T, name string) result
	searching func(t *testing.T, name string) result
	again     func(t *testing.T, name string)

	// targets looks up SRV; nil if it has nothing of the kind.
	targets func(t *testing.T, name string) result
}

// result is what a client has found, in its order, or what it says instead.
type result struct {
	found []string
	says  string
}

// commands are programs that look up once.
var commands = []struct {
	client, page       string
	addresses, targets []string // NAME stands for the name
	searching          []string // if other arguments are needed for a short name
}{
	{client: "dig", page: "dig",
		addresses: []string{"dig", "NAME", "A"},
		targets:   []string{"dig", "NAME", "SRV"},
		searching: []string{"dig", "+search", "NAME", "A"}},
	{client: "nslookup", page: "nslookup",
		addresses: []string{"nslookup", "NAME"},
		targets:   []string{"nslookup", "-type=SRV", "NAME"}},
	{client: "host", page: "host",
		addresses: []string{"host", "NAME"},
		targets:   []string{"host", "-t", "SRV", "NAME"}},
	{client: "drill", page: "drill",
		addresses: []string{"drill", "NAME", "A"},
		targets:   []string{"drill", "NAME", "SRV"}},
	{client: "kdig", page: "kdig",
		addresses: []string{"kdig", "NAME", "A"},
		targets:   []string{"kdig", "NAME", "SRV"}},
	{client: "BusyBox `nslookup`", page: "busybox",
		addresses: []string{"busybox", "nslookup", "NAME"},
		targets:   []string{"busybox", "nslookup", "-type=srv", "NAME"}},
	{client: "`getent ahosts`", page: "glibc",
		addresses: []string{"getent", "ahosts", "NAME"}},
}

// In what commands print: an address of a pod, a target with its numbers, and why there is none.
var (
	podAddress = regexp.MustCompile(`\b10\.[23]0\.\d+\.\d+\b|\bfd00:[0-9a-f:]+`)
	podTarget  = regexp.MustCompile(`(?m)\b(\d+)\s+(\d+)\s+(\d+)\s+(10-20-[^\s]+?\.registry\.local)\.?\s*$`)
	reason     = regexp.MustCompile(`\b(NXDOMAIN|SERVFAIL|REFUSED|NOERROR|No answer|Parse error)\b`)
)

func commandWays() (ways []way) {
	for _, c := range commands {
		w := way{client: c.client, page: c.page,
			addresses: func(t *testing.T, name string) result {
				out, says := command(t, c.addresses, name)
				return result{unique(podAddress.FindAllString(out, -1)), says}
			}}
		if c.searching != nil {
			w.searching = func(t *testing.T, name string) result {
				out, says := command(t, c.searching, name)
				return result{unique(podAddress.FindAllString(out, -1)), says}
			}
		}
		if c.targets != nil {
			w.targets = func(t *testing.T, name string) (r result) {
				out, says := command(t, c.targets, name)
				for _, m := range podTarget.FindAllStringSubmatch(out, -1) {
					r.found = append(r.found, fmt.Sprintf("%s %s %s %s.", m[1], m[2], m[3], m[4]))
				}
				r.says = says
				return r
			}
		}
		w.again = func(t *testing.T, name string) {
			for range 2 {
				w.addresses(t, name)
			}
		}
		ways = append(ways, w)
	}
	return ways
}

// command runs one and returns what it prints, and that in a few words.
func command(t *testing.T, argv []string, name string) (out, says string) {
	t.Helper()
	argv = strings.Fields(strings.ReplaceAll(strings.Join(argv, " "), "NAME", name))
	b, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	exit, ended := errors.AsType[*exec.ExitError](err)
	if err != nil && !ended {
		t.Fatalf("%q: %v", argv, err)
	}
	words := "prints nothing"
	if m := reason.FindString(string(b)); m != "" {
		words = "`" + m + "`"
	} else if len(b) > 0 {
		words = "prints no address"
	}
	code := 0
	if ended {
		code = exit.ExitCode()
	}
	return string(b), fmt.Sprintf("%s, status %d", words, code)
}

// unique leaves each string once, the first of it. Some print an address for each socket type.
func unique(list []string) (once []string) {
	seen := map[string]bool{}
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			once = append(once, s)
		}
	}
	return once
}

// libraryWays are those of programs that call the C libraries and Go's resolver.
func libraryWays(glibc string, m muslLib) []way {
	c := func(client, page string, argv ...string) way {
		look := func(t *testing.T, args ...string) (r result) {
			t.Helper()
			var stdout, stderr bytes.Buffer
			cmd := exec.Command(argv[0], append(argv[1:], args...)...)
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			err := cmd.Run()
			if exit, ended := errors.AsType[*exec.ExitError](err); err != nil && !(ended && exit.ExitCode() == 2) {
				t.Fatalf("%q: %v\n%s", cmd.Args, err, &stderr)
			}
			if r.found = unique(strings.Fields(stdout.String())); r.found == nil {
				r.says = "`" + strings.TrimSpace(stderr.String()) + "`"
			}
			return r
		}
		return way{client: client, page: page,
			addresses: func(t *testing.T, name string) result { return look(t, name) },
			again:     func(t *testing.T, name string) { look(t, "-r", "2", name) }}
	}
	goWay := way{client: "Go `net.Resolver`", page: "go",
		addresses: func(t *testing.T, name string) result { return goResult(goLooks(t, "host", name)[0]) },
		again:     func(t *testing.T, name string) { goLooks(t, "host", name, "2") },
		targets: func(t *testing.T, name string) result {
			return goResult(goLooks(t, "srv", strings.TrimPrefix(name, "_http._tcp."))[0])
		}}
	return []way{c("glibc `getaddrinfo`", "glibc", glibc), c("musl `getaddrinfo`", "musl", m.loader, musl), goWay}
}

func goResult(got resolved) (r result) {
	r.found = got.Found
	for _, s := range got.Targets {
		r.found = append(r.found, fmt.Sprintf("%d %d %d %s", s.Priority, s.Weight, s.Port, s.Target))
	}
	if r.found == nil {
		r.says = fmt.Sprintf("error, `IsNotFound` %v, `IsTemporary` %v", got.NotFound, got.Temporary)
	}
	return r
}

// teller is a running program that reads what to look up, a line each, "HOW NAME", and prints a
// line of what it found: those of testdata in Python, JavaScript and Java.
type teller struct {
	to   io.Writer
	from *bufio.Reader
}

// startTeller starts one for as long as the test.
func startTeller(t *testing.T, argv ...string) teller {
	t.Helper()
	return tellerOf(t, exec.Command(argv[0], argv[1:]...))
}

// tellerOf starts a program for as long as the test.
func tellerOf(t *testing.T, cmd *exec.Cmd) teller {
	t.Helper()
	to, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer // read when it has ended
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		to.Close() // which ends it
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v\n%v", cmd.Args, err, &log)
		}
	})
	return teller{to, bufio.NewReader(from)}
}

func (p teller) look(t *testing.T, how, name string) result {
	t.Helper()
	if _, err := fmt.Fprintln(p.to, how, name); err != nil {
		t.Fatal(err)
	}
	line, err := p.from.ReadString('\n')
	if err != nil {
		t.Fatalf("look up %s %s: %v", how, name, err)
	}
	f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
	switch {
	case f[0] == "ok" && len(f) > 1:
		for i, text := range f { // Java writes IPv6 addresses in full
			if a, err := netip.ParseAddr(text); err == nil {
				f[i] = a.String()
			}
		}
		return result{found: unique(f[1:])}
	case f[0] == "no" && len(f) == 2:
		return result{says: "`" + f[1] + "`"}
	}
	t.Fatalf("look up %s %s: %q", how, name, line)
	return result{}
}

// way is one of this program's.
func (p teller) way(client, page, how string) way {
	return way{client: client, page: page,
		addresses: func(t *testing.T, name string) result { return p.look(t, how, name) },
		again: func(t *testing.T, name string) {
			p.look(t, how, name)
			p.look(t, how, name)
		}}
}

// withTargets has SRV looked up so, too.
func (p teller) withTargets(w way, how string) way {
	w.targets = func(t *testing.T, name string) result {
		r := p.look(t, how, name)
		for i, target := range r.found { // some leave out the final dot
			r.found[i] = strings.TrimSuffix(target, ".") + "."
		}
		return r
	}
	return w
}
