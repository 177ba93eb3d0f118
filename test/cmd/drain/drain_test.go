package main

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The failing share behind two proxies goes from a half over a quarter to none, each time when
// one of them writes its rules.
func TestProxied(t *testing.T) {
	phase := time.Now()
	at := func(ms int) time.Time { return phase.Add(time.Duration(ms) * time.Millisecond) }
	n := &node{seen: map[string][]version{"web": {
		{at(-5000), []string{"old", "new"}},
		{at(300), []string{"new"}},
	}}}
	second := phase.Add(syncPeriod / 2)
	for _, test := range []struct {
		ms, first, second int // how many addresses each has
	}{
		{-600, 2, 2}, {0, 2, 2}, {299, 2, 2}, {301, 2, 2}, {499, 2, 2}, {500, 2, 1}, {999, 2, 1}, {1000, 1, 1}, {7500, 1, 1},
	} {
		for i, want := range []int{test.first, test.second} {
			got, err := n.rules("web", at(test.ms), []time.Time{phase, second}[i])
			if err != nil || len(got) != want {
				t.Errorf("%d ms: proxy %d has %q (%v), want %d addresses", test.ms, i+1, got, err, want)
			}
		}
	}
	if _, err := n.rules("other", phase, phase); err == nil {
		t.Error("a Service that was never seen has rules")
	}
}

// Ages are spread evenly, and no change comes before what is cached for it could be.
func TestAge(t *testing.T) {
	var ages []float64
	for i := range 4 {
		ages = append(ages, age(i, 4))
		if first := change(i, 4, 30*time.Second) - time.Duration(age(i, 4)*float64(30*time.Second)); first < 0 {
			t.Errorf("repetition %d begins %v too early", i, -first)
		}
	}
	if want := []float64{0.875, 0.625, 0.375, 0.125}; !slices.Equal(ages, want) {
		t.Errorf("ages %v, want %v", ages, want)
	}
}

// example is the result of two repetitions with a request each 500 ms.
func example() *result {
	r := &result{way: &way{name: "a <way>", server: byEpdns}}
	now := time.Now()
	at := func(ms int, old bool) request { return request{now.Add(time.Duration(ms) * time.Millisecond), old} }
	r.add(series{requests: []request{at(-500, true), at(0, true), at(500, false), at(1000, true), at(1500, false), at(6000, false)}, dropped: 3}, now)
	r.add(series{requests: []request{at(-500, false), at(0, false), at(500, false)}}, now)
	return r
}

func TestResult(t *testing.T) {
	r := example()
	if r.median() != 500*time.Millisecond || r.max() != time.Second {
		t.Errorf("the last failing request came after %v (median), %v (max)", r.median(), r.max())
	}
	if r.all != (count{7, 2}) || r.soon != (count{6, 2}) || r.until != (count{3, 2}) {
		t.Errorf("all %v, soon %v, until the last %v", r.all, r.soon, r.until)
	}
	var b strings.Builder
	writeTable(&b, []*result{r})
	if want := "| a <way> | 0.50 s | 1.00 s | 67 % | 33 % | 2 of 7 |\n"; !strings.HasSuffix(b.String(), want) {
		t.Errorf("the table is\n%s\nand should end with\n%s", &b, want)
	}
	if want := "way,seconds,requests,failed\na <way>,0.0,2,1\na <way>,0.1,0,0\n"; !strings.HasPrefix(string(stepsCSV([]*result{r})), want) {
		t.Errorf("the CSV does not begin with\n%s", want)
	}
}

// The report says what is missing in it, and is silent if nothing is.
func TestDropped(t *testing.T) {
	const period = 10 * time.Millisecond
	for _, test := range []struct {
		sent int
		took time.Duration
		want int
	}{
		{1100, 11 * time.Second, 0},
		{1100, 11*time.Second + period/2, 0},
		{1101, 11 * time.Second, 0}, // the clock is not the ticker's
		{1090, 11 * time.Second, 10},
		{0, 0, 0},
	} {
		if got := dropped(test.sent, test.took, period); got != test.want {
			t.Errorf("%d sent in %v: %d dropped, want %d", test.sent, test.took, got, test.want)
		}
	}
	var b strings.Builder
	writeDropped(&b, []*result{example(), {way: &way{name: "steady"}}})
	if want := "Warning: a <way>: 3 requests were due and not sent, since the client or the machine was too slow.\n"; b.String() != want {
		t.Errorf("%q, want %q", &b, want)
	}
}

// A client that waits for an answer longer than a period tells how many requests that cost.
func TestSendDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowClient{}
		w := &way{open: func(*service, time.Time, float64) (client, error) { return slow, nil }}
		sent, err := w.send(t.Context(), &service{}, time.Now().Add(2*warmUp), 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		// The second request takes 95 ms, in which nine more are due; the ticker keeps one.
		if sent.dropped != 8 {
			t.Errorf("%d of %d requests are said to be dropped, want 8", sent.dropped, len(sent.requests)+sent.dropped)
		}
	})
}

// slowClient is slow once.
type slowClient struct{ asked int }

func (c *slowClient) addresses() ([]string, error) {
	if c.asked++; c.asked == 3 { // the first is before the requests
		time.Sleep(95 * time.Millisecond)
	}
	return []string{"old", "new"}, nil
}

func (c *slowClient) close() {}

func TestUsage(t *testing.T) {
	command.TestUsage(t, map[string]string{
		"now":               `no argument is expected: "now"`,
		"--repetition 3":    "flag provided but not defined: -repetition",
		"--rate fast":       `invalid value "fast" for flag -rate: parse error`,
		"--rate 0":          "--rate 0 is not between 1 and 1000",
		"--rate 1001":       "--rate 1001 is not between 1 and 1000",
		"--repetitions 0":   "--repetitions 0 is not between 1 and 100",
		"--repetitions 101": "--repetitions 101 is not between 1 and 100",
		"--every -1s":       "--every -1s is negative",
	}, "--rate 3 -h")
}

func TestChartIsXML(t *testing.T) {
	d := xml.NewDecoder(strings.NewReader(string(chart([]*result{example()}))))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
