//go:build linux

// Command bench measures epdns and other DNS servers side by side, and epdns as a cluster grows.
// Run "bench help" for its usage. It builds epdns from the repository that it is run in. See
// docs/benchmarks.md for what it measures and what that is not.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"epdns/test/bench"
	"epdns/test/cmd/internal/cli"
	"epdns/test/run"
)

var usage = fmt.Sprintf(`bench measures DNS servers, each on one processor, asked from another. The machine should
be idle else; as root, what is measured goes before what runs beside it. Either takes up to a
quarter of an hour. Tables go to stdout; without --only, into docs/benchmarks.md as well, and
charts beside it.

  bench [--seconds S] [--rounds N] [--services N] [--only LIST] [--docs DIR]
      epdns, CoreDNS, Knot, NSD, BIND and a bare echo: processor time of a query, answers a
      second, latency, memory
  bench scale [--seconds S] [--only LIST] [--docs DIR]
      epdns and CoreDNS with 100 to 1,000,000 endpoints: what a query and a change cost, how
      late a change is answered, memory, time to ready

  --seconds S   how long each rate is measured, from 0.1 (default 0.6, for scale 1)
  --rounds N    how often everything is measured (default 5)
  --services N  Services with ten endpoints each, 1 to 100000 (default 1000)
  --only LIST   some of these, apart by commas
                servers:    %s
                questions:  %s
                transports: %s
                for scale:  %s
  --docs DIR    where benchmarks.md is that gets the results (default docs of the repository)
`, list(bench.Servers), list(bench.Questions()), list(bench.Transports), list(bench.Levels()))

func list(names []string) string { return strings.Join(names, " ") }

var command = cli.Command{Name: "bench", Usage: usage, Run: dispatch}

func main() {
	// This is how it runs itself as the server that is the floor.
	if len(os.Args) == 3 && os.Args[1] == "echo" {
		fmt.Fprintln(os.Stderr, bench.Echo(os.Args[2]))
		os.Exit(1)
	}
	os.Exit(command.Main(os.Args[1:], os.Stdout, os.Stderr))
}

// job is what the arguments want.
type job struct {
	scale   bool
	options bench.Options
	docs    string // empty is that of the repository
}

func parse(args []string) (j job, err error) {
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	allowed := slices.Concat(bench.Servers, bench.Questions(), bench.Transports)
	seconds := 0.6
	if len(args) > 0 && args[0] == "scale" {
		j.scale = true
		seconds = 1
		args = args[1:]
		allowed = slices.Concat(bench.ScaleServers, bench.Levels())
	} else {
		fs.IntVar(&j.options.Rounds, "rounds", 5, "")
		fs.IntVar(&j.options.Services, "services", 1000, "")
	}
	fs.Float64Var(&j.options.Seconds, "seconds", seconds, "")
	only := fs.String("only", "", "")
	fs.StringVar(&j.docs, "docs", "", "")
	if err := cli.Parse(fs, args); err != nil {
		return j, err
	}
	o := &j.options
	switch {
	case fs.NArg() > 0:
		return j, cli.Mistakef("%q is neither a flag nor scale", fs.Arg(0))
	case !(o.Seconds >= 0.1 && o.Seconds <= 600):
		return j, cli.Mistakef("--seconds %v is not between 0.1 and 600", o.Seconds)
	case !j.scale && (o.Rounds < 1 || o.Rounds > 100):
		return j, cli.Mistakef("--rounds %d is not between 1 and 100", o.Rounds)
	case !j.scale && (o.Services < 1 || o.Services > 100000):
		return j, cli.Mistakef("--services %d is not between 1 and 100000", o.Services)
	}
	if *only != "" {
		o.Only = strings.Split(*only, ",")
	}
	for _, name := range o.Only {
		if !slices.Contains(allowed, name) {
			return j, cli.Mistakef("--only: %q is none of %s", name, list(allowed))
		}
	}
	return j, nil
}

// result is what can be published.
type result interface {
	Markdown() string
	SVG() []byte
}

func dispatch(args []string, stdout, stderr io.Writer) error {
	j, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	j.options.Echo = []string{self, "echo"}
	j.options.Progress = stderr
	publish := j.docs != "" || j.options.Only == nil
	if j.docs == "" {
		root, err := run.Repository()
		if err != nil {
			return err
		}
		j.docs = filepath.Join(root, "docs")
	}
	part, chart := "bench", "benchmarks.svg"
	if j.scale {
		part, chart = "bench scale", "benchmarks-scale.svg"
	}
	page := filepath.Join(j.docs, "benchmarks.md")
	if publish {
		// Better now than after a quarter of an hour.
		if err := bench.Publish(page, part, ""); err != nil {
			return err
		}
	}
	var r result
	if j.scale {
		r, err = bench.Scale(ctx, j.options)
	} else {
		r, err = bench.Compare(ctx, j.options)
	}
	if err != nil {
		return err
	}
	text := r.Markdown()
	if _, err := io.WriteString(stdout, text); err != nil || !publish {
		return err
	}
	if err := os.WriteFile(filepath.Join(j.docs, chart), r.SVG(), 0o644); err != nil {
		return err
	}
	return bench.Publish(page, part, text)
}
