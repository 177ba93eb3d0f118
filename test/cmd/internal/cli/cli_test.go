package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"testing"
)

// How a command ends goes by its error.
func TestCommandMain(t *testing.T) {
	for _, test := range []struct {
		what           string
		err            error
		status         int
		stdout, stderr string
	}{
		{"well", nil, 0, "", ""},
		{"help", flag.ErrHelp, 0, "usage\n", ""},
		{"a mistake", Mistakef("--n %d is negative", -1), 2, "", "do: --n -1 is negative (see do help)\n"},
		{"a mistake, with what was done", fmt.Errorf("read flags: %w", Mistake("none")), 2, "", "do: read flags: none (see do help)\n"},
		{"badly", errors.New("no space"), 1, "", "do: no space\n"},
		{"as another program did", fmt.Errorf("run it: %w", Status(7)), 7, "", ""},
	} {
		t.Run(test.what, func(t *testing.T) {
			c := Command{Name: "do", Usage: "usage\n", Run: func([]string, io.Writer, io.Writer) error { return test.err }}
			c.check(t, "it", test.status, test.stdout, test.stderr)
		})
	}
}

func TestParse(t *testing.T) {
	c := Command{Name: "do", Usage: "usage\n", Run: func(args []string, _, _ io.Writer) error {
		fs := flag.NewFlagSet("do", flag.ExitOnError) // which it does not
		fs.Int("n", 0, "")
		return Parse(fs, args)
	}}
	c.TestUsage(t, map[string]string{
		"-m":      "flag provided but not defined: -m",
		"-n many": `invalid value "many" for flag -n: parse error`,
		"-n":      "flag needs an argument: -n",
	}, "-n 1 -h")
	c.check(t, "-n 1", 0, "", "")
}
