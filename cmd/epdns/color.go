package main

import (
	"bytes"
	"io"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// This file is how answers look on a terminal. Anywhere else they are the bare text, as wide
// as it is: whoever reads a pipe should not have to know of terminals.

// screen is what a command prints to.
type screen struct {
	io.Writer
	color bool
	wide  bool     // nothing is left out, however narrow the terminal
	file  *os.File // the terminal, nil where there is none
}

// onScreen is the screen that a writer is, or one without any of its own.
func onScreen(w io.Writer) *screen {
	if s, ok := w.(*screen); ok {
		return s
	}
	return &screen{Writer: w}
}

// columns are how many a line of the terminal has; 0 is as many as there are. People may
// make it wider or narrower at any time.
func (s *screen) columns() int {
	if s.file == nil || s.wide {
		return 0
	}
	n, _, err := term.GetSize(int(s.file.Fd()))
	if err != nil {
		return 0
	}
	return n
}

// terminal is the terminal that a writer is, nil for any other.
func terminal(w io.Writer) *os.File {
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// harmless is a text from elsewhere on a line, without what a terminal acts on.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// style is how a text looks: parameters of the control function SGR (ECMA-48, 8.3.117).
type style string

const (
	unstyled style = ""
	bold     style = "1"
	faint    style = "2"
	red      style = "31"
	green    style = "32"
	yellow   style = "33"
)

// paint gives a text its style, if there are any.
func (s *screen) paint(with style, text string) string {
	if !s.color || with == unstyled || text == "" {
		return text
	}
	return "\x1b[" + string(with) + "m" + text + "\x1b[0m"
}

// colorFlag chooses whether there are colours.
type colorFlag struct{ when string }

func (f *colorFlag) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.when, "color", "auto", "colours: auto (on a terminal, unless NO_COLOR is set), always or never")
	completeValues(cmd, "color", "auto", "always", "never")
}

// screen is the standard output of a command.
func (f *colorFlag) screen(cmd *cobra.Command) (*screen, error) {
	s := &screen{Writer: cmd.OutOrStdout()}
	s.file = terminal(s.Writer)
	switch f.when {
	case "auto":
		s.color = s.file != nil && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" // https://no-color.org
	case "always":
		s.color = true
	case "never":
	default:
		return nil, usagef("--color %q is not auto, always or never", f.when)
	}
	return s, nil
}

// painted is a text with its style.
type painted struct {
	text  string
	style style
}

// plainCells are cells without a style.
func plainCells(texts ...string) (row []painted) {
	for _, text := range texts {
		row = append(row, painted{text, unstyled})
	}
	return row
}

// appendRow appends a line of cells that are at least so wide, each two spaces from the next.
// What the terminal has no room for ends in an ellipsis.
func (s *screen) appendRow(out *bytes.Buffer, indent int, row []painted, widths []int, room int) {
	for len(row) > 0 && row[len(row)-1].text == "" {
		row = row[:len(row)-1] // no blanks at the end
	}
	at, pad := 0, indent
	for i, c := range row {
		text := c.text
		last := i == len(row)-1
		if n := utf8.RuneCountInString(text); room > 0 && at+pad+n > room {
			if at+pad >= room {
				break
			}
			text, last = string([]rune(text)[:room-at-pad-1])+"…", true
		}
		out.WriteString(strings.Repeat(" ", pad))
		out.WriteString(s.paint(c.style, text))
		if last {
			break
		}
		n := utf8.RuneCountInString(text)
		at, pad = at+pad+n, widths[i]-n+2
	}
	out.WriteByte('\n')
}

// widen makes room for rows and says whether that changes anything to be seen of these
// columns: nothing is aligned behind the last one.
func widen(widths []int, shown []int, rows ...[]painted) (wider bool) {
	for _, row := range rows {
		for i, cell := range row {
			if n := utf8.RuneCountInString(cell.text); n > widths[i] {
				widths[i] = n
				at := slices.Index(shown, i)
				wider = wider || at >= 0 && at < len(shown)-1
			}
		}
	}
	return wider
}

// printTable prints rows as a table, with a header in bold where there is one. Where there
// is a limit to the room that it has, lines that go beyond are cut.
func (s *screen) printTable(out *bytes.Buffer, indent int, header []string, rows [][]painted, room int) {
	var all [][]painted
	if header != nil {
		head := plainCells(header...)
		for i := range head {
			head[i].style = bold
		}
		all = append(all, head)
	}
	all = append(all, rows...)
	most := 0
	for _, row := range all {
		most = max(most, len(row))
	}
	widths := make([]int, most)
	widen(widths, nil, all...)
	for _, row := range all {
		s.appendRow(out, indent, row, widths, room)
	}
}
