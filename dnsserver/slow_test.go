package dnsserver

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// slowClients are those who hold connections without asking anything worth it.
var slowClients = []struct {
	what string
	do   func(c net.Conn, query []byte)
}{
	{"says nothing", func(net.Conn, []byte) {}},
	{"half a length", func(c net.Conn, query []byte) { c.Write(query[:1]) }},
	{"half a header", func(c net.Conn, query []byte) { c.Write(query[:8]) }},
	{"never reads", func(c net.Conn, query []byte) {
		c.(*net.TCPConn).SetReadBuffer(1)
		for range 200 { // whose replies no buffer holds
			if _, err := c.Write(query); err != nil {
				return
			}
		}
	}},
	{"an octet now and then", func(c net.Conn, query []byte) {
		for i := range query {
			if _, err := c.Write(query[i : i+1]); err != nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
	}},
	{"a length that is too long", func(c net.Conn, _ []byte) { c.Write([]byte{0xff, 0xff, 0}) }},
}

// However many connections there are that only hold room, from one address or from many,
// one who asks is answered in a moment, over UDP as well, and there are no more than the
// limit.
func TestSlowClients(t *testing.T) {
	const total, perSource = 32, 8
	for _, slow := range slowClients {
		for _, sources := range []int{1, 50} {
			t.Run(fmt.Sprintf("%s, from %d", slow.what, sources), func(t *testing.T) {
				s := start(t, Config{TCP: TCPConfig{Total: total, PerSource: perSource, Write: 300 * time.Millisecond}})
				query := framed(t, question("registry.local.", dns.TypeAXFR))
				for i := range 2 * total {
					c := connect(t, s, netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + i%sources)}))
					go slow.do(c, query)
				}
				if n := s.tcp.open.Load(); n > total {
					t.Errorf("%d connections, %d are allowed", n, total)
				}
				var overTCP, overUDP []time.Duration
				for range 5 {
					began := time.Now()
					c := connect(t, s, netip.MustParseAddr("127.0.2.1"))
					c.Write(framed(t, question("web.shop.registry.local.", dns.TypeA)))
					if m := read(t, c); len(m.Answer) != 10 {
						t.Fatalf("%v", m)
					}
					overTCP = append(overTCP, time.Since(began))
				}
				c, err := net.Dial("udp", s.Addrs()[0].String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				for range 20 {
					began := time.Now()
					c.Write(webA0)
					c.SetReadDeadline(began.Add(patience))
					if _, err := c.Read(make([]byte, 1500)); err != nil {
						t.Fatalf("over UDP: %v", err)
					}
					overUDP = append(overUDP, time.Since(began))
				}
				for _, took := range [][]time.Duration{overTCP, overUDP} {
					// One of them may have met a packet that the kernel had no room for.
					if slices.Sort(took); took[len(took)/2] > time.Second {
						t.Errorf("who asks waits for %v", took)
					}
				}
				if slow.what == "never reads" {
					until(t, "those who do not read are cut off", func() bool { return s.tcp.open.Load() < total/2 })
				}
			})
		}
	}
}

// connect opens a connection from an address.
func connect(t *testing.T, s *Server, source netip.Addr) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: source.AsSlice()}, Timeout: patience}
	c, err := d.Dial("tcp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
