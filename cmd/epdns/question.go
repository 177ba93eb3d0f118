package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"

	"epdns/dnsserver"
	"epdns/registry"
)

// questionFlags are what lookup and explain can be told: a question, who asks it, and
// whom.
type questionFlags struct {
	ask     askFlags
	zones   []string
	config  string
	from    string
	subnet  string
	timeout time.Duration
}

func (f *questionFlags) register(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringArrayVar(&f.zones, "zone", []string{"registry.local"}, "zone to answer for; repeat for several")
	fl.StringVar(&f.config, "config", "", "YAML file with settings of serve, which flags beat")
	fl.StringVar(&f.from, "from", "", "answer as for one who asks from this address (default: from this machine)")
	fl.StringVar(&f.subnet, "subnet", "", "with this EDNS Client Subnet, such as 10.1.2.0/24; it counts if --from is a trusted forwarder")
	fl.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait until all that exists has been read")
	f.ask.register(cmd)
	cmd.Args = questionArgs
	cmd.ValidArgsFunction = func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return []string{"A", "AAAA", "SRV", "PTR", "CNAME", "TXT", "SOA", "NS", "ANY"}, cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// questionArgs says what is missing, too much or in the wrong place.
func questionArgs(cmd *cobra.Command, args []string) error {
	name := cmd.Name()
	for _, arg := range args {
		if strings.HasPrefix(arg, "@") {
			return usagef("%q: the order is NAME and then TYPE; --server URL asks a running server (see %s --help)", arg, cmd.CommandPath())
		}
	}
	switch {
	case len(args) == 0:
		return usagef("%s what? NAME [TYPE], such as web.shop.registry.local SRV (see %s --help)", name, cmd.CommandPath())
	case len(args) > 2:
		return usagef("%s takes NAME and TYPE, and not %q as well (see %s --help)", name, args[2], cmd.CommandPath())
	case len(args) == 2 && isType(args[0]) && !isType(args[1]):
		return usagef("the order is NAME and then TYPE: %s %s %s", name, args[1], args[0])
	}
	return nil
}

func isType(text string) bool {
	_, ok := dns.StringToType[strings.ToUpper(text)]
	return ok
}

func (f *questionFlags) question(args []string) (q lookupQuestion, err error) {
	if len(f.zones) > 0 {
		q.zone = f.zones[0]
	}
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
	if err := q.setSubnet(f.subnet); err != nil {
		return q, fmt.Errorf("--subnet %w", err)
	}
	return q, nil
}

// answer has a question answered: by a running server, or here from all that exists.
func (f *questionFlags) answer(cmd *cobra.Command, there func(context.Context, *remote) error, here func(*dnsserver.Responder) error) error {
	if f.timeout <= 0 {
		return usagef("--timeout %v is no time to wait", f.timeout)
	}
	server, err := f.ask.remote(cmd, "zone", "config")
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), f.timeout)
	defer cancel()
	if server != nil {
		err = there(ctx, server)
	} else {
		err = f.read(ctx, cmd, here)
	}
	switch {
	case cmd.Context().Err() != nil:
		return errors.New("interrupted before there was an answer")
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w within %v (--timeout)", err, f.timeout)
	}
	return err
}

// read reads all that exists, and has here answer from it as a server would with these
// settings.
func (f *questionFlags) read(ctx context.Context, cmd *cobra.Command, here func(*dnsserver.Responder) error) error {
	server := serveFlags{config: defaultConfig(), source: f.ask.source, zones: f.zones, file: f.config}
	s, err := server.settings(cmd.Flags().Changed)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	source, err := f.ask.open(ctx, &s.source, log)
	if err != nil {
		return err
	}
	p, err := newPipeline(source, s.zones, log, registry.AnnotationPrefix(s.prefix))
	if err != nil {
		return err
	}
	return p.once(ctx, func() error { return here(dnsserver.NewResponder(s.dns, p.zones)) })
}

// noAnswer is the error where a reply is none: neither records nor that there are none.
func noAnswer(reply *dns.Msg) error {
	if reply.Rcode == dns.RcodeSuccess || reply.Rcode == dns.RcodeNameError {
		return nil
	}
	q := reply.Question[0]
	err := fmt.Errorf("no answer for %s %v: %s", q.Name, dns.Type(q.Qtype), statusText(reply))
	for _, e := range extendedErrors(reply) {
		err = fmt.Errorf("%w, %s", err, extendedErrorText(e))
	}
	return err
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
