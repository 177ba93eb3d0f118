package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/miekg/dns"

	"epdns/zones"
)

// An explanation is printed for people, who read it from its start: the question, who
// asks, what is set, what was decided, what became of each endpoint. A part that has
// nothing to say is left out. The answer stands at the end as lookup prints it.

// explainWidth is where sentences are wrapped. Tables are as wide as what they show.
const explainWidth = 100

func (x *explained) print(w io.Writer) error {
	var out bytes.Buffer
	q := x.msg.Question[0]
	fmt.Fprintf(&out, "%s %v over %s\n", q.Name, dns.Type(q.Qtype), strings.ToUpper(x.Transport))
	if e := x.Explanation; e != nil {
		printExplanation(&out, e, q.Qtype)
	} else {
		fmt.Fprintln(&out, "This is answered without looking at what exists.")
	}
	fmt.Fprintln(&out, "\nANSWER")
	if err := printReply(&out, x.msg); err != nil {
		return err
	}
	_, err := w.Write(out.Bytes())
	return err
}

func printExplanation(out *bytes.Buffer, e *zones.Explanation, qtype uint16) {
	switch {
	case e.Service != "":
		fmt.Fprintf(out, "Service %s in zone %s, serial %d\n", e.Service, e.Zone, e.Serial)
	case e.Zone != "":
		fmt.Fprintf(out, "zone %s, serial %d\n", e.Zone, e.Serial)
	}

	fmt.Fprintf(out, "\nWHO ASKS\n")
	wrap(out, "  ", e.Asker.Who())
	wrap(out, "  ", e.Asker.How)
	if e.Asker.Scope > 0 {
		fmt.Fprintf(out, "  the answer is good for /%d of the subnet\n", e.Asker.Scope)
	}

	if len(e.Knobs) > 0 {
		printKnobs(out, e.Knobs)
	}
	if len(e.Problems) > 0 {
		fmt.Fprintf(out, "\nANNOTATIONS THAT DO NOTHING\n")
		for _, p := range e.Problems {
			wrap(out, "  ", p)
		}
	}
	if len(e.Slices) > 0 {
		fmt.Fprintf(out, "\nSLICES\n")
		t := newTable(out)
		for _, s := range e.Slices {
			fmt.Fprintf(t, "  %s\t%s, %d ready", s.Name, counted(s.Endpoints, "endpoint"), s.Ready)
			if len(s.Ports) > 0 {
				fmt.Fprintf(t, "\t%s", strings.Join(s.Ports, " "))
			}
			fmt.Fprintln(t)
		}
		t.Flush()
	}

	fmt.Fprintf(out, "\nDECISIONS\n")
	for i, step := range e.Steps {
		wrap(out, fmt.Sprintf("  %d. ", i+1), step)
	}
	if e.Records > bindMax {
		wrap(out, "  warning: ", tooManyText(e.Records, qtype)+"; the knob limit makes it fewer")
	}
	if len(e.Tiers) > 0 {
		fmt.Fprintf(out, "\nTIERS\n")
		t := newTable(out)
		fmt.Fprintln(t, "  TIER\tENDPOINTS\tANSWERED")
		for _, tier := range e.Tiers {
			fmt.Fprintf(t, "  %s\t%d\t%d\n", tier.Tier, tier.Endpoints, tier.Answered)
		}
		t.Flush()
	}
	if len(e.Endpoints) > 0 {
		fmt.Fprintf(out, "\nENDPOINTS\n")
		printEndpoints(out, e.Endpoints)
	}
}

func printKnobs(out *bytes.Buffer, knobs []zones.ExplainedKnob) {
	set := slices.DeleteFunc(slices.Clone(knobs), func(k zones.ExplainedKnob) bool { return !k.IsSet() })
	if len(set) == 0 {
		fmt.Fprintf(out, "\nKNOBS\n  all have their defaults\n")
		return
	}
	fmt.Fprintf(out, "\nKNOBS, where they are not at their defaults\n")
	t := newTable(out)
	for _, k := range set {
		fmt.Fprintf(t, "  %s\t%s\t%s\n", k.Knob, strings.Join(strings.Fields(k.Value), " "), k.From)
	}
	t.Flush()
}

// maxLeftOut is how many endpoints are shown that are not answered; JSON has all.
const maxLeftOut = 100

// column is a part of what is known of endpoints. One in which all is the same as if
// nothing was known is not shown.
type column struct {
	head, plain string
	of          func(*zones.ExplainedEndpoint) string
}

var endpointColumns = []column{
	{"SERVICE", "", func(e *zones.ExplainedEndpoint) string { return e.Service }},
	{"ADDRESS", "", func(e *zones.ExplainedEndpoint) string { return e.Address }},
	{"NAME", "", func(e *zones.ExplainedEndpoint) string { return cmp.Or(e.Pod, e.Name) }},
	{"NODE", "", func(e *zones.ExplainedEndpoint) string { return e.Node }},
	{"ZONE", "", func(e *zones.ExplainedEndpoint) string { return e.Zone }},
	{"REGION", "", func(e *zones.ExplainedEndpoint) string { return e.Region }},
	{"CONDITIONS", "", func(e *zones.ExplainedEndpoint) string { return e.Conditions }},
	{"WEIGHT", "1", func(e *zones.ExplainedEndpoint) string { return fmt.Sprint(e.Weight) }},
	{"TIER", "all", func(e *zones.ExplainedEndpoint) string { return e.Tier }},
}

func printEndpoints(out *bytes.Buffer, eps []zones.ExplainedEndpoint) {
	shown := min(len(eps), answeredOf(eps)+maxLeftOut)
	columns := slices.DeleteFunc(slices.Clone(endpointColumns), func(c column) bool {
		return !slices.ContainsFunc(eps[:shown], func(e zones.ExplainedEndpoint) bool {
			text := c.of(&e)
			return text != "" && text != c.plain
		})
	})
	t := newTable(out)
	fmt.Fprint(t, "  #\t")
	for _, c := range columns {
		fmt.Fprint(t, c.head, "\t")
	}
	fmt.Fprintln(t, "OUTCOME")
	for i := range eps[:shown] {
		number := "-"
		if eps[i].Answered {
			number = fmt.Sprint(i + 1)
		}
		fmt.Fprintf(t, "  %s\t", number)
		for _, c := range columns {
			fmt.Fprint(t, cmp.Or(c.of(&eps[i]), "-"), "\t")
		}
		fmt.Fprintln(t, eps[i].Why)
	}
	t.Flush()
	more := map[string]int{}
	for i := range eps[shown:] {
		more[eps[shown+i].Why]++
	}
	for _, why := range slices.Sorted(maps.Keys(more)) {
		fmt.Fprintf(out, "  and %d more: %s\n", more[why], why)
	}
}

func answeredOf(eps []zones.ExplainedEndpoint) (n int) {
	for i := range eps {
		if eps[i].Answered {
			n++
		}
	}
	return n
}

func newTable(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

// wrap prints a sentence behind a lead, and goes on below the sentence's beginning.
func wrap(out *bytes.Buffer, lead, text string) {
	at := len(lead)
	out.WriteString(lead)
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case at+1+len(word) > explainWidth:
			at = len(lead)
			fmt.Fprintf(out, "\n%*s", at, "")
		default:
			out.WriteByte(' ')
			at++
		}
		out.WriteString(word)
		at += len(word)
	}
	out.WriteByte('\n')
}
