package zones

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	"epdns/registry"
	"epdns/zones/rank"
)

// compile makes the records of one Service in one zone. The outcome depends on
// svc, z and the names that id has numbers for alone, not on the order in which
// slices came.
//
// Where churn is not 0, what has just changed, or is changing, has no longer TTL.
func compile(svc *registry.Service, z *zone, id *ids, regions map[uint32]uint32, churn uint32, changed bool) *service {
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
	s.rules = newRules(&settings, svc)
	if churn > 0 && (changed || terminates(svc)) {
		s.churns = true
		s.ttl, s.ttlEmpty = min(s.ttl, churn), min(s.ttlEmpty, churn)
	}
	if o := svc.Object; o != nil && o.IsExternalName {
		s.external = true
		if target, err := ParseName(o.ExternalName); err == nil && len(target) > 1 {
			s.cname = appendNamed(nil, headerSize, TypeCNAME, s.ttl, target)
		}
		return s
	}
	c := compiler{service: s, settings: &settings, podNames: z.endpointNames == ByPod, ids: id, regions: regions}
	c.collect(svc)
	c.areas = newAreas(c.eps)
	c.publish()
	c.addresses()
	c.owners()
	c.srvs()
	c.portNames(svc)
	c.names()
	c.viewAll()
	return s
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

func newRules(s *Settings, svc *registry.Service) rules {
	r := rules{
		ttl:         seconds(s.TTL),
		ttlEmpty:    seconds(s.TTLEmpty),
		ttlNXDomain: seconds(s.TTLNXDomain),
		limit:       int32(s.Limit),
		min:         int32(s.Min),
		fit:         s.Fit,
		topology:    s.Topology,
		order:       s.Order,
	}
	if r.topology == TopologyAuto {
		r.topology = TopologyOrder
		if asksForHints(svc) {
			r.topology = TopologyHints
		}
	}
	return r
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

	eps    []endpoint
	shown  func(condition) bool  // what makes an endpoint one that is published
	at     map[netip.Addr]uint32 // index among the A or AAAA records
	owner  map[string][]uint32   // label → the endpoints that it leads to
	led    map[string]bool       // labels that lead to somebody who is published
	ofEps  map[string]uint32     // endpoints, as a string of their numbers → node
	few    []uint32              // room for the records of an endpoint,
	many   []uint32              // and of a set
	target []uint32              // of each SRV record: the first endpoint that its target is

	spreads bool // a target of SRV records is several endpoints, and not all in one place
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

	ports     []endpointPort
	srv       []uint32 // the SRV record of each port, none without a name
	name      string   // the label that SRV and PTR records point to; empty: none
	kind      nameKind
	published bool
	named     bool // its name has records
}

// nameKind is what an endpoint's name is.
type nameKind uint8

const (
	hostName nameKind = iota
	podName
	dashedName
)

type identity struct {
	addr      netip.Addr
	host, pod string
}

type endpointPort struct {
	registry.Port
	condition
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
	total := 0
	for _, sl := range svc.Slices {
		total += len(sl.Endpoints)
	}
	seen := make(map[identity]int, total)
	c.eps = make([]endpoint, 0, total)
	for _, sl := range svc.Slices {
		for i := range sl.Endpoints {
			in := &sl.Endpoints[i]
			id := c.identify(in)
			at, ok := seen[id]
			if !ok {
				at = len(c.eps)
				seen[id] = at
				c.eps = append(c.eps, endpoint{identity: id, condition: conditionOf(in)})
			}
			e := &c.eps[at]
			e.condition = e.condition.with(conditionOf(in))
			e.tell(in, sl.Created)
			for _, p := range sl.Ports {
				if p.Name != "" && p.Number != 0 { // Kubernetes DNS specification 2.4.2: named ports
					e.ports = append(e.ports, endpointPort{p, conditionOf(in)})
				}
			}
		}
	}
	for i := range c.eps {
		e := &c.eps[i]
		e.where = c.ids.give(e.node, e.zone, e.region)
		e.weight = c.settings.Weights.of(e.host, e.pod, e.addr, e.node, e.zone)
	}
	c.unite()
	// By names and not by numbers, which are others on each replica.
	slices.SortFunc(c.eps, func(a, b endpoint) int {
		return cmp.Or(
			compareFolded(a.region, b.region), compareFolded(a.zone, b.zone), compareFolded(a.node, b.node),
			a.addr.Compare(b.addr), strings.Compare(a.host, b.host), strings.Compare(a.pod, b.pod))
	})
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
	zones, regions := united{}, united{}
	for i := range c.eps {
		zones.note(c.eps[i].where.node, c.eps[i].zone)
	}
	for i := range c.eps {
		e := &c.eps[i]
		if z := zones.of(e.where.node); z != "" {
			e.zone, e.where.zone = z, c.ids.zones.give(z)
		}
		regions.note(e.where.zone, e.region)
	}
	for i := range c.eps {
		e := &c.eps[i]
		if r := c.regions[e.where.zone]; r != 0 {
			e.region, e.where.region = c.ids.regions.text(r), r
		} else if r := regions.of(e.where.zone); r != "" {
			e.region, e.where.region = r, c.ids.regions.give(r)
		}
	}
}

// united is what things of one number have together.
type united map[uint32]string

func (u united) note(id uint32, name string) {
	if have, ok := u[id]; id != 0 && name != "" && (!ok || strings.ToLower(name) < strings.ToLower(have)) {
		u[id] = name
	}
}

func (u united) of(id uint32) string { return u[id] }

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
	if !slices.ContainsFunc(c.eps, func(e endpoint) bool { return c.shown(e.condition) }) {
		c.shown = fallbackRules[c.settings.Fallback]
		c.fallsBack = slices.ContainsFunc(c.eps, func(e endpoint) bool { return c.shown(e.condition) })
	}
	for i := range c.eps {
		e := &c.eps[i]
		e.published = c.shown(e.condition)
		e.named = e.published || e.serving || e.ready
		c.named = c.named || e.named
	}
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

// addresses makes the A and AAAA records, each address once.
func (c *compiler) addresses() {
	c.v4, c.v6 = &addresses{list: list{size: sizeA}}, &addresses{list: list{size: sizeAAAA}}
	// Of several endpoints with one address the one decides where it is that is ready,
	// else that of the newest slice.
	best := make(map[netip.Addr]int, len(c.eps))
	for i := range c.eps {
		e := &c.eps[i]
		if j, ok := best[e.addr]; !ok || e.told.beats(c.eps[j].told) {
			best[e.addr] = i
		}
	}
	c.at = make(map[netip.Addr]uint32, len(c.eps))
	for i := range c.eps {
		addr := c.eps[i].addr
		if best[addr] != i {
			continue
		}
		f := c.family(addr)
		c.at[addr] = uint32(f.len())
		f.wire = appendAddr(f.wire, headerSize, c.ttl, addr)
		f.pos = append(f.pos, uint32(i))
	}
	if c.v4.len() == 0 {
		c.v4 = noAddresses[0]
	}
	if c.v6.len() == 0 {
		c.v6 = noAddresses[1]
	}
	for _, f := range c.families() {
		f.wire = slices.Clip(f.wire)
		f.pos = compact(f.pos)
		f.order = make([]uint32, f.len())
		for i := range f.order {
			f.order[i] = uint32(i)
		}
		slices.SortFunc(f.order, func(a, b uint32) int {
			return strings.Compare(string(f.record(a)[fixedSize:]), string(f.record(b)[fixedSize:]))
		})
	}
}

// families are those that the Service has addresses of.
func (s *service) families() (out []*addresses) {
	for _, f := range []*addresses{s.v4, s.v6} {
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
	c.owner = map[string][]uint32{}
	for i := range c.eps {
		if h := c.eps[i].host; h != "" {
			c.owner[h] = append(c.owner[h], uint32(i))
		}
	}
	pods := map[string][]uint32{}
	for i := range c.eps {
		if p := c.eps[i].pod; p != "" {
			pods[p] = append(pods[p], uint32(i))
		}
	}
	for p, eps := range pods {
		if _, taken := c.owner[p]; !taken {
			c.owner[p] = eps
		}
	}
	for i := range c.eps {
		e := &c.eps[i]
		own := func(label string) bool { return slices.Contains(c.owner[label], uint32(i)) }
		address := dashed(e.addr)
		_, taken := c.owner[address]
		switch {
		case e.host != "":
			e.name, e.kind = e.host, hostName
		case c.podNames && e.pod != "" && own(e.pod):
			e.name, e.kind = e.pod, podName
		case c.fits(address) && (!taken || own(address)):
			e.name, e.kind = address, dashedName
		case e.pod != "" && own(e.pod):
			e.name, e.kind = e.pod, podName
		}
	}
}

// srvs makes the SRV records, each port and target once.
func (c *compiler) srvs() {
	type record struct {
		target string
		number uint16
	}
	first := map[string]uint32{} // endpoint that a target is
	var order []record
	for i := range c.eps {
		e := &c.eps[i]
		if e.name == "" {
			continue
		}
		if at, ok := first[e.name]; !ok {
			first[e.name] = uint32(i)
		} else if c.eps[at].where != e.where {
			c.spreads = true
		}
		for _, p := range e.ports {
			order = append(order, record{e.name, p.Number})
		}
	}
	slices.SortFunc(order, func(a, b record) int {
		return cmp.Or(cmp.Compare(first[a.target], first[b.target]), cmp.Compare(a.number, b.number))
	})
	order = slices.Compact(order)
	at := make(map[record]uint32, len(order))
	c.srv.offs = make([]uint32, 1, len(order)+1)
	for i, r := range order {
		at[r] = uint32(i)
		// A weight is never 0, which some clients read as "do not use". The priority
		// is that of the asker.
		weight := max(1, c.eps[first[r.target]].weight)
		c.srv.wire = appendSRV(c.srv.wire, headerSize, c.ttl, 0, weight, r.number, r.target, len(c.suffix))
		c.srv.offs = append(c.srv.offs, uint32(len(c.srv.wire)))
		c.srv.pos = append(c.srv.pos, first[r.target])
	}
	c.srv.wire = slices.Clip(c.srv.wire)
	c.target = c.srv.pos
	c.srv.pos = compact(c.srv.pos)
	for i := range c.eps {
		e := &c.eps[i]
		for _, p := range e.ports {
			if e.name != "" {
				e.srv = append(e.srv, at[record{e.name, p.Number}])
			}
		}
	}
}

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
	for _, sl := range svc.Slices {
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
	for name := range c.owner {
		c.labels = append(c.labels, label{name: name})
	}
	slices.SortFunc(c.labels, func(a, b label) int { return strings.Compare(a.name, b.name) })
	c.labels = slices.Clip(c.labels)

	c.led = map[string]bool{}
	for name, eps := range c.owner {
		if slices.ContainsFunc(eps, func(i uint32) bool { return c.eps[i].published }) {
			c.led[name] = true
		}
	}
	c.ofEps = make(map[string]uint32, len(c.eps))
	for i := range c.labels {
		c.labels[i].node = c.node(c.owner[c.labels[i].name])
	}
	ofAddr := make(map[netip.Addr][]uint32, len(c.eps))
	for i := range c.eps {
		ofAddr[c.eps[i].addr] = append(ofAddr[c.eps[i].addr], uint32(i))
	}
	for _, f := range c.families() {
		f.nodes, f.names = make([]uint32, f.len()), make([]uint32, f.len())
	}
	for i := range c.eps { // in order, so that nodes have the same numbers every time
		addr := c.eps[i].addr
		f, at, group := c.family(addr), c.at[addr], ofAddr[addr]
		if group[0] == uint32(i) {
			f.nodes[at] = c.node(group)
			f.names[at] = c.called(group)
		}
	}

	c.srvNode = make([]uint32, len(c.srv.offs)-1)
	for r, first := range c.target {
		e := &c.eps[first]
		if j, ok := c.searchLabel([]byte(e.name)); ok {
			c.srvNode[r] = c.labels[j].node &^ nameless
		} else {
			c.srvNode[r] = c.family(e.addr).nodes[c.at[e.addr]] &^ nameless
		}
	}
	c.nodes, c.picks = slices.Clip(c.nodes), slices.Clip(c.picks)
}

// called is what addresses.names holds for an address that these endpoints have: a
// host name before a pod's name before the address itself.
func (c *compiler) called(group []uint32) uint32 {
	for _, kind := range []nameKind{hostName, podName, dashedName} {
		for _, i := range group {
			e := &c.eps[i]
			if e.name == "" || e.kind != kind || !c.leadsTo(e) {
				continue
			}
			j, _ := c.searchLabel([]byte(e.name))
			switch kind {
			case hostName:
				return uint32(j) + 1
			case podName:
				return uint32(j) + 1 | podNamed
			}
			return byAddress
		}
	}
	// Their names lead to others, who are published.
	for _, i := range group {
		if address := dashed(c.eps[i].addr); c.eps[i].named && c.fits(address) && c.owner[address] == nil {
			return byAddress
		}
	}
	return unnamed
}

// leadsTo says whether the name of an endpoint leads to it, as answering has it.
func (c *compiler) leadsTo(e *endpoint) bool {
	return e.published || e.named && !c.led[e.name]
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
	key := make([]byte, 0, 4*len(eps))
	for _, e := range eps {
		key = append(key, byte(e), byte(e>>8), byte(e>>16), byte(e>>24))
	}
	if n, ok := c.ofEps[string(key)]; ok {
		return n | mark
	}
	var a, aaaa, srv []uint32
	for _, i := range eps {
		e := &c.eps[i]
		if e.addr.Is4() {
			a = append(a, c.at[e.addr])
		} else {
			aaaa = append(aaaa, c.at[e.addr])
		}
		srv = append(srv, e.srv...)
	}
	n := node{a: uint32(len(c.picks))}
	c.picks = append(c.picks, c.inOrder(&c.v4.list, a)...)
	n.aaaa = uint32(len(c.picks))
	c.picks = append(c.picks, c.inOrder(&c.v6.list, aaaa)...)
	n.srv = uint32(len(c.picks))
	c.picks = append(c.picks, c.inOrder(&c.srv, srv)...)
	n.end = uint32(len(c.picks))
	c.nodes = append(c.nodes, n)
	c.ofEps[string(key)] = uint32(len(c.nodes) - 1)
	return uint32(len(c.nodes)-1) | mark
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
	slices.Sort(v)
	return slices.Compact(v)
}
