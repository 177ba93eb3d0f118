package zones

import (
	"math"
	"math/bits"
	"net/netip"
	"slices"

	"epdns/zones/rank"
)

// Answer is what a Lookup found and the room to write it down. NewAnswer makes one;
// the zero Answer is of no use. It belongs to one goroutine, which uses it again and
// again: neither Lookup nor AppendTo allocates, but for the names that explain answers.
type Answer struct {
	RCode uint8
	EDE   uint16 // extended error (RFC 8914), 0 for none

	set     *Set
	zone    *zone
	zoneAt  int // its number
	service *service

	// The last name of the chain and its zone's apex within it.
	apexAt      int
	reverseApex []byte // of the reverse zone, nil in a forward zone

	chain [maxChain][]byte // CNAME records that led there
	hops  int

	// What that name has: a set of records, one of the records made when asked
	// for, PTR records, or a negative answer.
	records    rrset
	part       *part // that they are of, where they are of one
	own        bool  // an endpoint's own name
	ofNode     nodeSets
	ofTarget   nodeSets // of an SRV record
	viewed     bool
	viewOf     Readiness
	scope      scope
	glue       bool
	single     single
	singleType uint16
	holders    []holder
	ptrAddr    netip.Addr
	isNegative bool
	empty      bool   // since nothing is published
	negative   uint32 // TTL of a negative answer

	// Who asks, which is looked up when the answer depends on it.
	question *Question
	sight    *sight
	asked    bool
	asker    asker

	// Room, and the address that was asked.
	local    [1]netip.Addr
	offsets  [maxName/2 + 2]uint8
	value    []byte   // of a scope
	members  []uint32 // in a scope, where a span does not tell
	listed   bool     // that is so
	client   *rank.Client
	targets  rank.Targets
	order    []uint32 // endpoints of the set, best first
	far      []uint32 // those of the next tiers, while they are mixed in
	luck     uint64   // what lot made of the asker's key last
	fitting  int      // endpoints whose SRV records fit, about
	segments []segment
	decision decision
	appended []appended // SRV records in the message, but for those of appendTogether
	seen     []uint32   // round in which a node's addresses were appended last
	round    uint32
	ahead    []ahead // for LookAhead, and what it came to
	looked   int
	inner    *Answer // that an explanation is of, nil before the first
	inSight  []holder
}

// maxChain is how many aliases are followed inside our zones: more are a loop or
// a mistake.
const maxChain = 8

// single is a record that is made when it is asked for.
type single uint8

const (
	none single = iota
	singleSOA
	singleNS
	singleVersion
	singleANY
	singleNameserver
	singleExplain
)

// NewAnswer returns an Answer with room of its own.
func NewAnswer() *Answer { return &Answer{client: rank.NewClient()} }

// reset makes room for another answer. Structs are set each by itself: several at once
// would be built somewhere else first.
func (a *Answer) reset(s *Set) {
	a.RCode, a.EDE = NoError, 0
	a.set, a.zone, a.zoneAt, a.service, a.part = s, nil, 0, nil, nil
	a.apexAt, a.reverseApex = 0, nil
	a.hops = 0
	a.records = rrset{}
	a.glue, a.single, a.singleType = false, none, 0
	a.own, a.viewed = false, false
	a.scope = scope{}
	a.order = a.order[:0]
	a.segments = a.segments[:0]
	a.decision = decision{}
	a.sight = nil
	a.asked = false
	a.asker = asker{}
	a.holders = nil
	a.ptrAddr = netip.Addr{}
	a.isNegative, a.empty, a.negative = false, false, 0
}

// Authoritative says whether AA is set: on every answer from our zones, positive
// or negative.
func (a *Answer) Authoritative() bool { return a.RCode == NoError || a.RCode == NXDomain }

func (a *Answer) fail(rcode uint8, ede uint16) { a.RCode, a.EDE = rcode, ede }

// stale marks an answer that may be out of date (RFC 8914 sections 4.4 and 4.20). One
// that says nothing of what exists stays as it is.
func (a *Answer) stale() {
	switch {
	case a.EDE != 0:
	case a.RCode == NoError:
		a.EDE = EDEStale
	case a.RCode == NXDomain:
		a.EDE = EDEStaleNXDomain
	}
}

// nodata answers that the name exists and has no such record (RFC 2308 section
// 2.2), or, where it is empty, none at all at the moment.
func (a *Answer) nodata(empty bool) {
	a.isNegative, a.empty = true, empty
	if empty && a.service != nil {
		a.negative = a.service.ttlEmpty
	}
}

func (a *Answer) nxdomain() {
	a.RCode = NXDomain
	a.isNegative = true
}

// CountedBy is the name that replies like this one are counted by where there may not be
// more than so many. Names that exist without number count as one: those that do not
// exist by the zone's apex, those of a scope by the Service.
func (a *Answer) CountedBy() []byte {
	switch {
	case a.RCode == NXDomain && a.reverseApex != nil:
		return a.reverseApex
	case a.RCode == NXDomain:
		return a.zone.apex
	case a.scope.given:
		return a.service.suffix
	}
	return a.question.Name
}

// ask finds out who asks, once.
func (a *Answer) ask() {
	if !a.asked {
		a.asked = true
		a.set.locate(a.question, &a.asker)
	}
}

// Scope is how many bits of the Question's Subnet the answer depends on (RFC 7871
// section 7.2.1): as many as the reply may be kept for. It is to be called after
// AppendTo.
func (a *Answer) Scope() int {
	switch {
	case !a.question.Subnet.IsValid():
		return 0
	case len(a.set.cfg.sights) > 0:
		return a.question.Subnet.Bits() // others may see something else
	case !a.asked:
		return 0
	}
	bits := a.asker.same
	if a.question.Subnet.Addr().Is4() {
		bits = max(0, bits-96)
	}
	if a.service.order == rank.Hash || a.single == singleExplain {
		bits = max(bits, a.question.Subnet.Bits())
	}
	return bits
}

// Place is what an answer has to do with where the asker is.
type Place uint8

const (
	PlaceIdle    Place = iota // nothing
	PlaceUnknown              // it would depend on it, but that is not known
	PlaceNeutral              // nor is it to be known: a shared cache asks
	PlaceECS                  // from here on: what told it
	PlaceEndpoints
	PlaceNodes
	PlacePodCIDRs
	PlacePlaces

	Places // how many there are
)

// Place is to be called after AppendTo.
func (a *Answer) Place() Place {
	switch {
	case !a.asked:
		return PlaceIdle
	case a.asker.neutral:
		return PlaceNeutral
	case a.asker.source == 0:
		return PlaceUnknown
	case a.question.Subnet.IsValid():
		return PlaceECS
	}
	return PlaceECS + Place(bits.TrailingZeros8(uint8(a.asker.source)))
}

func (p Place) String() string {
	return [Places]string{"idle", "unknown", "neutral", "ecs", "endpoints", "nodes", "podCIDRs", "places"}[p]
}

// Capped says whether the answer leaves out endpoints that are as good as those that it
// has, since it is limited to so many (limit), or has as many as fit (fit: cut). It is to be
// called after AppendTo, of an answer that is not cut.
func (a *Answer) Capped() bool {
	d := &a.decision
	return a.records.set != nil && (d.written < len(a.order) || len(a.order) == d.bound && d.bound < d.of)
}

// Counts are the records of each section, as the header gives them.
type Counts struct{ Answer, Authority, Additional uint16 }

// AppendTo appends the sections to dst, in which a message stands from base on,
// header and question already there. The message does not grow past limit, nor by
// its additional section past extra. cut says that a record which belongs to the
// answer was left out (TC, RFC 2181 section 9); addresses in the additional section
// are left out before that and without a word.
func (a *Answer) AppendTo(dst []byte, base, limit, extra int) (out []byte, n Counts, cut bool) {
	var w writer // its fields one by one: all at once it would be built somewhere else first
	w.dst, w.base = dst, base
	w.limit = base + limit
	w.extra = base + min(limit, extra)
	owner := headerSize
	for _, cname := range a.chain[:a.hops] {
		at := len(w.dst) - base
		if !w.fits(len(cname)) {
			return w.dst, n, true
		}
		w.dst = append(w.dst, cname...)
		setOwner(w.dst[base+at:], owner)
		n.Answer++
		owner = at + fixedSize
	}
	switch {
	case a.isNegative:
		if cut = !a.appendNegative(&w, owner); !cut {
			n.Authority++
		}
	case a.single != none:
		cut = a.appendSingle(&w, owner, &n)
	case a.holders != nil:
		cut = a.appendPointers(&w, owner, &n)
	case a.records.set != nil:
		cut = a.appendRecords(&w, owner, &n)
	}
	return w.dst, n, cut
}

// writer is the message under way.
type writer struct {
	dst   []byte
	base  int
	limit int // of what belongs to the answer
	extra int // of the additional section
}

func (w *writer) fits(n int) bool { return len(w.dst)+n <= w.limit }

// keep takes back what was appended since mark if it went past the limit.
func (w *writer) keep(mark int) bool {
	if len(w.dst) > w.limit {
		w.dst = w.dst[:mark]
		return false
	}
	return true
}

// appendNegative appends the SOA, whose TTL and MINIMUM are both the time that
// the negative answer may be kept (RFC 2308 section 5; some caches read one and
// some the other).
func (a *Answer) appendNegative(w *writer, owner int) bool {
	mark := len(w.dst)
	if a.reverseApex != nil {
		w.dst = appendSOA(w.dst, owner+a.apexAt, a.negative, a.set.cfg.zones[0].apex, a.set.serial, a.negative)
	} else {
		w.dst = appendSOACompressed(w.dst, a.negative, owner+a.apexAt, a.set.serial, a.negative)
	}
	return w.keep(mark)
}

// appendRecords appends the set in ranked order, as much of it as fits.
func (a *Answer) appendRecords(w *writer, owner int, n *Counts) (cut bool) {
	r := &a.records
	room := max(0, w.limit-len(w.dst))
	size := r.size
	if size == 0 {
		size = fixedSize + 6 + len(a.service.suffix) // no SRV record is shorter: a bound is enough
		a.fitting = room * r.n / max(1, (r.octets()+len(a.service.suffix))*r.count())
	}
	want := room / size
	if r.size == 0 || a.service.fit == Truncate {
		want++ // one more than can fit, so that a cut is noticed
	}
	a.rank(want)
	if a.glue {
		return a.appendTargets(w, owner, n)
	}
	written := a.appendAddresses(w, owner)
	n.Answer += uint16(written)
	a.decision.written = written
	return a.cuts(written)
}

// cuts says whether the answer is cut where the records of so many endpoints are in it.
func (a *Answer) cuts(written int) bool {
	return written < len(a.order) && a.service.fit == Truncate
}

// appendAddresses appends A or AAAA records, as many as fit, and returns how many.
func (a *Answer) appendAddresses(w *writer, owner int) (written int) {
	size, wire, order := a.records.size, a.records.wire, a.order
	var records []uint32
	if a.records.ranking != nil {
		if a.records.pieces != nil {
			return a.gatherAddresses(w, owner)
		}
		records = a.records.records
	}
	written = min(len(order), max(0, w.limit-len(w.dst))/size)
	at := len(w.dst)
	w.dst = slices.Grow(w.dst, written*size)[:at+written*size]
	out := w.dst[at:]
	for _, k := range order[:written] {
		if records != nil {
			k = records[k]
		}
		copyAddress(out, wire[int(k)*size:][:size])
		if owner != headerSize {
			setOwner(out, owner)
		}
		out = out[size:]
	}
	return written
}

// copyAddress copies an A or AAAA record. A copy of a known size takes no call.
func copyAddress(dst, record []byte) {
	if len(record) == sizeA {
		*(*[sizeA]byte)(dst) = [sizeA]byte(record)
	} else {
		*(*[sizeAAAA]byte)(dst) = [sizeAAAA]byte(record)
	}
}

// gatherAddresses is appendAddresses where the records are of several parts.
func (a *Answer) gatherAddresses(w *writer, owner int) (written int) {
	for i, k := range a.order {
		p, k := a.records.find(k)
		record := p.record(p.at(k))
		if !w.fits(len(record)) {
			return i
		}
		at := len(w.dst)
		w.dst = append(w.dst, record...)
		setOwner(w.dst[at:], owner)
	}
	return len(a.order)
}

// appendAddrs appends one target's addresses of one family: these records of a list.
// Past the reach of a pointer the owner is written out.
func appendAddrs(w *writer, target int, l *list, records []uint32, n *Counts) {
	if len(records) == 0 {
		return
	}
	size := l.size
	if target > maxPointer {
		size += nameLen(w.dst[w.base+target:]) - 2
	}
	if !w.fits(len(records) * size) {
		return
	}
	dst := w.dst
	for _, k := range records {
		record := l.record(k)
		if target <= maxPointer {
			at := len(dst)
			dst = append(dst, record...)
			setOwner(dst[at:], target)
			continue
		}
		name := dst[w.base+target:]
		dst = append(append(dst, name[:nameLen(name)]...), record[2:]...)
	}
	w.dst = dst
	n.Additional += uint16(len(records))
}

// recordsOf are the records of a set, until it is called again. Of a Service in parts
// there are none: only a nameserver is asked for them, which is whole or not at all.
func (a *Answer) recordsOf(x *set) []uint32 {
	a.order = a.order[:0]
	if x.ranking != nil && x.pieces != nil {
		return nil
	}
	for i := range x.count() {
		a.order = append(a.order, x.at(uint32(i)))
	}
	return a.order
}

// appendPointers appends one PTR record for each Service that names the address, all
// of them with the shortest of their TTLs (RFC 2181 section 5.2).
func (a *Answer) appendPointers(w *writer, owner int, n *Counts) (cut bool) {
	ttl := uint32(math.MaxUint32)
	for i := range a.holders {
		if len(a.holders) > 1 && a.holders[i].named {
			s, _ := a.set.services[0].getString(a.holders[i].by.key)
			ttl = min(ttl, s.ttl)
		}
	}
	for i := range a.holders {
		if !a.holders[i].named {
			continue
		}
		s, _ := a.set.services[0].getString(a.holders[i].by.key)
		mark := len(w.dst)
		w.dst = appendFixed(w.dst, owner, TypePTR, min(ttl, s.ttl), 0)
		w.dst = s.appendCanonical(w.dst, a.ptrAddr)
		length := len(w.dst) - mark - fixedSize
		w.dst[mark+fixedSize-2], w.dst[mark+fixedSize-1] = byte(length>>8), byte(length)
		if !w.keep(mark) {
			return true
		}
		n.Answer++
		a.decision.written++
	}
	return false
}

// appendSingle appends a record that is made when asked for.
func (a *Answer) appendSingle(w *writer, owner int, n *Counts) (cut bool) {
	primary := a.set.cfg.zones[0]
	if a.zone != nil && a.reverseApex == nil {
		primary = a.zone
	}
	mark := len(w.dst)
	switch a.single {
	case singleSOA:
		w.dst = appendSOA(w.dst, owner, primary.ttlNXDomain, primary.apex, a.set.serial, primary.ttlNXDomain)
	case singleVersion:
		w.dst = append(appendFixed(w.dst, owner, TypeTXT, primary.ttl, len(schemaVersion)), schemaVersion...)
	case singleANY:
		w.dst = append(appendFixed(w.dst, owner, TypeHINFO, primary.ttl, len(minimalANY)), minimalANY...)
	case singleNS:
		target := len(w.dst) - w.base + fixedSize
		w.dst = appendFixed(w.dst, owner, TypeNS, primary.ttl, len(nsLabels)+len(primary.apex))
		w.dst = append(append(w.dst, nsLabels...), primary.apex...)
		if !w.keep(mark) {
			return true
		}
		n.Answer++
		w.limit = w.extra
		switch s := a.set.nameserverService(a.zoneAt); {
		case s == nil || !shows(a.sight, "dns"):
			a.appendNameservers(w, target, primary, TypeANY, &n.Additional)
		default:
			appendAddrs(w, target, &s.v4.list, a.recordsOf(&s.published.a), n)
			appendAddrs(w, target, &s.v6.list, a.recordsOf(&s.published.aaaa), n)
		}
		return false
	case singleExplain:
		w.dst = a.appendExplain(w.dst, owner)
	case singleNameserver:
		return a.appendNameservers(w, owner, primary, a.singleType, &n.Answer)
	}
	if !w.keep(mark) {
		return true
	}
	n.Answer++
	return false
}

// appendNameservers appends the addresses of ns.dns.<zone>.
func (a *Answer) appendNameservers(w *writer, owner int, z *zone, typ uint16, count *uint16) (cut bool) {
	for _, addr := range a.nameservers() {
		if addr.Is4() && typ == TypeAAAA || addr.Is6() && typ == TypeA {
			continue
		}
		mark := len(w.dst)
		w.dst = appendAddr(w.dst, owner, z.ttl, addr)
		if !w.keep(mark) {
			return true
		}
		*count++
	}
	return false
}
