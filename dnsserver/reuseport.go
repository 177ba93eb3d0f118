package dnsserver

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// reusePort lets processes share an address, for a restart without a gap: the older one
// stops when the younger one answers, too. Of UDP, Socket.Finish sees to that no datagram is
// lost. The kernel has nothing alike for TCP: a connection that comes in the microseconds
// between the last look at a listener and its end is lost with it.
func reusePort(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}); e != nil {
		return e
	}
	return err
}
