package dnsserver

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// controlUDP sets what must be set before bind: several sockets on one address,
// among which the kernel spreads the askers, and word of the address that was asked.
func controlUDP(network, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
		if err != nil {
			return
		}
		ignoreMTU(int(fd), network)
		if network == "udp4" {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
		}
	}); e != nil {
		return e
	}
	return err
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

// packetInfoSize holds one control message of either family: its header and a
// struct in_pktinfo (12 octets) or in6_pktinfo (20), rounded up.
const packetInfoSize = 64

// packetInfo reads the address that a datagram was sent to, and makes the control
// message, within oob, that has the reply sent from it.
func packetInfo(oob []byte) (local netip.Addr, back []byte) {
	h, data, _, err := unix.ParseOneSocketControlMessage(oob)
	if err != nil {
		return netip.Addr{}, nil
	}
	switch {
	case h.Level == unix.IPPROTO_IP && h.Type == unix.IP_PKTINFO && len(data) >= unix.SizeofInet4Pktinfo:
		// Interface index, the local address, the destination in the header: ip(7).
		// Without an index the route decides, as it does for any packet.
		binary.NativeEndian.PutUint32(data, 0)
		return netip.AddrFrom4([4]byte(data[4:8])), oob
	case h.Level == unix.IPPROTO_IPV6 && h.Type == unix.IPV6_PKTINFO && len(data) >= unix.SizeofInet6Pktinfo:
		// The address, the interface index: ipv6(7). Only a link-local address needs
		// the index.
		local = netip.AddrFrom16([16]byte(data[:16]))
		if !local.IsLinkLocalUnicast() {
			binary.NativeEndian.PutUint32(data[16:], 0)
		}
		return local.Unmap(), oob
	}
	return netip.Addr{}, nil
}
