package zones

import (
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"epdns/zones/rank"
)

// This file finds out what each endpoint is called, and whom each name leads to.

// labelled is an endpoint that has a label.
type labelled struct {
	label string
	pod   bool // it is a pod's name, and no host name
	ep    uint32
}

// group is the endpoints that a label leads to: members[start:end].
type group struct {
	start, end uint32
	pods       bool // by their pods' names
	published  bool // one of them is
}

// owners finds out whom each host name and pod name leads to, and what each endpoint
// is called: the first of its host name, where the zone wants it its pod's name, its
// address with dashes, its pod's name, that leads back to it. A host name may be the
// same as somebody else's pod or address: then that is not what those are called.
func (c *compiler) owners() {
	c.groupLabels()
	clear(c.taken)
	for i := range c.labels {
		addr, ok := parseDashed([]byte(c.labels[i].name))
		c.numeric = c.numeric || ok
		if ok && dashed(addr) == c.labels[i].name {
			c.taken[addr] = uint32(i) + 1
		}
	}
	for i := range c.eps {
		e := &c.eps[i]
		pod := e.label // the index of its pod's name, where that leads to it
		e.label = 0
		switch taken := c.taken[e.addr]; {
		case e.host != "":
			e.kind, e.label = hostName, pod
		case c.podNames && pod != 0:
			e.kind, e.label = podName, pod
		case taken == 0 && c.fitsDashed(e.addr):
			e.kind = dashedName
		case taken != 0 && taken == pod: // its pod is called like its address
			e.kind, e.label = dashedName, pod
		case pod != 0:
			e.kind, e.label = podName, pod
		}
	}
}

// groupLabels makes the labels, and for each the group of endpoints that it leads to. Of
// each endpoint it notes the label that is its host name, or else its pod's name if that
// leads to it.
func (c *compiler) groupLabels() {
	c.called = c.called[:0]
	for i := range c.eps {
		if e := &c.eps[i]; e.host != "" {
			c.called = append(c.called, labelled{e.host, false, uint32(i)})
		}
		if e := &c.eps[i]; e.pod != "" {
			c.called = append(c.called, labelled{e.pod, true, uint32(i)})
		}
	}
	slices.SortFunc(c.called, func(a, b labelled) int {
		switch d := strings.Compare(a.label, b.label); {
		case d != 0:
			return d
		case a.pod != b.pod:
			return sign(a.pod)
		}
		return cmp.Compare(a.ep, b.ep)
	})
	n := 0
	for i := range c.called {
		if i == 0 || c.called[i].label != c.called[i-1].label {
			n++
		}
	}
	c.labels = make([]label, 0, n)
	c.leading, c.members = c.leading[:0], c.members[:0]
	for at := 0; at < len(c.called); {
		name, pods := c.called[at].label, c.called[at].pod
		g := group{start: uint32(len(c.members)), pods: pods}
		c.labels = append(c.labels, label{name: name})
		for ; at < len(c.called) && c.called[at].label == name; at++ {
			if c.called[at].pod != pods {
				continue // a host name beats a pod's
			}
			e := &c.eps[c.called[at].ep]
			if e.host == "" || !pods {
				e.label = uint32(len(c.labels))
			}
			g.published = g.published || e.published
			c.members = append(c.members, c.called[at].ep)
		}
		g.end = uint32(len(c.members))
		c.leading = append(c.leading, g)
	}
}

// after is the next endpoint of the same name.
func (c *compiler) after(i uint32) (next uint32, ok bool) {
	next = c.eps[i].next
	return next, next != 0
}

// owner are the endpoints that the label of an index leads to.
func (c *compiler) owner(label int) []uint32 {
	g := &c.leading[label]
	return c.members[g.start:g.end]
}

// join finds the endpoints that have one name, which are one target of SRV records.
func (c *compiler) join() {
	chain := func(eps []uint32, is func(*endpoint) bool) {
		lead, last := uint32(none32), uint32(none32)
		for _, i := range eps {
			e := &c.eps[i]
			if !is(e) {
				continue
			}
			if last == none32 {
				lead = i
			} else {
				c.eps[last].next = i
				c.spreads = c.spreads || c.eps[lead].where != e.where
			}
			e.lead, last = lead, i
		}
	}
	for l := range c.labels {
		chain(c.owner(l), func(e *endpoint) bool { return e.kind != noName && int(e.label) == l+1 })
	}
	for eps := range c.sameAddress() {
		if len(eps) > 1 {
			c.few = append(c.few[:0], eps...)
			eps = c.few
			slices.Sort(eps)
		}
		chain(eps, func(e *endpoint) bool { return e.kind == dashedName && e.label == 0 })
	}
}

const none32 = 1<<32 - 1

// names makes the nodes of host names, pod names and addresses, and ties each SRV
// record to the node that its target names.
func (c *compiler) names() {
	clear(c.ofEps)
	c.made, c.picked = c.made[:0], c.picked[:0]
	for l := range c.labels {
		c.labels[l].node = c.node(c.owner(l))
	}
	for eps := range c.sameAddress() { // in order, so that nodes have the same numbers every time
		if len(eps) > 1 {
			c.group = append(c.group[:0], eps...)
			eps = c.group
			slices.Sort(eps)
		}
		e := &c.eps[eps[0]]
		f := c.family(e.addr)
		f.nodes[e.record] = c.node(eps)
		f.names[e.record] = c.calledBy(eps)
	}
	c.targets = resize(&c.many, len(c.target))
	for r, lead := range c.target {
		e := &c.eps[lead]
		if e.label != 0 {
			c.targets[r] = c.labels[e.label-1].node &^ nameless
		} else {
			c.targets[r] = c.family(e.addr).nodes[e.record] &^ nameless
		}
	}
	if c.targets = c.srv.implied(c.targets); c.targets != nil {
		c.targets = slices.Clone(c.targets)
	}
	for _, f := range c.families() {
		f.nodes = f.implied(f.nodes)
		if !slices.ContainsFunc(f.names, func(n uint32) bool { return n != byAddress }) {
			f.names = nil
		}
	}
	if len(c.made) > 0 {
		c.groups = &groups{slices.Clone(c.made), slices.Clone(c.picked)}
	}
}

// implied drops nodes of records that are no more than the endpoints of the records.
func (l *list) implied(nodes []uint32) []uint32 {
	for i, n := range nodes {
		if n != l.place(uint32(i)) {
			return nodes
		}
	}
	return nil
}

// calledBy is what addresses.names holds for an address that these endpoints have: a
// host name before a pod's name before the address itself.
func (c *compiler) calledBy(eps []uint32) uint32 {
	for kind := hostName; kind <= dashedName; kind++ {
		for _, i := range eps {
			e := &c.eps[i]
			if e.kind != kind || !c.leadsTo(e) {
				continue
			}
			switch kind {
			case hostName:
				return e.label
			case podName:
				return e.label | podNamed
			}
			return byAddress
		}
	}
	// Their names lead to others, who are published.
	for _, i := range eps {
		if e := &c.eps[i]; e.named && c.fitsDashed(e.addr) && c.taken[e.addr] == 0 {
			return byAddress
		}
	}
	return unnamed
}

// leadsTo says whether the name of an endpoint leads to it, as answering has it.
func (c *compiler) leadsTo(e *endpoint) bool {
	return e.published || e.named && (e.label == 0 || !c.leading[e.label-1].published)
}

// node makes the lists of a group of endpoints, or finds those of the same group.
// Where some of them are published the others are left out, and where some have
// names at all: a name that several share must not lead to one that is shutting down.
func (c *compiler) node(eps []uint32) uint32 {
	mark := uint32(0)
	eps, named := c.answering(eps)
	if !named {
		mark = nameless
	}
	if e := &c.eps[eps[0]]; len(eps) == 1 && e.first && (e.kind == noName || e.lead == eps[0] && e.next == 0) {
		return eps[0] | mark
	}
	c.text = c.text[:0]
	for _, e := range eps {
		c.text = binary.LittleEndian.AppendUint32(c.text, e)
	}
	n, ok := c.ofEps[string(c.text)]
	if !ok {
		n = c.makeNode(eps)
		c.ofEps[string(c.text)] = n
	}
	return n | mark
}

// makeNode makes the lists of these endpoints.
func (c *compiler) makeNode(eps []uint32) uint32 {
	n := node{a: uint32(len(c.picked))}
	for _, v4 := range []bool{true, false} {
		l, from := &c.v4.list, len(c.picked)
		if !v4 {
			l, n.aaaa = &c.v6.list, uint32(from)
		}
		for _, i := range eps {
			if e := &c.eps[i]; e.addr.Is4() == v4 {
				c.picked = append(c.picked, e.record)
			}
		}
		c.picked = c.picked[:from+len(c.inOrder(l, c.picked[from:]))]
	}
	n.srv = uint32(len(c.picked))
	for _, i := range eps {
		c.picked = append(c.picked, c.eps[i].srv...)
	}
	c.picked = c.picked[:int(n.srv)+len(c.inOrder(&c.srv, c.picked[n.srv:]))]
	n.end = uint32(len(c.picked))
	c.made = append(c.made, n)
	return uint32(len(c.made)-1) | grouped
}

// inOrder are records as they stand at an endpoint's own name: by address for rank.Fixed.
func (c *compiler) inOrder(l *list, records []uint32) []uint32 {
	records = unique(records)
	if c.order == rank.Fixed {
		slices.SortStableFunc(records, func(a, b uint32) int {
			return c.eps[l.place(a)].addr.Compare(c.eps[l.place(b)].addr)
		})
	}
	return records
}

// answering are those of a group of endpoints that their common name leads to. It
// leads to none of those returned where none of them is named.
func (c *compiler) answering(eps []uint32) (some []uint32, named bool) {
	if len(eps) == 1 {
		return eps, c.eps[eps[0]].published || c.eps[eps[0]].named
	}
	for _, has := range []func(*endpoint) bool{
		func(e *endpoint) bool { return e.published },
		func(e *endpoint) bool { return e.named },
	} {
		some := slices.DeleteFunc(slices.Clone(eps), func(i uint32) bool { return !has(&c.eps[i]) })
		if len(some) > 0 {
			return some, true
		}
	}
	return eps, false
}
