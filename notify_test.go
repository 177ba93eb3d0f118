package epdns_test

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// TestNotifySecondary: who is configured hears of each zone once it is served, and of
// each change.
func TestNotifySecondary(t *testing.T) {
	t.Parallel()
	secondary, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer secondary.Close()
	secondary.SetDeadline(time.Now().Add(grace))

	// hear answers two messages that tell of a serial above this one, and of one serial.
	hear := func(above uint32) (serial uint32) {
		t.Helper()
		var told []string
		in := make([]byte, 1024)
		for len(told) < 2 {
			n, from, err := secondary.ReadFromUDPAddrPort(in)
			if err != nil {
				t.Fatal(err)
			}
			var m dns.Msg
			if err := m.Unpack(in[:n]); err != nil {
				t.Fatal(err)
			}
			reply, err := new(dns.Msg).SetReply(&m).Pack()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := secondary.WriteToUDPAddrPort(reply, from); err != nil {
				t.Fatal(err)
			}
			if m.Opcode != dns.OpcodeNotify || len(m.Answer) != 1 {
				t.Fatalf("it says\n%v", &m)
			}
			serial = m.Answer[0].(*dns.SOA).Serial
			if above != 0 && int32(serial-above) <= 0 || slices.Contains(told, m.Question[0].Name) { // repeated, if this is a slow machine
				continue
			}
			told = append(told, m.Question[0].Name)
		}
		slices.Sort(told)
		if want := []string{ten, zone}; !slices.Equal(told, want) {
			t.Fatalf("it tells of %q, expected %q", told, want)
		}
		return serial
	}

	dir := writeService(t, t.TempDir(), "shop", "late", "10.3.0.1")
	p := serve(t, "--manifests", dir, "--reverse", "10.0.0.0/8",
		"--config", settings(t, fmt.Sprintf("transfer: {notify: [%q]}\n", secondary.LocalAddr())))
	first := hear(0)
	if soa := transferred(t, p, zone, "AXFR")[0].(*dns.SOA).Serial; soa != first {
		t.Errorf("it tells of serial %d and has %d", first, soa)
	}
	writeService(t, dir, "shop", "late", "10.3.0.1", "10.3.0.2")
	second := hear(first)
	if soa := transferred(t, p, zone, "AXFR")[0].(*dns.SOA).Serial; soa != second {
		t.Errorf("it tells of serial %d and has %d", second, soa)
	}
	p.logged(t, "a secondary acknowledges NOTIFY", secondary.LocalAddr().String(), zone)
}
