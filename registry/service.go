package registry

import (
	"net/netip"
	"strings"
	"unique"
)

// Key names a Service.
type Key struct {
	Namespace, Name string
}

func (k Key) String() string { return k.Namespace + "/" + k.Name }

// Service is the snapshot of one Service: its object, where Services are
// watched, and what its EndpointSlices contribute. It never changes once handed
// out; readers may keep it as long as they like and must not write to it.
type Service struct {
	Key

	// Exists is false in the last snapshot of a Service that is gone.
	Exists bool

	// Object is what the Service object says, or nil where Services are not
	// watched and the slices alone make the Service exist.
	Object *Object

	// Slices are the contributions in order of their names.
	Slices []*Slice

	// Held is not 0 where the last list lacked most of the endpoints and Slices are those
	// from before. It is the time until when, in Unix seconds.
	Held int64
}

// Object is what epdns keeps of a Service object (core/v1).
type Object struct {
	UID string

	// ExternalName is the target of a Service of type ExternalName, as written
	// in the object, or empty where that is no domain name.
	IsExternalName bool
	ExternalName   string

	// Ports are those of the Service's spec: they tell which port names exist,
	// not where the pods listen.
	Ports []Port

	// TrafficDistribution is the field of that name, empty where it is not set.
	TrafficDistribution string

	// Kind is what clients outside epdns take the Service for.
	Kind ServiceKind

	// Labels are the Service's, and Annotations those that have the Store's prefix,
	// which is taken off.
	Labels, Annotations Pairs
}

// ServiceKind tells Services apart as Kubernetes' own metrics do.
type ServiceKind uint8

const (
	KindUnknown            ServiceKind = iota // the source does not say, or it is an alias
	KindClusterIP                             // it has an address of its own
	KindHeadless                              // it has none, and selects pods
	KindHeadlessNoSelector                    // nor that: somebody else writes its slices

	ServiceKinds // how many there are
)

func (k ServiceKind) String() string {
	return [ServiceKinds]string{"unknown", "cluster_ip", "headless_with_selector", "headless_without_selector"}[k]
}

// Pairs are labels or annotations in order of their keys. They can be asked as
// k8s.io/apimachinery/pkg/labels.Labels.
type Pairs []Pair

// Pair is one label or annotation.
type Pair struct{ Key, Value string }

// Lookup is the value of a key, and whether there is one.
func (p Pairs) Lookup(key string) (value string, exists bool) {
	for i := range p {
		if p[i].Key == key {
			return p[i].Value, true
		}
	}
	return "", false
}

// Get is the value of a key, empty where there is none.
func (p Pairs) Get(key string) string {
	value, _ := p.Lookup(key)
	return value
}

// Has says whether there is such a key.
func (p Pairs) Has(key string) bool {
	_, ok := p.Lookup(key)
	return ok
}

// Slice is what one EndpointSlice (discovery.k8s.io/v1) contributes.
type Slice struct {
	Namespace, Name, UID string

	// Service is the value of the label kubernetes.io/service-name, empty where
	// the slice belongs to no Service.
	Service string

	Created int64 // Unix seconds, 0 where the source does not say

	// Ports hold for every endpoint of the slice.
	Ports []Port

	Endpoints Endpoints
}

// Key is that of the Service the slice belongs to.
func (s *Slice) Key() Key { return Key{s.Namespace, s.Service} }

// Endpoint is one address behind a Service.
type Endpoint struct {
	Addr netip.Addr

	// Hostname is the endpoint's own host name, empty where it has none.
	Hostname string

	// Pod is the name of the pod behind the endpoint, empty where it is no pod.
	Pod string

	// Zone is the endpoint's own, or where it has none its Node's. Region is its
	// Node's.
	Node, Zone, Region string

	// Hints say for whom the endpoint is meant.
	Hints Hints

	// The conditions, with the meaning that discovery.k8s.io/v1 gives to nil.
	Ready, Serving, Terminating bool
}

// Hints are the zones and nodes that an endpoint is meant for (EndpointHints of
// discovery.k8s.io/v1). Equal ones are ==; the zero Hints are none.
type Hints struct{ of unique.Handle[hints] }

type hints struct{ zones, nodes string } // names, joined by spaces

// NewHints makes Hints of names.
func NewHints(zones, nodes []string) Hints {
	if len(zones)+len(nodes) == 0 {
		return Hints{}
	}
	return Hints{unique.Make(hints{strings.Join(zones, " "), strings.Join(nodes, " ")})}
}

// Zones are the zones that the endpoint is meant for.
func (h Hints) Zones() []string {
	if h == (Hints{}) {
		return nil
	}
	return strings.Fields(h.of.Value().zones)
}

// Nodes are the nodes that the endpoint is meant for.
func (h Hints) Nodes() []string {
	if h == (Hints{}) {
		return nil
	}
	return strings.Fields(h.of.Value().nodes)
}

// Port is a port of a Service or a slice.
type Port struct {
	Name     string // empty: unnamed
	Protocol Protocol
	Number   uint16 // 0: any port, as a slice may say by leaving the number out
}

// Protocol is the transport protocol of a Port.
type Protocol uint8

const (
	TCP Protocol = iota
	UDP
	SCTP
)

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	case SCTP:
		return "SCTP"
	}
	return "unknown"
}
