package zones

import (
	"encoding/binary"
	"math"
	"slices"
)

// appended is where in the message an SRV record is, and which one.
type appended struct {
	at     int
	record uint32
	in     *piece // nil where the set is of one part
}

// appendTargets appends SRV records and the addresses of their targets.
func (a *Answer) appendTargets(w *writer, owner int, n *Counts) (cut bool) {
	if a.appendTogether(w, owner, n) {
		a.decision.written = len(a.order)
		return false
	}
	a.decision.written = a.appendSRVs(w, owner, n)
	if cut = a.cuts(a.decision.written); !cut {
		w.limit = w.extra
		a.appendGlue(w, n)
	}
	return cut
}

// appendTogether appends each SRV record together with the address of its target, where
// that is simple and all of it fits, as in most answers: the same as appendSRVs and
// appendGlue, which ask of each record what is asked of all here, and take twice as long.
// Where it is not so, it returns false and has appended nothing.
func (a *Answer) appendTogether(w *writer, owner int, n *Counts) bool {
	r, p, suffix := &a.records, a.part, a.service.suffix
	var records []uint32
	if r.ranking != nil {
		if records = r.records; r.pieces != nil || r.heads != nil {
			return false
		}
	}
	addresses := &p.v4.list
	if len(addresses.wire) == 0 {
		addresses = &p.v6.list
	} else if len(p.v6.wire) > 0 {
		return false
	}
	// Each record is to be of an endpoint of its own, and each endpoint a target of its own
	// that has the address of the endpoint's number.
	last := uint32(p.areas.all().end - 1)
	if a.own || p.targets != nil || addresses.pos != nil || !addresses.has(last) {
		return false
	}
	octets := len(a.order) * len(suffix)
	if r.size > 0 {
		octets += len(a.order) * r.size
	} else {
		for _, k := range a.order {
			if records != nil {
				k = records[k]
			}
			octets += int(r.offs[k+1] - r.offs[k])
		}
	}
	at, size := len(w.dst), addresses.size
	next := at + octets // where the first address goes
	end := next + len(a.order)*size
	if next > w.limit || end > w.extra || end-w.base > maxPointer {
		return false
	}
	dst, i := slices.Grow(w.dst, end-at)[:end], 0
	for _, s := range a.segments {
		if s.scale != 1 {
			return false
		}
		for ; i < s.end; i++ {
			k := a.order[i]
			if records != nil {
				k = records[k]
			}
			out, record, address := dst[at:], r.record(k), addresses.record(p.srv.place(k))
			copy(out, record)
			copy(out[len(record):], suffix)
			setOwner(out, owner)
			binary.BigEndian.PutUint16(out[fixedSize:], s.priority)
			copyAddress(dst[next:], address)
			setOwner(dst[next:], at-w.base+srvTarget)
			at += len(record) + len(suffix)
			next += size
		}
	}
	w.dst, a.appended = dst, a.appended[:0]
	n.Answer += uint16(len(a.order))
	n.Additional += uint16(len(a.order))
	return true
}

// appendSRVs appends SRV records and returns of how many endpoints all are there.
func (a *Answer) appendSRVs(w *writer, owner int, n *Counts) (written int) {
	suffix := a.service.suffix
	dst, most := w.dst, w.limit-len(suffix)
	list := a.appended[:0]
	in := 0 // segment
each:
	for i, endpoint := range a.order {
		if i == a.segments[in].end {
			in++
		}
		r := &a.records
		var of *piece
		if r.ranking != nil && r.pieces != nil {
			of, endpoint = r.find(endpoint)
			r = &of.rrset
		}
		for at, after := r.first(endpoint), r.after(endpoint); at < after; at++ {
			k := r.at(at)
			record := r.record(k)
			at := len(dst)
			if at+len(record) > most {
				break each
			}
			dst = append(append(dst, record...), suffix...)
			if owner != headerSize {
				setOwner(dst[at:], owner)
			}
			a.segments[in].set(dst[at:])
			list = append(list, appended{at - w.base, k, of})
		}
		written++
	}
	w.dst, a.appended = dst, list
	n.Answer += uint16(len(list))
	return written
}

// set writes priority and weight of an SRV record.
func (s *segment) set(record []byte) {
	binary.BigEndian.PutUint16(record[fixedSize:], s.priority)
	if s.scale != 1 {
		weight := float64(binary.BigEndian.Uint16(record[fixedSize+2:])) * s.scale
		binary.BigEndian.PutUint16(record[fixedSize+2:], uint16(min(max(1, math.Round(weight)), math.MaxUint16)))
	}
}

// appendGlue appends the addresses of the targets of the SRV records just
// appended, each target once, each of its sets whole or not at all (RFC 2181
// section 9).
func (a *Answer) appendGlue(w *writer, n *Counts) {
	if n := a.service.countNodes(); len(a.seen) < n {
		a.seen = make([]uint32, n+n/2)
		a.round = 0
	}
	if a.round++; a.round == 0 { // wrapped
		clear(a.seen)
		a.round = 1
	}
	for _, srv := range a.appended {
		p, before := a.part, uint32(0)
		if srv.in != nil {
			p, before = srv.in.part, srv.in.nodes
		}
		node := p.target(srv.record)
		at := before + p.number(node)
		if a.seen[at] == a.round {
			continue
		}
		a.seen[at] = a.round
		if !w.fits(sizeA) {
			return
		}
		target := srv.at + srvTarget
		v4, v6 := a.ofTarget.addresses(p, node)
		appendAddrs(w, target, &p.v4.list, v4, n)
		appendAddrs(w, target, &p.v6.list, v6, n)
	}
}
