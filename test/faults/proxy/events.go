package proxy

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// Event is one of a watch, as far as its loss can depend on it.
type Event struct {
	Type            string // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
	Kind            string // of the object, empty where that is not understood
	Namespace, Name string
	Version         string // resourceVersion
	InitialEnd      bool   // the bookmark that ends a streaming list
}

var codecs = newCodecs()

func newCodecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic("proxy: " + err.Error()) // there are no two types of one name
		}
	}
	return serializer.NewCodecFactory(scheme)
}

// maxFrame is more than the API server lets an object have.
const maxFrame = 64 << 20

// filter is the body of a watch, whose events come as often as they are to.
type filter struct {
	io.Closer
	frame func() (whole []byte, e *Event, err error)
	times func(*Event) int
	again int // how often the last one is to come again
	whole []byte
	rest  []byte // of it
}

func newFilter(body io.ReadCloser, contentType string, times func(*Event) int) io.ReadCloser {
	r := bufio.NewReader(body)
	f := &filter{Closer: body, times: times, frame: func() ([]byte, *Event, error) { return jsonFrame(r) }}
	if strings.HasPrefix(contentType, runtime.ContentTypeProtobuf) {
		f.frame = func() ([]byte, *Event, error) { return protobufFrame(r) }
	}
	return f
}

func (f *filter) Read(b []byte) (int, error) {
	for len(f.rest) == 0 {
		if f.again > 0 {
			f.again--
			f.rest = f.whole
			continue
		}
		whole, e, err := f.frame()
		if err != nil {
			return 0, err
		}
		f.whole, f.again = whole, f.times(e)
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

// jsonFrame reads an event that is a line.
func jsonFrame(r *bufio.Reader) ([]byte, *Event, error) {
	line, err := r.ReadBytes('\n')
	if err != nil && len(line) == 0 {
		return nil, nil, err
	}
	var e struct {
		Type   string
		Object json.RawMessage
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return nil, nil, fmt.Errorf("proxy: an event that is no JSON: %w", err)
	}
	return line, newEvent(e.Type, e.Object), nil
}

// protobufFrame reads an event that has its length in front, in four octets.
func protobufFrame(r *bufio.Reader) ([]byte, *Event, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return nil, nil, fmt.Errorf("proxy: an event of %d octets", n)
	}
	whole := make([]byte, len(head)+int(n))
	copy(whole, head[:])
	if _, err := io.ReadFull(r, whole[len(head):]); err != nil {
		return nil, nil, err
	}
	var e metav1.WatchEvent
	if err := e.Unmarshal(whole[len(head):]); err != nil {
		return nil, nil, fmt.Errorf("proxy: an event that is no protobuf: %w", err)
	}
	return whole, newEvent(e.Type, e.Object.Raw), nil
}

func newEvent(what string, raw []byte) *Event {
	e := &Event{Type: what}
	o, kind, err := codecs.UniversalDeserializer().Decode(raw, nil, nil)
	if err != nil {
		return e
	}
	e.Kind = kind.Kind
	if m, err := meta.Accessor(o); err == nil {
		e.Namespace, e.Name, e.Version = m.GetNamespace(), m.GetName(), m.GetResourceVersion()
		e.InitialEnd = m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
	}
	return e
}
