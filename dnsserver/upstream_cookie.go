package dnsserver

import "encoding/binary"

// A cookie is between a client and the server that it asks. So where there are
// cookies, an upstream does not see the client's, and its reply gets ours: a client
// that has had one from an address takes no reply from there without.

// cookie is the COOKIE option of the reply to the last query, nil where there is none.
func (r *Responder) cookie() []byte {
	if r.query.cookie == nil || r.shared.cookies == nil {
		return nil
	}
	return r.options[:optionSize+cookieSize]
}

// withoutCookie is a copy of a query without its COOKIE options. It leaves room for
// ours in the reply.
func withoutCookie(msg []byte) []byte {
	at, end := findOPT(msg)
	if at == 0 {
		return msg
	}
	out := append(make([]byte, 0, len(msg)), msg[:at+10]...)
	for options := msg[at+10 : end]; len(options) > 0; {
		n := optionSize + int(binary.BigEndian.Uint16(options[2:]))
		if binary.BigEndian.Uint16(options) != optionCookie {
			out = append(out, options[:n]...)
		}
		options = options[n:]
	}
	size := int(binary.BigEndian.Uint16(out[at+2:])) - optionSize - cookieSize
	binary.BigEndian.PutUint16(out[at+2:], uint16(max(minUDPSize, size)))
	binary.BigEndian.PutUint16(out[at+8:], uint16(len(out)-at-10))
	return append(out, msg[end:]...)
}

// withCookie is a reply with that option, where it has an OPT record and there is room.
func withCookie(reply, option []byte, limit int) []byte {
	at, end := findOPT(reply)
	if at == 0 || len(option) == 0 || len(reply)+len(option) > limit {
		return reply
	}
	out := append(make([]byte, 0, len(reply)+len(option)), reply[:end]...)
	out = append(append(out, option...), reply[end:]...)
	binary.BigEndian.PutUint16(out[at+8:], uint16(end-at-10+len(option)))
	return out
}

// findOPT returns where the TYPE field of the OPT record of a message stands, and
// where the record ends; 0 where there is none.
func findOPT(msg []byte) (at, end int) {
	if len(msg) < headerSize {
		return 0, 0
	}
	count := func(i int) int { return int(binary.BigEndian.Uint16(msg[i:])) }
	at = headerSize
	for range count(4) {
		n, _ := skipName(msg[at:])
		if n < 0 || at+n+4 > len(msg) {
			return 0, 0
		}
		at += n + 4
	}
	for range count(6) + count(8) + count(10) {
		n, _ := skipName(msg[at:])
		if n < 0 || at+n+10 > len(msg) {
			return 0, 0
		}
		at += n
		end = at + 10 + count(at+8)
		if end > len(msg) {
			return 0, 0
		}
		if count(at) == typeOPT {
			return at, end
		}
		at = end
	}
	return 0, 0
}
