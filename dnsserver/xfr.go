package dnsserver

import (
	"encoding/binary"
	"net/netip"

	"epdns/zones"
)

// mayTransfer says whether who asks may have zone transfers. To those who do not see all
// of a zone there is none.
func (r *Responder) mayTransfer(from netip.Addr) bool {
	return (r.tsig.valid() || r.shared.mayTransfer(from)) && r.shared.access.admits(from) && r.authority.Load().SeesAll(from)
}

// mayTransfer says whether an address may have zone transfers without a key.
func (s *shared) mayTransfer(from netip.Addr) bool {
	if from.IsLoopback() {
		return true
	}
	for _, p := range s.transfer {
		if p.Contains(from) {
			return true
		}
	}
	return false
}

// transferSize is how long a message of a transfer gets before the next one is
// begun: few writes for a large zone, little to hold for each asker.
const transferSize = 16 << 10

// transfer sends a zone (AXFR, RFC 5936; IXFR in the form of a whole zone, RFC
// 1995 section 4), from first to last record out of one Set.
func (t *tcpServer) transfer(c *tcpConn, w *tcpWorker, msg []byte, via Via) bool {
	q := w.responder.query
	set := t.server.authority.Load()
	name := q.name[:q.nameLen]
	records, ok := set.Transfer(name, via.Local)
	if !ok {
		rcode, ede := uint16(zones.Refused), uint16(zones.EDENotAuthoritative)
		switch {
		case !set.Synced():
			rcode, ede = zones.ServFail, zones.EDENotReady
		case set.InTransfer(name):
			rcode = notAuth // below the apex there is no zone
		}
		w.out = w.responder.fail(append(w.out[:0], 0, 0), msg, rcode, ede)
		t.stats.add(responsesAt(via.Transport, rcode), 1)
		return t.write(c, w.out)
	}
	t.stats.add(countTransfers, 1)
	t.stats.add(responsesAt(via.Transport, zones.NoError), 1)

	m := transferMessage{w: w, msg: msg}
	m.begin(true)
	onlySOA := q.qtype == zones.TypeIXFR && int32(set.TransferSerial()-q.serial) <= 0
	for record := range records {
		if m.count > 0 && len(w.out)+len(record)+optSize > transferSize {
			if !t.write(c, m.end()) {
				return false
			}
			m.begin(false)
		}
		w.out = append(w.out, record...)
		m.count++
		if onlySOA {
			break
		}
	}
	return t.write(c, m.end())
}

// transferMessage is the message of a transfer under way, in the worker's room.
type transferMessage struct {
	w     *tcpWorker
	msg   []byte
	count uint16
}

// begin starts a message; only the first one repeats the question (RFC 5936
// section 2.2.1).
func (m *transferMessage) begin(question bool) {
	q := m.w.responder.query
	m.count = 0
	m.w.out = append(append(m.w.out[:0], 0, 0), m.msg[:headerSize]...)
	h := m.w.out[2:]
	binary.BigEndian.PutUint16(h[2:], flagQR|flagAA|q.flags&(flagRD|flagCD))
	clear(h[4:headerSize])
	if question {
		h[5] = 1
		m.w.out = append(m.w.out, m.msg[headerSize:q.nameEnd+4]...)
	}
}

// end finishes a message.
func (m *transferMessage) end() []byte {
	h := m.w.out[2:]
	binary.BigEndian.PutUint16(h[6:], m.count)
	r := m.w.responder
	if r.query.edns.present {
		h[11] = 1
		m.w.out = r.query.appendOPT(m.w.out, r.shared.udpSize, zones.NoError, r.options, 0, 0)
	}
	m.w.out = r.tsig.sign(r.pad(m.w.out, 2), 2)
	return m.w.out
}
