//go:build linux

package bench

import (
	"net/http"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
)

// A watch of the stand-in brings what there is, in both formats, and then a change.
func TestStandInWatches(t *testing.T) {
	list := services("s", 3, 0, 2)
	a, err := newStandIn(list)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	for _, format := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+slicesOfAll+"?watch=1&sendInitialEvents=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", format)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		info := mediaType(format)
		events := streaming.NewDecoder(info.StreamSerializer.Framer.NewFrameReader(resp.Body), info.StreamSerializer.Serializer)
		next := func() (string, *discoveryv1.EndpointSlice) {
			var e metav1.WatchEvent
			if _, _, err := events.Decode(nil, &e); err != nil {
				t.Fatal(format, err)
			}
			o, _, err := codecs.UniversalDeserializer().Decode(e.Object.Raw, nil, nil)
			if err != nil {
				t.Fatal(format, err)
			}
			return e.Type, o.(*discoveryv1.EndpointSlice)
		}
		for range list {
			if what, o := next(); what != "ADDED" || len(o.Endpoints) != 2 {
				t.Errorf("%s: %s with %d endpoints", format, what, len(o.Endpoints))
			}
		}
		if what, o := next(); what != "BOOKMARK" || o.Annotations["k8s.io/initial-events-end"] != "true" {
			t.Errorf("%s: %s %v", format, what, o.Annotations)
		}
		a.apply(t.Context(), change{service: list[1], address: 77})
		if what, o := next(); what != "MODIFIED" || o.Endpoints[0].Addresses[0] != address(77).String() {
			t.Errorf("%s: %s %v", format, what, o.Endpoints)
		}
		resp.Body.Close()
	}
}
