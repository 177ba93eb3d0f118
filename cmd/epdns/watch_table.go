package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
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

// changeTable prints changes as lines of a table, by these rules:
//
//   - Two spaces or more part the columns, and no cell holds a space. What is not
//     known is a dash.
//   - Names come from whoever may write a slice: what could not stand in one is
//     shown as an escape, so that it moves no cursor and fakes no line.
//   - Columns are as wide as the changes at the start need, and at least as wide as
//     what is to be expected. One that turns out to be too narrow is widened, and
//     the header comes again above the lines that follow.
//   - Times are local, as on the watcher's clock.
type changeTable struct {
	w      io.Writer
	widths []int // nil before the first line
}

var changeHeader = []string{"TIME", "CHANGE", "SERVICE", "ADDRESS", "CONDITIONS", "ZONE", "NODE", "ENDPOINT", "SLICE", "WAS"}

// changeWidths are the least ones: conditions as most have them, an IPv4 address,
// and a pod of a Deployment with a name of middle length.
var changeWidths = []int{len("15:04:05.000"), len("REMOVED"), 0, 15, len("not-ready,terminating"), 0, 0, 24, 0, 0}

func (t *changeTable) print(changes []change) error {
	var rows [][]string
	for i := range changes {
		rows = append(rows, changes[i].row())
	}
	var out bytes.Buffer
	if t.widths == nil {
		t.widths = append(t.widths, changeWidths...)
		t.widen(changeHeader)
		t.widen(rows...)
		t.line(&out, changeHeader)
	} else if t.widen(rows...) {
		t.line(&out, changeHeader)
	}
	for _, row := range rows {
		t.line(&out, row)
	}
	_, err := t.w.Write(out.Bytes())
	return err
}

// widen makes room for rows and says whether that changes anything to be seen.
func (t *changeTable) widen(rows ...[]string) (wider bool) {
	for _, row := range rows {
		for i, cell := range row {
			if n := utf8.RuneCountInString(cell); n > t.widths[i] {
				t.widths[i] = n
				wider = wider || i < len(row)-1 // nothing is aligned behind the last one
			}
		}
	}
	return wider
}

func (t *changeTable) line(out *bytes.Buffer, row []string) {
	var line strings.Builder
	for i, cell := range row {
		fmt.Fprintf(&line, "%-*s  ", t.widths[i], cell)
	}
	out.WriteString(strings.TrimRight(line.String(), " "))
	out.WriteByte('\n')
}

func (c *change) row() []string {
	row := []string{
		c.Time.Local().Format("15:04:05.000"), c.Type, c.Namespace + "/" + c.Service, c.Address.String(),
		c.conditions(), cmp.Or(c.Zone, "-"), cmp.Or(c.Node, "-"), cmp.Or(c.Pod, c.Hostname, "-"), cmp.Or(c.Slice, "-"),
	}
	if c.Was == nil {
		row = append(row, "")
	} else {
		row = append(row, c.state.since(c.Was))
	}
	for i := range row {
		row[i] = cell(row[i])
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
