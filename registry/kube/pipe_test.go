package kube

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// pipe carries requests to a handler without a socket, so that a test may run in a
// bubble of fake time.
type pipe struct {
	handler http.Handler

	connects     atomic.Bool  // requests get as far as a connection
	refused      atomic.Bool  // as if nobody listened
	cutsEarly    atomic.Bool  // connections end before an answer
	stuck        atomic.Bool  // requests get no answer
	holdsStreams atomic.Bool  // streaming lists get no answer
	holdsVersion atomic.Bool  // nor does who asks for the server's version
	stalls       atomic.Bool  // answers to LISTs are no more than a head
	pause        atomic.Int64 // nanoseconds before each piece of an answer

	mu      sync.Mutex
	streams []context.CancelCauseFunc
}

func (p *pipe) RoundTrip(r *http.Request) (*http.Response, error) {
	if p.refused.Load() {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if p.cutsEarly.Load() {
		return nil, io.EOF
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	if trace := httptrace.ContextClientTrace(ctx); p.connects.Load() && trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	holdsThis := p.holdsVersion.Load() && r.URL.Path == "/version"
	if p.stuck.Load() || holdsThis || p.holdsStreams.Load() && r.URL.Query().Get("sendInitialEvents") == "true" {
		defer cancel(nil)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	p.mu.Lock()
	p.streams = append(p.streams, cancel)
	p.mu.Unlock()
	body, out := io.Pipe()
	w := &pipeWriter{header: http.Header{}, out: out, ready: make(chan struct{}), pause: time.Duration(p.pause.Load()), gone: ctx.Done()}
	if p.stalls.Load() && r.URL.Path != "/version" && !r.URL.Query().Has("watch") {
		w.pause = time.Hour
	}
	stop := context.AfterFunc(ctx, func() { out.CloseWithError(context.Cause(ctx)) })
	go func() {
		defer stop()
		p.handler.ServeHTTP(w, r.WithContext(ctx))
		w.Flush()
		out.Close()
	}()
	select {
	case <-w.ready:
	case <-ctx.Done():
		cancel(nil)
		return nil, ctx.Err()
	}
	return &http.Response{
		StatusCode: w.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: pipeBody{body, func() { cancel(nil) }}, Request: r, ContentLength: -1,
	}, nil
}

// cut ends all streams with an error.
func (p *pipe) cut(how error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, cancel := range p.streams {
		cancel(how)
	}
	p.streams = nil
}

type pipeWriter struct {
	header http.Header
	code   int
	out    *io.PipeWriter
	ready  chan struct{}
	once   sync.Once
	pause  time.Duration
	gone   <-chan struct{}
}

func (w *pipeWriter) Header() http.Header { return w.header }

func (w *pipeWriter) WriteHeader(code int) {
	w.once.Do(func() {
		w.code = code
		close(w.ready)
	})
}

func (w *pipeWriter) Flush() { w.WriteHeader(http.StatusOK) }

func (w *pipeWriter) Write(b []byte) (int, error) {
	w.Flush()
	if w.pause > 0 {
		select {
		case <-time.After(w.pause):
		case <-w.gone:
			return 0, context.Canceled
		}
	}
	return w.out.Write(b)
}

type pipeBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (b pipeBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}
