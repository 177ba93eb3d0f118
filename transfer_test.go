package epdns_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// transferred is a zone as dig gets it by AXFR, or by IXFR=SERIAL.
func transferred(t *testing.T, p *program, zone, how string) []dns.RR {
	t.Helper()
	out := runDig(t, "@127.0.0.1", "-p", fmt.Sprint(p.dns.Port()), "+noall", "+answer", "+nosplit", "-q", zone, "-t", how)
	var rrs []dns.RR
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		rr, err := dns.NewRR(line)
		if err != nil || rr == nil {
			t.Fatalf("line %q of a transfer: %v", line, err)
		}
		rrs = append(rrs, rr)
	}
	return rrs
}

// TestTransfer holds a transfer against the single questions: what it has is
// answered so, and what it has not is not there.
func TestTransfer(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster", "--reverse", "10.0.0.0/8", "--nameserver", "192.0.2.53")
	for _, apex := range []string{zone, ten} {
		t.Run(apex, func(t *testing.T) {
			rrs := transferred(t, p, apex, "AXFR")
			if len(rrs) < 3 {
				t.Fatalf("%d records: %v", len(rrs), rrs)
			}
			last := len(rrs) - 1
			if soa, ok := rrs[0].(*dns.SOA); !ok || soa.Hdr.Name != apex || soa.String() != rrs[last].String() {
				t.Errorf("it begins with %v and ends with %v", rrs[0], rrs[last])
			}
			type set struct {
				owner string
				qtype uint16
			}
			sets := map[set][]dns.RR{}
			owners := map[string]bool{}
			for _, rr := range rrs[:last] {
				h := rr.Header()
				sets[set{h.Name, h.Rrtype}] = append(sets[set{h.Name, h.Rrtype}], rr)
				owners[h.Name] = true
			}
			for owner := range owners {
				for _, qtype := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypePTR, dns.TypeTXT, dns.TypeCNAME, dns.TypeNS, dns.TypeSOA} {
					if sets[set{owner, dns.TypeCNAME}] != nil && qtype != dns.TypeCNAME {
						continue // the answer is what is at the target
					}
					r, err := ask(owner, qtype).overTCP().send(p.dns.Port())
					if err != nil {
						t.Fatalf("%s %s: %v", owner, typeText(qtype), err)
					}
					want, got := whole(sets[set{owner, qtype}]), whole(r.sections[answers])
					if r.rcode != dns.RcodeSuccess || !slices.Equal(want, got) {
						t.Errorf("asked for: %s %q; in the transfer: %q", rcodeName(r.rcode), got, want)
					}
				}
			}
			// And the other way round.
			for _, c := range table {
				if !dns.IsSubDomain(apex, c.name) || c.want.rcode != dns.RcodeSuccess || len(c.want.answer) == 0 {
					continue
				}
				spelled := strings.Contains(c.name, "-0db8-") || strings.ToLower(c.name) != c.name ||
					c.name == "10-1-2-51.db.data.registry.local." // has a host name
				if s := (set{c.name, c.qtype}); !spelled && sets[s] == nil && sets[set{c.name, dns.TypeCNAME}] == nil {
					t.Errorf("answered and not in the transfer: %s %s", c.name, typeText(c.qtype))
				}
			}
		})
	}
}

// TestLargeTransfer takes several messages.
func TestLargeTransfer(t *testing.T) {
	dir := t.TempDir()
	const services, pods = 20, 60
	for i := range services {
		var all []string
		for j := range pods {
			all = append(all, fmt.Sprintf("10.2.%d.%d", i, j+1))
		}
		writeService(t, dir, "shop", fmt.Sprintf("crowd-%d", i), all...)
	}
	p := serve(t, "--manifests", dir)
	seen := map[string]bool{}
	addresses := 0
	rrs := transferred(t, p, zone, "AXFR")
	for _, rr := range rrs[1:] {
		if seen[rr.String()] {
			t.Errorf("twice: %v", rr)
		}
		seen[rr.String()] = true
		if rr.Header().Rrtype == dns.TypeA && strings.HasPrefix(rr.Header().Name, "crowd-") {
			addresses++
		}
	}
	if addresses != services*pods {
		t.Errorf("%d addresses of Services, expected %d", addresses, services*pods)
	}
	if rrs[0].String() != rrs[len(rrs)-1].String() {
		t.Errorf("it begins with %v and ends with %v", rrs[0], rrs[len(rrs)-1])
	}
}

func TestNoTransfer(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster", "--reverse", "10.0.0.0/8")
	for _, c := range []struct {
		what  string
		q     question
		rcode int
	}{
		{"below the apex there is no zone", ask("shop.registry.local.", dns.TypeAXFR).overTCP(), dns.RcodeNotAuth},
		{"below the apex there is no zone", ask("web.shop.registry.local.", dns.TypeAXFR).overTCP(), dns.RcodeNotAuth},
		{"below the apex there is no zone", ask("nope.registry.local.", dns.TypeAXFR).overTCP(), dns.RcodeNotAuth},
		{"below a reverse apex", ask("1.10.in-addr.arpa.", dns.TypeAXFR).overTCP(), dns.RcodeNotAuth},
		{"somebody else's zone", ask("example.com.", dns.TypeAXFR).overTCP(), dns.RcodeRefused},
		{"above the zone", ask("local.", dns.TypeAXFR).overTCP(), dns.RcodeRefused},
		{"RFC 5936 section 4.2: not over UDP", ask(zone, dns.TypeAXFR), dns.RcodeNotImplemented},
	} {
		r, err := c.q.send(p.dns.Port())
		if err != nil {
			t.Errorf("%s: %v: %v", c.what, c.q, err)
			continue
		}
		if r.rcode != c.rcode || r.Authoritative || len(r.sections[answers])+len(r.sections[authorities]) > 0 {
			t.Errorf("%s: %v: %s with %v, expected %s", c.what, c.q, rcodeName(r.rcode), r.sections, rcodeName(c.rcode))
		}
		if c.q.tcp {
			out := runDig(t, "@127.0.0.1", "-p", fmt.Sprint(p.dns.Port()), "-q", c.q.name, "-t", "AXFR")
			if !strings.Contains(out, "; Transfer failed.") {
				t.Errorf("%s: dig has\n%s", c.what, out)
			}
		}
	}
}

// TestSerialRises: a secondary server fetches a zone again only if its serial has
// risen.
func TestSerialRises(t *testing.T) {
	dir := writeService(t, t.TempDir(), "shop", "late", "10.3.0.1")
	p := serve(t, "--manifests", dir)
	before := transferred(t, p, zone, "AXFR")[0].(*dns.SOA).Serial
	writeService(t, dir, "shop", "late", "10.3.0.1", "10.3.0.2")
	hasPod := func(rrs []dns.RR) bool {
		return slices.ContainsFunc(rrs, func(rr dns.RR) bool { return rr.Header().Rrtype == dns.TypeA && rdata(rr) == "10.3.0.2" })
	}
	var rrs []dns.RR
	eventually(t, func() error {
		if rrs = transferred(t, p, zone, "AXFR"); !hasPod(rrs) {
			return errors.New("the new pod is not in the transfer")
		}
		return nil
	})
	after := rrs[0].(*dns.SOA).Serial
	if int32(after-before) <= 0 { // RFC 1982
		t.Errorf("the content of the zone has changed, its serial was %d and is %d", before, after)
	}

	// Who has an older zone gets the whole one, who has this one hears so (RFC 1995
	// sections 2 and 4).
	if rrs := transferred(t, p, zone, fmt.Sprintf("IXFR=%d", before)); !hasPod(rrs) || rrs[0].String() != rrs[len(rrs)-1].String() {
		t.Errorf("since the serial before: %v", rrs)
	}
	eventually(t, func() error {
		now := transferred(t, p, zone, "AXFR")[0].(*dns.SOA).Serial
		if rrs := transferred(t, p, zone, fmt.Sprintf("IXFR=%d", now)); len(rrs) != 1 || rrs[0].Header().Rrtype != dns.TypeSOA {
			return fmt.Errorf("since this serial: %v", rrs)
		}
		return nil
	})
}
