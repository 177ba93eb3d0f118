package zones

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"epdns/registry"
)

// This file says which Services a zone has, and which of them an asker sees. What is not
// there for somebody is so in every way: its names do not exist, no namespace without
// others, no PTR record, no address in the additional section, no explanation.

// Visibility limits what the addresses of a prefix see to some namespaces.
type Visibility struct {
	Prefix     netip.Prefix
	Namespaces []string // globs, as a Rule's Namespace; none is no namespace at all
}

// checkVisibility names the first thing that is wrong.
func checkVisibility(list []Visibility) error {
	given := make(map[netip.Prefix]bool, len(list))
	for _, v := range list {
		if !validPrefix(v.Prefix) {
			return fmt.Errorf("visibility for %v, which is no prefix of addresses", v.Prefix)
		}
		if given[v.Prefix.Masked()] {
			return fmt.Errorf("visibility for %v is given twice", v.Prefix)
		}
		given[v.Prefix.Masked()] = true
		for _, glob := range v.Namespaces {
			if err := CheckGlob(glob); err != nil {
				return fmt.Errorf("visibility for %v: %w", v.Prefix, err)
			}
		}
	}
	return nil
}

// sight is what an asker sees. Nil is everything.
type sight struct {
	prefix     netip.Prefix
	namespaces []string
}

// newSights are those of the configuration, the longest prefix first.
func newSights(list []Visibility) []sight {
	var out []sight
	for _, v := range list {
		out = append(out, sight{v.Prefix.Masked(), slices.Clone(v.Namespaces)})
	}
	slices.SortStableFunc(out, func(a, b sight) int { return cmp.Compare(b.prefix.Bits(), a.prefix.Bits()) })
	return out
}

// String says it of one who sees so.
func (s *sight) String() string {
	switch {
	case s == &blind:
		return "nothing is seen by who does not say where he is"
	case len(s.namespaces) == 0:
		return fmt.Sprintf("the visibility of %v is no namespace", s.prefix)
	}
	return fmt.Sprintf("the visibility of %v is namespaces %s alone", s.prefix, strings.Join(s.namespaces, ", "))
}

// blind is what one sees who does not say where he is.
var blind sight

// sightOf is what one sees who asks. A subnet that is wider than a prefix sees what that
// does, for whoever is meant may be there. Who is not known at all, as where somebody asks
// on the server itself, sees everything.
func (c *config) sightOf(from netip.Addr, subnet netip.Prefix) *sight {
	switch {
	case len(c.sights) == 0, !subnet.IsValid() && !from.IsValid():
		return nil
	case !subnet.IsValid():
		from = from.WithZone("") // prefixes have none
		subnet = netip.PrefixFrom(from, from.BitLen())
	case subnet.Addr().Is4In6() && subnet.Bits() >= 96:
		subnet = netip.PrefixFrom(subnet.Addr().Unmap(), subnet.Bits()-96)
	case subnet.Addr().Is4In6(), subnet.Bits() == 0:
		return &blind // a client may ask its forwarder for that (RFC 7871 section 7.1.2)
	}
	for i := range c.sights {
		if c.sights[i].prefix.Overlaps(subnet) {
			return &c.sights[i]
		}
	}
	return nil
}

// SeesAll says whether an address sees all that there is, so that it may have whole zones.
func (s *Set) SeesAll(addr netip.Addr) bool { return s.cfg.sightOf(addr, netip.Prefix{}) == nil }

// shows says whether a namespace is seen.
func shows[T string | []byte](s *sight, namespace T) bool {
	if s == nil {
		return true
	}
	for _, glob := range s.namespaces {
		if globMatch(glob, namespace) {
			return true
		}
	}
	return false
}

// visible are those of an address's holders that the asker sees. It is valid until it is
// called again.
func (a *Answer) visible(holders []holder) []holder {
	if a.sight == nil && len(a.set.cfg.zones[0].only) == 0 {
		return holders
	}
	a.inSight = a.inSight[:0]
	for i := range holders {
		if a.sees(&holders[i]) {
			a.inSight = append(a.inSight, holders[i])
		}
	}
	return a.inSight
}

func (a *Answer) sees(h *holder) bool {
	return !h.by.hidden && shows(a.sight, namespaceOf(h.by.key))
}

// namespaceOf is the namespace in a Service's key.
func namespaceOf(key string) string { return key[2+int(key[0]):] }

// newOnly are the rules of which a Service must match one to be in a zone, none where all
// are.
func newOnly(namespaces []string, selector string) (only []rule, err error) {
	r := rule{}
	if r.selector, err = parseSelector(selector); err != nil {
		return nil, err
	}
	for _, glob := range namespaces {
		if err := CheckGlob(glob); err != nil {
			return nil, err
		}
		if glob == "" {
			return nil, fmt.Errorf("an empty namespace matches none; * matches all")
		}
		r.namespace = glob
		only = append(only, r)
	}
	if len(namespaces) == 0 && r.selector != nil {
		only = append(only, r)
	}
	return only, nil
}

// holds says whether a Service is in the zone.
func (z *zone) holds(svc *registry.Service) bool {
	return len(z.only) == 0 || slices.ContainsFunc(z.only, func(r rule) bool { return r.matches(svc) })
}
