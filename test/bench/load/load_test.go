//go:build linux

package load

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// wire is a question without more: a header is all that the echo looks at.
var wire = []byte{0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 3, 'w', 'e', 'b', 0, 0, 1, 0, 1}

const testTime = 100 * time.Millisecond

// echoes are the two servers. That over UDP, which nothing ends, is the same for all tests.
func echoes(t *testing.T) map[string]func(outstanding int) *Generator {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go EchoTCP(l)
	open := func(g *Generator, err error) *Generator {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { g.Close() })
		return g
	}
	return map[string]func(int) *Generator{
		"UDP": func(n int) *Generator { return open(NewUDP(echoUDP(), n, -1)) },
		"TCP": func(n int) *Generator { return open(NewTCP(l.Addr().String(), 3, n, -1)) },
	}
}

var echoUDP = sync.OnceValue(func() string {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		panic(err)
	}
	go EchoUDP(conn)
	return conn.LocalAddr().String()
})

// All that is asked of the echo is answered, in replies of any size, and nothing counts twice.
func TestFlood(t *testing.T) {
	queries := []Query{ForEcho(wire, 12), ForEcho(wire, 600), ForEcho(wire, 1232), ForEcho(wire, 60000)}
	for name, open := range echoes(t) {
		t.Run(name, func(t *testing.T) {
			g := open(64)
			for range 2 { // the second time as well
				r, err := g.Flood(queries, testTime)
				if err != nil {
					t.Fatal(err)
				}
				if r.Answers+r.Late == 0 || r.Wrong != 0 || r.Answers+r.Late+r.Lost != r.Asked {
					t.Errorf("%d asked, %d answered, %d later, %d wrong, %d lost", r.Asked, r.Answers, r.Late, r.Wrong, r.Lost)
				}
				if r.Elapsed < testTime || r.Active <= 0 || (r.Rate() > 0) != (r.Answers > 0) {
					t.Errorf("%v, %v answers a second", r.Elapsed, r.Rate())
				}
				if len(g.free) != 64 {
					t.Errorf("%d of 64 places are free after the end", len(g.free))
				}
			}
		})
	}
}

// A steady rate is that rate, and each answer has a latency.
func TestPace(t *testing.T) {
	for name, open := range echoes(t) {
		t.Run(name, func(t *testing.T) {
			r, err := open(64).Pace([]Query{ForEcho(wire, 100)}, 1000, testTime)
			if err != nil {
				t.Fatal(err)
			}
			// Fewer if the machine is busy, but never more than are due.
			if due := int(r.Elapsed/time.Millisecond) + 1; r.Asked == 0 || r.Asked > due {
				t.Errorf("%d were asked in %v, when %d were due", r.Asked, r.Elapsed, due)
			}
			if r.Answers+r.Lost != r.Asked || len(r.Latencies) != r.Answers {
				t.Errorf("%d asked, %d answered, %d lost, %d latencies", r.Asked, r.Answers, r.Lost, len(r.Latencies))
			}
			if !slices.IsSorted(r.Latencies) || r.Answers > 0 && r.Latencies[0] <= 0 {
				t.Errorf("latencies %v", r.Latencies)
			}
		})
	}
}

// Queries of one length leave together and arrive apart, and so do those of several, also where
// the kernel cannot cut.
func TestLengths(t *testing.T) {
	long := append(slices.Clone(wire[:12]), 5, 'l', 'o', 'n', 'g', 'e', 0, 0, 1, 0, 1)
	queries := []Query{ForEcho(wire, 100), ForEcho(wire, 300), ForEcho(long, 200), ForEcho(long, 400)}
	for _, plain := range []bool{false, true} {
		for n := 1; n <= len(queries); n++ {
			g := echoes(t)["UDP"](64)
			g.t.(*udp).plain = plain
			r, err := g.Flood(queries[:n], testTime)
			if err != nil {
				t.Fatal(err)
			}
			if r.Answers == 0 || r.Wrong != 0 || r.Answers+r.Late+r.Lost != r.Asked {
				t.Errorf("plain %v, %d queries: %d asked, %d answered, %d later, %d wrong, %d lost", plain, n, r.Asked, r.Answers, r.Late, r.Wrong, r.Lost)
			}
		}
	}
}

// Patience is some times that of the slowest reply, goes down slowly, and stays where nothing comes.
func TestPatience(t *testing.T) {
	g := newGenerator(&silent{}, 1, -1)
	for _, step := range []struct{ slowest, want time.Duration }{
		{0, lostAtLast},
		{time.Millisecond, lostAtLast * 3 / 4},
		{time.Second, lostAtLast},
	} {
		g.slowest = step.slowest
		if g.learn(); g.patience != step.want || g.slowest != 0 {
			t.Errorf("after %v: %v, want %v", step.slowest, g.patience, step.want)
		}
	}
	for range 100 {
		g.slowest = time.Millisecond
		g.learn()
	}
	if g.patience != lostAtOnce {
		t.Errorf("in the end %v, want %v", g.patience, lostAtOnce)
	}
	g.slowest = 100 * time.Millisecond
	if g.learn(); g.patience != 400*time.Millisecond {
		t.Errorf("%v, want 400ms", g.patience)
	}
}

// slow answers a query only when it was given up.
type slow struct {
	held  [][]byte
	since []time.Time // of those that are sent later still
}

func (s *slow) send(messages [][]byte) error {
	for _, m := range messages {
		reply := slices.Clone(m[:header])
		reply[2] = 0x80
		s.held = append(s.held, reply)
	}
	return nil
}

func (s *slow) recv() ([][]byte, error) {
	if len(s.held) < 2 {
		return nil, nil
	}
	late := s.held[:1]
	s.held = s.held[1:]
	return late, nil
}

func (s *slow) close() error { return nil }

// A reply after that is no answer, but the server has sent it.
func TestStale(t *testing.T) {
	g := newGenerator(&slow{}, 1, -1)
	g.patience = 0 // and no reply that counts will change that
	r, err := g.Flood([]Query{{Wire: wire, Min: header, Max: header}}, testTime)
	if err != nil {
		t.Fatal(err)
	}
	if r.Asked < 2 || r.Answers != 0 || r.Lost != r.Asked || r.Stale == 0 || r.Stale >= r.Asked || r.Replies() != r.Stale {
		t.Errorf("%d asked, %d answered, %d lost, %d stale", r.Asked, r.Answers, r.Lost, r.Stale)
	}
}

// held replies 200 ms late, ten times as late as is waited for.
type held struct{ slow }

func (h *held) send(messages [][]byte) error {
	h.since = append(h.since, time.Now())
	return h.slow.send(messages)
}

func (h *held) recv() ([][]byte, error) {
	if len(h.since) == 0 || time.Since(h.since[0]) < 10*lostAtOnce {
		return nil, nil
	}
	all := h.held
	h.held, h.since = nil, nil
	return all, nil
}

// A server that is held up when the end comes, loses nothing.
func TestHeldUp(t *testing.T) {
	g := newGenerator(&held{}, MaxOutstanding, -1)
	g.patience = lostAtOnce
	r, err := g.Pace([]Query{{Wire: wire, Min: header, Max: header}}, 1000, testTime)
	if err != nil {
		t.Fatal(err)
	}
	if r.Asked == 0 || r.Replies() != r.Asked {
		t.Errorf("%d replies to %d queries", r.Replies(), r.Asked)
	}
}

// What a reply says that it should not makes it a wrong one, not an answer.
func TestWrong(t *testing.T) {
	good := ForEcho(wire, 100)
	for what, spoil := range map[string]func(*Query){
		"the RCODE":   func(q *Query) { q.RCODE = 3 },
		"TC":          func(q *Query) { q.Truncated = true },
		"too short":   func(q *Query) { q.Min, q.Max = 101, 200 },
		"too long":    func(q *Query) { q.Min, q.Max = 20, 99 },
		"the QR flag": func(q *Query) { q.Wire = q.Wire[:0:0] },
	} {
		t.Run(what, func(t *testing.T) {
			q := good
			spoil(&q)
			reply := make([]byte, 100)
			reply[2] = 0x80
			if what == "the QR flag" {
				q.Wire, reply[2] = good.Wire, 0
			}
			if q.right(reply) {
				t.Fatal("the reply is taken for right")
			}
			if reply[2] == 0 {
				return // which the echo always has
			}
			g := echoes(t)["UDP"](8)
			r, err := g.Pace([]Query{q}, 1000, testTime)
			if err != nil {
				t.Fatal(err)
			}
			if r.Answers != 0 || r.Wrong == 0 || r.Wrong+r.Lost != r.Asked {
				t.Errorf("%d asked, %d right, %d wrong, %d lost", r.Asked, r.Answers, r.Wrong, r.Lost)
			}
		})
	}
}

// silent swallows some queries, and answers others twice.
type silent struct {
	next  [][]byte
	asked int
}

func (s *silent) send(messages [][]byte) error {
	for _, m := range messages {
		reply := slices.Clone(m[:header])
		reply[2] = 0x80
		switch s.asked++; s.asked % 4 {
		case 0: // never
		case 1:
			s.next = append(s.next, reply, reply)
		default:
			s.next = append(s.next, reply)
		}
	}
	return nil
}

func (s *silent) recv() ([][]byte, error) {
	next := append(s.next, []byte{1, 2, 3}) // and what is no message
	s.next = nil
	return next, nil
}

func (s *silent) close() error { return nil }

// What is lost is told, and its place is used again; what comes twice counts once.
func TestLost(t *testing.T) {
	g := newGenerator(&silent{}, 64, -1)
	q := Query{Wire: wire, Min: header, Max: header}
	r, err := g.Flood([]Query{q}, testTime)
	if err != nil {
		t.Fatal(err)
	}
	if r.Asked < 64 || r.Answers+r.Late+r.Lost != r.Asked || r.Lost != r.Asked/4 || len(g.free) != 64 {
		t.Errorf("%d asked, %d answered, %d later, %d lost, %d places free", r.Asked, r.Answers, r.Late, r.Lost, len(g.free))
	}
}

// A server that closes its connection does not end in silence.
func TestClosed(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			conn.Close()
		}
	}()
	g, err := NewTCP(l.Addr().String(), 1, 8, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := g.Pace([]Query{ForEcho(wire, 100)}, 100, 10*time.Second); err == nil {
		t.Error("no error")
	}
}

// Bad input is named.
func TestBadInput(t *testing.T) {
	g := newGenerator(&silent{}, 1, -1)
	for want, do := range map[string]func() error{
		"no queries":                      func() error { _, err := g.Flood(nil, testTime); return err },
		"query 1 has 3 octets":            func() error { _, err := g.Flood([]Query{{Wire: wire}, {Wire: wire[:3]}}, testTime); return err },
		"a rate of 0 queries":             func() error { _, err := g.Pace([]Query{{Wire: wire}}, 0, testTime); return err },
		`ask "localhost:53": not an IPv4`: func() error { _, err := NewUDP("localhost:53", 1, -1); return err },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	for _, query := range [][]byte{nil, wire[:13], append(slices.Clone(wire[:12]), 0, 11)} {
		if _, ok := echo(make([]byte, maxReply), query); ok {
			t.Errorf("the echo answers %v", query)
		}
	}
}
