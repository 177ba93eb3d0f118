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
	output outputFlag
	color  colorFlag
	short  bool
}

func newLookup() *cobra.Command {
	var f lookupFlags
	cmd := &cobra.Command{
		Use:   "lookup NAME [TYPE]",
		Short: "Show the answer to a question, as dig does",
		Long: `Show the answer to a question. NAME is a whole domain name, with or without the dot at
its end, or a Service as kubectl has it: shop/web, or web with --namespace or in that of
the context. For an IP address, its PTR records are asked for. TYPE is A unless it is
given.

The answer is the one that a server gives over TCP. It is made from the cluster, from
manifests or by a running server, chosen as for serve; with --config, as serve would
with that file. The exit status is 0 for NOERROR and for NXDOMAIN, and 1 where there is
no answer. With --short, what has no records prints nothing but its status, on standard
error.`,
		Example: `  epdns lookup web.shop.registry.local
  epdns lookup web -n shop -o table
  epdns lookup _http._tcp.web.shop.registry.local SRV --from 10.244.1.21
  epdns lookup 10.244.1.21 --short
  epdns lookup web.shop.registry.local --server http://127.0.0.1:9153
  epdns lookup web.shop.registry.local --server dns://127.0.0.1:5300   # as dig asks`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.register(cmd)
	fl := cmd.Flags()
	f.output.register(cmd, "text", "table", "wide", "json", "yaml")
	f.color.register(cmd)
	fl.BoolVar(&f.short, "short", false, "show only the data of the answer's records")
	return cmd
}

func (f *lookupFlags) run(cmd *cobra.Command, args []string) error {
	show, err := f.printer()
	if err != nil {
		return err
	}
	out, err := f.color.screen(cmd)
	if err != nil {
		return err
	}
	out.wide = f.output.form == "wide"
	a, err := f.prepare(cmd, args)
	if err != nil {
		return err
	}
	q := a.question
	var reply *dns.Msg
	err = a.answer(cmd, func(ctx context.Context, server *remote) error {
		reply, err = server.lookup(ctx, q)
		return err
	}, func(r *dnsserver.Responder) error {
		wire, err := q.answer(r)
		if err != nil {
			return err
		}
		reply, err = unpackReply(wire)
		return err
	}, func() *dns.Msg { return reply })
	if err != nil {
		return err
	}
	if err := show(out, reply); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	if err := noAnswer(reply); err != nil {
		return fmt.Errorf("%w%s", err, a.advice(reply))
	}
	say := sayer(cmd)
	if (f.short || f.output.form == "table" || f.output.form == "wide") && len(reply.Answer) == 0 {
		say("no records for %s %v: %s", q.name, dns.Type(q.qtype), statusText(reply))
	}
	if a.hint != "" {
		say("%s", a.hint)
	}
	if q.subnet.IsValid() && !believed(reply) {
		say("subnet %v does not count: %v is no trusted forwarder, or the source ecs is off", q.subnet, q.from)
	}
	return nil
}

func (f *lookupFlags) printer() (func(io.Writer, *dns.Msg) error, error) {
	if err := f.output.check(); err != nil {
		return nil, err
	}
	if f.short {
		if f.output.form != "text" {
			return nil, usagef("--short and --output %s cannot be given together", f.output.form)
		}
		return printReplyShort, nil
	}
	return map[string]func(io.Writer, *dns.Msg) error{
		"text": printReply, "table": printReplyTable, "wide": printReplyTable, "json": printReplyJSON, "yaml": printReplyYAML,
	}[f.output.form], nil
}
