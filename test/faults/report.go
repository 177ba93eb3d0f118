//go:build linux

package faults

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Result is what came of a trial.
type Result struct {
	Name, Title string
	Checks      []Check
	Notes       []string
	Asked       int
	Wrong       int
	P50, P99    time.Duration // of replies

	// Seen50 and Seen99 are from the API server's acknowledgement of a change to an answer with
	// it, while nothing is broken; 0 where there was no such time.
	Seen50, Seen99 time.Duration

	Use  Use
	Took time.Duration
}

// Check is one thing that must hold.
type Check struct {
	What, Seen string
	Holds      bool
}

// Use is what epdns has taken of the machine.
type Use struct {
	Memory      float64 // octets resident, at most
	Descriptors int     // at most
	Goroutines  int     // at most
	CPU         float64 // processors, on average
}

// Holds says whether all does.
func (r *Result) Holds() bool {
	for _, c := range r.Checks {
		if !c.Holds {
			return false
		}
	}
	return len(r.Checks) > 0
}

// Failures are the checks that do not hold, for a person.
func (r *Result) Failures() []string {
	var out []string
	for _, c := range r.Checks {
		if !c.Holds {
			out = append(out, fmt.Sprintf("%s: %s", c.What, c.Seen))
		}
	}
	return out
}

// Markdown is a table of results.
func Markdown(results []*Result) string {
	var b bytes.Buffer
	fmt.Fprintln(&b, "| fault | asked for | measured | |")
	fmt.Fprintln(&b, "|---|---|---|---|")
	for _, r := range results {
		var what, seen []string
		for _, c := range r.Checks {
			w := c.What
			if !c.Holds {
				w = "**" + w + "**"
			}
			what = append(what, w)
			seen = append(seen, c.Seen)
		}
		verdict := "holds"
		if !r.Holds() {
			verdict = "does not hold"
		}
		fmt.Fprintf(&b, "| `%s`: %s | %s | %s | %s |\n", r.Name, r.Title, strings.Join(what, "<br>"), strings.Join(append(seen, r.Notes...), "<br>"), verdict)
	}
	fmt.Fprintln(&b, "\n| fault | questions | reply, median | 99 % | change seen, median | 99 % | memory, MB | goroutines | descriptors | processors |")
	fmt.Fprintln(&b, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
	for _, r := range results {
		if r.Asked == 0 {
			continue
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s | %.0f | %d | %d | %.2f |\n", r.Name, thousands(r.Asked), brief(r.P50), brief(r.P99), orDash(r.Seen50), orDash(r.Seen99),
			r.Use.Memory/1e6, r.Use.Goroutines, r.Use.Descriptors, r.Use.CPU)
	}
	return b.String()
}

// brief is a time with as many digits as matter.
func brief(d time.Duration) string {
	switch {
	case d == 0:
		return "0"
	case d >= 10*time.Second:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d >= time.Second:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
	case d >= time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.2g ms", float64(d)/float64(time.Millisecond))
	}
}

// orDash is brief where there is something.
func orDash(d time.Duration) string {
	if d == 0 {
		return "–"
	}
	return brief(d)
}

// thousands is a number with commas.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
