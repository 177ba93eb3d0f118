package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"epdns/dnsserver"
	"epdns/internal/freeport"
	"epdns/registry/kube"
	"epdns/zones"
)

const head = "apiVersion: epdns/v1alpha1\nkind: Config\n"

// TestBadFiles: what follows the two first lines, and what is said of it.
func TestBadFiles(t *testing.T) {
	for _, c := range []struct{ what, text, says string }{
		{"unknown key", "lisen: []", "line 3: lisen: unknown key; known here: apiVersion, kind, source, listen, "},
		{"unknown key below", "zones:\n- name: a.local\n  defaults:\n    tll: 5s", "line 6: zones[0].defaults.tll: unknown key; known here: ttl, ttl-empty, ttl-nxdomain, publish, "},
		{"key of another case", "Listen: []", "line 3: Listen: unknown key"},
		{"odd key", "? \"a\\nb\"\n: 1", `line 3: "a\nb": unknown key`},
		{"empty key", "\"\": 1", `line 3: "": unknown key`},
		{"a list as a key", "? [listen]\n: 1", `line 3: "": unknown key`},
		{"merge key", "tcp:\n  <<: {total: 1}", "line 4: tcp.<<: unknown key"},
		{"key twice", "http: \"\"\nlisten: [\":53\"]\nhttp: \"\"", "line 5: http: given twice, first in line 3"},
		{"key twice, once without value", "http:\nhttp: \"\"", "line 4: http: given twice, first in line 3"},
		{"key twice below", "tcp: {total: 100,\n  total: 200}", "line 4: tcp.total: given twice, first in line 3"},
		{"second document", "---\n" + head, "line 3: a second document begins; there may be one"},
		{"empty second document", "---", "line 3: a second document begins"},
		{"syntax: scanner", "http: \"", "near line 3: found unexpected end of stream"},
		{"syntax: parser", "listen: [\":53\"\nhttp: \"\"", "near line 2: did not find expected ',' or ']'"},
		{"syntax: tab", "tcp:\n\ttotal: 1", "near line 4: found character that cannot start any token"},
		{"unknown anchor", "zones: *z", "unknown anchor 'z' referenced"},
		{"list that holds itself", "zones: &z [*z]", "line 3: zones[0]: expected keys with values, found a list"},

		{"text for a list", "listen: \":53\"", `line 3: listen: expected a list; write [":53"]`},
		{"number for a list", "reverse: 10", `line 3: reverse: expected a list; write ["10"]`},
		{"keys for a list", "zones:\n  name: a.local", "line 3: zones: expected a list, found keys with values"},
		{"list for keys", "tcp: [1]", "line 3: tcp: expected keys with values, found a list"},
		{"text in a list of keys", "zones:\n- a.local", `line 4: zones[0]: expected keys with values, found "a.local"`},
		{"list for text", "http: [\":53\"]", "line 3: http: expected text, found a list"},
		{"keys for text", "http: {port: 53}", "line 3: http: expected text, found keys with values"},
		{"nothing in a list", "listen:\n- \":53\"\n-", "line 5: listen[1]: expected text, found nothing"},
		{"boolean for text", "http: false", `line 3: http: expected text, found the boolean false; "" is none`},
		{"boolean of YAML 1.1 for text", "zones:\n- name: a.local\n  empty: off", `line 5: zones[0].empty: expected text, found the boolean off; in quotes it is text: "off"`},
		{"boolean of YAML 1.1 in a list of texts", "source:\n  namespaces: [shop, No]", `line 4: source.namespaces[1]: expected text, found the boolean No; in quotes it is text: "No"`},
		{"text for a boolean", "httpDetails: yes", "line 3: httpDetails: write true or false, not yes"},
		{"quoted boolean", "httpDetails: \"true\"", `line 3: httpDetails: write true or false, not "true"`},
		{"more than all", "queryLog: {sample: 2}", "line 3: queryLog.sample: 2 is no share: 0 is none, 1 all, 0.01 one in a hundred"},
		{"less than none", "queryLog: {sample: -0.5}", "line 3: queryLog.sample: -0.5 is no share: 0 is none, 1 all, 0.01 one in a hundred"},
		{"text for a number", "queryLog: {sample: few}", `line 3: queryLog.sample: expected a number, found "few"`},
		{"no number", "queryLog: {sample: .nan}", `line 3: queryLog.sample: expected a number, found ".nan"`},
		{"negative age", "staleAfter: -1s", `line 3: staleAfter: "-1s" is less than 0`},
		{"log level", "logLevel: loud", `line 3: logLevel: "loud" is not debug, info, warn or error`},
		{"number for a boolean", "httpDetails: 1", `line 3: httpDetails: write true or false, not 1`},
		{"text for a number", "tcp: {total: many}", `line 3: tcp.total: expected a whole number, found "many"`},
		{"fraction for a number", "tcp: {total: 1.5}", `line 3: tcp.total: expected a whole number, found "1.5"`},
		{"quoted number", "tcp: {total: \"5\"}", `line 3: tcp.total: expected a whole number, found "5"`},
		{"large number", "tcp: {total: 99999999999999999999}", "line 3: tcp.total: expected a whole number"},
		{"tag", "http: !!binary aGk=", `line 3: http: expected text, found "aGk="`},
		{"tag of one's own", "tcp: !mine {total: 5}", "line 3: tcp: expected keys with values"},

		{"sources", "source:\n  kubeconfig: k\n  manifests: m", "line 5: source.manifests: not together with kubeconfig"},
		{"namespace", "source:\n  namespaces:\n  - shop\n  - Shop", `line 6: source.namespaces[1]: "Shop" is no namespace`},
		{"no address", "listen: []", "line 3: listen: no address to listen on is given"},
		{"address", "listen:\n- :53\n- localhost:53", `line 5: listen[1]: "localhost:53": "localhost" is no IP address`},
		{"number for an address", "listen: [5300]", `line 3: listen[0]: "5300" is not ADDR:PORT`},
		{"http", "http: 9153", `line 3: http: "9153" is not ADDR:PORT`},
		{"http: port", "listen: [\":99999\"]", `line 3: listen[0]: ":99999": "99999" is no port`},
		{"http: port", "http: :99999", `line 3: http: ":99999": "99999" is no port`},
		{"http: where DNS is", "http: 127.0.0.1:53\nlisten: [\"127.0.0.1:5300\", \":53\"]",
			`line 3: http: "127.0.0.1:53" and listen[1] (--listen), ":53", cannot have the same port`},
		{"tls: where DNS is", "listen: [\":53\"]\ntls: {listen: [\":53\"], cert: c, key: k}", `line 4: tls.listen[0]: listen[0] (--listen) has ":53", too, and they cannot have the same port`},
		{"tls: where HTTP is", "tls: {listen: [\":9153\"], cert: c, key: k}", `line 3: tls.listen[0]: ":9153" and http (--http), "127.0.0.1:9153", cannot have the same port`},
		{"address twice", "listen: [\"127.0.0.1:53\",\n  \"0.0.0.0:53\"]", `line 4: listen[1]: "0.0.0.0:53" and listen[0] (--listen), "127.0.0.1:53", cannot have the same port`},
		{"no zone", "zones: []", "line 3: zones: no zone is given"},
		{"zone without name", "zones:\n- layout: short", `line 4: zones[0].name: missing; every zone needs a name`},
		{"zone's name", "zones:\n- name: a.local\n- layout: short\n  name: b..local", `line 6: zones[1].name: zone "b..local": name "b..local" has an empty label`},
		{"zone in a zone", "zones:\n- name: a.local\n- name: b.a.local", `line 5: zones[1].name: zone "b.a.local": it lies within zone "a.local"`},
		{"zone around a zone", "zones:\n- name: b.a.local\n- name: a.local", `line 5: zones[1].name: zone "a.local": zone "b.a.local" lies within it`},
		{"layout", "zones:\n- {name: a.local, layout: long}", `line 4: zones[0].layout: layout "long" is not short or kubernetes`},
		{"empty", "zones:\n- name: a.local\n  empty: \"\"", `line 5: zones[0].empty: empty "" is not nodata or nxdomain`},
		{"endpointNames", "zones:\n- name: a.local\n  endpointNames: host", `line 5: zones[0].endpointNames: endpointNames "host" is not address or pod`},
		{"ttl", "zones:\n- name: a.local\n  defaults:\n    ttl-empty: 1\n    ttl: 5 s", `line 7: zones[0].defaults.ttl: "5 s" is no duration such as 5s`},
		{"ttl: fraction", "zones:\n- {name: a.local, defaults: {ttl-empty: 1.5}}", `line 4: zones[0].defaults.ttl-empty: "1.5" is no duration such as`},
		{"ttl: large", "zones:\n- {name: a.local, defaults: {ttl-nxdomain: 61m}}", `line 4: zones[0].defaults.ttl-nxdomain: "61m" is not whole seconds from 0s to 1h`},
		{"ttl: negative", "zones:\n- {name: a.local, defaults: {ttl: -1s}}", `line 4: zones[0].defaults.ttl: "-1s" is not`},
		{"knob: no text", "zones:\n- {name: a.local, defaults: {weights: {web-0: 10}}}", `line 4: zones[0].defaults.weights: expected text, found keys with values`},
		{"knob: empty", "zones:\n- {name: a.local, defaults: {limit: \"\"}}", `line 4: zones[0].defaults.limit: "" is not a whole number, 0 or more`},
		{"knob: a boolean", "zones:\n- {name: a.local, defaults: {ttl: off}}", `line 4: zones[0].defaults.ttl: "off" is no duration`},
		{"knob: twice", "zones:\n- {name: a.local, defaults: {min: 1, min: 2}}", `line 4: zones[0].defaults.min: given twice, first in line 4`},
		{"knobs: a list", "zones:\n- {name: a.local, defaults: [ttl]}", `line 4: zones[0].defaults: expected keys with values, found a list`},
		{"rule: knob", "zones:\n- name: a.local\n  rules:\n  - set: {ttl: 1}\n  - set:\n      ttl: 1\n      order: best", `line 9: zones[0].rules[1].set.order: "best" is not shuffle, rotate, hash or fixed`},
		{"rule: unknown knob", "zones:\n- name: a.local\n  rules:\n  - set: {lim: 1}", `line 6: zones[0].rules[0].set.lim: unknown key; known here: ttl, `},
		{"rule: unknown key", "zones:\n- name: a.local\n  rules:\n  - {namespace: a}", `line 6: zones[0].rules[0].namespace: unknown key; known here: match, set`},
		{"rule: namespace", "zones:\n- name: a.local\n  rules:\n  - match:\n      name: web\n      namespace: Shop", `line 8: zones[0].rules[0].match.namespace: "Shop" matches no name`},
		{"rule: name", "zones:\n- name: a.local\n  rules:\n  - match: {name: web.*}", `line 6: zones[0].rules[0].match.name: "web.*" matches no name`},
		{"rule: boolean", "zones:\n- name: a.local\n  rules:\n  - match: {name: off}", `line 6: zones[0].rules[0].match.name: expected text, found the boolean off`},
		{"rule: selector", "zones:\n- name: a.local\n  rules:\n  - match: {selector: tier front}", `line 6: zones[0].rules[0].match.selector: "tier front" is no label selector: `},
		{"prefix", "annotationPrefix: registry.local/", `line 3: annotationPrefix: "registry.local/" is no domain name`},
		{"prefix: none", "annotationPrefix: \"\"", `line 3: annotationPrefix: "" is no domain name`},
		{"clients: forwarder", "clients:\n  trustedForwarders: [192.0.2.1, dns]", `line 4: clients.trustedForwarders[1]: "dns" is no prefix such as`},
		{"clients: mapped", "clients:\n  trustedForwarders: [\"::ffff:192.0.2.1\"]", `line 4: clients.trustedForwarders[0]: trusted forwarder ::ffff:192.0.2.1/128 is no prefix of addresses`},
		{"clients: cache", "clients:\n  sharedCaches:\n  - 192.0.2.1/33", `line 5: clients.sharedCaches[0]: "192.0.2.1/33" is no prefix`},
		{"clients: place", "clients:\n  places:\n  - {zone: a, cidr: 198.51.100.0}\n  - {zone: a,\n    cidr: x}", `line 7: clients.places[1].cidr: "x" is no prefix`},
		{"clients: place with bits", "clients:\n  places:\n  - {cidr: 10.0.0.1/8, zone: a}", `line 5: clients.places[0].cidr: 10.0.0.1/8 has bits beyond its length; write 10.0.0.0/8`},
		{"clients: forwarder with bits", "clients: {trustedForwarders: [\"2001:db8::1/64\"]}", `line 3: clients.trustedForwarders[0]: 2001:db8::1/64 has bits beyond its length; write 2001:db8::/64`},
		{"clients: place without prefix", "clients:\n  places:\n  - zone: a", `line 5: clients.places[0].cidr: "" is no prefix`},
		{"clients: place without place", "clients:\n  places:\n  - cidr: 198.51.100.0/24", `line 5: clients.places[0]: place 198.51.100.0/24 has neither node, zone nor region`},
		{"clients: place twice", "clients:\n  places: [{cidr: 198.51.100.0/24, zone: a},\n    {cidr: 198.51.100.0/24, zone: b}]", `line 5: clients.places[1]: place 198.51.100.0/24 is given twice`},
		{"clients: sources", "clients:\n  sources: {nodes: off}", `line 4: clients.sources.nodes: write true or false, not off`},
		{"explainTXT", "explainTXT: 0", `line 3: explainTXT: write true or false, not 0`},
		{"churnTTL", "churnTTL: 1500ms", `line 3: churnTTL: churn TTL 1.5s is not whole seconds from 0s to 1h`},
		{"churnTTL: text", "churnTTL: short", `line 3: churnTTL: "short" is no duration such as`},
		{"ttl: of a shared mapping", "zones:\n- {name: a.local, defaults: &d {ttl: 5}}\n- name: b.local\n  defaults: *d\n- name: c.local\n  defaults: {ttl: x}", `line 8: zones[2].defaults.ttl: "x"`},
		{"reverse", "reverse: [10.0.0.0/8,\n  10.0.0.0/40]", `line 4: reverse[1]: "10.0.0.0/40" is no prefix such as 10.0.0.0/8`},
		{"reverse: overlap", "reverse:\n- 10.0.0.0/8\n- fd00::/8\n- 10.1.0.0/16", "line 6: reverse[2]: reverse prefixes 10.0.0.0/8 and 10.1.0.0/16 overlap"},
		{"nameserver", "nameserver: [ns1]", `line 3: nameserver[0]: "ns1" is no IP address`},
		{"nameserver: none to ask", "nameserver: [0.0.0.0]", "line 3: nameserver[0]: nameserver 0.0.0.0 is no address to ask"},
		{"upstream", "upstream: [192.0.2.1, dns.local]", `line 3: upstream[1]: "dns.local" is no server to ask`},
		{"upstream: port", "upstream: [\"192.0.2.1:0\"]", `line 3: upstream[0]: "192.0.2.1:0" is no server to ask`},
		{"upstream: no address", "upstream: [\"[::]:53\"]", `line 3: upstream[0]: "[::]:53" is no server to ask`},
		{"upstream: itself", "listen: [\"127.0.0.1:5300\", \"[::1]:53\"]\nupstream: [192.0.2.1, \"::1\"]", `line 4: upstream[1]: [::1]:53 is this server itself, by listen[1] (--listen), "[::1]:53"`},
		{"transfer", "transfer:\n  allow: [all]", `line 4: transfer.allow[0]: "all" is no prefix`},
		{"tsig: name", "transfer:\n  tsig:\n  - {secretFile: f}", "line 5: transfer.tsig[0].name: no name is given"},
		{"tsig: odd name", "transfer:\n  tsig:\n  - name: a..b", `line 5: transfer.tsig[0].name: name "a..b" has an empty label`},
		{"tsig: blank", "transfer:\n  tsig:\n  - {name: a key, secretFile: f}", `line 5: transfer.tsig[0].name: "a key": character ' ' is not allowed in the name of a key`},
		{"tsig: twice", "transfer:\n  tsig:\n  - {name: a, secretFile: f}\n  - {name: A., secretFile: g}", `line 6: transfer.tsig[1].name: "A." is given twice`},
		{"tsig: algorithm", "transfer:\n  tsig:\n  - {name: a, secretFile: f,\n     algorithm: hmac-md5}", `line 6: transfer.tsig[0].algorithm: algorithm "hmac-md5" is not hmac-sha256`},
		{"tsig: file", "transfer:\n  tsig:\n  - {name: a, secretFile: f}\n  - name: b", "line 6: transfer.tsig[1].secretFile: no file is given"},
		{"notify", "transfer:\n  notify:\n  - 192.0.2.54\n  - ns2.local", `line 6: transfer.notify[1]: "ns2.local" is no secondary to tell, such as`},
		{"notify: port", "transfer: {notify: [\"192.0.2.54:0\"]}", `line 3: transfer.notify[0]: "192.0.2.54:0" is no secondary`},
		{"notify: no address", "transfer: {notify: [\"::\"]}", `line 3: transfer.notify[0]: "::" is no secondary`},
		{"notify: twice", "transfer: {notify: [192.0.2.54,\n  \"192.0.2.54:53\"]}", `line 4: transfer.notify[1]: 192.0.2.54:53 is given twice`},
		{"allow", "allow: [10.0.0.0/8,\n  x]", `line 4: allow[1]: "x" is no prefix such as 10.0.0.0/8`},
		{"deny", "deny: [10.0.0.1/8]", `line 3: deny[0]: 10.0.0.1/8 has bits beyond its length; write 10.0.0.0/8`},
		{"rateLimit", "rateLimit:\n  slip: 1\n  perSecond: -1", "line 5: rateLimit.perSecond: -1 is not 0 to 100000 replies a second"},
		{"rateLimit: slip", "rateLimit:\n  slip: 101", "line 4: rateLimit.slip: 101 is not 0 to 100"},
		{"rateLimit: exempt", "rateLimit: {exempt: [all]}", `line 3: rateLimit.exempt[0]: "all" is no prefix such as 10.0.0.0/8`},
		{"namespaces of a zone", "zones:\n- name: a.local\n  namespaces: [shop, Shop]", `line 5: zones[0].namespaces[1]: "Shop" matches no name`},
		{"an empty namespace", "zones:\n- name: a.local\n  namespaces: [\"\"]", `line 5: zones[0].namespaces[0]: no namespace is empty; * is all of them`},
		{"selector of a zone", "zones:\n- name: a.local\n  selector: a in", `line 5: zones[0].selector: "a in" is no label selector`},
		{"visibility", "clients:\n  visibility: [{cidr: here}]", `line 4: clients.visibility[0].cidr: "here" is no prefix such as 10.0.0.0/8`},
		{"visibility: namespaces", "clients:\n  visibility:\n  - cidr: 10.0.0.0/8\n    namespaces: [a b]", `line 6: clients.visibility[0].namespaces[0]: "a b" matches no name`},
		{"visibility: twice", "clients:\n  visibility:\n  - {cidr: 10.0.0.0/8}\n  - {cidr: 10.0.0.0/8}", `line 6: clients.visibility[1]: visibility for 10.0.0.0/8 is given twice`},
		{"udpSize", "udpSize: 4096", "line 3: udpSize: 4096 is not 512 to 1400 octets"},
		{"udpSize: none", "udpSize: 0", "line 3: udpSize: 0 is not 512 to 1400 octets"},
		{"an age below 0", "stateMaxAge: -1s", `line 3: stateMaxAge: "-1s" is less than 0`},
		{"no duration", "auditEvery: often", `line 3: auditEvery: "often" is no duration`},
		{"audits without a pause", "auditEvery: 10ms", `line 3: auditEvery: 10ms is neither 0 (never) nor 1s or more`},
		{"no time to list", "syncDeadline: 0", `line 3: syncDeadline: 0s is less than 1s`},
		{"no number", "massEmpty: {share: most}", `line 3: massEmpty.share: expected a number, found "most"`},
		{"more than all", "massEmpty: {share: 1.5}", `line 3: massEmpty.share: 1.5 is not between 0 and 1`},
		{"no share", "massEmpty: {share: .nan}", `line 3: massEmpty.share: expected a number, found ".nan"`},
		{"fewer than none", "massEmpty: {above: -1}", `line 3: massEmpty.above: -1 is less than 0`},
		{"a hold below 0", "massEmpty: {hold: -1s}", `line 3: massEmpty.hold: -1s is less than 0`},
		{"nsid", "nsid: " + strings.Repeat("a", 129), "line 3: nsid: it has 129 octets, more than 128"},
		{"tcp", "tcp:\n  idle: 12\n  write: 0.0", "line 5: tcp.write: 0s is not more than 0"},
		{"tcp: none", "tcp:\n  perSource: 0", "line 4: tcp.perSource: 0 is not 1 or more"},
		{"tls: address", "tls:\n  listen: [\":853\", dot]\n  cert: c\n  key: k", `line 4: tls.listen[1]: "dot" is not ADDR:PORT`},
		{"tls: no certificate", "tls:\n  listen: [\":853\"]\n  key: k", "line 3: tls.cert: no file is given"},
		{"tls: no key", "tls:\n  listen: [\":853\"]\n  cert: c", "line 3: tls.key: no file is given"},
		{"tls: no address", "tls:\n  key: k", "line 3: tls.listen: no address to listen on is given, beside tls.key"},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, err := parseConfig([]byte(head + c.text + "\n"))
			if err == nil || !strings.HasPrefix(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("it says: %v\nexpected: %s…", err, c.says)
			}
		})
	}
}

// TestSeveralMistakes: all of a file are told, in order, and of each only what does not
// follow from another.
func TestSeveralMistakes(t *testing.T) {
	for _, c := range []struct {
		what, text string
		says       []string
	}{
		{"of kinds and of values", "udpSize: 9\nlisten: [53,\n  [54]]\nclients: {sources: {ecs: no}}\nlisen: 1\nnsid: a\nnsid: b", []string{
			"line 3: udpSize: 9 is not", `line 4: listen[0]: "53" is not`, "line 5: listen[1]: expected text, found a list",
			"line 6: clients.sources.ecs: write true or false, not no", "line 7: lisen: unknown key", "line 9: nsid: given twice",
		}},
		{"of lists whose members count for each other", "reverse: [10.0.0.0/8, 10.1.0.0/16, all, 192.0.2.0/24]\nzones:\n- name: a.local\n- name: b.a.local\n- {}\n- name: c.local\n  layout: long", []string{
			"line 3: reverse[1]: reverse prefixes 10.0.0.0/8 and 10.1.0.0/16 overlap", `line 3: reverse[2]: "all" is no prefix`,
			`line 6: zones[1].name: zone "b.a.local": it lies within zone "a.local"`, "line 7: zones[2].name: missing", `line 9: zones[3].layout: layout "long"`,
		}},
		{"of a place", "clients:\n  places:\n  - cidr: [10.0.0.0/8]\n  - {cidr: 10.0.0.0/8, node: {}}\n  - {cidr: x}", []string{
			"line 5: clients.places[0].cidr: expected text, found a list", "line 6: clients.places[1].node: expected text, found keys with values", `line 7: clients.places[2].cidr: "x" is`,
		}},
	} {
		t.Run(c.what, func(t *testing.T) {
			_, err := parseConfig([]byte(head + c.text + "\n"))
			got := lines(err)
			same := len(got) == len(c.says)
			for i := 0; same && i < len(got); i++ {
				same = strings.HasPrefix(got[i], c.says[i])
			}
			if !same {
				t.Errorf("it says:\n%s\nexpected:\n%s", strings.Join(got, "\n"), strings.Join(c.says, "\n"))
			}
		})
	}
}

// TestBadHeads: a file that is none of ours is told so, whatever its keys are.
func TestBadHeads(t *testing.T) {
	for _, c := range []struct{ text, says string }{
		{"", "line 1: apiVersion: missing, has to be epdns/v1alpha1"},
		{"# nothing\n", "line 1: apiVersion: missing"},
		{"\nlisten: []\n", "line 2: apiVersion: missing"},
		{"apiVersion: epdns/v1alpha1\n", "line 1: kind: missing, has to be Config"},
		{"kind: Config\nclusters: []\napiVersion: v1\n", `line 3: apiVersion: has to be epdns/v1alpha1, found "v1"`},
		{"apiVersion: epdns/v1alpha1\nkind: Zone\n", `line 2: kind: has to be Config, found "Zone"`},
		{"apiVersion: epdns/v1alpha1\nkind:\n", "line 2: kind: has to be Config, found nothing"},
		{head + "kind: Config\n", "line 3: kind: given twice, first in line 2"},
		{"- a\n- b\n", "line 1: expected keys with values, found a list"},
		{"listen\n", `line 1: expected keys with values, found "listen"`},
		{"---\n", "line 2: expected keys with values, found nothing"},
		{"\xff", "invalid leading UTF-8 octet"},
		{"[", "did not find expected node content"},
	} {
		if _, err := parseConfig([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("of %q it says: %v\nexpected: %s", c.text, err, c.says)
		}
	}
}

// TestCollide holds against what the system says: each pair is listened on.
func TestCollide(t *testing.T) {
	hosts := []string{"", "0.0.0.0", "127.0.0.1", "127.0.0.2", "[::]", "[::1]"}
	for _, d := range hosts {
		for _, h := range hosts {
			port, err := freeport.Find()
			if err != nil {
				t.Fatal(err)
			}
			first, second := fmt.Sprintf("%s:%d", d, port), fmt.Sprintf("%s:%d", h, port)
			dns, err := dnsserver.Listen(dnsserver.Config{Listen: []string{first}}, &zones.Store{}, quiet)
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", second)
			if got := collide(first, second, false, true); got != errors.Is(err, syscall.EADDRINUSE) {
				t.Errorf("DNS at %s, HTTP at %s: collide is %t, and listening: %v", first, second, got, err)
			}
			if err == nil {
				l.Close()
			}
			dns.Close()
		}
	}
	for _, other := range []string{"127.0.0.1:0", ":0", "127.0.0.1:54"} {
		if collide(other, other, false, true) == strings.HasSuffix(other, ":0") || collide(other, "127.0.0.1:53", false, true) {
			t.Errorf("%s", other)
		}
	}
}

// FuzzConfig: whatever a file is, it is settings or one line.
func FuzzConfig(f *testing.F) {
	f.Add(reference)
	f.Add(head + "zones:\n- name: a.local\n  defaults: &d {topology: off, weights: a=1}\n  rules:\n  - {match: {name: w*, selector: a in (b)}, set: *d}\nclients: {places: [{cidr: 10.0.0.0/8, zone: z}]}\n")
	f.Add(head + "zones: &z [*z]\n? [a]\n: {<<: *z}\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseConfig([]byte(text))
		if err != nil && strings.Contains(err.Error()+strings.Join(lines(err), ""), "\n") {
			t.Errorf("of %q it says %q", text, err)
		}
		if err == nil && (c.APIVersion != apiVersion || c.Kind != kind) {
			t.Errorf("%q is one of %q %q", text, c.APIVersion, c.Kind)
		}
	})
}

// given runs serve's command line as far as its settings.
func given(args ...string) (*settings, error) {
	f, cmd := &serveFlags{config: defaultConfig()}, &cobra.Command{}
	f.register(cmd)
	if err := cmd.ParseFlags(args); err != nil {
		return nil, err
	}
	return f.settings(cmd.Flags().Changed)
}

// write makes a file of settings.
func write(t *testing.T, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "epdns.yaml")
	if err := os.WriteFile(path, []byte(head+text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// defaults are the settings without flags and file.
func defaults() *settings {
	return &settings{
		zones: zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}},
		dns: dnsserver.Config{
			Listen:  []string{":5300"},
			UDPSize: 1232,
			Version: "epdns " + readBuildInfo().Version,
			TCP:     dnsserver.TCPConfig{Idle: 12 * time.Second, Write: 2 * time.Second, PerSource: 64, Total: 1024},

			RateLimit: dnsserver.RateLimitConfig{Slip: 2},
		},
		http:   "127.0.0.1:9153",
		prefix: "registry.local",

		staleAfter:  time.Minute,
		stateMaxAge: 24 * time.Hour,
		lameduck:    5 * time.Second,
		source:      sourceFlags{auditEvery: 5 * time.Minute, syncDeadline: 10 * time.Second, massEmpty: kube.MassEmpty{Above: 20, Share: 0.8, Hold: 10 * time.Second}},
	}
}

// from changes where to read, and not how.
func (s *settings) from(manifests, kubeconfig, context string, namespaces ...string) {
	f := &s.source
	f.manifests, f.kubeconfig, f.context, f.namespaces = manifests, kubeconfig, context, namespaces
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, s := range texts {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// TestSettings: what a file and flags say together. Each case changes the defaults.
func TestSettings(t *testing.T) {
	const full = `
source: {kubeconfig: clusters/a, context: test, namespaces: [shop, 123]}
listen: [ ":53", "127.0.0.1:5300" ]
http: ""
httpDetails: true
annotationPrefix: dns.example.com
zones:
- name: a.local
- name: Cluster.Local.
  layout: kubernetes
  empty: nxdomain
  endpointNames: pod
  namespaces: [shop, "data-?"]
  selector: tier!=back
  defaults: {ttl: 1m30s, ttl-empty: 0, ttl-nxdomain: 3600, topology: off, order: ~}
  rules:
  - match: {namespace: shop, name: "web*", selector: "tier in (front, edge),!old"}
    set: {limit: 8, weights: "web-0=10"}
  - match: {}
    set: {topology: false, limit: "0"}
reverse: [10.0.0.0/8, "fd00::/8", 192.0.2.1]
clients:
  trustedForwarders: [192.0.2.53]
  sharedCaches: [192.0.2.54/32, "2001:db8::/64"]
  places: [{cidr: 198.51.100.0/24, node: n, zone: zone-a, region: coast}, {cidr: 203.0.113.1, region: coast}]
  visibility: [{cidr: 10.2.0.0/16, namespaces: [shop, "team-*"]}, {cidr: "fd00:2::/32", namespaces: []}]
  sources: {endpoints: false, podCIDRs: false}
staleAfter: 90s
logLevel: debug
queryLog: {sample: 0.25}
explainTXT: false
churnTTL: 2
nameserver: [192.0.2.53, "2001:db8::53"]
upstream: [192.0.2.1, "192.0.2.2:5353", "2001:db8::1", "[2001:db8::2]:54"]
udpSize: 1400
nsid: epdns-7
stateDir: last
stateMaxAge: 1h
auditEvery: 0
syncDeadline: 2
massEmpty: {above: 0, share: 1, hold: 1m}
hideVersion: true
cookies: {secretFile: secrets/cookies}
allow: [10.0.0.0/8, 192.0.2.1]
deny: ["fd00::/8"]
rateLimit: {perSecond: 20, slip: 0, exempt: [10.9.0.0/16]}
pprof: true
transfer:
  allow: [192.0.2.0/24]
  tsig:
  - {name: secondary.key, secretFile: secrets/key}
  - {name: old., algorithm: hmac-sha1, secretFile: /key}
  notify: [192.0.2.54, "[2001:db8::54]:5353"]
tcp: {idle: 1.5, write: 250ms, perSource: 2, total: 3}
tls: {listen: [":853"], cert: secrets/tls.crt, key: /tls.key}
`
	cluster := zones.Zone{Name: "Cluster.Local.", Layout: zones.Kubernetes, Empty: zones.Nonexist, EndpointNames: zones.ByPod,
		Defaults:   zones.Values{"ttl": "1m30s", "ttl-empty": "0", "ttl-nxdomain": "3600", "topology": "off"},
		Namespaces: []string{"shop", "data-?"}, Selector: "tier!=back",
		Rules: []zones.Rule{
			{Namespace: "shop", Name: "web*", Selector: "tier in (front, edge),!old", Set: zones.Values{"limit": "8", "weights": "web-0=10"}},
			{Set: zones.Values{"topology": "false", "limit": "0"}},
		}}
	clients := zones.Clients{
		TrustedForwarders: prefixes("192.0.2.53/32"),
		SharedCaches:      prefixes("192.0.2.54/32", "2001:db8::/64"),
		Places:            []zones.PlaceRange{{Prefix: prefixes("198.51.100.0/24")[0], Node: "n", Zone: "zone-a", Region: "coast"}, {Prefix: prefixes("203.0.113.1/32")[0], Region: "coast"}},
		Visibility:        []zones.Visibility{{Prefix: prefixes("10.2.0.0/16")[0], Namespaces: []string{"shop", "team-*"}}, {Prefix: prefixes("fd00:2::/32")[0]}},
		Off:               zones.FromEndpoints | zones.FromPodCIDRs,
	}
	file := func(s *settings, dir string) {
		s.source.auditEvery, s.source.syncDeadline, s.source.massEmpty = -1, 2*time.Second, kube.MassEmpty{Share: 1, Hold: time.Minute}
		s.from("", dir+"/clusters/a", "test", "shop", "123")
		s.dns = dnsserver.Config{
			Listen: []string{":53", "127.0.0.1:5300"},
			Upstream: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:53"), netip.MustParseAddrPort("192.0.2.2:5353"),
				netip.MustParseAddrPort("[2001:db8::1]:53"), netip.MustParseAddrPort("[2001:db8::2]:54")},
			UDPSize:  1400,
			NSID:     "epdns-7",
			Allow:    prefixes("10.0.0.0/8", "192.0.2.1/32"),
			Deny:     prefixes("fd00::/8"),
			Transfer: prefixes("192.0.2.0/24"),
			TSIG:     []dnsserver.TSIGKey{{Name: "secondary.key", Algorithm: "hmac-sha256"}, {Name: "old.", Algorithm: "hmac-sha1"}},
			Notify:   []netip.AddrPort{netip.MustParseAddrPort("192.0.2.54:53"), netip.MustParseAddrPort("[2001:db8::54]:5353")},
			TCP:      dnsserver.TCPConfig{Idle: 1500 * time.Millisecond, Write: 250 * time.Millisecond, PerSource: 2, Total: 3},
			TLS:      dnsserver.TLSConfig{Listen: []string{":853"}, Cert: dir + "/secrets/tls.crt", Key: "/tls.key"},

			RateLimit: dnsserver.RateLimitConfig{PerSecond: 20, Exempt: prefixes("10.9.0.0/16")},
		}
		s.pprof = true
		s.cookieFile, s.tsigFiles = dir+"/secrets/cookies", []string{dir + "/secrets/key", "/key"}
		s.http, s.httpDetails = "", true
		s.zones = zones.Config{
			Zones:       []zones.Zone{zones.DefaultZone("a.local"), cluster},
			Reverse:     prefixes("10.0.0.0/8", "fd00::/8", "192.0.2.1/32"),
			Nameservers: []netip.Addr{netip.MustParseAddr("192.0.2.53"), netip.MustParseAddr("2001:db8::53")},
			Clients:     clients,
			NoExplain:   true,
			ChurnTTL:    2 * time.Second,
		}
		s.prefix = "dns.example.com"
		s.staleAfter, s.logLevel, s.dns.QueryLog = 90*time.Second, slog.LevelDebug, 0.25
		s.stateDir, s.stateMaxAge = dir+"/last", time.Hour
	}

	for _, c := range []struct {
		what, file string
		flags      []string
		want       func(s *settings, dir string)
	}{
		{"nothing but the head", "", nil, func(*settings, string) {}},
		{"keys without value", "source:\nlisten:\nhttp:\nzones:\ntcp: {idle: ~}\n", nil, func(*settings, string) {}},
		{"everything", full, nil, file},
		{"manifests are relative to the file", "source: {manifests: here}", nil, func(s *settings, dir string) { s.source.manifests = dir + "/here" }},
		{"unless absolute", "source: {manifests: /here}", nil, func(s *settings, _ string) { s.source.manifests = "/here" }},
		{"or standard input", "source: {manifests: \"-\"}", nil, func(s *settings, _ string) { s.source.manifests = "-" }},
		{"shared mappings", "zones:\n- {name: a.local, defaults: &d {ttl: 7}}\n- {name: b.local, defaults: *d}", nil, func(s *settings, _ string) {
			s.zones.Zones = []zones.Zone{zones.DefaultZone("a.local"), zones.DefaultZone("b.local")}
			s.zones.Zones[0].Defaults, s.zones.Zones[1].Defaults = zones.Values{"ttl": "7"}, zones.Values{"ttl": "7"}
		}},

		{"every flag", full, []string{"--kubeconfig", "k", "--context", "c", "--namespace", "n", "--listen", "127.0.0.1:1", "--http", "127.0.0.1:2", "--zone", "z.local",
			"--reverse", "10.0.0.0/9", "--nameserver", "192.0.2.9", "--upstream", "192.0.2.8", "--upstream", "[::1]:5", "--transfer-allow", "192.0.2.7",
			"--nsid", "a", "--log-level", "warn", "--cookie-secrets", "here", "--state-dir", "state", "--pprof"},
			func(s *settings, dir string) {
				file(s, dir)
				s.from("", "k", "c", "n")
				s.dns.Listen, s.http = []string{"127.0.0.1:1"}, "127.0.0.1:2"
				s.zones = zones.Config{
					Zones:       []zones.Zone{zones.DefaultZone("z.local")},
					Reverse:     prefixes("10.0.0.0/9"),
					Nameservers: []netip.Addr{netip.MustParseAddr("192.0.2.9")},
					Clients:     clients,
					NoExplain:   true,
					ChurnTTL:    2 * time.Second,
				}
				s.dns.Upstream = []netip.AddrPort{netip.MustParseAddrPort("192.0.2.8:53"), netip.MustParseAddrPort("[::1]:5")}
				s.dns.Transfer = prefixes("192.0.2.7/32")
				s.dns.NSID, s.cookieFile = "a", "here"
				s.logLevel = slog.LevelWarn
				s.stateDir = "state"
			}},
		{"a flag with the default", full, []string{"--listen", ":5300", "--http", "127.0.0.1:9153"}, func(s *settings, dir string) {
			file(s, dir)
			s.dns.Listen, s.http = []string{":5300"}, "127.0.0.1:9153"
		}},
		{"an empty flag", "", []string{"--http="}, func(s *settings, _ string) { s.http = "" }},
		{"zones of the file and others", full, []string{"--zone", "cluster.local", "--zone", "b.local"}, func(s *settings, dir string) {
			file(s, dir)
			s.zones.Zones = []zones.Zone{cluster, zones.DefaultZone("b.local")}
		}},
		{"manifests instead of the file's cluster", full, []string{"--manifests", "here"}, func(s *settings, dir string) {
			file(s, dir)
			s.from("here", "", "")
		}},
		{"a cluster instead of the file's manifests", "source: {manifests: here}", []string{"--context", "c"}, func(s *settings, _ string) { s.source.context = "c" }},
		{"the same by a namespace", "source: {manifests: here}", []string{"--namespace", "shop"}, func(s *settings, _ string) { s.source.namespaces = []string{"shop"} }},
		{"another kubeconfig has other contexts", "source: {kubeconfig: here, context: c}", []string{"--kubeconfig", "k"}, func(s *settings, _ string) { s.source.kubeconfig = "k" }},
	} {
		t.Run(c.what, func(t *testing.T) {
			path := write(t, c.file)
			got, err := given(append(c.flags, "--config", path)...)
			if err != nil {
				t.Fatal(err)
			}
			want := defaults()
			c.want(want, filepath.Dir(path))
			if !reflect.DeepEqual(got, want) {
				t.Errorf("it is %+v\nexpected %+v", got, want)
			}
		})
	}
	if got, err := given(); err != nil || !reflect.DeepEqual(got, defaults()) {
		t.Errorf("without a file it is %+v, %v\nexpected %+v", got, err, defaults())
	}
}

// TestWhoIsWrong: a file is a fault, a flag a usage error, and a bad file is one
// even where a flag would beat it.
func TestWhoIsWrong(t *testing.T) {
	for _, c := range []struct {
		file  string
		flags []string
		usage bool
		says  string
	}{
		{"listen: [here]", nil, false, `line 3: listen[0]: "here" is not`},
		{"listen: [here]", []string{"--listen", ":53"}, false, `line 3: listen[0]: "here" is not`},
		{"", []string{"--listen", ":53", "--listen", "here"}, true, `--listen: "here" is not ADDR:PORT`},
		{"zones: [{name: a.local}]", []string{"--zone", "a.local", "--zone", "A.local."}, true, "--zone: zone "},
		{"", []string{"--upstream", "dns"}, true, `--upstream: "dns" is no server`},
		{"", []string{"--namespace", "Shop"}, true, `--namespace: "Shop" is no namespace`},
		{"", []string{"--manifests", "m", "--kubeconfig", "k"}, true, "--manifests: not together with"},
	} {
		_, err := given(append(c.flags, "--config", write(t, c.file))...)
		if err == nil || !strings.Contains(err.Error(), c.says) || errors.As(err, new(usageError)) != c.usage {
			t.Errorf("%q %q: %v\nexpected: …%s…, in the arguments: %t", c.file, c.flags, err, c.says, c.usage)
		}
	}
	missing := filepath.Join(t.TempDir(), "epdns.yaml")
	if _, err := given("--config", missing); err == nil || err.Error() != "config "+missing+": no such file or directory" {
		t.Errorf("of a missing file it says: %v", err)
	}
}

// TestSecrets: what the files hold, and what is said of bad ones.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cookies := file("cookies", "000102030405060708090a0b0c0d0e0f\n"+"f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff\n")
	key, bad := file("key", "c2l4dGVlbiBvY3RldHMuLg==\n"), file("bad", "se-cret")
	short := file("short", "c2VjcmV0\n")
	text := "cookies: {secretFile: %s}\ntransfer: {tsig: [{name: a, secretFile: %s}]}"
	for _, c := range []struct{ cookies, key, says string }{
		{cookies, key, ""},
		{dir + "/none", key, "cookies.secretFile " + dir + "/none: no such file or directory"},
		{bad, key, "cookies.secretFile " + bad + ": line 1: a secret has 32 hexadecimal digits, not 7 characters"},
		{cookies, bad, "transfer.tsig[0].secretFile " + bad + ": it is not a secret in base64 and nothing else"},
		{cookies, short, "transfer.tsig[0].secretFile " + short + ": the secret has 6 octets, fewer than 16"},
	} {
		s, err := given("--config", write(t, fmt.Sprintf(text, c.cookies, c.key)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.readSecrets(func(string) bool { return false }); c.says != "" {
			if err == nil || err.Error() != c.says {
				t.Errorf("it says: %v\nexpected: %s", err, c.says)
			}
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if len(s.dns.Cookies) != 2 || s.dns.Cookies[0][15] != 15 || s.dns.Cookies[1][0] != 0xf0 || string(s.dns.TSIG[0].Secret) != "sixteen octets.." {
			t.Errorf("it read %x and %q", s.dns.Cookies, s.dns.TSIG)
		}
	}
}

// TestReference: the reference has every key, says something of each, and changes
// nothing.
func TestReference(t *testing.T) {
	c, err := parseConfig([]byte(reference))
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.settings()
	if err != nil {
		t.Fatal(err)
	}
	// It says what the defaults are, of which Settings know as what is not there.
	s.source.namespaces = nil
	for _, k := range zones.Knobs() {
		if got := strconv.Quote(s.zones.Zones[0].Defaults[k.Name]); got != strconv.Quote(strings.Trim(k.Default, `"`)) {
			t.Errorf("%s is %s, and by default %s", k.Name, got, k.Default)
		}
	}
	s.zones.Zones[0].Defaults = nil
	if want := defaults(); !reflect.DeepEqual(s, want) {
		t.Errorf("it says %+v\nthe defaults are %+v", s, want)
	}
	var keys []string
	for _, k := range referenceKeys(t) {
		keys = append(keys, k.key)
		if !regexp.MustCompile(`^[A-Z].*\.$`).MatchString(k.means) {
			t.Errorf("of %s it says %q, which is no sentence", k.key, k.means)
		}
		for _, knob := range zones.Knobs() {
			if k.key == "zones[].defaults."+knob.Name && (k.means != knob.Means || k.value != knob.Default) {
				t.Errorf("of %s it says %s\n%s\nand the knob %s\n%s", k.key, k.value, k.means, knob.Default, knob.Means)
			}
		}
	}
	if want := keysOf(reflect.ValueOf(*defaultConfig()), ""); !slices.Equal(keys, want) {
		t.Errorf("it has the keys %q\nthere are %q", keys, want)
	}
}

// keysOf are the keys that the fields of a value stand for. Those of a list's items
// are told where the default has one.
func keysOf(v reflect.Value, prefix string) (out []string) {
	for i := range v.NumField() {
		key, f := prefix+v.Type().Field(i).Tag.Get("yaml"), v.Field(i)
		out = append(out, key)
		switch {
		case f.Kind() == reflect.Map:
			for _, k := range zones.Knobs() {
				out = append(out, key+"."+k.Name)
			}
		case f.Kind() == reflect.Struct:
			out = append(out, keysOf(f, key+".")...)
		case f.Kind() == reflect.Slice && f.Len() > 0 && f.Index(0).Kind() == reflect.Struct:
			out = append(out, keysOf(f.Index(0), key+"[].")...)
		}
	}
	return out
}

// referenceKey is a key of the reference and what stands beside it.
type referenceKey struct{ key, value, means string }

func referenceKeys(t *testing.T) []referenceKey {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(reference), &doc); err != nil {
		t.Fatal(err)
	}
	return keysBelow(doc.Content[0], "")
}

func keysBelow(n *yaml.Node, prefix string) (out []referenceKey) {
	for i := 0; i < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		comment := k.HeadComment
		if comment == "" {
			comment = n.HeadComment // where the first key of a list's item has it
		}
		r := referenceKey{key: prefix + k.Value, means: strings.ReplaceAll(strings.TrimPrefix(comment, "# "), "\n# ", " ")}
		below := []referenceKey(nil)
		switch {
		case v.Kind == yaml.MappingNode:
			below = keysBelow(v, r.key+".")
		case v.Kind == yaml.SequenceNode && len(v.Content) > 0 && v.Content[0].Kind == yaml.MappingNode:
			below = keysBelow(v.Content[0], r.key+"[].")
		default:
			r.value = strings.TrimSpace(strings.SplitN(strings.Split(reference, "\n")[k.Line-1], ":", 2)[1])
		}
		out = append(append(out, r), below...)
	}
	return out
}
