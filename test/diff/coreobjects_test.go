//go:build linux

package diff_test

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"epdns/test/cluster"

	"github.com/miekg/dns"
)

// This file says what the cluster holds that epdns and CoreDNS are asked about.

// coreService is a Service with its slices, which nobody but us writes.
type coreService struct {
	ns, name string
	kind     serviceKind
	target   string // of an alias
	groups   []group
}

type serviceKind int

const (
	headless serviceKind = iota
	vip                  // has addresses of its own
	alias                // ExternalName
)

// manyPods is enough for replies that are cut in every way over UDP.
const manyPods = 150

// bareNamespace has no Services.
const bareNamespace = "bare"

// serviceIPs are those of the Service that has some.
var serviceIPs = []string{"10.96.0.80", "fd00:10:96::80"}

// coreServices are what there is. Pods have addresses in podPrefixes.
func coreServices() []coreService {
	web, grpc, unnamed := port{"http", 80, "TCP"}, port{"grpc", 9000, "TCP"}, port{"", 7000, "TCP"}
	udp, sctp := port{"dns", 81, "UDP"}, port{"sig", 82, "SCTP"}
	at := func(addr, host string, s state) pod {
		return pod{addr: netip.MustParseAddr(addr), host: host, state: s}
	}
	in := func(zone string, p pod) pod { p.zone = zone; return p }
	ports := func(p ...port) []port { return p }
	var many []pod
	for i := range manyPods {
		many = append(many, at(fmt.Sprintf("10.1.9.%d", i+1), "", ready))
	}
	var crowded []pod
	for i := range 60 {
		crowded = append(crowded, in([]string{"eu-1a", "eu-1b"}[i%5/4], at(fmt.Sprintf("10.1.8.%d", i+1), "", ready)))
	}
	ofPods := []pod{at("10.1.2.1", "", ready), at("10.1.2.2", "named", ready)}
	ofPods[0].pod, ofPods[1].pod = "pod-0", "pod-1"
	return []coreService{
		{"shop", "web", headless, "", []group{{ports(web), []pod{at("10.1.0.1", "", ready), at("10.1.0.2", "", ready), at("10.1.0.3", "", unsaid)}}}},
		{"shop", "db", headless, "", []group{{ports(port{"sql", 5432, "TCP"}), []pod{
			at("10.1.0.11", "db-0", ready), at("10.1.0.12", "db-1", ready), at("10.1.0.13", strings.Repeat("h", 63), ready),
		}}}},
		{"shop", "mixed", headless, "", []group{{ports(web), []pod{at("10.1.0.21", "first", ready), at("10.1.0.22", "", ready)}}}},
		{"shop", "shared", headless, "", []group{{ports(web), []pod{at("10.1.0.31", "same", ready), at("10.1.0.32", "same", ready), at("10.1.0.33", "other", ready)}}}},
		{"shop", "twice", headless, "", []group{
			{ports(web), []pod{at("10.1.0.41", "", ready), at("10.1.0.42", "", ready)}},
			{ports(web), []pod{at("10.1.0.42", "", ready), at("10.1.0.43", "", ready)}},
		}},
		{"shop", "renamed", headless, "", []group{ // one address, with a host name and without
			{ports(web), []pod{at("10.1.0.46", "late", ready)}},
			{ports(web), []pod{at("10.1.0.46", "", ready)}},
		}},
		{"shop", "halfready", headless, "", []group{ // ready in one slice and not in the other
			{ports(web), []pod{at("10.1.0.51", "", ready)}},
			{ports(web), []pod{at("10.1.0.51", "", starting)}},
		}},
		{"shop", "dual", headless, "", []group{{ports(web), []pod{
			at("10.1.0.61", "d-0", ready), at("10.1.0.62", "", ready), at("fd00:1::61", "d-0", ready), at("fd00:1::62", "", ready), at("fd00:1::", "", ready),
		}}}},
		{"shop", "six", headless, "", []group{{ports(web), []pod{at("fd00:1::71", "", ready)}}}},
		{"shop", "ports", headless, "", []group{{ports(web, grpc, udp, sctp), []pod{at("10.1.0.81", "", ready), at("10.1.0.82", "p", ready)}}}},
		{"shop", "unnamed", headless, "", []group{{ports(unnamed), []pod{at("10.1.0.91", "", ready), at("10.1.0.92", "u", ready)}}}},
		{"shop", "pods", headless, "", []group{{ports(web), ofPods}}},
		{"data", "somenamed", headless, "", []group{{ports(web), []pod{at("10.1.1.1", "", ready)}}, {ports(unnamed), []pod{at("10.1.1.2", "", ready)}}}},
		{"data", "differs", headless, "", []group{
			{ports(port{"http", 8080, "TCP"}), []pod{at("10.1.1.11", "", ready)}},
			{ports(port{"http", 8081, "TCP"}, grpc), []pod{at("10.1.1.12", "", ready)}},
		}},
		{"data", "noports", headless, "", []group{{nil, []pod{at("10.1.1.21", "", ready), at("10.1.1.22", "n", ready)}}}},
		{"data", "starting", headless, "", []group{{ports(web), []pod{at("10.1.1.31", "", ready), at("10.1.1.32", "", starting), at("10.1.1.33", "s-2", starting)}}}},
		{"data", "leaving", headless, "", []group{{ports(web), []pod{
			at("10.1.1.41", "", ready), at("10.1.1.42", "", leaving), at("10.1.1.43", "l-2", leaving), at("10.1.1.44", "", done),
		}}}},
		{"data", "nothingready", headless, "", []group{{ports(web), []pod{at("10.1.1.51", "", starting), at("10.1.1.52", "r-1", done)}}}},
		{"data", "draining", headless, "", []group{{ports(web), []pod{at("10.1.1.61", "", leaving), at("10.1.1.62", "g-1", leaving)}}}},
		{"data", "noslices", headless, "", nil},
		{"data", "both", headless, "", []group{{ports(web), []pod{at("10.1.0.1", "", ready), at("10.1.0.11", "db-0", ready)}}}}, // of web and db
		{"data", "confusing", headless, "", []group{{ports(web), []pod{at("10.1.1.71", "10-1-1-72", ready), at("10.1.1.72", "", ready)}}}},
		{"data", "many", headless, "", []group{{ports(web), many[:100]}, {ports(web), many[100:]}}},
		{"zonal", "web", headless, "", []group{{ports(web), []pod{
			in("eu-1a", at("10.1.3.1", "", ready)), in("eu-1a", at("10.1.3.2", "w-2", ready)), in("eu-1b", at("10.1.3.3", "", ready)),
			in("EU.West_1c", at("10.1.3.4", "", ready)), at("10.1.3.5", "", ready), in("eu-1b", at("10.1.3.6", "", leaving)), in("eu-1d", at("10.1.3.7", "", starting)),
		}}}},
		{"zonal", "dual", headless, "", []group{{ports(web), []pod{
			in("eu-1a", at("10.1.3.11", "", ready)), in("eu-1b", at("fd00:1::311", "", ready)), in("eu-1c", at("10.1.3.12", "", ready)), in("eu-1c", at("fd00:1::312", "", ready)),
		}}}},
		{"zonal", "hosts", headless, "", []group{{ports(web), []pod{
			in("eu-1a", at("10.1.3.21", "same", ready)), in("eu-1b", at("10.1.3.22", "same", ready)), in("eu-1b", at("10.1.3.23", "other", ready)),
			in("eu-1c", at("10.1.3.24", "same", starting)),
		}}}},
		{"zonal", "ports", headless, "", []group{
			{ports(web), []pod{in("eu-1a", at("10.1.3.31", "", ready))}},
			{ports(web, grpc), []pod{in("eu-1b", at("10.1.3.32", "", ready))}},
		}},
		{"zonal", "nothingready", headless, "", []group{{ports(web), []pod{in("eu-1a", at("10.1.3.41", "", starting)), in("eu-1b", at("10.1.3.42", "", done))}}}},
		{"zonal", "draining", headless, "", []group{{ports(web), []pod{in("eu-1a", at("10.1.3.51", "", leaving))}}}},
		{"zonal", "many", headless, "", []group{{ports(web), crowded}}},
		{"data", "out", alias, "example.com", nil},
		{"data", "in", alias, "web.shop.svc.cluster.local", nil},
		{"data", "nowhere", alias, "gone.shop.svc.cluster.local", nil},
		{"data", "vip", vip, "", []group{{ports(port{"http", 8080, "TCP"}, grpc), []pod{in("eu-1a", at("10.1.1.81", "", ready)), in("eu-1b", at("10.1.1.82", "v-1", ready))}}}},
	}
}

// podPrefixes are the reverse zones of epdns.
var podPrefixes = []string{"10.1.0.0/16", "fd00:1::/32"}

// create creates the Services and their slices, in the namespaces that they need.
func create(ctx context.Context, kube *cluster.Cluster, all []coreService) error {
	m := &maker{facts: newFacts(zoneName)}
	namespaces := map[string]bool{bareNamespace: true}
	for _, s := range all {
		namespaces[s.ns] = true
		switch s.kind {
		case headless:
			m.service(s.ns, s.name, nil, s.groups...)
		case alias:
			m.external(s.ns, s.name, s.target)
		case vip:
			m.objects = append(m.objects, object{
				"kind":     "Service",
				"metadata": object{"namespace": s.ns, "name": s.name},
				"spec": object{
					"clusterIP": serviceIPs[0], "clusterIPs": serviceIPs, "ipFamilies": []string{"IPv4", "IPv6"}, "ipFamilyPolicy": "RequireDualStack",
					"ports": []object{port{"http", 80, "TCP"}.object("port"), port{"grpc", 9000, "TCP"}.object("port")},
				},
			})
			for _, g := range s.groups {
				m.group(s.ns, s.name, g)
			}
		}
	}
	for ns := range namespaces {
		if err := kube.Request(ctx, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": ns}}, nil); err != nil {
			return err
		}
	}
	for _, o := range m.objects {
		path := "/api/v1/namespaces/%s/services"
		if o["kind"] == "EndpointSlice" {
			path = "/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices"
		}
		if err := kube.Request(ctx, http.MethodPost, fmt.Sprintf(path, o["metadata"].(object)["namespace"]), o, nil); err != nil {
			return err
		}
	}
	return nil
}

// dashed is the label that an address makes.
func dashed(addr netip.Addr) string {
	label := strings.NewReplacer(".", "-", ":", "-").Replace(addr.String())
	if strings.HasSuffix(label, "-") {
		label += "0"
	}
	return label
}

// coreFacts are what the objects say of names, which the rules of the differences go by.
type coreFacts struct {
	kinds    map[string]serviceKind // of Services
	empty    map[string]bool        // headless Services with nothing ready
	second   map[string]netip.Addr  // names of ready endpoints that are not what SRV records point to
	leaving  map[string]netip.Addr  // names, reverse ones too, of endpoints that are not ready and still serve
	unnamed  map[string]bool        // "<service> <number>" of ports without a name
	twins    map[string]bool        // names made of addresses that have a host name in another slice
	confused map[string]bool        // names made of addresses that are another endpoint's host name, and their reverse names
	names    []string               // to ask for
	model    facts                  // what views and scopes go by
}

// coreZone is what is served.
const coreZone = "cluster.local."

func newCoreFacts(all []coreService) *coreFacts {
	f := &coreFacts{
		kinds: map[string]serviceKind{"kubernetes.default.svc." + coreZone: vip}, empty: map[string]bool{},
		model: newFacts("svc." + coreZone), second: map[string]netip.Addr{}, leaving: map[string]netip.Addr{}, unnamed: map[string]bool{},
		twins: map[string]bool{}, confused: map[string]bool{},
	}
	ask := func(names ...string) { f.names = append(f.names, names...) }
	for _, s := range all {
		name := s.name + "." + s.ns + ".svc." + coreZone
		f.kinds[name] = s.kind
		f.learn(name, s)
		anyReady := false
		first := map[string]netip.Addr{} // what CoreDNS calls ready endpoints
		for _, g := range s.groups {
			for _, p := range g.ports {
				label, proto := p.name, strings.ToLower(p.protocol)
				if label == "" {
					f.unnamed[fmt.Sprint(name, " ", p.number)] = true
					continue
				}
				ask("_"+label+"._"+proto+"."+name, label+"."+proto+"."+name)
			}
			for _, p := range g.pods {
				labels := []string{dashed(p.addr), p.host, p.pod}
				own := labels[0] + "." + name
				if p.host != "" {
					own = p.host + "." + name
				}
				ask(reverse(p.addr.String()))
				if p.state == leaving {
					f.leaving[reverse(p.addr.String())] = p.addr
				}
				if p.state == ready || p.state == unsaid {
					anyReady = true
					first[own] = p.addr
				}
				for _, label := range labels {
					if label == "" {
						continue
					}
					at := label + "." + name
					ask(at)
					switch p.state {
					case ready, unsaid:
						f.second[at] = p.addr
					case leaving:
						f.leaving[at] = p.addr
					}
				}
			}
		}
		for _, g := range s.groups {
			for _, p := range g.pods {
				plain := dashed(p.addr) + "." + name
				switch addr, called := first[plain]; {
				case p.host != "" && called && addr == p.addr:
					f.twins[plain] = true
				case p.host == "" && slices.ContainsFunc(s.groups, func(g group) bool {
					return slices.ContainsFunc(g.pods, func(q pod) bool { return q.addr != p.addr && q.host == dashed(p.addr) })
				}):
					f.confused[plain], f.confused[reverse(p.addr.String())] = true, true
				}
			}
		}
		for n := range first {
			delete(f.second, n)
		}
		f.empty[name] = s.kind == headless && !anyReady
		ask(name, "missing."+name, "_http._tcp."+name, "_missing._tcp."+name, "_http._sctp."+name, "_._tcp."+name, "_http._."+name, "_tcp."+name, "a.b.c."+name,
			"_http._tcp.missing."+name, strings.ToUpper(name))
	}
	for _, addr := range append([]string{"10.1.200.1", "10.200.0.1", "fd00:1::ffff", "fd00:2::1", "127.0.0.1", "10.96.0.1", "192.0.2.1"}, serviceIPs...) {
		ask(reverse(addr))
	}
	ask(coreZone, "svc."+coreZone, "pod."+coreZone, "dns-version."+coreZone, "ns.dns."+coreZone, "dns."+coreZone, "x.dns-version."+coreZone, "missing."+coreZone,
		"shop.svc."+coreZone, "data.svc."+coreZone, bareNamespace+".svc."+coreZone, "missing.svc."+coreZone, "x."+bareNamespace+".svc."+coreZone, "x.missing.svc."+coreZone,
		"10-1-0-1.shop.pod."+coreZone, "shop.pod."+coreZone, "web.shop."+coreZone, "kubernetes.default.svc."+coreZone, "default.svc."+coreZone,
		"kube-system.svc."+coreZone, "*.shop.svc."+coreZone, "web.*.svc."+coreZone, strings.Repeat("x", 63)+".shop.svc."+coreZone,
		"local.", ".", "example.com.", "arpa.", "in-addr.arpa.", "ip6.arpa.", "10.in-addr.arpa.", "1.10.in-addr.arpa.", "0.1.10.in-addr.arpa.",
		"256.0.1.10.in-addr.arpa.", "x.1.10.in-addr.arpa.", "01.0.1.10.in-addr.arpa.", "1.1.0.1.10.in-addr.arpa.", "0.0.d.f.ip6.arpa.", "1.0.0.0.0.0.d.f.ip6.arpa.")
	return f
}

// learn adds what views and scopes of a Service go by, and asks for them.
func (f *coreFacts) learn(name string, s coreService) {
	const zone = "_zone."
	ask := func(names ...string) { f.names = append(f.names, names...) }
	if s.kind == alias {
		ask("eu-1a.pin._zone."+name, "eu-1a.prefer._zone."+name, "_ready."+name, "_explain."+name)
		return
	}
	m := f.model.service(name)
	values := map[string]bool{"nowhere": true, "_http._tcp.eu-1a": true, "_missing._tcp.eu-1a": true, "_tcp.eu-1a": true, "_http._tcp.nowhere": true}
	for _, g := range s.groups {
		m.pods = append(m.pods, g.pods...)
		for _, p := range g.ports {
			if p.name != "" {
				m.ports["_"+p.name+"._"+strings.ToLower(p.protocol)] = true
			}
		}
		for _, p := range g.pods {
			if p.zone != "" {
				values[p.zone], values[strings.ToUpper(p.zone)] = true, true
			}
		}
	}
	ask("_explain."+name, "_tcp._all."+name, "_http._tcp._serving."+name, "_http._tcp._ready."+name, "missing._all."+name)
	for _, view := range []string{"", "_all.", "_ready.", "_serving."} {
		ask(view+name, zone+view+name, "pin."+zone+view+name, "prefer."+zone+view+name, "any."+zone+view+name, "eu-1a.any."+zone+view+name)
		for value := range values {
			if m.placed() || value == "nowhere" && view != "_ready." {
				ask(value+".pin."+zone+view+name, value+".prefer."+zone+view+name)
			}
		}
	}
	if m.placed() {
		ask("eu-1a.pin._region."+name, "eu-1a.prefer._region."+name, "eu-1a.pin._node."+name, "eu-1a.prefer._node."+name, "_node."+name, "pin._region."+name)
	}
}

// svcLabels is how many labels are in svc.cluster.local and a namespace.
const svcLabels = 4

// service is the name of the Service that a name is at or below, "" for none.
func (f *coreFacts) service(name string) string {
	for n := dns.CanonicalName(name); dns.CountLabel(n) > svcLabels; n = parent(n) {
		if _, ok := f.kinds[n]; ok {
			return n
		}
	}
	return ""
}
