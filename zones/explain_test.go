package zones

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"epdns/registry"
)

// explainWorld is a random Service, in a cluster of a few Nodes in three zones of two
// regions, and somebody who asks.
type explainWorld struct {
	r   *rand.Rand
	svc *registry.Service
	set *Set
}

var explainNodes = []*registry.Node{
	explainNode("n1", "a", "coast", 1), explainNode("n2", "a", "coast", 2),
	explainNode("n3", "b", "coast", 3), explainNode("n4", "c", "hills", 4),
}

func explainNode(name, zone, region string, n int) *registry.Node {
	return &registry.Node{
		Name: name, Zone: zone, Region: region, Ready: true,
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})},
		PodCIDRs:  []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(n), 0, 0}), 16)},
	}
}

func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func newExplainWorld(t *testing.T, seed uint64) *explainWorld {
	t.Helper()
	w := &explainWorld{r: rand.New(rand.NewPCG(seed, 2))}
	r := w.r
	svc := &registry.Service{Key: registry.Key{Namespace: "shop", Name: "web"}, Exists: true, Object: &registry.Object{}}
	for _, knob := range []struct {
		name   string
		values []string
	}{
		{"topology", []string{"order", "hints", "nearest", "nearest", "nearest", "off"}},
		{"order", []string{"rotate", "hash", "fixed"}},
		{"limit", []string{"1", "3", "50"}},
		{"min", []string{"2", "5"}},
		{"fit", []string{"cut"}},
		{"publish", []string{"serving", "all"}},
		{"fallback", []string{"serving", "all"}},
		{"weights", []string{"zone:a=0", "node:n3=9, web-1=0", "pod-1=0, pod-2=0, 10.1.0.1=3", "zone:a=0, zone:b=0, zone:c=0"}},
		{"ttl", []string{"soon", "1"}},
	} {
		if r.IntN(3) == 0 || knob.name == "topology" && r.IntN(2) == 0 {
			svc.Object.Annotations = append(svc.Object.Annotations, registry.Pair{Key: knob.name, Value: oneOf(r, knob.values...)})
		}
	}
	if r.IntN(4) == 0 {
		svc.Object.TrafficDistribution = "PreferClose"
	}
	large := oneOf(r, 4, 4, 12, 200)
	hinted, healthy := r.IntN(2) == 0, r.IntN(4)
	for i := range 1 + r.IntN(3) {
		sl := &registry.Slice{Namespace: "shop", Name: fmt.Sprint("s", i), UID: fmt.Sprint(i), Service: "web", Created: int64(r.IntN(3))}
		for _, name := range []string{"http", "metrics", ""} {
			if r.IntN(2) == 0 {
				sl.Ports = append(sl.Ports, registry.Port{Name: name, Protocol: oneOf(r, registry.TCP, registry.UDP), Number: uint16(8080 + r.IntN(2))})
			}
		}
		v6 := r.IntN(4) == 0
		for range r.IntN(large) {
			n := r.IntN(len(explainNodes))
			node := explainNodes[n]
			e := registry.Endpoint{Node: node.Name, Zone: node.Zone, Region: node.Region}
			e.Addr = netip.AddrFrom4([4]byte{10, byte(n + 1), 0, byte(r.IntN(large))})
			if v6 {
				e.Addr = netip.MustParseAddr(fmt.Sprintf("2001:db8::%d:%d", n+1, r.IntN(large)))
			}
			if r.IntN(10) == 0 {
				e.Node, e.Zone, e.Region = "", "", ""
			}
			e.Ready = r.IntN(4) < healthy
			e.Serving = e.Ready || r.IntN(2) == 0
			e.Terminating = !e.Ready && r.IntN(2) == 0
			if r.IntN(3) == 0 {
				e.Hostname = fmt.Sprint("web-", r.IntN(3))
			}
			if r.IntN(2) == 0 {
				e.Pod = fmt.Sprint("pod-", r.IntN(6))
			}
			if hinted && r.IntN(20) > 0 {
				e.Hints = registry.NewHints([]string{oneOf(r, "a", "b")}, nil)
			}
			extend(sl, e)
		}
		svc.Slices = append(svc.Slices, sl)
	}
	w.svc = svc
	other := &registry.Service{Key: registry.Key{Namespace: "shop", Name: "other"}, Exists: true, Slices: []*registry.Slice{{
		Namespace: "shop", Name: "o", UID: "o", Service: "other",
		Endpoints: registry.NewEndpoints(
			registry.Endpoint{Addr: netip.MustParseAddr("10.1.0.1"), Hostname: "web-0", Ready: true, Serving: true},
			registry.Endpoint{Addr: netip.MustParseAddr("10.9.0.1"), Node: "n4", Zone: "c", Ready: true, Serving: true},
		),
	}}}
	zone := DefaultZone("registry.local")
	if r.IntN(8) == 0 {
		zone.Empty = Nonexist
	}
	if r.IntN(4) == 0 {
		zone.EndpointNames = ByPod
	}
	b, err := NewBuilder(Config{
		Zones:   []Zone{zone},
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
	w.set = b.Build([]*registry.Service{svc, other}, someTime)
	return w
}

// question is one of those that there can be.
func (w *explainWorld) question() (q Question, text string) {
	r := w.r
	service := "web.shop.registry.local"
	name := oneOf(r, "", "", "", "", "", "", "_all.", "_serving.", "_ready.")
	scope := oneOf(r, "", "", "", "", "", "", "", "", "", "a.pin._zone.", "b.prefer._zone.", "n4.pin._node.", "coast.prefer._region.", "x.pin._zone.", "x.prefer._node.", "a.near._zone.", "_zone.")
	port := oneOf(r, "", "", "", "", "", "_http._tcp.", "_metrics._udp.", "_no._tcp.", "_tcp.")
	name = port + scope + name + service
	switch r.IntN(8) {
	case 0, 1:
		name = oneOf(r, "web-0.", "web-1.", "pod-1.", "10-1-0-1.", "10-2-0-0.", "2001-db8--1-0.", "nobody.") + service
	case 2:
		name = oneOf(r, "1.0.1.10.in-addr.arpa", "0.0.2.10.in-addr.arpa", "1.0.0.127.in-addr.arpa", "1.10.in-addr.arpa", "registry.local", "nope.registry.local", "example.com", "_explain."+service)
	}
	typ := oneOf(r, dns.TypeA, dns.TypeA, dns.TypeA, dns.TypeA, dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeSRV, dns.TypeSRV, dns.TypePTR, dns.TypeTXT, dns.TypeANY)
	if strings.HasSuffix(name, ".arpa") {
		typ = oneOf(r, dns.TypePTR, dns.TypePTR, dns.TypePTR, dns.TypeA)
	}
	q.Name, _ = ParseName(name)
	q.Type = typ
	q.From = netip.MustParseAddr(oneOf(r, "10.1.0.1", "10.2.0.2", "10.3.0.3", "10.9.0.1", "10.4.255.1", "192.0.2.3", "203.0.113.7", "198.51.100.54", "8.8.8.8"))
	if r.IntN(5) == 0 {
		q.From = netip.MustParseAddr("198.51.100.53")
		q.Subnet = netip.MustParsePrefix(oneOf(r, "10.1.0.1/32", "10.1.0.0/24", "10.0.0.0/8", "203.0.113.0/24", "8.0.0.0/8", "0.0.0.0/0"))
	}
	return q, fmt.Sprintf("%s %s from %v for %v", name, typeText(typ), q.From, q.Subnet)
}

// explainedAnswer appends the answer and takes it apart.
func explainedAnswer(t *testing.T, a *Answer, name []byte, limit int) ([]dns.RR, bool) {
	t.Helper()
	message := append(make([]byte, headerSize, 512), name...)
	message = append(message, 0, 0, 0, classIN)
	message, n, cut := a.AppendTo(message, 0, limit, limit)
	var rrs []dns.RR
	off := headerSize + len(name) + 4
	for range n.Answer {
		rr, after, err := dns.UnpackRR(message, off)
		if err != nil {
			t.Fatalf("the answer cannot be read: %v", err)
		}
		rrs, off = append(rrs, rr), after
	}
	return rrs, cut
}

// candidates are the outcomes of those that were to choose from.
var candidates = []string{whyAnswered, whySpilled, whyPart, whyTier, whyDrawn, whyHints, whyLimit, whyFit}

// An explanation and the answer that it explains say the same: the endpoints answered
// are the records, in their order; each endpoint is listed once, with a reason that
// holds; tiers add up.
func TestExplanationAgreesWithAnswer(t *testing.T) {
	reasons := map[string]int{}
	a := NewAnswer()
	a.client.Rand = rand.NewPCG(1, 1)
	for seed := range uint64(300) {
		w := newExplainWorld(t, seed)
		for range 15 {
			q, text := w.question()
			limit := oneOf(w.r, 160, 300, 512, 1232, 65535)
			w.set.Lookup(&q, a)
			rrs, cut := explainedAnswer(t, a, q.Name, limit)
			place, scope := a.Place(), a.Scope()
			e := a.Explain()
			fail := func(format string, args ...any) {
				t.Helper()
				t.Errorf("seed %d, %s, %d octets: %s\nanswer %v, cut %t\n%s", seed, text, limit, fmt.Sprintf(format, args...), rrs, cut, explanationText(e))
			}
			if a.Place() != place || a.Scope() != scope || e.Asker.Scope != scope {
				fail("scope %d and place %v before, %d and %v after", scope, place, a.Scope(), a.Place())
			}
			if len(e.Steps) == 0 || e.Asker.How == "" {
				fail("it says nothing")
			}
			w.checkAnswered(e, rrs, fail)
			if a.single == none {
				w.checkEndpoints(e, fail)
				if a.service != nil && !a.service.external {
					checkSet(a, fail)
				}
			}
			w.checkReasons(a, e, cut, fail)
			w.checkRecords(t, a, q, e, limit, fail)
			for _, x := range e.Endpoints {
				reasons[x.Why]++
			}
			if t.Failed() {
				return
			}
		}
	}
	for _, why := range append(slices.Clone(candidates), whyScope, whyWeight, whyFamily, whyNoPort, whyUnnamed, whyOther) {
		if reasons[why] == 0 {
			t.Errorf("no endpoint was %q in any of them", why)
		}
	}
	if testing.Verbose() {
		for _, why := range slices.Sorted(maps.Keys(reasons)) {
			t.Logf("%6d %s", reasons[why], why)
		}
	}
}

// checkAnswered compares the endpoints answered with the records.
func (w *explainWorld) checkAnswered(e *Explanation, rrs []dns.RR, fail func(string, ...any)) {
	var want []string
	for _, rr := range rrs {
		who := ""
		switch rr := rr.(type) {
		case *dns.A:
			who = rr.A.String()
		case *dns.AAAA:
			who = netip.MustParseAddr(rr.AAAA.String()).String()
		case *dns.SRV:
			who, _, _ = strings.Cut(rr.Target, ".")
		case *dns.PTR:
			who = rr.Ptr
		}
		if who != "" && !slices.Contains(want, who) { // a target has a record for each port
			want = append(want, who)
		}
	}
	var got []string
	for i, x := range e.Endpoints {
		if !x.Answered {
			if slices.ContainsFunc(e.Endpoints[i:], func(x ExplainedEndpoint) bool { return x.Answered }) {
				fail("one that is answered stands behind one that is not")
			}
			break
		}
		who := x.Address
		switch {
		case x.Service != "":
			namespace, service, _ := strings.Cut(x.Service, "/")
			who = x.Name + "." + service + "." + namespace + ".registry.local."
		case len(rrs) > 0 && rrs[len(rrs)-1].Header().Rrtype == dns.TypeSRV:
			who = x.Name
		}
		got = append(got, who)
	}
	if !slices.Equal(got, want) {
		fail("answered are %q, the records are of %q", got, want)
	}
}

// checkEndpoints checks that each endpoint is there once.
func (w *explainWorld) checkEndpoints(e *Explanation, fail func(string, ...any)) {
	if e.Service != "shop/web" {
		return
	}
	want, got := map[string]int{}, map[string]int{}
	for _, sl := range w.svc.Slices {
		for _, ep := range sl.Endpoints.All() {
			want[fmt.Sprint(ep.Addr, ep.Hostname, ep.Pod)] = 1
		}
	}
	for _, x := range e.Endpoints {
		host := ""
		if strings.HasPrefix(x.Name, "web-") {
			host = x.Name
		}
		got[fmt.Sprint(x.Address, host, x.Pod)]++
	}
	if !maps.Equal(got, want) {
		fail("endpoints are %v, listed are %v", want, got)
	}
}

// checkSet checks that the records to choose from are those of the set that is answered.
func checkSet(a *Answer, fail func(string, ...any)) {
	o := a.outcomes()
	got, want := map[uint32]bool{}, map[uint32]bool{}
	shown, _, _ := o.toChoose()
	for _, records := range shown {
		for _, k := range records {
			got[k] = true
		}
	}
	for k := range o.member {
		want[k] = true
	}
	if !maps.Equal(got, want) {
		fail("records to choose from are %v, the set has %v", got, want)
	}
}

// checkReasons checks what can be told of each reason by itself, and that tiers add up.
func (w *explainWorld) checkReasons(a *Answer, e *Explanation, cut bool, fail func(string, ...any)) {
	knobs := map[string]string{}
	for _, k := range e.Knobs {
		knobs[k.Knob] = k.Value
	}
	answered, toChoose := 0, 0
	for _, x := range e.Endpoints {
		ok := true
		switch x.Why {
		case "":
			ok = false
		case whyAnswered, whyPart:
			ok = x.Answered
		case whySpilled:
			ok = x.Answered && knobs["topology"] == "nearest"
		case whyTier, whyDrawn:
			ok = !x.Answered && knobs["topology"] == "nearest" && x.Tier != "all" && x.Tier != "node"
		case whyHints:
			ok = !x.Answered && a.service.topology == TopologyHints
		case whyLimit:
			ok = !x.Answered && knobs["limit"] != "0"
		case whyFit:
			ok = !x.Answered && (cut || knobs["fit"] == "cut" || e.Service == "")
		case whyWeight:
			ok = !x.Answered && x.Weight == 0
		case whyScope:
			ok = !x.Answered && a.scope.given
		case "not ready", "not ready, and others of this name are":
			ok = !x.Answered && !strings.HasPrefix(x.Conditions, "ready")
		case "not serving":
			ok = !x.Answered && !strings.HasPrefix(x.Conditions, "serving") && x.Conditions != "ready"
		case "not there":
			ok = false
		default:
			ok = !x.Answered
		}
		if !ok {
			fail("%s, which is %s with weight %d in tier %s, answered %t: %q", x.Address, x.Conditions, x.Weight, x.Tier, x.Answered, x.Why)
		}
		if x.Answered {
			answered++
		}
		if slices.Contains(candidates, x.Why) {
			toChoose++
		}
	}
	for _, tier := range e.Tiers {
		answered, toChoose = answered-tier.Answered, toChoose-tier.Endpoints
	}
	if len(e.Tiers) > 0 && (answered != 0 || toChoose != 0) {
		fail("tiers have %d fewer answered and %d fewer endpoints than there are", answered, toChoose)
	}
}

// checkRecords compares Records with the answer that has all the room.
func (w *explainWorld) checkRecords(t *testing.T, a *Answer, q Question, e *Explanation, limit int, fail func(string, ...any)) {
	if a.decision.share > 0 && a.decision.share < 1 && !a.glue {
		return // the next one may have one more or less
	}
	if a.glue && slices.ContainsFunc(e.Endpoints, func(x ExplainedEndpoint) bool { return x.Why == whyLimit || x.Why == whyFit }) {
		return // the next one may be of others, which have more ports or fewer
	}
	if e.Records == 0 && len(e.Tiers) > 0 {
		fail("no record is counted")
	}
	if e.Records == 0 {
		return
	}
	b := NewAnswer()
	w.set.Lookup(&q, b)
	if rrs, _ := explainedAnswer(t, b, q.Name, 65535); len(rrs) != e.Records {
		fail("%d records are counted, there are %d", e.Records, len(rrs))
	}
}

func explanationText(e *Explanation) string {
	lines := e.Lines()
	for _, t := range e.Tiers {
		lines = append(lines, fmt.Sprintf("tier %s: %d of %d", t.Tier, t.Answered, t.Endpoints))
	}
	for _, x := range e.Endpoints {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %s %s %s: %s", x.Address, x.Name, x.Conditions, x.Tier, x.Why)))
	}
	return strings.Join(lines, "\n")
}
