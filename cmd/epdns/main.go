// Command epdns is an authoritative DNS server that answers with the pods behind
// each Service of a Kubernetes cluster.
//
// This package wires and prints. What people see on standard output is what they
// asked for; what goes wrong is one line on standard error; the log goes there too.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// Exit codes.
const (
	exitOK    = 0   // also after SIGTERM or Ctrl-C
	exitFault = 1   // a file, the network, a right
	exitUsage = 2   // anything wrong in the arguments
	exitPipe  = 141 // who read what is printed has gone: what a shell makes of SIGPIPE
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	name, args := calledAs(os.Args)
	os.Exit(runAs(ctx, name, args, os.Stdout, os.Stderr))
}

// run is the program under its own name.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return runAs(ctx, ownName, args, stdout, stderr)
}

// runAs is the whole program but for the process around it.
func runAs(ctx context.Context, name string, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	if name == pluginName {
		asPlugin(root)
	}
	wrapHelp(root, stdout)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil || ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return exitOK
	}
	if errors.Is(err, errReaderGone) || errors.Is(err, syscall.EPIPE) {
		return exitPipe // quietly, as others in a pipe
	}
	for _, line := range lines(err) {
		fmt.Fprintf(stderr, "%s: %s\n", programName(root), line)
	}
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFault
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "epdns",
		Short: "DNS answers with the pods behind each Service",
		Long: `epdns is an authoritative DNS server. It watches a Kubernetes cluster and answers
web.shop.registry.local with the pods that are ready behind Service web in namespace shop.

Start with: epdns demo`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       versionLine(),
		Args: usageArgs(func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		}),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w%s (see %s --help)", err, meantFlag(cmd, err), cmd.CommandPath())}
	})
	root.SetVersionTemplate("{{.Version}}\n")
	root.CompletionOptions.DisableDefaultCmd = true
	addGroup(root, "serve", "Serving:", newServe(), newDemo())
	addGroup(root, "ask", "Asking:", newWatch(), newLookup(), newExplain(), newStatus(), newCheck())
	addGroup(root, "other", "Else:", newCompletion(), newMan(), newVersion())
	root.SetHelpCommandGroupID("other")
	checkHelp(root)
	completeFlags(root)
	return root
}

// addGroup adds commands that stand together in the help.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, c := range commands {
		c.GroupID = id
		root.AddCommand(c)
	}
}

// wrapHelp has the help fit the terminal that it is for.
func wrapHelp(root *cobra.Command, stdout io.Writer) {
	columns := (&screen{file: terminal(stdout)}).columns()
	if columns < 60 { // too narrow for two columns, or no terminal
		return
	}
	if columns < explainWidth {
		for _, c := range append(root.Commands(), root) {
			c.Long = rewrapped(c.Long, columns)
		}
	}
	cobra.AddTemplateFunc("wrappedFlags", func(f *pflag.FlagSet) string { return f.FlagUsagesWrapped(columns) })
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".LocalFlags.FlagUsages", "wrappedFlags .LocalFlags"))
}

// rewrapped is a text whose lines fit so many columns. Lines that are indented stay as they
// are.
func rewrapped(text string, columns int) string {
	var out bytes.Buffer
	var paragraph []string
	put := func() {
		if len(paragraph) > 0 {
			wrap(&out, "", strings.Join(paragraph, " "), columns, func(line string) string { return line })
			paragraph = nil
		}
	}
	for line := range strings.SplitSeq(text, "\n") {
		if line != "" && line[0] != ' ' {
			paragraph = append(paragraph, line)
			continue
		}
		put()
		out.WriteString(line + "\n")
	}
	put()
	return strings.TrimRight(out.String(), "\n")
}

// checkHelp makes help for a command that does not exist an error, for which cobra
// shows the program's own.
func checkHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, help := range root.Commands() {
		if help.Name() == "help" {
			help.Args = usageArgs(func(_ *cobra.Command, args []string) error {
				cmd, rest, err := root.Find(args)
				if len(rest) > 0 {
					err = unknownCommand(cmd, rest[0])
				}
				return err
			})
		}
	}
}

// usageError is an error in the arguments.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// usageArgs makes what a command says of its arguments a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usageError{fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())}
		}
		return nil
	}
}

// logFlags choose how the log looks.
type logFlags struct {
	level, format string

	at slog.LevelVar // the level in force, which may change
}

func (f *logFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.level, "log-level", "info", "least important lines to log: debug, info, warn or error")
	cmd.Flags().StringVar(&f.format, "log-format", "text", "form of the log: text or json")
	completeValues(cmd, "log-level", "debug", "info", "warn", "error")
	completeValues(cmd, "log-format", "text", "json")
}

// joinLogs has the lines of client-go in the log that it writes elsewhere: what it says of
// a single request goes with that request, and is told by package kube in its own words.
func joinLogs(log *slog.Logger) { klog.SetSlogLogger(log.With("from", "client-go")) }

func (f *logFlags) logger(w io.Writer) (*slog.Logger, error) {
	var opts slog.HandlerOptions
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, usagef("--log-level %q is not debug, info, warn or error", f.level)
	}
	f.at.Set(level)
	opts.Level = &f.at
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &opts)), nil
	}
	return nil, usagef("--log-format %q is not text or json", f.format)
}
