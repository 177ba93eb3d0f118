package epdns_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every command that a page shows is run, or at least read by the program that it is for.
// What is run with its output compared is in docs_test.go; here is the rest.

// pagePrograms are the programs in blocks of shell, and what is done about each. One that is not
// here fails the test.
var pagePrograms = map[string]struct {
	check func(c *pageCheck, words []string) error
	why   string // where there is no check
}{
	"epdns":   {check: (*pageCheck).epdns},   // run, with stand-ins for what a page's reader has
	"kubectl": {check: (*pageCheck).kubectl}, // TestKubePageCommands looks at the flags; the quick start's are run
	"helm":    {check: (*pageCheck).later},   // the same
	"go":      {check: (*pageCheck).goTool},  // the package is there; of epdns, as above. Those of test/ take minutes
	"make":    {check: (*pageCheck).target},  // the target is there, for the same reason
	"cd":      {check: (*pageCheck).changeDir},
	"dig":     {check: (*pageCheck).dig},  // run against a sample cluster, whatever its server and port are
	"curl":    {check: (*pageCheck).curl}, // likewise, without curl

	"zonemaster-cli": {why: "run as it is by test/audit"},
	"dnsviz":         {why: "run as it is by test/audit"},
	"unshare":        {why: "run as it is by test/clients, with what stands below it"},
	"nslookup":       {why: "asked from a Pod's resolv.conf by test/deploy"},
	"kill":           {why: "of the system; its signals are those of reload_test.go and lameduck_test.go"},
	"openssl":        {why: "of the system; makes a secret, whose form config_test.go knows"},
	"jq":             {why: "of the system; reads JSON, whose fields watch_test.go knows"},
	"socat":          {why: "of the system; asks HAProxy"},
	"skopeo":         {why: "of the system; takes the image to a registry that nobody else has"},
	"man":            {why: "of the system; reads what epdns man prints"},
	"command":        {why: "of the shell"},
	"echo":           {why: "of the shell"},
	"grep":           {why: "of the system"},
	"ip":             {why: "of the system"},
	"ln":             {why: "of the system"},
	"mkdir":          {why: "of the system"},
	"mktemp":         {why: "of the system"},
	"mount":          {why: "of the system"},
	"printf":         {why: "of the shell"},
	"sed":            {why: "of the system"},
	"source":         {why: "of the shell"},
}

// pageCheck checks the commands of one block.
type pageCheck struct {
	t        *testing.T
	dir      string // where cd has led to
	compared bool   // TestPages runs the page and compares its output
	asks     func() *program
	seen     map[string]bool // commands of epdns that were looked at, of all blocks
}

// pages are all that people read.
func pages(t *testing.T) (all []string) {
	t.Helper()
	all = []string{"README.md"}
	for _, dir := range []string{"docs", "deploy"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && filepath.Ext(path) == ".md" {
				all = append(all, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// commandsIn are the commands of a block, each with where it stands.
func commandsIn(b block) (out []shownCommand) {
	switch b.language {
	case "sh", "bash", "shell":
		text := strings.Join(b.lines, "\n")
		// Of a function, each use is checked as one of what it stands for.
		for _, words := range shellCommands(text) {
			out = append(out, shownCommand{b.where(0), words})
		}
	case "console", "", "text":
		for i := 0; i < len(b.lines); i++ {
			line, ok := strings.CutPrefix(b.lines[i], "$ ")
			at := i
			for ok && strings.HasSuffix(line, `\`) && i+1 < len(b.lines) {
				i++
				line += "\n" + b.lines[i]
			}
			if !ok {
				continue
			}
			for _, words := range shellCommands(line) {
				out = append(out, shownCommand{b.where(at), words})
			}
		}
	}
	return out
}

type shownCommand struct {
	where string
	words []string
}

func TestPageCommands(t *testing.T) {
	t.Parallel()
	var sample *program
	asks := func() *program {
		if sample == nil {
			sample = serve(t, "--manifests", "registry/manifest/sample", "--reverse", "10.244.0.0/16")
		}
		return sample
	}
	count, unchecked, seen := 0, map[string]int{}, map[string]bool{}
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "#the-examples)") {
			continue // run by test/clients, whole and with its output
		}
		for _, b := range blocks(page, string(text)) {
			if b.language == "console" && strings.Contains(string(text), "](README.md#the-examples)") {
				continue // run as they are by test/clients
			}
			c := &pageCheck{t: t, compared: pageCommand.Match(text), asks: asks, seen: seen}
			for _, cmd := range commandsIn(b) {
				program := filepath.Base(cmd.words[0])
				known, ok := pagePrograms[program]
				count++
				switch {
				case !ok:
					t.Errorf("%s: %q: nothing here knows %s; see pagePrograms", cmd.where, cmd.words, program)
				case known.check == nil:
					unchecked[program]++
				default:
					if err := known.check(c, cmd.words[1:]); err != nil {
						t.Errorf("%s: %q: %v", cmd.where, cmd.words, err)
					}
				}
				if err := c.filesExist(cmd.words[1:]); err != nil {
					t.Errorf("%s: %q: %v", cmd.where, cmd.words, err)
				}
			}
		}
	}
	t.Logf("%d commands; not looked into: %v", count, unchecked)
	if count < 100 {
		t.Errorf("%d commands are found, which cannot be all", count)
	}
}

// withHelp are the words up to what is for another program, and a flag that has the command look
// at its flags and do nothing.
func withHelp(words []string) []string {
	if at := slices.Index(words, "--"); at >= 0 {
		words = words[:at]
	}
	return append(slices.Clone(words), "--help")
}

// kubectl leaves to TestKubePageCommands what is not its plugin.
func (c *pageCheck) kubectl(words []string) error {
	if len(words) > 0 && words[0] == "epdns" {
		return c.epdns(words[1:])
	}
	return nil
}

func (c *pageCheck) later([]string) error { return nil }

// goTool looks at packages.
func (c *pageCheck) goTool(words []string) error {
	if len(words) == 0 {
		return errors.New("what?")
	}
	takesNext := map[string]bool{"-o": true, "-run": true, "-bench": true, "-count": true, "-ldflags": true, "-fuzz": true, "-fuzztime": true, "-tags": true, "-timeout": true}
	for i := 1; i < len(words); i++ {
		word := words[i]
		if takesNext[word] {
			i++
			continue
		}
		path, ok := strings.CutPrefix(word, "./")
		if !ok {
			continue
		}
		if path = strings.TrimSuffix(path, "..."); !exists(filepath.Join(c.dir, path)) {
			return fmt.Errorf("there is no package %s in %q", word, c.dir)
		}
		if words[0] == "run" {
			if path == "cmd/epdns" && c.dir == "" {
				return c.epdns(words[i+1:])
			}
			return nil // flags of its own
		}
	}
	return nil
}

var makeTarget = regexp.MustCompile(`(?m)^([a-z][-a-z0-9]*):`)

func (c *pageCheck) target(words []string) error {
	text, err := os.ReadFile(filepath.Join(c.dir, "Makefile"))
	if err != nil {
		return err
	}
	for _, word := range words {
		is := func(m [][]byte) bool { return string(m[1]) == word }
		if !isAssignment(word) && !strings.HasPrefix(word, "-") && !slices.ContainsFunc(makeTarget.FindAllSubmatch(text, -1), is) {
			return fmt.Errorf("there is no target %s", word)
		}
	}
	return nil
}

func (c *pageCheck) changeDir(words []string) error {
	if len(words) != 1 {
		return errors.New("where to?")
	}
	below := filepath.Join(c.dir, words[0])
	if !exists(below) {
		below = words[0] // each line may be meant for who begins at the top
	}
	c.dir = below
	if !exists(below) {
		return fmt.Errorf("there is no directory %s", below)
	}
	return nil
}

// dig asks the sample cluster: whatever the question, there is a reply.
func (c *pageCheck) dig(words []string) error {
	server := c.asks().dns
	args := []string{"-r", fmt.Sprintf("@%v", server.Addr()), "-p", fmt.Sprint(server.Port()), "+tries=1", "+time=5"}
	for i := 0; i < len(words); i++ {
		switch word := words[i]; {
		case word == "-p" || word == "-y": // a port, a key
			i++
		case strings.HasPrefix(word, "@"), strings.HasPrefix(word, "+tls"):
		default:
			args = append(args, word)
		}
	}
	out, err := exec.CommandContext(c.t.Context(), tool(c.t, "dig"), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// curl gets the path from a server with a sample cluster.
func (c *pageCheck) curl(words []string) error {
	for _, word := range words {
		_, path, ok := strings.Cut(strings.TrimPrefix(word, "http://"), "/")
		if !ok || strings.HasPrefix(word, "-") {
			continue
		}
		if code, body := c.asks().get(c.t, "/"+path); code != http.StatusOK {
			return fmt.Errorf("%d %.200s", code, body)
		}
		return nil
	}
	return errors.New("which page?")
}

// ours are the directories that a page may name files of.
var ours = regexp.MustCompile(`^(\./|(\.\./)+)?(cmd|deploy|docs|registry|test|testdata|zones)/[-\w./]+$`)

// filesExist says whether files of this repository that a command names are there.
func (c *pageCheck) filesExist(words []string) error {
	for _, word := range words {
		if _, value, ok := strings.Cut(word, "="); ok {
			word = value
		}
		if path := filepath.Join(c.dir, word); ours.MatchString(word) && !exists(path) {
			return fmt.Errorf("there is no %s", path)
		}
	}
	return nil
}

// Blocks of YAML that are a configuration, or a part of one, can be used.
func TestPageConfigurations(t *testing.T) {
	t.Parallel()
	count := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(page, string(text)) {
			config := configOf(t, b)
			if config == "" {
				continue
			}
			count++
			path := filepath.Join(t.TempDir(), "epdns.yaml")
			if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
				t.Fatal(err)
			}
			if stdout, stderr, code := once(t, environment(), "check", "--config", path, "--manifests", "registry/manifest/sample"); code != 0 {
				t.Errorf("%s: exit status %d\n%s%s", b.where(0), code, stdout, stderr)
			}
		}
	}
	if count < 10 {
		t.Errorf("%d blocks of configuration are found, which cannot be all", count)
	}
}

// configOf is the file that a block stands for, or nothing.
func configOf(t *testing.T, b block) string {
	t.Helper()
	if b.language != "yaml" {
		return ""
	}
	text := strings.Join(b.lines, "\n") + "\n"
	if strings.HasPrefix(text, "apiVersion: epdns/") {
		return text
	}
	for _, line := range b.lines {
		key, _, _ := strings.Cut(line, ":")
		if slices.Contains(configKeys(t), key) {
			return "apiVersion: epdns/v1alpha1\nkind: Config\n" + text
		}
	}
	return ""
}

// configKeys are the top keys of a configuration that no object of Kubernetes has.
func configKeys(t *testing.T) (keys []string) {
	t.Helper()
	reference, err := os.ReadFile("cmd/epdns/reference.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^([a-zA-Z]+):`).FindAllSubmatch(reference, -1) {
		if key := string(m[1]); key != "apiVersion" && key != "kind" {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestKubePageCommands has kubectl and helm look at the flags of all their commands on pages.
func TestKubePageCommands(t *testing.T) {
	newKube(t)
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(page, string(text)) {
			for _, cmd := range commandsIn(b) {
				path, ok := clusterTools[cmd.words[0]]
				if !ok || len(cmd.words) > 1 && cmd.words[1] == "epdns" {
					continue
				}
				if out, err := exec.CommandContext(t.Context(), os.Getenv(path), withHelp(cmd.words[1:])...).CombinedOutput(); err != nil {
					t.Errorf("%s: %q: %v\n%s", cmd.where, cmd.words, err, out)
				}
			}
		}
	}
}

// TestKubePageCorefiles has a CoreDNS start with each Corefile on pages, in a network of its own.
func TestKubePageCorefiles(t *testing.T) {
	newKube(t)
	if !isolated(t, nil) {
		return
	}
	count := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(page, string(text)) {
			corefile := strings.Join(b.lines, "\n") + "\n"
			if !strings.Contains(corefile, ":53 {\n") {
				continue
			}
			count++
			path := filepath.Join(t.TempDir(), "Corefile")
			if err := os.WriteFile(path, []byte(corefile), 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), grace)
			cmd := exec.CommandContext(ctx, os.Getenv(clusterTools["coredns"]), "-conf", path)
			var out output
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			eventually(t, func() error {
				if strings.Contains(out.String(), "\nCoreDNS-") { // it has started
					return nil
				}
				select {
				case err := <-ended:
					t.Fatalf("%s: %v\n%v", b.where(0), err, &out)
				default:
				}
				return fmt.Errorf("%s: CoreDNS says %v", b.where(0), &out)
			})
			cancel()
			<-ended
		}
	}
	if count == 0 {
		t.Error("no Corefile is found")
	}
}

// clusterTools are the variables that "make e2e" sets to the paths of programs.
var clusterTools = map[string]string{"kubectl": "EPDNS_TEST_KUBECTL", "helm": "EPDNS_TEST_HELM", "coredns": "EPDNS_TEST_COREDNS"}

// TestKubePageObjects has the API server look at the objects of Kubernetes on pages that have a
// spec; others are parts of one.
func TestKubePageObjects(t *testing.T) {
	k := newKube(t)
	count := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(page, string(text)) {
			object := strings.Join(b.lines, "\n")
			if b.language != "yaml" || !pageObject.MatchString(object) || notInCluster.MatchString(object) || !strings.Contains(object, "\nspec:") {
				continue
			}
			count++
			cmd := exec.CommandContext(t.Context(), os.Getenv(clusterTools["kubectl"]), "apply", "--dry-run=server", "-f", "-")
			cmd.Stdin = strings.NewReader(regexp.MustCompile(`(?m)^(  namespace: ).*$`).ReplaceAllString(object, "${1}default"))
			cmd.Env = environment("KUBECONFIG=" + k.config)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", b.where(0), err, out)
			}
		}
	}
	if count == 0 {
		t.Error("no object is found")
	}
}

var (
	pageObject = regexp.MustCompile(`(?m)^apiVersion: .*\nkind: |^kind: .*\napiVersion: `)
	// Of these, the plain API server knows nothing.
	notInCluster = regexp.MustCompile(`(?m)^apiVersion: (epdns|kustomize\.config\.k8s\.io|monitoring\.coreos\.com)/`)
)
