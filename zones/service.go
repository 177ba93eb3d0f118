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

	external bool   // of type ExternalName: nothing exists below
	cname    []byte // its record, nil where the target is no name

	rules
	turns *turns // for Rotate

	v4, v6 *addresses
	srv    list
	areas  areas
	ready  *ready // where somebody is not ready and it matters

	named     bool     // something has a name of its own
	fallsBack bool     // nobody has the Readiness that is published: the fallback is
	published view     // at the Service's own name
	views     [3]*view // by Readiness, nil for what is published

	nodes   []node
	picks   []uint32
	labels  []label    // host names and pod names, by name
	ports   []portName // by name and protocol
	srvNode []uint32   // of each SRV record, the node that its target is
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
	names []uint32 // of each record: the index in labels of what it is called, as nameOf reads it
	nodes []uint32 // of each record: its node, marked if it has no name
}

// list is all records of one type that a Service has.
type list struct {
	wire []byte
	size int      // of each record, or 0: record i is wire[offs[i]:offs[i+1]]
	offs []uint32 // one more than records
	pos  []uint32 // the endpoint of each; nil: record i is endpoint i's
}

// node is the record lists of a name below the Service: picks[a:aaaa] of the A
// records, picks[aaaa:srv] of the AAAA and picks[srv:end] of the SRV.
type node struct{ a, aaaa, srv, end uint32 }

type label struct {
	name string
	node uint32 // marked if no endpoint with that label has a name now
}

// nameless marks a node that only the targets of SRV records lead to, in a view.
const nameless = 1 << 31

// portName is a name _<name>._<protocol>, which has a set in each view.
type portName struct {
	name     string
	protocol registry.Protocol
}

// nodeSets are the sets of a name below the Service.
type nodeSets struct {
	a, aaaa, srv set
	picked       [3]ranking
}

// fill makes them those of a node.
func (x *nodeSets) fill(s *service, n *node) {
	pick := func(i int, records []uint32) set {
		x.picked[i].records = records
		return set{n: len(records), ranking: &x.picked[i]}
	}
	x.a = pick(0, s.picks[n.a:n.aaaa])
	x.aaaa = pick(1, s.picks[n.aaaa:n.srv])
	x.srv = pick(2, s.picks[n.srv:n.end])
}

// view is the Service's own view for a Readiness.
func (s *service) view(r Readiness) *view {
	if v := s.views[r]; v != nil {
		return v
	}
	return &s.published
}

// hasAddresses says whether the Service's own name has any.
func (s *service) hasAddresses() bool { return s.published.a.n+s.published.aaaa.n > 0 }

// find is the node of a label below the Service: a host name beats a pod name
// beats an address with dashes.
func (s *service) find(name []byte) (*node, bool) {
	at := uint32(nameless)
	if i, ok := s.searchLabel(name); ok {
		at = s.labels[i].node
	} else if addr, ok := parseDashed(name); ok {
		if i, ok := s.findAddr(addr); ok {
			at = s.family(addr).nodes[i]
		}
	}
	if at&nameless != 0 {
		return nil, false
	}
	return &s.nodes[at], true
}

// searchLabel is where a host or pod name stands among the labels.
func (s *service) searchLabel(name []byte) (int, bool) {
	i, j := 0, len(s.labels)
	for i < j {
		h := int(uint(i+j) >> 1)
		if s.labels[h].name < string(name) {
			i = h + 1
		} else {
			j = h
		}
	}
	return i, i < len(s.labels) && s.labels[i].name == string(name)
}

// findAddr is which of the A or AAAA records has an address.
func (s *service) findAddr(addr netip.Addr) (record int, ok bool) {
	var buf [16]byte
	key := addrKey(&buf, addr)
	f := s.family(addr)
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

func (l *list) record(i uint32) []byte {
	if l.size > 0 {
		return l.wire[int(i)*l.size:][:l.size]
	}
	return l.wire[l.offs[i]:l.offs[i+1]]
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

func (s *service) family(addr netip.Addr) *addresses {
	if addr.Is4() {
		return s.v4
	}
	return s.v6
}

// noAddresses are those of a family that a Service has none of.
var noAddresses = [...]*addresses{{list: list{size: sizeA}}, {list: list{size: sizeAAAA}}}

// appendCanonical appends the wire name that PTR records of an address point to:
// its first host name, else in some zones its first pod's, else the address with
// dashes.
func (s *service) appendCanonical(dst []byte, addr netip.Addr, at int) []byte {
	if name, _ := s.nameOf(addr, at); name != "" {
		dst = append(dst, byte(len(name)))
		dst = append(dst, name...)
		return append(dst, s.suffix...)
	}
	start := len(dst)
	dst = appendDashed(append(dst, 0), addr)
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
func (s *service) nameOf(addr netip.Addr, at int) (name string, host bool) {
	n := s.family(addr).names[at]
	if n == byAddress || n == unnamed {
		return "", false
	}
	return s.labels[n&^podNamed-1].name, n&podNamed == 0
}
