//go:build linux

package main

import (
	"testing"

	"epdns/test/bench"
)

func TestUsage(t *testing.T) {
	command.TestUsage(t, map[string]string{
		"all":                  `"all" is neither a flag nor soak`,
		"--only api-killed,no": `--only: "no" is no fault (see faults help)`,
		"--only api-killed,":   `--only: "" is no fault (see faults help)`,
		"--for 2m":             "flag provided but not defined: -for",
		"soak --short":         "flag provided but not defined: -short",
		"soak --for 10s":       "--for 10s is less than a minute",
		"soak --for long":      `invalid value "long" for flag -for: parse error`,
	}, "--short -h", "soak -h")
}

// The page of the repository has a place for either result.
func TestPublish(t *testing.T) {
	for _, part := range []string{"faults", "soak"} {
		if err := bench.Publish("../../../docs/reliability.md", part, ""); err != nil {
			t.Error(err)
		}
	}
}
