package kube

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"reflect"
	"runtime/debug"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"epdns/registry"
)

// kind is a kind of object that we watch.
type kind struct {
	name     string // as in a manifest
	resource string // as in a URL
	group    schema.GroupVersion
	example  runtime.Object
	off      string // what is missed without it

	// decode reads an object in protobuf. Where it is nil, the generated code of the
	// API type does: of the few objects of such a kind it is good enough.
	decode func(octets []byte) (*registry.Digest, error)
}

var (
	endpointSlices = &kind{"EndpointSlice", "endpointslices", discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{},
		"Services there have no endpoints", registry.DecodeSlice}
	services = &kind{"Service", "services", corev1.SchemeGroupVersion, &corev1.Service{},
		"aliases (ExternalName) and annotations of Services are not known, and a Service exists while an EndpointSlice names it", nil}
	nodes = &kind{"Node", "nodes", corev1.SchemeGroupVersion, &corev1.Node{},
		"there are no regions, an endpoint has no other zone than its EndpointSlice says, and who asks has no place unless it is an endpoint", nil}
)

// is says whether an object of a watch is of the kind.
func (k *kind) is(o runtime.Object) bool {
	if a, ok := o.(*arrival); ok {
		return a.kind == k
	}
	return reflect.TypeOf(o) == reflect.TypeOf(k.example)
}

// fullResource is the resource as a person writes it in a role.
func (k *kind) fullResource() string {
	return schema.GroupResource{Group: k.group.Group, Resource: k.resource}.String()
}

// newScheme knows the three kinds and nothing else. client-go's scheme knows all of
// them and, through them, doubles the size of the program.
func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	s.AddKnownTypes(corev1.SchemeGroupVersion, &corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{})
	metav1.AddToGroupVersion(s, discoveryv1.SchemeGroupVersion)
	metav1.AddToGroupVersion(s, corev1.SchemeGroupVersion)
	return s
}

// client talks to the two API groups over one connection.
type client struct {
	groups map[schema.GroupVersion]rest.Interface
}

func newClient(rc *rest.Config) (*client, error) {
	rc = rest.CopyConfig(rc)
	rc.UserAgent = userAgent()
	rc.QPS = -1 // a handful of requests, none of them to be delayed
	rc.WarningHandler = rest.NoWarnings{}
	rc.NegotiatedSerializer = newCodecs()
	rc.ContentType = runtime.ContentTypeProtobuf
	rc.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if rc.Dial == nil && rc.Transport == nil {
		rc.Dial = dialer.DialContext
	}
	transport, err := newRenewing(rc)
	if err != nil {
		return nil, err
	}
	hc := &http.Client{Transport: transport, Timeout: rc.Timeout}
	c := &client{groups: map[schema.GroupVersion]rest.Interface{}}
	for _, k := range []*kind{endpointSlices, services} {
		gc := rest.CopyConfig(rc)
		gc.GroupVersion = &k.group
		gc.APIPath = "/apis"
		if k.group.Group == "" {
			gc.APIPath = "/api"
		}
		if c.groups[k.group], err = rest.RESTClientForConfigAndClient(gc, hc); err != nil {
			return nil, fmt.Errorf("client for %s: %w", k.group, err)
		}
	}
	return c, nil
}

// dialer finds a dead peer under any protocol: 5 s of silence, then two probes 5 s
// apart. HTTP/2 has its pings besides; HTTP/1.1 has only this.
var dialer = &net.Dialer{
	Timeout: 5 * time.Second,
	KeepAliveConfig: net.KeepAliveConfig{
		Enable:   true,
		Idle:     5 * time.Second,
		Interval: 5 * time.Second,
		Count:    2,
	},
}

// The HTTP/2 transport is made inside client-go, which takes its settings from the
// environment only. After 5 s of silence it pings; 4 s later it gives up: 9 s, where
// its defaults make 45. That is less than SyncDeadline, so that a connection that
// died is not taken for a streaming list without an end.
var pingSettings = map[string]string{
	"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "5",
	"HTTP2_PING_TIMEOUT_SECONDS":      "4",
}

// pings guards the environment between setPings and its undoing.
var pings sync.Mutex

// setPings sets what the user has not set. The function it returns undoes that.
func setPings() (undo func()) {
	var ours []string
	for name, value := range pingSettings {
		if _, theirs := os.LookupEnv(name); !theirs && os.Setenv(name, value) == nil {
			ours = append(ours, name)
		}
	}
	return func() {
		for _, name := range ours {
			os.Unsetenv(name)
		}
	}
}

// userAgent tells the operator of the API server who asks.
func userAgent() string {
	version := "devel"
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		version = info.Main.Version
	}
	return "epdns/" + version
}
