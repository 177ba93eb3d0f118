package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Each command has a page with each of its flags, and the file's page each of its keys with
// what is said of it in the reference.
func TestManPages(t *testing.T) {
	root := newRoot()
	pages := manPages(root)
	page := func(name string) string {
		t.Helper()
		at := slices.IndexFunc(pages, func(p manPage) bool { return p.name == name })
		if at < 0 {
			t.Fatalf("there is no page %s", name)
		}
		return string(pages[at].text)
	}
	for _, c := range root.Commands() {
		if c.Hidden || c.Name() == "help" {
			continue
		}
		text := page("epdns-" + c.Name())
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !strings.Contains(text, `\fB`+escaped("--"+f.Name)+`\fR`) {
				t.Errorf("epdns-%s has no --%s", c.Name(), f.Name)
			}
		})
		if !strings.Contains(page("epdns"), escaped("epdns-"+c.Name()+"(1)")) {
			t.Errorf("epdns does not name the page of %s", c.Name())
		}
	}

	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(reference), &doc); err != nil {
		t.Fatal(err)
	}
	items := regexp.MustCompile(`(?m)^\.TP\n\\fB(.*)\\fR\n(.*)`).FindAllStringSubmatch(page("epdns.yaml"), -1)
	said := map[string]string{}
	for _, i := range items {
		said[strings.ReplaceAll(i[1], `\-`, "-")] = i[2]
	}
	var walk func(prefix string, m *yaml.Node)
	walk = func(prefix string, m *yaml.Node) {
		for i := 0; i+1 < len(m.Content); i += 2 {
			name, below := prefix+m.Content[i].Value, m.Content[i+1]
			if below.Kind == yaml.SequenceNode && len(below.Content) > 0 && below.Content[0].Kind == yaml.MappingNode {
				name, below = name+"[]", below.Content[0]
			}
			if said[name] == "" || strings.HasPrefix(said[name], "The default is") || strings.HasPrefix(said[name], ".") {
				t.Errorf("of %s it says %q", name, said[name])
			}
			if below.Kind == yaml.MappingNode {
				walk(name+".", below)
			}
		}
	}
	walk("", doc.Content[0])
	if len(said) < 60 {
		t.Errorf("there are %d keys only", len(said))
	}
}

// Nothing in a text is taken for a macro.
func TestRoff(t *testing.T) {
	var r roff
	r.paragraphs("one -n\n.two\n\n  'x' \\n\n  $ epdns\n\nlast\n")
	const want = "one \\-n\n\\&.two\n.PP\n.RS 4\n.nf\n\\&\\(aqx\\(aq \\en\n$ epdns\n.fi\n.RE\n.PP\nlast\n"
	if got := r.String(); got != want {
		t.Errorf("it is\n%s\nexpected\n%s", got, want)
	}
	if !bytes.HasSuffix(manPages(newRoot())[0].text, []byte(".BR dig (1)\n")) {
		t.Error("the page of epdns does not end with what to see also")
	}
}
