package dnsserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
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

	// Allow and Deny say whom questions are answered to; who is in both is denied, and none
	// to allow are all. Who may not ask gets REFUSED over UDP and no connection.
	Allow, Deny []netip.Prefix

	RateLimit RateLimitConfig

	// Notify are the secondaries to tell when the serial of a zone has moved.
	Notify []netip.AddrPort

	// Upstream are the servers that names outside our zones are passed to, in order
	// of preference. Where there are none, such names are REFUSED.
	Upstream []netip.AddrPort

	TCP TCPConfig
	TLS TLSConfig

	// QueryLog is the share of the queries that get a line in the log, see CheckQueryLog; 0
	// is none.
	QueryLog float64

	// ReusePort shares the addresses with another process of the same user that does so,
	// too. Without it, an address that another process has is an error.
	ReusePort bool

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
	c.TCP = c.TCP.withDefaults()
	return c
}

func (c TCPConfig) withDefaults() TCPConfig {
	c.Idle = cmp.Or(max(c.Idle, 0), 12*time.Second)
	c.Write = cmp.Or(max(c.Write, 0), 2*time.Second)
	c.PerSource = cmp.Or(max(c.PerSource, 0), 64)
	c.Total = cmp.Or(max(c.Total, 0), 1024)
	return c
}

// Server owns the sockets. Its methods may be called from any goroutine.
type Server struct {
	log         *slog.Logger
	authority   Authority
	shared      atomic.Pointer[shared]      // what a query is answered by
	certificate atomic.Pointer[certificate] // what TLS is served with, nil: none
	tcp         *tcpServer
	notifiers   atomic.Pointer[[]*notifier]

	observed [transports]observed
	top      atomic.Pointer[top] // what is asked for most, nil: nobody wants to know
	unlogged atomic.Uint64       // lines of query logs that were lost

	passed upstreamCounts
	told   notifyCounts
	panics panics

	thinned atomic.Int64 // networks of which a part is dropped unread

	mu        sync.Mutex // of what follows
	listening []*listening
	leaving   []*listening    // being let go of
	gone      goneCounts      // of those that are
	work      context.Context // ends what serves; nil when nothing does
	closed    bool
}

// listening is what is bound to one address of the configuration.
type listening struct {
	text   string // as it was given
	secure bool   // for TLS
	addr   netip.AddrPort
	tcp    *net.TCPListener
	accept net.Listener // the same, or TLS over it
	udp    []*udpWorker

	served sync.WaitGroup // by goroutines
}

// New returns a Server that listens nowhere yet.
func New(a Authority, log *slog.Logger) *Server {
	s := &Server{log: log, authority: a}
	s.shared.Store(plain)
	s.tcp = newTCPServer(s)
	s.notifiers.Store(new([]*notifier))
	return s
}

// Listen binds all sockets, or none: an error names the address and the reason.
// Questions are answered from Serve on; those that come before wait in the sockets.
func Listen(cfg Config, a Authority, log *slog.Logger) (*Server, error) {
	s := New(a, log)
	c, err := s.Prepare(cfg)
	if err != nil {
		return nil, err
	}
	c.Commit()
	return s, nil
}

// Addrs are the addresses that are bound, in the order of Config.Listen, each with
// its real port.
func (s *Server) Addrs() []netip.AddrPort { return s.bound(false) }

func (s *Server) bound(secure bool) (out []netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bound(s.listening, secure)
}

func bound(all []*listening, secure bool) (out []netip.AddrPort) {
	for _, l := range all {
		if l.secure == secure {
			out = append(out, l.addr)
		}
	}
	return out
}

// Serving says whether questions are answered.
func (s *Server) Serving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.work != nil && len(s.listening) > 0
}

// finish is how long what is under way has to end when the server does.
const finish = time.Second

// Serve answers until ctx ends. Then it takes no more questions, answers those that have
// come, finishes the TCP replies that are under way, for a second at most, and returns
// nil. It must not be called twice.
func (s *Server) Serve(ctx context.Context) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	s.mu.Lock()
	s.work = work
	for _, l := range s.listening {
		s.start(l)
	}
	for _, n := range *s.notifiers.Load() {
		n.start(work)
	}
	s.shared.Load().queries.start(work)
	s.mu.Unlock()
	go s.watchLimits(work)

	<-ctx.Done()
	s.mu.Lock()
	s.work, s.closed = nil, true
	all := slices.Concat(s.listening, s.leaving)
	s.mu.Unlock()
	for _, n := range *s.notifiers.Load() {
		n.stop()
	}
	late := time.AfterFunc(finish, stop)
	defer late.Stop()
	for _, l := range all {
		l.finish()
	}
	for _, l := range all {
		l.served.Wait()
	}
	s.Close()
	for _, n := range *s.notifiers.Load() {
		<-n.ended
	}
	stop()
	s.shared.Load().queries.wait()
	return nil
}

// start has goroutines serve. It needs s.mu.
func (s *Server) start(l *listening) {
	work := s.work
	for _, w := range l.udp {
		l.served.Go(func() { w.run(work) })
	}
	l.served.Go(func() {
		s.tcp.accept(work, l)
		l.tcp.Close() // at once: who comes in between is turned away
	})
}

// past is a deadline that is over.
var past = time.Unix(1, 0)

// finish has the goroutines that serve end when what has come is answered.
func (l *listening) finish() {
	l.tcp.SetDeadline(past)
	for _, w := range l.udp {
		w.socket.Finish()
	}
}

// close lets go of the sockets. Who still waits for an upstream is waited for before.
func (l *listening) close() {
	l.tcp.Close()
	for _, w := range l.udp {
		w.passing.Wait()
		w.socket.Close()
	}
}

// Close lets go of the sockets of a Server that is not to Serve.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.endTop()
	all := slices.Concat(s.listening, s.leaving)
	s.mu.Unlock()
	for _, l := range all {
		l.tcp.Close()
	}
	s.tcp.close()
	for _, l := range all {
		l.close()
	}
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

// ExplainListen says what to do about an error of net.Listen that people meet,
// without the address, which the caller has.
func ExplainListen(err error) error {
	var bare syscall.Errno
	if !errors.As(err, &bare) {
		return err
	}
	switch bare {
	case syscall.EADDRINUSE:
		return fmt.Errorf("the port is taken by another program (\"ss -tulpn\", as root, tells which one); stop it or choose another port: %w", bare)
	case syscall.EACCES:
		return fmt.Errorf("ports below 1024 need a privilege: choose a higher one, or grant the capability NET_BIND_SERVICE "+
			"(\"setcap cap_net_bind_service=+ep FILE\", in a Pod securityContext.capabilities.add), or set the sysctl net.ipv4.ip_unprivileged_port_start: %w", bare)
	case syscall.EADDRNOTAVAIL:
		return fmt.Errorf("no interface has this address: %w", bare)
	}
	return bare
}

// newResponder returns a Responder for one goroutine.
func (s *Server) newResponder() *Responder {
	r := newResponder(s.authority)
	r.use(s.shared.Load())
	return r
}

// use has queries answered by these settings from now on.
func (r *Responder) use(s *shared) {
	r.shared, r.passes = s, s.upstream != nil
}

// workers are those of UDP that have sockets. It needs s.mu.
func (s *Server) workers() iter.Seq[*udpWorker] {
	return func(yield func(*udpWorker) bool) {
		for _, l := range slices.Concat(s.listening, s.leaving) {
			for _, w := range l.udp {
				if !yield(w) {
					return
				}
			}
		}
	}
}
