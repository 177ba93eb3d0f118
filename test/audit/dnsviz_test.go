//go:build linux

package audit_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// names are what DNSViz looks at: zones, with all that it tries at an apex, then names in them.
var names = []string{
	"registry.local",
	"cluster.local",
	"244.10.in-addr.arpa",
	"4.4.2.0.0.1.0.0.0.0.d.f.ip6.arpa",

	"ns.dns.registry.local",
	"web.shop.registry.local",
	"_http._tcp.web.shop.registry.local",
	"pg.data.registry.local",       // an alias
	"jobs.shop.registry.local",     // nothing is ready
	"_tcp.web.shop.registry.local", // no records, but names below
	"web.shop.svc.cluster.local",
	"21.1.244.10.in-addr.arpa",
	"missing.shop.registry.local",
}

// zones is how many of them are apexes.
const zones = 4

// analysis is what DNSViz reports of a name.
type analysis struct {
	Queries map[string]struct{ Answer, NoData, NXDomain []response }
}

// response is what some servers had in common.
type response struct {
	Options []string          `json:"query_options"`
	Cookies map[string]cookie `json:"cookie_status"` // by server
}

// cookie is what each side knew of the other when it sent.
type cookie struct{ Request, Response string }

func TestDNSViz(t *testing.T) {
	internet(t)
	var root []string
	for _, a := range parent {
		if strings.Contains(a, ":") {
			a = "[" + a + "]"
		}
		root = append(root, "ns.parent="+a)
	}
	probe := filepath.Join(t.TempDir(), "probe.json")
	// To the servers themselves, over both families, from the root.
	output(t, "dnsviz", append([]string{"probe", "-d", "1", "-A", "-4", "-6", "-a", ".",
		"-x", ".:" + strings.Join(root, ","), "-o", probe}, names...)...)

	// What is wrong is among the rest, so that it shows that there is a rest.
	out := output(t, "dnsviz", "grok", "-l", "info", "-r", probe)
	var report map[string]json.RawMessage
	if err := json.Unmarshal(out, &report); err != nil {
		t.Fatalf("%v in\n%s", err, out)
	}

	var want []string
	for _, addresses := range replicas {
		want = append(want, addresses...)
	}
	slices.Sort(want)
	questions, overTCP := 0, false
	for i, name := range names {
		part := report[name+"."]
		delete(report, name+".")
		complain(t, name, part)
		var of analysis
		if err := json.Unmarshal(part, &of); err != nil {
			t.Fatalf("%s: %v in\n%s", name, err, part)
		}
		if len(of.Queries) == 0 {
			t.Errorf("nothing has been asked of %s", name)
		}
		for question, replies := range of.Queries {
			if i < zones && strings.HasSuffix(question, "/DS") {
				continue // of the parent
			}
			questions++
			var servers []string
			for _, r := range slices.Concat(replies.Answer, replies.NoData, replies.NXDomain) {
				for server, c := range r.Cookies {
					servers = append(servers, server)
					if c.Request != "NO_COOKIE" && c.Response != "CLIENT_AND_SERVER_COOKIE" {
						t.Errorf("%s: %s answers %s with %s", question, server, c.Request, c.Response)
					}
				}
				overTCP = overTCP || slices.ContainsFunc(r.Options, func(o string) bool { return strings.HasPrefix(o, "TCP") })
			}
			slices.Sort(servers)
			if servers = slices.Compact(servers); !slices.Equal(servers, want) {
				t.Errorf("%s has been answered by %v, not by %v", question, servers, want)
			}
		}
	}
	for name, part := range report { // of what is above
		complain(t, name, part)
	}
	if !overTCP {
		t.Error("nothing has been asked over TCP")
	}
	t.Logf("%d questions, each answered by %v", questions, want)
}

// complain reports all errors and warnings in a part of DNSViz's report.
func complain(t *testing.T, where string, part json.RawMessage) {
	t.Helper()
	var fields map[string]json.RawMessage
	var items []json.RawMessage
	if json.Unmarshal(part, &fields) == nil {
		for key, below := range fields {
			if key == "errors" || key == "warnings" {
				t.Errorf("%s: %s: %s", where, key, below)
			} else {
				complain(t, where+": "+key, below)
			}
		}
	} else if json.Unmarshal(part, &items) == nil {
		for _, below := range items {
			complain(t, where, below)
		}
	}
}
