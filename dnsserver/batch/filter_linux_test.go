package batch

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// Of what comes from the prefixes one in so many passes, and all that comes from elsewhere.
func TestThinFrom(t *testing.T) {
	for _, c := range []struct {
		network, at, to string
		prefixes        string
		in, out         string // who sends
	}{
		{"udp4", "127.0.0.1:0", "127.0.0.1", "127.3.1.0/24 10.0.0.0/8 127.3.2.16/28 127.3.4.5/32",
			"127.3.1.0 127.3.1.255 127.3.2.16 127.3.2.31 127.3.4.5", "127.3.0.255 127.3.2.15 127.3.2.32 127.3.4.4 127.4.1.1"},
		{"udp", ":0", "127.0.0.1", "2001:db8::/56 127.3.1.0/24 ::1/128", "127.3.1.7", "127.0.0.1 127.3.2.7"},
		{"udp", ":0", "::1", "127.0.0.0/8 2001:db8::/56 ::/56", "::1", ""},
		{"udp6", "[::1]:0", "::1", "127.0.0.0/8 ::1/128", "::1", ""},
		{"udp6", "[::1]:0", "::1", "::2/127 0:1::/56 0:0:0:100::/56 0:0:0:0:1::/80 0.0.0.0/0", "", "::1"},
		{"udp4", "127.0.0.1:0", "127.0.0.1", "::/0", "", "127.0.0.1"},
		{"udp4", "127.0.0.1:0", "127.0.0.1", "::/0 0.0.0.0/0", "127.0.0.1 127.200.0.1", ""},
	} {
		each(t, Options{}, func(t *testing.T, o Options) {
			s := listen(t, c.network, c.at, o)
			to := netip.AddrPortFrom(netip.MustParseAddr(c.to), s.LocalAddr().Port())
			var prefixes []netip.Prefix
			for text := range strings.FieldsSeq(c.prefixes) {
				prefixes = append(prefixes, netip.MustParsePrefix(text))
			}
			const n, share = 800, 3
			passed := func(from string, share uint) (got int) {
				t.Helper()
				sender, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, net.UDPAddrFromAddrPort(to))
				if err != nil {
					t.Fatal(err)
				}
				defer sender.Close()
				if err := s.Thin(prefixes, share); err != nil {
					t.Fatal(err)
				}
				for sent := 1; ; sent++ {
					send(t, sender, "query")
					if sent%100 != 0 { // for which there is room everywhere
						continue
					}
					if err := s.Thin(nil, 0); err != nil {
						t.Fatal(err)
					}
					send(t, sender, "last")
					for last := false; !last; {
						messages, err := s.Receive()
						if err != nil {
							t.Fatal(err)
						}
						for _, m := range messages {
							if last = string(m.Data) == "last"; !last {
								got++
							}
						}
					}
					if sent == n {
						return got
					}
					if err := s.Thin(prefixes, share); err != nil {
						t.Fatal(err)
					}
				}
			}
			for from := range strings.FieldsSeq(c.in) {
				if got := passed(from, share); got < n/16 || got > n/5 { // the mean is 100, and 9.4 its deviation
					t.Errorf("of %s: %d of %d pass from %s, want one in 8", c.prefixes, got, n, from)
				}
				if got := passed(from, 0); got != n {
					t.Errorf("of %s: %d of %d pass from %s with a share of 0", c.prefixes, got, n, from)
				}
			}
			for from := range strings.FieldsSeq(c.out) {
				if got := passed(from, share); got != n {
					t.Errorf("of %s: %d of %d pass from %s", c.prefixes, got, n, from)
				}
			}
			s.Close()
			if err := s.Thin(prefixes, share); !errors.Is(err, net.ErrClosed) {
				t.Errorf("a closed socket takes a filter: %v", err)
			}
		})
	}
}
