package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"

	"epdns/dnsserver"
	"epdns/registry"
	"epdns/registry/kube"
	"epdns/zones"
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
	fl.Lookup("namespace").Usage = "namespace of a Service that is called by its name alone; with a whole name, read this namespace only"
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return completeService(cmd, typed, f.zones[0]), cobra.ShellCompDirectiveNoFileComp
		case 1:
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

// question reads a question, whose Services by their own names are in this zone.
func (f *questionFlags) question(args []string, z zones.Zone, source *sourceFlags) (q lookupQuestion, err error) {
	name := args[0]
	if isShort(name, z.Name) {
		k, err := source.service(name, f.ask.server != "")
		switch {
		case err == nil:
			name = serviceName(k, z)
		case strings.Contains(name, "/"):
			return q, fmt.Errorf("NAME %w", err)
		default:
			return q, fmt.Errorf("NAME %q is no whole name: do you mean %s, or Service %s of the namespace that --namespace says?",
				name, serviceName(registry.Key{Namespace: "NAMESPACE", Name: name}, z), name)
		}
	}
	if err := q.setName(name); err != nil {
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

// asking is a question and whom it is put to.
type asking struct {
	question lookupQuestion
	flags    *questionFlags
	server   *remote   // nil: what exists is read here
	settings *settings // for that
	home     string    // namespace that would do for the question

	hint string // what may be meant by a name that does not exist
}

// prepare finds out what is asked, and whom.
func (f *questionFlags) prepare(cmd *cobra.Command, args []string) (a *asking, err error) {
	if f.timeout <= 0 {
		return nil, usagef("--timeout %v is no time to wait", f.timeout)
	}
	// With a Service's own name, --namespace says where that is. All is read nevertheless, as a
	// server would: who asks may be anywhere.
	short := isShort(args[0], "")
	f.ask.short = short
	a = &asking{flags: f}
	if a.server, err = f.ask.remote(cmd, "zone", "config"); err != nil {
		return nil, err
	}
	z, source := zones.DefaultZone(f.zones[0]), f.ask.source
	if a.server == nil {
		server := serveFlags{config: defaultConfig(), source: f.ask.source, zones: f.zones, file: f.config}
		if short {
			server.source.namespaces = nil
		}
		a.settings, err = server.settings(func(flag string) bool {
			return cmd.Flags().Changed(flag) && !(short && flag == "namespace")
		})
		if err != nil {
			return nil, err
		}
		z, source = a.settings.zones.Zones[0], a.settings.source
		source.namespaces = f.ask.source.namespaces
	} else if short {
		z = a.server.firstZone(cmd.Context(), z)
	}
	if a.question, err = f.question(args, z, &source); err != nil {
		return nil, usageError{err}
	}
	if k, ok := serviceOf(a.question.name, []zones.Zone{z}); ok && short {
		a.home = k.Namespace
	}
	return a, nil
}

// answer has the question answered: by a running server, or here from all that exists.
func (a *asking) answer(cmd *cobra.Command, there func(context.Context, *remote) error, here func(*dnsserver.Responder) error, reply func() *dns.Msg) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), a.flags.timeout)
	defer cancel()
	var err error
	if a.server != nil {
		err = there(ctx, a.server)
	} else {
		err = a.read(ctx, cmd, here, reply)
	}
	switch {
	case cmd.Context().Err() != nil:
		return errors.New("interrupted before there was an answer")
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w within %v (--timeout)", err, a.flags.timeout)
	}
	return err
}

// read reads all that exists, and has here answer from it as a server would with these
// settings. Where no more than the Service's namespace may be read, that has to do.
func (a *asking) read(ctx context.Context, cmd *cobra.Command, here func(*dnsserver.Responder) error, reply func() *dns.Msg) error {
	err := a.readFrom(ctx, cmd, a.settings.source, here, reply)
	if !errors.Is(err, kube.ErrNoRight) || a.home == "" || len(a.settings.source.namespaces) > 0 {
		return err
	}
	less := a.settings.source
	less.namespaces = []string{a.home}
	if a.readFrom(ctx, cmd, less, here, reply) != nil {
		return err
	}
	sayer(cmd)("warning: only namespace %s may be read: what is in others is not known, and neither is who asks from there", a.home)
	return nil
}

func (a *asking) readFrom(ctx context.Context, cmd *cobra.Command, from sourceFlags, here func(*dnsserver.Responder) error, reply func() *dns.Msg) error {
	s := a.settings
	source, err := a.flags.ask.open(ctx, &from, quietLog())
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	p, err := newPipeline(source, s.zones, log, registry.AnnotationPrefix(s.prefix))
	if err != nil {
		return err
	}
	return readOnce(ctx, p, cmd, func() error {
		if err := here(dnsserver.NewResponder(s.dns, p.zones)); err != nil {
			return err
		}
		switch m := reply(); m.Rcode {
		case dns.RcodeNameError:
			a.hint = nameHint(m.Question[0].Name, s.zones.Zones, servicesOf(p.registry))
		case dns.RcodeRefused:
			a.hint = outsideHint(m.Question[0].Name, s.zones.Zones[0], servicesOf(p.registry))
		}
		return nil
	})
}

// nameHint is what may be meant by a name that does not exist, empty where nothing comes
// near.
func nameHint(name string, in []zones.Zone, all []registry.Key) string {
	for _, z := range in {
		if k, ok := clusterName(name, z.Name); ok && z.Layout != zones.Kubernetes {
			return fmt.Sprintf("there is no svc in the names of %s; do you mean %s?", strings.TrimSuffix(z.Name, "."), serviceName(k, z))
		}
	}
	k, ok := serviceOf(name, in)
	if !ok || slices.Contains(all, k) {
		return ""
	}
	if meant := meantServicesText(k, all); meant != "" {
		return fmt.Sprintf("there is no Service %v%s", k, meant)
	}
	return ""
}

// outsideHint is what may be meant by a name in none of the zones: a Service by its name and
// namespace alone, or as the cluster's own DNS has it.
func outsideHint(name string, z zones.Zone, all []registry.Key) string {
	k, ok := clusterName(name, "cluster.local")
	if !ok {
		k.Name, k.Namespace, _ = strings.Cut(strings.TrimSuffix(name, "."), ".")
		ok = slices.Contains(all, k)
	}
	if !ok {
		return ""
	}
	return fmt.Sprintf("do you mean %s?", serviceName(k, z))
}

// clusterName reads a name as a cluster's own DNS has it, in a zone.
func clusterName(name, zone string) (k registry.Key, ok bool) {
	rest, ok := strings.CutSuffix(strings.TrimSuffix(name, "."), ".svc."+strings.TrimSuffix(zone, "."))
	k.Name, k.Namespace, _ = strings.Cut(rest, ".")
	return k, ok && k.Namespace != "" && !strings.Contains(k.Namespace, ".")
}

// advice is what to do about a reply that is no answer.
func (a *asking) advice(reply *dns.Msg) string {
	if reply.Rcode != dns.RcodeRefused || a.settings == nil {
		return ""
	}
	var names []string
	for _, z := range a.settings.zones.Zones {
		names = append(names, strings.TrimSuffix(z.Name, "."))
	}
	text := "; the name is in none of the zones: " + strings.Join(names, ", ")
	if a.hint != "" {
		text += "; " + a.hint
	}
	return text
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
