//go:build linux

package clients_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"epdns/test/netns"
)

// The examples of a page that leads to "The examples" in docs/clients/README.md are run: the
// sample cluster answers at 127.0.0.1:5300 and, as the nameserver of resolv.conf, at 10.96.0.53.
//
// A block whose first line is a comment of nothing but a file's name becomes that file. Then each
// command of the blocks of console must print what follows it:
//
//	$ host web.shop.registry.local   # in any order
//	web.shop.registry.local has address 10.244.1.21
//
// Blanks count as one. "…" is any text within a line, and any lines where it is all of a line. "in
// any order" in the comment takes the lines so, "status 1" is how the command ends.
func TestPages(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	for _, listen := range []string{"127.0.0.1:5300", epdnsIP + ":53"} {
		p := start(t, epdns, "demo", "--http=", "--listen="+listen)
		p.Eventually(t, func() error {
			if !strings.Contains(p.Log(), "Ctrl-C ends it") {
				return errors.New("the demo does not serve")
			}
			return nil
		})
	}
	hosts(t)
	resolvConf(t, "nameserver "+epdnsIP+"\nsearch shop.registry.local registry.local\noptions ndots:5\n")
	t.Setenv("PATH", built+":"+os.Getenv("PATH"))

	pages, err := filepath.Glob("../../docs/clients/*.md")
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, path := range pages {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "](README.md#the-examples)") {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) { ran += runPage(t, string(text)) })
	}
	if ran == 0 {
		t.Error("no example was run")
	}
}

// The place that docs/clients/README.md makes for the examples is one.
func TestExamplesPlace(t *testing.T) {
	text, err := os.ReadFile(tablePage)
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
		in, inside, ok := strings.Cut(block[2], " bash\n")
		if !ok || block[1] != "sh" {
			continue
		}
		argv := strings.Fields(strings.TrimPrefix(in, "sudo "))
		// What it leaves running ends with its processes' namespace.
		argv = append(argv, "--pid", "--fork", "--kill-child", "bash", "-ec", strings.ReplaceAll(inside, "build/epdns", epdns)+`
for i in $(seq 200); do getent hosts 10.244.1.21 && dig @127.0.0.1 -p 5300 +short db-0.db.data.registry.local && exit; sleep 0.1; done; exit 3`)
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasSuffix(string(out), "10-244-1-21.web.shop.registry.local\n10.244.1.10\n") {
			t.Errorf("%q: %v\n%s", argv, err, out)
		}
		return
	}
	t.Errorf("%s makes no place for the examples", tablePage)
}

var (
	fence    = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")
	fileName = regexp.MustCompile(`^(?://|#|/\*) ([\w-]+\.\w+)(?: \*/)?\n`)
)

// runPage runs the examples of a page, and says how many there are.
func runPage(t *testing.T, text string) (ran int) {
	t.Helper()
	dir := t.TempDir()
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		language, body := block[1], block[2]
		if m := fileName.FindStringSubmatch(body); m != nil {
			if err := os.WriteFile(filepath.Join(dir, m[1]), []byte(body), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if language != "console" {
			continue
		}
		first, examples, _ := strings.Cut("\n"+body, "\n$ ")
		if strings.TrimSpace(first) != "" {
			t.Errorf("not a command: %s", first)
		}
		for _, example := range strings.Split(examples, "\n$ ") {
			command, output, _ := strings.Cut(example, "\n")
			ran++
			if err := runExample(dir, command, output); err != nil {
				t.Errorf("$ %s\n%v", command, err)
			}
		}
	}
	if ran == 0 {
		t.Error("there are no examples")
	}
	return ran
}

var wantStatus = regexp.MustCompile(`# .*\bstatus (\d+)`)

func runExample(dir, command, want string) error {
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	exit, ended := errors.AsType[*exec.ExitError](err)
	if err != nil && !ended {
		return err
	}
	code, wantCode := 0, "0"
	if ended {
		code = exit.ExitCode()
	}
	if m := wantStatus.FindStringSubmatch(command); m != nil {
		wantCode = m[1]
	}
	if fmt.Sprint(code) != wantCode {
		return fmt.Errorf("ends with status %d, not %s, and prints\n%s", code, wantCode, out)
	}
	wanted, got := textLines(want), textLines(string(out))
	if strings.Contains(command, "in any order") {
		slices.Sort(wanted)
		slices.Sort(got)
	}
	if !sameLines(wanted, got) {
		return fmt.Errorf("prints\n%s", out)
	}
	return nil
}

// textLines are those of a text, with single blanks, and without empty ones.
func textLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

func sameLines(want, got []string) bool {
	switch {
	case len(want) == 0:
		return len(got) == 0
	case want[0] == "…":
		return sameLines(want[1:], got) || len(got) > 0 && sameLines(want, got[1:])
	case len(got) == 0:
		return false
	}
	return sameLine(want[0], got[0]) && sameLines(want[1:], got[1:])
}

func sameLine(want, got string) bool {
	parts := strings.Split(want, "…")
	for i, p := range parts {
		parts[i] = regexp.QuoteMeta(p)
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(got)
}

func TestSameLines(t *testing.T) {
	got := textLines("a  b\n\nc\nd e\n")
	for want, same := range map[string]bool{
		"a b\nc\nd e":     true,
		"a b\nc":          false,
		"a b\nc\nd e\nf":  false,
		"a b\nd e\nc":     false,
		"…":               true,
		"a b\n…":          true,
		"…\nc\nd …":       true,
		"…\nd\n…":         false,
		"a b\nc\nd e\n…":  true,
		"… b\nc\n…e":      true,
		"a .*\nc\nd e":    false,
		"a b\n…\nc\n…\nf": false,
		"":                false,
	} {
		if sameLines(textLines(want), got) != same {
			t.Errorf("%q, %q: want %v", want, got, same)
		}
	}
}
