//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"epdns/test/bench"
)

func TestUsage(t *testing.T) {
	const names = "floor epdns knot nsd bind coredns coredns-cache A10 SRV10 A100 SRV100 PTR NXDOMAIN POD udp tcp"
	command.TestUsage(t, map[string]string{
		"compare":                `"compare" is neither a flag nor scale`,
		"scale up":               `"up" is neither a flag nor scale`,
		"--seconds long":         `invalid value "long" for flag -seconds: parse error`,
		"--seconds 0":            "--seconds 0 is not between 0.1 and 600",
		"--seconds NaN":          "--seconds NaN is not between 0.1 and 600",
		"--rounds 0":             "--rounds 0 is not between 1 and 100",
		"--services 100001":      "--services 100001 is not between 1 and 100000",
		"--only epdns,dnsmasq":   `--only: "dnsmasq" is none of ` + names,
		"--only epdns,":          `--only: "" is none of ` + names,
		"--round 3":              "flag provided but not defined: -round",
		"scale --rounds 3":       "flag provided but not defined: -rounds",
		"scale --only knot":      `--only: "knot" is none of ` + list(bench.ScaleServers) + " " + list(bench.Levels()),
		"scale --seconds -1":     "--seconds -1 is not between 0.1 and 600",
		"--only udp --docs x -o": "flag provided but not defined: -o",
	}, "--rounds 3 -h", "scale -h")
}

// The page of the repository has a place for either result, and one that has not is named.
func TestPublish(t *testing.T) {
	for _, part := range []string{"bench", "bench scale"} {
		if err := bench.Publish("../../../docs/benchmarks.md", part, ""); err != nil {
			t.Error(err)
		}
	}
	page := filepath.Join(t.TempDir(), "page.md")
	if err := os.WriteFile(page, []byte("a\n<!-- bench: begin, x -->\nold\n<!-- bench: end -->\nb\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := bench.Publish(page, "bench", "new\n"); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if want := "a\n<!-- bench: begin, x -->\n\nnew\n\n<!-- bench: end -->\nb\n"; string(b) != want {
		t.Errorf("%q, want %q", b, want)
	}
	if err := bench.Publish(page, "bench scale", "new"); err == nil || !strings.Contains(err.Error(), page) {
		t.Errorf("%v, want an error that names %s", err, page)
	}
}
