package main

import (
	"strings"
	"testing"

	"epdns/zones"
)

func TestMeant(t *testing.T) {
	names := []string{"listen", "http", "zone", "config", "nsid", "manifests"}
	for name, want := range map[string]string{
		"lisen":     "listen",
		"litsen":    "listen", // swapped
		"listne":    "listen",
		"htpp":      "http",
		"zones":     "zone",
		"manifest":  "manifests",
		"manifets":  "manifests",
		"Zone":      "zone",
		"port":      "",
		"x":         "",
		"":          "",
		"upstream":  "",
		"namespace": "",
	} {
		if want != "" {
			want = "; do you mean --" + want + "?"
		}
		if got := meant("--", name, names); got != want {
			t.Errorf("of %q it says %q, expected %q", name, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "acb", 1}, {"abcd", "badc", 2}, {"kitten", "sitting", 3}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("from %q to %q it is %d, expected %d", c.a, c.b, got, c.want)
		}
	}
}

// TestProblemsText: of many annotations the first few are named, and who names the rest.
func TestProblemsText(t *testing.T) {
	problems := make([]zones.Problem, 7)
	if got := problemsText(problems); !strings.HasSuffix(got, "; 2 more (see epdns check)") || strings.Count(got, ";") != 5 {
		t.Errorf("it says %q", got)
	}
	if got := problemsText(problems[:5]); strings.Contains(got, "more") {
		t.Errorf("it says %q", got)
	}
}
