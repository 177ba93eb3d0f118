package dnsserver

import "encoding/binary"

const (
	minUDPSize = 512 // RFC 1035 section 4.2.1; RFC 6891 section 6.2.3 for smaller ones
	// maxUDPSize keeps replies within one packet on every path in use, which
	// fragments would not survive (RFC 9715).
	maxUDPSize = 1232

	maxTCPSize = 65535

	optSize = 11 // an OPT record without options

	flagDO = 1 << 15

	optionEDE = 15 // RFC 8914
)

// edns is what the OPT record of a query says (RFC 6891).
type edns struct {
	present bool
	version uint8
	do      bool
	size    uint16
}

// parse reads an OPT record from its CLASS field on. Options are checked for
// their lengths and otherwise not looked at: none is in use, and an unknown one is
// ignored (section 6.1.2).
func (e *edns) parse(b []byte) bool {
	e.present = true
	e.size = binary.BigEndian.Uint16(b)
	e.version = b[3]
	e.do = binary.BigEndian.Uint16(b[4:])&flagDO != 0
	options := b[8:]
	for len(options) > 0 {
		if len(options) < 4 {
			return false
		}
		n := 4 + int(binary.BigEndian.Uint16(options[2:]))
		if n > len(options) {
			return false
		}
		options = options[n:]
	}
	return true
}

// udpSize is how long a reply over UDP may be.
func (e *edns) udpSize() int {
	if !e.present {
		return minUDPSize
	}
	return max(minUDPSize, min(int(e.size), maxUDPSize))
}

// appendOPT appends the reply's OPT record: our size and version, the asker's DO,
// the upper bits of the RCODE, and an extended error if there is one and room.
func (e *edns) appendOPT(dst []byte, rcode uint16, ede uint16, room int) []byte {
	dst = append(dst, 0, 0, typeOPT)
	dst = binary.BigEndian.AppendUint16(dst, maxUDPSize)
	dst = append(dst, byte(rcode>>4), 0)
	var flags uint16
	if e.do {
		flags = flagDO
	}
	dst = binary.BigEndian.AppendUint16(dst, flags)
	if ede == 0 || room < optSize+6 {
		return append(dst, 0, 0)
	}
	dst = append(dst, 0, 6, 0, optionEDE, 0, 2)
	return binary.BigEndian.AppendUint16(dst, ede)
}
