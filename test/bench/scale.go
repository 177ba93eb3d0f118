//go:build linux

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"epdns/test/bench/load"
	"epdns/test/bench/plot"
	"epdns/test/cluster"
	"epdns/test/run"
)

// ScaleServers are the names of those that [Scale] compares.
var ScaleServers = []string{epdns, coreDNS}

// level is a size of cluster.
type level struct {
	name     string
	services int
	size     int // endpoints of each
}

func (l level) endpoints() int { return l.services * l.size }

// one says whether all endpoints are one Service's.
func (l level) one() bool { return l.services == 1 }

var levels = []level{
	{"100", 10, 10},
	{"10000", 1000, 10},
	{"100000", 10_000, 10},
	{"1000000", 100_000, 10},
	{"one-5000", 1, 5000},
	{"one-50000", 1, 50_000},
}

// Levels are the names of all sizes.
func Levels() (names []string) {
	for _, l := range levels {
		names = append(names, l.name)
	}
	return names
}

// changeRates are how many slices change a second while it is measured how late a change is
// answered, besides those few that are looked at. The last is for the stand-in.
var changeRates = []int{0, 100, standInRate}

const standInRate = 1000

// lag is how late changes were answered, from the API's acknowledgement, sorted.
type lag struct {
	reached float64 // changes a second
	late    []time.Duration
	never   int // not answered within [run.Grace]
}

// growth is what one server did at one level.
type growth struct {
	level  level
	server string
	failed error // if it did not come so far

	ready              time.Duration
	resident, residual float64    // MiB, when ready and later
	service, endpoint  [2]float64 // µs a query and answers a second, for the names of Services and of endpoints
	change             float64    // µs of processor time for one slice that changes
	lags               []lag      // one for each of changeRates
	collecting         float64    // share of the processor time in which the garbage collector worked, meanwhile
}

// Growth is what [Scale] found.
type Growth struct {
	Machine  string
	Versions []string

	options Options
	all     []*growth
}

// Scale has epdns and CoreDNS serve clusters of different sizes, each on a control plane of its
// own.
func Scale(ctx context.Context, o Options) (*Growth, error) {
	g := &Growth{Machine: machine(), options: o}
	names := o.chosen(Levels())
	for _, level := range levels {
		if !slices.Contains(names, level.name) {
			continue
		}
		if err := g.at(ctx, level); err != nil {
			return nil, fmt.Errorf("%d endpoints: %w", level.endpoints(), err)
		}
	}
	slices.Sort(g.Versions)
	return g, nil
}

// at measures at one level.
func (g *Growth) at(ctx context.Context, level level) (err error) {
	l := &lab{}
	defer func() { err = errors.Join(err, l.stop()) }()
	// The level before has left this program on one.
	if err := l.pinOthers(anyCPU); err != nil {
		return err
	}
	if err := l.prepare(ctx); err != nil {
		return err
	}
	core, err := cluster.CoreDNS(ctx, cluster.Options{Progress: g.options.Progress})
	if err != nil {
		return err
	}
	if err := l.startCluster(ctx, g.options.Progress); err != nil {
		return err
	}
	list := services("web", level.services, 0, level.size)
	if err := create(ctx, l.cluster, list, g.options.Progress); err != nil {
		return err
	}
	if err := l.pinOthers(askerCPU); err != nil {
		return err
	}
	c := &changer{services: list, next: maxAddresses, apply: put(l.cluster)}
	for _, name := range g.options.chosen(ScaleServers) {
		r := &growth{level: level, server: name}
		g.all = append(g.all, r)
		if r.failed = g.measure(ctx, l, r, core, c); r.failed == nil {
			if r.failed = g.end(l); r.failed == nil {
				r.failed = g.hurry(ctx, l, r, core, list)
			}
		}
		if err := errors.Join(ctx.Err(), g.end(l)); err != nil && r.failed == nil {
			r.failed = err
		}
		if ctx.Err() != nil {
			return r.failed
		}
		if r.failed != nil {
			fmt.Fprintf(g.options.Progress, "%s at %d endpoints: %v\n", name, level.endpoints(), r.failed)
		}
		fmt.Fprintf(g.options.Progress, "%s at %d endpoints: ready after %v, %.0f MiB, then %.0f, %.2f µs a query, %.0f µs a change\n",
			name, level.endpoints(), r.ready.Round(time.Millisecond), r.resident, r.residual, r.service[0], r.change)
	}
	return nil
}

// end ends the server.
func (g *Growth) end(l *lab) (err error) {
	for _, s := range l.servers {
		if !slices.Contains(g.Versions, s.version) {
			g.Versions = append(g.Versions, s.version)
		}
		err = errors.Join(err, s.process.Stop())
	}
	l.servers = nil
	return err
}

// tracing has a Go program write a line for each garbage collection.
const tracing = "GODEBUG=gctrace=1"

func (g *Growth) measure(ctx context.Context, l *lab, r *growth, core string, c *changer) (err error) {
	seconds := func(n float64) time.Duration { return time.Duration(n * g.options.Seconds * float64(time.Second)) }
	began := time.Now()
	s, err := l.startOf(ctx, r.server, core, l.cluster.Kubeconfig)
	if err != nil {
		return err
	}
	r.ready = time.Since(began)
	pids, err := s.pids()
	if err != nil {
		return err
	}
	if r.resident, err = resident(pids); err != nil {
		return err
	}
	// A minute at the default, in which a garbage collector gives back what the start took.
	if err := sleep(ctx, seconds(30)); err != nil {
		return err
	}
	if r.residual, err = resident(pids); err != nil {
		return err
	}
	// Some look at all endpoints of a Service for each query, and must not have hundreds to do.
	few := outstanding
	if r.level.one() {
		few = 4
	}
	if r.service, err = costs(s, pids, c.services, (*service).domain, few, seconds(1)); err != nil {
		return err
	}
	if r.endpoint, err = costs(s, pids, c.services, stays, few, seconds(1)); err != nil {
		return err
	}
	if r.change, err = c.cost(ctx, pids, seconds(1)); err != nil {
		return err
	}
	logged := len(s.process.Log())
	before, err := cpuTime(pids)
	if err != nil {
		return err
	}
	for _, rate := range changeRates[:len(changeRates)-1] {
		lag, err := c.lag(ctx, s, rate, seconds(5))
		if err != nil {
			return fmt.Errorf("%d changes a second: %w", rate, err)
		}
		r.lags = append(r.lags, lag)
	}
	after, err := cpuTime(pids)
	if err != nil {
		return err
	}
	r.collecting = collected(s.process.Log()[logged:]).Seconds() / (after - before).Seconds()
	return nil
}

// startOf starts one of [ScaleServers].
func (l *lab) startOf(ctx context.Context, name, core, kubeconfig string) (*server, error) {
	if name == epdns {
		return l.startEpdns(ctx, l.source(kubeconfig, ""), tracing)
	}
	return l.startCoreDNS(ctx, name, core, kubeconfig, tracing)
}

// hurry measures how late changes are answered when there are more of them than the control plane
// takes.
func (g *Growth) hurry(ctx context.Context, l *lab, r *growth, core string, list []*service) (err error) {
	api, err := newStandIn(list)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, api.Close()) }()
	kubeconfig, err := l.write("stand-in.kubeconfig", api.kubeconfig())
	if err != nil {
		return err
	}
	s, err := l.startOf(ctx, r.server, core, kubeconfig)
	if err != nil {
		return err
	}
	c := &changer{services: list, next: maxAddresses, apply: api.apply}
	lag, err := c.lag(ctx, s, standInRate, time.Duration(5*g.options.Seconds*float64(time.Second)))
	if err != nil {
		return fmt.Errorf("%d changes a second: %w", standInRate, err)
	}
	r.lags = append(r.lags, lag)
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// stays is the name of an endpoint that no change concerns.
func stays(s *service) string { return s.pod(1) }

// asked is how many names are asked for. It is more than what a processor keeps near.
const asked = 10_000

// costs is the processor time of an A query, in µs, and how many are answered in a second, with n
// outstanding.
func costs(s *server, pids []int, list []*service, name func(*service) string, n int, d time.Duration) (out [2]float64, err error) {
	var queries []load.Query
	for i := 0; i < len(list); i += max(1, len(list)/asked) {
		m := new(dns.Msg).SetQuestion(name(list[i]), dns.TypeA)
		m.SetEdns0(ednsSize, false)
		wire, err := m.Pack()
		if err != nil {
			return out, err
		}
		queries = append(queries, load.Query{Wire: wire, Max: ednsSize})
	}
	// One tells what to expect of all: whether it is right was seen by Compare.
	m := new(dns.Msg)
	if err := m.Unpack(queries[0].Wire); err != nil {
		return out, err
	}
	reply, err := exchange(s.address, m, false)
	if err != nil {
		return out, err
	}
	if reply.Rcode != dns.RcodeSuccess || len(reply.Answer) == 0 && !reply.Truncated {
		return out, fmt.Errorf("no address of %s: %v", m.Question[0].Name, reply)
	}
	for i := range queries {
		queries[i].Min, queries[i].Truncated = len(queries[i].Wire), reply.Truncated
	}
	g, err := load.NewUDP(s.address, n, askerCPU)
	if err != nil {
		return out, err
	}
	defer g.Close()
	if _, err := g.Flood(queries, d/5); err != nil {
		return out, err
	}
	before, err := cpuTime(pids)
	if err != nil {
		return out, err
	}
	r, err := g.Flood(queries, d)
	if err != nil {
		return out, err
	}
	after, err := cpuTime(pids)
	if err != nil {
		return out, err
	}
	if r.Wrong > 0 {
		return out, fmt.Errorf("%d of %d replies were wrong", r.Wrong, r.Asked)
	}
	answered := max(1, r.Answers+r.Late)
	return [2]float64{float64(after-before) / float64(time.Microsecond) / float64(answered), r.Rate()}, nil
}

// collection is a line of gctrace, its times of the processor.
var collection = regexp.MustCompile(`(?m)^gc \d+ @.* ms clock, ([0-9.+/]+) ms cpu,`)

// collected is the processor time of garbage collections that a log tells of.
func collected(log string) (sum time.Duration) {
	for _, m := range collection.FindAllStringSubmatch(log, -1) {
		for part := range strings.FieldsFuncSeq(m[1], func(r rune) bool { return r == '+' || r == '/' }) {
			ms, _ := strconv.ParseFloat(part, 64)
			sum += time.Duration(ms * float64(time.Millisecond))
		}
	}
	return sum
}

// Markdown is the result as text.
func (g *Growth) Markdown() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s; %s. %gs a figure.\n\n", g.Machine, strings.Join(g.Versions, ", "), g.options.Seconds)
	start := [][]string{{"endpoints and Services", "server", "ready, s", "MiB when ready", "MiB later", "query for a Service, µs", "query for an endpoint, µs", "answers a second"}}
	changes := [][]string{{"endpoints and Services", "server", "change, µs of processor", "of which collector, %"}}
	for _, rate := range changeRates {
		changes[0] = append(changes[0], fmt.Sprintf("late at %d/s, ms: median / 99 %%", rate))
	}
	var notes []string
	for _, r := range g.all {
		what := fmt.Sprintf("%s, %s", thousands(r.level.endpoints()), thousands(r.level.services))
		start = append(start, []string{what, titles[r.server], rounded(r.ready.Seconds()), rounded(r.resident), rounded(r.residual),
			rounded(r.service[0]), rounded(r.endpoint[0]), rounded(r.service[1])})
		row := []string{what, titles[r.server], rounded(r.change), rounded(100 * r.collecting)}
		for i, rate := range changeRates {
			var l lag
			if i < len(r.lags) {
				l = r.lags[i]
			}
			if l.never > 0 {
				notes = append(notes, fmt.Sprintf("- %s, %s, %d changes a second: a change was not answered within %v.", what, titles[r.server], rate, run.Grace))
			}
			if len(l.late) == 0 {
				row = append(row, "–")
				continue
			}
			row = append(row, fmt.Sprintf("%.1f / %.1f", milliseconds(percentile(l.late, 0.5)), milliseconds(percentile(l.late, 0.99))))
			if l.reached < 0.9*float64(rate) {
				notes = append(notes, fmt.Sprintf("- %s, %s: it was %.0f changes a second, not %d.", what, titles[r.server], l.reached, rate))
			}
		}
		changes = append(changes, row)
		if r.failed != nil {
			notes = append(notes, fmt.Sprintf("- %s, %s: it did not get to the end.", what, titles[r.server]))
		}
	}
	table(&b, start)
	table(&b, changes)
	b.WriteString(strings.Join(append(notes, ""), "\n"))
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func milliseconds(d time.Duration) float64 { return d.Seconds() * 1000 }

// SVG is the result as a chart.
func (g *Growth) SVG() []byte {
	c := plot.Lines{Title: "What grows with a cluster: time to ready, memory, cost of queries and changes"}
	const atRate = 1 // of changeRates: 100
	for _, panel := range []struct {
		title string
		value func(*growth) float64
	}{
		{"time to ready, s", func(r *growth) float64 { return r.ready.Seconds() }},
		{"resident memory later, MiB", func(r *growth) float64 { return r.residual }},
		{"processor time of a query for an endpoint, µs", func(r *growth) float64 { return r.endpoint[0] }},
		{"processor time of a change, µs", func(r *growth) float64 { return r.change }},
		{fmt.Sprintf("answered late at %d changes/s, 99 %%, ms", changeRates[atRate]), func(r *growth) float64 {
			if len(r.lags) <= atRate {
				return 0
			}
			return milliseconds(percentile(r.lags[atRate].late, 0.99))
		}},
		{"share of the garbage collector meanwhile, %", func(r *growth) float64 { return 100 * r.collecting }},
	} {
		c.Panels = append(c.Panels, plot.LinePanel{Title: panel.title, Along: "endpoints"})
		p := &c.Panels[len(c.Panels)-1]
		c.Series = nil
		for _, name := range g.options.chosen(ScaleServers) {
			for _, one := range []bool{false, true} {
				series := look(name)
				if one {
					series.Name += ", one Service"
					series.Mark = plot.Triangle
				}
				var points []plot.Point
				for _, r := range g.all {
					if r.server == name && r.level.one() == one {
						points = append(points, plot.Point{X: float64(r.level.endpoints()), Y: panel.value(r)})
					}
				}
				c.Series = append(c.Series, series)
				p.Points = append(p.Points, points)
			}
		}
	}
	return c.SVG()
}
