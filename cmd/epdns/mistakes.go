package main

import (
	"errors"
	"fmt"
	"strings"

	"epdns/registry/manifest"
)

// fault is what is wrong with the value of a key, such as zones[0].name.
type fault struct {
	key string
	err error
}

func (f *fault) Error() string { return f.key + ": " + f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// mistakes are all that is wrong with a config. People get a line for each; as text
// they are one.
type mistakes []*fault

func (m mistakes) Error() string {
	if len(m) == 1 {
		return m[0].Error()
	}
	return fmt.Sprintf("%v (and %d more)", m[0], len(m)-1)
}

func (m mistakes) Unwrap() (all []error) {
	for _, f := range m {
		all = append(all, f)
	}
	return all
}

// err is nil where there are none.
func (m mistakes) err() error {
	if len(m) == 0 {
		return nil
	}
	return m
}

// add notes what is wrong with a value. No error is no mistake.
func (m *mistakes) add(key string, err error) {
	if err != nil {
		*m = append(*m, &fault{key, err})
	}
}

// note is add for an error that has its key.
func (m *mistakes) note(err error) {
	if f := (*fault)(nil); errors.As(err, &f) {
		*m = append(*m, f)
	}
}

// about says whether a key, what is below it or what it is part of has a mistake.
func (m mistakes) about(key string) bool {
	for _, f := range m {
		if f.key == key || isBelow(f.key, key) || isBelow(key, f.key) {
			return true
		}
	}
	return false
}

func isBelow(key, of string) bool {
	rest, ok := strings.CutPrefix(key, of)
	return ok && rest != "" && (rest[0] == '.' || rest[0] == '[')
}

// asFlag makes faults errors in the arguments, under the names of the flags.
func asFlag(err error) error {
	m := mistakes{}
	if !errors.As(err, &m) {
		m.note(err)
	}
	if len(m) == 0 {
		return err
	}
	var named mistakes
	for _, f := range m {
		key := f.key
		for _, k := range flagKeys {
			if f.key == k.key || isBelow(f.key, k.key) {
				key = "--" + k.flag
			}
		}
		named.add(key, f.err)
	}
	return usageError{named}
}

// mostLines is how many mistakes are told before it is said how many more there are.
const mostLines = 10

// lines are what people are told of an error.
func lines(err error) (out []string) {
	all := []error{err}
	var (
		flags mistakes
		file  fileErrors
		there manifest.Faults
	)
	switch { // which nobody wraps in more text
	case errors.As(err, &flags):
		all = flags.Unwrap()
	case errors.As(err, &file):
		all = file.Unwrap()
	case errors.As(err, &there):
		all = there.Unwrap()
	}
	for _, e := range all[:min(len(all), mostLines)] {
		out = append(out, strings.ReplaceAll(e.Error(), "\n", "; "))
	}
	if more := len(all) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}
