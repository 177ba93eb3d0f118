package fakeapi

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
)

var (
	scheme     = newScheme()
	strictJSON = mediaType(runtime.ContentTypeJSON).StrictSerializer

	asJSON     = &format{mediaType(runtime.ContentTypeJSON)}
	asProtobuf = &format{mediaType(runtime.ContentTypeProtobuf)}
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(s); err != nil {
			panic("fakeapi: " + err.Error())
		}
	}
	return s
}

func mediaType(name string) runtime.SerializerInfo {
	info, ok := runtime.SerializerInfoForMediaType(serializer.NewCodecFactory(scheme).SupportedMediaTypes(), name)
	if !ok {
		panic("fakeapi: there is no " + name)
	}
	return info
}

// format is how objects are written.
type format struct{ runtime.SerializerInfo }

// format is the first one that a client accepts, whatever weight it gives to the
// others, or nil.
func (s *Server) format(r *http.Request) *format {
	accept := r.Header.Get("Accept")
	if accept == "" {
		return asJSON
	}
	for clause := range strings.SplitSeq(accept, ",") {
		name, _, err := mime.ParseMediaType(clause)
		switch {
		case err != nil:
		case name == runtime.ContentTypeProtobuf && !s.JSONOnly:
			return asProtobuf
		case name == runtime.ContentTypeJSON, name == "application/*", name == "*/*":
			return asJSON
		}
	}
	return nil
}

// answer sends one object.
func (f *format) answer(w http.ResponseWriter, code int, o runtime.Object) {
	w.Header().Set("Content-Type", f.MediaType)
	w.WriteHeader(code)
	f.Serializer.Encode(o, w) // where it fails the client has gone
}

// refuse sends an error. A client that accepts nothing gets it as JSON.
func (f *format) refuse(w http.ResponseWriter, s *metav1.Status) {
	if f == nil {
		f = asJSON
	}
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(s.Details.RetryAfterSeconds)))
	}
	f.answer(w, int(s.Code), s)
}

// streamType is the media type of a watch.
func (f *format) streamType() string {
	if f == asJSON {
		return f.MediaType
	}
	return f.MediaType + ";stream=watch"
}

// send sends an event of a watch: in JSON one after the other, in protobuf each after
// its length.
func (f *format) send(w io.Writer, e frame) error {
	object, err := f.object(e.object, e.damage)
	if err != nil {
		return err
	}
	event := &metav1.WatchEvent{Type: e.what, Object: runtime.RawExtension{Raw: object}}
	to := f.StreamSerializer.Framer.NewFrameWriter(w)
	if e.damage == CutMessage {
		to = halfWriter{to}
	}
	return streaming.NewEncoder(to, f.StreamSerializer.Serializer).Encode(event)
}

// halfWriter loses the second half of all that is written.
type halfWriter struct{ io.Writer }

func (w halfWriter) Write(b []byte) (int, error) {
	_, err := w.Writer.Write(b[:len(b)/2])
	return len(b), err
}

// object writes the object of an event.
func (f *format) object(o runtime.Object, damage Damage) ([]byte, error) {
	switch damage {
	case UnknownKind:
		o = &corev1.Pod{TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}, ObjectMeta: metaOf(o)}
	case OtherKind:
		o = &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metaOf(o)}
	case BadField:
		if f == asProtobuf {
			return f.badField(o)
		}
	}
	var out bytes.Buffer
	if err := f.Serializer.Encode(o, &out); err != nil {
		return nil, err
	}
	switch damage {
	case CutObject:
		half := out.Bytes()[:out.Len()/2]
		if f == asJSON {
			return json.Marshal(string(half)) // else it would be the message that is damaged
		}
		return half, nil
	case BadField:
		return bytes.Replace(out.Bytes(), []byte(`"metadata":{`), []byte(`"metadata":1,"data":{`), 1), nil
	}
	return out.Bytes(), nil
}

// badField writes an object as protobuf whose first field, the metadata, is there once
// more and as a number.
func (f *format) badField(o runtime.Object) ([]byte, error) {
	fields, err := o.(interface{ Marshal() ([]byte, error) }).Marshal()
	if err != nil {
		return nil, err
	}
	const numberInField1 = 1 << 3 // the wire type of numbers is 0
	whole := &runtime.Unknown{Raw: append(fields, numberInField1, 1)}
	whole.APIVersion, whole.Kind = o.GetObjectKind().GroupVersionKind().ToAPIVersionAndKind()
	var out bytes.Buffer
	err = f.Serializer.Encode(whole, &out)
	return out.Bytes(), err
}

func metaOf(o runtime.Object) metav1.ObjectMeta {
	m := o.(Object)
	return metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID(), ResourceVersion: m.GetResourceVersion()}
}
