package registry

import (
	"cmp"
	"context"
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// Watch yields a Service as it is, with all that is behind it as added, and then
// again each time that it changes, with what has changed since the yield before.
//
//   - It begins once the Store is synced, also where the Service does not exist:
//     its first yield tells.
//   - A yield without changes means that something else about the Service is
//     different: it exists now or no more, or its object says something else.
//   - It misses nothing. Changes that come faster than the loop's body runs are
//     folded: who came and went in between is not told of.
//   - It holds one snapshot and nothing else, however long it runs, and ends when
//     ctx does.
//
// Any number of loops may run, in goroutines of their own, and end with one ctx.
func (s *Store) Watch(ctx context.Context, namespace, name string) iter.Seq2[*Service, []Change] {
	return s.watch(ctx, func() *Follower { return s.Follow(namespace, name) })
}

// WatchAll is Watch for all Services: it yields each that exists, and then each
// that changes. It holds the last snapshot of each.
func (s *Store) WatchAll(ctx context.Context) iter.Seq2[*Service, []Change] {
	return s.watch(ctx, s.FollowAll)
}

func (s *Store) watch(ctx context.Context, follow func() *Follower) iter.Seq2[*Service, []Change] {
	return func(yield func(*Service, []Change) bool) {
		if !s.wait(ctx) {
			return
		}
		f := follow()
		defer f.Close()
		last := map[Key]*Service{}
		for {
			select {
			case <-ctx.Done():
				return
			case <-f.Changed():
			}
			services := f.Take()
			slices.SortFunc(services, func(a, b *Service) int {
				return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
			})
			for _, svc := range services {
				before, known := last[svc.Key]
				switch {
				case known && (before == svc || !before.Exists && !svc.Exists):
					continue // woken twice, or gone again before anybody saw it
				case svc.Exists || !f.all:
					last[svc.Key] = svc
				case !known:
					continue // came and went
				default:
					delete(last, svc.Key)
				}
				if ctx.Err() != nil || !yield(svc, Diff(before, svc)) {
					return
				}
			}
		}
	}
}

// ChangeType is what has happened to an endpoint.
type ChangeType uint8

const (
	Added ChangeType = iota
	Changed
	Removed
)

// String is the name that Kubernetes watches and people use.
func (t ChangeType) String() string {
	switch t {
	case Added:
		return "ADDED"
	case Changed:
		return "CHANGED"
	case Removed:
		return "REMOVED"
	}
	return "UNKNOWN"
}

// Change is one endpoint that came, went or is different from before: in its
// conditions, its place, its ports or the slice that it stands in.
type Change struct {
	Type   ChangeType
	Member        // as it is, or where it was Removed, as it was
	Was    Member // where it has Changed, as it was before
}

// Member is one endpoint of a Service, as all its slices have it.
type Member struct {
	Endpoint
	Slice string // the slice that it stands in, the first by name of several
	Ports []Port
}

// Members are the endpoints behind a Service, each once, in order of their
// addresses. One that stands in several slices is ready if it is in any of them.
// The list is made anew for each caller: who needs it for every request keeps it
// as long as Snapshot returns the same pointer.
func (s *Service) Members() []Member {
	if s == nil || !s.Exists {
		return nil
	}
	var out []Member
	at := map[identity]int{}
	for _, slice := range s.Slices {
		for _, e := range slice.Endpoints.All() {
			id := identify(&e)
			i, twice := at[id]
			if !twice {
				at[id] = len(out)
				out = append(out, Member{e, slice.Name, slice.Ports})
				continue
			}
			m := &out[i]
			m.Ready = m.Ready || e.Ready
			m.Serving = m.Serving || e.Serving
			m.Terminating = m.Terminating && e.Terminating
			m.Node, m.Zone = cmp.Or(m.Node, e.Node), cmp.Or(m.Zone, e.Zone)
			for _, p := range slice.Ports {
				if !slices.Contains(m.Ports, p) {
					m.Ports = append(slices.Clip(m.Ports), p)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(a.Addr.Compare(b.Addr), strings.Compare(a.Hostname, b.Hostname), strings.Compare(a.Pod, b.Pod))
	})
	return out
}

// Port is the number of a port by its name, for instance "http", and whether the
// endpoint has it.
func (m *Member) Port(name string) (number uint16, ok bool) {
	for _, p := range m.Ports {
		if p.Name == name && p.Number != 0 {
			return p.Number, true
		}
	}
	return 0, false
}

// identity tells endpoints apart: pods with the network of their host share an address.
type identity struct {
	addr          netip.Addr
	hostname, pod string
}

func identify(e *Endpoint) identity { return identity{e.Addr, e.Hostname, e.Pod} }

// Diff says what has changed from one snapshot of a Service to a later one, either
// of which may be nil: first who has gone, then who is different or new, each in
// order of addresses.
func Diff(before, after *Service) []Change {
	var out []Change
	old := before.Members()
	was := make(map[identity]*Member, len(old))
	for i := range old {
		was[identify(&old[i].Endpoint)] = &old[i]
	}
	var now []Change
	for _, m := range after.Members() {
		id := identify(&m.Endpoint)
		w, ok := was[id]
		delete(was, id)
		switch {
		case !ok:
			now = append(now, Change{Type: Added, Member: m})
		case w.Endpoint != m.Endpoint || w.Slice != m.Slice || !slices.Equal(w.Ports, m.Ports):
			now = append(now, Change{Type: Changed, Member: m, Was: *w})
		}
	}
	for i := range old {
		if _, gone := was[identify(&old[i].Endpoint)]; gone {
			out = append(out, Change{Type: Removed, Member: old[i]})
		}
	}
	return append(out, now...)
}
