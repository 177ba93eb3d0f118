package dnsserver

import (
	"bytes"
	"crypto/hmac"
	"encoding/binary"
	"time"

	"epdns/zones"
)

// Messages with a TSIG record (RFC 8945) are rare: secondaries sign transfers and
// the questions for the SOA before them. They may allocate.

// Errors of TSIG (RFC 8945 section 3). In all of them the RCODE is NOTAUTH.
const (
	badSig   = 16
	badKey   = 17
	badTime  = 18
	badTrunc = 22
)

// tsig is the TSIG record of a query, and then the state of what is signed in reply.
type tsig struct {
	present         bool
	name, algorithm []byte // lower-case, without compression
	time            uint64 // Unix seconds, 48 bits
	fudge           uint16
	mac             []byte // of the message before the next one
	id              uint16 // that the message was signed under
	err             uint16
	other           []byte

	key  *tsigKey // nil: not signed
	more bool     // a reply went out already
}

// valid says that the query was signed with a key of ours.
func (t *tsig) valid() bool { return t.present && t.err == 0 }

// verify takes apart and checks the TSIG record of a query, if it has one. What is
// wrong comes back as an RCODE, and what to tell about it is kept for the reply.
// The order of the checks is that of RFC 8945 section 5.2.
func (t *tsig) verify(msg []byte, at int, keys []tsigKey, now uint64) (rcode uint16) {
	*t = tsig{}
	if at == 0 {
		return zones.NoError
	}
	if !t.parse(msg, at) {
		*t = tsig{}
		return formErr
	}
	key := t.find(keys)
	if key == nil {
		return t.fail(badKey)
	}
	unsigned := bytes.Clone(msg[:at])
	binary.BigEndian.PutUint16(unsigned, t.id)
	binary.BigEndian.PutUint16(unsigned[10:], binary.BigEndian.Uint16(msg[10:])-1)
	want := t.sum(key, nil, unsigned)
	switch n := len(t.mac); {
	case n > len(want) || n < max(10, len(want)/2): // section 5.2.2.1
		*t = tsig{}
		return formErr
	case !hmac.Equal(t.mac, want[:n]):
		return t.fail(badSig)
	}
	t.key = key
	switch distance := int64(now - t.time); {
	case distance > int64(t.fudge) || distance < -int64(t.fudge):
		t.other = appendUint48(nil, now) // section 5.2.3: and the time stays the asker's
		return t.fail(badTime)
	case len(t.mac) < len(want):
		return t.fail(badTrunc) // short ones are not for us, section 5.2.4
	}
	t.time = now
	return zones.NoError
}

func (t *tsig) fail(err uint16) (rcode uint16) {
	t.err = err
	return notAuth
}

func (t *tsig) find(keys []tsigKey) *tsigKey {
	for i := range keys {
		if bytes.Equal(keys[i].name, t.name) && bytes.Equal(keys[i].algorithm, t.algorithm) {
			return &keys[i]
		}
	}
	return nil
}

// parse reads the record, of which the lengths up to its RDATA have been checked.
func (t *tsig) parse(msg []byte, at int) (ok bool) {
	t.present = true
	if t.name, at, ok = readName(msg, at); !ok {
		return false
	}
	class, ttl, end := binary.BigEndian.Uint16(msg[at+2:]), binary.BigEndian.Uint32(msg[at+4:]), at+10+int(binary.BigEndian.Uint16(msg[at+8:]))
	if class != classANY || ttl != 0 { // section 4.2
		return false
	}
	if t.algorithm, at, ok = readName(msg[:end], at+10); !ok || at+10 > end {
		return false
	}
	t.time = uint64(binary.BigEndian.Uint16(msg[at:]))<<32 | uint64(binary.BigEndian.Uint32(msg[at+2:]))
	t.fudge = binary.BigEndian.Uint16(msg[at+6:])
	mac, rest := int(binary.BigEndian.Uint16(msg[at+8:])), msg[at+10:end]
	if mac+6 > len(rest) {
		return false
	}
	t.mac, rest = bytes.Clone(rest[:mac]), rest[mac:]
	t.id, t.err, t.other = binary.BigEndian.Uint16(rest), binary.BigEndian.Uint16(rest[2:]), bytes.Clone(rest[6:])
	return t.err == 0 && len(t.other) == int(binary.BigEndian.Uint16(rest[4:]))
}

// sum is the MAC of a message (section 4.3): of the MAC before it in the exchange,
// the message as it is without the record, and the record's own fields, of which
// only the times count from the second message of a reply on (section 5.3.1).
func (t *tsig) sum(key *tsigKey, before, unsigned []byte) []byte {
	h := hmac.New(key.hash, key.secret)
	if before != nil {
		h.Write(binary.BigEndian.AppendUint16(nil, uint16(len(before))))
		h.Write(before)
	}
	h.Write(unsigned)
	var v []byte
	if !t.more {
		v = append(append(v, t.name...), 0, classANY, 0, 0, 0, 0)
		v = append(v, t.algorithm...)
	}
	v = binary.BigEndian.AppendUint16(appendUint48(v, t.time), t.fudge)
	if !t.more {
		v = binary.BigEndian.AppendUint16(v, t.err)
		v = append(binary.BigEndian.AppendUint16(v, uint16(len(t.other))), t.other...)
	}
	h.Write(v)
	return h.Sum(nil)
}

// size is how much sign appends.
func (t *tsig) size() int {
	if !t.present {
		return 0
	}
	n := len(t.name) + 10 + len(t.algorithm) + 16 + len(t.other)
	if t.key != nil {
		n += t.key.hash().Size()
	}
	return n
}

// sign appends a TSIG record to the reply that starts at base, where the query had
// one. Where the key or the MAC was wrong there is nothing to sign with, and the
// record only says so (section 5.3.2).
func (t *tsig) sign(dst []byte, base int) []byte {
	if !t.present {
		return dst
	}
	mac := []byte(nil)
	if t.key != nil {
		mac = t.sum(t.key, t.mac, dst[base:])
	}
	t.mac, t.more = mac, true
	h := dst[base:]
	id := binary.BigEndian.Uint16(h)
	binary.BigEndian.PutUint16(h[10:], binary.BigEndian.Uint16(h[10:])+1)

	dst = append(append(dst, t.name...), 0, typeTSIG, 0, classANY, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(t.algorithm)+16+len(mac)+len(t.other)))
	dst = append(dst, t.algorithm...)
	dst = binary.BigEndian.AppendUint16(appendUint48(dst, t.time), t.fudge)
	dst = append(binary.BigEndian.AppendUint16(dst, uint16(len(mac))), mac...)
	dst = binary.BigEndian.AppendUint16(dst, id)
	dst = binary.BigEndian.AppendUint16(dst, t.err)
	return append(binary.BigEndian.AppendUint16(dst, uint16(len(t.other))), t.other...)
}

func appendUint48(dst []byte, v uint64) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(dst, uint16(v>>32)), uint32(v))
}

// now48 is the time as TSIG has it.
func now48() uint64 { return uint64(time.Now().Unix()) & (1<<48 - 1) }
