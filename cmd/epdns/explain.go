package main

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"

	"epdns/dnsserver"
	"epdns/zones"
)

// explainFlags are what explain can be told.
type explainFlags struct {
	questionFlags
	tcp    bool
	output outputFlag
	color  colorFlag
}

func newExplain() *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain NAME [TYPE]",
		Short: "Show why a question is answered as it is",
		Long: `Show why a question is answered as it is: where the asker was found to be, what is
set for the Service, what that decided, what became of each endpoint, and the answer.
NAME is a whole domain name, with or without the dot at its end, or a Service as kubectl
has it: shop/web, or web with --namespace or in that of the context. For an IP address,
its PTR records are asked for. TYPE is A unless it is given.

The answer is the one that dig gets from there: over UDP with room for 1232 octets, or
over TCP. It and the explanation are made at once, from the cluster, from manifests or
by a running server, chosen as for serve; with --config, as serve would with that file.
The order of endpoints, and with a limit the choice of them, may be another one each
time. The exit status is 0 where the answer can be explained, whatever it is.`,
		Example: `  epdns explain web.shop.registry.local --from 10.244.1.21
  epdns explain web -n shop --from 10.244.1.21
  epdns explain _http._tcp.web.shop.registry.local SRV --tcp
  epdns explain 10.244.1.21
  epdns explain web.shop.registry.local --server http://127.0.0.1:9153 -o json`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.register(cmd)
	fl := cmd.Flags()
	fl.BoolVar(&f.tcp, "tcp", false, "ask over TCP and not over UDP")
	f.output.register(cmd, "text", "table", "wide", "json", "yaml")
	f.color.register(cmd)
	return cmd
}

func (f *explainFlags) run(cmd *cobra.Command, args []string) error {
	if err := f.output.check(); err != nil {
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
	q := explainQuestion{a.question, f.tcp}
	var x *explained
	err = a.answer(cmd, func(ctx context.Context, server *remote) error {
		x, err = server.explain(ctx, q)
		return err
	}, func(r *dnsserver.Responder) error {
		x, err = q.explain(r)
		return err
	}, func() *dns.Msg { return x.msg })
	if err != nil {
		return err
	}
	switch f.output.form {
	case "json":
		err = x.printJSON(out)
	case "yaml":
		err = printYAML(out, x)
	case "table", "wide":
		err = x.printEndpoints(out)
	default:
		err = x.print(out)
	}
	if err != nil {
		return fmt.Errorf("write the explanation: %w", err)
	}
	if a.hint != "" {
		sayer(cmd)("%s", a.hint)
	}
	return nil
}

// explainQuestion is a question as dig asks it.
type explainQuestion struct {
	lookupQuestion
	tcp bool
}

// values is the question as serveExplain has it.
func (q *explainQuestion) values() url.Values {
	v := q.lookupQuestion.values()
	v.Set("tcp", strconv.FormatBool(q.tcp))
	return v
}

// digSize is the room that dig says it has.
const digSize = 1232

// explain answers the question and explains that very answer.
func (q *explainQuestion) explain(r *dnsserver.Responder) (*explained, error) {
	// As dig does, with a cookie, which takes room in a reply that has one, too.
	query, err := q.query(digSize, &dns.EDNS0_COOKIE{Code: dns.EDNS0COOKIE, Cookie: "0000000000000000"})
	if err != nil {
		return nil, err
	}
	over := dnsserver.UDP
	if q.tcp {
		over = dnsserver.TCP
	}
	x := &explained{Transport: over.String(), Message: q.respond(r, query, over)}
	x.Explanation = r.Explain()
	if x.msg, err = unpackReply(x.Message); err != nil {
		return nil, err
	}
	x.Reply = newReplyJSON(x.msg)
	return x, nil
}

// explained is an answer and why it is so: what "explain -o json" prints and /explain
// sends.
type explained struct {
	Transport   string             `json:"transport"` // udp or tcp
	Explanation *zones.Explanation `json:"explanation"`
	Reply       *replyJSON         `json:"reply"`
	Message     []byte             `json:"message"` // the reply as it is sent

	msg *dns.Msg // the message, taken apart
}

func (x *explained) printJSON(w io.Writer) error { return printJSON(w, x) }
