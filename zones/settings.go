package zones

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"epdns/registry"
	"epdns/zones/rank"
)

// Settings are the knobs in force for one Service in one zone. They are shared and
// never change.
type Settings struct {
	TTL         time.Duration // of records; this and the others are whole seconds, 0 to an hour
	TTLEmpty    time.Duration // of NODATA where nothing is published
	TTLNXDomain time.Duration // of NXDOMAIN, of a type that is not there, of names in between

	Publish  Readiness
	Fallback Fallback
	Limit    int // the most endpoints in an answer; 0 is all
	Min      int // what TopologyNearest asks of a tier, at least 1
	Fit      Fit
	Topology Topology
	Order    rank.Order // within a tier
	Weights  Weights
}

// Readiness is what makes an endpoint one that is published.
type Readiness uint8

const (
	Ready   Readiness = iota
	Serving           // ready or not, terminating or not
	All               // every endpoint
)

// Fallback is what is published of a Service in which nothing has the Readiness.
type Fallback uint8

const (
	FallbackNone    Fallback = iota
	FallbackServing          // what serves while it terminates
	FallbackAll
)

// Fit is what becomes of an answer that is too long for the asker.
type Fit uint8

const (
	Truncate Fit = iota // TC is set: all of it is to be had over TCP
	Cut                 // what fits is the answer
)

// Topology is what an asker's place does.
type Topology uint8

const (
	TopologyAuto    Topology = iota // TopologyHints where the Service asks for it, else TopologyOrder
	TopologyOrder                   // all, near first
	TopologyHints                   // those meant for the place
	TopologyNearest                 // the nearest tier that has Min
	TopologyOff                     // nothing
)

var (
	readinesses = choice[Readiness]{"publish", []string{"ready", "serving", "all"}}
	fallbacks   = choice[Fallback]{"fallback", []string{"none", "serving", "all"}}
	fits        = choice[Fit]{"fit", []string{"truncate", "cut"}}
	topologies  = choice[Topology]{"topology", []string{"auto", "order", "hints", "nearest", "off"}}
	orders      = choice[rank.Order]{"order", []string{"shuffle", "rotate", "hash", "fixed"}}
)

func (r Readiness) String() string { return readinesses.text(r) }
func (f Fallback) String() string  { return fallbacks.text(f) }
func (f Fit) String() string       { return fits.text(f) }
func (t Topology) String() string  { return topologies.text(t) }

// Knob is one thing that can be set for Services. All that is said of knobs anywhere
// comes from the table of them.
type Knob struct {
	Name    string // of the annotation, after its prefix, and of the key in files
	Default string // what it is where nothing sets it
	Means   string // in whole sentences

	set func(s *Settings, text string) error // leaves s alone where text is bad
}

// knobTable has every knob there is. The errors of a setter go on after `"<text>" is`.
var knobTable = []Knob{
	{"ttl", "5s", "How long records are kept. Whole seconds, at most an hour.",
		ttlKnob(func(s *Settings) *time.Duration { return &s.TTL })},
	{"ttl-empty", "2s", "How long it is kept that nothing is published at a name. Whole seconds, at most an hour.",
		ttlKnob(func(s *Settings) *time.Duration { return &s.TTLEmpty })},
	{"ttl-nxdomain", "5s", "How long it is kept that there is no such name or no record of a type. Whole seconds, at most an hour.",
		ttlKnob(func(s *Settings) *time.Duration { return &s.TTLNXDomain })},
	{"publish", "ready", "Which endpoints are published: ready, serving (terminating or not) or all.",
		choiceKnob(&readinesses, func(s *Settings) *Readiness { return &s.Publish })},
	{"fallback", "none", "Which endpoints are published where publish leaves nothing: none, serving (those that serve while they terminate) or all.",
		choiceKnob(&fallbacks, func(s *Settings) *Fallback { return &s.Fallback })},
	{"limit", "0", "The most endpoints in an answer, which are the best ranked. 0 is all.",
		numberKnob(0, func(s *Settings) *int { return &s.Limit })},
	{"min", "1", "How many endpoints the topology nearest asks of a tier. At least 1.",
		numberKnob(1, func(s *Settings) *int { return &s.Min })},
	{"fit", "truncate", "What becomes of an answer that is too long for the asker: truncate has it come over TCP, cut makes do with the best ranked that fit.",
		choiceKnob(&fits, func(s *Settings) *Fit { return &s.Fit })},
	{"topology", "auto", "What the asker's place does: order puts near endpoints (node, then zone, then region) before the rest; nearest leaves the rest out where the near ones are min or more; hints leaves out what is meant for other places, as kube-proxy does; auto is hints where the Service sets trafficDistribution or its slices carry hints, else order; off does nothing.",
		func(s *Settings, text string) error {
			if text == "false" {
				text = "off" // as some programs that write YAML have it
			}
			return setTopology(s, text)
		}},
	{"order", "shuffle", "The order of endpoints that are equally near: shuffle, rotate, hash (each asker has one of its own, which stays) or fixed (by address).",
		choiceKnob(&orders, func(s *Settings) *rank.Order { return &s.Order })},
	{"weights", `""`, "How much endpoints get, such as web-0=10, node:n7=5, zone:a=0: by host name, pod name or address, else by node, else by zone, else 1. At most 65535; an endpoint of 0 is left out unless there are no others.",
		func(s *Settings, text string) error {
			w, err := parseWeights(text)
			if err == nil {
				s.Weights = w
			}
			return err
		}},
}

var setTopology = choiceKnob(&topologies, func(s *Settings) *Topology { return &s.Topology })

// Knobs are all that there are, in the order in which to show them.
func Knobs() []Knob { return slices.Clone(knobTable) }

// Check says what is wrong with a value, in words that go on after its text and "is".
func (k *Knob) Check(text string) error { return k.set(&Settings{}, text) }

// findKnob is the knob of a name, or nil.
func findKnob(name string) *Knob {
	for i := range knobTable {
		if knobTable[i].Name == name {
			return &knobTable[i]
		}
	}
	return nil
}

func ttlKnob(of func(*Settings) *time.Duration) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		unit := ""
		if text != "" && strings.Trim(text, "0123456789") == "" {
			unit = "s"
		}
		d, err := time.ParseDuration(text + unit)
		if err != nil {
			return errors.New("no duration such as 5s, 1m30s or 5 (seconds)")
		}
		if d < 0 || d > maxTTL || d%time.Second != 0 {
			return errors.New("not whole seconds from 0s to 1h")
		}
		*of(s) = d
		return nil
	}
}

func choiceKnob[T ~uint8](c *choice[T], of func(*Settings) *T) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		v, ok := c.find(text)
		if !ok {
			return fmt.Errorf("not %s", c.list())
		}
		*of(s) = v
		return nil
	}
}

func numberKnob(least int, of func(*Settings) *int) func(*Settings, string) error {
	return func(s *Settings, text string) error {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil || int(n) < least {
			return fmt.Errorf("not a whole number, %d or more", least)
		}
		*of(s) = int(n)
		return nil
	}
}

// Values are texts of knobs by name: those that one layer sets.
type Values map[string]string

// apply sets what the values say, and names the first that is wrong.
func (v Values) apply(s *Settings) error {
	for _, name := range slices.Sorted(maps.Keys(v)) {
		k := findKnob(name)
		if k == nil {
			return fmt.Errorf("there is no knob %q", name)
		}
		if err := k.set(s, v[name]); err != nil {
			return fmt.Errorf("%s: %s is %w", name, quoted(v[name]), err)
		}
	}
	return nil
}

// Rule sets knobs of the Services that it matches. What it leaves empty matches all.
type Rule struct {
	// Globs, in which * is any text and ? any character, over the whole name.
	Namespace, Name string

	// Selector is of the Service's labels, such as "tier=front,env in (a,b)".
	Selector string

	Set Values
}

// CheckGlob says what is wrong with a Rule's Namespace or Name.
func CheckGlob(glob string) error {
	for _, c := range []byte(glob) {
		if c != '-' && c != '*' && c != '?' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return fmt.Errorf("%s matches no name: names have lower-case letters, digits and dashes, for which * and ? may stand", quoted(glob))
		}
	}
	return nil
}

// CheckSelector says what is wrong with a Rule's Selector.
func CheckSelector(selector string) error {
	_, err := parseSelector(selector)
	return err
}

// parseSelector returns nil where everything is selected.
func parseSelector(text string) (labels.Selector, error) {
	s, err := labels.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s is no label selector: %s", quoted(text), oneLine(err.Error()))
	}
	if s.Empty() {
		return nil, nil
	}
	return s, nil
}

// knobs are what a zone says of knobs, compiled. They never change; any number of
// goroutines may use them.
type knobs struct {
	base     Settings // of names that are no Service's
	defaults Values
	rules    []rule
}

type rule struct {
	namespace, name string
	selector        labels.Selector // nil selects all
	set             Values
	settings        Settings // with the base
}

// newKnobs names the first value that is wrong.
func newKnobs(z *Zone) (*knobs, error) {
	k := &knobs{defaults: maps.Clone(z.Defaults)}
	for _, knob := range knobTable {
		if err := knob.set(&k.base, knob.preset()); err != nil {
			panic("zones: default of " + knob.Name + ": " + err.Error())
		}
	}
	if err := z.Defaults.apply(&k.base); err != nil {
		return nil, fmt.Errorf("defaults: %w", err)
	}
	for i, r := range z.Rules {
		out := rule{namespace: r.Namespace, name: r.Name, set: maps.Clone(r.Set), settings: k.base}
		var err error
		if err = CheckGlob(r.Namespace); err == nil {
			err = CheckGlob(r.Name)
		}
		if err == nil {
			out.selector, err = parseSelector(r.Selector)
		}
		if err == nil {
			err = r.Set.apply(&out.settings)
		}
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
		k.rules = append(k.rules, out)
	}
	return k, nil
}

// preset is Default without the quotes that files need.
func (k *Knob) preset() string { return strings.Trim(k.Default, `"`) }

// settings are those of one Service, and the problems of its annotations. Where it
// has none, nothing is allocated.
func (k *knobs) settings(svc *registry.Service) (Settings, []Problem) {
	s := k.base
	if i := k.match(svc); i >= 0 {
		s = k.rules[i].settings
	}
	if a := annotations(svc); len(a) > 0 {
		return annotate(s, a)
	}
	return s, nil
}

// match is the first rule that matches, or -1.
func (k *knobs) match(svc *registry.Service) int {
	for i := range k.rules {
		if k.rules[i].matches(svc) {
			return i
		}
	}
	return -1
}

func (r *rule) matches(svc *registry.Service) bool {
	if r.namespace != "" && !globMatch(r.namespace, svc.Namespace) || r.name != "" && !globMatch(r.name, svc.Name) {
		return false
	}
	switch {
	case r.selector == nil:
		return true
	case svc.Object == nil:
		return r.selector.Matches(noLabels)
	}
	return r.selector.Matches(&svc.Object.Labels)
}

// noLabels are those of a Service of which only slices are known.
var noLabels = &registry.Pairs{}

// globMatch says whether a glob is all of a name. Where a * took too little, the last
// one takes one more.
func globMatch[T string | []byte](glob string, name T) bool {
	g, n := 0, 0
	star, took := -1, 0
	for n < len(name) {
		switch {
		case g < len(glob) && glob[g] == '*':
			star, took = g, n
			g++
		case g < len(glob) && (glob[g] == '?' || glob[g] == name[n]):
			g++
			n++
		case star >= 0:
			took++
			g, n = star+1, took
		default:
			return false
		}
	}
	return strings.Trim(glob[g:], "*") == ""
}

// Problem is an annotation that does nothing.
type Problem struct {
	Annotation string // its name without the prefix
	Value      string
	Why        string // such as "not whole seconds from 0s to 1h"
}

// String shows the annotation without its prefix.
func (p Problem) String() string { return p.Annotation + " " + quoted(p.Value) + ": " + p.Why }

// Problems are those of a Service's annotations. They are the same in every zone.
func Problems(svc *registry.Service) []Problem {
	_, problems := annotate(Settings{}, annotations(svc))
	return problems
}

func annotations(svc *registry.Service) registry.Pairs {
	if svc.Object == nil {
		return nil
	}
	return svc.Object.Annotations
}

// annotate sets what annotations say.
func annotate(s Settings, annotations registry.Pairs) (_ Settings, problems []Problem) {
	for _, a := range annotations {
		k := findKnob(a.Key)
		if k == nil {
			problems = append(problems, Problem{a.Key, a.Value, "there is no such knob"})
		} else if err := k.set(&s, a.Value); err != nil {
			problems = append(problems, Problem{a.Key, a.Value, err.Error()})
		}
	}
	return s, problems
}

// Origin is where the value of a knob comes from.
type Origin struct {
	Knob  string
	Value string // as it was written there
	Layer string // "default", "zone", "rule 1" and so on, or "annotation"
}

// resolve is settings, with the origin of each knob.
func (k *knobs) resolve(svc *registry.Service) (Settings, []Origin, []Problem) {
	settings, problems := k.settings(svc)
	matched := k.match(svc)
	var origins []Origin
	for _, knob := range knobTable {
		o := Origin{knob.Name, knob.preset(), "default"}
		if v, ok := k.defaults[knob.Name]; ok {
			o.Value, o.Layer = v, "zone"
		}
		if matched >= 0 {
			if v, ok := k.rules[matched].set[knob.Name]; ok {
				o.Value, o.Layer = v, fmt.Sprintf("rule %d", matched+1)
			}
		}
		if v, ok := annotations(svc).Lookup(knob.Name); ok && knob.Check(v) == nil {
			o.Value, o.Layer = v, "annotation"
		}
		origins = append(origins, o)
	}
	return settings, origins, problems
}

// maxQuoted is how much of a value messages show, so that a line stays one.
const maxQuoted = 80

func quoted(text string) string {
	if len(text) > maxQuoted {
		return strconv.Quote(text[:maxQuoted]) + "…"
	}
	return strconv.Quote(text)
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
