//go:build amd64 || arm64

package batch

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsg moves a batch by recvmmsg(2) and sendmmsg(2). Waiting is left to Go's poller: it
// never blocks in either call. A thread of its own that blocks there saves processor time
// where there is little to do, and takes more where there is much.
//
// What the kernel is given are tables made once, whose entries point to each other. Entry
// i of them belongs to message i, but for those of the replies, which stand close.
type mmsg struct {
	s *Socket
	*polled
	call func(trap, fd uintptr, table []unix.Mmsghdr) (n int, errno syscall.Errno)

	in      []unix.Mmsghdr
	from    []unix.RawSockaddrInet6 // or RawSockaddrInet4, which is shorter
	control [][controlSize]byte
	data    []byte // rooms of dataLen; nil once the socket is closed
	dataLen int
	dataVec []unix.Iovec

	out    []unix.Mmsghdr
	outVec []unix.Iovec

	received int // entries of in that the kernel has written to
	failed   error
	unsent   []unix.Mmsghdr // the rest of out
	zones    map[uint32]string

	// The methods as values that cost no allocation.
	receiveSome func(uintptr) bool
	receiveLast func(uintptr)
	sendAll     func(uintptr)
}

// What the kernel and we must agree upon, alike on both processors. Anything else does
// not compile.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(unix.Mmsghdr{})-64]
	_ = [1]struct{}{}[unsafe.Offsetof(unix.Mmsghdr{}.Len)-56]

	_ = [1]struct{}{}[unsafe.Sizeof(unix.Msghdr{})-56]
	_ = [1]struct{}{}[unsafe.Offsetof(unix.Msghdr{}.Name)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(unix.Msghdr{}.Namelen)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(unix.Msghdr{}.Iov)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(unix.Msghdr{}.Iovlen)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(unix.Msghdr{}.Control)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(unix.Msghdr{}.Controllen)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(unix.Msghdr{}.Flags)-48]

	_ = [1]struct{}{}[unsafe.Sizeof(unix.Iovec{})-16]
	_ = [1]struct{}{}[unsafe.Offsetof(unix.Iovec{}.Len)-8]

	_ = [1]struct{}{}[unsafe.Sizeof(unix.RawSockaddrInet4{})-16]
	_ = [1]struct{}{}[unsafe.Offsetof(unix.RawSockaddrInet4{}.Port)-2]
	_ = [1]struct{}{}[unsafe.Offsetof(unix.RawSockaddrInet4{}.Addr)-4]
	_ = [1]struct{}{}[unsafe.Sizeof(unix.RawSockaddrInet6{})-28]
	_ = [1]struct{}{}[unsafe.Offsetof(unix.RawSockaddrInet6{}.Port)-2]
	_ = [1]struct{}{}[unsafe.Offsetof(unix.RawSockaddrInet6{}.Addr)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(unix.RawSockaddrInet6{}.Scope_id)-24]

	_ = [1]struct{}{}[unix.SizeofCmsghdr-16]
	_ = [1]struct{}{}[unix.SizeofInet4Pktinfo-12]
	_ = [1]struct{}{}[unix.SizeofInet6Pktinfo-20]
)

func newEngine(s *Socket, raw syscall.RawConn, o Options) engine {
	p, err := newPolled(s.conn, raw)
	if err != nil {
		return newPlain(s, o) // on a kernel that is emulated, maybe
	}
	s.conn = nil
	e := &mmsg{
		s:       s,
		polled:  p,
		call:    mmsgCall,
		in:      make([]unix.Mmsghdr, o.Size),
		from:    make([]unix.RawSockaddrInet6, o.Size),
		control: make([][controlSize]byte, o.Size),
		data:    reserve(o.Size * apart(o.In)),
		dataLen: o.In,
		dataVec: make([]unix.Iovec, o.Size),
		out:     make([]unix.Mmsghdr, o.Size),
		outVec:  make([]unix.Iovec, o.Size),
		zones:   map[uint32]string{},
	}
	s.allot(o)
	e.receiveSome, e.sendAll = e.recvmmsg, e.sendmmsg
	e.receiveLast = func(fd uintptr) { e.recvmmsg(fd) }
	for i := range e.in {
		e.dataVec[i] = unix.Iovec{Base: &room(e.data, i, o.In)[0], Len: uint64(o.In)}
		e.in[i].Hdr = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&e.from[i])), Iov: &e.dataVec[i], Iovlen: 1, Control: &e.control[i][0]}
		e.out[i].Hdr = unix.Msghdr{Iov: &e.outVec[i], Iovlen: 1}
	}
	e.received = o.Size
	return e
}

// reserve returns memory that is in use only where it has been written to: almost no
// datagram is as long as the longest one. Go's collector would take all of it for in use
// and wait for as much garbage again, the kernel might do likewise with huge pages.
func reserve(n int) []byte {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return make([]byte, n)
	}
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) // an error means that there are none
	return b
}

// release gives the room for datagrams back. The kernel has no more to write there.
func (e *mmsg) release() {
	for i := range e.s.messages {
		e.s.messages[i].Data = nil
	}
	_ = unix.Munmap(e.data) // fails for what is Go's own, and for nothing the second time
	e.data = nil
}

// mmsgCall does without what Go does around a system call that may block, after which
// the processor may have gone to others: that took a fifth more for each datagram. It
// does not block, and a full batch takes less than 0.1 ms.
func mmsgCall(trap, fd uintptr, table []unix.Mmsghdr) (int, syscall.Errno) {
	n, _, errno := syscall.RawSyscall6(trap, fd, uintptr(unsafe.Pointer(unsafe.SliceData(table))), uintptr(len(table)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}

func (e *mmsg) receive() (int, error) {
	for i := range e.in[:e.received] {
		h := &e.in[i].Hdr
		h.Namelen, h.Controllen, h.Flags = unix.SizeofSockaddrInet6, controlSize, 0
	}
	e.received, e.failed = 0, nil
	if err := e.raw.Read(e.receiveSome); err != nil {
		// Finished, it has what is left, without a wait.
		if !errors.Is(err, os.ErrDeadlineExceeded) || e.raw.Control(e.receiveLast) != nil || e.received == 0 {
			e.release()
			return 0, net.ErrClosed
		}
	}
	if e.failed != nil {
		return 0, e.failed
	}
	for i := range e.in[:e.received] {
		in, m := &e.in[i], &e.s.messages[i]
		n := int(in.Len)
		m.Data = room(e.data, i, e.dataLen)[:n:n]
		e.readFrom(m, &e.from[i])
		e.s.readControl(m, e.control[i][:in.Hdr.Controllen])
	}
	return e.received, nil
}

// recvmmsg says whether it is done; if not, it is called again when something has come.
func (e *mmsg) recvmmsg(uintptr) bool {
	for {
		n, errno := e.call(unix.SYS_RECVMMSG, uintptr(e.fd), e.in)
		switch errno {
		case 0:
			if e.received = n; n == len(e.in) {
				e.leave() // there is more, or soon will be
			}
			return true
		case unix.EINTR:
		case unix.EAGAIN:
			e.failed = e.enter()
			return e.failed != nil
		default:
			e.failed = os.NewSyscallError("recvmmsg", errno)
			return true
		}
	}
}

// readFrom reads a struct sockaddr_in or sockaddr_in6.
func (e *mmsg) readFrom(m *Message, from *unix.RawSockaddrInet6) {
	port := binary.BigEndian.Uint16((*[2]byte)(unsafe.Pointer(&from.Port))[:])
	m.zone = ""
	if from.Family == unix.AF_INET {
		m.From = netip.AddrPortFrom(netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(from)).Addr), port)
		return
	}
	m.From = netip.AddrPortFrom(netip.AddrFrom16(from.Addr).Unmap(), port)
	if from.Scope_id != 0 {
		m.zone = e.zone(from.Scope_id)
	}
}

// zone is the name of an interface, its number, which net takes for one. There are few.
func (e *mmsg) zone(scope uint32) string {
	name, ok := e.zones[scope]
	if !ok {
		name = strconv.FormatUint(uint64(scope), 10)
		e.zones[scope] = name
	}
	return name
}

func (e *mmsg) send(n int) {
	k := 0
	for i := range e.s.messages[:n] {
		m := &e.s.messages[i]
		if len(m.Reply) == 0 {
			continue
		}
		e.outVec[k].Base, e.outVec[k].Len = unsafe.SliceData(m.Reply), uint64(len(m.Reply))
		h := &e.out[k].Hdr
		h.Name, h.Namelen = e.in[i].Hdr.Name, e.in[i].Hdr.Namelen
		h.Control, h.Controllen = unsafe.SliceData(m.control), uint64(len(m.control))
		k++
	}
	if e.unsent = e.out[:k]; k > 0 {
		_ = e.raw.Control(e.sendAll) // does nothing once the socket is closed
		e.s.unsent.Add(uint64(len(e.unsent)))
	}
}

// sendmmsg sends what is unsent, as much of it as there is room for before long. The
// kernel stops at a message that cannot leave, and says why if it is the first one: that
// one is left out.
func (e *mmsg) sendmmsg(uintptr) {
	for len(e.unsent) > 0 {
		n, errno := e.call(unix.SYS_SENDMMSG, uintptr(e.fd), e.unsent)
		switch errno {
		case 0:
			e.unsent = e.unsent[n:]
		case unix.EINTR:
		case unix.EAGAIN:
			if !e.waitForRoom() {
				return
			}
		default:
			e.unsent = e.unsent[1:]
			e.s.unsent.Add(1)
		}
	}
}

func (e *mmsg) sendTo(reply []byte, to Return) error {
	err := net.ErrClosed
	_ = e.raw.Control(func(uintptr) { err = unix.Sendmsg(e.fd, reply, to.control, e.sockaddr(to.to), unix.MSG_DONTWAIT) })
	return err
}

// sockaddr is an address as the socket has it. Its zone is a number, as readFrom made it.
func (e *mmsg) sockaddr(to netip.AddrPort) unix.Sockaddr {
	if e.domain == unix.AF_INET {
		return &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	scope, _ := strconv.ParseUint(to.Addr().Zone(), 10, 32)
	return &unix.SockaddrInet6{Port: int(to.Port()), ZoneId: uint32(scope), Addr: to.Addr().As16()}
}
