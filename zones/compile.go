package zones

import (
	"cmp"
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"

	"epdns/registry"
	"epdns/zones/rank"
)

// compile makes the records of one Service in one zone. The outcome depends on
// svc, z and the names that id has numbers for alone, not on the order in which
// slices came. What old had is used again, where it has been made for the same regions.
//
// Where churn is not 0, what has just changed, or is changing, has no longer TTL.
func compile(svc *registry.Service, z *zone, id *ids, regions map[uint32]uint32, churn uint32, changed bool, r *room, old *service) *service {
	s := &service{source: svc}
	s.suffix = appendLabel(nil, svc.Name)
	s.suffix = appendLabel(s.suffix, svc.Namespace)
	if z.layout == Kubernetes {
		s.suffix = appendLabel(s.suffix, "svc")
	}
	s.suffix = append(s.suffix, z.apex...)
	if len(s.suffix) > maxName {
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
	c.portNames(svc)
	if !c.inParts(svc, old) {
		c.whole(svc)
	}
	return s
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
		for i := range sl.Endpoints {
			if sl.Endpoints[i].Terminating {
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
		for i := range sl.Endpoints {
			if sl.Endpoints[i].Hints != (registry.Hints{}) {
				return true
			}
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

// room is what compiles work in, one after the other.
type room struct {
	sizes sizes

	eps       []endpoint
	mixed     []endpoint // not yet in order of their places
	reports   []report
	byAddress []uint32              // endpoints in order of address, host name and pod
	places    []place               // where endpoints are
	inPlace   []uint32              // of each of mixed: the index of its place
	called    []labelled            // endpoints by host name and by pod name, in order
	leading   []group               // of each label: the endpoints that it leads to
	members   []uint32              // of groups, one after the other
	taken     map[netip.Addr]uint32 // labels, by the address that they look like
	ofEps     map[string]uint32     // several endpoints, as a string of their numbers → node
	portsOf   []endpointPort        // of all endpoints, one after the other
	srvOf     []uint32              // likewise: their SRV records
	group     []uint32              // endpoints of one address, in order
	few       []uint32              // records of an endpoint,
	many      []uint32              // and of a set
	target    []uint32              // of each SRV record: the first endpoint that its target is
	wire      []byte                // of SRV records
	made      []node
	picked    []uint32
	text      []byte
	was, now  []input // of slices that changed

	placeAt        map[where]uint32
	known          map[placeNames]where
	zoneOf, inside united
}

// endpoint is what several slices say of one address, host name and pod.
type endpoint struct {
	identity
	condition
	where
	node, zone, region string
	told               telling // who told of the place
	weight             uint16
	hints              registry.Hints

	listed    []registry.Port // those of its slice, if it is in one
	ports     []endpointPort
	srv       []uint32 // the SRV record of each port, none without a name
	kind      nameKind // of the name that SRV and PTR records point to
	label     uint32   // the index of that name in labels, plus one; 0 for an address with dashes
	published bool
	named     bool // its name has records

	record uint32 // of the address
	first  bool   // that record is where this endpoint is
	lead   uint32 // the first endpoint of the same name,
	next   uint32 // and the next; 0 for none
}

type placeNames struct{ node, zone, region string }

// nameKind is what an endpoint's name is.
type nameKind uint8

const (
	noName nameKind = iota
	hostName
	podName
	dashedName
)

// name is what SRV and PTR records call an endpoint, empty for none.
func (e *endpoint) name() string { return string(e.appendName(nil)) }

func (e *endpoint) appendName(dst []byte) []byte {
	switch e.kind {
	case hostName:
		return append(dst, e.host...)
	case podName:
		return append(dst, e.pod...)
	case dashedName:
		return appendDashed(dst, e.addr)
	}
	return dst
}

type identity struct {
	addr      netip.Addr
	host, pod string
}

type endpointPort struct {
	registry.Port
	condition
}

// report is what one slice says of an endpoint.
type report struct {
	identity
	slice *registry.Slice
	says  *registry.Endpoint
}

// place is where some endpoints are.
type place struct {
	where
	node, zone, region string
	rank               uint32 // in order of places
}

// labelled is an endpoint that has a label.
type labelled struct {
	label string
	pod   bool // it is a pod's name, and no host name
	ep    uint32
}

// group is the endpoints that a label leads to: members[start:end].
type group struct {
	start, end uint32
	pods       bool // by their pods' names
	published  bool // one of them is
}

// condition is what slices say of an endpoint. One that is ready in any slice is
// ready: a twin that is not takes nothing away.
type condition struct{ ready, serving, terminating bool }

func conditionOf(e *registry.Endpoint) condition {
	return condition{e.Ready, e.Serving, e.Terminating}
}

func (c condition) with(d condition) condition {
	return condition{c.ready || d.ready, c.serving || d.serving, c.terminating && d.terminating}
}

func isReady(c condition) bool    { return c.ready }
func isServing(c condition) bool  { return c.serving }
func isAny(condition) bool        { return true }
func isNone(condition) bool       { return false }
func isDraining(c condition) bool { return c.serving && c.terminating }

// readinessRules say what has each Readiness.
var readinessRules = [...]func(condition) bool{Ready: isReady, Serving: isServing, All: isAny}

// fallbackRules say whom to take where nobody has it.
var fallbackRules = [...]func(condition) bool{FallbackNone: isNone, FallbackServing: isDraining, FallbackAll: isAny}

// collect merges the endpoints of all slices and puts them in order of their places.
func (c *compiler) collect(svc *registry.Service) {
	c.reports = c.reports[:0]
	for _, sl := range svc.Slices {
		for i := range sl.Endpoints {
			in := &sl.Endpoints[i]
			c.reports = append(c.reports, report{c.identify(in), sl, in})
		}
	}
	c.merge()
	c.locate()
	for i := range c.eps {
		e := &c.eps[i]
		e.weight = c.settings.Weights.of(e.host, e.pod, e.addr, e.node, e.zone)
		c.weighted = c.weighted || max(1, e.weight) != max(1, c.eps[0].weight)
	}
}

// merge makes one endpoint of all reports of one address, host name and pod. They come
// in order of those.
func (c *compiler) merge() {
	order := resize(&c.byAddress, len(c.reports))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(i, j uint32) int {
		a, b := &c.reports[i], &c.reports[j]
		if d := a.addr.Compare(b.addr); d != 0 {
			return d
		}
		return cmp.Or(strings.Compare(a.host, b.host), strings.Compare(a.pod, b.pod), cmp.Compare(i, j))
	})
	c.mixed, c.portsOf = c.mixed[:0], c.portsOf[:0]
	for at := 0; at < len(order); {
		r := &c.reports[order[at]]
		e := endpoint{identity: r.identity, condition: conditionOf(r.says), listed: r.slice.Ports}
		from := len(c.portsOf)
		for ; at < len(order) && c.reports[order[at]].identity == r.identity; at++ {
			r := &c.reports[order[at]]
			of := conditionOf(r.says)
			e.condition = e.condition.with(of)
			e.tell(r.says, r.slice.Created)
			c.listPorts(r.slice.Ports, of)
		}
		e.ports = c.portsOf[from:] // where they end up, if that grows
		c.mixed = append(c.mixed, e)
	}
	c.dividePorts()
}

// listPorts adds the ports of a slice to those of an endpoint.
func (c *compiler) listPorts(ports []registry.Port, of condition) {
	for _, p := range ports {
		if p.Name != "" && p.Number != 0 { // Kubernetes DNS specification 2.4.2: named ports
			c.portsOf = append(c.portsOf, endpointPort{p, of})
		}
	}
}

// dividePorts gives endpoints their ports, once there will be no more.
func (c *compiler) dividePorts() {
	from := 0
	for i := range c.mixed {
		e := &c.mixed[i]
		e.ports = c.portsOf[from : from+len(e.ports) : from+len(e.ports)]
		from += len(e.ports)
	}
}

// locate puts the endpoints in order of their places, and those of one place in the order
// in which they are: by names and not by numbers, which are others on each replica.
func (c *compiler) locate() {
	clear(c.placeAt)
	c.places = c.places[:0]
	in := resize(&c.inPlace, len(c.mixed))
	for i := range c.mixed {
		e := &c.mixed[i]
		names := placeNames{e.node, e.zone, e.region}
		w, ok := c.known[names]
		if !ok {
			w = c.ids.give(e.node, e.zone, e.region)
			c.known[names] = w
		}
		at, ok := c.placeAt[w]
		if !ok {
			at = uint32(len(c.places))
			c.placeAt[w] = at
			c.places = append(c.places, place{w, e.node, e.zone, e.region, 0})
		}
		in[i] = at
	}
	c.unite()
	order := resize(&c.many, len(c.places))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(i, j uint32) int { return c.places[i].compare(&c.places[j]) })
	ends := resize(&c.few, len(c.places)) // of each rank: where the next of its endpoints goes
	clear(ends)
	for i, at := range order {
		p := &c.places[at]
		if p.rank = uint32(i); i > 0 && p.compare(&c.places[order[i-1]]) == 0 {
			p.rank = c.places[order[i-1]].rank
		}
	}
	for _, at := range in {
		ends[c.places[at].rank]++
	}
	sum := uint32(0)
	for i, n := range ends {
		ends[i], sum = sum, sum+n
	}
	c.eps = resize(&c.room.eps, len(c.mixed))
	c.byAddress = c.byAddress[:len(c.mixed)]
	for i, at := range in {
		p := &c.places[at]
		e := &c.eps[ends[p.rank]]
		*e = c.mixed[i]
		e.zone, e.region, e.where = p.zone, p.region, p.where
		c.byAddress[i] = ends[p.rank]
		ends[p.rank]++
	}
}

func (p *place) compare(q *place) int {
	return cmp.Or(compareFolded(p.region, q.region), compareFolded(p.zone, q.zone), compareFolded(p.node, q.node))
}

// compareFolded compares names that are numbered whatever their case.
func compareFolded(a, b string) int {
	if a == b {
		return 0
	}
	return strings.Compare(strings.ToLower(a), strings.ToLower(b))
}

// unite puts all endpoints of a node into one zone, and of a zone into one region, so
// that they stand side by side: the first by name that one of them has. The region of
// a zone is that of its Nodes where they have one.
func (c *compiler) unite() {
	clear(c.zoneOf)
	clear(c.inside)
	for i := range c.places {
		c.zoneOf.note(c.places[i].where.node, c.places[i].zone)
	}
	for i := range c.places {
		p := &c.places[i]
		if z := c.zoneOf[p.where.node]; z != "" && z != p.zone {
			p.zone, p.where.zone, c.united = z, c.ids.zones.give(z), true
		}
		c.inside.note(p.where.zone, p.region)
	}
	for i := range c.places {
		p := &c.places[i]
		if r := c.regions[p.where.zone]; r != 0 {
			p.region, p.where.region = c.ids.regions.text(r), r
		} else if r := c.inside[p.where.zone]; r != "" && r != p.region {
			p.region, p.where.region, c.united = r, c.ids.regions.give(r), true
		}
	}
}

// united is what things of one number have together.
type united map[uint32]string

func (u united) note(id uint32, name string) {
	have, ok := u[id]
	if id == 0 || name == "" || have == name {
		return
	}
	if !ok || strings.ToLower(name) < strings.ToLower(have) {
		u[id] = name
	}
}

// tell takes over where a slice has an endpoint, if that knows better than what was
// told before.
func (e *endpoint) tell(in *registry.Endpoint, created int64) {
	t := telling{in.Node != "" || in.Zone != "", in.Ready, created}
	if e.told != (telling{}) && !t.beats(e.told) {
		e.hints = cmp.Or(e.hints, in.Hints)
		return
	}
	e.told = t
	e.node, e.zone, e.region = in.Node, in.Zone, in.Region
	e.hints = cmp.Or(in.Hints, e.hints)
}

// telling is how well a slice knows where an endpoint is.
type telling struct {
	knows, ready bool
	created      int64
}

// beats says whether t knows better: where an endpoint is at all, then one that is
// ready, else the newer slice.
func (t telling) beats(other telling) bool {
	switch {
	case t.knows != other.knows:
		return t.knows
	case t.ready != other.ready:
		return t.ready
	}
	return t.created > other.created
}

func (s *service) identify(e *registry.Endpoint) identity {
	id := identity{e.Addr, e.Hostname, strings.ToLower(e.Pod)}
	if !s.fits(id.host) {
		id.host = ""
	}
	if !s.fits(id.pod) {
		id.pod = "" // with a dot or too long, a pod's name is no label
	}
	return id
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

// owners finds out whom each host name and pod name leads to, and what each endpoint
// is called: the first of its host name, where the zone wants it its pod's name, its
// address with dashes, its pod's name, that leads back to it. A host name may be the
// same as somebody else's pod or address: then that is not what those are called.
func (c *compiler) owners() {
	c.groupLabels()
	clear(c.taken)
	for i := range c.labels {
		if addr, ok := parseDashed([]byte(c.labels[i].name)); ok && dashed(addr) == c.labels[i].name {
			c.taken[addr] = uint32(i) + 1
		}
	}
	for i := range c.eps {
		e := &c.eps[i]
		pod := e.label // the index of its pod's name, where that leads to it
		e.label = 0
		switch taken := c.taken[e.addr]; {
		case e.host != "":
			e.kind, e.label = hostName, pod
		case c.podNames && pod != 0:
			e.kind, e.label = podName, pod
		case taken == 0 && c.fitsDashed(e.addr):
			e.kind = dashedName
		case taken != 0 && taken == pod: // its pod is called like its address
			e.kind, e.label = dashedName, pod
		case pod != 0:
			e.kind, e.label = podName, pod
		}
	}
}

// groupLabels makes the labels, and for each the group of endpoints that it leads to. Of
// each endpoint it notes the label that is its host name, or else its pod's name if that
// leads to it.
func (c *compiler) groupLabels() {
	c.called = c.called[:0]
	for i := range c.eps {
		if e := &c.eps[i]; e.host != "" {
			c.called = append(c.called, labelled{e.host, false, uint32(i)})
		}
		if e := &c.eps[i]; e.pod != "" {
			c.called = append(c.called, labelled{e.pod, true, uint32(i)})
		}
	}
	slices.SortFunc(c.called, func(a, b labelled) int {
		switch d := strings.Compare(a.label, b.label); {
		case d != 0:
			return d
		case a.pod != b.pod:
			return sign(a.pod)
		}
		return cmp.Compare(a.ep, b.ep)
	})
	n := 0
	for i := range c.called {
		if i == 0 || c.called[i].label != c.called[i-1].label {
			n++
		}
	}
	c.labels = make([]label, 0, n)
	c.leading, c.members = c.leading[:0], c.members[:0]
	for at := 0; at < len(c.called); {
		name, pods := c.called[at].label, c.called[at].pod
		g := group{start: uint32(len(c.members)), pods: pods}
		c.labels = append(c.labels, label{name: name})
		for ; at < len(c.called) && c.called[at].label == name; at++ {
			if c.called[at].pod != pods {
				continue // a host name beats a pod's
			}
			e := &c.eps[c.called[at].ep]
			if e.host == "" || !pods {
				e.label = uint32(len(c.labels))
			}
			g.published = g.published || e.published
			c.members = append(c.members, c.called[at].ep)
		}
		g.end = uint32(len(c.members))
		c.leading = append(c.leading, g)
	}
}

// after is the next endpoint of the same name.
func (c *compiler) after(i uint32) (next uint32, ok bool) {
	next = c.eps[i].next
	return next, next != 0
}

// owner are the endpoints that the label of an index leads to.
func (c *compiler) owner(label int) []uint32 {
	g := &c.leading[label]
	return c.members[g.start:g.end]
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

// join finds the endpoints that have one name, which are one target of SRV records.
func (c *compiler) join() {
	chain := func(eps []uint32, is func(*endpoint) bool) {
		lead, last := uint32(none32), uint32(none32)
		for _, i := range eps {
			e := &c.eps[i]
			if !is(e) {
				continue
			}
			if last == none32 {
				lead = i
			} else {
				c.eps[last].next = i
				c.spreads = c.spreads || c.eps[lead].where != e.where
			}
			e.lead, last = lead, i
		}
	}
	for l := range c.labels {
		chain(c.owner(l), func(e *endpoint) bool { return e.kind != noName && int(e.label) == l+1 })
	}
	for eps := range c.sameAddress() {
		if len(eps) > 1 {
			c.few = append(c.few[:0], eps...)
			eps = c.few
			slices.Sort(eps)
		}
		chain(eps, func(e *endpoint) bool { return e.kind == dashedName && e.label == 0 })
	}
}

const none32 = 1<<32 - 1

// portNames lists the names of ports: those of the slices, and of the Service where
// no endpoint has them.
func (c *compiler) portNames(svc *registry.Service) {
	add := func(p registry.Port) {
		if p.Name != "" && p.Number != 0 && c.fitsPort(p) {
			c.ports = append(c.ports, portName{p.Name, p.Protocol})
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
	slices.SortFunc(c.ports, portName.compare)
	c.ports = slices.Clip(slices.Compact(c.ports))
}

func (p portName) compare(q portName) int {
	return cmp.Or(strings.Compare(p.name, q.name), cmp.Compare(p.protocol, q.protocol))
}

// names makes the nodes of host names, pod names and addresses, and ties each SRV
// record to the node that its target names.
func (c *compiler) names() {
	clear(c.ofEps)
	c.made, c.picked = c.made[:0], c.picked[:0]
	for l := range c.labels {
		c.labels[l].node = c.node(c.owner(l))
	}
	for eps := range c.sameAddress() { // in order, so that nodes have the same numbers every time
		if len(eps) > 1 {
			c.group = append(c.group[:0], eps...)
			eps = c.group
			slices.Sort(eps)
		}
		e := &c.eps[eps[0]]
		f := c.family(e.addr)
		f.nodes[e.record] = c.node(eps)
		f.names[e.record] = c.calledBy(eps)
	}
	c.targets = resize(&c.many, len(c.target))
	for r, lead := range c.target {
		e := &c.eps[lead]
		if e.label != 0 {
			c.targets[r] = c.labels[e.label-1].node &^ nameless
		} else {
			c.targets[r] = c.family(e.addr).nodes[e.record] &^ nameless
		}
	}
	if c.targets = c.srv.implied(c.targets); c.targets != nil {
		c.targets = slices.Clone(c.targets)
	}
	for _, f := range c.families() {
		f.nodes = f.implied(f.nodes)
		if !slices.ContainsFunc(f.names, func(n uint32) bool { return n != byAddress }) {
			f.names = nil
		}
	}
	if len(c.made) > 0 {
		c.groups = &groups{slices.Clone(c.made), slices.Clone(c.picked)}
	}
}

// implied drops nodes of records that are no more than the endpoints of the records.
func (l *list) implied(nodes []uint32) []uint32 {
	for i, n := range nodes {
		if n != l.place(uint32(i)) {
			return nodes
		}
	}
	return nil
}

// calledBy is what addresses.names holds for an address that these endpoints have: a
// host name before a pod's name before the address itself.
func (c *compiler) calledBy(eps []uint32) uint32 {
	for kind := hostName; kind <= dashedName; kind++ {
		for _, i := range eps {
			e := &c.eps[i]
			if e.kind != kind || !c.leadsTo(e) {
				continue
			}
			switch kind {
			case hostName:
				return e.label
			case podName:
				return e.label | podNamed
			}
			return byAddress
		}
	}
	// Their names lead to others, who are published.
	for _, i := range eps {
		if e := &c.eps[i]; e.named && c.fitsDashed(e.addr) && c.taken[e.addr] == 0 {
			return byAddress
		}
	}
	return unnamed
}

// leadsTo says whether the name of an endpoint leads to it, as answering has it.
func (c *compiler) leadsTo(e *endpoint) bool {
	return e.published || e.named && (e.label == 0 || !c.leading[e.label-1].published)
}

// node makes the lists of a group of endpoints, or finds those of the same group.
// Where some of them are published the others are left out, and where some have
// names at all: a name that several share must not lead to one that is shutting down.
func (c *compiler) node(eps []uint32) uint32 {
	mark := uint32(0)
	eps, named := c.answering(eps)
	if !named {
		mark = nameless
	}
	if e := &c.eps[eps[0]]; len(eps) == 1 && e.first && (e.kind == noName || e.lead == eps[0] && e.next == 0) {
		return eps[0] | mark
	}
	c.text = c.text[:0]
	for _, e := range eps {
		c.text = binary.LittleEndian.AppendUint32(c.text, e)
	}
	n, ok := c.ofEps[string(c.text)]
	if !ok {
		n = c.makeNode(eps)
		c.ofEps[string(c.text)] = n
	}
	return n | mark
}

// makeNode makes the lists of these endpoints.
func (c *compiler) makeNode(eps []uint32) uint32 {
	n := node{a: uint32(len(c.picked))}
	for _, v4 := range []bool{true, false} {
		l, from := &c.v4.list, len(c.picked)
		if !v4 {
			l, n.aaaa = &c.v6.list, uint32(from)
		}
		for _, i := range eps {
			if e := &c.eps[i]; e.addr.Is4() == v4 {
				c.picked = append(c.picked, e.record)
			}
		}
		c.picked = c.picked[:from+len(c.inOrder(l, c.picked[from:]))]
	}
	n.srv = uint32(len(c.picked))
	for _, i := range eps {
		c.picked = append(c.picked, c.eps[i].srv...)
	}
	c.picked = c.picked[:int(n.srv)+len(c.inOrder(&c.srv, c.picked[n.srv:]))]
	n.end = uint32(len(c.picked))
	c.made = append(c.made, n)
	return uint32(len(c.made)-1) | grouped
}

// inOrder are records as they stand at an endpoint's own name: by address for rank.Fixed.
func (c *compiler) inOrder(l *list, records []uint32) []uint32 {
	records = unique(records)
	if c.order == rank.Fixed {
		slices.SortStableFunc(records, func(a, b uint32) int {
			return c.eps[l.place(a)].addr.Compare(c.eps[l.place(b)].addr)
		})
	}
	return records
}

// answering are those of a group of endpoints that their common name leads to. It
// leads to none of those returned where none of them is named.
func (c *compiler) answering(eps []uint32) (some []uint32, named bool) {
	if len(eps) == 1 {
		return eps, c.eps[eps[0]].published || c.eps[eps[0]].named
	}
	for _, has := range []func(*endpoint) bool{
		func(e *endpoint) bool { return e.published },
		func(e *endpoint) bool { return e.named },
	} {
		some := slices.DeleteFunc(slices.Clone(eps), func(i uint32) bool { return !has(&c.eps[i]) })
		if len(some) > 0 {
			return some, true
		}
	}
	return eps, false
}

// unique sorts and removes what stands twice.
func unique(v []uint32) []uint32 {
	if !slices.IsSorted(v) {
		slices.Sort(v)
	}
	return slices.Compact(v)
}

// resize makes room of that length, whatever is in it.
func resize[T any](room *[]T, n int) []T {
	*room = slices.Grow((*room)[:0], n)[:n]
	return *room
}

// newRoom returns room to compile in.
func newRoom() *room {
	return &room{
		sizes: usualSizes,
		taken: map[netip.Addr]uint32{}, ofEps: map[string]uint32{},
		placeAt: map[where]uint32{}, known: map[placeNames]where{},
		zoneOf: united{}, inside: united{},
	}
}

// anew is room that holds nothing yet.
func (r *room) anew() *room {
	next := newRoom()
	next.sizes = r.sizes
	return next
}

// isLarge says whether it keeps more than the next compiles will need, most likely.
func (r *room) isLarge() bool {
	return max(cap(r.eps), cap(r.was), cap(r.now)) > 8*r.sizes.whole || len(r.known) > 1<<16
}
