//go:build linux

package deploy_test

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// ask puts one question. A server without a port is asked at 53.
func ask(network, server, name, typ string) (*dns.Msg, error) {
	if !strings.Contains(server, ":") {
		server = net.JoinHostPort(server, "53")
	}
	m := new(dns.Msg).SetQuestion(name, dns.StringToType[typ])
	m.SetEdns0(1232, false)
	client := dns.Client{Net: network, Timeout: 3 * time.Second}
	reply, _, err := client.Exchange(m, server)
	if err != nil {
		return nil, fmt.Errorf("ask %s over %s for %s %s: %w", server, network, name, typ, err)
	}
	return reply, nil
}

// want is an answer. Records are type and data; their order is not looked at.
type want struct {
	rcode  int
	answer []string
	extra  []string
	ttl    uint32 // none is higher
}

// check asks over UDP and TCP, twice: the second time a cache answers.
func (w want) check(t *testing.T, server, name, typ string) {
	t.Helper()
	for _, network := range []string{"udp", "tcp", "udp", "tcp"} {
		reply, err := ask(network, server, name, typ)
		if err == nil {
			err = w.compare(reply)
		}
		if err != nil {
			t.Errorf("over %s: %v", network, err)
		}
	}
}

func (w want) compare(reply *dns.Msg) error {
	if reply.Rcode != w.rcode {
		return fmt.Errorf("%s, want %s:\n%v", dns.RcodeToString[reply.Rcode], dns.RcodeToString[w.rcode], reply)
	}
	for _, section := range []struct {
		what      string
		got, want []string
	}{{"answer", records(reply.Answer), w.answer}, {"additional section", records(reply.Extra), w.extra}} {
		slices.Sort(section.got)
		if !slices.Equal(section.got, section.want) {
			return fmt.Errorf("the %s is %q, want %q", section.what, section.got, section.want)
		}
	}
	for _, rr := range slices.Concat(reply.Answer, reply.Ns, reply.Extra) {
		if h := rr.Header(); h.Rrtype != dns.TypeOPT && h.Ttl > w.ttl {
			return fmt.Errorf("a TTL is higher than %d: %v", w.ttl, rr)
		}
	}
	// What is not there is kept as long as the SOA says, and not at all without one.
	if w.answer == nil && w.rcode != dns.RcodeRefused && len(reply.Ns) == 0 {
		return fmt.Errorf("a negative answer without SOA:\n%v", reply)
	}
	return nil
}

// records are type and data of each record.
func records(rrs []dns.RR) (out []string) {
	for _, rr := range rrs {
		if h := rr.Header(); h.Rrtype != dns.TypeOPT {
			out = append(out, dns.TypeToString[h.Rrtype]+" "+strings.TrimPrefix(rr.String(), h.String()))
		}
	}
	return out
}

// forwarder is a way to epdns.
type forwarder struct {
	what    string
	address string
	file    string
	bind    string
	idle    uint32 // TTL of what epdns lets be kept for 2 s
	reverse bool   // it knows the reverse zone, too
}

var forwarders = []forwarder{
	{what: "CoreDNS", address: clusterDNS, file: "coredns.Corefile", bind: clusterDNS, idle: 2, reverse: true},
	{what: "NodeLocal DNSCache", address: nodeLocal, file: "nodelocaldns.Corefile", idle: 5},
}

// servePods runs epdns where Service epdns would be, with authority over the Pods' addresses
// as the comment in deploy/base/deployment.yaml has it.
func servePods(t *testing.T, args ...string) {
	t.Helper()
	serve(t, append([]string{"--listen=" + epdnsIP + ":53", "--reverse=10.244.0.0/16"}, args...)...)
}

// Through the shipped Corefiles, everything is answered as by epdns itself, and no TTL grows.
func TestForward(t *testing.T) {
	deployed(t)
	servePods(t)
	for _, f := range forwarders {
		t.Run(f.what, func(t *testing.T) {
			forward(t, snippet(t, f.file, f.bind), f.address)

			// First, since only what comes from the cache is to be in order.
			order := ""
			for range 10 {
				reply, err := ask("udp", f.address, "db.shop.registry.local.", "A")
				if err != nil {
					t.Fatal(err)
				}
				got := strings.Join(records(reply.Answer), ", ")
				if order == "" {
					order = got
				}
				if got != order {
					t.Errorf("the order of the answer changes: %s, then %s", order, got)
				}
			}

			const nxdomain, refused = dns.RcodeNameError, dns.RcodeRefused
			for _, test := range []struct {
				what, name, typ string
				want            want
			}{
				{"addresses of ready Pods", "web.shop.registry.local.", "A",
					want{answer: []string{"A 10.244.1.11", "A 10.244.2.12"}, ttl: 5}},
				{"no address of the other family", "web.shop.registry.local.", "AAAA", want{ttl: 5}},
				{"an IPv6 address", "db.shop.registry.local.", "AAAA", want{answer: []string{"AAAA fd00:10:244:1::20"}, ttl: 5}},
				{"ports, with addresses", "_http._tcp.web.shop.registry.local.", "SRV", want{
					answer: []string{"SRV 0 1 8080 10-244-1-11.web.shop.registry.local.", "SRV 0 1 8080 10-244-2-12.web.shop.registry.local."},
					extra:  []string{"A 10.244.1.11", "A 10.244.2.12"},
					ttl:    5}},
				{"an alias", "alias.shop.registry.local.", "A",
					want{answer: []string{"A 10.244.1.11", "A 10.244.2.12", "CNAME web.shop.registry.local."}, ttl: 5}},
				{"nobody is ready", "idle.shop.registry.local.", "A", want{ttl: f.idle}},
				{"no such Service", "none.shop.registry.local.", "A", want{rcode: nxdomain, ttl: 5}},
				{"outside", "www.example.com.", "A", want{rcode: refused}},
			} {
				t.Run(test.what, func(t *testing.T) { test.want.check(t, f.address, test.name, test.typ) })
			}
			t.Run("the way back", func(t *testing.T) {
				known := want{answer: []string{"PTR 10-244-1-11.web.shop.registry.local."}, ttl: 5}
				unknown := want{rcode: nxdomain, ttl: 5}
				if !f.reverse {
					known, unknown = want{rcode: refused}, want{rcode: refused}
				}
				known.check(t, f.address, "11.1.244.10.in-addr.arpa.", "PTR")
				unknown.check(t, f.address, "99.9.244.10.in-addr.arpa.", "PTR")
			})
		})
	}
}

// A change that comes right after an answer was cached is seen when its TTL is over.
func TestForwardChange(t *testing.T) {
	deployed(t)
	servePods(t)
	for _, f := range forwarders {
		forward(t, snippet(t, f.file, f.bind), f.address)
	}

	type object = map[string]any
	const webSlice = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices/web-4"
	var web struct {
		Endpoints []object `json:"endpoints"`
	}
	request(t, http.MethodGet, webSlice, nil, &web)
	moved := object{"endpoints": []object{web.Endpoints[1], {"addresses": []string{"10.244.4.14"}}}}
	started := object{
		"metadata":    object{"name": "idle-4", "labels": object{"kubernetes.io/service-name": "idle"}},
		"addressType": "IPv4",
		"ports":       []object{{"name": "http", "port": 8080}},
		"endpoints":   []object{{"addresses": []string{"10.244.5.15"}}},
	}

	type follower struct {
		forwarder
		name          string
		before, after want
	}
	var followers []follower
	for _, f := range forwarders {
		followers = append(followers,
			follower{f, "web.shop.registry.local.",
				want{answer: []string{"A 10.244.1.11", "A 10.244.2.12"}, ttl: 5},
				want{answer: []string{"A 10.244.2.12", "A 10.244.4.14"}, ttl: 5}},
			follower{f, "idle.shop.registry.local.", want{ttl: f.idle}, want{answer: []string{"A 10.244.5.15"}, ttl: 5}})
	}
	for _, f := range followers {
		f.before.check(t, f.address, f.name, "A")
	}
	request(t, http.MethodPatch, webSlice, moved, nil)
	request(t, http.MethodPost, "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", started, nil)
	changed := time.Now()
	t.Cleanup(func() {
		if _, err := control("-n", "shop", "delete", "endpointslice", "idle-4"); err != nil {
			t.Error(err)
		}
		if _, err := apply("-f", "testdata/shop.yaml"); err != nil {
			t.Error(err)
		}
	})

	var wg sync.WaitGroup
	for _, f := range followers {
		limit := time.Duration(f.before.ttl)*time.Second + time.Second
		wg.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for ; ; <-tick.C {
				reply, err := ask("udp", f.address, f.name, "A")
				if err == nil {
					err = f.after.compare(reply)
				}
				since := time.Since(changed).Round(time.Millisecond)
				if err == nil {
					t.Logf("%s: %s changed after %v", f.what, f.name, since)
					return
				}
				if since > limit {
					t.Errorf("%s: after %v still: %v", f.what, since, err)
					return
				}
				// Until then it is what was cached, and nothing else.
				if reply == nil {
					t.Errorf("%s: %v", f.what, err)
					return
				}
				if err := f.before.compare(reply); err != nil {
					t.Errorf("%s: neither as before nor as after the change: %v", f.what, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
