//go:build linux

package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
)

var series = []Series{{"one & <all>", "#3b82f6", Circle}, {"two", "#808894", Diamond}}

// marks are how many points are drawn, besides those of the legend.
func marks(t *testing.T, svg []byte) (n int) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(string(svg)))
	inside := ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if token.Name.Local == "title" && inside == "path" {
				n++
			}
			inside = token.Name.Local
			for _, a := range token.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s has %s=%q", token.Name.Local, a.Name.Local, a.Value)
				}
			}
		case xml.EndElement:
			inside = ""
		}
	}
}

// What is there is drawn once; what is not has no place, and makes no other go away.
func TestDots(t *testing.T) {
	d := Dots{Title: "t", Series: series, Rows: []string{"A", "B & C"}, Panels: []DotPanel{
		{"rate", [][]float64{{100000, 0}, {400, 3}}},
		{"cost", [][]float64{{math.NaN(), 2}, {0.5, -1}}},
		{"nothing", [][]float64{{0, 0}, {0, 0}}},
	}}
	if n := marks(t, d.SVG()); n != 5 {
		t.Errorf("%d points, want 5", n)
	}
}

func TestLines(t *testing.T) {
	l := Lines{Title: "t", Series: series, Panels: []LinePanel{
		{"µs", "endpoints", [][]Point{{{100, 2}, {10000, 3}, {1e6, 0}}, {{100, 200}}}},
		{"MiB", "endpoints", [][]Point{{}, {}}},
		{"ms", "endpoints", [][]Point{{{5, 5}}, {{0, 5}}}},
	}}
	if n := marks(t, l.SVG()); n != 4 {
		t.Errorf("%d points, want 4", n)
	}
}

func TestScale(t *testing.T) {
	s := newScale([]float64{30, 900, 0, math.NaN()}, 100, 300)
	if s.at(10) != 100 || s.at(1000) != 300 || s.at(100) != 200 {
		t.Errorf("10, 100, 1000 are at %v, %v, %v", s.at(10), s.at(100), s.at(1000))
	}
	if s := newScale([]float64{10}, 300, 100); s.at(10) != 300 || s.at(100) != 100 {
		t.Errorf("one value: 10 and 100 are at %v, %v", s.at(10), s.at(100))
	}
	for v, want := range map[float64]string{0.1: "0.1", 1: "1", 1000: "1k", 250000: "250k", 1e6: "1M", 2.5e6: "2.5M"} {
		if got := number(v); got != want {
			t.Errorf("%v is written %q, want %q", v, got, want)
		}
	}
}
