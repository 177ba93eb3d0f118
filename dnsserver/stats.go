package dnsserver

import (
	"net/netip"
	"sync/atomic"

	"epdns/zones"
)

// qtypes are the types that are counted by name; all others are "other".
var qtypes = [...]uint16{zones.TypeA, zones.TypeAAAA, zones.TypeSRV, zones.TypePTR, zones.TypeSOA,
	zones.TypeNS, zones.TypeTXT, zones.TypeCNAME, zones.TypeANY, zones.TypeAXFR, zones.TypeIXFR}

var qtypeNames = [...]string{"A", "AAAA", "SRV", "PTR", "SOA", "NS", "TXT", "CNAME", "ANY", "AXFR", "IXFR", "other"}

// rcodeNames are the RCODEs that a reply can have.
var rcodeNames = [...]string{0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP",
	5: "REFUSED", 9: "NOTAUTH", 16: "BADVERS", 23: "BADCOOKIE"}

// counters belong to one UDP worker, which alone writes them, so that no two meet on
// a cache line; all of TCP has one set.
type counters struct {
	requests  [transports][2][len(qtypeNames)]atomic.Uint64 // transport, family, type
	responses [transports][len(rcodeNames)]atomic.Uint64    // transport, rcode
	truncated [transports]atomic.Uint64
	dropped   atomic.Uint64
	places    [zones.Places]atomic.Uint64 // answers that depend on a place, by what told it
	transfers atomic.Uint64
	_         [64]byte
}

func (c *counters) request(t Transport, from netip.Addr, q *query) {
	family := 0
	if from.Is6() && !from.Is4In6() {
		family = 1
	}
	at := len(qtypes)
	if q.nameLen > 0 {
		for i, typ := range qtypes {
			if typ == q.qtype {
				at = i
				break
			}
		}
	}
	c.requests[t][family][at].Add(1)
}

func (c *counters) response(t Transport, rcode uint16, cut bool) {
	c.responses[t][rcode].Add(1)
	if cut {
		c.truncated[t].Add(1)
	}
}

// place counts an answer that depends on where the asker is.
func (c *counters) place(p zones.Place) {
	if p != zones.PlaceIdle {
		c.places[p].Add(1)
	}
}

func (c *counters) drop() { c.dropped.Add(1) }

// Stats are sums over all workers since the start.
type Stats struct {
	Requests  map[RequestKind]uint64
	Responses map[ResponseKind]uint64
	Truncated map[Transport]uint64
	Dropped   uint64 // queries that got no reply: too short, or no query
	Transfers uint64

	// Places are the answers that depend on where the asker is, by what told that:
	// each Place but PlaceIdle, of which there may be none.
	Places map[zones.Place]uint64

	UDPKernelDrops uint64 // datagrams that the kernel had no room for, as far as it told
	UDPUnsent      uint64 // replies that could not leave

	TCPConnections int64  // open now, those of TLS too
	TCPRejected    uint64 // closed at once or early for want of room
	TLSFailed      uint64 // connections without a handshake that ended well

	Upstream         uint64 // queries passed to an upstream
	UpstreamFailures uint64 // of these, answered by none

	NotifySent         uint64 // NOTIFY messages, repeated ones too
	NotifyAcknowledged uint64 // serials that a secondary acknowledged
	NotifyFailed       uint64 // serials that a secondary refused or left without an answer
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
	out := Stats{
		Requests:       map[RequestKind]uint64{},
		Responses:      map[ResponseKind]uint64{},
		Truncated:      map[Transport]uint64{},
		Places:         map[zones.Place]uint64{},
		TCPConnections: s.tcp.open.Load(),
		TCPRejected:    s.tcp.rejected.Load(),
		TLSFailed:      s.tcp.unshaken.Load(),
	}
	if s.upstream != nil {
		out.Upstream, out.UpstreamFailures = s.upstream.queries.Load(), s.upstream.failures.Load()
	}
	for _, w := range s.udp {
		out.UDPKernelDrops += w.socket.Drops()
		out.UDPUnsent += w.socket.Unsent()
	}
	for _, n := range s.notifiers {
		out.NotifySent += n.sent.Load()
		out.NotifyAcknowledged += n.acknowledged.Load()
		out.NotifyFailed += n.failed.Load()
	}
	for _, c := range s.allCounters() {
		for t := range c.requests {
			for f := range c.requests[t] {
				for i := range c.requests[t][f] {
					if n := c.requests[t][f][i].Load(); n > 0 {
						out.Requests[RequestKind{Transport(t), f + 1, qtypeNames[i]}] += n
					}
				}
			}
			for i := range c.responses[t] {
				if n := c.responses[t][i].Load(); n > 0 {
					out.Responses[ResponseKind{Transport(t), rcodeNames[i]}] += n
				}
			}
			out.Truncated[Transport(t)] += c.truncated[t].Load()
		}
		for p := zones.PlaceUnknown; p < zones.Places; p++ {
			out.Places[p] += c.places[p].Load()
		}
		out.Dropped += c.dropped.Load()
		out.Transfers += c.transfers.Load()
	}
	return out
}
