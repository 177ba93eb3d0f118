package dnsserver

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"epdns/zones"
)

// tcpServer serves DNS over TCP (RFC 7766), and over TLS, which goes over TCP: several
// queries on a connection, also several in one segment, answered in the order they came.
type tcpServer struct {
	server  *Server
	stats   *counters
	workers sync.Pool

	open     atomic.Int64
	rejected atomic.Uint64
	denied   atomic.Uint64
	unshaken atomic.Uint64 // TLS connections whose handshake failed

	mu     sync.Mutex
	conns  map[*tcpConn]struct{}
	source map[netip.Prefix]int
	closed bool
	wg     sync.WaitGroup
}

// tcpConn is one connection; over a *tls.Conn it is one of TLS.
type tcpConn struct {
	net.Conn
	from   netip.AddrPort
	source netip.Prefix // what connections are counted by
	active atomic.Int64 // Unix nanoseconds of the last whole query or message sent
}

// tcpWorker is the room to answer one query in.
type tcpWorker struct {
	responder *Responder
	out       []byte
}

// maxQuery is how long a query over TCP may be. None needs more, and each connection
// can hold as much.
const maxQuery = 4096

func newTCPServer(s *Server) *tcpServer {
	t := &tcpServer{server: s, stats: &counters{}, conns: map[*tcpConn]struct{}{}, source: map[netip.Prefix]int{}}
	t.workers.New = func() any { return &tcpWorker{responder: s.newResponder()} }
	return t
}

// accept takes connections until the listener is closed, or its time is over and those that
// have come by then are taken. Want of descriptors passes: it is waited for, longer each time.
func (t *tcpServer) accept(ctx context.Context, l *listening) {
	var delay time.Duration
	var said seldom // each connection may come after a failure
	last := false   // only what is there already
	for {
		c, err := l.accept.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				if last = l.hasMore(); !last {
					return
				}
				l.tcp.SetDeadline(time.Now().Add(finish))
				continue
			}
			if unsaid, ok := said.now(); ok {
				t.server.log.Error("accept a TCP connection", "address", l.addr, "error", err, "unsaid", unsaid)
			}
			if lacksDescriptors(err) {
				t.makeRoom()
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
		if last {
			l.tcp.SetDeadline(past)
		}
		from := c.RemoteAddr().(*net.TCPAddr).AddrPort()
		conn := &tcpConn{Conn: c, from: netip.AddrPortFrom(from.Addr().Unmap(), from.Port())}
		if !t.server.shared.Load().access.admits(conn.from.Addr()) {
			t.denied.Add(1)
			c.Close()
			continue
		}
		conn.source = sourceOf(conn.from.Addr())
		conn.active.Store(time.Now().UnixNano())
		if !t.add(conn) {
			t.rejected.Add(1)
			c.Close()
			continue
		}
		go t.serve(ctx, conn)
	}
}

// hasMore says whether there is a connection to accept.
func (l *listening) hasMore() (more bool) {
	raw, err := l.tcp.SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		more = err == nil && n > 0
	})
	return more
}

// sourceOf is what an address is counted as: itself, or in IPv6 the network that one
// host has to itself.
func sourceOf(addr netip.Addr) netip.Prefix {
	bits := 32
	if addr.Is6() {
		bits = 64
	}
	p, _ := addr.Prefix(bits) // cannot fail with these
	return p
}

// add counts a connection in. At a limit the one that has been idle longest, of
// this source or of all, makes room for it.
func (t *tcpServer) add(c *tcpConn) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	limits := &t.server.shared.Load().tcp
	if t.source[c.source] >= limits.PerSource {
		t.evict(func(o *tcpConn) bool { return o.source == c.source })
	} else if len(t.conns) >= limits.Total {
		t.evict(func(*tcpConn) bool { return true })
	}
	t.conns[c] = struct{}{}
	t.source[c.source]++
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
		longest.cut() // its goroutine notices and ends
	}
}

// forget counts a connection out, once.
func (t *tcpServer) forget(c *tcpConn) {
	if _, ok := t.conns[c]; !ok {
		return
	}
	delete(t.conns, c)
	if t.source[c.source]--; t.source[c.source] == 0 {
		delete(t.source, c.source)
	}
	t.open.Add(-1)
}

// readLast is for how long a query is still read that was sent before it was decided to
// read no more.
const readLast = 200 * time.Millisecond

// close takes no more connections, lets each finish the reply or transfer that is
// under way, and closes what is left after a moment.
func (t *tcpServer) close() {
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		last := time.Now().Add(readLast)
		for c := range t.conns {
			c.SetReadDeadline(last)
		}
	}
	t.mu.Unlock()
	late := time.AfterFunc(finish, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		for c := range t.conns {
			c.cut()
		}
	})
	defer late.Stop()
	t.wg.Wait()
}

func (t *tcpServer) serve(ctx context.Context, c *tcpConn) {
	defer func() {
		c.Close()
		t.mu.Lock()
		t.forget(c)
		t.mu.Unlock()
		t.wg.Done()
	}()
	local := c.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
	via := Via{TCP, local}
	if tc, ok := c.Conn.(*tls.Conn); ok {
		via.Transport = TLS
		if !t.shake(ctx, tc) {
			return
		}
	}
	r := bufio.NewReaderSize(c, 2+maxQuery)
	for t.answer(ctx, c, r, via) {
	}
}

// await reads until n octets are there, and returns them without taking them.
func (t *tcpServer) await(c *tcpConn, r *bufio.Reader, n int) ([]byte, bool) {
	if r.Buffered() < n {
		t.limit(c)
	}
	b, err := r.Peek(n)
	return b, err == nil
}

// limit is the idle limit, from now. It is for writing, too, which TLS may do to read.
func (t *tcpServer) limit(c net.Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.closed {
		c.SetDeadline(time.Now().Add(t.server.shared.Load().tcp.Idle))
	}
}

// answer reads one query and answers it. It returns false when the connection is
// to be closed.
func (t *tcpServer) answer(ctx context.Context, c *tcpConn, in *bufio.Reader, via Via) bool {
	prefix, ok := t.await(c, in, 2)
	if !ok {
		return false
	}
	length := int(binary.BigEndian.Uint16(prefix))
	if length > maxQuery {
		return false
	}
	msg, ok := t.await(c, in, 2+length)
	if !ok {
		return false
	}
	defer in.Discard(2 + length)
	c.active.Store(time.Now().UnixNano())
	w := t.workers.Get().(*tcpWorker)
	w.responder.use(t.server.shared.Load())
	ok = t.reply(ctx, c, w, msg[2:], via)
	t.workers.Put(w)
	return ok
}

// reply answers a query. After a panic it leaves a Responder that knows nothing of it, and
// the connection goes on, unless the reply was to have many messages.
func (t *tcpServer) reply(ctx context.Context, c *tcpConn, w *tcpWorker, msg []byte, via Via) (ok bool) {
	transferring := false
	defer func() {
		fault := recover()
		if fault == nil {
			return
		}
		t.server.panics.note(t.server.log, fault, msg)
		w.responder.tally.flush(t.stats)
		w.responder = t.server.newResponder()
		if ok = false; transferring {
			return
		}
		if w.out = afterPanic(append(w.out[:0], 0, 0), msg); len(w.out) > 2 {
			t.stats.add(responsesAt(via.Transport, zones.ServFail), 1)
			ok = t.write(c, w.out)
		}
	}()
	r := w.responder
	l := r.logged()
	rcode, known := r.read(msg, c.from, via)
	q := r.query
	if known && q.class == classIN && (q.qtype == zones.TypeAXFR || q.qtype == zones.TypeIXFR) && r.mayTransfer(c.from.Addr()) {
		r.tally.flush(t.stats)
		transferring = true
		return t.transfer(c, w, msg, via)
	}
	w.out = r.reply(append(w.out[:0], 0, 0), msg, rcode, known, via)
	r.tally.flush(t.stats) // who has the reply finds it counted
	if l != nil {
		l.note(r, c.from, via.Transport, msg, w.out[2:])
	}
	if top := t.server.top.Load(); top != nil && !r.passed {
		top.one(w.out[2:])
	}
	if !r.passed && len(w.out) > 2 {
		t.server.observed[via.Transport].one(len(msg), len(w.out)-2, time.Since(time.Unix(0, c.active.Load())))
	}
	if r.passed {
		cookie := r.cookie()
		if cookie != nil {
			msg = withoutCookie(msg)
		}
		w.out = append(w.out, withCookie(r.shared.upstream.ask(ctx, msg, c.from.Addr()), cookie, maxTCPSize)...)
		w.out = r.pad(w.out, 2)
	}
	if len(w.out) == 2 {
		return false // no query: nothing sensible can follow
	}
	return t.write(c, w.out)
}

// write sends one message, for which the first two octets are left.
func (t *tcpServer) write(c *tcpConn, message []byte) bool {
	binary.BigEndian.PutUint16(message, uint16(len(message)-2))
	now := time.Now()
	c.active.Store(now.UnixNano()) // before who reads the message can do anything about it
	c.SetWriteDeadline(now.Add(t.server.shared.Load().tcp.Write))
	if _, err := c.Write(message); err != nil {
		c.cut()
		return false
	}
	return true
}
