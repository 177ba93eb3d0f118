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

// newMetrics has those of more collectors, too.
func newMetrics(p *pipeline, dns *dnsserver.Server, more ...prometheus.Collector) *prometheus.Registry {
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
	r.MustRegister(more...)
	return r
}

// collecting is the processor time of Go's garbage collector, and what it is a part of.
var collecting = collectors.GoRuntimeMetricsRule{Matcher: regexp.MustCompile(`^/cpu/classes/(gc/.*|user|idle|total):`)}

// descs are all that desc has made.
var descs []*prometheus.Desc

func desc(name, help string, labels ...string) *prometheus.Desc {
	return descOf("epdns_"+name, help, labels...)
}

func descOf(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc(name, help, labels, nil)
	descs = append(descs, d)
	return d
}

var (
	descRequests  = desc("dns_requests_total", "Queries received.", "proto", "family", "type")
	descResponses = desc("dns_responses_total", "Replies sent.", "proto", "rcode")
	descTruncated = desc("dns_truncated_total", "Replies with TC set.", "proto")
	descDropped   = desc("dns_dropped_total", "Messages that got no reply, being no queries.", "reason")
	descLimited   = desc("dns_rate_limited_total", "Replies beyond the rate limit, by what became of them: not sent, or to come over TCP.", "action")
	descDuration  = desc("dns_request_duration_seconds", "From when a query was read until its reply left; over UDP, of one batch of queries in 64.", "proto")
	descQuerySize = desc("dns_request_size_bytes", "Size of queries; over UDP, of one batch of queries in 64.", "proto")
	descReplySize = desc("dns_response_size_bytes", "Size of replies; over UDP, of one batch of queries in 64.", "proto")
	descUnlogged  = desc("query_log_dropped_total", "Lines of the query log that were not written, since too many came.")
	descPlaces    = desc("answers_by_place_total", "Answers that depend on where the asker is, by what told that.", "place")
	descCapped    = desc("dns_answers_capped_total", "Answers without TC that leave out endpoints, as the limit of the Service or the room (fit: cut) has it.")
	descTransfers = desc("dns_transfers_total", "Zone transfers begun.")
	descUDPDrops  = desc("udp_kernel_drops_total", "Datagrams that the kernel dropped, since the socket had no room for more or a part of what networks send is dropped.")
	descThinned   = desc("udp_thinned_networks", "Networks beyond the rate limit, of which a part is dropped unread, since more comes than can be read.")
	descUDPUnsent = desc("udp_unsent_total", "Replies that could not leave.")
	descTCPOpen   = desc("tcp_connections", "TCP connections open, those of TLS too.")
	descUpstream  = desc("upstream_queries_total", "Queries for names outside the zones, passed on.")
	descUpFailed  = desc("upstream_failures_total", "Queries that no upstream answered.")
	descTCPReject = desc("tcp_rejected_total", "TCP connections closed for want of room.")
	descTCPDenied = desc("tcp_denied_total", "TCP connections closed since their address may not ask.")
	descTLSFailed = desc("tls_failed_total", "TLS connections whose handshake failed.")
	descNotify    = desc("notify_sent_total", "NOTIFY messages sent to secondaries, repeated ones too.")
	descNotifyAck = desc("notify_acknowledged_total", "Serials that a secondary acknowledged, of each zone.")
	descNotifyBad = desc("notify_failed_total", "Serials that a secondary refused or left without an answer, of each zone.")

	descHTTPOpen     = desc("http_connections", "HTTP connections open.")
	descHTTPRejected = desc("http_rejected_total", "HTTP connections closed for want of room.")

	descPanics     = desc("panics_total", "Queries that met a mistake in epdns and got SERVFAIL.")
	descStopping   = desc("lameduck", "Whether epdns was told to stop and goes on answering for a while.")
	descReloaded   = desc("config_last_reload_successful", "Whether the configuration that was read last is in force.")
	descReloadedAt = desc("config_last_reload_timestamp_seconds", "When a configuration was put in force last, Unix time.")
	descConfig     = desc("config_info", "1, with a hash of the configuration file in force, empty where there is no file.", "hash")

	descStale     = desc("stale", "Whether answers are stale: nothing has been heard of the source for longer than staleAfter.")
	descAge       = desc("answers_age_seconds", "How old what is known may be: for how long a watch has been lost, 0 while none is.")
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

	descRestored      = desc("state_restored", "Whether what is served was read from the state directory, and nothing newer yet.")
	descStateAsOf     = desc("state_as_of_timestamp_seconds", "Until when the state in the directory is known to have been right, Unix time; 0 without one.")
	descStateWritten  = desc("state_written_timestamp_seconds", "When the state was written last, Unix time; 0 if it has not been.")
	descStateSize     = desc("state_size_bytes", "Size of the state that was written last.")
	descStateWrites   = desc("state_writes_total", "How often the state was written.")
	descStateFailures = desc("state_write_failures_total", "How often the state could not be written.")

	descWatchSynced = desc("watch_synced", "Whether a watch has read its initial state or is off.", "kind", "namespace")
	descWatchOff    = desc("watch_off", "Whether a kind may not be listed.", "kind", "namespace")
	descWatchOpen   = desc("watch_connected", "Whether a watch is open.", "kind", "namespace")
	descWatchLast   = desc("watch_last_event_timestamp_seconds", "When a watch heard of its kind last, Unix time.", "kind", "namespace")
	descWatchAge    = desc("watch_age_seconds", "For how long a watch has been lost, 0 while it is not, or its kind is off.", "kind", "namespace")
	descRestarts    = desc("watch_restarts_total", "Watches that were opened after another one, by how that one ended.", "kind", "namespace", "reason")
	descWatchEvents = desc("watch_events_total", "Objects that were added, changed or deleted.", "kind", "namespace")
	descRelists     = desc("relists_total", "How often the whole state was read again, by why.", "kind", "namespace", "reason")
	descWatchErrors = desc("watch_errors_total", "Requests to the API server that failed, by what was wrong.", "kind", "namespace", "reason")
	descProgress    = desc("watch_last_progress_timestamp_seconds", "When the newest resource version that is known of last rose, Unix time.", "kind", "namespace")
	descOlder       = desc("watch_older_refused_total", "Lists and events not taken, being older than what was known.", "kind", "namespace", "what")
	descOlderTaken  = desc("watch_older_taken_total", "Lists taken though they were older, since the cluster itself has gone back.", "kind", "namespace")
	descAudits      = desc("audits_total", "Comparisons of what is held with the cluster, by what came of them.", "kind", "namespace", "result")
	descDrift       = desc("audit_drift_total", "Objects that an audit found held otherwise than they exist.", "kind", "namespace")
	descAudited     = desc("audit_last_timestamp_seconds", "When an audit last came to a result, Unix time.", "kind", "namespace")
	descHeld        = desc("services_held", "Services that keep their endpoints though the last list lacked most of them.", "namespace")
	descHolds       = desc("service_holds_total", "How often a Service has kept its endpoints though a list lacked most of them.", "namespace")
)

var (
	descAsked = descOf("rest_client_requests_total", "Requests to the API server, by status code.", "code", "method", "host")
	descTook  = descOf("rest_client_request_duration_seconds", "From when a request was sent to the API server until its answer began.", "verb", "host")
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
	for why, n := range d.Dropped {
		counter(descDropped, n, why)
	}
	histogram := func(d *prometheus.Desc, h dnsserver.Histogram, labels ...string) {
		ch <- prometheus.MustNewConstHistogram(d, h.Count, h.Sum, h.Buckets, labels...)
	}
	for t, o := range d.Observed {
		histogram(descDuration, o.Duration, t.String())
		histogram(descQuerySize, o.QuerySize, t.String())
		histogram(descReplySize, o.ReplySize, t.String())
	}
	counter(descUnlogged, d.QueriesUnlogged)
	counter(descLimited, d.LimitDropped, "drop")
	counter(descLimited, d.LimitSlipped, "slip")
	for p, n := range d.Places {
		counter(descPlaces, n, p.String())
	}
	counter(descCapped, d.Capped)
	counter(descTransfers, d.Transfers)
	counter(descUDPDrops, d.UDPKernelDrops)
	gauge(descThinned, float64(d.ThinnedNetworks))
	counter(descUDPUnsent, d.UDPUnsent)
	gauge(descTCPOpen, float64(d.TCPConnections))
	counter(descTCPReject, d.TCPRejected)
	counter(descTCPDenied, d.TCPDenied)
	counter(descTLSFailed, d.TLSFailed)
	counter(descUpstream, d.Upstream)
	counter(descUpFailed, d.UpstreamFailures)
	counter(descNotify, d.NotifySent)
	counter(descNotifyAck, d.NotifyAcknowledged)
	counter(descNotifyBad, d.NotifyFailed)

	counter(descPanics, d.Panics)
	gauge(descStopping, number(m.p.stopping.Load()))
	config := &m.p.config
	hash, _ := config.hash.Load().(string)
	gauge(descReloaded, number(!config.bad.Load()))
	gauge(descReloadedAt, float64(config.at.Load())/1e9)
	gauge(descConfig, 1, hash)

	now := time.Now()
	gauge(descStale, number(!m.p.zones.Load().AsOf().IsZero()))
	gauge(descAge, m.p.age(now).Seconds())
	m.p.timing.collect(ch)

	s := m.p.registry.Stats()
	gauge(descSynced, number(m.p.synced.Load() && !m.p.restored.Load()))
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

	k := m.p.state
	if k == nil {
		k = &stateKeeper{}
	}
	gauge(descRestored, number(m.p.restored.Load()))
	gauge(descStateAsOf, float64(k.asOf.Load())/1e9)
	gauge(descStateWritten, float64(k.written.Load())/1e9)
	gauge(descStateSize, float64(k.size.Load()))
	counter(descStateWrites, k.writes.Load())
	counter(descStateFailures, k.failures.Load())

	if source, ok := m.p.source.(api); ok {
		collectAPI(ch, source)
	}
	source, ok := m.p.source.(feedSource)
	if !ok {
		return
	}
	for _, f := range source.Status() {
		gauge(descWatchSynced, number(f.Synced), f.Kind, f.Namespace)
		gauge(descWatchOff, number(f.Off), f.Kind, f.Namespace)
		gauge(descWatchOpen, number(f.Connected), f.Kind, f.Namespace)
		gauge(descWatchLast, timestamp(f.LastEvent), f.Kind, f.Namespace)
		if f.Off { // nothing is known by it that could get old
			f.Lost = time.Time{}
		}
		gauge(descWatchAge, ageAt(f.Lost, now).Seconds(), f.Kind, f.Namespace)
		for why, n := range f.Restarts {
			counter(descRestarts, n, f.Kind, f.Namespace, kube.Restart(why).String())
		}
		counter(descWatchEvents, f.Events, f.Kind, f.Namespace)
		for why, n := range f.RelistsBy {
			counter(descRelists, n, f.Kind, f.Namespace, kube.RelistReason(why).String())
		}
		for what, n := range f.Errors {
			counter(descWatchErrors, n, f.Kind, f.Namespace, kube.ErrorReason(what).String())
		}
		gauge(descProgress, timestamp(f.Progressed), f.Kind, f.Namespace)
		counter(descOlder, f.OlderLists, f.Kind, f.Namespace, "list")
		counter(descOlder, f.OlderEvents, f.Kind, f.Namespace, "event")
		counter(descOlderTaken, f.OlderTaken, f.Kind, f.Namespace)
		for result, n := range f.Audits {
			counter(descAudits, n, f.Kind, f.Namespace, kube.AuditResult(result).String())
		}
		counter(descDrift, f.Drift, f.Kind, f.Namespace)
		gauge(descAudited, timestamp(f.LastAudit), f.Kind, f.Namespace)
		if f.Kind == "EndpointSlice" {
			gauge(descHeld, float64(f.Held), f.Namespace)
			counter(descHolds, f.Holds, f.Namespace)
		}
	}
}

// api has asked something of an API server.
type api interface {
	Requests() map[kube.RequestKind]kube.Requests
	Host() string
}

// collectAPI gives what client-go's metrics are called elsewhere, so that what is there to
// look at them knows these.
func collectAPI(ch chan<- prometheus.Metric, source api) {
	type histogram struct {
		count   uint64
		seconds float64
		buckets map[float64]uint64
	}
	host, methods := source.Host(), map[string]*histogram{}
	for k, n := range source.Requests() {
		ch <- prometheus.MustNewConstMetric(descAsked, prometheus.CounterValue, float64(n.Count), k.Code, k.Method, host)
		h := methods[k.Method]
		if h == nil {
			h = &histogram{buckets: map[float64]uint64{}}
			methods[k.Method] = h
		}
		h.count += n.Count
		h.seconds += n.Seconds
		sum := uint64(0)
		for i, bound := range kube.RequestBounds {
			sum += n.Within[i]
			h.buckets[bound] += sum
		}
	}
	for method, h := range methods {
		ch <- prometheus.MustNewConstHistogram(descTook, h.count, h.seconds, h.buckets, method, host)
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
