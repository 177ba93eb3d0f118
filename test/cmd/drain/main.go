// Command drain measures for how long clients still get a pod that has stopped being ready, by
// the way on which they find it:
//
//	drain [-repetitions N] [-every D] [-rate N] [-svg FILE] [-csv FILE]
//
// It starts a real control plane, epdns and CoreDNS on loopback. A repetition is a Service with
// two pods of its own; one of them stops being ready, and a client of every way goes on sending
// requests. The table goes to stdout, the chart to docs/draining.svg. See docs/draining.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"epdns/test/cluster"
	"epdns/test/run"
)

type options struct {
	repetitions int
	every       time.Duration
	rate        int
	svg, csv    string
}

func main() {
	var o options
	flag.IntVar(&o.repetitions, "repetitions", 20, "Services, each of which loses a pod once")
	flag.DurationVar(&o.every, "every", 5*time.Second, "time from the start of one repetition to that of the next")
	flag.IntVar(&o.rate, "rate", 100, "requests a second of each client")
	flag.StringVar(&o.svg, "svg", "", "file for the chart (default docs/draining.svg of the repository)")
	flag.StringVar(&o.csv, "csv", "", "file for requests and failures in steps of 100 ms (default none)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := drain(ctx, o); err != nil {
		fmt.Fprintf(os.Stderr, "drain: %v\n", err)
		os.Exit(1)
	}
}

func (o options) check() error {
	switch {
	case flag.NArg() > 0:
		return fmt.Errorf("no argument is expected: %q", flag.Args())
	case o.repetitions < 1 || o.repetitions > maxRepetitions:
		return fmt.Errorf("-repetitions %d is not between 1 and %d", o.repetitions, maxRepetitions)
	case o.every < 0:
		return fmt.Errorf("-every %v is negative", o.every)
	case o.rate < 1 || o.rate > 1000:
		return fmt.Errorf("-rate %d is not between 1 and 1000", o.rate)
	}
	return nil
}

func drain(ctx context.Context, o options) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	root, err := run.Repository(ctx)
	if err != nil {
		return err
	}
	if o.svg == "" {
		o.svg = filepath.Join(root, "docs", "draining.svg")
	}
	l := &lab{root: root}
	defer func() { err = errors.Join(err, l.stop()) }()
	if err := l.start(ctx, o.repetitions); err != nil {
		return err
	}
	ways := l.ways()
	fmt.Fprintf(os.Stderr, "measuring, which takes %v\n", duration(o, ways).Round(time.Second))
	results, err := measure(ctx, l, ways, o)
	if err != nil {
		return err
	}

	versions, err := l.versions(ctx)
	if err != nil {
		return err
	}
	writeTable(os.Stdout, results)
	fmt.Printf("\n%d repetitions, %d requests a second of each client; %s.\n", o.repetitions, o.rate, versions)
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
	o := cluster.Options{Nodes: len(l.nodes), Progress: os.Stderr}
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
