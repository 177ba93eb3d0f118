//go:build linux

package clients_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// resolved is what Go's resolver found.
type resolved struct {
	Found               []string
	Targets             []net.SRV
	Failure             string
	NotFound, Temporary bool
	Took                time.Duration
}

// lookup is the program that uses the resolver: "host NAME" and the like.
func lookup(what string) {
	r := &net.Resolver{PreferGo: true}
	ctx := context.Background()
	kind, name, _ := strings.Cut(what, " ")
	var got resolved
	var err error
	begin := time.Now()
	switch kind {
	case "host":
		got.Found, err = r.LookupHost(ctx, name)
	case "ip6":
		var found []net.IP
		found, err = r.LookupIP(ctx, "ip6", name)
		for _, ip := range found {
			got.Found = append(got.Found, ip.String())
		}
	case "srv":
		var targets []*net.SRV
		_, targets, err = r.LookupSRV(ctx, "http", "tcp", name)
		for _, target := range targets {
			got.Targets = append(got.Targets, *target)
		}
	case "addr":
		got.Found, err = r.LookupAddr(ctx, name)
	default:
		err = fmt.Errorf("look up what: %q", what)
	}
	got.Took = time.Since(begin)
	if err != nil {
		got.Failure = err.Error()
	}
	var failure *net.DNSError
	if errors.As(err, &failure) {
		got.NotFound, got.Temporary = failure.IsNotFound, failure.IsTemporary
	}
	json.NewEncoder(os.Stdout).Encode(got)
}

// goLookup runs it in a process of its own, since the resolver keeps what resolv.conf said.
func goLookup(t *testing.T, what string) (got resolved) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{envLookup + "=" + what, "GODEBUG=netdns=go"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("look up %s: %v\n%s", what, err, out)
	}
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("look up %s: %v: %s", what, err, out)
	}
	slices.Sort(got.Found)
	return got
}

func TestGoResolver(t *testing.T) {
	serveLamp(t, 2)
	// It makes up what is in the zone; for epdns not to know the rest is right.
	const made = "198.51.100.66"
	asked := other(t, func(w dns.ResponseWriter, m *dns.Msg) {
		reply := new(dns.Msg).SetReply(m)
		q := m.Question[0]
		if !inZone(q.Name) {
			reply.Rcode = dns.RcodeNameError
		} else if q.Qtype == dns.TypeA {
			reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: 5},
				A: net.ParseIP(made)}}
		}
		w.WriteMsg(reply)
	})
	mount(t, "/etc/nsswitch.conf", "hosts: files dns\n") // a desktop's gives .local to mDNS
	resolvConf(t, "nameserver "+epdnsIP+"\nnameserver "+otherIP+
		"\nsearch dock.registry.local registry.local\noptions ndots:5 timeout:2 attempts:2\n")
	w := capture(t)

	if got := goLookup(t, "host lamp"); !slices.Equal(got.Found, twoPods) {
		t.Errorf("lamp: %+v", got)
	}

	// On a busy machine, not each time.
	eventually(t, func() error {
		got := goLookup(t, "host nolamp")
		if got.Found != nil || !got.NotFound || got.Temporary {
			t.Fatalf("nolamp: %+v", got)
		}
		if got.Took > 50*time.Millisecond {
			return fmt.Errorf("that nolamp is not there takes %v", got.Took)
		}
		return nil
	})

	w.reset(t)
	if got := goLookup(t, "ip6 lamp.dock.registry.local."); got.Found != nil || !got.NotFound {
		t.Errorf("IPv6: %+v", got)
	}
	replies := w.replies(t)
	if len(replies) != 1 || kind(replies[0].Msg) != "NODATA" {
		t.Errorf("IPv6: %v", replies)
	}
	if got := goLookup(t, "ip6 lamp"); got.Found != nil || !got.NotFound {
		t.Errorf("IPv6, by a short name: %+v", got)
	}

	got := goLookup(t, "srv lamp.dock.registry.local")
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

	if got := goLookup(t, "addr 10.20.1.11"); !slices.Equal(got.Found, []string{"10-20-1-11.lamp.dock.registry.local."}) {
		t.Errorf("PTR: %+v", got)
	}

	// BIND's passes over servers without recursion while there is another.
	resolvConf(t, search)
	out, err := exec.Command("nslookup", "lamp.dock.registry.local").CombinedOutput()
	if err != nil || !strings.Contains(string(out), twoPods[0]) || !strings.Contains(string(out), twoPods[1]) {
		t.Errorf("nslookup: %v\n%s", err, out)
	}

	for _, name := range asked() {
		if inZone(name) {
			t.Errorf("the other server was asked for %s", name)
		}
	}
}
