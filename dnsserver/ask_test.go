package dnsserver

import (
	"net/netip"
	"testing"

	"github.com/miekg/dns"
)

// A question that comes by no socket gets all of its answer, however long.
func TestNewResponder(t *testing.T) {
	query, err := new(dns.Msg).SetQuestion("big.shop.registry.local.", dns.TypeA).Pack()
	if err != nil {
		t.Fatal(err)
	}
	from := netip.MustParseAddrPort("192.0.2.1:0")
	wire := NewResponder(Config{}, cluster(t)).Respond(nil, query, from, Via{Transport: TCP})
	var m dns.Msg
	if err := m.Unpack(wire); err != nil || m.Truncated || len(m.Answer) != 200 {
		t.Errorf("%d records, truncated %t, %v", len(m.Answer), m.Truncated, err)
	}
}
