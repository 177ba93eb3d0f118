package main

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

const (
	// step is how fine a result is kept: some requests of each repetition.
	step = 100 * time.Millisecond

	// soon is the time right after the change that the table looks at.
	soon = 5 * time.Second
)

// result is what the clients of one way met, in all repetitions. Time begins when the API server
// has acknowledged that the pod is not ready; a request fails if it goes to that pod later.
type result struct {
	way   *way
	last  []time.Duration // time to the last failing request of each repetition; 0 if none failed
	until count           // up to that
	soon  count
	all   count
	steps []count

	dropped int // requests
}

type count struct{ requests, failed int }

func (c *count) add(failed bool) {
	c.requests++
	if failed {
		c.failed++
	}
}

func (c count) share() float64 { return float64(c.failed) / float64(max(1, c.requests)) }

// add adds one repetition.
func (r *result) add(sent series, acknowledged time.Time) {
	r.dropped += sent.dropped
	var last time.Duration
	var passed, until count
	for _, q := range sent.requests {
		since := q.at.Sub(acknowledged)
		if since < 0 {
			continue
		}
		r.all.add(q.old)
		if since < soon {
			r.soon.add(q.old)
		}
		i := int(since / step)
		for len(r.steps) <= i {
			r.steps = append(r.steps, count{})
		}
		r.steps[i].add(q.old)
		if passed.add(q.old); q.old {
			last, until = since, passed
		}
	}
	r.last = append(r.last, last)
	r.until.requests += until.requests
	r.until.failed += until.failed
}

func (r *result) median() time.Duration {
	s := slices.Sorted(slices.Values(r.last))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

func (r *result) max() time.Duration { return slices.Max(r.last) }

func writeTable(w io.Writer, results []*result) {
	fmt.Fprintln(w, "| way | last failing request: median | max | failing until then | failing in the first 5 s | failed, of all |")
	fmt.Fprintln(w, "|---|---:|---:|---:|---:|---:|")
	for _, r := range results {
		until := "–" // of so few requests it would say nothing
		if r.max() >= step {
			until = percent(r.until.share())
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %d of %d |\n", r.way.name, seconds(r.median()), seconds(r.max()),
			until, percent(r.soon.share()), r.all.failed, r.all.requests)
	}
}

// writeDropped warns of clients that were slower than the table says.
func writeDropped(w io.Writer, results []*result) {
	for _, r := range results {
		if r.dropped > 0 {
			fmt.Fprintf(w, "Warning: %s: %d requests were due and not sent, since the client or the machine was too slow.\n", r.way.name, r.dropped)
		}
	}
}

// seconds has no more digits than the steady rate of requests can tell.
func seconds(d time.Duration) string {
	switch {
	case d == 0:
		return "none"
	case d < step:
		return fmt.Sprintf("%d ms", max(1, d.Milliseconds()))
	case d < soon:
		return fmt.Sprintf("%.2f s", d.Seconds())
	default:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
}

func percent(share float64) string {
	if share > 0 && share < 0.01 {
		return fmt.Sprintf("%.2f %%", 100*share)
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}

// stepsCSV has a line for each way and step.
func stepsCSV(results []*result) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.Write([]string{"way", "seconds", "requests", "failed"})
	for _, r := range results {
		for i, c := range r.steps {
			w.Write([]string{r.way.name, fmt.Sprintf("%.1f", (time.Duration(i) * step).Seconds()),
				strconv.Itoa(c.requests), strconv.Itoa(c.failed)})
		}
	}
	w.Flush() // a bytes.Buffer takes everything
	return b.Bytes()
}
