package epdns_test

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A gate is a listener that can be shut and opened again at its address, and whose
// connections can be cut or frozen.
type gate struct {
	addr netip.AddrPort
	held int // a socket that keeps the port while nobody listens

	mu     sync.Mutex
	l      net.Listener  // nil while it is shut
	opened chan struct{} // closed when it opens, or ends for good
	ended  bool
	conns  map[*gateConn]struct{}
}

var _ net.Listener = (*gate)(nil)

// newGate makes one that is open.
func newGate(t *testing.T) *gate {
	t.Helper()
	g := &gate{held: -1, opened: make(chan struct{}), conns: map[*gateConn]struct{}{}}
	err := g.hold()
	if err == nil {
		err = g.open()
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// hold takes a port. Sockets of this user that share ports may be bound to it, too;
// nobody else is given it.
func (g *gate) hold() (err error) {
	if g.held, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(g.held, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	if err := unix.Bind(g.held, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	bound, err := unix.Getsockname(g.held)
	if err != nil {
		return err
	}
	in := bound.(*unix.SockaddrInet4)
	g.addr = netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
	return nil
}

// open lets connections in.
func (g *gate) open() error {
	sharing := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		controlErr := c.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		})
		if controlErr != nil {
			return controlErr
		}
		return err
	}}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.l != nil {
		return nil
	}
	l, err := sharing.Listen(context.Background(), "tcp4", g.addr.String())
	if err != nil {
		return err
	}
	g.l = l
	close(g.opened)
	return nil
}

// shut refuses connections until it is opened again, and ends those there are.
func (g *gate) shut(reset bool) {
	g.mu.Lock()
	if g.l != nil {
		g.l.Close()
		g.l, g.opened = nil, make(chan struct{})
	}
	g.mu.Unlock()
	g.cut(reset)
}

// cut ends all connections, with a FIN or a RST.
func (g *gate) cut(reset bool) {
	for _, c := range g.all() {
		if reset {
			c.Conn.(*net.TCPConn).SetLinger(0)
		}
		c.Close()
	}
}

// freeze stops all connections: the kernel takes what comes and nothing goes. Those
// that come later are free.
func (g *gate) freeze() {
	for _, c := range g.all() {
		c.mu.Lock()
		if c.thawed == nil {
			c.thawed = make(chan struct{})
		}
		c.mu.Unlock()
	}
}

func (g *gate) thaw() {
	for _, c := range g.all() {
		c.mu.Lock()
		if c.thawed != nil {
			close(c.thawed)
			c.thawed = nil
		}
		c.mu.Unlock()
	}
}

func (g *gate) all() (conns []*gateConn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.conns {
		conns = append(conns, c)
	}
	return conns
}

func (g *gate) Accept() (net.Conn, error) {
	for {
		g.mu.Lock()
		l, opened, ended := g.l, g.opened, g.ended
		g.mu.Unlock()
		switch {
		case ended:
			return nil, net.ErrClosed
		case l == nil:
			<-opened
			continue
		}
		c, err := l.Accept()
		g.mu.Lock()
		same := g.l == l
		if err == nil && same {
			gc := &gateConn{Conn: c, gate: g, closed: make(chan struct{})}
			g.conns[gc] = struct{}{}
			g.mu.Unlock()
			return gc, nil
		}
		g.mu.Unlock()
		if err == nil {
			c.Close() // it was shut meanwhile
		} else if same {
			return nil, err
		}
	}
}

func (g *gate) Addr() net.Addr { return net.TCPAddrFromAddrPort(g.addr) }

// Close ends it for good.
func (g *gate) Close() error {
	g.shut(false)
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.ended = true
		close(g.opened)
		unix.Close(g.held)
	}
	return nil
}

// gateConn is a connection that came through a gate.
type gateConn struct {
	net.Conn
	gate   *gate
	once   sync.Once
	closed chan struct{}

	mu     sync.Mutex
	thawed chan struct{} // nil unless it is frozen
}

// wait returns when it is not frozen.
func (c *gateConn) wait() {
	c.mu.Lock()
	thawed := c.thawed
	c.mu.Unlock()
	if thawed == nil {
		return
	}
	select {
	case <-thawed:
	case <-c.closed:
	}
}

func (c *gateConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wait()
	return n, err
}

func (c *gateConn) Write(b []byte) (int, error) {
	c.wait()
	return c.Conn.Write(b)
}

func (c *gateConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.gate.mu.Lock()
		delete(c.gate.conns, c)
		c.gate.mu.Unlock()
	})
	return c.Conn.Close()
}
