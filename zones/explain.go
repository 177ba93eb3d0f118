package zones

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"epdns/zones/rank"
)

// Explanation is why an asker got the answer that it got.
type Explanation struct {
	Asker ExplainedAsker `json:"asker"`

	// Zone and Service, as namespace/name, that the name belongs to, where it does.
	Zone    string `json:"zone,omitempty"`
	Service string `json:"service,omitempty"`

	// Knobs in force, and annotations that do nothing.
	Knobs    []ExplainedKnob `json:"knobs,omitempty"`
	Problems []string        `json:"problems,omitempty"`

	Slices []ExplainedSlice `json:"slices,omitempty"` // that were read

	// Steps are the decisions, in order.
	Steps []string `json:"steps"`

	// Tiers of the endpoints that were to choose from, from near to far, where there
	// are any.
	Tiers []ExplainedTier `json:"tiers,omitempty"`

	// Endpoints of the Service: those that are answered in the order of the answer,
	// then the others.
	Endpoints []ExplainedEndpoint `json:"endpoints,omitempty"`

	Serial uint32 `json:"serial"` // of the zone's SOA
}

// ExplainedAsker is who asked, and where that is.
type ExplainedAsker struct {
	Address string `json:"address,omitempty"`
	Subnet  string `json:"subnet,omitempty"` // for whom, by EDNS Client Subnet that was believed
	Node    string `json:"node,omitempty"`
	Zone    string `json:"zone,omitempty"`
	Region  string `json:"region,omitempty"`
	How     string `json:"how"` // its place was found
	Scope   int    `json:"scope,omitempty"`
}

// ExplainedKnob is the value of a knob and the layer it comes from.
type ExplainedKnob struct {
	Knob  string `json:"knob"`
	Value string `json:"value"`
	From  string `json:"from"`
}

// ExplainedSlice is an EndpointSlice that was read.
type ExplainedSlice struct {
	Name      string   `json:"name"`
	Endpoints int      `json:"endpoints"`
	Ready     int      `json:"ready"`
	Ports     []string `json:"ports,omitempty"`
}

// ExplainedTier is what is as near as that.
type ExplainedTier struct {
	Tier      string `json:"tier"` // node, zone, region, rest, or all where the place does not matter
	Endpoints int    `json:"endpoints"`
	Answered  int    `json:"answered"`
}

// ExplainedEndpoint is an endpoint and what became of it.
type ExplainedEndpoint struct {
	Address    string `json:"address"`
	Name       string `json:"name,omitempty"` // its label below the Service
	Pod        string `json:"pod,omitempty"`
	Node       string `json:"node,omitempty"`
	Zone       string `json:"zone,omitempty"`
	Region     string `json:"region,omitempty"`
	Conditions string `json:"conditions"`
	Weight     int    `json:"weight"`
	Tier       string `json:"tier,omitempty"`
	Answered   bool   `json:"answered"`
	Why        string `json:"why"`
}

// decision is what rank has decided, for Explain.
type decision struct {
	topology Topology
	placed   bool    // the place of the asker counted
	hinted   bool    // hints chose
	tier     int8    // that TopologyNearest chose
	share    float64 // of the load that it takes
	want     int     // endpoints, by the limit and the room
	written  int     // endpoints that are in the message
}

var tierNames = [...]string{"node", "zone", "region", "rest"}

// Explain explains the answer that AppendTo appended last. It looks at every endpoint
// of the Service, which takes time and memory.
func (a *Answer) Explain() *Explanation {
	e := a.outline()
	if a.service == nil || a.service.external {
		return e
	}
	svc := a.service.source
	for _, sl := range svc.Slices {
		x := ExplainedSlice{Name: sl.Name, Endpoints: len(sl.Endpoints)}
		for i := range sl.Endpoints {
			if sl.Endpoints[i].Ready {
				x.Ready++
			}
		}
		for _, p := range sl.Ports {
			x.Ports = append(x.Ports, fmt.Sprintf("%s:%d/%s", p.Name, p.Number, p.Protocol))
		}
		e.Slices = append(e.Slices, x)
	}
	a.explainEndpoints(e)
	return e
}

// outline is an Explanation without what depends on each endpoint.
func (a *Answer) outline() *Explanation {
	a.ask()
	e := &Explanation{Asker: a.explainAsker(), Serial: a.set.serial}
	if a.zone != nil {
		e.Zone = nameText(a.zone.apex)
	}
	step := func(format string, args ...any) { e.Steps = append(e.Steps, fmt.Sprintf(format, args...)) }
	switch {
	case a.RCode == ServFail:
		step("what exists has not been read yet: SERVFAIL")
		return e
	case a.RCode == Refused:
		step("the name is in none of the zones: REFUSED")
		return e
	case a.service == nil && a.RCode == NXDomain:
		step("there is no such name: NXDOMAIN, for %d s", a.negative)
		return e
	case a.service == nil && a.isNegative:
		step("the name is there, and has no records of this type: NODATA, for %d s", a.negative)
		return e
	case a.service == nil:
		step("the records belong to the zone and not to a Service: the same for all")
		return e
	}
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
	case s.external && s.cname == nil:
		step("the Service is of type ExternalName, and its target is no name: NODATA")
		return e
	case s.external:
		step("the Service is of type ExternalName: it is an alias, and nothing is below it")
		return e
	case a.RCode == NXDomain:
		step("the Service has no such name: NXDOMAIN, for %d s", a.negative)
		return e
	}
	fallsBack := false
	if s.published.a.n+s.published.aaaa.n > 0 {
		fallsBack = true
		for _, sl := range svc.Slices {
			for i := range sl.Endpoints {
				if readinessRules[settings.Publish](conditionOf(&sl.Endpoints[i])) {
					fallsBack = false
				}
			}
		}
	}
	if fallsBack {
		step("nothing is %s: the fallback, %s, is published", readyWord(settings.Publish), settings.Fallback)
	}
	switch {
	case a.scope.given && a.scope.area == nil && a.scope.prefers:
		step("nothing is in the scope: all are preferred to nothing")
	case a.scope.given && a.scope.area == nil:
		step("nothing is in the scope")
	case a.scope.given:
		step("the scope chooses, and the place of the asker only orders")
	}
	if a.isNegative {
		step("there is nothing to answer: NODATA, for %d s", a.negative)
		return e
	}
	if a.records.n == 0 {
		return e
	}
	a.explainDecision(&settings, step)
	return e
}

func readyWord(r Readiness) string {
	return [...]string{Ready: "ready", Serving: "serving", All: "there"}[r]
}

func (a *Answer) explainDecision(settings *Settings, step func(string, ...any)) {
	s, d := a.service, &a.decision
	if settings.Topology == TopologyAuto {
		why := "neither trafficDistribution nor hints ask for more"
		switch o := s.source.Object; {
		case o != nil && o.TrafficDistribution != "":
			why = "the Service sets trafficDistribution " + o.TrafficDistribution
		case s.topology == TopologyHints:
			why = "its slices carry hints"
		}
		step("topology auto is %v: %s", s.topology, why)
	}
	switch {
	case a.own:
		step("an endpoint's own name: nothing to choose from")
	case d.topology == TopologyOff:
		step("topology off: all, wherever they are")
	case a.records.n < 2:
		step("there is one endpoint: nothing to choose from")
	case a.asker.neutral:
		step("a shared cache asks, and for whom is not known: all, wherever they are")
	case !d.placed:
		step("where the asker is is not known: all, wherever they are")
	case d.topology == TopologyHints && d.hinted:
		step("topology hints: those that are meant for the asker's place")
	case d.topology == TopologyHints:
		step("topology hints: there are none for the asker's place, or not every ready endpoint has one: all, near first")
	case d.topology == TopologyNearest && d.tier == 3:
		step("topology nearest: no tier has %d: all", settings.Min)
	case d.topology == TopologyNearest:
		step("topology nearest: tier %s has at least %d", tierNames[d.tier], settings.Min)
		if d.share < 1 {
			step("not all of it is ready: it takes %.0f %% of the load, the next tier the rest", 100*d.share)
		}
	default:
		step("topology order: all, near first")
	}
	order := s.order
	if order == rank.Hash && a.asker.neutral {
		step("order hash is by the asker, who is not known here: shuffle")
	} else {
		step("order %v within a tier", order)
	}
	if s.limit > 0 && !a.own {
		step("limit %d: at most so many endpoints", s.limit)
	}
	if d.written < len(a.order) {
		if s.fit == Truncate {
			step("%d endpoints fit: TC is set, and TCP has the rest", d.written)
		} else {
			step("%d endpoints fit: fit cut makes that the answer", d.written)
		}
	}
	if s.churns {
		step("the Service has just changed, or an endpoint is terminating: churnTTL is the longest TTL")
	}
	step("TTL %d s", s.ttl)
}

func (a *Answer) explainAsker() ExplainedAsker {
	id := &a.set.ids
	e := ExplainedAsker{
		Node: id.nodes.text(a.asker.node), Zone: id.zones.text(a.asker.zone), Region: id.regions.text(a.asker.region),
	}
	if a.question.From.IsValid() {
		e.Address = a.question.From.String()
	}
	who := "the address"
	if a.question.Subnet.IsValid() {
		e.Subnet, who = a.question.Subnet.String(), "the subnet that the forwarder gives"
		e.Scope = a.Scope()
	}
	switch {
	case a.asker.neutral:
		e.How = "a shared cache, which asks for many places"
		if holders, _ := a.set.index.getString(string(addrKey(new([16]byte), a.question.From))); slices.ContainsFunc(holders, func(h holder) bool { return h.clusterDNS }) {
			e.How = "an endpoint of the cluster's own DNS, which asks for many places"
		}
	case a.asker.source == FromEndpoints:
		e.How = who + " is an endpoint's"
	case a.asker.source == FromNodes:
		e.How = who + " is a Node's InternalIP"
	case a.asker.source == FromPodCIDRs:
		e.How = who + " is in a Node's podCIDR"
	case a.asker.source == FromPlaces:
		e.How = who + " is in a configured place"
	default:
		e.How = "not known: " + who + " is no endpoint's, no Node's and in no podCIDR or configured place"
	}
	if off := a.set.without &^ a.set.cfg.clients.Off; off != 0 {
		e.How += "; podCIDRs are not believed, since too many endpoints lie in those of other Nodes"
	}
	return e
}

// explainEndpoints says of each endpoint what became of it.
func (a *Answer) explainEndpoints(e *Explanation) {
	s, svc := a.service, a.service.source
	settings, _ := a.zone.knobs.settings(svc)
	ids := a.set.ids
	ids.nodes.list, ids.zones.list, ids.regions.list = slices.Clip(ids.nodes.list), slices.Clip(ids.zones.list), slices.Clip(ids.regions.list)
	c := compiler{service: &service{suffix: s.suffix}, settings: &settings, podNames: a.zone.endpointNames == ByPod, ids: &ids, regions: a.set.atlas.regions}
	c.collect(svc)
	c.publish()
	c.owners()

	near := s.areas.near(a.asker.where)
	if !a.decision.placed {
		near = [4]span{3: s.areas.all()}
	}
	chosen := a.chosen(&a.records)
	tiers := make([]ExplainedTier, 4)
	var rest []ExplainedEndpoint
	answered := make([]ExplainedEndpoint, len(a.order))
	for i := range c.eps {
		ep := &c.eps[i]
		x := ExplainedEndpoint{
			Address: ep.addr.String(), Name: ep.name, Pod: ep.pod, Node: ep.node, Zone: ep.zone, Region: ep.region,
			Conditions: ep.condition.String(), Weight: int(ep.weight),
		}
		tier := slices.IndexFunc(near[:], func(t span) bool { return t.start <= i && i < t.end })
		x.Tier = tierNames[tier]
		if !a.decision.placed {
			x.Tier = "all"
		}
		at, why := a.outcome(&settings, ep, uint32(i), chosen)
		x.Why = why
		if at >= 0 && answered[at].Address == "" {
			x.Answered = at < a.decision.written
			answered[at] = x
		} else {
			if at >= 0 {
				x.Why = "part of " + answered[at].Address
			}
			rest = append(rest, x)
		}
		if at >= 0 || why == whyTier || why == whyHints || why == whyLimit {
			tiers[tier].Endpoints++
			if at >= 0 && at < a.decision.written {
				tiers[tier].Answered++
			}
		}
	}
	e.Endpoints = append(answered, rest...)
	for t := range tiers {
		if tiers[t].Endpoints > 0 {
			tiers[t].Tier = tierNames[t]
			if !a.decision.placed {
				tiers[t].Tier = "all"
			}
			e.Tiers = append(e.Tiers, tiers[t])
		}
	}
}

// What becomes of endpoints that could have been answered.
const (
	whyTier  = "a nearer tier has enough"
	whyHints = "not meant for the asker's place"
	whyLimit = "beyond the limit"
)

// outcome is where an endpoint is in a.order, or -1, and why.
func (a *Answer) outcome(settings *Settings, ep *endpoint, number uint32, chosen span) (at int, why string) {
	s, r := a.service, &a.records
	if r.list == nil {
		return -1, "no records of this type"
	}
	member := -1
	for i := range uint32(r.n) {
		for j := r.first(i); j < r.after(i); j++ {
			k := r.at(j)
			if r.place(k) == number || r.size > 0 && sameAddr(r.record(k), ep.addr) {
				member = int(i)
			}
		}
	}
	if r.list != &s.srv && ep.addr.Is4() != (r.list == &s.v4.list) {
		return -1, "of the other family"
	}
	if member < 0 {
		switch {
		case a.own:
			return -1, "has another name"
		case r.list == &s.srv && ep.name == "":
			return -1, "has no name that a record could lead to"
		case !a.view(ep.condition, settings):
			return -1, "not " + readyWord(a.readiness(settings))
		case ep.weight == 0:
			return -1, "weight 0"
		}
		return -1, "has no such port, or one of no name"
	}
	for i, k := range a.order {
		if int(k) == member {
			if i >= a.decision.written {
				return i, "does not fit"
			}
			return i, "answered"
		}
	}
	switch {
	case member < chosen.start || member >= chosen.end:
		return -1, "not in the scope"
	case a.decision.hinted:
		return -1, whyHints
	case a.decision.topology == TopologyNearest && a.decision.placed && len(a.order) < a.decision.want:
		return -1, whyTier
	case s.limit > 0 && len(a.order) >= int(s.limit):
		return -1, whyLimit
	}
	return -1, "does not fit"
}

// readiness is what the name asks for: a view, or what the Service publishes.
func (a *Answer) readiness(settings *Settings) Readiness {
	if a.viewed {
		return a.viewOf
	}
	return settings.Publish
}

// view says whether the name shows endpoints of that condition.
func (a *Answer) view(c condition, settings *Settings) bool {
	if readinessRules[a.readiness(settings)](c) {
		return true
	}
	return !a.viewed && fallbackRules[settings.Fallback](c)
}

func sameAddr(record []byte, addr netip.Addr) bool {
	var buf [16]byte
	return string(record[fixedSize:]) == string(addrKey(&buf, addr))
}

func (c condition) String() string {
	var words []string
	if c.ready {
		words = append(words, "ready")
	}
	if c.serving {
		words = append(words, "serving")
	}
	if c.terminating {
		words = append(words, "terminating")
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ",")
}

// Lines are the Explanation in short: who asked, each step, and who is answered.
func (e *Explanation) Lines() []string {
	place := []string{}
	for _, p := range [][2]string{{"node", e.Asker.Node}, {"zone", e.Asker.Zone}, {"region", e.Asker.Region}} {
		if p[1] != "" {
			place = append(place, p[0]+" "+p[1])
		}
	}
	who := e.Asker.Address
	if e.Asker.Subnet != "" {
		who += " for " + e.Asker.Subnet
	}
	lines := []string{fmt.Sprintf("asker %s: %s", who, strings.Join(place, ", "))}
	if len(place) == 0 {
		lines[0] = fmt.Sprintf("asker %s", who)
	}
	lines = append(lines, "place: "+e.Asker.How)
	if e.Service != "" {
		lines = append(lines, "service "+e.Service)
	}
	for _, k := range e.Knobs {
		if k.From != "default" {
			lines = append(lines, fmt.Sprintf("knob %s: %s (%s)", k.Knob, k.Value, k.From))
		}
	}
	for _, p := range e.Problems {
		lines = append(lines, "bad annotation "+p)
	}
	return append(lines, e.Steps...)
}

// appendExplain appends one TXT record: why the asker gets what it gets from the
// Service whose _explain name this is. It is made for people; it allocates, and looks
// at no endpoint that is not answered.
func (a *Answer) appendExplain(dst []byte, owner int) []byte {
	q := a.question
	q.Name = a.service.suffix
	inner := NewAnswer()
	for _, q.Type = range []uint16{TypeA, TypeAAAA} {
		a.set.Lookup(&q, inner)
		if inner.records.n > 0 {
			break
		}
	}
	message := make([]byte, headerSize, 512)
	inner.AppendTo(append(append(message, q.Name...), 0, 0, 0, 0), 0, maxExplained, 0)
	lines := inner.outline().Lines()
	for i, endpoint := range inner.order[:inner.decision.written] {
		record := inner.records.record(inner.records.at(inner.records.first(endpoint)))
		addr, _ := netip.AddrFromSlice(record[fixedSize:])
		lines = append(lines, fmt.Sprintf("%d. %s", i+1, addr))
	}
	start := len(dst)
	dst = appendFixed(dst, owner, TypeTXT, 0, 0)
	for _, line := range lines {
		line = line[:min(len(line), 255)]
		dst = append(append(dst, byte(len(line))), line...)
	}
	length := len(dst) - start - fixedSize
	dst[start+fixedSize-2], dst[start+fixedSize-1] = byte(length>>8), byte(length)
	return dst
}

// maxExplained is the size of the answer that TXT records explain: one over UDP.
const maxExplained = 1232
