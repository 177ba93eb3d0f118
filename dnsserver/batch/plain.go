package batch

import (
	"net/netip"
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
