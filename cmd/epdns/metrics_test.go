package main

import (
	"io"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"epdns/dnsserver"
	"epdns/registry/manifest"
	"epdns/zones"
)

// Names, units and help texts follow the conventions of Prometheus.
func TestMetricNames(t *testing.T) {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	p, err := newPipeline(manifest.New(manifest.Sample(), "sample", log), zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}}, log)
	if err != nil {
		t.Fatal(err)
	}
	server, err := dnsserver.Listen(dnsserver.Config{Listen: []string{"127.0.0.1:0"}}, p.zones, log)
	if err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(newMetrics(p, server))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
