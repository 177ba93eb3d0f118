package dnsserver

import (
	"encoding/hex"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"epdns/zones"
)

// panicLogEvery is how often a panic is logged at most: whoever has found a query that
// does it can send many.
const panicLogEvery = 10 * time.Second

// panics are mistakes of ours that a query has brought to light: who asked gets SERVFAIL,
// and all others what they would have got.
type panics struct {
	n atomic.Uint64

	mu     sync.Mutex
	next   time.Time // when one may be logged again
	unsaid int       // those since the last one that was
}

// note counts a panic, and logs it with its stack and the query. It is to be called while
// the stack is still there, by what was deferred.
func (p *panics) note(log *slog.Logger, fault any, query []byte) {
	p.n.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Before(p.next) {
		p.unsaid++
		return
	}
	log.Error("answering a query failed by a mistake in epdns; please report it", "panic", fault,
		"query", hex.EncodeToString(query), "unsaid", p.unsaid, "stack", string(debug.Stack()))
	p.next, p.unsaid = now.Add(panicLogEvery), 0
}

// afterPanic appends the reply to a query that nothing is known of but that it cannot be
// answered: SERVFAIL, or silence to what is no query.
func afterPanic(dst, msg []byte) (out []byte) {
	defer func() {
		if recover() != nil { // it does not even bear looking at
			out = dst
		}
	}()
	r := Responder{shared: plain, query: &query{}}
	if rcode, ok := r.query.parse(msg); !ok && rcode == 0 {
		return dst
	}
	return r.fail(dst, msg, zones.ServFail, 0)
}
