package zones

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/registry"
)

// limitedZones are the test's zones with some Services only, and which these are.
var limitedZones = []struct {
	what       string
	namespaces []string
	selector   string
	in         func(*registry.Service) bool
}{
	{"a namespace", []string{"shop"}, "", func(s *registry.Service) bool { return s.Namespace == "shop" }},
	{"a glob", []string{"d*"}, "", func(s *registry.Service) bool { return s.Namespace != "shop" }},
	{"two", []string{"shop", "da?a"}, "", func(s *registry.Service) bool { return s.Namespace != "dns" }},
	{"a selector", nil, "tier=front", func(s *registry.Service) bool { return s.Object != nil && s.Object.Labels.Get("tier") == "front" }},
	{"both", []string{"shop"}, "tier!=front", func(s *registry.Service) bool {
		return s.Namespace == "shop" && (s.Object == nil || s.Object.Labels.Get("tier") != "front")
	}},
	{"none there is", []string{"nope"}, "", func(*registry.Service) bool { return false }},
}

// A zone that is limited to some Services serves, after any events, what one serves for
// which there are no others.
func TestZoneOfSomeServices(t *testing.T) {
	for seed := range uint64(12) {
		limit := limitedZones[seed%uint64(len(limitedZones))]
		w := newWorld(2000 + seed)
		store := registry.NewStore(quiet)
		follower := store.FollowAll()
		to := feedsOf(store)
		to.services.Replace(nil)
		to.slices.Replace(nil)
		cfg := testConfig()
		for i := range cfg.Zones {
			cfg.Zones[i].Namespaces, cfg.Zones[i].Selector = limit.namespaces, limit.selector
		}
		some, err := NewBuilder(cfg)
		if err != nil {
			t.Fatal(err)
		}
		some.take(follower, someTime)
		for i := range 120 {
			w.step(to)
			if w.r.IntN(3) == 0 || i == 119 {
				some.take(follower, someTime.Add(time.Duration(i+1)*time.Second))
			}
		}
		checkIndex(t, some)

		fresh := registry.NewStore(quiet)
		anew := feedsOf(fresh)
		anew.slices.Replace(w.sliceList())
		anew.services.Replace(w.serviceList())
		anew.nodes.Replace(w.nodeList())
		all := fresh.FollowAll()
		nodes, _ := all.TakeNodes()
		only := newTestBuilder(t)
		only.SetNodes(nodes)
		only.Build(slices.DeleteFunc(all.Take(), func(s *registry.Service) bool { return s.Exists && !limit.in(s) }), someTime.Add(120*time.Second))

		served := func(s *Set) string {
			var out []string
			for line := range strings.Lines(dump(t, s)) {
				// Places are told by all.
				if !strings.HasPrefix(line, "address ") && !strings.HasPrefix(line, "without ") {
					out = append(out, line)
				}
			}
			return strings.Join(out, "")
		}
		if got, want := served(some.Last()), served(only.Last()); got != want {
			t.Fatalf("seed %d: %s:\n%s\n\nif there were no others:\n%s", seed, limit.what, got, want)
		}
		w.compareSeen(t, some.Last(), only.Last(), netip.MustParseAddr("203.0.113.9"), nil)
	}
}

// Who sees some namespaces is answered as if there were no others, but for networks in
// reverse zones, of which none is told to be empty.
func TestVisibility(t *testing.T) {
	asker := netip.MustParseAddr("203.0.113.9")
	for seed := range uint64(8) {
		w := newWorld(3000 + seed)
		store := registry.NewStore(quiet)
		follower := store.FollowAll()
		to := feedsOf(store)
		to.services.Replace(nil)
		to.slices.Replace(nil)
		for range 120 {
			w.step(to)
		}
		seen := [][]string{{"shop"}, {"d*"}, {"data", "dns"}, {}}[seed%4]
		visible := func(s *registry.Service) bool {
			return slices.ContainsFunc(seen, func(glob string) bool { return globMatch(glob, s.Namespace) })
		}
		cfg := testConfig()
		cfg.Clients.Visibility = []Visibility{
			{Prefix: netip.MustParsePrefix("203.0.0.0/8"), Namespaces: []string{"nope"}},
			{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Namespaces: seen},
		}
		b, err := NewBuilder(cfg)
		if err != nil {
			t.Fatal(err)
		}
		only := newTestBuilder(t)
		changed := follower.Take()
		nodes, _ := follower.TakeNodes()
		b.SetNodes(nodes)
		only.SetNodes(nodes)
		b.Build(changed, someTime)
		hidden := map[string]bool{}
		only.Build(slices.DeleteFunc(slices.Clone(changed), func(s *registry.Service) bool {
			hidden[s.Namespace+"/"] = hidden[s.Namespace+"/"] || s.Exists && !visible(s)
			return s.Exists && !visible(s)
		}), someTime)
		w.compareSeen(t, b.Last(), only.Last(), asker, hidden)

		// Others see everything.
		free := newTestBuilder(t)
		free.SetNodes(nodes)
		free.Build(changed, someTime)
		w.compareSeen(t, b.Last(), free.Last(), netip.MustParseAddr("198.51.100.1"), nil)
		for addr, all := range map[string]bool{"203.0.113.9": false, "203.1.1.1": false, "198.51.100.1": true, "2001:db8::1": true} {
			if got := b.Last().SeesAll(netip.MustParseAddr(addr)); got != all {
				t.Errorf("%s sees all: %v", addr, got)
			}
		}
	}
}

// compareSeen asks the first Set, as an address, for all that it has and whatever is above
// that, and wants the answers of the second Set. No explanation may tell of what is hidden.
func (w *world) compareSeen(t *testing.T, some, only *Set, from netip.Addr, hidden map[string]bool) {
	t.Helper()
	names := map[string]bool{}
	add := func(wire []byte) { // and what is above
		for at := 0; wire[at] != 0; at += 1 + int(wire[at]) {
			names[string(wire[at:])] = true
		}
	}
	for at := range some.cfg.zones {
		for _, svc := range some.services[at].all {
			for _, before := range worldNames {
				name, err := ParseName(before + nameText(svc.suffix))
				if err != nil {
					t.Fatal(err)
				}
				add(name)
			}
			for addr := range svc.addrs() {
				add(append(appendLabel(nil, dashed(addr)), svc.suffix...))
				add(reverseName(addr))
			}
		}
		names["\x02ns\x03dns"+string(some.cfg.zones[at].apex)] = true
	}
	x, y := asks(t, some), asks(t, only)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		b, ok := parseReverse([]byte(name))
		above := b.parts > 0 && ok && !b.whole() && some.cfg.sightOf(from, netip.Prefix{}) != nil
		for _, typ := range []uint16{TypeA, TypeAAAA, TypeSRV, TypePTR, TypeANY, TypeNS, TypeSOA} {
			q := Question{Name: []byte(name), Type: typ, From: from, Local: netip.MustParseAddr("192.0.2.53")}
			got, want := x.ask(&q, nil), y.ask(&q, nil)
			if above && want.Rcode == dns.RcodeNameError {
				want.Rcode = dns.RcodeSuccess
			}
			if g, w := got.String(), want.String(); g != w {
				t.Fatalf("%s %s from %v:\n%s\nif there were no others:\n%s", nameText([]byte(name)), dns.TypeToString[typ], from, g, w)
			}
			text, err := json.Marshal(x.answer.Explain())
			if err != nil {
				t.Fatal(err)
			}
			for namespace, is := range hidden {
				if is && strings.Contains(string(text), namespace) {
					t.Fatalf("%s: the explanation tells of %s: %s", nameText([]byte(name)), namespace, text)
				}
			}
			w.asked++
		}
	}
}

func reverseName(addr netip.Addr) []byte {
	parts := 32
	if addr.Is4() {
		parts = 4
	}
	b := blockOf(addr, parts)
	return appendReverse(nil, &b)
}

// An asker's own place is told without the Service that it is of.
func TestExplanationOfHiddenPlace(t *testing.T) {
	secret := named(serving(t, "", "10.0.0.9 n1/a/r"), "secret", "vault")
	web := serving(t, "", "10.0.0.1 n1/a/r", "10.0.0.2 n2/b/r")
	text := func(cfg Config) string {
		b, err := NewBuilder(cfg)
		if err != nil {
			t.Fatal(err)
		}
		k := asks(t, b.Build([]*registry.Service{secret, web}, someTime))
		q := Question{Name: k.parse("web.shop.registry.local"), Type: TypeA, From: netip.MustParseAddr("10.0.0.9")}
		if m := k.ask(&q, nil); len(m.Answer) != 2 || rdata(m.Answer[0]) != "10.0.0.1" {
			t.Errorf("the place does not count: %v", m.Answer)
		}
		e := k.answer.Explain()
		return fmt.Sprint(e.Lines())
	}
	cfg := Config{Zones: []Zone{DefaultZone("registry.local")}}
	if got := text(cfg); !strings.Contains(got, "secret/vault") {
		t.Errorf("who sees all is not told: %s", got)
	}
	cfg.Clients.Visibility = []Visibility{{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Namespaces: []string{"shop"}}}
	if got := text(cfg); strings.Contains(got, "secret") || strings.Contains(got, "vault") || !strings.Contains(got, "visibility of 10.0.0.0/8 is namespaces shop alone") {
		t.Errorf("who does not see it is told: %s", got)
	}
	cfg.Clients.Visibility = nil
	cfg.Zones[0].Namespaces = []string{"shop"}
	if got := text(cfg); strings.Contains(got, "secret") || strings.Contains(got, "vault") {
		t.Errorf("of what is not in the zone is told: %s", got)
	}
}

// Who sees what, by address and by the subnet that a forwarder gives; the scope of a reply
// keeps it from others.
func TestSight(t *testing.T) {
	cfg := testConfig()
	cfg.Clients.Visibility = []Visibility{
		{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Namespaces: []string{"wide"}},
		{Prefix: netip.MustParsePrefix("10.1.0.0/16"), Namespaces: []string{"narrow"}},
		{Prefix: netip.MustParsePrefix("2001:db8::/32"), Namespaces: []string{"six"}},
	}
	b, err := NewBuilder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, subnet, want string }{
		{"10.1.2.3", "", "narrow"}, {"10.2.0.1", "", "wide"}, {"11.0.0.1", "", "all"}, {"2001:db8::1", "", "six"}, {"fe80::1%2", "", "all"}, {"", "", "all"},
		{"10.1.2.3", "11.0.0.0/24", "all"}, {"11.0.0.1", "10.1.2.0/24", "narrow"}, {"11.0.0.1", "10.1.2.3/32", "narrow"}, {"11.0.0.1", "10.128.0.0/9", "wide"},
		{"11.0.0.1", "10.0.0.0/7", "narrow"}, {"11.0.0.1", "::ffff:10.1.0.0/112", "narrow"}, {"11.0.0.1", "2001:db8:1::/48", "six"},
		{"11.0.0.1", "0.0.0.0/0", "nothing"}, {"11.0.0.1", "::/0", "nothing"}, {"11.0.0.1", "::ffff:0:0/90", "nothing"},
	} {
		var from netip.Addr
		var subnet netip.Prefix
		if c.from != "" {
			from = netip.MustParseAddr(c.from)
		}
		if c.subnet != "" {
			subnet = netip.MustParsePrefix(c.subnet)
		}
		got := "all"
		if s := b.cfg.sightOf(from, subnet); s != nil && len(s.namespaces) == 0 {
			got = "nothing"
		} else if s != nil {
			got = s.namespaces[0]
		}
		if got != c.want {
			t.Errorf("%s for %s sees %s, want %s", c.from, c.subnet, got, c.want)
		}
	}
	k := asks(t, b.Build(nil, someTime))
	q := Question{Name: k.parse("x.y.registry.local"), Type: TypeA, From: netip.MustParseAddr("11.0.0.1"), Subnet: netip.MustParsePrefix("10.1.2.0/24")}
	if k.ask(&q, nil); k.answer.Scope() != 24 {
		t.Errorf("the scope is %d", k.answer.Scope())
	}
}

func TestBadVisibility(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*Config)
		want   string
	}{
		{"a namespace", func(c *Config) { c.Zones[0].Namespaces = []string{"Shop"} }, `zone "registry.local": "Shop" matches no name`},
		{"an empty one", func(c *Config) { c.Zones[0].Namespaces = []string{""} }, `* matches all`},
		{"a selector", func(c *Config) { c.Zones[1].Selector = "a in" }, `zone "k8s.example": "a in" is no label selector`},
		{"a prefix", func(c *Config) { c.Clients.Visibility = []Visibility{{}} }, "no prefix of addresses"},
		{"twice", func(c *Config) {
			v := Visibility{Prefix: netip.MustParsePrefix("10.0.0.0/8")}
			c.Clients.Visibility = []Visibility{v, v}
		}, "visibility for 10.0.0.0/8 is given twice"},
		{"its namespace", func(c *Config) {
			c.Clients.Visibility = []Visibility{{Prefix: netip.MustParsePrefix("10.0.0.0/8"), Namespaces: []string{"a b"}}}
		}, `visibility for 10.0.0.0/8: "a b" matches no name`},
	} {
		cfg := testConfig()
		c.change(&cfg)
		if _, err := NewBuilder(cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.what, err, c.want)
		}
	}
}

func TestPrefixes(t *testing.T) {
	p := NewPrefixes(mustPrefixes("10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32", "192.0.2.7/32"))
	for addr, want := range map[string]bool{
		"10.0.0.1": true, "10.1.2.3": true, "10.255.255.255": true, "11.0.0.0": false, "9.255.255.255": false,
		"192.0.2.7": true, "192.0.2.8": false, "2001:db8:ffff::": true, "2001:db9::": false, "::ffff:10.0.0.1": true, "::": false,
	} {
		if got := p.Contains(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
	for prefix, want := range map[string]bool{
		"10.7.0.0/24": true, "8.0.0.0/5": true, "11.0.0.0/8": false, "192.0.2.0/24": true, "192.0.2.6/31": true, "192.0.2.8/29": false,
		"2001:db8:1::/56": true, "2001::/16": true, "2001:db9::/32": false, "::/0": true,
	} {
		if got := p.Overlaps(netip.MustParsePrefix(prefix)); got != want {
			t.Errorf("%s: %v", prefix, got)
		}
	}
	if NewPrefixes(nil).Overlaps(netip.MustParsePrefix("::/0")) || NewPrefixes(mustPrefixes("::/0")).Overlaps(netip.MustParsePrefix("10.0.0.0/8")) {
		t.Error("what is in no prefix overlaps one")
	}
	if NewPrefixes(nil).Contains(netip.MustParseAddr("10.0.0.1")) || p.Contains(netip.Addr{}) {
		t.Error("what is nowhere is in a set of prefixes")
	}
	if NewPrefixes(mustPrefixes("::/0")).Contains(netip.MustParseAddr("10.0.0.1")) {
		t.Error("an IPv6 prefix holds an IPv4 address")
	}
}
