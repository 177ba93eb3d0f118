package dnsserver

import (
	"encoding/hex"
	"log/slog"
	"runtime/debug"
	"sync/atomic"

	"epdns/zones"
)

// panics are mistakes of ours that a query has brought to light: who asked gets SERVFAIL,
// and all others what they would have got.
type panics struct {
	n    atomic.Uint64
	said seldom // whoever has found a query that does it can send many
}

// note counts a panic, and logs it with its stack and the query. It is to be called while
// the stack is still there, by what was deferred.
func (p *panics) note(log *slog.Logger, fault any, query []byte) {
	p.n.Add(1)
	if unsaid, ok := p.said.now(); ok {
		log.Error("answering a query failed by a mistake in epdns; please report it", "panic", fault,
			"query", hex.EncodeToString(query), "unsaid", unsaid, "stack", string(debug.Stack()))
	}
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
