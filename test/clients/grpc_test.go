//go:build linux

package clients_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// grpcClient is a running grpc.
type grpcClient struct {
	to   io.Writer
	from *bufio.Reader
}

func startGRPC(t *testing.T) grpcClient {
	t.Helper()
	cmd := exec.Command(grpc, "dns:///lamp.dock.registry.local:8080")
	cmd.Env = []string{"GODEBUG=netdns=go"}
	to, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log output
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		to.Close() // which ends it
		if err := cmd.Wait(); err != nil {
			t.Errorf("grpc: %v\n%v", err, &log)
		}
	})
	return grpcClient{to, bufio.NewReader(from)}
}

// calls makes so many and returns how often each server had one, and each error.
func (c grpcClient) calls(t *testing.T, n int) (calls map[string]int) {
	t.Helper()
	if _, err := fmt.Fprintln(c.to, n); err != nil {
		t.Fatal(err)
	}
	line, err := c.from.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(line, &calls); err != nil {
		t.Fatal(err)
	}
	for what := range calls {
		if strings.HasPrefix(what, "error") {
			t.Fatalf("calls fail: %v", calls)
		}
	}
	return calls
}

// becomes makes calls until exactly these servers have them.
func (c grpcClient) becomes(t *testing.T, want []string) {
	t.Helper()
	eventually(t, func() error {
		got := slices.Sorted(maps.Keys(c.calls(t, 20*len(want))))
		if !slices.Equal(got, want) {
			return fmt.Errorf("calls go to %q, want %q", got, want)
		}
		return nil
	})
}

func TestGRPC(t *testing.T) {
	dir := serveLamp(t, 2)
	mount(t, "/etc/nsswitch.conf", "hosts: files dns\n") // a desktop's gives .local to mDNS
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

	c := startGRPC(t)
	c.becomes(t, twoPods)
	calls := c.calls(t, 1000)
	for _, address := range twoPods {
		if n := calls[address]; n < 450 || n > 550 {
			t.Errorf("of 1000 calls %s has %d: %v", address, n, calls)
		}
	}
	for _, m := range w.replies(t) {
		if q := m.Question[0]; q.Name == lampName && kind(m.Msg) != map[uint16]string{dns.TypeA: "NOERROR", dns.TypeAAAA: "NODATA"}[q.Qtype] {
			t.Errorf("%v", m)
		}
	}

	four := addresses(11, 14)
	dir.lamp(t, four, nil)
	c.becomes(t, four)
	dir.lamp(t, four[1:], nil)
	c.becomes(t, four[1:])

	dir.write(t, "lamp", []string{podIPv6}, nil)
	c.becomes(t, []string{podIPv6})
	if reply, err := ask("udp", lampName, dns.TypeA); err != nil || kind(reply) != "NODATA" {
		t.Errorf("A of pods with IPv6: %v\n%v", err, reply)
	}
}
