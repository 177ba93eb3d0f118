package batch

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// Options of a Socket. The zero value of each field stands for a good default.
type Options struct {
	// Size is how many datagrams Receive returns at most; 0 is DefaultSize.
	Size int

	// In is the room for each datagram in octets, of which a longer one loses its end;
	// 0 is room for all. Out is the room for each reply at first; 0 is 1400.
	In, Out int

	// Buffer is what the socket asks for in each direction, in octets; 0 is 4 MiB. The
	// kernel may give less; that of Linux gives twice as much, for its own needs.
	Buffer int

	// Plain does as systems without the system calls do, to be compared with.
	Plain bool
}

// DefaultSize is where the cost of the system calls is spread thin enough: a batch of
// twice the size saves next to nothing, and its first reply waits for twice as many.
const DefaultSize = 32

func (o Options) withDefaults() Options {
	def := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	def(&o.Size, DefaultSize)
	def(&o.In, 1<<16-1)
	def(&o.Out, 1400)
	def(&o.Buffer, 4<<20) // some thousand queries while the worker is not on a processor
	return o
}

// Message is a datagram that came, and room for the reply.
type Message struct {
	Data  []byte         // until the next Receive; it has no room behind it
	From  netip.AddrPort // an IPv4 address as such, whatever the socket; without a zone
	Local netip.Addr     // that was asked; not valid where the system does not say

	// Reply is empty when the Message comes, and is to be appended to. What is in it
	// at Send goes back to where the Message came from; nothing means silence.
	Reply []byte

	zone    string // of an IPv6 link-local From
	control []byte // has the reply sent from Local; nil where that goes without saying
}

// Return is where a reply to a Message goes that is made later.
type Return struct {
	to      netip.AddrPort
	control []byte
}

// Return may be kept.
func (m *Message) Return() Return {
	return Return{netip.AddrPortFrom(m.From.Addr().WithZone(m.zone), m.From.Port()), bytes.Clone(m.control)}
}

// Socket is a UDP socket. Close, SendTo, LocalAddr and the counters may be used from any
// goroutine, all else from the worker's alone.
type Socket struct {
	conn     *net.UDPConn   // nil once the engine has taken it over
	bound    netip.AddrPort // that it is bound to, an IPv4 address as such
	local    netip.Addr     // of that; not valid for all addresses
	messages []Message
	engine   engine

	drops  atomic.Uint64
	unsent atomic.Uint64
}

// engine is the part that differs between systems.
type engine interface {
	// receive waits for datagrams and fills as many of the Socket's messages, from the
	// first one on: all but Reply, and Local only on a socket for all addresses.
	receive() (int, error)
	// send sends the replies among the first n messages.
	send(n int)
	// sendTo sends one reply, close ends a receive that waits, finish has receive fail
	// with net.ErrClosed once that time is over and nothing is left, and descriptor calls f with
	// the socket's descriptor; all from any goroutine.
	sendTo(reply []byte, to Return) error
	close() error
	finish(at time.Time)
	descriptor(f func(fd int)) error
}

// Listen binds a socket in the network "udp", "udp4" or "udp6". Others may be bound to
// the same address by Listen. For the same reason port 0 may become one that is taken: find
// a free one by other means.
func Listen(network, addr string, o Options) (*Socket, error) {
	o = o.withDefaults()
	lc := net.ListenConfig{Control: beforeBind}
	pc, err := lc.ListenPacket(context.Background(), network, addr)
	if err != nil {
		return nil, err
	}
	s := &Socket{conn: pc.(*net.UDPConn)}
	at := s.conn.LocalAddr().(*net.UDPAddr).AddrPort()
	s.bound = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	if !s.bound.Addr().IsUnspecified() {
		s.local = s.bound.Addr()
	}
	raw, err := s.conn.SyscallConn()
	if err != nil {
		s.conn.Close()
		return nil, err
	}
	setBuffers(s.conn, raw, o.Buffer)
	if o.Plain {
		s.engine = newPlain(s, o)
	} else {
		s.engine = newEngine(s, raw, o)
	}
	return s, nil
}

// allot makes the messages and their replies' buffers.
func (s *Socket) allot(o Options) {
	out := make([]byte, o.Size*apart(o.Out))
	s.messages = make([]Message, o.Size)
	for i := range s.messages {
		s.messages[i].Local = s.local
		s.messages[i].Reply = room(out, i, o.Out)[:0]
	}
}

// room is the i-th of the buffers of a size that lie side by side in all.
func room(all []byte, i, size int) []byte { return all[i*apart(size):][:size:size] }

// apart is the distance of buffers of a size, a little more than it: what all of them
// begin with would otherwise meet in one set of the processor's cache.
func apart(size int) int {
	const line = 64
	return (size+line-1)/line*line + line
}

// Size is how many datagrams Receive returns at most.
func (s *Socket) Size() int { return len(s.messages) }

// LocalAddr is the address that the socket is bound to, an IPv4 one as such.
func (s *Socket) LocalAddr() netip.AddrPort { return s.bound }

// Receive waits for a datagram and returns it with those that are there already, up to
// Options.Size. They are the caller's until the next Receive, also if it fails. Once the
// socket is closed, or finished and empty, the error is net.ErrClosed.
func (s *Socket) Receive() ([]Message, error) {
	n, err := s.engine.receive()
	if err != nil {
		return nil, err
	}
	for i := range s.messages[:n] {
		s.messages[i].Reply = s.messages[i].Reply[:0]
	}
	return s.messages[:n], nil
}

// Send sends the replies to the first n messages that Receive returned, and returns when
// the kernel has them. One that cannot leave is lost like one on the way, for which the
// asker will ask again, and is counted as unsent.
func (s *Socket) Send(n int) { s.engine.send(n) }

// SendTo sends one reply.
func (s *Socket) SendTo(reply []byte, to Return) {
	if s.engine.sendTo(reply, to) != nil {
		s.unsent.Add(1)
	}
}

// Drops is how many datagrams the kernel had no room for, or has dropped by Thin, as far as it has
// said so: it does with each datagram that comes later.
func (s *Socket) Drops() uint64 { return s.drops.Load() }

// Thin has the kernel drop what comes from some prefixes before it takes room in the socket, all
// but one in 1<<share, by chance; what is dropped counts among the Drops. Of no prefixes, or with a
// share of 0, nothing is dropped any more. The error is net.ErrClosed once the socket is closed, and
// errors.ErrUnsupported where the system has no such thing. It may be called from any goroutine.
func (s *Socket) Thin(from []netip.Prefix, share uint) error {
	var err error
	if e := s.engine.descriptor(func(fd int) { err = thin(fd, from, share) }); e != nil {
		return e
	}
	return err
}

// Unsent is how many replies could not leave.
func (s *Socket) Unsent() uint64 { return s.unsent.Load() }

// onTheWay is how long a datagram may take from the choice of a socket for it into the
// socket: much longer than it does where the kernel has a processor.
const onTheWay = 10 * time.Millisecond

// Finish has the kernel give what comes from now on to the other sockets that are bound to
// the address, in other processes too, and Receive return what this one has got, and then
// net.ErrClosed. Where the system knows no such thing, it returns what comes within a
// moment. Replies can be sent until Close, which is to follow.
func (s *Socket) Finish() { s.engine.finish(time.Now().Add(onTheWay)) }

// Close ends a Receive that waits.
func (s *Socket) Close() error { return s.engine.close() }
