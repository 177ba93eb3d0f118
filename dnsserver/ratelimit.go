package dnsserver

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"epdns/zones"
)

// Response rate limiting. Over UDP the address of an asker is easily forged, and who is
// meant gets replies that are longer than the queries. So there are no more than so many
// replies a second of one kind to one network. Of what is beyond, most gets nothing, and
// some a reply of TC alone, no longer than the query: who really asks comes over TCP, where
// nobody can forge where he is.
//
// A bucket takes what one network (IPv4 /24, IPv6 /56) gets of one kind:
//
//	answers             a bucket for each name, one for all names of a Service's scopes
//	names that are not  a bucket for each zone, since there are such names without number
//	names outside       one bucket for what upstreams answer, for the same reason
//	errors              one bucket
//
// Each holds a second's worth: an asker may have that at once, and then as much as flows
// out. It fills with replies alone, not with queries, so that however many queries there are
// the network goes on getting the rate.

// RateLimitConfig bounds what is sent over UDP to those who may not have asked for it.
type RateLimitConfig struct {
	// PerSecond is how many replies of one kind a network gets, see CheckRateLimit; 0 is any
	// number.
	PerSecond int

	// Slip has one in so many of those beyond answered, truncated; 1 is all, 0 none. It is a
	// matter of chance which, so that nobody can always be behind somebody else.
	Slip int

	// Exempt are networks without a limit, besides those that ask for many: trusted
	// forwarders, shared caches, the cluster's own DNS.
	Exempt []netip.Prefix
}

// maxPerSecond is where the clock of buckets becomes too coarse.
const maxPerSecond = 100_000

// CheckRateLimit says what is wrong with a number of replies a second.
func CheckRateLimit(perSecond int) error {
	if perSecond < 0 || perSecond > maxPerSecond {
		return fmt.Errorf("%d is not 0 to %d replies a second", perSecond, maxPerSecond)
	}
	return nil
}

// CheckSlip says what is wrong with a share of replies that are truncated.
func CheckSlip(slip int) error {
	if slip < 0 || slip > maxSlip {
		return fmt.Errorf("%d is not 0 to %d", slip, maxSlip)
	}
	return nil
}

// maxSlip is from where on nobody who really asks gets through.
const maxSlip = 100

// kind is what replies are alike by.
type kind uint8

const (
	kindAnswer  kind = iota
	kindNone         // there is no such name
	kindOutside      // an upstream's to answer
	kindError
)

// verdict is what becomes of a reply.
type verdict uint8

const (
	sent verdict = iota
	slipped
	dropped
)

// Buckets stand in sets, which are a line of memory each. Where all of a set are in use, the
// one that has the least in it has to go: what matters are full ones. A bucket is in use for
// as long as it takes to run out, a second at most, so that this many are enough for what
// two or three processors can answer in that time. They take 1 MiB.
const (
	bucketSets = 1 << 14
	setSize    = 8
)

// bucket is a word: in its upper bits those of the key's hash that tell it from others of
// its set, below them when it will have run out, in microseconds.
//
// That is all there is to it: to fill it is to move that time on, by the time that one reply
// takes to run out. A time that is over is that of an empty bucket, and so is one that is
// too far away, which is how it looks when the bits have gone round, after 12 days. It can be
// further away than a second: the worker that has filled the bucket may have taken its batch
// after the one that looks.
type bucket struct{ atomic.Uint64 }

const (
	timeBits = 40
	timeMask = 1<<timeBits - 1
	second   = int64(time.Second / time.Microsecond)
	furthest = 2 * second
)

// level is how long a bucket takes to run out from now on.
func level(word uint64, now int64) int64 {
	ahead := int64(word-uint64(now)) << (64 - timeBits) >> (64 - timeBits)
	if ahead < 0 || ahead > furthest {
		return 0
	}
	return ahead
}

// limiter has all buckets. Responders of all workers use it at once; nothing in it locks.
type limiter struct {
	cfg    RateLimitConfig
	each   int64 // how long a reply takes to run out, in microseconds
	slip   uint32
	exempt *zones.Prefixes
	seed   maphash.Seed
	began  time.Time
	sets   *[bucketSets][setSize]bucket

	notice notice
}

// newLimiter returns nil where there is no limit.
func newLimiter(c RateLimitConfig) *limiter {
	if c.PerSecond <= 0 {
		return nil
	}
	return &limiter{
		cfg:    c,
		each:   max(1, second/int64(c.PerSecond)),
		slip:   uint32(max(0, c.Slip)),
		exempt: zones.NewPrefixes(c.Exempt),
		seed:   maphash.MakeSeed(), // nobody else can tell which keys share a bucket
		began:  time.Now(),
		sets:   new([bucketSets][setSize]bucket),
	}
}

// with returns a limiter of that configuration, the same one where it has that.
func (l *limiter) with(c RateLimitConfig) *limiter {
	if l != nil && l.cfg.PerSecond == c.PerSecond && l.cfg.Slip == c.Slip && slices.Equal(l.cfg.Exempt, c.Exempt) {
		return l
	}
	return newLimiter(c)
}

// now is the time for take, never 0; without a limiter it is 0.
func (l *limiter) now() int64 {
	if l == nil {
		return 0
	}
	return int64(time.Since(l.began)/time.Microsecond) + 1
}

// take says whether there is room for one more reply in the bucket of a key, and puts it
// there.
func (l *limiter) take(key []byte, now int64) bool {
	hash := maphash.Bytes(l.seed, key)
	set, tag := &l.sets[hash%bucketSets], hash&^timeMask
	// Another worker may change the bucket meanwhile. Who loses twice is let off.
	for range 2 {
		at, was, in := 0, uint64(0), furthest+1
		for i := range set {
			word := set[i].Load()
			n := level(word, now)
			if word&^timeMask == tag {
				at, was, in = i, word, n
				break
			}
			if n < in {
				at, was, in = i, word, n
			}
		}
		if was&^timeMask != tag {
			in = 0 // somebody else's, who has to go
		}
		if in += l.each; in > second {
			return false
		}
		if set[at].CompareAndSwap(was, tag|uint64(now+in)&timeMask) {
			return true
		}
	}
	return true
}

// limits are what a Responder needs to limit its replies.
type limits struct {
	// moment is when the batch that is answered was taken, as the limiter has it. It is 0
	// where there is no limit: over TCP, and for queries that did not come over a socket.
	moment int64

	proven bool   // the last query came from where it says: it has a cookie of ours, or a key
	key    []byte // room
}

// maxKey is a kind, a network and a name.
const maxKey = 1 + 8 + 255

// limitAnswer says what becomes of the answer that zones has found, before it is written
// down, or of an upstream's, before that is asked.
func (r *Responder) limitAnswer(passed bool) verdict {
	switch rcode := r.answer.RCode; {
	case passed:
		return r.judge(kindOutside, nil)
	case rcode == zones.NoError:
		return r.judge(kindAnswer, r.answer.CountedBy())
	case rcode == zones.NXDomain:
		return r.judge(kindNone, r.answer.CountedBy())
	case !r.mayRefuse():
		return dropped
	}
	return sent
}

// mayRefuse says whether an error is to be sent. It is no longer than the query, so that
// those that slip go as they are.
func (r *Responder) mayRefuse() bool {
	return r.moment == 0 || r.judge(kindError, nil) != dropped
}

// judge says what becomes of a reply of some kind, and counts what is beyond the limit.
func (r *Responder) judge(k kind, name []byte) verdict {
	l, from := r.shared.limiter, r.question.From
	if l == nil || r.proven {
		return sent
	}
	network := networkOf(from)
	if l.exempt.Contains(from) || r.authority.Load().AsksForMany(from) {
		l.notice.spare(network, r.moment)
		return sent
	}
	r.key = append(binary.BigEndian.AppendUint64(append(r.key[:0], byte(k)), network), name...)
	if l.take(r.key, r.moment) {
		l.notice.pass(network)
		return sent
	}
	v := dropped
	if l.slip > 0 && rand.Uint32N(l.slip) == 0 {
		v = slipped
	}
	r.tally.limit(v)
	l.notice.note(network, r.moment)
	return v
}

// truncated appends the reply to a query that is beyond the limit: come over TCP.
func (r *Responder) truncated(dst, msg []byte) []byte {
	base := len(dst)
	dst = r.fail(dst, msg, zones.NoError, 0)
	dst[base+2] |= flagTC >> 8
	r.tally.response(UDP, zones.NoError, true)
	return dst
}

// A network is the prefix that buckets are counted by, as a number: the family in the upper
// octet. What one site has is no longer than that, and who can forge one address there can
// forge all.
const (
	network4 = 24
	network6 = 56
)

func networkOf(addr netip.Addr) uint64 {
	if addr.Is4() {
		a := addr.As4()
		return familyIPv4<<56 | uint64(binary.BigEndian.Uint32(a[:]))>>(32-network4)
	}
	a := addr.As16()
	return familyIPv6<<56 | binary.BigEndian.Uint64(a[:])>>(64-network6)
}

// networkPrefix is the prefix of such a number.
func networkPrefix(n uint64) netip.Prefix {
	if n>>56 == familyIPv4 {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(n<<(32-network4)))
		return netip.PrefixFrom(netip.AddrFrom4(a), network4)
	}
	var a [16]byte
	binary.BigEndian.PutUint64(a[:], n<<(64-network6))
	return netip.PrefixFrom(netip.AddrFrom16(a), network6)
}

// notice is what is told of networks that are being limited: a line when it begins, and one
// when nothing has been beyond the limit for a while. Workers leave notes, of a few networks
// at a time, and Server.watchLimits reads them.
type notice struct {
	notes [notes]note

	// Of the reader.
	told   [notes]bool // when it began
	lines  int         // in this minute
	minute int64
	untold int
}

type note struct {
	network atomic.Uint64 // 0: free
	last    atomic.Int64  // second in which it was limited last
	count   atomic.Uint64 // beyond the limit
	passed  atomic.Uint64 // within it, since there is a note
	spared  atomic.Int64  // second after that in which somebody there asked who has no limit; 0: nobody
}

const (
	// notes is how many networks there are notes of.
	notes    = 1 << notesLog
	notesLog = 6
	// quietFor is for how many seconds nothing must be beyond the limit for it to be over.
	quietFor = 10
	// noticeLines is how many lines there may be in a minute.
	noticeLines = 20
	// noticeTries is how many places a network's note can have.
	noticeTries = 4
)

// note notes that a reply was beyond the limit. Where there are more networks than notes,
// some are not noted.
func (n *notice) note(network uint64, now int64) {
	at := n.of(network, true)
	if at == nil {
		return
	}
	if s := now / second; at.last.Load() != s {
		at.last.Store(s)
	}
	at.count.Add(1)
}

// pass notes that a reply was within the limit, to a network that is being limited.
func (n *notice) pass(network uint64) {
	if at := n.of(network, false); at != nil {
		at.passed.Add(1)
	}
}

// spare notes that somebody who has no limit asks from a network, if that is being limited.
func (n *notice) spare(network uint64, now int64) {
	if at := n.of(network, false); at != nil {
		if s := now/second + 1; at.spared.Load() != s {
			at.spared.Store(s)
		}
	}
}

// spared says whether somebody who has no limit has asked from a network that is noted, not long ago.
func (n *notice) spared(network uint64, now int64) bool {
	at := n.of(network, false)
	if at == nil {
		return false
	}
	since := at.spared.Load()
	return since != 0 && now/second-since < quietFor
}

// of is the note of a network, or nil; it can take a free one. Two workers can each take one for the
// same network, which is no harm.
func (n *notice) of(network uint64, take bool) *note {
	first := network * 0x9e3779b97f4a7c15 >> (64 - notesLog) // Fibonacci hashing
	var free *note
	for i := range uint64(noticeTries) {
		at := &n.notes[(first+i)%notes]
		switch at.network.Load() {
		case network:
			return at
		case 0:
			if free == nil {
				free = at
			}
		}
	}
	if take && free != nil && free.network.CompareAndSwap(0, network) {
		return free
	}
	return nil
}

// tell logs what has begun and what is over.
func (l *limiter) tell(log *slog.Logger, now int64) {
	n := &l.notice
	if m := now / second / 60; m != n.minute {
		n.minute, n.lines = m, 0
		if n.untold > 0 {
			log.Warn("replies to more networks are limited than there are lines about", "networks", n.untold)
			n.untold = 0
		}
	}
	for i := range n.notes {
		at := &n.notes[i]
		network := at.network.Load()
		if network == 0 {
			continue
		}
		over := now/second-at.last.Load() > quietFor
		switch {
		case !n.told[i] && !over && n.lines < noticeLines:
			n.told[i] = true
			n.lines++
			log.Warn("replies to a network are limited", "network", networkPrefix(network), "perSecond", l.cfg.PerSecond)
		case over && n.told[i]:
			n.lines++
			log.Info("replies to a network are not limited any more", "network", networkPrefix(network), "beyond", at.count.Load())
		case over:
			n.untold++
		}
		if over {
			n.told[i] = false
			at.count.Store(0)
			at.passed.Store(0)
			at.spared.Store(0)
			at.network.Store(0) // free from here on
		}
	}
}
