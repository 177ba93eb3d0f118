package registry

import (
	"iter"
	"net/netip"
	"slices"
	"sync"
	"unique"
)

// Endpoints are a list that never changes, of those that a slice has. The zero
// Endpoints are none. An [Endpoint] is made of what they keep each time that it is
// asked for: 16 octets of its own, its address and its names as long as they are.
// Where it is and for whom it is meant is kept once for all that have it in common.
type Endpoints struct {
	list []packed
	text string // of each: the address, the pod's name, the host name
}

// packed is one endpoint. That it is small is what makes a large cluster small.
type packed struct {
	site      unique.Handle[site]
	at        uint32 // where in the text it begins
	pod, host uint8  // lengths of the names
	has       has
}

// site is what the endpoints of a node have in common, most often.
type site struct {
	node, zone, region string
	hints              Hints
	zoneFromNode       bool // it has no zone of its own
}

// has are the conditions of an endpoint, and what its text has.
type has uint8

const (
	isReady has = 1 << iota
	isServing
	isTerminating
	hasIPv4
	hasIPv6
	hostIsPod // the host name is the pod's, which is there once
)

// longestName is that of a name in the Kubernetes API, and of a host name.
const longestName = 255

// NewEndpoints packs a list. Scopes of addresses, and names of more than 255 octets,
// which nothing can have, are left out.
func NewEndpoints(list ...Endpoint) Endpoints {
	p := newPacker(len(list))
	for i := range list {
		p.add(&list[i], false)
	}
	return p.endpoints()
}

// Len is how many there are.
func (l Endpoints) Len() int { return len(l.list) }

// At is endpoint i.
func (l Endpoints) At(i int) (e Endpoint) {
	p := &l.list[i]
	s := p.site.Value()
	e = Endpoint{
		Node: s.node, Zone: s.zone, Region: s.region, Hints: s.hints,
		Ready: p.has&isReady != 0, Serving: p.has&isServing != 0, Terminating: p.has&isTerminating != 0,
	}
	addr, names := l.addr(p)
	e.Addr, e.Pod = addr, names[:p.pod]
	if e.Hostname = names[p.pod:][:p.host]; p.has&hostIsPod != 0 {
		e.Hostname = e.Pod
	}
	return e
}

// addr is the address of one of them, and the text that follows.
func (l Endpoints) addr(p *packed) (addr netip.Addr, names string) {
	names = l.text[p.at:]
	switch {
	case p.has&hasIPv4 != 0:
		var a [4]byte
		copy(a[:], names)
		return netip.AddrFrom4(a), names[len(a):]
	case p.has&hasIPv6 != 0:
		var a [16]byte
		copy(a[:], names)
		return netip.AddrFrom16(a), names[len(a):]
	}
	return addr, names
}

// Addr is the address of endpoint i.
func (l Endpoints) Addr(i int) netip.Addr {
	addr, _ := l.addr(&l.list[i])
	return addr
}

// Ready says whether endpoint i is.
func (l Endpoints) Ready(i int) bool { return l.list[i].has&isReady != 0 }

// Terminating says whether endpoint i is.
func (l Endpoints) Terminating(i int) bool { return l.list[i].has&isTerminating != 0 }

// Hinted says whether any of them has Hints.
func (l Endpoints) Hinted() bool {
	for i := range l.list {
		if l.list[i].site.Value().hints != (Hints{}) {
			return true
		}
	}
	return false
}

// All yields each with its number.
func (l Endpoints) All() iter.Seq2[int, Endpoint] {
	return func(yield func(int, Endpoint) bool) {
		for i := range l.list {
			if !yield(i, l.At(i)) {
				return
			}
		}
	}
}

// List is a list that the caller may change.
func (l Endpoints) List() []Endpoint {
	out := make([]Endpoint, len(l.list))
	for i := range out {
		out[i] = l.At(i)
	}
	return out
}

// equal says whether both are the same, and packed in the same way.
func (l Endpoints) equal(other Endpoints) bool {
	return l.text == other.text && slices.Equal(l.list, other.list)
}

// packer makes Endpoints. The texts of a slice are kept in one piece with those of its
// endpoints: a decoded object has each in a piece of its own, between others that nobody
// keeps, and the few that are kept would hold on to pages of what is not.
type packer struct {
	list []packed
	text *[]byte
	site unique.Handle[site] // of the endpoint before
}

// packedText is where texts are put together.
var packedText = sync.Pool{New: func() any { return new([]byte) }}

// newPacker is for n endpoints at most. It must be asked for them, once.
func newPacker(n int) *packer {
	p := &packer{list: make([]packed, 0, n), text: packedText.Get().(*[]byte)}
	*p.text = (*p.text)[:0]
	return p
}

// add adds an endpoint, which may have to get its zone from its Node. It keeps no part of
// the endpoint's texts.
func (p *packer) add(e *Endpoint, zoneFromNode bool) {
	if s := (site{e.Node, e.Zone, e.Region, e.Hints, zoneFromNode}); len(p.list) == 0 || p.site.Value() != s {
		p.site = unique.Make(s)
	}
	text := *p.text
	out := packed{site: p.site, at: uint32(len(text))}
	out.note(e.Ready, isReady)
	out.note(e.Serving, isServing)
	out.note(e.Terminating, isTerminating)
	switch {
	case e.Addr.Is4():
		a := e.Addr.As4()
		out.has |= hasIPv4
		text = append(text, a[:]...)
	case e.Addr.IsValid():
		a := e.Addr.As16()
		out.has |= hasIPv6
		text = append(text, a[:]...)
	}
	if len(e.Pod) <= longestName {
		out.pod = uint8(len(e.Pod))
		text = append(text, e.Pod...)
	}
	switch {
	case len(e.Hostname) > longestName:
	case e.Hostname == e.Pod:
		out.has |= hostIsPod
	default:
		out.host = uint8(len(e.Hostname))
		text = append(text, e.Hostname...)
	}
	p.list = append(p.list, out)
	*p.text = text
}

func (p *packed) note(is bool, has has) {
	if is {
		p.has |= has
	}
}

// endpoints are those that were added. Some more texts are moved to theirs.
func (p *packer) endpoints(more ...*string) Endpoints {
	out := joined(p.list, p.text, more...)
	packedText.Put(p.text)
	p.text = nil
	return out
}

// joined are endpoints whose text is given, in room that may be used again. Some more texts
// are moved to theirs.
func joined(list []packed, room *[]byte, more ...*string) Endpoints {
	text := *room
	for _, t := range more {
		text = append(text, *t...)
	}
	*room = text
	out := Endpoints{list, string(text)}
	at := len(out.text)
	for _, t := range slices.Backward(more) {
		*t, at = out.text[at-len(*t):at], at-len(*t)
	}
	return out
}
