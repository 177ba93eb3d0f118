package dnsserver

import (
	"encoding/binary"

	"epdns/zones"
)

// Parts of a message's second header word (RFC 1035 section 4.1.1).
const (
	flagQR = 1 << 15
	flagAA = 1 << 10
	flagTC = 1 << 9
	flagRD = 1 << 8
	flagCD = 1 << 4

	headerSize = 12

	opcodeQuery  = 0
	opcodeNotify = 4
	opcodeUpdate = 5

	classIN  = 1
	classCH  = 3
	classANY = 255

	typeOPT  = 41
	typeTSIG = 250
)

// RCODEs beyond those of an answer; the last two are extended ones (RFC 6891 section
// 9, RFC 7873 section 8).
const (
	formErr   = 1
	notImp    = 4
	notAuth   = 9
	badVers   = 16
	badCookie = 23
)

// query is a message taken apart as far as an answer needs it.
type query struct {
	flags uint16

	nameEnd int // offset behind the question's name
	qtype   uint16
	class   uint16
	name    [256]byte // lower-case; a name has 255 octets at most
	nameLen int
	serial  uint32 // of the SOA that came with an IXFR
	tsigAt  int    // where the TSIG record starts, 0 if there is none

	// onlyCookie says that there is no question and a COOKIE option, which a server
	// with cookies does not take for an error (RFC 7873 section 5.4).
	onlyCookie bool

	edns
}

// parse reads a message. The result is one of: silence (ok false, rcode 0), an
// error to send back (ok false), or a question.
//
// What is refused on the header alone, first of all: messages shorter than a
// header and responses, which are never answered (a reply to them could go round
// for ever); other opcodes; more or less than one question (RFC 9619); records
// where a question has none.
func (q *query) parse(msg []byte) (rcode uint16, ok bool) {
	q.nameEnd, q.nameLen, q.qtype, q.class = 0, 0, 0, 0
	q.tsigAt, q.onlyCookie = 0, false
	q.edns = edns{}
	if len(msg) < headerSize {
		return 0, false
	}
	q.flags = binary.BigEndian.Uint16(msg[2:])
	if q.flags&flagQR != 0 {
		return 0, false
	}
	switch q.flags >> 11 & 0xf {
	case opcodeQuery:
	case opcodeNotify, opcodeUpdate:
		return zones.Refused, false // nobody is our primary, and nothing is to be changed here
	default:
		return notImp, false
	}
	questions := binary.BigEndian.Uint16(msg[4:])
	others := int(binary.BigEndian.Uint16(msg[6:])) + int(binary.BigEndian.Uint16(msg[8:])) // of answer and authority
	additionals := int(binary.BigEndian.Uint16(msg[10:]))
	records := headerSize
	if questions == 1 && q.parseQuestion(msg) {
		records = q.nameEnd + 4
	} else if questions != 0 {
		return formErr, false
	}
	if !q.parseRecords(msg, records, others, additionals) {
		q.edns, q.tsigAt = edns{}, 0
		return formErr, false
	}
	// An IXFR carries the asker's SOA in the authority section, RFC 1995 section 3.
	carries := 0
	if questions == 1 && q.qtype == zones.TypeIXFR {
		carries = 1
	}
	if others != carries || binary.BigEndian.Uint16(msg[6:]) != 0 {
		return formErr, false
	}
	if questions == 0 {
		q.onlyCookie = q.edns.cookie != nil
		return formErr, false
	}
	switch {
	case q.edns.present && q.edns.version != 0:
		return badVers, false
	case q.qtype == 0 || q.qtype == typeOPT || q.qtype == typeTSIG:
		return formErr, false // no type to ask for, RFC 6895 section 3.1
	}
	return zones.NoError, true
}

// parseQuestion reads the one question. Compression has nothing to point to there.
func (q *query) parseQuestion(msg []byte) bool {
	at := headerSize
	for {
		if at >= len(msg) {
			return false
		}
		n := int(msg[at])
		if at += 1 + n; n > 63 {
			return false
		}
		if n == 0 {
			break
		}
	}
	if at+4 > len(msg) || at-headerSize > maxName {
		return false
	}
	q.nameEnd, q.nameLen = at, at-headerSize
	lowerCase(q.name[:q.nameLen], msg[headerSize:at])
	q.qtype = binary.BigEndian.Uint16(msg[at:])
	q.class = binary.BigEndian.Uint16(msg[at+2:])
	return true
}

// parseRecords goes over the records behind the question: others, of which only the
// SOA of an IXFR means something, and those of the additional section, among them the
// OPT and the TSIG. Each takes at least eleven octets, so that a false count costs
// nothing.
func (q *query) parseRecords(msg []byte, at, others, additionals int) bool {
	for i := range others + additionals {
		rest := msg[at:]
		n, root := skipName(rest)
		if n < 0 || n+10 > len(rest) {
			return false
		}
		typ := binary.BigEndian.Uint16(rest[n:])
		end := n + 10 + int(binary.BigEndian.Uint16(rest[n+8:]))
		if end > len(rest) {
			return false
		}
		switch rdata := rest[n+10 : end]; {
		case i < others:
			if typ != zones.TypeSOA || len(rdata) < 20 {
				return false
			}
			q.serial = binary.BigEndian.Uint32(rdata[len(rdata)-20:]) // the last five numbers are 32 bits each
		case typ == typeOPT:
			// At the root, and once (RFC 6891 sections 6.1.1 and 6.1.2).
			if !root || q.edns.present || !q.edns.parse(rest[n+2:end]) {
				return false
			}
		case typ == typeTSIG:
			if i != others+additionals-1 { // the last record, RFC 8945 section 5.1
				return false
			}
			q.tsigAt = at
		}
		at += end
	}
	return true
}
