package dnsserver

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"epdns/dnsserver/batch"
)

// What is asked for most is counted only while somebody wants to know. Workers then look at
// the replies of one batch in many, after those have left, and put what was asked into a ring;
// one goroutine counts. How many batches that is follows from how much comes: of little all
// is counted, of much some hundreds a second.

const (
	// topTick is how often the ring is emptied. It has room for what may come meanwhile
	// until the share is adapted.
	topTick     = 250 * time.Millisecond
	topRingSize = 1024

	// topMany and topFew are samples of one tick above and below which the share is
	// halved and doubled.
	topMany, topFew = 256, 64

	// topRarest is the smallest share: one batch in so many.
	topRarest = 1 << 12

	// topKept is how many questions are told apart. What is asked by more than one in
	// so many is among them for certain.
	topKept = 512

	// topHalfLife is after what time a question counts half.
	topHalfLife = 2 * time.Minute
)

// Top is what is asked for most.
type Top struct {
	Questions []TopQuestion // most first
	Since     time.Time     // since when it is counted; zero: it is not
	Every     int           // one batch of queries in so many is looked at now
}

// TopQuestion is a question with its answer, of which only the status is told apart.
type TopQuestion struct {
	Name, Type, RCode string
	PerSecond         float64 // over the last minutes, the last ones most
	Share             float64 // of all questions that were answered here
}

// CountTop has what is asked for most counted from now on, or no more. It may be called
// from any goroutine, and again. Close ends it, too.
func (s *Server) CountTop(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.top.Load()
	switch {
	case on && now == nil && !s.closed:
		t := newTop()
		ctx, stop := context.WithCancel(context.Background())
		t.stop = stop
		s.top.Store(t)
		go t.run(ctx)
	case !on && now != nil:
		s.endTop()
	}
}

// endTop needs s.mu.
func (s *Server) endTop() {
	if t := s.top.Swap(nil); t != nil {
		t.stop()
	}
}

// Top is what is asked for most, at most n questions. Those that were passed to an upstream
// are not among them.
func (s *Server) Top(n int) Top {
	t := s.top.Load()
	if t == nil {
		return Top{}
	}
	return t.most(n, time.Now())
}

// top counts.
type top struct {
	ring  ring[sampled]
	every atomic.Uint32 // one batch in so many is looked at, a power of two
	stop  context.CancelFunc

	mu      sync.Mutex // of what follows
	started time.Time
	aged    time.Time // when the counts were last made smaller
	counts  sketch
}

// sampled is a question, and how many others it stands for.
type sampled struct {
	weight  uint32
	qtype   uint16
	rcode   uint16
	nameLen uint8
	name    [maxName]byte // in lower case
}

func newTop() *top {
	now := time.Now()
	t := &top{ring: newRing[sampled](topRingSize), started: now, aged: now, counts: newSketch(topKept)}
	t.every.Store(1)
	return t
}

// batch looks at the replies of a batch, if it is the turn of the one of this number.
func (t *top) batch(number uint, messages []batch.Message) {
	every := t.every.Load()
	if number&uint(every-1) != 0 {
		return
	}
	for i := range messages {
		if !t.note(messages[i].Reply, every) {
			return
		}
	}
}

// one looks at a reply that came by itself, or not, by chance.
func (t *top) one(reply []byte) {
	if every := t.every.Load(); rand.Uint32()&(every-1) == 0 {
		t.note(reply, every)
	}
}

// note notes what a reply is to, if it has a question. Where there is no room, it returns
// false, and less is looked at from now on.
func (t *top) note(reply []byte, every uint32) bool {
	if len(reply) < headerSize || reply[5] != 1 {
		return true
	}
	at := headerSize
	for at < len(reply) && reply[at] != 0 && reply[at] < 64 {
		at += 1 + int(reply[at])
	}
	name := reply[headerSize:min(at+1, len(reply))]
	rest := reply[headerSize+len(name):]
	if len(name) == 0 || name[len(name)-1] != 0 || len(name) > maxName || len(rest) < 4 {
		return true // no reply of ours
	}
	s, ticket := t.ring.slot()
	if s == nil {
		t.every.CompareAndSwap(every, min(2*every, topRarest))
		return false
	}
	e := &s.entry
	e.weight, e.nameLen = every, uint8(len(name))
	for i, c := range name {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		e.name[i] = c
	}
	e.qtype, e.rcode = uint16(rest[0])<<8|uint16(rest[1]), uint16(reply[3]&0xf)
	// Where it has more than four bits there are no records before the OPT, which has the
	// upper ones (RFC 6891 section 6.1.3).
	if opt := rest[4:]; len(opt) >= optSize && opt[0] == 0 && opt[1] == 0 && opt[2] == typeOPT {
		e.rcode |= uint16(opt[5]) << 4
	}
	s.put(ticket)
	return true
}

// run counts until ctx ends.
func (t *top) run(ctx context.Context) {
	tick := time.NewTicker(topTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			t.drain(now)
		}
	}
}

// drain counts what has come, and has less or more be looked at where that was much or
// little.
func (t *top) drain(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.shrink(math.Exp2(-now.Sub(t.aged).Seconds() / topHalfLife.Seconds()))
	t.aged = now
	var e sampled
	var key [4 + maxName]byte
	n := 0
	for ; n < topRingSize && t.ring.take(&e); n++ {
		key[0], key[1], key[2], key[3] = byte(e.qtype>>8), byte(e.qtype), byte(e.rcode>>8), byte(e.rcode)
		t.counts.add(key[:4+copy(key[4:], e.name[:e.nameLen])], float64(e.weight))
	}
	switch every := t.every.Load(); {
	case n > topMany && every < topRarest:
		t.every.CompareAndSwap(every, 2*every)
	case n < topFew && every > 1:
		t.every.CompareAndSwap(every, every/2)
	}
}

// most is what was counted most.
func (t *top) most(n int, now time.Time) Top {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := Top{Since: t.started, Every: int(t.every.Load())}
	list := slices.Clone(t.counts.list)
	slices.SortFunc(list, func(a, b counter) int {
		return cmp.Or(cmp.Compare(b.count, a.count), strings.Compare(a.key, b.key))
	})
	// A question that comes at a steady rate comes to that times half-life / ln 2 in the
	// end, and to the share of it that is counted for as long as this.
	span := topHalfLife.Seconds() / math.Ln2 * (1 - math.Exp2(-now.Sub(t.started).Seconds()/topHalfLife.Seconds()))
	for _, c := range list {
		if len(out.Questions) == n {
			break
		}
		if c.over > c.count/2 {
			continue // most of it may be others'
		}
		typ, rcode := uint16(c.key[0])<<8|uint16(c.key[1]), uint16(c.key[2])<<8|uint16(c.key[3])
		out.Questions = append(out.Questions, TopQuestion{
			Name: presentName([]byte(c.key[4:])), Type: typeText(typ), RCode: rcodeText(rcode),
			PerSecond: c.count / max(span, 1), Share: c.count / t.counts.total,
		})
	}
	return out
}

// sketch is how often keys were met, for those that are met most, in room for so many (the
// space-saving algorithm of Metwally, Agrawal and El Abbadi, 2005). A key that is new takes
// the place of the one that was met least, and its count: it may have been met as often as
// that. So no count is too low, and none too high by more than over.
type sketch struct {
	at    map[string]int // where a key is in the list
	list  []counter
	most  int     // keys
	total float64 // of all that was added
}

type counter struct {
	key         string
	count, over float64
}

func newSketch(most int) sketch { return sketch{at: make(map[string]int, most), most: most} }

func (s *sketch) add(key []byte, weight float64) {
	s.total += weight
	if i, ok := s.at[string(key)]; ok {
		s.list[i].count += weight
		return
	}
	if len(s.list) < s.most {
		s.at[string(key)] = len(s.list)
		s.list = append(s.list, counter{key: string(key), count: weight})
		return
	}
	least := 0
	for i := range s.list {
		if s.list[i].count < s.list[least].count {
			least = i
		}
	}
	c := &s.list[least]
	delete(s.at, c.key)
	s.at[string(key)] = least
	*c = counter{string(key), c.count + weight, c.count}
}

// forgotten is a count that is none any more: a question that came once and then, for some
// half-lives, not again.
const forgotten = 1.0 / 16

// shrink makes all counts smaller, and drops those that are next to nothing.
func (s *sketch) shrink(by float64) {
	s.total *= by
	for i := 0; i < len(s.list); i++ {
		c := &s.list[i]
		c.count, c.over = c.count*by, c.over*by
		if c.count >= forgotten {
			continue
		}
		delete(s.at, c.key)
		last := len(s.list) - 1
		if i < last {
			s.list[i] = s.list[last]
			s.at[s.list[i].key] = i
		}
		s.list[last] = counter{}
		s.list = s.list[:last]
		i--
	}
}
