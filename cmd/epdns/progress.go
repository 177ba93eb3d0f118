package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"epdns/registry"
	"epdns/registry/kube"
)

// This file tells people who wait for all that exists to be read how far that is, and ends
// the wait where there is no use in it.

// readStatus is what a source says of a state that it reads piece by piece.
type readStatus interface {
	Status() []kube.FeedStatus
	Trouble() (what string, unreachable time.Time)
}

const (
	// quietRead is how long a command reads without a word.
	quietRead = time.Second

	// unreachableFor is how long a cluster cannot be reached at the start before a command
	// gives up: long enough for a slip of the network.
	unreachableFor = 2 * time.Second

	// A server that reads for longer than slowRead says so, and then now and again.
	slowRead      = 2 * time.Second
	slowReadEvery = 5 * time.Second
)

// reading is a read that a command waits for.
type reading struct {
	source registry.Source
	cancel context.CancelCauseFunc
	end    sync.Once
	ended  chan struct{}
	wait   sync.WaitGroup
}

// follow shows on a terminal how far a read is, until it is done, and cancels its context
// where the cluster cannot be reached.
func follow(ctx context.Context, source registry.Source, stderr io.Writer) (context.Context, *reading) {
	ctx, cancel := context.WithCancelCause(ctx)
	r := &reading{source: source, cancel: cancel, ended: make(chan struct{})}
	if of, ok := source.(readStatus); ok {
		r.wait.Go(func() { r.tell(of, stderr) })
	}
	return ctx, r
}

// done says that all has been read, or never will be. Nothing of the read stays on the
// terminal.
func (r *reading) done() {
	r.end.Do(func() { close(r.ended) })
	r.wait.Wait()
}

// unreachableError is why a read was given up.
type unreachableError struct{ error }

func (r *reading) tell(of readStatus, stderr io.Writer) {
	began := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	shown := false
	defer func() {
		if shown {
			fmt.Fprint(stderr, "\r\x1b[K")
		}
	}()
	for {
		select {
		case <-r.ended:
			return
		case <-tick.C:
		}
		if what, since := of.Trouble(); !since.IsZero() && time.Since(since) >= unreachableFor {
			r.cancel(unreachableError{fmt.Errorf("%v: %s%s", r.source, what, reachAdvice(what))})
			return
		}
		if terminal(stderr) != nil && os.Getenv("TERM") != "dumb" && time.Since(began) >= quietRead {
			shown = true
			fmt.Fprintf(stderr, "\rreading %s …\x1b[K", readText(of.Status()))
		}
	}
}

// reachAdvice is what to do about an API server that cannot be reached, behind the error.
func reachAdvice(what string) string {
	for _, a := range []struct{ sign, advice string }{
		{"connection refused", "is it running, and is this the cluster that is meant (--context, --kubeconfig)?"},
		{"no such host", "the kubeconfig names a server that is not known on this machine"},
		{"x509: ", "the kubeconfig's certificate authority is not that of the server"},
		{"timeout", "is this the cluster that is meant (--context, --kubeconfig), and can it be reached from here?"},
		{"no route", "is this the cluster that is meant (--context, --kubeconfig), and can it be reached from here?"},
	} {
		if strings.Contains(what, a.sign) {
			return "; " + a.advice
		}
	}
	return ""
}

// readText is how much of each kind has been read.
func readText(all []kube.FeedStatus) string {
	counts := readCounts(all)
	var parts []string
	for _, kind := range readKinds {
		if n := counts[kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %ss", grouped(n), kind))
		}
	}
	if len(parts) == 0 {
		return "the cluster"
	}
	return strings.Join(parts, ", ")
}

var readKinds = []string{"EndpointSlice", "Service", "Node"}

func readCounts(all []kube.FeedStatus) map[string]int {
	counts := map[string]int{}
	for _, f := range all {
		counts[f.Kind] += f.Read
	}
	return counts
}

// grouped is a number whose thousands can be told apart.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for at := len(text) - 3; at > 0; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}

// readOnce reads all that exists and calls do, as once does, for people who wait.
func readOnce(ctx context.Context, p *pipeline, cmd *cobra.Command, do func() error) error {
	ctx, r := follow(ctx, p.source, cmd.ErrOrStderr())
	defer r.cancel(nil)
	err := p.once(ctx, func() error {
		r.done()
		warnOff(sayer(cmd), p.source)
		return do()
	})
	r.done()
	return r.reason(ctx, err)
}

// reason is why there is an error of a read: what was wrong with the cluster, if that is
// known.
func (r *reading) reason(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if gone := (unreachableError{}); errors.As(context.Cause(ctx), &gone) {
		return gone
	}
	if of, ok := r.source.(readStatus); ok && ctx.Err() != nil {
		if what, _ := of.Trouble(); what != "" {
			return fmt.Errorf("%w (%s)", err, what)
		}
	}
	return err
}

// warnOff says what may not be read, and what is missing for that.
func warnOff(say func(format string, args ...any), source registry.Source) {
	of, ok := source.(readStatus)
	if !ok {
		return
	}
	for _, f := range of.Status() {
		if f.Off {
			say("warning: no right to list %ss: %s; grant %s", f.Kind, f.Missed, f.Grant)
		}
	}
}

// tellReading logs how far a long read is, until something is served.
func (p *pipeline) tellReading(ctx context.Context) {
	of, ok := p.source.(readStatus)
	if !ok {
		return
	}
	began := time.Now()
	for timer := time.NewTimer(slowRead); ; timer.Reset(slowReadEvery) {
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-p.served:
			timer.Stop()
			return
		case <-timer.C:
		}
		if counts := readCounts(of.Status()); len(counts) > 0 {
			p.log.Info("still reading", "endpointslices", counts["EndpointSlice"], "services", counts["Service"], "nodes", counts["Node"],
				"after", time.Since(began).Round(time.Second).String())
		}
	}
}

// sayer says things to people beside what a command prints, a line each.
func sayer(cmd *cobra.Command) func(format string, args ...any) {
	return func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), programName(cmd)+": "+format+"\n", args...)
	}
}

// quietLog is the log of a command that tells people what is wrong in its own words.
func quietLog() *slog.Logger { return slog.New(slog.DiscardHandler) }
