//go:build linux

package rank_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"epdns/test/run"

	"github.com/miekg/dns"
)

// This file runs epdns and asks.

// serve runs epdns on the cluster and returns when it is ready. What is said of clients is YAML,
// such as {sharedCaches: [192.0.2.1]}.
func serve(t *testing.T, clients string) *run.Process {
	t.Helper()
	config := filepath.Join(t.TempDir(), "epdns.yaml")
	text := fmt.Sprintf(`apiVersion: epdns/v1alpha1
kind: Config
source: {kubeconfig: %q}
listen: ["%s:53", "%s:53", "%s:53", "%s:53", "[2001:db8:1::1]:53"]
clients: %s
`, kube.Kubeconfig, epdnsIP, dnsPodIP, ecsPodIP, nodeDNSIP, clients)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	p := run.ForTest(t, exec.Command(epdns, "serve", "--config", config, "--lameduck=0"))
	p.Eventually(t, func() error {
		_, err := run.Get("http://127.0.0.1:9153/readyz")
		return err
	})
	return p
}

// metric is what epdns says of one of its counts, by name and labels.
func metric(t *testing.T, name string) string {
	t.Helper()
	page, err := run.Get("http://127.0.0.1:9153/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(page)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Errorf("there is no metric %s", name)
	return ""
}

// question is one that comes from an address.
type question struct {
	network string // udp or tcp
	from    netip.Addr
	server  string // without a port it is 53
	name    string
	typ     uint16
	subnet  string // of EDNS Client Subnet, empty for none
}

func (q question) String() string {
	return fmt.Sprintf("%s asks %s over %s for %s %s", q.from, q.server, q.network, q.name, dns.TypeToString[q.typ])
}

// full is the name of a Service in namespace shop.
func full(service string) string { return service + ".shop.registry.local." }

// ask puts a question to epdns, about a Service.
func ask(t *testing.T, network string, from netip.Addr, service string, typ uint16) *dns.Msg {
	t.Helper()
	server := epdnsIP
	if from.Is6() {
		server = "[2001:db8:1::1]"
	}
	return question{network: network, from: from, server: server, name: full(service), typ: typ}.must(t)
}

// must puts the question and takes no answer but a good one.
func (q question) must(t *testing.T) *dns.Msg {
	t.Helper()
	reply, err := q.put()
	if err == nil && reply.Rcode != dns.RcodeSuccess {
		err = fmt.Errorf("%v: %v", q, reply)
	}
	if err != nil {
		t.Fatal(err)
	}
	return reply
}

func (q question) put() (*dns.Msg, error) {
	m := new(dns.Msg).SetQuestion(q.name, q.typ)
	m.SetEdns0(1232, false)
	if q.subnet != "" {
		p, err := netip.ParsePrefix(q.subnet)
		if err != nil {
			return nil, err
		}
		opt := m.IsEdns0()
		opt.Option = append(opt.Option, &dns.EDNS0_SUBNET{
			Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: uint8(p.Bits()), Address: net.IP(p.Addr().AsSlice())})
	}
	var local net.Addr = &net.UDPAddr{IP: net.IP(q.from.AsSlice())}
	if q.network == "tcp" {
		local = &net.TCPAddr{IP: net.IP(q.from.AsSlice())}
	}
	server := q.server
	if !strings.Contains(server, ":") || strings.HasSuffix(server, "]") {
		server += ":53"
	}
	client := dns.Client{Net: q.network, Timeout: 3 * time.Second, Dialer: &net.Dialer{LocalAddr: local}}
	reply, _, err := client.Exchange(m, server)
	if err == nil && reply.Truncated {
		err = errors.New("TC is set")
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", q, err)
	}
	return reply, nil
}

// addrs are those of the A records, in the order in which they came.
func addrs(reply *dns.Msg) (list []netip.Addr) {
	for _, rr := range reply.Answer {
		if a, ok := rr.(*dns.A); ok {
			addr, _ := netip.AddrFromSlice(a.A.To4())
			list = append(list, addr)
		}
	}
	return list
}

// target is what an SRV record says of an endpoint.
type target struct{ priority, weight int }

// targets are the SRV records by address, which is in their names.
func targets(reply *dns.Msg) map[netip.Addr]target {
	out := map[netip.Addr]target{}
	for _, rr := range reply.Answer {
		if srv, ok := rr.(*dns.SRV); ok {
			label, _, _ := strings.Cut(srv.Target, ".")
			if addr, err := netip.ParseAddr(strings.ReplaceAll(label, "-", ".")); err == nil {
				out[addr] = target{int(srv.Priority), int(srv.Weight)}
			}
		}
	}
	return out
}

// scope is that of EDNS Client Subnet in a reply, -1 for none.
func scope(reply *dns.Msg) int {
	if opt := reply.IsEdns0(); opt != nil {
		for _, o := range opt.Option {
			if s, ok := o.(*dns.EDNS0_SUBNET); ok {
				return int(s.SourceScope)
			}
		}
	}
	return -1
}

// sameSet says what is wrong with an answer whose order does not matter.
func sameSet(got, want []netip.Addr) error {
	if got = sorted(got); !slices.Equal(got, want) {
		return fmt.Errorf("the answer has %v, want %v", got, want)
	}
	return nil
}

// nearFirst says what is wrong with the order of an answer.
func nearFirst(all []endpoint, asker place, answer []netip.Addr) error {
	last := onNode
	for _, addr := range answer {
		i := slices.IndexFunc(all, func(e endpoint) bool { return e.addr() == addr })
		if i < 0 {
			return fmt.Errorf("%v is no endpoint", addr)
		}
		tier := asker.tier(all[i].place())
		if tier < last {
			return fmt.Errorf("not near first for %v: %v", asker, answer)
		}
		last = tier
	}
	return nil
}

// dig is what that program prints to whoever has this address: the addresses alone.
func dig(t *testing.T, from netip.Addr, service string) (list []netip.Addr) {
	t.Helper()
	cmd := exec.Command("dig", "+short", "+tries=1", "-b", from.String(), "@"+epdnsIP, full(service), "A")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	for line := range strings.Lines(string(out)) {
		addr, err := netip.ParseAddr(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%v prints\n%s", cmd, out)
		}
		list = append(list, addr)
	}
	return list
}
