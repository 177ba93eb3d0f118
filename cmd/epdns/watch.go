package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"epdns/registry"
)

// watchFlags are what watch can be told.
type watchFlags struct {
	ask    askFlags
	all    bool
	output string
}

func newWatch() *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch NAMESPACE/SERVICE",
		Short: "Show each change behind a Service as it happens",
		Long: `Show the endpoints behind a Service, and then each one that comes, goes or changes,
until Ctrl-C.

They are read from the cluster, from manifests or from a running server, chosen as for
serve. A Service that does not exist is waited for.`,
		Example: `  epdns watch shop/web
  epdns watch --all -o json
  epdns watch shop/web --server http://127.0.0.1:9153`,
		Args:              usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	cmd.Flags().BoolVar(&f.all, "all", false, "watch all Services")
	cmd.Flags().StringVarP(&f.output, "output", "o", "table", "table, or json: an object a line")
	completeValues(cmd, "output", "table", "json")
	f.ask.register(cmd)
	return cmd
}

func (f *watchFlags) run(cmd *cobra.Command, args []string) error {
	of, err := f.target(args)
	if err != nil {
		return err
	}
	p := &changePrinter{of: of, say: func(format string, args ...any) {
		fmt.Fprintf(cmd.ErrOrStderr(), "epdns: "+format+"\n", args...)
	}}
	switch f.output {
	case "table":
		p.print = (&changeTable{w: cmd.OutOrStdout()}).print
	case "json":
		p.print = changeLines{cmd.OutOrStdout()}.print
	default:
		return usagef("--output %q is not table or json", f.output)
	}
	server, err := f.ask.remote(cmd)
	if err != nil {
		return err
	}
	if server != nil {
		return server.watch(cmd.Context(), of, p.tell, p.say)
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	source, err := f.ask.open(cmd.Context(), &f.ask.source, log)
	if err != nil {
		return err
	}
	return watchSource(cmd.Context(), source, of, p.tell, log)
}

// target is the one Service, or all.
func (f *watchFlags) target(args []string) (of target, err error) {
	switch {
	case f.all && len(args) > 0:
		return of, usagef("--all and %q cannot be given together", args[0])
	case f.all:
		return target{all: true}, nil
	case len(args) == 0:
		return of, usagef("watch what? NAMESPACE/SERVICE, such as shop/web, or --all")
	}
	if of.Key, err = parseService(args[0]); err != nil {
		return of, usageError{err}
	}
	s := &f.ask.source
	if len(s.namespaces) > 0 && !slices.Contains(s.namespaces, of.Namespace) {
		return of, usagef("%v is in no namespace that --namespace names", of)
	}
	if s.manifests == "" && f.ask.server == "" {
		s.namespaces = []string{of.Namespace} // no need to read the others, or to have the right to
	}
	return of, nil
}

// watchSource tells of all that is there and then of each change, until ctx ends
// or there can be nothing to tell.
func watchSource(ctx context.Context, source registry.Source, of target, tell func(round) error, log *slog.Logger) error {
	store := registry.NewStore(log)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return source.Run(gctx, store) })
	g.Go(func() error {
		select {
		case <-gctx.Done():
			return nil
		case <-store.Synced():
		}
		w := newWatcher(store, of)
		defer w.Close()
		for {
			if err := tell(w.round(time.Now())); err != nil {
				return err
			}
			select {
			case <-gctx.Done():
				return nil
			case <-w.Changed():
			}
		}
	})
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// changePrinter prints rounds, and says when there is no such Service, or at first
// nobody behind it.
type changePrinter struct {
	of     target
	print  func([]change) error
	say    func(format string, args ...any)
	absent bool
	begun  bool
}

func (p *changePrinter) tell(r round) error {
	if len(r.changes) > 0 {
		if err := p.print(r.changes); err != nil {
			return fmt.Errorf("write a change: %w", err)
		}
	}
	absent := !p.of.all && r.services == 0
	if absent && !p.absent {
		p.say("there is no Service %v; waiting for it", p.of)
	} else if !absent && !p.begun && len(r.changes) == 0 {
		p.say("nobody is behind %v; waiting", p.of)
	}
	p.absent, p.begun = absent, true
	return nil
}
