//go:build linux

package clients_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"epdns/test/netns"

	"github.com/miekg/dns"
)

// grpcClient is a running grpc.
type grpcClient teller

// startGRPC starts it, with servers at these addresses.
func startGRPC(t *testing.T, pods []string) grpcClient {
	t.Helper()
	return startGRPCFor(t, "dns:///lamp.dock.registry.local:8080", pods)
}

// startGRPCFor starts it with this target, and with these flags.
func startGRPCFor(t *testing.T, target string, pods []string, flags ...string) grpcClient {
	t.Helper()
	cmd := exec.Command(grpc, slices.Concat(flags, []string{target}, pods)...)
	cmd.Env = []string{"GODEBUG=netdns=go"}
	return grpcClient(tellerOf(t, cmd))
}

// do has it do something and returns how often each server was called.
func (c grpcClient) do(t *testing.T, what string) (calls map[string]int) {
	t.Helper()
	if _, err := fmt.Fprintln(c.to, what); err != nil {
		t.Fatal(err)
	}
	line, err := c.from.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(line, &calls); err != nil {
		t.Fatal(err)
	}
	return calls
}

// calls makes so many calls, none of which may fail.
func (c grpcClient) calls(t *testing.T, n int) (calls map[string]int) {
	t.Helper()
	calls = c.do(t, fmt.Sprint("call ", n))
	for what := range calls {
		if strings.HasPrefix(what, "error") {
			t.Fatalf("calls fail: %v", calls)
		}
	}
	return calls
}

// becomes makes calls until exactly these servers have them, and says how long that took.
func (c grpcClient) becomes(t *testing.T, limit time.Duration, want []string) time.Duration {
	t.Helper()
	begin := time.Now()
	within(t, limit, 200*time.Millisecond, func() error {
		got := slices.Sorted(maps.Keys(c.calls(t, 20*len(want))))
		if !slices.Equal(got, want) {
			return fmt.Errorf("calls go to %q, want %q", got, want)
		}
		return nil
	})
	return time.Since(begin)
}

func TestGRPC(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	testGRPC(t, addresses(11, 14), dns.TypeA, dns.TypeAAAA)
}

func TestGRPCIPv6(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	testGRPC(t, podsIPv6, dns.TypeAAAA, dns.TypeA)
}

// testGRPC has pods of one family, which starts with two of them.
func testGRPC(t *testing.T, pods []string, family, otherFamily uint16) {
	// The servers end a connection after this time, or a tenth more, and the resolver asks again
	// after this time at the earliest.
	const maxAge, minInterval = 33 * time.Second, 30 * time.Second

	dir := serveLamp(t, 2)
	dir.lamp(t, pods[:2], nil)
	hosts(t)
	resolvConf(t, search)
	w := capture(t)

	// What a resolver may ask besides.
	for _, side := range []struct {
		name string
		typ  uint16
	}{{"_grpclb._tcp." + lampName, dns.TypeSRV}, {"_grpc_config." + lampName, dns.TypeTXT}} {
		// On a busy machine, not each time.
		eventually(t, func() error {
			begin := time.Now()
			reply, err := ask("udp", side.name, side.typ)
			took := time.Since(begin)
			if err != nil {
				return err
			}
			if kind(reply) != "NXDOMAIN" || len(reply.Ns) != 1 || reply.Ns[0].Header().Rrtype != dns.TypeSOA {
				t.Fatalf("%v", reply)
			}
			if took > 10*time.Millisecond {
				return fmt.Errorf("%s takes %v", side.name, took)
			}
			return nil
		})
	}

	c := startGRPC(t, pods)
	c.becomes(t, grace, pods[:2])
	calls := c.calls(t, 1000)
	for _, address := range pods[:2] {
		if n := calls[address]; n < 450 || n > 550 {
			t.Errorf("of 1000 calls %s has %d: %v", address, n, calls)
		}
	}

	dir.lamp(t, pods, nil)
	t.Logf("new pods have calls after %v", c.becomes(t, maxAge+minInterval+grace, pods))

	dir.lamp(t, pods[1:], nil)
	w.reset(t)
	c.do(t, "stop "+pods[0])
	// A call that was just on its way there fails.
	within(t, grace, time.Millisecond, func() error { // less than minInterval: no resolver tells it
		calls := c.do(t, "call 300")
		if got := slices.Sorted(maps.Keys(calls)); !slices.Equal(got, pods[1:]) {
			return fmt.Errorf("without %s, calls go to %v", pods[0], calls)
		}
		return nil
	})
	begin := time.Now()
	within(t, minInterval+grace, 200*time.Millisecond, func() error {
		c.calls(t, 30)
		for _, m := range w.replies(t) {
			if q := m.Question[0]; q.Name == lampName && q.Qtype == family {
				if len(m.Answer) != 3 || strings.Contains(m.Msg.String(), pods[0]+"\n") {
					t.Fatalf("without %s: %v", pods[0], m)
				}
				return nil
			}
		}
		return fmt.Errorf("no question for %s", lampName)
	})
	t.Logf("the pod that is gone is out of a reply after %v", time.Since(begin))

	for _, m := range w.replies(t) {
		q := m.Question[0]
		if q.Name != lampName {
			continue
		}
		if want := map[uint16]string{family: "NOERROR", otherFamily: "NODATA"}[q.Qtype]; kind(m.Msg) != want {
			t.Errorf("want %s: %v", want, m)
		}
	}
}
