package zones

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"epdns/registry"
)

// explainedCase is a Service, a question, and the explanation in short.
type explainedCase struct {
	what        string
	annotations string // "name: value" joined by "; "
	change      func(*registry.Service)
	name        string // "" is the Service's own
	qtype       uint16
	from        string
	subnet      string
	room        int // 0 is that of UDP
}

// explainedService has two endpoints in each of zones a and b, which are in one region, and
// one in c.
func explainedService() *registry.Service {
	sl := &registry.Slice{Namespace: "shop", Name: "web-1", Service: "web", Ports: []registry.Port{{Name: "http", Number: 8080}}}
	for n, addrs := range [][]string{{"10.1.0.1"}, {"10.2.0.1"}, {"10.3.0.1", "10.3.0.2"}, {"10.4.0.1"}} {
		node := explainNodes[n]
		for _, addr := range addrs {
			extend(sl, registry.Endpoint{
				Addr: netip.MustParseAddr(addr), Node: node.Name, Zone: node.Zone, Region: node.Region, Ready: true, Serving: true,
			})
		}
	}
	return &registry.Service{Key: registry.Key{Namespace: "shop", Name: "web"}, Exists: true, Object: &registry.Object{}, Slices: []*registry.Slice{sl}}
}

// endpoints changes those of the one slice.
func endpoints(change func(i int, e *registry.Endpoint)) func(*registry.Service) {
	return func(svc *registry.Service) { alter(svc.Slices[0], change) }
}

// sick makes those endpoints terminate.
func sick(which ...int) func(*registry.Service) {
	return endpoints(func(i int, e *registry.Endpoint) {
		for _, w := range which {
			if i == w {
				e.Ready, e.Terminating = false, true
			}
		}
	})
}

// What is said of each policy and each kind of answer.
func TestExplanationText(t *testing.T) {
	want := readExplained(t)
	var page strings.Builder
	for _, c := range explainedCases {
		t.Run(c.what, func(t *testing.T) {
			svc := explainedService()
			if c.annotations != "" {
				svc.Object.Annotations = annotated("shop", "web", strings.Split(c.annotations, "; ")...).Object.Annotations
			}
			if c.change != nil {
				c.change(svc)
			}
			a := NewAnswer()
			a.client.Rand = rand.NewPCG(1, 2)
			e := explainOne(t, a, explainTestSet(t, svc), c)
			got := explanationText(e) + "\n"
			page.WriteString("== " + c.what + "\n" + got)
			if want[c.what] != got && !*update {
				t.Errorf("it says:\n%s\nand not:\n%s", got, want[c.what])
			}
			delete(want, c.what)
		})
	}
	if *update {
		if err := os.WriteFile(explainedPage, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	for what := range want {
		t.Errorf("%s has %q, which is no case", explainedPage, what)
	}
}

// update writes the page of explanations anew. Read it before it is kept.
var update = flag.Bool("update", false, "write "+explainedPage)

// explainedPage has the text of each case behind a line "== WHAT".
const explainedPage = "testdata/explained.txt"

func readExplained(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(explainedPage)
	if err != nil && !*update {
		t.Fatal(err)
	}
	out := map[string]string{}
	what := ""
	for line := range strings.Lines(string(text)) {
		if head, ok := strings.CutPrefix(line, "== "); ok {
			what = strings.TrimSpace(head)
		} else {
			out[what] += line
		}
	}
	return out
}

func explainTestSet(t *testing.T, services ...*registry.Service) *Set {
	t.Helper()
	b, err := NewBuilder(Config{
		Zones:   []Zone{{Name: "registry.local", Defaults: Values{"order": "fixed"}}},
		Reverse: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Clients: Clients{
			TrustedForwarders: []netip.Prefix{netip.MustParsePrefix("198.51.100.53/32")},
			SharedCaches:      []netip.Prefix{netip.MustParsePrefix("198.51.100.54/32")},
			Places:            []PlaceRange{{Prefix: netip.MustParsePrefix("203.0.113.0/24"), Zone: "b"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	b.SetNodes(explainNodes)
	services = append(services, &registry.Service{
		Key: registry.Key{Namespace: "kube-system", Name: "kube-dns"}, Exists: true,
		Slices: []*registry.Slice{{Namespace: "kube-system", Name: "dns", Service: "kube-dns", Endpoints: registry.NewEndpoints(
			registry.Endpoint{Addr: netip.MustParseAddr("10.2.0.53"), Node: "n2", Zone: "a", Region: "coast", Ready: true, Serving: true},
			registry.Endpoint{Addr: netip.MustParseAddr("192.0.2.4"), Node: "n4", Zone: "c", Region: "hills", Ready: true, Serving: true},
		)}},
	}, &registry.Service{
		Key: registry.Key{Namespace: "shop", Name: "old"}, Exists: true,
		Object: &registry.Object{IsExternalName: true, ExternalName: "web.shop.registry.local"},
	}, &registry.Service{
		Key: registry.Key{Namespace: "shop", Name: "out"}, Exists: true,
		Object: &registry.Object{IsExternalName: true, ExternalName: "www.example.com"},
	}, &registry.Service{
		Key: registry.Key{Namespace: "shop", Name: "round"}, Exists: true,
		Object: &registry.Object{IsExternalName: true, ExternalName: "round.shop.registry.local"},
	})
	return b.Build(services, someTime)
}

func explainOne(t *testing.T, a *Answer, set *Set, c explainedCase) *Explanation {
	t.Helper()
	q := Question{Type: c.qtype, From: netip.MustParseAddr("10.1.255.1")}
	if q.Type == 0 {
		q.Type = TypeA
	}
	name := c.name
	if name == "" || strings.HasSuffix(name, ".") {
		name += "web.shop.registry.local"
	}
	var err error
	if q.Name, err = ParseName(name); err != nil {
		t.Fatal(err)
	}
	if c.from != "" {
		q.From = netip.MustParseAddr(c.from)
	}
	if c.subnet != "" {
		q.Subnet = netip.MustParsePrefix(c.subnet)
		if !set.Trusts(q.From) {
			q.Subnet, q.Unbelieved = netip.Prefix{}, q.Subnet
		}
	}
	if c.room == 0 {
		c.room = 1232
	}
	set.Lookup(&q, a)
	explainedAnswer(t, a, q.Name, c.room)
	return a.Explain()
}

var explainedCases = []explainedCase{
	{what: "near first"},
	{what: "hints", change: endpoints(func(i int, e *registry.Endpoint) { e.Hints = registry.NewHints([]string{e.Zone}, nil) })},
	{what: "hints of nodes", change: endpoints(func(i int, e *registry.Endpoint) { e.Hints = registry.NewHints(nil, []string{e.Node}) })},
	{what: "hints that are not whole", change: func(svc *registry.Service) {
		svc.Object.TrafficDistribution = "PreferSameZone"
		alter(svc.Slices[0], func(i int, e *registry.Endpoint) {
			if i == 0 {
				e.Hints = registry.NewHints([]string{"a"}, nil)
			}
		})
	}},
	{what: "hints for others", annotations: "topology: hints", change: endpoints(func(i int, e *registry.Endpoint) { e.Hints = registry.NewHints([]string{"b"}, nil) })},
	{what: "nearest", annotations: "topology: nearest; min: 2"},
	{what: "nearest, nobody has enough", annotations: "topology: nearest; min: 9"},
	{what: "nearest with spill", annotations: "topology: nearest; min: 2; publish: all", from: "10.3.255.1",
		change: endpoints(func(i int, e *registry.Endpoint) { e.Ready = i != 2 })},
	{what: "nearest, the near ones leave", annotations: "topology: nearest; publish: serving", from: "10.1.255.1", change: sick(0)},
	{what: "nearest with spill, SRV", annotations: "topology: nearest; min: 2; publish: all", qtype: TypeSRV, from: "10.3.255.1",
		change: endpoints(func(i int, e *registry.Endpoint) { e.Ready = i != 2 })},
	{what: "off", annotations: "topology: off"},
	{what: "weights", annotations: "weights: zone:a=0, 10-4-0-1=7"},
	{what: "weights that are all 0", annotations: "weights: zone:a=0, zone:b=0, zone:c=0"},
	{what: "weights of others", annotations: "weights: zone:d=0, web-9=7"},
	{what: "limit", annotations: "limit: 2"},
	{what: "truncated", room: 12 + 23 + 4 + 3*16 + 7},
	{what: "cut", annotations: "fit: cut", room: 12 + 23 + 4 + 3*16 + 7},
	{what: "hash by a shared cache", annotations: "order: hash; limit: 2", from: "198.51.100.54", change: sick(1, 2)},
	{what: "pin", name: "b.pin._zone."},
	{what: "pin nowhere", name: "x.pin._zone."},
	{what: "prefer", name: "hills.prefer._region."},
	{what: "prefer nowhere", name: "_http._tcp.n9.prefer._node.", qtype: TypeSRV},
	{what: "a scope that is none", name: "b.near._zone."},
	{what: "view", name: "_serving.", change: sick(0)},
	{what: "fallback", annotations: "fallback: serving", change: sick(0, 1, 2, 3, 4)},
	{what: "nothing ready", change: sick(0, 1, 2, 3, 4)},
	{what: "own name", name: "10-3-0-2.", qtype: TypeSRV},
	{what: "nobody's name", name: "nobody."},
	{what: "own name of who is hidden", name: "10-3-0-2.", change: endpoints(func(i int, e *registry.Endpoint) { e.Ready, e.Serving = i != 3, i != 3 })},
	{what: "own name of several who are hidden", name: "h.", annotations: "publish: serving", change: endpoints(func(i int, e *registry.Endpoint) {
		if i < 2 {
			e.Hostname, e.Ready, e.Serving = "h", false, false
		}
	})},
	{what: "own name in a view", name: "10-3-0-2._all."},
	{what: "a scope without its label", name: "b.pin."},
	{what: "no such port", name: "_grpc._tcp.", qtype: TypeSRV},
	{what: "the other family", qtype: TypeAAAA},
	{what: "no such type", qtype: TypeTXT},
	{what: "ANY", qtype: TypeANY},
	{what: "bad annotations", annotations: "ttl: soon; topolgy: off", change: sick(1, 2, 3, 4)},
	{what: "ECS", from: "198.51.100.53", subnet: "10.3.0.0/16", change: sick(1, 4)},
	{what: "ECS of who is not trusted", from: "203.0.113.9", subnet: "10.3.0.0/16", change: sick(1, 4)},
	{what: "ECS of who hides", from: "198.51.100.53", subnet: "0.0.0.0/0", change: sick(1, 4)},
	{what: "cluster DNS", from: "10.2.0.53", change: sick(1, 4)},
	{what: "cluster DNS on the host's network", from: "192.0.2.4", change: sick(1, 4)},
	{what: "a Node", from: "192.0.2.3", change: sick(1, 4)},
	{what: "PTR", name: "1.0.3.10.in-addr.arpa", qtype: TypePTR},
	{what: "PTR of nobody", name: "9.0.3.10.in-addr.arpa", qtype: TypePTR},
	{what: "PTR of nobody elsewhere", name: "9.2.0.192.in-addr.arpa", qtype: TypePTR},
	{what: "PTR of half an address", name: "0.3.10.in-addr.arpa", qtype: TypePTR},
	{what: "ExternalName", name: "old.shop.registry.local", annotations: "limit: 1"},
	{what: "ExternalName that leads out", name: "out.shop.registry.local"},
	{what: "ExternalName that leads round", name: "round.shop.registry.local"},
	{what: "below an ExternalName", name: "_http._tcp.out.shop.registry.local", qtype: TypeSRV},
	{what: "the alias itself", name: "out.shop.registry.local", qtype: dns.TypeCNAME},
	{what: "NXDOMAIN", name: "nope.shop.registry.local"},
	{what: "namespace", name: "shop.registry.local"},
	{what: "apex", name: "registry.local", qtype: TypeSOA},
	{what: "out of zone", name: "www.example.com"},
	{what: "its own explanation", name: "_explain.", qtype: TypeTXT},
}

func TestExplanationBeforeSync(t *testing.T) {
	b := newTestBuilder(t)
	for name, want := range map[string]string{
		"web.shop.registry.local":   "what exists has not been read yet: SERVFAIL",
		"1.0.0.10.in-addr.arpa":     "what exists has not been read yet: SERVFAIL",
		"1.2.0.192.in-addr.arpa":    "what exists has not been read yet, and no reverse prefix holds 192.0.2.1: REFUSED",
		"www.example.com":           "the name is in none of the zones (registry.local., k8s.example.): REFUSED",
		"0.192.in-addr.arpa":        "the name is in none of the zones (registry.local., k8s.example.): REFUSED",
		"web.shop.svc.k8s.example.": "what exists has not been read yet: SERVFAIL",
	} {
		e := explainOne(t, NewAnswer(), b.Last(), explainedCase{name: name})
		if len(e.Steps) != 1 || e.Steps[0] != want || len(e.Endpoints) != 0 {
			t.Errorf("%s: %q, want %q", name, e.Steps, want)
		}
	}
}

// Of a name that does not exist it is said which part of it.
func TestExplanationOfMissing(t *testing.T) {
	b := newTestBuilder(t)
	set := b.Build([]*registry.Service{explainedService()}, someTime)
	for name, want := range map[string]string{
		"nera.shop.registry.local":                  "no Service nera in namespace shop",
		"_http._tcp.nera.shop.registry.local":       "no Service nera in namespace shop",
		"_explain.nera.shop.registry.local":         "no Service nera in namespace shop",
		"web.shp.registry.local":                    "no namespace shp has a Service",
		"a.pin._zone.web.registry.local":            "no namespace web has a Service",
		"web.registry.local":                        "web is no namespace with a Service; if it is a Service, its namespace is missing: names are <service>.<namespace>.registry.local",
		"web.shop.svc.registry.local":               "zone registry.local has layout short: no svc in its names, which are <service>.<namespace>.registry.local",
		"svc.registry.local":                        "zone registry.local has layout short: no svc in its names, which are <service>.<namespace>.registry.local",
		"web.shop.k8s.example":                      "zone k8s.example has layout kubernetes: names are <service>.<namespace>.svc.k8s.example",
		"shop.k8s.example":                          "zone k8s.example has layout kubernetes: names are <service>.<namespace>.svc.k8s.example",
		"nera.shop.svc.k8s.example":                 "no Service nera in namespace shop",
		"web.shp.svc.k8s.example":                   "no namespace shp has a Service",
		"web.svc.k8s.example":                       "web is no namespace with a Service; if it is a Service, its namespace is missing: names are <service>.<namespace>.svc.k8s.example",
		"x.dns-version.registry.local":              "no namespace dns-version has a Service",
		"zone-a.pin.web.shop.registry.local":        "before a Service stands VALUE.pin._zone, ._node or ._region",
		"n1.example.prefer.web.shop.registry.local": "before a Service stands VALUE.prefer._zone, ._node or ._region",
		"http.tcp.web.shop.registry.local":          "the Service has no such name",
		"_htp._tcp.web.shop.registry.local":         "the Service has no port _htp._tcp",
		"http._tcp.web.shop.registry.local":         "the Service has no port http._tcp",
		"1.9.10.in-addr.arpa":                       "no endpoint that has a name has an address in that network",
		"x.1.10.in-addr.arpa":                       "the name is that of no address and no network",
	} {
		e := explainOne(t, NewAnswer(), set, explainedCase{name: name})
		if len(e.Steps) != 1 || e.Steps[0] != want+": NXDOMAIN, for 5 s" {
			t.Errorf("%s: %q, want %q", name, e.Steps, want)
		}
	}
	svc := explainedService()
	svc.Namespace = "svc"
	set = b.Build([]*registry.Service{svc}, someTime)
	if e := explainOne(t, NewAnswer(), set, explainedCase{name: "nera.svc.registry.local"}); e.Steps[0] != "no Service nera in namespace svc: NXDOMAIN, for 5 s" {
		t.Errorf("in a namespace svc: %q", e.Steps)
	}
}

// A Service that keeps what a list lacked is explained so, as long as it does.
func TestExplanationOfHeld(t *testing.T) {
	const step = "the last list lacked most endpoints of this Service: those from before are kept until it is read again, at 1970-01-01T00:01:40Z"
	b := newTestBuilder(t)
	for _, held := range []int64{0, 100, 0} {
		svc := explainedService()
		svc.Held = held
		set := b.Build([]*registry.Service{svc}, someTime)
		e := explainOne(t, NewAnswer(), set, explainedCase{name: "web.shop.registry.local"})
		if slices.Contains(e.Steps, step) != (held != 0) {
			t.Errorf("held until %d: %q", held, e.Steps)
		}
	}
}

// Of podCIDRs that lie it is said that they do, and by which sources somebody is not
// found.
func TestExplanationOfSources(t *testing.T) {
	var liars []registry.Endpoint
	for i := range 40 {
		liars = append(liars, registry.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, 1, byte(i)}), Node: "n4", Ready: true, Serving: true})
	}
	svc := explainedService()
	extend(svc.Slices[0], liars...)
	set := explainTestSet(t, svc)
	if set.Disbelieved() != FromPodCIDRs {
		t.Errorf("disbelieved are %v", set.Disbelieved())
	}
	e := explainOne(t, NewAnswer(), set, explainedCase{})
	const want = "not known: the address is no endpoint's, no Node's, and in no configured place; " +
		"podCIDRs are not believed, since too many endpoints lie in those of other Nodes"
	if e.Asker.How != want {
		t.Errorf("it says %q, want %q", e.Asker.How, want)
	}
	cfg := testConfig()
	cfg.Clients.Off = FromECS | FromEndpoints | FromNodes | FromPodCIDRs | FromPlaces
	cfg.Clients.TrustedForwarders = []netip.Prefix{netip.MustParsePrefix("198.51.100.53/32")}
	b, err := NewBuilder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.SetNodes(explainNodes)
	set = b.Build([]*registry.Service{svc}, someTime)
	e = explainOne(t, NewAnswer(), set, explainedCase{from: "198.51.100.53", subnet: "10.1.0.0/16"})
	const off = "not known: every source is off; subnet 10.1.0.0/16 does not count: the source ecs is off"
	if e.Asker.How != off || set.Disbelieved() != 0 {
		t.Errorf("it says %q, want %q; disbelieved are %v", e.Asker.How, off, set.Disbelieved())
	}
}

// explainTXT asks for the explanation of a Service and takes it apart.
func explainTXT(t *testing.T, a *Answer, set *Set, from string, room int) (text []string, cut bool) {
	t.Helper()
	q := Question{Type: TypeTXT, From: netip.MustParseAddr(from)}
	q.Name, _ = ParseName("_explain.web.shop.registry.local")
	set.Lookup(&q, a)
	rrs, cut := explainedAnswer(t, a, q.Name, room)
	for _, rr := range rrs {
		if rr.Header().Ttl != 0 {
			t.Errorf("it may be kept for %d s", rr.Header().Ttl)
		}
		text = append(text, rr.(*dns.TXT).Txt...)
	}
	return text, cut
}

func TestExplainTXT(t *testing.T) {
	svc := explainedService()
	// More and longer annotations than one wants to read.
	for i := range 1000 {
		svc.Object.Annotations = append(svc.Object.Annotations, registry.Pair{Key: fmt.Sprintf("knob-%03d", i), Value: strings.Repeat("x", 300)})
	}
	a := NewAnswer()
	text, cut := explainTXT(t, a, explainTestSet(t, svc), "10.1.255.1", 65535)
	last := text[len(text)-1]
	if cut || len(text) > 100 || !strings.HasSuffix(last, " more lines") {
		t.Errorf("%d strings, cut %t, the last is %q", len(text), cut, last)
	}
	for _, s := range text {
		if len(s) > 255 {
			t.Errorf("a string has %d octets", len(s))
		}
	}

	set := explainTestSet(t, explainedService())
	for from, want := range map[string]string{
		"10.1.255.1": "asker 10.1.255.1: node n1, zone a, region coast|place: the address is in podCIDR 10.1.0.0/16 of Node n1|" +
			"service shop/web|knob order: fixed (zone)|topology auto is order: neither trafficDistribution nor hints ask for more|" +
			"topology order: all, near first|order fixed within a tier|TTL 5 s|1. 10.1.0.1|2. 10.2.0.1|3. 10.3.0.1|4. 10.3.0.2|5. 10.4.0.1",
		"192.0.2.4": "asker 192.0.2.4|place: the address is an endpoint's of kube-system/kube-dns, the cluster's own DNS, which asks for many places; " +
			"it has the address of Node n4, so all that asks from there counts as it|" +
			"service shop/web|knob order: fixed (zone)|topology auto is order: neither trafficDistribution nor hints ask for more|" +
			"a shared cache asks, and for whom is not known: all, wherever they are|order fixed|TTL 5 s|1. 10.1.0.1|2. 10.2.0.1|3. 10.3.0.1|4. 10.3.0.2|5. 10.4.0.1",
	} {
		if text, _ := explainTXT(t, a, set, from, 1232); strings.Join(text, "|") != want {
			t.Errorf("from %s: %s\nwant %s", from, strings.Join(text, "|"), want)
		}
	}
	if text, cut := explainTXT(t, a, set, "10.1.255.1", 200); text != nil || !cut {
		t.Errorf("with little room: %q, cut %t", text, cut)
	}
	// Whoever keeps it keeps it for that subnet alone.
	q := Question{Type: TypeTXT, From: netip.MustParseAddr("198.51.100.53"), Subnet: netip.MustParsePrefix("8.0.0.0/24")}
	q.Name, _ = ParseName("_explain.web.shop.registry.local")
	set.Lookup(&q, a)
	explainedAnswer(t, a, q.Name, 1232)
	if a.Scope() != 24 {
		t.Errorf("its scope is %d", a.Scope())
	}

	cfg := testConfig()
	cfg.NoExplain = true
	b, err := NewBuilder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	off := b.Build([]*registry.Service{explainedService()}, someTime)
	if text, _ := explainTXT(t, a, off, "10.1.255.1", 1232); text != nil || a.RCode != NXDomain {
		t.Errorf("where it is off: RCODE %d, %q", a.RCode, text)
	}
}

// largeService has so many endpoints, on a hundred nodes in three zones.
func largeService(n int, annotations ...string) *registry.Service {
	svc := annotated("shop", "web", annotations...)
	for i := range n {
		if i%100 == 0 {
			svc.Slices = append(svc.Slices, &registry.Slice{Namespace: "shop", Name: fmt.Sprintf("web-%05d", i), Service: "web",
				Ports: []registry.Port{{Name: "http", Number: 8080}}})
		}
		sl := svc.Slices[len(svc.Slices)-1]
		extend(sl, registry.Endpoint{
			Addr: netip.AddrFrom4([4]byte{10, 64, byte(i >> 8), byte(i)}), Pod: fmt.Sprintf("web-%05d", i),
			Node: fmt.Sprint("n", i%100), Zone: oneOfEach(i, "a", "b", "c"), Ready: true, Serving: true,
		})
	}
	return svc
}

func oneOfEach(i int, of ...string) string { return of[i%len(of)] }

// The TXT record costs what the answer costs and a little more, however many endpoints
// there are; the whole explanation looks at each.
func BenchmarkExplain(b *testing.B) {
	for _, n := range []int{10, 1000, 50000} {
		builder := newTestBuilder(b)
		set := builder.Build([]*registry.Service{largeService(n, "topology: nearest", "limit: 20")}, someTime)
		a := NewAnswer()
		q := Question{From: netip.MustParseAddr("10.64.0.1")}
		message := make([]byte, headerSize, 65535)
		b.Run(fmt.Sprintf("TXT/%d", n), func(b *testing.B) {
			q.Type = TypeTXT
			q.Name, _ = ParseName("_explain.web.shop.registry.local")
			b.ReportAllocs()
			for b.Loop() {
				set.Lookup(&q, a)
				a.AppendTo(append(message, q.Name...), 0, 65535, 65535)
			}
		})
		b.Run(fmt.Sprintf("all/%d", n), func(b *testing.B) {
			q.Type = TypeA
			q.Name, _ = ParseName("web.shop.registry.local")
			for b.Loop() {
				set.Lookup(&q, a)
				a.AppendTo(append(message, q.Name...), 0, 1232, 1232)
				a.Explain()
			}
		})
	}
}
