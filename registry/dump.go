package registry

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"unique"
)

// This file writes down what a Store shows, and shows what was written down until a source
// has read the truth. What is written has its numbers as varints, its texts with their
// lengths, and what many objects have in common once, where it comes first: after that its
// number stands for it. The form of a slice's endpoints is that in memory.
//
//	dump      = count node* (1 service)* 0
//	service   = namespace name (0 | 1 object) count slice*
//	slice     = name uid created ports count endpoint* texts
//	endpoint  = site conditions len(pod) len(host name)

// errDump is for octets that no Dump has written.
var errDump = errors.New("not what a Dump writes")

// dumpBuffer is written and read at once.
const dumpBuffer = 256 << 10

// Dump writes what is shown now: all snapshots, and the Nodes. It takes no lock while it
// writes, so that w may be slow: a change that comes meanwhile is in it or is not, whole
// for each Service. It may be called from any goroutine.
func (s *Store) Dump(w io.Writer) error {
	d := dumper{w: bufio.NewWriterSize(w, dumpBuffer), texts: map[string]uint64{}, sites: map[unique.Handle[site]]uint64{}}
	nodes := s.AllNodes()
	d.number(uint64(len(nodes)))
	for _, n := range nodes {
		d.node(n)
	}
	for e := range s.all("") {
		if svc := e.now.Load(); svc != nil {
			d.bool(true)
			d.service(svc)
		}
		if d.err != nil {
			return d.err
		}
	}
	d.bool(false)
	if d.err != nil {
		return d.err
	}
	return d.w.Flush()
}

// dumper writes. Its first error is kept, and all that follows it is lost.
type dumper struct {
	w     *bufio.Writer
	err   error
	texts map[string]uint64 // that objects share
	sites map[unique.Handle[site]]uint64
	last  unique.Handle[site] // of the endpoint before,
	at    uint64              // and its number
	buf   [binary.MaxVarintLen64]byte
}

func (d *dumper) octet(b byte) { d.note(d.w.WriteByte(b)) }

func (d *dumper) note(err error) {
	if d.err == nil {
		d.err = err
	}
}

func (d *dumper) bool(b bool) {
	var o byte
	if b {
		o = 1
	}
	d.octet(o)
}

func (d *dumper) number(n uint64) {
	_, err := d.w.Write(binary.AppendUvarint(d.buf[:0], n))
	d.note(err)
}

func (d *dumper) raw(s string) {
	_, err := d.w.WriteString(s)
	d.note(err)
}

func (d *dumper) text(s string) {
	d.number(uint64(len(s)))
	d.raw(s)
}

// common writes a text that other objects have, too.
func (d *dumper) common(s string) {
	n, known := d.texts[s]
	if !known {
		n = uint64(len(d.texts))
		d.texts[s] = n
	}
	d.number(n)
	if !known {
		d.text(s)
	}
}

func (d *dumper) addr(a netip.Addr) { d.text(string(a.AsSlice())) }

func (d *dumper) node(n *Node) {
	d.text(n.Name)
	d.text(n.UID)
	d.common(n.Zone)
	d.common(n.Region)
	d.bool(n.Ready)
	d.number(uint64(len(n.Addresses)))
	for _, a := range n.Addresses {
		d.addr(a)
	}
	d.number(uint64(len(n.PodCIDRs)))
	for _, p := range n.PodCIDRs {
		d.addr(p.Addr())
		d.octet(byte(p.Bits()))
	}
}

func (d *dumper) service(svc *Service) {
	d.common(svc.Namespace)
	d.text(svc.Name)
	d.bool(svc.Object != nil)
	if o := svc.Object; o != nil {
		d.text(o.UID)
		d.bool(o.IsExternalName)
		d.text(o.ExternalName)
		d.common(o.TrafficDistribution)
		d.octet(byte(o.Kind))
		d.ports(o.Ports)
		d.pairs(o.Labels)
		d.pairs(o.Annotations)
	}
	d.number(uint64(len(svc.Slices)))
	for _, s := range svc.Slices {
		d.text(s.Name)
		d.text(s.UID)
		d.number(uint64(s.Created))
		d.ports(s.Ports)
		d.endpoints(s.Endpoints)
	}
}

func (d *dumper) ports(list []Port) {
	d.number(uint64(len(list)))
	for _, p := range list {
		d.common(p.Name)
		d.octet(byte(p.Protocol))
		d.number(uint64(p.Number))
	}
}

func (d *dumper) pairs(list Pairs) {
	d.number(uint64(len(list)))
	for _, p := range list {
		d.common(p.Key)
		d.text(p.Value)
	}
}

func (d *dumper) endpoints(l Endpoints) {
	d.number(uint64(len(l.list)))
	if len(l.list) == 0 {
		return
	}
	for i := range l.list {
		p := &l.list[i]
		d.site(p.site)
		d.octet(byte(p.has))
		d.octet(p.pod)
		d.octet(p.host)
	}
	last := &l.list[len(l.list)-1]
	d.raw(l.text[:int(last.at)+last.len()]) // behind that is what the slice has
}

// len is how long the text of an endpoint is.
func (p *packed) len() int {
	n := int(p.pod) + int(p.host)
	switch {
	case p.has&hasIPv4 != 0:
		n += 4
	case p.has&hasIPv6 != 0:
		n += 16
	}
	return n
}

func (d *dumper) site(s unique.Handle[site]) {
	if len(d.sites) > 0 && s == d.last {
		d.number(d.at)
		return
	}
	n, known := d.sites[s]
	if !known {
		n = uint64(len(d.sites))
		d.sites[s] = n
	}
	d.last, d.at = s, n
	d.number(n)
	if known {
		return
	}
	v := s.Value()
	d.common(v.node)
	d.common(v.zone)
	d.common(v.region)
	d.bool(v.zoneFromNode)
	d.bool(v.hints != Hints{})
	if v.hints != (Hints{}) {
		h := v.hints.of.Value()
		d.common(h.zones)
		d.common(h.nodes)
	}
}

// Dumped is what a Dump has written: what a Store shows in place of what its feeds have
// told, until all of them are synced. None of it is among what they have told.
type Dumped struct {
	services map[Key]*Service
	nodes    map[string]*Node
	stats    Stats
}

// ReadDump reads what a Dump has written, to its end. Any octets may be read: what is read
// without an error keeps all rules that hold for what is read from a source. An object with
// more than MaxText octets in one text is an error.
func ReadDump(r io.Reader) (*Dumped, error) {
	d := undumper{r: bufio.NewReaderSize(r, dumpBuffer)}
	out := &Dumped{services: map[Key]*Service{}, nodes: map[string]*Node{}}
	out.stats.ServicesAreListed = true
	for n := d.number(); n > 0 && d.err == nil; n-- {
		node := d.node()
		d.check(out.nodes[node.Name] == nil, "a Node is there twice")
		out.nodes[node.Name] = node
	}
	for d.bool() {
		svc := d.service()
		d.check(out.services[svc.Key] == nil, "a Service is there twice")
		if d.err != nil {
			break
		}
		out.services[svc.Key] = svc
		out.count(svc)
	}
	if _, err := d.r.ReadByte(); d.err == nil && err != io.EOF {
		d.check(false, "something follows")
	}
	if d.err != nil {
		return nil, d.err
	}
	out.stats.Nodes = int64(len(out.nodes))
	return out, nil
}

// Restore shows what was read, which is the Store's from then on, until every feed has had
// its first Replace or is off: then what they have told is shown instead, all in one step, in
// which what is as it was does not count as changed. Synced is closed after that. The Store
// must be empty, no feed of it been used, and its annotation prefix that of the Store of the
// Dump.
func (s *Store) Restore(d *Dumped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.placesChanged()
	s.held = d
	s.stats.services.Store(int64(len(d.services)))
	for _, svc := range d.services {
		e := s.entry(svc.Key)
		svc.Key = e.key // one copy of the texts
		for _, slice := range svc.Slices {
			slice.Namespace, slice.Service = e.key.Namespace, e.key.Name
		}
		e.now.Store(svc)
		s.wake(e.key)
	}
	d.services = nil // its entry has each from now on
}

// Restored says whether what is shown is what was restored. It may be called from any
// goroutine.
func (s *Store) Restored() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held != nil
}

func (d *Dumped) count(svc *Service) {
	d.stats.ServicesAreListed = d.stats.ServicesAreListed && svc.Object != nil
	d.stats.Slices += int64(len(svc.Slices))
	for _, s := range svc.Slices {
		d.stats.Endpoints += int64(s.Endpoints.Len())
		for i := range s.Endpoints.Len() {
			if s.Endpoints.Ready(i) {
				d.stats.Ready++
			}
		}
	}
}

// release shows what the feeds have told in place of what was restored. It needs s.mu.
func (s *Store) release() {
	h := s.held
	if h == nil {
		return
	}
	s.held = nil
	for e := range s.all("") {
		before := e.now.Load()
		if before != nil && s.tells(e, before) {
			s.keep(e, before)
			continue
		}
		s.publish(e)
		if before != nil || e.now.Load() != nil {
			s.wake(e.key)
		}
	}
	if !maps.EqualFunc(h.nodes, s.nodes, equalNode) {
		s.placesChanged()
	}
}

// tells says whether what the feeds have told of a Service is what a snapshot of it has.
func (s *Store) tells(e *entry, shown *Service) bool {
	switch {
	case e.object == nil && (len(e.slices) == 0 || s.listed(e.key.Namespace)):
		return false // it does not exist
	case e.kept != shown.Held:
		return false
	case (e.object == nil) != (shown.Object == nil), e.object != nil && !equalObject(e.object, shown.Object):
		return false
	}
	return slices.EqualFunc(e.slices, shown.Slices, func(a, b *Slice) bool { return a.Name == b.Name && equalSlice(a, b) })
}

// keep has a Service go on with the snapshot that is shown of it, so that what the feeds
// have told, which is the same, is not in memory besides.
func (s *Store) keep(e *entry, shown *Service) {
	e.object, e.slices, e.shown = shown.Object, shown.Slices, true
	for _, slice := range shown.Slices {
		s.slices[sliceName{slice.Namespace, slice.Name}] = slice
	}
}

// MaxText is how many octets a text of an object may have in a Dump that is restored. The
// API does not have objects of that size.
const MaxText = 4 << 20

// undumper reads. Its first error is kept; from then on all that it reads is nothing.
type undumper struct {
	r     *bufio.Reader
	err   error
	texts []string
	sites []unique.Handle[site]
	buf   []byte
}

func (d *undumper) fail(err error) {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if d.err == nil {
		d.err = err
	}
}

func (d *undumper) check(ok bool, otherwise string) {
	if !ok {
		d.fail(fmt.Errorf("%w: %s", errDump, otherwise))
	}
}

func (d *undumper) octet() byte {
	if d.err != nil {
		return 0
	}
	b, err := d.r.ReadByte()
	if err != nil {
		d.fail(err)
	}
	return b
}

func (d *undumper) bool() bool {
	b := d.octet()
	d.check(b <= 1, "neither yes nor no")
	return b == 1
}

func (d *undumper) number() uint64 {
	if d.err != nil {
		return 0
	}
	b, err := d.r.Peek(binary.MaxVarintLen64)
	n, size := binary.Uvarint(b)
	switch {
	case size > 0:
		d.r.Discard(size)
		return n
	case size == 0 && err != nil:
		d.fail(err)
	default:
		d.check(false, "no number")
	}
	return 0
}

// read appends n octets to d.buf. It believes no length: what is not there is not made
// room for.
func (d *undumper) read(n int) {
	for n > 0 && d.err == nil {
		b, err := d.r.Peek(min(n, d.r.Size()))
		if len(b) == 0 {
			d.fail(err)
			return
		}
		d.buf = append(d.buf, b...)
		d.r.Discard(len(b))
		n -= len(b)
	}
}

func (d *undumper) octets() []byte {
	n := d.number()
	d.check(n <= MaxText, "a text is too long")
	d.buf = d.buf[:0]
	if d.err == nil {
		d.read(int(n))
	}
	if d.err != nil {
		return nil
	}
	return d.buf
}

func (d *undumper) text() string { return string(d.octets()) }

func (d *undumper) common() string {
	n := d.number()
	if n == uint64(len(d.texts)) && d.err == nil {
		d.texts = append(d.texts, shared(d.text()))
	}
	if d.check(n < uint64(len(d.texts)), "a text that was not there"); d.err != nil {
		return ""
	}
	return d.texts[n]
}

// label is a text that has to be a DNS label, or may be empty.
func (d *undumper) label(text string, orEmpty bool) string {
	d.check(isLabel(text) || orEmpty && text == "", "a name that is no DNS label")
	return text
}

func (d *undumper) addr() netip.Addr {
	a, ok := netip.AddrFromSlice(d.octets())
	d.check(ok && !a.Is4In6(), "no address")
	return a
}

func (d *undumper) node() *Node {
	n := &Node{Name: d.text(), UID: d.text(), Zone: d.common(), Region: d.common(), Ready: d.bool()}
	for i := d.number(); i > 0 && d.err == nil; i-- {
		n.Addresses = append(n.Addresses, d.addr())
	}
	for i := d.number(); i > 0 && d.err == nil; i-- {
		addr := d.addr()
		p := netip.PrefixFrom(addr, int(d.octet()))
		d.check(p.IsValid() && p == p.Masked(), "no prefix")
		n.PodCIDRs = append(n.PodCIDRs, p)
	}
	return n
}

func (d *undumper) service() *Service {
	svc := &Service{Exists: true}
	svc.Namespace = d.label(d.common(), false)
	svc.Name = d.label(d.text(), false)
	if d.bool() {
		svc.Object = d.object()
	}
	n := d.number()
	d.check(n > 0 || svc.Object != nil, "a Service of nothing")
	for ; n > 0 && d.err == nil; n-- {
		s := d.slice(svc.Name)
		s.Namespace = svc.Namespace
		if last := len(svc.Slices) - 1; last >= 0 {
			d.check(svc.Slices[last].Name < s.Name, "slices that are not in order")
		}
		svc.Slices = append(svc.Slices, s)
	}
	return svc
}

func (d *undumper) object() *Object {
	o := &Object{UID: d.text(), IsExternalName: d.bool(), ExternalName: d.text(), TrafficDistribution: d.common(), Kind: ServiceKind(d.octet())}
	d.check(o.Kind < ServiceKinds, "a kind of Service that there is not")
	if o.ExternalName != "" {
		d.check(o.IsExternalName && checkExternalName(o.ExternalName) == nil, "an external name that is none")
	}
	o.Ports, o.Labels, o.Annotations = d.ports(), d.pairs(), d.pairs()
	o.pack()
	return o
}

func (d *undumper) pairs() (out Pairs) {
	for n := d.number(); n > 0 && d.err == nil; n-- {
		p := Pair{d.common(), d.text()}
		if last := len(out) - 1; last >= 0 {
			d.check(out[last].Key < p.Key, "keys that are not in order")
		}
		out = append(out, p)
	}
	return slices.Clip(out)
}

func (d *undumper) ports() (out []Port) {
	for n := d.number(); n > 0 && d.err == nil; n-- {
		p := Port{Name: d.label(d.common(), true), Protocol: Protocol(d.octet())}
		number := d.number()
		d.check(p.Protocol <= SCTP && number <= 65535, "no port")
		p.Number = uint16(number)
		out = append(out, p)
	}
	return slices.Clip(out)
}

// slice returns one whose texts are in one piece, as those of one that is translated.
func (d *undumper) slice(service string) *Slice {
	s := &Slice{Name: d.text(), UID: d.text(), Service: service, Created: int64(d.number())}
	d.check(isTime(s.Created), "no time")
	s.Ports = d.ports()
	list, size := d.packed()
	d.buf = d.buf[:0]
	if d.read(size); d.err != nil {
		return s
	}
	for i := range list {
		p := &list[i]
		d.checkEndpoint(p, d.buf[p.at:][:p.len()])
	}
	s.Endpoints = joined(list, &d.buf, &s.Name, &s.UID, &s.Service)
	return s
}

// endpointsAhead is of how many endpoints a length is believed before they are read. The
// slices of a cluster have at most a thousand.
const endpointsAhead = 1000

// packed returns endpoints, and how long their text is, which follows.
func (d *undumper) packed() (list []packed, size int) {
	n := d.number()
	if n == 0 || d.err != nil {
		return nil, 0
	}
	list = make([]packed, 0, min(n, endpointsAhead))
	for ; n > 0 && d.err == nil; n-- {
		p := packed{site: d.site(), at: uint32(size), has: has(d.octet()), pod: d.octet(), host: d.octet()}
		list = append(list, p)
		size += p.len()
		d.check(size <= MaxText, "a slice is too long")
	}
	return slices.Clip(list), size
}

func (d *undumper) checkEndpoint(p *packed, text []byte) {
	const all = isReady | isServing | isTerminating | hasIPv4 | hasIPv6 | hostIsPod
	v4, v6 := p.has&hasIPv4 != 0, p.has&hasIPv6 != 0
	d.check(v4 != v6 && p.has&^all == 0 && (p.has&hostIsPod == 0 || p.host == 0), "no endpoint")
	if d.err != nil {
		return
	}
	host := text[len(text)-int(p.host):]
	if v6 {
		d.check(!netip.AddrFrom16([16]byte(text)).Is4In6(), "an IPv4 address as IPv6")
	}
	if p.has&hostIsPod != 0 {
		host = text[len(text)-int(p.pod):]
	}
	d.check(len(host) == 0 || isLabelOctets(host), "a host name that is no DNS label")
}

func (d *undumper) site() unique.Handle[site] {
	n := d.number()
	if n == uint64(len(d.sites)) && d.err == nil {
		v := site{node: d.common(), zone: d.common(), region: d.common(), zoneFromNode: d.bool()}
		if d.bool() {
			v.hints = Hints{unique.Make(hints{d.common(), d.common()})}
		}
		d.sites = append(d.sites, unique.Make(v))
	}
	if d.check(n < uint64(len(d.sites)), "a place that was not there"); d.err != nil {
		return unique.Make(site{})
	}
	return d.sites[n]
}

// isLabelOctets is isLabel without a text.
func isLabelOctets(b []byte) bool { return len(b) <= 63 && isLabel(string(b)) }
