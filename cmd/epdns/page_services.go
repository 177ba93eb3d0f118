package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"

	"epdns/registry"
	"epdns/zones"
)

// This file is the list of Services, and one of them:
//
//	/services?q=WORDS&show=WHICH&page=N
//	/service?name=NAMESPACE/SERVICE&page=N

const (
	servicesPerPage  = 50
	endpointsPerPage = 100

	// maxWords is more than two names have.
	maxWords = 200
)

// choices of what to show.
var servicesShown = []struct {
	Value, Text string
	has         func(*page, *listedService) bool
}{
	{"", "all", func(*page, *listedService) bool { return true }},
	{"unready", "with an endpoint that is not ready", func(_ *page, l *listedService) bool { return l.ready < l.total }},
	{"none", "with no endpoint ready", func(_ *page, l *listedService) bool { return l.ready == 0 && !l.alias() }},
	{"problems", "with annotations that do nothing", func(g *page, l *listedService) bool { return g.p.problems.why(l.Key) != "" }},
	{"held", "held: a list lacked most endpoints", func(_ *page, l *listedService) bool { return l.Held != 0 }},
}

func (l *listedService) alias() bool { return l.Object != nil && l.Object.IsExternalName }

// servicesView is what the list shows.
type servicesView struct {
	Query, Show string
	Choices     any
	All, Found  int
	Rows        []serviceRow
	pages
}

type serviceRow struct {
	Key          registry.Key
	Ready, Total int
	Kind         string
	Zones        string
	Alias        string
	Notes        []string
	Problem      string
}

func (r serviceRow) Share() int { return share(r.Ready, r.Total) }

// Tone is how good that is.
func (r serviceRow) Tone() string {
	switch {
	case r.Total > 0 && r.Ready == 0:
		return "bad"
	case r.Ready < r.Total:
		return "fair"
	}
	return ""
}

func share(of, all int) int {
	if all == 0 {
		return 0
	}
	return of * 100 / all
}

// pages are those of a long list.
type pages struct {
	Page, Pages int
	First, Last int        // rows, from 1
	query       url.Values // all but the page
}

// pagesOf is the page of a list that was asked for, or the last one where there are fewer.
func pagesOf(text string, rows, perPage int, query url.Values) (p pages, from, to int, err error) {
	p = pages{Page: 1, Pages: max(1, (rows+perPage-1)/perPage), query: query}
	if text != "" {
		if p.Page, err = strconv.Atoi(text); err != nil && !errors.Is(err, strconv.ErrRange) || p.Page < 1 {
			return p, 0, 0, badParameter("page", fmt.Errorf("%q is no number of a page", cut(text)))
		}
	}
	p.Page = min(p.Page, p.Pages)
	from, to = (p.Page-1)*perPage, min(p.Page*perPage, rows)
	p.First, p.Last = min(from+1, to), to
	return p, from, to, nil
}

// To is the query of another page.
func (p pages) To(page int) template.URL {
	query := maps.Clone(p.query)
	query.Set("page", strconv.Itoa(page))
	return template.URL(query.Encode()) // escaped by that
}

func (p pages) Before() int { return p.Page - 1 }
func (p pages) After() int {
	if p.Page < p.Pages {
		return p.Page + 1
	}
	return 0
}

// services is the list that a URL asks for.
func (g *page) services(_ context.Context, u *url.URL) (*view, error) {
	par, err := parameters(u, "q", "show", "page")
	if err != nil {
		return nil, errorOf(http.StatusBadRequest, err)
	}
	x := &servicesView{Query: strings.TrimSpace(par["q"]), Show: par["show"], Choices: servicesShown}
	if len(x.Query) > maxWords {
		return nil, badParameter("q", fmt.Errorf("it has %d octets, and %d is the most", len(x.Query), maxWords))
	}
	which := 0
	for i, c := range servicesShown {
		if c.Value == x.Show {
			which = i
		}
	}
	if servicesShown[which].Value != x.Show {
		return nil, badParameter("show", fmt.Errorf("%q is not known", cut(x.Show)))
	}
	all, version := g.directory.services()
	v := &view{Title: "Services", Nav: "services", Template: "services", Parts: []string{"services-list"}, Version: version}
	v.Make = func(context.Context) (any, error) { return x, g.find(x, all, which, par["page"]) }
	return v, nil
}

// find fills in the Services that are looked for.
func (g *page) find(x *servicesView, all []listedService, which int, page string) (err error) {
	words := strings.Fields(strings.ToLower(x.Query))
	var found []*listedService
	for i := range all {
		if l := &all[i]; l.matches(words) && servicesShown[which].has(g, l) {
			found = append(found, l)
		}
	}
	query := url.Values{}
	for key, value := range map[string]string{"q": x.Query, "show": x.Show} {
		if value != "" {
			query.Set(key, value)
		}
	}
	var from, to int
	if x.pages, from, to, err = pagesOf(page, len(found), servicesPerPage, query); err != nil {
		return err
	}
	x.All, x.Found = len(all), len(found)
	for _, l := range found[from:to] {
		x.Rows = append(x.Rows, g.serviceRow(l))
	}
	return nil
}

func (g *page) serviceRow(l *listedService) serviceRow {
	r := serviceRow{Key: l.Key, Ready: l.ready, Total: l.total, Zones: placesText(l.Service), Problem: g.p.problems.why(l.Key)}
	if o := l.Object; o != nil {
		r.Kind = kindText(o)
		if o.IsExternalName {
			r.Alias = cmp.Or(o.ExternalName, "no name")
		}
		if o.TrafficDistribution != "" {
			r.Notes = append(r.Notes, "trafficDistribution "+o.TrafficDistribution)
		}
		for _, a := range o.Annotations {
			r.Notes = append(r.Notes, a.Key+": "+oneLine(a.Value))
		}
	}
	if l.Held != 0 {
		r.Notes = append(r.Notes, "held until the list is read again")
	}
	return r
}

// kindText is what people call a kind of Service.
func kindText(o *registry.Object) string {
	switch {
	case o.IsExternalName:
		return "ExternalName"
	case o.Kind == registry.KindClusterIP:
		return "ClusterIP"
	case o.Kind == registry.KindHeadless:
		return "headless"
	case o.Kind == registry.KindHeadlessNoSelector:
		return "headless, without selector"
	}
	return ""
}

// fewZones are named one by one.
const fewZones = 6

// placesText is how many endpoints are ready in each zone.
func placesText(svc *registry.Service) string {
	in := map[string]int{}
	for _, slice := range svc.Slices {
		for _, e := range slice.Endpoints.All() {
			if e.Zone != "" && e.Ready {
				in[e.Zone]++
			}
		}
	}
	var texts []string
	for i, zone := range slices.Sorted(maps.Keys(in)) {
		if i == fewZones {
			texts = append(texts, fmt.Sprintf("and %d more", len(in)-i))
			break
		}
		texts = append(texts, fmt.Sprintf("%s %d", zone, in[zone]))
	}
	return strings.Join(texts, ", ")
}

// serviceView is what is shown of one Service.
type serviceView struct {
	Key      registry.Key
	Row      serviceRow
	Names    []string
	Ports    []string
	Problems []string
	Set      []zones.ExplainedKnob // that somebody has set
	Slices   []zones.ExplainedSlice
	Rows     []zones.ExplainedEndpoint
	Count    int // of endpoints
	Held     *time.Time
	pages
}

// service is one that a URL asks for.
func (g *page) service(_ context.Context, u *url.URL) (*view, error) {
	par, err := parameters(u, "name", "page")
	if err != nil {
		return nil, errorOf(http.StatusBadRequest, err)
	}
	key, err := parseService(par["name"])
	if err != nil {
		return nil, badParameter("name", errors.New(oneLine(err.Error())))
	}
	svc := g.p.registry.Snapshot(key.Namespace, key.Name)
	if svc == nil {
		return nil, errorOf(http.StatusNotFound, fmt.Errorf("there is no Service %v", key))
	}
	set := g.p.zones.Load()
	v := &view{Title: key.String(), Nav: "services", Template: "service", Parts: []string{"service-head", "service-endpoints"}, Version: serviceVersion{svc, set.VersionOf(key)}}
	v.Make = func(ctx context.Context) (any, error) { return g.serviceView(ctx, svc, set, par["page"]) }
	return v, nil
}

// serviceVersion is another one where there is something else to show of a Service. It has two
// sides: what is answered comes a moment after what is known.
type serviceVersion struct {
	known  *registry.Service
	served any
}

// serviceView is what there is to show of one.
func (g *page) serviceView(ctx context.Context, svc *registry.Service, set *zones.Set, page string) (_ *serviceView, err error) {
	key, l := svc.Key, listedService{Service: svc}
	for _, slice := range svc.Slices {
		for i := range slice.Endpoints.Len() {
			if l.total++; slice.Endpoints.Ready(i) {
				l.ready++
			}
		}
	}
	x := &serviceView{Key: key, Row: g.serviceRow(&l), Names: set.NamesOf(key)}
	for _, p := range zones.Problems(svc) {
		x.Problems = append(x.Problems, p.String())
	}
	if svc.Object != nil {
		for _, p := range svc.Object.Ports {
			x.Ports = append(x.Ports, strings.TrimPrefix(fmt.Sprintf("%s %d/%v", p.Name, p.Number, p.Protocol), " "))
		}
	}
	if svc.Held != 0 {
		held := time.Unix(svc.Held, 0).UTC()
		x.Held = &held
	}
	var endpoints []zones.ExplainedEndpoint
	if len(x.Names) > 0 && !l.alias() {
		done, err := g.begin(ctx)
		if err != nil {
			return nil, err
		}
		defer done()
		e := explainToNobody(set, x.Names[0])
		endpoints, x.Slices = e.Endpoints, e.Slices
		for _, k := range e.Knobs {
			if k.IsSet() {
				x.Set = append(x.Set, k)
			}
		}
	}
	slices.SortStableFunc(endpoints, func(a, b zones.ExplainedEndpoint) int {
		return cmp.Or(strings.Compare(a.Region, b.Region), strings.Compare(a.Zone, b.Zone), strings.Compare(a.Node, b.Node), strings.Compare(a.Pod, b.Pod))
	})
	var from, to int
	if x.pages, from, to, err = pagesOf(page, len(endpoints), endpointsPerPage, url.Values{"name": {key.String()}}); err != nil {
		return nil, err
	}
	// A copy: a page that is looked at would keep all of them.
	x.Count, x.Rows = len(endpoints), slices.Clone(endpoints[from:to])
	return x, nil
}

// explainToNobody explains the addresses of a name to one of whom nothing is known.
func explainToNobody(set *zones.Set, name string) *zones.Explanation {
	var wire [255]byte
	n, err := dns.PackDomainName(name, wire[:], 0, nil, false)
	if err != nil {
		panic("epdns: " + name + " is no name: " + err.Error()) // it is one of ours
	}
	q := &zones.Question{Name: wire[:n], Type: zones.TypeA}
	a := zones.NewAnswer()
	set.Lookup(q, a)
	message := append(make([]byte, 12, 512), wire[:n]...)
	message = append(message, 0, zones.TypeA, 0, 1)
	a.AppendTo(message, 0, dns.MaxMsgSize, 0)
	return a.Explain()
}
