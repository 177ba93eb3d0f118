package main

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"epdns/registry"
)

// Each change is noted from when it came; from when it was made only where that is told, and
// was after the start.
func TestTiming(t *testing.T) {
	tm := newTiming()
	tm.started = time.Unix(1_800_000_000, 0)
	served := tm.started.Add(time.Minute)
	web, other := registry.Key{Namespace: "shop", Name: "web"}, registry.Key{Namespace: "shop", Name: "other"}
	kinds := map[registry.Key]registry.ServiceKind{web: registry.KindHeadless}
	tm.note(served.Add(-3*time.Millisecond), served, []registry.ChangeTime{
		{Service: web, Came: served.Add(-10 * time.Millisecond), From: served.Add(-2 * time.Second)},
		{Service: web, Came: served.Add(-20 * time.Millisecond), From: tm.started.Add(-time.Second)}, // from before the start
		{Service: other, Came: served.Add(-30 * time.Millisecond)},                                   // of which nothing is told
		{Service: other, Came: served.Add(time.Hour), From: served.Add(time.Second)},                 // by clocks that are ahead
	}, func(k registry.Key) registry.ServiceKind { return kinds[k] })

	read := func(m prometheus.Metric) *dto.Histogram {
		var out dto.Metric
		if err := m.Write(&out); err != nil {
			t.Fatal(err)
		}
		return out.GetHistogram()
	}
	for _, tt := range []struct {
		what  string
		of    prometheus.Metric
		count uint64
		sum   float64
	}{
		{"publish", tm.publish, 1, 0.003},
		{"propagation", tm.propagation, 4, 0.06},
		{"programming of a headless Service", tm.programming.WithLabelValues("headless_with_selector").(prometheus.Metric), 1, 2},
		{"programming of one that is not known", tm.programming.WithLabelValues("unknown").(prometheus.Metric), 1, 0},
		{"programming of others", tm.programming.WithLabelValues("cluster_ip").(prometheus.Metric), 0, 0},
	} {
		if h := read(tt.of); h.GetSampleCount() != tt.count || h.GetSampleSum() < tt.sum-1e-9 || h.GetSampleSum() > tt.sum+1e-9 {
			t.Errorf("%s: %d of %v s, want %d of %v", tt.what, h.GetSampleCount(), h.GetSampleSum(), tt.count, tt.sum)
		}
	}
}
