package registry

import "net/netip"

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
}

// Slice is what one EndpointSlice (discovery.k8s.io/v1) contributes.
type Slice struct {
	Namespace, Name, UID string

	// Service is the value of the label kubernetes.io/service-name, empty where
	// the slice belongs to no Service.
	Service string

	// Ports hold for every endpoint of the slice.
	Ports []Port

	Endpoints []Endpoint
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

	// Zone is the endpoint's own, or where it has none its Node's.
	Node, Zone   string
	zoneFromNode bool

	// The conditions, with the meaning that discovery.k8s.io/v1 gives to nil.
	Ready, Serving, Terminating bool
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
