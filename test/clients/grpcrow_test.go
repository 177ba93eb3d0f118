//go:build linux

package clients_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"epdns/test/netns"
	"epdns/test/run"

	"github.com/miekg/dns"
)

// This file has what docs/clients/grpc.md says beyond the case in testdata/cases/client.

// TestGRPCRow sees what the table says of grpc-go with its resolver for DNS. That asks once a
// second at most here, so as not to take minutes; TestGRPC has the real interval.
func TestGRPCRow(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	row := Row{Client: "grpc-go `dns:///`", Page: "grpc", Order: none}
	pods := addresses(11, 12)
	all := slices.Sorted(slices.Values(addresses(11, 210)))
	dir, m := manifestsOf(t, pods)
	args := []string{"--manifests=" + string(m), "--config=" + configured(t, "defaults: {ttl: 1h, ttl-empty: 1h, ttl-nxdomain: 1h}")}
	server := serve(t, "readyz", args...)
	hosts(t)
	resolvConf(t, search)
	w := capture(t)

	c := startGRPCFor(t, "dns:///lamp.dock.registry.local.:8080", all, "-min-interval=1s", "-max-age=2s")
	c.becomesAgain(t, pods)
	// Its own server is none of those that it finds.
	short := startGRPCFor(t, "dns:///lamp:8080", []string{"10.20.8.8"}, "-min-interval=1s")
	short.becomesAgain(t, pods)
	row.Search = "yes"
	if len(w.answers(t, srvName, dns.TypeSRV)) == 0 {
		row.SRV = "not asked for"
	}
	dir.lamp(t, addresses(11, 13), nil)
	c.becomesAgain(t, addresses(11, 13))
	// They were said to be good for 1 h.
	row.TTL = "not looked at: asks when a connection ends"
	dir.lamp(t, pods, nil)
	c.becomesAgain(t, pods)

	// becomes says what calls do once the resolver has been told that there is no address, or that
	// nobody knows.
	becomes := func(happen, undo func()) string {
		t.Helper()
		happen()
		w.reset(t)
		eventually(t, func() error {
			c.do(t, "call 4")
			if n := len(w.answers(t, lampName, dns.TypeA)); n < 4 {
				return fmt.Errorf("the resolver has asked %d times", n)
			}
			return nil
		})
		what := ""
		eventually(t, func() error { // a connection that ends of age may take a call with it
			got := slices.Sorted(maps.Keys(c.do(t, "call 20")))
			switch {
			case slices.Equal(got, pods):
				what = "addresses stay"
			case len(got) == 1 && strings.HasPrefix(got[0], "error: rpc error: code = Unavailable"):
				t.Log(got[0])
				what = "calls fail: `Unavailable`"
			default:
				return fmt.Errorf("calls go to %q", got)
			}
			return nil
		})
		t.Logf("by a short name, calls go to %v", short.do(t, "call 20"))
		undo()
		c.becomesAgain(t, pods)
		short.becomesAgain(t, pods)
		return what
	}
	there := func() { dir.lamp(t, pods, nil) }
	row.Empty = becomes(func() { dir.lamp(t, nil, pods) }, there)
	row.Gone = becomes(func() { dir.noLamp(t) }, there)
	var ignorant *run.Process
	row.Failed = becomes(func() {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
		ignorant = serveIgnorant(t)
	}, func() {
		if err := ignorant.Stop(); err != nil {
			t.Fatal(err)
		}
		serve(t, "readyz", args...)
	})

	dir.lamp(t, all, nil)
	w.reset(t)
	seen := map[string]bool{}
	within(t, 2*grace, 100*time.Millisecond, func() error {
		for who := range c.do(t, "call 400") {
			// A connection that ends of age may take a call with it, on a busy machine.
			if slices.Contains(all, who) {
				seen[who] = true
			}
		}
		if len(seen) < len(all) {
			return fmt.Errorf("%d of %d have calls", len(seen), len(all))
		}
		return nil
	})
	if slices.ContainsFunc(w.answers(t, lampName, dns.TypeA), func(m message) bool { return m.network == "tcp" && len(m.Answer) == len(all) }) {
		row.Many = "all, over TCP"
	}
	observed(t, row)
}

// becomesAgain is becomes while calls may fail.
func (c grpcClient) becomesAgain(t *testing.T, want []string) time.Duration {
	t.Helper()
	begin := time.Now()
	eventually(t, func() error {
		if got := slices.Sorted(maps.Keys(c.do(t, "call 20"))); !slices.Equal(got, want) {
			return fmt.Errorf("calls go to %q, want %q", got, want)
		}
		return nil
	})
	return time.Since(begin)
}

// With package registry instead of DNS, calls follow what there is at once, and none fails.
func TestGRPCFollow(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	pods := addresses(11, 14)
	dir, m := manifestsOf(t, pods[:2])
	c := startGRPCFor(t, "epdns:///lamp.dock:http", pods, "-manifests="+string(m))
	c.becomes(t, grace, pods[:2])

	// By DNS it would take longer than grace.
	dir.write(t, "lamp", pods, nil)
	t.Logf("two more pods have calls after %v", c.becomes(t, grace, pods))
	dir.write(t, "lamp", pods[1:], pods[:1])
	t.Logf("one that is not ready has none after %v", c.becomes(t, grace, pods[1:]))
	c.do(t, "stop "+pods[0])
	if got := slices.Sorted(maps.Keys(c.calls(t, 300))); !slices.Equal(got, pods[1:]) {
		t.Errorf("after %s has ended, calls go to %q", pods[0], got)
	}

	// Nobody, then somebody.
	dir.write(t, "lamp", nil, pods)
	eventually(t, func() error {
		got := slices.Sorted(maps.Keys(c.do(t, "call 10")))
		if len(got) != 1 || !strings.HasPrefix(got[0], "error: rpc error: code = Unavailable") {
			return fmt.Errorf("with nobody ready, calls go to %q", got)
		}
		return nil
	})
	dir.write(t, "lamp", pods[1:], nil)
	c.becomesAgain(t, pods[1:])
	wrong := startGRPCFor(t, "epdns:///lamp:http", []string{"10.20.8.8"}, "-manifests="+string(m))
	for says := range wrong.do(t, "call 1") {
		if want := "the target epdns:///lamp:http is not of the form epdns:///SERVICE.NAMESPACE:PORT"; !strings.Contains(says, want) {
			t.Errorf("of a wrong target, a call says %q, want %q", says, want)
		}
	}
}
