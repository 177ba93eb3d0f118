//go:build amd64 || arm64

package batch

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// polled is a UDP socket that is in a poller only while somebody waits for it. One that is
// in a poller has the kernel look for whom to wake with each datagram that comes and with
// each reply that has left, which takes 0.1 µs of either. Where there is much to do, nobody
// waits.
//
// Go's poller has the sockets of package net for good. So it has an epoll instance of our
// own here, and the socket is in that or not.
type polled struct {
	fd     int             // of the socket
	epoll  int             // the instance
	file   *os.File        // the same, as Go's poller has it
	raw    syscall.RawConn // of file; while one of its calls runs, fd is not closed
	inside bool            // the socket is in the instance
	domain int             // of its addresses, AF_INET or AF_INET6
}

// newPolled takes over the socket of a connection, which is closed. If it fails, it has not.
func newPolled(conn *net.UDPConn, raw syscall.RawConn) (p *polled, err error) {
	p = &polled{fd: -1}
	if p.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a poller: %w", err)
	}
	// Whoever opens a file that blocks gets one that Go does not poll.
	if err = unix.SetNonblock(p.epoll, true); err != nil {
		unix.Close(p.epoll)
		return nil, fmt.Errorf("make a poller that does not block: %w", err)
	}
	p.file = os.NewFile(uintptr(p.epoll), "epoll")
	err = p.file.SetReadDeadline(time.Time{}) // fails where it is not in Go's poller
	if err == nil {
		p.raw, err = p.file.SyscallConn()
	}
	if err == nil {
		e := raw.Control(func(fd uintptr) {
			if p.domain, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN); err == nil {
				p.fd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
			}
		})
		if err == nil {
			err = e
		}
	}
	if err != nil {
		p.file.Close()
		return nil, fmt.Errorf("take over the socket: %w", err)
	}
	conn.Close() // takes it out of Go's poller; the copy of the descriptor stays
	return p, nil
}

// enter puts the socket into the poller. If something is there already, that wakes who
// waits.
func (p *polled) enter() error {
	if p.inside {
		return nil
	}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, p.fd, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
		return os.NewSyscallError("epoll_ctl", err)
	}
	p.inside = true
	return nil
}

// leave takes it out again.
func (p *polled) leave() {
	if p.inside && unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, p.fd, nil) == nil {
		p.inside = false
	}
}

// sendPatience is how long a reply waits for room in the socket, in milliseconds: much longer
// than a device that works takes for all that 4 MiB hold.
const sendPatience = 100

// waitForRoom says whether there is room to send.
func (p *polled) waitForRoom() bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLOUT}}, sendPatience)
		if err != unix.EINTR {
			return err == nil && n > 0
		}
	}
}

func (p *polled) descriptor(f func(fd int)) error {
	if p.raw.Control(func(uintptr) { f(p.fd) }) != nil {
		return net.ErrClosed
	}
	return nil
}

// finish ends each wait at that time. It does nothing once the socket is closed.
func (p *polled) finish(at time.Time) {
	_ = p.descriptor(detach)
	_ = p.file.SetReadDeadline(at)
}

// close waits until no call uses the socket any more.
func (p *polled) close() error {
	if err := p.file.Close(); err != nil {
		return net.ErrClosed
	}
	return os.NewSyscallError("close", unix.Close(p.fd))
}
