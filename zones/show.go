package zones

import "epdns/registry"

// This file is what there is to say of zones to people who look at them.

// ZoneStatus is a zone that is served.
type ZoneStatus struct {
	Name     string // with the final dot
	Layout   Layout
	Services int // that are in it
}

// Zones are those that are served, in the order of the configuration. It takes a moment
// for each namespace.
func (s *Set) Zones() []ZoneStatus {
	out := make([]ZoneStatus, len(s.cfg.zones))
	for i, z := range s.cfg.zones {
		out[i] = ZoneStatus{Name: nameText(z.apex), Layout: z.layout}
		s.namespaces[i].all(func(_ string, services int) bool {
			out[i].Services += services
			return true
		})
	}
	return out
}

// VersionOf is what tells one state of a Service that is served from another, by ==. It is nil
// where none is.
func (s *Set) VersionOf(k registry.Key) any {
	key := appendLabel(appendLabel(nil, k.Name), k.Namespace)
	for i := range s.services {
		if svc, ok := s.services[i].get(key); ok {
			return svc
		}
	}
	return nil
}

// NamesOf are the names of a Service, one for each zone that it is in. The key is that of one
// that exists.
func (s *Set) NamesOf(k registry.Key) (names []string) {
	key := appendLabel(appendLabel(nil, k.Name), k.Namespace)
	for i := range s.cfg.zones {
		if svc, ok := s.services[i].get(key); ok && !svc.hidden {
			names = append(names, nameText(svc.suffix))
		}
	}
	return names
}
