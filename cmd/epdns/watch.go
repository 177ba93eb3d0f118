package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"epdns/registry"
)

// watchFlags are what watch can be told.
type watchFlags struct {
	ask    askFlags
	all    bool
	output outputFlag
	color  colorFlag
}

func newWatch() *cobra.Command {
	var f watchFlags
	cmd := &cobra.Command{
		Use:   "watch [NAMESPACE/]SERVICE",
		Short: "Show each change behind a Service as it happens",
		Long: `Show the endpoints behind a Service, and then each one that comes, goes or changes,
until Ctrl-C.

They are read from the cluster, from manifests or from a running server, chosen as for
serve. A Service that does not exist is waited for. Without a namespace, it is the one of
--namespace, or of the context.

On a terminal, columns that it has no room for are left out; -o wide shows all.`,
		Example: `  epdns watch shop/web
  epdns watch web -n shop -o wide
  epdns watch --all -o json
  epdns watch shop/web --server http://127.0.0.1:9153`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 || f.all {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return completeService(cmd, typed, ""), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	cmd.Flags().BoolVarP(&f.all, "all", "A", false, "watch all Services")
	f.output.register(cmd, "table", "wide", "json", "yaml")
	f.color.register(cmd)
	f.ask.register(cmd)
	return cmd
}

func (f *watchFlags) run(cmd *cobra.Command, args []string) error {
	f.ask.short = len(args) > 0 && !strings.Contains(args[0], "/")
	of, err := f.target(args)
	if err != nil {
		return err
	}
	if err := f.output.check(); err != nil {
		return err
	}
	out, err := f.color.screen(cmd)
	if err != nil {
		return err
	}
	out.wide = f.output.form == "wide"
	p := &changePrinter{of: of, say: sayer(cmd)}
	switch f.output.form {
	case "json":
		p.print = changeLines{out}.print
	case "yaml":
		p.print = changeDocuments{out}.print
	default:
		p.print = (&changeTable{w: out, one: !of.all}).print
	}
	server, err := f.ask.remote(cmd)
	if err != nil {
		return err
	}
	ctx, stop := whileRead(cmd.Context(), cmd.OutOrStdout())
	defer stop()
	if server != nil {
		err = server.watch(ctx, of, p.tell, p.say)
	} else {
		err = f.watchHere(ctx, cmd, of, p)
	}
	if context.Cause(ctx) == errReaderGone {
		return errReaderGone
	}
	return err
}

// watchHere watches what exists itself.
func (f *watchFlags) watchHere(ctx context.Context, cmd *cobra.Command, of target, p *changePrinter) error {
	log := &lateLog{Handler: slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})}
	source, err := f.ask.open(ctx, &f.ask.source, slog.New(log))
	if err != nil {
		return err
	}
	ctx, r := follow(ctx, source, cmd.ErrOrStderr())
	defer r.cancel(nil)
	defer r.done()
	first := true
	err = watchSource(ctx, source, of, func(round round, store *registry.Store) error {
		if first {
			first = false
			r.done()
			log.begun.Store(true)
			p.near = func() []registry.Key { return servicesOf(store) }
		}
		return p.tell(round)
	}, slog.New(log))
	if gone := (unreachableError{}); errors.As(context.Cause(ctx), &gone) {
		return gone
	}
	return err
}

// lateLog is silent until all has been read: what is wrong before is told as an error.
type lateLog struct {
	slog.Handler
	begun atomic.Bool
}

// Enabled implements [slog.Handler].
func (l *lateLog) Enabled(ctx context.Context, level slog.Level) bool {
	return l.begun.Load() && l.Handler.Enabled(ctx, level)
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
	s := &f.ask.source
	if of.Key, err = s.service(args[0], f.ask.server != ""); err != nil {
		return of, usageError{err}
	}
	if s.manifests != "" || f.ask.server != "" {
		if f.ask.short {
			s.namespaces = nil // it was the Service's
		}
		return of, nil
	}
	s.namespaces = []string{of.Namespace} // no need to read the others, or to have the right to
	return of, nil
}

// watchSource tells of all that is there and then of each change, until ctx ends
// or there can be nothing to tell.
func watchSource(ctx context.Context, source registry.Source, of target, tell func(round, *registry.Store) error, log *slog.Logger) error {
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
			if err := tell(w.round(time.Now()), store); err != nil {
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
	near   func() []registry.Key // the Services that were read, to guess at those that are meant
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
		meant := ""
		if p.near != nil {
			meant = meantServicesText(p.of.Key, p.near())
		}
		p.say("there is no Service %v; waiting for it%s", p.of, meant)
	} else if !absent && !p.begun && len(r.changes) == 0 {
		p.say("nobody is behind %v; waiting", p.of)
	}
	p.absent, p.begun = absent, true
	return nil
}
