package zones

import "bytes"

// few Services lie near the processor in any case.
const few = 500

// LookAhead has the processor fetch what the answers to some names are made of, for all
// of them side by side. Where there are many Services it lies far away, and each answer
// by itself would wait for it again and again. No answer depends on it.
func (a *Answer) LookAhead(s *Set, names [][]byte) {
	if len(names) < 2 || s.Services() < few {
		return
	}
	a.ahead = a.ahead[:0]
	for _, name := range names {
		if svc := a.find(s, name); svc != nil {
			a.ahead = append(a.ahead, svc)
		}
	}
	// The sum is for the compiler, which would leave out what is of no use.
	sum := 0
	for _, svc := range a.ahead {
		sum += int(svc.ttl) + svc.published.a.n + len(svc.v4.wire)
	}
	for _, svc := range a.ahead {
		if len(svc.v4.wire) > 0 {
			sum += int(svc.v4.wire[0])
		}
	}
	a.looked = sum
}

// find is the Service that a name is at or below, nil where there is none.
func (a *Answer) find(s *Set, name []byte) *service {
	labels := a.split(name)
	for i, z := range s.cfg.zones {
		n := labels - z.labels
		if n < 0 || !bytes.Equal(name[a.offsets[n]:], z.apex) {
			continue
		}
		if z.layout == Kubernetes {
			n-- // svc
		}
		if n < 2 {
			return nil
		}
		svc, _ := s.services[i].get(name[a.offsets[n-2]:a.offsets[n]])
		return svc
	}
	return nil
}
