//go:build linux

package load

import (
	"fmt"
	"net/netip"
	"syscall"
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
}

// socketBuffer has room for the replies to all that can be outstanding.
const socketBuffer = 8 << 20

func dialUDP(server string) (*udp, error) {
	address, err := netip.ParseAddrPort(server)
	if err != nil || !address.Addr().Is4() {
		return nil, fmt.Errorf("ask %q: not an IPv4 address with a port", server)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", server, err)
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
	for i, m := range messages {
		u.out.set(i, m)
	}
	n, err := u.out.call(unix.SYS_SENDMMSG, u.fd, len(messages), 0, false)
	if n == len(messages) || err == unix.EAGAIN || err == nil {
		return nil // what did not leave is lost, as in any network
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

// socket is the descriptor of a connection, which stays the connection's.
func socket(c syscall.Conn) (fd int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	err = raw.Control(func(f uintptr) { fd = int(f) })
	return fd, err
}
