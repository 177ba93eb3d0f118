package batch

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"epdns/internal/freeport"
)

// patience is how long a test waits for what must come.
const patience = 10 * time.Second

// each runs a test both ways, and in batches of several sizes.
func each(t *testing.T, o Options, test func(t *testing.T, o Options)) {
	for _, size := range []int{1, 2, 8, DefaultSize} {
		t.Run("batch "+strconv.Itoa(size), func(t *testing.T) {
			o.Size = size
			test(t, o)
		})
	}
	t.Run("plain", func(t *testing.T) {
		o.Plain = true
		test(t, o)
	})
}

// most is how many messages Receive returns at most.
// place is where to bind, and where to ask.
type place struct {
	network, addr, ask string
	everywhere         bool // bound to all addresses
}

// places leave out what only Linux has: every address of 127.0.0.0/8.
var places = slices.DeleteFunc([]place{
	{"udp4", "127.0.0.1:0", "127.0.0.1", false},
	{"udp6", "[::1]:0", "::1", false},
	{"udp4", "0.0.0.0:0", "127.0.0.1", true},
	{"udp4", "0.0.0.0:0", "127.0.0.2", true},
	{"udp6", "[::]:0", "::1", true},
	{"udp", ":0", "::1", true},
	{"udp", ":0", "127.0.0.1", true},
	{"udp", ":0", "127.0.0.2", true},
}, func(p place) bool { return runtime.GOOS != "linux" && p.ask == "127.0.0.2" })

// listen binds a socket. Of port 0 it makes one that is free, which Listen does not: the
// kernel may choose one that another of our sockets has, as they may share it.
func listen(t testing.TB, network, addr string, o Options) *Socket {
	t.Helper()
	if host, ok := strings.CutSuffix(addr, ":0"); ok {
		port, err := freeport.Find()
		if err != nil {
			t.Fatal(err)
		}
		addr = fmt.Sprintf("%s:%d", host, port)
	}
	s, err := Listen(network, addr, o)
	if err != nil {
		t.Fatal(err)
	}
	tooLong := time.AfterFunc(patience, func() { s.Close() })
	t.Cleanup(func() {
		tooLong.Stop()
		s.Close()
	})
	return s
}

// dial connects a socket to s at an address, from which alone it will hear.
func dial(t testing.TB, s *Socket, addr string) *net.UDPConn {
	t.Helper()
	to := netip.AddrPortFrom(netip.MustParseAddr(addr), s.LocalAddr().Port())
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return c
}

func send(t testing.TB, c net.Conn, s string) {
	t.Helper()
	if _, err := c.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
}

// expect reads what must come next.
func expect(t testing.TB, c net.Conn, want string) {
	t.Helper()
	b := make([]byte, 1<<16)
	n, err := c.Read(b)
	if err != nil {
		t.Fatalf("waiting for %.40q: %v", want, err)
	}
	if got := string(b[:n]); got != want {
		t.Fatalf("%.40q came, want %.40q", got, want)
	}
}

// receive takes n messages, which are there or on their way; more must not be. Their
// Data are copies.
func receive(t testing.TB, s *Socket, n int) (out []Message) {
	t.Helper()
	for len(out) < n {
		messages, err := s.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if len(messages) == 0 || len(messages) > s.Size() {
			t.Fatalf("a batch of %d", len(messages))
		}
		for _, m := range messages {
			m.Data = bytes.Clone(m.Data)
			out = append(out, m)
		}
	}
	if len(out) > n {
		t.Fatalf("%d messages came, want %d", len(out), n)
	}
	return out
}

// echo answers what comes until the socket is closed.
func echo(t testing.TB, s *Socket) {
	ended := make(chan error, 1)
	go func() {
		for {
			messages, err := s.Receive()
			if err != nil {
				ended <- err
				return
			}
			for i := range messages {
				messages[i].Reply = append(messages[i].Reply, messages[i].Data...)
			}
			s.Send(len(messages))
		}
	}()
	t.Cleanup(func() {
		s.Close()
		select {
		case err := <-ended:
			if !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Error("a closed socket still waits")
		}
	})
}

// Whoever asks is known, and the reply leaves from the address that was asked: dial
// hears no other.
func TestAddresses(t *testing.T) {
	each(t, Options{}, func(t *testing.T, o Options) {
		for _, p := range places {
			s := listen(t, p.network, p.addr, o)
			c := dial(t, s, p.ask)
			for _, text := range []string{"a", "b"} { // all is made anew for the second one
				send(t, c, text)
				messages, err := s.Receive()
				if err != nil || len(messages) != 1 {
					t.Fatal(messages, err)
				}
				m := &messages[0]
				if from := c.LocalAddr().(*net.UDPAddr).AddrPort(); m.From != netip.AddrPortFrom(from.Addr().Unmap(), from.Port()) {
					t.Errorf("%s %s asked at %s: from %v, want %v", p.network, p.addr, p.ask, m.From, from)
				}
				asked := netip.MustParseAddr(p.ask)
				if p.everywhere && runtime.GOOS != "linux" {
					asked = netip.Addr{}
				}
				if m.Local != asked || string(m.Data) != text || len(m.Reply) != 0 {
					t.Errorf("%s %s asked at %s: local %v, data %q, reply %q", p.network, p.addr, p.ask, m.Local, m.Data, m.Reply)
				}
				m.Reply = append(m.Reply, "to "+text...)
				s.Send(1)
				expect(t, c, "to "+text)
			}
		}
	})
}

// A reply that is made later finds its way, whatever came in between.
func TestSendTo(t *testing.T) {
	each(t, Options{}, func(t *testing.T, o Options) {
		for _, p := range places {
			s := listen(t, p.network, p.addr, o)
			first, second := dial(t, s, p.ask), dial(t, s, p.ask)
			send(t, first, "first")
			messages, err := s.Receive()
			if err != nil {
				t.Fatal(err)
			}
			back := messages[0].Return()
			send(t, second, "second")
			if _, err := s.Receive(); err != nil {
				t.Fatal(err)
			}
			s.SendTo([]byte("later"), back)
			expect(t, first, "later")
			if s.Unsent() != 0 {
				t.Errorf("%d unsent", s.Unsent())
			}
		}
	})
}

// The askers on a link without routers are told apart by interface.
func TestLinkLocal(t *testing.T) {
	addr := linkLocal(t)
	each(t, Options{}, func(t *testing.T, o Options) {
		for _, at := range []string{"[::]:0", netip.AddrPortFrom(addr, 0).String()} {
			s := listen(t, "udp6", at, o)
			c := dial(t, s, addr.String())
			send(t, c, "a")
			messages, err := s.Receive()
			if err != nil {
				t.Fatal(err)
			}
			m := &messages[0]
			if m.From.Addr() != addr.WithZone("") {
				t.Errorf("from %v, want %v without its zone", m.From, addr)
			}
			m.Reply = append(m.Reply, "b"...)
			s.Send(1)
			expect(t, c, "b")
			s.SendTo([]byte("c"), m.Return())
			expect(t, c, "c")
		}
	})
}

func linkLocal(t *testing.T) netip.Addr {
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() && i.Flags&net.FlagUp != 0 {
				return p.Addr().WithZone(i.Name)
			}
		}
	}
	t.Skip("no interface has a link-local address")
	panic("not reached")
}

// A single question is answered while no other comes.
func TestThin(t *testing.T) {
	each(t, Options{}, func(t *testing.T, o Options) {
		s := listen(t, "udp", ":0", o)
		echo(t, s)
		for _, addr := range []string{"127.0.0.1", "::1"} {
			c := dial(t, s, addr)
			for i := range 50 {
				send(t, c, strconv.Itoa(i))
				expect(t, c, strconv.Itoa(i))
			}
		}
	})
}

// What waits already comes in batches and in order, and every reply goes back.
func TestBurst(t *testing.T) {
	each(t, Options{}, func(t *testing.T, o Options) {
		s := listen(t, "udp4", "127.0.0.1:0", o)
		c := dial(t, s, "127.0.0.1")
		const burst = 100
		for i := range burst {
			send(t, c, fmt.Sprintf("query %d", i))
		}
		batches := 0
		for got := 0; got < burst; batches++ {
			messages, err := s.Receive()
			if err != nil {
				t.Fatal(err)
			}
			if len(messages) == 0 || len(messages) > s.Size() {
				t.Fatalf("a batch of %d", len(messages))
			}
			for i := range messages {
				if want := fmt.Sprintf("query %d", got+i); string(messages[i].Data) != want {
					t.Fatalf("%q, want %q", messages[i].Data, want)
				}
				messages[i].Reply = fmt.Appendf(messages[i].Reply, "reply %d", got+i)
			}
			s.Send(len(messages))
			for range messages {
				expect(t, c, fmt.Sprintf("reply %d", got))
				got++
			}
		}
		// The kernel may be late with some.
		if batches > burst/s.Size()*3/2+1 {
			t.Errorf("%d batches of up to %d for %d datagrams", batches, s.Size(), burst)
		}
	})
}

// Every one of many askers has its own replies, from several sockets on one address.
func TestManySenders(t *testing.T) {
	each(t, Options{}, func(t *testing.T, o Options) {
		first := listen(t, "udp", ":0", o)
		sockets := []*Socket{first}
		if runtime.GOOS == "linux" { // elsewhere all may go to one of them
			sockets = append(sockets, listen(t, "udp", fmt.Sprintf(":%d", first.LocalAddr().Port()), o))
		}
		for _, s := range sockets {
			echo(t, s)
		}
		var wg sync.WaitGroup
		for i := range 32 {
			c := dial(t, first, []string{"127.0.0.1", "::1"}[i%2])
			wg.Go(func() {
				b := make([]byte, 1500)
				for round := range 20 {
					var want []string
					for j := range 8 {
						text := fmt.Sprintf("%d %d %d %s", i, round, j, strings.Repeat("x", i*j))
						want = append(want, text)
						if _, err := c.Write([]byte(text)); err != nil {
							t.Error(err)
							return
						}
					}
					for range want {
						n, err := c.Read(b)
						if err != nil {
							t.Error(err)
							return
						}
						at := slices.Index(want, string(b[:n]))
						if at < 0 {
							t.Errorf("sender %d got %.40q", i, b[:n])
							return
						}
						want[at] = ""
					}
				}
			})
		}
		wg.Wait()
	})
}

// A datagram that is too long loses its end, and its neighbours nothing.
func TestLongDatagram(t *testing.T) {
	each(t, Options{In: 512}, func(t *testing.T, o Options) {
		s := listen(t, "udp4", "127.0.0.1:0", o)
		c := dial(t, s, "127.0.0.1")
		long := 65507
		if runtime.GOOS != "linux" {
			long = 9000 // others send no more, unless they are told to
		}
		for _, n := range []int{511, 512, 513, 5000, long, 0, 512} {
			send(t, c, strings.Repeat("x", n))
			send(t, c, "y")
			got := receive(t, s, 2)
			if len(got[0].Data) != min(n, 512) || string(got[1].Data) != "y" {
				t.Errorf("of %d octets %d came, then %q", n, len(got[0].Data), got[1].Data)
			}
			if cap(got[0].Data) > 512 && n > 0 {
				t.Errorf("room for %d octets", cap(got[0].Data))
			}
		}
	})
}

// Messages without a reply, and replies that cannot leave, take nothing from others.
func TestGaps(t *testing.T) {
	tooLong := strings.Repeat("x", 70_000)
	for _, c := range []struct {
		what    string
		replies []string
	}{
		{"all", []string{"a", "b", "c", "d"}},
		{"none", []string{"", "", ""}},
		{"silence first", []string{"", "b", "c"}},
		{"silence between", []string{"a", "", "c", "", "", "f"}},
		{"silence last", []string{"a", "b", ""}},
		{"cannot leave first", []string{tooLong, "b", "c"}},
		{"cannot leave between", []string{"a", tooLong, "c", tooLong, tooLong, "f"}},
		{"cannot leave last", []string{"a", "b", tooLong}},
		{"both", []string{"", tooLong, "c", "", tooLong}},
		{"longer than the room", []string{"a", strings.Repeat("b", 3000), "c"}},
	} {
		t.Run(c.what, func(t *testing.T) {
			each(t, Options{Out: 1400}, func(t *testing.T, o Options) {
				s := listen(t, "udp", ":0", o)
				conn := dial(t, s, "127.0.0.1")
				for i := range c.replies {
					send(t, conn, strconv.Itoa(i))
				}
				for done := 0; done < len(c.replies); {
					messages, err := s.Receive()
					if err != nil {
						t.Fatal(err)
					}
					for i := range messages {
						messages[i].Reply = append(messages[i].Reply, c.replies[done+i]...)
					}
					s.Send(len(messages))
					done += len(messages)
				}
				unsent := uint64(0)
				for _, r := range c.replies {
					if r == tooLong {
						unsent++
					} else if r != "" {
						expect(t, conn, r)
					}
				}
				if s.Unsent() != unsent {
					t.Errorf("%d unsent, want %d", s.Unsent(), unsent)
				}
				// And on it goes.
				send(t, conn, "more")
				messages, err := s.Receive()
				if err != nil {
					t.Fatal(err)
				}
				messages[0].Reply = append(messages[0].Reply, "end"...)
				s.Send(len(messages))
				expect(t, conn, "end")
			})
		})
	}
}

// A closed socket says so, also to who waits already, and loses replies quietly.
func TestClosed(t *testing.T) {
	each(t, Options{}, func(t *testing.T, o Options) {
		s := listen(t, "udp4", "127.0.0.1:0", o)
		c := dial(t, s, "127.0.0.1")
		send(t, c, "a")
		messages, err := s.Receive()
		if err != nil {
			t.Fatal(err)
		}
		back := messages[0].Return()
		messages[0].Reply = append(messages[0].Reply, "b"...)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s.Send(1)
		s.SendTo([]byte("c"), back)
		if s.Unsent() != 2 {
			t.Errorf("%d unsent, want 2", s.Unsent())
		}
		if _, err := s.Receive(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("receive: %v", err)
		}

		waits := listen(t, "udp4", "127.0.0.1:0", o)
		echo(t, waits) // its end is looked at there
		c = dial(t, waits, "127.0.0.1")
		send(t, c, "a")
		expect(t, c, "a")
	})
}

// An address that cannot be bound is an error.
func TestListenFails(t *testing.T) {
	s, err := Listen("udp4", "192.0.2.1:0", Options{})
	if err == nil {
		s.Close()
		t.Fatal("192.0.2.1 is nobody's")
	}
}
