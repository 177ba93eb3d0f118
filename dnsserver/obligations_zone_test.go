package dnsserver

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/miekg/dns"
)

// What is true of every name and record of a zone.

// zoneRecords are all records of a zone, as a transfer has them.
func zoneRecords(t *testing.T, r *Responder, apex string) (out []dns.RR) {
	t.Helper()
	records, ok := r.authority.Load().Transfer(wireName(apex), local)
	if !ok {
		t.Fatalf("no zone %s", apex)
	}
	for b := range records {
		rr, _, err := dns.UnpackRR(bytes.Clone(b), 0)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, rr)
	}
	return out
}

func TestWholeZone(t *testing.T) {
	r := newResponder(cluster(t))
	ask := func(name string, typ uint16) *dns.Msg {
		t.Helper()
		return respond(t, r, question(name, typ), TCP)
	}
	addressed := func(name string) bool {
		a, aaaa := ask(name, dns.TypeA), ask(name, dns.TypeAAAA)
		for _, m := range []*dns.Msg{a, aaaa} {
			for _, rr := range m.Answer {
				if rr.Header().Rrtype == dns.TypeCNAME {
					return false
				}
			}
		}
		return len(a.Answer)+len(aaaa.Answer) > 0
	}
	for _, apex := range []string{"registry.local.", "10.in-addr.arpa."} {
		type set struct {
			owner string
			typ   uint16
		}
		ttls, owners := map[set]uint32{}, map[string]bool{}
		for _, rr := range zoneRecords(t, r, apex) {
			h := rr.Header()
			owners[h.Name] = true
			// RFC 2181 section 5.2.
			s := set{h.Name, h.Rrtype}
			if ttl, ok := ttls[s]; ok && ttl != h.Ttl || h.Ttl > 3600 {
				t.Errorf("TTLs of %s %s: %d and %d", h.Name, dns.TypeToString[h.Rrtype], ttl, h.Ttl)
			}
			ttls[s] = h.Ttl
			switch rr := rr.(type) {
			case *dns.SRV:
				if rr.Weight == 0 || !dns.IsSubDomain("registry.local.", rr.Target) || !addressed(rr.Target) { // RFC 2782
					t.Errorf("a target that nobody reaches: %v", rr)
				}
			case *dns.PTR: // the name leads back
				back, err := dns.ReverseAddr(firstAddress(ask(rr.Ptr, dns.TypeA)))
				if err != nil || back != h.Name {
					t.Errorf("%v: the name's address is that of %s, %v", rr, back, err)
				}
			}
		}
		if len(owners) < 200 {
			t.Fatalf("%s has %d names", apex, len(owners))
		}
		for owner := range owners {
			// RFC 8020 section 2: all above a name exists, for every type.
			for _, at := range dns.Split(owner) {
				if name := owner[at:]; dns.IsSubDomain(apex, name) {
					for _, typ := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypeTXT, 65280} {
						if m := ask(name, typ); m.Rcode != dns.RcodeSuccess {
							t.Errorf("%s exists and %s %s is %s", owner, name, dns.TypeToString[typ], dns.RcodeToString[m.Rcode])
						}
					}
				}
			}
			// RFC 4343: in any spelling.
			name := []byte(owner)
			for i, c := range name {
				if 'a' <= c && c <= 'z' && rand.IntN(2) == 0 {
					name[i] = c - 'a' + 'A'
				}
			}
			for _, typ := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypePTR} {
				if a, b := ask(owner, typ), ask(string(name), typ); len(a.Answer) != len(b.Answer) || a.Rcode != b.Rcode {
					t.Errorf("%s is not %s", name, owner)
				}
			}
		}
	}
}

func firstAddress(m *dns.Msg) string {
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			return a.A.String()
		}
	}
	return ""
}
