package registry

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Node is what epdns keeps of a Node (core/v1).
type Node struct {
	Name, UID string

	// Zone and Region are those of the well-known labels topology.kubernetes.io/zone
	// and topology.kubernetes.io/region.
	Zone, Region string

	Addresses []netip.Addr // of type InternalIP
	PodCIDRs  []netip.Prefix
	Ready     bool
}

// NodeFeed is the feed for Nodes.
type NodeFeed = Feed[*corev1.Node]

// Nodes opens a feed for Nodes. It may be off: then an endpoint without a zone of its
// own has none.
func (s *Store) Nodes() NodeFeed { return &nodeFeed{s, s.open()} }

// Node returns a Node as it is now, or nil. It may be called from any goroutine.
func (s *Store) Node(name string) *Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[name]
}

type nodeFeed struct {
	store *Store
	state *feedState
}

func (f *nodeFeed) Replace(objects []*corev1.Node) {
	f.store.write(f.state, func() {
		listed := make(map[string]struct{}, len(objects))
		moved := map[string]struct{}{}
		for _, o := range objects {
			listed[o.Name] = struct{}{}
			f.store.putNode(o, moved)
		}
		for _, name := range slices.Collect(maps.Keys(f.store.nodes)) {
			if _, ok := listed[name]; !ok {
				f.store.dropNode(name, moved)
			}
		}
		f.store.rezone(moved)
	})
}

func (f *nodeFeed) Put(o *corev1.Node) {
	f.store.write(nil, func() {
		moved := map[string]struct{}{}
		f.store.putNode(o, moved)
		f.store.rezone(moved)
	})
}

func (f *nodeFeed) Delete(o *corev1.Node) {
	f.store.write(nil, func() {
		if have := f.store.nodes[o.Name]; have != nil && have.UID == string(o.UID) {
			moved := map[string]struct{}{}
			f.store.dropNode(o.Name, moved)
			f.store.rezone(moved)
		}
	})
}

func (f *nodeFeed) Off() { f.Replace(nil) }

// putNode notes in moved a Node whose zone is another than before.
func (s *Store) putNode(o *corev1.Node, moved map[string]struct{}) {
	next, problems := translateNode(o)
	s.report(objectID{kindNode, "", o.Name}, problems)
	have := s.nodes[o.Name]
	s.nodes[o.Name] = next
	if have == nil && next.Zone != "" || have != nil && have.Zone != next.Zone {
		moved[o.Name] = struct{}{}
	}
}

func (s *Store) dropNode(name string, moved map[string]struct{}) {
	if s.nodes[name].Zone != "" {
		moved[name] = struct{}{}
	}
	delete(s.nodes, name)
	delete(s.warned, objectID{kindNode, "", name})
}

// borrowZones gives each endpoint without a zone that of its Node.
func (s *Store) borrowZones(slice *Slice) {
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if e.zoneFromNode = e.Zone == "" && e.Node != ""; !e.zoneFromNode {
			continue
		}
		if n := s.nodes[e.Node]; n != nil {
			e.Zone = n.Zone
		}
	}
}

// rezone replaces the slices with endpoints whose zone is that of a Node that moved.
// It goes over all slices, which a new or relabelled Node is rare enough for.
func (s *Store) rezone(moved map[string]struct{}) {
	if len(moved) == 0 {
		return
	}
	for _, n := range slices.Collect(maps.Keys(s.slices)) {
		have := s.slices[n]
		var next *Slice
		for i, e := range have.Endpoints {
			if _, ok := moved[e.Node]; !ok || !e.zoneFromNode {
				continue
			}
			if next == nil { // what is published does not change
				c := *have
				c.Endpoints = slices.Clone(have.Endpoints)
				next = &c
			}
			next.Endpoints[i].Zone = ""
			if node := s.nodes[e.Node]; node != nil {
				next.Endpoints[i].Zone = node.Zone
			}
		}
		if next != nil {
			s.dropSlice(n, have)
			s.addSlice(n, next)
		}
	}
}

func translateNode(in *corev1.Node) (out *Node, problems []string) {
	out = &Node{
		Name:   in.Name,
		UID:    string(in.UID),
		Zone:   shared(in.Labels[corev1.LabelTopologyZone]),
		Region: shared(in.Labels[corev1.LabelTopologyRegion]),
	}
	for _, a := range in.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		addr, err := netip.ParseAddr(a.Address)
		if err != nil {
			problems = append(problems, "InternalIP "+a.Address+" is no IP address")
			continue
		}
		out.Addresses = append(out.Addresses, addr.Unmap())
	}
	cidrs := in.Spec.PodCIDRs
	if len(cidrs) == 0 && in.Spec.PodCIDR != "" {
		cidrs = []string{in.Spec.PodCIDR}
	}
	for _, c := range cidrs {
		p, err := netip.ParsePrefix(c)
		if err != nil {
			problems = append(problems, "podCIDR "+c+" is no prefix")
			continue
		}
		out.PodCIDRs = append(out.PodCIDRs, p.Masked())
	}
	for _, c := range in.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Ready = c.Status == corev1.ConditionTrue
		}
	}
	return out, problems
}
