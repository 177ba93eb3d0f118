package dnsserver

import (
	"encoding/binary"

	"epdns/zones"
)

// identity is what a name of class CH tells of this server (RFC 4892), "" if nothing.
func (s *shared) identity(name []byte) string {
	switch string(name) {
	case "\x07version\x04bind\x00", "\x07version\x06server\x00":
		return s.version
	case "\x08hostname\x04bind\x00", "\x02id\x06server\x00":
		return s.nsid
	}
	return ""
}

// appendIdentity appends the answer to a question of class CH: the one TXT record,
// or nothing with REFUSED. Nobody is to keep it, since the next question may go to
// another server (RFC 4892 section 3).
func (s *shared) appendIdentity(dst []byte, q *query) (out []byte, rcode uint16) {
	text := ""
	if q.qtype == zones.TypeTXT || q.qtype == zones.TypeANY {
		text = s.identity(q.name[:q.nameLen])
	}
	if text == "" {
		return dst, zones.Refused
	}
	dst = append(dst, 0xc0, headerSize, 0, zones.TypeTXT, 0, classCH, 0, 0, 0, 0) // the question's name
	dst = binary.BigEndian.AppendUint16(dst, uint16(1+len(text)))
	return append(append(dst, byte(len(text))), text...), zones.NoError
}
