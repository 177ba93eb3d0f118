package zones

import (
	"fmt"
	"net/netip"
	"strings"

	"epdns/registry"
	"epdns/zones/rank"
)

// explainSteps says what was decided, in order, but for what became of each endpoint.
func (a *Answer) explainSteps(e *Explanation) {
	name := a.question.Name
	for _, cname := range a.chain[:a.hops] {
		e.step("%s is an alias of %s, by a Service of type ExternalName", nameText(name), nameText(cname[fixedSize:]))
		name = cname[fixedSize:]
	}
	switch {
	case a.RCode == ServFail:
		e.step("what exists has not been read yet: SERVFAIL")
	case a.RCode == Refused:
		a.explainRefused(e)
	case a.holders != nil:
		e.step("the name is that of the address %v, which %s", a.ptrAddr, endpointsOf(len(a.holders)))
	case a.service != nil:
		a.explainService(e)
	case a.RCode == NXDomain && a.ptrAddress().IsValid():
		e.step("no endpoint that has a name has the address %v: NXDOMAIN, for %d s", a.ptrAddress(), a.negative)
	case a.RCode == NXDomain:
		e.step("%s: NXDOMAIN, for %d s", a.missing(), a.negative)
	case a.isNegative:
		e.step("the name is there, and has no records of type %s: NODATA, for %d s", typeText(a.question.Type), a.negative)
	case a.single == singleANY:
		e.step("type ANY is answered with one record that says no more (RFC 8482)")
	case a.single != none:
		e.step("the records belong to the zone and not to a Service: the same for all")
	default:
		e.step("%s is in none of the zones: who asks goes on there", nameText(name))
	}
}

func endpointsOf(services int) string {
	if services == 1 {
		return "is an endpoint's of one Service"
	}
	return fmt.Sprintf("is an endpoint's of %d Services", services)
}

// ptrAddress is the address whose name was asked for, if it is one.
func (a *Answer) ptrAddress() (none netip.Addr) {
	if b, ok := parseReverse(a.target()); ok && b.whole() {
		return b.addr()
	}
	return none
}

func (a *Answer) explainRefused(e *Explanation) {
	addr := a.ptrAddress()
	switch {
	case !addr.IsValid():
		var apexes []string
		for _, z := range a.set.cfg.zones {
			apexes = append(apexes, nameText(z.apex))
		}
		e.step("the name is in none of the zones (%s): REFUSED", strings.Join(apexes, ", "))
	case !a.set.synced:
		e.step("what exists has not been read yet, and no reverse prefix holds %v: REFUSED", addr)
	default:
		e.step("no endpoint that has a name has the address %v, and no reverse prefix holds it: REFUSED", addr)
	}
}

// missing says which part of a name that belongs to no Service does not exist.
func (a *Answer) missing() string {
	if a.reverseApex != nil {
		if _, ok := parseReverse(a.target()); ok {
			return "no endpoint that has a name has an address in that network"
		}
		return "the name is that of no address and no network"
	}
	z := a.zone
	apex := strings.TrimSuffix(nameText(z.apex), ".")
	labels := labelsBefore(a.target(), z.apex)
	form, last := "<service>.<namespace>."+apex, len(labels)-1
	hasNamespace := func(label string) bool {
		_, ok := a.set.namespaces[a.zoneAt].getString(string(appendLabel(nil, label)))
		return ok && shows(a.sight, label)
	}
	switch {
	case z.layout == Kubernetes && labels[last] != "svc":
		return fmt.Sprintf("zone %s has layout kubernetes: names are <service>.<namespace>.svc.%s", apex, apex)
	case z.layout == Kubernetes: // svc itself exists
		form = "<service>.<namespace>.svc." + apex
		last--
	case labels[last] == "svc" && !hasNamespace("svc"):
		return fmt.Sprintf("zone %s has layout short: no svc in its names, which are %s", apex, form)
	}
	switch namespace := labels[last]; {
	case hasNamespace(namespace):
		return fmt.Sprintf("no Service %s in namespace %s", labels[last-1], namespace)
	case last == 0:
		return fmt.Sprintf("%s is no namespace with a Service; if it is a Service, its namespace is missing: names are %s", namespace, form)
	default:
		return fmt.Sprintf("no namespace %s has a Service", namespace)
	}
}

// labelsBefore are the labels of a name before a name that it lies below.
func labelsBefore(name, above []byte) (labels []string) {
	for at, end := 0, len(name)-len(above); at < end; at += 1 + int(name[at]) {
		labels = append(labels, string(name[at+1:at+1+int(name[at])]))
	}
	return labels
}

// typeText is a record type as people write it.
func typeText(t uint16) string {
	switch t {
	case TypeA:
		return "A"
	case TypeNS:
		return "NS"
	case TypeCNAME:
		return "CNAME"
	case TypeSOA:
		return "SOA"
	case TypePTR:
		return "PTR"
	case TypeHINFO:
		return "HINFO"
	case TypeTXT:
		return "TXT"
	case TypeAAAA:
		return "AAAA"
	case TypeSRV:
		return "SRV"
	case TypeANY:
		return "ANY"
	}
	return fmt.Sprintf("TYPE%d", t) // RFC 3597 section 5
}

// partsBelow are what the labels of a name before the Service's are.
type partsBelow struct {
	port, protocol                string // with their underscores
	scope, directive, scopedValue string // _zone, pin and so on
	label                         string // of an endpoint
	isPort                        bool
	unscoped                      bool // pin or prefer stand there without a scope
}

// below takes the name apart as ofService does.
func (a *Answer) below() (p partsBelow) {
	labels := labelsBefore(a.target(), a.service.suffix)
	if n := len(labels); a.viewed && n > 0 {
		labels = labels[:n-1]
	}
	if n := len(labels); n > 1 && isScope([]byte(labels[n-1])) {
		p.scope, p.directive = labels[n-1], labels[n-2]
		labels = labels[:n-2]
		ports := 0
		for ports < 2 && len(labels)-ports > 1 && strings.HasPrefix(labels[ports], "_") {
			ports++
		}
		p.scopedValue = strings.Join(labels[ports:], ".")
		labels = labels[:ports]
	}
	switch n := len(labels); {
	case n > 1 && p.scope == "" && (labels[n-1] == "pin" || labels[n-1] == "prefer"):
		p.unscoped, p.directive = true, labels[n-1]
	case n == 2 && (labels[0][0] == '_' || labels[1][0] == '_'):
		p.port, p.protocol, p.isPort = labels[0], labels[1], true
	case n == 1:
		p.label = labels[0]
	}
	return p
}

// has says whether a port is the one of the name, any where the name has none.
func (p *partsBelow) has(port registry.Port) bool {
	return !p.isPort || p.port == "_"+port.Name && p.protocol == protocolLabels[port.Protocol]
}

func (a *Answer) explainService(e *Explanation) {
	s, svc := a.service, a.service.source
	e.Service = svc.Key.String()
	settings, origins, problems := a.zone.knobs.resolve(svc)
	for _, o := range origins {
		e.Knobs = append(e.Knobs, ExplainedKnob{o.Knob, o.Value, o.Layer})
	}
	for _, p := range problems {
		e.Problems = append(e.Problems, p.String())
	}
	switch {
	case s.external:
		a.explainExternal(e)
		return
	case a.single == singleExplain:
		e.step("this name tells how the answer to who asks comes about: TTL 0 s")
		return
	case a.single == singleANY:
		e.step("type ANY is answered with one record that says no more (RFC 8482)")
		return
	}
	p := a.below()
	switch {
	case a.viewed:
		e.step("the view _%v shows what is %s, whatever the knob publish says", a.viewOf, readyWord(a.viewOf))
	case !a.own && s.fallsBack:
		e.step("nothing is %s: by fallback %v, %s", readyWord(settings.Publish), settings.Fallback, fallbackWord(settings.Fallback))
	}
	if p.isPort && a.RCode == NoError {
		e.step("the name is that of port %s, %s: what has no such port is left out", p.port[1:], strings.ToUpper(p.protocol[1:]))
	}
	if a.scope.given {
		a.explainScope(e, &p)
	}
	switch {
	case a.RCode == NXDomain:
		a.explainNoName(e, &p)
	case a.isNegative && a.empty:
		e.step("there is nothing to answer at the moment: NODATA, for %d s", a.negative)
	case a.isNegative:
		e.step("the name is there, and has no records of type %s: NODATA, for %d s", typeText(a.question.Type), a.negative)
	default:
		a.explainDecision(e, &settings)
	}
}

func (a *Answer) explainExternal(e *Explanation) {
	switch {
	case a.RCode == NXDomain:
		e.step("the Service is of type ExternalName, and nothing is below it: NXDOMAIN, for %d s", a.negative)
	case a.service.cname == nil:
		e.step("the Service is of type ExternalName, and its target is no name: NODATA, for %d s", a.negative)
	case a.question.Type == TypeCNAME || a.question.Type == TypeANY:
		e.step("the alias is what was asked for")
	case a.hops == maxChain:
		e.step("more than %d aliases are not followed", maxChain)
	default:
		e.step("the alias leads round in a circle")
	}
}

func readyWord(r Readiness) string {
	return [...]string{Ready: "ready", Serving: "serving", All: "there"}[r]
}

func fallbackWord(f Fallback) string {
	if f == FallbackAll {
		return "everything is published"
	}
	return "what serves while it terminates is published"
}

func (a *Answer) explainScope(e *Explanation, p *partsBelow) {
	in := fmt.Sprintf("%s %s", p.scope[1:], p.scopedValue)
	here := span{}
	if a.records.list != nil {
		here = a.inScope(&a.records)
	}
	switch {
	case a.records.list == nil:
	case here.len() == 0 && a.scope.prefers:
		e.step("prefer: nothing of this is in %s, so all of it is answered", in)
	case here.len() == 0:
		e.step("pin: nothing of this is in %s", in)
	default:
		e.step("%s: what is in %s; the place of the asker only orders it", p.directive, in)
	}
}

// explainNoName says why a name below a Service does not exist.
func (a *Answer) explainNoName(e *Explanation, p *partsBelow) {
	why := "the Service has no such name"
	switch v := a.service.view(a.viewOf); {
	case a.zone.empty == Nonexist && !a.service.named && !(a.viewed && v.a.n+v.aaaa.n > 0):
		why = "no endpoint has a name, and by empty: nxdomain the Service has none then"
	case p.unscoped:
		why = fmt.Sprintf("before a Service stands VALUE.%s._zone, ._node or ._region", p.directive)
	case p.scope != "" && p.directive != "pin" && p.directive != "prefer":
		why = fmt.Sprintf("before %s stands pin or prefer, not %s", p.scope, quoted(p.directive))
	case p.isPort:
		why = fmt.Sprintf("the Service has no port %s.%s", p.port, p.protocol)
	case a.viewed && p.scope == "" && p.label != "":
		why = "a view leads to no single endpoint"
	case p.label != "" && !strings.HasPrefix(p.label, "_"):
		why = a.explainLabel(p.label)
	}
	e.step("%s: NXDOMAIN, for %d s", why, a.negative)
}

// explainLabel says why no endpoint of the Service has a name.
func (a *Answer) explainLabel(label string) string {
	c := a.recompile(a.service, a.zone)
	hidden := c.meant(label)
	if len(hidden) == 0 {
		return "no endpoint that has a name is called " + label
	}
	if len(hidden) > 1 {
		return fmt.Sprintf("the %d endpoints called %s are %s, so they have no name (publish %v)", len(hidden), label, whyHidden, c.settings.Publish)
	}
	return fmt.Sprintf("%v is %s, so it has no name (publish %v)", c.eps[hidden[0]].addr, whyHidden, c.settings.Publish)
}

func (a *Answer) explainDecision(e *Explanation, settings *Settings) {
	s, d := a.service, &a.decision
	if settings.Topology == TopologyAuto && !a.own {
		why := "neither trafficDistribution nor hints ask for more"
		switch o := s.source.Object; {
		case o != nil && o.TrafficDistribution != "":
			why = "the Service sets trafficDistribution " + o.TrafficDistribution
		case s.topology == TopologyHints:
			why = "its slices carry hints"
		}
		e.step("topology auto is %v: %s", s.topology, why)
	}
	chosen := a.chosen(&a.records).len()
	switch {
	case a.own:
		e.step("an endpoint's own name: nothing to choose from")
	case chosen < 2:
		e.step("there is one endpoint: nothing to choose from")
	case s.topology == TopologyOff:
		e.step("topology off: all, wherever they are")
	case a.hides():
		e.step("who asks is not to be located: all, wherever they are")
	case a.asker.neutral:
		e.step("a shared cache asks, and for whom is not known: all, wherever they are")
	case !d.placed && s.order == rank.Shuffle:
		e.step("the asker's place is not known: all, in any order")
	case !d.placed:
		e.step("the asker's place is not known: all, wherever they are")
	case d.topology == TopologyHints:
		a.explainHints(e)
	case d.topology == TopologyNearest:
		a.explainNearest(e, settings)
	default:
		e.step("topology order: all, near first")
	}
	if !a.own && chosen > 1 {
		a.explainOrder(e)
	}
	if a.glue && !a.own {
		a.explainPriorities(e)
	}
	if s.limit > 0 && !a.own {
		e.step("limit %d: at most so many endpoints", s.limit)
	}
	if d.written < a.wanted() {
		if s.fit == Truncate {
			e.step("%s: TC is set, and TCP has the rest", endpointsFit(d.written))
		} else {
			e.step("%s: fit cut makes that the answer", endpointsFit(d.written))
		}
	}
	if s.churns && int64(s.ttl) < int64(seconds(settings.TTL)) {
		e.step("TTL %d s, shorter than set, since the Service has just changed or somebody terminates", s.ttl)
		return
	}
	e.step("TTL %d s", s.ttl)
}

func endpointsFit(endpoints int) string {
	if endpoints == 1 {
		return "1 endpoint fits"
	}
	return fmt.Sprintf("%d endpoints fit", endpoints)
}

// wanted is how many endpoints would be answered if there were room for any number.
func (a *Answer) wanted() (n int) {
	d := &a.decision
	n = a.chosen(&a.records).len()
	switch {
	case d.hinted:
		n = len(a.records.hints.of(a.asker.where))
	case d.placed && d.topology == TopologyNearest && d.share < 1 && !a.glue:
		n = len(a.order) // the room was a part of the decision
	case d.placed && d.topology == TopologyNearest && !a.glue:
		near := a.service.areas.near(a.asker.where)
		n = a.records.within(near[d.tier]).len()
	}
	if limit := int(a.service.limit); limit > 0 && !a.own {
		n = min(n, limit)
	}
	return n
}

func (a *Answer) explainHints(e *Explanation) {
	at, ids := a.asker.where, &a.set.ids
	var h *hints
	if x := a.records.ranking; x != nil {
		h = x.hints
	}
	switch {
	case h == nil:
		e.step("topology hints: not every ready endpoint has one, so they do not count: all, near first")
	case hintedFor(h.nodes, at.node) != nil:
		e.step("topology hints: every ready endpoint has hints of nodes: those meant for node %s", ids.nodes.text(at.node))
	case hintedFor(h.zones, at.zone) != nil:
		e.step("topology hints: every ready endpoint has hints of zones: those meant for zone %s", ids.zones.text(at.zone))
	default:
		e.step("topology hints: nothing that is ready is meant for the asker's place: all, near first")
	}
}

func (a *Answer) explainNearest(e *Explanation, settings *Settings) {
	d := &a.decision
	if d.tier == 3 {
		e.step("topology nearest: neither node, zone nor region has at least %d with one of them ready: all", settings.Min)
		return
	}
	e.step("topology nearest: the %s is the nearest to have at least %d", tierNames[d.tier], settings.Min)
	if d.share < 1 {
		how := ""
		if a.glue {
			how = ", by weights at one priority"
		}
		e.step("not all of it is ready: it takes %.0f %% of the load, and the next tier the rest%s", 100*d.share, how)
	}
}

func (a *Answer) explainOrder(e *Explanation) {
	switch s := a.service; {
	case s.order == rank.Hash && a.asker.neutral:
		e.step("order hash is by the asker, who is not known here: shuffle")
	case a.decision.placed:
		e.step("order %s within a tier", orders.text(s.order))
	default:
		e.step("order %s", orders.text(s.order))
	}
}

// explainPriorities says what clients of SRV records read from them.
func (a *Answer) explainPriorities(e *Explanation) {
	if len(a.segments) == 0 { // the aliases alone do not fit
		return
	}
	first, last := a.segments[0].priority, a.segments[len(a.segments)-1].priority
	if first == last {
		e.step("priority %d for all", first)
	} else {
		e.step("priority is the tier: 0 node, 1 zone, 2 region, 3 the rest")
	}
}
