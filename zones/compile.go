package zones

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"epdns/registry"
)

// compile makes the records of one Service in one zone. The outcome depends on
// svc, z and the names that id has numbers for alone, not on the order in which
// slices came. What old had is used again, where it has been made for the same regions.
//
// Where churn is not 0, what has just changed, or is changing, has no longer TTL.
func compile(svc *registry.Service, z *zone, id *ids, regions map[uint32]uint32, churn uint32, changed bool, r *room, old *service) *service {
	s := &service{source: svc}
	if old != nil {
		s.suffix = old.suffix
	} else if s.suffix = z.suffixOf(svc.Key, r); s.suffix == nil {
		return nil // no message could ask for it
	}
	settings, _ := z.knobs.settings(svc)
	s.v4, s.v6 = noAddresses[0], noAddresses[1]
	s.rules = newRules(&settings)
	if churn > 0 && (changed || terminates(svc)) {
		s.churns = true
		s.ttl, s.ttlEmpty = min(s.ttl, churn), min(s.ttlEmpty, churn)
	}
	if o := svc.Object; o != nil && o.IsExternalName {
		s.external = true
		s.topology = s.topology.settled(false)
		if target, err := ParseName(o.ExternalName); err == nil && len(target) > 1 {
			s.cname = appendNamed(nil, headerSize, TypeCNAME, s.ttl, target)
		}
		return s
	}
	c := compiler{service: s, settings: &settings, podNames: z.endpointNames == ByPod, ids: id, regions: regions, room: r}
	c.portNames(svc, old)
	if !c.inParts(svc, old) {
		c.whole(svc)
	}
	return s
}

// suffixOf is the name of a Service in the zone, nil if that is too long.
func (z *zone) suffixOf(key registry.Key, r *room) []byte {
	name := appendLabel(appendLabel(r.text[:0], key.Name), key.Namespace)
	if z.layout == Kubernetes {
		name = appendLabel(name, "svc")
	}
	r.text = append(name, z.apex...)
	if len(r.text) > maxName {
		return nil
	}
	return slices.Clone(r.text)
}

// whole compiles all endpoints of a Service together.
func (c *compiler) whole(svc *registry.Service) {
	c.topology = c.topology.settled(asksForHints(svc))
	c.collect(svc)
	c.publish()
	c.records()
}

// records makes the records and sets of the endpoints that were collected.
func (c *compiler) records() {
	c.areas = newAreas(c.eps)
	c.addresses()
	c.owners()
	c.srvs()
	c.names()
	c.viewAll()
}

// terminates says whether an endpoint of a Service is on its way out.
func terminates(svc *registry.Service) bool {
	for _, sl := range svc.Slices {
		for i := range sl.Endpoints.Len() {
			if sl.Endpoints.Terminating(i) {
				return true
			}
		}
	}
	return false
}

func newRules(s *Settings) rules {
	return rules{
		ttl:         seconds(s.TTL),
		ttlEmpty:    seconds(s.TTLEmpty),
		ttlNXDomain: seconds(s.TTLNXDomain),
		limit:       int32(s.Limit),
		min:         int32(s.Min),
		fit:         s.Fit,
		topology:    s.Topology,
		order:       s.Order,
	}
}

// settled is what TopologyAuto means for a Service that asks for hints, or does not.
func (t Topology) settled(hints bool) Topology {
	switch {
	case t != TopologyAuto:
		return t
	case hints:
		return TopologyHints
	}
	return TopologyOrder
}

// asksForHints says whether a Service asks for what hints say: by its own field, or
// because its slices carry some.
func asksForHints(svc *registry.Service) bool {
	if svc.Object != nil && svc.Object.TrafficDistribution != "" {
		return true
	}
	for _, sl := range svc.Slices {
		if sl.Endpoints.Hinted() {
			return true
		}
	}
	return false
}

func seconds(d time.Duration) uint32 { return uint32(d / time.Second) }

// compiler is the state of one compile.
type compiler struct {
	*service
	settings *Settings
	podNames bool // endpoints without a host name are called by their pods
	ids      *ids
	regions  map[uint32]uint32 // of zones, for endpoints without a Node

	shown    func(condition) bool // what makes an endpoint one that is published
	weighted bool                 // not all weights are the same
	united   bool                 // slices disagree on where a node or a zone is
	partial  bool                 // these are not all endpoints of the Service
	spreads  bool                 // a target of SRV records is several endpoints, and not all in one place

	*room
}

// publish finds out who is published and who has a name: those, and all that serve.
func (c *compiler) publish() {
	c.shown = readinessRules[c.settings.Publish]
	if !c.any(c.shown) {
		c.shown = fallbackRules[c.settings.Fallback]
		c.fallsBack = c.any(c.shown)
	}
	c.markPublished()
}

func (c *compiler) markPublished() {
	for i := range c.eps {
		e := &c.eps[i]
		e.published = c.shown(e.condition)
		e.named = e.published || e.serving || e.ready
		c.named = c.named || e.named
	}
}

func (c *compiler) any(is func(condition) bool) bool {
	for i := range c.eps {
		if is(c.eps[i].condition) {
			return true
		}
	}
	return false
}

// fits says whether a label can stand before the Service's name. With an underscore
// in front it would be a protocol or a view.
func (s *service) fits(label string) bool {
	return len(label) <= maxLabel && len(s.suffix)+1+len(label) <= maxName &&
		!strings.Contains(label, ".") && !strings.HasPrefix(label, "_")
}

// fitsPort says whether a port's name, with its underscore, and its protocol can.
func (s *service) fitsPort(p registry.Port) bool {
	return len(p.Name) < maxLabel && len(s.suffix)+2+len(p.Name)+1+len(protocolLabels[p.Protocol]) <= maxName
}

// fitsDashed says whether an address with dashes can.
func (s *service) fitsDashed(addr netip.Addr) bool {
	return len(s.suffix)+1+len("0000-0000-0000-0000-0000-0000-0000-0000") <= maxName || s.fits(dashed(addr))
}

// sameAddress yields the endpoints of each address, as a part of byAddress.
func (c *compiler) sameAddress() iter.Seq[[]uint32] {
	return func(yield func([]uint32) bool) {
		for at := 0; at < len(c.byAddress); {
			addr, end := c.eps[c.byAddress[at]].addr, at+1
			for end < len(c.byAddress) && c.eps[c.byAddress[end]].addr == addr {
				end++
			}
			if !yield(c.byAddress[at:end]) {
				return
			}
			at = end
		}
	}
}

// addresses makes the A and AAAA records, each address once.
func (c *compiler) addresses() {
	n4, n6 := 0, 0
	for eps := range c.sameAddress() {
		// Of several endpoints with one address the one decides where it is that is ready,
		// else that of the newest slice.
		best := eps[0]
		for _, i := range eps[1:] {
			if t, had := &c.eps[i].told, &c.eps[best].told; t.beats(*had) || i < best && !had.beats(*t) {
				best = i
			}
		}
		c.eps[best].first = true
		if c.eps[best].addr.Is4() {
			n4++
		} else {
			n6++
		}
	}
	c.v4, c.v6 = newAddresses(sizeA, n4), newAddresses(sizeAAAA, n6)
	for i := range c.eps {
		e := &c.eps[i]
		if !e.first {
			continue
		}
		f := c.family(e.addr)
		e.record = uint32(f.len())
		f.wire = appendAddr(f.wire, headerSize, c.ttl, e.addr)
		f.pos = append(f.pos, uint32(i))
	}
	for _, f := range c.families() {
		f.pos = compact(f.pos)
	}
	for eps := range c.sameAddress() {
		i := slices.IndexFunc(eps, func(i uint32) bool { return c.eps[i].first })
		e := &c.eps[eps[i]]
		f := c.family(e.addr)
		f.order = append(f.order, e.record)
		for _, i := range eps {
			c.eps[i].record = e.record
		}
	}
}

// newAddresses makes room for so many records.
func newAddresses(size, n int) *addresses {
	if n == 0 {
		return noAddresses[(size-sizeA)/(sizeAAAA-sizeA)]
	}
	return &addresses{
		list:  list{wire: make([]byte, 0, n*size), size: size, pos: make([]uint32, 0, n)},
		order: make([]uint32, 0, n),
		names: make([]uint32, n),
		nodes: make([]uint32, n),
	}
}

// families are those that the Service has addresses of.
func (p *part) families() (out []*addresses) {
	for _, f := range []*addresses{p.v4, p.v6} {
		if f.len() > 0 {
			out = append(out, f)
		}
	}
	return out
}

// compact drops a list of places that says no more than its index.
func compact(pos []uint32) []uint32 {
	for i, p := range pos {
		if p != uint32(i) {
			return slices.Clip(pos)
		}
	}
	return nil
}

// srvs makes the SRV records, each port and target once.
func (c *compiler) srvs() {
	c.join()
	records, octets := 0, 0
	for i := range c.eps {
		e := &c.eps[i]
		if e.kind != noName {
			records += len(e.ports)
			octets += len(e.ports) * (srvTarget + 1 + len(e.host) + len(e.pod) + len("255-255-255-255"))
		}
	}
	c.srvOf = slices.Grow(c.srvOf[:0], records)
	c.srv.offs = append(make([]uint32, 0, records+1), 0)
	wire, pos := c.wire[:0], c.target[:0]
	for i := range c.eps {
		e := &c.eps[i]
		if e.kind == noName || e.lead != uint32(i) {
			continue
		}
		c.few = c.few[:0]
		for j, more := uint32(i), true; more; j, more = c.after(j) {
			for _, p := range c.eps[j].ports {
				c.few = append(c.few, uint32(p.Number))
			}
		}
		c.few = unique(c.few)
		c.text = e.appendName(c.text[:0])
		first := uint32(len(pos))
		for _, number := range c.few {
			// A weight is never 0, which some clients read as "do not use". The priority
			// is that of the asker.
			wire = appendSRV(wire, headerSize, c.ttl, 0, max(1, e.weight), uint16(number), c.text, len(c.suffix))
			c.srv.offs = append(c.srv.offs, uint32(len(wire)))
			pos = append(pos, uint32(i))
		}
		for j, more := uint32(i), true; more; j, more = c.after(j) {
			e, from := &c.eps[j], len(c.srvOf)
			for _, p := range e.ports {
				at, _ := slices.BinarySearch(c.few, uint32(p.Number))
				c.srvOf = append(c.srvOf, first+uint32(at))
			}
			e.srv = c.srvOf[from:len(c.srvOf):len(c.srvOf)]
		}
	}
	c.srv.wire, c.srv.offs = slices.Clone(wire), slices.Clip(c.srv.offs)
	c.wire, c.target = wire, pos
	c.srv.pos = slices.Clone(compact(pos))
}

// portNames lists the names of ports: those of the slices, and of the Service where
// no endpoint has them. Many Services have the same.
func (c *compiler) portNames(svc *registry.Service, old *service) {
	names := c.portRoom[:0]
	add := func(p registry.Port) {
		if p.Name != "" && p.Number != 0 && c.fitsPort(p) {
			names = append(names, portName{p.Name, p.Protocol})
		}
	}
	if svc.Object != nil {
		for _, p := range svc.Object.Ports {
			add(p)
		}
	}
	for i, sl := range svc.Slices {
		if i > 0 && slices.Equal(sl.Ports, svc.Slices[i-1].Ports) {
			continue
		}
		for _, p := range sl.Ports {
			add(p)
		}
	}
	slices.SortFunc(names, portName.compare)
	c.portRoom = slices.Compact(names)
	if old != nil && slices.Equal(old.ports, c.portRoom) {
		c.ports = old.ports
		return
	}
	if !slices.Equal(c.lastPorts, c.portRoom) {
		c.lastPorts = slices.Clone(c.portRoom)
	}
	c.ports = c.lastPorts
}

func (p portName) compare(q portName) int {
	return cmp.Or(strings.Compare(p.name, q.name), cmp.Compare(p.protocol, q.protocol))
}
