package epdns_test

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"epdns/zones"
)

// A page of docs whose examples are tested has a line that says how they are run:
//
//	epdns() { go run ./cmd/epdns "$@" --config testdata/ranking/epdns.yaml; }
//
// What stands behind "$@" goes behind each command of its blocks of console:
//
//	$ epdns lookup web.shop.registry.local --short   # a comment
//	10.1.1.11
//
// The output must be what follows. Blanks count as one, empty lines at its end as none,
// and "…" is any text within a line and any lines where it is a line. "status 1" in a
// comment is how the command ends, "in any order" takes the lines so, with "…" some of them,
// and "some of these" takes any of them, one at least. A dig asks port 5300 of "epdns serve",
// which runs for the page. Other pages have sections that are run beside the demo, or on a
// real control plane: see demoSections and TestKubeQuickStart.
//
// Each block of yaml must be part of a document in the directory of the configuration,
// with no annotation less than there.

// pageCommand is how a page runs its examples.
var pageCommand = regexp.MustCompile(`(?m)^epdns\(\) \{ .* "\$@" (--config (\S+/)\S+); \}$`)

func TestPages(t *testing.T) {
	tested := 0
	for _, path := range pages(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		m := pageCommand.FindSubmatch(text)
		if m == nil {
			continue
		}
		tested++
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			p := page{args: strings.Fields(string(m[1]))}
			there := documents(t, string(m[2]))
			for _, b := range blocks(path, string(text)) {
				switch b.language {
				case "console":
					p.console(t, b)
				case "yaml":
					var part any
					if err := yaml.Unmarshal([]byte(strings.Join(b.lines, "\n")), &part); err != nil {
						t.Errorf("%s: %v", b.where(0), err)
					} else if !slices.ContainsFunc(there, func(d any) bool { return isPart("", part, d) }) {
						t.Errorf("%s: this is part of no document in %s", b.where(0), m[2])
					}
				}
			}
		})
	}
	if tested == 0 {
		t.Error("no page says how its examples are run")
	}
}

// demoSections are the sections whose examples are asked of "epdns demo".
var demoSections = []struct{ page, heading string }{
	{"README.md", "epdns"},
	{"docs/quickstart.md", "On a laptop"},
}

func TestDemoSections(t *testing.T) {
	t.Parallel()
	demo := launch(t, environment(), "demo", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
	p := page{server: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), demo.demoPrinted(t))}
	m := regexp.MustCompile(`--server (\S+)`).FindStringSubmatch(demo.stdout.String())
	if m == nil {
		t.Fatal("the demo does not say where its HTTP is")
	}
	p.http = m[1]
	for _, s := range demoSections {
		text, err := os.ReadFile(s.page)
		if err != nil {
			t.Fatal(err)
		}
		tested := 0
		for _, b := range blocks(s.page, string(text)) {
			if b.heading == s.heading && b.language == "console" {
				tested++
				p.console(t, b)
			}
		}
		if tested == 0 {
			t.Errorf("%s has no example below %q", s.page, s.heading)
		}
	}
}

// kubeHeadings are the sections of the quick start that are about a cluster.
var kubeHeadings = []string{"Your own cluster, from outside", "In the cluster"}

// TestKubeQuickStart does what the quick start says on a cluster.
func TestKubeQuickStart(t *testing.T) {
	const path = "docs/quickstart.md"
	k := newKube(t)
	p := page{args: []string{"--kubeconfig", k.config}, kubeconfig: k.config}
	t.Cleanup(func() {
		for _, args := range []string{"delete namespace shop", "delete -k deploy/base"} {
			p.run(t, append([]string{"kubectl"}, strings.Fields(args)...), false)
		}
	})
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tested := 0
	for _, b := range blocks(path, string(text)) {
		if !slices.Contains(kubeHeadings, b.heading) {
			continue
		}
		tested++
		switch b.language {
		case "console":
			p.console(t, b)
		case "sh":
			for _, words := range shellCommands(strings.Join(b.lines, "\n")) {
				switch words[0] {
				case "kubectl":
					p.run(t, words, false)
				case "go", "epdns", "nslookup": // TestPageShell
				default:
					t.Errorf("%s: what is %q?", b.where(0), words)
				}
			}
		}
	}
	if tested < 5 {
		t.Errorf("%s has %d blocks about clusters, which cannot be all", path, tested)
	}
}

// block is what stands between two fences of a page.
type block struct {
	page     string
	heading  string // above it
	line     int    // of the first of its lines
	language string
	lines    []string
}

func (b *block) where(i int) string { return fmt.Sprintf("%s:%d", b.page, b.line+i) }

func blocks(path, text string) (all []block) {
	inside, heading := false, ""
	for i, line := range strings.Split(text, "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && !inside:
			all = append(all, block{page: path, heading: heading, line: i + 2, language: language})
			inside = true
		case !inside && strings.HasPrefix(line, "#"):
			heading = strings.TrimLeft(line, "# ")
		case fence:
			inside = false
		case inside:
			b := &all[len(all)-1]
			b.lines = append(b.lines, line)
		}
	}
	return all
}

// documents are those of all YAML files below a directory.
func documents(t *testing.T, dir string) (all []any) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		for d := yaml.NewDecoder(f); ; {
			var doc any
			if err := d.Decode(&doc); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			all = append(all, doc)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// isPart says whether everything in part is in whole; key is where part stands.
func isPart(key string, part, whole any) bool {
	switch part := part.(type) {
	case map[string]any:
		of, ok := whole.(map[string]any)
		if !ok || key == "annotations" && len(part) != len(of) || key == "metadata" && part["annotations"] == nil && of["annotations"] != nil {
			return false
		}
		for k, v := range part {
			if w, ok := of[k]; !ok || !isPart(k, v, w) {
				return false
			}
		}
		return true
	case []any:
		of, ok := whole.([]any)
		if !ok {
			return false
		}
		for _, v := range part {
			if !slices.ContainsFunc(of, func(w any) bool { return isPart("", v, w) }) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(part, whole)
}

// page runs the commands of a page.
type page struct {
	args       []string       // behind each command of epdns
	server     netip.AddrPort // that is asked by dig; one is started if it is not set
	http       string         // its base URL, where commands have a --server
	kubeconfig string         // of a real cluster, which may take a moment to follow
}

func (p *page) console(t *testing.T, b block) {
	t.Helper()
	for i := 0; i < len(b.lines); {
		command, ok := strings.CutPrefix(b.lines[i], "$ ")
		if !ok {
			t.Errorf("%s: a command is expected, such as: $ epdns lookup NAME", b.where(i))
			return
		}
		at := i
		for i++; i < len(b.lines) && !strings.HasPrefix(b.lines[i], "$ "); i++ {
		}
		command, comment, _ := strings.Cut(command, " # ")
		try := func() error {
			got := p.run(t, strings.Fields(command), strings.Contains(comment, "status 1"))
			if err := matchLines(b.lines[at+1:i], got, comment); err != nil {
				return fmt.Errorf("%s: %s: %w, in:\n%s", b.where(at), command, err, strings.Join(got, "\n"))
			}
			return nil
		}
		if p.kubeconfig != "" {
			eventually(t, try)
		} else if err := try(); err != nil {
			t.Error(err)
		}
	}
}

// run is what a command prints.
func (p *page) run(t *testing.T, args []string, fails bool) []string {
	t.Helper()
	out := ""
	args[0] = strings.TrimPrefix(args[0], "build/")
	if at := slices.Index(args, "--server"); at > 0 && p.http != "" {
		args[at+1] = p.http
	}
	switch args[0] {
	case "epdns":
		stdout, stderr, code := once(t, environment(), append(args[1:], p.args...)...)
		if code != 0 != fails || code > 1 {
			t.Errorf("%q: exit status %d", args, code)
		}
		out = stdout + stderr
	case "dig":
		if !p.server.IsValid() {
			p.server = serve(t, p.args...).dns
		}
		if at := slices.Index(args, "5300"); at > 0 {
			args[at] = fmt.Sprint(p.server.Port())
		}
		out = runDig(t, args[1:]...)
	case "kubectl":
		cmd := exec.CommandContext(t.Context(), os.Getenv(clusterTools["kubectl"]), args[1:]...)
		if t.Context().Err() != nil { // at its end
			cmd = exec.Command(cmd.Path, args[1:]...)
		}
		cmd.Env = environment("KUBECONFIG=" + p.kubeconfig)
		text, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%q: %v\n%s", args, err, text)
		}
		out = string(text)
	default:
		t.Errorf("%q is none of epdns, dig and kubectl", args[0])
	}
	if out = strings.TrimRight(out, "\n"); out == "" {
		return nil
	}
	return strings.Split(out, "\n")
}

// matchLines says whether lines are as a page has them.
func matchLines(want, got []string, comment string) error {
	if strings.Contains(comment, "some of these") {
		if len(got) == 0 {
			return errors.New("nothing is printed")
		}
		for _, line := range got {
			if !slices.ContainsFunc(want, func(w string) bool { return matchLine(w, line) }) {
				return fmt.Errorf("%q is not there", line)
			}
		}
		return nil
	}
	if strings.Contains(comment, "in any order") && slices.Contains(want, "…") {
		for _, line := range want {
			if line != "…" && !slices.ContainsFunc(got, func(g string) bool { return matchLine(line, g) }) {
				return fmt.Errorf("%q is missing", line)
			}
		}
		return nil
	}
	if strings.Contains(comment, "in any order") {
		want, got = slices.Sorted(slices.Values(want)), slices.Sorted(slices.Values(got))
	}
	for i, line := range want {
		if strings.TrimSpace(line) == "…" {
			for skip := range len(got) + 1 {
				if matchLines(want[i+1:], got[skip:], "") == nil {
					return nil
				}
			}
			return fmt.Errorf("what follows … is not there: %q", want[i+1:])
		}
		if len(got) == 0 {
			return fmt.Errorf("%q is missing", line)
		}
		if !matchLine(line, got[0]) {
			return fmt.Errorf("%q is not %q", got[0], line)
		}
		got = got[1:]
	}
	if len(got) > 0 {
		return fmt.Errorf("more is printed: %q", got)
	}
	return nil
}

// matchLine says whether a line is as a page has it.
func matchLine(want, got string) bool {
	form := strings.ReplaceAll(regexp.QuoteMeta(strings.Join(strings.Fields(want), " ")), "…", ".*")
	return regexp.MustCompile("^" + form + "$").MatchString(strings.Join(strings.Fields(got), " "))
}

func TestMatchLines(t *testing.T) {
	lines := []string{"a  b", "c", "d", "", "e f"}
	for _, c := range []struct {
		want    string
		comment string
		ok      bool
	}{
		{"a b|c|d||e f", "", true},
		{"a b|c|d||e", "", false},
		{"a b|c|d||e f|g", "", false},
		{"a b|c|d|", "", false},
		{"a …|c|d||… f", "", true},
		{"a b|…|e f", "", true},
		{"…|c|…|e f|…", "", true},
		{"…|d|c|…", "", false},
		{"…", "", true},
		{"a b|…|d", "", false},
		{"c|a b|e f||d", "", false},
		{"c|a b|e f||d", "zone a; in any order", true},
		{"c|a b|e f|d", "in any order", false},
		{"c|a b|…", "in any order", true},
		{"c|a c|…", "in any order", false},
		{"a b|c|d||e f|g", "some of these", true},
		{"a b|c|d|e f", "some of these", false},
		{".*|c|d||e f", "", false},
	} {
		if err := matchLines(strings.Split(c.want, "|"), lines, c.comment); (err == nil) != c.ok {
			t.Errorf("%q, %q: %v", c.want, c.comment, err)
		}
	}
	if matchLines([]string{"a"}, nil, "some of these") == nil {
		t.Error("nothing is some")
	}
}

// Links between pages lead to files and headings that are there.
func TestPageLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)
	for _, path := range pages(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			to := path
			switch {
			case strings.Contains(m[1], ":"):
				continue // elsewhere
			case m[1] != "":
				to = filepath.Join(filepath.Dir(path), m[1])
			}
			if there, err := os.ReadFile(to); m[2] == "" && !exists(to) || m[2] != "" && (err != nil || !slices.Contains(anchors(string(there)), m[2])) {
				t.Errorf("%s: the link %s leads nowhere", path, m[0][1:])
			}
		}
	}
}

// anchors are those that GitHub gives to the headings of a page.
func anchors(text string) (all []string) {
	inside := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			inside = !inside
		}
		if heading := strings.TrimLeft(line, "#"); heading != line && !inside {
			heading = strings.ToLower(strings.TrimSpace(heading))
			heading = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(heading, "")
			all = append(all, "#"+strings.ReplaceAll(heading, " ", "-"))
		}
	}
	return all
}

// The page about ranking has all knobs as they are described, and an example of each.
func TestRankingPageKnobs(t *testing.T) {
	text, err := os.ReadFile("docs/ranking.md")
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| knob | default | |\n|---|---|---|\n")
	for _, k := range zones.Knobs() {
		fmt.Fprintf(&want, "| `%s` | `%s` | %s |\n", k.Name, k.Default, k.Means)
	}
	if !strings.Contains(string(text), want.String()) {
		t.Errorf("docs/ranking.md should have this table:\n%s", &want)
	}
	examples := ""
	for _, b := range blocks("docs/ranking.md", string(text)) {
		if b.language == "yaml" {
			examples += strings.Join(b.lines, "\n") + "\n"
		}
	}
	for _, k := range zones.Knobs() {
		if !strings.Contains(examples, "registry.local/"+k.Name+": ") {
			t.Errorf("docs/ranking.md has no example of the annotation registry.local/%s", k.Name)
		}
	}
}
