//go:build linux

package diff_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// This file makes the large cluster.

// state is what an endpoint's conditions say.
type state int

const (
	ready    state = iota
	unsaid         // no conditions: counts as ready
	starting       // neither ready nor serving
	leaving        // serving, not ready
	done           // terminating, not serving
	early          // ready and not serving: of a Service that publishes what is not ready
)

// pod is an endpoint.
type pod struct {
	addr      netip.Addr
	host, pod string
	state     state

	node, zone string   // in its slice
	region     string   // of its Node
	hints      []string // zones that it is meant for
}

// port is one of a slice.
type port struct {
	name     string // empty for none
	number   int
	protocol string
}

// group is a slice or more with the same ports.
type group struct {
	ports []port
	pods  []pod
}

type object = map[string]any

// maker makes manifests.
type maker struct {
	rand    *rand.Rand
	facts   facts
	objects []object
	next4   netip.Addr
	next6   netip.Addr
	slices  int
}

// generate writes the manifests of the large cluster into a directory.
func generate(dir string, seed uint64) (facts, error) {
	m := &maker{
		rand:  rand.New(rand.NewPCG(seed, 0)),
		facts: newFacts(zoneName),
		next4: netip.MustParseAddr("10.0.0.0"),
		next6: netip.MustParseAddr("fd00:10:244::"),
	}
	m.plain()
	m.big()
	m.special()
	m.readiness()
	m.places()
	m.tuned()
	m.shared()
	m.aliases()
	b, err := json.Marshal(object{"apiVersion": "v1", "kind": "List", "items": m.objects})
	if err != nil {
		return facts{}, err
	}
	return m.facts, os.WriteFile(filepath.Join(dir, "cluster.json"), b, 0o644)
}

// v4 is an address that nobody had.
func (m *maker) v4() netip.Addr { m.next4 = m.next4.Next(); return m.next4 }

// v6 is one, too.
func (m *maker) v6() netip.Addr { m.next6 = m.next6.Next(); return m.next6 }

// named is the name of a Service.
func named(ns, svc string) string { return svc + "." + ns + "." + zoneName }

// service adds a Service with its spec's ports and slices.
func (m *maker) service(ns, name string, spec []port, groups ...group) *serviceFacts {
	var ports []object
	for _, p := range spec {
		ports = append(ports, p.object("port"))
	}
	o := object{
		"apiVersion": "v1", "kind": "Service",
		"metadata": object{"namespace": ns, "name": name, "annotations": object{}},
		"spec":     object{"type": "ClusterIP", "clusterIP": "None", "ports": ports},
	}
	m.objects = append(m.objects, o)
	s := m.facts.service(named(ns, name))
	s.object = o
	for _, g := range append(groups, group{ports: spec}) {
		for _, p := range g.ports {
			if p.name != "" {
				s.ports["_"+p.name+"._"+strings.ToLower(p.protocol)] = true
			}
		}
		s.pods = append(s.pods, g.pods...)
		m.group(ns, name, g)
	}
	return s
}

// annotate tunes a Service.
func (s *serviceFacts) annotate(key, value string) *serviceFacts {
	s.object["metadata"].(object)["annotations"].(object)["registry.local/"+key] = value
	return s
}

// spec sets a field of a Service.
func (s *serviceFacts) spec(key string, value any) *serviceFacts {
	s.object["spec"].(object)[key] = value
	return s
}

// limited has answers of at most so many endpoints.
func (s *serviceFacts) limited(limit int) *serviceFacts {
	s.limit = limit
	return s.annotate("limit", fmt.Sprint(limit))
}

// node adds a Node.
func (m *maker) node(name, zone, region string) {
	m.objects = append(m.objects, object{
		"apiVersion": "v1", "kind": "Node",
		"metadata": object{"name": name, "labels": object{"topology.kubernetes.io/zone": zone, "topology.kubernetes.io/region": region}},
	})
}

func (p port) object(number string) object {
	o := object{number: p.number, "protocol": p.protocol}
	if p.name != "" {
		o["name"] = p.name
	}
	return o
}

// group adds the slices of a group: one for each family and thousand endpoints.
func (m *maker) group(ns, service string, g group) {
	const most = 1000
	ports := []object{}
	for _, p := range g.ports {
		ports = append(ports, p.object("port"))
	}
	families := map[string][]object{"IPv4": nil, "IPv6": nil}
	for _, p := range g.pods {
		family := "IPv4"
		if p.addr.Is6() {
			family = "IPv6"
		}
		e := object{"addresses": []string{p.addr.String()}}
		switch p.state {
		case ready:
			e["conditions"] = object{"ready": true, "serving": true, "terminating": false}
		case starting:
			e["conditions"] = object{"ready": false, "serving": false, "terminating": false}
		case leaving:
			e["conditions"] = object{"ready": false, "serving": true, "terminating": true}
		case done:
			e["conditions"] = object{"ready": false, "serving": false, "terminating": true}
		case early:
			e["conditions"] = object{"ready": true, "serving": false, "terminating": false}
		}
		if p.node != "" {
			e["nodeName"] = p.node
		}
		if p.zone != "" {
			e["zone"] = p.zone
		}
		if p.hints != nil {
			var zones []object
			for _, z := range p.hints {
				zones = append(zones, object{"name": z})
			}
			e["hints"] = object{"forZones": zones}
		}
		if p.host != "" {
			e["hostname"] = p.host
		}
		if p.pod != "" {
			e["targetRef"] = object{"kind": "Pod", "namespace": ns, "name": p.pod}
		}
		families[family] = append(families[family], e)
	}
	for _, family := range []string{"IPv4", "IPv6"} {
		for all := families[family]; len(all) > 0; {
			n := min(most, len(all))
			m.slices++
			m.objects = append(m.objects, object{
				"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
				"metadata": object{
					"namespace": ns, "name": fmt.Sprintf("%s-%d", service, m.slices),
					"labels": object{"kubernetes.io/service-name": service},
				},
				"addressType": family, "endpoints": all[:n], "ports": ports,
			})
			all = all[n:]
		}
	}
}

// external adds an alias.
func (m *maker) external(ns, name, target string) {
	m.objects = append(m.objects, object{
		"apiVersion": "v1", "kind": "Service",
		"metadata": object{"namespace": ns, "name": name},
		"spec":     object{"type": "ExternalName", "externalName": target},
	})
}

var web8080 = port{"http", 8080, "TCP"}

// pods makes some, of one family or of both, with pod names and perhaps host names.
func (m *maker) pods(name string, n int, v4, v6, hosts bool) (out []pod) {
	for i := range n {
		p := pod{pod: fmt.Sprintf("%s-%08x", name, m.rand.Uint32())}
		if hosts {
			p.host = fmt.Sprintf("%s-%d", name, i)
			p.pod = p.host
		}
		if v4 {
			p.addr = m.v4()
			out = append(out, p)
		}
		if v6 {
			p.addr = m.v6()
			out = append(out, p)
		}
	}
	return out
}

// plain makes what most of a cluster is.
func (m *maker) plain() {
	for i := range 20 {
		ns := fmt.Sprintf("team-%d", i)
		m.service(ns, "web", []port{web8080}, group{[]port{web8080}, m.pods("web", 2+m.rand.IntN(9), true, false, false)})
		m.service(ns, "api", []port{web8080}, group{[]port{web8080, {"grpc", 9000, "TCP"}}, m.pods("api", 1+m.rand.IntN(4), true, true, false)})
		m.service(ns, "db", nil, group{[]port{{"sql", 5432, "TCP"}}, m.pods("db", 3, true, true, true)})
		m.service(ns, "six", nil, group{[]port{{"sip", 5060, "UDP"}}, m.pods("six", 2, false, true, false)})
		m.service(ns, "idle", []port{web8080})
	}
}

// big makes sets that do not fit.
func (m *maker) big() {
	for _, c := range []struct {
		name   string
		n      int
		v6     bool
		hosts  bool
		second bool // port
	}{
		{"crowd-29", 29, false, false, false}, // about what fits without EDNS, and with it
		{"crowd-31", 31, false, false, true},
		{"crowd-43", 43, true, true, false},
		{"crowd-75", 75, false, false, false},
		{"crowd-77", 77, false, true, false},
		{"crowd-200", 200, true, false, true},
		{"crowd-1500", 1500, false, false, false}, // as SRV more than a message holds
	} {
		ports := []port{web8080}
		if c.second {
			ports = append(ports, port{"metrics", 9090, "TCP"})
		}
		m.service("big", c.name, nil, group{ports, m.pods("p", c.n, true, c.v6, c.hosts)})
	}
	// Names as long as can be, so that few fit.
	long := strings.Repeat("l", 63)
	m.service(strings.Repeat("n", 63), long, nil, group{[]port{web8080}, m.pods(strings.Repeat("p", 40), 12, true, false, false)})
}

// special makes ports and addresses of all kinds.
func (m *maker) special() {
	const ns = "special"
	m.service(ns, "unnamed", nil, group{[]port{{"", 80, "TCP"}}, m.pods("u", 3, true, true, false)})
	m.service(ns, "portless", nil, group{nil, m.pods("p", 3, true, false, false)})
	m.service(ns, "half-named", nil, group{[]port{{"", 80, "TCP"}, {"dns", 53, "UDP"}}, m.pods("h", 2, true, false, true)})
	m.service(ns, "many-ports", nil, group{[]port{
		web8080, {"metrics", 9090, "TCP"}, {"dns", 53, "UDP"}, {"dns-tcp", 53, "TCP"}, {"m3ua", 2905, "SCTP"}, {"same", 8080, "TCP"}, {"both", 7, "TCP"}, {"both", 7, "UDP"},
	}, m.pods("m", 3, true, true, false)})
	// A named targetPort: each version of the pods has its own number.
	m.service(ns, "moving", nil,
		group{[]port{{"http", 8080, "TCP"}}, m.pods("m1", 2, true, false, false)},
		group{[]port{{"http", 9080, "TCP"}}, m.pods("m2", 2, true, false, false)})
	// A port in the spec that no slice has.
	m.service(ns, "early", []port{web8080, {"later", 81, "UDP"}}, group{[]port{web8080}, m.pods("e", 1, true, false, false)})
	// Addresses whose text begins or ends with colons, or is long.
	var odd []pod
	for _, a := range []string{"fd00::", "fd00:1::", "fd00::1:0:0:1", "fd00:2:3:4:5:6:7:8", "fd00::ffff", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "10.255.255.255", "10.255.0.0"} {
		odd = append(odd, pod{addr: netip.MustParseAddr(a)})
	}
	m.service(ns, "odd", nil, group{[]port{web8080}, odd})
	for other, canonical := range map[string]string{
		"fd00-0-0-0-0-0-0-0": "fd00--0", "fd00-0002-3-4-5-6-7-8": "fd00-2-3-4-5-6-7-8", "fd00-0--ffff": "fd00--ffff", "fd00-0-0-0-0-0-0-ffff": "fd00--ffff",
	} {
		m.facts.spellings[other+"."+named(ns, "odd")] = canonical + "." + named(ns, "odd")
	}
	// Out of the reverse zones.
	away := []pod{{addr: netip.MustParseAddr("192.0.2.1"), host: "a"}, {addr: netip.MustParseAddr("192.0.2.2")}, {addr: netip.MustParseAddr("2001:db8::1")}}
	m.service(ns, "away", nil, group{[]port{web8080}, away})
	for _, p := range away {
		m.facts.outside[reverse(p.addr.String())] = p.addr
	}
	// Host names that look like something else.
	m.service(ns, "masks", nil, group{[]port{web8080}, []pod{
		{addr: m.v4(), host: "10-9-9-9"}, {addr: netip.MustParseAddr("10.9.9.9"), pod: "nine"}, {addr: m.v4(), pod: "ten"}, {addr: m.v4(), host: "ten"}, {addr: m.v4(), host: "x", pod: "y"}, {addr: m.v4(), pod: "dotted.name"},
	}})
	m.service("digits-0", "0", nil, group{[]port{{"0-a", 1, "TCP"}}, m.pods("0", 1, true, false, true)})
}

// readiness makes endpoints that are not ready.
func (m *maker) readiness() {
	const ns = "states"
	of := func(name string, hosts bool, states ...state) group {
		pods := m.pods(name, len(states), true, false, hosts)
		for i := range pods {
			pods[i].state = states[i]
		}
		return group{[]port{web8080}, pods}
	}
	m.service(ns, "mixed", nil, of("m", false, ready, starting, leaving, done, unsaid))
	m.service(ns, "mixed-hosts", nil, of("m", true, ready, starting, leaving, done, unsaid))
	m.service(ns, "going", []port{web8080}, of("g", true, leaving, leaving))
	m.service(ns, "going-too", nil, of("g", false, leaving, done))
	m.service(ns, "coming", []port{web8080}, of("c", true, starting))
	// The same address twice, one of them ready.
	twin := m.v4()
	m.service(ns, "twin", nil,
		group{[]port{web8080}, []pod{{addr: twin, pod: "t", state: starting}}},
		group{[]port{web8080}, []pod{{addr: twin, pod: "t"}, {addr: m.v4(), pod: "other"}}})
	// One host name, one of its pods leaving.
	m.service(ns, "handover", nil, group{[]port{web8080}, []pod{
		{addr: m.v4(), host: "one", pod: "a", state: leaving}, {addr: m.v4(), host: "one", pod: "b"}, {addr: m.v6(), host: "one", pod: "b"},
	}})
	m.service("void", "nothing", nil)
}

// somewhere puts pods on nodes and in zones. Each third Node is known by the pods alone.
func (m *maker) somewhere(pods []pod) []pod {
	const nodes = 9
	for i := range pods {
		p, n := &pods[i], m.rand.IntN(nodes)
		p.node, p.zone, p.region = fmt.Sprintf("node-%d", n), zones[n%len(zones)], regions[zones[n%len(zones)]]
	}
	return pods
}

// zones are those of pods, with the region of each.
var (
	zones   = []string{"zone-a", "zone-b", "Inland.Zone_1"}
	regions = map[string]string{"zone-a": "coast", "zone-b": "coast", "Inland.Zone_1": "inland"}
)

// places makes endpoints that are somewhere.
func (m *maker) places() {
	for n := range 9 {
		if n < 6 {
			m.node(fmt.Sprintf("node-%d", n), zones[n%3], regions[zones[n%3]])
		}
	}
	const ns = "places"
	metrics := port{"metrics", 9090, "TCP"}
	m.service(ns, "web", nil, group{[]port{web8080, metrics}, m.somewhere(m.pods("w", 12, true, false, false))})
	m.service(ns, "dual", nil, group{[]port{web8080}, m.somewhere(m.pods("d", 8, true, true, false))})
	m.service(ns, "db", nil, group{[]port{web8080}, m.somewhere(m.pods("db", 6, true, false, true))})
	m.service(ns, "crowd", nil, group{[]port{web8080}, m.somewhere(m.pods("c", 150, true, false, false))})
	nowhere := m.pods("n", 4, true, false, false) // but for one
	nowhere[0].node, nowhere[0].zone, nowhere[0].region = "node-0", "zone-a", "coast"
	m.service(ns, "partly", nil, group{[]port{web8080}, nowhere})
	m.service(ns, "ports-apart", nil,
		group{[]port{web8080}, m.in("zone-a", m.pods("a", 3, true, false, false))},
		group{[]port{metrics}, m.in("zone-b", m.pods("b", 3, true, false, false))})
	m.service(ns, "gone", []port{web8080})
	states := m.somewhere(m.pods("s", 15, true, false, false))
	for i := range states {
		states[i].state = []state{ready, unsaid, starting, leaving, done}[i%5]
	}
	m.service(ns, "states", nil, group{[]port{web8080}, states})
	// Nobody in particular asks, so these answer with all.
	hinted := m.somewhere(m.pods("h", 9, true, false, false))
	for i := range hinted {
		hinted[i].hints = []string{hinted[i].zone}
	}
	m.service(ns, "hinted", nil, group{[]port{web8080}, hinted}).spec("trafficDistribution", "PreferSameZone")
	half := m.somewhere(m.pods("n", 12, true, false, false))
	for i := range half[:6] {
		half[i].state = starting
	}
	m.service(ns, "nearest", nil, group{[]port{web8080}, half}).annotate("topology", "nearest").annotate("min", "2")
	m.service(ns, "off", nil, group{[]port{web8080}, m.somewhere(m.pods("o", 5, true, false, false))}).annotate("topology", "off")
}

// in puts pods into a zone, on no Node.
func (m *maker) in(zone string, pods []pod) []pod {
	for i := range pods {
		pods[i].zone, pods[i].region = zone, regions[zone]
	}
	return pods
}

// tuned makes Services that say how they are to be answered.
func (m *maker) tuned() {
	const ns = "tuned"
	metrics := port{"metrics", 9090, "TCP"}
	some := func(n int, ports ...port) group { return group{ports, m.somewhere(m.pods("t", n, true, false, false))} }
	mixed := func(states ...state) group {
		g := some(len(states), web8080)
		for i := range g.pods {
			g.pods[i].state = states[i]
		}
		return g
	}
	times := func(s *serviceFacts) {
		s.annotate("ttl", "30s").annotate("ttl-empty", "1s").annotate("ttl-nxdomain", "7s")
		s.ttlEmpty, s.ttlNXDomain = 1, 7
	}
	times(m.service(ns, "ttl", nil, some(3, web8080)))
	times(m.service(ns, "ttl-idle", []port{web8080}))
	times(m.service(ns, "ttl-mixed", nil, mixed(ready, starting, leaving)))
	m.service(ns, "ttl-bad", nil, some(2, web8080)).annotate("ttl", "soon")

	m.service(ns, "limit-3", nil, group{[]port{web8080, metrics}, m.somewhere(m.pods("t", 8, true, true, false))}).limited(3)
	m.service(ns, "limit-9", nil, some(5, web8080)).limited(9)
	m.service(ns, "limit-60", nil, some(200, web8080)).limited(60)
	m.service(ns, "limit-fixed", nil, some(8, web8080)).limited(3).annotate("order", "fixed")
	m.service(ns, "limit-hash", nil, some(8, web8080)).limited(3).annotate("order", "hash")
	m.service(ns, "limit-mixed", nil, mixed(ready, starting, leaving, ready, ready, unsaid)).limited(2)
	m.service(ns, "cut", nil, some(200, web8080)).annotate("fit", "cut").cuts = true
	m.service(ns, "rotate", nil, some(6, web8080)).annotate("order", "rotate")

	m.service(ns, "weights", nil, group{[]port{web8080, metrics}, m.somewhere(m.pods("w", 9, true, false, true))}).
		annotate("weights", "w-0=10, w-1=0, node:node-1=0, zone:zone-b=3, zone:inland.zone_1=65535")
	m.service(ns, "weightless", nil, some(3, web8080)).annotate("weights", "zone:zone-a=0, zone:zone-b=0, zone:Inland.Zone_1=0")

	m.service(ns, "publish-all", nil, mixed(ready, starting, leaving, done)).annotate("publish", "all")
	m.service(ns, "publish-all-idle", nil, mixed(starting, done)).annotate("publish", "all")
	m.service(ns, "publish-serving", nil, mixed(ready, starting, leaving, done)).annotate("publish", "serving")
	m.service(ns, "fallback-serving", nil, mixed(starting, leaving, leaving)).annotate("fallback", "serving")
	m.service(ns, "fallback-all", nil, mixed(starting, done)).annotate("fallback", "all")
	m.service(ns, "fallback-unused", nil, mixed(ready, leaving)).annotate("fallback", "all")
	m.service(ns, "early", nil, mixed(ready, early, early)).spec("publishNotReadyAddresses", true)
}

// shared makes what several have.
func (m *maker) shared() {
	const ns = "shared"
	same := func(host string, n int, v6 bool) (out []pod) {
		for _, p := range m.pods(host, n, true, v6, false) {
			p.host = host
			out = append(out, p)
		}
		return out
	}
	m.service(ns, "hosts", nil, group{[]port{web8080}, append(same("left", 5, true), same("right", 40, false)...)})
	// hostNetwork: one address, several pods and ports.
	node := m.v4()
	m.service(ns, "node", nil,
		group{[]port{{"a", 1001, "TCP"}}, []pod{{addr: node, pod: "n-1"}}},
		group{[]port{{"a", 1002, "TCP"}}, []pod{{addr: node, pod: "n-2"}}},
		group{[]port{{"a", 1001, "UDP"}}, []pod{{addr: node, pod: "n-3"}}})
	// One address behind many Services, so that its PTR records do not fit, or just.
	for kind, n := range []int{8, 10, 25, 28, 45} {
		addr4, addr6 := m.v4(), m.v6()
		for i := range n {
			p := []pod{{addr: addr4}, {addr: addr6}}
			if i%3 == 0 {
				p[0].host, p[1].host = "everywhere", "everywhere"
			}
			m.service(ns, fmt.Sprintf("each-%d-%02d", kind, i), nil, group{[]port{web8080}, p})
		}
	}
}

// aliases makes ExternalNames.
func (m *maker) aliases() {
	const ns = "alias"
	in := func(s string) string { return s + "." + strings.TrimSuffix(zoneName, ".") }
	for name, target := range map[string]string{
		"out": "www.example.com", "out-dot": "www.example.com.", "above": "local", "apex": strings.TrimSuffix(zoneName, "."),
		"web": in("web.team-0"), "capitals": "Web.TEAM-0.Registry.LOCAL", "dual": in("api.team-1"), "six": in("six.team-2"),
		"endpoint": in("db-0.db.team-0"), "port": in("_http._tcp.web.team-0"), "protocol": in("_tcp.web.team-0"), "namespace": in("team-0"),
		"idle": in("idle.team-0"), "going": in("going.states"), "missing": in("nope.team-0"), "below-out": in("x.out.alias"),
		"crowd": in("crowd-200.big"), "ns": in("ns.dns"), "version": in("dns-version"), "odd": in("fd00-0002-3-4-5-6-7-8.odd.special"),
		"reverse": strings.TrimSuffix(reverse("10.255.255.255"), "."), "reverse-nobody": "9.9.9.10.in-addr.arpa",
		"reverse-away": strings.TrimSuffix(reverse("192.0.2.1"), "."),
		"no-name":      "not a name", "loop": in("loop.alias"),
		"loop-a": in("loop-b.alias"), "loop-b": in("loop-a.alias"), "into-loop": in("loop-a.alias"),
	} {
		m.external(ns, name, target)
	}
	m.facts.bare[named(ns, "no-name")] = true
	// Chains of 12 steps, and the same to what is not there, to nothing in particular and
	// out; and a loop that is longer than we go.
	for i := range 12 {
		next := func(kind string) string { return in(fmt.Sprintf("%s-%d.alias", kind, i-1)) }
		ends := map[string]string{"chain": in("web.team-0"), "broken": in("nope.team-0"), "none": in("six.team-2"), "leads-out": "www.example.com", "round": in("round-11.alias")}
		for kind, end := range ends {
			target := end
			if i > 0 {
				target = next(kind)
			}
			m.external(ns, fmt.Sprintf("%s-%d", kind, i), target)
		}
	}
}
