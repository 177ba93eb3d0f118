package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"epdns/dnsserver"
	"epdns/zones"
)

// serveFlags are what serve can be told.
type serveFlags struct {
	source      sourceFlags
	zones       []string
	listen      []string
	http        string
	reverse     []string
	nameservers []string
	transfer    []string
	log         logFlags
}

func newServe() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve DNS from a cluster or from manifests",
		Long: `Serve DNS over UDP and TCP.

Without --manifests and --kubeconfig, the cluster is the one whose pod this is, else
the one that kubectl would use.`,
		Example: `  epdns serve
  epdns serve --kubeconfig ~/.kube/config --context test --zone registry.local
  epdns serve --manifests ./manifests --listen 127.0.0.1:5300`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	fl := cmd.Flags()
	fl.StringArrayVar(&f.zones, "zone", []string{"registry.local"}, "zone to serve; repeat for several")
	fl.StringArrayVar(&f.listen, "listen", []string{":5300"}, "ADDR:PORT to answer on, UDP and TCP; repeat for several")
	fl.StringVar(&f.http, "http", "127.0.0.1:9153", "ADDR:PORT of /livez, /readyz and /metrics; empty for none")
	fl.StringArrayVar(&f.reverse, "reverse", nil, "prefix to answer PTR questions for with authority, such as 10.0.0.0/8; repeat for several")
	fl.StringArrayVar(&f.nameservers, "nameserver", nil, "address of ns.dns.<zone>; repeat for several (default: the one that was asked)")
	fl.StringArrayVar(&f.transfer, "transfer-allow", nil, "prefix that may have zone transfers besides loopback; repeat for several")
	f.source.register(cmd)
	f.log.register(cmd)
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	log, err := f.log.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	zc, err := f.zonesConfig()
	if err != nil {
		return usageError{err}
	}
	dc, err := f.dnsConfig()
	if err != nil {
		return usageError{err}
	}
	if err := checkHTTP(f.http); err != nil {
		return usageError{err}
	}
	source, err := f.source.open(log)
	if err != nil {
		return err
	}
	p, err := newPipeline(source, zc, log)
	if err != nil {
		return usageError{err}
	}
	dns, err := dnsserver.Listen(dc, p.zones, log)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(cmd.Context())
	if f.http != "" {
		h, err := listenHTTP(f.http, p, dns, log)
		if err != nil {
			return err
		}
		log.Info("listening", "http", h.Addr().String())
		g.Go(func() error { return h.Run(ctx) })
	}
	log.Info("listening", "dns", dns.Addrs(), "zones", f.zones)
	g.Go(func() error { return p.Run(ctx) })
	g.Go(func() error { return dns.Serve(ctx) })
	err = g.Wait()
	if context.Cause(cmd.Context()) != nil {
		log.Info("stopped")
		return nil
	}
	return err
}

func (f *serveFlags) zonesConfig() (c zones.Config, err error) {
	for _, z := range f.zones {
		c.Zones = append(c.Zones, zones.DefaultZone(z))
	}
	if c.Reverse, err = prefixes("--reverse", f.reverse); err != nil {
		return c, err
	}
	for _, a := range f.nameservers {
		addr, err := netip.ParseAddr(a)
		if err != nil {
			return c, fmt.Errorf("--nameserver %q is no IP address", a)
		}
		c.Nameservers = append(c.Nameservers, addr)
	}
	return c, c.Validate()
}

func (f *serveFlags) dnsConfig() (c dnsserver.Config, err error) {
	for _, l := range f.listen {
		if err := dnsserver.CheckListen(l); err != nil {
			return c, fmt.Errorf("--listen %w", err)
		}
	}
	c.Listen = f.listen
	c.Transfer, err = prefixes("--transfer-allow", f.transfer)
	return c, err
}

// prefixes reads CIDR prefixes; an address alone is the prefix of that address.
func prefixes(flag string, texts []string) (out []netip.Prefix, err error) {
	for _, s := range texts {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			a, aerr := netip.ParseAddr(s)
			if aerr != nil {
				return nil, fmt.Errorf("%s %q is no prefix such as 10.0.0.0/8", flag, s)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

func checkHTTP(addr string) error {
	if addr == "" {
		return nil
	}
	if _, err := net.ResolveTCPAddr("tcp", addr); err != nil {
		return fmt.Errorf("--http %q is not ADDR:PORT", addr)
	}
	return nil
}
