package zones

import (
	"fmt"
	"slices"
	"strings"

	"epdns/registry"
)

// Idle is something that is set, is no mistake, and does nothing.
type Idle struct {
	Service registry.Key // whose annotation it is; zero: it is of the Config
	Setting string       // the annotation without its prefix, or a path such as "zones[0].rules[1]"
	Why     string
}

// Idle finds what does nothing for any of these Services, which should be all that exist.
// The Config must be valid. What is of the Config comes first, then annotations in order
// of the Services.
func (c *Config) Idle(services []*registry.Service) (idle []Idle) {
	if len(services) == 0 {
		return nil
	}
	own := newUses[annotationOf]()
	for i := range c.Zones {
		k, err := newKnobs(&c.Zones[i])
		if err != nil {
			continue
		}
		path := fmt.Sprintf("zones[%d]", i)
		ofZone := newUses[string]()
		rules := make([]ruleUse, len(k.rules))
		for _, svc := range services {
			decides := k.countMatches(rules, svc)
			settings, origins, _ := k.resolve(svc)
			for _, o := range origins {
				switch o.Layer {
				case "default":
				case "annotation":
					own.note(annotationOf{svc.Key, o.Knob}, settings.idle(o.Knob, svc, true))
				case "zone":
					ofZone.note(path+".defaults."+o.Knob, settings.idle(o.Knob, svc, false))
				default:
					ofZone.note(fmt.Sprintf("%s.rules[%d].set.%s", path, decides, o.Knob), settings.idle(o.Knob, svc, false))
				}
			}
		}
		for j := range rules {
			if why := rules[j].idle(len(k.rules[j].set) == 0); why != "" {
				idle = append(idle, Idle{Setting: fmt.Sprintf("%s.rules[%d]", path, j), Why: why})
			}
		}
		for setting, why := range ofZone.idle() {
			idle = append(idle, Idle{Setting: setting, Why: why})
		}
	}
	for a, why := range own.idle() {
		idle = append(idle, Idle{a.service, a.knob, why})
	}
	return idle
}

type annotationOf struct {
	service registry.Key
	knob    string
}

// ruleUse is how many Services a rule matches and decides for, and whether it keeps others
// that set something from deciding.
type ruleUse struct {
	matches, decides int
	shields          bool
}

// countMatches counts a Service for the rules, and returns the one that decides, or -1.
func (k *knobs) countMatches(uses []ruleUse, svc *registry.Service) (decides int) {
	decides = -1
	for i := range k.rules {
		switch {
		case !k.rules[i].matches(svc):
			continue
		case decides < 0:
			decides = i
			uses[i].decides++
		case len(k.rules[i].set) > 0:
			uses[decides].shields = true
		}
		uses[i].matches++
	}
	return decides
}

func (u *ruleUse) idle(empty bool) string {
	switch {
	case u.matches == 0:
		return "it matches no Service"
	case u.decides == 0:
		return "it decides for no Service: what it matches, rules before it match, too"
	case empty && !u.shields:
		return "it sets nothing, and no rule behind it would"
	}
	return ""
}

// uses keeps what does nothing wherever it is in force, in the order in which it came.
type uses[K comparable] struct {
	order []K
	why   map[K]string // empty where it does something
}

func newUses[K comparable]() *uses[K] { return &uses[K]{why: map[K]string{}} }

// note notes why something does nothing in one place, or that it does.
func (u *uses[K]) note(k K, why string) {
	was, seen := u.why[k]
	if !seen {
		u.order = append(u.order, k)
	}
	if !seen || was == whyAlias || was != "" && why == "" {
		u.why[k] = why
	}
}

// whyAlias gives way to other reasons.
const whyAlias = "it is of a Service of type ExternalName"

func (u *uses[K]) idle() func(yield func(K, string) bool) {
	return func(yield func(K, string) bool) {
		for _, k := range u.order {
			if u.why[k] != "" && !yield(k, u.why[k]) {
				return
			}
		}
	}
}

// idle says why a knob that is set does nothing for a Service, if so. Each of its own
// weights must name something; of those for many Services one is enough.
func (s *Settings) idle(knob string, svc *registry.Service, own bool) (why string) {
	switch {
	case svc.Object != nil && svc.Object.IsExternalName:
		if knob != "ttl" && knob != "ttl-nxdomain" {
			return whyAlias
		}
	case knob == "min" && s.Topology != TopologyNearest:
		return "it counts with the topology nearest alone"
	case knob == "fallback" && s.Fallback != FallbackNone && (s.Publish == All || s.Publish == Serving && s.Fallback == FallbackServing):
		return fmt.Sprintf("publish %v leaves it nothing", s.Publish)
	case knob == "weights" && slices.ContainsFunc(svc.Slices, func(sl *registry.Slice) bool { return sl.Endpoints.Len() > 0 }):
		if unused, all := s.Weights.unused(svc); len(unused) > 0 && (own || len(unused) == all) {
			return "no endpoint, node or zone there is " + strings.Join(unused, ", ")
		}
	}
	return ""
}
