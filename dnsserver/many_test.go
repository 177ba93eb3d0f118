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

// manyServices is a Set of n Services with ten endpoints each, and a query for each of
// them, in no order.
func manyServices(t testing.TB, n int) (*zones.Store, []batch.Message) {
	t.Helper()
	var services []*registry.Service
	var queries []batch.Message
	for i := range n {
		key := registry.Key{Namespace: fmt.Sprintf("ns-%d", i%10), Name: fmt.Sprintf("web-%06d", i)}
		sl := &registry.Slice{Namespace: key.Namespace, Name: key.Name, Service: key.Name, Ports: []registry.Port{{Name: "http", Number: 8080}}}
		for e := range 10 {
			a := i*10 + e
			sl.Endpoints = append(sl.Endpoints, registry.Endpoint{Addr: netip.AddrFrom4([4]byte{10, byte(a >> 16), byte(a >> 8), byte(a)}), Ready: true, Serving: true})
		}
		services = append(services, &registry.Service{Key: key, Exists: true, Object: &registry.Object{}, Slices: []*registry.Slice{sl}})
		q := question(key.Name+"."+key.Namespace+".registry.local.", dns.TypeA)
		q.SetEdns0(1232, false)
		msg, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		queries = append(queries, batch.Message{Data: msg, From: client})
	}
	b, err := zones.NewBuilder(zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}})
	if err != nil {
		t.Fatal(err)
	}
	out := &zones.Store{}
	out.Publish(b.Build(services, time.Unix(1_800_000_000, 0)))
	rand.New(rand.NewPCG(1, 2)).Shuffle(n, func(i, j int) { queries[i], queries[j] = queries[j], queries[i] })
	for i := range queries {
		queries[i].Reply = make([]byte, 0, maxUDPSize)
	}
	return out, queries
}

// What is parsed and looked up in a batch is answered as by itself, without allocation.
func TestBatchIsAnsweredAsEachAlone(t *testing.T) {
	store, queries := manyServices(t, 600)
	queries = queries[:batch.DefaultSize]
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
	slices.SortFunc(m.Answer, func(a, b dns.RR) int { return strings.Compare(a.String(), b.String()) })
	return m.String()
}

func BenchmarkMany(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000, 100_000} {
		store, queries := manyServices(b, n)
		w := &udpWorker{responder: newResponder(store)}
		size := min(batch.DefaultSize, n)
		for _, together := range []bool{false, true} {
			b.Run(fmt.Sprintf("services=%d/together=%t", n, together), func(b *testing.B) {
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
