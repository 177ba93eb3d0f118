package zones

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"epdns/registry"
)

// someService is a Service of ten endpoints, as a snapshot of the registry.
func someService(i, change int) *registry.Service {
	key := registry.Key{Namespace: fmt.Sprintf("ns-%d", i%50), Name: fmt.Sprintf("service-%d", i)}
	slice := &registry.Slice{Namespace: key.Namespace, Name: key.Name + "-1", Service: key.Name}
	slice.Ports = []registry.Port{{Name: "http", Number: 8080}}
	for e := range 10 {
		n := i*10 + e
		if e == 0 {
			n += change << 20 // one pod has been replaced
		}
		extend(slice, registry.Endpoint{
			Addr: netip.AddrFrom4([4]byte{byte(10 + n>>24), byte(n >> 16), byte(n >> 8), byte(n)}),
			Pod:  fmt.Sprintf("service-%d-%d", i, e), Node: "node", Zone: "zone", Ready: true, Serving: true,
		})
	}
	return &registry.Service{Key: key, Exists: true, Object: &registry.Object{}, Slices: []*registry.Slice{slice}}
}

// BenchmarkBuild is the cost of publishing a change of one endpoint of one Service
// among N.
func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			builder, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}})
			if err != nil {
				b.Fatal(err)
			}
			var all []*registry.Service
			for i := range n {
				all = append(all, someService(i, 0))
			}
			now := time.Unix(1_800_000_000, 0)
			builder.Build(all, now)
			var store Store
			changes := [2][]*registry.Service{{someService(n/2, 1)}, {someService(n/2, 2)}}
			all = nil
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				store.Publish(builder.Build(changes[i%2], now))
			}
		})
	}
}

// bigService has its endpoints in slices of 100, on nodes of 3 zones.
func bigService(n, nodes int) *registry.Service {
	svc := &registry.Service{Key: registry.Key{Namespace: "ns-1", Name: "big"}, Exists: true, Object: &registry.Object{UID: "u"}}
	for at := 0; at < n; at += 100 {
		sl := &registry.Slice{Namespace: "ns-1", Name: fmt.Sprintf("big-%05d", at/100), Service: "big", Created: 1, Ports: []registry.Port{{Name: "http", Number: 8080}}}
		for i := at; i < min(n, at+100); i++ {
			node := i * 7919 % nodes
			extend(sl, registry.Endpoint{
				Addr: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}),
				Pod:  fmt.Sprintf("big-7d4b9c6f5-%05d", i), Node: fmt.Sprintf("node-%d", node), Zone: fmt.Sprintf("zone-%d", node%3), Region: "r",
				Ready: true, Serving: true,
			})
		}
		svc.Slices = append(svc.Slices, sl)
	}
	return svc
}

// BenchmarkChange is the cost of publishing a change of one endpoint of a Service of N,
// which are in slices of 100.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{10, 100, 5000, 50000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			builder, _ := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}})
			now := time.Unix(1_800_000_000, 0)
			one := bigService(n, 500)
			two, other := *one, bigService(min(n, 100), 500).Slices[0]
			alter(other, func(i int, e *registry.Endpoint) {
				if i == 0 {
					e.Addr, e.Pod = netip.AddrFrom4([4]byte{10, 255, 0, 1}), "other"
				}
			})
			two.Slices = slices.Clone(one.Slices)
			two.Slices[0] = other
			builder.Build([]*registry.Service{one}, now)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				svc := one
				if i%2 == 0 {
					svc = &two
				}
				builder.Build([]*registry.Service{svc}, now)
			}
		})
	}
}
