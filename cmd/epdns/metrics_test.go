package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"epdns/dnsserver"
	"epdns/registry/kube"
	"epdns/registry/manifest"
	"epdns/zones"
)

// watched is a source that has the metrics of a cluster, too.
type watched struct{ *manifest.Source }

func (watched) Status() []kube.FeedStatus {
	return []kube.FeedStatus{{Kind: "Service", LastEvent: time.Unix(1, 0), Lists: 2}, {Kind: "EndpointSlice"},
		{Kind: "Node", Off: true, Lost: time.Unix(1, 0)}}
}

func (watched) Host() string { return "api.example:6443" }

func (watched) Requests() map[kube.RequestKind]kube.Requests {
	return map[kube.RequestKind]kube.Requests{{Method: "GET", Code: "200"}: {Count: 1, Seconds: 1}}
}

// Names, units and help texts of all metrics follow the conventions of Prometheus.
func TestMetricNames(t *testing.T) {
	source := watched{manifest.New(manifest.Sample(), "sample", quiet)}
	p, err := newPipeline(source, zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	server, err := dnsserver.Listen(dnsserver.Config{Listen: []string{"127.0.0.1:0"}}, p.zones, quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		defer close(served)
		server.Serve(ctx)
	}()
	defer func() { stop(); <-served }()
	for _, network := range []string{"udp", "tcp"} { // so that there is something to count
		c := dns.Client{Net: network}
		if _, _, err := c.Exchange(new(dns.Msg).SetQuestion("registry.local.", dns.TypeSOA), server.Addrs()[0].String()); err != nil {
			t.Fatal(err)
		}
	}

	registry := newMetrics(p, server, newHTTPRoom(quiet))
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, f := range families {
		have[f.GetName()] = true
		if f.GetName() == "epdns_watch_age_seconds" {
			for _, m := range f.GetMetric() { // the kind that is off has no age, either
				if age := m.GetGauge().GetValue(); age != 0 {
					t.Errorf("%v", m)
				}
			}
		}
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", f.GetName())
		}
	}
	// Every description is gathered here, so that none escapes the lint.
	for _, d := range descs {
		name, _, _ := strings.Cut(strings.TrimPrefix(d.String(), `Desc{fqName: "`), `"`)
		if !have[name] {
			t.Errorf("%s was not gathered", name)
		}
	}
}

// Where podCIDRs tell nothing, a line of the log and a metric say so.
func TestPodCIDRsAreNotBelieved(t *testing.T) {
	var text strings.Builder
	for i, name := range []string{"a1", "b1"} {
		fmt.Fprintf(&text, "apiVersion: v1\nkind: Node\nmetadata: {name: %s}\nspec: {podCIDRs: [10.0.%d.0/24]}\n---\n", name, i)
	}
	text.WriteString("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\n" +
		"metadata: {namespace: shop, name: web-1, labels: {kubernetes.io/service-name: web}}\nendpoints:\n")
	for i := range 20 {
		fmt.Fprintf(&text, "- {addresses: [10.0.0.%d], nodeName: b1}\n", i)
	}
	var said bytes.Buffer
	log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	source := manifest.New(fstest.MapFS{"web.yaml": {Data: []byte(text.String())}}, "liars", quiet)
	p, err := newPipeline(source, zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}}, log)
	if err != nil {
		t.Fatal(err)
	}
	before := disbelieved(p.zones.Load())
	err = p.once(t.Context(), func() error {
		if before || !disbelieved(p.zones.Load()) {
			t.Errorf("not believed are they before %t and after %t", before, disbelieved(p.zones.Load()))
		}
		p.serve(p.zones.Load()) // nothing has changed
		return nil
	})
	if lines := strings.Count(said.String(), "\n"); err != nil || lines != 1 || !strings.Contains(said.String(), "podCIDRs are not believed") {
		t.Errorf("%v, the log says %s", err, &said)
	}
}
