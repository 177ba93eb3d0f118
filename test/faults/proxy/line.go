package proxy

import (
	"net"
	"sync"
	"time"
)

// line is a listener whose connections all have the same faults.
type line struct {
	net.Listener

	mu    sync.Mutex
	now   Line
	moved chan struct{} // closed when now changes
	conns map[*conn]struct{}
}

func newLine(l net.Listener) *line {
	return &line{Listener: l, moved: make(chan struct{}), conns: map[*conn]struct{}{}}
}

func (l *line) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	wrapped := &conn{Conn: c, line: l, closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conns[wrapped] = struct{}{}
	return wrapped, nil
}

func (l *line) set(now Line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = now
	close(l.moved)
	l.moved = make(chan struct{})
}

func (l *line) reset() {
	l.mu.Lock()
	var all []*conn
	for c := range l.conns {
		all = append(all, c)
	}
	l.mu.Unlock()
	for _, c := range all {
		if tcp, ok := c.Conn.(*net.TCPConn); ok {
			tcp.SetLinger(0) // RST, not FIN
		}
		c.Close()
	}
}

// conn is a connection on the line.
type conn struct {
	net.Conn
	line   *line
	once   sync.Once
	closed chan struct{}
}

func (c *conn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.line.mu.Lock()
		delete(c.line.conns, c)
		c.line.mu.Unlock()
	})
	return c.Conn.Close()
}

// wait returns how the line is once it moves, or this connection is closed.
func (c *conn) wait() (Line, error) {
	for {
		c.line.mu.Lock()
		now, moved := c.line.now, c.line.moved
		c.line.mu.Unlock()
		if !now.Stalled {
			return now, nil
		}
		select {
		case <-moved:
		case <-c.closed:
			return now, net.ErrClosed
		}
	}
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if _, closed := c.wait(); closed != nil {
		return 0, closed
	}
	return n, err
}

// steps is into how many pieces a second's octets are cut.
const steps = 20

func (c *conn) Write(b []byte) (written int, err error) {
	for {
		now, err := c.wait()
		if err != nil {
			return written, err
		}
		pause, piece := now.Delay, b
		if now.Rate > 0 {
			if n := max(now.Rate/steps, 1); len(piece) > n {
				piece = piece[:n]
			}
			pause += time.Second * time.Duration(len(piece)) / time.Duration(now.Rate)
		}
		if pause > 0 {
			select {
			case <-time.After(pause):
			case <-c.closed:
				return written, net.ErrClosed
			}
		}
		n, err := c.Conn.Write(piece)
		written += n
		if b = b[n:]; err != nil || len(b) == 0 {
			return written, err
		}
	}
}
