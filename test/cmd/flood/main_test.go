//go:build linux

package main

import "testing"

func TestUsage(t *testing.T) {
	command.TestUsage(t, map[string]string{
		"now":           `no argument is expected: "now"`,
		"--for 0s":      "--for 0s is not more than 0",
		"--for soon":    `invalid value "soon" for flag -for: parse error`,
		"--limit 0":     "--limit 0 is less than 1",
		"--beside -1":   "--beside -1 is not 0 to 100",
		"--slip -1":     "--slip -1 is less than 0",
		"--times a":     `--times "a" is not a number up to 100`,
		"--times 1,200": `--times "200" is not a number up to 100`,
		"--speed":       "flag provided but not defined: -speed",
	}, "-h")
}
