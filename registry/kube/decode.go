package kube

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"

	"epdns/internal/protobuf"
	"epdns/registry"
)

// This file reads the events of a watch in protobuf. client-go's decoders copy the octets
// of an object twice and make an API object of them, of which the sink keeps little. Here
// an object of a kind that has a decoder becomes an arrival, straight from the octets of
// its event. Whatever else comes, client-go's decoders read: JSON, other kinds, a Status,
// and what is not understood.

// newCodecs returns client-go's codecs with our decoders for protobuf before its own.
func newCodecs() runtime.NegotiatedSerializer {
	c := codecs{NegotiatedSerializer: serializer.NewCodecFactory(newScheme()).WithoutConversion()}
	c.media = slices.Clone(c.NegotiatedSerializer.SupportedMediaTypes())
	for i := range c.media {
		if m := &c.media[i]; m.MediaType == runtime.ContentTypeProtobuf {
			stream := *m.StreamSerializer
			stream.Serializer = eventDecoder{stream.Serializer}
			m.Serializer, m.StreamSerializer = objectDecoder{m.Serializer}, &stream
		}
	}
	return c
}

type codecs struct {
	runtime.NegotiatedSerializer
	media []runtime.SerializerInfo
}

func (c codecs) SupportedMediaTypes() []runtime.SerializerInfo { return c.media }

// eventDecoder reads the event and leaves the object in it as it is.
type eventDecoder struct{ runtime.Serializer }

// Decode implements [runtime.Decoder]. The octets of an event's object are a part of
// data: they are read before the next event is.
func (d eventDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if e, ok := into.(*metav1.WatchEvent); ok && readEvent(data, e) {
		return e, nil, nil
	}
	return d.Serializer.Decode(data, defaults, into)
}

func readEvent(data []byte, e *metav1.WatchEvent) bool {
	m := protobuf.Read(data)
	for m.Next() {
		switch m.Field {
		case 1:
			e.Type = eventType(m.Octets())
		case 2:
			raw := m.Message()
			for raw.Next() {
				if raw.Field == 1 {
					e.Object.Raw = raw.Octets()
				}
			}
			if raw.Err() != nil {
				return false
			}
		}
	}
	return m.Err() == nil && e.Type != ""
}

// eventType is the type as a text, or empty where it is none that is known.
func eventType(octets []byte) string {
	for _, t := range []watch.EventType{watch.Modified, watch.Added, watch.Deleted, watch.Bookmark, watch.Error} {
		if string(octets) == string(t) {
			return string(t)
		}
	}
	return ""
}

// objectDecoder reads objects of the kinds that have a decoder.
type objectDecoder struct{ runtime.Serializer }

// Decode implements [runtime.Decoder].
func (d objectDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into == nil {
		if k, raw := unwrap(data); k != nil {
			gvk := k.group.WithKind(k.name)
			a, err := newArrival(k, raw)
			if err != nil {
				return nil, &gvk, err
			}
			return a, &gvk, nil
		}
	}
	return d.Serializer.Decode(data, defaults, into)
}

// unwrap takes an object out of its runtime.Unknown. The kind is nil where it is none
// that has a decoder, or that can't be told.
func unwrap(data []byte) (k *kind, raw []byte) {
	data, ok := bytes.CutPrefix(data, protobufMark)
	if !ok {
		return nil, nil
	}
	var name, version string
	m := protobuf.Read(data)
	for m.Next() {
		switch m.Field {
		case unknownTypeMeta:
			what := m.Message()
			for what.Next() {
				switch what.Field {
				case 1:
					version = what.Text()
				case 2:
					name = what.Text()
				}
			}
			if what.Err() != nil {
				return nil, nil
			}
		case unknownRaw:
			raw = m.Octets()
		}
	}
	group, version, _ := strings.Cut(version, "/")
	if k := endpointSlices; m.Err() == nil && name == k.name && group == k.group.Group && version == k.group.Version {
		return k, raw
	}
	return nil, nil
}

// arrival is an object of a watch of which only what is kept was decoded, and what a
// reflector wants to know.
type arrival struct {
	metav1.ObjectMeta
	kind   *kind
	digest *registry.Digest
	came   time.Time
}

var _ runtime.Object = (*arrival)(nil)

// GetObjectKind implements [runtime.Object].
func (a *arrival) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object]. Nobody changes an arrival.
func (a *arrival) DeepCopyObject() runtime.Object { return a }

func newArrival(k *kind, octets []byte) (*arrival, error) {
	came := time.Now()
	d, err := k.decode(octets)
	if err != nil {
		return nil, err
	}
	a := &arrival{kind: k, digest: d, came: came}
	a.Namespace, a.Name = d.Namespace(), d.Name()
	for m := protobuf.Read(octets); m.Next(); {
		const metadata = 1 // of every kind
		if m.Field == metadata {
			if err := a.readMeta(m.Message()); err != nil {
				return nil, fmt.Errorf("%s: metadata: %w", k.name, err)
			}
		}
	}
	return a, nil
}

// readMeta reads what decode has not: where in the course of events this is.
func (a *arrival) readMeta(m protobuf.Message) error {
	for m.Next() {
		switch m.Field {
		case 6:
			a.ResourceVersion = strings.Clone(m.Text())
		case 12:
			if key, value := m.Entry(); key == metav1.InitialEventsAnnotationKey {
				a.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: strings.Clone(value)}
			}
		}
	}
	return m.Err()
}
