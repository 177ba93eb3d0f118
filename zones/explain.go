package zones

import (
	"fmt"
	"strings"
	"time"
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

	// Endpoints of the Service, each once: those that are answered in the order of the
	// answer, then the others. For an address, those of each Service that have it.
	Endpoints []ExplainedEndpoint `json:"endpoints,omitempty"`

	// Records are how many of a Service's the whole answer has, those that did not fit
	// into this one, too.
	Records int `json:"records,omitempty"`

	Serial uint32 `json:"serial"` // of the zone's SOA

	// AsOf is until when all this is known to be right, where that is not now.
	AsOf *time.Time `json:"asOf,omitempty"`
}

// ExplainedAsker is who asked, and where that is.
type ExplainedAsker struct {
	Address    string `json:"address,omitempty"`
	Subnet     string `json:"subnet,omitempty"`     // for whom, by EDNS Client Subnet that was believed
	Unbelieved string `json:"unbelieved,omitempty"` // one that was not
	Node       string `json:"node,omitempty"`
	Zone       string `json:"zone,omitempty"`
	Region     string `json:"region,omitempty"`
	How        string `json:"how"` // its place was found
	Scope      int    `json:"scope,omitempty"`
}

// ExplainedKnob is the value of a knob and the layer it comes from.
type ExplainedKnob struct {
	Knob  string `json:"knob"`
	Value string `json:"value"`
	From  string `json:"from"` // as Origin.Layer has it
}

// ExplainedSlice is an EndpointSlice that was read.
type ExplainedSlice struct {
	Name      string   `json:"name"`
	Endpoints int      `json:"endpoints"`
	Ready     int      `json:"ready"`
	Ports     []string `json:"ports,omitempty"`
}

// ExplainedTier is what is as near as that. Its endpoints are those that the answer
// could have had: each tier has those that the nearer ones have not.
type ExplainedTier struct {
	Tier      string `json:"tier"` // node, zone, region, rest, or all where the place does not matter
	Endpoints int    `json:"endpoints"`
	Answered  int    `json:"answered"`
}

// ExplainedEndpoint is an endpoint and what became of it.
type ExplainedEndpoint struct {
	Service    string `json:"service,omitempty"` // where several are explained
	Address    string `json:"address"`
	Name       string `json:"name,omitempty"` // its label below the Service
	Pod        string `json:"pod,omitempty"`
	Node       string `json:"node,omitempty"`
	Zone       string `json:"zone,omitempty"`
	Region     string `json:"region,omitempty"`
	Conditions string `json:"conditions"`
	Weight     int    `json:"weight"`
	Tier       string `json:"tier,omitempty"` // as ExplainedTier has it
	Answered   bool   `json:"answered"`       // a record of it is in the message
	Why        string `json:"why"`
}

// decision is what rank has decided, for Explain.
type decision struct {
	topology Topology
	placed   bool    // the place of the asker counted
	hinted   bool    // hints chose
	tier     int8    // that TopologyNearest chose
	share    float64 // of the load that it takes
	written  int     // endpoints, or PTR records, that are in the message
	of       int     // endpoints that could be
	bound    int     // endpoints that there is room for, or that the limit allows
}

var tierNames = [...]string{"node", "zone", "region", "rest"}

// tierAll is the one tier where the place does not matter.
const tierAll = "all"

// Explain explains the answer that AppendTo appended last. It looks at every endpoint
// of the Service, which takes time and memory.
func (a *Answer) Explain() *Explanation {
	e := a.outline()
	switch {
	case a.holders != nil:
		a.explainHolders(e)
	case a.service != nil && !a.service.external:
		a.explainSlices(e)
		if a.single == none {
			a.explainEndpoints(e)
		}
	}
	return e
}

// outline is an Explanation without what depends on each endpoint.
func (a *Answer) outline() *Explanation {
	idle, scope := !a.asked, a.Scope()
	a.ask()
	e := &Explanation{Asker: a.explainAsker(), Serial: a.set.serial}
	e.Asker.Scope = scope
	if idle { // asking for the explanation has no effect on Place and Scope
		a.asked = false
	}
	switch z := a.set.cfg.reverseZone(a.target()); {
	case a.zone != nil && a.reverseApex == nil:
		e.Zone = nameText(a.zone.apex)
	case z != nil:
		e.Zone = nameText(z.apex)
	}
	if asOf := a.set.asOf; !asOf.IsZero() {
		e.AsOf = &asOf
		e.step("stale: this is as of %s, and nothing has been heard of the source since", asOf.UTC().Format(time.RFC3339))
	}
	a.explainSteps(e)
	return e
}

// target is the name that was answered for: the question's, or the last one that
// aliases led to.
func (a *Answer) target() []byte {
	if a.hops > 0 {
		return a.chain[a.hops-1][fixedSize:]
	}
	return a.question.Name
}

func (e *Explanation) step(format string, args ...any) {
	e.Steps = append(e.Steps, fmt.Sprintf(format, args...))
}

func (a *Answer) explainSlices(e *Explanation) {
	if until := a.service.source.Held; until != 0 {
		e.step("the last list lacked most endpoints of this Service: those from before are kept until it is read again, at %s",
			time.Unix(until, 0).UTC().Format(time.RFC3339))
	}
	for _, sl := range a.service.source.Slices {
		x := ExplainedSlice{Name: sl.Name, Endpoints: sl.Endpoints.Len()}
		for i := range sl.Endpoints.Len() {
			if sl.Endpoints.Ready(i) {
				x.Ready++
			}
		}
		for _, p := range sl.Ports {
			x.Ports = append(x.Ports, fmt.Sprintf("%s:%d/%s", p.Name, p.Number, p.Protocol))
		}
		e.Slices = append(e.Slices, x)
	}
}

// String is the conditions in as few words as tell them apart.
func (c condition) String() string {
	text := "not-ready"
	switch {
	case c.ready && c.serving:
		text = "ready"
	case c.ready:
		text = "ready,not-serving" // odd
	case c.serving:
		text = "serving"
	}
	if c.terminating {
		text += ",terminating"
	}
	return text
}

// Who is the asker in a few words.
func (a *ExplainedAsker) Who() string {
	who := a.Address
	if a.Address == "" {
		who = "not known"
	}
	if a.Subnet != "" {
		who += " for " + a.Subnet
	}
	var place []string
	for _, p := range [][2]string{{"node", a.Node}, {"zone", a.Zone}, {"region", a.Region}} {
		if p[1] != "" {
			place = append(place, p[0]+" "+p[1])
		}
	}
	if len(place) > 0 {
		who += ": " + strings.Join(place, ", ")
	}
	return who
}

// IsSet says whether the knob has a value that somebody gave it.
func (k *ExplainedKnob) IsSet() bool { return k.From != "default" }

// String is the knob as a line of text.
func (k *ExplainedKnob) String() string {
	return fmt.Sprintf("%s: %s (%s)", k.Knob, oneLine(k.Value), k.From)
}

// Lines are the Explanation in short: who asked, what is set, and each step.
func (e *Explanation) Lines() []string {
	lines := []string{"asker " + e.Asker.Who(), "place: " + e.Asker.How}
	if e.Service != "" {
		lines = append(lines, "service "+e.Service)
	}
	for i := range e.Knobs {
		if e.Knobs[i].IsSet() {
			lines = append(lines, "knob "+e.Knobs[i].String())
		}
	}
	for _, p := range e.Problems {
		lines = append(lines, "bad annotation "+p)
	}
	return append(lines, e.Steps...)
}
