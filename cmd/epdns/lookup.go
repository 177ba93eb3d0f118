package main

import (
	"context"
	"fmt"
	"io"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"

	"epdns/dnsserver"
)

// lookupFlags are what lookup can be told.
type lookupFlags struct {
	questionFlags
	output string
	short  bool
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
no answer. With --short, what has no records prints nothing but its status, on standard
error.`,
		Example: `  epdns lookup web.shop.registry.local
  epdns lookup _http._tcp.web.shop.registry.local SRV --from 10.244.1.21
  epdns lookup 10.244.1.21 --short
  epdns lookup web.shop.registry.local --server http://127.0.0.1:9153`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.register(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&f.output, "output", "o", "text", "text or json")
	fl.BoolVar(&f.short, "short", false, "show only the data of the answer's records")
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
	var reply *dns.Msg
	err = f.answer(cmd, func(ctx context.Context, server *remote) error {
		reply, err = server.lookup(ctx, q)
		return err
	}, func(r *dnsserver.Responder) error {
		wire, err := q.answer(r)
		if err != nil {
			return err
		}
		reply, err = unpackReply(wire)
		return err
	})
	if err != nil {
		return err
	}
	if err := show(cmd.OutOrStdout(), reply); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if err := noAnswer(reply); err != nil {
		return err
	}
	if f.short && len(reply.Answer) == 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "epdns: no records for %s %v: %s\n", q.name, dns.Type(q.qtype), statusText(reply))
	}
	if q.subnet.IsValid() && !believed(reply) {
		fmt.Fprintf(cmd.ErrOrStderr(), "epdns: subnet %v does not count: %v is no trusted forwarder, or the source ecs is off\n", q.subnet, q.from)
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
