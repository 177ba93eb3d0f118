package zones

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Config says which zones are served and how. The zero value of each field but
// Zones is a good default.
type Config struct {
	// Zones are the zones that hold the Services. The first one is where PTR
	// records point to.
	Zones []Zone

	// Reverse are the prefixes answered with authority: within them a name that
	// does not exist is NXDOMAIN. Elsewhere only addresses of known endpoints are
	// answered and all else is REFUSED, so that a forwarder can go on.
	Reverse []netip.Prefix

	// Nameservers are the addresses of ns.dns.<zone>. Where there are none, it is
	// the address that the question came to.
	Nameservers []netip.Addr
}

// Zone is one zone. TTLs are whole seconds from 0 to an hour.
type Zone struct {
	Name string // "registry.local", with or without the final dot

	TTL         time.Duration // of records
	TTLEmpty    time.Duration // of NODATA where nothing is published
	TTLNXDomain time.Duration // of NXDOMAIN, of a type that is not there, of names in between
}

// DefaultZone has the TTLs that suit most: a change is seen within seconds, a new
// pod even sooner, and a wrong name is not asked for again at once.
func DefaultZone(name string) Zone {
	return Zone{Name: name, TTL: 5 * time.Second, TTLEmpty: 2 * time.Second, TTLNXDomain: 5 * time.Second}
}

const maxTTL = time.Hour

// Validate names the first thing that is wrong.
func (c *Config) Validate() error {
	if len(c.Zones) == 0 {
		return errors.New("no zone is given")
	}
	var apexes [][]byte
	for _, z := range c.Zones {
		apex, err := z.check()
		if err != nil {
			return fmt.Errorf("zone %q: %w", z.Name, err)
		}
		for i, other := range apexes {
			// Names below would be answered by one zone or the other.
			if within(apex, other) || within(other, apex) {
				return fmt.Errorf("zone %q: it lies within zone %q or the other way round", z.Name, c.Zones[i].Name)
			}
		}
		apexes = append(apexes, apex)
	}
	for i, p := range c.Reverse {
		if !p.IsValid() || p.Addr().Is4In6() {
			return fmt.Errorf("reverse prefix %v is not valid", p)
		}
		for _, q := range c.Reverse[:i] {
			if p.Overlaps(q) {
				return fmt.Errorf("reverse prefixes %v and %v overlap", q, p)
			}
		}
	}
	for _, a := range c.Nameservers {
		if !a.IsValid() || a.IsUnspecified() || a.Zone() != "" {
			return fmt.Errorf("nameserver %v is no address to ask", a)
		}
	}
	return nil
}

func (z *Zone) check() (apex []byte, err error) {
	if apex, err = ParseName(z.Name); err != nil {
		return nil, err
	}
	if len(apex) == 1 {
		return nil, errors.New("the root cannot be served")
	}
	for _, c := range nameText(apex) {
		if c != '-' && c != '.' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') {
			return nil, fmt.Errorf("character %q is not allowed in a zone name", c)
		}
	}
	if within(apex, inAddrArpa) || within(apex, ip6Arpa) {
		return nil, errors.New("reverse zones are given as prefixes")
	}
	for _, ttl := range []struct {
		what string
		d    time.Duration
	}{{"ttl", z.TTL}, {"ttl-empty", z.TTLEmpty}, {"ttl-nxdomain", z.TTLNXDomain}} {
		if ttl.d < 0 || ttl.d > maxTTL || ttl.d%time.Second != 0 {
			return nil, fmt.Errorf("%s %v is not whole seconds from 0s to %v", ttl.what, ttl.d, maxTTL)
		}
	}
	return apex, nil
}
