//go:build linux

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
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

// list are the Services. A larger level has those of a smaller one and more, but for those of one.
func (l level) list() []*service {
	if l.one() {
		return services(fmt.Sprintf("one-%d", l.size), 1, 0, l.size)
	}
	most := 0
	for _, other := range levels {
		most = max(most, other.services)
	}
	return firstOf(l.services, "web", most, 0, l.size)
}

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

// atRate is the one of changeRates that a promise is made for.
const atRate = 1

// lag is how late changes were answered in one round, from the API's acknowledgement, sorted.
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
	resident, residual float64 // MiB, when ready and later
	service, endpoint  query   // for the names of Services and of endpoints
	change             float64 // µs of processor time for one slice that changes
	lags               [][]lag // rounds of each of changeRates
	spent              spent   // meanwhile

	runs   *server
	began  time.Time
	lagged time.Duration // the time that the rounds of lags took
}

// late is a percentile of how late changes were answered at one of changeRates, of all rounds
// together, in ms; false if none were.
func (r *growth) late(rate int, p float64) (ms float64, ok bool) {
	var all []time.Duration
	if rate < len(r.lags) {
		for _, l := range r.lags[rate] {
			all = append(all, l.late...)
		}
	}
	slices.Sort(all)
	return milliseconds(percentile(all, p)), len(all) > 0
}

// never is how many changes were not answered at one of changeRates, and reached how many there
// were in a second.
func (r *growth) never(rate int) (n int, reached float64) {
	var all []float64
	if rate < len(r.lags) {
		for _, l := range r.lags[rate] {
			n += l.never
			all = append(all, l.reached)
		}
	}
	return n, median(all)
}

// query is what one costs: medians of rounds.
type query struct {
	cost  float64 // µs
	rate  float64 // answers a second
	times float64 // of the cost with [reference] endpoints in the same round; 0 if it was not asked
}

// Growth is what [Scale] found.
type Growth struct {
	Machine  string
	Versions []string

	options   Options
	all       []*growth
	reference *server // epdns with the first level's Services, to which others are compared
}

// rounds is how often the cost of a query is measured, by turns with the reference, and how late
// changes are answered, by turns with the other server.
const rounds = 5

// lagWithin is the time for the rounds of one server, for each second of a figure. Of one that
// takes seconds for a change there are fewer.
const lagWithin = 30

// settled is how long after its start a server's memory is looked at again, for each second of a
// figure: a garbage collector gives back slowly what the start took.
const settled = 30

// Scale has epdns and CoreDNS serve clusters of different sizes.
func Scale(ctx context.Context, o Options) (_ *Growth, err error) {
	g := &Growth{Machine: machine(), options: o}
	l := &lab{}
	defer func() { err = errors.Join(err, l.stop()) }()
	if err := l.prepare(ctx); err != nil {
		return nil, err
	}
	names, servers := o.chosen(Levels()), o.chosen(ScaleServers)
	core := ""
	if slices.Contains(servers, coreDNS) {
		if core, err = cluster.CoreDNS(ctx, cluster.Options{Progress: o.Progress}); err != nil {
			return nil, err
		}
	}
	if err := l.startCluster(ctx, o.Progress); err != nil {
		return nil, err
	}
	if slices.Contains(servers, epdns) {
		if g.reference, err = l.startReference(ctx); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	c := &changer{next: maxAddresses, apply: put(l.cluster)}
	there := 0 // Services of levels with many, which grow
	// Those of one Service come first, since what is there then is easily deleted.
	for _, one := range []bool{true, false} {
		for _, level := range levels {
			if level.one() != one || !slices.Contains(names, level.name) {
				continue
			}
			c.services = level.list()
			missing := c.services
			if !one {
				missing = missing[there:]
				there = len(c.services)
			}
			if err := g.at(ctx, l, level, core, c, missing); err != nil {
				return nil, fmt.Errorf("%d endpoints: %w", level.endpoints(), err)
			}
			fmt.Fprintf(o.Progress, "%d endpoints done after %v\n", level.endpoints(), time.Since(began).Round(time.Second))
		}
	}
	slices.SortStableFunc(g.all, func(a, b *growth) int { return slices.Index(levels, a.level) - slices.Index(levels, b.level) })
	slices.Sort(g.Versions)
	return g, nil
}

// startReference starts epdns with the first level's Services, from a file.
func (l *lab) startReference(ctx context.Context) (*server, error) {
	var text strings.Builder
	if err := writeManifests(&text, levels[0].list()); err != nil {
		return nil, err
	}
	file, err := l.write("manifests.yaml", text.String())
	if err != nil {
		return nil, err
	}
	return l.startEpdns(ctx, l.source("", file))
}

// at measures at one level, of whose Services some are missing.
func (g *Growth) at(ctx context.Context, l *lab, level level, core string, c *changer, missing []*service) error {
	// The level before has left this program and the control plane on one.
	if err := l.pinOthers(anyCPU); err != nil {
		return err
	}
	if err := create(ctx, l.cluster, missing, g.options.Progress); err != nil {
		return err
	}
	if err := l.pinOthers(askerCPU); err != nil {
		return err
	}
	var rs []*growth
	for _, name := range g.options.chosen(ScaleServers) {
		rs = append(rs, &growth{level: level, server: name})
	}
	g.all = append(g.all, rs...)
	g.measure(ctx, l, rs, core, c)
	if err := errors.Join(ctx.Err(), g.end(l)); err != nil {
		return err
	}
	for _, r := range rs {
		if r.failed != nil {
			fmt.Fprintf(g.options.Progress, "%s at %d endpoints: %v\n", r.server, level.endpoints(), r.failed)
		}
		fmt.Fprintf(g.options.Progress, "%s at %d endpoints: ready after %v, %.0f MiB, then %.0f, %.2f µs a query, %.0f µs a change\n",
			r.server, level.endpoints(), r.ready.Round(time.Millisecond), r.resident, r.residual, r.service.cost, r.change)
	}
	if !level.one() {
		return nil
	}
	for _, s := range c.services {
		if err := l.cluster.Request(ctx, http.MethodDelete, "/api/v1/namespaces/"+s.namespace+"/services/"+s.name, nil, nil); err != nil {
			return err
		}
		slices := fmt.Sprintf(slicesPath, s.namespace) + "?labelSelector=kubernetes.io/service-name%3D" + s.name
		if err := l.cluster.Request(ctx, http.MethodDelete, slices, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// end ends the servers but the reference.
func (g *Growth) end(l *lab) (err error) {
	var stay []*server
	for _, s := range l.servers {
		if !slices.Contains(g.Versions, s.version) {
			g.Versions = append(g.Versions, s.version)
		}
		if s == g.reference {
			stay = append(stay, s)
			continue
		}
		err = errors.Join(err, s.process.Stop())
	}
	l.servers = stay
	return err
}

// tracing has a Go program write a line for each garbage collection.
const tracing = "GODEBUG=gctrace=1"

// measure measures servers beside each other. Each step is done by all that came so far, and what
// one of them fails in is written to it.
func (g *Growth) measure(ctx context.Context, l *lab, rs []*growth, core string, c *changer) {
	seconds := func(n float64) time.Duration { return time.Duration(n * g.options.Seconds * float64(time.Second)) }
	all := func(step func(r *growth) error) {
		for _, r := range rs {
			if r.failed == nil && ctx.Err() == nil {
				r.failed = step(r)
			}
		}
	}
	all(func(r *growth) (err error) {
		r.began = time.Now()
		if r.runs, err = l.startOf(ctx, r.server, core, l.cluster.Kubeconfig); err != nil {
			return err
		}
		r.ready = time.Since(r.began)
		r.resident, err = r.runs.resident()
		return err
	})
	all(func(r *growth) (err error) {
		if r.service, err = g.costs(r.runs, c.services, (*service).domain, seconds(0.2)); err != nil {
			return err
		}
		r.endpoint, err = g.costs(r.runs, c.services, stays, seconds(0.2))
		return err
	})
	all(func(r *growth) (err error) {
		r.change, err = c.cost(ctx, r.runs, seconds(1))
		return err
	})
	for round := range rounds {
		all(func(r *growth) error { return g.lagRound(ctx, r, rs, c, round, seconds) })
	}
	// Others of their kind are asked now, and these rest.
	all(func(r *growth) error { return g.hurry(ctx, l, r, core, c.services) })
	all(func(r *growth) (err error) {
		if err := sleep(ctx, time.Until(r.began.Add(r.ready+seconds(settled)))); err != nil {
			return err
		}
		r.residual, err = r.runs.resident()
		return err
	})
}

// lagRound measures how late changes are answered by one server, while the others are held: they
// would have the changes to do as well, on the same processor.
func (g *Growth) lagRound(ctx context.Context, r *growth, rs []*growth, c *changer, round int, seconds func(float64) time.Duration) (err error) {
	if round > 0 && r.lagged > seconds(lagWithin) {
		return nil
	}
	for _, other := range rs {
		if other != r && other.failed == nil {
			if err := other.runs.signal(syscall.SIGSTOP); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, other.runs.signal(syscall.SIGCONT)) }()
		}
	}
	pids, err := r.runs.pids()
	if err != nil {
		return err
	}
	// It has missed some changes, too.
	if err := rest(ctx, pids); err != nil {
		return err
	}
	began := time.Now()
	before, err := spentBy(r.runs)
	if err != nil {
		return err
	}
	for i, d := range []time.Duration{seconds(1), seconds(2.5)} {
		got, err := c.lag(ctx, r.runs, changeRates[i], d)
		if err != nil {
			return fmt.Errorf("%d changes a second: %w", changeRates[i], err)
		}
		if round == 0 {
			r.lags = append(r.lags, nil)
		}
		r.lags[i] = append(r.lags[i], got)
	}
	r.lagged += time.Since(began)
	return r.spent.since(r.runs, before)
}

// spent is processor time.
type spent struct{ all, collecting time.Duration }

// share is the garbage collector's part.
func (s spent) share() float64 {
	if s.all <= 0 {
		return 0
	}
	return s.collecting.Seconds() / s.all.Seconds()
}

// since adds what a server has spent since it had spent before.
func (s *spent) since(by *server, before spent) error {
	now, err := spentBy(by)
	s.all += now.all - before.all
	s.collecting += now.collecting - before.collecting
	return err
}

// spentBy is the processor time of a server, and that of its garbage collector: as epdns's metrics
// have them, and as CoreDNS's log has the latter.
func spentBy(s *server) (out spent, err error) {
	if s.page == "" {
		pids, err := s.pids()
		if err != nil {
			return out, err
		}
		out.collecting = collected(s.process.Log())
		out.all, err = cpuTime(pids)
		return out, err
	}
	page, err := run.Get("http://" + s.page + "/metrics")
	if err != nil {
		return out, err
	}
	return spentOn(string(page))
}

// spentOn is what a page of metrics tells. Both move when a collection ends.
func spentOn(page string) (out spent, err error) {
	value := func(class string) time.Duration {
		name := "go_cpu_classes_" + class + "_cpu_seconds_total"
		_, rest, ok := strings.Cut(page, "\n"+name+" ")
		line, _, _ := strings.Cut(rest, "\n")
		seconds, bad := strconv.ParseFloat(line, 64)
		if !ok || bad != nil {
			err = fmt.Errorf("the page of metrics has no number for %s", name)
		}
		return time.Duration(seconds * float64(time.Second))
	}
	out = spent{value("total") - value("idle"), value("gc_total")}
	return out, err
}

// startOf starts one of [ScaleServers].
func (l *lab) startOf(ctx context.Context, name, core, kubeconfig string) (*server, error) {
	if name == epdns {
		return l.startEpdns(ctx, l.source(kubeconfig, ""))
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
	before, err := spentBy(s)
	if err != nil {
		return err
	}
	c := &changer{services: list, next: maxAddresses, apply: api.apply}
	got, err := c.lag(ctx, s, standInRate, time.Duration(5*g.options.Seconds*float64(time.Second)))
	if err != nil {
		return fmt.Errorf("%d changes a second: %w", standInRate, err)
	}
	r.lags = append(r.lags, []lag{got})
	if err := r.spent.since(s, before); err != nil {
		return err
	}
	l.servers = slices.DeleteFunc(l.servers, func(other *server) bool { return other == s })
	return s.process.Stop()
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

// costs measures A queries, in rounds of this time: those of the reference with those of a server
// by turns, and with each a quarter of the time before it that does not count.
func (g *Growth) costs(s *server, list []*service, name func(*service) string, d time.Duration) (out query, err error) {
	// CoreDNS looks at all endpoints of a Service for each query, and must not have hundreds to do.
	n := outstanding
	if len(list) == 1 && s.name == coreDNS {
		n = 4
	}
	var ours, reference *asker
	if ours, err = newAsker(s, list, name, n); err != nil {
		return out, err
	}
	defer ours.Close()
	if s.name == epdns && g.reference != nil && len(list) > 1 {
		if reference, err = newAsker(g.reference, levels[0].list(), name, n); err != nil {
			return out, err
		}
		defer reference.Close()
	}
	var costs, rates, times []float64
	for range rounds {
		first := 0.0
		if reference != nil {
			got, err := reference.ask(d)
			if err != nil {
				return out, err
			}
			first = got.cpu
		}
		got, err := ours.ask(d)
		if err != nil {
			return out, err
		}
		costs, rates = append(costs, got.cpu), append(rates, got.rate)
		if first > 0 {
			times = append(times, got.cpu/first)
		}
	}
	return query{median(costs), median(rates), median(times)}, nil
}

// asker asks a server some names.
type asker struct {
	*load.Generator
	pids    []int
	queries []load.Query
}

// newAsker asks with n queries outstanding. Close must be called.
func newAsker(s *server, list []*service, name func(*service) string, n int) (*asker, error) {
	a := &asker{}
	for i := 0; i < len(list); i += max(1, len(list)/asked) {
		m := new(dns.Msg).SetQuestion(name(list[i]), dns.TypeA)
		m.SetEdns0(ednsSize, false)
		wire, err := m.Pack()
		if err != nil {
			return nil, err
		}
		a.queries = append(a.queries, load.Query{Wire: wire, Max: ednsSize})
	}
	// One tells what to expect of all: whether it is right was seen by Compare.
	m := new(dns.Msg)
	err := m.Unpack(a.queries[0].Wire)
	if err != nil {
		return nil, err
	}
	reply, err := exchange(s.address, m, false)
	if err != nil {
		return nil, err
	}
	if reply.Rcode != dns.RcodeSuccess || len(reply.Answer) == 0 && !reply.Truncated {
		return nil, fmt.Errorf("no address of %s: %v", m.Question[0].Name, reply)
	}
	for i := range a.queries {
		a.queries[i].Min, a.queries[i].Truncated = len(a.queries[i].Wire), reply.Truncated
	}
	if a.pids, err = s.pids(); err != nil {
		return nil, err
	}
	a.Generator, err = load.NewUDP(s.address, n, askerCPU)
	return a, err
}

func (a *asker) ask(d time.Duration) (sample, error) {
	if _, err := a.Flood(a.queries, d/4); err != nil {
		return sample{}, err
	}
	got, err := flood(a.Generator, a.pids, a.queries, d)
	if err == nil && got.wrong > 0 {
		err = fmt.Errorf("%d replies were wrong", got.wrong)
	}
	return got, err
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
	writeVerdicts(&b, g.verdicts())
	start := [][]string{{"endpoints and Services", "server", "ready, s", "MiB when ready", "MiB later", "query for a Service, µs", "query for an endpoint, µs", "answers a second", "times the query of 100"}}
	changes := [][]string{{"endpoints and Services", "server", "change, µs of processor", "of which collector, %"}}
	for _, rate := range changeRates {
		changes[0] = append(changes[0], fmt.Sprintf("late at %d/s, ms: median / 99 %%", rate))
	}
	var notes []string
	for _, r := range g.all {
		what := fmt.Sprintf("%s, %s", thousands(r.level.endpoints()), thousands(r.level.services))
		start = append(start, []string{what, titles[r.server], rounded(r.ready.Seconds()), rounded(r.resident), rounded(r.residual),
			rounded(r.service.cost), rounded(r.endpoint.cost), rounded(r.service.rate), rounded(max(r.service.times, r.endpoint.times))})
		row := []string{what, titles[r.server], rounded(r.change), rounded(100 * r.spent.share())}
		for i, rate := range changeRates {
			never, reached := r.never(i)
			if never > 0 {
				notes = append(notes, fmt.Sprintf("- %s, %s, %d changes a second: a change was not answered within %v.", what, titles[r.server], rate, run.Grace))
			}
			half, ok := r.late(i, 0.5)
			if !ok {
				row = append(row, "–")
				continue
			}
			most, _ := r.late(i, 0.99)
			row = append(row, fmt.Sprintf("%.2f / %.2f", half, most))
			if reached < 0.9*float64(rate) {
				notes = append(notes, fmt.Sprintf("- %s, %s: it was %.0f changes a second, not %d.", what, titles[r.server], reached, rate))
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
	late := func(i int) func(*growth) float64 {
		return func(r *growth) float64 {
			ms, _ := r.late(i, 0.99)
			return ms
		}
	}
	for _, panel := range []struct {
		title string
		value func(*growth) float64
	}{
		{"time to ready, s", func(r *growth) float64 { return r.ready.Seconds() }},
		{"resident memory later, MiB", func(r *growth) float64 { return r.residual }},
		{"processor time of a query for a Service, µs", func(r *growth) float64 { return r.service.cost }},
		{"processor time of a query for an endpoint, µs", func(r *growth) float64 { return r.endpoint.cost }},
		{"processor time of a change, µs", func(r *growth) float64 { return r.change }},
		{"share of the garbage collector, %", func(r *growth) float64 { return 100 * r.spent.share() }},
		{fmt.Sprintf("answered late at %d changes/s, 99 %%, ms", changeRates[atRate]), late(atRate)},
		{fmt.Sprintf("answered late at %d changes/s, 99 %%, ms", changeRates[atRate+1]), late(atRate + 1)},
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
