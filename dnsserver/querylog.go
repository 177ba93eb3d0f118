package dnsserver

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The query log has a line for a share of the queries. Workers put what the line says into
// a ring of fixed size and go on; one goroutine writes. Where it cannot keep up, or more
// comes than it may write, lines are lost and counted: a log is never a reason to wait.

const (
	// queryLogSize is how many lines wait at most: what comes in half a second at the
	// rate that is written.
	queryLogSize = 512

	// queryLogTick and queryLogBurst come to a thousand lines a second.
	queryLogTick  = 50 * time.Millisecond
	queryLogBurst = 50
)

// queryLog is the lines that wait to be written. A nil queryLog logs nothing.
type queryLog struct {
	log     *slog.Logger
	share   float64
	below   uint64         // what a random number of 32 bits is for a query that is logged
	dropped *atomic.Uint64 // lines that there was no room for

	ring[queryEntry]

	once  sync.Once
	stop  context.CancelFunc
	ended chan struct{} // closed when the reader is done
}

// queryEntry is what a line says. It has no pointers, but for the zone of an address.
type queryEntry struct {
	at       time.Time
	took     time.Duration
	from     netip.AddrPort
	via      Transport
	passed   bool // to an upstream, which has yet to answer
	do       bool
	flags    uint16 // of the reply's header
	rcode    uint16
	qtype    uint16
	class    uint16
	bufsize  uint16 // that the asker gave
	edns     bool
	nameLen  uint8
	size     uint16 // of the query
	octets   uint16 // of the reply
	nameWire [maxName]byte
}

// withShare is the log itself, if that is its share already, or one of that share.
func (l *queryLog) withShare(share float64, log *slog.Logger, dropped *atomic.Uint64) *queryLog {
	switch {
	case share <= 0:
		return nil
	case l != nil && l.share == share:
		return l
	}
	return &queryLog{log: log, share: share, below: uint64(share * (1 << 32)), dropped: dropped,
		ring: newRing[queryEntry](queryLogSize), ended: make(chan struct{})}
}

// start has lines written until ctx ends, or end is called. It may be called again.
func (l *queryLog) start(ctx context.Context) {
	if l != nil {
		l.once.Do(func() {
			ctx, l.stop = context.WithCancel(ctx)
			go l.run(ctx)
		})
	}
}

// end is for when no more lines come, but for those of the batches under way.
func (l *queryLog) end() {
	if l != nil && l.stop != nil {
		l.stop()
	}
}

// wait waits until the last line is written, if start was called.
func (l *queryLog) wait() {
	if l != nil && l.stop != nil {
		<-l.ended
	}
}

// CheckQueryLog says what is wrong with a share of queries to log.
func CheckQueryLog(share float64) error {
	if !(share >= 0 && share <= 1) { // nor is it no number
		return fmt.Errorf("%v is no share: 0 is none, 1 all, 0.01 one in a hundred", share)
	}
	return nil
}

// logged is the log that is to have a line about the query that is answered next, or nil.
func (r *Responder) logged() *queryLog {
	if r.shared.queries == nil {
		return nil
	}
	return r.draw()
}

func (r *Responder) draw() *queryLog {
	l := r.shared.queries
	if uint64(rand.Uint32()) >= l.below {
		return nil
	}
	r.began = time.Now()
	return l
}

// slot is room for a line, as ring has it. What there is no room for is counted.
func (l *queryLog) slot() (*ringSlot[queryEntry], uint64) {
	s, ticket := l.ring.slot()
	if s == nil {
		l.dropped.Add(1)
	}
	return s, ticket
}

// note logs the query that the Responder has just answered, or had passed on. What was no
// query is not logged.
func (l *queryLog) note(r *Responder, from netip.AddrPort, via Transport, query, reply []byte) {
	if len(reply) < headerSize && !r.passed {
		return
	}
	s, ticket := l.slot()
	if s == nil {
		return
	}
	q, e := r.query, &s.entry
	e.at, e.took = r.began, time.Since(r.began)
	e.from, e.via, e.passed = netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), via, r.passed
	e.edns, e.do, e.bufsize = q.present, q.do, q.size
	e.qtype, e.class = q.qtype, q.class
	e.nameLen = uint8(copy(e.nameWire[:], q.name[:q.nameLen]))
	e.size, e.octets = uint16(len(query)), uint16(len(reply))
	e.flags, e.rcode = 0, 0
	if !r.passed {
		e.flags = uint16(reply[2])<<8 | uint16(reply[3])
		e.rcode = r.tally.rcode
	}
	s.put(ticket)
}

// run writes until ctx ends, and then what is still there.
func (l *queryLog) run(ctx context.Context) {
	defer close(l.ended)
	tick := time.NewTicker(queryLogTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			l.write(queryLogSize)
			return
		case <-tick.C:
			l.write(queryLogBurst)
		}
	}
}

// write writes lines, as many as there are, and at most so many.
func (l *queryLog) write(most int) {
	var e queryEntry
	for range most {
		if !l.take(&e) {
			return
		}
		if ctx := context.Background(); l.log.Enabled(ctx, slog.LevelInfo) {
			record := slog.NewRecord(e.at, slog.LevelInfo, "query", 0)
			record.AddAttrs(e.attrs()...)
			l.log.Handler().Handle(ctx, record) // an error of which could not be logged either
		}
	}
}

// attrs are what a line says of a query, in this order.
func (e *queryEntry) attrs() []slog.Attr {
	attrs := []slog.Attr{
		slog.String("client", e.from.String()),
		slog.String("proto", e.via.String()),
		slog.String("name", presentName(e.nameWire[:e.nameLen])),
		slog.String("type", typeText(e.qtype)),
		slog.String("class", classText(e.class)),
		slog.Int("size", int(e.size)),
	}
	if e.edns {
		attrs = append(attrs, slog.Bool("do", e.do), slog.Int("bufsize", int(e.bufsize)))
	}
	if e.passed {
		return append(attrs, slog.Bool("upstream", true))
	}
	return append(attrs,
		slog.String("rcode", rcodeText(e.rcode)),
		slog.String("flags", flagsText(e.flags)),
		slog.Int("octets", int(e.octets)),
		slog.Duration("took", e.took))
}

// presentName is a name as master files have it (RFC 1035 section 5.1): whatever octets it
// has, what is written are visible characters of ASCII, and each label is told from the
// next. It is empty where there is no question.
func presentName(wire []byte) string {
	if len(wire) == 1 {
		return "."
	}
	var b strings.Builder
	for len(wire) > 0 && wire[0] != 0 {
		label := wire[1:][:wire[0]]
		wire = wire[1+len(label):]
		for _, c := range label {
			switch {
			case c <= ' ' || c > '~':
				fmt.Fprintf(&b, "\\%03d", c)
			case strings.IndexByte(`."\();@$`, c) >= 0:
				b.WriteByte('\\')
				fallthrough
			default:
				b.WriteByte(c)
			}
		}
		b.WriteByte('.')
	}
	return b.String()
}

// typeText is a type as people write it. Those that clients ask for besides ours are there
// by name.
func typeText(qtype uint16) string {
	if int(qtype) < len(qtypeAt) && int(qtypeAt[qtype]) < len(qtypes) {
		return qtypeNames[qtypeAt[qtype]]
	}
	switch qtype {
	case 15:
		return "MX"
	case 35:
		return "NAPTR"
	case 43:
		return "DS"
	case 48:
		return "DNSKEY"
	case 64:
		return "SVCB"
	case 65:
		return "HTTPS"
	}
	return fmt.Sprintf("TYPE%d", qtype) // RFC 3597 section 5
}

func classText(class uint16) string {
	switch class {
	case classIN:
		return "IN"
	case classCH:
		return "CH"
	case classANY:
		return "ANY"
	}
	return fmt.Sprintf("CLASS%d", class) // RFC 3597 section 5
}

func rcodeText(rcode uint16) string {
	if int(rcode) < len(rcodeNames) && rcodeNames[rcode] != "" {
		return rcodeNames[rcode]
	}
	return fmt.Sprintf("RCODE%d", rcode)
}

// flagsText are the flags of a header as dig has them.
func flagsText(flags uint16) (text string) {
	for _, f := range []struct {
		bit  uint16
		name string
	}{{flagQR, "qr"}, {flagAA, "aa"}, {flagTC, "tc"}, {flagRD, "rd"}, {flagRA, "ra"}, {flagCD, "cd"}} {
		if flags&f.bit != 0 {
			if text != "" {
				text += " "
			}
			text += f.name
		}
	}
	return text
}
