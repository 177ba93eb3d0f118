package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"epdns/zones"
)

// An explanation is printed for people, who read it from its start: the question, who
// asks, what is set, what was decided, what became of each endpoint. A part that has
// nothing to say is left out. The answer stands at the end as lookup prints it.

// explainWidth is where sentences are wrapped, or at the width of a terminal that has less.
// Tables are as wide as what they show; on a terminal that is too narrow for them, columns
// are left out.
const explainWidth = 100

func (x *explained) print(w io.Writer) error {
	p := newExplainPrinter(w)
	q := x.msg.Question[0]
	fmt.Fprintln(p, p.screen.paint(bold, fmt.Sprintf("%s %v over %s", q.Name, dns.Type(q.Qtype), strings.ToUpper(x.Transport))))
	if e := x.Explanation; e != nil {
		p.explanation(e, q.Qtype)
	} else {
		fmt.Fprintln(p, "This is answered without looking at what exists.")
	}
	p.title("ANSWER")
	appendReply(p.screen, &p.Buffer, x.msg)
	_, err := w.Write(p.Bytes())
	return err
}

// printEndpoints prints the endpoints alone, as a table.
func (x *explained) printEndpoints(w io.Writer) error {
	p := newExplainPrinter(w)
	if e := x.Explanation; e != nil && len(e.Endpoints) > 0 {
		p.endpoints(0, e.Endpoints)
	}
	_, err := w.Write(p.Bytes())
	return err
}

// explainPrinter is what has been printed of an explanation.
type explainPrinter struct {
	bytes.Buffer
	screen *screen
	width  int // of sentences
	room   int // for tables; 0 is as much as they take
}

func newExplainPrinter(w io.Writer) *explainPrinter {
	p := &explainPrinter{screen: onScreen(w), width: explainWidth}
	if p.room = p.screen.columns(); p.room > 0 {
		p.width = max(min(p.width, p.room), 20)
	}
	return p
}

// title begins a part.
func (p *explainPrinter) title(text string) {
	title, rest, _ := strings.Cut(text, ",")
	if rest != "" {
		rest = "," + rest
	}
	fmt.Fprintf(p, "\n%s%s\n", p.screen.paint(bold, title), rest)
}

func (p *explainPrinter) sentence(lead string, with style, text string) {
	wrap(&p.Buffer, lead, text, p.width, func(line string) string { return p.screen.paint(with, line) })
}

func (p *explainPrinter) explanation(e *zones.Explanation, qtype uint16) {
	switch {
	case e.Service != "":
		fmt.Fprintf(p, "Service %s in zone %s, serial %d\n", e.Service, e.Zone, e.Serial)
	case e.Zone != "":
		fmt.Fprintf(p, "zone %s, serial %d\n", e.Zone, e.Serial)
	}

	p.title("WHO ASKS")
	p.sentence("  ", unstyled, e.Asker.Who())
	p.sentence("  ", unstyled, e.Asker.How)
	if e.Asker.Scope > 0 {
		fmt.Fprintf(p, "  the answer is good for /%d of the subnet\n", e.Asker.Scope)
	}

	if len(e.Knobs) > 0 {
		p.knobs(e.Knobs)
	}
	if len(e.Problems) > 0 {
		p.title("ANNOTATIONS THAT DO NOTHING")
		for _, problem := range e.Problems {
			p.sentence("  ", yellow, problem)
		}
	}
	if len(e.Slices) > 0 {
		p.title("SLICES")
		var rows [][]painted
		for _, s := range e.Slices {
			rows = append(rows, plainCells(s.Name, fmt.Sprintf("%s, %d ready", counted(s.Endpoints, "endpoint"), s.Ready), strings.Join(s.Ports, " ")))
		}
		p.screen.printTable(&p.Buffer, 2, nil, rows, p.room)
	}

	p.title("DECISIONS")
	for i, step := range e.Steps {
		p.sentence(fmt.Sprintf("  %d. ", i+1), unstyled, step)
	}
	if e.Records > bindMax {
		p.sentence("  warning: ", yellow, tooManyText(e.Records, qtype)+"; the knob limit makes it fewer")
	}
	if len(e.Tiers) > 0 {
		p.title("TIERS")
		var rows [][]painted
		for _, tier := range e.Tiers {
			rows = append(rows, plainCells(tier.Tier, fmt.Sprint(tier.Endpoints), fmt.Sprint(tier.Answered)))
		}
		p.screen.printTable(&p.Buffer, 2, []string{"TIER", "ENDPOINTS", "ANSWERED"}, rows, p.room)
	}
	if len(e.Endpoints) > 0 {
		p.title("ENDPOINTS")
		p.endpoints(2, e.Endpoints)
	}
}

func (p *explainPrinter) knobs(knobs []zones.ExplainedKnob) {
	var rows [][]painted
	for _, k := range knobs {
		if k.IsSet() {
			rows = append(rows, plainCells(k.Knob, strings.Join(strings.Fields(k.Value), " "), k.From))
		}
	}
	if len(rows) == 0 {
		p.title("KNOBS")
		fmt.Fprintln(p, "  all have their defaults")
		return
	}
	p.title("KNOBS, where they are not at their defaults")
	p.screen.printTable(&p.Buffer, 2, nil, rows, p.room)
}

// maxLeftOut is how many endpoints are shown that are not answered; JSON has all.
const maxLeftOut = 100

// column is a part of what is known of endpoints. One in which all is the same as if
// nothing was known is not shown.
type column struct {
	head, plain string
	of          func(*zones.ExplainedEndpoint) string

	// without is how soon it is left out on a terminal that is too narrow: 1 is first, 0
	// never.
	without int
}

var endpointColumns = []column{
	{"SERVICE", "", func(e *zones.ExplainedEndpoint) string { return e.Service }, 0},
	{"ADDRESS", "", func(e *zones.ExplainedEndpoint) string { return e.Address }, 0},
	{"NAME", "", func(e *zones.ExplainedEndpoint) string { return cmp.Or(e.Pod, e.Name) }, 4},
	{"NODE", "", func(e *zones.ExplainedEndpoint) string { return e.Node }, 2},
	{"ZONE", "", func(e *zones.ExplainedEndpoint) string { return e.Zone }, 3},
	{"REGION", "", func(e *zones.ExplainedEndpoint) string { return e.Region }, 1},
	{"CONDITIONS", "", func(e *zones.ExplainedEndpoint) string { return e.Conditions }, 5},
	{"WEIGHT", "1", func(e *zones.ExplainedEndpoint) string { return fmt.Sprint(e.Weight) }, 0},
	{"TIER", "all", func(e *zones.ExplainedEndpoint) string { return e.Tier }, 6},
}

func (p *explainPrinter) endpoints(indent int, eps []zones.ExplainedEndpoint) {
	shown := min(len(eps), answeredOf(eps)+maxLeftOut)
	columns := slices.Clone(endpointColumns)
	if p.screen.wide {
		shown = len(eps)
	} else {
		columns = slices.DeleteFunc(columns, func(c column) bool {
			return !slices.ContainsFunc(eps[:shown], func(e zones.ExplainedEndpoint) bool {
				text := c.of(&e)
				return text != "" && text != c.plain
			})
		})
	}
	for p.room > 0 && len(columns) > 0 && indent+endpointsWidth(columns, eps[:shown]) > p.room {
		first := -1
		for i, c := range columns {
			if c.without > 0 && (first < 0 || c.without < columns[first].without) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		columns = slices.Delete(columns, first, first+1)
	}
	header := []string{"#"}
	for _, c := range columns {
		header = append(header, c.head)
	}
	header = append(header, "OUTCOME")
	var rows [][]painted
	for i := range eps[:shown] {
		number, outcome := "-", yellow
		if eps[i].Answered {
			number, outcome = fmt.Sprint(i+1), green
		}
		row := plainCells(number)
		for _, c := range columns {
			row = append(row, painted{cmp.Or(c.of(&eps[i]), "-"), unstyled})
		}
		rows = append(rows, append(row, painted{eps[i].Why, outcome}))
	}
	p.screen.printTable(&p.Buffer, indent, header, rows, 0)
	more := map[string]int{}
	for i := range eps[shown:] {
		more[eps[shown+i].Why]++
	}
	for _, why := range slices.Sorted(maps.Keys(more)) {
		fmt.Fprintf(p, "%*sand %d more: %s\n", indent, "", more[why], why)
	}
}

// endpointsWidth is how wide the table of endpoints is with these columns.
func endpointsWidth(columns []column, eps []zones.ExplainedEndpoint) int {
	width := len(fmt.Sprint(len(eps))) + 2
	for _, c := range columns {
		most := len(c.head)
		for i := range eps {
			most = max(most, len(c.of(&eps[i])))
		}
		width += most + 2
	}
	outcome := len("OUTCOME")
	for i := range eps {
		outcome = max(outcome, len(eps[i].Why))
	}
	return width + outcome
}

func answeredOf(eps []zones.ExplainedEndpoint) (n int) {
	for i := range eps {
		if eps[i].Answered {
			n++
		}
	}
	return n
}

// wrap prints a sentence behind a lead, and goes on below the sentence's beginning. Each
// line of it looks as paint has it.
func wrap(out *bytes.Buffer, lead, text string, width int, paint func(line string) string) {
	var line []string
	at := len(lead)
	put := func() { fmt.Fprintf(out, "%s%s\n", lead, paint(strings.Join(line, " "))) }
	for _, word := range strings.Fields(text) {
		if len(line) > 0 && at+1+len(word) > width {
			put()
			lead = strings.Repeat(" ", len(lead))
			at, line = len(lead), nil
		}
		if len(line) > 0 {
			at++
		}
		line = append(line, word)
		at += len(word)
	}
	put()
}
