package kube

import (
	"bytes"
	"encoding/binary"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"

	"epdns/registry"
)

// decoderOf is what a client makes for a watch.
func decoderOf(t testing.TB, codecs runtime.NegotiatedSerializer, media string, octets []byte) *restwatch.Decoder {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
	if !ok {
		t.Fatalf("there is no %s", media)
	}
	frames := info.StreamSerializer.Framer.NewFrameReader(io.NopCloser(bytes.NewReader(octets)))
	return restwatch.NewDecoder(streaming.NewDecoder(frames, info.StreamSerializer.Serializer), codecs.DecoderToVersion(info.Serializer, nil))
}

// told is what a reflector and a sink take from an event.
type told struct {
	event                    watch.EventType
	namespace, name, version string
	last                     string // the mark of a streaming list's end
	digest                   *registry.Digest
	object                   runtime.Object // where it is not of a kind with a decoder
}

func tell(t testing.TB, event watch.EventType, o runtime.Object) told {
	t.Helper()
	to := told{event: event}
	switch o := o.(type) {
	case *arrival:
		to.digest = o.digest
	case *discoveryv1.EndpointSlice:
		to.digest = registry.NewStore(slog.New(slog.DiscardHandler)).Slices("").Digest(o)
	default:
		to.object = o
		return to
	}
	m, err := meta.Accessor(o)
	if err != nil {
		t.Fatal(err)
	}
	to.namespace, to.name, to.version = m.GetNamespace(), m.GetName(), m.GetResourceVersion()
	to.last = m.GetAnnotations()[metav1.InitialEventsAnnotationKey]
	return to
}

// theirs are client-go's codecs alone.
func theirs() runtime.NegotiatedSerializer {
	return serializer.NewCodecFactory(newScheme()).WithoutConversion()
}

// A client with our decoders is told the same as one with client-go's.
func TestWatchDecoder(t *testing.T) { synctest.Test(t, testWatchDecoder) } // a digest has the time

func testWatchDecoder(t *testing.T) {
	bookmark := &discoveryv1.EndpointSlice{}
	bookmark.ResourceVersion = "9"
	bookmark.Annotations = map[string]string{"a": "b", "k8s.io/initial-events-end": "true", "c": "d"}
	gone := &metav1.Status{Status: metav1.StatusFailure, Code: 410, Reason: metav1.StatusReasonExpired, Message: "too old"}
	for _, media := range formats {
		var octets []byte
		for _, e := range []struct {
			what   string
			object runtime.Object
		}{
			{"ADDED", large(7, 1, 3)}, {"MODIFIED", large(8, 1, 100)}, {"DELETED", large(9, 1, 1)}, {"BOOKMARK", bookmark},
			{"ADDED", slice("web", "web-1", "10.0.0.1")}, {"MODIFIED", service("web")}, {"ERROR", gone}, {"ERROR", large(1, 1, 1)},
		} {
			octets = append(octets, event(t, media, e.what, e.object)...)
		}
		got, want := decoderOf(t, newCodecs(), media, octets), decoderOf(t, theirs(), media, octets)
		n := 0
		for ; ; n++ {
			event, o, err := got.Decode()
			wantEvent, wantObject, wantErr := want.Decode()
			if err == io.EOF && wantErr == io.EOF {
				break
			} else if err != nil || wantErr != nil {
				t.Fatalf("%s, event %d: %v and %v", media, n, err, wantErr)
			}
			if a, b := tell(t, event, o), tell(t, wantEvent, wantObject); !reflect.DeepEqual(a, b) {
				t.Errorf("%s, event %d: %+v, want %+v", media, n, a, b)
			}
			if _, ours := o.(*arrival); ours != (media == runtime.ContentTypeProtobuf && endpointSlices.is(o)) {
				t.Errorf("%s, event %d is a %T", media, n, o)
			}
		}
		if n != 8 {
			t.Errorf("%s: %d events", media, n)
		}
	}
}

// What is wrong is an error, and one about the object says what in it is.
func TestWatchDecoderMistakes(t *testing.T) {
	good := event(t, runtime.ContentTypeProtobuf, "ADDED", slice("web", "web-1", "10.0.0.1"))[4:] // without its length
	object := func(raw string) string { return "\x0a\x05ADDED\x12" + within("\x0a"+within(raw)) }
	slice := func(raw string) string {
		return object("k8s\x00\x0a" + within("\x0a\x13discovery.k8s.io/v1\x12\x0dEndpointSlice") + "\x12" + within(raw))
	}
	for _, c := range []struct{ octets, err string }{
		{"", "empty data"},
		{"\x0a\x05ADDED", "unable to decode watch event: empty data"},
		{strings.Replace(string(good), "ADDED", "EDDED", 1), "got invalid watch event type: EDDED"},
		{"\x0a\x05ADDED\x12\x05\x0a\x09", "unexpected EOF"},
		{"\x0a\x05ADDED\x10\x01", "wrong wireType = 0 for field Object"},
		{object("text"), "unable to decode watch event: provided data does not appear to be a protobuf message"},
		{object("k8s\x00\x0a\x05\x0a\x09"), "unable to decode watch event: unexpected EOF"},
		{strings.Replace(string(good), "EndpointSlice", "EndpointSpice", 1), `unable to decode watch event: no kind "EndpointSpice" is registered`},
		{strings.Replace(string(good), "discovery.k8s.io/v1", "discovery.k8s.io/v9", 1), `unable to decode watch event: no kind "EndpointSlice" is registered for version "discovery.k8s.io/v9"`},
		{slice("\x12\x09"), "unable to decode watch event: EndpointSlice: field 2 is longer than what it is in: unexpected EOF"},
		{slice("\x0a\x02\x0a\x09"), "unable to decode watch event: EndpointSlice: metadata: field 1 is longer than what it is in: unexpected EOF"},
		{slice("\x0a\x02\x30\x09"), "unable to decode watch event: EndpointSlice: metadata: field 6 is of wire type 0"},
		{slice("\x0a\x04\x62\x02\x08\x01"), "unable to decode watch event: EndpointSlice: metadata: field 12: entry of a map: field 1 is of wire type 0"},
	} {
		_, o, err := decoderOf(t, newCodecs(), runtime.ContentTypeProtobuf, frame([]byte(c.octets))).Decode()
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %v and %v, want %s", c.octets, o, err, c.err)
		}
	}
}

// frame is an event as it comes in a stream.
func frame(event []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
}

// within is a text with its length before it.
func within(s string) string { return string(rune(len(s))) + s }

// An object of another kind is none for a feed.
func TestArrivalOfAnotherKind(t *testing.T) {
	w := newWorld(t)
	a, err := newArrival(endpointSlices, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, k := range []*kind{endpointSlices, services, nodes} {
		if k.is(a) != (i == 0) {
			t.Errorf("%s: %t", k.name, k.is(a))
		}
	}
	s := newSink(w.src.feeds[1], w.store.Services(""))
	s.Update(a)
	if st := w.status(1); st.Skipped != 1 {
		t.Errorf("status %+v", st)
	}
}

// Whatever octets an event is, we are told the same as client-go, but for what in them
// means nothing here.
func FuzzWatchDecoder(f *testing.F) {
	for _, o := range []runtime.Object{large(7, 1, 3), slice("web", "web-1", "10.0.0.1"), service("web"), &metav1.Status{Code: 410}} {
		f.Add(event(f, runtime.ContentTypeProtobuf, "MODIFIED", o)[4:])
	}
	f.Add(initialEnd(f, runtime.ContentTypeProtobuf, endpointSlices)[4:])
	ours, stock := newCodecs(), theirs()
	compare := func(t *testing.T, octets []byte) {
		event, o, err := decoderOf(t, ours, runtime.ContentTypeProtobuf, frame(octets)).Decode()
		wantEvent, wantObject, wantErr := decoderOf(t, stock, runtime.ContentTypeProtobuf, frame(octets)).Decode()
		if err != nil && wantErr == nil && !strings.Contains(err.Error(), "entry of a map") || err == nil && wantErr != nil && !endpointSlices.is(o) {
			t.Fatalf("%v, want %v", err, wantErr)
		}
		if err != nil || wantErr != nil {
			return
		}
		if a, b := tell(t, event, o), tell(t, wantEvent, wantObject); !reflect.DeepEqual(a, b) {
			t.Errorf("%+v, want %+v", a, b)
		}
	}
	f.Fuzz(func(t *testing.T, octets []byte) {
		synctest.Test(t, func(t *testing.T) { compare(t, octets) }) // a digest has the time
	})
}
