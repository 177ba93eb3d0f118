package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// content is what one file says.
type content struct {
	slices   []*discoveryv1.EndpointSlice
	services []*corev1.Service
	nodes    []*corev1.Node
	places   map[id]place // of each object
	ids      []id         // in order
	ignored  int          // objects of other kinds
	faults   Faults       // with any of them, the rest is not used
}

// id is what may stand in the files once.
type id struct{ kind, namespace, name string }

func (i id) String() string {
	if i.kind == kindNode {
		return fmt.Sprintf("%s %q", i.kind, i.name)
	}
	return fmt.Sprintf("%s %q", i.kind, i.namespace+"/"+i.name)
}

const (
	kindService = "Service"
	kindNode    = "Node"
	kindSlice   = "EndpointSlice"
)

var discoveryGroup = discoveryv1.SchemeGroupVersion.Group

// decode reads a file. shown is its name for people.
func decode(shown string, data []byte) *content {
	c := &content{places: map[id]place{}}
	for _, doc := range split(shown, data) {
		d := decoder{content: c, file: shown, place: doc.place, doc: &doc}
		if doc.err != nil {
			d.fault(doc.err)
		} else {
			d.object(doc.json, metav1.TypeMeta{})
		}
	}
	return c
}

// decoder reads one document, or one item of it.
type decoder struct {
	*content
	file  string
	place place
	doc   *document
	path  []any // of the item in the document
	depth int   // of lists around
}

// maxDepth is for lists within lists, which nobody writes. Each level reads all
// that is within it once more.
const maxDepth = 4

func (d *decoder) fault(err error) {
	d.faults = append(d.faults, &Fault{File: d.file, Document: d.place.document, Item: d.place.item, Line: d.place.line, Err: err})
}

// wrong tells what of an object does not fit in o, which the decoder refused with
// err. Each mistake has a fault, whose text begins with what names the object.
func (d *decoder) wrong(name string, raw []byte, o any, err error) []*wrongField {
	if name != "" {
		name += ": "
	}
	root := d.doc.written()
	for _, at := range d.path {
		root = child(root, at)
	}
	fields := wrongFields(raw, o, root)
	if len(fields) == 0 { // which the decoder alone sees
		d.fault(fmt.Errorf("%s%w", name, err))
	}
	for _, f := range fields {
		d.fault(fmt.Errorf("%s%w", name, f))
		if line := lineOf(f.node); line > 0 {
			d.faults[len(d.faults)-1].Field = d.doc.first - 1 + line
		}
	}
	return fields
}

// object reads an object or a list of them. An item of a typed list may leave its
// type out.
func (d *decoder) object(raw []byte, otherwise metav1.TypeMeta) {
	if string(raw) == "null" {
		return
	}
	if len(raw) == 0 || raw[0] != '{' {
		d.fault(errors.New("not an object: a mapping with apiVersion and kind is expected"))
		return
	}
	t := otherwise
	if err := utiljson.Unmarshal(raw, &t); err != nil {
		d.wrong("", raw, &t, err)
		return
	}
	if t.Kind == "" || t.APIVersion == "" {
		d.fault(errors.New("not a Kubernetes object: apiVersion and kind are needed"))
		return
	}
	group := schema.FromAPIVersionAndKind(t.APIVersion, t.Kind).Group
	switch {
	case t.Kind == "List" && (t.APIVersion == "v1" || t.APIVersion == "meta.k8s.io/v1"):
		d.list(raw, metav1.TypeMeta{})
	case (t.Kind == kindService+"List" || t.Kind == kindNode+"List") && t.APIVersion == "v1":
		d.list(raw, metav1.TypeMeta{Kind: strings.TrimSuffix(t.Kind, "List"), APIVersion: t.APIVersion})
	case t.Kind == kindService && t.APIVersion == "v1":
		read(d, kindService, raw, &corev1.Service{}, &d.services)
	case t.Kind == kindNode && t.APIVersion == "v1":
		read(d, kindNode, raw, &corev1.Node{}, &d.nodes)
	case group == discoveryGroup && strings.TrimSuffix(t.Kind, "List") == kindSlice && t.APIVersion != discoveryv1.SchemeGroupVersion.String():
		d.fault(fmt.Errorf("%s: apiVersion %s is not read, write %s", t.Kind, t.APIVersion, discoveryv1.SchemeGroupVersion))
	case t.Kind == kindSlice+"List" && group == discoveryGroup:
		d.list(raw, metav1.TypeMeta{Kind: kindSlice, APIVersion: t.APIVersion})
	case t.Kind == kindSlice && group == discoveryGroup:
		read(d, kindSlice, raw, &discoveryv1.EndpointSlice{}, &d.slices)
	default:
		d.ignored++
	}
}

func (d *decoder) list(raw []byte, of metav1.TypeMeta) {
	if d.depth == maxDepth {
		d.fault(errors.New("lists nested too deep"))
		return
	}
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := utiljson.Unmarshal(raw, &list); err != nil {
		d.wrong("", raw, &list, err)
		return
	}
	for i, raw := range list.Items {
		item := *d
		item.depth++
		item.path = append(slices.Clone(d.path), "items", i)
		if d.place.item == 0 { // of a list within a list, the outer item is named
			item.place.item = i + 1
		}
		item.object(raw, of)
	}
}

// read decodes one object of a kind that we use. One with wrong annotations is there
// without them, any other with a fault is not.
func read[T metav1.Object](d *decoder, kind string, raw []byte, o T, to *[]T) {
	if err := utiljson.Unmarshal(raw, o); err != nil {
		var named struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		}
		utiljson.Unmarshal(raw, &named) // as far as it goes
		name := kind
		if named.Metadata.Name != "" {
			name = fmt.Sprintf("%s %q", kind, named.Metadata.Name)
		}
		for _, f := range d.wrong(name, raw, o, err) {
			annotation, ok := f.annotation()
			if !ok {
				return
			}
			delete(o.GetAnnotations(), annotation) // not to be empty text instead
		}
	}
	if o.GetName() == "" {
		d.fault(fmt.Errorf("%s without metadata.name", kind))
		return
	}
	if kind == kindNode {
		o.SetNamespace("") // Nodes are in none
	} else if o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	o.SetManagedFields(nil) // bulk that nobody reads
	i := id{kind, o.GetNamespace(), o.GetName()}
	if first, twice := d.places[i]; twice {
		d.fault(fmt.Errorf("%s is in %s already", i, first))
		return
	}
	d.places[i] = d.place
	d.ids = append(d.ids, i)
	*to = append(*to, o)
}
