package dnsserver

import (
	"errors"
	"log/slog"
	"math"
	"syscall"
)

// within returns the limits as far as the descriptors that this process may have let it:
// TCP connections take half of them at most. So whatever clients do, there are some to
// ask the API with and to read files.
func (c TCPConfig) within(descriptors int, log *slog.Logger) TCPConfig {
	if most := max(1, descriptors/2); c.Total > most {
		log.Warn("fewer TCP connections than configured, for want of file descriptors", "configured", c.Total, "connections", most, "descriptors", descriptors)
		c.Total = most
	}
	return c
}

// descriptors is how many of them this process may have.
func descriptors() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return math.MaxInt // and what comes of it is seen when there are none
	}
	return int(min(uint64(l.Cur), math.MaxInt32))
}

// lacksDescriptors says whether that is why a connection could not be taken.
func lacksDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// makeRoom closes the connection that has been idle longest.
func (t *tcpServer) makeRoom() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.evict(func(*tcpConn) bool { return true })
}
