package dnsserver

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"time"

	"epdns/dnsserver/batch"
	"epdns/zones"
)

// udpWorker is one socket and the goroutine that serves it.
type udpWorker struct {
	socket    *batch.Socket
	responder *Responder
	parsed    []parsed      // each query of the batch
	asked     []zones.Asked // what they ask for
	stats     *counters
	upstream  *upstream
	log       *slog.Logger
}

// turn is how many queries a worker answers before it lets other goroutines run, among
// them those that publish changes. One that never has to wait would be stopped by the
// scheduler after some 10 ms only. It is about as many as one batch has.
const turn = batch.DefaultSize

func newUDPWorker(network, addr string, s *Server) (*udpWorker, error) {
	o := s.cfg.udp
	o.Out = maxUDPSize
	socket, err := batch.Listen(network, addr, o)
	if err != nil {
		return nil, err
	}
	w := &udpWorker{socket: socket, stats: &counters{}, upstream: s.upstream, log: s.log}
	w.responder = s.newResponder()
	return w, nil
}

// run answers until the socket is closed.
func (w *udpWorker) run(ctx context.Context) {
	failing := false
	left := turn
	for {
		queries, err := w.socket.Receive()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			if !failing {
				w.log.Error("receive over UDP", "address", w.socket.LocalAddr(), "error", err)
			}
			failing = true
			time.Sleep(10 * time.Millisecond) // an error that stays must not spin
			continue
		}
		failing = false
		w.parse(queries)
		for i := range queries {
			m := &queries[i]
			m.Reply = w.respond(&w.parsed[i], m)
			if w.responder.passed {
				w.pass(ctx, m)
			}
		}
		w.responder.tally.flush(w.stats) // who has a reply finds it counted
		w.socket.Send(len(queries))
		if left -= len(queries); left <= 0 {
			left = turn
			runtime.Gosched()
		}
	}
}

// parsed is a query and what query.parse said of it.
type parsed struct {
	query
	rcode uint16
	ok    bool
}

// parse parses all queries of a batch before the first one is answered, so that the
// processor can fetch what all of them take at a time.
func (w *udpWorker) parse(queries []batch.Message) {
	if len(w.parsed) < len(queries) {
		w.parsed = make([]parsed, len(queries))
	}
	w.asked = w.asked[:0]
	for i := range queries {
		p := &w.parsed[i]
		if p.rcode, p.ok = p.query.parse(queries[i].Data); p.ok {
			w.asked = append(w.asked, zones.Asked{Name: p.name[:p.nameLen], Type: p.qtype})
		}
	}
	w.responder.answer.LookAhead(w.responder.authority.Load(), w.asked)
}

// respond is the reply to a query that is parsed.
func (w *udpWorker) respond(p *parsed, m *batch.Message) []byte {
	r, via := w.responder, Via{UDP, m.Local}
	r.query = &p.query
	rcode, ok := r.admit(m.Data, m.From, via, p.rcode, p.ok)
	return r.reply(m.Reply, m.Data, rcode, ok, via)
}

// pass has an upstream answer a query. What it keeps it copies: the worker goes on
// to the next one.
func (w *udpWorker) pass(ctx context.Context, m *batch.Message) {
	msg, back := m.Data, m.Return()
	cookie := bytes.Clone(w.responder.cookie())
	size := w.responder.query.udpSize(maxTCPSize)
	if cookie != nil {
		msg = withoutCookie(msg)
	}
	w.upstream.pass(ctx, msg, UDP, func(reply []byte) {
		w.socket.SendTo(withCookie(reply, cookie, size), back)
	})
}
