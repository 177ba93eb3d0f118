package zones

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"epdns/registry"
)

// This file makes the endpoints of a Service of what its slices say, and puts them in
// order of their places.

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
	at    int // in the slice
}

// place is where some endpoints are.
type place struct {
	where
	node, zone, region string
	rank               uint32 // in order of places
}

// condition is what slices say of an endpoint. One that is ready in any slice is
// ready: a twin that is not takes nothing away.
type condition struct{ ready, serving, terminating bool }

func conditionOf(e *registry.Endpoint) condition {
	return condition{e.Ready, e.Serving, e.Terminating}
}

// nothingSaid is what any condition with it is that condition.
var nothingSaid = condition{terminating: true}

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
		for i, in := range sl.Endpoints.All() {
			c.reports = append(c.reports, report{c.identify(&in), sl, i})
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
		e := endpoint{identity: r.identity, condition: nothingSaid, listed: r.slice.Ports}
		from := len(c.portsOf)
		for ; at < len(order) && c.reports[order[at]].identity == r.identity; at++ {
			r := &c.reports[order[at]]
			says := r.slice.Endpoints.At(r.at)
			of := conditionOf(&says)
			e.condition = e.condition.with(of)
			e.tell(&says, r.slice.Created)
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
