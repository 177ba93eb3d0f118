package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
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
		d := decoder{content: c, file: shown, place: doc.place}
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
	depth int // of lists around
}

// maxDepth is for lists within lists, which nobody writes. Each level reads all
// that is within it once more.
const maxDepth = 4

func (d *decoder) fault(err error) {
	d.faults = append(d.faults, &Fault{d.file, d.place.document, d.place.item, d.place.line, err})
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
		d.fault(err)
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
		d.fault(err)
		return
	}
	for i, raw := range list.Items {
		item := *d
		item.depth++
		if d.place.item == 0 { // of a list within a list, the outer item is named
			item.place.item = i + 1
		}
		item.object(raw, of)
	}
}

// read decodes one object of a kind that we use.
func read[T metav1.Object](d *decoder, kind string, raw []byte, o T, to *[]T) {
	err := utiljson.Unmarshal(raw, o)
	switch {
	case err != nil && o.GetName() != "":
		d.fault(fmt.Errorf("%s %q: %w", kind, o.GetName(), err))
		return
	case err != nil:
		d.fault(fmt.Errorf("%s: %w", kind, err))
		return
	case o.GetName() == "":
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
