//go:build linux

package clients_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// resolved is what lookup prints.
type resolved struct {
	Go                  string
	Found               []string
	Targets             []net.SRV
	Failure             string
	NotFound, Temporary bool
	Took                time.Duration
}

func TestGoResolver(t *testing.T) {
	// It makes up what epdns says the truth of.
	const made = "198.51.100.66"
	asked := serveOther(t, otherIP, func(w dns.ResponseWriter, m *dns.Msg) {
		reply := new(dns.Msg).SetReply(m)
		if q := m.Question[0]; q.Qtype == dns.TypeA {
			reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: 5},
				A: net.ParseIP(made)}}
		}
		w.WriteMsg(reply)
	})
	// A search list ends with the name as it is, which is in no zone of epdns. Who would be
	// refused there would go on to the next server.
	serveOther(t, upstreamIP, func(w dns.ResponseWriter, m *dns.Msg) { w.WriteMsg(new(dns.Msg).SetRcode(m, dns.RcodeNameError)) })
	serveLamp(t, 2, "--upstream="+upstreamIP)
	hosts(t)
	w := capture(t)
	t.Run("this Go", func(t *testing.T) { testGoResolver(t, w, goLookup) })
	t.Run(oldGo, func(t *testing.T) { testGoResolver(t, w, need(t, "lookup-"+oldGo)) })
	t.Run("BIND", func(t *testing.T) {
		// It passes over servers without recursion while there is another.
		resolvConf(t, search)
		out, err := exec.Command("nslookup", "lamp.dock.registry.local").CombinedOutput()
		if err != nil || !strings.Contains(string(out), twoPods[0]) || !strings.Contains(string(out), twoPods[1]) {
			t.Errorf("nslookup: %v\n%s", err, out)
		}
	})
	if names := asked(); len(names) > 0 {
		t.Errorf("the other server was asked for %q", names)
	}
}

func testGoResolver(t *testing.T, w *wire, program string) {
	resolvConf(t, "nameserver "+epdnsIP+"\nnameserver "+otherIP+
		"\nsearch dock.registry.local registry.local\noptions ndots:5 timeout:2 attempts:2\n")
	lookup := func(what, name string) (got resolved) {
		t.Helper()
		cmd := exec.Command(program, what, name)
		cmd.Env = []string{"GODEBUG=netdns=go+2"}
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("look up %s %s: %v\n%s", what, name, err, out)
		}
		if err := json.Unmarshal(out, &got); err != nil {
			t.Fatalf("look up %s %s: %v: %s", what, name, err, out)
		}
		slices.Sort(got.Found)
		return got
	}

	got := lookup("host", "lamp")
	if !slices.Equal(got.Found, twoPods) {
		t.Errorf("lamp: %+v", got)
	}
	t.Log(got.Go)

	// On a busy machine, not each time.
	eventually(t, func() error {
		got := lookup("host", "nolamp")
		if got.Found != nil || !got.NotFound || got.Temporary {
			t.Fatalf("nolamp: %+v", got)
		}
		if got.Took > 50*time.Millisecond {
			return fmt.Errorf("that nolamp is not there takes %v", got.Took)
		}
		return nil
	})

	w.reset(t)
	if got := lookup("ip6", "lamp.dock.registry.local."); got.Found != nil || !got.NotFound {
		t.Errorf("IPv6: %+v", got)
	}
	replies := w.replies(t)
	if len(replies) != 1 || kind(replies[0].Msg) != "NODATA" {
		t.Errorf("IPv6: %v", replies)
	}
	if got := lookup("ip6", "lamp"); got.Found != nil || !got.NotFound {
		t.Errorf("IPv6, by a short name: %+v", got)
	}

	got = lookup("srv", "lamp.dock.registry.local")
	var targets []string
	for i, s := range got.Targets {
		targets = append(targets, fmt.Sprintf("%s:%d", s.Target, s.Port))
		if i > 0 && got.Targets[i-1].Priority > s.Priority {
			t.Errorf("the order of targets: %+v", got)
		}
	}
	slices.Sort(targets)
	if want := []string{"10-20-1-11.lamp.dock.registry.local.:8080", "10-20-1-12.lamp.dock.registry.local.:8080"}; !slices.Equal(targets, want) {
		t.Errorf("SRV: %+v, want %q", got, want)
	}

	if got := lookup("addr", "10.20.1.11"); !slices.Equal(got.Found, []string{"10-20-1-11.lamp.dock.registry.local."}) {
		t.Errorf("PTR: %+v", got)
	}
}
