// Package cli is what the commands beside it have in common: help goes to stdout, an error to
// stderr as one line that begins with the command's name, and the status is 2 for wrong arguments
// and 1 for anything else that fails.
package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
)

// Command is a command of a person or a script.
type Command struct {
	Name string

	// Usage is the help text, with a newline at its end.
	Usage string

	// Run does everything but help. Its error may be, or wrap, a [Mistake], a [Status] or
	// [flag.ErrHelp].
	Run func(args []string, stdout, stderr io.Writer) error
}

// Mistake is an error in the arguments. It names the argument.
type Mistake string

func (m Mistake) Error() string { return string(m) }

// Mistakef formats a [Mistake].
func Mistakef(format string, args ...any) error { return Mistake(fmt.Sprintf(format, args...)) }

// Status is one to exit with where nothing is to be said, such as that of another program.
type Status int

func (s Status) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Main runs the command and returns the status to exit with.
func (c Command) Main(args []string, stdout, stderr io.Writer) int {
	err := flag.ErrHelp
	if len(args) == 0 || !slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		err = c.Run(args, stdout, stderr)
	}
	if errors.Is(err, flag.ErrHelp) {
		_, err = io.WriteString(stdout, c.Usage)
	}
	if err == nil {
		return 0
	}
	if status, ok := errors.AsType[Status](err); ok {
		return int(status)
	}
	if _, ok := errors.AsType[Mistake](err); ok {
		fmt.Fprintf(stderr, "%s: %v (see %s help)\n", c.Name, err, c.Name)
		return 2
	}
	fmt.Fprintf(stderr, "%s: %v\n", c.Name, err)
	return 1
}

// Parse reads flags and says nothing itself: what is wrong with them is a [Mistake], and -h is
// [flag.ErrHelp].
func Parse(fs *flag.FlagSet, args []string) error {
	fs.Init(fs.Name(), flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	err := fs.Parse(args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return err
	}
	return Mistake(err.Error())
}
