package dnsserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"epdns/zones"
)

const (
	// upstreamInFlight bounds the questions that wait for an upstream, and with them
	// sockets and goroutines; upstreamPerSource bounds those of one source, so that who asks
	// for names whose servers are silent does not take it all.
	upstreamInFlight  = 1024
	upstreamPerSource = 128
	// upstreamTimeout is how long one upstream may take, and upstreamPatience all of
	// them together. Stub resolvers ask again after five seconds: two that are silent
	// can be tried before that, and any number that refuse at once.
	upstreamTimeout  = 2 * time.Second
	upstreamPatience = 4 * time.Second

	flagRA = 1 << 7
)

// upstream passes questions for names outside our zones to other servers, as they
// came but for the size of a reply over UDP, and over the same transport, and keeps no
// answer. So a pod can have epdns for its only nameserver.
type upstream struct {
	addrs  []netip.AddrPort
	log    *slog.Logger
	places places

	// asking holds the questions under way. The same question again waits for that
	// reply: a crowd is asked for once, and one that an upstream sends back to us
	// goes round once and no more.
	asking singleflight.Group

	silent []atomic.Bool // upstreams that did not answer when asked last

	*upstreamCounts
}

// upstreamCounts are those of all upstreams there have been.
type upstreamCounts struct{ queries, failures atomic.Uint64 }

func newUpstream(addrs []netip.AddrPort, counts *upstreamCounts, log *slog.Logger) *upstream {
	if len(addrs) == 0 {
		return nil
	}
	return &upstream{
		addrs: addrs, log: log, upstreamCounts: counts,
		places: places{of: map[netip.Prefix]int{}}, silent: make([]atomic.Bool, len(addrs)),
	}
}

// places are those of the questions that wait.
type places struct {
	mu    sync.Mutex
	taken int
	of    map[netip.Prefix]int // by source
}

// take takes one for a source, and says whether there was one.
func (p *places) take(source netip.Prefix) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= upstreamInFlight || p.of[source] >= upstreamPerSource {
		return false
	}
	p.taken++
	p.of[source]++
	return true
}

// give gives it back.
func (p *places) give(source netip.Prefix) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.of[source]--; p.of[source] == 0 {
		delete(p.of, source)
	}
}

// pass asks over UDP for the reply to msg in a goroutine of its own, of the group, and hands
// it to send. A reply of more octets than limit has no records then, and says that who asks is
// to come over TCP. It keeps a copy of msg.
func (u *upstream) pass(ctx context.Context, wg *sync.WaitGroup, msg []byte, from netip.Addr, limit int, send func(reply []byte)) {
	source, ok := u.begin(msg, from)
	if !ok {
		send(serverFailure(msg))
		return
	}
	msg = bytes.Clone(msg)
	wg.Go(func() {
		defer u.places.give(source)
		reply := u.reply(ctx, msg, UDP)
		if len(reply) > limit {
			reply = withoutRecords(msg, uint16(reply[3]&0xf), flagTC)
		}
		send(reply)
	})
}

// ask asks over TCP, and returns the reply to msg.
func (u *upstream) ask(ctx context.Context, msg []byte, from netip.Addr) []byte {
	source, ok := u.begin(msg, from)
	if !ok {
		return serverFailure(msg)
	}
	defer u.places.give(source)
	return u.reply(ctx, msg, TCP)
}

// begin counts a query, and takes a place for who asks. It says whether there was one, and
// the query is not too long to be held by many.
func (u *upstream) begin(msg []byte, from netip.Addr) (source netip.Prefix, ok bool) {
	u.queries.Add(1)
	source = sourceOf(from)
	if ok = len(msg) <= maxQuery && u.places.take(source); !ok {
		u.failures.Add(1)
	}
	return source, ok
}

// reply is an upstream's, or SERVFAIL where none answers.
func (u *upstream) reply(ctx context.Context, msg []byte, t Transport) []byte {
	// All but the ID, which is each asker's own.
	shared, err, _ := u.asking.Do(string(append([]byte{byte(t)}, msg[2:]...)), func() (any, error) {
		return u.askEach(ctx, msg, t)
	})
	if err != nil {
		u.failures.Add(1)
		return serverFailure(msg)
	}
	reply := bytes.Clone(shared.([]byte))
	copy(reply, msg[:2])
	return reply
}

// askEach asks one upstream after the other, the first one twice if there is no other.
func (u *upstream) askEach(ctx context.Context, msg []byte, t Transport) (reply []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, upstreamPatience)
	defer cancel()
	for i := range max(2, len(u.addrs)) {
		i %= len(u.addrs)
		if reply, err = exchange(ctx, u.addrs[i], msg, t); err == nil {
			if u.silent[i].Swap(false) {
				u.log.Info("an upstream answers again", "upstream", u.addrs[i])
			}
			return reply, nil
		}
		if ctx.Err() != nil && context.Cause(ctx) == context.Canceled {
			break // we are stopping
		}
		if !u.silent[i].Swap(true) {
			u.log.Warn("an upstream does not answer", "upstream", u.addrs[i], "error", err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// exchange asks one server. The question goes out under an ID of its own from a
// port of its own, so that a reply cannot easily be forged (RFC 5452).
func exchange(ctx context.Context, addr netip.AddrPort, msg []byte, t Transport) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, t.String(), addr.String())
	if err != nil {
		return nil, fmt.Errorf("ask %v: %w", addr, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	id := uint16(rand.Uint32())
	out := make([]byte, 2, 2+len(msg))
	out = append(out, msg...)
	binary.BigEndian.PutUint16(out, uint16(len(msg)))
	binary.BigEndian.PutUint16(out[2:], id)
	var room []byte
	if t == UDP {
		out = out[2:]
		room = make([]byte, maxUDPSize+1) // one more than is asked for: it tells what is too long
	}
	if _, err := conn.Write(out); err != nil {
		return nil, fmt.Errorf("ask %v: %w", addr, err)
	}
	for {
		reply, err := readMessage(conn, room, t)
		if err != nil {
			return nil, fmt.Errorf("ask %v: %w", addr, err)
		}
		if !answers(reply, msg, id) {
			if t == UDP {
				continue // somebody else's, or late
			}
			return nil, fmt.Errorf("ask %v: the reply does not match the question", addr)
		}
		reply[3] |= flagRA
		return reply, nil
	}
}

// readMessage reads one, over UDP into room. There is none over TCP before its length is
// known: who is silent costs nothing.
func readMessage(conn net.Conn, room []byte, t Transport) ([]byte, error) {
	if t == UDP {
		n, err := conn.Read(room)
		return room[:n], err
	}
	var prefix [2]byte
	if _, err := io.ReadFull(conn, prefix[:]); err != nil {
		return nil, err
	}
	room = make([]byte, binary.BigEndian.Uint16(prefix[:]))
	_, err := io.ReadFull(conn, room)
	return room, err
}

// answers says whether a reply is one to the question in msg, asked under that ID.
func answers(reply, msg []byte, id uint16) bool {
	if len(reply) < headerSize || binary.BigEndian.Uint16(reply) != id || reply[2]&(flagQR>>8) == 0 {
		return false
	}
	var asked, got query
	asked.parseQuestion(msg)
	if binary.BigEndian.Uint16(reply[4:]) == 0 {
		return true // an error without a question
	}
	return got.parseQuestion(reply) && got.qtype == asked.qtype && got.class == asked.class &&
		bytes.Equal(got.name[:got.nameLen], asked.name[:asked.nameLen])
}

// withinSize is a query that asks for no more octets over UDP than that: a copy of one that
// does.
func withinSize(msg []byte, size int) []byte {
	at, _ := findOPT(msg)
	if at == 0 || int(binary.BigEndian.Uint16(msg[at+2:])) <= size {
		return msg
	}
	msg = bytes.Clone(msg)
	binary.BigEndian.PutUint16(msg[at+2:], uint16(size))
	return msg
}

// serverFailure is the reply where no upstream has one.
func serverFailure(msg []byte) []byte { return withoutRecords(msg, zones.ServFail, 0) }

// withoutRecords is a reply of an RCODE, flags and the question.
func withoutRecords(msg []byte, rcode, flags uint16) []byte {
	r := Responder{shared: plain, query: &query{}}
	if _, ok := r.query.parse(msg); !ok {
		return nil
	}
	reply := r.fail(nil, msg, rcode, 0)
	reply[2] |= byte(flags >> 8)
	reply[3] |= flagRA
	return reply
}

// CheckUpstream says what is wrong with the address of an upstream.
func CheckUpstream(addr netip.AddrPort) error {
	if !addr.IsValid() || addr.Addr().IsUnspecified() || addr.Port() == 0 {
		return errors.New("no address and port to ask")
	}
	return nil
}
