package dnsserver

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Every test that the page names is there, and so is every case.
func TestObligationsPage(t *testing.T) {
	page, err := os.ReadFile("../docs/obligations.md")
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, dir := range []string{"..", "../zones", "../zones/rank", "../test/diff", ".", "batch"} {
		files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`).FindAllSubmatch(text, -1) {
				there[string(m[1])] = true
			}
		}
	}
	for _, m := range regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`").FindAllSubmatch(page, -1) {
		if !there[string(m[1])] {
			t.Errorf("there is no %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile("`(testdata/[-a-z0-9/]+)`").FindAllSubmatch(page, -1) {
		if _, err := os.Stat(filepath.Join("..", string(m[1]))); err != nil {
			t.Error(err)
		}
	}
	for theme := range obligations {
		if !strings.Contains(string(page), "`"+theme+"`") {
			t.Errorf("the page does not mention the cases %q", theme)
		}
	}
}
