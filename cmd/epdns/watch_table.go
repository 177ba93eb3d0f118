package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// changeLines prints changes as JSON, an object a line.
type changeLines struct{ w io.Writer }

func (l changeLines) print(changes []change) error {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	for i := range changes {
		if err := e.Encode(&changes[i]); err != nil {
			return err
		}
	}
	_, err := l.w.Write(out.Bytes())
	return err
}

// changeDocuments prints changes as YAML, a document each.
type changeDocuments struct{ w io.Writer }

func (d changeDocuments) print(changes []change) error {
	var out bytes.Buffer
	for i := range changes {
		out.WriteString("---\n")
		if err := printYAML(&out, &changes[i]); err != nil {
			return err
		}
	}
	_, err := d.w.Write(out.Bytes())
	return err
}

// changeTable prints changes as lines of a table, by these rules:
//
//   - Two spaces or more part the columns, and no cell holds a space. What is not
//     known is a dash.
//   - Names come from whoever may write a slice: what could not stand in one is
//     shown as an escape, so that it moves no cursor and fakes no line.
//   - Columns are as wide as the changes at the start need, and at least as wide as
//     what is to be expected. One that turns out to be too narrow is widened, and
//     the header comes again above the lines that follow.
//   - On a terminal, columns for which there is no room are left out, those that one can
//     do without first, and no line is longer than the terminal's.
//   - Times are local, as on the watcher's clock.
type changeTable struct {
	w      io.Writer
	one    bool  // Service is watched, whose name need not be said
	widths []int // nil before the first line
	shown  []int // columns under the last header
}

// changeColumn is a column of the table.
type changeColumn struct {
	head  string
	least int // width
	// without is how soon it is left out where there is no room: 1 is first, 0 never.
	without int
}

// changeColumns are all columns. The least widths are for conditions as most have them,
// an IPv4 address, and a pod of a Deployment with a name of middle length.
var changeColumns = []changeColumn{
	{"TIME", len("15:04:05.000"), 0},
	{"CHANGE", len("REMOVED"), 0},
	{"SERVICE", 0, 2},
	{"ADDRESS", 15, 0},
	{"CONDITIONS", len("not-ready,terminating"), 0},
	{"ZONE", 0, 5},
	{"NODE", 0, 3},
	{"ENDPOINT", 24, 6},
	{"SLICE", 0, 1},
	{"WAS", 0, 4},
	{"PORTS", 0, 7}, // in wide tables only
}

const (
	columnTime    = 0
	columnService = 2
	columnPorts   = 10
)

func (t *changeTable) print(changes []change) error {
	s := onScreen(t.w)
	room := s.columns()
	var rows [][]painted
	for i := range changes {
		rows = append(rows, changes[i].row(s.wide, room > 0 && room < roomForMillis))
	}
	fresh := t.widths == nil
	if fresh {
		t.widths = make([]int, len(changeColumns))
		for i, c := range changeColumns {
			t.widths[i] = max(c.least, len(c.head))
		}
	}
	header := widen(t.widths, t.shown, rows...) || fresh
	if shown := t.fit(s.wide, room); !slices.Equal(shown, t.shown) {
		t.shown, header = shown, true
	}
	var out bytes.Buffer
	if header {
		var head []painted
		for _, c := range changeColumns {
			head = append(head, painted{c.head, bold})
		}
		t.line(s, &out, head, room)
	}
	for _, row := range rows {
		t.line(s, &out, row, room)
	}
	_, err := s.Write(out.Bytes())
	return err
}

// roomForMillis is how many columns a terminal has to have for parts of seconds.
const roomForMillis = 100

// fit chooses the columns for which there is room.
func (t *changeTable) fit(wide bool, room int) (shown []int) {
	for i := range changeColumns {
		if i != columnPorts || wide {
			shown = append(shown, i)
		}
	}
	for room > 0 {
		// Of the last column it is enough if most of what it has can be read.
		need, first := 0, -1
		for at, i := range shown {
			width := t.widths[i]
			switch {
			case i == columnTime && room < roomForMillis:
				width = len("15:04:05")
			case at == len(shown)-1:
				width = min(max(width, 9), 20)
			}
			need += width + 2
			if c := changeColumns[i]; c.without > 0 && (i != columnService || t.one) &&
				(first < 0 || c.without < changeColumns[first].without) {
				first = i
			}
		}
		if need-2 <= room || first < 0 {
			break
		}
		shown = slices.DeleteFunc(shown, func(i int) bool { return i == first })
	}
	return shown
}

func (t *changeTable) line(s *screen, out *bytes.Buffer, row []painted, room int) {
	var cells []painted
	var widths []int
	for _, i := range t.shown {
		cells, widths = append(cells, row[i]), append(widths, t.widths[i])
		if i == columnTime && room > 0 && room < roomForMillis {
			widths[len(widths)-1] = len("15:04:05")
		}
	}
	s.appendRow(out, 0, cells, widths, room)
}

var changeStyles = map[string]style{added: green, changed: yellow, removed: red}

func (c *change) row(wide, shortTime bool) []painted {
	clock := "15:04:05.000"
	if shortTime {
		clock = "15:04:05"
	}
	conditions := painted{c.conditions(), unstyled}
	if !c.Ready || !c.Serving || c.Terminating {
		conditions.style = yellow
	}
	row := []painted{
		{c.Time.Local().Format(clock), unstyled}, {c.Type, changeStyles[c.Type]}, {c.Namespace + "/" + c.Service, unstyled},
		{c.Address.String(), unstyled}, conditions, {cmp.Or(c.Zone, "-"), unstyled}, {cmp.Or(c.Node, "-"), unstyled},
		{cmp.Or(c.Pod, c.Hostname, "-"), unstyled}, {cmp.Or(c.Slice, "-"), unstyled}, {}, {},
	}
	switch {
	case c.Was != nil:
		row[9].text = c.state.since(c.Was)
	case wide:
		row[9].text = "-" // another column follows
	}
	if wide {
		row[columnPorts].text = cmp.Or(portsText(c.Ports), "-")
	}
	for i := range row {
		row[i].text = cell(row[i].text)
	}
	return row
}

// cell is a text without spaces and without what a terminal acts on.
func cell(text string) string {
	plain := func(r rune) bool { return r > ' ' && r < 0x7f }
	if !strings.ContainsFunc(text, func(r rune) bool { return !plain(r) }) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if plain(r) {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// conditions are three booleans in as few words as tell them apart.
func (s *state) conditions() string {
	var text string
	switch {
	case s.Ready && s.Serving:
		text = "ready"
	case s.Ready:
		text = "ready,not-serving" // odd
	case s.Serving:
		text = "serving" // but not ready: most often one that is about to leave
	default:
		text = "not-ready"
	}
	if s.Terminating {
		text += ",terminating"
	}
	return text
}

// since is what of an earlier state was different.
func (s *state) since(was *state) string {
	var parts []string
	if c := was.conditions(); c != s.conditions() {
		parts = append(parts, c)
	}
	for _, f := range []struct{ name, now, was string }{
		{"zone", s.Zone, was.Zone}, {"node", s.Node, was.Node}, {"slice", s.Slice, was.Slice},
		{"ports", portsText(s.Ports), portsText(was.Ports)},
	} {
		if f.now != f.was {
			parts = append(parts, f.name+"="+cmp.Or(f.was, "-"))
		}
	}
	return strings.Join(parts, ";")
}

func portsText(ports []port) string {
	var parts []string
	for _, p := range ports {
		parts = append(parts, fmt.Sprintf("%s:%d/%s", p.Name, p.Number, p.Protocol))
	}
	return strings.Join(parts, ",")
}
