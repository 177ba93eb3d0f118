package main

import (
	"strings"
	"testing"
)

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		what   string
		args   string
		status int
		stderr string
	}{
		{"nothing to do", "", 2, "cluster: say what to do: up, exec or build (see cluster help)\n"},
		{"unknown command", "down", 2, "cluster: unknown command \"down\" (see cluster help)\n"},
		{"unknown flag", "up --node 3", 2, "cluster: flag provided but not defined: -node (see cluster help)\n"},
		{"not a number", "up --nodes many", 2, "cluster: invalid value \"many\" for flag -nodes: parse error (see cluster help)\n"},
		{"too many nodes", "up --nodes 256", 2, "cluster: --nodes 256 is not between 0 and 255 (see cluster help)\n"},
		{"fewer than no nodes", "exec --nodes=-1 -- true", 2, "cluster: --nodes -1 is not between 0 and 255 (see cluster help)\n"},
		{"argument to up", "up now", 2, "cluster: up takes no argument: \"now\" (see cluster help)\n"},
		{"argument to build", "build --keep", 2, "cluster: build takes no argument: \"--keep\" (see cluster help)\n"},
		{"nothing to execute", "exec --keep --", 2, "cluster: exec needs a command (see cluster help)\n"},
		{"no such command", "exec -- no-such-command", 2, "cluster: exec: \"no-such-command\": executable file not found in $PATH (see cluster help)\n"},
		{"help", "help", 0, ""},
	} {
		t.Run(test.what, func(t *testing.T) {
			var stdout, stderr strings.Builder
			if status := run(strings.Fields(test.args), &stdout, &stderr); status != test.status {
				t.Errorf("exit status %d, want %d", status, test.status)
			}
			if stderr.String() != test.stderr {
				t.Errorf("stderr %q, want %q", stderr.String(), test.stderr)
			}
			if help := stdout.String(); (help != "") != (test.what == "help") {
				t.Errorf("stdout %q", help)
			}
		})
	}
}
