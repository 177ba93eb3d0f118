package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"

	"epdns/dnsserver"
	"epdns/registry"
	"epdns/registry/manifest"
	"epdns/zones"
)

// This file finds mistakes before they are served. On standard output there is a line
// for each:
//
//	epdns.yaml:6: KEY: WHY             of the file
//	web.yaml:9: Service "web": WHY     of a manifest
//	shop/web: annotation NAME "VALUE": WHY
//	warning: shop/web: WHY             of what may be meant so, or does nothing
//	through 10.96.0.10: NAME TYPE: WHY of a resolver before epdns (through.go)
//	no faults: 12 Services

// checkFlags are what check can be told.
type checkFlags struct {
	source  sourceFlags
	config  string
	timeout time.Duration
	through string
	names   []string
}

func newCheck() *cobra.Command {
	var f checkFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find mistakes in a configuration file and in annotations",
		Long: `Find mistakes in a configuration file, and in the annotations of all Services of the
cluster or the manifests, chosen as for serve. Each gets a line on standard output: those
of files as FILE:LINE, annotations by NAMESPACE/SERVICE. A line that begins with
"warning:" tells of what may be meant so, or is set and does nothing.

With --through, a resolver that stands between clients and epdns is asked, too, for a
Service of each kind, and again when those answers are over. What it answers otherwise
than epdns, or keeps for longer, gets a line that says which setting does that.

The exit status is 1 if there is a mistake, else 0.`,
		Example: `  epdns check --config epdns.yaml
  epdns check --manifests ./manifests
  epdns check --through 10.96.0.10`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return usagef("check takes no arguments: do you mean --config %s or --manifests %s? (see %s --help)", args[0], args[0], cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.StringVar(&f.config, "config", "", "YAML file with settings of serve, which flags beat")
	fl.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait until all that exists has been read, and to look --through at most")
	fl.StringVar(&f.through, "through", "", "ask this resolver, ADDR or ADDR:PORT, and compare its answers with epdns's")
	fl.StringArrayVar(&f.names, "name", nil, "name to ask for --through it instead of some that are chosen; repeat for several")
	f.source.register(cmd)
	return cmd
}

func (f *checkFlags) run(cmd *cobra.Command) error {
	if err := notEmpty(cmd, "config", "manifests", "kubeconfig", "context"); err != nil {
		return err
	}
	if f.timeout <= 0 {
		return usagef("--timeout %v is no time to wait", f.timeout)
	}
	resolver, err := f.resolver(cmd)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	server := serveFlags{config: defaultConfig(), source: f.source, file: f.config}
	s, err := server.settings(cmd.Flags().Changed)
	var found int
	if bad := (fileErrors)(nil); errors.As(err, &bad) {
		for _, e := range bad {
			fmt.Fprintln(out, e.place())
		}
		if found = len(bad); s == nil {
			return faults(found) // what exists, and where, is not known for certain
		}
	} else if err != nil {
		return err
	}
	for _, name := range f.names {
		if !inZones(name, s.zones.Zones) {
			return usagef("--name %q is in none of the zones", name)
		}
	}

	ctx, cancel := context.WithCancelCause(cmd.Context())
	defer cancel(nil)
	late := time.AfterFunc(f.timeout, func() { cancel(context.DeadlineExceeded) }) // to read
	defer late.Stop()
	log := &lateLog{Handler: slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})}
	s.source.partial = true
	source, err := s.source.open(ctx, slog.New(log))
	if bad := (manifest.Faults)(nil); errors.As(err, &bad) {
		for _, f := range bad {
			fmt.Fprintln(out, f.Place())
		}
		found += len(bad)
	} else if err != nil {
		return err
	}
	p, err := newPipeline(source, s.zones, slog.New(log.Handler), registry.AnnotationPrefix(s.prefix))
	if err != nil {
		return err
	}
	err = readOnce(ctx, p, cmd, func() error {
		late.Stop()
		log.begun.Store(true)
		services := allServices(p)
		found += checkServices(out, p, s, services)
		if resolver.IsValid() {
			ctx, cancel := context.WithTimeout(ctx, f.timeout)
			defer cancel()
			w := newWay(out, resolver, p.zones, services)
			if f.config == "" {
				w.hint = ". If epdns serves with a configuration, this check needs it, too (--config)"
			}
			found += w.check(ctx, services, s.zones.Zones, f.names)
		}
		if found == 0 && cmd.Context().Err() == nil {
			fmt.Fprintf(out, "no faults: %s\n", counted(len(services), "Service"))
		}
		return nil
	})
	switch {
	case cmd.Context().Err() != nil:
		return errors.New("interrupted before all was checked")
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w within %v (--timeout)", err, f.timeout)
	case err != nil:
		return err
	}
	return faults(found)
}

// resolver is the one to ask, not valid where there is none.
func (f *checkFlags) resolver(cmd *cobra.Command) (to netip.AddrPort, err error) {
	if !cmd.Flags().Changed("through") {
		if len(f.names) > 0 {
			return to, usagef("--name says what to ask for --through a resolver, which is not given")
		}
		return to, nil
	}
	if to, err = parseUpstream(f.through); err != nil {
		return to, usageError{fmt.Errorf("--through: %w", err)}
	}
	for _, name := range f.names {
		var q lookupQuestion
		if err := q.setName(name); err != nil {
			return to, usageError{fmt.Errorf("--name: %w", err)}
		}
	}
	return to, nil
}

// faults is the error for so many, nil for none.
func faults(n int) error {
	if n == 0 {
		return nil
	}
	return errors.New(counted(n, "fault"))
}

// counted is a number of things.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// allServices are those that a pipeline has.
func allServices(p *pipeline) []*registry.Service {
	f := p.registry.FollowAll()
	defer f.Close()
	services := f.Take()
	slices.SortFunc(services, func(a, b *registry.Service) int { return strings.Compare(a.String(), b.String()) })
	return services
}

// checkServices prints what is wrong with Services, and says how many faults that is.
func checkServices(out io.Writer, p *pipeline, s *settings, services []*registry.Service) (found int) {
	objects := false
	for _, svc := range services {
		objects = objects || svc.Object != nil
		for _, problem := range zones.Problems(svc) {
			fmt.Fprintf(out, "%v: annotation %s/%v\n", svc, s.prefix, problem)
			found++
		}
		if text := tooMany(svc, p.zones, s.zones.Zones); text != "" {
			fmt.Fprintf(out, "warning: %v: %s; the annotation %s/limit makes it fewer\n", svc, text, s.prefix)
		}
		if text := sameWeights(svc, p.zones, s.zones.Zones); text != "" {
			fmt.Fprintf(out, "warning: %v: %s\n", svc, text)
		}
	}
	for _, i := range s.zones.Idle(services) {
		switch {
		case i.Service != (registry.Key{}):
			fmt.Fprintf(out, "warning: %v: annotation %s/%s: %s\n", i.Service, s.prefix, i.Setting, i.Why)
		case objects && len(s.source.namespaces) == 0: // else there may be what was not read
			fmt.Fprintf(out, "warning: %s: %s\n", i.Setting, i.Why)
		}
	}
	if files := s.source.files(); files != "" && p.isEmpty() {
		fmt.Fprintf(out, "warning: no Service or EndpointSlice in %s\n", files)
	}
	if len(services) > 0 && !objects {
		fmt.Fprintln(out, "warning: only EndpointSlices could be read, and no Services, which have the annotations")
	}
	return found
}

// bindMax is how many records of a type BIND takes by default as a forwarder
// (max-records-per-type); it answers SERVFAIL to more.
const bindMax = 100

// tooMany says whether one who asks for a Service's addresses gets more than BIND
// takes, in the zone where that is most.
func tooMany(svc *registry.Service, store *zones.Store, in []zones.Zone) (text string) {
	endpoints := 0
	for _, slice := range svc.Slices {
		endpoints += slice.Endpoints.Len()
	}
	if endpoints <= bindMax || svc.Object != nil && svc.Object.IsExternalName {
		return ""
	}
	most := bindMax
	for _, z := range in {
		name := serviceName(svc.Key, z)
		for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA} {
			var q lookupQuestion
			if q.setName(name) != nil || q.setFrom("") != nil {
				continue // a name that cannot be asked for
			}
			q.qtype = qtype
			wire, err := q.answer(dnsserver.NewResponder(dnsserver.Config{}, store))
			if err != nil {
				continue
			}
			reply, err := unpackReply(wire)
			if err != nil || len(reply.Answer) <= most {
				continue
			}
			most = len(reply.Answer)
			text = tooManyText(most, qtype)
		}
	}
	return text
}

// tooManyText says that an answer has so many records of a type that BIND takes none.
func tooManyText(records int, qtype uint16) string {
	return fmt.Sprintf("an answer has %d %v records, and a BIND that asks for others takes at most %d", records, dns.Type(qtype), bindMax)
}
