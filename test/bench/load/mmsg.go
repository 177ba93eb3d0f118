//go:build linux

package load

import (
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of recvmmsg(2), of 64-bit systems.
type mmsghdr struct {
	header unix.Msghdr
	length uint32 // of what was received or sent
	_      [4]byte
}

var _ = [1]struct{}{}[unsafe.Sizeof(mmsghdr{})-unsafe.Sizeof(unix.Msghdr{})-8]

// vector is a vector of messages with a buffer each.
type vector struct {
	headers []mmsghdr
	iovecs  []unix.Iovec
	names   []unix.RawSockaddrInet4 // nil for a connected socket
}

func newVector(n int, names bool) *vector {
	v := &vector{headers: make([]mmsghdr, n), iovecs: make([]unix.Iovec, n)}
	if names {
		v.names = make([]unix.RawSockaddrInet4, n)
	}
	for i := range v.headers {
		v.headers[i].header.Iov = &v.iovecs[i]
		v.headers[i].header.SetIovlen(1)
	}
	return v
}

// set has message i lie in a buffer.
func (v *vector) set(i int, buffer []byte) {
	v.iovecs[i].Base = unsafe.SliceData(buffer)
	v.iovecs[i].SetLen(len(buffer))
}

// name has message i carry an address, which recvmmsg shortens and sendmmsg reads.
func (v *vector) name(i int) {
	v.headers[i].header.Name = (*byte)(unsafe.Pointer(&v.names[i]))
	v.headers[i].header.Namelen = unix.SizeofSockaddrInet4
}

// call is recvmmsg or sendmmsg with the first n messages. If it may wait for long, the scheduler
// must know, which takes a little time.
func (v *vector) call(trap uintptr, fd, n, flags int, waits bool) (int, error) {
	do := unix.RawSyscall6
	if waits {
		do = unix.Syscall6
	}
	for {
		done, _, errno := do(trap, uintptr(fd), uintptr(unsafe.Pointer(&v.headers[0])), uintptr(n), uintptr(flags), 0, 0)
		switch errno {
		case 0:
			return int(done), nil
		case unix.EINTR:
		default:
			return 0, errno
		}
	}
}

// udp is a connected socket.
type udp struct {
	fd       int
	out, in  *vector
	buffers  [batch][]byte
	messages [][]byte

	// Queries of one length leave as one datagram that the kernel cuts into them (UDP_SEGMENT in
	// udp(7)), on the way to the server's socket. That is half the work of one datagram each, so
	// that who asks is faster than who answers. What arrives is the same.
	plain bool // the kernel does not do that
	cut   [batch]segment
}

// segment is a control message that says of which length the parts of a datagram are.
type segment struct {
	unix.Cmsghdr
	length uint16
	_      [6]byte
}

// mark is the control message for a length.
func mark(length int) (s segment) {
	s.Level, s.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	s.SetLen(unix.CmsgLen(2))
	s.length = uint16(length)
	return s
}

// socketBuffer has room for the replies to all that can be outstanding.
const socketBuffer = 8 << 20

func dialUDP(server string) (*udp, error) { return dialUDPFrom(server, netip.IPv4Unspecified()) }

// dialUDPFrom is dialUDP from an address.
func dialUDPFrom(server string, source netip.Addr) (*udp, error) {
	address, err := netip.ParseAddrPort(server)
	if err != nil || !address.Addr().Is4() {
		return nil, fmt.Errorf("ask %q: not an IPv4 address with a port", server)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", server, err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: source.As4()}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("ask %s from %v: %w", server, source, err)
	}
	for _, option := range [][2]int{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, option[0], socketBuffer) != nil {
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, option[1], socketBuffer) // as much as one may have
		}
	}
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(address.Port()), Addr: address.Addr().As4()}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("ask %s: %w", server, err)
	}
	u := &udp{fd: fd, out: newVector(batch, false), in: newVector(batch, false)}
	for i := range u.buffers {
		u.buffers[i] = make([]byte, maxReply)
		u.in.set(i, u.buffers[i])
	}
	return u, nil
}

func (u *udp) send(messages [][]byte) error {
	trains := 0
	for i, m := range messages {
		u.out.set(i, m)
		if i > 0 && !u.plain && len(m) == len(messages[i-1]) {
			h := &u.out.headers[trains-1].header
			h.SetIovlen(int(h.Iovlen) + 1)
			u.cut[trains-1] = mark(len(m))
			h.Control = (*byte)(unsafe.Pointer(&u.cut[trains-1]))
			h.SetControllen(int(unsafe.Sizeof(segment{})))
			continue
		}
		h := &u.out.headers[trains].header
		h.Iov, h.Control = &u.out.iovecs[i], nil
		h.SetIovlen(1)
		h.SetControllen(0)
		trains++
	}
	n, err := u.out.call(unix.SYS_SENDMMSG, u.fd, trains, 0, false)
	switch {
	case err == nil && n == trains, err == unix.EAGAIN, err == nil:
		return nil // what did not leave is lost, as in any network
	case !u.plain && trains < len(messages):
		u.plain = true
		return u.send(messages)
	}
	return fmt.Errorf("send queries: %w", err)
}

func (u *udp) recv() ([][]byte, error) {
	n, err := u.in.call(unix.SYS_RECVMMSG, u.fd, batch, unix.MSG_DONTWAIT, false)
	if err == unix.EAGAIN {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("receive replies: %w", err)
	}
	u.messages = u.messages[:0]
	for i := range n {
		u.messages = append(u.messages, u.buffers[i][:u.in.headers[i].length])
	}
	return u.messages, nil
}

func (u *udp) close() error { return unix.Close(u.fd) }

// pinThread lets the calling thread run on one processor only, until back is called.
func pinThread(cpu int) (back func(), err error) {
	var before, only unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("where this thread may run: %w", err)
	}
	only.Set(cpu)
	if err := unix.SchedSetaffinity(0, &only); err != nil {
		return nil, fmt.Errorf("run on processor %d: %w", cpu, err)
	}
	return func() { unix.SchedSetaffinity(0, &before) }, nil
}

// hurryThread has the calling thread go before all others of its processor, if that is allowed,
// until back is called: what else runs there must not hold up who asks.
func hurryThread() (back func()) {
	set := func(a unix.SchedAttr) error {
		a.Size = unix.SizeofSchedAttr
		return unix.SchedSetAttr(0, &a, 0)
	}
	if set(unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}) != nil {
		return func() {}
	}
	return func() { set(unix.SchedAttr{Policy: unix.SCHED_NORMAL}) }
}

// waited is how long the calling thread could have run when its processor did something else, as
// the scheduler counts it; 0 if it does not.
func waited() time.Duration {
	b, err := os.ReadFile("/proc/thread-self/schedstat")
	var ran, waited int64
	if err == nil {
		fmt.Sscan(string(b), &ran, &waited)
	}
	return time.Duration(waited)
}

// socket is the descriptor of a connection, which stays the connection's.
func socket(c syscall.Conn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = raw.Control(func(f uintptr) { fd = int(f) })
	return fd, err
}
