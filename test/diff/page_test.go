//go:build linux

package diff_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPage: docs/differences.md counts and explains each class of differences, and no other.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(repository, "docs", "differences.md"))
	if err != nil {
		t.Fatal(err)
	}
	of, ofCore, found := strings.Cut(string(text), "\n# What CoreDNS answers")
	if !found {
		t.Fatal("the page has no part about CoreDNS")
	}
	var names, coreNames []string
	for _, c := range classes {
		names = append(names, c.name)
	}
	for _, c := range coreClasses {
		coreNames = append(coreNames, c.name)
	}
	for _, part := range []struct {
		what, text string
		names      []string
	}{
		{"NSD, Knot and BIND", of, names},
		{"CoreDNS", ofCore, coreNames},
	} {
		counted := []string{"", "the same reply"}
		for _, row := range regexp.MustCompile(`(?m)^\| ?([^|\n]*?) ?\| [^|]* \|`).FindAllStringSubmatch(part.text, -1) {
			if name := row[1]; !slices.Contains(append(counted, part.names...), name) {
				t.Errorf("%s: the page counts %q, which is no class", part.what, name)
			}
			counted = append(counted, row[1])
		}
		var explained []string
		for _, bold := range regexp.MustCompile(`\*\*([^*]+)\*\*`).FindAllStringSubmatch(part.text, -1) {
			name := strings.Join(strings.Fields(bold[1]), " ")
			explained = append(explained, strings.ToLower(strings.TrimRight(name, ".")))
		}
		for _, name := range part.names {
			if !slices.Contains(counted, name) {
				t.Errorf("%s: the page does not count %q", part.what, name)
			}
			if !slices.Contains(explained, strings.ToLower(name)) {
				t.Errorf("%s: the page does not explain %q", part.what, name)
			}
		}
		for _, name := range explained {
			if !slices.ContainsFunc(part.names, func(n string) bool { return strings.EqualFold(n, name) }) {
				t.Errorf("%s: the page explains %q, which is no class", part.what, name)
			}
		}
	}
}
