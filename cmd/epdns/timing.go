package main

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"epdns/registry"
)

// timing is how long changes take, for metrics. The goroutine of publish notes it.
type timing struct {
	started     time.Time
	publish     prometheus.Histogram
	propagation prometheus.Histogram
	programming *prometheus.HistogramVec
}

var (
	publishTook = histogramOpts("snapshot_publish_duration_seconds", "How long it took to make a Set of answers and to put it in service.",
		prometheus.ExponentialBuckets(25e-6, 2, 18)) // to 3.3 s
	propagationTook = histogramOpts("propagation_duration_seconds", "From when an event of a watch began to be read until it was in the answers.",
		prometheus.ExponentialBuckets(50e-6, 2, 18)) // to 6.6 s
	programmingTook = histogramOpts("dns_programming_duration_seconds", "From when a pod or Service changed, as its EndpointSlice says, until it was in the answers.",
		prometheus.ExponentialBuckets(0.001, 2, 20), "service_kind") // as CoreDNS has it, to 524 s
)

func histogramOpts(name, help string, buckets []float64, labels ...string) prometheus.HistogramOpts {
	desc(name, help, labels...)
	return prometheus.HistogramOpts{Name: "epdns_" + name, Help: help, Buckets: buckets}
}

func newTiming() *timing {
	t := &timing{
		started:     time.Now(),
		publish:     prometheus.NewHistogram(publishTook),
		propagation: prometheus.NewHistogram(propagationTook),
		programming: prometheus.NewHistogramVec(programmingTook, []string{"service_kind"}),
	}
	for kind := range registry.ServiceKinds {
		t.programming.WithLabelValues(kind.String()) // all there from the start
	}
	return t
}

func (t *timing) collect(ch chan<- prometheus.Metric) {
	t.publish.Collect(ch)
	t.propagation.Collect(ch)
	t.programming.Collect(ch)
}

// note notes that a Set which has these changes was put in service. Kubernetes' own
// metric, network_programming_duration_seconds, is of what happens while a program runs,
// too: what happened before it started is none of its business. Of a whole list, which may
// be one that is read again, there are no times.
func (t *timing) note(began, served time.Time, changes []registry.ChangeTime, kind func(registry.Key) registry.ServiceKind) {
	t.publish.Observe(served.Sub(began).Seconds())
	for i := range changes {
		c := &changes[i]
		t.propagation.Observe(max(0, served.Sub(c.Came)).Seconds())
		if c.From.After(t.started) {
			// The clock of another machine may be ahead of ours.
			t.programming.WithLabelValues(kind(c.Service).String()).Observe(max(0, served.Sub(c.From)).Seconds())
		}
	}
}

// kindOf is what a Service is, as the registry knows it now.
func (p *pipeline) kindOf(k registry.Key) registry.ServiceKind {
	if s := p.registry.Snapshot(k.Namespace, k.Name); s != nil && s.Object != nil {
		return s.Object.Kind
	}
	return registry.KindUnknown
}
