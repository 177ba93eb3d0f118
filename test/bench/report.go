//go:build linux

package bench

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"epdns/test/bench/plot"
)

// looks are how the servers are drawn.
var looks = map[string]plot.Series{
	floor:       {Colour: "#808894", Mark: plot.Bar},
	epdns:       {Colour: "#3b82f6", Mark: plot.Circle},
	knot:        {Colour: "#22a35a", Mark: plot.Square},
	nsd:         {Colour: "#a855f7", Mark: plot.Diamond},
	bind:        {Colour: "#b8860b", Mark: plot.Triangle},
	coreDNS:     {Colour: "#e0524d", Mark: plot.Square},
	coreDNSKept: {Colour: "#e07b00", Mark: plot.Diamond},
}

// look is how a server is drawn, with its name.
func look(name string) plot.Series {
	s := looks[name]
	s.Name = titles[name]
	return s
}

// table writes a table of Markdown. The first column is text, the others are numbers.
func table(b *bytes.Buffer, rows [][]string) {
	for i, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|---|%s\n", strings.Repeat("---:|", len(row)-1))
		}
	}
	b.WriteByte('\n')
}

// rounded has three digits that count, and a comma for each thousand.
func rounded(v float64) string {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return "–"
	}
	if v < 100 {
		digits := 2 - int(math.Floor(math.Log10(v)))
		return strconv.FormatFloat(v, 'f', min(max(digits, 0), 3), 64)
	}
	unit := math.Pow(10, math.Floor(math.Log10(v))-2)
	return thousands(int(math.Round(v/unit) * unit))
}

// thousands has a comma for each thousand.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// values are one figure of all rounds.
func (c *Comparison) values(k key, of func(sample) float64) (out []float64) {
	for _, s := range c.samples[k] {
		out = append(out, of(s))
	}
	return out
}

func rate(s sample) float64   { return s.rate }
func cpu(s sample) float64    { return s.cpu }
func busy(s sample) float64   { return s.busy }
func others(s sample) float64 { return s.others }

// mark is empty where answers a second are all that the server can.
func (c *Comparison) mark(k key) string {
	switch {
	case len(c.samples[k]) == 0 || median(c.values(k, busy)) >= saturated:
		return ""
	case median(c.values(k, others)) > disturbed:
		return " ‡"
	default:
		return " †"
	}
}

const marks = `- †: the server was less than 95 % busy, so that it can more than was asked of it.
- ‡: so was it, since something else ran on one of the two processors.

`

// byQuestion writes a table with a row for each server and a column for each question.
func (c *Comparison) byQuestion(b *bytes.Buffer, title string, tcp bool, cell func(k key) string) {
	head := []string{title}
	for _, q := range c.questions {
		head = append(head, q.title)
	}
	rows := [][]string{head}
	for _, s := range c.servers {
		row := []string{titles[s]}
		for _, q := range c.questions {
			row = append(row, cell(key{s, q.name, tcp}))
		}
		rows = append(rows, row)
	}
	table(b, rows)
}

// Markdown is the result as text.
func (c *Comparison) Markdown() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s; %s. %d Services with 10 endpoints, %d with 100; EDNS with %d octets. Medians of %d rounds of %gs a figure.\n\n",
		c.Machine, strings.Join(c.Versions, ", "), c.options.Services, min(c.options.Services, wideServices), ednsSize, c.options.Rounds, c.options.Seconds)
	writeVerdicts(&b, c.verdicts())
	for _, tcp := range c.tcp {
		fmt.Fprintf(&b, "### Over %s\n\n", key{tcp: tcp}.transport())
		c.byQuestion(&b, "processor time, µs a query", tcp, func(k key) string { return rounded(median(c.values(k, cpu))) })
		c.byQuestion(&b, "answers a second", tcp, func(k key) string { return rounded(median(c.values(k, rate))) + c.mark(k) })
		c.byQuestion(&b, "of its processor used meanwhile, %", tcp, func(k key) string {
			return fmt.Sprintf("%.0f", 100*median(c.values(k, busy)))
		})
		c.byQuestion(&b, "latency, µs: median / 90 % / 99 %", tcp, func(k key) string {
			var cells []string
			for _, of := range []func(sample) float64{
				func(s sample) float64 { return s.p50 }, func(s sample) float64 { return s.p90 }, func(s sample) float64 { return s.p99 },
			} {
				cells = append(cells, rounded(median(c.values(k, of))))
			}
			return strings.Join(cells, " / ")
		})
		c.byQuestion(&b, "octets of a reply", tcp, func(k key) string {
			if s := c.sizes[k]; s[0] != s[1] {
				return fmt.Sprintf("%d–%d", s[0], s[1])
			}
			return strconv.Itoa(c.sizes[k][0])
		})
	}
	b.WriteString(marks)
	c.writeRatios(&b)
	rows := [][]string{{"resident memory, MiB", "before", "after"}}
	for _, s := range c.servers {
		rows = append(rows, []string{titles[s], rounded(c.resident[s][0]), rounded(c.resident[s][1])})
	}
	b.WriteString("### Memory\n\n")
	table(&b, rows)
	c.writeDnsperf(&b)
	c.writeDoubts(&b)
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// writeRatios writes how epdns does against each of the others.
func (c *Comparison) writeRatios(b *bytes.Buffer) {
	if !slices.Contains(c.servers, epdns) || len(c.servers) < 2 {
		return
	}
	b.WriteString("### epdns against each\n\nMedians of the ratios of each round.\n\n")
	var others []string
	for _, s := range c.servers {
		if s != epdns {
			others = append(others, s)
		}
	}
	for _, of := range []struct {
		title string
		value func(sample) float64
	}{{"processor time of epdns, as a part of", cpu}, {"answers a second of epdns, times those of", rate}} {
		head := []string{of.title}
		for _, s := range others {
			head = append(head, titles[s])
		}
		rows := [][]string{head}
		for _, tcp := range c.tcp {
			for _, q := range c.questions {
				row := []string{q.title + ", " + key{tcp: tcp}.transport()}
				ours := c.values(key{epdns, q.name, tcp}, of.value)
				for _, s := range others {
					row = append(row, rounded(median(ratios(ours, c.values(key{s, q.name, tcp}, of.value)))))
				}
				rows = append(rows, row)
			}
		}
		table(b, rows)
	}
}

// writeDnsperf writes what dnsperf saw, if it was there.
func (c *Comparison) writeDnsperf(b *bytes.Buffer) {
	var rows [][]string
	for _, s := range c.servers {
		row, some := []string{titles[s]}, false
		for _, q := range c.questions {
			k := key{s, q.name, false}
			seen := median(slices.DeleteFunc(c.values(k, func(s sample) float64 { return s.dnsperf }), func(v float64) bool { return v == 0 }))
			if some = some || seen > 0; seen > 0 {
				row = append(row, q.title, rounded(seen), rounded(median(c.values(k, rate))))
			}
		}
		for i := 1; some && i < len(row); i += 3 {
			rows = append(rows, append([]string{row[0]}, row[i:i+3]...))
		}
	}
	if rows != nil {
		b.WriteString("### dnsperf beside it\n\n")
		table(b, append([][]string{{"answers a second over UDP", "question", "dnsperf", "here"}}, rows...))
	}
}

// writeDoubts names what must be known of the figures.
func (c *Comparison) writeDoubts(b *bytes.Buffer) {
	if c.disturbances > 0 {
		fmt.Fprintf(b, "- Something else ran beside %d measurements.\n", c.disturbances)
	}
	for _, s := range c.servers {
		worst, where, wrong := 0.0, "", 0
		for _, q := range c.questions {
			for _, tcp := range c.tcp {
				k := key{s, q.name, tcp}
				if lost := median(c.values(k, func(s sample) float64 { return s.lost })); lost > worst {
					worst, where = lost, fmt.Sprintf("%s over %s", q.title, k.transport())
				}
				for _, s := range c.samples[k] {
					wrong += s.wrong
				}
			}
		}
		if worst >= 0.0005 {
			fmt.Fprintf(b, "- %s left up to %.2g %% of the queries without a reply (%s), for want of room in its socket.\n", titles[s], 100*worst, where)
		}
		if wrong > 0 {
			fmt.Fprintf(b, "- %s: %d replies were wrong.\n", titles[s], wrong)
		}
	}
}

// SVG is the result as a chart.
func (c *Comparison) SVG() []byte {
	d := plot.Dots{Title: "Processor time of a query, and answers a second, of DNS servers"}
	panels := []plot.DotPanel{{Title: "processor time, µs a query"}, {Title: "answers a second"}}
	for _, q := range c.questions {
		for _, tcp := range c.tcp {
			d.Rows = append(d.Rows, fmt.Sprintf("%s, %s", strings.Replace(q.title, " endpoints", "", 1), key{tcp: tcp}.transport()))
		}
	}
	for _, s := range c.servers {
		d.Series = append(d.Series, look(s))
		var values [2][]float64
		for _, q := range c.questions {
			for _, tcp := range c.tcp {
				k := key{s, q.name, tcp}
				values[0] = append(values[0], median(c.values(k, cpu)))
				values[1] = append(values[1], median(c.values(k, rate)))
			}
		}
		for i := range panels {
			panels[i].Values = append(panels[i].Values, values[i])
		}
	}
	d.Panels = panels
	return d.SVG()
}
