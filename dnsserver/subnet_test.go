package dnsserver

import (
	"encoding/hex"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/registry"
	"epdns/zones"
)

// placed is an authority with a Service of two endpoints, whose asker's place matters,
// and a place for 10.1.0.0/16.
func placed(t *testing.T, forwarders ...string) *zones.Store {
	t.Helper()
	cfg := zones.Config{Zones: []zones.Zone{{Name: "registry.local"}}}
	for _, f := range forwarders {
		cfg.Clients.TrustedForwarders = append(cfg.Clients.TrustedForwarders, netip.MustParsePrefix(f))
	}
	cfg.Clients.Places = []zones.PlaceRange{
		{Prefix: netip.MustParsePrefix("10.1.0.0/16"), Zone: "a"},
		{Prefix: netip.MustParsePrefix("2001:db8:1::/48"), Zone: "a"},
	}
	b, err := zones.NewBuilder(cfg)
	if err != nil {
		t.Fatal(err)
	}
	endpoint := func(addr, zone string) registry.Endpoint {
		return registry.Endpoint{Addr: netip.MustParseAddr(addr), Zone: zone, Ready: true, Serving: true}
	}
	var out zones.Store
	out.Publish(b.Build([]*registry.Service{{
		Key: registry.Key{Namespace: "shop", Name: "web"}, Exists: true,
		Object: &registry.Object{Annotations: registry.Pairs{{Key: "topology", Value: "nearest"}}},
		Slices: []*registry.Slice{{Namespace: "shop", Name: "web-1", Service: "web", Endpoints: registry.NewEndpoints(
			endpoint("10.0.0.1", "a"), endpoint("10.0.0.2", "b"),
		)}},
	}}, time.Unix(1_800_000_000, 0)))
	return &out
}

// The octets of the option, from the family on, and those of the reply's: RFC 7871
// sections 6 and 7.
func TestSubnet(t *testing.T) {
	trusted, others := placed(t, "127.0.0.0/8"), placed(t, "192.0.2.0/24")
	for _, c := range []struct {
		what, option string
		rcode        int
		answers      int
		back         string // empty: no option
	}{
		{"a range", "0001 18 00 0a0105", dns.RcodeSuccess, 1, "0001 18 10 0a0105"},
		{"all of an address", "0001 20 00 0a010509", dns.RcodeSuccess, 1, "0001 20 10 0a010509"},
		{"IPv6", "0002 38 00 20010db8000107", dns.RcodeSuccess, 1, "0002 38 30 20010db8000107"},
		{"wider than the place", "0001 08 00 0a", dns.RcodeSuccess, 2, "0001 08 08 0a"},
		{"nobody's", "0001 18 00 0a0205", dns.RcodeSuccess, 2, "0001 18 18 0a0205"},
		{"not to be located", "0001 00 00", dns.RcodeSuccess, 2, "0001 00 00"},
		{"another family", "0003 18 00 0a0105", dns.RcodeSuccess, 2, ""},
		{"no family", "0000 00 00", dns.RcodeSuccess, 2, ""},

		{"cut short", "0001 18", dns.RcodeFormatError, 0, ""},
		{"empty", "", dns.RcodeFormatError, 0, ""},
		{"fewer octets than bits", "0001 18 00 0a01", dns.RcodeFormatError, 0, ""},
		{"more octets than bits", "0001 18 00 0a010500", dns.RcodeFormatError, 0, ""},
		{"more than an address has", "0001 28 00 0a01050607", dns.RcodeFormatError, 0, ""},
		{"more than an IPv6 address has", "0002 81 00 20010db800000000000000000000000000", dns.RcodeFormatError, 0, ""},
		{"bits beyond", "0001 17 00 0a0105", dns.RcodeFormatError, 0, ""},
		{"a scope in a query", "0001 18 10 0a0105", dns.RcodeFormatError, 0, ""},
	} {
		option := unhex(t, c.option)
		ask := func(s *zones.Store, transport Transport) *dns.Msg {
			q := question("web.shop.registry.local.", dns.TypeA)
			q.SetEdns0(1232, false)
			q.IsEdns0().Option = append(q.IsEdns0().Option, &dns.EDNS0_LOCAL{Code: optionSubnet, Data: option})
			msg, err := q.Pack()
			if err != nil {
				t.Fatal(err)
			}
			var m dns.Msg
			reply := newResponder(s).Respond(nil, msg, client, Via{transport, local})
			if err := m.Unpack(reply); err != nil {
				t.Fatalf("%s: reply %x: %v", c.what, reply, err)
			}
			return &m
		}
		for _, transport := range []Transport{UDP, TCP} {
			m := ask(trusted, transport)
			back := ""
			for _, o := range m.IsEdns0().Option {
				if s, ok := o.(*dns.EDNS0_SUBNET); ok {
					packed, _ := packOption(s)
					back = hex.EncodeToString(packed)
				}
			}
			if m.Rcode != c.rcode || len(m.Answer) != c.answers || back != hex.EncodeToString(unhex(t, c.back)) {
				t.Errorf("%s: rcode %d, %d answers, option %q, want %q", c.what, m.Rcode, len(m.Answer), back, c.back)
			}
			// Whoever is not trusted gets his own answer, whatever he says of others.
			if m := ask(others, transport); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 2 || len(m.IsEdns0().Option) != 0 {
				t.Errorf("%s, not trusted:\n%v", c.what, m)
			}
		}
	}
}

// packOption is the option's data as it was on the wire.
func packOption(s *dns.EDNS0_SUBNET) ([]byte, error) {
	m := new(dns.Msg)
	m.SetEdns0(512, false)
	m.IsEdns0().Option = []dns.EDNS0{s}
	wire, err := m.Pack()
	if err != nil {
		return nil, err
	}
	return wire[headerSize+optSize+optionSize:], nil
}
