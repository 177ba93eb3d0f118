package zones

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"epdns/registry"
)

// service is one Service of one zone, compiled: every record it can answer with,
// as bytes, and the lists that say which of them belong to a name. It never
// changes once built.
//
// The lists of records hold what the Service publishes first, then what only an
// endpoint's own name shows (an endpoint that serves but is not ready, such as
// one that is shutting down).
type service struct {
	suffix []byte // wire name <svc>.<ns>.<zone>

	external bool   // of type ExternalName: nothing exists below
	cname    []byte // its record, nil where the target is no name

	a, aaaa             []byte // records, by address within each half
	published4          int
	published6          int
	srv                 []byte
	srvOffs             []uint32
	srvNode             []uint32 // of each SRV record, the node that its target is
	publishedSRV        int
	names4, names6      []uint32 // of each address: the index in labels of what it is called, as nameOf reads it
	addrNode4, addrNode []uint32 // of each IPv4 and IPv6 address: its node

	nodes  []node
	picks  []uint32
	labels []label    // host names and pod names, by name
	ports  []portName // by name and protocol
}

// node is the record lists of a name below the Service: picks[a:aaaa] of the A
// records, picks[aaaa:srv] of the AAAA and picks[srv:end] of the SRV.
type node struct{ a, aaaa, srv, end uint32 }

type label struct {
	name string
	node uint32
}

// portName is a name _<name>._<protocol> with its published SRV records.
type portName struct {
	name     string
	protocol registry.Protocol
	srv      []uint32
}

func (s *service) setA() rrset    { return rrset{wire: s.a, size: sizeA, n: s.published4} }
func (s *service) setAAAA() rrset { return rrset{wire: s.aaaa, size: sizeAAAA, n: s.published6} }
func (s *service) setSRV() rrset {
	return rrset{wire: s.srv, offs: s.srvOffs, n: s.publishedSRV}
}
func (s *service) portSRV(p *portName) rrset {
	return rrset{wire: s.srv, offs: s.srvOffs, pick: p.srv, n: len(p.srv)}
}
func (s *service) nodeA(n node) rrset {
	return rrset{wire: s.a, size: sizeA, pick: s.picks[n.a:n.aaaa], n: int(n.aaaa - n.a)}
}
func (s *service) nodeAAAA(n node) rrset {
	return rrset{wire: s.aaaa, size: sizeAAAA, pick: s.picks[n.aaaa:n.srv], n: int(n.srv - n.aaaa)}
}
func (s *service) nodeSRV(n node) rrset {
	return rrset{wire: s.srv, offs: s.srvOffs, pick: s.picks[n.srv:n.end], n: int(n.end - n.srv)}
}

// hasAddresses says whether the Service's own name has any.
func (s *service) hasAddresses() bool { return s.published4+s.published6 > 0 }

// find is the node of a label below the Service: a host name beats a pod name
// beats an address with dashes.
func (s *service) find(name []byte) (node, bool) {
	if i, ok := s.searchLabel(name); ok {
		return s.nodes[s.labels[i].node], true
	}
	if addr, ok := parseDashed(name); ok {
		if at, ok := s.findAddr(addr); ok {
			if addr.Is4() {
				return s.nodes[s.addrNode4[at]], true
			}
			return s.nodes[s.addrNode[at]], true
		}
	}
	return node{}, false
}

// searchLabel is where a host or pod name stands among the labels.
func (s *service) searchLabel(name []byte) (int, bool) {
	i, j := 0, len(s.labels)
	for i < j {
		h := int(uint(i+j) >> 1)
		if s.labels[h].name < string(name) {
			i = h + 1
		} else {
			j = h
		}
	}
	return i, i < len(s.labels) && s.labels[i].name == string(name)
}

// findAddr is where an address stands among the A or AAAA records.
func (s *service) findAddr(addr netip.Addr) (int, bool) {
	var buf [16]byte
	key := addrKey(&buf, addr)
	wire, size, published := s.aaaa, sizeAAAA, s.published6
	if addr.Is4() {
		wire, size, published = s.a, sizeA, s.published4
	}
	if i, ok := searchAddr(wire, size, 0, published, key); ok {
		return i, true
	}
	return searchAddr(wire, size, published, len(wire)/size, key)
}

func searchAddr(wire []byte, size, i, j int, key []byte) (int, bool) {
	for i < j {
		h := int(uint(i+j) >> 1)
		switch c := bytes.Compare(wire[h*size+fixedSize:(h+1)*size], key); {
		case c == 0:
			return h, true
		case c < 0:
			i = h + 1
		default:
			j = h
		}
	}
	return 0, false
}

// appendCanonical appends the wire name that PTR records of an address point to:
// its first host name, else in some zones its first pod's, else the address with
// dashes.
func (s *service) appendCanonical(dst []byte, addr netip.Addr, at int) []byte {
	if name, _ := s.nameOf(addr, at); name != "" {
		dst = append(dst, byte(len(name)))
		dst = append(dst, name...)
		return append(dst, s.suffix...)
	}
	start := len(dst)
	dst = addr.AppendTo(append(dst, 0))
	if dst[start+1] == ':' {
		dst = slices.Insert(dst, start+1, '0')
	}
	if dst[len(dst)-1] == ':' {
		dst = append(dst, '0')
	}
	for i := start + 1; i < len(dst); i++ {
		if dst[i] == '.' || dst[i] == ':' {
			dst[i] = '-'
		}
	}
	dst[start] = byte(len(dst) - start - 1)
	return append(dst, s.suffix...)
}

// What names4 and names6 hold: an index in labels plus one, marked where that is a
// pod's name and not a host name; or that the address is called by itself, with
// dashes; or that no name leads to it alone.
const (
	byAddress = 0
	podNamed  = 1 << 31
	unnamed   = 1<<32 - 1
)

func (s *service) nameAt(addr netip.Addr, at int) uint32 {
	if addr.Is4() {
		return s.names4[at]
	}
	return s.names6[at]
}

// nameOf is the host or pod name that an address is called by, if any, and whether
// it is a host name.
func (s *service) nameOf(addr netip.Addr, at int) (name string, host bool) {
	n := s.nameAt(addr, at)
	if n == byAddress || n == unnamed {
		return "", false
	}
	return s.labels[n&^podNamed-1].name, n&podNamed == 0
}

// compile makes the records of one Service in one zone. The outcome depends on
// svc and z alone, not on the order in which slices came.
func compile(svc *registry.Service, z *zone) *service {
	s := &service{}
	s.suffix = appendLabel(nil, svc.Name)
	s.suffix = appendLabel(s.suffix, svc.Namespace)
	if z.layout == Kubernetes {
		s.suffix = appendLabel(s.suffix, "svc")
	}
	s.suffix = append(s.suffix, z.apex...)
	if len(s.suffix) > maxName {
		return nil // no message could ask for it
	}
	if o := svc.Object; o != nil && o.IsExternalName {
		s.external = true
		if target, err := ParseName(o.ExternalName); err == nil && len(target) > 1 {
			s.cname = appendNamed(nil, headerSize, TypeCNAME, z.ttl, target)
		}
		return s
	}
	c := compiler{service: s, ttl: z.ttl, podNames: z.endpointNames == ByPod}
	c.collect(svc)
	c.addresses()
	c.owners()
	c.srvs(svc)
	c.names()
	return s
}

// compiler is the state of one compile.
type compiler struct {
	*service
	ttl      uint32
	podNames bool // endpoints without a host name are called by their pods

	eps   []endpoint
	at4   map[netip.Addr]uint32 // index among the A records
	at6   map[netip.Addr]uint32
	owner map[string][]uint32 // label → the endpoints that it leads to
	ofEps map[string]uint32   // endpoints, as a string of their numbers → node
}

// endpoint is what several slices say of one address, host name and pod.
type endpoint struct {
	identity
	published bool
	ports     []endpointPort
	srv       []uint32 // its SRV records
	name      string   // the label that SRV and PTR records point to; empty: none
	kind      nameKind
}

// nameKind is what an endpoint's name is.
type nameKind uint8

const (
	hostName nameKind = iota
	podName
	dashedName
)

type identity struct {
	addr      netip.Addr
	host, pod string
}

type endpointPort struct {
	registry.Port
	published bool
}

// collect merges the endpoints of all slices. An endpoint is named if it is ready
// or serves, and published if any slice says that it is ready: a twin that is not
// ready takes nothing away.
func (c *compiler) collect(svc *registry.Service) {
	total := 0
	for _, sl := range svc.Slices {
		total += len(sl.Endpoints)
	}
	seen := make(map[identity]int, total)
	c.eps = make([]endpoint, 0, total)
	for _, sl := range svc.Slices {
		for i := range sl.Endpoints {
			in := &sl.Endpoints[i]
			if !in.Ready && !in.Serving {
				continue
			}
			id := identity{in.Addr, in.Hostname, strings.ToLower(in.Pod)}
			if !c.fits(id.host) {
				id.host = ""
			}
			if !c.fits(id.pod) {
				id.pod = "" // with a dot or too long, a pod's name is no label
			}
			at, ok := seen[id]
			if !ok {
				at = len(c.eps)
				seen[id] = at
				c.eps = append(c.eps, endpoint{identity: id})
			}
			e := &c.eps[at]
			e.published = e.published || in.Ready
			for _, p := range sl.Ports {
				if p.Name != "" && p.Number != 0 { // Kubernetes DNS specification 2.4.2: named ports
					e.ports = append(e.ports, endpointPort{p, in.Ready})
				}
			}
		}
	}
	slices.SortFunc(c.eps, func(a, b endpoint) int {
		return cmp.Or(a.addr.Compare(b.addr), strings.Compare(a.host, b.host), strings.Compare(a.pod, b.pod))
	})
}

// fits says whether a label can stand before the Service's name. With an underscore
// in front it would be a protocol.
func (s *service) fits(label string) bool {
	return len(label) <= maxLabel && len(s.suffix)+1+len(label) <= maxName &&
		!strings.Contains(label, ".") && !strings.HasPrefix(label, "_")
}

// fitsPort says whether a port's name, with its underscore, and its protocol can.
func (s *service) fitsPort(p registry.Port) bool {
	return len(p.Name) < maxLabel && len(s.suffix)+2+len(p.Name)+1+len(protocolLabels[p.Protocol]) <= maxName
}

// addresses makes the A and AAAA records, each address once.
func (c *compiler) addresses() {
	c.at4, c.at6 = map[netip.Addr]uint32{}, map[netip.Addr]uint32{}
	for _, published := range []bool{true, false} {
		for i := 0; i < len(c.eps); {
			addr, any, j := c.eps[i].addr, false, i
			for ; j < len(c.eps) && c.eps[j].addr == addr; j++ {
				any = any || c.eps[j].published
			}
			i = j
			if any != published {
				continue
			}
			if addr.Is4() {
				c.at4[addr] = uint32(len(c.a) / sizeA)
				c.a = appendAddr(c.a, headerSize, c.ttl, addr)
			} else {
				c.at6[addr] = uint32(len(c.aaaa) / sizeAAAA)
				c.aaaa = appendAddr(c.aaaa, headerSize, c.ttl, addr)
			}
		}
		if published {
			c.published4, c.published6 = len(c.a)/sizeA, len(c.aaaa)/sizeAAAA
		}
	}
	c.a, c.aaaa = slices.Clip(c.a), slices.Clip(c.aaaa)
}

// owners finds out whom each host name and pod name leads to, and what each endpoint
// is called: the first of its host name, where the zone wants it its pod's name, its
// address with dashes, its pod's name, that leads back to it. A host name may be the
// same as somebody else's pod or address: then that is not what those are called.
func (c *compiler) owners() {
	c.owner = map[string][]uint32{}
	for i := range c.eps {
		if h := c.eps[i].host; h != "" {
			c.owner[h] = append(c.owner[h], uint32(i))
		}
	}
	pods := map[string][]uint32{}
	for i := range c.eps {
		if p := c.eps[i].pod; p != "" {
			pods[p] = append(pods[p], uint32(i))
		}
	}
	for p, eps := range pods {
		if _, taken := c.owner[p]; !taken {
			c.owner[p] = eps
		}
	}
	for i := range c.eps {
		e := &c.eps[i]
		own := func(label string) bool { return slices.Contains(c.owner[label], uint32(i)) }
		address := dashed(e.addr)
		_, taken := c.owner[address]
		switch {
		case e.host != "":
			e.name, e.kind = e.host, hostName
		case c.podNames && e.pod != "" && own(e.pod):
			e.name, e.kind = e.pod, podName
		case c.fits(address) && (!taken || own(address)):
			e.name, e.kind = address, dashedName
		case e.pod != "" && own(e.pod):
			e.name, e.kind = e.pod, podName
		}
	}
}

// srvs makes the SRV records, each port and target once, and the names of ports.
func (c *compiler) srvs(svc *registry.Service) {
	type record struct {
		target string
		number uint16
	}
	published := map[record]bool{}
	for i := range c.eps {
		e := &c.eps[i]
		for _, p := range e.ports {
			if e.name != "" {
				r := record{e.name, p.Number}
				published[r] = published[r] || p.published
			}
		}
	}
	order := make([]record, 0, len(published))
	for r := range published {
		order = append(order, r)
	}
	slices.SortFunc(order, func(a, b record) int {
		switch pa, pb := published[a], published[b]; {
		case pa && !pb:
			return -1
		case pb && !pa:
			return 1
		}
		return cmp.Or(strings.Compare(a.target, b.target), cmp.Compare(a.number, b.number))
	})
	at := make(map[record]uint32, len(order))
	c.srvOffs = make([]uint32, 1, len(order)+1)
	for i, r := range order {
		at[r] = uint32(i)
		// One priority and one weight: nothing is ranked here. The weight is never
		// 0, which some clients read as "do not use".
		c.srv = appendSRV(c.srv, headerSize, c.ttl, 0, 1, r.number, r.target, c.suffix)
		c.srvOffs = append(c.srvOffs, uint32(len(c.srv)))
		if published[r] {
			c.publishedSRV++
		}
	}
	c.srv = slices.Clip(c.srv)

	type portKey struct {
		name     string
		protocol registry.Protocol
	}
	ports := map[portKey][]uint32{}
	name := func(p registry.Port) {
		if p.Name != "" && p.Number != 0 && c.fitsPort(p) {
			ports[portKey{p.Name, p.Protocol}] = nil
		}
	}
	if svc.Object != nil {
		for _, p := range svc.Object.Ports {
			name(p)
		}
	}
	for _, sl := range svc.Slices {
		for _, p := range sl.Ports {
			name(p)
		}
	}
	for i := range c.eps {
		e := &c.eps[i]
		for _, p := range e.ports {
			n, ok := at[record{e.name, p.Number}]
			if !ok {
				continue
			}
			e.srv = append(e.srv, n)
			if k := (portKey{p.Name, p.Protocol}); p.published && c.fitsPort(p.Port) {
				ports[k] = append(ports[k], n)
			}
		}
		e.srv = unique(e.srv)
	}
	for k, srv := range ports {
		c.ports = append(c.ports, portName{k.name, k.protocol, unique(srv)})
	}
	slices.SortFunc(c.ports, func(a, b portName) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.protocol, b.protocol))
	})
}

// names makes the nodes of host names, pod names and addresses, and ties each SRV
// record to the node that its target names.
func (c *compiler) names() {
	for name := range c.owner {
		c.labels = append(c.labels, label{name: name})
	}
	slices.SortFunc(c.labels, func(a, b label) int { return strings.Compare(a.name, b.name) })
	c.labels = slices.Clip(c.labels)

	c.ofEps = make(map[string]uint32, len(c.eps))
	for i := range c.labels {
		c.labels[i].node = c.node(c.owner[c.labels[i].name])
	}
	c.addrNode4, c.names4 = make([]uint32, len(c.at4)), make([]uint32, len(c.at4))
	c.addrNode, c.names6 = make([]uint32, len(c.at6)), make([]uint32, len(c.at6))
	var group []uint32
	for i := 0; i < len(c.eps); {
		addr := c.eps[i].addr
		for group = group[:0]; i < len(c.eps) && c.eps[i].addr == addr; i++ {
			group = append(group, uint32(i))
		}
		nodes, names, at := c.addrNode, c.names6, c.at6
		if addr.Is4() {
			nodes, names, at = c.addrNode4, c.names4, c.at4
		}
		nodes[at[addr]] = c.node(group)
		names[at[addr]] = c.called(group)
	}

	c.srvNode = make([]uint32, len(c.srvOffs)-1)
	for i := range c.eps {
		if e := &c.eps[i]; len(e.srv) > 0 {
			n := c.target(e)
			for _, r := range e.srv {
				c.srvNode[r] = n
			}
		}
	}
	c.nodes, c.picks = slices.Clip(c.nodes), slices.Clip(c.picks)
}

// called is what names4 and names6 hold for an address that these endpoints have:
// a host name before a pod's name before the address itself.
func (c *compiler) called(group []uint32) uint32 {
	out := uint32(unnamed)
	for _, kind := range []nameKind{hostName, podName, dashedName} {
		for _, i := range group {
			e := &c.eps[i]
			if e.name == "" || e.kind != kind || out != unnamed {
				continue
			}
			j, _ := c.searchLabel([]byte(e.name))
			switch kind {
			case hostName:
				out = uint32(j) + 1
			case podName:
				out = uint32(j) + 1 | podNamed
			default:
				out = byAddress
			}
		}
	}
	return out
}

// target is the node that an endpoint's name leads to.
func (c *compiler) target(e *endpoint) uint32 {
	switch j, ok := c.searchLabel([]byte(e.name)); {
	case ok:
		return c.labels[j].node
	case e.addr.Is4():
		return c.addrNode4[c.at4[e.addr]]
	}
	return c.addrNode[c.at6[e.addr]]
}

// node makes the lists of a group of endpoints, or finds those of the same group.
// Where some of them are published the others are left out: a name that several
// share must not lead to one that is shutting down.
func (c *compiler) node(eps []uint32) uint32 {
	hidden := func(i uint32) bool { return !c.eps[i].published }
	if slices.ContainsFunc(eps, hidden) {
		if published := slices.DeleteFunc(slices.Clone(eps), hidden); len(published) > 0 {
			eps = published
		}
	}
	key := make([]byte, 0, 4*len(eps))
	for _, e := range eps {
		key = append(key, byte(e), byte(e>>8), byte(e>>16), byte(e>>24))
	}
	if n, ok := c.ofEps[string(key)]; ok {
		return n
	}
	var a, aaaa, srv []uint32
	for _, i := range eps {
		e := &c.eps[i]
		if e.addr.Is4() {
			a = append(a, c.at4[e.addr])
		} else {
			aaaa = append(aaaa, c.at6[e.addr])
		}
		srv = append(srv, e.srv...)
	}
	n := node{a: uint32(len(c.picks))}
	c.picks = append(c.picks, unique(a)...)
	n.aaaa = uint32(len(c.picks))
	c.picks = append(c.picks, unique(aaaa)...)
	n.srv = uint32(len(c.picks))
	c.picks = append(c.picks, unique(srv)...)
	n.end = uint32(len(c.picks))
	c.nodes = append(c.nodes, n)
	c.ofEps[string(key)] = uint32(len(c.nodes) - 1)
	return uint32(len(c.nodes) - 1)
}

// unique sorts and removes what stands twice.
func unique(v []uint32) []uint32 {
	slices.Sort(v)
	return slices.Compact(v)
}
