package dnsserver

import (
	"encoding/binary"
	"net/netip"
)

const (
	minUDPSize = 512 // RFC 1035 section 4.2.1; RFC 6891 section 6.2.3 for smaller ones
	// maxUDPSize is the most that RFC 9715 section 3.2 has sent over UDP anywhere.
	maxUDPSize = 1400
	// defaultUDPSize keeps replies within one packet on every path in use, which
	// fragments would not survive (RFC 9715 appendix A).
	defaultUDPSize = 1232

	maxTCPSize = 65535

	optSize    = 11 // an OPT record without options
	optionSize = 4  // an option without data
	edeSize    = optionSize + 2

	flagDO = 1 << 15
)

// Options (IANA "DNS EDNS0 Option Codes (OPT)") that are answered.
const (
	optionNSID      = 3  // RFC 5001
	optionCookie    = 10 // RFC 7873
	optionKeepalive = 11 // RFC 7828
	optionPadding   = 12 // RFC 7830
	optionEDE       = 15 // RFC 8914
)

// Extended errors (RFC 8914 section 4) besides those of zones.
const (
	edeProhibited   = 18
	edeNotSupported = 21
)

// edns is what the OPT record of a query says (RFC 6891). It points into the message.
type edns struct {
	present   bool
	version   uint8
	do        bool
	size      uint16
	cookie    []byte // nil: none
	nsid      bool
	keepalive bool
	padding   bool
	subnet    []byte // nil: none
}

// parse reads an OPT record from its CLASS field on. Of a version that we don't
// know, no more than that is known.
func (e *edns) parse(b []byte) bool {
	e.present = true
	e.size = binary.BigEndian.Uint16(b)
	e.version = b[3]
	e.do = binary.BigEndian.Uint16(b[4:])&flagDO != 0
	if e.version != 0 {
		return true
	}
	options := b[8:]
	for len(options) > 0 {
		if len(options) < optionSize {
			return false
		}
		code, end := binary.BigEndian.Uint16(options), optionSize+int(binary.BigEndian.Uint16(options[2:]))
		if end > len(options) {
			return false
		}
		e.option(code, options[optionSize:end])
		options = options[end:]
	}
	return true
}

// option notes what a reply depends on. All else is ignored (RFC 6891 section
// 6.1.2).
func (e *edns) option(code uint16, data []byte) {
	switch code {
	case optionNSID:
		e.nsid = true // whatever it holds, which should be nothing (RFC 5001 section 2.1)
	case optionCookie:
		if e.cookie == nil { // the first one counts, RFC 7873 section 5.2
			e.cookie = data
		}
	case optionKeepalive:
		// A time is for servers to give (RFC 7828 section 3.2.1). Who gives one has
		// something else in mind and gets no option; no error is defined for it.
		e.keepalive = len(data) == 0
	case optionSubnet:
		if e.subnet == nil {
			e.subnet = data
		}
	case optionPadding:
		e.padding = true
	}
}

// udpSize is how long a reply over UDP may be, where we would send most.
func (e *edns) udpSize(most uint16) int {
	if !e.present {
		return minUDPSize
	}
	return max(minUDPSize, int(min(e.size, most)))
}

// appendOptions appends the options of the reply, except for an extended error, and
// says whether a server cookie came that was good.
func (s *shared) appendOptions(dst []byte, q *query, from netip.Addr, t Transport) (out []byte, good bool) {
	if q.cookie != nil && s.cookies != nil && legalCookie(len(q.cookie)) {
		dst = appendOption(dst, optionCookie, cookieSize)
		dst, good = s.cookies.appendReply(dst, q.cookie, from)
	}
	if q.nsid && len(s.nsid) > 0 {
		dst = append(appendOption(dst, optionNSID, len(s.nsid)), s.nsid...)
	}
	if q.keepalive && t != UDP && s.keepalive > 0 {
		dst = binary.BigEndian.AppendUint16(appendOption(dst, optionKeepalive, 2), s.keepalive)
	}
	return dst, good
}

// appendOption appends what stands before an option's data.
func appendOption(dst []byte, code uint16, length int) []byte {
	dst = binary.BigEndian.AppendUint16(dst, code)
	return binary.BigEndian.AppendUint16(dst, uint16(length))
}

// appendOPT appends the reply's OPT record: our size and version, the asker's DO,
// the upper bits of the RCODE, the options, and an extended error if there is one
// and room for it, which is the first thing to leave out.
func (e *edns) appendOPT(dst []byte, size, rcode uint16, options []byte, ede uint16, room int) []byte {
	dst = append(dst, 0, 0, typeOPT)
	dst = binary.BigEndian.AppendUint16(dst, size)
	dst = append(dst, byte(rcode>>4), 0)
	var flags uint16
	if e.do {
		flags = flagDO
	}
	dst = binary.BigEndian.AppendUint16(dst, flags)
	length := len(options)
	if ede != 0 && room < optSize+length+edeSize {
		ede = 0
	}
	if ede != 0 {
		length += edeSize
	}
	dst = binary.BigEndian.AppendUint16(dst, uint16(length))
	dst = append(dst, options...)
	if ede != 0 {
		dst = binary.BigEndian.AppendUint16(appendOption(dst, optionEDE, 2), ede)
	}
	return dst
}
