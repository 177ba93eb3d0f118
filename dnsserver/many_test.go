//go:build !race

package dnsserver

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/dnsserver/batch"
	"epdns/registry"
	"epdns/zones"
)

// askedFor are the kinds of question that manyServices makes.
var askedFor = []string{"service", "endpoint", "pod", "srv", "ptr", "none"}

// manyServices is a Set of n Services with ten endpoints each, and of each kind of question
// a query about each of some of them, in no order.
func manyServices(t testing.TB, n int) (*zones.Store, map[string][]batch.Message) {
	t.Helper()
	var services []*registry.Service
	queries := map[string][]batch.Message{}
	for i := range n {
		key := registry.Key{Namespace: fmt.Sprintf("ns-%d", i%10), Name: fmt.Sprintf("web-%06d", i)}
		sl := &registry.Slice{Namespace: key.Namespace, Name: key.Name, Service: key.Name, Ports: []registry.Port{{Name: "http", Number: 8080}}}
		var endpoints []registry.Endpoint
		for e := range 10 {
			addr := netip.AddrFrom4([4]byte{10, byte((i*10 + e) >> 16), byte((i*10 + e) >> 8), byte(i*10 + e)})
			endpoints = append(endpoints, registry.Endpoint{
				Addr: addr, Pod: fmt.Sprintf("%s-7d4b9c-%d", key.Name, e), Node: fmt.Sprintf("node-%d", e%3), Zone: fmt.Sprintf("zone-%d", e%3),
				Ready: true, Serving: true,
			})
		}
		sl.Endpoints = registry.NewEndpoints(endpoints...)
		services = append(services, &registry.Service{Key: key, Exists: true, Object: &registry.Object{}, Slices: []*registry.Slice{sl}})
		if i%max(1, n/manyAsked) != 0 {
			continue
		}
		of := key.Name + "." + key.Namespace + ".registry.local."
		e := endpoints[i/10%10]
		dashed := strings.ReplaceAll(e.Addr.String(), ".", "-")
		reverse, err := dns.ReverseAddr(e.Addr.String())
		if err != nil {
			t.Fatal(err)
		}
		for at, q := range []*dns.Msg{
			question(of, dns.TypeA), question(dashed+"."+of, dns.TypeA), question(e.Pod+"."+of, dns.TypeA),
			question("_http._tcp."+of, dns.TypeSRV), question(reverse, dns.TypePTR), question("none-"+of, dns.TypeA),
		} {
			q.SetEdns0(1232, false)
			msg, err := q.Pack()
			if err != nil {
				t.Fatal(err)
			}
			queries[askedFor[at]] = append(queries[askedFor[at]], batch.Message{Data: msg, From: client})
		}
	}
	b, err := zones.NewBuilder(zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}})
	if err != nil {
		t.Fatal(err)
	}
	out := &zones.Store{}
	out.Publish(b.Build(services, time.Unix(1_800_000_000, 0)))
	// A server has received its queries just now, and fills the same replies again and again.
	var replies [batch.DefaultSize][]byte
	for i := range replies {
		replies[i] = make([]byte, 0, maxUDPSize)
	}
	for _, list := range queries {
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		var near []byte
		for i := range list {
			near = append(near, list[i].Data...)
		}
		for i := range list {
			n := len(list[i].Data)
			list[i].Data, near = near[:n:n], near[n:]
			list[i].Reply = replies[i%len(replies)]
		}
	}
	return out, queries
}

// manyAsked is of how many Services there are queries at most: more than what a processor
// keeps near.
const manyAsked = 10_000

// What is parsed and looked up in a batch is answered as by itself, without allocation.
func TestBatchIsAnsweredAsEachAlone(t *testing.T) {
	store, kinds := manyServices(t, 3100) // so many that they are looked ahead for
	var queries []batch.Message
	for i := range batch.DefaultSize {
		kind := askedFor[i%len(askedFor)]
		queries = append(queries, kinds[kind][i])
	}
	long := question("x.y.z.web-000007.ns-7.registry.local.", dns.TypeA)
	outside := question("example.com.", dns.TypeA)
	for i, q := range []*dns.Msg{long, outside, question("registry.local.", dns.TypeSOA), question(".", dns.TypeNS), question("ns-1.registry.local.", dns.TypeA)} {
		msg, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		queries[i].Data = msg
	}
	queries[5].Data = queries[5].Data[:20] // no question
	queries[6].Data = nil
	w := &udpWorker{responder: newResponder(store)}
	alone := newResponder(store)
	w.parse(queries)
	for i := range queries {
		got := w.respond(&w.parsed[i], &queries[i])
		want := alone.Respond(nil, queries[i].Data, client, Via{Transport: UDP})
		if sorted(t, got) != sorted(t, want) {
			t.Errorf("query %d: %x, alone %x", i, got, want)
		}
	}
	if n := testing.AllocsPerRun(20, func() {
		w.parse(queries)
		for i := range queries {
			queries[i].Reply = w.respond(&w.parsed[i], &queries[i])[:0]
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// sorted is a reply whose records are in order, as text.
func sorted(t *testing.T, reply []byte) string {
	t.Helper()
	if len(reply) == 0 {
		return "silence"
	}
	var m dns.Msg
	if err := m.Unpack(reply); err != nil {
		t.Fatalf("%x: %v", reply, err)
	}
	for _, section := range [][]dns.RR{m.Answer, m.Extra} {
		slices.SortFunc(section, func(a, b dns.RR) int { return strings.Compare(a.String(), b.String()) })
	}
	return m.String()
}

// BenchmarkMany is the cost of a query among N Services, by itself and in a batch.
func BenchmarkMany(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000, 100_000} {
		store, kinds := manyServices(b, n)
		w := &udpWorker{responder: newResponder(store)}
		for _, kind := range askedFor {
			queries := kinds[kind]
			size := min(batch.DefaultSize, len(queries))
			for _, together := range []bool{false, true} {
				b.Run(fmt.Sprintf("services=%d/%s/together=%t", n, kind, together), func(b *testing.B) {
					at := 0
					for range (b.N + size - 1) / size {
						if at+size > len(queries) {
							at = 0
						}
						part := queries[at : at+size]
						at += size
						if together {
							w.parse(part)
							for i := range part {
								part[i].Reply = w.respond(&w.parsed[i], &part[i])[:0]
							}
							continue
						}
						for i := range part {
							m := &part[i]
							m.Reply = w.responder.Respond(m.Reply, m.Data, m.From, Via{UDP, m.Local})[:0]
						}
					}
				})
			}
		}
	}
}
