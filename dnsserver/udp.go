package dnsserver

import (
	"bytes"
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
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
	server    *Server
	passing   sync.WaitGroup // queries that wait for an upstream

	batches uint          // so far
	full    atomic.Uint64 // queries that came in a batch that had room for no more

	at    int  // which query of the batch is being answered; -1: all are being parsed
	apart bool // they cannot be parsed together
}

// turn is how many queries a worker answers before it lets other goroutines run, among
// them those that publish changes. One that never has to wait would be stopped by the
// scheduler after some 10 ms only. It is about as many as one batch has.
const turn = batch.DefaultSize

func newUDPWorker(network, addr string, s *Server, o batch.Options) (*udpWorker, error) {
	o.Out = maxUDPSize
	socket, err := batch.Listen(network, addr, o)
	if err != nil {
		return nil, err
	}
	return &udpWorker{socket: socket, stats: &counters{}, server: s, responder: s.newResponder()}, nil
}

// run answers until the socket is closed, has been emptied for the last time, or ctx ends,
// as it does where a system goes on giving more to a socket that is finished.
func (w *udpWorker) run(ctx context.Context) {
	failing := false
	left := turn
	for ctx.Err() == nil {
		queries, err := w.socket.Receive()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			if !failing {
				w.server.log.Error("receive over UDP", "address", w.socket.LocalAddr(), "error", err)
			}
			failing = true
			time.Sleep(10 * time.Millisecond) // an error that stays must not spin
			continue
		}
		failing = false
		w.prepare()
		w.batches++
		var began time.Time
		observe := w.batches%observeEvery == 0
		if observe {
			began = time.Now()
		}
		if len(queries) == w.socket.Size() {
			w.full.Add(uint64(len(queries)))
		}
		for w.at, w.apart = -1, false; w.at < len(queries); {
			w.answer(ctx, queries)
		}
		w.responder.tally.flush(w.stats) // who has a reply finds it counted
		w.socket.Send(len(queries))
		if observe {
			w.server.observed[UDP].batch(queries, time.Since(began))
		}
		if t := w.server.top.Load(); t != nil {
			t.batch(w.batches, queries)
		}
		if left -= len(queries); left <= 0 {
			left = turn
			runtime.Gosched()
		}
	}
}

// prepare has the next queries answered by the settings, and limited by the time, of now.
func (w *udpWorker) prepare() {
	w.responder.use(w.server.shared.Load())
	w.responder.moment = w.responder.shared.limiter.now()
}

// answer answers the queries from the one at w.at on. Where one of them panics, it returns
// with that one answered so, and is to be called again for those behind it.
func (w *udpWorker) answer(ctx context.Context, queries []batch.Message) {
	defer w.rescue(queries)
	if w.at < 0 {
		w.parse(queries)
		w.at = 0
	}
	for ; w.at < len(queries); w.at++ {
		m := &queries[w.at]
		l := w.responder.logged()
		if w.apart {
			m.Reply = w.responder.Respond(m.Reply, m.Data, m.From, Via{UDP, m.Local})
		} else {
			m.Reply = w.respond(&w.parsed[w.at], m)
		}
		if l != nil {
			l.note(w.responder, m.From, UDP, m.Data, m.Reply)
		}
		if w.responder.passed {
			w.pass(ctx, m)
		}
	}
}

// rescue goes on after a panic with a Responder that knows nothing of it.
func (w *udpWorker) rescue(queries []batch.Message) {
	fault := recover()
	if fault == nil {
		return
	}
	w.responder.tally.flush(w.stats)
	w.responder = w.server.newResponder()
	w.prepare()
	if w.at < 0 {
		w.server.panics.note(w.server.log, fault, nil)
		w.apart, w.at = true, 0
		return
	}
	m := &queries[w.at]
	w.server.panics.note(w.server.log, fault, m.Data)
	m.Reply = afterPanic(m.Reply[:0], m.Data)
	w.stats.add(responsesAt(UDP, zones.ServFail), 1)
	w.at++
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
	r, back := w.responder, m.Return()
	cookie := bytes.Clone(r.cookie())
	size := r.query.udpSize(r.shared.udpSize)
	msg := withinSize(m.Data, size)
	if cookie != nil {
		msg = withoutCookie(msg)
	}
	r.shared.upstream.pass(ctx, &w.passing, msg, r.question.From, size, func(reply []byte) {
		w.socket.SendTo(withCookie(reply, cookie, size), back)
	})
}
