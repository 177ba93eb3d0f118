package epdns_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

const someSeeSome = `
source: {manifests: cluster}
deny: [127.0.0.9]
reverse: [10.0.0.0/8]
transfer: {allow: [127.0.0.0/8]}
clients:
  visibility:
  - {cidr: 127.0.1.0/24, namespaces: [shop]}
  - {cidr: 127.0.2.0/24, namespaces: [d*]}
  - {cidr: 127.0.3.0/24, namespaces: []}
zones:
- name: registry.local
- {name: shop.local, namespaces: [shop]}
- {name: db.local, selector: app.kubernetes.io/name=db}
`

// What there is depends on who asks and in which zone, over UDP and TCP, by DNS and by HTTP.
func TestVisibility(t *testing.T) {
	const yes, no, none, refuses = "NOERROR", "NXDOMAIN", "no connection", "REFUSED"
	p := serve(t, "--config", settings(t, someSeeSome))
	for _, c := range []struct {
		from, name string
		qtype      uint16
		want       string
	}{
		{"127.0.0.1", "jobs.shop.registry.local.", dns.TypeA, yes},
		{"127.0.0.1", "db.data.registry.local.", dns.TypeA, yes},
		{"127.0.1.1", "jobs.shop.registry.local.", dns.TypeA, yes},
		{"127.0.1.1", "db.data.registry.local.", dns.TypeA, no},
		{"127.0.1.1", "_all.db.data.registry.local.", dns.TypeSRV, no},
		{"127.0.1.1", "_explain.db.data.registry.local.", dns.TypeTXT, no},
		{"127.0.1.1", "data.registry.local.", dns.TypeA, no},
		{"127.0.1.1", "shop.registry.local.", dns.TypeA, yes},
		{"127.0.2.1", "jobs.shop.registry.local.", dns.TypeA, no},
		{"127.0.2.1", "db.data.registry.local.", dns.TypeA, yes},
		{"127.0.3.1", "jobs.shop.registry.local.", dns.TypeA, no},
		{"127.0.3.1", "registry.local.", dns.TypeSOA, yes},
		{"127.0.0.9", "jobs.shop.registry.local.", dns.TypeA, refuses},

		{"127.0.0.1", "51.2.1.10.in-addr.arpa.", dns.TypePTR, yes}, // of db
		{"127.0.2.1", "51.2.1.10.in-addr.arpa.", dns.TypePTR, yes},
		{"127.0.1.1", "51.2.1.10.in-addr.arpa.", dns.TypePTR, no},
		{"127.0.0.1", "10.in-addr.arpa.", dns.TypeSOA, yes},

		{"127.0.0.1", "jobs.shop.shop.local.", dns.TypeA, yes},
		{"127.0.0.1", "db.data.shop.local.", dns.TypeA, no},
		{"127.0.0.1", "data.shop.local.", dns.TypeA, no},
		{"127.0.2.1", "jobs.shop.shop.local.", dns.TypeA, no},
		{"127.0.0.1", "db.data.db.local.", dns.TypeA, yes},
		{"127.0.0.1", "jobs.shop.db.local.", dns.TypeA, no},
	} {
		for _, tcp := range []bool{false, true} {
			q := ask(c.name, c.qtype)
			q.from, q.tcp = netip.MustParseAddr(c.from), tcp
			got := none
			r, err := q.send(p.dns.Port())
			if err == nil {
				got = rcodeName(r.rcode)
			}
			want := c.want
			if want == refuses && tcp {
				want = none
			}
			if got != want {
				t.Errorf("%s asks for %v: %s (%v), want %s", c.from, q, got, err, want)
			}
			if want == refuses && !slices.Contains(r.ede(), 18) {
				t.Errorf("%s asks for %v: nothing says why", c.from, q)
			}
		}
	}
	// A zone goes to who sees all of it.
	for from, want := range map[string]int{"127.0.0.1": dns.RcodeSuccess, "127.0.1.1": dns.RcodeRefused} {
		q := ask(zone, dns.TypeAXFR).overTCP()
		query, err := q.pack()
		if err != nil {
			t.Fatal(err)
		}
		wire, err := exchangeTCP(netip.MustParseAddr(from), p.dns, query)
		if err != nil || int(wire[3]&0xf) != want {
			t.Errorf("a transfer to %s: %x %v, want %s", from, wire, err, rcodeName(want))
		}
	}
	// Who explains an answer explains the one that is given.
	for from, want := range map[string]string{"127.0.1.1": "NXDOMAIN", "127.0.2.1": "db-0"} {
		_, body := p.get(t, fmt.Sprintf("/explain?format=text&name=db.data.registry.local&from=%s", from))
		if !strings.Contains(body, want) || want == "NXDOMAIN" && strings.Contains(body, "db-0") {
			t.Errorf("explained for %s, without %s: %s", from, want, body)
		}
	}
}
