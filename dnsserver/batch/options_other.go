//go:build unix && !linux

package batch

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// beforeBind lets several sockets share one address.
func beforeBind(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); e != nil {
		return e
	}
	return err
}

// setBuffers asks for room in the socket. Less is served as well.
func setBuffers(c *net.UDPConn, _ syscall.RawConn, size int) {
	_ = c.SetReadBuffer(size)
	_ = c.SetWriteBuffer(size)
}

const controlSize = 0

// readControl has nothing to read: a socket for all addresses replies from the one that
// the system chooses.
func (s *Socket) readControl(*Message, []byte) {}

// detach does nothing: who shares an address is the system's to choose.
func detach(int) {}
