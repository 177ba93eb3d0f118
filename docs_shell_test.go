package epdns_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"epdns/internal/fakeapi"
)

// Every command in a block of a page is run by a test: by those that elsewhere names, or here, by a
// shell, as it stands. TestPageCommands says which, and fails where nobody runs one.
//
// A block of sh is run whole, by bash -eu -o pipefail; in a block of text, each line that begins
// with "$ ". The shell has a place for itself (desk), in which everything is where the reader has it.

// runner is the test that runs a command of a page.
type runner string

const (
	byShell runner = "TestPageShell"     // with a sample for the cluster, in a network of its own
	byTools runner = "TestKubePageTools" // the same, with what only "make e2e" installs
	byKube  runner = "TestKubePageShell" // on a real control plane
	byLong  runner = "TestKubePageLong"  // what takes its time, made shorter
)

// elsewhere are the commands that another test runs, and the one that none can run, with the reason.
var elsewhere = []struct {
	page    string
	heading string // that they are below; empty is any
	command string // what a line begins with; empty is any
	by      string // directory and function of the test
	lines   int    // that the test knows of, where it does not look for more
	why     string // where there is none
}{
	{page: "README.md", command: "make test", why: "it is what runs this test"},
	{page: "docs/quickstart.md", heading: kubeHeadings[0], command: "kubectl ", by: ". TestKubeQuickStart"},
	{page: "docs/quickstart.md", heading: kubeHeadings[1], command: "kubectl ", by: ". TestKubeQuickStart"},
	{page: "docs/clients/README.md", heading: "The examples", by: "test/clients TestExamplesPlace", lines: 8},
	{page: "docs/cli.md", command: "kubectl epdns status", by: "test/cli TestStatus"},
	{page: "docs/conformance.md", command: "cd test && go test ./audit ", by: "test/audit TestDNSViz"},
	{page: "docs/differences.md", command: "cd test && go test -count=1 -v -run TestDifferences ./diff", by: "test/diff TestDifferences"},
	{page: "docs/differences.md", command: "cd test && go run ./cmd/cluster build && go test -count=1 -v -run TestCoreDNS ./diff", by: "test/diff TestCoreDNS"},
	{page: "docs/status-page.md", command: "kubectl -n epdns port-forward ", by: "test/deploy TestPortForward"},
	{page: "deploy/README.md", heading: "Install", by: "test/deploy TestInstall", lines: 6},
	{page: "deploy/README.md", heading: "Uninstall", by: "test/deploy TestInstall", lines: 1},
	{page: "deploy/README.md", command: "skopeo copy ", by: "test/deploy TestImagePush"},
	{page: "deploy/chart/README.md", by: "test/deploy TestChartReadme"},
}

// runBy is who runs what is run here.
func runBy(command string) runner {
	by := byShell
	for _, words := range shellCommands(command) {
		switch program := words[0]; {
		case program == "go" && len(words) > 2 && words[1] == "run" && words[2] != "./cmd/epdns", program == "make" && !slices.Equal(words, []string{"make", "run"}):
			return byLong
		case program == "kubectl", program == "helm":
			by = byKube
		case program == "zonemaster-cli", program == "dnsviz", program == "socat":
			by = byTools
		}
	}
	return by
}

// command is what a page has its reader type in one go.
type command struct {
	block
	at    int      // where it begins
	text  string   // what is left of it for the runner
	shows []string // what the page has it print
	by    runner
}

func (c *command) where() string { return c.block.where(c.at) }

// commandsOf are the commands of a page that are run here. Lines that are run elsewhere are counted in
// seen, by entry.
func commandsOf(path, text string, seen map[int]int) (all []command) {
	client := filepath.Dir(path) == "docs/clients" && strings.Contains(text, "](README.md#the-examples)") // test/clients TestPages
	for _, b := range blocks(path, text) {
		demo := slices.ContainsFunc(demoSections, func(s struct{ page, heading string }) bool { return s.page == path && s.heading == b.heading })
		quick := path == "docs/quickstart.md" && slices.Contains(kubeHeadings, b.heading)
		if b.language == "console" && (client || demo || quick || pageCommand.MatchString(text)) {
			continue
		}
		var own []command
		switch b.language {
		case "sh", "bash", "shell":
			own = []command{{block: b, text: strings.Join(b.lines, "\n")}}
		case "console", "", "text":
			for i, line := range b.lines {
				if line, ok := strings.CutPrefix(line, "$ "); ok {
					shows := b.lines[i+1:]
					if next := slices.IndexFunc(shows, func(s string) bool { return strings.HasPrefix(s, "$ ") }); next >= 0 {
						shows = shows[:next]
					}
					own = append(own, command{block: b, at: i, text: line, shows: shows})
				}
			}
		}
		for _, c := range own {
			var left []string
			for line := range strings.Lines(c.text) {
				if at := elsewhereIs(b, line); at >= 0 {
					seen[at]++
				} else if strings.TrimSpace(line) != "" {
					left = append(left, line)
				}
			}
			if text := strings.Join(left, ""); text != "" {
				c.text, c.by = text, runBy(text)
				all = append(all, c)
			}
		}
	}
	return all
}

func elsewhereIs(b block, line string) int {
	for i, e := range elsewhere {
		if e.page == b.page && (e.heading == "" || e.heading == b.heading) && strings.HasPrefix(line, e.command) {
			return i
		}
	}
	return -1
}

// pageCommands are the commands of all pages, by page.
func pageCommands(t *testing.T, by runner) (pagesOf []string, of map[string][]command) {
	t.Helper()
	of = map[string][]command{}
	for _, path := range pages(t) {
		for _, c := range commandsOf(path, readFile(t, path), map[int]int{}) {
			if c.by == by {
				of[path] = append(of[path], c)
			}
		}
		if of[path] != nil {
			pagesOf = append(pagesOf, path)
		}
	}
	if len(pagesOf) == 0 {
		t.Error("no page has a command for this test")
	}
	return pagesOf, of
}

// Every command is run by a test that is there, or the reason why not is.
func TestPageCommands(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	seen, count := map[int]int{}, map[runner]int{}
	for _, path := range pages(t) {
		for _, c := range commandsOf(path, readFile(t, path), seen) {
			count[c.by] += len(shellCommands(c.text))
			all.WriteString("\n" + c.text)
		}
	}
	for command := range prints {
		if !strings.Contains(all.String(), "\n"+command) {
			t.Errorf("no page has the command %q any more; see prints", command)
		}
	}
	t.Logf("run by a shell: %v", count)
	if count[byShell] < 50 {
		t.Errorf("%d commands are found, which cannot be all", count[byShell])
	}
	for i, e := range elsewhere {
		if seen[i] == 0 || e.lines != 0 && seen[i] != e.lines {
			t.Errorf("%s has %d lines of commands %q below %q, and %q knows of %d; see elsewhere", e.page, seen[i], e.command, e.heading, e.by, max(e.lines, 1))
		}
		if e.why != "" {
			t.Logf("not run: %s: %s: %s", e.page, e.command, e.why)
		} else if dir, name, _ := strings.Cut(e.by, " "); !hasTest(t, dir, name) {
			t.Errorf("%s has no test %s, which is to run %q of %s", dir, name, e.command, e.page)
		}
	}
}

// hasTest says whether a directory has a test of that name.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(path string) bool {
		return strings.Contains(readFile(t, path), "\nfunc "+name+"(t *testing.T) {\n")
	})
}

// Commands of epdns within the text of pages are there, and have these flags.
func TestPageInline(t *testing.T) {
	t.Parallel()
	inline := regexp.MustCompile("`(epdns [a-z][^`]*)`")
	where := map[string]string{}
	for _, path := range pages(t) {
		for _, m := range inline.FindAllStringSubmatch(readFile(t, path), -1) {
			where[m[1]] = path
		}
	}
	for text, path := range where {
		words := shellCommands(text)[0]
		if last := len(words) - 1; words[last] == "--config" || words[last] == "--through" {
			words = words[:last] // the text says what follows
		}
		stdout, stderr, code := once(t, environment(), append(words[1:], "--help")...)
		if code != 0 || !regexp.MustCompile(`(?m)^  `+words[0]+" "+words[1]+"( |$)").MatchString(stdout) {
			t.Errorf("%s: %s: %s%s", path, text, stdout, stderr)
		}
	}
	if len(where) < 20 {
		t.Errorf("%d commands are found, which cannot be all", len(where))
	}
}

func TestCommandsOf(t *testing.T) {
	const page = "# A\n```sh\nls | jq .   # b\nskopeo copy a b\ncd c\n```\n```sh\nA=1 helm a\n```\n```\n$ a b\nc\n```\n```yaml\n$ d\n```\n## Install\n```sh\nkubectl apply\n```\n"
	seen := map[int]int{}
	var got []string
	for _, c := range commandsOf("deploy/README.md", page, seen) {
		got = append(got, fmt.Sprintf("%s %s %q", c.where(), c.by, c.text))
	}
	want := []string{
		`deploy/README.md:3 TestPageShell "ls | jq .   # b\ncd c"`,
		`deploy/README.md:8 TestKubePageShell "A=1 helm a"`,
		`deploy/README.md:11 TestPageShell "a b"`,
	}
	if !slices.Equal(got, want) || len(seen) != 2 {
		t.Errorf("%q, and %v elsewhere; want %q, and 2", got, seen, want)
	}
}

// TestPageShell runs what needs no cluster, each page in a network of its own: there the sample
// cluster answers where pages say that epdns does, and as the server of /etc/resolv.conf.
func TestPageShell(t *testing.T) {
	t.Parallel()
	inDesks(t, byShell)
}

// TestKubePageTools is the same with programs that take long to install.
func TestKubePageTools(t *testing.T) {
	newKube(t)
	inDesks(t, byTools)
}

func inDesks(t *testing.T, by runner) {
	t.Helper()
	order, of := pageCommands(t, by)
	for _, path := range order {
		t.Run(strings.ReplaceAll(path, "/", " "), func(t *testing.T) {
			t.Parallel()
			if !isolated(t, deskAddresses) {
				return
			}
			d := sampleDesk(t)
			for _, c := range of[path] {
				d.run(t, c)
			}
		})
	}
}

// deskAddresses are those that pages give to epdns and to the cluster's DNS.
var deskAddresses = []netip.Addr{netip.MustParseAddr("10.96.0.53"), netip.MustParseAddr("10.96.0.10")}

// sampleCluster is an API server with the sample, and what has a Pod of shop/web go or come back.
func sampleCluster(t *testing.T) (a *fakeAPI, change func(gone bool)) {
	t.Helper()
	a = newFakeAPI(t, false)
	var web *discoveryv1.EndpointSlice
	files, err := filepath.Glob("registry/manifest/sample/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sample: %v", err)
	}
	for _, path := range files {
		for _, text := range strings.Split(readFile(t, path), "\n---\n") {
			manifest, err := yaml.YAMLToJSON([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			o, err := fakeapi.Read(manifest)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			a.Apply(o)
			if slice, ok := o.(*discoveryv1.EndpointSlice); ok && slice.Labels[discoveryv1.LabelServiceName] == "web" {
				web = slice
			}
		}
	}
	if web == nil || len(web.Endpoints) < 2 {
		t.Fatal("the sample has no Service web any more")
	}
	less := web.DeepCopy()
	less.Endpoints = less.Endpoints[1:]
	return a, func(gone bool) {
		if gone {
			a.Apply(less)
		} else {
			a.Apply(web)
		}
	}
}

// desk is where a shell runs what a page shows: a directory with all that the reader has in it.
type desk struct {
	dir    string // what the test has to itself
	home   string // where commands are run, as in a checkout
	env    []string
	limit  time.Duration   // for one command
	change func(gone bool) // has a Pod of shop/web go, or come back, in the sample
}

// deskEpdns is epdns at such a desk. What goes on until it is told to end stays behind once it
// answers, as in another terminal, and ends when the next one comes for its ports. A watch ends when
// it has seen something go.
const deskEpdns = `#!/bin/bash
set -eu
case ${1-} in
serve) set -- "$@" --lameduck 0 ;; # there is nobody to wait for
demo) ;;
watch)
	: >"$DESK/watched"
	"$EPDNS" "$@" > >(tee "$DESK/watched") &
	until grep -q REMOVED "$DESK/watched"; do kill -0 $!; sleep 0.02; done
	rm "$DESK/watched"
	kill $!
	wait $!
	exit
	;;
*) exec -a "$0" "$EPDNS" "$@" ;;
esac
case " $* " in *" --reuse-port "*) ;; *) "$DESK/end" ;; esac
this=$(mktemp "$DESK/run.XXXXXX")
{
	"$EPDNS" "$@" >"$this.log" 2>&1 &
	echo $! >"$this"
	wait $! && code=0 || code=$?
	echo "$code" >"$this.status"
} </dev/null >/dev/null 2>&1 &
# It listens and has read the cluster, in either order; or it is a demo.
until grep -qs zones= "$this.log" && grep -qs msg=serving "$this.log" || grep -qs 'Ctrl-C ends it' "$this.log"; do
	if [ -e "$this.status" ]; then
		rm "$this"
		cat "$this.log" >&2
		exit 1
	fi
	sleep 0.02
done
`

// deskEnd ends what was left behind, all of which has to end well.
const deskEnd = `#!/bin/bash
set -eu
for pid in "$DESK"/run.??????; do
	[ -e "$pid" ] || continue
	kill "$(cat "$pid")" 2>/dev/null || : # the page may have done so
	until [ -s "$pid.status" ]; do sleep 0.02; done
	rm "$pid"
	if [ "$(cat "$pid.status")" != 0 ] || grep -q 'panic\|DATA RACE\|fatal error' "$pid.log"; then
		cat "$pid.log" "$pid.status" >&2
		exit 1
	fi
done
`

// deskGo is go at a desk without a cluster, where TestMain has built the one program that is asked for.
const deskGo = `#!/bin/bash
set -eu
case "$*" in
"build -o build/epdns ./cmd/epdns") ;;
"run ./cmd/epdns "*)
	shift 2
	exec epdns "$@"
	;;
*)
	echo "nobody has prepared: go $*" >&2
	exit 1
	;;
esac
`

// deskEnter goes to the desk, for one command: /etc/resolv.conf is ours there, and so are the
// directories of the system into which a page writes.
const deskEnter = `set -eu
[ ! -e "$DESK/resolv.conf" ] || mount --bind "$DESK/resolv.conf" /etc/resolv.conf
for dir in $1; do mount -t tmpfs none "$dir"; done
cd "$DESK/home"
exec bash -eu -o pipefail -c "$2"
`

// deskDirs are those directories.
var deskDirs = []string{"/run", "/usr/local/bin", "/var/lib"}

// sampleDesk is a desk whose cluster is the sample.
func sampleDesk(t *testing.T) *desk {
	t.Helper()
	api, change := sampleCluster(t)
	d := newDesk(t, api.kubeconfig)
	d.change = change
	d.file(t, "bin/go", deskGo)
	d.file(t, "resolv.conf", "nameserver 10.96.0.53\nsearch shop.registry.local registry.local\noptions ndots:5\n")
	return d
}

// newDesk makes a desk for the cluster of a kubeconfig.
func newDesk(t *testing.T, kubeconfig string) *desk {
	t.Helper()
	dir := t.TempDir()
	d := &desk{dir: dir, home: filepath.Join(dir, "home"), limit: 3 * grace}
	for name, text := range map[string]string{
		"bin/epdns": deskEpdns, "end": deskEnd,
		// What pages say that the reader has.
		"home/epdns.yaml": "apiVersion: epdns/v1alpha1\nkind: Config\n",
		// A page that is not there is an error, which it is not for curl by itself.
		"home/.curlrc": "fail\n",
	} {
		d.file(t, name, text)
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	links := map[string]string{"build/epdns": filepath.Join(dir, "bin/epdns"), "FILE": kubeconfig}
	for _, name := range []string{"cmd", "deploy", "docs", "go.mod", "Makefile", "registry", "test", "testdata"} {
		links[name] = filepath.Join(root, name)
	}
	for _, name := range []string{"DIR", "manifests", "sample"} {
		links[name] = filepath.Join(root, "registry/manifest/sample")
	}
	for name, to := range links {
		path := filepath.Join(d.home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(to, path)); err != nil {
			t.Fatal(err)
		}
	}
	own := environment("DESK="+dir, "EPDNS="+epdns, "HOME="+d.home, "KUBECONFIG="+kubeconfig, "LC_ALL=C.UTF-8",
		"PATH="+filepath.Join(dir, "bin")+":"+filepath.Join(d.home, ".local/bin")+":/usr/local/bin:"+os.Getenv("PATH"))
	// What a make that runs the tests was told is not for one that they run.
	d.env = slices.DeleteFunc(own, func(v string) bool { return strings.HasPrefix(v, "MAKE") || strings.HasPrefix(v, "MFLAGS=") })
	t.Cleanup(func() {
		if out, err := d.sh(context.Background(), "", `"$DESK/end"`); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	return d
}

func (d *desk) file(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(d.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
}

// sh runs a piece of shell at the desk, with directories of the system that are its own.
func (d *desk) sh(ctx context.Context, dirs, text string) (stdout string, err error) {
	// All that the shell has started ends with it, even where the test does not live to see it.
	argv := []string{"timeout", "--signal=KILL", fmt.Sprint(d.limit.Seconds()), "unshare", "--mount"}
	if os.Geteuid() != 0 {
		argv = append(argv, "--map-root-user")
	}
	argv = append(argv, "bash", "-c", deskEnter, "bash", dirs, text)
	began := time.Now()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.WaitDelay = d.env, grace
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%w after %v\n%s%s", err, time.Since(began).Round(time.Second), &out, &errs)
	}
	return out.String(), nil
}

// places are words of pages that stand for what the reader has, other than files.
var places = map[string]string{"--context NAME": "--context fake", "NAME": "web.shop.registry.local", "REPLICA": "127.0.0.1"}

var place = regexp.MustCompile(`(--context )?\bNAME\b|\bREPLICA\b`)

var (
	// serves is a command that answers questions by itself.
	serves = regexp.MustCompile(`(?m)(^|/| )(epdns|make) (serve|demo|run)\b|^go run ./cmd/epdns serve`)
	// quiet are commands that print nothing where all is well.
	quiet = regexp.MustCompile(`^((epdns|go run ./cmd/epdns) serve|make run|go build|cd|dnsviz|export|kill|ln|mkdir|epdns\(\)|#.*)( |$)|[^-=]> *[^ &]+( *&)?( +#.*)?$`)
	// background is one that the shell does not wait for.
	background = regexp.MustCompile(`[^&]&( +#.*)?$`)
)

// before is what has happened where a page's commands are typed.
var before = map[string]string{
	"docs/clients/haproxy.md": `mkdir /run/haproxy
printf '%s\n' global ' stats socket /run/haproxy/admin.sock level admin' defaults ' timeout connect 1s' ' timeout client 1s' ' timeout server 1s' >haproxy.cfg
haproxy -D -f haproxy.cfg -f deploy/snippets/clients/haproxy.cfg
`,
}

// prints is what commands must print, at least.
var prints = map[string]string{
	"curl -s 'localhost:9153/readyz?verbose'":       "\nreadyz check passed\n",
	`curl -s "http://REPLICA:9153/readyz?verbose"`:  "\nreadyz check passed\n",
	"epdns watch shop/web -o json | jq ":            "web-",
	"curl -fs http://127.0.0.1:9154/readyz":         "ok",
	"nslookup web.shop.registry.local.":             "10.244.1.21",
	"epdns man explain | man -l -":                  "NAME",
	`echo "show resolvers epdns" | socat `:          " too_big: ",
	"zonemaster-cli ":                               "ADDRESS01",
	"kubectl -n kube-system edit configmap coredns": "configmap/coredns edited",
	"kubectl auth can-i --list ":                    "endpointslices.discovery.k8s.io",
	"kubectl -n shop get endpointslices ":           "web-",
	"epdns check --config epdns.yaml && kubectl ":   "configmap/epdns ",
}

// run runs a command of a page.
func (d *desk) run(t *testing.T, c command) {
	t.Helper()
	if err := d.try(t.Context(), c); err != nil {
		t.Errorf("%s: %s\n%v", c.where(), c.text, err)
	}
}

// deskNext stands after each line of a page: it ends the shell where the line has failed, as bash -e
// does not after "a && b", and prints deskMark.
const (
	deskNext = "(exit $?)\nprintf '\\036\\n'\n"
	deskMark = "\x1e\n"
)

// statements are the lines of a piece of shell, those together that only together are commands.
func statements(text string) (all []string) {
	begun := ""
	for line := range strings.Lines(text) {
		if begun += line; strings.TrimSpace(begun) == "" || strings.HasSuffix(begun, "\\\n") {
			continue
		}
		// It warns of a document that does not end.
		if out, err := exec.Command("bash", "-nc", begun).CombinedOutput(); err == nil && len(out) == 0 {
			all, begun = append(all, strings.TrimSpace(begun)), ""
		}
	}
	if begun = strings.TrimSpace(begun); begun != "" {
		all = append(all, begun)
	}
	return all
}

var (
	digStatus = regexp.MustCompile(`, status: \w+,`)
	digSOA    = regexp.MustCompile(`(?m)^[^;\s].*\sSOA\s`)
)

// printsWell says what is wrong with the output of a command that ended well.
func printsWell(line, out string) error {
	for command, want := range prints {
		if strings.HasPrefix(line, command) && !strings.Contains(out, want) {
			return fmt.Errorf("there is no %q", want)
		}
	}
	if strings.TrimSpace(out) == "" && !quiet.MatchString(line) {
		return errors.New("it prints nothing")
	}
	// For dig, any answer is well.
	commands := shellCommands(line)
	if len(commands) != 1 || commands[0][0] != "dig" || slices.Contains(commands[0], "+short") {
		return nil
	}
	if slices.Contains(commands[0], "AXFR") {
		if !digSOA.MatchString(out) {
			return errors.New("there is no SOA record")
		}
		return nil
	}
	answers := digStatus.FindAllString(out, -1)
	if len(answers) == 0 || strings.Contains(out, ", ANSWER: 0,") || slices.ContainsFunc(answers, func(s string) bool { return s != ", status: NOERROR," }) {
		return errors.New("there is no record for a question")
	}
	return nil
}

// try runs a command beside an epdns that answers, unless the command is to do so, and says what is
// wrong with it.
func (d *desk) try(ctx context.Context, c command) error {
	if d.change != nil {
		if !serves.MatchString(c.text) || strings.Contains(c.text, "--reuse-port") {
			const serve = `"$DESK/end"; epdns serve --reuse-port --reverse 10.244.0.0/16 --listen 127.0.0.1:5300 --listen 10.96.0.53:53 --listen 10.96.0.10:53`
			if _, err := d.sh(ctx, "", serve); err != nil {
				return err
			}
		}
		defer d.changes(ctx)()
	}
	var dirs []string
	for _, dir := range deskDirs {
		if strings.Contains(before[c.page]+c.text, dir+"/") {
			dirs = append(dirs, dir)
		}
	}
	// A page may speak of the process that answers already.
	text := `OLD=$(cat "$DESK"/run.?????? 2>/dev/null) || :` + "\n" + before[c.page] + deskNext
	lines := statements(c.text)
	for _, line := range lines {
		text += place.ReplaceAllStringFunc(line, func(word string) string { return places[word] }) + "\n"
		if background.MatchString(line) {
			text += "wait $!\n" // at a desk it ends
		}
		text += deskNext
	}
	out, err := d.sh(ctx, strings.Join(dirs, " "), text)
	if err != nil {
		return err
	}
	printed := strings.Split(out, deskMark)
	if len(printed) != len(lines)+2 {
		return fmt.Errorf("it ends early, or prints what is to tell its lines apart:\n%q", out)
	}
	for i, line := range lines {
		if err := printsWell(line, printed[i+1]); err != nil {
			return fmt.Errorf("%s: %w, in:\n%s", line, err, printed[i+1])
		}
	}
	out = strings.Join(printed[1:], "")
	if strings.HasPrefix(c.text, "epdns lookup ") && c.shows != nil {
		if err := matchLines(c.shows, strings.Split(strings.TrimRight(out, "\n"), "\n"), ""); err != nil {
			return fmt.Errorf("%w, in:\n%s", err, out)
		}
	}
	return nil
}

// A desk tells what is wrong with a command.
func TestDesk(t *testing.T) {
	t.Parallel()
	if !isolated(t, deskAddresses) {
		return
	}
	d := sampleDesk(t)
	shown := []string{"10.244.1.41"}
	for _, c := range []struct {
		text  string
		shows []string
		wrong string // a part of the error; empty is none
	}{
		{text: "true", wrong: "it prints nothing"},
		{text: "echo a\ntrue", wrong: "true: it prints nothing"},
		{text: "echo a\nfalse && true\necho b", wrong: "exit status 1"},
		{text: "exit", wrong: "it ends early"},
		{text: "# a\nif true; then\n\techo a\nfi\n\ncat <<END\nb\n\nEND\necho \\\nc"},
		{text: "if true; then\n\ttrue\nfi", wrong: "it prints nothing"},
		{text: "false | cat; echo a", wrong: "exit status 1"},
		{text: `kill "$NOBODY"`, wrong: "NOBODY: unbound variable"},
		{text: "openssl rand --hexx 16 >secret", wrong: "hexx"},
		{text: "jq . secrets.json", wrong: "secrets.json"},
		{text: "epdns explian web.shop", wrong: "do you mean explain?"},
		{text: "epdns explain web.shop.registry.local --fromm 10.244.1.21", wrong: "do you mean --from?"},
		{text: "epdns serve --zone .", wrong: "the root"},
		{text: "epdns serve &   # here"},
		{text: "epdns serve --flagg &   # here", wrong: "--flagg"},
		{text: `epdns() { go run ./cmd/epdns "$@" --config epdns.yaml; }` + "\nepdns serve --flagg &\necho a", wrong: "--flagg"},
		{text: "go run ./cmd/epdsn serve", wrong: "nobody has prepared: go run ./cmd/epdsn serve"},
		{text: "make runs", wrong: "No rule to make target"},
		{text: "epdns watch shop/web -o json | jq -r 'select(.type == \"GONE\") | .pod'", wrong: `no "web-"`},
		{text: "epdns watch shop/web -o json | jq -r .pod"},
		{text: "epdns watch shop/web -o json | jq -r 'select(.type == \"REMOVED\") | .namespace'", wrong: `no "web-"`},
		{text: "dig @127.0.0.1 -p 5301 +tries=1 web.shop.registry.local", wrong: "connection refused"},
		{text: "dig @10.96.0.53 web.shop.registry.local"},
		{text: "dig @10.96.0.53 web.shop.registry.local AAAAA", wrong: "no record for a question"},
		{text: "dig @10.96.0.53 web.shop.registry.local CNAME", wrong: "no record for a question"},
		{text: "dig @10.96.0.53 wbe.shop.registry.local\necho a", wrong: "NXDOMAIN"},
		{text: "dig @10.96.0.53 web.shop.regstry.local", wrong: "REFUSED"},
		{text: "dig @10.96.0.53 +short wbe.shop.registry.local", wrong: "it prints nothing"},
		{text: "dig @10.96.0.53 regstry.local AXFR", wrong: "no SOA record"},
		{text: "curl -s http://127.0.0.1:9153/ready", wrong: "exit status 22"},
		{text: "epdns lookup jobs.shop.registry.local --short", shows: shown},
		{text: "epdns lookup billing.shop.registry.local CNAME --short", shows: shown, wrong: `is not "10.244.1.41"`},
	} {
		err := d.try(t.Context(), command{text: c.text, shows: c.shows})
		if (err == nil) != (c.wrong == "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%s: %v, want %q", c.text, err, c.wrong)
		}
	}

	// What holds its output open has ended as well, where this does not wait for it.
	short := *d
	short.limit = time.Second
	began := time.Now()
	if _, err := short.sh(t.Context(), "", "sleep 1000 & sleep 1000"); err == nil || time.Since(began) > grace/2 {
		t.Errorf("after a second and %v: %v", time.Since(began), err)
	}
}

// changes has the cluster change for as long as a watch looks, until the function that it returns is
// called.
func (d *desk) changes(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		gone := false
		for tick := time.Tick(50 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				return
			case <-tick:
				if watched := exists(filepath.Join(d.dir, "watched")); watched || gone {
					gone = watched && !gone
					d.change(gone)
				}
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}
