//go:build linux

// Command faults breaks what epdns depends on, one thing after the other, and says what its clients
// got meanwhile. Run "faults help" for its usage. See docs/reliability.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"epdns/test/bench"
	"epdns/test/cmd/internal/cli"
	"epdns/test/faults"
	"epdns/test/netns"
	"epdns/test/run"
)

var usage = fmt.Sprintf(`faults tries one fault after the other on a real control plane, in namespaces of its own, and
asks epdns all the time. Tables go to stdout; without --only, into docs/reliability.md as well.
The status is 1 if something does not hold.

  faults [--short] [--only LIST] [--docs DIR]
  faults soak [--for D] [--race] [--docs DIR]
      changes and questions for a long time; with --race on a build with the race detector,
      which goes into no page

  --short      as short as still shows something
  --only LIST  some of these, apart by commas
%s
  --docs DIR   where reliability.md is that gets the results (default docs of the repository)
  --for D      how long, from 1m (default 60m)
`, list())

// list is one line for each fault.
func list() string {
	var b strings.Builder
	for _, f := range faults.Faults {
		fmt.Fprintf(&b, "                 %-16s %s\n", f.Name, f.Title)
	}
	return b.String()
}

var command = cli.Command{Name: "faults", Usage: usage, Run: dispatch}

func main() { os.Exit(command.Main(os.Args[1:], os.Stdout, os.Stderr)) }

// job is what the arguments want.
type job struct {
	short, soak, race bool
	only              []*faults.Fault // nil is all
	docs              string          // empty is that of the repository
	d                 time.Duration
}

func parse(args []string) (j job, err error) {
	fs := flag.NewFlagSet("faults", flag.ContinueOnError)
	var only *string
	if len(args) > 0 && args[0] == "soak" {
		j.soak = true
		args = args[1:]
		fs.DurationVar(&j.d, "for", time.Hour, "")
		fs.BoolVar(&j.race, "race", false, "")
	} else {
		fs.BoolVar(&j.short, "short", false, "")
		only = fs.String("only", "", "")
	}
	fs.StringVar(&j.docs, "docs", "", "")
	if err := cli.Parse(fs, args); err != nil {
		return j, err
	}
	if fs.NArg() > 0 {
		return j, cli.Mistakef("%q is neither a flag nor soak", fs.Arg(0))
	}
	if j.soak && j.d < time.Minute {
		return j, cli.Mistakef("--for %v is less than a minute", j.d)
	}
	if only == nil || *only == "" {
		return j, nil
	}
	for name := range strings.SplitSeq(*only, ",") {
		i := slices.IndexFunc(faults.Faults, func(f *faults.Fault) bool { return f.Name == name })
		if i < 0 {
			return j, cli.Mistakef("--only: %q is no fault (see faults help)", name)
		}
		j.only = append(j.only, faults.Faults[i])
	}
	return j, nil
}

func dispatch(args []string, stdout, stderr io.Writer) error {
	j, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	page, publish, err := j.page(ctx)
	if err != nil {
		return err
	}
	status, err := netns.Tests{
		Programs: faults.Programs,
		Prepare:  func(dir string) error { return faults.Build(ctx, dir, j.race) },
		Run: func(dir string) (int, error) {
			text, holds, err := j.run(ctx, dir, stderr)
			if err != nil {
				return 1, err
			}
			io.WriteString(stdout, text)
			if publish {
				if err := bench.Publish(page, j.part(), text); err != nil {
					return 1, err
				}
			}
			if !holds {
				return 1, nil
			}
			return 0, nil
		},
	}.Start()
	if err == nil && status != 0 {
		err = cli.Status(status)
	}
	return err
}

// part is that of the page which gets the results.
func (j *job) part() string {
	if j.soak {
		return "soak"
	}
	return "faults"
}

// page is where the results go, if they do. It must have room for them: better to know now.
func (j *job) page(ctx context.Context) (path string, publish bool, err error) {
	publish = j.docs != "" || j.only == nil && !j.short && !j.race
	if j.docs == "" {
		root, err := run.Repository()
		if err != nil {
			return "", false, err
		}
		j.docs = filepath.Join(root, "docs")
	}
	path = filepath.Join(j.docs, "reliability.md")
	if publish {
		err = bench.Publish(path, j.part(), "")
	}
	return path, publish, err
}

// run tries what is wanted.
func (j *job) run(ctx context.Context, dir string, progress io.Writer) (text string, holds bool, err error) {
	lab, err := faults.Open(ctx, dir, progress)
	if err != nil {
		return "", false, err
	}
	defer func() { err = errors.Join(err, lab.Close()) }()
	lab.Short, lab.Race = j.short, j.race
	machine, err := faults.Machine()
	if err != nil {
		return "", false, err
	}
	if j.soak {
		r, err := lab.Soak(ctx, j.d)
		if err != nil {
			return "", false, err
		}
		return machine + "\n\n" + faults.Markdown([]*faults.Result{r}), r.Holds(), nil
	}
	if j.only == nil {
		j.only = faults.Faults
	}
	holds = true
	var results []*faults.Result
	for i, f := range j.only {
		fmt.Fprintf(progress, "%d of %d: %s: %s\n", i+1, len(j.only), f.Name, f.Title)
		r, err := lab.Run(ctx, f)
		if err != nil {
			return "", false, err
		}
		for _, failure := range r.Failures() {
			fmt.Fprintf(progress, "  does not hold: %s\n", failure)
		}
		holds = holds && r.Holds()
		results = append(results, r)
	}
	return machine + "\n\n" + faults.Markdown(results), holds, nil
}
