package kube

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/client-go/rest"

	"epdns/registry"
)

// event is an event of a watch as it is sent.
func event(t testing.TB, media, what string, o runtime.Object) []byte {
	t.Helper()
	codecs := serializer.NewCodecFactory(newScheme()).WithoutConversion()
	info, ok := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
	if !ok {
		t.Fatalf("there is no %s", media)
	}
	var b bytes.Buffer
	to := streaming.NewEncoder(info.StreamSerializer.Framer.NewFrameWriter(&b), info.StreamSerializer.Serializer)
	if err := to.Encode(&metav1.WatchEvent{Type: what, Object: runtime.RawExtension{Raw: encoded(t, media, o)}}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// initialEnd is the event that ends a streaming list.
func initialEnd(t testing.TB, media string, k *kind) []byte {
	o := k.example.DeepCopyObject()
	m := o.(metav1.Object)
	m.SetResourceVersion("1000000")
	m.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return event(t, media, "BOOKMARK", o)
}

// wires answers each request with octets that are at hand: to read them is all the work.
type wires struct {
	media string
	of    map[string]io.Reader // by resource
}

func (w *wires) RoundTrip(r *http.Request) (*http.Response, error) {
	media := w.media
	if media == runtime.ContentTypeProtobuf {
		media += ";stream=watch"
	}
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	if w.of[resource] == nil {
		return &http.Response{StatusCode: http.StatusNotFound, Request: r, Header: http.Header{}, Body: http.NoBody}, nil
	}
	return &http.Response{
		StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1, Request: r,
		Header: http.Header{"Content-Type": {media}}, Body: io.NopCloser(w.of[resource]),
	}, nil
}

// large is a slice as the controller makes them, with all that is not kept of it.
func large(version, n, endpoints int) *discoveryv1.EndpointSlice {
	yes, no, port, name := true, false, int32(8080), "http"
	s := &discoveryv1.EndpointSlice{
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	s.Namespace, s.Name, s.UID = "shop", fmt.Sprintf("web-%05d", n), "4c2b7f0e-0b1c-4a53-9d2a-5a1f4f0c1b7e"
	s.ResourceVersion = fmt.Sprint(version)
	s.Labels = map[string]string{discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io"}
	s.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: "Update", FieldsV1: metav1.NewFieldsV1(
		`{"f:addressType":{},"f:endpoints":{},"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/service-name":{}}},"f:ports":{}}`)}}
	for i := range endpoints {
		at := n*endpoints + i
		node, zone := fmt.Sprint("node-", i%50), fmt.Sprint("zone-", i%3)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", at>>16&255, at>>8&255, at&255)},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			NodeName:   &node, Zone: &zone,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: fmt.Sprintf("web-7d4b9c-%05d", at), UID: "0d9f6c1e-5b1a-4a8e-8f43-2f6c0b5f1a2d"},
		})
	}
	return s
}

// BenchmarkEvent is one endpoint of a Service that changes, from the octets of the watch
// to the snapshot: what it costs is the slice's size, not the Service's.
func BenchmarkEvent(b *testing.B) {
	for _, size := range []struct{ slices, endpoints int }{{1, 10}, {1, 100}, {500, 100}} {
		for _, media := range formats {
			b.Run(fmt.Sprintf("slices=%d/endpoints=%d/%s", size.slices, size.slices*size.endpoints, media[strings.LastIndexAny(media, "/.")+1:]), func(b *testing.B) {
				benchmarkEvent(b, media, size.slices, size.endpoints)
			})
		}
	}
}

func benchmarkEvent(b *testing.B, media string, slices, endpoints int) {
	var initial bytes.Buffer
	for i := range slices {
		initial.Write(event(b, media, "ADDED", large(i+1, i, endpoints)))
	}
	initial.Write(initialEnd(b, media, endpointSlices))
	var changes [2][]byte
	for i := range changes {
		s := large(2000000, slices/2, endpoints) // neither is older than the other
		ready := i == 0
		s.Endpoints[endpoints/2].Conditions.Ready = &ready
		changes[i] = event(b, media, "MODIFIED", s)
	}
	more, out := io.Pipe()
	defer out.Close()
	quiet, end := io.Pipe()
	defer end.Close()
	w := &wires{media: media, of: map[string]io.Reader{"endpointslices": io.MultiReader(&initial, more)}}
	w.of[services.resource] = io.MultiReader(bytes.NewReader(event(b, media, "ADDED", service("web"))), bytes.NewReader(initialEnd(b, media, services)), quiet)
	w.of[nodes.resource] = io.MultiReader(bytes.NewReader(initialEnd(b, media, nodes)), quiet)
	source, err := newSource(&rest.Config{Host: "http://cluster", Transport: w}, "test", []string{""}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	store := registry.NewStore(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error)
	go func() { ended <- source.Run(ctx, store) }()
	<-store.Synced()
	if svc := store.Snapshot("shop", "web"); len(svc.Slices) != slices {
		b.Fatalf("%d slices", len(svc.Slices))
	}
	f := store.Follow("shop", "web")
	f.Take()
	b.SetBytes(int64(len(changes[0])))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := out.Write(changes[(i+1)%2]); err != nil {
			b.Fatal(err)
		}
		<-f.Changed()
		f.Take()
	}
	cancel()
	out.CloseWithError(io.EOF)
	end.CloseWithError(io.EOF)
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkList is the answer to a LIST of 1,000 slices, from its octets to what is kept.
func BenchmarkList(b *testing.B) {
	const slices = 1000
	for _, endpoints := range []int{1, 10, 100} {
		for _, media := range formats {
			list := &discoveryv1.EndpointSliceList{}
			for i := range slices {
				list.Items = append(list.Items, *large(i+1, i, endpoints))
			}
			wire := encoded(b, media, list)
			keep := newSink(&feed{kind: endpointSlices}, registry.NewStore(slog.New(slog.DiscardHandler)).Slices("")).Transformer()
			b.Run(fmt.Sprintf("endpoints=%d/%s", endpoints, media[strings.LastIndexAny(media, "/.")+1:]), func(b *testing.B) {
				b.SetBytes(int64(len(wire)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := readList(bytes.NewReader(wire), endpointSlices, keep, func(int) {}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/slices, "ns/slice")
			})
		}
	}
}

// BenchmarkAudit is the comparison of 10,000 slices with what is held, which is the same.
func BenchmarkAudit(b *testing.B) {
	const slices = 10000
	list := &discoveryv1.EndpointSliceList{}
	for i := range slices {
		list.Items = append(list.Items, *large(i+1, i, 10))
	}
	wire := encoded(b, formats[0], list)
	to := registry.NewStore(slog.New(slog.DiscardHandler)).Slices("")
	f := &feed{kind: endpointSlices, holds: to}
	var held []*registry.Digest
	if _, err := readItems(bytes.NewReader(wire), endpointSlices, nil, func(o runtime.Object) { held = append(held, o.(digest).Digest) }); err != nil {
		b.Fatal(err)
	}
	to.ReplaceDigests(held)
	b.SetBytes(int64(len(wire)))
	b.ReportAllocs()
	for b.Loop() {
		a := &audit{feed: f, exists: map[name]struct{}{}}
		if _, err := readItems(bytes.NewReader(wire), endpointSlices, nil, a.compare); err != nil {
			b.Fatal(err)
		}
		if len(a.differ)+len(a.extra()) > 0 {
			b.Fatalf("%d objects differ", len(a.differ))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/slices, "ns/slice")
}
