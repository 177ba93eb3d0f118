package dnsserver

import (
	"math/bits"
	"sync/atomic"
	"time"

	"epdns/dnsserver/batch"
)

// How long queries take and how large they are is not noted of each: to read the clock
// twice takes about as long as a tenth of an answer. Over UDP it is noted of one batch in
// observeEvery, of all queries in it; shares, and so quantiles, are the same. Over TCP,
// where the clock is read anyway, it is noted of each.

// observeEvery makes what it costs less than can be measured, and still sees a thousand
// queries a second where a hundred thousand are answered.
const observeEvery = 64

// observed is what was noted of one transport. Workers share it: they meet there too seldom
// to hinder each other.
type observed struct {
	duration durations
	query    sizes
	reply    sizes
	_        [64]byte // nothing else is on its lines of memory
}

// durations count by powers of two, from a microsecond on.
type durations struct {
	counts [len(durationBounds) + 1]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

// durationBounds are seconds, to a second and a bit.
var durationBounds = func() (bounds [21]float64) {
	for i := range bounds {
		bounds[i] = float64(int64(1)<<i) / 1e6
	}
	return bounds
}()

// add notes n queries that took as long as that.
func (d *durations) add(took time.Duration, n int) {
	took = max(took, 1)
	at := min(bits.Len64(uint64(took-1)/1000), len(durationBounds))
	d.counts[at].Add(uint64(n))
	d.sum.Add(int64(took) * int64(n))
}

// sizes count octets.
type sizes struct {
	counts [len(sizeBounds) + 1]atomic.Uint64
	sum    atomic.Uint64
}

// sizeBounds are octets. Among them are those that decide what a client gets over UDP: 512
// without EDNS, 1232 by default, 1400 at most, and what many clients offer.
var sizeBounds = [...]float64{32, 64, 128, 256, 512, 1024, 1232, 1400, 4096, 16384, 65535}

func (s *sizes) add(octets int) {
	at := 0
	for at < len(sizeBounds) && float64(octets) > sizeBounds[at] {
		at++
	}
	s.counts[at].Add(1)
	s.sum.Add(uint64(octets))
}

// batch notes the queries of a batch that took as long as that: a reply leaves when all of
// the batch are there. One without a reply is passed on, or is none.
func (o *observed) batch(messages []batch.Message, took time.Duration) {
	answered := 0
	for i := range messages {
		if m := &messages[i]; len(m.Reply) > 0 {
			o.query.add(len(m.Data))
			o.reply.add(len(m.Reply))
			answered++
		}
	}
	if answered > 0 {
		o.duration.add(took, answered)
	}
}

// one notes a query by itself.
func (o *observed) one(query, reply int, took time.Duration) {
	o.query.add(query)
	o.reply.add(reply)
	o.duration.add(took, 1)
}

// Observed is what was noted of the queries of one transport that were answered here: of
// each over TCP and TLS, of some over UDP.
type Observed struct {
	Duration             Histogram // seconds from when they were read until the reply left
	QuerySize, ReplySize Histogram // octets
}

// Histogram is a distribution.
type Histogram struct {
	Count   uint64
	Sum     float64
	Buckets map[float64]uint64 // how many were at most as large as that
}

func histogram(bounds []float64, counts []atomic.Uint64, sum float64) Histogram {
	h := Histogram{Sum: sum, Buckets: map[float64]uint64{}}
	for i := range counts {
		h.Count += counts[i].Load()
		if i < len(bounds) {
			h.Buckets[bounds[i]] = h.Count
		}
	}
	return h
}

func (o *observed) load() Observed {
	return Observed{
		Duration:  histogram(durationBounds[:], o.duration.counts[:], time.Duration(o.duration.sum.Load()).Seconds()),
		QuerySize: histogram(sizeBounds[:], o.query.counts[:], float64(o.query.sum.Load())),
		ReplySize: histogram(sizeBounds[:], o.reply.counts[:], float64(o.reply.sum.Load())),
	}
}
