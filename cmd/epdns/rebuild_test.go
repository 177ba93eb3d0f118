package main

import (
	"testing"
	"testing/fstest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"epdns/registry/manifest"
	"epdns/zones"
)

// A change that comes while other settings are compiled is in what is served then, and what
// is wrong with it is told.
func TestChangeWhileRebuilt(t *testing.T) {
	cfg := zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}}
	p, err := newPipeline(manifest.New(fstest.MapFS{}, "nothing", quiet), cfg, quiet)
	if err != nil {
		t.Fatal(err)
	}
	p.problems = newAnnotationProblems(quiet)
	services := p.registry.Services("")
	services.Replace(nil)
	p.registry.Slices("").Replace(nil)
	p.registry.Nodes().Replace(nil)
	<-p.registry.Synced()
	p.synced.Store(true)
	p.build()

	services.Replace([]*corev1.Service{{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web", Annotations: map[string]string{"registry.local/ttl": "soon"}}}})
	r, err := p.rebuild(cfg)
	if err != nil {
		t.Fatal(err)
	}
	serial := p.zones.Load().Serial()
	p.adopt(r)
	if n := p.zones.Load().Services(); n != 1 {
		t.Errorf("%d Services are served", n)
	}
	if now := p.zones.Load().Serial(); int32(now-serial) <= 0 {
		t.Errorf("serial %d after %d", now, serial)
	}
	if n := p.problems.count(); n != 1 {
		t.Errorf("%d annotations are told of", n)
	}
}
