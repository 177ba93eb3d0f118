package dnsserver

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// talker is a network in a model of what comes to a socket.
type talker struct {
	addr   string
	rate   float64 // queries a second
	within float64 // of the replies, so many a second are within the limit; negative is all
	spared bool    // somebody there has no limit
}

// model has a socket and whoever sends to it.
type model struct {
	thinning
	notice   notice
	capacity float64 // what can be read in a second
	damaged  float64 // datagrams a second that the kernel drops whatever there is room for
	unknown  float64 // queries a second that nothing is noted of
	talkers  []talker
	steps    int64
	seen     received
	r        *rand.Rand
}

// run goes on by a step, and returns what share of each talker's was read.
func (m *model) run() (share map[string]float64) {
	m.steps++
	now := m.steps * second / 4
	share = map[string]float64{}
	passed, all := map[string]float64{}, m.unknown/4
	for _, s := range m.talkers {
		sent := float64(int(s.rate/4)) * (0.95 + m.r.Float64()/10)
		pass := sent
		if slices.Contains(m.from, networkOf(netip.MustParseAddr(s.addr))) {
			pass = 0
			for range int(sent) {
				if m.r.Uint32N(1<<m.share) == 0 {
					pass++
				}
			}
		}
		m.seen.dropped += uint64(sent - pass)
		passed[s.addr], share[s.addr] = pass, pass/sent
		all += pass
	}
	room := min(1, m.capacity/4/max(all, 1))
	taken := uint64(m.unknown / 4 * room)
	m.seen.dropped += uint64(m.damaged/4 + m.unknown/4*(1-room))
	for _, s := range m.talkers {
		read := passed[s.addr] * room
		m.seen.dropped += uint64(passed[s.addr] - read)
		taken += uint64(read)
		share[s.addr] *= room
		network := networkOf(netip.MustParseAddr(s.addr))
		if beyond := read - s.within/4; s.within >= 0 && beyond > 0 {
			m.notice.note(network, now)
			m.notice.of(network, false).count.Add(uint64(beyond) - 1)
			m.notice.of(network, false).passed.Add(uint64(s.within / 4))
		} else if at := m.notice.of(network, false); at != nil {
			at.passed.Add(uint64(read))
		}
		if s.spared {
			m.notice.spare(network, now)
		}
	}
	m.seen.taken += taken
	if room < 1 {
		m.seen.full += taken
	}
	m.thinning.step(&m.notice, m.seen, now, func(network uint64) bool { return network == networkOf(netip.MustParseAddr("10.99.0.0")) })
	return share
}

// mean is what share of each talker's is read in so many steps.
func (m *model) mean(steps int) map[string]float64 {
	sum := map[string]float64{}
	for range steps {
		for addr, n := range m.run() {
			sum[addr] += n / float64(steps)
		}
	}
	return sum
}

func newModel(capacity float64, talkers ...talker) *model {
	m := &model{capacity: capacity, talkers: talkers, r: rand.New(rand.NewPCG(1, 2))}
	m.thinning.step(&m.notice, received{}, 0, nil)
	return m
}

// honest is somebody who asks little.
var honest = talker{"192.0.2.1", 100, -1, false}

// Whatever the flood, others lose next to nothing after a while, and who floods not much more than
// what there is no time for.
func TestThinningConverges(t *testing.T) {
	const capacity = 10_000
	for _, times := range []float64{1.2, 2.2, 5, 20, 60} {
		for _, networks := range []int{1, 2, 16, 40} {
			for _, within := range []float64{0.001, 0.1, 0.5} { // of what can be read, within the limit
				m := newModel(capacity, honest)
				for i := range networks {
					addr := netip.AddrFrom4([4]byte{10, byte(i), 0, 1}).String()
					m.talkers = append(m.talkers, talker{addr, times * capacity / float64(networks), within * capacity / float64(networks), false})
				}
				what := fmt.Sprintf("%v times of %d networks, %v within", times, networks, within)
				for range 16 {
					m.run()
				}
				mean := m.mean(128)
				if lost := 1 - mean[honest.addr]; lost > 0.05 {
					t.Errorf("%s: %.1f %% of others' is lost", what, 100*lost)
				}
				if mean["10.0.0.1"] < min(1, 1/times)/4 {
					t.Errorf("%s: %.1f %% of theirs is read", what, 100*mean["10.0.0.1"])
				}
				// It ends with the flood.
				m.talkers = m.talkers[:1]
				m.run()
				if m.share != 0 || len(m.from) != 0 {
					t.Errorf("%s: it is over, and one in %d is read of %v", what, 1<<m.share, m.prefixes())
				}
			}
		}
	}
}

// Nothing is dropped where that is of no use, or of those who must not be touched.
func TestThinningLetsBe(t *testing.T) {
	flood := talker{"10.0.0.1", 20_000, 100, false}
	others := []talker{{"192.0.2.1", 15_000, -1, false}, {"198.51.100.1", 10_000, -1, false}}
	for _, c := range []struct {
		what             string
		damaged, unknown float64
		talkers          []talker
		thinned          bool
	}{
		{"a flood", 0, 0, []talker{honest, flood}, true},
		{"as much as can be read", 0, 0, []talker{honest, {"10.0.0.1", 8000, 100, false}}, false},
		{"damaged ones, besides", 10_000, 0, []talker{honest, {"10.0.0.1", 5000, 100, false}}, false},
		{"many who are within the limit", 0, 0, others, false},
		{"and one of little weight who is not", 0, 0, append(others, talker{"10.0.0.1", 3000, 100, false}), false},
		{"who is mostly within", 0, 0, []talker{honest, {"10.0.0.1", 20_000, 7000, false}}, false},
		{"a network with somebody in it who has no limit", 0, 0, []talker{honest, {"10.0.0.1", 20_000, 100, true}}, false},
		{"one that is configured so", 0, 0, []talker{honest, {"10.99.0.1", 20_000, 100, false}}, false},
		{"a flood of which most is not known, with one that is limited beside", 0, 15_000, []talker{honest, {"10.0.0.1", 6000, 100, false}}, false},
	} {
		m := newModel(10_000, c.talkers...)
		m.damaged, m.unknown = c.damaged, c.unknown
		for range 8 {
			m.run()
			if got := m.share > 0; got != c.thinned && (got || m.steps > 2) {
				t.Errorf("%s: in step %d one in %d is read of %v", c.what, m.steps, 1<<m.share, m.prefixes())
			}
		}
	}
	// A burst is none.
	m := newModel(10_000, honest, flood)
	m.run()
	m.talkers[1].rate = 2000
	for range 8 {
		if m.run(); m.share > 0 {
			t.Errorf("after a burst one in %d is read of %v", 1<<m.share, m.prefixes())
		}
	}
	// It goes no further than helps: half of what can be read is not theirs.
	m = newModel(10_000, honest, talker{"10.0.0.1", 20_000, 100, false})
	m.unknown = 15_000
	got := m.mean(100)
	if got["10.0.0.1"] < 0.28/3 {
		t.Errorf("%.1f %% of who is limited is read, 28 %% without thinning", 100*got["10.0.0.1"])
	}
	// The network beside another's is nobody's business.
	m = newModel(10_000, honest, flood, talker{"10.0.1.1", 15_000, 100, true})
	m.mean(10)
	if len(m.from) != 1 || m.from[0] != networkOf(netip.MustParseAddr("10.0.0.1")) {
		t.Errorf("%v are thinned", m.prefixes())
	}
}

// A flood is told of once, and once that it is over, when it has been over for a while.
func TestThinningTold(t *testing.T) {
	authority := cluster(t)
	synctest.Test(t, func(t *testing.T) {
		var out lines
		s := &Server{authority: authority, log: slog.New(slog.NewTextHandler(&out, nil))}
		l := limitedTo(5, 0)
		var thinner thinner
		step := func(dropped uint64) {
			time.Sleep(thinEvery)
			s.gone.drops.Add(dropped)
			s.gone.counters.add(requestsAt(UDP, 0, 0), 1000)
			s.gone.full.Add(1000)
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
