package main

import "testing"

func TestUsage(t *testing.T) {
	command.TestUsage(t, map[string]string{
		"":                          "say what to measure: propagation or scale",
		"--updates 3":               `"--updates" is not propagation or scale`,
		"speed":                     `"speed" is not propagation or scale`,
		"propagation --services 3":  "flag provided but not defined: -services",
		"propagation --updates few": `invalid value "few" for flag -updates: parse error`,
		"propagation --updates 0":   "--updates 0 is less than 1",
		"propagation --every -1s":   "--every -1s is negative",
		"propagation now":           `propagation takes no argument: "now"`,
		"scale --services 0":        "--services 0 is less than 1",
		"scale --endpoints -1":      "--endpoints -1 is less than 1",
		"scale --settle soon":       `invalid value "soon" for flag -settle: parse error`,
	}, "scale -h")
}
