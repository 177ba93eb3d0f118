package dnsserver

import (
	"encoding/binary"
	"slices"
)

// paddingBlock is what the length of a padded reply is a multiple of (RFC 8467 section
// 4.1), so that who sees it pass learns little of what it says.
const paddingBlock = 468

// pad pads the reply that starts at base, where the query asked for that (RFC 7830
// section 4) over TLS: in clear text it hides nothing. The TSIG record is still to come.
func (r *Responder) pad(dst []byte, base int) []byte {
	if !r.pads {
		return dst
	}
	at, end := findOPT(dst[base:])
	length := len(dst) - base + optionSize + r.tsig.size()
	if at == 0 || length > maxTCPSize {
		return dst
	}
	var option [optionSize + paddingBlock - 1]byte
	n := min((paddingBlock-length%paddingBlock)%paddingBlock, maxTCPSize-length)
	appendOption(option[:0], optionPadding, n)
	dst = slices.Insert(dst, base+end, option[:optionSize+n]...)
	rdlength := dst[base+at+8:]
	binary.BigEndian.PutUint16(rdlength, binary.BigEndian.Uint16(rdlength)+uint16(optionSize+n))
	return dst
}
