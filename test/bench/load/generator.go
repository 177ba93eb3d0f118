//go:build linux

package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// MaxOutstanding is how many queries can be on their way. The rest of an ID's bits tell a
	// late reply from one to the next query that has its place.
	MaxOutstanding = 1 << slotBits
	slotBits       = 9

	// batch is how many messages one system call moves. The kernel segments no more at once.
	batch = 64

	// A query is given up for lost when it has waited several times as long as those that were
	// answered of late, within these bounds. So a datagram for which a server had no room leaves
	// its place to another soon, and a slow server is not asked twice.
	lostTimes  = 4
	lostAtOnce = 20 * time.Millisecond
	lostAtLast = 2 * time.Second

	// sweepEvery is how often it is looked for those.
	sweepEvery = 10 * time.Millisecond

	// gather is for how long replies are gathered before they are taken, and the next queries
	// leave. The server has enough to do meanwhile.
	gather = 20 * time.Microsecond
)

// transport moves messages. What recv returns is valid until the next call.
type transport interface {
	send(messages [][]byte) error
	recv() (messages [][]byte, err error) // without waiting
	close() error
}

// Generator asks one server. One goroutine may use it.
type Generator struct {
	t           transport
	cpu         int
	outstanding int
	slots       [MaxOutstanding]slot
	free        []uint16 // slots
	sending     [][]byte
	last        time.Time     // when there were replies
	slowest     time.Duration // of the replies since the last sweep
	patience    time.Duration // after which a query is lost
}

// slot is room for one query that is on its way.
type slot struct {
	busy   bool
	id     uint16 // the slot, and in the higher bits how often it was used
	query  *Query
	since  time.Time // when it was sent, or due
	buffer [maxQuery]byte
}

// NewUDP makes a generator that asks a server over UDP, with up to this many queries outstanding
// (1 to [MaxOutstanding]), on this processor; a negative one is any.
func NewUDP(server string, outstanding, cpu int) (*Generator, error) {
	t, err := dialUDP(server)
	if err != nil {
		return nil, err
	}
	return newGenerator(t, outstanding, cpu), nil
}

// NewTCP is like [NewUDP], over a few TCP connections.
func NewTCP(server string, connections, outstanding, cpu int) (*Generator, error) {
	t, err := dialTCP(server, connections)
	if err != nil {
		return nil, err
	}
	return newGenerator(t, outstanding, cpu), nil
}

func newGenerator(t transport, outstanding, cpu int) *Generator {
	g := &Generator{t: t, cpu: cpu, outstanding: min(max(outstanding, 1), MaxOutstanding), patience: lostAtLast}
	g.sending = make([][]byte, 0, batch)
	for i := range g.outstanding {
		g.slots[i].id = uint16(i)
		g.free = append(g.free, uint16(i))
	}
	return g
}

// Close closes the sockets.
func (g *Generator) Close() error { return g.t.close() }

// Result is what came of a load.
type Result struct {
	Asked   int // queries sent
	Answers int // right replies
	Late    int // right replies after the end, to what was asked before
	Wrong   int // replies that were not as they must be
	Lost    int // queries without a reply when they were given up
	Stale   int // replies to those
	Elapsed time.Duration

	// Active is from the begin to the last reply, be it late.
	Active time.Duration

	// Kept is for how much of Elapsed the thread that asks could not run, since its processor did
	// something else.
	Kept time.Duration

	// Latencies are those of the right replies, from when each query was due, sorted. Only of a
	// steady rate.
	Latencies []time.Duration
}

// Replies is how many a server has sent, as far as they have come.
func (r *Result) Replies() int { return r.Answers + r.Late + r.Wrong + r.Stale }

// Rate is the right answers a second.
func (r *Result) Rate() float64 { return float64(r.Answers) / r.Elapsed.Seconds() }

// Flood keeps as many queries outstanding as the generator may have, for this time. The queries
// are asked in a random order, and again when all have been.
func (g *Generator) Flood(queries []Query, d time.Duration) (*Result, error) {
	return g.run(queries, d, 0)
}

// Pace asks this many queries a second, evenly, for this time, however late the replies are. If
// all that may be outstanding are, queries wait, which shows in their latency.
func (g *Generator) Pace(queries []Query, rate int, d time.Duration) (*Result, error) {
	if rate < 1 {
		return nil, fmt.Errorf("a rate of %d queries a second", rate)
	}
	return g.run(queries, d, rate)
}

// run floods, or paces unless rate is 0.
func (g *Generator) run(queries []Query, d time.Duration, rate int) (*Result, error) {
	if len(queries) == 0 {
		return nil, errors.New("no queries")
	}
	if i := slices.IndexFunc(queries, func(q Query) bool { return len(q.Wire) < header || len(q.Wire) > maxQuery }); i >= 0 {
		return nil, fmt.Errorf("query %d has %d octets, not %d to %d", i, len(queries[i].Wire), header, maxQuery)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if g.cpu >= 0 {
		back, err := pinThread(g.cpu)
		if err != nil {
			return nil, err
		}
		defer back()
		defer hurryThread()()
	}
	order := rand.New(rand.NewPCG(1, 2)).Perm(len(queries))
	r := &Result{}
	var period time.Duration
	if rate > 0 {
		period = time.Second / time.Duration(rate)
		r.Latencies = make([]time.Duration, 0, int(d/period)+1)
	}
	kept := waited()
	begin := time.Now()
	end, now := begin.Add(d), begin
	due, sent, swept := begin, begin, begin
	for next := 0; now.Before(end); now = time.Now() {
		// What leaves now: all that may, or all that is due.
		ready := len(g.free)
		if rate == 0 && ready < batch/2 && now.Sub(sent) < gather {
			ready = 0
		}
		g.sending = g.sending[:0]
		for ; ready > 0 && len(g.sending) < batch && (rate == 0 || !due.After(now)); ready-- {
			since := now
			if rate > 0 {
				since, due = due, due.Add(period)
			}
			g.take(&queries[order[next]], since)
			if next++; next == len(order) {
				next = 0
			}
		}
		if len(g.sending) > 0 {
			sent = now
			r.Asked += len(g.sending)
			if err := g.t.send(g.sending); err != nil {
				return nil, err
			}
		}
		if err := g.receive(r, rate > 0); err != nil {
			return nil, err
		}
		if rate > 0 && len(g.free) == g.outstanding {
			rest(due)
		}
		if now.Sub(swept) > sweepEvery {
			swept = now
			g.learn()
			g.sweep(r, now.Add(-g.patience))
		}
	}
	r.Elapsed = now.Sub(begin)
	r.Kept = waited() - kept
	if err := g.drain(r, rate > 0); err != nil {
		return nil, err
	}
	r.Active = g.last.Sub(begin)
	slices.Sort(r.Latencies)
	return r, nil
}

// rest sleeps until shortly before something is due: whoever never sleeps and goes before
// all others is stopped by the kernel for a twentieth of each second.
func rest(due time.Time) {
	const early = 100 * time.Microsecond // than the timer and the way back from sleep take
	if d := time.Until(due) - early; d > 0 {
		t := unix.NsecToTimespec(int64(d))
		unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &t, nil) // where it fails, nobody sleeps
	}
}

// take puts a query into a free slot and among those to send.
func (g *Generator) take(q *Query, since time.Time) {
	i := g.free[len(g.free)-1]
	g.free = g.free[:len(g.free)-1]
	s := &g.slots[i]
	s.busy, s.query, s.since = true, q, since
	s.id += MaxOutstanding
	n := copy(s.buffer[:], q.Wire)
	binary.BigEndian.PutUint16(s.buffer[:], s.id)
	g.sending = append(g.sending, s.buffer[:n])
}

// receive takes the replies that are there.
func (g *Generator) receive(r *Result, latencies bool) error {
	replies, err := g.t.recv()
	if err != nil || len(replies) == 0 {
		return err
	}
	now := time.Now()
	g.last = now
	for _, reply := range replies {
		if len(reply) < header {
			continue // whose it is nobody knows
		}
		id := binary.BigEndian.Uint16(reply)
		s := &g.slots[id%MaxOutstanding]
		if !s.busy || s.id != id {
			r.Stale++
			continue // given up
		}
		g.release(s)
		took := now.Sub(s.since)
		g.slowest = max(g.slowest, took)
		if !s.query.right(reply) {
			r.Wrong++
			continue
		}
		r.Answers++
		if latencies {
			r.Latencies = append(r.Latencies, took)
		}
	}
	return nil
}

func (g *Generator) release(s *slot) {
	s.busy = false
	g.free = append(g.free, s.id%MaxOutstanding)
}

// learn makes the patience fit to the replies since it was called last. Where there were none, it
// stays: the server may have been held up.
func (g *Generator) learn() {
	if g.slowest > 0 {
		g.patience = max(lostTimes*g.slowest, g.patience*3/4)
		g.patience = min(max(g.patience, lostAtOnce), lostAtLast)
		g.slowest = 0
	}
}

// sweep gives up what was sent before.
func (g *Generator) sweep(r *Result, before time.Time) {
	for i := range g.outstanding {
		if s := &g.slots[i]; s.busy && s.since.Before(before) {
			g.release(s)
			r.Lost++
		}
	}
}

// drain takes the replies that are still to come, so that neither the server nor the next
// measurement has to do with them. At a steady rate they are answers like the others, and also
// those to what was given up are waited for: a server that was held up just now has lost nothing.
func (g *Generator) drain(r *Result, steady bool) error {
	before, patience := r.Answers, g.patience
	if steady {
		patience = lostAtLast
	}
	began := time.Now()
	for now := began; now.Sub(began) < lostAtLast && (now.Sub(began) < patience || now.Sub(g.last) < patience); now = time.Now() {
		if len(g.free) == g.outstanding && (!steady || r.Stale >= r.Lost) {
			break
		}
		if err := g.receive(r, steady); err != nil {
			return err
		}
	}
	if !steady {
		r.Answers, r.Late = before, r.Answers-before
	}
	g.sweep(r, time.Now())
	return nil
}
