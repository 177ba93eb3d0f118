//go:build linux

package bench

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// verdict is what became of a statement that is to be shown.
type verdict struct {
	statement string
	measured  string // empty if it was not
	holds     bool
}

// writeVerdicts writes those that were measured, if there are any.
func writeVerdicts(b *bytes.Buffer, list []verdict) {
	list = slices.DeleteFunc(list, func(v verdict) bool { return v.measured == "" })
	if len(list) == 0 {
		return
	}
	b.WriteString("### Verdicts\n\n| what is to be shown | measured | |\n|---|---|---|\n")
	for _, v := range list {
		says := "does not hold"
		if v.holds {
			says = "holds"
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", v.statement, v.measured, says)
	}
	b.WriteByte('\n')
}

// The questions whose verdicts are asked for: over UDP, where all replies but the echo's have the
// same records, whole.
var judged = []string{"A10", "SRV10"}

// verdicts are those of the comparison. Ratios are medians of the ratios of each round.
func (c *Comparison) verdicts() (list []verdict) {
	for _, name := range judged {
		i := slices.IndexFunc(c.questions, func(q *question) bool { return q.name == name })
		if i < 0 {
			continue
		}
		what := c.questions[i].title
		// against is epdns by another, and how to write it; 0 if one of them was not measured.
		against := func(other string, of func(sample) float64, as string) (float64, string) {
			ours, theirs := key{epdns, name, false}, key{other, name, false}
			r := median(ratios(c.values(ours, of), c.values(theirs, of)))
			if r == 0 {
				return 0, ""
			}
			text := fmt.Sprintf(as, rounded(r))
			if as == times {
				text += c.mark(ours)
				if mark := c.mark(theirs); mark != c.mark(ours) {
					text += mark
				}
			}
			return r, text
		}
		toKnot, knotText := against(knot, cpu, "%s of Knot's")
		toEcho, echoText := against(floor, cpu, "%s of the echo's")
		list = append(list, verdict{
			what + ": processor time of a query at most 0.75 of Knot's or 1.25 of the echo's",
			joined(knotText, echoText), toKnot > 0 && toKnot <= 0.75 || toEcho > 0 && toEcho <= 1.25,
		})
		for _, v := range []struct {
			other, statement string
			least            float64
		}{
			{knot, "at least 1.75 times Knot's", 1.75},
			{floor, "at least 0.9 of the echo's", 0.9},
			{coreDNS, "at least 10 times those of CoreDNS without cache", 10},
			{coreDNSKept, "at least 5 times those of CoreDNS with cache", 5},
		} {
			r, text := against(v.other, rate, times)
			list = append(list, verdict{what + ": answers a second " + v.statement, text, r >= v.least})
		}
	}
	return list
}

// verdicts are those of the growth.
func (g *Growth) verdicts() (list []verdict) {
	// find is what a server did, if it came to the end.
	find := func(level, server string) *growth {
		for _, r := range g.all {
			if r.level.name == level && r.server == server && r.failed == nil {
				return r
			}
		}
		return nil
	}
	for _, r := range g.all {
		if r.server == epdns && r.failed != nil {
			list = append(list, verdict{fmt.Sprintf("%s endpoints and %s Services: epdns serves them", thousands(r.level.endpoints()), thousands(r.level.services)), "it did not get to the end", false})
		}
	}
	const large, largest = "100000", "1000000"
	if r := find(largest, epdns); r != nil {
		const most = 1.3
		list = append(list,
			verdict{"1,000,000 endpoints: processor time of a query at most 1.3 times that at 100",
				fmt.Sprintf("%s times for a Service, %s for an endpoint", rounded(r.service.times), rounded(r.endpoint.times)),
				r.service.times <= most && r.endpoint.times <= most},
			verdict{"1,000,000 endpoints: under 700 MB resident", megabytes(r), r.residual*mebi < 700})
	}
	if r := find(large, epdns); r != nil {
		list = append(list, verdict{"100,000 endpoints: under 90 MB resident", megabytes(r), r.residual*mebi < 90})
		if other := find(large, coreDNS); other != nil {
			list = append(list, verdict{"100,000 endpoints: ready sooner than CoreDNS",
				fmt.Sprintf("%s s, %s s", rounded(r.ready.Seconds()), rounded(other.ready.Seconds())), r.ready < other.ready})
		}
	}
	for _, level := range levels {
		r, other := find(level.name, epdns), find(level.name, coreDNS)
		if r == nil || level.one() {
			continue
		}
		const most = 5 // milliseconds
		ours, ok := r.late(atRate, 0.99)
		never, _ := r.never(atRate)
		if !ok && never == 0 {
			continue
		}
		v := verdict{
			fmt.Sprintf("%s endpoints, %d changes a second: 99 %% are answered within %d ms of the acknowledgement", thousands(level.endpoints()), changeRates[atRate], most),
			fmt.Sprintf("%.2f ms", ours), never == 0 && ours < most,
		}
		if other != nil {
			theirs, _ := other.late(atRate, 0.99)
			never, _ := other.never(atRate)
			v.statement += ", sooner than by CoreDNS"
			v.measured += fmt.Sprintf(", CoreDNS %.2f ms", theirs)
			v.holds = v.holds && (ours < theirs || never > 0)
		}
		list = append(list, v)
	}
	return list
}

// mebi is how many MB (1,000,000 octets) a MiB has.
const mebi = 1 << 20 / 1e6

func megabytes(r *growth) string {
	return fmt.Sprintf("%s MB, %s when ready", rounded(r.residual*mebi), rounded(r.resident*mebi))
}

const times = "%s times"

func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}
