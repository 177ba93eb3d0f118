package zones

import (
	"bytes"
	"net/netip"
	"sync/atomic"

	"epdns/registry"
	"epdns/zones/rank"
)

// service is one Service of one zone, compiled: every record it can answer with,
// as bytes, and the lists that say which of them belong to a name. It never
// changes once built.
//
// Its endpoints have numbers in order of their places: region, zone, node, then
// address. So those of one node, zone or region stand side by side, in the lists of
// records too, and what is near to an asker is a few runs of a list.
type service struct {
	source *registry.Service
	suffix []byte // wire name <svc>.<ns>.<zone>

	hidden   bool   // not in the zone: it is for the index alone
	external bool   // of type ExternalName: nothing exists below
	cname    []byte // its record, nil where the target is no name

	rules
	turns   *turns   // for Rotate
	indexed *indexed // as the index has it, in the first zone

	named     bool       // something has a name of its own
	numeric   bool       // a host or pod name may be read as an address
	fallsBack bool       // nobody has the Readiness that is published: the fallback is
	ports     []portName // by name and protocol

	part         // all records where the Service is compiled whole; else its areas and sets
	parts *parts // nil where it is whole
	trial trial  // of a Service that is whole though it is large
}

// part is the records of endpoints that stand side by side.
type part struct {
	v4, v6 *addresses
	srv    list
	areas  areas
	ready  *ready // where somebody is not ready and it matters

	published view     // at the Service's own name
	views     [3]*view // by Readiness, nil for what is published

	labels  []label  // host names and pod names, by name
	targets []uint32 // of each SRV record: the node that its target is; nil: that of its endpoint alone
	groups  *groups  // nil: all nodes are of one endpoint alone
}

// A node is a name below the Service, by a number: that of the endpoint whose records it
// has, or else, marked, that of a group. Most are of the first kind, and cost nothing.
const (
	grouped  = 1 << 30
	nameless = 1 << 31 // only the targets of SRV records lead there, in a view
)

// groups are the records of nodes that are several endpoints, or one that shares some of
// its records with others.
type groups struct {
	nodes []node
	picks []uint32
}

// rules are Settings as answers need them.
type rules struct {
	ttl, ttlEmpty, ttlNXDomain uint32
	churns                     bool // has shorter TTLs than its Settings say, for now
	limit, min                 int32
	fit                        Fit
	topology                   Topology // never TopologyAuto
	order                      rank.Order
}

// turns count the answers of each type: whoever asks for A and AAAA in turns, as libc
// does, must not meet every other endpoint only.
type turns struct{ a, aaaa, srv atomic.Uint32 }

// addresses are the A or the AAAA records, each address once.
type addresses struct {
	list
	order []uint32 // the records in order of their addresses
	names []uint32 // of each record: the index in labels of what it is called, as nameOf reads it; nil: all byAddress
	nodes []uint32 // of each record: its node, marked if it has no name; nil: that of its endpoint alone
}

// list is all records of one type that a Service has.
type list struct {
	wire []byte
	size int      // of each record, or 0: record i is wire[offs[i]:offs[i+1]]
	offs []uint32 // one more than records
	pos  []uint32 // the endpoint of each; nil: record i is endpoint i's
}

// node is the record lists of a group: picks[a:aaaa] of the A records, picks[aaaa:srv] of
// the AAAA and picks[srv:end] of the SRV.
type node struct{ a, aaaa, srv, end uint32 }

type label struct {
	name string
	node uint32 // marked if no endpoint with that label has a name now
}

// portName is a name _<name>._<protocol>, which has a set in each view.
type portName struct {
	name     string
	protocol registry.Protocol
}

// nodeSets are the sets of a name below the Service.
type nodeSets struct {
	a, aaaa, srv set
	picked       [3]ranking
	room         []uint32
}

// fill makes them those of a node.
func (x *nodeSets) fill(p *part, at uint32) {
	v4, v6, srv := x.records(p, at)
	for i, of := range [...]struct {
		set     *set
		records []uint32
	}{{&x.a, v4}, {&x.aaaa, v6}, {&x.srv, srv}} {
		x.picked[i].records = of.records
		*of.set = set{n: len(of.records), ranking: &x.picked[i]}
	}
}

func (x *nodeSets) records(p *part, at uint32) (v4, v6, srv []uint32) {
	v4, v6 = x.addresses(p, at)
	if at&grouped != 0 {
		n := &p.groups.nodes[at&^grouped]
		return v4, v6, p.groups.picks[n.srv:n.end]
	}
	x.room = p.srv.appendOf(x.room, at)
	return v4, v6, x.room[len(v4)+len(v6):]
}

// addresses are the A and AAAA records among them.
func (x *nodeSets) addresses(p *part, at uint32) (v4, v6 []uint32) {
	if at&grouped != 0 {
		n, picks := &p.groups.nodes[at&^grouped], p.groups.picks
		return picks[n.a:n.aaaa], picks[n.aaaa:n.srv]
	}
	x.room = p.v4.appendOf(x.room[:0], at)
	a := len(x.room)
	x.room = p.v6.appendOf(x.room, at)
	return x.room[:a], x.room[a:]
}

// appendOf appends the records of an endpoint.
func (l *list) appendOf(dst []uint32, endpoint uint32) []uint32 {
	if l.pos == nil {
		if l.has(endpoint) {
			dst = append(dst, endpoint)
		}
		return dst
	}
	i, j := 0, len(l.pos)
	for i < j {
		if h := int(uint(i+j) >> 1); l.pos[h] < endpoint {
			i = h + 1
		} else {
			j = h
		}
	}
	for ; i < len(l.pos) && l.pos[i] == endpoint; i++ {
		dst = append(dst, uint32(i))
	}
	return dst
}

// node is that of an address.
func (f *addresses) node(record int) uint32 {
	if f.nodes == nil {
		return f.place(uint32(record))
	}
	return f.nodes[record]
}

// name is what names holds.
func (f *addresses) name(record int) uint32 {
	if f.names == nil {
		return byAddress
	}
	return f.names[record]
}

// target is the node that the target of an SRV record is.
func (p *part) target(record uint32) uint32 {
	if p.targets == nil {
		return p.srv.place(record)
	}
	return p.targets[record]
}

// countNodes is how many nodes there may be.
func (p *part) countNodes() int {
	n := p.areas.all().end
	if p.groups != nil {
		n += len(p.groups.nodes)
	}
	return n
}

// number tells a node from others, from 0 up to countNodes.
func (p *part) number(node uint32) uint32 {
	if node&grouped != 0 {
		return uint32(p.areas.all().end) + node&^grouped
	}
	return node
}

// view is the Service's own view for a Readiness.
func (p *part) view(r Readiness) *view {
	if v := p.views[r]; v != nil {
		return v
	}
	return &p.published
}

// hasAddresses says whether the Service's own name has any.
func (s *service) hasAddresses() bool { return s.published.a.n+s.published.aaaa.n > 0 }

// find is the node of a label below the Service, and the part that it is in: a host
// name beats a pod name beats an address with dashes.
func (s *service) find(name []byte) (p *part, node uint32, ok bool) {
	if '0' <= name[0] && name[0] <= '9' && !s.numeric && s.parts == nil {
		if addr, ok := parseDashed(name); ok {
			return s.part.having(addr) // no label can be that
		}
	}
	p, node = s.leads(name), nameless
	if i, ok := p.searchLabel(name); ok {
		node = p.labels[i].node
	} else if addr, ok := parseDashed(name); ok {
		return s.holds(addr).having(addr)
	}
	return p, node, node&nameless == 0
}

// having is the node of an address in a part, as find has it.
func (p *part) having(addr netip.Addr) (_ *part, node uint32, ok bool) {
	node = nameless
	if i, ok := p.findAddr(addr); ok {
		node = p.family(addr).node(i)
	}
	return p, node, node&nameless == 0
}

// leads is the part that a host or pod name is in, if any is.
func (s *service) leads(name []byte) *part {
	if s.parts != nil {
		return s.parts.called(name)
	}
	return &s.part
}

// holds is the part that an address is in, if any is.
func (s *service) holds(addr netip.Addr) *part {
	if s.parts != nil {
		return s.parts.holds(addr)
	}
	return &s.part
}

// searchLabel is where a host or pod name stands among the labels.
func (p *part) searchLabel(name []byte) (int, bool) {
	i, j := 0, len(p.labels)
	for i < j {
		h := int(uint(i+j) >> 1)
		if p.labels[h].name < string(name) {
			i = h + 1
		} else {
			j = h
		}
	}
	return i, i < len(p.labels) && p.labels[i].name == string(name)
}

// findAddr is which of the A or AAAA records has an address.
func (p *part) findAddr(addr netip.Addr) (record int, ok bool) {
	var buf [16]byte
	key := addrKey(&buf, addr)
	f := p.family(addr)
	if len(f.wire) <= fewAddresses*sizeA && len(key) == 4 { // a look at them all takes less than the order
		for at := fixedSize; at < len(f.wire); at += sizeA {
			if [4]byte(f.wire[at:]) == [4]byte(key) {
				return at / sizeA, true
			}
		}
		return 0, false
	}
	i, j := 0, len(f.order)
	for i < j {
		h := int(uint(i+j) >> 1)
		switch c := bytes.Compare(f.record(f.order[h])[fixedSize:], key); {
		case c == 0:
			return int(f.order[h]), true
		case c < 0:
			i = h + 1
		default:
			j = h
		}
	}
	return 0, false
}

// fewAddresses are looked at one by one.
const fewAddresses = 16

func (l *list) record(i uint32) []byte {
	if l.size > 0 {
		return l.wire[int(i)*l.size:][:l.size]
	}
	return l.wire[l.offs[i]:l.offs[i+1]]
}

// has says whether there are more than i records, without the division that len takes.
func (l *list) has(i uint32) bool {
	if l.size > 0 {
		return int(i)*l.size < len(l.wire)
	}
	return int(i)+1 < len(l.offs)
}

// len is the number of records.
func (l *list) len() int {
	if l.size > 0 {
		return len(l.wire) / l.size
	}
	return len(l.offs) - 1
}

// place is the endpoint of a record.
func (l *list) place(record uint32) uint32 {
	if l.pos == nil {
		return record
	}
	return l.pos[record]
}

func (p *part) family(addr netip.Addr) *addresses {
	if addr.Is4() {
		return p.v4
	}
	return p.v6
}

// noAddresses are those of a family that a Service has none of.
var noAddresses = [...]*addresses{{list: list{size: sizeA}}, {list: list{size: sizeAAAA}}}

// appendCanonical appends the wire name that PTR records of an address point to:
// its first host name, else in some zones its first pod's, else the address with
// dashes.
func (s *service) appendCanonical(dst []byte, addr netip.Addr) []byte {
	start := len(dst)
	dst = append(dst, 0)
	if name, _ := s.holds(addr).nameOf(addr); name != "" {
		dst = append(dst, name...)
	} else {
		dst = appendDashed(dst, addr)
	}
	dst[start] = byte(len(dst) - start - 1)
	return append(dst, s.suffix...)
}

// What addresses.names holds: an index in labels plus one, marked where that is a
// pod's name and not a host name; or that the address is called by itself, with
// dashes; or that no name leads to it alone.
const (
	byAddress = 0
	podNamed  = 1 << 31
	unnamed   = 1<<32 - 1
)

// nameOf is the host or pod name that an address is called by, if any, and whether
// it is a host name.
func (p *part) nameOf(addr netip.Addr) (name string, host bool) {
	at, ok := p.findAddr(addr)
	if !ok {
		return "", false
	}
	n := p.family(addr).name(at)
	if n == byAddress || n == unnamed {
		return "", false
	}
	return p.labels[n&^podNamed-1].name, n&podNamed == 0
}
