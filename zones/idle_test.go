package zones

import (
	"slices"
	"strings"
	"testing"

	"epdns/registry"
)

// What is set and does nothing is found, and nothing else.
func TestIdle(t *testing.T) {
	front := named(serving(t, "", "10.0.0.1 n1/a/r", "10.0.0.2 n2/b/r host=web-1"), "shop", "front")
	front.Object.Labels = registry.Pairs{{Key: "tier", Value: "front"}}
	alias := &registry.Service{Key: registry.Key{Namespace: "shop", Name: "alias"}, Exists: true, Object: &registry.Object{IsExternalName: true}}
	for _, c := range []struct {
		what  string
		knobs string // annotations of shop/web
		zones []Zone // the default zone if none
		want  []string
	}{
		{what: "nothing set"},
		{what: "all of it counts", knobs: "topology=nearest; min=2; weights=web-0=2, node:n2=3, zone:b=0, 10.0.0.3=4; fallback=all"},
		{what: "min", knobs: "min=2", want: []string{"shop/web min: it counts with the topology nearest alone"}},
		{what: "min, with topology order", knobs: "topology=order; min=2", want: []string{"shop/web min: it counts with the topology nearest alone"}},
		{what: "weights", knobs: "weights=web-0=2, web-9=3, zone:d=0, node:n2=1, 10-0-0-9=1, 10-0-0-1=1, 10.0.0.7=2", want: []string{
			"shop/web weights: no endpoint, node or zone there is 10-0-0-9, 10.0.0.7, web-9, zone:d"}},
		{what: "fallback from all", knobs: "publish=all; fallback=serving", want: []string{"shop/web fallback: publish all leaves it nothing"}},
		{what: "fallback from serving", knobs: "publish=serving; fallback=serving", want: []string{"shop/web fallback: publish serving leaves it nothing"}},
		{what: "fallback to all", knobs: "publish=serving; fallback=all"},

		{what: "rules", zones: []Zone{{Name: "z", Rules: []Rule{
			{Name: "fr*", Set: Values{"ttl": "1"}},
			{Name: "front", Selector: "tier=front", Set: Values{"ttl": "2"}},
			{Namespace: "none", Set: Values{"ttl": "2"}},
			{Name: "alias", Set: Values{}}, // an exception
			{Set: Values{"ttl": "3"}},
			{Name: "web", Set: Values{"ttl": "4"}},
		}}}, want: []string{
			"zones[0].rules[1]: it decides for no Service: what it matches, rules before it match, too",
			"zones[0].rules[2]: it matches no Service",
			"zones[0].rules[5]: it decides for no Service: what it matches, rules before it match, too",
		}},
		{what: "a rule that sets nothing", zones: []Zone{{Name: "y"}, {Name: "z", Rules: []Rule{{Set: Values{}}, {Name: "web"}}}}, want: []string{
			"zones[1].rules[0]: it sets nothing, and no rule behind it would",
			"zones[1].rules[1]: it decides for no Service: what it matches, rules before it match, too",
		}},
		{what: "values of rules and zones", zones: []Zone{{
			Name:     "z",
			Defaults: Values{"min": "2", "weights": "zone:a=2, zone:x=0"},
			Rules: []Rule{
				{Name: "web", Set: Values{"weights": "web-9=1", "min": "3", "ttl": "1"}},
				{Name: "alias", Set: Values{"limit": "2", "ttl": "1"}},
			},
		}}, want: []string{
			"zones[0].rules[0].set.min: it counts with the topology nearest alone",
			"zones[0].rules[0].set.weights: no endpoint, node or zone there is web-9",
			"zones[0].defaults.min: it counts with the topology nearest alone",
			"zones[0].rules[1].set.limit: it is of a Service of type ExternalName",
		}},
		{what: "for some of them", knobs: "topology=nearest", zones: []Zone{{Name: "z", Defaults: Values{"min": "2"}}}},
		{what: "in one zone of two", knobs: "min=2", zones: []Zone{{Name: "y"}, {Name: "z", Defaults: Values{"topology": "nearest"}}}},
	} {
		t.Run(c.what, func(t *testing.T) {
			web := serving(t, c.knobs, "10.0.0.1 n1/a/r host=web-0", "10.0.0.2 n2/b/r", "10.0.0.3 n3/c/r")
			cfg := Config{Zones: c.zones}
			if cfg.Zones == nil {
				cfg.Zones = []Zone{DefaultZone("registry.local")}
			}
			if err := cfg.Validate(); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, i := range cfg.Idle([]*registry.Service{web, front, alias}) {
				text := i.Setting + ": " + i.Why
				if i.Service != (registry.Key{}) {
					text = i.Service.String() + " " + text
				}
				got = append(got, text)
			}
			slices.Sort(got)
			slices.Sort(c.want)
			if !slices.Equal(got, c.want) {
				t.Errorf("idle are:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if got := cfg.Idle(nil); got != nil {
				t.Errorf("without Services: %v", got)
			}
		})
	}
	// Weights may be meant for pods to come.
	empty := serving(t, "weights=web-0=2")
	cfg := Config{Zones: []Zone{DefaultZone("registry.local")}}
	if got := cfg.Idle([]*registry.Service{empty}); got != nil {
		t.Errorf("without endpoints: %v", got)
	}
}
