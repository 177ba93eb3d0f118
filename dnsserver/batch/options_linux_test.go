//go:build amd64 || arm64

package batch

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// option reads a socket option.
func option(t *testing.T, s *Socket, level, name int) (value int) {
	t.Helper()
	err := control(s, func(fd int) (err error) {
		value, err = unix.GetsockoptInt(fd, level, name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// control calls f with the descriptor of a socket.
func control(s *Socket, f func(fd int) error) (err error) {
	e := s.engine.descriptor(func(fd int) { err = f(fd) })
	return cmp.Or(e, err)
}

// No router says how long our packets are (RFC 9715 section 3.1).
func TestIgnoreMTU(t *testing.T) {
	for _, c := range []struct {
		network, addr string
		options       [][3]int
	}{
		{"udp4", "127.0.0.1:0", [][3]int{{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_OMIT}}},
		{"udp", ":0", [][3]int{{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_OMIT}, {unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_OMIT}}},
	} {
		s := listen(t, c.network, c.addr, Options{})
		for _, o := range c.options {
			if got := option(t, s, o[0], o[1]); got != o[2] {
				t.Errorf("%s: option %d of level %d is %d, want %d", c.addr, o[1], o[0], got, o[2])
			}
		}
	}
}

// The buffers are as large as was asked for where we may, and else as large as the
// system lets everybody have. The kernel doubles what it is told.
func TestBuffers(t *testing.T) {
	for file, name := range map[string]int{"rmem_max": unix.SO_RCVBUF, "wmem_max": unix.SO_SNDBUF} {
		b, err := os.ReadFile("/proc/sys/net/core/" + file)
		if err != nil {
			t.Skip(err) // a sandbox that has no such file
		}
		most, err := strconv.Atoi(strings.TrimSpace(string(b)))
		if err != nil {
			t.Fatal(err)
		}
		ask := most + 1<<20
		got := option(t, listen(t, "udp4", "127.0.0.1:0", Options{Buffer: ask}), unix.SOL_SOCKET, name)
		if got != 2*ask && got != 2*most {
			t.Errorf("%s is %d: the buffer is %d octets after %d were asked for", file, most, got, ask)
		}
	}
}

// What the kernel had no room for is counted, to the last one.
func TestDrops(t *testing.T) {
	err := control(listen(t, "udp", ":0", Options{}), func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1) })
	if err != nil {
		t.Skip("this kernel does not count:", err) // one that is emulated
	}
	each(t, Options{Buffer: 1}, func(t *testing.T, o Options) {
		for _, at := range places {
			s := listen(t, at.network, at.addr, o)
			c := dial(t, s, at.ask)
			sent, got := uint64(0), uint64(0)
			for range 1000 {
				send(t, c, "flood")
				sent++
			}
			// The count comes with a later one, which finds room if all is taken before. The
			// kernel may be late with some.
			for s.Drops() == 0 || got+s.Drops() < sent {
				send(t, c, "more")
				sent++
				for waiting := 1; waiting > 0; waiting = option(t, s, unix.SOL_SOCKET, unix.SO_MEMINFO) { // octets received
					messages, err := s.Receive()
					if err != nil {
						t.Fatalf("%d received and %d dropped, of %d: %v", got, s.Drops(), sent, err)
					}
					got += uint64(len(messages))
				}
			}
			if got+s.Drops() != sent {
				t.Errorf("%s: %d received and %d dropped, of %d", at.addr, got, s.Drops(), sent)
			}
		}
	})
}

func TestCountDrops(t *testing.T) {
	s := &Socket{}
	want := uint64(0)
	for _, step := range []struct {
		count uint32
		more  uint64
	}{
		{0, 0}, {3, 3}, {3, 0}, {2, 0}, {1 << 30, 1<<30 - 3}, {1 << 31, 1 << 30}, {1<<32 - 1, 1<<31 - 1}, {4, 5}, {1<<32 - 1, 0}, {5, 1},
	} {
		s.countDrops(step.count)
		if want += step.more; s.Drops() != want {
			t.Fatalf("the kernel counts %d: %d, want %d", step.count, s.Drops(), want)
		}
	}
}

// Each control message is read wherever it stands, and nothing that is damaged.
func TestReadControl(t *testing.T) {
	four := unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: 7, Spec_dst: [4]byte{192, 0, 2, 1}, Addr: [4]byte{192, 0, 2, 9}})
	mapped := unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: 7, Addr: netip.MustParseAddr("::ffff:192.0.2.1").As16()})
	six := unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: 7, Addr: netip.MustParseAddr("2001:db8::1").As16()})
	linkLocal := unix.PktInfo6(&unix.Inet6Pktinfo{Ifindex: 7, Addr: netip.MustParseAddr("fe80::1").As16()})
	dropped := socketControl(unix.SOL_SOCKET, unix.SO_RXQ_OVFL, binary.NativeEndian.AppendUint32(nil, 9))
	other := socketControl(unix.SOL_SOCKET, unix.SO_TIMESTAMP, make([]byte, 16))
	for _, c := range []struct {
		what    string
		b       []byte
		local   string
		drops   uint64
		ifindex uint32 // that goes back
	}{
		{"nothing", nil, "", 0, 0},
		{"IPv4", four, "192.0.2.1", 0, 0},
		{"IPv4 on a socket for both", mapped, "192.0.2.1", 0, 0},
		{"IPv6", six, "2001:db8::1", 0, 0},
		{"link-local", linkLocal, "fe80::1", 0, 7},
		{"drops", dropped, "", 9, 0},
		{"drops first", slices.Concat(dropped, six), "2001:db8::1", 9, 0},
		{"drops last", slices.Concat(four, dropped), "192.0.2.1", 9, 0},
		{"others around", slices.Concat(other, linkLocal, other, dropped), "fe80::1", 9, 7},
		{"cut", four[:20], "", 0, 0},
		{"cut behind", slices.Concat(dropped, four[:20]), "", 9, 0},
	} {
		s, m := &Socket{}, &Message{}
		b := slices.Clone(c.b)
		s.readControl(m, b)
		local := ""
		if m.Local.IsValid() {
			local = m.Local.String()
		}
		if local != c.local || s.Drops() != c.drops || (m.control == nil) != (local == "") {
			t.Errorf("%s: asked at %q, %d dropped, back %x", c.what, local, s.Drops(), m.control)
		}
		if m.control == nil {
			continue
		}
		back, err := unix.ParseSocketControlMessage(m.control)
		if err != nil || len(back) != 1 {
			t.Errorf("%s: what goes back is %x: %v", c.what, m.control, err)
			continue
		}
		index, from := back[0].Data, netip.Addr{}
		if len(index) == unix.SizeofInet4Pktinfo {
			from = netip.AddrFrom4([4]byte(index[4:]))
		} else {
			from, index = netip.AddrFrom16([16]byte(index)), index[16:]
		}
		if from.Unmap() != m.Local || binary.NativeEndian.Uint32(index) != c.ifindex {
			t.Errorf("%s: the reply is to leave from %v, interface %d", c.what, from, binary.NativeEndian.Uint32(index))
		}
	}
}

// socketControl is a control message.
func socketControl(level, typ int32, data []byte) []byte {
	b := make([]byte, unix.CmsgSpace(len(data)))
	h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	h.Level, h.Type = level, typ
	h.SetLen(unix.CmsgLen(len(data)))
	copy(b[unix.CmsgLen(0):], data)
	return b
}
