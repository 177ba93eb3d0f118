package registry

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// This file is the only translation of API objects, for all sources. A translation
// never fails as a whole: what cannot be used is left out and named in problems.

func translateSlice(in *discoveryv1.EndpointSlice) (out *Slice, problems []string) {
	out, problems = readSlice(in)
	pack(func(text func(*string)) {
		text(&out.Name)
		text(&out.UID)
		text(&out.Service)
		for i := range out.Endpoints {
			text(&out.Endpoints[i].Hostname)
			text(&out.Endpoints[i].Pod)
		}
	})
	return out, problems
}

// readSlice takes texts as they are in the object.
func readSlice(in *discoveryv1.EndpointSlice) (out *Slice, problems []string) {
	out = &Slice{
		Namespace: shared(in.Namespace),
		Name:      in.Name,
		UID:       string(in.UID),
		Service:   in.Labels[discoveryv1.LabelServiceName],
	}
	if !in.CreationTimestamp.IsZero() {
		out.Created = in.CreationTimestamp.Unix()
	}
	if out.Service != "" {
		// Services are named so by the API; anything else could never be asked for.
		if len(validation.IsDNS1123Label(out.Service)) > 0 || len(validation.IsDNS1123Label(out.Namespace)) > 0 {
			problems = append(problems, fmt.Sprintf("its namespace or the Service in %s=%q is not a DNS label", discoveryv1.LabelServiceName, out.Service))
			out.Service = ""
		}
	}
	for i := range in.Ports {
		p, err := translateSlicePort(&in.Ports[i])
		if err != nil {
			problems = append(problems, fmt.Sprintf("ports[%d]: %v", i, err))
			continue
		}
		out.Ports = append(out.Ports, p)
	}
	switch in.AddressType {
	case discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6:
	case discoveryv1.AddressTypeFQDN:
		// The type has no defined meaning (discovery/v1); such a slice publishes nothing.
		return out, problems
	default:
		return out, append(problems, fmt.Sprintf("addressType %q is not known", in.AddressType))
	}
	out.Endpoints = make([]Endpoint, 0, len(in.Endpoints))
	for i := range in.Endpoints {
		e, err := translateEndpoint(&in.Endpoints[i], in.AddressType)
		if err != nil {
			problems = append(problems, fmt.Sprintf("endpoints[%d]: %v", i, err))
			continue
		}
		if h := in.Endpoints[i].Hostname; h != nil && *h != "" && e.Hostname == "" {
			problems = append(problems, fmt.Sprintf("endpoints[%d]: hostname %q is not a DNS label", i, *h))
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	return out, problems
}

// translateEndpoint reads the first address only: the API gives no meaning to
// the others. Nil conditions are read as discovery/v1 says: ready and serving
// true, terminating false.
func translateEndpoint(in *discoveryv1.Endpoint, family discoveryv1.AddressType) (Endpoint, error) {
	if len(in.Addresses) == 0 {
		return Endpoint{}, fmt.Errorf("no address")
	}
	addr, err := netip.ParseAddr(in.Addresses[0])
	if err != nil {
		return Endpoint{}, fmt.Errorf("address %q is no IP address", in.Addresses[0])
	}
	if addr.Zone() != "" || addr.Is4() != (family == discoveryv1.AddressTypeIPv4) || addr.Is4In6() {
		return Endpoint{}, fmt.Errorf("address %q is not of type %s", in.Addresses[0], family)
	}
	out := Endpoint{
		Addr:        addr,
		Node:        shared(value(in.NodeName, "")),
		Zone:        shared(value(in.Zone, "")),
		Ready:       value(in.Conditions.Ready, true),
		Serving:     value(in.Conditions.Serving, true),
		Terminating: value(in.Conditions.Terminating, false),
	}
	if h := strings.ToLower(value(in.Hostname, "")); h != "" && len(validation.IsDNS1123Label(h)) == 0 {
		out.Hostname = h
	}
	if in.Hints != nil {
		var zones, nodes []string
		for _, z := range in.Hints.ForZones {
			zones = append(zones, z.Name)
		}
		for _, n := range in.Hints.ForNodes {
			nodes = append(nodes, n.Name)
		}
		out.Hints = NewHints(zones, nodes)
	}
	if r := in.TargetRef; r != nil && r.Kind == "Pod" {
		out.Pod = r.Name
	}
	return out, nil
}

// translateSlicePort reads nil fields as discovery/v1 says: no name, TCP, any number.
func translateSlicePort(in *discoveryv1.EndpointPort) (Port, error) {
	return translatePort(value(in.Name, ""), value(in.Protocol, corev1.ProtocolTCP), value(in.Port, 0))
}

// translateService returns nil where the Service has no name that could be asked for.
func translateService(in *corev1.Service, prefix string) (out *Object, problems []string) {
	if len(validation.IsDNS1123Label(in.Name)) > 0 || len(validation.IsDNS1123Label(in.Namespace)) > 0 {
		return nil, []string{"its name or namespace is not a DNS label; there is no such Service"}
	}
	out, problems = readService(in, prefix)
	pack(func(text func(*string)) {
		text(&out.UID)
		text(&out.ExternalName)
		for i := range out.Labels {
			text(&out.Labels[i].Value)
		}
		for i := range out.Annotations {
			text(&out.Annotations[i].Value)
		}
	})
	return out, problems
}

// readService takes texts as they are in the object.
func readService(in *corev1.Service, prefix string) (out *Object, problems []string) {
	out = &Object{
		UID:                 string(in.UID),
		IsExternalName:      in.Spec.Type == corev1.ServiceTypeExternalName,
		TrafficDistribution: shared(value(in.Spec.TrafficDistribution, "")),
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
	if p.Name != "" && len(validation.IsDNS1123Label(p.Name)) > 0 {
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
