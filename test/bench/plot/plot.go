//go:build linux

// Package plot draws charts as SVG whose colours show on a light page and on a dark one. It knows
// nothing of what it draws.
package plot

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
)

// Series is what is drawn in one colour and with one mark in all panels of a chart.
type Series struct {
	Name   string
	Colour string // of middle lightness
	Mark   Mark
}

// Mark is the form of a point.
type Mark int

// The marks.
const (
	Circle Mark = iota
	Square
	Diamond
	Triangle
	Bar
)

const (
	grey    = "#808894"
	radius  = 5.0
	padding = 14
	legend  = 22 // height of a line
)

// path draws a mark around a point.
func (m Mark) path(x, y float64) string {
	const r = radius
	switch m {
	case Square:
		return fmt.Sprintf("M%.1f %.1fh%.1fv%.1fh%.1fZ", x-r*0.85, y-r*0.85, r*1.7, r*1.7, -r*1.7)
	case Diamond:
		return fmt.Sprintf("M%.1f %.1fL%.1f %.1fL%.1f %.1fL%.1f %.1fZ", x, y-r*1.2, x+r*1.2, y, x, y+r*1.2, x-r*1.2, y)
	case Triangle:
		return fmt.Sprintf("M%.1f %.1fL%.1f %.1fH%.1fZ", x, y-r*1.1, x+r*1.1, y+r*0.9, x-r*1.1)
	case Bar:
		return fmt.Sprintf("M%.1f %.1fh%.1fv%.1fh%.1fZ", x-1.5, y-r*1.5, 3.0, r*3, -3.0)
	default:
		return fmt.Sprintf("M%.1f %.1fa%.1f %.1f 0 1 0 %.1f 0a%.1f %.1f 0 1 0 %.1f 0Z", x-r, y, r, r, 2*r, r, r, -2*r)
	}
}

// picture is an SVG in the making.
type picture struct {
	bytes.Buffer
	width, height float64
}

func (p *picture) text(x, y float64, anchor, colour, style, format string, args ...any) {
	fmt.Fprintf(p, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s"%s>%s</text>`+"\n", x, y, anchor, colour, style, html.EscapeString(fmt.Sprintf(format, args...)))
}

func (p *picture) line(x1, y1, x2, y2, opacity float64) {
	fmt.Fprintf(p, `<path d="M%.1f %.1fL%.1f %.1f" stroke="%s" stroke-opacity="%.2f"/>`+"\n", x1, y1, x2, y2, grey, opacity)
}

// begin writes the head, with the legend.
func begin(title string, width, height float64, series []Series) *picture {
	p := &picture{width: width, height: height}
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" font-family="sans-serif" font-size="13" fill="%s">`+"\n", width, height, grey)
	fmt.Fprintf(p, "<title>%s</title>\n", html.EscapeString(title))
	x := float64(padding)
	for _, s := range series {
		fmt.Fprintf(p, `<path d="%s" fill="%s"/>`, s.Mark.path(x, legend-6), s.Colour)
		p.text(x+10, legend-2, "start", s.Colour, ` font-weight="bold"`, "%s", s.Name)
		x += 30 + 8.2*float64(len(s.Name))
	}
	return p
}

func (p *picture) end() []byte {
	p.WriteString("</svg>\n")
	return p.Bytes()
}

// scale is a logarithmic axis from one pixel to another.
type scale struct{ low, high, from, to float64 }

// newScale has room for all values, in whole powers of ten.
func newScale(values []float64, from, to float64) scale {
	values = slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return !(v > 0) || math.IsInf(v, 0) })
	if len(values) == 0 {
		values = []float64{1}
	}
	low, high := math.Floor(math.Log10(slices.Min(values))), math.Ceil(math.Log10(slices.Max(values)))
	if low == high {
		high++
	}
	return scale{low, high, from, to}
}

func (s scale) at(v float64) float64 {
	return s.from + (s.to-s.from)*(math.Log10(v)-s.low)/(s.high-s.low)
}

// ticks are the powers of ten.
func (s scale) ticks() (out []float64) {
	for e := s.low; e <= s.high; e++ {
		out = append(out, math.Pow(10, e))
	}
	return out
}

// number is short: 1k, 10k, 1M, 0.1.
func number(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%gk", v/1e3)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

// Dots is a chart of rows with a point of each series, on axes that are logarithmic: twice as much
// is as far apart everywhere.
type Dots struct {
	Title  string
	Series []Series
	Rows   []string
	Panels []DotPanel
}

// DotPanel is one axis. Values has a value for each series and row; what is not above 0 is left
// out.
type DotPanel struct {
	Title  string
	Values [][]float64
}

// SVG draws the chart.
func (d *Dots) SVG() []byte {
	const width, left, row, top = 960.0, 220.0, 30.0, 66.0
	height := top + row*float64(len(d.Rows)) + 30
	p := begin(d.Title, width, height, d.Series)
	panel := (width - left) / float64(max(1, len(d.Panels)))
	bottom := top + row*float64(len(d.Rows))
	for i, name := range d.Rows {
		y := top + row*(float64(i)+0.5)
		p.text(left-16, y+4, "end", grey, "", "%s", name)
	}
	for n, pan := range d.Panels {
		from := left + panel*float64(n) + padding
		axis := newScale(slices.Concat(pan.Values...), from, from+panel-3*padding)
		p.text(from, top-18, "start", grey, "", "%s", pan.Title)
		for _, tick := range axis.ticks() {
			x := axis.at(tick)
			p.line(x, top-8, x, bottom, 0.35)
			p.text(x, bottom+18, "middle", grey, "", "%s", number(tick))
		}
		for i := range d.Rows {
			y := top + row*(float64(i)+0.5)
			p.line(axis.from, y, axis.to, y, 0.2)
			for s := len(d.Series) - 1; s >= 0; s-- { // the first lies above the others
				if v := pan.Values[s][i]; v > 0 {
					fmt.Fprintf(p, `<path d="%s" fill="%s" fill-opacity="0.9"><title>%s: %s</title></path>`+"\n",
						d.Series[s].Mark.path(axis.at(v), y), d.Series[s].Colour, html.EscapeString(d.Series[s].Name), number(v))
				}
			}
		}
	}
	return p.end()
}

// Lines is a chart of several panels that show how something grows, on logarithmic axes.
type Lines struct {
	Title  string
	Series []Series
	Panels []LinePanel
}

// LinePanel is one pair of axes. Points has the points of each series, in order; what is not above
// 0 in either direction is left out.
type LinePanel struct {
	Title  string // of what grows upwards
	Along  string // of what grows to the right
	Points [][]Point
}

// Point is a point of a line.
type Point struct{ X, Y float64 }

// SVG draws the chart, two panels in a row.
func (l *Lines) SVG() []byte {
	const width, panelHeight, plotHeight, top = 960.0, 230.0, 150.0, 40.0
	const columns = 2
	rows := (len(l.Panels) + columns - 1) / columns
	p := begin(l.Title, width, top+panelHeight*float64(rows), l.Series)
	for n, pan := range l.Panels {
		left := width/columns*float64(n%columns) + 50
		upper := top + panelHeight*float64(n/columns) + 28
		lower := upper + plotHeight
		var xs, ys []float64
		for _, points := range pan.Points {
			for _, q := range points {
				if q.X > 0 && q.Y > 0 {
					xs, ys = append(xs, q.X), append(ys, q.Y)
				}
			}
		}
		x := newScale(xs, left, left+width/columns-50-2*padding)
		y := newScale(ys, lower, upper)
		p.text(left-40, upper-14, "start", grey, ` font-weight="bold"`, "%s", pan.Title)
		p.text(x.to, lower+36, "end", grey, "", "%s", pan.Along)
		for _, tick := range x.ticks() {
			p.line(x.at(tick), upper, x.at(tick), lower, 0.2)
			p.text(x.at(tick), lower+18, "middle", grey, "", "%s", number(tick))
		}
		for _, tick := range y.ticks() {
			p.line(x.from, y.at(tick), x.to, y.at(tick), 0.35)
			p.text(left-8, y.at(tick)+4, "end", grey, "", "%s", number(tick))
		}
		for s, points := range pan.Points {
			points = slices.DeleteFunc(slices.Clone(points), func(q Point) bool { return !(q.X > 0) || !(q.Y > 0) })
			path := ""
			for i, q := range points {
				path += fmt.Sprintf("%c%.1f %.1f", "ML"[min(i, 1)], x.at(q.X), y.at(q.Y))
			}
			if path == "" {
				continue
			}
			fmt.Fprintf(p, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", path, l.Series[s].Colour)
			for _, q := range points {
				fmt.Fprintf(p, `<path d="%s" fill="%s"><title>%s: %s</title></path>`+"\n",
					l.Series[s].Mark.path(x.at(q.X), y.at(q.Y)), l.Series[s].Colour, html.EscapeString(l.Series[s].Name), number(q.Y))
			}
		}
	}
	return p.end()
}
