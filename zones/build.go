package zones

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"epdns/registry"
)

// Builder makes each Set from the one before and the Services that changed. It is
// the one writer of the Sets it makes: one goroutine uses it.
//
// What a Build costs depends on the Services that changed, not on how many there are.
type Builder struct {
	cfg      *config
	last     *Set
	numbered time.Time // when the last serial was given
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
			layout:        z.Layout,
			empty:         z.Empty,
			endpointNames: z.EndpointNames,
			apex:          apex,
			labels:        countLabels(apex),
			ttl:           seconds(z.TTL),
			ttlEmpty:      seconds(z.TTLEmpty),
			ttlNXDomain:   seconds(z.TTLNXDomain),
		})
	}
	for _, p := range c.Reverse {
		for _, b := range blocksOf(p) {
			cfg.reverse = append(cfg.reverse, reverseZone{b, appendReverse(nil, &b)})
		}
	}
	set := &Set{cfg: cfg, services: make([]table[*service], len(cfg.zones)), namespaces: make([]table[int], len(cfg.zones))}
	set.transfer = set
	return &Builder{cfg: cfg, last: set}, nil
}

func seconds(d time.Duration) uint32 { return uint32(d / time.Second) }

// Last is the Set built last.
func (b *Builder) Last() *Set { return b.last }

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

	index, blocks := next.index.edit(), next.blocks.edit()
	for i, z := range b.cfg.zones {
		services, namespaces := next.services[i].edit(), next.namespaces[i].edit()
		for _, svc := range changed {
			key := string(appendLabel(appendLabel(nil, svc.Name), svc.Namespace))
			old, had := services.getString(key)
			var now *service
			if svc.Exists {
				now = compile(svc, z)
			}
			if now != nil {
				services.set(key, now)
			} else if had {
				services.remove(key)
			}
			if had != (now != nil) {
				add(namespaces, string(appendLabel(nil, svc.Namespace)), sign(now != nil))
			}
			if i == 0 { // PTR records point into the first zone
				b.reindex(index, blocks, key, old, now)
			}
		}
		next.services[i], next.namespaces[i] = services.done(), namespaces.done()
	}
	next.index, next.blocks = index.done(), blocks.done()
	b.number(&next, now)
	b.last = &next
	return &next
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

// reindex moves the addresses of one Service in the reverse index.
func (b *Builder) reindex(index *edit[[]holder], blocks *edit[int], key string, old, now *service) {
	var buf [16]byte
	for addr := range old.addrs() {
		if _, named := now.called(addr); named {
			continue
		}
		if _, had := old.called(addr); !had {
			continue
		}
		k := string(addrKey(&buf, addr))
		holders, _ := index.getString(k)
		if holders = without(holders, key); len(holders) > 0 {
			index.set(k, holders)
		} else {
			index.remove(k)
			b.countBlocks(blocks, addr, -1)
		}
	}
	for addr := range now.addrs() {
		host, named := now.called(addr)
		was, had := old.called(addr)
		if !named || had && was == host {
			continue
		}
		k := string(addrKey(&buf, addr))
		holders, _ := index.getString(k)
		if len(holders) == 0 {
			b.countBlocks(blocks, addr, 1)
		}
		holders = append(without(holders, key), holder{key, host})
		slices.SortFunc(holders, func(a, b holder) int {
			if a.host != b.host {
				return sign(b.host)
			}
			return strings.Compare(a.key, b.key)
		})
		index.set(k, holders)
	}
}

// without copies the list, but for one Service.
func without(holders []holder, key string) []holder {
	return slices.DeleteFunc(slices.Clone(holders), func(h holder) bool { return h.key == key })
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
			add(blocks, string(above.key()), by)
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

// called says whether an address has a name in this Service that PTR records can
// point to, and whether that is a host name.
func (s *service) called(addr netip.Addr) (host, named bool) {
	if s == nil {
		return false, false
	}
	at, ok := s.findAddr(addr)
	if !ok || s.nameAt(addr, at) == unnamed {
		return false, false
	}
	_, host = s.nameOf(addr, at)
	return host, true
}
