package zones

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"epdns/registry"
)

// What unlike tells of one slice and not of the other is their difference, whatever has
// changed; and where little has, little is told.
func TestUnlike(t *testing.T) {
	endpoint := func(n int) registry.Endpoint {
		return registry.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), Node: "n", Ready: n%3 > 0}
	}
	slice := func(list []registry.Endpoint) *registry.Slice {
		return &registry.Slice{Name: "web-1", Ports: []registry.Port{{Number: 80}}, Endpoints: registry.NewEndpoints(list...)}
	}
	// told is how often more each endpoint came than went, and how many were told of.
	told := func(was, is *registry.Slice) (net map[registry.Endpoint]int, n int) {
		net = map[registry.Endpoint]int{}
		count := func(sl *registry.Slice, by int) func(int) {
			return func(i int) { net[sl.Endpoints.At(i)] += by; n++ }
		}
		unlike(was, is, count(was, -1), count(is, 1))
		maps.DeleteFunc(net, func(_ registry.Endpoint, by int) bool { return by == 0 })
		return net, n
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var was []registry.Endpoint
		for i := range r.IntN(8) {
			was = append(was, endpoint(i))
		}
		is := slices.Clone(was)
		for range r.IntN(4) {
			switch i := r.IntN(len(is) + 1); {
			case i == len(is):
				is = append(is, endpoint(100+r.IntN(50)))
			case r.IntN(3) == 0:
				is[i] = endpoint(200 + r.IntN(50))
			case r.IntN(2) == 0:
				is = slices.Delete(is, i, i+1)
			default:
				j := r.IntN(len(is))
				is[i], is[j] = is[j], is[i]
			}
		}
		want := map[registry.Endpoint]int{}
		for _, e := range was {
			want[e]--
		}
		for _, e := range is {
			want[e]++
		}
		maps.DeleteFunc(want, func(_ registry.Endpoint, by int) bool { return by == 0 })
		if got, _ := told(slice(was), slice(is)); !maps.Equal(got, want) {
			t.Fatalf("%v\n%v\n%v, want %v", was, is, got, want)
		}
	}

	var some []registry.Endpoint
	for i := range 10 {
		some = append(some, endpoint(i))
	}
	other := slice(some)
	other.Created = 1
	for _, tt := range []struct {
		what    string
		was, is *registry.Slice
		n       int
	}{
		{"nothing", slice(some), slice(some), 0},
		{"one is another", slice(some), slice(slices.Concat(some[:4], []registry.Endpoint{endpoint(50)}, some[5:])), 2},
		{"one has gone and one has come", slice(some), slice(slices.Concat(some[:4], some[5:], []registry.Endpoint{endpoint(50)})), 2},
		{"one more, before all", slice(some[1:]), slice(some), 1},
		{"all have changed places", slice(some), slice(slices.Concat(some[5:], some[:5])), 20},
		{"another slice of that name", slice(some), other, 20},
		{"a new slice", nil, slice(some), 10},
		{"a slice that has gone", slice(some), nil, 10},
	} {
		if _, n := told(tt.was, tt.is); n != tt.n {
			t.Errorf("%s: told of %d, want %d", tt.what, n, tt.n)
		}
	}
}

// BenchmarkMove is the cost of publishing that one endpoint of a Service of N, on few nodes, is
// replaced by one elsewhere. Another one is each time.
func BenchmarkMove(b *testing.B) {
	for _, n := range []int{600, 5000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			builder, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}, Reverse: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
			if err != nil {
				b.Fatal(err)
			}
			now := time.Unix(1_800_000_000, 0)
			svc := bigService(n, 3)
			builder.Build([]*registry.Service{svc}, now)
			r := rand.New(rand.NewPCG(1, 2))
			list := make([][]*registry.Service, b.N)
			for i := range list {
				next := *svc
				next.Slices = slices.Clone(svc.Slices)
				at := &next.Slices[r.IntN(len(next.Slices))]
				endpoints := (*at).Endpoints.List()
				endpoints[0].Addr = netip.AddrFrom4([4]byte{10, 255 - byte(i>>16), 255 - byte(i>>8), 255 - byte(i)})
				endpoints[0].Pod = fmt.Sprintf("other-%d", i)
				slice := **at
				slice.Endpoints = registry.NewEndpoints(endpoints...)
				*at = &slice
				svc = &next
				list[i] = []*registry.Service{svc}
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				builder.Build(list[i], now)
			}
		})
	}
}
