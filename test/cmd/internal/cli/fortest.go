package cli

import (
	"fmt"
	"strings"
	"testing"
)

// TestUsage is a command's test of how it takes arguments: each key of mistakes is some that it
// must refuse, with that message. It must give help for "help" and for help, which are others.
func (c Command) TestUsage(t *testing.T, mistakes map[string]string, help ...string) {
	for args, message := range mistakes {
		c.check(t, args, 2, "", fmt.Sprintf("%s: %s (see %s help)\n", c.Name, message, c.Name))
	}
	for _, args := range append(help, "help", "--help") {
		c.check(t, args, 0, c.Usage, "")
	}
}

func (c Command) check(t *testing.T, args string, status int, out, errs string) {
	t.Run(args, func(t *testing.T) {
		var stdout, stderr strings.Builder
		if got := c.Main(strings.Fields(args), &stdout, &stderr); got != status {
			t.Errorf("exit status %d, want %d", got, status)
		}
		if stdout.String() != out {
			t.Errorf("stdout %q, want %q", &stdout, out)
		}
		if stderr.String() != errs {
			t.Errorf("stderr %q, want %q", &stderr, errs)
		}
	})
}
