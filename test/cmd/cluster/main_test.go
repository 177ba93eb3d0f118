package main

import "testing"

func TestUsage(t *testing.T) {
	command.TestUsage(t, map[string]string{
		"":                        "say what to do: up, exec or build",
		"down":                    `unknown command "down"`,
		"up --node 3":             "flag provided but not defined: -node",
		"up --nodes many":         `invalid value "many" for flag -nodes: parse error`,
		"up --nodes 256":          "--nodes 256 is not between 0 and 255",
		"exec --nodes=-1 -- true": "--nodes -1 is not between 0 and 255",
		"up now":                  `up takes no argument: "now"`,
		"build --keep":            `build takes no argument: "--keep"`,
		"exec --keep --":          "exec needs a command",
		"exec -- no-such-command": `exec: "no-such-command": executable file not found in $PATH`,
	}, "up -h", "exec --help")
}
