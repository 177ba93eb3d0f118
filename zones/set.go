package zones

import (
	"bytes"
	"net/netip"
	"sync/atomic"
	"time"

	"epdns/registry"
)

// Set is all that is served at one moment: every zone, every Service, the reverse
// index. It never changes. Readers load it once per question (or per transfer) and
// use it until they are done; there is nothing to lock and nothing to release.
type Set struct {
	cfg    *config
	synced bool
	plain  bool // it is not stale, and all askers see all
	serial uint32

	// transfer is the Set that the serial names, which transfers serve. Live
	// answers may be newer, since there is at most one serial a second.
	transfer *Set

	services   []table[*service] // of each zone, by <svc>.<ns>
	namespaces []table[int]      // of each zone: Services in each, by label
	index      index
	blocks     table[int] // reverse names above addresses, within reverse zones

	ids     ids
	atlas   *atlas
	without Sources // those that are off, in the configuration or by themselves

	// asOf is zero, or until when what is served is known to be right: see Stale.
	asOf time.Time
}

// config is Config, compiled.
type config struct {
	zones       []*zone
	reverse     []reverseZone
	nameservers []netip.Addr
	noExplain   bool

	clients                  Clients
	forwarders, sharedCaches ranges
	sights                   []sight
}

type zone struct {
	layout        Layout
	empty         Empty
	endpointNames EndpointNames
	only          []rule // of which a Service must match one; none: all are in the zone
	knobs         *knobs

	apex                       []byte
	labels                     int
	ttl, ttlEmpty, ttlNXDomain uint32
}

// reverseZone is a zone of PTR records that is answered with authority.
type reverseZone struct {
	block block
	apex  []byte
}

// Store holds the Set that is served.
type Store struct{ set atomic.Pointer[Set] }

// Load is the Set that is served now: one atomic load, from any goroutine. It is
// nil before the first Publish.
func (s *Store) Load() *Set { return s.set.Load() }

// Publish puts a Set in service for all questions that come from now on.
func (s *Store) Publish(set *Set) { s.set.Store(set) }

// Serial is that of every SOA in the Set, RFC 1982.
func (s *Set) Serial() uint32 { return s.serial }

// Synced says whether the Set is complete. One that is not answers SERVFAIL.
func (s *Set) Synced() bool { return s.synced }

// Stale returns the Set as one that is known to be right until asOf only: nothing has
// been heard of what exists since. Its answers say so to who knows extended errors (RFC
// 8914), and are the same otherwise.
func (s *Set) Stale(asOf time.Time) *Set {
	next := *s
	next.asOf, next.plain = asOf, false
	return &next
}

// AsOf is until when a stale Set is known to be right, and zero for any other.
func (s *Set) AsOf() time.Time { return s.asOf }

// Services is the number of Services in each zone.
func (s *Set) Services() int { return s.services[0].len() }

// Question is what is asked.
type Question struct {
	Name []byte // wire form, lower-case, with the root label
	Type uint16

	// Local is the address that the question came to, the answer for ns.dns
	// where no nameserver is configured.
	Local netip.Addr

	// From is who asks, an IPv4 address not as an IPv6 one. Subnet is for whom, if
	// a forwarder says so that Trusts knows; it has no bits beyond its length.
	// Unbelieved is what somebody else says, which counts for nothing and is explained.
	From               netip.Addr
	Subnet, Unbelieved netip.Prefix
}

// RCODEs (RFC 1035 section 4.1.1) and extended errors (RFC 8914) of an Answer.
const (
	NoError  = 0
	ServFail = 2
	NXDomain = 3
	Refused  = 5

	EDEStale            = 3
	EDENotReady         = 14
	EDEStaleNXDomain    = 19
	EDENotAuthoritative = 20
)

// Lookup finds the answer to q and leaves it in ans, whose room is used again. It
// keeps q, which must not change until ans is not needed any more.
func (s *Set) Lookup(q *Question, ans *Answer) {
	ans.reset(s)
	ans.question = q
	ans.local[0] = q.Local
	if s.plain { // almost always, so that nothing else is looked at
		ans.lookup(q.Name, q.Type)
	} else {
		ans.lookupSeen()
	}
}

// lookupSeen answers by what the asker sees, and marks what may be out of date.
func (a *Answer) lookupSeen() {
	q := a.question
	a.sight = a.set.cfg.sightOf(q.From, q.Subnet)
	a.lookup(q.Name, q.Type)
	if !a.set.asOf.IsZero() {
		a.stale()
	}
}

// lookup answers for one name of the chain; it is called again for the target of
// an alias inside our zones.
func (a *Answer) lookup(name []byte, typ uint16) {
	labels := a.split(name)
	for i, z := range a.set.cfg.zones {
		if labels >= z.labels && bytes.Equal(name[a.offsets[labels-z.labels]:], z.apex) {
			a.zone, a.zoneAt = z, i
			a.apexAt = int(a.offsets[labels-z.labels])
			if !a.set.synced {
				a.fail(ServFail, EDENotReady)
				return
			}
			a.forward(name, labels-z.labels, typ)
			return
		}
	}
	if a.hops > 0 {
		return // the alias leads out of our zones: the asker goes on from there
	}
	a.reverse(name, typ)
}

// split notes where the labels of a name start, the root's too.
func (a *Answer) split(name []byte) (labels int) {
	at := 0
	for name[at] != 0 {
		a.offsets[labels] = uint8(at)
		labels++
		at += 1 + int(name[at])
	}
	a.offsets[labels] = uint8(at)
	return labels
}

// label is label i of the name last split.
func (a *Answer) label(name []byte, i int) []byte {
	return name[int(a.offsets[i])+1 : a.offsets[i+1]]
}

// forward answers a name of the zone found, with n labels before the apex. Names
// are read from the right: namespace, Service, the rest; in the Kubernetes layout
// after the label svc.
func (a *Answer) forward(name []byte, n int, typ uint16) {
	a.negative = a.zone.ttlNXDomain
	if n == 0 {
		a.apex(typ)
		return
	}
	underSvc := a.zone.layout == Kubernetes && string(a.label(name, n-1)) == "svc"
	if a.zone.layout == Short || underSvc {
		if underSvc {
			n--
		}
		if a.services(name, n, typ) {
			return
		}
	}
	// What every zone has, unless a Service has that name.
	switch {
	case underSvc:
		a.nxdomain()
	case n == 1 && string(a.label(name, 0)) == "dns-version":
		if typ == TypeTXT || typ == TypeANY {
			a.single = singleVersion
			return
		}
		a.nodata(false)
	case n == 1 && string(a.label(name, 0)) == "dns": // ns.dns is below
		a.nodata(false)
	case n == 2 && string(name[:a.offsets[2]]) == string(nsLabels):
		a.nameserver(typ)
	default:
		a.nxdomain()
	}
}

// services answers for a name of n labels where Services and namespaces are. It
// returns false, and has answered nothing, where there is neither.
func (a *Answer) services(name []byte, n int, typ uint16) bool {
	switch n {
	case 0: // svc.<zone>
		a.nodata(false)
		return true
	case 1:
		if a.zone.layout == Short && string(a.label(name, 0)) == "dns-version" {
			return false // has a record of its own, whatever is below
		}
		_, ok := a.set.namespaces[a.zoneAt].get(name[:a.offsets[1]])
		if ok = ok && shows(a.sight, a.label(name, 0)); ok {
			a.nodata(false)
		}
		return ok
	}
	key := name[a.offsets[n-2]:a.offsets[n]]
	svc, ok := a.set.services[a.zoneAt].get(key)
	if !ok || svc.hidden || a.sight != nil && !shows(a.sight, a.label(name, n-1)) {
		return false
	}
	if n == 2 && a.zone.layout == Short && string(key) == string(nsLabels) && !svc.hasAddresses() {
		return false
	}
	a.service, a.negative = svc, svc.ttlNXDomain
	switch {
	case svc.external && n > 2:
		a.nxdomain()
	case svc.external && svc.cname == nil:
		a.nodata(false)
	case svc.external:
		a.alias(svc.cname, typ)
	default:
		a.ofService(name, n-2, typ)
	}
	return true
}

// ofService answers for a name with n labels before the Service's. From the right
// they may be: a view, a scope, and then a port or one endpoint.
func (a *Answer) ofService(name []byte, n int, typ uint16) {
	v, viewed := &a.service.published, false
	if n > 0 {
		if r, ok := viewOf(a.label(name, n-1)); ok {
			v, viewed = a.service.view(r), true
			a.viewed, a.viewOf = true, r
			n--
		}
	}
	if a.zone.empty == Nonexist && !a.service.named && !(viewed && v.a.n+v.aaaa.n > 0) {
		a.negative = a.service.ttlEmpty
		a.nxdomain()
		return
	}
	switch {
	case n == 0:
		a.answer(typ, &v.a, &v.aaaa, &v.srv)
	case isScope(a.label(name, n-1)):
		a.scoped(name, n, v, typ)
	case n == 1 && !viewed && !a.set.cfg.noExplain && string(a.label(name, 0)) == "_explain":
		a.explain(typ)
	case n == 1 && isUnderscored(a.label(name, 0)):
		a.protocol(name, typ)
	case n == 1 && !viewed:
		a.endpoint(a.label(name, 0), typ)
	case n == 2:
		a.port(name, v, typ)
	default:
		a.nxdomain()
	}
}

// viewOf is the Readiness that a label asks for.
func viewOf(label []byte) (r Readiness, ok bool) {
	switch string(label) {
	case "_ready":
		return Ready, true
	case "_serving":
		return Serving, true
	case "_all":
		return All, true
	}
	return 0, false
}

func isUnderscored(label []byte) bool { return label[0] == '_' }

// endpoint answers <label>.<svc>.<ns>.
func (a *Answer) endpoint(label []byte, typ uint16) {
	p, n, ok := a.service.find(label)
	if !ok {
		a.nxdomain()
		return
	}
	a.own, a.part = true, p
	a.ofNode.fill(p, n)
	a.answer(typ, &a.ofNode.a, &a.ofNode.aaaa, &a.ofNode.srv)
}

// explain answers _explain.<svc>.<ns>: why the asker gets what it gets.
func (a *Answer) explain(typ uint16) {
	switch typ {
	case TypeTXT:
		a.single = singleExplain
		a.ask()
	case TypeANY:
		a.single = singleANY
	default:
		a.nodata(false)
	}
}

// protocol answers for the first label of a name, which may be a protocol above the
// names of ports.
func (a *Answer) protocol(name []byte, typ uint16) {
	label := a.label(name, 0)
	for i := range a.service.ports {
		if string(label) == protocolLabels[a.service.ports[i].protocol] {
			a.nodata(false)
			return
		}
	}
	a.nxdomain()
}

// port answers for the first two labels of a name, _<port>._<proto>.
func (a *Answer) port(name []byte, v *view, typ uint16) {
	port, protocol := a.label(name, 0), a.label(name, 1)
	for i := range a.service.ports {
		p := &a.service.ports[i]
		if len(port) > 1 && port[0] == '_' && string(port[1:]) == p.name && string(protocol) == protocolLabels[p.protocol] {
			a.answer(typ, &noSet, &noSet, &v.ports[i])
			return
		}
	}
	a.nxdomain()
}

// protocolLabels are the second labels of port names (RFC 2782; Kubernetes DNS
// specification 2.3.2).
var protocolLabels = [...]string{registry.TCP: "_tcp", registry.UDP: "_udp", registry.SCTP: "_sctp"}

// answer picks the set of the type asked for, and of that what lies in the scope.
func (a *Answer) answer(typ uint16, v4, v6, srv *set) {
	if a.part == nil {
		a.part = &a.service.part
	}
	p := a.part
	switch typ {
	case TypeA:
		a.records = rrset{&p.v4.list, v4}
	case TypeAAAA:
		a.records = rrset{&p.v6.list, v6}
	case TypeSRV:
		a.records = rrset{&p.srv, srv}
		a.glue = true
	}
	if a.records.set != nil && a.chosen(&a.records).len() > 0 {
		return
	}
	n := v4.n + v6.n + srv.n
	if a.scope.given {
		n = 0
		for _, r := range []rrset{{&p.v4.list, v4}, {&p.v6.list, v6}, {&p.srv, srv}} {
			n += a.chosen(&r).len()
		}
	}
	if typ == TypeANY && n > 0 {
		a.single = singleANY
		return
	}
	a.nodata(n == 0)
}

// noSet is the set of a type that a name never has.
var noSet set

func (a *Answer) apex(typ uint16) {
	switch typ {
	case TypeSOA:
		a.single = singleSOA
	case TypeNS:
		a.single = singleNS
	case TypeANY:
		a.single = singleANY
	default:
		a.nodata(false)
	}
}

// nameserverService is the Service that has the name ns.dns.<zone>, if one does. The
// target of an NS record must have addresses and be no alias (RFC 2181 section 10.3),
// so only a Service with addresses takes the name.
func (s *Set) nameserverService(zoneAt int) *service {
	if s.cfg.zones[zoneAt].layout != Short {
		return nil
	}
	if svc, _ := s.services[zoneAt].get(nsLabels); svc != nil && !svc.hidden && svc.hasAddresses() {
		return svc
	}
	return nil
}

// nameserver answers ns.dns.<zone>, unless a Service has that name.
func (a *Answer) nameserver(typ uint16) {
	for _, addr := range a.nameservers() {
		switch {
		case typ == TypeANY:
			a.single = singleANY
			return
		case addr.Is4() && typ == TypeA, addr.Is6() && typ == TypeAAAA:
			a.single = singleNameserver
			a.singleType = typ
			return
		}
	}
	a.nodata(false)
}

// nameservers are the configured addresses of ns.dns.<zone>, else the one that
// was asked, unless it means nothing to others.
func (a *Answer) nameservers() []netip.Addr {
	if len(a.set.cfg.nameservers) > 0 {
		return a.set.cfg.nameservers
	}
	if l := a.local[0]; l.IsValid() && !l.IsLoopback() && !l.IsUnspecified() {
		return a.local[:]
	}
	return nil
}

// alias adds a CNAME and goes on at its target where that is ours. Where it comes
// round to an alias that it has been at, or after the last step, the chain is left as
// it is.
func (a *Answer) alias(cname []byte, typ uint16) {
	for _, been := range a.chain[:a.hops] {
		if &been[0] == &cname[0] {
			return
		}
	}
	if a.hops == maxChain {
		return
	}
	a.chain[a.hops] = cname
	a.hops++
	if typ == TypeCNAME || typ == TypeANY {
		return
	}
	a.service, a.part, a.negative = nil, nil, 0
	a.lookup(cname[fixedSize:], typ)
}

// reverse answers names below in-addr.arpa and ip6.arpa, and refuses all others.
func (a *Answer) reverse(name []byte, typ uint16) {
	b, ok := parseReverse(name)
	if b.parts == 0 {
		a.fail(Refused, EDENotAuthoritative)
		return
	}
	z := a.set.cfg.reverseZone(name)
	a.negative = a.set.cfg.zones[0].ttlNXDomain
	if z != nil {
		a.apexAt = len(name) - len(z.apex)
		a.reverseApex = z.apex
	}
	if !a.set.synced {
		if z != nil {
			a.fail(ServFail, EDENotReady)
		} else {
			a.fail(Refused, EDENotAuthoritative)
		}
		return
	}
	if ok && b.whole() {
		addr := b.addr()
		if holders := a.visible(a.set.index.get(addr)); anyNamed(holders) {
			if z == nil {
				a.apexAt, a.reverseApex = 0, name
			}
			a.zone = a.set.cfg.zones[0]
			a.pointers(holders, addr, typ)
			return
		}
	}
	switch {
	case z == nil:
		a.fail(Refused, EDENotAuthoritative)
	case len(name) == len(z.apex):
		a.apex(typ)
	case !ok:
		a.nxdomain()
	default:
		// What is below is told to those who see all of it; for others there may be something
		// below any network.
		if _, found := a.set.blocks.get(b.key()); !found && (a.sight == nil || b.whole()) {
			a.nxdomain()
			return
		}
		a.nodata(false)
	}
}

// pointers answers for an address that Services name.
func (a *Answer) pointers(holders []holder, addr netip.Addr, typ uint16) {
	switch {
	case typ == TypePTR:
		a.holders, a.ptrAddr = holders, addr
	case typ == TypeANY:
		a.single = singleANY
	case a.reverseApex != nil && a.apexAt == 0 && (typ == TypeSOA || typ == TypeNS) && a.set.cfg.reverseZone(a.reverseApex) != nil:
		a.apex(typ) // a reverse zone of one address
	default:
		a.nodata(false)
	}
}

// reverseZone is the configured reverse zone a name lies in.
func (c *config) reverseZone(name []byte) *reverseZone {
	for i := range c.reverse {
		if within(name, c.reverse[i].apex) {
			return &c.reverse[i]
		}
	}
	return nil
}
