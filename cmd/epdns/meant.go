package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// This file guesses what is meant by arguments that do not exist.

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usagef("%s takes no arguments, such as %q (see %s --help)", cmd.Name(), args[0], cmd.CommandPath())
}

func unknownCommand(of *cobra.Command, name string) error {
	var names []string
	for _, c := range of.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return fmt.Errorf("unknown command %q for %q%s", name, of.CommandPath(), meant("", name, names))
}

// meantFlag is what to say behind the error of a flag that does not exist.
func meantFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) || unknown.GetSpecifiedShortnames() != "" {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return meant("--", unknown.GetSpecifiedName(), names)
}

// meant is what to say behind a name that does not exist: the nearest of those that do,
// if that is near enough for a slip of the fingers.
func meant(prefix, name string, names []string) string {
	best, least := "", 0
	for _, n := range names {
		if d, near := slip(name, n); near && (best == "" || d < least) {
			best, least = n, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; do you mean %s%s?", prefix, best)
}

// slip is the distance of a name from one that is meant, and whether it is near enough for
// a slip of the fingers.
func slip(name, meant string) (d int, near bool) {
	most := min(2, (len(name)+1)/3)
	if diff := len(name) - len(meant); diff > most || -diff > most {
		return 0, false
	}
	d = distance(name, meant)
	return d, d <= most
}

// distance is how many letters have to be put in, left out, changed or swapped with
// their neighbour to make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}
