package dnsserver

import (
	"net/netip"
	"sync/atomic"

	"epdns/zones"
)

// qtypes are the types that are counted by name; all others are "other".
var qtypes = [...]uint16{zones.TypeA, zones.TypeAAAA, zones.TypeSRV, zones.TypePTR, zones.TypeSOA,
	zones.TypeNS, zones.TypeTXT, zones.TypeCNAME, zones.TypeANY, zones.TypeAXFR, zones.TypeIXFR}

// qtypeAt is where a type is among those names.
var qtypeAt = func() (at [256]uint8) {
	for i := range at {
		at[i] = uint8(len(qtypes))
	}
	for i, typ := range qtypes {
		at[typ] = uint8(i)
	}
	return at
}()

var qtypeNames = [...]string{"A", "AAAA", "SRV", "PTR", "SOA", "NS", "TXT", "CNAME", "ANY", "AXFR", "IXFR", "other"}

// rcodeNames are the RCODEs that a reply can have.
var rcodeNames = [...]string{0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP",
	5: "REFUSED", 9: "NOTAUTH", 16: "BADVERS", 23: "BADCOOKIE"}

// dropNames are why a message gets no reply: it is shorter than a header, or a response.
var dropNames = [...]string{"short", "response"}

// What is counted: places in counters. Behind each but the last are as many as there are
// of what it is counted by.
const (
	countRequests  = 0                                                   // by transport, family and type
	countResponses = countRequests + transports*families*len(qtypeNames) // by transport and RCODE
	countTruncated = countResponses + transports*len(rcodeNames)         // by transport
	countPlaces    = countTruncated + transports                         // answers that depend on a place, by what told it
	countTransfers = countPlaces + int(zones.Places)
	countCapped    = countTransfers + 1            // answers that leave out endpoints
	countDropped   = countCapped + 1               // messages without a reply, by Drop
	countLimited   = countDropped + len(dropNames) // beyond the limit, by what became of them

	counted = countLimited + 2

	families = 2 // IPv4, IPv6
)

func requestsAt(t Transport, family, typ int) int {
	return countRequests + (int(t)*families+family)*len(qtypeNames) + typ
}

func responsesAt(t Transport, rcode uint16) int {
	return countResponses + int(t)*len(rcodeNames) + int(rcode)
}

// counters are the sums of one UDP worker, so that no two meet on a cache line; all of
// TCP has one set.
type counters struct {
	sums [counted]atomic.Uint64
	_    [64]byte
}

func (c *counters) add(at int, n uint32) { c.sums[at].Add(uint64(n)) }

func (c *counters) load(at int) uint64 { return c.sums[at].Load() }

// tally is what a Responder has counted since its last flush: an atomic addition takes
// ten times as long as one of these.
type tally struct {
	counts  [counted]uint32
	touched []uint8 // places of those that are not 0
	rcode   uint16  // of the last response
}

// The places fit into the list.
var _ = [1 << 8]struct{}{}[counted]

func newTally() tally { return tally{touched: make([]uint8, 0, counted)} }

func (t *tally) count(at int) {
	if t.counts[at] == 0 {
		t.touched = append(t.touched, uint8(at))
	}
	t.counts[at]++
}

func (t *tally) request(via Transport, from netip.Addr, q *query) {
	family := 0
	if from.Is6() && !from.Is4In6() {
		family = 1
	}
	at := len(qtypes)
	if q.nameLen > 0 && int(q.qtype) < len(qtypeAt) {
		at = int(qtypeAt[q.qtype])
	}
	t.count(requestsAt(via, family, at))
}

func (t *tally) response(via Transport, rcode uint16, cut bool) {
	t.count(responsesAt(via, rcode))
	t.rcode = rcode
	if cut {
		t.count(countTruncated + int(via))
	}
}

// place counts an answer that depends on where the asker is.
func (t *tally) place(p zones.Place) {
	if p != zones.PlaceIdle {
		t.count(countPlaces + int(p))
	}
}

func (t *tally) capped() { t.count(countCapped) }

// drop counts a message that is no query.
func (t *tally) drop(msg []byte) {
	if len(msg) < headerSize {
		t.count(countDropped)
	} else {
		t.count(countDropped + 1)
	}
}

func (t *tally) limit(v verdict) { t.count(countLimited + int(v-slipped)) }

// flush adds what has been counted to c and begins anew.
func (t *tally) flush(c *counters) {
	for _, at := range t.touched {
		c.add(int(at), t.counts[at])
		t.counts[at] = 0
	}
	t.touched = t.touched[:0]
}

// Stats are sums over all workers since the start.
type Stats struct {
	Requests  map[RequestKind]uint64
	Responses map[ResponseKind]uint64
	Truncated map[Transport]uint64
	Dropped   map[string]uint64 // messages that got no reply, by why: they are "short", or a "response"
	Transfers uint64
	Capped    uint64 // answers that a limit, or room, has left out endpoints of, without TC

	// LimitSlipped and LimitDropped are the replies beyond RateLimitConfig: those that told the
	// asker to come over TCP, or were an error, and those that were not sent.
	LimitSlipped, LimitDropped uint64

	// Places are the answers that depend on where the asker is, by what told that:
	// each Place but PlaceIdle, of which there may be none.
	Places map[zones.Place]uint64

	UDPKernelDrops uint64 // datagrams that the kernel had no room for, or dropped of ThinnedNetworks, as far as it told
	UDPUnsent      uint64 // replies that could not leave

	TCPConnections int64  // open now, those of TLS too
	TCPRejected    uint64 // closed at once or early for want of room
	TCPDenied      uint64 // closed at once since their address may not ask
	TLSFailed      uint64 // connections without a handshake that ended well

	Upstream         uint64 // queries passed to an upstream
	UpstreamFailures uint64 // of these, answered by none

	NotifySent         uint64 // NOTIFY messages, repeated ones too
	NotifyAcknowledged uint64 // serials that a secondary acknowledged
	NotifyFailed       uint64 // serials that a secondary refused or left without an answer

	// Observed are how long queries took and how large they were, of those that it was
	// noted of.
	Observed map[Transport]Observed

	QueriesUnlogged uint64 // lines of the query log that were lost, since too many came

	// ThinnedNetworks is how many networks beyond the limit there are now of which the kernel drops
	// a part before it is read, since more comes than can be read.
	ThinnedNetworks int

	Panics uint64 // queries that a mistake of ours was met with, and that got SERVFAIL
}

// RequestKind is what requests are counted by.
type RequestKind struct {
	Transport Transport
	Family    int // 1 for IPv4, 2 for IPv6, as IANA numbers address families
	Type      string
}

// ResponseKind is what responses are counted by.
type ResponseKind struct {
	Transport Transport
	RCode     string
}

// Stats may be called from any goroutine.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Stats{
		Requests:       map[RequestKind]uint64{},
		Responses:      map[ResponseKind]uint64{},
		Truncated:      map[Transport]uint64{},
		Places:         map[zones.Place]uint64{},
		Dropped:        map[string]uint64{},
		Observed:       map[Transport]Observed{},
		TCPConnections: s.tcp.open.Load(),
		TCPRejected:    s.tcp.rejected.Load(),
		TCPDenied:      s.tcp.denied.Load(),
		TLSFailed:      s.tcp.unshaken.Load(),

		Upstream:           s.passed.queries.Load(),
		UpstreamFailures:   s.passed.failures.Load(),
		NotifySent:         s.told.sent.Load(),
		NotifyAcknowledged: s.told.acknowledged.Load(),
		NotifyFailed:       s.told.failed.Load(),
		UDPKernelDrops:     s.gone.drops.Load(),
		UDPUnsent:          s.gone.unsent.Load(),
		ThinnedNetworks:    int(s.thinned.Load()),
		Panics:             s.panics.n.Load(),
	}
	for t := range Transport(transports) {
		out.Observed[t] = s.observed[t].load()
	}
	out.QueriesUnlogged = s.unlogged.Load()
	all := []*counters{s.tcp.stats, &s.gone.counters}
	for w := range s.workers() {
		all = append(all, w.stats)
		out.UDPKernelDrops += w.socket.Drops()
		out.UDPUnsent += w.socket.Unsent()
	}
	for _, c := range all {
		for t := range Transport(transports) {
			for f := range families {
				for i, name := range qtypeNames {
					if n := c.load(requestsAt(t, f, i)); n > 0 {
						out.Requests[RequestKind{t, f + 1, name}] += n
					}
				}
			}
			for i, name := range rcodeNames {
				if n := c.load(responsesAt(t, uint16(i))); n > 0 {
					out.Responses[ResponseKind{t, name}] += n
				}
			}
			out.Truncated[t] += c.load(countTruncated + int(t))
		}
		for p := zones.PlaceUnknown; p < zones.Places; p++ {
			out.Places[p] += c.load(countPlaces + int(p))
		}
		for i, why := range dropNames {
			out.Dropped[why] += c.load(countDropped + i)
		}
		out.Transfers += c.load(countTransfers)
		out.Capped += c.load(countCapped)
		out.LimitSlipped += c.load(countLimited)
		out.LimitDropped += c.load(countLimited + 1)
	}
	return out
}
