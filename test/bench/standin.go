//go:build linux

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
)

// standIn is as much of an API server as two clients need that list and watch: it takes changes
// faster than a real one on one processor. Watches speak protobuf or JSON, as the client likes
// and as a real one does; lists speak JSON. It has no users and forgets nothing.
type standIn struct {
	server *http.Server
	url    string

	mu      sync.Mutex
	version int
	slices  map[string]*encoded   // by namespace and name
	others  map[string][]*encoded // by kind
	changes []*encoded            // of slices, one a version
	changed chan struct{}         // closed at the next
}

// encoded is an object as JSON and, on its own, as protobuf.
type encoded struct {
	json     json.RawMessage
	protobuf []byte
}

var codecs = newCodecs()

func newCodecs() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, discoveryv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic("bench: " + err.Error()) // there are no two types of one name
		}
	}
	return serializer.NewCodecFactory(scheme)
}

func mediaType(name string) runtime.SerializerInfo {
	info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), name)
	return info
}

const (
	slicesOfAll   = "/apis/discovery.k8s.io/v1/endpointslices"
	servicesOfAll = "/api/v1/services"
)

// newStandIn has some Services and their slices. Close must be called.
func newStandIn(list []*service) (*standIn, error) {
	a := &standIn{version: 1000, slices: map[string]*encoded{}, others: map[string][]*encoded{}, changed: make(chan struct{})}
	for _, s := range list {
		for i := range s.slices() {
			a.slices[s.namespace+"/"+s.sliceName(i)] = a.stored(s.slice(i, 0))
		}
		a.others["Service"] = append(a.others["Service"], a.stored(s.object()))
	}
	for i := range namespaces { // CoreDNS wants to know of them
		o := object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": fmt.Sprintf("ns-%d", i)}}
		a.others["Namespace"] = append(a.others["Namespace"], a.stored(o))
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a.url = "http://" + l.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+slicesOfAll, a.serve("discovery.k8s.io/v1", "EndpointSlice"))
	mux.HandleFunc("GET "+servicesOfAll, a.serve("v1", "Service"))
	mux.HandleFunc("GET /api/v1/nodes", a.serve("v1", "Node"))
	mux.HandleFunc("GET /api/v1/namespaces", a.serve("v1", "Namespace"))
	a.server = &http.Server{Handler: mux}
	go a.server.Serve(l) // until Close
	return a, nil
}

func (a *standIn) Close() error { return a.server.Close() }

// kubeconfig is the content of a file that leads there.
func (a *standIn) kubeconfig() string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: it, cluster: {server: %q}}]
contexts: [{name: it, context: {cluster: it, user: it}}]
users: [{name: it, user: {}}]
current-context: it
`, a.url)
}

// stored is an object as an API server gives it out, with the next version.
func (a *standIn) stored(o object) *encoded {
	a.version++
	meta := o["metadata"].(object)
	meta["resourceVersion"] = strconv.Itoa(a.version)
	meta["uid"] = fmt.Sprintf("%v/%v", meta["namespace"], meta["name"])
	meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
	return encode(o)
}

func encode(o object) *encoded {
	b, err := json.Marshal(o)
	if err != nil {
		panic("bench: " + err.Error()) // it is made of strings and numbers
	}
	typed, _, err := codecs.UniversalDeserializer().Decode(b, nil, nil)
	var out bytes.Buffer
	if err == nil {
		err = mediaType(runtime.ContentTypeProtobuf).Serializer.Encode(typed, &out)
	}
	if err != nil {
		panic("bench: " + err.Error()) // it is an object of the API
	}
	return &encoded{b, out.Bytes()}
}

// apply changes a slice. Watches are about to send it when it returns.
func (a *standIn) apply(_ context.Context, ch change) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.stored(ch.service.slice(ch.slice, ch.address))
	a.slices[ch.service.namespace+"/"+ch.service.sliceName(ch.slice)] = b
	a.changes = append(a.changes, b)
	close(a.changed)
	a.changed = make(chan struct{})
	return nil
}

// state is what there is of a kind.
func (a *standIn) state(kind string) (objects []*encoded, version int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if kind != "EndpointSlice" {
		return a.others[kind], a.version
	}
	for _, o := range a.slices {
		objects = append(objects, o)
	}
	return objects, a.version
}

// since are the changes of slices after a version, the version then, and what closes at the next.
func (a *standIn) since(kind string, version int) (changes []*encoded, now int, next <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := min(a.version-version, len(a.changes)); kind == "EndpointSlice" && n > 0 {
		changes = a.changes[len(a.changes)-n:]
	}
	return changes, a.version, a.changed
}

// serve answers lists and watches of a kind.
func (a *standIn) serve(group, kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		objects, version := a.state(kind)
		if watch, _ := strconv.ParseBool(query.Get("watch")); !watch {
			items := make([]json.RawMessage, len(objects)) // none is [], not null
			for i, o := range objects {
				items[i] = o.json
			}
			w.Header().Set("Content-Type", runtime.ContentTypeJSON)
			json.NewEncoder(w).Encode(object{
				"apiVersion": group, "kind": kind + "List", "metadata": object{"resourceVersion": strconv.Itoa(version)}, "items": items,
			})
			return
		}
		send := sendJSON(w)
		if w.Header().Set("Content-Type", runtime.ContentTypeJSON); strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
			send = sendProtobuf(w)
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
		}
		if query.Get("sendInitialEvents") == "true" {
			for _, o := range objects {
				send("ADDED", o)
			}
			send("BOOKMARK", encode(object{"apiVersion": group, "kind": kind, "metadata": object{
				"resourceVersion": strconv.Itoa(version), "annotations": object{"k8s.io/initial-events-end": "true"},
			}}))
		} else if from, err := strconv.Atoi(query.Get("resourceVersion")); err == nil {
			version = from
		}
		for {
			changes, now, next := a.since(kind, version)
			for _, o := range changes {
				if send("MODIFIED", o) != nil {
					return // the client has gone
				}
			}
			version = now
			w.(http.Flusher).Flush()
			select {
			case <-r.Context().Done():
				return
			case <-next:
			}
		}
	}
}

// sendJSON and sendProtobuf write the events of a watch.
func sendJSON(w io.Writer) func(what string, o *encoded) error {
	e := json.NewEncoder(w)
	return func(what string, o *encoded) error { return e.Encode(object{"type": what, "object": o.json}) }
}

func sendProtobuf(w io.Writer) func(what string, o *encoded) error {
	info := mediaType(runtime.ContentTypeProtobuf).StreamSerializer
	e := streaming.NewEncoder(info.Framer.NewFrameWriter(w), info.Serializer)
	return func(what string, o *encoded) error {
		return e.Encode(&metav1.WatchEvent{Type: what, Object: runtime.RawExtension{Raw: o.protobuf}})
	}
}
