package registry

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// This file is the only translation of API objects, for all sources. A translation
// never fails as a whole: what cannot be used is left out and named in problems.

// translateSlice reads an API object; DecodeSlice reads its wire form. What either finds
// goes through a sliceTranslation, which knows what it means.
func translateSlice(in *discoveryv1.EndpointSlice) (*Slice, []string) {
	t := newSliceTranslation(&writtenSlice{
		namespace: in.Namespace, name: in.Name, uid: string(in.UID),
		service: in.Labels[discoveryv1.LabelServiceName],
		created: in.CreationTimestamp.Time, family: in.AddressType, endpoints: len(in.Endpoints),
	})
	for i := range in.Ports {
		p := &in.Ports[i]
		t.port(value(p.Name, ""), value(p.Protocol, corev1.ProtocolTCP), value(p.Port, 0))
	}
	t.portsDone()
	var e writtenEndpoint
	for i := range in.Endpoints {
		e.read(&in.Endpoints[i])
		t.endpoint(&e)
	}
	return t.done()
}

// writtenSlice is an EndpointSlice as it is written, but for its ports and endpoints.
type writtenSlice struct {
	namespace, name, uid string
	service              string // of its label
	created              time.Time
	family               discoveryv1.AddressType
	endpoints            int   // at most so many
	from                 int64 // as Digest has it
}

// triggerTime reads the annotation in which the EndpointSlice controller says when what
// it writes down has happened: when a pod became ready, for one.
func triggerTime(text string) (unixMilli int64) {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return 0
	}
	return t.UnixMilli()
}

// writtenEndpoint is an endpoint as it is written.
type writtenEndpoint struct {
	addresses            int
	address              string // the first one
	hostname, node, zone string

	// What discovery/v1 says where they are left out is ready and serving.
	ready, serving, terminating bool

	zones, nodes           []string // of the hints
	targetKind, targetName string
}

// reset makes it one of which nothing is written.
func (w *writtenEndpoint) reset() {
	*w = writtenEndpoint{ready: true, serving: true, zones: w.zones[:0], nodes: w.nodes[:0]}
}

// addAddress reads the first address only: the API gives no meaning to the others.
func (w *writtenEndpoint) addAddress(a string) {
	if w.addresses++; w.addresses == 1 {
		w.address = a
	}
}

func (w *writtenEndpoint) read(in *discoveryv1.Endpoint) {
	w.reset()
	for _, a := range in.Addresses {
		w.addAddress(a)
	}
	w.hostname, w.node, w.zone = value(in.Hostname, ""), value(in.NodeName, ""), value(in.Zone, "")
	w.ready = value(in.Conditions.Ready, w.ready)
	w.serving = value(in.Conditions.Serving, w.serving)
	w.terminating = value(in.Conditions.Terminating, w.terminating)
	if in.Hints != nil {
		for _, z := range in.Hints.ForZones {
			w.zones = append(w.zones, z.Name)
		}
		for _, n := range in.Hints.ForNodes {
			w.nodes = append(w.nodes, n.Name)
		}
	}
	if r := in.TargetRef; r != nil {
		w.targetKind, w.targetName = r.Kind, r.Name
	}
}

// sliceTranslation makes a Slice of what is written: first of the slice, then of each of
// its ports, then of each of its endpoints. Until it is done the Slice has parts of the
// texts that it was given.
type sliceTranslation struct {
	out              *Slice
	problems         []string
	family           discoveryv1.AddressType
	ports, endpoints int // so many were written

	packer *packer

	// Of the endpoint before, which the next one has in common most often.
	hints        Hints
	zones, nodes []string
}

func newSliceTranslation(in *writtenSlice) *sliceTranslation {
	t := &sliceTranslation{family: in.family, packer: newPacker(in.endpoints), out: &Slice{
		Namespace: shared(in.namespace),
		Name:      in.name,
		UID:       in.uid,
		Service:   in.service,
	}}
	if at := in.created.Unix(); !isTime(at) {
		t.problem("creationTimestamp: there is no such time")
	} else if !in.created.IsZero() {
		t.out.Created = at
	}
	if in.service != "" && (!isLabel(in.service) || !isLabel(in.namespace)) {
		// Services are named so by the API; anything else could never be asked for.
		t.problem("its namespace or the Service in %s=%q is not a DNS label", discoveryv1.LabelServiceName, in.service)
		t.out.Service = ""
	}
	return t
}

func (t *sliceTranslation) problem(format string, args ...any) {
	t.problems = append(t.problems, fmt.Sprintf(format, args...))
}

// publishes is false where endpoints mean nothing to us. Type FQDN has no defined
// meaning (discovery/v1).
func (t *sliceTranslation) publishes() bool {
	return t.family == discoveryv1.AddressTypeIPv4 || t.family == discoveryv1.AddressTypeIPv6
}

func (t *sliceTranslation) port(name string, protocol corev1.Protocol, number int32) {
	p, err := translatePort(name, protocol, number)
	if err != nil {
		t.problem("ports[%d]: %v", t.ports, err)
	} else {
		t.out.Ports = append(t.out.Ports, p)
	}
	t.ports++
}

// portsDone is between ports and endpoints.
func (t *sliceTranslation) portsDone() {
	if !t.publishes() && t.family != discoveryv1.AddressTypeFQDN {
		t.problem("addressType %q is not known", t.family)
	}
}

func (t *sliceTranslation) endpoint(in *writtenEndpoint) {
	i := t.endpoints
	t.endpoints++
	if !t.publishes() {
		return
	}
	addr, err := translateAddress(in, t.family)
	if err != nil {
		t.problem("endpoints[%d]: %v", i, err)
		return
	}
	out := Endpoint{
		Addr:        addr,
		Node:        in.node,
		Zone:        in.zone,
		Hints:       t.hintsOf(in),
		Ready:       in.ready,
		Serving:     in.serving,
		Terminating: in.terminating,
	}
	if h := strings.ToLower(in.hostname); isLabel(h) {
		out.Hostname = h
	} else if h != "" {
		t.problem("endpoints[%d]: hostname %q is not a DNS label", i, in.hostname)
	}
	if in.targetKind == "Pod" {
		out.Pod = in.targetName
	}
	t.packer.add(&out, out.Zone == "" && out.Node != "")
}

func translateAddress(in *writtenEndpoint, family discoveryv1.AddressType) (netip.Addr, error) {
	if in.addresses == 0 {
		return netip.Addr{}, errors.New("no address")
	}
	addr, err := netip.ParseAddr(in.address)
	if err != nil {
		return addr, fmt.Errorf("address %q is no IP address", in.address)
	}
	if addr.Zone() != "" || addr.Is4() != (family == discoveryv1.AddressTypeIPv4) || addr.Is4In6() {
		return addr, fmt.Errorf("address %q is not of type %s", in.address, family)
	}
	return addr, nil
}

func (t *sliceTranslation) hintsOf(in *writtenEndpoint) Hints {
	if !slices.Equal(in.zones, t.zones) || !slices.Equal(in.nodes, t.nodes) {
		t.zones, t.nodes = append(t.zones[:0], in.zones...), append(t.nodes[:0], in.nodes...)
		t.hints = NewHints(t.zones, t.nodes)
	}
	return t.hints
}

// done returns the Slice with texts of its own.
func (t *sliceTranslation) done() (*Slice, []string) {
	out := t.out
	out.Endpoints = t.packer.endpoints(&out.Name, &out.UID, &out.Service)
	return out, t.problems
}

// translateService returns nil where the Service has no name that could be asked for.
func translateService(in *corev1.Service, prefix string) (out *Object, problems []string) {
	if !isLabel(in.Name) || !isLabel(in.Namespace) {
		return nil, []string{"its name or namespace is not a DNS label; there is no such Service"}
	}
	out, problems = readService(in, prefix)
	out.pack()
	return out, problems
}

// pack gives an object that nobody has yet texts of its own.
func (o *Object) pack() {
	pack(func(text func(*string)) {
		text(&o.UID)
		text(&o.ExternalName)
		for i := range o.Labels {
			text(&o.Labels[i].Value)
		}
		for i := range o.Annotations {
			text(&o.Annotations[i].Value)
		}
	})
}

// readService takes texts as they are in the object.
func readService(in *corev1.Service, prefix string) (out *Object, problems []string) {
	out = &Object{
		UID:                 string(in.UID),
		IsExternalName:      in.Spec.Type == corev1.ServiceTypeExternalName,
		TrafficDistribution: shared(value(in.Spec.TrafficDistribution, "")),
		Kind:                kindOf(&in.Spec),
		Labels:              pairs(in.Labels, ""),
		Annotations:         pairs(in.Annotations, prefix),
	}
	if out.IsExternalName {
		if err := checkExternalName(in.Spec.ExternalName); err != nil {
			problems = append(problems, fmt.Sprintf("spec.externalName %q %v", in.Spec.ExternalName, err))
		} else {
			out.ExternalName = in.Spec.ExternalName
		}
	}
	for i := range in.Spec.Ports {
		p, err := translatePort(in.Spec.Ports[i].Name, in.Spec.Ports[i].Protocol, in.Spec.Ports[i].Port)
		if err != nil {
			problems = append(problems, fmt.Sprintf("spec.ports[%d]: %v", i, err))
			continue
		}
		out.Ports = append(out.Ports, p)
	}
	return out, problems
}

func kindOf(spec *corev1.ServiceSpec) ServiceKind {
	switch {
	case spec.Type == corev1.ServiceTypeExternalName:
		return KindUnknown
	case spec.ClusterIP != corev1.ClusterIPNone:
		return KindClusterIP
	case len(spec.Selector) > 0:
		return KindHeadless
	}
	return KindHeadlessNoSelector
}

// checkExternalName says whether a name can be the target of an alias. Names of
// digits are names to the API (core/v1 ExternalName), but nobody means them.
func checkExternalName(name string) error {
	if _, err := netip.ParseAddr(name); err == nil {
		return errors.New("is an address, not a name")
	}
	if msgs := validation.IsDNS1123SubdomainWithUnderscore(strings.ToLower(strings.TrimSuffix(name, "."))); len(msgs) > 0 {
		return errors.New("is not a domain name")
	}
	return nil
}

func translatePort(name string, protocol corev1.Protocol, number int32) (Port, error) {
	p := Port{Name: shared(strings.ToLower(name)), Number: uint16(number)}
	if number < 0 || number > 65535 {
		return p, fmt.Errorf("port %d is not between 0 and 65535", number)
	}
	switch protocol {
	case corev1.ProtocolTCP, "": // core/v1: TCP where left out
		p.Protocol = TCP
	case corev1.ProtocolUDP:
		p.Protocol = UDP
	case corev1.ProtocolSCTP:
		p.Protocol = SCTP
	default:
		return p, fmt.Errorf("protocol %q is not known", protocol)
	}
	if p.Name != "" && !isLabel(p.Name) {
		return p, fmt.Errorf("name %q is not a DNS label", name)
	}
	return p, nil
}

// pairs are the entries whose keys begin with prefix, which is taken off.
func pairs(in map[string]string, prefix string) (out Pairs) {
	for k, v := range in {
		if key, ok := strings.CutPrefix(k, prefix); ok {
			out = append(out, Pair{shared(key), v})
		}
	}
	slices.SortFunc(out, func(a, b Pair) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// shared returns the one copy of a text that many objects have.
func shared(s string) string {
	if s == "" {
		return ""
	}
	return unique.Make(s).Value()
}

// isLabel says whether a text is a label as the API knows them (RFC 1123, section 2.1),
// in lower case.
func isLabel(s string) bool {
	if len(s) == 0 || len(s) > 63 || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// latest is later than any object was made, and earlier below 0.
var latest = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC).Unix()

// isTime says whether an object can have been made then.
func isTime(unix int64) bool { return -latest < unix && unix < latest }

// pack moves texts, which each names one after the other, into one piece of memory.
// A decoded object has each of its texts in a piece of its own, between others that
// nobody keeps: the few that are kept would hold on to pages of what is not.
func pack(each func(text func(*string))) {
	size := 0
	each(func(t *string) { size += len(*t) })
	var b strings.Builder
	b.Grow(size)
	each(func(t *string) {
		from := b.Len()
		b.WriteString(*t)
		*t = b.String()[from:]
	})
}

// emptied is clear, but for a map that was once large: that keeps its size.
func emptied[K comparable](m map[K]struct{}) map[K]struct{} {
	if len(m) > 1024 {
		return map[K]struct{}{}
	}
	clear(m)
	return m
}

func value[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
