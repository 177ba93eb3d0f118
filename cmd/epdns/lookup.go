package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"

	"epdns/registry"
)

// lookupFlags are what lookup can be told.
type lookupFlags struct {
	ask     askFlags
	zones   []string
	config  string
	from    string
	output  string
	short   bool
	timeout time.Duration
}

func newLookup() *cobra.Command {
	var f lookupFlags
	cmd := &cobra.Command{
		Use:   "lookup NAME [TYPE]",
		Short: "Show the answer to a question, as dig does",
		Long: `Show the answer to a question. NAME is absolute, with or without the dot at its end;
for an IP address, its PTR records are asked for. TYPE is A unless it is given.

The answer is the one that a server gives over TCP. It is made from the cluster, from
manifests or by a running server, chosen as for serve; with --config, as serve would
with that file. The exit status is 0 for NOERROR and for NXDOMAIN, and 1 where there is
no answer.`,
		Example: `  epdns lookup web.shop.registry.local
  epdns lookup _http._tcp.web.shop.registry.local SRV --from 10.244.1.21
  epdns lookup 10.244.1.21 --short
  epdns lookup web.shop.registry.local --server http://127.0.0.1:9153`,
		Args: usageArgs(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return []string{"A", "AAAA", "SRV", "PTR", "CNAME", "TXT", "SOA", "NS", "ANY"}, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.zones, "zone", []string{"registry.local"}, "zone to answer for; repeat for several")
	fl.StringVar(&f.config, "config", "", "YAML file with settings of serve, which flags beat")
	fl.StringVar(&f.from, "from", "", "answer as for one who asks from this address (default: from this machine)")
	fl.StringVarP(&f.output, "output", "o", "text", "text or json")
	fl.BoolVar(&f.short, "short", false, "show only the data of the answer's records")
	fl.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait until all that exists has been read")
	f.ask.register(cmd)
	completeValues(cmd, "output", "text", "json")
	return cmd
}

func (f *lookupFlags) run(cmd *cobra.Command, args []string) error {
	show, err := f.printer()
	if err != nil {
		return err
	}
	q, err := f.question(args)
	if err != nil {
		return usageError{err}
	}
	if f.timeout <= 0 {
		return usagef("--timeout %v is no time to wait", f.timeout)
	}
	server, err := f.ask.remote(cmd, "zone", "config")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	var reply *dns.Msg
	if server != nil {
		reply, err = server.lookup(ctx, q)
	} else {
		reply, err = f.lookup(ctx, q, cmd)
	}
	switch {
	case cmd.Context().Err() != nil:
		return errors.New("interrupted before there was an answer")
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w within %v (--timeout)", err, f.timeout)
	case err != nil:
		return err
	}
	if err := show(cmd.OutOrStdout(), reply); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if reply.Rcode != dns.RcodeSuccess && reply.Rcode != dns.RcodeNameError {
		err := fmt.Errorf("no answer for %s %v: %s", q.name, dns.Type(q.qtype), statusText(reply))
		for _, e := range extendedErrors(reply) {
			err = fmt.Errorf("%w, %s", err, extendedErrorText(e))
		}
		return err
	}
	return nil
}

func (f *lookupFlags) printer() (func(io.Writer, *dns.Msg) error, error) {
	switch {
	case f.output != "text" && f.output != "json":
		return nil, usagef("--output %q is not text or json", f.output)
	case f.output == "json" && f.short:
		return nil, usagef("--short and --output json cannot be given together")
	case f.output == "json":
		return printReplyJSON, nil
	case f.short:
		return printReplyShort, nil
	}
	return printReply, nil
}

func (f *lookupFlags) question(args []string) (q lookupQuestion, err error) {
	if err := q.setName(args[0]); err != nil {
		return q, fmt.Errorf("NAME %w", err)
	}
	typ := ""
	if len(args) > 1 {
		if typ = args[1]; typ == "" {
			return q, errors.New("TYPE is empty")
		}
	}
	if err := q.setType(typ); err != nil {
		return q, fmt.Errorf("TYPE %w", err)
	}
	if err := q.setFrom(f.from); err != nil {
		return q, fmt.Errorf("--from %w", err)
	}
	return q, nil
}

// lookup reads all that exists and answers.
func (f *lookupFlags) lookup(ctx context.Context, q lookupQuestion, cmd *cobra.Command) (reply *dns.Msg, err error) {
	server := serveFlags{config: defaultConfig(), source: f.ask.source, zones: f.zones, file: f.config}
	s, err := server.settings(cmd.Flags().Changed)
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	source, err := s.source.open(ctx, log)
	if err != nil {
		return nil, err
	}
	p, err := newPipeline(source, s.zones, log, registry.AnnotationPrefix(s.prefix))
	if err != nil {
		return nil, err
	}
	err = p.once(ctx, func() error {
		wire, err := q.answer(p.zones)
		if err != nil {
			return err
		}
		reply, err = unpackReply(wire)
		return err
	})
	return reply, err
}

// awaitSync waits until a pipeline has published all that exists. It returns false
// when ctx ends before.
func awaitSync(ctx context.Context, p *pipeline) bool {
	select {
	case <-ctx.Done():
		return false
	case <-p.served:
		return true
	}
}
