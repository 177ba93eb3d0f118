package dnsserver

import "encoding/binary"

// maxName is how many octets a name has at most (RFC 1035 section 2.3.4).
const maxName = 255

// lowerCase copies a name, which is without pointers, to dst, of the same length. The
// octets before labels are less than any letter, so that they need no care.
func lowerCase(dst, name []byte) {
	if len(name) < 8 {
		for i, c := range name {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			dst[i] = c
		}
		return
	}
	for i := 0; ; i += 8 {
		if i > len(name)-8 {
			if i == len(name) {
				return
			}
			i = len(name) - 8 // some octets a second time
		}
		binary.LittleEndian.PutUint64(dst[i:], lowerCase8(binary.LittleEndian.Uint64(name[i:])))
	}
}

// lowerCase8 is lower-case of eight octets at once: what lies between A and Z has its
// high bit set in one of two sums only, and none has a carry into the next.
func lowerCase8(x uint64) uint64 {
	const each = 0x0101010101010101
	low := x &^ (0x80 * each)
	fromA, beyondZ := low+(0x80-'A')*each, low+(0x7f-'Z')*each
	return x | (fromA^beyondZ)&^x&(0x80*each)>>2
}

// readName reads a name, lower-case, and returns the offset behind it. A pointer must
// lead back, further with each one, so that it ends.
func readName(msg []byte, at int) (name []byte, next int, ok bool) {
	next = -1
	for before := at; ; {
		if at >= len(msg) {
			return nil, 0, false
		}
		n := int(msg[at])
		switch {
		case n >= 0xc0:
			if at+2 > len(msg) {
				return nil, 0, false
			}
			if next < 0 {
				next = at + 2
			}
			to := int(binary.BigEndian.Uint16(msg[at:]) & 0x3fff)
			if to >= before {
				return nil, 0, false
			}
			at, before = to, to
			continue
		case n > 63 || at+1+n > len(msg) || len(name)+1+n > 255:
			return nil, 0, false
		}
		for _, c := range msg[at : at+1+n] {
			if 'A' <= c && c <= 'Z' {
				c += 'a' - 'A'
			}
			name = append(name, c)
		}
		at += 1 + n
		if n == 0 {
			if next < 0 {
				next = at
			}
			return name, next, true
		}
	}
}

// skipName returns the offset behind a name, or -1, and whether it is the root.
func skipName(b []byte) (at int, root bool) {
	for {
		if at >= len(b) {
			return -1, false
		}
		n := int(b[at])
		switch {
		case n == 0:
			return at + 1, at == 0
		case n >= 0xc0:
			if at+2 > len(b) {
				return -1, false
			}
			return at + 2, false
		case n > 63:
			return -1, false
		}
		at += 1 + n
	}
}
