package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"epdns/zones"
)

// This file reads YAML strictly into a config. It walks the parsed nodes itself,
// since the errors of the YAML package name types of Go and no keys. The fields'
// "yaml" tags are the keys.

// What every file begins with.
const (
	apiVersion = "epdns/v1alpha1"
	kind       = "Config"
)

// loadConfig reads and checks a file. Relative paths in it are relative to its
// directory, so that it means the same wherever epdns is started.
func loadConfig(path string) (*config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("config %s: %w", path, err)
	}
	c, err := parseConfig(text)
	if bad := (*fileError)(nil); errors.As(err, &bad) {
		bad.path = path
	}
	if err != nil {
		return nil, err
	}
	c.relativeTo(filepath.Dir(path))
	return c, nil
}

// fileError is what is wrong with a file.
type fileError struct {
	path string // empty where it has none
	line int    // 0 where it is not known
	near bool   // whether it may be the line after
	err  error
}

func (e *fileError) Error() string {
	text := e.err.Error()
	switch {
	case e.near:
		text = fmt.Sprintf("near line %d: %s", e.line, text)
	case e.line > 0:
		text = fmt.Sprintf("line %d: %s", e.line, text)
	}
	if e.path != "" {
		text = "config " + e.path + ": " + text
	}
	return text
}

func (e *fileError) Unwrap() error { return e.err }

// place is Error in the form of compilers, which editors know.
func (e *fileError) place() string {
	if e.line == 0 {
		return fmt.Sprintf("%s: %v", e.path, e.err)
	}
	return fmt.Sprintf("%s:%d: %v", e.path, e.line, e.err)
}

// parseConfig returns a config that has passed its check, or a *fileError.
func parseConfig(text []byte) (*config, error) {
	root, err := parseDocument(text)
	if err != nil {
		return nil, err
	}
	d := decoder{lines: map[string]int{"": root.Line}}
	c := defaultConfig()
	err = d.header(root)
	if err == nil {
		err = d.value(root, reflect.ValueOf(c).Elem(), "")
	}
	if err == nil {
		_, err = c.settings()
	}
	if err != nil {
		return nil, d.locate(err)
	}
	return c, nil
}

// parseDocument reads the one document of a file.
func parseDocument(text []byte) (*yaml.Node, error) {
	in := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	switch err := in.Decode(&first); {
	case errors.Is(err, io.EOF): // nothing but comments
		return &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: 1}, nil
	case err != nil:
		return nil, syntaxError(err)
	}
	switch err := in.Decode(&second); {
	case err == nil:
		return nil, &fileError{line: second.Line, err: errors.New("a second document begins; there may be one")}
	case !errors.Is(err, io.EOF):
		return nil, syntaxError(err)
	}
	return first.Content[0], nil
}

// syntaxError words what the YAML package says, whose lines may be one too low.
func syntaxError(err error) *fileError {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if at, rest, ok := strings.Cut(text, ": "); ok {
		if line, err := strconv.Atoi(strings.TrimPrefix(at, "line ")); err == nil {
			return &fileError{line: line, near: true, err: errors.New(rest)}
		}
	}
	return &fileError{err: errors.New(text)}
}

// decoder fills a config, whose fields are structs, lists, knobValues, text, numbers
// and booleans, and keeps where each key is.
type decoder struct{ lines map[string]int }

// header checks first of all that the file is one of ours: what another one's keys
// are does not matter.
func (d *decoder) header(root *yaml.Node) error {
	if root.Kind != yaml.MappingNode {
		return nil // which value says
	}
	for _, want := range [][2]string{{"apiVersion", apiVersion}, {"kind", kind}} {
		i := 0
		for i < len(root.Content) && root.Content[i].Value != want[0] {
			i += 2
		}
		if i == len(root.Content) {
			return &fault{want[0], fmt.Errorf("missing, has to be %s", want[1])}
		}
		if v := root.Content[i+1]; v.Value != want[1] {
			d.lines[want[0]] = root.Content[i].Line
			return &fault{want[0], fmt.Errorf("has to be %s, found %s", want[1], describe(v))}
		}
	}
	return nil
}

// value fills v, which is what the key stands for.
func (d *decoder) value(n *yaml.Node, v reflect.Value, key string) error {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	tag := n.ShortTag()
	expected := func(what string) error {
		return &fault{key, fmt.Errorf("expected %s, found %s", what, describe(n))}
	}
	switch v.Kind() {
	case reflect.Struct:
		if n.Kind != yaml.MappingNode || tag != "!!map" {
			return expected("keys with values")
		}
		return d.fields(n, v, key)
	case reflect.Map:
		if n.Kind != yaml.MappingNode || tag != "!!map" {
			return expected("keys with values")
		}
		return d.knobs(n, v, key)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode || tag != "!!seq" {
			return expected("a list")
		}
		return d.items(n, v, key)
	case reflect.Bool:
		if tag != "!!bool" {
			return expected("true or false")
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Int:
		i, err := strconv.Atoi(n.Value)
		if tag != "!!int" || err != nil {
			return expected("a whole number")
		}
		v.SetInt(int64(i))
	case reflect.String:
		switch {
		case isBoolean(n):
			return &fault{key, fmt.Errorf("expected text, found %s; in quotes it is text: %q", describe(n), n.Value)}
		case !slices.Contains([]string{"!!str", "!!int", "!!float", "!!timestamp"}, tag):
			return expected("text")
		}
		v.SetString(n.Value) // a number as it is written
	default:
		panic("main: no decoder for " + v.Type().String())
	}
	return nil
}

// fields fills a struct.
func (d *decoder) fields(n *yaml.Node, v reflect.Value, key string) error {
	var known []string
	for i := range v.NumField() {
		known = append(known, v.Type().Field(i).Tag.Get("yaml"))
	}
	return d.keys(n, key, known, func(i int, value *yaml.Node, path string) error {
		return d.value(value, v.Field(i), path)
	})
}

// knobs fills knobValues. They are text in every form: a plain off is a value of one.
func (d *decoder) knobs(n *yaml.Node, v reflect.Value, key string) error {
	var known []string
	for _, k := range zones.Knobs() {
		known = append(known, k.Name)
	}
	values := knobValues{}
	v.Set(reflect.ValueOf(values))
	return d.keys(n, key, known, func(i int, value *yaml.Node, path string) error {
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if value.Kind != yaml.ScalarNode {
			return &fault{path, fmt.Errorf("expected text, found %s", describe(value))}
		}
		values[known[i]] = value.Value
		return nil
	})
}

// keys calls set with the index of each key in known, and its value. A key without
// value has its default, as if it were not there.
func (d *decoder) keys(n *yaml.Node, key string, known []string, set func(i int, value *yaml.Node, path string) error) error {
	seen := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		k, value := n.Content[i], n.Content[i+1]
		name := printable(k.Value)
		path := name
		if key != "" {
			path = key + "." + name
		}
		d.lines[path] = k.Line
		field := slices.Index(known, k.Value)
		if field < 0 || k.Kind != yaml.ScalarNode {
			return &fault{path, fmt.Errorf("unknown key; known here: %s", strings.Join(known, ", "))}
		}
		if line, ok := seen[name]; ok {
			return &fault{path, fmt.Errorf("given twice, first in line %d", line)}
		}
		seen[name] = k.Line
		if value.ShortTag() == "!!null" {
			continue
		}
		if err := set(field, value, path); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) items(n *yaml.Node, v reflect.Value, key string) error {
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		path := fmt.Sprintf("%s[%d]", key, i)
		d.lines[path] = item.Line
		if z, ok := list.Index(i).Addr().Interface().(interface{ setDefaults() }); ok {
			z.setDefaults()
		}
		if err := d.value(item, list.Index(i), path); err != nil {
			return err
		}
	}
	v.Set(list)
	return nil
}

// locate puts the line before a fault: that of the key, or of what it is missing from.
func (d *decoder) locate(err error) *fileError {
	var f *fault
	if !errors.As(err, &f) {
		return &fileError{err: err}
	}
	key := f.key
	for d.lines[key] == 0 && key != "" {
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	if f.key == "" {
		err = f.err
	}
	return &fileError{line: d.lines[key], err: err}
}

// isBoolean says whether other programs may take a plain word for a boolean: YAML
// 1.1 has more of them than 1.2.
func isBoolean(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Style == 0 &&
		slices.Contains([]string{"true", "false", "yes", "no", "on", "off"}, strings.ToLower(n.Value))
}

func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "keys with values"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!null":
		return "nothing"
	case isBoolean(n):
		return "the boolean " + n.Value
	}
	return strconv.Quote(n.Value)
}

// printable is a key as messages have it.
func printable(key string) string {
	if q := strconv.Quote(key); key == "" || q != `"`+key+`"` {
		return q
	}
	return key
}
