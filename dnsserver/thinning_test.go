package dnsserver

import (
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

// sender is a network in a model of what comes to a socket.
type sender struct {
	addr   string
	rate   float64 // a second
	limit  float64 // of what is read, beyond this it is limited; 0 is none
	spared bool    // somebody there has no limit
}

// model has a socket and whoever sends to it.
type model struct {
	thinning
	notice         notice
	capacity       float64 // what can be read in a second
	senders        []sender
	step           int64
	dropped, taken uint64
	r              *rand.Rand
}

// run goes on by some steps, and returns what share of each sender's was read in the last one.
func (m *model) run(steps int) (share map[string]float64) {
	for range steps {
		m.step++
		now := m.step * second / 4
		share = map[string]float64{}
		passed, all := map[string]float64{}, 0.0
		for _, s := range m.senders {
			sent := float64(int(s.rate/4)) * (0.95 + m.r.Float64()/10)
			pass := sent
			for _, n := range m.from {
				if n == networkOf(netip.MustParseAddr(s.addr)) {
					pass = 0
					for range int(sent) {
						if m.r.Uint32N(1<<m.share) == 0 {
							pass++
						}
					}
				}
			}
			m.dropped += uint64(sent - pass)
			passed[s.addr], share[s.addr] = pass, pass/sent
			all += pass
		}
		room := min(1, m.capacity/4/max(all, 1))
		for _, s := range m.senders {
			read := passed[s.addr] * room
			m.dropped += uint64(passed[s.addr] - read)
			m.taken += uint64(read)
			share[s.addr] *= room
			network := networkOf(netip.MustParseAddr(s.addr))
			if beyond := read - s.limit/4; s.limit > 0 && beyond > 0 {
				m.notice.note(network, now)
				m.notice.of(network, false).count.Add(uint64(beyond) - 1)
			}
			if s.spared {
				m.notice.spare(network, now)
			}
		}
		m.thinning.step(&m.notice, m.dropped, m.taken, now)
	}
	return share
}

func newModel(capacity float64, senders ...sender) *model {
	m := &model{capacity: capacity, senders: senders, r: rand.New(rand.NewPCG(1, 2))}
	m.thinning.step(&m.notice, 0, 0, 0)
	return m
}

// honest are those who ask little.
var honest = sender{"192.0.2.1", 100, 0, false}

// Whatever the flood, others lose next to nothing after a while, and networks that are limited not
// much more than what there is no time for.
func TestThinningConverges(t *testing.T) {
	for _, times := range []float64{1.2, 2.2, 5, 20, 60} {
		for _, networks := range []int{1, 2, 16} {
			const capacity = 10_000
			m := newModel(capacity, honest)
			for i := range networks {
				addr := netip.AddrFrom4([4]byte{10, byte(i), 0, 1}).String()
				m.senders = append(m.senders, sender{addr, times * capacity / float64(networks), 10, false})
			}
			m.run(10)
			if len(m.from) != networks {
				t.Errorf("%v times of %d networks: %d are thinned", times, networks, len(m.from))
			}
			worst, others := 1.0, 1.0
			lost, steps := 0.0, 64
			for range steps {
				got := m.run(1)
				lost += 1 - got[honest.addr]
				worst = min(worst, got["10.0.0.1"])
				others = min(others, got[honest.addr])
			}
			if lost > 0.05*float64(steps) {
				t.Errorf("%v times of %d networks: %.1f %% of others' is lost", times, networks, 100*lost/float64(steps))
			}
			if worst < 1/times/4 {
				t.Errorf("%v times of %d networks: %.1f %% of theirs is read", times, networks, 100*worst)
			}
			// It ends with the flood.
			m.senders = m.senders[:1]
			m.run(1)
			if m.share != 0 || len(m.from) != 0 {
				t.Errorf("the flood is over, and one in %d is read of %v", 1<<m.share, m.prefixes())
			}
		}
	}
}

// Nothing is dropped where that is of no use, or of those who must not be touched.
func TestThinningLetsBe(t *testing.T) {
	flood := sender{"10.0.0.1", 200_000, 100, false}
	for _, c := range []struct {
		what    string
		senders []sender
		thinned bool
	}{
		{"a flood", []sender{honest, flood}, true},
		{"as much as can be read", []sender{honest, {"10.0.0.1", 80_000, 100, false}}, false},
		{"many who are within the limit", []sender{{"192.0.2.1", 150_000, 0, false}, {"198.51.100.1", 100_000, 0, false}}, false},
		{"and one of little weight who is not", []sender{{"192.0.2.1", 150_000, 0, false}, {"198.51.100.1", 100_000, 0, false}, {"10.0.0.1", 3000, 100, false}}, false},
		{"a network with somebody in it who has no limit", []sender{honest, {"10.0.0.1", 200_000, 100, true}}, false},
	} {
		m := newModel(100_000, c.senders...)
		for range 8 {
			m.run(1)
			if got := m.share > 0; got != c.thinned && (got || m.step > 1) {
				t.Errorf("%s: in step %d one in %d is read of %v", c.what, m.step, 1<<m.share, m.prefixes())
			}
		}
	}
	// The network beside another's is nobody's business.
	m := newModel(100_000, honest, flood, sender{"10.0.1.1", 150_000, 100, true})
	m.run(10)
	if len(m.from) != 1 || m.from[0] != networkOf(netip.MustParseAddr("10.0.0.1")) {
		t.Errorf("%v are thinned", m.prefixes())
	}
}

// A flood is told of once, and once that it is over, when it has been over for a while.
func TestThinningTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lines
		s := &Server{log: slog.New(slog.NewTextHandler(&out, nil))}
		l := limitedTo(5, 0)
		var thinner thinner
		step := func(dropped uint64) {
			time.Sleep(thinEvery)
			s.gone.drops.Add(dropped)
			s.gone.counters.add(requestsAt(UDP, 0, 0), 1000)
			for range dropped / 2 {
				l.notice.note(networkOf(netip.MustParseAddr("192.0.2.1")), l.now())
			}
			thinner.step(s, l)
		}
		for range 3 { // with pauses of some seconds
			for range 5 {
				step(1000)
			}
			if n := s.thinned.Load(); n != 1 {
				t.Errorf("%d networks are thinned", n)
			}
			for range 20 {
				step(0)
			}
			if n := s.thinned.Load(); n != 0 {
				t.Errorf("when it is over %d networks are thinned", n)
			}
		}
		began, over := `is dropped before" networks=[192.0.2.0/24]`, "is read again"
		if out.count(began) != 1 || out.count(over) != 0 {
			t.Errorf("it is told of %d times, and that it is over %d times", out.count(began), out.count(over))
		}
		for range 4 * (quietFor + 1) {
			step(0)
		}
		if out.count(began) != 1 || out.count(over) != 1 {
			t.Errorf("when it is over it is told of %d times, and that it is over %d times", out.count(began), out.count(over))
		}
		// Without a limit there is nothing to do.
		for range 5 {
			step(1000)
		}
		thinner.step(s, nil)
		if n := s.thinned.Load(); n != 0 {
			t.Errorf("without a limit %d networks are thinned", n)
		}
	})
}
