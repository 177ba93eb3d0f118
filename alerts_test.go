package epdns_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
	dto "github.com/prometheus/client_model/go"
	"go.yaml.in/yaml/v3"
)

// alert is a rule of docs/alerts.yaml.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	text, err := os.ReadFile("docs/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct{ Rules []alert }
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("there are no alerts")
	}
	return all
}

// Each alert has a severity and its section of the runbook, and there is no section but
// those.
func TestRunbook(t *testing.T) {
	page, err := os.ReadFile("docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	var sections, named []string
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllSubmatch(page, -1) {
		sections = append(sections, string(m[1]))
	}
	for _, a := range alerts(t) {
		named = append(named, a.Alert)
		if url := "docs/runbook.md#" + strings.ToLower(a.Alert); a.Annotations["runbook_url"] != url {
			t.Errorf("%s: runbook_url is %q, want %q", a.Alert, a.Annotations["runbook_url"], url)
		}
		if a.Annotations["summary"] == "" || !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) {
			t.Errorf("%s: %v, %v", a.Alert, a.Labels, a.Annotations)
		}
	}
	if !slices.Equal(sections, named) {
		t.Errorf("the sections are\n%q\nand the alerts\n%q", sections, named)
	}
	for _, m := range regexp.MustCompile(`\]\(#(\w+)\)`).FindAllSubmatch(page, -1) {
		if !slices.ContainsFunc(sections, func(s string) bool { return strings.ToLower(s) == string(m[1]) }) {
			t.Errorf("there is no section %s", m[1])
		}
	}
}

// dashboard are the expressions of docs/grafana/epdns.json, by the titles of their panels.
func dashboard(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("docs/grafana/epdns.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	out, ids := map[string][]string{}, map[int]bool{}
	for i, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || out[p.Title] != nil {
			t.Errorf("panel %d %q: its number or title is another one's", p.ID, p.Title)
		}
		ids[p.ID] = true
		at := p.GridPos
		if at.X+at.W > 24 {
			t.Errorf("%s reaches beyond the page", p.Title)
		}
		for _, q := range board.Panels[:i] {
			if b := q.GridPos; at.X < b.X+b.W && b.X < at.X+at.W && at.Y < b.Y+b.H && b.Y < at.Y+at.H {
				t.Errorf("%s lies over %s", p.Title, q.Title)
			}
		}
		for _, target := range p.Targets {
			out[p.Title] = append(out[p.Title], target.Expr)
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s shows nothing", p.Title)
		}
	}
	return out
}

// A metric in an expression of PromQL, and what it is selected by.
var selector = regexp.MustCompile(`\b((?:epdns|rest_client|go|process)_\w+)(?:\{([^}]*)\})?`)

// matchedLabel is a label in such a selection.
var matchedLabel = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)`)

// Whatever alerts and the dashboard ask for, a server that watches a cluster has. Labels
// that Prometheus adds are job and instance.
func TestMetricsOfAlertsAndDashboard(t *testing.T) {
	api := newFakeAPI(t, false)
	p := serve(t, "--kubeconfig", api.kubeconfig)
	for _, q := range []question{ask("nope.shop.registry.local.", dns.TypeA), ask("nope.shop.registry.local.", dns.TypeA).overTCP()} {
		if _, err := q.send(p.dns.Port()); err != nil {
			t.Fatal(err)
		}
	}
	have := p.metrics(t)
	used := map[string]bool{}
	check := func(where, expr string) {
		t.Helper()
		for _, m := range selector.FindAllStringSubmatch(expr, -1) {
			name := m[1]
			used[name] = true
			family := have[name]
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				if of := have[strings.TrimSuffix(name, part)]; family == nil && of != nil && of.GetType() == dto.MetricType_HISTOGRAM {
					family = of
				}
			}
			if family == nil {
				t.Errorf("%s: there is no metric %s", where, name)
				continue
			}
			labels := map[string]bool{"job": true, "instance": true}
			for _, l := range family.GetMetric()[0].GetLabel() {
				labels[l.GetName()] = true
			}
			for _, l := range matchedLabel.FindAllStringSubmatch(m[2], -1) {
				if !labels[l[1]] {
					t.Errorf("%s: %s has no label %s", where, name, l[1])
				}
			}
		}
	}
	for _, a := range alerts(t) {
		check(a.Alert, a.Expr)
	}
	panels := dashboard(t)
	for _, title := range slices.Sorted(maps.Keys(panels)) {
		for _, expr := range panels[title] {
			check(title, expr)
		}
	}
	if len(used) < 20 {
		t.Errorf("only %d metrics are used: %v", len(used), used)
	}
	runbook, err := os.ReadFile("docs/runbook.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`[^`]*`").FindAllString(string(runbook), -1) {
		check("docs/runbook.md", onlyOurs(m))
	}
}

// onlyOurs is what a page has in code, if it is about a metric of epdns and no other program's.
func onlyOurs(code string) string {
	if !strings.Contains(code, "epdns_") || strings.Contains(code, "|") {
		return ""
	}
	return code
}

// While the API server is away, answers stay and say that they may be old: to who knows EDNS,
// in metrics and in explanations. Probes, TTLs and records are as ever. Then it is over.
func TestStaleAnswers(t *testing.T) {
	api := newFakeAPI(t, false)
	api.put("web", "10.0.0.1")
	config := t.TempDir() + "/epdns.yaml"
	replaceFile(t, config, "apiVersion: epdns/v1alpha1\nkind: Config\nstaleAfter: 0.5\n")
	p := serve(t, "--kubeconfig", api.kubeconfig, "--config", config)
	answers := func(web, nope string) error {
		for name, want := range map[string]string{"web": web, "nope": nope} {
			got, err := p.address(name)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasPrefix(got, strings.Fields(want)[0]) {
				t.Fatalf("%s is answered %q, whatever its mark", name, got)
			}
			if got != want {
				return fmt.Errorf("%s is answered %q, want %q", name, got, want)
			}
			q := ask(name+".shop."+zone, dns.TypeA)
			q.noedns = true
			if r, err := q.send(p.dns.Port()); err != nil || r.opt != nil {
				t.Fatalf("%v: %+v, %v", q, r, err)
			}
		}
		return nil
	}
	fresh := func() error { return answers("10.0.0.1", "NXDOMAIN") }
	stale := func() error { return answers("10.0.0.1 ede=3", "NXDOMAIN ede=19") } // RFC 8914 sections 4.4, 4.20
	if err := fresh(); err != nil {
		t.Fatal(err)
	}

	api.shut(true)
	eventually(t, stale)
	p.logged(t, "answers are stale from now on")
	if code, body := p.get(t, "/readyz"); code != 200 {
		t.Errorf("/readyz: %d %s", code, body)
	}
	m := p.metrics(t)
	if stale, age := metric(m, "epdns_stale"), metric(m, "epdns_answers_age_seconds"); stale != 1 || age < 0.5 || age > grace.Seconds() {
		t.Errorf("epdns_stale %v, epdns_answers_age_seconds %v", stale, age)
	}
	stdout, stderr, code := once(t, environment(), "explain", "web.shop.registry.local", "--server", p.http)
	if !strings.Contains(stdout, "stale: this is as of ") || code != 0 {
		t.Errorf("the explanation is\n%s%s", stdout, stderr)
	}

	if err := api.open(); err != nil {
		t.Fatal(err)
	}
	eventually(t, fresh)
	p.logged(t, "answers are up to date again")
	if m := p.metrics(t); metric(m, "epdns_stale") != 0 || metric(m, "epdns_answers_age_seconds") != 0 || metric(m, "epdns_watch_restarts_total", "kind", "EndpointSlice") < 1 {
		t.Errorf("epdns_stale %v, epdns_answers_age_seconds %v, epdns_watch_restarts_total %v", metric(m, "epdns_stale"), metric(m, "epdns_answers_age_seconds"), metric(m, "epdns_watch_restarts_total"))
	}
}
