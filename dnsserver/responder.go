package dnsserver

import (
	"encoding/binary"
	"net/netip"
	"time"

	"epdns/zones"
)

// Authority is where answers come from.
type Authority interface {
	// Load returns the Set to answer from, never nil. It is called once per
	// question, from any goroutine.
	Load() *zones.Set
}

// Transport is what carries a message.
type Transport uint8

const (
	UDP Transport = iota
	TCP
	TLS // over TCP

	transports = 3 // how many
)

func (t Transport) String() string { return [transports]string{"udp", "tcp", "tls"}[t] }

// Via is the way a query came.
type Via struct {
	Transport Transport
	Local     netip.Addr // the address that was asked, if it is known
}

// Responder answers queries, one at a time: it belongs to one goroutine.
type Responder struct {
	authority Authority
	shared    *shared
	query     *query // the one that is answered
	one       query  // room for it
	tsig      tsig
	answer    *zones.Answer
	options   []byte // of the reply's OPT record
	question  zones.Question
	tally     tally     // what the owner has not added to its counters yet
	began     time.Time // to answer the query, where it is logged
	limits

	pads   bool // the reply to the last query is to be padded
	passes bool // names outside our zones are somebody else's to answer:
	passed bool // the last query was for one, and there is no reply
	looked bool // the answer to the last query came from zones
}

func newResponder(a Authority) *Responder {
	r := &Responder{
		authority: a,
		shared:    plain,
		answer:    zones.NewAnswer(),
		options:   make([]byte, 0, 3*optionSize+cookieSize+maxNSID+2+maxSubnet),
		tally:     newTally(),
		limits:    limits{key: make([]byte, 0, maxKey)},
	}
	r.query = &r.one
	return r
}

// Respond appends the reply to a query to dst and returns it. A reply of no
// octets means silence. It keeps neither dst nor msg, which must not overlap.
func (r *Responder) Respond(dst, msg []byte, from netip.AddrPort, via Via) []byte {
	rcode, ok := r.read(msg, from, via)
	return r.reply(dst, msg, rcode, ok, via)
}

// read takes a message apart and says what query.parse says of it, after a look at
// what goes with the question.
func (r *Responder) read(msg []byte, from netip.AddrPort, via Via) (rcode uint16, ok bool) {
	r.query = &r.one
	rcode, ok = r.query.parse(msg)
	return r.admit(msg, from, via, rcode, ok)
}

// admit looks at what goes with the question of the query that query.parse has said this
// of: its signature, its cookie. It says what is to be said now.
func (r *Responder) admit(msg []byte, from netip.AddrPort, via Via, rcode uint16, ok bool) (uint16, bool) {
	q := r.query
	r.question.From = from.Addr().Unmap()
	r.tally.request(via.Transport, from.Addr(), q)
	r.tsig.present = false
	r.pads = q.padding && via.Transport == TLS
	if ok && q.tsigAt > 0 {
		rcode = r.tsig.verify(msg, q.tsigAt, r.shared.keys, now48())
		ok = rcode == zones.NoError
	}
	var good bool
	r.options, good = r.shared.appendOptions(r.options[:0], q, from.Addr(), via.Transport)
	r.proven = good || r.tsig.valid()
	if q.cookie != nil && r.shared.cookies != nil {
		switch {
		case !legalCookie(len(q.cookie)):
			return formErr, false // RFC 7873 section 5.2.2
		case q.onlyCookie && (good || len(q.cookie) == clientCookieSize):
			return zones.NoError, true
		case q.onlyCookie:
			return badCookie, false // section 5.4
		}
	}
	return rcode, ok
}

// reply appends the reply to msg, which has been read.
func (r *Responder) reply(dst, msg []byte, rcode uint16, ok bool, via Via) []byte {
	q := r.query
	base := len(dst)
	r.passed, r.looked = false, false
	if !ok && rcode == 0 {
		r.tally.drop(msg)
		return dst
	}
	if !ok || q.onlyCookie {
		return r.refuse(dst, msg, rcode, 0, via)
	}
	if !r.shared.access.admits(r.question.From) {
		return r.refuse(dst, msg, zones.Refused, edeProhibited, via)
	}

	set := r.authority.Load()
	r.question.Subnet = netip.Prefix{}
	r.question.Unbelieved = netip.Prefix{}
	scope := 0 // where the scope of the reply's subnet is, among the options
	switch {
	case q.subnet == nil:
	case set.Trusts(r.question.From):
		prefix, known, err := parseSubnet(q.subnet)
		switch {
		case err != nil:
			return r.refuse(dst, msg, formErr, 0, via)
		case known:
			r.question.Subnet = prefix
			r.options, scope = appendSubnet(r.options, q.subnet)
		}
	case q.qtype == zones.TypeTXT: // it may be the explanation that is asked for
		r.noteUnbelieved()
	}

	limit := maxTCPSize
	if via.Transport == UDP {
		limit = q.udpSize(r.shared.udpSize)
	}
	// Records that nobody asked for make no reply longer than the size that the asker
	// gave, over TCP either: there are clients that read no more of it.
	beyond := 0
	if q.edns.present {
		beyond = max(0, limit-q.udpSize(maxTCPSize))
	}
	limit -= r.tsig.size()
	dst = append(dst, msg[:q.nameEnd+4]...)
	room := limit
	if q.edns.present {
		room -= optSize + len(r.options)
	}

	var counts zones.Counts
	var cut bool
	var ede uint16
	authoritative := false
	switch {
	case q.class == classCH:
		if dst, rcode = r.shared.appendIdentity(dst, q); rcode == zones.NoError {
			counts.Answer, authoritative = 1, true
		}
	case q.class != classIN && q.class != classANY:
		rcode, ede = zones.Refused, edeNotSupported
	case q.qtype == zones.TypeAXFR && via.Transport == UDP:
		rcode, ede = notImp, edeNotSupported // RFC 5936 section 4.2
	case q.qtype == zones.TypeAXFR, q.qtype == zones.TypeIXFR && via.Transport != UDP:
		rcode, ede = zones.Refused, edeProhibited // transfers that are allowed do not come here
	default:
		question := &r.question
		question.Name, question.Type, question.Local = q.name[:q.nameLen], q.qtype, via.Local
		if q.qtype == zones.TypeIXFR {
			// The answer that says "no newer than this, or ask over TCP" (RFC 1995 section 4).
			question.Type = zones.TypeSOA
		}
		set.Lookup(question, r.answer)
		passed := r.passes && r.answer.RCode == zones.Refused && question.Type == q.qtype && !r.tsig.present
		if r.moment != 0 {
			switch r.limitAnswer(passed) {
			case dropped:
				return dst[:base]
			case slipped:
				return r.truncated(dst[:base], msg)
			}
		}
		if passed {
			r.passed = true
			return dst[:base]
		}
		dst, counts, cut = r.answer.AppendTo(dst, base, room, room-beyond)
		r.looked = true
		if scope > 0 {
			r.options[scope] = uint8(r.answer.Scope())
		}
		r.tally.place(r.answer.Place())
		if !cut && r.answer.Capped() {
			r.tally.capped()
		}
		rcode, ede = uint16(r.answer.RCode), r.answer.EDE
		// Class ANY is not authoritative (RFC 1035 section 6.2).
		authoritative = r.answer.Authoritative() && q.class == classIN
	}
	if !r.looked && !r.mayRefuse() {
		return dst[:base]
	}
	if q.edns.present {
		dst = q.appendOPT(dst, r.shared.udpSize, rcode, r.options, ede, limit-(len(dst)-base))
		counts.Additional++
	}
	flags := flagQR | q.flags&(0xf<<11|flagRD|flagCD) | rcode&0xf
	if authoritative {
		flags |= flagAA
	}
	if cut {
		flags |= flagTC
	}
	h := dst[base:]
	binary.BigEndian.PutUint16(h[2:], flags)
	binary.BigEndian.PutUint16(h[6:], counts.Answer)
	binary.BigEndian.PutUint16(h[8:], counts.Authority)
	binary.BigEndian.PutUint16(h[10:], counts.Additional)
	r.tally.response(via.Transport, rcode, cut)
	return r.tsig.sign(r.pad(dst, base), base)
}

// refuse is fail for a reply that may be beyond the limit.
func (r *Responder) refuse(dst, msg []byte, rcode, ede uint16, via Via) []byte {
	if !r.mayRefuse() {
		return dst
	}
	r.tally.response(via.Transport, rcode, false)
	return r.fail(dst, msg, rcode, ede)
}

// fail appends a reply with an RCODE and no records: the question, if it could be
// read, and nothing else, so that it is never longer than what was sent (but for
// the OPT and the TSIG that the sender asked for).
func (r *Responder) fail(dst, msg []byte, rcode, ede uint16) []byte {
	q := r.query
	base := len(dst)
	dst = append(dst, msg[:headerSize]...)
	h := dst[base:]
	binary.BigEndian.PutUint16(h[2:], flagQR|q.flags&(0xf<<11|flagRD|flagCD)|rcode&0xf)
	clear(h[4:headerSize])
	if q.nameEnd > 0 {
		h[5] = 1
		dst = append(dst, msg[headerSize:q.nameEnd+4]...)
	}
	if q.edns.present {
		dst[base+11] = 1
		dst = q.appendOPT(dst, r.shared.udpSize, rcode, r.options, ede, minUDPSize-(len(dst)-base))
	}
	return r.tsig.sign(r.pad(dst, base), base)
}
