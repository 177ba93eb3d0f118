package zones

import (
	"net/netip"
	"slices"
	"strconv"
)

// This file turns addresses into labels and reverse names, and back. Both ways
// back are on the query path: they allocate nothing, whatever they are given.

// dashed is the label of an address that has no other name: its text (RFC 5952
// for IPv6) with dashes for dots and colons. A label must not start or end with a
// dash (RFC 1123 section 2.1), so "::1" becomes "0--1".
func dashed(addr netip.Addr) string {
	var buf [maxLabel]byte
	return string(appendDashed(buf[:0], addr))
}

func appendDashed(dst []byte, addr netip.Addr) []byte {
	start := len(dst)
	dst = addr.AppendTo(dst)
	if dst[start] == ':' {
		dst = slices.Insert(dst, start, '0')
	}
	if dst[len(dst)-1] == ':' {
		dst = append(dst, '0')
	}
	for i := start; i < len(dst); i++ {
		if dst[i] == '.' || dst[i] == ':' {
			dst[i] = '-'
		}
	}
	return dst
}

// parseDashed reads any spelling of an address in which dashes stand for dots
// or colons.
func parseDashed(label []byte) (netip.Addr, bool) {
	if a, ok := parseDashed4(label); ok {
		return a, true
	}
	return parseDashed6(label)
}

func parseDashed4(label []byte) (netip.Addr, bool) {
	if len(label) > len("255-255-255-255") {
		return netip.Addr{}, false
	}
	var a [4]byte
	field, digits, n := 0, 0, 0
	for i := 0; i <= len(label); i++ {
		if i == len(label) || label[i] == '-' {
			if digits == 0 || field > 3 {
				return netip.Addr{}, false
			}
			a[field] = byte(n)
			field, digits, n = field+1, 0, 0
			continue
		}
		c := label[i]
		if c < '0' || c > '9' || digits > 0 && n == 0 { // a leading zero may mean octal elsewhere
			return netip.Addr{}, false
		}
		if n = n*10 + int(c-'0'); n > 255 {
			return netip.Addr{}, false
		}
		digits++
	}
	return netip.AddrFrom4(a), field == 4
}

// parseDashed6 reads up to eight groups of one to four hexadecimal digits, with
// one gap (RFC 4291 section 2.2) of at least one group.
func parseDashed6(label []byte) (netip.Addr, bool) {
	var a [16]byte
	at, gap := 0, -1
	i := 0
	if len(label) >= 2 && label[0] == '-' && label[1] == '-' {
		gap, i = 0, 2
	}
	for i < len(label) {
		n, digits := 0, 0
		for i < len(label) {
			d, ok := hexDigit(label[i])
			if !ok {
				break
			}
			n, digits, i = n<<4|int(d), digits+1, i+1
		}
		if digits == 0 || digits > 4 || at == 16 {
			return netip.Addr{}, false
		}
		a[at], a[at+1] = byte(n>>8), byte(n)
		at += 2
		if i == len(label) {
			break
		}
		if label[i] != '-' || i+1 == len(label) {
			return netip.Addr{}, false
		}
		if i++; label[i] == '-' {
			if gap >= 0 {
				return netip.Addr{}, false
			}
			gap = at
			i++
		}
	}
	switch {
	case gap < 0:
		return netip.AddrFrom16(a), at == 16
	case at == 16:
		return netip.Addr{}, false
	}
	tail := at - gap
	copy(a[16-tail:], a[gap:at])
	clear(a[gap : 16-tail])
	return netip.AddrFrom16(a), true
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

var (
	inAddrArpa = []byte("\x07in-addr\x04arpa\x00")
	ip6Arpa    = []byte("\x03ip6\x04arpa\x00")
)

// block is a run of addresses named by a reverse name: those whose first n parts
// are given. A part is an octet for IPv4 and a nibble for IPv6. As bytes it is
// the family followed by the parts, and so a key.
type block struct {
	bytes [1 + 32]byte
	n     int
	parts int // of a whole address: 4 or 32, 0 where the name is no reverse name
}

func (b *block) key() []byte { return b.bytes[:1+b.n] }

func (b *block) whole() bool { return b.n == b.parts }

// addr is the address of a whole block.
func (b *block) addr() netip.Addr {
	if b.parts == 4 {
		return netip.AddrFrom4([4]byte(b.bytes[1:5]))
	}
	var a [16]byte
	for i := range a {
		a[i] = b.bytes[1+2*i]<<4 | b.bytes[2+2*i]
	}
	return netip.AddrFrom16(a)
}

// blockOf is the block of the first n parts of an address.
func blockOf(addr netip.Addr, n int) (b block) {
	b.n = n
	if addr.Is4() {
		b.parts, b.bytes[0] = 4, 4
		a := addr.As4()
		copy(b.bytes[1:1+n], a[:n])
		return b
	}
	b.parts, b.bytes[0] = 32, 6
	a := addr.As16()
	for i := range n {
		b.bytes[1+i] = a[i/2] >> (4 * (1 - i%2)) & 0xf
	}
	return b
}

// contains says whether an address lies in the block.
func (b *block) contains(addr netip.Addr) bool {
	if addr.Is4() != (b.parts == 4) {
		return false
	}
	of := blockOf(addr, b.n)
	return string(of.key()) == string(b.key())
}

// parseReverse reads a lower-case wire name at or below in-addr.arpa (RFC 1035
// section 3.5) or ip6.arpa (RFC 3596 section 2.5). Where a label is no octet or
// nibble, or one too many, ok is false and parts still tells the family: such a
// name exists nowhere.
func parseReverse(name []byte) (b block, ok bool) {
	var end int
	switch {
	case within(name, inAddrArpa):
		b.parts, b.bytes[0], end = 4, 4, len(name)-len(inAddrArpa)
	case within(name, ip6Arpa):
		b.parts, b.bytes[0], end = 32, 6, len(name)-len(ip6Arpa)
	default:
		return b, false
	}
	for i := 0; i < end; i += 1 + int(name[i]) {
		v, valid := parsePart(name[i+1:i+1+int(name[i])], b.parts)
		if !valid || b.n == b.parts {
			return b, false
		}
		b.n++
		b.bytes[b.n] = v // the last part comes first: turned round below
	}
	for l, r := 1, b.n; l < r; l, r = l+1, r-1 {
		b.bytes[l], b.bytes[r] = b.bytes[r], b.bytes[l]
	}
	return b, true
}

func parsePart(label []byte, parts int) (byte, bool) {
	if parts == 32 {
		if len(label) != 1 {
			return 0, false
		}
		return hexDigit(label[0])
	}
	n := 0
	for i, c := range label {
		if c < '0' || c > '9' || i > 0 && n == 0 {
			return 0, false
		}
		if n = n*10 + int(c-'0'); n > 255 {
			return 0, false
		}
	}
	return byte(n), len(label) > 0
}

// appendReverse appends the wire name of a block.
func appendReverse(dst []byte, b *block) []byte {
	for i := b.n; i > 0; i-- {
		if b.parts == 32 {
			dst = append(dst, 1, "0123456789abcdef"[b.bytes[i]])
			continue
		}
		at := len(dst)
		dst = strconv.AppendUint(append(dst, 0), uint64(b.bytes[i]), 10)
		dst[at] = byte(len(dst) - at - 1)
	}
	if b.parts == 32 {
		return append(dst, ip6Arpa...)
	}
	return append(dst, inAddrArpa...)
}

// blocksOf expands a prefix to the whole octets or nibbles that reverse zones
// are cut at: 10.0.0.0/12 is sixteen blocks of /16.
func blocksOf(p netip.Prefix) (out []block) {
	p = p.Masked()
	width := 4
	if p.Addr().Is4() {
		width = 8
	}
	n := (p.Bits() + width - 1) / width
	first := blockOf(p.Addr(), n)
	if n == 0 {
		return []block{first}
	}
	for i := range 1 << (n*width - p.Bits()) {
		b := first
		b.bytes[n] += byte(i)
		out = append(out, b)
	}
	return out
}

// addrKey is the key of an address in a table: its 4 or 16 octets.
func addrKey(buf *[16]byte, addr netip.Addr) []byte {
	if addr.Is4() {
		a := addr.As4()
		return append(buf[:0], a[:]...)
	}
	*buf = addr.As16()
	return buf[:]
}
