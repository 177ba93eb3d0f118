package main

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"epdns/zones"
)

// zonesConfig hands one value after the other to the check of package zones: what
// it finds is then wrong with the last one, which is left out.
func (c *config) zonesConfig(m *mistakes) (out zones.Config) {
	if len(c.Zones) == 0 {
		m.add("zones", out.Validate())
	}
	for i, z := range c.Zones {
		at := fmt.Sprintf("zones[%d].", i)
		zone := zones.DefaultZone(z.Name)
		m.add(at+"layout", zone.Layout.UnmarshalText([]byte(z.Layout)))
		m.add(at+"empty", zone.Empty.UnmarshalText([]byte(z.Empty)))
		m.add(at+"endpointNames", zone.EndpointNames.UnmarshalText([]byte(z.EndpointNames)))
		zone.Namespaces = parseEach(m, at+"namespaces", z.Namespaces, parseNamespaces, nil)
		if err := zones.CheckSelector(z.Selector); err != nil {
			m.add(at+"selector", err)
		} else {
			zone.Selector = z.Selector
		}
		zone.Defaults = z.Defaults.values(m, at+"defaults")
		for j, r := range z.Rules {
			zone.Rules = append(zone.Rules, r.rule(m, fmt.Sprintf("%srules[%d]", at, j)))
		}
		if z.Name == "" {
			m.add(at+"name", errors.New("missing; every zone needs a name"))
			continue
		}
		out.Zones = append(out.Zones, zone)
		if err := out.Validate(); err != nil {
			m.add(at+"name", err)
			out.Zones = out.Zones[:len(out.Zones)-1]
		}
	}
	if len(out.Zones) == 0 {
		return out // which no value makes valid
	}
	out.Reverse = parseEach(m, "reverse", c.Reverse, parsePrefix, func(p []netip.Prefix) error {
		out.Reverse = p
		return out.Validate()
	})
	out.Nameservers = parseEach(m, "nameserver", c.Nameserver, parseNameserver, func(a []netip.Addr) error {
		out.Nameservers = a
		return out.Validate()
	})
	c.Clients.into(m, &out)
	out.NoExplain = !c.ExplainTXT
	err := parseDuration(c.ChurnTTL, &out.ChurnTTL)
	if err == nil {
		err = out.Validate()
	}
	if err != nil {
		m.add("churnTTL", err)
		out.ChurnTTL = 0
	}
	return out
}

// values are what v says under a key, but for what is wrong.
func (v knobValues) values(m *mistakes, key string) zones.Values {
	out := maps.Clone(v)
	for _, k := range zones.Knobs() {
		if text, ok := v[k.Name]; ok {
			if err := k.Check(text); err != nil {
				m.add(key+"."+k.Name, fmt.Errorf("%q is %w", text, err))
				delete(out, k.Name)
			}
		}
	}
	return zones.Values(out)
}

func (r *ruleConfig) rule(m *mistakes, key string) (out zones.Rule) {
	for _, v := range []struct {
		key, text string
		check     func(string) error
		to        *string
	}{
		{"namespace", r.Match.Namespace, zones.CheckGlob, &out.Namespace},
		{"name", r.Match.Name, zones.CheckGlob, &out.Name},
		{"selector", r.Match.Selector, zones.CheckSelector, &out.Selector},
	} {
		if err := v.check(v.text); err != nil {
			m.add(key+".match."+v.key, err)
			continue
		}
		*v.to = v.text
	}
	out.Set = r.Set.values(m, key+".set")
	return out
}

// into puts what is known of clients into out, which is good so far and stays so.
func (c *clientsConfig) into(m *mistakes, out *zones.Config) {
	for _, list := range []struct {
		key  string
		from []string
		to   *[]netip.Prefix
	}{
		{"clients.trustedForwarders", c.TrustedForwarders, &out.Clients.TrustedForwarders},
		{"clients.sharedCaches", c.SharedCaches, &out.Clients.SharedCaches},
	} {
		*list.to = parseEach(m, list.key, list.from, parsePrefix, func(p []netip.Prefix) error {
			*list.to = p
			return out.Validate()
		})
	}
	for i, p := range c.Places {
		key := fmt.Sprintf("clients.places[%d]", i)
		prefix, err := parsePrefix(p.CIDR)
		if err != nil {
			m.add(key+".cidr", err)
			continue
		}
		before := out.Clients.Places
		out.Clients.Places = append(before, zones.PlaceRange{Prefix: prefix, Node: p.Node, Zone: p.Zone, Region: p.Region})
		if err := out.Validate(); err != nil {
			m.add(key, err)
			out.Clients.Places = before
		}
	}
	for i, v := range c.Visibility {
		key := fmt.Sprintf("clients.visibility[%d]", i)
		prefix, err := parsePrefix(v.CIDR)
		if err != nil {
			m.add(key+".cidr", err)
			continue
		}
		before := out.Clients.Visibility
		namespaces := parseEach(m, key+".namespaces", v.Namespaces, parseNamespaces, nil)
		out.Clients.Visibility = append(before, zones.Visibility{Prefix: prefix, Namespaces: namespaces})
		if err := out.Validate(); err != nil {
			m.add(key, err)
			out.Clients.Visibility = before
		}
	}
	for source, on := range map[zones.Sources]bool{
		zones.FromECS:       c.Sources.ECS,
		zones.FromEndpoints: c.Sources.Endpoints,
		zones.FromNodes:     c.Sources.Nodes,
		zones.FromPodCIDRs:  c.Sources.PodCIDRs,
		zones.FromPlaces:    c.Sources.Places,
	} {
		if !on {
			out.Clients.Off |= source
		}
	}
}
