package zones

import (
	"encoding/binary"
	"iter"
	"net/netip"
)

// Transfer yields the records of the zone with that apex (lower-case wire form),
// a forward or a reverse one, as an AXFR sends them (RFC 5936 section 2.2): the
// SOA first and last, everything else once between. They are those of the Set
// that the serial stands for, from first to last. Each record is in wire form with
// its owner written out, and valid until the next one. ok is false where there is
// no such zone or the Set is not synced.
//
// local is the address that was asked, as in a Question.
func (s *Set) Transfer(apex []byte, local netip.Addr) (records iter.Seq[[]byte], ok bool) {
	s = s.transfer
	if !s.synced {
		return nil, false
	}
	for i, z := range s.cfg.zones {
		if string(z.apex) == string(apex) {
			return s.walkZone(i, z, local), true
		}
	}
	for i := range s.cfg.reverse {
		if z := &s.cfg.reverse[i]; string(z.apex) == string(apex) {
			return s.walkReverse(z), true
		}
	}
	return nil, false
}

// Apexes yields the apex of each zone that Transfer knows, as text and in wire form.
// They are the same in every Set of a Builder.
func (s *Set) Apexes() iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for _, z := range s.cfg.zones {
			if !yield(nameText(z.apex), z.apex) {
				return
			}
		}
		for i := range s.cfg.reverse {
			if apex := s.cfg.reverse[i].apex; !yield(nameText(apex), apex) {
				return
			}
		}
	}
}

// InTransfer says whether a name lies within a zone that Transfer knows, which
// decides between NOTAUTH and REFUSED.
func (s *Set) InTransfer(name []byte) bool {
	for _, z := range s.cfg.zones {
		if within(name, z.apex) {
			return true
		}
	}
	return s.cfg.reverseZone(name) != nil
}

// walker writes owners out in front of records.
type walker struct {
	buf   []byte
	yield func([]byte) bool
	ended bool
}

// put yields a fragment under an owner, with what it ends with where that is apart.
func (w *walker) put(owner, fragment []byte, tail ...byte) {
	if w.ended {
		return
	}
	w.buf = append(append(append(w.buf[:0], owner...), fragment[2:]...), tail...)
	w.ended = !w.yield(w.buf)
}

func (w *walker) putSet(owner []byte, r rrset, tail ...byte) {
	if r.ranking != nil && r.pieces != nil {
		for i := range r.pieces {
			w.putSet(owner, r.pieces[i].rrset, tail...)
		}
		return
	}
	for i := range r.count() {
		w.put(owner, r.record(r.at(uint32(i))), tail...)
	}
}

func (s *Set) walkZone(at int, z *zone, local netip.Addr) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		w := &walker{yield: yield}
		soa := appendSOA(nil, headerSize, z.ttlNXDomain, z.apex, s.serial, z.ttlNXDomain)
		if w.put(z.apex, soa); w.ended {
			return
		}
		ns := append(append([]byte{}, nsLabels...), z.apex...)
		w.put(z.apex, appendNamed(nil, headerSize, TypeNS, z.ttl, ns))
		if s.nameserverService(at) == nil {
			a := Answer{set: s, local: [1]netip.Addr{local}}
			for _, addr := range a.nameservers() {
				w.put(ns, appendAddr(nil, headerSize, z.ttl, addr))
			}
		}
		w.put(append([]byte("\x0bdns-version"), z.apex...), append(appendFixed(nil, headerSize, TypeTXT, z.ttl, len(schemaVersion)), schemaVersion...))
		s.services[at].all(func(key string, svc *service) bool {
			if !svc.hidden && !(svc.external && z.layout == Short && key == string(nsLabels)) { // ns.dns has addresses
				svc.walk(w)
			}
			return !w.ended
		})
		w.put(z.apex, soa)
	}
}

// walk puts the records of one Service at all its names.
func (s *service) walk(w *walker) {
	if s.external {
		if s.cname != nil {
			w.put(s.suffix, s.cname)
		}
		return
	}
	var owner []byte
	putView := func(v *view, label string) {
		name := s.suffix
		if label != "" {
			name = append(appendLabel(nil, label), s.suffix...)
		}
		if len(name) > maxName {
			return
		}
		w.putSet(name, rrset{&s.v4.list, &v.a})
		w.putSet(name, rrset{&s.v6.list, &v.aaaa})
		w.putSet(name, rrset{&s.srv, &v.srv}, s.suffix...)
		for i, p := range s.ports {
			owner = appendLabel(owner[:0], "_"+p.name)
			owner = append(appendLabel(owner, protocolLabels[p.protocol]), name...)
			if len(owner) <= maxName {
				w.putSet(owner, rrset{&s.srv, &v.ports[i]}, s.suffix...)
			}
		}
	}
	putView(&s.published, "")
	for _, r := range []Readiness{Ready, Serving, All} {
		putView(s.view(r), "_"+r.String())
	}
	put := func(label string, p *part, node uint32) {
		owner = append(appendLabel(owner[:0], label), s.suffix...)
		var sets nodeSets
		sets.fill(p, node)
		w.putSet(owner, rrset{&p.v4.list, &sets.a})
		w.putSet(owner, rrset{&p.v6.list, &sets.aaaa})
		w.putSet(owner, rrset{&p.srv, &sets.srv}, s.suffix...)
	}
	for p := range s.all {
		for i := range p.labels {
			if l := &p.labels[i]; l.node&nameless == 0 {
				put(l.name, p, l.node)
			}
		}
	}
	for addr := range s.addrs() {
		// Where the address in dashes is somebody's host name, that is what it means.
		label := dashed(addr)
		if _, taken := s.leads([]byte(label)).searchLabel([]byte(label)); !taken && s.fits(label) {
			if p, node, ok := s.find([]byte(label)); ok {
				put(label, p, node)
			}
		}
	}
}

func (s *Set) walkReverse(z *reverseZone) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		w := &walker{yield: yield}
		primary := s.cfg.zones[0]
		soa := appendSOA(nil, headerSize, primary.ttlNXDomain, primary.apex, s.serial, primary.ttlNXDomain)
		if w.put(z.apex, soa); w.ended {
			return
		}
		w.put(z.apex, appendNamed(nil, headerSize, TypeNS, primary.ttl, append(append([]byte{}, nsLabels...), primary.apex...)))
		a := NewAnswer()
		s.index.all(func(addr netip.Addr, holders []holder) bool {
			if !z.block.contains(addr) || !anyNamed(holders) {
				return true
			}
			b := blockOf(addr, z.block.parts)
			name := appendReverse(nil, &b)
			s.Lookup(&Question{Name: name, Type: TypePTR}, a)
			message := append(make([]byte, headerSize), name...)
			message, n, _ := a.AppendTo(append(message, 0, TypePTR, 0, classIN), 0, 1<<16, 0)
			for at := headerSize + len(name) + 4; n.Answer > 0; n.Answer-- {
				end := at + fixedSize + int(binary.BigEndian.Uint16(message[at+fixedSize-2:]))
				w.put(name, message[at:end])
				at = end
			}
			return !w.ended
		})
		w.put(z.apex, soa)
	}
}

// TransferSerial is the serial of the Set that transfers serve.
func (s *Set) TransferSerial() uint32 { return s.transfer.serial }
