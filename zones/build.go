package zones

import (
	"net/netip"
	"slices"
	"time"

	"epdns/registry"
)

// Builder makes each Set from the one before and the Services that changed. It is
// the one writer of the Sets it makes: one goroutine uses it.
//
// What a Build costs depends on the Services that changed, not on how many there are.
type Builder struct {
	cfg  *config
	last *Set
}

// NewBuilder checks the configuration and returns a Builder whose last Set is
// empty and not synced.
func NewBuilder(c Config) (*Builder, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	cfg := &config{nameservers: slices.Clone(c.Nameservers)}
	for _, z := range c.Zones {
		apex, _ := ParseName(z.Name) // checked
		cfg.zones = append(cfg.zones, &zone{
			Zone:        z,
			apex:        apex,
			labels:      countLabels(apex),
			ttl:         seconds(z.TTL),
			ttlEmpty:    seconds(z.TTLEmpty),
			ttlNXDomain: seconds(z.TTLNXDomain),
		})
	}
	for _, p := range c.Reverse {
		for _, b := range blocksOf(p) {
			cfg.reverse = append(cfg.reverse, reverseZone{b, appendReverse(nil, &b)})
		}
	}
	set := &Set{cfg: cfg, services: make([]table[*service], len(cfg.zones))}
	set.transfer = set
	return &Builder{cfg: cfg, last: set}, nil
}

func seconds(d time.Duration) uint32 { return uint32(d / time.Second) }

// Last is the Set built last.
func (b *Builder) Last() *Set { return b.last }

// Build makes the next Set: these Services are as given now, all others as they
// were. The Set is synced from the first Build on.
//
// Its serial is that of now if a second has passed since the last one; else it
// keeps the last serial, and its transfers serve the older Set that the serial
// stands for until Freeze.
func (b *Builder) Build(changed []*registry.Service, now time.Time) *Set {
	next := *b.last
	next.synced = true
	next.services = slices.Clone(next.services)

	namespaces, index, blocks := next.namespaces.edit(), next.index.edit(), next.blocks.edit()
	for i, z := range b.cfg.zones {
		services := next.services[i].edit()
		for _, svc := range changed {
			key := string(appendLabel(appendLabel(nil, svc.Name), svc.Namespace))
			old, had := services.getString(key)
			var now *service
			if svc.Exists {
				now = compile(svc, z)
			}
			switch {
			case now != nil:
				services.set(key, now)
			case had:
				services.remove(key)
			}
			if i > 0 {
				continue // what follows is the same for all zones
			}
			if had != (now != nil) {
				ns := string(appendLabel(nil, svc.Namespace))
				n, _ := namespaces.getString(ns)
				if n += sign(now != nil); n > 0 {
					namespaces.set(ns, n)
				} else {
					namespaces.remove(ns)
				}
			}
			b.reindex(index, blocks, key, old, now)
		}
		next.services[i] = services.done()
	}
	next.namespaces, next.index, next.blocks = namespaces.done(), index.done(), blocks.done()
	b.last = &next
	b.number(&next, now)
	return &next
}

// Frozen says whether transfers serve the last Set. Where not, Freeze makes them,
// once a second has passed.
func (b *Builder) Frozen() bool { return b.last.transfer == b.last }

// Freeze returns the last Set under a serial of its own.
func (b *Builder) Freeze(now time.Time) *Set {
	next := *b.last
	b.last = &next
	b.number(&next, now)
	return &next
}

// number gives a Set the serial of now, if that is newer than the last one.
func (b *Builder) number(s *Set, now time.Time) {
	if serial := uint32(now.Unix()); int32(serial-s.serial) > 0 || s.serial == 0 {
		s.serial = serial
		s.transfer = s
	}
}

func sign(up bool) int {
	if up {
		return 1
	}
	return -1
}

// reindex moves the addresses of one Service in the reverse index.
func (b *Builder) reindex(index *edit[[]string], blocks *edit[int], key string, old, now *service) {
	var buf [16]byte
	for addr := range old.addrs() {
		if now.has(addr) {
			continue
		}
		k := string(addrKey(&buf, addr))
		keys, _ := index.getString(k)
		if keys = slices.DeleteFunc(slices.Clone(keys), func(s string) bool { return s == key }); len(keys) > 0 {
			index.set(k, keys)
		} else {
			index.remove(k)
			b.countBlocks(blocks, addr, -1)
		}
	}
	for addr := range now.addrs() {
		if old.has(addr) {
			continue
		}
		k := string(addrKey(&buf, addr))
		keys, _ := index.getString(k)
		if len(keys) == 0 {
			b.countBlocks(blocks, addr, 1)
		}
		keys = append(slices.Clone(keys), key)
		slices.Sort(keys)
		index.set(k, keys)
	}
}

// countBlocks counts an address in each reverse name between its own and the apex
// of the reverse zone it lies in. They exist while anything is below (RFC 8020).
func (b *Builder) countBlocks(blocks *edit[int], addr netip.Addr, by int) {
	for _, z := range b.cfg.reverse {
		if !z.block.contains(addr) {
			continue
		}
		for n := z.block.n + 1; n < z.block.parts; n++ {
			above := blockOf(addr, n)
			k := string(above.key())
			count, _ := blocks.getString(k)
			if count += by; count > 0 {
				blocks.set(k, count)
			} else {
				blocks.remove(k)
			}
		}
	}
}

// addrs yields every address that a Service names.
func (s *service) addrs() func(yield func(netip.Addr) bool) {
	return func(yield func(netip.Addr) bool) {
		if s == nil {
			return
		}
		for i := 0; i < len(s.a); i += sizeA {
			if !yield(netip.AddrFrom4([4]byte(s.a[i+fixedSize : i+sizeA]))) {
				return
			}
		}
		for i := 0; i < len(s.aaaa); i += sizeAAAA {
			if !yield(netip.AddrFrom16([16]byte(s.aaaa[i+fixedSize : i+sizeAAAA]))) {
				return
			}
		}
	}
}

func (s *service) has(addr netip.Addr) bool {
	if s == nil {
		return false
	}
	_, ok := s.findAddr(addr)
	return ok
}
