package registry

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"epdns/internal/protobuf"
)

// This file reads EndpointSlices in protobuf without an API object in between, which
// would be twenty times what is kept of it, in a hundred times as many pieces. The numbers
// of the fields are in generated.proto of k8s.io/api/discovery/v1, core/v1 and
// k8s.io/apimachinery/pkg/apis/meta/v1.

// DecodeSlice is what the Digest of a [SliceFeed] is of the EndpointSlice
// (discovery.k8s.io/v1) that octets are in protobuf. It keeps no part of octets. An error
// says what in them is no such object; of what has no meaning here it checks no more than
// where it ends. It may be called from any goroutine.
func DecodeSlice(octets []byte) (*Digest, error) {
	var d Digest
	var slice *Slice
	var err error
	slice, d.problems, d.from, err = decodeSlice(octets)
	if err != nil {
		return nil, fmt.Errorf("EndpointSlice: %w", err)
	}
	d.namespace, d.name, d.of = slice.Namespace, slice.Name, slice
	return &d, nil
}

// Fields of an EndpointSlice.
const (
	sliceMeta        = 1
	sliceEndpoints   = 2
	slicePorts       = 3
	sliceAddressType = 4
)

// decodeSlice reads octets three times, since what ports and endpoints mean depends on
// what may come after them.
func decodeSlice(octets []byte) (slice *Slice, problems []string, from int64, err error) {
	var in writtenSlice
	ports := false
	m := protobuf.Read(octets)
	for m.Next() {
		switch m.Field {
		case sliceMeta:
			if err := in.decodeMeta(m.Message()); err != nil {
				return nil, nil, 0, fmt.Errorf("metadata: %w", err)
			}
		case sliceAddressType:
			in.family = discoveryv1.AddressType(m.Text())
		case slicePorts:
			ports = m.Octets() != nil
		case sliceEndpoints:
			if len(m.Octets()) > 0 { // else it has no address
				in.endpoints++
			}
		}
	}
	if err := m.Err(); err != nil {
		return nil, nil, 0, err
	}
	t := newSliceTranslation(&in)
	for m := protobuf.Read(octets); ports && m.Next(); {
		if m.Field == slicePorts {
			if err := t.decodePort(m.Message()); err != nil {
				return nil, nil, 0, fmt.Errorf("ports[%d]: %w", t.ports, err)
			}
		}
	}
	t.portsDone()
	var e writtenEndpoint
	for m := protobuf.Read(octets); m.Next(); {
		if m.Field == sliceEndpoints {
			if err := e.decode(m.Message()); err != nil {
				return nil, nil, 0, fmt.Errorf("endpoints[%d]: %w", t.endpoints, err)
			}
			t.endpoint(&e)
		}
	}
	slice, problems = t.done()
	return slice, problems, in.from, nil
}

func (w *writtenSlice) decodeMeta(m protobuf.Message) error {
	for m.Next() {
		switch m.Field {
		case 1:
			w.name = m.Text()
		case 3:
			w.namespace = m.Text()
		case 5:
			w.uid = m.Text()
		case 8:
			var err error
			if w.created, err = decodeTime(m.Message()); err != nil {
				return fmt.Errorf("creationTimestamp: %w", err)
			}
		case 11:
			if key, value := m.Entry(); key == discoveryv1.LabelServiceName {
				w.service = value
			}
		case 12:
			if key, value := m.Entry(); key == corev1.EndpointsLastChangeTriggerTime {
				w.from = triggerTime(value)
			}
		}
	}
	return m.Err()
}

func decodeTime(m protobuf.Message) (time.Time, error) {
	seconds, empty := int64(0), true
	for m.Next() {
		empty = false
		if m.Field == 1 {
			seconds = int64(m.Number())
		}
	}
	if empty {
		return time.Time{}, m.Err()
	}
	return time.Unix(seconds, 0), m.Err()
}

func (t *sliceTranslation) decodePort(m protobuf.Message) error {
	name, protocol, number := "", corev1.ProtocolTCP, int32(0)
	for m.Next() {
		switch m.Field {
		case 1:
			name = m.Text()
		case 2:
			protocol = corev1.Protocol(m.Text())
		case 3:
			number = int32(m.Number())
		}
	}
	if err := m.Err(); err != nil {
		return err
	}
	t.port(name, protocol, number)
	return nil
}

func (w *writtenEndpoint) decode(m protobuf.Message) error {
	w.reset()
	for m.Next() {
		var err error
		switch m.Field {
		case 1:
			w.addAddress(m.Text())
		case 2:
			err = w.decodeConditions(m.Message())
		case 3:
			w.hostname = m.Text()
		case 4:
			err = w.decodeTarget(m.Message())
		case 6:
			w.node = m.Text()
		case 7:
			w.zone = m.Text()
		case 8:
			err = w.decodeHints(m.Message())
		}
		if err != nil {
			return fmt.Errorf("field %d: %w", m.Field, err)
		}
	}
	return m.Err()
}

func (w *writtenEndpoint) decodeConditions(m protobuf.Message) error {
	for m.Next() {
		switch m.Field {
		case 1:
			w.ready = m.Number() != 0
		case 2:
			w.serving = m.Number() != 0
		case 3:
			w.terminating = m.Number() != 0
		}
	}
	return m.Err()
}

func (w *writtenEndpoint) decodeTarget(m protobuf.Message) error {
	for m.Next() {
		switch m.Field {
		case 1:
			w.targetKind = m.Text()
		case 3:
			w.targetName = m.Text()
		}
	}
	return m.Err()
}

func (w *writtenEndpoint) decodeHints(m protobuf.Message) error {
	for m.Next() {
		switch m.Field {
		case 1, 2: // a zone, a node
			name, err := decodeName(m.Message())
			if err != nil {
				return err
			}
			if m.Field == 1 {
				w.zones = append(w.zones, name)
			} else {
				w.nodes = append(w.nodes, name)
			}
		}
	}
	return m.Err()
}

func decodeName(m protobuf.Message) (name string, err error) {
	for m.Next() {
		if m.Field == 1 {
			name = m.Text()
		}
	}
	return name, m.Err()
}
