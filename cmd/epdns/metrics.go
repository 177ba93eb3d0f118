package main

import (
	"regexp"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"epdns/dnsserver"
	"epdns/registry/kube"
)

// Everything is counted where it happens, in plain counters, and read here when
// somebody scrapes.

type metrics struct {
	p   *pipeline
	dns *dnsserver.Server
}

func newMetrics(p *pipeline, dns *dnsserver.Server) *prometheus.Registry {
	r := prometheus.NewRegistry()
	b := readBuildInfo()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "epdns_build_info",
		Help:        "1, with the version as labels.",
		ConstLabels: prometheus.Labels{"version": b.Version, "revision": b.Revision, "goversion": b.GoVersion},
	})
	build.Set(1)
	r.MustRegister(build, &metrics{p, dns}, collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collecting)),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// collecting is the processor time of Go's garbage collector, and what it is a part of.
var collecting = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/cpu/classes/(gc/.*|user|idle|total):`)}

// descs are all that desc has made.
var descs []*prometheus.Desc

func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("epdns_"+name, help, labels, nil)
	descs = append(descs, d)
	return d
}

var (
	descRequests  = desc("dns_requests_total", "Queries received.", "proto", "family", "type")
	descResponses = desc("dns_responses_total", "Replies sent.", "proto", "rcode")
	descTruncated = desc("dns_truncated_total", "Replies with TC set.", "proto")
	descDropped   = desc("dns_dropped_total", "Messages that got no reply, being no queries.")
	descPlaces    = desc("answers_by_place_total", "Answers that depend on where the asker is, by what told that.", "place")
	descTransfers = desc("dns_transfers_total", "Zone transfers begun.")
	descUDPDrops  = desc("udp_kernel_drops_total", "Datagrams that the kernel dropped, since the socket had no room for more.")
	descUDPUnsent = desc("udp_unsent_total", "Replies that could not leave.")
	descTCPOpen   = desc("tcp_connections", "TCP connections open, those of TLS too.")
	descUpstream  = desc("upstream_queries_total", "Queries for names outside the zones, passed on.")
	descUpFailed  = desc("upstream_failures_total", "Queries that no upstream answered.")
	descTCPReject = desc("tcp_rejected_total", "TCP connections closed for want of room.")
	descTLSFailed = desc("tls_failed_total", "TLS connections whose handshake failed.")
	descNotify    = desc("notify_sent_total", "NOTIFY messages sent to secondaries, repeated ones too.")
	descNotifyAck = desc("notify_acknowledged_total", "Serials that a secondary acknowledged, of each zone.")
	descNotifyBad = desc("notify_failed_total", "Serials that a secondary refused or left without an answer, of each zone.")

	descSynced    = desc("synced", "Whether all that exists has been read once.")
	descServices  = desc("services", "Services that exist.")
	descSlices    = desc("endpointslices", "EndpointSlices held.")
	descEndpoints = desc("endpoints", "Endpoints in all slices.", "ready")
	descNodes     = desc("nodes", "Nodes held.")
	descPodCIDRs  = desc("pod_cidrs_disbelieved", "Whether podCIDRs tell nothing of places, since too many endpoints lie in those of other Nodes.")
	descSkipped   = desc("objects_partly_skipped_total", "Objects read of which something could not be used.")
	descProblems  = desc("annotation_problems", "Annotations of Services that do nothing, their names or values being wrong.")
	descListed    = desc("services_listed", "Whether Services may be listed; where not, slices alone make a Service exist.")
	descPublishes = desc("publishes_total", "Sets of answers put in service.")
	descPublished = desc("last_publish_timestamp_seconds", "When the last Set was put in service, Unix time.")
	descSerial    = desc("zone_serial", "Serial of the SOA records.")

	descWatchSynced = desc("watch_synced", "Whether a watch has read its initial state or is off.", "kind", "namespace")
	descWatchOff    = desc("watch_off", "Whether a kind may not be listed.", "kind", "namespace")
	descWatchOpen   = desc("watch_connected", "Whether a watch is open.", "kind", "namespace")
	descWatchLast   = desc("watch_last_event_timestamp_seconds", "When a watch heard of its kind last, Unix time.", "kind", "namespace")
	descWatchEvents = desc("watch_events_total", "Objects that were added, changed or deleted.", "kind", "namespace")
	descRelists     = desc("relists_total", "How often the whole state was read again.", "kind", "namespace")
)

// Describe gives no descriptions: what is collected depends on the source.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}

	d := m.dns.Stats()
	for k, n := range d.Requests {
		counter(descRequests, n, k.Transport.String(), strconv.Itoa(k.Family), k.Type)
	}
	for k, n := range d.Responses {
		counter(descResponses, n, k.Transport.String(), k.RCode)
	}
	for t, n := range d.Truncated {
		counter(descTruncated, n, t.String())
	}
	counter(descDropped, d.Dropped)
	for p, n := range d.Places {
		counter(descPlaces, n, p.String())
	}
	counter(descTransfers, d.Transfers)
	counter(descUDPDrops, d.UDPKernelDrops)
	counter(descUDPUnsent, d.UDPUnsent)
	gauge(descTCPOpen, float64(d.TCPConnections))
	counter(descTCPReject, d.TCPRejected)
	counter(descTLSFailed, d.TLSFailed)
	counter(descUpstream, d.Upstream)
	counter(descUpFailed, d.UpstreamFailures)
	counter(descNotify, d.NotifySent)
	counter(descNotifyAck, d.NotifyAcknowledged)
	counter(descNotifyBad, d.NotifyFailed)

	s := m.p.registry.Stats()
	gauge(descSynced, number(m.p.synced.Load()))
	gauge(descServices, float64(s.Services))
	gauge(descSlices, float64(s.Slices))
	gauge(descEndpoints, float64(s.Ready), "true")
	gauge(descEndpoints, float64(s.Endpoints-s.Ready), "false")
	gauge(descNodes, float64(s.Nodes))
	gauge(descPodCIDRs, number(disbelieved(m.p.zones.Load())))
	counter(descSkipped, s.Skipped)
	gauge(descProblems, float64(m.p.problems.count()))
	gauge(descListed, number(s.ServicesAreListed))
	counter(descPublishes, m.p.publishes.Load())
	gauge(descPublished, float64(m.p.published.Load())/1e9)
	gauge(descSerial, float64(m.p.zones.Load().Serial()))

	source, ok := m.p.source.(interface{ Status() []kube.FeedStatus })
	if !ok {
		return
	}
	for _, f := range source.Status() {
		gauge(descWatchSynced, number(f.Synced), f.Kind, f.Namespace)
		gauge(descWatchOff, number(f.Off), f.Kind, f.Namespace)
		gauge(descWatchOpen, number(f.Connected), f.Kind, f.Namespace)
		gauge(descWatchLast, timestamp(f.LastEvent), f.Kind, f.Namespace)
		counter(descWatchEvents, f.Events, f.Kind, f.Namespace)
		counter(descRelists, f.Relists(), f.Kind, f.Namespace)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func timestamp(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / 1e9
}
