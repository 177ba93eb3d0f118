package zones

import (
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	"epdns/registry"
	"epdns/zones/rank"
)

// Builder makes each Set from the one before and the Services that changed. It is
// the one writer of the Sets it makes: one goroutine uses it.
//
// What a Build costs depends on the Services that changed, not on how many there are.
type Builder struct {
	cfg      *config
	last     *Set
	numbered time.Time // when the last serial was given

	room  *room // to compile in
	ids   ids
	known int // nodes that ids had when it was made anew
	churn churn
	index indexer

	nodes        []*registry.Node // for the next Build
	nodesChanged bool
}

// NewBuilder checks the configuration and returns a Builder whose last Set is
// empty and not synced.
func NewBuilder(c Config) (*Builder, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	cfg := &config{
		nameservers:  slices.Clone(c.Nameservers),
		noExplain:    c.NoExplain,
		clients:      c.Clients,
		forwarders:   prefixes(c.Clients.TrustedForwarders),
		sharedCaches: prefixes(c.Clients.SharedCaches),
		sights:       newSights(c.Clients.Visibility),
	}
	for _, z := range c.Zones {
		apex, _ := ParseName(z.Name) // checked, as the knobs are
		knobs, _ := newKnobs(&z)
		only, _ := newOnly(z.Namespaces, z.Selector)
		cfg.zones = append(cfg.zones, &zone{
			layout:        z.Layout,
			empty:         z.Empty,
			endpointNames: z.EndpointNames,
			apex:          apex,
			labels:        countLabels(apex),
			only:          only,
			knobs:         knobs,
			ttl:           seconds(knobs.base.TTL),
			ttlEmpty:      seconds(knobs.base.TTLEmpty),
			ttlNXDomain:   seconds(knobs.base.TTLNXDomain),
		})
	}
	for _, p := range c.Reverse {
		for _, b := range blocksOf(p) {
			cfg.reverse = append(cfg.reverse, reverseZone{b, appendReverse(nil, &b)})
		}
	}
	set := &Set{cfg: cfg, plain: len(cfg.sights) == 0, services: make([]table[*service], len(cfg.zones)), namespaces: make([]table[int], len(cfg.zones))}
	set.transfer = set
	b := &Builder{cfg: cfg, last: set, room: newRoom(), churn: churn{ttl: seconds(c.ChurnTTL)}}
	b.index.reverse = cfg.reverse
	set.atlas = newAtlas(nil, &cfg.clients, &b.ids)
	set.ids, set.without = b.ids, cfg.clients.Off
	return b, nil
}

// spareNames is how many names that are gone do not matter.
const spareNames = 1024

// Last is the Set built last.
func (b *Builder) Last() *Set { return b.last }

// After says that a serial was given already, by another Builder for the same zones: the
// next Set has one of its own that comes after it. It is for before the first Build, or
// before one whose Set is the first to be served.
func (b *Builder) After(serial uint32) {
	set := *b.last
	if set.serial == 0 || int32(serial-set.serial) > 0 {
		set.serial = serial
	}
	set.transfer = &set
	b.last, b.numbered = &set, time.Time{}
}

// SetNodes says what all the Nodes are. They count from the next Build on, which costs
// as much as there are Nodes, and addresses on those that differ.
func (b *Builder) SetNodes(nodes []*registry.Node) {
	b.nodes, b.nodesChanged = nodes, true
}

// Build makes the next Set: these Services are as given now, all others as they
// were. The Set is synced from the first Build on.
//
// Its serial is that of now if a second has passed since the last one was given;
// else it keeps the last serial, and its transfers serve the older Set that the
// serial stands for until Freeze.
func (b *Builder) Build(changed []*registry.Service, now time.Time) *Set {
	next := *b.last
	next.synced = true
	next.services, next.namespaces = slices.Clone(next.services), slices.Clone(next.namespaces)
	hot := b.churn.note(changed, b.last.synced, now)
	changed = b.churn.settle(changed, now, b.last)
	forget := b.ids.len() > 2*b.known+spareNames && b.last.synced
	if forget { // numbers of names that are long gone
		b.ids = ids{}
		b.index.places = nil
		b.room = b.room.anew()
		changed = b.all(changed, func(*service) bool { return true })
	}
	moved := false // a zone is in another region
	if forget || b.nodesChanged {
		next.atlas = newAtlas(b.nodes, &b.cfg.clients, &b.ids)
		b.nodesChanged = false
		if moved = !maps.Equal(next.atlas.regions, b.last.atlas.regions); moved && !forget {
			changed = b.all(changed, b.last.atlas.movedTo(next.atlas))
		}
	}

	b.index.start(&next.index, &next.blocks, b.last.atlas)
	for i, z := range b.cfg.zones {
		compiled, namespaces := next.services[i].edit(), next.namespaces[i].edit()
		for _, svc := range changed {
			key := string(appendLabel(appendLabel(nil, svc.Name), svc.Namespace))
			old, had := compiled.getString(key)
			var made *service
			if svc.Exists {
				again := old
				if forget || moved {
					again = nil
				}
				made = compile(svc, z, &b.ids, next.atlas.regions, b.churn.ttl, hot[svc.Key], b.room, again)
			}
			if made != nil && !z.holds(svc) {
				// The first zone has the index, for which everybody counts.
				if made.hidden = i == 0; !made.hidden {
					made = nil
				}
			}
			if made != nil {
				made.takeOver(old)
				compiled.set(key, made)
			} else if had {
				compiled.remove(key)
			}
			if was, is := had && !old.hidden, made != nil && !made.hidden; was != is {
				add(namespaces, string(appendLabel(nil, svc.Namespace)), sign(is))
			}
			if i == 0 { // PTR records point into the first zone
				b.index.move(key, old, made)
			}
		}
		next.services[i], next.namespaces[i] = compiled.done(), namespaces.done()
	}
	if b.room.isLarge() {
		b.room = b.room.anew()
	}
	next.index, next.blocks = b.index.done()
	b.index.podCIDRs.move(b.last.atlas, next.atlas, &next.index)
	if forget || !b.last.synced {
		b.known = b.ids.len()
	}
	next.without = b.cfg.clients.Off
	if b.index.podCIDRs.tooMany() {
		next.without |= FromPodCIDRs
	}
	next.ids = b.ids
	b.number(&next, now)
	b.last = &next
	return &next
}

// all adds to these Services all others that are to be made anew, as they are.
func (b *Builder) all(changed []*registry.Service, anew func(*service) bool) []*registry.Service {
	in := make(map[registry.Key]bool, len(changed))
	for _, svc := range changed {
		in[svc.Key] = true
	}
	out := slices.Clone(changed)
	for i := range b.last.services {
		b.last.services[i].all(func(_ string, s *service) bool {
			if !in[s.source.Key] && anew(s) {
				in[s.source.Key] = true
				out = append(out, s.source)
			}
			return true
		})
	}
	return out
}

// movedTo says of Services whether they have endpoints in a zone that another atlas
// has in another region.
func (a *atlas) movedTo(next *atlas) func(*service) bool {
	return func(s *service) bool {
		for _, z := range s.areas.ofZones() {
			if a.regions[z.id] != next.regions[z.id] {
				return true
			}
		}
		return false
	}
}

// takeOver goes on where the Service as it was before has come to.
func (s *service) takeOver(old *service) {
	if s.order != rank.Rotate {
		return
	}
	if s.turns = new(turns); old != nil && old.turns != nil {
		s.turns = old.turns
	}
}

// Frozen says whether transfers serve the last Set. Where not, Freeze makes them,
// when a serial is Due.
func (b *Builder) Frozen() bool { return b.last.transfer == b.last }

// Due is when the next serial may be given: a second after the last one.
func (b *Builder) Due() time.Time { return b.numbered.Add(time.Second) }

// Freeze returns the last Set under a serial of its own, if one is due.
func (b *Builder) Freeze(now time.Time) *Set {
	next := *b.last
	b.number(&next, now)
	b.last = &next
	return &next
}

// Next is when Tick has something to do though nothing has changed: a serial is due
// for what transfers do not hold yet, or Services get back the TTLs that a change has
// shortened. It is zero where there is nothing to come.
func (b *Builder) Next() (at time.Time) {
	if !b.Frozen() {
		at = b.Due()
	}
	if settles := b.churn.next(); !settles.IsZero() && (at.IsZero() || settles.Before(at)) {
		at = settles
	}
	return at
}

// Tick returns the Set that is due, or nil if none is.
func (b *Builder) Tick(now time.Time) *Set {
	switch settles := b.churn.next(); {
	case !settles.IsZero() && !now.Before(settles):
		return b.Build(nil, now)
	case !b.Frozen() && !now.Before(b.Due()):
		return b.Freeze(now)
	}
	return nil
}

// number gives a Set the serial of now, or the one after the last if that is
// larger, as it is after a clock was set back; but not within a second of the last.
func (b *Builder) number(s *Set, now time.Time) {
	if since := now.Sub(b.numbered); b.numbered.IsZero() || since >= time.Second || since < 0 {
		s.serial++
		if serial := uint32(now.Unix()); s.serial == 1 || int32(serial-s.serial) > 0 {
			s.serial = serial
		}
		s.transfer = s
		b.numbered = now
	}
}

// add changes a count; one that comes to nothing is removed.
func add(counts *edit[int], key string, by int) {
	n, _ := counts.getString(key)
	if n += by; n > 0 {
		counts.set(key, n)
	} else {
		counts.remove(key)
	}
}

func sign(up bool) int {
	if up {
		return 1
	}
	return -1
}

// addrs yields every address of a Service.
func (s *service) addrs() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for p := range s.all {
			for _, f := range p.families() {
				for i := range f.len() {
					if addr, _ := netip.AddrFromSlice(f.record(uint32(i))[fixedSize:]); !yield(addr) {
						return
					}
				}
			}
		}
	}
}

// isClusterDNS says whether a Service is the cluster's own DNS, whose pods ask for
// the pods of all places.
func isClusterDNS(svc *registry.Service) bool {
	return svc.Namespace == "kube-system" &&
		(svc.Name == "kube-dns" || svc.Object != nil && svc.Object.Labels.Get("k8s-app") == "kube-dns")
}
