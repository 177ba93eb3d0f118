// Command drain measures for how long clients still get a pod that has stopped being ready, by
// the way on which they find it. Run "drain help" for its usage.
//
// It starts a real control plane, epdns and CoreDNS on loopback. A repetition is a Service with
// two pods of its own; one of them stops being ready, and a client of every way goes on sending
// requests. See docs/draining.md.
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
	"syscall"
	"time"

	"epdns/test/cluster"
	"epdns/test/cmd/internal/cli"
	"epdns/test/run"
)

const usage = `drain measures for how long clients still get a pod that has stopped being ready. The
table goes to stdout, the chart into a file.

  drain [--repetitions N] [--every D] [--rate N] [--svg FILE] [--csv FILE]

  --repetitions N  Services, each of which loses a pod once (default 20)
  --every D        time from the start of one repetition to that of the next (default 5s)
  --rate N         requests a second of each client (default 100)
  --svg FILE       for the chart (default docs/draining.svg of the repository)
  --csv FILE       for requests and failures in steps of 100 ms (default none)
`

var command = cli.Command{Name: "drain", Usage: usage, Run: drain}

func main() { os.Exit(command.Main(os.Args[1:], os.Stdout, os.Stderr)) }

type options struct {
	repetitions int
	every       time.Duration
	rate        int
	svg, csv    string
}

func parse(args []string) (o options, err error) {
	fs := flag.NewFlagSet("drain", flag.ContinueOnError)
	fs.IntVar(&o.repetitions, "repetitions", 20, "")
	fs.DurationVar(&o.every, "every", 5*time.Second, "")
	fs.IntVar(&o.rate, "rate", 100, "")
	fs.StringVar(&o.svg, "svg", "", "")
	fs.StringVar(&o.csv, "csv", "", "")
	if err := cli.Parse(fs, args); err != nil {
		return o, err
	}
	switch {
	case fs.NArg() > 0:
		err = cli.Mistakef("no argument is expected: %q", fs.Arg(0))
	case o.repetitions < 1 || o.repetitions > maxRepetitions:
		err = cli.Mistakef("--repetitions %d is not between 1 and %d", o.repetitions, maxRepetitions)
	case o.every < 0:
		err = cli.Mistakef("--every %v is negative", o.every)
	case o.rate < 1 || o.rate > 1000:
		err = cli.Mistakef("--rate %d is not between 1 and 1000", o.rate)
	}
	return o, err
}

func drain(args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root, err := run.Repository()
	if err != nil {
		return err
	}
	if o.svg == "" {
		o.svg = filepath.Join(root, "docs", "draining.svg")
	}
	l := &lab{root: root, progress: stderr}
	defer func() { err = errors.Join(err, l.stop()) }()
	if err := l.start(ctx, o.repetitions); err != nil {
		return err
	}
	ways := l.ways()
	fmt.Fprintf(stderr, "measuring, which takes %v\n", duration(o, ways).Round(time.Second))
	results, err := measure(ctx, l, ways, o)
	if err != nil {
		return err
	}

	versions, err := l.versions(ctx)
	if err != nil {
		return err
	}
	writeTable(stdout, results)
	fmt.Fprintf(stdout, "\n%d repetitions, %d requests a second of each client; %s.\n", o.repetitions, o.rate, versions)
	writeDropped(stdout, results)
	if err := os.WriteFile(o.svg, chart(results), 0o644); err != nil {
		return err
	}
	if o.csv != "" {
		return os.WriteFile(o.csv, stepsCSV(results), 0o644)
	}
	return nil
}

// lab is what the clients of all ways meet.
type lab struct {
	root     string // of the repository
	progress io.Writer
	dir      string // temporary
	cluster  *cluster.Cluster
	services []*service
	nodes    [2]*node
	coreDNS  string // path of the program
	ports    ports
	epdns    string // address
	ending   []func() error
}

// start brings up everything and returns once all that answers without a cache knows both pods
// of every Service.
func (l *lab) start(ctx context.Context, services int) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, fmt.Errorf("not ready after %v", startWithin))
	defer cancel()
	if l.dir, err = os.MkdirTemp("", "epdns-drain-"); err != nil {
		return err
	}
	bin, err := run.Build(ctx, l.root, l.dir)
	if err != nil {
		return err
	}
	o := cluster.Options{Nodes: len(l.nodes), Progress: l.progress}
	if l.coreDNS, err = cluster.CoreDNS(ctx, o); err != nil {
		return err
	}
	kubectl, err := cluster.Kubectl(ctx, o)
	if err != nil {
		return err
	}
	if l.cluster, err = cluster.Start(ctx, o); err != nil {
		return err
	}
	if l.services, err = createServices(ctx, l.cluster, services); err != nil {
		return err
	}
	if err := l.serveEpdns(bin); err != nil {
		return err
	}
	if err := l.serveCoreDNS(); err != nil {
		return err
	}
	for i := range l.nodes {
		if l.nodes[i], err = l.watch(kubectl); err != nil {
			return err
		}
	}
	return l.ready(ctx)
}

// startWithin leaves time for the programs of the control plane to be built, the first time.
const startWithin = 30 * time.Minute

// stop ends what start has started, the last first.
func (l *lab) stop() error {
	var errs []error
	for i := len(l.ending) - 1; i >= 0; i-- {
		errs = append(errs, l.ending[i]())
	}
	if l.cluster != nil {
		errs = append(errs, l.cluster.Stop())
	}
	if l.dir != "" {
		errs = append(errs, os.RemoveAll(l.dir))
	}
	return errors.Join(errs...)
}
