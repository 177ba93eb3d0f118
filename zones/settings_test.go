package zones

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"epdns/registry"
	"epdns/zones/rank"
)

// annotated is a Service with annotations, of which each is "name: value".
func annotated(namespace, name string, annotations ...string) *registry.Service {
	svc := &registry.Service{Key: registry.Key{Namespace: namespace, Name: name}, Exists: true, Object: &registry.Object{}}
	for _, a := range annotations {
		key, value, _ := strings.Cut(a, ": ")
		svc.Object.Annotations = append(svc.Object.Annotations, registry.Pair{Key: key, Value: value})
	}
	return svc
}

func newTestKnobs(t testing.TB, z Zone) *knobs {
	t.Helper()
	k, err := newKnobs(&z)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func builtIn() Settings {
	return Settings{TTL: 5 * time.Second, TTLEmpty: 2 * time.Second, TTLNXDomain: 5 * time.Second, Min: 1}
}

func TestKnobs(t *testing.T) {
	for _, c := range []struct {
		annotation string
		want       func(*Settings) // nil: it is bad
		says       string
	}{
		{"ttl: 30s", func(s *Settings) { s.TTL = 30 * time.Second }, ""},
		{"ttl: 7", func(s *Settings) { s.TTL = 7 * time.Second }, ""},
		{"ttl: 0", func(s *Settings) { s.TTL = 0 }, ""},
		{"ttl: 0s", func(s *Settings) { s.TTL = 0 }, ""},
		{"ttl: 1h", func(s *Settings) { s.TTL = time.Hour }, ""},
		{"ttl: 1m30s", func(s *Settings) { s.TTL = 90 * time.Second }, ""},
		{"ttl-empty: 9s", func(s *Settings) { s.TTLEmpty = 9 * time.Second }, ""},
		{"ttl-nxdomain: 3600", func(s *Settings) { s.TTLNXDomain = time.Hour }, ""},
		{"ttl: 2h", nil, "not whole seconds from 0s to 1h"},
		{"ttl: 3601", nil, "not whole seconds from 0s to 1h"},
		{"ttl: 1.5s", nil, "not whole seconds from 0s to 1h"},
		{"ttl: -3s", nil, "not whole seconds from 0s to 1h"},
		{"ttl: -3", nil, "no duration such as 5s"},
		{"ttl: 1.5", nil, "no duration such as 5s"},
		{"ttl: 5 s", nil, "no duration such as 5s"},
		{"ttl: soon", nil, "no duration such as 5s"},
		{"ttl: ", nil, "no duration such as 5s"},
		{"ttl: 99999999999999999999", nil, "no duration such as 5s"},

		{"publish: ready", func(s *Settings) { s.Publish = Ready }, ""},
		{"publish: serving", func(s *Settings) { s.Publish = Serving }, ""},
		{"publish: all", func(s *Settings) { s.Publish = All }, ""},
		{"publish: running", nil, "not ready, serving or all"},
		{"fallback: none", func(s *Settings) { s.Fallback = FallbackNone }, ""},
		{"fallback: serving", func(s *Settings) { s.Fallback = FallbackServing }, ""},
		{"fallback: all", func(s *Settings) { s.Fallback = FallbackAll }, ""},
		{"fallback: maybe", nil, "not none, serving or all"},
		{"fit: truncate", func(s *Settings) { s.Fit = Truncate }, ""},
		{"fit: cut", func(s *Settings) { s.Fit = Cut }, ""},
		{"fit: Cut", nil, "not truncate or cut"},
		{"topology: auto", func(s *Settings) { s.Topology = TopologyAuto }, ""},
		{"topology: order", func(s *Settings) { s.Topology = TopologyOrder }, ""},
		{"topology: hints", func(s *Settings) { s.Topology = TopologyHints }, ""},
		{"topology: nearest", func(s *Settings) { s.Topology = TopologyNearest }, ""},
		{"topology: off", func(s *Settings) { s.Topology = TopologyOff }, ""},
		{"topology: false", func(s *Settings) { s.Topology = TopologyOff }, ""},
		{"topology: closest", nil, "not auto, order, hints, nearest or off"},
		{"order: shuffle", func(s *Settings) { s.Order = rank.Shuffle }, ""},
		{"order: rotate", func(s *Settings) { s.Order = rank.Rotate }, ""},
		{"order: hash", func(s *Settings) { s.Order = rank.Hash }, ""},
		{"order: fixed", func(s *Settings) { s.Order = rank.Fixed }, ""},
		{"order: ", nil, "not shuffle, rotate, hash or fixed"},

		{"limit: 0", func(s *Settings) { s.Limit = 0 }, ""},
		{"limit: 8", func(s *Settings) { s.Limit = 8 }, ""},
		{"limit: -1", nil, "not a whole number, 0 or more"},
		{"limit: many", nil, "not a whole number, 0 or more"},
		{"limit: 99999999999", nil, "not a whole number, 0 or more"},
		{"min: 3", func(s *Settings) { s.Min = 3 }, ""},
		{"min: 0", nil, "not a whole number, 1 or more"},

		{"weights: everything", nil, `no list of weights such as web-0=10, zone:a=0: entry "everything" is not NAME=WEIGHT`},

		{"tll: 5s", nil, "there is no such knob"},
		{"TTL: 5s", nil, "there is no such knob"},
		{"a/b: x", nil, "there is no such knob"},
	} {
		got, problems := newTestKnobs(t, Zone{}).settings(annotated("shop", "web", c.annotation))
		want := builtIn()
		if c.want != nil {
			c.want(&want)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v\nexpected %+v", c.annotation, got, want)
		}
		name, value, _ := strings.Cut(c.annotation, ": ")
		switch {
		case c.want == nil && (len(problems) != 1 || problems[0].Annotation != name || problems[0].Value != value || !strings.HasPrefix(problems[0].Why, c.says)):
			t.Errorf("%q: %v\nexpected: %s…", c.annotation, problems, c.says)
		case c.want != nil && len(problems) > 0:
			t.Errorf("%q: %v", c.annotation, problems)
		}
	}
}

// TestChoicesHaveNames holds the names against the constants' order.
func TestChoicesHaveNames(t *testing.T) {
	for _, c := range []struct {
		value fmt.Stringer
		want  string
	}{
		{Ready, "ready"}, {Serving, "serving"}, {All, "all"}, {All + 1, "3"},
		{FallbackNone, "none"}, {FallbackServing, "serving"}, {FallbackAll, "all"},
		{Truncate, "truncate"}, {Cut, "cut"},
		{TopologyAuto, "auto"}, {TopologyOrder, "order"}, {TopologyHints, "hints"}, {TopologyNearest, "nearest"}, {TopologyOff, "off"},
	} {
		if got := c.value.String(); got != c.want {
			t.Errorf("%T %s, expected %s", c.value, got, c.want)
		}
	}
}

// TestLayers: each knob by itself is what the strongest layer says.
func TestLayers(t *testing.T) {
	k := newTestKnobs(t, Zone{
		Defaults: Values{"ttl": "20s", "order": "fixed", "weights": "web-0=7"},
		Rules: []Rule{
			{Namespace: "shop", Name: "web*", Set: Values{"ttl": "8", "limit": "3", "weights": ""}},
			{Selector: "tier in (front, edge)", Set: Values{"limit": "5"}},
			{Selector: "!tier", Namespace: "bare", Set: Values{"limit": "6"}},
			{Namespace: "shop", Set: Values{"ttl": "9s"}},
		},
	})
	for _, c := range []struct {
		what    string
		svc     *registry.Service
		tier    string
		want    Settings
		origins string // those that are not "default"
	}{
		{"the zone", annotated("infra", "web"), "", Settings{TTL: 20 * time.Second, Order: rank.Fixed, Weights: weights(t, "web-0=7")},
			"ttl 20s zone, order fixed zone, weights web-0=7 zone"},
		{"a rule", annotated("shop", "web-api"), "", Settings{TTL: 8 * time.Second, Order: rank.Fixed, Limit: 3},
			"ttl 8 rule 1, limit 3 rule 1, order fixed zone, weights  rule 1"},
		{"the first rule that matches", annotated("shop", "web"), "front", Settings{TTL: 8 * time.Second, Order: rank.Fixed, Limit: 3},
			"ttl 8 rule 1, limit 3 rule 1, order fixed zone, weights  rule 1"},
		{"by selector", annotated("infra", "db"), "edge", Settings{TTL: 20 * time.Second, Order: rank.Fixed, Limit: 5, Weights: weights(t, "web-0=7")},
			"ttl 20s zone, limit 5 rule 2, order fixed zone, weights web-0=7 zone"},
		{"not by selector", annotated("infra", "db"), "back", Settings{TTL: 20 * time.Second, Order: rank.Fixed, Weights: weights(t, "web-0=7")},
			"ttl 20s zone, order fixed zone, weights web-0=7 zone"},
		{"not the part of a name", annotated("shop", "a-web"), "", Settings{TTL: 9 * time.Second, Order: rank.Fixed, Weights: weights(t, "web-0=7")},
			"ttl 9s rule 4, order fixed zone, weights web-0=7 zone"},
		{"annotations", annotated("shop", "web", "limit: 0", "ttl-empty: 3s"), "", Settings{TTL: 8 * time.Second, TTLEmpty: 3 * time.Second, Order: rank.Fixed},
			"ttl 8 rule 1, ttl-empty 3s annotation, limit 0 annotation, order fixed zone, weights  rule 1"},
		{"bad annotations", annotated("shop", "web", "limit: many", "order: best", "min: 2"), "", Settings{TTL: 8 * time.Second, Order: rank.Fixed, Limit: 3, Min: 2},
			"ttl 8 rule 1, limit 3 rule 1, min 2 annotation, order fixed zone, weights  rule 1"},
		{"slices alone", &registry.Service{Key: registry.Key{Namespace: "bare", Name: "db"}}, "", Settings{TTL: 20 * time.Second, Order: rank.Fixed, Limit: 6, Weights: weights(t, "web-0=7")},
			"ttl 20s zone, limit 6 rule 3, order fixed zone, weights web-0=7 zone"},
	} {
		t.Run(c.what, func(t *testing.T) {
			if c.tier != "" {
				c.svc.Object.Labels = registry.Pairs{{Key: "tier", Value: c.tier}}
			}
			if c.want.TTLEmpty == 0 {
				c.want.TTLEmpty = 2 * time.Second
			}
			c.want.TTLNXDomain, c.want.Min = 5*time.Second, max(c.want.Min, 1)
			got, problems := k.settings(c.svc)
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v\nexpected %+v", got, c.want)
			}
			again, origins, same := k.resolve(c.svc)
			if !reflect.DeepEqual(again, got) || !reflect.DeepEqual(same, problems) || !reflect.DeepEqual(same, Problems(c.svc)) {
				t.Errorf("resolved: %+v %v, settings: %+v %v", again, same, got, problems)
			}
			var texts []string
			for i, o := range origins {
				if o.Knob != knobTable[i].Name {
					t.Errorf("origin %d is of %s", i, o.Knob)
				}
				if o.Layer == "default" {
					if o.Value != knobTable[i].preset() {
						t.Errorf("%+v", o)
					}
					continue
				}
				texts = append(texts, fmt.Sprintf("%s %s %s", o.Knob, o.Value, o.Layer))
			}
			if text := strings.Join(texts, ", "); text != c.origins {
				t.Errorf("%s\nexpected %s", text, c.origins)
			}
		})
	}
}

// TestBadZones: what a zone says of knobs is good, or the zone is not.
func TestBadZones(t *testing.T) {
	for _, c := range []struct {
		zone Zone
		says string
	}{
		{Zone{Defaults: Values{"ttl": "2h"}}, `zone "a.local": defaults: ttl: "2h" is not whole seconds from 0s to 1h`},
		{Zone{Defaults: Values{"tll": "2s"}}, `zone "a.local": defaults: there is no knob "tll"`},
		{Zone{Rules: []Rule{{}, {Set: Values{"min": "0"}}}}, `zone "a.local": rule 2: min: "0" is not a whole number, 1 or more`},
		{Zone{Rules: []Rule{{Set: Values{"weights": "a=1,a=2"}}}}, `zone "a.local": rule 1: weights: "a=1,a=2" is no list of weights such as web-0=10, zone:a=0: "a" is named twice`},
		{Zone{Rules: []Rule{{Namespace: "Shop"}}}, `zone "a.local": rule 1: "Shop" matches no name`},
		{Zone{Rules: []Rule{{Name: "web.[ab]"}}}, `zone "a.local": rule 1: "web.[ab]" matches no name`},
		{Zone{Rules: []Rule{{Selector: "tier==="}}}, `zone "a.local": rule 1: "tier===" is no label selector: `},
		{Zone{Rules: []Rule{{Selector: "tier in front"}}}, `zone "a.local": rule 1: "tier in front" is no label selector: `},
		{Zone{Rules: []Rule{{Selector: strings.Repeat("x", 1000)}}}, `zone "a.local": rule 1: "` + strings.Repeat("x", 80) + `"… is no label selector: `},
	} {
		c.zone.Name = "a.local"
		_, err := NewBuilder(Config{Zones: []Zone{c.zone}})
		if err == nil || !strings.HasPrefix(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("it says: %v\nexpected: %s", err, c.says)
		}
	}
}

func TestGlobs(t *testing.T) {
	for _, c := range []struct {
		glob     string
		yes, not string // names, by spaces
	}{
		{"web", "web", "we webs aweb"},
		{"web*", "web webs web-0-api", "we aweb"},
		{"*web", "web aweb webweb", "webs"},
		{"*", "a web", ""},
		{"w?b", "web wab", "wb weeb"},
		{"?*", "a ab", ""},
		{"a*b*c", "abc aabbcc axbxcxbxc", "acb abcd"},
		{"*-?", "a-b a-b-c", "ab a-"},
		{"**", "a", ""},
		{"a**?", "ab abc", "a b"},
	} {
		if err := CheckGlob(c.glob); err != nil {
			t.Error(err)
		}
		for _, name := range strings.Fields(c.yes) {
			if !globMatch(c.glob, name) {
				t.Errorf("%s does not match %s", c.glob, name)
			}
		}
		for _, name := range strings.Fields(c.not) {
			if globMatch(c.glob, name) {
				t.Errorf("%s matches %s", c.glob, name)
			}
		}
	}
}

// TestSettingsAllocateNothing where a Service has no annotations.
func TestSettingsAllocateNothing(t *testing.T) {
	k := newTestKnobs(t, Zone{Rules: []Rule{{Selector: "tier=back"}, {Namespace: "s*", Selector: "tier", Set: Values{"limit": "2"}}}})
	svc := annotated("shop", "web")
	svc.Object.Labels = registry.Pairs{{Key: "tier", Value: "front"}}
	var s Settings
	if n := testing.AllocsPerRun(100, func() { s, _ = k.settings(svc) }); n > 0 || s.Limit != 2 {
		t.Errorf("%v allocations, limit %d", n, s.Limit)
	}
}

func weights(t testing.TB, text string) Weights {
	t.Helper()
	w, err := parseWeights(text)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestWeights(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("2001:db8::7")
	for _, c := range []struct {
		text                  string
		host, pod, node, zone string
		addr                  netip.Addr
		want                  uint16
	}{
		{"", "web-0", "web-0", "n7", "a", v4, 1},
		{" ", "web-0", "web-0", "n7", "a", v4, 1},
		{"web-0=10", "web-0", "", "", "", v4, 10},
		{"web-0=10", "web-1", "", "", "", v4, 1},
		{"web-0=10", "", "web-0", "", "", v4, 10},
		{"WEB-0=10", "Web-0", "", "", "", v4, 10},
		{"web-7f.x_1=65535", "", "web-7f.x_1", "", "", v4, 65535},
		{"10-1-2-3=4", "h", "p", "", "", v4, 4},
		{"10.1.2.3=4", "h", "p", "", "", v4, 4},
		{"10-1-2-3=4", "10-1-2-3", "", "", "", v6, 4},
		{"2001-DB8--7=4", "h", "p", "", "", v6, 4},
		{"2001-db8-0-0-0-0-0-7=4", "h", "p", "", "", v6, 4},
		{"2001:db8::7=4", "h", "p", "", "", v6, 4},
		{"zone:A=0", "h", "p", "n", "a", v4, 0},
		{"node: N7 = 3 ", "h", "p", "n7", "a", v4, 3},
		{"zone:a=2,\n node:n7=3", "h", "p", "n7", "a", v4, 3},
		{"zone:a=2, node:n7=3, 10-1-2-3=4", "h", "p", "n7", "a", v4, 4},
		{"zone:a=2, node:n7=3, 10-1-2-3=4, p=5", "h", "p", "n7", "a", v4, 5},
		{"zone:a=2, node:n7=3, 10-1-2-3=4, p=5, h=6", "h", "p", "n7", "a", v4, 6},
		{"zone:a=2,node:a=3,a=4", "h", "p", "", "a", v4, 2},
		{"zone:a=2,node:a=3,a=4", "h", "p", "a", "", v4, 3},
		{"zone:a=2,node:a=3,a=4", "a", "", "", "", v4, 4},
		{"a=0", "", "", "", "", v4, 1},
	} {
		w := weights(t, c.text)
		if got := w.of(c.host, c.pod, c.addr, c.node, c.zone); got != c.want {
			t.Errorf("%q gives %s/%s at %v on %s in %s %d, expected %d", c.text, c.host, c.pod, c.addr, c.node, c.zone, got, c.want)
		}
		if w.none() != (strings.TrimSpace(c.text) == "") {
			t.Errorf("%q: none is %t", c.text, w.none())
		}
	}
	for text, says := range map[string]string{
		"web-0":                `entry "web-0" is not NAME=WEIGHT`,
		"=1":                   `entry "=1" is not NAME=WEIGHT`,
		"a=1,":                 "an entry is empty",
		",":                    "an entry is empty",
		"a=1 b=2":              `entry "a=1 b=2" has no weight`,
		"a=":                   `entry "a=" has no weight`,
		"a=-1":                 `entry "a=-1" has no weight`,
		"a=65536":              `entry "a=65536" has no weight from 0 to 65535`,
		"a=1.5":                `entry "a=1.5" has no weight`,
		"a==1":                 `entry "a==1" has no weight`,
		"good=1, a b=1":        `"a b" can be no name`,
		"zone:=1":              `"" can be no name`,
		"zone:a:b=1":           `"a:b" can be no name`,
		"rack:r1=1":            `"rack:r1" is neither an endpoint nor node:NAME nor zone:NAME`,
		"a=1, A=2":             `"a" is named twice`,
		"node:n=1, node:N=1":   `"node:n" is named twice`,
		"1-2-3-4=1, 1.2.3.4=1": `"1.2.3.4" is named twice`,
	} {
		w, err := parseWeights(text)
		if err == nil || !strings.HasPrefix(err.Error(), "no list of weights such as web-0=10, zone:a=0: "+says) || !w.none() {
			t.Errorf("%q: %v, %v\nexpected: …%s", text, w, err, says)
		}
	}
}

// FuzzSettings: whatever an annotation says, its knob is in range, the others are
// what they were, and what is said of it is one line.
func FuzzSettings(f *testing.F) {
	for i, k := range knobTable {
		f.Add(uint8(i), k.preset())
	}
	for _, text := range []string{"1h", "-1s", "1.5s", "3600", "9999999999h", "65535", "off", "web-0=10, zone:a=0, node:n7=65535, 10-1-2-3=1, 2001:db8::1=2", "a=1,a=2"} {
		for i := range knobTable {
			f.Add(uint8(i), text)
		}
	}
	k := newTestKnobs(f, Zone{})
	f.Fuzz(func(t *testing.T, which uint8, text string) {
		knob := &knobTable[int(which)%len(knobTable)]
		svc := annotated("shop", "web")
		svc.Object.Annotations = registry.Pairs{{Key: knob.Name, Value: text}}
		s, problems := k.settings(svc)
		if len(problems) > 0 {
			if !reflect.DeepEqual(s, builtIn()) {
				t.Errorf("%v, but it is %+v", problems, s)
			}
			if line := problems[0].String(); len(problems) > 1 || strings.ContainsAny(line, "\n\r") || len(line) > 1000 {
				t.Errorf("%v", problems)
			}
			return
		}
		for _, ttl := range []time.Duration{s.TTL, s.TTLEmpty, s.TTLNXDomain} {
			if ttl < 0 || ttl > time.Hour || ttl%time.Second != 0 {
				t.Errorf("%s %q: %v", knob.Name, text, ttl)
			}
		}
		if s.Limit < 0 || s.Min < 1 || s.Publish > All || s.Fallback > FallbackAll || s.Fit > Cut || s.Topology > TopologyOff || s.Order > rank.Fixed {
			t.Errorf("%s %q: %+v", knob.Name, text, s)
		}
		if err := (Values{knob.Name: text}).apply(&Settings{}); err != nil {
			t.Errorf("in a file: %v", err)
		}
		want := builtIn()
		knob.set(&want, text)
		if !reflect.DeepEqual(s, want) {
			t.Errorf("%s %q: %+v", knob.Name, text, s)
		}
	})
}
