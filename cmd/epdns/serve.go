package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"epdns/dnsserver"
	"epdns/registry"
)

// serveFlags are what serve can be told on the command line.
type serveFlags struct {
	config    *config // what has a key in the file, too
	source    sourceFlags
	zones     []string
	file      string
	reference bool
	reusePort bool
	log       logFlags
}

func newServe() *cobra.Command {
	f := &serveFlags{config: defaultConfig()}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve DNS from a cluster or from manifests",
		Long: `Serve DNS over UDP and TCP.

Without --manifests and --kubeconfig, the cluster is the one whose pod this is, else
the one that kubectl would use.

A file can say all this and more (--config-reference). Flags that are given beat it.`,
		Example: `  epdns serve
  epdns serve --kubeconfig ~/.kube/config --context test --zone registry.local
  epdns serve --manifests ./manifests --listen 127.0.0.1:5300
  epdns serve --config epdns.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.register(cmd)
	return cmd
}

func (f *serveFlags) register(cmd *cobra.Command) {
	c, fl := f.config, cmd.Flags()
	fl.StringVar(&f.file, "config", "", "YAML file with settings, which flags beat")
	fl.BoolVar(&f.reference, "config-reference", false, "print such a file, with every key, its default and its meaning, and exit")
	fl.StringArrayVar(&f.zones, "zone", []string{c.Zones[0].Name}, "zone to serve; repeat for several")
	fl.StringArrayVar(&c.Listen, "listen", c.Listen, "ADDR:PORT to answer on, UDP and TCP; repeat for several")
	fl.StringVar(&c.HTTP, "http", c.HTTP, "ADDR:PORT of /livez, /readyz and /metrics; empty for none")
	fl.StringVar(&c.StateDir, "state-dir", "", "directory to keep in what was read last, to be answered after a restart until all has been read again (default: none)")
	fl.BoolVar(&c.Pprof, "pprof", false, "have /debug/pprof among the HTTP pages, for this machine only")
	fl.StringArrayVar(&c.Reverse, "reverse", nil, "prefix to answer PTR questions for with authority, such as 10.0.0.0/8; repeat for several")
	fl.StringArrayVar(&c.Nameserver, "nameserver", nil, "address of ns.dns.<zone>; repeat for several (default: the one that was asked)")
	fl.StringArrayVar(&c.Upstream, "upstream", nil, "ADDR or ADDR:PORT to pass names outside the zones to; repeat for several, in order of preference (default: REFUSED)")
	fl.StringVar(&c.NSID, "nsid", "", "what this server calls itself to who asks, such as the name of its pod (default: nothing)")
	fl.StringVar(&c.Cookies.SecretFile, "cookie-secrets", "", "file with one or two secrets for DNS cookies, 32 hexadecimal digits each, the same for all replicas (default: no cookies)")
	fl.StringArrayVar(&c.Transfer.Allow, "transfer-allow", nil, "prefix that may have zone transfers besides loopback; repeat for several")
	fl.StringVar(&c.Lameduck, "lameduck", c.Lameduck, "how long to go on answering after SIGTERM, while /readyz fails")
	fl.BoolVar(&f.reusePort, "reuse-port", false, "share the addresses of DNS with another epdns of this user that does so, too, for a restart without a gap; they are bound when all has been read")
	f.source.register(cmd)
	f.log.register(cmd)
}

// settings are what the file and the flags say together. With fileErrors there are
// some where the file says right what exists, where and under which names.
func (f *serveFlags) settings(given func(flag string) bool) (*settings, error) {
	c := defaultConfig()
	var inFile fileErrors
	if f.file != "" {
		var err error
		c, err = loadConfig(f.file)
		errors.As(err, &inFile)
		if err != nil && (c == nil || inFile.about("source", "zones", "annotationPrefix")) {
			return nil, err
		}
	}
	f.config.Source = sourceConfig{
		Kubeconfig: f.source.kubeconfig,
		Context:    f.source.context,
		Manifests:  f.source.manifests,
		Namespaces: f.source.namespaces,
	}
	f.config.LogLevel = f.log.level
	f.config.Zones = make([]zoneConfig, len(f.zones))
	for i, name := range f.zones {
		f.config.Zones[i].setDefaults()
		f.config.Zones[i].Name = name
	}
	c.override(f.config, given)
	s, err := c.settings()
	if inFile != nil {
		return s, inFile // which are among those of s
	}
	if err != nil {
		return nil, asFlag(err)
	}
	return s, nil
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	if f.reference {
		_, err := fmt.Fprint(cmd.OutOrStdout(), reference)
		return err
	}
	if err := notEmpty(cmd, "config", "manifests", "kubeconfig", "context", "state-dir"); err != nil {
		return err
	}
	log, err := f.log.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	ballast := limitMemory(log)
	defer runtime.KeepAlive(ballast)
	given := cmd.Flags().Changed
	s, err := f.read(given)
	if err != nil {
		return err
	}
	f.log.at.Set(s.logLevel)
	joinLogs(log)
	r := newReloader(f, given, s, log)
	source, err := s.source.open(cmd.Context(), log)
	if err != nil {
		return err
	}
	p, err := newPipeline(source, s.zones, log, registry.AnnotationPrefix(s.prefix))
	if err != nil {
		return err
	}
	dns := dnsserver.New(p.zones, log)
	defer dns.Close() // where something below fails
	p.changed = dns.Changed
	p.problems = newAnnotationProblems(log)
	p.files = s.source.files()
	if s.stateDir != "" {
		p.state = newStateKeeper(source, s, log)
	}
	p.config.used(f.file)
	web := newHTTP(p, dns, log)
	r.p, r.dns, r.http = p, dns, web
	s.use(p, web)
	if !f.reusePort {
		if err := listenDNS(dns, s); err != nil {
			return err
		}
	}
	l, err := web.bind(s.http)
	if err != nil {
		return err
	}
	web.moveTo(s.http, l)
	logListening(log, dns, web, s)

	run, stop := context.WithCancel(context.WithoutCancel(cmd.Context()))
	defer stop()
	g, ctx := errgroup.WithContext(run)
	g.Go(func() error { return web.Run(ctx) })
	g.Go(func() error { return p.Run(ctx) })
	g.Go(func() error {
		if f.reusePort {
			// Questions come here from the moment on in which the addresses are bound.
			if !awaitSync(ctx, p) {
				return nil
			}
			if err := listenDNS(dns, s); err != nil {
				return err
			}
			logListening(log, dns, web, s)
		}
		g.Go(func() error { return r.run(ctx) })
		return dns.Serve(ctx)
	})
	g.Go(func() error { return dump(ctx, cmd.ErrOrStderr()) })
	g.Go(func() error {
		awaitEnd(ctx, cmd.Context(), p, log)
		stop()
		return nil
	})
	err = g.Wait()
	if context.Cause(cmd.Context()) != nil {
		log.Info("stopped")
		return nil
	}
	return err
}

// read is settings with the secrets that they name. All of them have to be good; where
// secrets are not, there are the settings without.
func (f *serveFlags) read(given func(flag string) bool) (*settings, error) {
	s, err := f.settings(given)
	if err != nil {
		return nil, err
	}
	s.dns.ReusePort = f.reusePort
	return s, s.readSecrets(given)
}

// listenDNS binds all addresses of DNS, or none.
func listenDNS(dns *dnsserver.Server, s *settings) error {
	c, err := dns.Prepare(s.dns)
	if err == nil {
		c.Commit()
	}
	return err
}

// logListening logs the addresses that are bound.
func logListening(log *slog.Logger, dns *dnsserver.Server, web *httpServer, s *settings) {
	if addr := web.Addr(); addr != nil {
		log.Info("listening", "http", addr.String())
	}
	if addrs := dns.TLSAddrs(); len(addrs) > 0 {
		log.Info("listening", "tls", addrs)
	}
	var names []string
	for _, z := range s.zones.Zones {
		names = append(names, z.Name)
	}
	if addrs := dns.Addrs(); len(addrs) > 0 {
		log.Info("listening", "dns", addrs, "zones", names)
	}
}
