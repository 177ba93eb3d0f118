//go:build linux

package clients_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"epdns/test/netns"
	"epdns/test/run"

	"github.com/miekg/dns"
)

// startShippedCoreDNS starts CoreDNS at otherIP with the block that is shipped for it.
func startShippedCoreDNS(t *testing.T) *run.Process {
	t.Helper()
	text, err := os.ReadFile("../../deploy/snippets/coredns.Corefile")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "Corefile")
	bound := strings.ReplaceAll(string(text), "    errors\n", "    errors\n    bind "+otherIP+"\n")
	if !strings.Contains(bound, "bind") || !strings.Contains(bound, "forward . "+epdnsIP+" ") {
		t.Fatalf("not what is expected of coredns.Corefile:\n%s", bound)
	}
	if err := os.WriteFile(path, []byte(bound), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, coreDNS, "-conf", path)
	p.Eventually(t, func() error {
		// No name that a test asks for, since it is kept.
		_, err := askAt(otherIP+":53", "bulb.dock.registry.local.")
		return err
	})
	return p
}

// TestCoreDNSRow sees what the table says of CoreDNS, configured as shipped.
func TestCoreDNSRow(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	row := Row{Client: "CoreDNS `forward`, `cache`", Page: "coredns", Search: none}
	dir, m := manifestsOf(t, addresses(1, 8))
	args := []string{"--manifests=" + string(m), "--config=" + configured(t, "defaults: {ttl: 2s, ttl-empty: 1s, ttl-nxdomain: 1s}",
		"clients: {places: [{cidr: "+epdnsIP+"/32, zone: zone-a}]}")}
	server := serve(t, "readyz", args...)
	startShippedCoreDNS(t)
	w := capture(t)
	through := func(network, name string, typ uint16) *dns.Msg {
		t.Helper()
		client := dns.Client{Net: network, Timeout: grace}
		reply, _, err := client.Exchange(new(dns.Msg).SetQuestion(name, typ), otherIP+":53")
		if err != nil {
			t.Fatal(err)
		}
		return reply
	}
	list := func(m *dns.Msg) []string { return data([]message{{Msg: m}}) }

	// Until it has another answer.
	var sent, had [][]string
	oneForAll, counted := true, false
	for range times {
		w.reset(t)
		var reply *dns.Msg
		eventually(t, func() error {
			reply = through("udp", lampName, dns.TypeA)
			if len(w.answers(t, lampName, dns.TypeA)) == 0 {
				return fmt.Errorf("CoreDNS does not ask")
			}
			return nil
		})
		sent, had = append(sent, data(w.answers(t, lampName, dns.TypeA))), append(had, list(reply))
		again := through("udp", lampName, dns.TypeA)
		eventually(t, func() error {
			if len(w.answers(t, lampName, dns.TypeA)) > 1 {
				return nil // it has asked again
			}
			again = through("udp", lampName, dns.TypeA)
			if again.Answer[0].Header().Ttl == reply.Answer[0].Header().Ttl {
				return fmt.Errorf("the TTL stays %d", reply.Answer[0].Header().Ttl)
			}
			return nil
		})
		if len(w.answers(t, lampName, dns.TypeA)) == 1 {
			counted = true
			oneForAll = oneForAll && slices.Equal(list(again), list(reply))
		}
	}
	row.Order = orderOf(t, sent, had)
	if counted && oneForAll {
		row.Order += ", one for all while it is cached"
		row.TTL = "kept for it, counted down"
	}

	dir.writeWeights(t)
	w.reset(t)
	reply := through("tcp", srvName, dns.TypeSRV)
	if slices.Equal(list(reply), data(w.answers(t, srvName, dns.TypeSRV))) && len(reply.Extra) == len(w.answers(t, srvName, dns.TypeSRV)[0].Extra) {
		row.SRV = "passed on, with the addresses of targets"
	}

	// becomes says what it passes on, and how it was.
	becomes := func(want string, happen func()) string {
		t.Helper()
		happen()
		var reply *dns.Msg
		eventually(t, func() error {
			if reply = through("udp", lampName, dns.TypeA); kind(reply) != want {
				return fmt.Errorf("CoreDNS says %s, want %s", kind(reply), want)
			}
			return nil
		})
		return "passed on"
	}
	row.Empty = becomes("NODATA", func() { dir.lamp(t, nil, twoPods) })
	row.Gone = becomes("NXDOMAIN", func() { dir.noLamp(t) })
	row.Failed = becomes("SERVFAIL", func() {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
		server = serveIgnorant(t)
	})
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	serve(t, "readyz", args...)
	dir.lamp(t, addresses(1, 200), nil)
	eventually(t, func() error {
		udp, tcp := through("udp", lampName, dns.TypeA), through("tcp", lampName, dns.TypeA)
		if !udp.Truncated || len(tcp.Answer) != 200 {
			return fmt.Errorf("over UDP TC is %v, over TCP there are %d", udp.Truncated, len(tcp.Answer))
		}
		row.Many = "TC over UDP, all over TCP"
		return nil
	})
	observed(t, row)
}
