package dnsserver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"time"
)

// Where more comes than can be read, what finds no room in a socket is lost, whoever has sent it,
// and a limit of replies does not help: it takes reading to find out who is beyond it. But those
// who are send most of such a flood. So part of what comes from their networks is dropped before
// it takes room: half, and of what is left half again, until the rest is read. It is no more than
// that, so that a neighbour of who floods loses little that he would not have lost anyway. Others
// lose nothing.
//
// Networks from which somebody asks who has no limit are left alone.

// thinning decides about it, from time to time. One goroutine has it.
type thinning struct {
	share uint     // of the networks' datagrams one in 1<<share is read; 0 is all
	from  []uint64 // the networks

	calm int // steps in a row without a loss

	// As of the last step.
	notice         *notice
	networks       [notes]uint64
	counts         [notes]uint64
	dropped, taken uint64
}

const (
	// thinEvery is how long a step is: much longer than the kernel takes to say what it drops.
	thinEvery = 250 * time.Millisecond
	// mostShare is where next to nothing is left.
	mostShare = 6
	// calmSteps without a loss have more read again.
	calmSteps = 16
)

// step takes what has been dropped and what has been read by now, of all sockets.
func (t *thinning) step(n *notice, dropped, taken uint64, now int64) {
	if n != t.notice { // it counts from here on
		*t = thinning{notice: n, dropped: dropped, taken: taken}
		return
	}
	lost, read := float64(dropped-t.dropped), float64(taken-t.taken)
	t.dropped, t.taken = dropped, taken

	// What thinning has dropped is known by what it has let pass, and by chance differs.
	type sender struct {
		network uint64
		sent    float64
	}
	var senders []sender
	var thinned, variance float64
	for i := range n.notes {
		at := &n.notes[i]
		network, count := at.network.Load(), at.count.Load()
		more := count
		if network == t.networks[i] && count >= t.counts[i] {
			more -= t.counts[i]
		}
		t.networks[i], t.counts[i] = network, count
		if network == 0 || more == 0 {
			continue
		}
		s := sender{network, float64(more)}
		if slices.Contains(t.from, network) {
			s.sent *= float64(uint(1) << t.share)
			thinned += s.sent - float64(more)
			variance += s.sent * float64(uint(1)<<t.share)
		}
		if spared := at.spared.Load(); spared == 0 || now/second-spared >= quietFor {
			senders = append(senders, s)
		}
	}
	lost -= thinned

	// Who sends little is not to blame, and all of these together have to send enough. They lose
	// as much as others do, so that what is read tells.
	var heavy []uint64
	var sent float64
	for _, s := range senders {
		if s.sent >= (read+thinned)/256 {
			heavy = append(heavy, s.network)
			sent += s.sent
		}
	}
	if sent <= (read+thinned)/4 {
		t.share, t.from, t.calm = 0, nil, 0
		return
	}
	if came := read + thinned + lost; lost > came/20 && lost > 4*math.Sqrt(variance) {
		t.share, t.calm = min(t.share+1, mostShare), 0
	} else if t.calm++; t.calm >= calmSteps && t.share > 0 {
		t.share, t.calm = t.share-1, 0
	}
	if t.from = heavy; t.share == 0 {
		t.from = nil
	}
}

// prefixes are those of the networks.
func (t *thinning) prefixes() (out []netip.Prefix) {
	for _, n := range t.from {
		out = append(out, networkPrefix(n))
	}
	return out
}

// watchLimits logs what the limiter has to tell, and thins floods, until ctx ends.
func (s *Server) watchLimits(ctx context.Context) {
	tick := time.NewTicker(thinEvery)
	defer tick.Stop()
	var t thinner
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l := s.shared.Load().limiter
		if l != nil {
			l.tell(s.log, l.now())
		}
		t.step(s, l)
	}
}

// thinner has the kernel do what thinning decides.
type thinner struct {
	thinning
	cannot bool      // the system does not do it
	told   bool      // that it began
	over   time.Time // since when there is nothing to do, if it is told that there was
}

func (t *thinner) step(s *Server, l *limiter) {
	if t.cannot {
		return
	}
	was := t.share
	if l == nil {
		t.thinning = thinning{}
	} else {
		dropped, taken := s.received()
		t.thinning.step(&l.notice, dropped, taken, l.now())
	}
	if t.share > 0 || was > 0 { // each time, since sockets come and go
		if err := s.thin(t.prefixes(), t.share); err != nil {
			t.cannot = true
			if !errors.Is(err, errors.ErrUnsupported) {
				s.log.Warn("the kernel does not drop a part of what limited networks send", "error", err)
			}
			t.thinning = thinning{}
			_ = s.thin(nil, 0)
		}
	}
	s.thinned.Store(int64(len(t.from)))
	switch {
	case t.share > 0:
		t.over = time.Time{}
		if !t.told {
			t.told = true
			s.log.Warn("more comes than can be read: a part of what limited networks send is dropped before", "networks", t.prefixes())
		}
	case t.told && t.over.IsZero():
		t.over = time.Now()
	case t.told && time.Since(t.over) > quietFor*time.Second:
		t.told = false
		s.log.Info("all that limited networks send is read again")
	}
}

// received is how many datagrams the kernel has dropped, and how many were read.
func (s *Server) received() (dropped, taken uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := func(c *counters) {
		for at := requestsAt(UDP, 0, 0); at < requestsAt(UDP, families, 0); at++ {
			taken += c.load(at)
		}
	}
	dropped = s.gone.drops.Load()
	count(&s.gone.counters)
	for w := range s.workers() {
		dropped += w.socket.Drops()
		count(w.stats)
	}
	return dropped, taken
}

// thin has all sockets drop all but one in 1<<share of what comes from some networks.
func (s *Server) thin(from []netip.Prefix, share uint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.workers() {
		if err := w.socket.Thin(from, share); err != nil && !errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("set a filter for %v: %w", w.socket.LocalAddr(), err)
		}
	}
	return nil
}
