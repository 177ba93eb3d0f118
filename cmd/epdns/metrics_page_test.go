package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The page of metrics has every one of them, as it describes itself.
func TestMetricsPage(t *testing.T) {
	form := regexp.MustCompile(`^Desc\{fqName: "(.*)", help: "(.*?)"(?:, unit: ".*")?, constLabels: \{\}, variableLabels: \{(.*)\}\}$`)
	var want strings.Builder
	want.WriteString("| name | labels | |\n|---|---|---|\n")
	for _, d := range descs {
		m := form.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("%v is not of the form expected", d)
		}
		labels := ""
		if m[3] != "" {
			labels = "`" + strings.ReplaceAll(m[3], ",", "`, `") + "`"
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s |\n", m[1], labels, m[2])
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), want.String()) {
		t.Errorf("docs/metrics.md should have this table:\n%s", &want)
	}
}
