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
// it takes room: half, and of what is left half again, for as long as that makes room for others.
// It is no more than that, so that a neighbour of who floods loses little that he would not have
// lost anyway.
//
// Networks in which somebody has no limit, by what is configured or by who asks, are left alone.

// thinning decides about it, from time to time. One goroutine has it.
type thinning struct {
	share uint     // of the networks' datagrams one in 1<<share is read; 0 is all
	from  []uint64 // the networks

	short int     // steps in a row in which much was lost
	calm  int     // steps in a row in which it was not
	most  float64 // what was read in the last step in which much was lost

	// As of the last step.
	notice *notice
	notes  [notes]struct{ network, beyond, passed uint64 }
	seen   received
}

const (
	// thinEvery is how long a step is: much longer than the kernel takes to say what it drops.
	thinEvery = 250 * time.Millisecond
	// shortSteps tell a flood from a burst.
	shortSteps = 2
	// calmSteps without a loss have more read again, to see.
	calmSteps = 16
	// mostShare is where next to nothing is left.
	mostShare = 6
)

// received is what has come to all sockets since the start.
type received struct {
	dropped uint64 // by the kernel, for want of room, by thinning, or since they were damaged
	taken   uint64 // queries that were read
	full    uint64 // of these, in batches that had no room for more
}

// sender is a network that is being limited, in one step.
type sender struct {
	network uint64
	beyond  float64 // replies
	read    float64 // queries
	sent    float64 // queries, as many as were probably sent
}

// step takes what has been received by now. Of which networks nothing is to be dropped, untouchable
// tells.
func (t *thinning) step(n *notice, seen received, now int64, untouchable func(network uint64) bool) {
	if n != t.notice { // it counts from here on
		*t = thinning{notice: n, seen: seen}
		t.senders()
		return
	}
	dropped, read := float64(seen.dropped-t.seen.dropped), float64(seen.taken-t.seen.taken)
	full := float64(seen.full - t.seen.full)
	t.seen = seen

	// What thinning has dropped is known by what it has let pass, and by chance differs.
	senders := t.senders()
	var thinned, variance float64
	for _, s := range senders {
		thinned += s.sent - s.read
		if s.sent > s.read {
			variance += s.read * math.Pow(4, float64(t.share))
		}
	}
	lost := dropped - thinned
	came := read + thinned + max(lost, 0)
	short := full >= read/2 && lost > came/20 && lost > 4*math.Sqrt(variance)
	if t.short++; !short {
		t.short = 0
	}
	if t.calm++; short {
		t.calm, t.most = 0, read
	}

	// A network is thinned from when much of what it sends is beyond the limit, for as long as it
	// sends much.
	was := t.from
	t.from = nil
	var theirs, sent float64
	for _, s := range senders {
		floods := slices.Contains(was, s.network) || short && s.beyond >= s.read/3
		spared := n.spared(s.network, now) || untouchable(s.network)
		if floods && !spared && s.sent >= (read+thinned)/256 {
			t.from = append(t.from, s.network)
			theirs += s.read
			sent += s.sent
		}
	}

	// More of it helps as long as what is still read of theirs is a good part of all.
	fits := func(share uint) bool { return read-theirs+sent/float64(uint(1)<<share) < t.most*4/5 }
	switch {
	case short && (t.share > 0 || t.short >= shortSteps) && theirs >= read/3:
		t.share = min(t.share+1, mostShare)
	case t.share > 0 && t.calm > 0 && t.calm%calmSteps == 0:
		t.share--
	}
	for t.share > 0 && !short && fits(t.share-1) {
		t.share--
	}
	if len(t.from) == 0 || t.share == 0 {
		t.share, t.from = 0, nil
	}
}

// senders are those that are noted, since the last step.
func (t *thinning) senders() (out []sender) {
	for i := range t.notice.notes {
		at, last := &t.notice.notes[i], &t.notes[i]
		network, beyond, passed := at.network.Load(), at.count.Load(), at.passed.Load()
		if network != last.network || beyond < last.beyond || passed < last.passed {
			last.beyond, last.passed = 0, 0
		}
		s := sender{network, float64(beyond - last.beyond), float64(beyond - last.beyond + passed - last.passed), 0}
		last.network, last.beyond, last.passed = network, beyond, passed
		if network == 0 || s.read == 0 {
			continue
		}
		if s.sent = s.read; slices.Contains(t.from, network) {
			s.sent *= float64(uint(1) << t.share)
		}
		if i := slices.IndexFunc(out, func(o sender) bool { return o.network == network }); i >= 0 {
			out[i].beyond, out[i].read, out[i].sent = out[i].beyond+s.beyond, out[i].read+s.read, out[i].sent+s.sent
			continue
		}
		out = append(out, s)
	}
	return out
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
	told   bool      // that it began
	over   time.Time // since when there is nothing to do, if it is told that there was
	failed time.Time // when the kernel could not; it is asked again a minute later
}

func (t *thinner) step(s *Server, l *limiter) {
	if !t.failed.IsZero() && time.Since(t.failed) < time.Minute {
		return
	}
	was := t.share
	if l == nil {
		t.thinning = thinning{}
	} else {
		t.thinning.step(&l.notice, s.received(), l.now(), func(network uint64) bool {
			p := networkPrefix(network)
			return l.exempt.Overlaps(p) || s.authority.Load().MayAskForMany(p)
		})
	}
	if t.share > 0 || was > 0 { // each time, since sockets come and go
		err := s.thin(t.prefixes(), t.share)
		if err == nil {
			t.failed = time.Time{}
		} else {
			if t.failed.IsZero() && !errors.Is(err, errors.ErrUnsupported) {
				s.log.Warn("the kernel does not drop a part of what limited networks send", "error", err)
			}
			_ = s.thin(nil, 0)
			t.thinning, t.failed = thinning{}, time.Now()
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

// received may be called from any goroutine.
func (s *Server) received() (r received) {
	s.mu.Lock()
	defer s.mu.Unlock()
	count := func(c *counters) {
		for at := requestsAt(UDP, 0, 0); at < requestsAt(UDP, families, 0); at++ {
			r.taken += c.load(at)
		}
	}
	r.dropped, r.full = s.gone.drops.Load(), s.gone.full.Load()
	count(&s.gone.counters)
	for w := range s.workers() {
		r.dropped += w.socket.Drops()
		r.full += w.full.Load()
		count(w.stats)
	}
	return r
}

// thin has all sockets drop all but one in 1<<share of what comes from some networks.
func (s *Server) thin(from []netip.Prefix, share uint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for w := range s.workers() {
		if err := w.socket.Thin(from, share); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("set a filter for %v: %w", w.socket.LocalAddr(), err))
		}
	}
	return errors.Join(errs...)
}
