package main

import (
	"bytes"
	"cmp"
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
// directory, so that it means the same wherever epdns is started. With fileErrors there
// is what the file says right, if it is one of ours at all.
func loadConfig(path string) (*config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("config %s: %w", path, err)
	}
	c, err := parseConfig(text)
	if bad := (fileErrors)(nil); errors.As(err, &bad) {
		for _, e := range bad {
			e.path = path
		}
	}
	if c != nil {
		c.relativeTo(filepath.Dir(path))
	}
	return c, err
}

// fileErrors are all that is wrong with a file, in order of lines. People get a line
// for each; as text they are one.
type fileErrors []*fileError

func (e fileErrors) Error() string {
	if len(e) == 1 {
		return e[0].Error()
	}
	return fmt.Sprintf("%v (and %d more)", e[0], len(e)-1)
}

func (e fileErrors) Unwrap() (all []error) {
	for _, one := range e {
		all = append(all, one)
	}
	return all
}

// about says whether one of these keys, or what is below it, has a mistake.
func (e fileErrors) about(keys ...string) bool {
	for _, one := range e {
		for _, key := range keys {
			if one.key == key || isBelow(one.key, key) {
				return true
			}
		}
	}
	return false
}

// fileError is what is wrong with a file.
type fileError struct {
	path string // empty where it has none
	key  string // empty where it is none of a value
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

// parseConfig returns a config that has passed its check, or fileErrors: with the
// config, where these are of single values.
func parseConfig(text []byte) (*config, error) {
	root, err := parseDocument(text)
	if bad := (*fileError)(nil); errors.As(err, &bad) {
		return nil, fileErrors{bad}
	}
	d := decoder{lines: map[string]int{"": root.Line}}
	if d.header(root); len(d.mistakes) > 0 {
		return nil, d.located()
	}
	c := defaultConfig()
	d.value(root, reflect.ValueOf(c).Elem(), "")
	_, err = c.settings()
	var m mistakes
	errors.As(err, &m)
	for _, f := range m {
		if !d.mistakes.about(f.key) { // else it follows from what is told
			d.mistakes = append(d.mistakes, f)
		}
	}
	if len(d.mistakes) > 0 {
		return c, d.located()
	}
	return c, nil
}

// lineOf is where a key of a file stands, or what it is part of; 0 where neither does.
func lineOf(path, key string) int {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	root, err := parseDocument(text)
	if err != nil {
		return 0
	}
	d := decoder{lines: map[string]int{}}
	d.value(root, reflect.ValueOf(defaultConfig()).Elem(), "")
	for d.lines[key] == 0 && key != "" {
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	return d.lines[key]
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
// and booleans, and keeps where each key is. What does not fit is left as it was.
type decoder struct {
	lines map[string]int
	mistakes
}

// header checks first of all that the file is one of ours: what another one's keys
// are does not matter.
func (d *decoder) header(root *yaml.Node) {
	if root.Kind != yaml.MappingNode {
		return // which value says
	}
	for _, want := range [][2]string{{"apiVersion", apiVersion}, {"kind", kind}} {
		i := 0
		for i < len(root.Content) && root.Content[i].Value != want[0] {
			i += 2
		}
		if i == len(root.Content) {
			d.add(want[0], fmt.Errorf("missing, has to be %s", want[1]))
		} else if v := root.Content[i+1]; v.Value != want[1] {
			d.lines[want[0]] = root.Content[i].Line
			d.add(want[0], fmt.Errorf("has to be %s, found %s", want[1], describe(v)))
		}
	}
}

// value fills v, which is what the key stands for.
func (d *decoder) value(n *yaml.Node, v reflect.Value, key string) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	tag := n.ShortTag()
	expected := func(what string) { d.add(key, fmt.Errorf("expected %s, found %s", what, describe(n))) }
	switch v.Kind() {
	case reflect.Struct:
		if n.Kind != yaml.MappingNode || tag != "!!map" {
			expected("keys with values")
			return
		}
		d.fields(n, v, key)
	case reflect.Map:
		if n.Kind != yaml.MappingNode || tag != "!!map" {
			expected("keys with values")
			return
		}
		d.knobs(n, v, key)
	case reflect.Slice:
		switch {
		case n.Kind == yaml.SequenceNode && tag == "!!seq":
			d.items(n, v, key)
		case n.Kind == yaml.ScalarNode && v.Type().Elem().Kind() == reflect.String:
			d.add(key, fmt.Errorf("expected a list; write [%q]", n.Value))
		default:
			expected("a list")
		}
	case reflect.Bool:
		if tag != "!!bool" {
			d.add(key, fmt.Errorf("write true or false, not %s", written(n)))
			return
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Int:
		i, err := strconv.Atoi(n.Value)
		if tag != "!!int" || err != nil {
			expected("a whole number")
			return
		}
		v.SetInt(int64(i))
	case reflect.Float64:
		f, err := strconv.ParseFloat(n.Value, 64)
		if tag != "!!int" && tag != "!!float" || err != nil {
			expected("a number")
			return
		}
		v.SetFloat(f)
	case reflect.String:
		switch {
		case isBoolean(n) && key == "http":
			d.add(key, fmt.Errorf(`expected text, found %s; "" is none`, describe(n)))
		case isBoolean(n):
			d.add(key, fmt.Errorf("expected text, found %s; in quotes it is text: %q", describe(n), n.Value))
		case !slices.Contains([]string{"!!str", "!!int", "!!float", "!!timestamp"}, tag):
			expected("text")
		default:
			v.SetString(n.Value) // a number as it is written
		}
	default:
		panic("main: no decoder for " + v.Type().String())
	}
}

// fields fills a struct.
func (d *decoder) fields(n *yaml.Node, v reflect.Value, key string) {
	var known []string
	for i := range v.NumField() {
		known = append(known, v.Type().Field(i).Tag.Get("yaml"))
	}
	d.keys(n, key, known, func(i int, value *yaml.Node, path string) {
		d.value(value, v.Field(i), path)
	})
}

// knobs fills knobValues. They are text in every form: a plain off is a value of one.
func (d *decoder) knobs(n *yaml.Node, v reflect.Value, key string) {
	var known []string
	for _, k := range zones.Knobs() {
		known = append(known, k.Name)
	}
	values := knobValues{}
	v.Set(reflect.ValueOf(values))
	d.keys(n, key, known, func(i int, value *yaml.Node, path string) {
		if value.Kind == yaml.AliasNode {
			value = value.Alias
		}
		if value.Kind != yaml.ScalarNode {
			d.add(path, fmt.Errorf("expected text, found %s", describe(value)))
			return
		}
		values[known[i]] = value.Value
	})
}

// keys calls set with the index of each key in known, and its value. A key without
// value has its default, as if it were not there.
func (d *decoder) keys(n *yaml.Node, key string, known []string, set func(i int, value *yaml.Node, path string)) {
	seen := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		k, value := n.Content[i], n.Content[i+1]
		name := printable(k.Value)
		path := name
		if key != "" {
			path = key + "." + name
		}
		field := slices.Index(known, k.Value)
		if line, ok := seen[name]; ok {
			d.lines[path] = k.Line
			d.add(path, fmt.Errorf("given twice, first in line %d", line))
			continue
		}
		seen[name], d.lines[path] = k.Line, k.Line
		if field < 0 || k.Kind != yaml.ScalarNode {
			d.add(path, fmt.Errorf("unknown key; known here: %s", strings.Join(known, ", ")))
			continue
		}
		if value.ShortTag() != "!!null" {
			set(field, value, path)
		}
	}
}

func (d *decoder) items(n *yaml.Node, v reflect.Value, key string) {
	list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
	for i, item := range n.Content {
		path := fmt.Sprintf("%s[%d]", key, i)
		d.lines[path] = item.Line
		if z, ok := list.Index(i).Addr().Interface().(interface{ setDefaults() }); ok {
			z.setDefaults()
		}
		d.value(item, list.Index(i), path)
	}
	v.Set(list)
}

// located are the mistakes with their lines: of the key, or of what it is missing from.
func (d *decoder) located() (out fileErrors) {
	for _, f := range d.mistakes {
		key := f.key
		for d.lines[key] == 0 && key != "" {
			key = key[:max(strings.LastIndexAny(key, ".["), 0)]
		}
		e := &fileError{key: f.key, line: d.lines[key], err: f}
		if f.key == "" {
			e.err = f.err
		}
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b *fileError) int { return cmp.Compare(a.line, b.line) })
	return out
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

// written is a value as it stands in the file.
func written(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" {
		return describe(n)
	}
	if n.Style != 0 {
		return strconv.Quote(n.Value)
	}
	return printable(n.Value)
}

// printable is a key as messages have it.
func printable(key string) string {
	if q := strconv.Quote(key); key == "" || q != `"`+key+`"` {
		return q
	}
	return key
}
