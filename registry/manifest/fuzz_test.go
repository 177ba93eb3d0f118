package manifest

import (
	"io/fs"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"epdns/registry"
)

// FuzzManifest reads any bytes. Nothing may panic, on the way into the registry
// either, and what is said to be wrong must be said on one line.
func FuzzManifest(f *testing.F) {
	fs.WalkDir(Sample(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := fs.ReadFile(Sample(), name)
		f.Add(name, data)
		return err
	})
	f.Add("a.yaml", []byte("apiVersion: v1\nkind: List\nitems:\n- &a {apiVersion: v1, kind: Service, metadata: {name: q, annotations: {x: off, y: 8, z: [1]}, creationTimestamp: soon}}\n- *a\n"))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		c := decode(name, data)
		for _, fault := range c.faults {
			if fault.Document == 0 || fault.Line == 0 || strings.ContainsAny(strings.TrimPrefix(fault.Error(), name), "\n\r") {
				t.Errorf("fault %q", fault)
			}
		}
		if len(c.ids) != len(c.slices)+len(c.services)+len(c.nodes) {
			t.Errorf("%d objects, %d of them known", len(c.slices)+len(c.services)+len(c.nodes), len(c.ids))
		}
		store := registry.NewStore(discard)
		feed(store, c.slices, c.services)
		for _, svc := range store.FollowAll().Take() {
			if svc.Exists && store.Snapshot(svc.Namespace, svc.Name) == nil {
				t.Errorf("%s has no snapshot", svc.Key)
			}
		}
	})
}

func feed(store *registry.Store, slices []*discoveryv1.EndpointSlice, services []*corev1.Service) {
	store.Slices("").Replace(slices)
	store.Services("").Replace(services)
}
