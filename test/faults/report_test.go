//go:build linux

package faults

import (
	"maps"
	"strings"
	"testing"
	"time"
)

func TestBrief(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0", 1500 * time.Nanosecond: "0.0015 ms", 130 * time.Microsecond: "0.13 ms", 83 * time.Millisecond: "83 ms",
		time.Second: "1 s", 1260 * time.Millisecond: "1.3 s", 12700 * time.Millisecond: "13 s",
	} {
		if got := brief(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

// A name is the sum over its labels; with labels it is that one.
func TestParseMetrics(t *testing.T) {
	const page = `# HELP a_total Some.
# TYPE a_total counter
a_total{kind="x",namespace=""} 3
a_total{kind="y z",namespace=""} 4
b 1.5e+06
`
	got, err := parseMetrics(page)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"a_total": 7, `a_total{kind="x",namespace=""}`: 3, `a_total{kind="y z",namespace=""}`: 4, "b": 1.5e6}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, err := parseMetrics("c much\n"); err == nil || !strings.Contains(err.Error(), "c much") {
		t.Errorf("%v", err)
	}
}

// What does not hold is marked, and a trial in which nothing was looked at does not hold.
func TestMarkdown(t *testing.T) {
	good := &Result{Name: "good", Title: "nothing", Checks: []Check{{"all answered", "2 of 2", true}}, Notes: []string{"a note"}, Asked: 2, P50: time.Millisecond}
	bad := &Result{Name: "bad", Title: "much", Checks: []Check{{"all answered", "1 of 2", false}, {"none wrong", "0", true}}}
	text := Markdown([]*Result{good, bad})
	for _, line := range []string{
		"| `good`: nothing | all answered | 2 of 2<br>a note | holds |\n",
		"| `bad`: much | **all answered**<br>none wrong | 1 of 2<br>0 | does not hold |\n",
		"| `good` | 2 | 1 ms | 0 | – | – | 0 | 0 | 0 | 0.00 |\n",
	} {
		if !strings.Contains(text, line) {
			t.Errorf("there is no %q in\n%s", line, text)
		}
	}
	if strings.Contains(text, "| `bad` |") {
		t.Errorf("figures of what was not asked:\n%s", text)
	}
	if f := bad.Failures(); len(f) != 1 || f[0] != "all answered: 1 of 2" {
		t.Errorf("%q", f)
	}
	if new(Result).Holds() {
		t.Error("nothing holds")
	}
}

// How long answers were wrong, late and missing.
func TestJudge(t *testing.T) {
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	o := newOracle(nil)
	for s := range 40 {
		// The Service is there until second 20.
		now := map[string]*state{"web": {exists: s < 20}}
		o.services.note(now, at(float64(s)), at(float64(s)+.01))
		o.slices.note(map[string]*state{"web": {}}, at(float64(s)), at(float64(s)+.01))
	}
	give := func(s float64, what outcome) answer {
		return answer{service: "web", ipv4: true, at: at(s), took: time.Millisecond, outcome: what}
	}
	all := []answer{
		give(5, answered), give(6, silence), give(7, nxdomain), give(7.05, nxdomain), // two of one time
		give(23, answered), give(24, answered), give(25.5, answered), // of which two are in the cut
		give(26, nxdomain), give(30, nxdomain), give(31, servfail),
	}
	tr := &trial{Lab: &Lab{progress: t.Output()}, oracle: o, cuts: []cut{{at(15), at(25)}}, excuse: []span{{after: at(50), until: at(51)}}}
	j := tr.judge(all, time.Second, at(29))
	if j.asked != 10 || j.silent != 1 || j.wrong != 3 || j.stale != 3 || j.resting != 2 || j.restingWrong != 1 {
		t.Errorf("%+v", j)
	}
	if j.wrongFor != 250*time.Millisecond {
		t.Errorf("wrong for %v", j.wrongFor)
	}
	if j.recovered != 500*time.Millisecond {
		t.Errorf("right again after %v", j.recovered)
	}
	// What was missing may be excused, and SERVFAIL where nothing is known.
	tr.excuse, tr.waiting = []span{{after: at(5.5), until: at(6.5)}}, []span{{after: at(31), until: at(32)}}
	if j := tr.judge(all, time.Second, at(29)); j.silent != 0 || j.retry != 1 || j.wrong != 2 {
		t.Errorf("%+v", j)
	}
}
