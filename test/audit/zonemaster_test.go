//go:build linux

package audit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// remark is what Zonemaster says of our zones and we leave as it is.
type remark struct {
	level    string
	testcase string
	tags     []string
	why      string // a cell of the table in docs/conformance.md
	services bool   // of zones with Services alone, not of reverse zones
}

var remarks = []remark{
	{level: "ERROR", testcase: "DELEGATION01",
		tags: []string{"NOT_ENOUGH_NS_CHILD", "NOT_ENOUGH_NS_DEL", "NOT_ENOUGH_IPV4_NS_CHILD", "NOT_ENOUGH_IPV4_NS_DEL", "NOT_ENOUGH_IPV6_NS_CHILD", "NOT_ENOUGH_IPV6_NS_DEL"},
		why:  "There is one name, `ns.dns`, for all name servers, with an address for each: resolvers choose among addresses. Parents that ask for two names, as public registries do, cannot have them."},
	{level: "WARNING", testcase: "CONSISTENCY01", tags: []string{"MULTIPLE_SOA_SERIALS"},
		why: "Each replica numbers what it has seen itself, by the second. Those that started apart agree from the next change on, if both see it in the same second."},
	{level: "NOTICE", testcase: "CONSISTENCY01", tags: []string{"SOA_SERIAL_VARIATION"}, why: "The same."},
	{level: "WARNING", testcase: "ZONE01", tags: []string{"Z01_MNAME_NOT_MASTER"},
		why: "The same: the primary is `ns.dns`, which is every replica, so also the one with the lower serial."},
	{level: "NOTICE", testcase: "DNSSEC07", tags: []string{"NEITHER_DNSKEY_NOR_DS"}, why: "Nothing here is signed."},
	{level: "NOTICE", testcase: "UNSPECIFIED", tags: []string{"NOT_SIGNED"}, why: "The same."},
	{level: "NOTICE", testcase: "SYNTAX06", tags: []string{"RNAME_MAIL_DOMAIN_INVALID"},
		why: "Nobody has mail at `hostmaster.<zone>`. A SOA needs the name, and whoever looks after a cluster is known there."},
	{level: "NOTICE", testcase: "ZONE02", tags: []string{"REFRESH_MINIMUM_VALUE_LOWER"},
		why: "Four hours are for zones that are written by hand. A secondary that no NOTIFY reaches is two hours late as it is."},
	{level: "NOTICE", testcase: "ZONE04", tags: []string{"RETRY_MINIMUM_VALUE_LOWER"}, why: "The same."},
	{level: "WARNING", testcase: "ZONE05", tags: []string{"EXPIRE_MINIMUM_VALUE_LOWER"},
		why: "The addresses of pods of a week ago, which is what is asked for, are somebody else's."},
	{level: "NOTICE", testcase: "ZONE06", tags: []string{"SOA_DEFAULT_TTL_MAXIMUM_VALUE_LOWER"},
		why: "A Service that comes is to be found after five seconds, not after five minutes. `ttl-nxdomain` can be longer."},
	{level: "NOTICE", testcase: "ZONE09", tags: []string{"Z09_MISSING_MAIL_TARGET"}, services: true,
		why: "Services take no mail. Not said of reverse zones."},
}

// message is one of Zonemaster's.
type message struct {
	Level    string
	Testcase string
	Tag      string
	Args     map[string]any
}

// key is what the message is, without what it is about.
func (m message) key() string { return m.Level + " " + m.Testcase + " " + m.Tag }

func (m message) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s %-14s %s", m.Level, m.Testcase, m.Tag)
	for _, arg := range slices.Sorted(maps.Keys(m.Args)) {
		fmt.Fprintf(&b, " %s=%v", arg, m.Args[arg])
	}
	return b.String()
}

func TestZonemaster(t *testing.T) {
	t.Logf("%s", output(t, "zonemaster-cli", "--version"))
	internet(t)
	for _, zone := range []struct {
		name     string
		services bool
	}{
		{"registry.local", true},
		{"cluster.local", true},
		{"244.10.in-addr.arpa", false},
		{"4.4.2.0.0.1.0.0.0.0.d.f.ip6.arpa", false},
	} {
		t.Run(zone.name, func(t *testing.T) {
			var said []message
			out := output(t, "zonemaster-cli", "--hints=testdata/hints", "--level=NOTICE", "--json", "--raw", "--show-testcase", zone.name)
			decoder := json.NewDecoder(bytes.NewReader(out))
			decoder.UseNumber() // a serial is written out
			if err := decoder.Decode(&said); err != nil {
				t.Fatalf("%v in\n%s", err, out)
			}
			expected := map[string]bool{} // whether it has been said
			for _, r := range remarks {
				for _, tag := range r.tags {
					if zone.services || !r.services {
						expected[message{r.level, r.testcase, tag, nil}.key()] = false
					}
				}
			}
			for _, m := range said {
				t.Log(m)
				if _, ok := expected[m.key()]; !ok {
					t.Errorf("not in docs/conformance.md: %v", m)
				}
				expected[m.key()] = true
			}
			for key, ok := range expected {
				if !ok {
					t.Errorf("in docs/conformance.md, but not said any more: %s", key)
				}
			}
		})
	}
}

// TestPage holds the table in docs/conformance.md against the one here.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| level | test case | says | why it stays |\n|---|---|---|---|\n"
	for _, r := range remarks {
		table += fmt.Sprintf("| %s | %s | `%s` | %s |\n", r.level, r.testcase, strings.Join(r.tags, "`, `"), r.why)
	}
	if !strings.Contains(string(page), "\n\n"+table+"\n") {
		t.Errorf("docs/conformance.md lacks this table:\n%s", table)
	}
}
