package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"epdns/dnsserver"
	"epdns/registry/manifest"
	"epdns/zones"
)

func newDemo() *cobra.Command {
	c := config{Listen: make([]string, 1)}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Serve the embedded sample cluster and show what to ask it",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var m mistakes
			if c.checkAddresses(&m); len(m) > 0 {
				return asFlag(m)
			}
			return demo(cmd.Context(), c.Listen[0], c.HTTP, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&c.Listen[0], "listen", "127.0.0.1:5300", "ADDR:PORT to answer on, UDP and TCP")
	cmd.Flags().StringVar(&c.HTTP, "http", "127.0.0.1:9153", "ADDR:PORT for commands that ask a running server; empty for none")
	return cmd
}

// tour is what there is to see in the sample cluster.
var tour = []struct{ name, typ, show, what string }{
	{"web.shop.registry.local", "A", "+answer", "a Service and its ready pods, in three zones: the pods' own addresses, no ClusterIP"},
	{"web.shop.registry.local", "A", "+answer +subnet=10.244.1.21/32", "the same as a pod in zone-a gets it: its own zone first"},
	{"web.shop.registry.local", "A", "+answer +subnet=10.244.3.21/32", "and as one in zone-c"},
	{"web.shop.registry.local", "SRV", "+answer", "all of them with ports: one record for each pod and named port"},
	{"_metrics._tcp.web.shop.registry.local", "SRV", "+answer", "one port by its name"},
	{"api.shop.registry.local", "AAAA", "+answer", "a dual-stack Service, asked for IPv6"},
	{"db-0.db.data.registry.local", "A", "+answer", "one pod of a StatefulSet, by its host name"},
	{"10-244-1-21.web.shop.registry.local", "A", "+answer", "one pod of a Deployment, by its address"},
	{"jobs.shop.registry.local", "A", "+answer", "one pod is ready; one that is not and one that terminates are left out"},
	{"pg.shop.registry.local", "A", "+answer", "an ExternalName Service: an alias, followed inside the zone"},
	{"_explain.web.shop.registry.local", "TXT", "+answer +subnet=10.244.1.21/32", "why the pod in zone-a gets its own zone first"},
	{"nope.shop.registry.local", "A", "+comments +authority", "no such Service: NXDOMAIN, to be kept for five seconds"},
}

// demo serves until ctx ends, without HTTP where web is empty.
func demo(ctx context.Context, listen, web string, stdout, stderr io.Writer) error {
	// The log of a demo is what goes wrong.
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	source := manifest.New(manifest.Sample(), "the embedded sample cluster", log)
	p, err := newPipeline(source, zones.Config{
		Zones:   []zones.Zone{zones.DefaultZone("registry.local")},
		Reverse: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
		// Whoever tries the demo may ask as anybody.
		Clients: zones.Clients{TrustedForwarders: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}},
	}, log)
	if err != nil {
		return err
	}
	p.problems = newAnnotationProblems(log)
	server, err := dnsserver.Listen(dnsserver.Config{Listen: []string{listen}}, p.zones, log)
	if err != nil {
		return fmt.Errorf("%w (--listen says where)", err)
	}
	url, h := "", (*httpServer)(nil)
	if web != "" {
		if h, err = listenHTTP(web, p, server, log); err != nil {
			server.Close()
			return fmt.Errorf("%w (--http says where; empty is nowhere)", err)
		}
		a := h.Addr().(*net.TCPAddr).AddrPort()
		h.page.look() // so that what is asked before somebody does is there
		url = fmt.Sprintf("http://%v", netip.AddrPortFrom(askable(a.Addr().Unmap(), web), a.Port()))
	}
	g, gctx := errgroup.WithContext(ctx)
	if h != nil {
		g.Go(func() error { return h.Run(gctx) })
	}
	g.Go(func() error { return p.Run(gctx) })
	g.Go(func() error { return server.Serve(gctx) })
	g.Go(func() error { return show(gctx, p, listen, server.Addrs()[0], url, stdout) })
	if err := g.Wait(); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

// askable is the address to ask at one that listens on addr, which was given so.
func askable(addr netip.Addr, given string) netip.Addr {
	switch host, _, _ := net.SplitHostPort(given); {
	case addr.IsUnspecified() && addr.Is6() && host != "":
		return netip.IPv6Loopback()
	case addr.IsUnspecified():
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return addr
}

// show prints the tour: lines for dig, or the answers where there is no dig; and where
// there is HTTP at url, one for explain.
func show(ctx context.Context, p *pipeline, listen string, addr netip.AddrPort, url string, w io.Writer) error {
	if !awaitSync(ctx, p) {
		return nil
	}
	host := askable(addr.Addr(), listen)
	s := p.registry.Stats()
	fmt.Fprintf(w, "epdns serves a sample cluster on %v: %d Services, %d of %d endpoints ready.\n", addr, s.Services, s.Ready, s.Endpoints)
	_, err := exec.LookPath("dig")
	hasDig := err == nil
	if hasDig {
		fmt.Fprint(w, "Ask it from another terminal:\n")
	} else {
		fmt.Fprint(w, "There is no dig on this machine (Debian has it in bind9-dnsutils), so here are the answers too:\n")
	}
	dig := func(show, args string) string {
		return fmt.Sprintf("dig @%v -p %d +noall %s %s", host, addr.Port(), show, args)
	}
	for _, q := range tour {
		fmt.Fprintf(w, "\n# %s\n%s\n", q.what, dig(q.show, q.name+" "+q.typ))
		if !hasDig {
			if err := answer(ctx, w, netip.AddrPortFrom(host, addr.Port()), q.name, q.typ, q.show); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(w, "\n# who has an address?\n%s\n", dig("+answer", "-x 10.244.1.21"))
	if !hasDig {
		if err := answer(ctx, w, netip.AddrPortFrom(host, addr.Port()), "21.1.244.10.in-addr.arpa", "PTR", ""); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "\n# all of it\n%s\n", dig("+answer", "registry.local AXFR"))
	if url != "" {
		fmt.Fprintf(w, "\n# why an answer is as it is, step by step (lookup and watch take --server, too)\n%s explain web.shop.registry.local --from 10.244.1.21 --server %s\n", thisProgram(), url)
		fmt.Fprintf(w, "\n# what it knows and does, for a browser\n%s/\n", url)
	}
	fmt.Fprint(w, "\nCtrl-C ends it.\n")
	return nil
}

// answer asks the running server, as dig would with what show says, and prints what
// comes.
func answer(ctx context.Context, w io.Writer, addr netip.AddrPort, name, typ, show string) error {
	m := new(dns.Msg).SetQuestion(name+".", dns.StringToType[typ])
	m.SetEdns0(1232, false)
	if _, subnet, ok := strings.Cut(show, "+subnet="); ok {
		p := netip.MustParsePrefix(subnet)
		opt := m.IsEdns0()
		opt.Option = append(opt.Option, &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: uint8(p.Bits()), Address: p.Addr().AsSlice()})
	}
	reply, _, err := (&dns.Client{Timeout: 2 * time.Second}).ExchangeContext(ctx, m, addr.String())
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("ask %v for %s %s: %w", addr, name, typ, err)
	}
	if len(reply.Answer) == 0 {
		fmt.Fprintf(w, "  %s, no records\n", dns.RcodeToString[reply.Rcode])
	}
	for _, rr := range reply.Answer {
		fmt.Fprintf(w, "  %s\n", strings.ReplaceAll(rr.String(), "\t", " "))
	}
	return nil
}

// thisProgram is how this program is run once more from the same directory.
func thisProgram() string {
	if strings.Contains(os.Args[0], "/go-build") {
		return "go run ./cmd/epdns"
	}
	return os.Args[0]
}
