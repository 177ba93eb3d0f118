package zones

import (
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/registry"
)

// A Service that changes has a shorter TTL for a while, and gets its own back by
// itself; so has one of which an endpoint is going, as long as it is.
func TestChurn(t *testing.T) {
	builder, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}, ChurnTTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ttl := func(name string) uint32 {
		t.Helper()
		m := ask(t, builder.Last(), name+".shop.registry.local.", dns.TypeA)
		if len(m.Answer) == 0 {
			return m.Ns[0].Header().Ttl
		}
		return m.Answer[0].Header().Ttl
	}
	want := func(what string, web, api uint32) {
		t.Helper()
		if w, a := ttl("web"), ttl("api"); w != web || a != api {
			t.Errorf("%s: TTLs %d and %d, want %d and %d", what, w, a, web, api)
		}
	}
	now := someTime
	build := func(services ...*registry.Service) { builder.Build(services, now) }
	build(behind("web", "shop", "-/a/10.0.0.1"), behind("api", "shop", "-/a/10.0.1.1"))
	want("at first", 5, 5)

	now = now.Add(time.Minute)
	build(behind("web", "shop", "-/a/10.0.0.2"))
	want("one changes", 1, 5)
	now = now.Add(20 * time.Second)
	build(behind("web", "shop", "-/a/10.0.0.3"))
	now = now.Add(20 * time.Second)
	builder.Tick(now)
	want("twice, and the time since the first is over", 1, 5)
	if at := builder.Next(); at.IsZero() || at.After(now.Add(10*time.Second)) {
		t.Errorf("next at %v, 10 s from %v expected", at, now)
	}
	now = now.Add(10 * time.Second)
	if builder.Tick(now) == nil {
		t.Error("no Set is due")
	}
	want("long after", 5, 5)

	going := behind("api", "shop", "-/a/10.0.1.1", "-/b/10.0.1.2!")
	alter(going.Slices[0], func(i int, e *registry.Endpoint) { e.Terminating = i == 1 })
	build(going)
	now = now.Add(time.Hour)
	builder.Tick(now)
	want("as long as one is going", 5, 1)
	build(behind("api", "shop", "-/a/10.0.1.1!"))
	want("nothing is left", 5, 1)
	now = now.Add(time.Hour)
	for builder.Tick(now) != nil {
	}
	want("nothing is left for long", 5, 2)
	if at := builder.Next(); !at.IsZero() {
		t.Errorf("next at %v, though nothing is to come", at)
	}

	build(&registry.Service{Key: registry.Key{Namespace: "shop", Name: "web"}})
	now = now.Add(time.Hour)
	for builder.Tick(now) != nil {
	}
	if n := len(builder.churn.until) + len(builder.churn.queue); n != 0 {
		t.Errorf("%d Services are remembered", n)
	}
}
