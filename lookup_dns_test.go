package epdns_test

import (
	"fmt"
	"testing"

	"github.com/miekg/dns"
)

// With --server dns://, lookup gets what dig gets, cut replies whole as dig does.
func TestLookupByDNS(t *testing.T) {
	p := serve(t, "--manifests", "testdata/cluster")
	for _, c := range []struct {
		name  string
		qtype uint16
	}{
		{"web.shop.registry.local.", dns.TypeA},
		{"web.shop.registry.local.", dns.TypeSRV},
		{"pg.shop.registry.local.", dns.TypeA},
		{"nope.shop.registry.local.", dns.TypeA},
		{"dns-version.registry.local.", dns.TypeTXT},
		{"www.example.com.", dns.TypeA},
	} {
		q := ask(c.name, c.qtype)
		want := dig(t, q, p.dns.Port())
		exit := 0
		if want.status == "REFUSED" {
			exit = 1
		}
		server := fmt.Sprintf("dns://localhost:%d", p.dns.Port())
		stdout, stderr, code := once(t, environment(), "lookup", c.name, typeText(c.qtype), "--server", server)
		got, err := readLookup(stdout)
		if err == nil {
			err = got.same(want)
		}
		if err != nil || code != exit || (stderr == "") != (exit == 0) {
			t.Errorf("%v: %v, exit status %d, expected %d, %s\n%s", q, err, code, exit, stderr, stdout)
		}
	}

	server := " --server dns://" + p.dns.String()
	mistakes(t, []mistake{
		{"lookup a.b --from 10.0.0.1" + server, 2, []string{"--from", "--subnet"}},
		{"lookup a.b --zone a" + server, 2, []string{"--server", "--zone"}},
		{"explain a.b" + server, 2, []string{"--server dns://", "lookup alone", "http://"}},
		{"status" + server, 2, []string{"--server dns://", "lookup alone", "http://"}},
		{"watch shop/web" + server, 2, []string{"--server dns://", "lookup alone", "http://"}},
		{"lookup a.b --server dns://", 2, []string{"--server", `"dns://"`}},
		{"lookup a.b --server dns://none.invalid", 1, []string{"ask dns://none.invalid", "none.invalid"}},
		{"lookup a.b --server dns://127.0.0.1:none", 2, []string{"--server"}},
		{"lookup a.b --server dns://" + closedPort(t), 1, []string{"ask dns://127.0.0.1", "refused", "--listen"}},
	})
}
