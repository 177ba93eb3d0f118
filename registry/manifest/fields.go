package manifest

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// This file says which fields of an object hold something of the wrong kind. The
// decoder tells of the first one only, without a line and in words of Go. So what it
// refuses is compared once more with the type that it was to fill.

// wrongField is a field that holds something else than it should.
type wrongField struct {
	path  []any      // keys and indexes, from the object on
	node  *yaml.Node // the value as it is written; nil where that was not found
	value any        // the same as JSON
	want  string     // what it should be
}

// text is what a field wants that takes any text.
const text = "text"

// maxWrong bounds how many fields of an object are told.
const maxWrong = 10

// wrongFields are those of an object or list that does not fit in o, in the order of
// their lines. root is the object as it is written, or nil.
func wrongFields(raw []byte, o any, root *yaml.Node) []*wrongField {
	var value any
	if utiljson.Unmarshal(raw, &value) != nil {
		return nil
	}
	var c comparison
	c.compare(value, reflect.TypeOf(o), root, nil)
	slices.SortFunc(c.wrong, func(a, b *wrongField) int {
		return cmp.Or(cmp.Compare(lineOf(a.node), lineOf(b.node)), cmp.Compare(pathText(a.path), pathText(b.path)))
	})
	return c.wrong
}

// annotation is the name of the annotation that the field is, if it is one.
func (w *wrongField) annotation() (name string, ok bool) {
	if len(w.path) != 3 || w.path[0] != "metadata" || w.path[1] != "annotations" {
		return "", false
	}
	return fmt.Sprint(w.path[2]), true
}

func (w *wrongField) Error() string {
	name := pathText(w.path)
	if annotation, ok := w.annotation(); ok {
		name = "annotation " + annotation
	}
	written := w.written()
	switch w.value.(type) {
	case bool:
		if w.want == text {
			return fmt.Sprintf("%s: %s is a boolean; write it in quotes", name, written)
		}
		written = "the boolean " + written
	case int64, float64:
		if w.want == text {
			return fmt.Sprintf("%s: %s is a number; write it in quotes", name, written)
		}
	}
	return fmt.Sprintf("%s: expected %s, found %s", name, w.want, written)
}

// written is the value as it stands in the file, or of what kind it is.
func (w *wrongField) written() string {
	const most = 60 // enough to find it again
	switch v := w.value.(type) {
	case nil:
		return "nothing"
	case map[string]any:
		return "keys with values"
	case []any:
		return "a list"
	case string:
		if len(v) > most {
			v = strings.ToValidUTF8(v[:most], "") + "…"
		}
		return strconv.Quote(v)
	}
	if w.node != nil && w.node.Kind == yaml.ScalarNode && w.node.Value != "" && len(w.node.Value) <= most {
		return w.node.Value // such as off, which is a boolean
	}
	return fmt.Sprint(w.value)
}

// pathText is a path as people write it: spec.ports[0].port.
func pathText(path []any) string {
	var b strings.Builder
	for _, p := range path {
		switch p := p.(type) {
		case int:
			fmt.Fprintf(&b, "[%d]", p)
		case string:
			if b.Len() > 0 {
				b.WriteByte('.')
			}
			b.WriteString(p)
		}
	}
	return b.String()
}

// comparison collects what is wrong.
type comparison struct{ wrong []*wrongField }

var (
	unmarshaler = reflect.TypeFor[json.Unmarshaler]()

	// Types that read themselves, and what they want.
	selfReaders = map[reflect.Type]string{
		reflect.TypeFor[metav1.Time]():        "a time such as 2030-01-31T09:30:00Z",
		reflect.TypeFor[metav1.MicroTime]():   "a time such as 2030-01-31T09:30:00.000000Z",
		reflect.TypeFor[intstr.IntOrString](): "a whole number or text",
	}
)

// compare holds a value of JSON against the type that it is to fill.
func (c *comparison) compare(value any, t reflect.Type, n *yaml.Node, path []any) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || len(c.wrong) == maxWrong {
		return // nothing is no mistake
	}
	bad := func(want string) {
		c.wrong = append(c.wrong, &wrongField{slices.Clone(path), n, value, want})
	}
	if reflect.PointerTo(t).Implements(unmarshaler) {
		data, err := json.Marshal(value)
		if err == nil && json.Unmarshal(data, reflect.New(t).Interface()) != nil {
			bad(cmp.Or(selfReaders[t], "another value"))
		}
		return
	}
	switch t.Kind() {
	case reflect.Struct:
		fields, ok := value.(map[string]any)
		if !ok {
			bad("keys with values")
			return
		}
		c.fields(fields, t, n, path)
	case reflect.Map:
		fields, ok := value.(map[string]any)
		if !ok {
			bad("keys with values")
			return
		}
		for key, v := range fields {
			c.compare(v, t.Elem(), child(n, key), append(path, key))
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			s, ok := value.(string)
			if _, err := base64.StdEncoding.DecodeString(s); !ok || err != nil {
				bad("text in base64")
			}
			return
		}
		items, ok := value.([]any)
		if !ok {
			bad("a list")
			return
		}
		for i, v := range items {
			c.compare(v, t.Elem(), child(n, i), append(path, i))
		}
	case reflect.String:
		if _, ok := value.(string); !ok {
			bad(text)
		}
	case reflect.Bool:
		if _, ok := value.(bool); !ok {
			bad("true or false")
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		i, ok := value.(int64)
		if !ok {
			bad("a whole number")
		} else if reflect.Zero(t).OverflowInt(i) {
			bad("a whole number that is not so large")
		}
	}
}

// fields compares those of a struct. What it does not know is no mistake.
func (c *comparison) fields(fields map[string]any, t reflect.Type, n *yaml.Node, path []any) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			c.fields(fields, f.Type, n, path)
		} else if v, ok := fields[name]; ok && name != "" {
			c.compare(v, f.Type, child(n, name), append(path, name))
		}
	}
}

// child is the node below another one, or nil where that is not found.
func child(n *yaml.Node, at any) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n == nil {
		return nil
	}
	switch at := at.(type) {
	case int:
		if n.Kind == yaml.SequenceNode && at < len(n.Content) {
			return n.Content[at]
		}
	case string:
		if n.Kind != yaml.MappingNode {
			return nil
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == at {
				return n.Content[i+1]
			}
		}
	}
	return nil
}

func lineOf(n *yaml.Node) int {
	if n == nil {
		return 0
	}
	return n.Line
}
