package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// This file makes the manual pages of what the program says of itself: a page for each
// command, and one for the configuration file. They are in the macros of man(7), which every
// man reads.

func newMan() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "man [PAGE]",
		Short: "Print a manual page, or write all of them",
		Long: `Print a manual page, in the form that man reads: of a command, of epdns itself, or
epdns.yaml, which is the configuration file. With --dir, all pages are written below a
directory such as /usr/local/share/man.`,
		Example: `  epdns man explain | man -l -
  epdns man --dir ~/.local/share/man   # then: man epdns-explain`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return withPrefix(pageNames(manPages(cmd.Root())), typed), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := notEmpty(cmd, "dir"); err != nil {
				return err
			}
			pages := manPages(cmd.Root())
			if dir != "" {
				if len(args) > 0 {
					return usagef("--dir writes all pages, and not %q alone", args[0])
				}
				return writePages(dir, pages)
			}
			name := ownName
			if len(args) > 0 {
				name = args[0]
			}
			at := slices.IndexFunc(pages, func(p manPage) bool { return p.name == name || p.name == ownName+"-"+name })
			if at < 0 {
				names := pageNames(pages)
				return usagef("there is no page %q%s; there are %s", name, meant("", name, names), strings.Join(names, ", "))
			}
			_, err := cmd.OutOrStdout().Write(pages[at].text)
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write all pages to man1 and man5 below this directory")
	if err := cmd.MarkFlagDirname("dir"); err != nil {
		panic("epdns: " + err.Error())
	}
	return cmd
}

// manPage is one page.
type manPage struct {
	name    string
	section int
	text    []byte
}

func pageNames(pages []manPage) (names []string) {
	for _, p := range pages {
		names = append(names, strings.TrimPrefix(p.name, ownName+"-"))
	}
	return names
}

func writePages(dir string, pages []manPage) error {
	for _, p := range pages {
		path := filepath.Join(dir, fmt.Sprintf("man%d", p.section), fmt.Sprintf("%s.%d", p.name, p.section))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("write manual pages: %w", err)
		}
		if err := os.WriteFile(path, p.text, 0o644); err != nil {
			return fmt.Errorf("write manual pages: %w", err)
		}
	}
	return nil
}

// manPages are all pages.
func manPages(root *cobra.Command) (pages []manPage) {
	pages = append(pages, manPage{ownName, 1, rootPage(root)})
	for _, c := range manCommands(root) {
		pages = append(pages, manPage{ownName + "-" + c.Name(), 1, commandPage(c)})
	}
	return append(pages, manPage{"epdns.yaml", 5, filePage()})
}

// manCommands are those that have a page.
func manCommands(root *cobra.Command) (all []*cobra.Command) {
	for _, c := range root.Commands() {
		if !c.Hidden && c.Name() != "help" {
			all = append(all, c)
		}
	}
	return all
}

// roff is a page that is being written.
type roff struct{ bytes.Buffer }

func newRoff(name string, section int, what string) *roff {
	r := &roff{}
	fmt.Fprintf(r, ".TH %s %d %s %s %s\n", quoted(strings.ToUpper(name)), section, `"`+manDate()+`"`,
		quoted("epdns "+readBuildInfo().Version), quoted("epdns"))
	fmt.Fprintf(r, ".SH NAME\n%s \\- %s\n", escaped(name), escaped(what))
	return r
}

// manDate is when the program was made, or what SOURCE_DATE_EPOCH says
// (https://reproducible-builds.org/specs/source-date-epoch/).
func manDate() string {
	if seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		return time.Unix(seconds, 0).UTC().Format(time.DateOnly)
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.time" && len(s.Value) >= len(time.DateOnly) {
				return s.Value[:len(time.DateOnly)]
			}
		}
	}
	return ""
}

// escaped is a text that stands for itself. A dash is one that can be copied to a shell.
func escaped(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "…", "...").Replace(text)
}

// quoted is an argument of a macro.
func quoted(text string) string {
	return `"` + strings.ReplaceAll(escaped(text), `"`, `\(dq`) + `"`
}

// line adds a line of text, which is no macro whatever it begins with.
func (r *roff) line(text string) {
	text = escaped(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, `\(aq`) {
		text = `\&` + text
	}
	r.WriteString(text)
	r.WriteByte('\n')
}

func (r *roff) section(title string) { fmt.Fprintf(r, ".SH %s\n", title) }

// paragraphs adds a text in which blank lines part paragraphs, and lines that are indented
// stay as they are.
func (r *roff) paragraphs(text string) {
	fresh := true // where a paragraph would begin
	literal := false
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		if strings.TrimSpace(line) == "" {
			if literal {
				r.WriteString(".fi\n.RE\n")
				literal = false
			}
			if !fresh {
				r.WriteString(".PP\n")
				fresh = true
			}
			continue
		}
		if indented := strings.HasPrefix(line, "  "); indented && !literal {
			r.WriteString(".RS 4\n.nf\n")
			literal = true
		} else if !indented && literal {
			r.WriteString(".fi\n.RE\n")
			literal = false
		}
		if literal {
			line = strings.TrimPrefix(line, "  ")
		}
		r.line(line)
		fresh = false
	}
	if literal {
		r.WriteString(".fi\n.RE\n")
	}
}

// example adds lines as they are.
func (r *roff) example(text string) {
	r.WriteString(".nf\n")
	for line := range strings.SplitSeq(text, "\n") {
		r.line(strings.TrimPrefix(line, "  "))
	}
	r.WriteString(".fi\n")
}

// item adds what something is, behind its name in bold.
func (r *roff) item(name string, meaning ...string) {
	fmt.Fprintf(r, ".TP\n\\fB%s\\fR\n", escaped(name))
	for _, line := range meaning {
		if line = strings.TrimSpace(line); line != "" {
			r.line(line)
		}
	}
}

func (r *roff) flags(cmd *cobra.Command) {
	cmd.InitDefaultHelpFlag()
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name := `\fB` + escaped("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			name = `\fB` + escaped("-"+f.Shorthand) + `\fR, ` + name
		}
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			name += ` \fI` + escaped(manValue(value)) + `\fR`
		}
		fmt.Fprintf(r, ".TP\n%s\n", name)
		r.line(strings.ToUpper(usage[:1]) + usage[1:] + ".")
		if d := f.DefValue; value != "" && d != "" && d != "[]" && !strings.Contains(usage, "(default") {
			r.line("The default is " + strings.Trim(d, "[]") + ".")
		}
	})
}

// manValue is what stands for a flag's value.
func manValue(kind string) string {
	return strings.ToUpper(strings.TrimSuffix(kind, "Array"))
}

func (r *roff) exitStatus() {
	r.section("EXIT STATUS")
	r.item("0", "All went well, also if it was ended by SIGTERM or Ctrl-C.")
	r.item("1", "A file, the network or a right is not as it should be, or something was found that is not.")
	r.item("2", "The arguments are wrong.")
	r.item("141", "Who read the output has gone.")
}

func (r *roff) seeAlso(pages ...string) {
	r.section(`"SEE ALSO"`)
	for i, p := range pages {
		end := ","
		if i == len(pages)-1 {
			end = ""
		}
		name, section, _ := strings.Cut(strings.TrimSuffix(p, ")"), "(")
		fmt.Fprintf(r, ".BR %s (%s)%s\n", escaped(name), section, end)
	}
}

func rootPage(root *cobra.Command) []byte {
	r := newRoff(ownName, 1, root.Short)
	r.section("SYNOPSIS")
	fmt.Fprintf(r, "\\fBepdns\\fR \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]\n")
	r.section("DESCRIPTION")
	r.paragraphs(root.Long)
	r.WriteString(".PP\n")
	r.line("Installed as kubectl-epdns in a directory of PATH, it is a plugin of kubectl: kubectl epdns explain web -n shop.")
	r.section("COMMANDS")
	pages := []string{"epdns.yaml(5)"}
	for _, c := range manCommands(root) {
		r.item(ownName+"-"+c.Name()+"(1)", c.Short+".")
		pages = append(pages, ownName+"-"+c.Name()+"(1)")
	}
	r.section("ENVIRONMENT")
	r.item("KUBECONFIG", "The kubeconfigs of kubectl, used where neither --kubeconfig nor a pod's service account says which cluster is meant.")
	r.item("NO_COLOR", "If it is not empty, there are no colours, unless --color=always is given.")
	r.item("GOGC, GOMEMLIMIT, GOMAXPROCS", "As for every program in Go; they beat what serve finds out for itself.")
	r.section("SIGNALS")
	r.line("These are for serve.")
	r.item("SIGTERM, SIGINT", "Go on answering for as long as --lameduck says, then end. A second one ends at once.")
	r.item("SIGHUP", "Read the configuration file and the secrets again.")
	r.item("SIGUSR1", "Write what the program does to standard error.")
	r.exitStatus()
	r.seeAlso(append(pages, "kubectl(1)", "dig(1)")...)
	return r.Bytes()
}

func commandPage(c *cobra.Command) []byte {
	r := newRoff(ownName+"-"+c.Name(), 1, strings.ToLower(c.Short[:1])+c.Short[1:])
	r.section("SYNOPSIS")
	use := strings.TrimPrefix(c.Use, c.Name())
	fmt.Fprintf(r, "\\fBepdns %s\\fR%s [\\fIFLAGS\\fR]\n", escaped(c.Name()), escaped(use))
	r.section("DESCRIPTION")
	long := c.Long
	if long == "" {
		long = c.Short + "."
	}
	r.paragraphs(long)
	r.section("OPTIONS")
	r.flags(c)
	if c.Example != "" {
		r.section("EXAMPLES")
		r.example(c.Example)
	}
	r.exitStatus()
	pages := []string{"epdns(1)"}
	if c.Flags().Lookup("config") != nil {
		pages = append(pages, "epdns.yaml(5)")
	}
	r.seeAlso(pages...)
	return r.Bytes()
}

// filePage is the page of the configuration file, made of the reference.
func filePage() []byte {
	r := newRoff("epdns.yaml", 5, "configuration file of epdns")
	r.section("SYNOPSIS")
	r.line("epdns serve --config epdns.yaml")
	r.section("DESCRIPTION")
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(reference), &doc); err != nil {
		panic("epdns: the reference is no YAML: " + err.Error())
	}
	intro, first, _ := strings.Cut(reference, "\napiVersion:")
	intro = uncommented(intro)
	if at := strings.LastIndex(intro, "\n\n"); at > 0 { // what stands there is about the first key
		intro, first = intro[:at], intro[at+2:]
	}
	r.paragraphs(intro)
	r.WriteString(".PP\n")
	r.line("epdns serve --config-reference prints such a file with all keys. epdns check --config FILE says what is wrong with one.")
	r.section("KEYS")
	r.keys("", doc.Content[0], first)
	r.section("EXAMPLES")
	r.example("apiVersion: epdns/v1alpha1\nkind: Config\nlisten: [\":53\"]\nzones:\n- name: registry.local\n  defaults: {ttl: 2s, topology: nearest}\nstateDir: /var/lib/epdns")
	r.seeAlso("epdns(1)", "epdns-serve(1)", "epdns-check(1)")
	return r.Bytes()
}

// keys adds the keys of a mapping and of what is below. first is what is said of the first
// one, if it is not said there.
func (r *roff) keys(prefix string, m *yaml.Node, first string) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		key, value := m.Content[i], m.Content[i+1]
		name := prefix + key.Value
		comment := uncommented(key.HeadComment)
		if i == 0 && first != "" {
			comment = first
		} else if comment == "" {
			comment = uncommented(m.HeadComment)
		}
		lines := strings.Split(comment, "\n")
		below := value
		if value.Kind == yaml.SequenceNode && len(value.Content) > 0 && value.Content[0].Kind == yaml.MappingNode {
			name, below = name+"[]", value.Content[0]
		}
		if below.Kind == yaml.MappingNode && len(below.Content) > 0 {
			r.item(name, lines...)
			r.keys(name+".", below, uncommented(below.HeadComment))
			continue
		}
		text, err := yaml.Marshal(value)
		if err != nil {
			panic("epdns: the reference: " + err.Error())
		}
		r.item(name, append(lines, "The default is "+strings.TrimSpace(string(text))+".")...)
	}
}

// uncommented is the text of comments.
func uncommented(text string) string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		lines = append(lines, strings.TrimPrefix(strings.TrimPrefix(strings.TrimSpace(line), "#"), " "))
	}
	return strings.TrimSpace(strings.Join(lines, "\n"))
}
