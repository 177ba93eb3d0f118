package registry

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"unique"

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
	return s.shownNodes()[name]
}

// AllNodes returns the Nodes as they are now, in order of their names.
func (s *Store) AllNodes() []*Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodesNow()
}

// shownNodes needs s.mu.
func (s *Store) shownNodes() map[string]*Node {
	if s.held != nil {
		return s.held.nodes
	}
	return s.nodes
}

func (s *Store) nodesNow() []*Node {
	return slices.SortedFunc(maps.Values(s.shownNodes()), func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
}

type nodeFeed struct {
	store *Store
	state *feedState
}

func (f *nodeFeed) Digest(o *corev1.Node) *Digest {
	node, problems := translateNode(o)
	return &Digest{name: node.Name, of: node, problems: problems}
}

func (f *nodeFeed) Replace(objects []*corev1.Node) { f.ReplaceDigests(digests(f, objects)) }

func (f *nodeFeed) ReplaceDigests(list []*Digest) {
	f.store.write(f.state, func() {
		listed := make(map[string]struct{}, len(list))
		moved := map[string]struct{}{}
		for _, d := range list {
			listed[d.name] = struct{}{}
			f.store.putNode(d, moved)
		}
		for _, name := range slices.Collect(maps.Keys(f.store.nodes)) {
			if _, ok := listed[name]; !ok {
				f.store.dropNode(name, moved)
			}
		}
		f.store.rezone(moved)
	})
}

func (f *nodeFeed) Put(o *corev1.Node) { f.PutDigest(f.Digest(o)) }

func (f *nodeFeed) PutDigest(d *Digest) {
	f.store.write(nil, func() {
		moved := map[string]struct{}{}
		f.store.putNode(d, moved)
		f.store.rezone(moved)
	})
}

func (f *nodeFeed) Delete(o *corev1.Node) { f.DeleteDigest(f.Digest(o)) }

func (f *nodeFeed) DeleteDigest(d *Digest) {
	f.store.write(nil, func() {
		if have := f.store.nodes[d.name]; have != nil && have.UID == d.of.(*Node).UID {
			moved := map[string]struct{}{}
			f.store.dropNode(d.name, moved)
			f.store.rezone(moved)
		}
	})
}

func (f *nodeFeed) Off() { f.Replace(nil) }

// putNode notes in moved a Node whose zone or region is another than before.
func (s *Store) putNode(d *Digest, moved map[string]struct{}) {
	next := d.of.(*Node)
	s.report(objectID{kindNode, "", d.name}, d.problems)
	have := s.nodes[d.name]
	if have != nil && equalNode(have, next) {
		return
	}
	s.nodes[d.name] = next
	s.placesChanged()
	if have == nil || have.Zone != next.Zone || have.Region != next.Region {
		moved[d.name] = struct{}{}
	}
}

func equalNode(a, b *Node) bool {
	return a.UID == b.UID && a.Zone == b.Zone && a.Region == b.Region && a.Ready == b.Ready &&
		slices.Equal(a.Addresses, b.Addresses) && slices.Equal(a.PodCIDRs, b.PodCIDRs)
}

// placesChanged notes that the Nodes are others than before, and tells those who
// follow everything. It needs s.mu.
func (s *Store) placesChanged() {
	if s.held != nil {
		return // release tells
	}
	s.places++
	for f := range s.ofAll {
		f.wakeUp()
	}
}

func (s *Store) dropNode(name string, moved map[string]struct{}) {
	moved[name] = struct{}{}
	delete(s.nodes, name)
	s.placesChanged()
	delete(s.warned, objectID{kindNode, "", name})
}

// borrowPlaces gives each endpoint of a slice that nobody has yet its Node's region,
// and where it has no zone of its own its Node's zone.
func (s *Store) borrowPlaces(slice *Slice) {
	for i := range slice.Endpoints.list {
		e := &slice.Endpoints.list[i]
		e.site = s.borrowPlace(e.site)
	}
}

// keptSites is of how many sites it is kept what Nodes make of them: more than there are
// nodes in large clusters.
const keptSites = 1 << 14

func (s *Store) borrowPlace(said unique.Handle[site]) (is unique.Handle[site]) {
	if is, ok := s.sites[said]; ok {
		return is
	}
	v := said.Value()
	v.region = ""
	if v.zoneFromNode {
		v.zone = ""
	}
	if n := s.nodes[v.node]; n != nil {
		v.region = n.Region
		if v.zoneFromNode {
			v.zone = n.Zone
		}
	}
	is = unique.Make(v)
	if len(s.sites) >= keptSites {
		clear(s.sites)
	}
	s.sites[said] = is
	return is
}

// rezone replaces the slices with endpoints whose place is that of a Node that moved.
// It goes over all slices, which a new or relabelled Node is rare enough for.
func (s *Store) rezone(moved map[string]struct{}) {
	if len(moved) == 0 {
		return
	}
	clear(s.sites)
	for _, n := range slices.Collect(maps.Keys(s.slices)) {
		have := s.slices[n]
		var next *Slice
		for i, e := range have.Endpoints.list {
			if _, ok := moved[e.site.Value().node]; !ok {
				continue
			}
			site := s.borrowPlace(e.site)
			if site == e.site {
				continue
			}
			if next == nil { // what is published does not change
				c := *have
				c.Endpoints.list = slices.Clone(have.Endpoints.list)
				next = &c
			}
			next.Endpoints.list[i].site = site
		}
		if next != nil {
			s.setSlice(n, have, next)
		}
	}
}

func translateNode(in *corev1.Node) (out *Node, problems []string) {
	out = &Node{
		Name:   strings.Clone(in.Name),
		UID:    strings.Clone(string(in.UID)),
		Zone:   shared(in.Labels[corev1.LabelTopologyZone]),
		Region: shared(in.Labels[corev1.LabelTopologyRegion]),
	}
	for _, a := range in.Status.Addresses {
		if a.Type != corev1.NodeInternalIP {
			continue
		}
		addr, err := netip.ParseAddr(a.Address)
		if err != nil || addr.Zone() != "" {
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
		if err != nil || p.Addr().Is4In6() { // the latter is of neither family
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
