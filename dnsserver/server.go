package dnsserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"syscall"
	"time"

	"epdns/dnsserver/batch"
)

// Config says where to listen and what to allow. The zero value of each field but
// Listen stands for a good default.
type Config struct {
	// Listen are the addresses, each for UDP and TCP: "127.0.0.1:5300", "[::1]:53",
	// ":5300" for all addresses of both families. Port 0 takes any free one.
	Listen []string

	// Workers is the number of UDP sockets and goroutines of each address; 0 is
	// one for each processor that Go may use.
	Workers int

	// UDPSize is the most that a reply over UDP has, see CheckUDPSize; 0 is 1232.
	UDPSize int

	// NSID names this server among those with the same zones, to who asks for it (RFC
	// 5001, RFC 4892), see CheckNSID. Empty is nothing.
	NSID string

	// Version is told to who asks for version.bind (RFC 4892), up to 255 octets.
	// Empty is nothing.
	Version string

	// Cookies are the secrets of DNS cookies, of which the first one makes them.
	// Without one there are none.
	Cookies []CookieSecret

	// Transfer are the addresses besides loopback that may have zone transfers, TSIG
	// the keys that may from everywhere.
	Transfer []netip.Prefix
	TSIG     []TSIGKey

	// Notify are the secondaries to tell when the serial of a zone has moved.
	Notify []netip.AddrPort

	// Upstream are the servers that names outside our zones are passed to, in order
	// of preference. Where there are none, such names are REFUSED.
	Upstream []netip.AddrPort

	TCP TCPConfig
	TLS TLSConfig

	udp batch.Options // but for Out; tests and measurements choose
}

// TCPConfig bounds what TCP clients can hold, those of TLS among them. Zero means the
// default.
type TCPConfig struct {
	Idle      time.Duration // without a whole query; 12s, longer than CoreDNS keeps one in reserve
	Write     time.Duration // for one reply to leave; 2s
	PerSource int           // connections of one address; 64
	Total     int           // connections in all; 1024
}

func (c Config) withDefaults() Config {
	if c.Workers <= 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&c.TCP.Idle, 12*time.Second)
	def(&c.TCP.Write, 2*time.Second)
	if c.TCP.PerSource <= 0 {
		c.TCP.PerSource = 64
	}
	if c.TCP.Total <= 0 {
		c.TCP.Total = 1024
	}
	return c
}

// Server owns the sockets. Its methods may be called from any goroutine.
type Server struct {
	cfg       Config
	log       *slog.Logger
	authority Authority
	shared    *shared
	addrs     []netip.AddrPort
	tlsAddrs  []netip.AddrPort
	udp       []*udpWorker
	tcp       *tcpServer
	upstream  *upstream // nil: none
	notifiers []*notifier
}

// Listen binds all sockets, or none: an error names the address and the reason.
// Questions are answered from Serve on; those that come before wait in the sockets.
func Listen(cfg Config, a Authority, log *slog.Logger) (*Server, error) {
	cfg = cfg.withDefaults()
	s := &Server{cfg: cfg, log: log, authority: a, shared: newShared(&cfg), upstream: newUpstream(cfg.Upstream, log)}
	s.tcp = newTCPServer(s)
	if len(cfg.Listen) == 0 {
		return nil, errors.New("no address to listen on is given")
	}
	for _, addr := range cfg.Upstream {
		if err := CheckUpstream(addr); err != nil {
			return nil, fmt.Errorf("upstream %v: %w", addr, err)
		}
	}
	for _, addr := range cfg.Notify {
		if err := CheckUpstream(addr); err != nil {
			return nil, fmt.Errorf("secondary %v: %w", addr, err)
		}
	}
	secured, err := newTLS(cfg.TLS, log)
	if err != nil {
		return nil, err
	}
	bind := func(addr string, how func(string) error) error {
		err := how(addr)
		if err == nil {
			return nil
		}
		s.Close()
		if other := s.overlaps(addr); other != "" && errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("listen on %s: %s, which is listened on as well, has that port", addr, other)
		}
		return fmt.Errorf("listen on %s: %w", addr, ExplainListen(err))
	}
	for _, addr := range cfg.Listen {
		if err := bind(addr, s.bind); err != nil {
			return nil, err
		}
	}
	for _, addr := range cfg.TLS.Listen {
		if err := bind(addr, func(addr string) error { return s.bindTLS(addr, secured) }); err != nil {
			return nil, err
		}
	}
	s.notifiers = newNotifiers(s)
	return s, nil
}

// Addrs are the addresses that are bound, in the order of Config.Listen, each with
// its real port.
func (s *Server) Addrs() []netip.AddrPort { return s.addrs }

// Serve answers until ctx ends. Then it takes no more questions, finishes the TCP
// replies that are under way, for a second at most, and returns nil.
func (s *Server) Serve(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, w := range s.udp {
		wg.Go(func() { w.run(ctx) })
	}
	for _, l := range s.tcp.listeners {
		wg.Go(func() { s.tcp.accept(ctx, l) })
	}
	for _, n := range s.notifiers {
		wg.Go(func() { n.run(ctx) })
	}
	<-ctx.Done()
	s.Close()
	wg.Wait()
	if s.upstream != nil {
		s.upstream.wg.Wait()
	}
	return nil
}

// Close lets go of the sockets of a Server that is not to Serve.
func (s *Server) Close() {
	for _, w := range s.udp {
		w.socket.Close()
	}
	s.tcp.close()
}

// overlaps is the address bound before that has the port of another.
func (s *Server) overlaps(addr string) string {
	_, port, _ := net.SplitHostPort(addr)
	for i, bound := range s.addrs {
		if fmt.Sprint(bound.Port()) == port {
			return s.cfg.Listen[i]
		}
	}
	for i, bound := range s.tlsAddrs {
		if fmt.Sprint(bound.Port()) == port {
			return s.cfg.TLS.Listen[i]
		}
	}
	return ""
}

// CheckListen says what is wrong with an address to listen on, without binding it.
func CheckListen(addr string) error {
	_, _, err := networks(addr)
	return err
}

// networks are the networks to bind an address in. An IPv4 or IPv6 address is
// bound in its own family alone; no address at all is both families at once.
func networks(addr string) (udp, tcp string, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", "", fmt.Errorf("%q is not ADDR:PORT", addr)
	}
	if n, err := net.LookupPort("udp", port); err != nil || n < 0 || port == "" {
		return "", "", fmt.Errorf("%q: %q is no port", addr, port)
	}
	if host == "" {
		return "udp", "tcp", nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return "", "", fmt.Errorf("%q: %q is no IP address", addr, host)
	}
	if ip.Is4() {
		return "udp4", "tcp4", nil
	}
	return "udp6", "tcp6", nil
}

// bind binds one address: TCP, then UDP once without SO_REUSEPORT, which alone
// notices that another process has the port, then a socket for each worker.
func (s *Server) bind(addr string) error {
	udpNet, tcpNet, err := networks(addr)
	if err != nil {
		return err
	}
	// With port 0, the port that TCP gets may be taken in UDP: other ones are tried.
	for try := 0; ; try++ {
		l, err := net.Listen(tcpNet, addr)
		if err != nil {
			return err
		}
		bound := l.Addr().(*net.TCPAddr).AddrPort()
		host, _, _ := net.SplitHostPort(addr)
		target := net.JoinHostPort(host, fmt.Sprint(bound.Port()))
		probe, err := net.ListenPacket(udpNet, target)
		if err != nil {
			l.Close()
			if _, port, _ := net.SplitHostPort(addr); port == "0" && errors.Is(err, syscall.EADDRINUSE) && try < 10 {
				continue
			}
			return err
		}
		probe.Close()
		s.tcp.listeners = append(s.tcp.listeners, l)
		s.addrs = append(s.addrs, netip.AddrPortFrom(bound.Addr().Unmap(), bound.Port()))
		for range s.cfg.Workers {
			w, err := newUDPWorker(udpNet, target, s)
			if err != nil {
				return err
			}
			s.udp = append(s.udp, w)
		}
		return nil
	}
}

// ExplainListen says what to do about an error of net.Listen that people meet,
// without the address, which the caller has.
func ExplainListen(err error) error {
	var bare syscall.Errno
	if !errors.As(err, &bare) {
		return err
	}
	switch bare {
	case syscall.EADDRINUSE:
		return fmt.Errorf("the port is taken by another program; stop it or choose another port: %w", bare)
	case syscall.EACCES:
		return fmt.Errorf("ports below 1024 need a privilege; choose a higher one or grant NET_BIND_SERVICE: %w", bare)
	case syscall.EADDRNOTAVAIL:
		return fmt.Errorf("no interface has this address: %w", bare)
	}
	return bare
}

// newResponder returns a Responder for one goroutine.
func (s *Server) newResponder() *Responder {
	r := newResponder(s.authority)
	r.shared = s.shared
	r.passes = s.upstream != nil
	return r
}

func (s *Server) allCounters() []*counters {
	out := []*counters{s.tcp.stats}
	for _, w := range s.udp {
		out = append(out, w.stats)
	}
	return out
}
