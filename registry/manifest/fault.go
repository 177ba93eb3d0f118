package manifest

import (
	"fmt"
	"strings"
)

// Fault is one mistake in one file.
type Fault struct {
	File     string // as shown to people
	Document int    // counted from 1; 0: the file as a whole
	Item     int    // of a list, counted from 1; 0: the document itself
	Line     int    // where the document begins
	Field    int    // the line of the field that is wrong; 0: of none, or it is not known
	Err      error
}

func (f *Fault) Error() string {
	place := f.place()
	if f.Field > 0 {
		place += fmt.Sprintf(", line %d", f.Field)
	}
	if place != "" {
		place = ": " + place
	}
	return f.File + place + ": " + f.what()
}

// Place is Error in the form of compilers, which editors know.
func (f *Fault) Place() string {
	switch {
	case f.Field > 0:
		return fmt.Sprintf("%s:%d: %s", f.File, f.Field, f.what())
	case f.Line > 0:
		return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, f.place(), f.what())
	}
	return f.File + ": " + f.what()
}

// what is the mistake, in one line.
func (f *Fault) what() string { return strings.Join(strings.Fields(f.Err.Error()), " ") }

func (f *Fault) Unwrap() error { return f.Err }

func (f *Fault) place() string { return place{f.Document, f.Item, f.Line}.String() }

// Faults are all mistakes of a read, in order of files. As text they are one line.
type Faults []*Fault

func (f Faults) Error() string {
	switch len(f) {
	case 0:
		return "no fault"
	case 1:
		return f[0].Error()
	}
	return fmt.Sprintf("%v (and %d more)", f[0], len(f)-1)
}

func (f Faults) Unwrap() []error {
	out := make([]error, len(f))
	for i, fault := range f {
		out[i] = fault
	}
	return out
}

// place is where in a file an object stands.
type place struct{ document, item, line int }

func (p place) String() string {
	if p.document == 0 {
		return ""
	}
	s := fmt.Sprintf("document %d (line %d)", p.document, p.line)
	if p.item > 0 {
		s += fmt.Sprintf(", item %d", p.item)
	}
	return s
}
