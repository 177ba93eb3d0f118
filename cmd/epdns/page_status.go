package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"epdns/dnsserver"
	"epdns/registry/kube"
	"epdns/zones"
)

// pageStatus is what a server says of itself: /status.json, and what the status page shows.
// docs/status-page.md tells the meaning of each field; fields may be added, these stay.
type pageStatus struct {
	Time   time.Time     `json:"time"`
	State  string        `json:"state"` // starting, reading, serving, restored, stale or stopping
	Ready  bool          `json:"ready"`
	Checks []statusCheck `json:"checks"` // of /readyz

	Build   buildInfo `json:"build"`
	Started time.Time `json:"started"`
	Uptime  float64   `json:"uptimeSeconds"`

	Source string       `json:"source"`
	Config statusConfig `json:"config"`
	Listen statusListen `json:"listen"`

	Serial      uint32     `json:"serial"`
	Publishes   uint64     `json:"publishes"`
	LastPublish *time.Time `json:"lastPublish,omitempty"`
	AsOf        *time.Time `json:"asOf,omitempty"` // of stale answers

	Zones          []statusZone    `json:"zones"`
	Services       int64           `json:"services"`
	ServicesListed bool            `json:"servicesListed"`
	Slices         int64           `json:"endpointSlices"`
	Endpoints      statusEndpoints `json:"endpoints"`
	Nodes          int64           `json:"nodes"`

	PodCIDRsDisbelieved bool `json:"podCIDRsDisbelieved"`

	Watches  []statusWatch  `json:"watches,omitempty"` // of a cluster
	Problems statusProblems `json:"annotationProblems"`

	Queries statusQueries     `json:"queries"`
	Places  map[string]uint64 `json:"answersByPlace"`
	Top     *statusTop        `json:"top,omitempty"` // where it is counted
}

type statusCheck struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	Why  string `json:"why,omitempty"`
}

type statusConfig struct {
	Hash string    `json:"hash,omitempty"` // of the file in force, where there is one
	At   time.Time `json:"at"`             // when it was put in force
	OK   bool      `json:"ok"`             // what was read last is in force
}

type statusListen struct {
	DNS  []string `json:"dns"`
	TLS  []string `json:"tls,omitempty"`
	HTTP string   `json:"http,omitempty"`
}

type statusZone struct {
	Name     string `json:"name"`
	Layout   string `json:"layout"`
	Services int    `json:"services"`
}

type statusEndpoints struct {
	Total int64 `json:"total"`
	Ready int64 `json:"ready"`
}

type statusWatch struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"` // empty: all
	State     string `json:"state"`               // reading, open, between, lost or off

	Age       float64    `json:"ageSeconds"` // for how long it has been lost
	LastEvent *time.Time `json:"lastEvent,omitempty"`
	Events    uint64     `json:"events"`
	Lists     uint64     `json:"lists"`          // how often the whole state was read
	Mode      string     `json:"mode,omitempty"` // how: watchlist or list
	Held      int        `json:"held"`           // Services whose endpoints are kept against a list

	LastError   string     `json:"lastError,omitempty"` // it may be long mended
	LastErrorAt *time.Time `json:"lastErrorAt,omitempty"`
}

type statusProblems struct {
	Count    int64           `json:"count"`
	Services []statusProblem `json:"services,omitempty"` // the first of those that have some
	More     int             `json:"more,omitempty"`     // Services beyond those
}

type statusProblem struct {
	Service string `json:"service"`
	Why     string `json:"why"`
}

type statusQueries struct {
	Total     uint64            `json:"total"`
	PerSecond float64           `json:"perSecond"`
	RCodes    map[string]uint64 `json:"rcodes"`
	Slow      float64           `json:"p99Seconds,omitempty"` // that 99 of 100 queries over UDP are within
}

type statusTop struct {
	Since     time.Time   `json:"since"`
	Every     int         `json:"every"` // one batch of queries in so many is looked at
	Questions []statusAsk `json:"questions"`
}

type statusAsk struct {
	Name      string  `json:"name"`
	Type      string  `json:"type"`
	RCode     string  `json:"rcode"`
	PerSecond float64 `json:"perSecond"`
	Share     float64 `json:"share"`
}

// maxTop and maxProblems are how many of them are told.
const (
	maxTop      = 20
	maxProblems = 20
)

// status is what there is to say now. It takes the locks of those who count, and nothing of
// those who answer.
func (g *page) status(now time.Time) *pageStatus {
	p, set := g.p, g.p.zones.Load()
	s := &pageStatus{
		Time: now.UTC(), Ready: true,
		Build: g.build, Started: p.timing.started.UTC(), Uptime: now.Sub(p.timing.started).Seconds(),
		Source: p.source.String(), Serial: set.Serial(), Publishes: p.publishes.Load(),
		LastPublish: unixTime(p.published.Load()), PodCIDRsDisbelieved: disbelieved(set),
		Config: statusConfig{At: time.Unix(0, p.config.at.Load()).UTC(), OK: !p.config.bad.Load()},
	}
	s.Config.Hash, _ = p.config.hash.Load().(string)
	if p.config.at.Load() == 0 { // a demo's
		s.Config.At = s.Started
	}
	g.ready(s, now)
	for _, a := range g.dns.Addrs() {
		s.Listen.DNS = append(s.Listen.DNS, a.String())
	}
	for _, a := range g.dns.TLSAddrs() {
		s.Listen.TLS = append(s.Listen.TLS, a.String())
	}
	if a := g.http.Addr(); a != nil {
		s.Listen.HTTP = a.String()
	}
	for _, z := range set.Zones() {
		s.Zones = append(s.Zones, statusZone{z.Name, z.Layout.String(), z.Services})
	}
	n := p.registry.Stats()
	s.Services, s.Slices, s.Nodes, s.ServicesListed = n.Services, n.Slices, n.Nodes, n.ServicesAreListed
	s.Endpoints = statusEndpoints{n.Endpoints, n.Ready}
	if source, ok := p.source.(feedSource); ok {
		for _, f := range source.Status() {
			s.Watches = append(s.Watches, newStatusWatch(&f, now))
		}
	}
	s.Problems.Count = p.problems.count()
	having := p.problems.services()
	s.Problems.More = max(0, len(having)-maxProblems)
	for _, k := range having[:len(having)-s.Problems.More] {
		s.Problems.Services = append(s.Problems.Services, statusProblem{k.String(), p.problems.why(k)})
	}
	g.queries(s, now)
	return s
}

// ready fills in how it goes in a word, and why.
func (g *page) ready(s *pageStatus, now time.Time) {
	for _, c := range readyChecks(g.p, g.dns, now) {
		s.Checks = append(s.Checks, statusCheck{c.name, c.why == "", c.why})
		s.Ready = s.Ready && c.why == ""
	}
	s.AsOf = asTime(g.p.zones.Load().AsOf())
	s.State = g.state(s)
}

// queries fills in what is asked.
func (g *page) queries(s *pageStatus, now time.Time) {
	d := g.dns.Stats()
	s.Queries.RCodes = map[string]uint64{}
	for _, n := range d.Requests {
		s.Queries.Total += n
	}
	for k, n := range d.Responses {
		s.Queries.RCodes[k.RCode] += n
	}
	s.Queries.PerSecond = g.rates.now(now, s.Queries.Total)
	s.Queries.Slow = quantile(d.Observed[dnsserver.UDP].Duration, 0.99)
	s.Places = map[string]uint64{}
	for p := zones.PlaceUnknown; p < zones.Places; p++ {
		s.Places[p.String()] = d.Places[p]
	}
	if top := g.dns.Top(maxTop); !top.Since.IsZero() {
		s.Top = &statusTop{Since: top.Since.UTC(), Every: top.Every, Questions: []statusAsk{}}
		for _, q := range top.Questions {
			s.Top.Questions = append(s.Top.Questions, statusAsk(q))
		}
	}
}

// state is the one word.
func (g *page) state(s *pageStatus) string {
	switch p := g.p; {
	case p.stopping.Load():
		return "stopping"
	case !p.synced.Load():
		return "reading"
	case !g.dns.Serving():
		return "starting"
	case p.restored.Load():
		return "restored"
	case s.AsOf != nil:
		return "stale"
	}
	return "serving"
}

func newStatusWatch(f *kube.FeedStatus, now time.Time) statusWatch {
	w := statusWatch{
		Kind: f.Kind, Namespace: f.Namespace, State: "between",
		LastEvent: asTime(f.LastEvent), Events: f.Events, Lists: f.Lists, Mode: f.Mode, Held: f.Held,
		LastError: oneLine(f.LastError), LastErrorAt: asTime(f.LastErrorTime),
	}
	switch {
	case f.Off:
		w.State = "off"
	case !f.Synced:
		w.State = "reading"
	case !f.Lost.IsZero():
		w.State, w.Age = "lost", ageAt(f.Lost, now).Seconds()
	case f.Connected:
		w.State = "open"
	}
	return w
}

// maxLine is more than a message of an API server needs that is to be read.
const maxLine = 300

// oneLine is what of a text fits in a line.
func oneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "…"
	}
	return text
}

func unixTime(nanoseconds int64) *time.Time {
	if nanoseconds == 0 {
		return nil
	}
	return asTime(time.Unix(0, nanoseconds))
}

func asTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// quantile is the bound that a share of what was observed is within, 0 where nothing is.
func quantile(h dnsserver.Histogram, share float64) float64 {
	bounds := make([]float64, 0, len(h.Buckets))
	for bound := range h.Buckets {
		bounds = append(bounds, bound)
	}
	slices.Sort(bounds)
	for _, bound := range bounds {
		if n := h.Buckets[bound]; n > 0 && float64(n) >= share*float64(h.Count) {
			return bound
		}
	}
	return 0
}

// serveStatus answers with the status as JSON.
func (g *page) serveStatus(w http.ResponseWriter, r *http.Request) {
	g.look()
	if _, err := parameters(r.URL); err != nil {
		badRequest(w, err)
		return
	}
	setForm(w, applicationJSON)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.Encode(g.status(time.Now()))
}

// serveStatusOrPage sends browsers, which say that they want HTML, to the page.
func (g *page) serveStatusOrPage(w http.ResponseWriter, r *http.Request) {
	for part := range strings.SplitSeq(strings.Join(r.Header.Values("Accept"), ","), ",") {
		switch media, _, _ := mime.ParseMediaType(part); media {
		case applicationJSON:
			g.serveStatus(w, r)
			return
		case "text/html":
			w.Header().Set("Vary", "Accept")
			http.Redirect(w, r, "./", http.StatusSeeOther)
			return
		}
	}
	g.serveStatus(w, r)
}

// Sentence is the state for people.
func (s *pageStatus) Sentence() string {
	switch s.State {
	case "stopping":
		return "Stopping: questions are answered for a while yet, and /readyz fails"
	case "reading":
		return "Reading what exists; until then the answer to everything is SERVFAIL"
	case "starting":
		return "All is read, and questions are not answered yet"
	case "restored":
		return "Serving what was kept on disk: nothing has been read since the start"
	case "stale":
		return fmt.Sprintf("Serving what was known %s ago: a watch is lost", durationText(s.Time.Sub(*s.AsOf)))
	}
	return "Serving, up to date"
}

// Tone is how good that is: good, fair or bad.
func (s *pageStatus) Tone() string {
	switch s.State {
	case "serving":
		if s.Ready {
			return "good"
		}
		return "bad"
	case "stale", "restored", "stopping":
		return "fair"
	}
	return "bad"
}

// NotReady are the checks that fail.
func (s *pageStatus) NotReady() (out []statusCheck) {
	for _, c := range s.Checks {
		if !c.OK {
			out = append(out, c)
		}
	}
	return out
}

// Tone is how good the state of a watch is.
func (w *statusWatch) Tone() string {
	switch w.State {
	case "open", "between":
		return "good"
	case "off", "reading":
		return "fair"
	}
	return "bad"
}

// durationText is a duration as people say it.
func durationText(d time.Duration) string {
	switch {
	case d < time.Second:
		return "a moment"
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// byCount are the names of a map, the largest count first.
func byCount(counts map[string]uint64) (names []string) {
	for name, n := range counts {
		if n > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	})
	return names
}
