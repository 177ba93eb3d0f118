package dnsserver

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"epdns/zones"
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

// A Responder explains its last reply, where that came from the zones.
func TestResponderExplain(t *testing.T) {
	r := NewResponder(Config{UDPSize: 512}, cluster(t))
	if r.Explain() != nil {
		t.Error("there is an explanation before there is a reply")
	}
	ask := func(over Transport, name string, qtype, qclass uint16, options ...dns.EDNS0) *dns.Msg {
		m := new(dns.Msg).SetQuestion(name, qtype)
		m.Question[0].Qclass = qclass
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = options
		return respond(t, r, m, over)
	}
	subnet := &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 24, Address: net.IP{192, 0, 2, 0}}

	reply := ask(UDP, "big.shop.registry.local.", dns.TypeA, dns.ClassINET, subnet)
	e := r.Explain()
	var answered []string
	for _, x := range e.Endpoints {
		if x.Answered {
			answered = append(answered, x.Address)
		}
	}
	var want []string
	for _, rr := range reply.Answer {
		want = append(want, rr.(*dns.A).A.String())
	}
	if !reply.Truncated || len(want) == 0 || !slices.Equal(answered, want) || len(e.Endpoints) != 200 || e.Records != 200 {
		t.Errorf("answered are %q of %d, in the answer are %q", answered, len(e.Endpoints), want)
	}
	if e.Asker.Address != client.Addr().String() || e.Asker.Subnet != "" || e.Asker.Unbelieved != "192.0.2.0/24" {
		t.Errorf("the asker is %+v", e.Asker)
	}

	ask(UDP, "web.shop.registry.local.", dns.TypeA, dns.ClassINET)
	if e := r.Explain(); e == nil || e.Service != "shop/web" || e.Asker.Unbelieved != "" {
		t.Errorf("the next one is explained so: %+v", e)
	}
	if reply := ask(UDP, "version.bind.", dns.TypeTXT, dns.ClassCHAOS); r.Explain() != nil {
		t.Errorf("%v has an explanation", reply)
	}
	text := ask(TCP, "_explain.web.shop.registry.local.", dns.TypeTXT, dns.ClassINET, subnet).Answer[0].(*dns.TXT).Txt
	if !strings.Contains(strings.Join(text, "\n"), "; subnet 192.0.2.0/24 does not count: the asker is no trusted forwarder\n") {
		t.Errorf("the TXT record says %q", text)
	}
	r.Respond(nil, make([]byte, headerSize), client, Via{UDP, local})
	if r.Explain() != nil {
		t.Error("a malformed query has an explanation")
	}
}

// Answers that depend on a place are counted by what told it.
func TestStatsOfPlaces(t *testing.T) {
	s := start(t, Config{Listen: []string{"127.0.0.1:0"}})
	for _, network := range []string{"udp", "tcp"} {
		for _, name := range []string{"web", "one", "nope"} { // one has a single endpoint, which all get
			c := dns.Client{Net: network}
			if _, _, err := c.Exchange(new(dns.Msg).SetQuestion(name+".shop.registry.local.", dns.TypeA), s.Addrs()[0].String()); err != nil {
				t.Fatal(err)
			}
		}
	}
	places := s.Stats().Places
	if len(places) != int(zones.Places)-1 || places[zones.PlaceUnknown] != 2 || places[zones.PlaceIdle] != 0 || places[zones.PlaceEndpoints] != 0 {
		t.Errorf("places are %v", places)
	}
}
