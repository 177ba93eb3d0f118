//go:build linux

package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// The zones that are served, and what CoreDNS calls them.
const (
	forwardZone = "cluster.local."
	reverseZone = "10.in-addr.arpa."
	reverseCIDR = "10.0.0.0/8"
)

const (
	namespaces = 10
	port       = 8080

	// perSlice is how many endpoints the EndpointSlice controller puts into a slice.
	perSlice = 100
)

// service is a headless Service, so that CoreDNS answers with its endpoints, too.
type service struct {
	namespace, name string
	first, size     int // its endpoints' addresses
}

// services are n of them, with names of one length: replies then have one size.
func services(kind string, n, first, size int) []*service {
	return firstOf(n, kind, n, first, size)
}

// firstOf are the first k of n services.
func firstOf(k int, kind string, n, first, size int) []*service {
	width := len(fmt.Sprint(max(n-1, 0)))
	list := make([]*service, k)
	for i := range list {
		list[i] = &service{fmt.Sprintf("ns-%d", i%namespaces), fmt.Sprintf("%s-%0*d", kind, width, i), first + i*size, size}
	}
	return list
}

// maxAddresses is how many there are.
const maxAddresses = 150 * 150 * 150

// address is one of 10.0.0.0/8 that takes 14 octets to write.
func address(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(100 + n/150/150%150), byte(100 + n/150%150), byte(100 + n%150)})
}

// dashed is how an address is written as a label.
func dashed(a netip.Addr) string { return strings.ReplaceAll(a.String(), ".", "-") }

// domain is the Service's name.
func (s *service) domain() string { return s.name + "." + s.namespace + ".svc." + forwardZone }

// pod is the name of its endpoint i.
func (s *service) pod(i int) string { return dashed(address(s.first+i)) + "." + s.domain() }

type object = map[string]any

// object is the Service of the API.
func (s *service) object() object {
	return object{
		"apiVersion": "v1", "kind": "Service",
		"metadata": object{"namespace": s.namespace, "name": s.name},
		"spec": object{
			"type": "ClusterIP", "clusterIP": "None", "clusterIPs": []string{"None"}, "ipFamilies": []string{"IPv4"}, "ipFamilyPolicy": "SingleStack",
			"ports": []object{{"name": "http", "port": 80, "protocol": "TCP"}},
		},
	}
}

// slices is how many EndpointSlices it has.
func (s *service) slices() int { return (s.size + perSlice - 1) / perSlice }

// slice is EndpointSlice i of it. If other is not 0 it is the address of its first endpoint.
func (s *service) slice(i, other int) object {
	var endpoints []object
	for e := i * perSlice; e < min(s.size, (i+1)*perSlice); e++ {
		a := address(s.first + e)
		if e == i*perSlice && other != 0 {
			a = address(other)
		}
		endpoints = append(endpoints, object{
			"addresses":  []string{a.String()},
			"conditions": object{"ready": true, "serving": true, "terminating": false},
			"nodeName":   fmt.Sprintf("node-%d", e%3), "zone": fmt.Sprintf("zone-%d", e%3),
			"targetRef": object{"kind": "Pod", "namespace": s.namespace, "name": fmt.Sprintf("%s-%s", s.name, dashed(a))},
		})
	}
	return object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata": object{"namespace": s.namespace, "name": s.sliceName(i), "labels": object{
			"kubernetes.io/service-name":             s.name,
			"endpointslice.kubernetes.io/managed-by": "bench",
		}},
		"endpoints": endpoints,
		"ports":     []object{{"name": "http", "port": port, "protocol": "TCP"}},
	}
}

func (s *service) sliceName(i int) string { return fmt.Sprintf("%s-%d", s.name, i) }

// writeManifests writes all objects for epdns to read.
func writeManifests(w io.Writer, list []*service) error {
	e := json.NewEncoder(w) // JSON is YAML
	write := func(o object) error {
		if _, err := io.WriteString(w, "---\n"); err != nil {
			return err
		}
		return e.Encode(o)
	}
	for _, s := range list {
		if err := write(s.object()); err != nil {
			return err
		}
		for i := range s.slices() {
			if err := write(s.slice(i, 0)); err != nil {
				return err
			}
		}
	}
	return nil
}

// question is one kind of question, about many names.
type question struct {
	name  string // "A 10"
	title string // for people
	qtype uint16
	names []string
	want  func(i int) map[string]bool // the records of name i, as [record] has them
	rcode int

	// rate is how many a second are asked for the latency: less than the slowest server can.
	rate int

	// large replies do not fit into a datagram.
	large bool
}

// World is what is in the cluster, and what is asked.
type World struct {
	services  []*service
	questions []*question
}

// wideServices is how many Services have a hundred endpoints.
const wideServices = 100

// NewWorld makes a cluster of n Services (at least 1) with ten endpoints each, and some with a
// hundred.
func NewWorld(n int) *World {
	const small, wide = 10, 100
	small10 := services("web", n, 0, small)
	wide100 := services("wide", min(n, wideServices), n*small, wide)
	w := &World{services: append(small10[:len(small10):len(small10)], wide100...)}
	of := func(list []*service, name func(*service) string) (out []string) {
		for _, s := range list {
			out = append(out, name(s))
		}
		return out
	}
	srv := func(s *service) string { return "_http._tcp." + s.domain() }
	w.questions = []*question{
		{name: "A10", title: "A, 10 endpoints", qtype: dns.TypeA, names: of(small10, (*service).domain), want: addresses(small10), rate: 2000},
		{name: "SRV10", title: "SRV, 10 endpoints", qtype: dns.TypeSRV, names: of(small10, srv), want: targets(small10), rate: 2000},
		{name: "A100", title: "A, 100 endpoints", qtype: dns.TypeA, names: of(wide100, (*service).domain), want: addresses(wide100), rate: 500, large: true},
		{name: "SRV100", title: "SRV, 100 endpoints", qtype: dns.TypeSRV, names: of(wide100, srv), want: targets(wide100), rate: 500, large: true},
		{name: "PTR", title: "PTR", qtype: dns.TypePTR, rate: 2000, names: of(small10, func(s *service) string {
			b := address(s.first).As4()
			return fmt.Sprintf("%d.%d.%d.%d.in-addr.arpa.", b[3], b[2], b[1], b[0])
		}), want: func(i int) map[string]bool { return map[string]bool{small10[i].pod(0): true} }},
		{name: "NXDOMAIN", title: "NXDOMAIN", qtype: dns.TypeA, rate: 2000, rcode: dns.RcodeNameError,
			names: of(small10, func(s *service) string { return "none" + s.domain() }),
			want:  func(int) map[string]bool { return nil }},
		{name: "POD", title: "A of an endpoint", qtype: dns.TypeA, rate: 2000,
			names: of(small10, func(s *service) string { return s.pod(0) }),
			want:  func(i int) map[string]bool { return map[string]bool{address(small10[i].first).String(): true} }},
	}
	return w
}

// addresses are the A records of some Services.
func addresses(list []*service) func(i int) map[string]bool {
	return func(i int) map[string]bool {
		all := map[string]bool{}
		for e := range list[i].size {
			all[address(list[i].first+e).String()] = true
		}
		return all
	}
}

// targets are the SRV records of their port.
func targets(list []*service) func(i int) map[string]bool {
	return func(i int) map[string]bool {
		all := map[string]bool{}
		for e := range list[i].size {
			all[fmt.Sprintf("%d %s", port, list[i].pod(e))] = true
		}
		return all
	}
}

// record is what a record of an answer says.
func record(rr dns.RR) string {
	switch rr := rr.(type) {
	case *dns.A:
		return rr.A.String()
	case *dns.SRV:
		return fmt.Sprintf("%d %s", rr.Port, rr.Target)
	case *dns.PTR:
		return rr.Ptr
	default:
		return rr.String()
	}
}

// ednsSize is what is asked with, the size that DNS servers agree on since 2020.
const ednsSize = 1232

// message is the question about name i.
func (q *question) message(i int) *dns.Msg {
	m := new(dns.Msg).SetQuestion(q.names[i], q.qtype)
	m.RecursionDesired = false
	return m.SetEdns0(ednsSize, false)
}

// check says what is wrong with a reply to name i, over UDP or TCP.
func (q *question) check(i int, reply *dns.Msg, tcp bool) error {
	name := q.names[i]
	if reply.Rcode != q.rcode {
		return fmt.Errorf("%s: %s, not %s", name, dns.RcodeToString[reply.Rcode], dns.RcodeToString[q.rcode])
	}
	want, got := q.want(i), map[string]bool{}
	for _, rr := range reply.Answer {
		r := record(rr)
		if !want[r] || got[r] {
			return fmt.Errorf("%s: a record that should not be there, or not twice: %s", name, r)
		}
		got[r] = true
	}
	cut := q.large && !tcp
	switch {
	case reply.Truncated != cut:
		return fmt.Errorf("%s: TC is %v", name, reply.Truncated)
	case !cut && len(got) != len(want):
		return fmt.Errorf("%s: %d records, not %d", name, len(got), len(want))
	case q.rcode == dns.RcodeNameError && (len(reply.Ns) == 0 || reply.Ns[0].Header().Rrtype != dns.TypeSOA):
		return fmt.Errorf("%s: no SOA with the NXDOMAIN", name)
	}
	return nil
}
