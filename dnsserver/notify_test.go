package dnsserver

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"epdns/zones"
)

// primary is a Server as far as NOTIFY goes: Sets, of which each has the next serial.
type primary struct {
	zones.Store
	builder *zones.Builder
	serial  uint32 // of the first Set
}

func newPrimary(t *testing.T, reverse ...netip.Prefix) *primary {
	t.Helper()
	b, err := zones.NewBuilder(zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}, Reverse: reverse})
	if err != nil {
		t.Fatal(err)
	}
	p := &primary{builder: b, serial: uint32(time.Now().Unix())}
	p.Publish(b.Last())
	return p
}

// publish publishes a Set. A second must have passed since the last one.
func (p *primary) publish() { p.Publish(p.builder.Build(nil, time.Now())) }

// A scripted secondary answers the n-th message with what its script says.
type scripted struct {
	t     *testing.T
	began time.Time
	first uint32
	reply func(n int, notify []byte) [][]byte

	mu    sync.Mutex
	heard []string // when, and which serial counted from the first
}

func (s *scripted) dial(context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		in := make([]byte, 1024)
		n, err := theirs.Read(in)
		if err != nil {
			return
		}
		var m dns.Msg
		if err := m.Unpack(in[:n]); err != nil {
			s.t.Errorf("%x: %v", in[:n], err)
			return
		}
		s.mu.Lock()
		s.heard = append(s.heard, fmt.Sprintf("%v #%d", time.Since(s.began), m.Answer[0].(*dns.SOA).Serial-s.first))
		replies := s.reply(len(s.heard), in[:n])
		s.mu.Unlock()
		for _, r := range replies {
			if _, err := theirs.Write(r); err != nil {
				return
			}
		}
		theirs.Read(in) // until it is closed
	}()
	return ours, nil
}

// answered is a reply to a NOTIFY with that RCODE.
func answered(notify []byte, rcode byte) []byte {
	out := bytes.Clone(notify[:headerSize])
	out[2] |= flagQR >> 8
	out[3] |= rcode
	out[7] = 0
	n, _ := skipName(notify[headerSize:])
	return append(out, notify[headerSize:headerSize+n+4]...)
}

// changed is a reply with an octet of another value, counted from the end if below 0.
func changed(notify []byte, at int) []byte {
	out := answered(notify, 0)
	if at < 0 {
		at += len(out)
	}
	out[at] ^= 1
	return out
}

// When a secondary hears of what, as it answers.
func TestNotifyTimes(t *testing.T) {
	always := func(rcode byte) func(int, []byte) [][]byte {
		return func(_ int, notify []byte) [][]byte { return [][]byte{answered(notify, rcode)} }
	}
	from := func(first int, before func([]byte) [][]byte) func(int, []byte) [][]byte {
		return func(n int, notify []byte) [][]byte {
			if n < first {
				return before(notify)
			}
			return [][]byte{answered(notify, 0)}
		}
	}
	silence := func([]byte) [][]byte { return nil }
	const heeds, silent, refused = "a secondary acknowledges NOTIFY", "a secondary does not answer NOTIFY", "a secondary does not accept NOTIFY"
	for _, c := range []struct {
		what    string
		changes []int // when the serial moves, in seconds
		reply   func(n int, notify []byte) [][]byte
		want    []string
		logged  []string
		counts  [3]uint64 // sent, acknowledged, failed
	}{
		{"the first serial is told once", []int{0}, always(0), []string{"0s #0"}, []string{heeds}, [3]uint64{1, 1, 0}},
		{"and so is each that comes alone", []int{0, 60, 200}, always(0), []string{"0s #0", "1m0s #60", "3m20s #200"}, []string{heeds}, [3]uint64{3, 3, 0}},
		{"of many the newest one, and the last one", []int{0, 1, 2, 3, 4, 6, 7, 8}, always(0), []string{"0s #0", "5s #4", "10s #8"}, []string{heeds}, [3]uint64{3, 3, 0}},
		{"two are lost", []int{0}, from(3, silence), []string{"0s #0", "1s #0", "3s #0"}, []string{heeds}, [3]uint64{3, 1, 0}},
		{"nobody there", []int{0}, from(99, silence), []string{"0s #0", "1s #0", "3s #0", "7s #0", "15s #0"}, []string{silent}, [3]uint64{5, 0, 1}},
		{"nobody there, and changes go on", []int{0, 2, 9, 20}, from(99, silence),
			[]string{"0s #0", "1s #0", "3s #2", "7s #2", "15s #9", "31s #20", "32s #20", "34s #20", "38s #20", "46s #20"}, []string{silent}, [3]uint64{10, 0, 2}},
		{"silent, then there", []int{0, 60}, from(6, silence), []string{"0s #0", "1s #0", "3s #0", "7s #0", "15s #0", "1m0s #60"}, []string{silent, heeds}, [3]uint64{6, 1, 1}},
		{"a newer serial while one is told", []int{0, 2}, from(3, silence), []string{"0s #0", "1s #0", "3s #2"}, []string{heeds}, [3]uint64{3, 1, 0}},
		{"refused is heard, and said once", []int{0, 10, 20}, always(5), []string{"0s #0", "10s #10", "20s #20"}, []string{refused + " REFUSED"}, [3]uint64{3, 0, 3}},
		{"another refusal", []int{0, 10, 20}, func(n int, notify []byte) [][]byte { return [][]byte{answered(notify, []byte{5, 9, 0}[n-1])} },
			[]string{"0s #0", "10s #10", "20s #20"}, []string{refused + " REFUSED", refused + " NOTAUTH", heeds}, [3]uint64{3, 1, 2}},
		{"another ID, no reply, another opcode, another name, another type: not heard", []int{0}, from(2, func(notify []byte) [][]byte {
			return [][]byte{changed(notify, 0), notify, changed(notify, 2)[:headerSize], {}, {1, 2, 3},
				append(bytes.Clone(notify[:2]), 0x84, 0, 0, 0, 0, 0, 0, 0, 0, 0), changed(notify, 15), changed(notify, -3)}
		}), []string{"0s #0", "1s #0"}, []string{heeds}, [3]uint64{2, 1, 0}},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPrimary(t)
				s := &scripted{t: t, began: time.Now(), first: p.serial, reply: c.reply}
				var log bytes.Buffer
				server := New(p, slog.New(slog.NewTextHandler(&log, nil)))
				server.setNotifiers(newNotifiers(server, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.54:53")}, nil))
				all := *server.notifiers.Load()
				if len(all) != 1 {
					t.Fatalf("%d notifiers", len(all))
				}
				n := all[0]
				n.dial = s.dial
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { n.run(ctx); close(done) }()
				server.Changed() // not synced: nothing to tell
				synctest.Wait()
				for _, at := range c.changes {
					time.Sleep(time.Until(s.began.Add(time.Duration(at) * time.Second)))
					p.publish()
					server.Changed()
				}
				time.Sleep(time.Hour)
				stop()
				<-done
				synctest.Wait()

				s.mu.Lock()
				defer s.mu.Unlock()
				if !slices.Equal(s.heard, c.want) {
					t.Errorf("heard %q\nwant  %q", s.heard, c.want)
				}
				lines := strings.Split(strings.TrimSpace(log.String()), "\n")
				if len(lines) != len(c.logged) {
					t.Fatalf("logged %q, want %q", lines, c.logged)
				}
				for i, line := range lines {
					for _, part := range append(strings.Fields(c.logged[i]), "secondary=192.0.2.54:53", "zone=registry.local.") {
						if !strings.Contains(line, part) {
							t.Errorf("logged %q, want %q", line, c.logged[i])
						}
					}
				}
				stats := [3]uint64{n.counts.sent.Load(), n.counts.acknowledged.Load(), n.counts.failed.Load()}
				if stats != c.counts {
					t.Errorf("counted %v, want %v", stats, c.counts)
				}
			})
		})
	}
}

// Each secondary hears of each zone, and believes what comes from the right address.
func TestNotify(t *testing.T) {
	var secondaries [2]*net.UDPConn
	cfg := Config{Listen: []string{"127.0.0.1:0"}}
	for i := range secondaries {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		secondaries[i] = c
		cfg.Notify = append(cfg.Notify, c.LocalAddr().(*net.UDPAddr).AddrPort())
	}
	p := newPrimary(t, netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::/32"))
	s, err := Listen(cfg, p, quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() { s.Serve(ctx); close(served) }()
	defer func() { stop(); <-served }()
	p.publish()
	s.Changed()

	ids := map[uint16]bool{}
	hear := func(c *net.UDPConn) (msg []byte, m *dns.Msg, from netip.AddrPort) {
		t.Helper()
		in := make([]byte, 1024)
		n, from, err := c.ReadFromUDPAddrPort(in)
		if err != nil {
			t.Fatal(err)
		}
		m = new(dns.Msg)
		if err := m.Unpack(in[:n]); err != nil {
			t.Fatalf("%x: %v", in[:n], err)
		}
		return in[:n], m, from
	}
	var late []byte
	var to netip.AddrPort
	for i, c := range secondaries {
		var told []string
		for len(told) < 3 {
			msg, m, from := hear(c)
			ids[m.Id] = true
			if m.Opcode != dns.OpcodeNotify || !m.Authoritative || m.Response || m.RecursionDesired || m.Rcode != 0 ||
				len(m.Question) != 1 || len(m.Answer) != 1 || len(m.Ns)+len(m.Extra) != 0 || from.Addr() != netip.MustParseAddr("127.0.0.1") {
				t.Fatalf("from %v:\n%v", from, m)
			}
			soa, ok := m.Answer[0].(*dns.SOA)
			q := m.Question[0]
			if q.Qtype != dns.TypeSOA || q.Qclass != dns.ClassINET || !ok || soa.Hdr.Name != q.Name || soa.Serial != p.Load().Serial() {
				t.Fatalf("%v", m)
			}
			if !slices.Contains(told, q.Name) { // or this is a slow machine
				told = append(told, q.Name)
			}
			if i == 1 && q.Name == "registry.local." {
				late, to = bytes.Clone(msg), from
			} else if _, err := c.WriteToUDPAddrPort(answered(msg, 0), from); err != nil {
				t.Fatal(err)
			}
		}
		slices.Sort(told)
		if want := []string{"10.in-addr.arpa.", "8.b.d.0.1.0.0.2.ip6.arpa.", "registry.local."}; !slices.Equal(told, want) {
			t.Errorf("told of %q, want %q", told, want)
		}
	}
	if len(ids) == 1 {
		t.Error("all have one ID")
	}

	// The right answer from another port is none: the message comes again.
	if _, err := secondaries[0].WriteToUDPAddrPort(answered(late, 0), to); err != nil {
		t.Fatal(err)
	}
	for again := false; !again; {
		msg, m, from := hear(secondaries[1])
		again = m.Question[0].Name == "registry.local."
		if _, err := secondaries[1].WriteToUDPAddrPort(answered(msg, 0), from); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "not all is acknowledged", func() bool { return s.Stats().NotifyAcknowledged == 6 })
	if st := s.Stats(); st.NotifySent < 7 || st.NotifyFailed != 0 {
		t.Errorf("%d sent, %d failed", st.NotifySent, st.NotifyFailed)
	}
}

// A message leaves from the address that the secondary knows, if we know it.
func TestNotifySource(t *testing.T) {
	for _, c := range []struct{ listened, to, want string }{
		{"[::]:53", "192.0.2.54", ""},
		{"0.0.0.0:53", "192.0.2.54", ""},
		{"192.0.2.53:53", "192.0.2.54", "192.0.2.53"},
		{"192.0.2.53:53 192.0.2.52:53", "203.0.113.1", "192.0.2.53"},
		{"127.0.0.1:53 [2001:db8::53]:53 192.0.2.53:5300", "192.0.2.54", "192.0.2.53"},
		{"127.0.0.1:53 [2001:db8::53]:53 192.0.2.53:5300", "2001:db8::54", "2001:db8::53"},
		{"127.0.0.1:53 [2001:db8::53]:53 192.0.2.53:5300", "127.0.0.2", "127.0.0.1"},
		{"127.0.0.1:53", "192.0.2.54", ""},
		{"[::1]:53", "127.0.0.1", ""},
	} {
		var listened []netip.AddrPort
		for _, a := range strings.Fields(c.listened) {
			listened = append(listened, netip.MustParseAddrPort(a))
		}
		if got := notifySource(listened, netip.MustParseAddr(c.to)); got.IsValid() != (c.want != "") || got.IsValid() && got.String() != c.want {
			t.Errorf("listening on %s, %s is told from %v, want %q", c.listened, c.to, got, c.want)
		}
	}
}

// An apex so long that its SOA does not fit is told of without.
func TestNotifyLongName(t *testing.T) {
	zone := strings.Repeat("a23456789.", 22) + "local"
	b, err := zones.NewBuilder(zones.Config{Zones: []zones.Zone{zones.DefaultZone(zone)}})
	if err != nil {
		t.Fatal(err)
	}
	store := &zones.Store{}
	store.Publish(b.Build(nil, time.Now()))
	apex, _ := zones.ParseName(zone)
	msg, serial := (&notifier{authority: store, apex: apex}).message()
	var m dns.Msg
	if err := m.Unpack(msg); err != nil || len(msg) > 512 || len(m.Answer) != 0 || m.Question[0].Name != zone+"." || serial != store.Load().Serial() {
		t.Errorf("%d octets, %v\n%v", len(msg), err, &m)
	}
}
