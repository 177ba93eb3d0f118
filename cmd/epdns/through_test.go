package main

import (
	"bytes"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

func TestSoftwareOf(t *testing.T) {
	for _, c := range []struct{ at, version, want string }{
		{"10.96.0.10", "unbound 1.17.1", isUnbound},
		{"10.96.0.10", "dnsmasq-2.90", isDnsmasq},
		{"10.96.0.10", "CoreDNS-1.15.0", isCoreDNS},
		{"10.96.0.10", "9.18.49-1~deb12u3-Debian", isBIND},
		{"10.96.0.10", "BIND 9.20.1", isBIND},
		{"10.96.0.10", "Knot Resolver 6.0.9", isKnot},
		{"10.96.0.10", "epdns v1.0.0", isEpdns},
		{"10.96.0.10", "my unbound", ""},
		{"10.96.0.10", "", ""},
		{"169.254.20.10", "", isNodeLocal},
		{"169.254.20.10", "unbound 1.17.1", isUnbound},
		{"127.0.0.53", "", isResolved},
	} {
		if got := softwareOf(netip.MustParseAddr(c.at), c.version); got != c.want {
			t.Errorf("%q at %s is %q, want %q", c.version, c.at, got, c.want)
		}
	}
}

// Whatever is found, of whatever software, there is something to do, with the zone's name.
func TestRemedies(t *testing.T) {
	for a := noRoute; a <= subnetsMixed; a++ {
		for _, software := range []string{"", isCoreDNS, isUnbound, isBIND, isDnsmasq, isKnot, isResolved, isNodeLocal, isEpdns} {
			text := remedy(a, software, "cluster.example.")
			if text == "" || strings.Contains(text, "ZONE") || strings.Contains(text, "example.\"") {
				t.Errorf("ailment %d of %q: %q", a, software, text)
			}
		}
	}
	if text := remedy(ttlRaised, isNodeLocal, "registry.local"); !strings.Contains(text, "stub domains") {
		t.Errorf("of NodeLocal DNSCache: %q", text)
	}
	if text := remedy(servedStale, isNodeLocal, "registry.local"); text != remedies[servedStale][isCoreDNS] {
		t.Errorf("NodeLocal DNSCache is made of CoreDNS, and it is %q", text)
	}
}

// What an answer should have had for long enough, and should not have any more.
func TestHistory(t *testing.T) {
	begin := time.Unix(1e9, 0)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	var h history
	h.note([]string{"a", "b"}, at(0))
	h.note([]string{"a", "b"}, at(3))
	h.note([]string{"b", "c"}, at(4))
	h.note([]string{"b", "c"}, at(20))
	for _, c := range []struct {
		records string
		asked   int
		stale   string
		missing string
	}{
		{"b c", 5, "", ""},
		{"a b", 5, "", ""},     // as it was
		{"a b", 8, "", ""},     // cached just before
		{"a b", 10, "a", "c"},  // for longer than it may be
		{"b", 10, "", "c"},     // less than there is
		{"b c x", 5, "", ""},   // from before the begin
		{"b c x", 10, "x", ""}, // from nowhere
		{"x", 30, "x", "b c"},
	} {
		stale, missing := h.differences(strings.Fields(c.records), at(c.asked), begin, 5*time.Second)
		if !slices.Equal(stale, strings.Fields(c.stale)) || !slices.Equal(missing, strings.Fields(c.missing)) {
			t.Errorf("%s after %d s: stale %q, missing %q, want %q and %q", c.records, c.asked, stale, missing, c.stale, c.missing)
		}
	}
}

// HAProxy's weights, and which of ours are one of them.
func TestSameWeights(t *testing.T) {
	for _, c := range []struct {
		weights []uint16
		want    string
	}{
		{nil, ""},
		{[]uint16{1}, ""},
		{[]uint16{1, 3}, "the weights 1 and 3 are both 1;"},
		{[]uint16{256, 257}, ""},
		{[]uint16{256, 512, 768}, ""},
		{[]uint16{256, 257, 300}, "the weights 257 and 300 are both 2;"},
		{[]uint16{65281, 65535}, "the weights 65281 and 65535 are both 256;"},
	} {
		if got := sameWeightsText(c.weights); got == "" != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%d: %q, want %q", c.weights, got, c.want)
		}
	}
}

// FuzzThrough: whatever a server sends, as datagrams or on a connection, is a reply to the
// question or none, and is judged; what is printed is lines.
func FuzzThrough(f *testing.F) {
	m := newQuery("web.shop.registry.local.", dns.TypeSRV)
	m.Id = 1
	query, err := m.Pack()
	if err != nil {
		f.Fatal(err)
	}
	want := new(dns.Msg).SetReply(m)
	for i := range 3 {
		srv, err := dns.NewRR(fmt.Sprintf("web.shop.registry.local. 5 SRV 0 1 80 a%d.web.shop.registry.local.", i))
		if err != nil {
			f.Fatal(err)
		}
		want.Answer = append(want.Answer, srv)
	}
	wire, err := want.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(wire)
	f.Add(wire[:40])
	f.Add(query)
	f.Fuzz(func(t *testing.T, data []byte) {
		sent := false
		reply, err := firstReply(query, func(b []byte) (int, error) {
			if sent {
				return 0, io.EOF
			}
			sent = true
			return copy(b, data), nil
		})
		if (reply == nil) == (err == nil) {
			t.Fatalf("%v, %v", reply, err)
		}
		framed := append([]byte{byte(len(data) >> 8), byte(len(data))}, data...)
		if again, err := readStream(query, bytes.NewReader(framed)); len(data) <= dns.MaxMsgSize && (again == nil) != (reply == nil) {
			t.Fatalf("over TCP %v, %v, over UDP %v", again, err, reply)
		}
		if reply == nil {
			return
		}
		var out bytes.Buffer
		w := &way{out: &out, truth: &truth{}, told: map[string]bool{}, zone: "registry.local"}
		s := &subject{name: "web.shop.registry.local.", qtype: dns.TypeSRV}
		w.recognize(reply)
		if w.checkStatus(s, reply, want) {
			w.checkTTL(s, reply, want)
		}
		s.history.note(recordSet(want), time.Unix(0, 0))
		s.history.differences(recordSet(reply), time.Now(), time.Unix(0, 0), time.Second)
		for line := range strings.Lines(out.String()) {
			if !strings.Contains(line, "web.shop.registry.local SRV: ") || strings.ContainsFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Errorf("%q is printed", line)
			}
		}
	})
}

// A Service may lose its endpoints while it is looked at.
func TestReverseOf(t *testing.T) {
	p := samplePipeline(t)
	truth := newTruth(p.zones, nil)
	for name, want := range map[string]string{
		"jobs.shop.registry.local.":    "41.1.244.10.in-addr.arpa.",
		"nothing.shop.registry.local.": "",
		"api.shop.example.":            "", // of no zone
	} {
		if got := truth.reverseOf(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestIsPrivate(t *testing.T) {
	for address, want := range map[string]bool{"10.1.2.3": true, "100.64.0.1": true, "100.127.255.255": true, "100.128.0.1": false, "192.0.2.1": false, "fd00::1": true, "2001:db8::1": false} {
		m := new(dns.Msg)
		kind := "A"
		if strings.Contains(address, ":") {
			kind = "AAAA"
		}
		rr, err := dns.NewRR("web.shop.registry.local. 5 IN " + kind + " " + address)
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
		if got := isPrivate(m); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}
