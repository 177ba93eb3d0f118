package dnsserver

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"epdns/zones"
)

// tcpServer serves DNS over TCP (RFC 7766): several queries on a connection, also
// several in one segment, answered in the order they came.
type tcpServer struct {
	server    *Server
	listeners []net.Listener
	stats     *counters
	workers   sync.Pool

	open     atomic.Int64
	rejected atomic.Uint64

	mu     sync.Mutex
	conns  map[*tcpConn]struct{}
	source map[netip.Addr]int
	closed bool
	wg     sync.WaitGroup
}

// tcpConn is one connection.
type tcpConn struct {
	net.Conn
	from   netip.AddrPort
	active atomic.Int64 // Unix nanoseconds of the last whole query
}

// tcpWorker is the room to answer one query in.
type tcpWorker struct {
	responder *Responder
	in        bytes.Buffer
	out       []byte
}

func newTCPServer(s *Server) *tcpServer {
	t := &tcpServer{server: s, stats: &counters{}, conns: map[*tcpConn]struct{}{}, source: map[netip.Addr]int{}}
	t.workers.New = func() any { return &tcpWorker{responder: s.newResponder(t.stats)} }
	return t
}

// accept takes connections until the listener is closed. Want of descriptors
// passes: it is waited for, longer each time.
func (t *tcpServer) accept(ctx context.Context, l net.Listener) {
	var delay time.Duration
	for {
		c, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			if delay == 0 {
				t.server.log.Error("accept a TCP connection", "address", l.Addr(), "error", err)
			}
			delay = min(max(2*delay, 5*time.Millisecond), time.Second)
			select {
			case <-ctx.Done():
				return
			case <-time.After(delay):
			}
			continue
		}
		delay = 0
		from := c.RemoteAddr().(*net.TCPAddr).AddrPort()
		conn := &tcpConn{Conn: c, from: netip.AddrPortFrom(from.Addr().Unmap(), from.Port())}
		conn.active.Store(time.Now().UnixNano())
		if !t.add(conn) {
			t.rejected.Add(1)
			c.Close()
			continue
		}
		go t.serve(ctx, conn)
	}
}

// add counts a connection in. At a limit the one that has been idle longest, of
// this source or of all, makes room for it.
func (t *tcpServer) add(c *tcpConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	source := c.from.Addr()
	if t.source[source] >= t.server.cfg.TCP.PerSource {
		t.evict(func(o *tcpConn) bool { return o.from.Addr() == source })
	} else if len(t.conns) >= t.server.cfg.TCP.Total {
		t.evict(func(*tcpConn) bool { return true })
	}
	t.conns[c] = struct{}{}
	t.source[source]++
	t.open.Add(1)
	t.wg.Add(1)
	return true
}

func (t *tcpServer) evict(of func(*tcpConn) bool) {
	var longest *tcpConn
	for c := range t.conns {
		if of(c) && (longest == nil || c.active.Load() < longest.active.Load()) {
			longest = c
		}
	}
	if longest != nil {
		t.rejected.Add(1)
		t.forget(longest)
		longest.Close() // its goroutine notices and ends
	}
}

// forget counts a connection out, once.
func (t *tcpServer) forget(c *tcpConn) {
	if _, ok := t.conns[c]; !ok {
		return
	}
	delete(t.conns, c)
	source := c.from.Addr()
	if t.source[source]--; t.source[source] == 0 {
		delete(t.source, source)
	}
	t.open.Add(-1)
}

func (t *tcpServer) close() {
	for _, l := range t.listeners {
		l.Close()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for c := range t.conns {
		c.Close()
	}
}

func (t *tcpServer) wait() { t.wg.Wait() }

func (t *tcpServer) serve(ctx context.Context, c *tcpConn) {
	defer func() {
		c.Close()
		t.mu.Lock()
		t.forget(c)
		t.mu.Unlock()
		t.wg.Done()
	}()
	local := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	r := bufio.NewReaderSize(c, 1024)
	for t.answer(ctx, c, r, Via{TCP, local}) {
	}
}

// answer reads one query and answers it. It returns false when the connection is
// to be closed.
func (t *tcpServer) answer(ctx context.Context, c *tcpConn, r *bufio.Reader, via Via) bool {
	c.SetReadDeadline(time.Now().Add(t.server.cfg.TCP.Idle))
	var prefix [2]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return false
	}
	w := t.workers.Get().(*tcpWorker)
	defer t.workers.Put(w)
	w.in.Reset()
	// The room grows with what comes, not with what is announced.
	length := int64(binary.BigEndian.Uint16(prefix[:]))
	if _, err := io.CopyN(&w.in, r, length); err != nil {
		return false
	}
	msg := w.in.Bytes()
	c.active.Store(time.Now().UnixNano())

	q := &w.responder.query
	rcode, ok := q.parse(msg)
	if ok && q.class == classIN && (q.qtype == zones.TypeAXFR || q.qtype == zones.TypeIXFR) && t.server.mayTransfer(c.from.Addr()) {
		return t.transfer(c, w, msg, via)
	}
	w.out = w.responder.reply(append(w.out[:0], 0, 0), msg, rcode, ok, c.from, via)
	if w.responder.passed {
		w.out = append(w.out, t.server.upstream.ask(ctx, msg, TCP)...)
	}
	if len(w.out) == 2 {
		return false // no query: nothing sensible can follow
	}
	return t.write(c, w.out)
}

// write sends one message, for which the first two octets are left.
func (t *tcpServer) write(c *tcpConn, message []byte) bool {
	binary.BigEndian.PutUint16(message, uint16(len(message)-2))
	c.SetWriteDeadline(time.Now().Add(t.server.cfg.TCP.Write))
	_, err := c.Write(message)
	c.active.Store(time.Now().UnixNano())
	return err == nil
}
