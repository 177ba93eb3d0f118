package main

import "testing"

func TestUsage(t *testing.T) {
	command.TestUsage(t, map[string]string{
		"--tag":                "flag needs an argument: -tag",
		"--platform windows":   `invalid value "windows" for flag -platform: "windows" is no platform such as linux/arm64 or linux/arm/v7`,
		"--tag dev everything": `no argument is expected: "everything"`,
	}, "--tag dev -h")
}
