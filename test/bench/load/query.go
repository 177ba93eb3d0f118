//go:build linux

package load

import "encoding/binary"

// Query is a question and what is known of its reply.
type Query struct {
	// Wire is the message. The generator puts an ID of its own into a copy.
	Wire []byte

	// RCODE and Truncated are what the reply's header must say, and Min and Max the octets
	// that it must have.
	RCODE     int
	Truncated bool
	Min, Max  int
}

// header is how long a DNS header is.
const header = 12

// right says whether a reply is as it must be.
func (q *Query) right(reply []byte) bool {
	const qr, tc, rcode = 0x80, 0x02, 0x0f // of octets 2, 2 and 3
	return len(reply) >= max(header, q.Min) && len(reply) <= q.Max && reply[2]&qr != 0 &&
		(reply[2]&tc != 0) == q.Truncated && int(reply[3]&rcode) == q.RCODE
}

// ForEcho makes of a query one that [EchoUDP] and [EchoTCP] answer with size octets.
func ForEcho(wire []byte, size int) Query {
	size = max(size, header)
	return Query{Wire: binary.BigEndian.AppendUint16(append([]byte(nil), wire...), uint16(size)), Min: size, Max: size}
}

// maxQuery is more than a question with an OPT record and its mark for the echo needs.
const maxQuery = 512

// maxReply is the largest that a reply can be.
const maxReply = 65535
