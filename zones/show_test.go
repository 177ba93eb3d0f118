package zones

import (
	"slices"
	"testing"
	"time"

	"epdns/registry"
)

// What is said of zones is what they answer for: by layout, and for the Services that are
// in them.
func TestZonesAndNames(t *testing.T) {
	cluster := DefaultZone("cluster.test.")
	cluster.Layout = Kubernetes
	cluster.Namespaces = []string{"sh*"}
	b, err := NewBuilder(Config{Zones: []Zone{{Name: "Data.Test", Namespaces: []string{"data"}}, cluster}})
	if err != nil {
		t.Fatal(err)
	}
	if before := b.Last().Zones(); len(before) != 2 || before[1] != (ZoneStatus{"cluster.test.", Kubernetes, 0}) {
		t.Errorf("before anything is read: %+v", before)
	}
	var all []*registry.Service
	for _, k := range []registry.Key{{Namespace: "shop", Name: "web"}, {Namespace: "shop", Name: "api"}, {Namespace: "data", Name: "db"}, {Namespace: "other", Name: "x"}} {
		all = append(all, &registry.Service{Key: k, Exists: true, Object: &registry.Object{}})
	}
	set := b.Build(all, time.Unix(1_800_000_000, 0))
	if got := set.Zones(); !slices.Equal(got, []ZoneStatus{{"data.test.", Short, 1}, {"cluster.test.", Kubernetes, 2}}) {
		t.Errorf("%+v", got)
	}
	for _, c := range []struct {
		of   registry.Key
		want []string
	}{
		{registry.Key{Namespace: "shop", Name: "web"}, []string{"web.shop.svc.cluster.test."}},
		{registry.Key{Namespace: "data", Name: "db"}, []string{"db.data.data.test."}},
		{registry.Key{Namespace: "other", Name: "x"}, nil}, // the first zone knows it for its addresses alone
		{registry.Key{Namespace: "shop", Name: "gone"}, nil},
	} {
		if got := set.NamesOf(c.of); !slices.Equal(got, c.want) {
			t.Errorf("%v: %q, want %q", c.of, got, c.want)
		}
	}
}

// A state of a Service is told from another by its version, and what others do does not matter.
func TestVersionOf(t *testing.T) {
	b, err := NewBuilder(Config{Zones: []Zone{DefaultZone("a.test."), {Name: "b.test.", Namespaces: []string{"data"}}}})
	if err != nil {
		t.Fatal(err)
	}
	web, api := registry.Key{Namespace: "shop", Name: "web"}, registry.Key{Namespace: "shop", Name: "api"}
	build := func(exists bool, keys ...registry.Key) *Set {
		var changed []*registry.Service
		for _, k := range keys {
			changed = append(changed, &registry.Service{Key: k, Exists: exists, Object: &registry.Object{}})
		}
		return b.Build(changed, time.Unix(1_800_000_000, 0))
	}
	if v := b.Last().VersionOf(web); v != nil {
		t.Errorf("before anything is read: %v", v)
	}
	first := build(true, web, api)
	second := build(true, web)
	if first.VersionOf(web) == nil || first.VersionOf(web) == second.VersionOf(web) {
		t.Error("a Service that has changed has the version of before")
	}
	if first.VersionOf(api) != second.VersionOf(api) {
		t.Error("a Service that has not changed has another version")
	}
	if v := build(false, web).VersionOf(web); v != nil {
		t.Errorf("a Service that is gone has %v", v)
	}
}
