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

const zoneName = "registry.local."

// facts are what manifests say that no zone file can, since it has no place for names
// without records.
type facts struct {
	// Names that exist and have no record.
	bare map[string]bool
	// Names of Services and ports of which nothing is published at the moment.
	empty map[string]bool
	// Other spellings of names that have records.
	spellings map[string]string
	// Addresses outside the reverse zones, by reverse name.
	outside map[string]netip.Addr
}

// service notes a Service of which nothing is published; its ports are given as
// "_http._tcp".
func (f *facts) service(name string, ports ...string) {
	f.empty[name], f.bare[name] = true, true
	f.bare[parent(name)] = true // the namespace
	for _, p := range ports {
		f.empty[p+"."+name], f.bare[p+"."+name] = true, true
		f.bare[parent(p+"."+name)] = true
	}
}

func newFacts() facts {
	return facts{bare: map[string]bool{}, empty: map[string]bool{}, spellings: map[string]string{}, outside: map[string]netip.Addr{}}
}

// state is what an endpoint's conditions say.
type state int

const (
	ready    state = iota
	unsaid         // no conditions: counts as ready
	starting       // neither ready nor serving
	leaving        // serving, not ready
	done           // terminating, not serving
)

// pod is an endpoint.
type pod struct {
	addr      netip.Addr
	host, pod string
	state     state
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
		facts: newFacts(),
		next4: netip.MustParseAddr("10.0.0.0"),
		next6: netip.MustParseAddr("fd00:10:244::"),
	}
	m.plain()
	m.big()
	m.special()
	m.readiness()
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
func (m *maker) service(ns, name string, spec []port, groups ...group) {
	var ports []object
	for _, p := range spec {
		ports = append(ports, p.object("port"))
	}
	m.objects = append(m.objects, object{
		"apiVersion": "v1", "kind": "Service",
		"metadata": object{"namespace": ns, "name": name},
		"spec":     object{"type": "ClusterIP", "clusterIP": "None", "ports": ports},
	})
	for _, g := range groups {
		m.group(ns, name, g)
	}
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
	for i := range 40 {
		ns := fmt.Sprintf("team-%d", i)
		m.service(ns, "web", []port{web8080}, group{[]port{web8080}, m.pods("web", 2+m.rand.IntN(9), true, false, false)})
		m.service(ns, "api", []port{web8080}, group{[]port{web8080, {"grpc", 9000, "TCP"}}, m.pods("api", 1+m.rand.IntN(4), true, true, false)})
		m.service(ns, "db", nil, group{[]port{{"sql", 5432, "TCP"}}, m.pods("db", 3, true, true, true)})
		m.service(ns, "six", nil, group{[]port{{"sip", 5060, "UDP"}}, m.pods("six", 2, false, true, false)})
		m.service(ns, "idle", []port{web8080})
		m.facts.service(named(ns, "idle"), "_http._tcp")
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
	m.facts.empty["_later._udp."+named(ns, "early")] = true
	m.facts.bare["_later._udp."+named(ns, "early")] = true
	m.facts.bare["_udp."+named(ns, "early")] = true
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
	for _, svc := range []string{"going", "going-too", "coming"} {
		m.facts.service(named(ns, svc), "_http._tcp")
	}
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
	m.facts.service(named("void", "nothing"))
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
