package batch

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// beforeBind sets what must be set before bind: several sockets on one address, among
// which the kernel spreads the askers, and word of the address that was asked and of
// datagrams that were dropped.
func beforeBind(network, address string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = setOptions(int(fd), network, address) }); e != nil {
		return e
	}
	return err
}

func setOptions(fd int, network, address string) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return err
	}
	ignoreMTU(fd, network)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1) // where it is unknown, nothing is counted
	if a, err := netip.ParseAddrPort(address); err == nil && !a.Addr().IsUnspecified() {
		return nil // all are asked at one address
	}
	if network == "udp4" {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
}

// ignoreMTU keeps replies from being cut into fragments, or refused, by what somebody
// claims that a path takes: fragments get lost, and in them an answer can be forged
// (RFC 9715 section 3.1). Replies are short enough for every path. Where a kernel has
// no such option, they are served without.
func ignoreMTU(fd int, network string) {
	// IPv4 addresses on a socket for both families go by the option of IPv4.
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_OMIT)
	if network != "udp4" {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_OMIT)
	}
}

// setBuffers asks for room in the socket: beyond the limit of the system where we may
// (CAP_NET_ADMIN), else up to it. Less is served as well.
func setBuffers(_ *net.UDPConn, raw syscall.RawConn, size int) {
	_ = raw.Control(func(fd uintptr) {
		for _, o := range [][2]int{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}} {
			if unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, o[0], size) != nil {
				_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, o[1], size)
			}
		}
	})
}

// detach connects a socket to where nothing comes from. The kernel then chooses others of
// those that share its address (since Linux 5.4), and this one gets no more. Where it cannot
// be connected, it gets what it got before.
func detach(fd int) {
	at, err := unix.Getsockname(fd)
	if err != nil {
		return
	}
	const discard = 9 // RFC 863
	switch to := at.(type) {
	case *unix.SockaddrInet4:
		to.Port = discard
		if to.Addr == [4]byte{} {
			to.Addr = [4]byte{127, 0, 0, 1}
		}
	case *unix.SockaddrInet6:
		to.Port = discard
		if to.Addr == [16]byte{} {
			to.Addr = netip.IPv6Loopback().As16()
			if unix.Connect(fd, to) == nil {
				return
			}
			to.Addr = [16]byte{10: 0xff, 11: 0xff, 12: 127, 15: 1} // without IPv6
		}
	}
	_ = unix.Connect(fd, at)
}

// controlSize holds the control messages of one datagram: how many were dropped before
// it, and a struct in_pktinfo (12 octets) or in6_pktinfo (20), each with a header of 16
// and rounded up to 8.
const controlSize = 24 + 40

// readControl reads what the kernel says with a datagram: the address that it was sent
// to, with the control message that has the reply sent from there, and how many were
// dropped so far.
func (s *Socket) readControl(m *Message, b []byte) {
	m.control = nil
	for len(b) > 0 {
		h, data, rest, err := unix.ParseOneSocketControlMessage(b)
		if err != nil {
			return
		}
		switch {
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SO_RXQ_OVFL && len(data) >= 4:
			s.countDrops(binary.NativeEndian.Uint32(data))
		case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
			// Interface index, the local address, the destination in the header: ip(7).
			// Without an index the route decides, as it does for any packet.
			binary.NativeEndian.PutUint32(data, 0)
			m.Local = netip.AddrFrom4([4]byte(data[4:8]))
			m.control = b[:len(b)-len(rest)]
		case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
			// The address, the interface index: ipv6(7). Only a link-local address needs
			// the index.
			local := netip.AddrFrom16([16]byte(data[:16]))
			if !local.IsLinkLocalUnicast() {
				binary.NativeEndian.PutUint32(data[16:], 0)
			}
			m.Local = local.Unmap()
			m.control = b[:len(b)-len(rest)]
		}
		b = rest
	}
}

// countDrops takes the kernel's count, which begins anew after 32 bits. The messages of
// one batch can be out of step, so that an older count is no news.
func (s *Socket) countDrops(count uint32) {
	if more := int32(count - uint32(s.drops.Load())); more > 0 {
		s.drops.Add(uint64(more))
	}
}
