package dnsserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
)

// Change is other settings of a Server, of which all that can fail has been done. It is to
// be committed or aborted, before the next one is prepared.
type Change struct {
	server      *Server
	cfg         Config
	shared      *shared
	certificate *certificate
	listening   []*listening // in the order of the configuration
	fresh       []*listening // those of them that were not there
}

// Prepare makes other settings ready and binds the addresses that are not bound yet;
// what is served stays as it is. An error names what is wrong, and nothing is left behind.
func (s *Server) Prepare(cfg Config) (*Change, error) {
	cfg = cfg.withDefaults()
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
	cfg.TCP = cfg.TCP.within(descriptors(), s.log)
	c := &Change{server: s, cfg: cfg, shared: newShared(&cfg)}
	c.shared.limiter = s.shared.Load().limiter.with(cfg.RateLimit)
	if u := s.shared.Load().upstream; u != nil && slices.Equal(u.addrs, cfg.Upstream) {
		c.shared.upstream = u
	} else {
		c.shared.upstream = newUpstream(cfg.Upstream, &s.passed, s.log)
	}
	c.shared.queries = s.shared.Load().queries.withShare(cfg.QueryLog, s.log, &s.unlogged)
	var err error
	if c.certificate, err = s.prepareTLS(cfg.TLS); err != nil {
		return nil, err
	}
	s.mu.Lock()
	now := slices.Clone(s.listening)
	s.mu.Unlock()
	for i, addr := range slices.Concat(cfg.Listen, cfg.TLS.Listen) {
		secure := i >= len(cfg.Listen)
		at := slices.IndexFunc(now, func(l *listening) bool { return l != nil && l.text == addr && l.secure == secure })
		if at >= 0 {
			c.listening = append(c.listening, now[at])
			now[at] = nil
			continue
		}
		l, err := s.bind(&cfg, addr, secure)
		if err != nil {
			c.Abort()
			if errors.Is(err, syscall.EADDRINUSE) {
				if is, was := c.overlaps(addr); is != "" {
					return nil, fmt.Errorf("listen on %s: %s, which is listened on as well, has that port", addr, is)
				} else if was != "" {
					return nil, fmt.Errorf("listen on %s: %s, which is listened on until then, has that port: a restart can change it", addr, was)
				}
			}
			return nil, fmt.Errorf("listen on %s: %w", addr, ExplainListen(err))
		}
		c.listening = append(c.listening, l)
		c.fresh = append(c.fresh, l)
	}
	return c, nil
}

// overlaps is the address that has the port of another: is one of the change, was one that
// is listened on now.
func (c *Change) overlaps(addr string) (is, was string) {
	_, port, _ := net.SplitHostPort(addr)
	among := func(all []*listening) string {
		for _, l := range all {
			if fmt.Sprint(l.addr.Port()) == port {
				return l.text
			}
		}
		return ""
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	return among(c.listening), among(c.server.listening)
}

// Abort leaves all as it was.
func (c *Change) Abort() {
	for _, l := range c.fresh {
		l.close()
	}
}

// Commit puts the change in force. Addresses that are not listened on any more are let go
// of when what has come to them is answered; connections that they have taken stay.
func (c *Change) Commit() {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Abort()
		return
	}
	if before := s.shared.Swap(c.shared); before.queries != c.shared.queries {
		before.queries.end()
	}
	if s.work != nil {
		c.shared.queries.start(s.work)
	}
	if c.certificate != nil { // else the last handshakes still need the one there was
		s.certificate.Store(c.certificate)
	}
	old := s.listening
	s.listening = c.listening
	for _, l := range old {
		if !slices.Contains(c.listening, l) {
			s.leaving = append(s.leaving, l)
			go s.leave(l)
		}
	}
	s.setNotifiers(newNotifiers(s, c.cfg.Notify, bound(c.listening, false)))
	if s.work != nil {
		for _, l := range c.fresh {
			s.start(l)
		}
	}
}

// leave lets go of an address.
func (s *Server) leave(l *listening) {
	l.finish()
	l.served.Wait()
	l.close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.leaving, l); i >= 0 {
		s.leaving = slices.Delete(s.leaving, i, i+1)
		s.gone.add(l)
	}
}

// setNotifiers has these tell from now on. It needs s.mu.
func (s *Server) setNotifiers(all []*notifier) {
	for _, n := range *s.notifiers.Swap(&all) {
		if !slices.Contains(all, n) {
			n.stop()
		}
	}
	if s.work != nil {
		for _, n := range all {
			n.start(s.work)
		}
	}
}

// bind binds one address: TCP, then, but for TLS, UDP once without SO_REUSEPORT, which
// alone notices that another process has the port, then a socket for each worker.
func (s *Server) bind(cfg *Config, addr string, secure bool) (*listening, error) {
	udpNet, tcpNet, err := networks(addr)
	if err != nil {
		return nil, err
	}
	lc := net.ListenConfig{}
	if cfg.ReusePort {
		lc.Control = reusePort
	}
	// With port 0, the port that TCP gets may be taken in UDP: other ones are tried.
	for try := 0; ; try++ {
		made, err := lc.Listen(context.Background(), tcpNet, addr)
		if err != nil {
			return nil, err
		}
		l := &listening{text: addr, secure: secure, tcp: made.(*net.TCPListener), accept: made}
		bound := l.tcp.Addr().(*net.TCPAddr).AddrPort()
		l.addr = netip.AddrPortFrom(bound.Addr().Unmap(), bound.Port())
		if secure {
			l.accept = tls.NewListener(made, s.tlsConfig())
			return l, nil
		}
		host, port, _ := net.SplitHostPort(addr)
		target := net.JoinHostPort(host, fmt.Sprint(bound.Port()))
		err = l.bindUDP(s, cfg, udpNet, target)
		if err == nil {
			return l, nil
		}
		l.close()
		if port != "0" || !errors.Is(err, syscall.EADDRINUSE) || try == 10 {
			return nil, err
		}
	}
}

func (l *listening) bindUDP(s *Server, cfg *Config, network, addr string) error {
	if !cfg.ReusePort {
		probe, err := net.ListenPacket(network, addr)
		if err != nil {
			return err
		}
		probe.Close()
	}
	for range cfg.Workers {
		w, err := newUDPWorker(network, addr, s, cfg.udp)
		if err != nil {
			return err
		}
		l.udp = append(l.udp, w)
	}
	return nil
}

// goneCounts are what workers have counted that are gone.
type goneCounts struct {
	counters
	drops, unsent, full atomic.Uint64
}

func (g *goneCounts) add(l *listening) {
	for _, w := range l.udp {
		for at := range w.stats.sums {
			g.sums[at].Add(w.stats.load(at))
		}
		g.drops.Add(w.socket.Drops())
		g.unsent.Add(w.socket.Unsent())
		g.full.Add(w.full.Load())
	}
}
