package dnsserver

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"time"
)

// udpWorker is one socket and the goroutine that serves it.
type udpWorker struct {
	conn      *net.UDPConn
	local     netip.Addr // that the socket is bound to; not valid for all addresses
	responder *Responder
	stats     *counters
	upstream  *upstream
	log       *slog.Logger
}

// socketBuffer is asked for in each direction: room for some thousand queries
// while the worker is not on a processor. The kernel may give less.
const socketBuffer = 4 << 20

func newUDPWorker(network, addr string, s *Server) (*udpWorker, error) {
	lc := net.ListenConfig{Control: controlUDP}
	pc, err := lc.ListenPacket(context.Background(), network, addr)
	if err != nil {
		return nil, err
	}
	conn := pc.(*net.UDPConn)
	_ = conn.SetReadBuffer(socketBuffer) // less is served as well
	_ = conn.SetWriteBuffer(socketBuffer)
	w := &udpWorker{conn: conn, stats: &counters{}, upstream: s.upstream, log: s.log}
	w.responder = s.newResponder(w.stats)
	if l := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr(); !l.IsUnspecified() {
		w.local = l.Unmap()
	}
	return w, nil
}

// run answers until the socket is closed.
func (w *udpWorker) run(ctx context.Context) {
	in := make([]byte, maxTCPSize)
	out := make([]byte, 0, maxUDPSize)
	oob := make([]byte, packetInfoSize)
	failing := false
	for {
		n, oobn, _, from, err := w.conn.ReadMsgUDPAddrPort(in, oob)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			if !failing {
				w.log.Error("receive over UDP", "address", w.conn.LocalAddr(), "error", err)
			}
			failing = true
			time.Sleep(10 * time.Millisecond) // an error that stays must not spin
			continue
		}
		failing = false
		// On a socket for all addresses the reply leaves from the one that was asked
		// (RFC 2181 section 4.1).
		local, back := w.local, []byte(nil)
		if !local.IsValid() {
			local, back = packetInfo(oob[:oobn])
		}
		out = w.responder.Respond(out[:0], in[:n], from, Via{UDP, local})
		if w.responder.passed {
			w.pass(ctx, in[:n], back, from)
			continue
		}
		if len(out) == 0 {
			continue
		}
		// A reply that cannot leave is lost like one on the way: the asker repeats.
		_, _, _ = w.conn.WriteMsgUDPAddrPort(out, back, from)
	}
}

// pass has an upstream answer a query. What it keeps it copies: the worker goes on
// to the next one.
func (w *udpWorker) pass(ctx context.Context, msg, back []byte, to netip.AddrPort) {
	back = bytes.Clone(back)
	cookie := bytes.Clone(w.responder.cookie())
	size := w.responder.query.udpSize(maxTCPSize)
	if cookie != nil {
		msg = withoutCookie(msg)
	}
	w.upstream.pass(ctx, msg, UDP, func(reply []byte) {
		_, _, _ = w.conn.WriteMsgUDPAddrPort(withCookie(reply, cookie, size), back, to)
	})
}
