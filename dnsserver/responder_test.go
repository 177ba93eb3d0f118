package dnsserver

import (
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"epdns/registry"
	"epdns/zones"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// cluster is a Set with Services of each size that matters: web (10 endpoints),
// big (200), one (an IPv6 endpoint with a host name), alias (ExternalName to web),
// loop (to itself), empty.
func cluster(t testing.TB) *zones.Store {
	t.Helper()
	store := registry.NewStore(quiet)
	slicesFeed, servicesFeed := store.Slices(""), store.Services("")
	var services []*corev1.Service
	var slices []*discoveryv1.EndpointSlice
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}}
	}
	add := func(name string, n int, family discoveryv1.AddressType, address string, hostname string) {
		services = append(services, &corev1.Service{ObjectMeta: meta(name)})
		s := &discoveryv1.EndpointSlice{ObjectMeta: meta(name), AddressType: family}
		http, port := "http", int32(8080)
		s.Ports = []discoveryv1.EndpointPort{{Name: &http, Port: &port}}
		for i := range n {
			e := discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf(address, i+1)}}
			if hostname != "" {
				h := fmt.Sprintf("%s-%d", hostname, i)
				e.Hostname = &h
			}
			s.Endpoints = append(s.Endpoints, e)
		}
		slices = append(slices, s)
	}
	add("web", 10, discoveryv1.AddressTypeIPv4, "10.0.0.%d", "")
	add("big", 200, discoveryv1.AddressTypeIPv4, "10.0.1.%d", "pod-of-a-stateful-set")
	add("one", 1, discoveryv1.AddressTypeIPv6, "2001:db8::%d", "one")
	add("empty", 0, discoveryv1.AddressTypeIPv4, "", "")
	for name, target := range map[string]string{"alias": "web.shop.registry.local", "loop": "loop.shop.registry.local", "out": "example.com"} {
		o := &corev1.Service{ObjectMeta: meta(name)}
		o.Spec.Type, o.Spec.ExternalName = corev1.ServiceTypeExternalName, target
		services = append(services, o)
	}
	servicesFeed.Replace(services)
	slicesFeed.Replace(slices)
	b, err := zones.NewBuilder(zones.Config{
		Zones:   []zones.Zone{zones.DefaultZone("registry.local")},
		Reverse: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
	})
	if err != nil {
		t.Fatal(err)
	}
	out := &zones.Store{}
	out.Publish(b.Build(store.FollowAll().Take(), time.Unix(1_800_000_000, 0)))
	return out
}

var (
	client = netip.MustParseAddrPort("127.0.0.1:4711")
	local  = netip.MustParseAddr("192.0.2.53")
)

func respond(t testing.TB, r *Responder, q *dns.Msg, transport Transport) *dns.Msg {
	t.Helper()
	msg, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	reply := r.Respond(nil, msg, client, Via{transport, local})
	var m dns.Msg
	if err := m.Unpack(reply); err != nil {
		t.Fatalf("%v: reply %x: %v", q.Question, reply, err)
	}
	if m.Id != q.Id || !m.Response || len(q.Question) > 0 && m.Question[0] != q.Question[0] {
		t.Fatalf("reply does not match the query:\n%v\n%v", q, &m)
	}
	if size := len(reply); transport == UDP {
		limit := 512
		if o := q.IsEdns0(); o != nil {
			limit = max(512, min(1232, int(o.UDPSize())))
		}
		if size > limit {
			t.Fatalf("reply has %d octets, more than %d:\n%v", size, limit, &m)
		}
	}
	if (q.IsEdns0() != nil) != (m.IsEdns0() != nil) {
		t.Fatalf("an OPT in the reply if and only if there is one in the query:\n%v\n%v", q, &m)
	}
	return &m
}

func question(name string, typ uint16) *dns.Msg {
	return new(dns.Msg).SetQuestion(name, typ)
}

func TestRespond(t *testing.T) {
	r := newResponder(cluster(t))
	for _, c := range []struct {
		what, name         string
		typ                uint16
		rcode              int
		answers, authority int
		extra              int
		has                string
	}{
		{"every address", "web.shop.registry.local.", dns.TypeA, dns.RcodeSuccess, 10, 0, 0, "10.0.0.10"},
		{"the asker's spelling", "WEB.shop.Registry.local.", dns.TypeA, dns.RcodeSuccess, 10, 0, 0, "WEB.shop.Registry.local."},
		{"other family", "web.shop.registry.local.", dns.TypeAAAA, dns.RcodeSuccess, 0, 1, 0, "hostmaster.registry.local."},
		{"SRV with its addresses", "_http._tcp.web.shop.registry.local.", dns.TypeSRV, dns.RcodeSuccess, 10, 0, 10, "10-0-0-1.web.shop.registry.local."},
		{"SRV at the Service", "one.shop.registry.local.", dns.TypeSRV, dns.RcodeSuccess, 1, 0, 1, "one-0.one.shop.registry.local."},
		{"A at a port name", "_http._tcp.web.shop.registry.local.", dns.TypeA, dns.RcodeSuccess, 0, 1, 0, ""},
		{"above a port name", "_tcp.web.shop.registry.local.", dns.TypeSRV, dns.RcodeSuccess, 0, 1, 0, ""},
		{"other protocol", "_udp.web.shop.registry.local.", dns.TypeSRV, dns.RcodeNameError, 0, 1, 0, ""},
		{"a port without underscore", "http._tcp.web.shop.registry.local.", dns.TypeSRV, dns.RcodeNameError, 0, 1, 0, ""},
		{"by host name", "one-0.one.shop.registry.local.", dns.TypeAAAA, dns.RcodeSuccess, 1, 0, 0, "2001:db8::1"},
		{"by address", "10-0-0-3.web.shop.registry.local.", dns.TypeA, dns.RcodeSuccess, 1, 0, 0, "10.0.0.3"},
		{"by IPv6 address", "2001-db8--1.one.shop.registry.local.", dns.TypeAAAA, dns.RcodeSuccess, 1, 0, 0, "2001:db8::1"},
		{"another spelling of it", "2001-db8-0-0-0-0-0-1.one.shop.registry.local.", dns.TypeAAAA, dns.RcodeSuccess, 1, 0, 0, "2001:db8::1"},
		{"an address that is not there", "10-0-0-99.web.shop.registry.local.", dns.TypeA, dns.RcodeNameError, 0, 1, 0, ""},
		{"nothing published", "empty.shop.registry.local.", dns.TypeA, dns.RcodeSuccess, 0, 1, 0, ""},
		{"a namespace", "shop.registry.local.", dns.TypeA, dns.RcodeSuccess, 0, 1, 0, ""},
		{"no such Service", "nope.shop.registry.local.", dns.TypeA, dns.RcodeNameError, 0, 1, 0, ""},
		{"no such namespace", "web.nope.registry.local.", dns.TypeA, dns.RcodeNameError, 0, 1, 0, ""},
		{"alias, followed", "alias.shop.registry.local.", dns.TypeA, dns.RcodeSuccess, 11, 0, 0, "10.0.0.7"},
		{"alias, followed to SRV", "alias.shop.registry.local.", dns.TypeSRV, dns.RcodeSuccess, 11, 0, 10, ""},
		{"alias itself", "alias.shop.registry.local.", dns.TypeCNAME, dns.RcodeSuccess, 1, 0, 0, "web.shop.registry.local."},
		{"alias, no such type at its target", "alias.shop.registry.local.", dns.TypeAAAA, dns.RcodeSuccess, 1, 1, 0, ""},
		{"alias that leads out", "out.shop.registry.local.", dns.TypeA, dns.RcodeSuccess, 1, 0, 0, "example.com."},
		{"alias that leads to itself", "loop.shop.registry.local.", dns.TypeA, dns.RcodeSuccess, 1, 0, 0, ""},
		{"below an alias", "x.alias.shop.registry.local.", dns.TypeA, dns.RcodeNameError, 0, 1, 0, ""},
		{"apex", "registry.local.", dns.TypeSOA, dns.RcodeSuccess, 1, 0, 0, "1800000000"},
		{"name server with its address", "registry.local.", dns.TypeNS, dns.RcodeSuccess, 1, 0, 1, "ns.dns.registry.local."},
		{"address of the name server", "ns.dns.registry.local.", dns.TypeA, dns.RcodeSuccess, 1, 0, 0, "192.0.2.53"},
		{"above it", "dns.registry.local.", dns.TypeA, dns.RcodeSuccess, 0, 1, 0, ""},
		{"version of the schema", "dns-version.registry.local.", dns.TypeTXT, dns.RcodeSuccess, 1, 0, 0, "1.1.0"},
		{"type ANY", "web.shop.registry.local.", dns.TypeANY, dns.RcodeSuccess, 1, 0, 0, "RFC8482"},
		{"PTR", "3.0.0.10.in-addr.arpa.", dns.TypePTR, dns.RcodeSuccess, 1, 0, 0, "10-0-0-3.web.shop.registry.local."},
		{"PTR to a host name", "7.1.0.10.in-addr.arpa.", dns.TypePTR, dns.RcodeSuccess, 1, 0, 0, "pod-of-a-stateful-set-6.big.shop.registry.local."},
		{"PTR outside the reverse zones", "1.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", dns.TypePTR, dns.RcodeSuccess, 1, 0, 0, "one-0.one.shop.registry.local."},
		{"unknown address outside", "2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", dns.TypePTR, dns.RcodeRefused, 0, 0, 0, ""},
		{"unknown address inside", "250.0.0.10.in-addr.arpa.", dns.TypePTR, dns.RcodeNameError, 0, 1, 0, "10.in-addr.arpa."},
		{"above addresses", "0.0.10.in-addr.arpa.", dns.TypePTR, dns.RcodeSuccess, 0, 1, 0, ""},
		{"above no address", "9.10.in-addr.arpa.", dns.TypePTR, dns.RcodeNameError, 0, 1, 0, ""},
		{"no octet", "x.10.in-addr.arpa.", dns.TypePTR, dns.RcodeNameError, 0, 1, 0, ""},
		{"below an address", "1.3.0.0.10.in-addr.arpa.", dns.TypePTR, dns.RcodeNameError, 0, 1, 0, ""},
		{"reverse apex", "10.in-addr.arpa.", dns.TypeSOA, dns.RcodeSuccess, 1, 0, 0, "hostmaster.registry.local."},
		{"another zone", "example.com.", dns.TypeA, dns.RcodeRefused, 0, 0, 0, ""},
		{"the parent zone", "local.", dns.TypeSOA, dns.RcodeRefused, 0, 0, 0, ""},
		{"the root", ".", dns.TypeNS, dns.RcodeRefused, 0, 0, 0, ""},
		{"too many labels", "a.b.c.d.web.shop.registry.local.", dns.TypeA, dns.RcodeNameError, 0, 1, 0, ""},
		{"a transfer over UDP", "registry.local.", dns.TypeAXFR, dns.RcodeNotImplemented, 0, 0, 0, ""},
		{"IXFR without a serial", "registry.local.", dns.TypeIXFR, dns.RcodeFormatError, 0, 0, 0, ""},
	} {
		t.Run(c.what, func(t *testing.T) {
			for _, size := range []uint16{0, 1232} {
				q := question(c.name, c.typ)
				extra := c.extra
				if size > 0 {
					q.SetEdns0(size, true)
					extra++
				} else if c.extra > 1 {
					extra = -1 // what fits into 512 octets
				}
				m := respond(t, r, q, UDP)
				if m.Truncated && size == 0 {
					continue // the larger one is checked
				}
				if m.Rcode != c.rcode || len(m.Answer) != c.answers || len(m.Ns) != c.authority || extra >= 0 && len(m.Extra) != extra || m.Truncated {
					t.Fatalf("want rcode %s and %d, %d, %d records:\n%v", dns.RcodeToString[c.rcode], c.answers, c.authority, extra, m)
				}
				if !strings.Contains(m.String(), c.has) {
					t.Fatalf("%q is missing:\n%v", c.has, m)
				}
				if aa := c.rcode == dns.RcodeSuccess || c.rcode == dns.RcodeNameError; m.Authoritative != aa {
					t.Fatalf("AA must be %v:\n%v", aa, m)
				}
			}
		})
	}
}

func TestCut(t *testing.T) {
	r := newResponder(cluster(t))
	t.Run("A without EDNS", func(t *testing.T) {
		m := respond(t, r, question("big.shop.registry.local.", dns.TypeA), UDP)
		if !m.Truncated || len(m.Answer) != (512-12-len("big.shop.registry.local.")-1-4)/16 {
			t.Fatalf("TC and as many as fit, not %d:\n%v", len(m.Answer), m)
		}
	})
	t.Run("SRV and no address", func(t *testing.T) {
		q := question("_http._tcp.big.shop.registry.local.", dns.TypeSRV)
		q.SetEdns0(4096, false)
		m := respond(t, r, q, UDP)
		if !m.Truncated || len(m.Answer) < 10 || len(m.Extra) != 1 || len(m.Ns) != 0 {
			t.Fatalf("%v", m)
		}
	})
	t.Run("the whole over TCP", func(t *testing.T) {
		m := respond(t, r, question("_http._tcp.big.shop.registry.local.", dns.TypeSRV), TCP)
		if m.Truncated || len(m.Answer) != 200 || len(m.Extra) != 200 {
			t.Fatalf("%d, %d records, TC %v", len(m.Answer), len(m.Extra), m.Truncated)
		}
		// Past 16 KiB no pointer reaches, and the owner is written out.
		seen := map[string]bool{}
		for _, rr := range m.Extra {
			seen[rr.Header().Name] = true
		}
		for _, rr := range m.Answer {
			if !seen[rr.(*dns.SRV).Target] {
				t.Fatalf("no address for %v", rr)
			}
		}
	})
	t.Run("addresses in every size over TCP", func(t *testing.T) {
		for size := 500; size <= 1300; size++ {
			q := question("_http._tcp.web.shop.registry.local.", dns.TypeSRV)
			q.SetEdns0(uint16(size), false)
			msg, err := q.Pack()
			if err != nil {
				t.Fatal(err)
			}
			reply := r.Respond(nil, msg, client, Via{TCP, local})
			var m dns.Msg
			if err := m.Unpack(reply); err != nil {
				t.Fatalf("size %d: %v: %x", size, err, reply)
			}
			const sizeA = 16
			n := len(m.Extra) - 1 // there is an OPT
			fit := (max(size, 512) - (len(reply) - n*sizeA)) / sizeA
			if m.Truncated || len(m.Answer) != 10 || n != max(0, min(fit, 10)) {
				t.Fatalf("size %d: TC %v, %d answers, %d addresses where %d fit", size, m.Truncated, len(m.Answer), n, fit)
			}
		}
	})
	t.Run("every size", func(t *testing.T) {
		for size := uint16(512); size <= 1300; size++ {
			q := question("_http._tcp.web.shop.registry.local.", dns.TypeSRV)
			q.SetEdns0(size, false)
			m := respond(t, r, q, UDP)
			if m.Truncated != (len(m.Answer) < 10) || m.Truncated && len(m.Extra) > 1 {
				t.Fatalf("size %d: TC is %v with %d answers", size, m.Truncated, len(m.Answer))
			}
		}
	})
}

func TestNotSynced(t *testing.T) {
	b, err := zones.NewBuilder(zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}, Reverse: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	store := &zones.Store{}
	store.Publish(b.Last())
	r := newResponder(store)
	for name, want := range map[string]struct {
		rcode int
		ede   uint16
	}{
		"web.shop.registry.local.": {dns.RcodeServerFailure, dns.ExtendedErrorCodeNotReady},
		"registry.local.":          {dns.RcodeServerFailure, dns.ExtendedErrorCodeNotReady},
		"1.0.0.10.in-addr.arpa.":   {dns.RcodeServerFailure, dns.ExtendedErrorCodeNotReady},
		"1.2.0.192.in-addr.arpa.":  {dns.RcodeRefused, dns.ExtendedErrorCodeNotAuthoritative},
		"example.com.":             {dns.RcodeRefused, dns.ExtendedErrorCodeNotAuthoritative},
	} {
		q := question(name, dns.TypeA)
		q.SetEdns0(1232, false)
		m := respond(t, r, q, UDP)
		if m.Rcode != want.rcode || len(m.Answer)+len(m.Ns) > 0 || m.Authoritative {
			t.Errorf("%s: want %s:\n%v", name, dns.RcodeToString[want.rcode], m)
		}
		if o := m.IsEdns0(); len(o.Option) != 1 || o.Option[0].(*dns.EDNS0_EDE).InfoCode != want.ede {
			t.Errorf("%s: want EDE %d:\n%v", name, want.ede, m)
		}
	}
}

func FuzzRespond(f *testing.F) {
	r := newResponder(cluster(f))
	r.shared = everything
	for _, c := range []struct {
		name string
		typ  uint16
	}{{"web.shop.registry.local.", dns.TypeA}, {"_http._tcp.big.shop.registry.local.", dns.TypeSRV}, {"3.0.0.10.in-addr.arpa.", dns.TypePTR},
		{"alias.shop.registry.local.", dns.TypeAAAA}, {"2001-db8--1.one.shop.registry.local.", dns.TypeANY}, {"registry.local.", dns.TypeIXFR}} {
		q := question(c.name, c.typ)
		msg, _ := q.Pack()
		f.Add(msg)
		q.SetEdns0(700, true)
		msg, _ = q.Pack()
		f.Add(msg)
	}
	for _, o := range everyOption {
		f.Add(o.in)
	}
	f.Add(query1(0, webA, tsigRecord("secondary.key.")))
	f.Fuzz(func(t *testing.T, msg []byte) {
		for _, transport := range []Transport{UDP, TCP, TLS} {
			out := r.Respond(nil, msg, client, Via{transport, local})
			if len(out) == 0 {
				if len(msg) >= 12 && msg[2]&0x80 == 0 {
					t.Fatalf("no reply to %x", msg)
				}
				continue
			}
			var m dns.Msg
			if err := m.Unpack(out); err != nil {
				t.Fatalf("query %x: reply %x: %v", msg, out, err)
			}
			if transport == UDP && len(out) > defaultUDPSize || len(out) > maxTCPSize {
				t.Fatalf("query %x: reply of %d octets", msg, len(out))
			}
			if m.Id != uint16(msg[0])<<8|uint16(msg[1]) || !m.Response {
				t.Fatalf("query %x: reply %x", msg, out)
			}
		}
	})
}
