//go:build unix && !linux

package dnsserver

import (
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// controlUDP lets several sockets share one address.
func controlUDP(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); e != nil {
		return e
	}
	return err
}

// Elsewhere than on Linux a wildcard socket replies from the address that the
// system chooses: name the addresses in the configuration.

const packetInfoSize = 0

func packetInfo([]byte) (netip.Addr, []byte) { return netip.Addr{}, nil }
