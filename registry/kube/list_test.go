package kube

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"epdns/registry"
)

// encoded is an object as it is sent.
func encoded(t testing.TB, media string, o runtime.Object) []byte {
	t.Helper()
	codecs := serializer.NewCodecFactory(newScheme()).WithoutConversion()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
	if !ok {
		t.Fatalf("there is no %s", media)
	}
	gvks, _, err := newScheme().ObjectKinds(o)
	if err != nil {
		t.Fatal(err)
	}
	o.GetObjectKind().SetGroupVersionKind(gvks[0])
	var b bytes.Buffer
	if err := info.Serializer.Encode(o, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// whole keeps all of an object.
func whole(o any) (any, error) { return o, nil }

// digested is what is kept of a slice, however it came.
func digested(o any) (any, error) {
	s := o.(*discoveryv1.EndpointSlice)
	return digest{registry.NewStore(slog.New(slog.DiscardHandler)).Slices("").Digest(s), parseVersion(s.ResourceVersion)}, nil
}

var formats = []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON}

func sliceList(n int) *discoveryv1.EndpointSliceList {
	list := &discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "77", Continue: "more"}}
	for i := range n {
		s := slice("web", fmt.Sprint("web-", i), fmt.Sprint("10.0.0.", i%250), "10.0.1.1")
		s.Endpoints[1].TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: strings.Repeat("p", i)}
		list.Items = append(list.Items, *s)
	}
	return list
}

func serviceList(n int) *corev1.ServiceList {
	list := &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "77", Continue: "more"}}
	for i := range n {
		list.Items = append(list.Items, *service(fmt.Sprint("web-", i)))
	}
	return list
}

// What is read is what was sent, in whatever pieces it comes.
func TestReadList(t *testing.T) { synctest.Test(t, testReadList) } // a digest has the time

func testReadList(t *testing.T) {
	for _, media := range formats {
		for _, n := range []int{0, 1, 200} {
			slices, services_ := sliceList(n), serviceList(n)
			for _, c := range []struct {
				kind *kind
				list runtime.Object
				keep cache.TransformFunc
				item func(i int) any
			}{
				{endpointSlices, slices, digested, func(i int) any { return &slices.Items[i] }},
				{services, services_, whole, func(i int) any { return &services_.Items[i] }},
			} {
				wire := encoded(t, media, c.list)
				for how, in := range map[string]io.Reader{"at once": bytes.NewReader(wire), "one octet at a time": iotest.OneByteReader(bytes.NewReader(wire))} {
					got, err := readList(in, c.kind, c.keep, func(int) {})
					if err != nil {
						t.Errorf("%s, %d %ss, %s: %v", media, n, c.kind.name, how, err)
						continue
					}
					out := got.(*internalversion.List)
					if !equality.Semantic.DeepEqual(out.ListMeta, slices.ListMeta) || len(out.Items) != n {
						t.Errorf("%s, %d %ss, %s: %d items and %+v", media, n, c.kind.name, how, len(out.Items), out.ListMeta)
						continue
					}
					for i := range out.Items {
						if want, _ := c.keep(c.item(i)); !reflect.DeepEqual(out.Items[i], want) {
							t.Fatalf("%s, %s, items[%d]: %+v, want %+v", media, how, i, out.Items[i], want)
						}
					}
				}
			}
		}
	}
}

// A list of which something is missing is no list, wherever it ends.
func TestReadListCutShort(t *testing.T) {
	for _, media := range formats {
		wire := bytes.TrimSpace(encoded(t, media, sliceList(3)))
		// The envelope's last fields are empty; the list is whole without them.
		end := len(wire)
		if media == runtime.ContentTypeProtobuf {
			end = bytes.LastIndex(wire, []byte{3<<3 | 2, 0})
		}
		for n := range end {
			if _, err := readList(bytes.NewReader(wire[:n]), endpointSlices, whole, func(int) {}); err == nil {
				t.Errorf("%s: %d of %d octets were taken for a list", media, n, len(wire))
			} else if n > len(protobufMark) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: %d of %d octets: %v", media, n, len(wire), err)
			}
		}
	}
}

// Octets that are damaged may say anything, and are read to an end.
func TestReadListDamaged(t *testing.T) {
	for _, media := range formats {
		wire := encoded(t, media, sliceList(3))
		for i := range wire {
			for _, flip := range []byte{0x01, 0x80, 0xff} {
				bad := bytes.Clone(wire)
				bad[i] ^= flip
				if got, err := readList(bytes.NewReader(bad), endpointSlices, whole, func(int) {}); (got == nil) == (err == nil) {
					t.Fatalf("%s, octet %d: %v, %v", media, i, got, err)
				}
			}
		}
	}
}

func TestReadListMistakes(t *testing.T) {
	services := encoded(t, runtime.ContentTypeProtobuf, &corev1.ServiceList{})
	for _, c := range []struct{ body, err string }{
		{"", "unexpected EOF"},
		{string(services), `its kind is "ServiceList", not "EndpointSliceList"`},
		{`{"kind":"EndpointSlice","metadata":{}}`, `its kind is "EndpointSlice", not "EndpointSliceList"`},
		{`{"items":[]}`, `its kind is "", not "EndpointSliceList"`},
		{`{"kind":"EndpointSliceList","items":{}}`, "items begin with {"},
		{`{"kind":"EndpointSliceList","items":[{},{"metadata":1}]}`, "items[1]: "},
		{`[]`, "[ where there should be {"},
		{"<html>", "invalid character"},
		{"k8s\x00", "unexpected EOF"},
		{"k8s\x00\x08\x01", "field 1 is of wire type 0"},
		{"k8s\x00\x12\x02\x12\x05", "field 2 is longer than what it is in"},
		{"k8s\x00\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "field 2 has 9223372036854775807 octets"},
		{"k8s\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "a number has no end"},
		{"k8s\x00\x12\x80\x80\x80\x80\x10\x12\x80\x80\x80\x80\x08", "items[0]: an object of 2147483648 octets"},
	} {
		_, err := readList(strings.NewReader(c.body), endpointSlices, whole, func(int) {})
		if err == nil || !strings.Contains(err.Error(), c.err) || !strings.HasPrefix(err.Error(), "reading a list of EndpointSlices: ") {
			t.Errorf("%q: %v, want %s", c.body, err, c.err)
		}
	}
}

// A list whose items are null is empty: that is how Go writes a nil slice.
func TestReadListNull(t *testing.T) {
	got, err := readList(strings.NewReader(`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSliceList","metadata":{"resourceVersion":"5"},"items":null}`), endpointSlices, whole, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if out := got.(*internalversion.List); out.ResourceVersion != "5" || len(out.Items) != 0 {
		t.Errorf("%+v", out)
	}
}

// What a reflector collects of a streaming list is digests, and an event before the
// list's end finds the one that it is about.
func TestStreamingListIsDigested(t *testing.T) {
	source, err := newSource(&rest.Config{Host: "http://cluster"}, "test", []string{""}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	store := registry.NewStore(slog.New(slog.DiscardHandler))
	s := newSink(source.feeds[0], store.Slices(""))
	collected := cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc, cache.WithTransformer(s.Transformer()))
	for _, do := range []error{
		collected.Add(slice("web", "web-1", "10.0.0.1")),
		collected.Add(slice("web", "web-2", "10.0.0.2")),
		collected.Update(slice("web", "web-1", "10.0.0.3")),
		collected.Delete(slice("web", "web-2", "10.0.0.2")),
	} {
		if do != nil {
			t.Fatal(do)
		}
	}
	list := collected.List()
	if len(list) != 1 {
		t.Fatalf("collected %v", list)
	}
	if _, ok := list[0].(digest); !ok {
		t.Errorf("a %T was collected", list[0])
	}
	if err := s.Replace(append(list, service("web")), ""); err != nil { // a Service is no slice
		t.Fatal(err)
	}
	svc := store.Snapshot("shop", "web")
	if len(svc.Slices) != 1 || svc.Slices[0].Endpoints.Len() != 1 || svc.Slices[0].Endpoints.Addr(0).String() != "10.0.0.3" {
		t.Errorf("%+v", svc)
	}
	if st := source.feeds[0].snapshot(); st.Skipped != 1 {
		t.Errorf("status %+v: one was of another kind", st)
	}
}
