package batch

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"time"
)

// plain moves one datagram at a time, by what every system has.
type plain struct {
	s       *Socket
	in      []byte
	control []byte
}

func newPlain(s *Socket, o Options) *plain {
	o.Size = 1
	s.allot(o)
	return &plain{s: s, in: make([]byte, o.In), control: make([]byte, controlSize)}
}

func (p *plain) receive() (int, error) {
	n, controlled, _, from, err := p.s.conn.ReadMsgUDPAddrPort(p.in, p.control)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		// Finished, it has what is left. Nothing is read once the time is over, so it gets more.
		_ = p.s.conn.SetReadDeadline(time.Now().Add(lastLook))
		n, controlled, _, from, err = p.s.conn.ReadMsgUDPAddrPort(p.in, p.control)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = net.ErrClosed
	}
	if err != nil {
		return 0, err
	}
	m := &p.s.messages[0]
	m.Data = p.in[:n]
	m.zone = from.Addr().Zone()
	m.From = netip.AddrPortFrom(from.Addr().WithZone("").Unmap(), from.Port())
	p.s.readControl(m, p.control[:controlled])
	return 1, nil
}

func (p *plain) send(n int) {
	for i := range p.s.messages[:n] {
		m := &p.s.messages[i]
		if len(m.Reply) == 0 {
			continue
		}
		to := netip.AddrPortFrom(m.From.Addr().WithZone(m.zone), m.From.Port())
		if _, _, err := p.s.conn.WriteMsgUDPAddrPort(m.Reply, m.control, to); err != nil {
			p.s.unsent.Add(1)
		}
	}
}

func (p *plain) sendTo(reply []byte, to Return) error {
	_, _, err := p.s.conn.WriteMsgUDPAddrPort(reply, to.control, to.to)
	return err
}

func (p *plain) close() error { return p.s.conn.Close() }

// lastLook is how long it takes to find that nothing is left: longer than a thread waits for
// a processor.
const lastLook = 100 * time.Millisecond

func (p *plain) descriptor(f func(fd int)) error {
	raw, err := p.s.conn.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { f(int(fd)) })
}

func (p *plain) finish(at time.Time) {
	_ = p.descriptor(detach)
	_ = p.s.conn.SetReadDeadline(at) // fails once it is closed
}
