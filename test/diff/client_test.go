//go:build linux

package diff_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/miekg/dns"
)

// This file asks several servers the same question.

// way is how a question goes.
type way int

const (
	plain way = iota // UDP, no EDNS
	edns             // UDP with EDNS, 1232 octets
	do               // UDP with EDNS, DO and more octets than anyone uses
	tcp              // no EDNS
	ways             // how many
)

func (w way) String() string {
	return [...]string{"UDP", "UDP EDNS 1232", "UDP EDNS 4096 DO", "TCP"}[w]
}

// limit is how long a reply may be.
func (w way) limit() int {
	switch w {
	case plain:
		return dns.MinMsgSize
	case tcp:
		return dns.MaxMsgSize
	}
	return 1232
}

// question is what is asked.
type question struct {
	name  string // as it is sent
	qtype uint16
	way   way
}

func (q question) String() string { return fmt.Sprintf("%s %v, %v", q.name, dns.Type(q.qtype), q.way) }

// append appends the query to dst.
func (q question) append(dst []byte, id uint16) ([]byte, error) {
	dst = binary.BigEndian.AppendUint16(dst, id)
	dst = append(dst, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0)
	at := len(dst)
	dst = append(dst, make([]byte, 256)...)
	end, err := dns.PackDomainName(q.name, dst, at, nil, false)
	if err != nil {
		return nil, fmt.Errorf("name %q: %w", q.name, err)
	}
	dst = binary.BigEndian.AppendUint16(dst[:end], q.qtype)
	dst = append(dst, 0, dns.ClassINET)
	size, flags := uint16(1232), byte(0)
	switch q.way {
	case plain, tcp:
		return dst, nil
	case do:
		size, flags = 4096, 0x80
	}
	dst[11] = 1
	dst = append(dst, 0, 0, byte(dns.TypeOPT))
	dst = binary.BigEndian.AppendUint16(dst, size)
	return append(dst, 0, 0, flags, 0, 0, 0), nil
}

// asker has a socket of each kind to each of some servers.
type asker struct {
	of       []server
	udp, tcp [coreDNS + 1]net.Conn

	query, reply []byte
}

func (a *asker) close() {
	for _, s := range a.of {
		for _, c := range []net.Conn{a.udp[s], a.tcp[s]} {
			if c != nil {
				c.Close()
			}
		}
	}
}

// patience is how long a reply may take, and tries how often one is asked for.
const (
	patience = 2 * time.Second
	tries    = 3
)

// ask sends a question to the servers at once and returns their replies, in that order.
func (a *asker) ask(q question) (replies []*reply, err error) {
	id := uint16(rand.Uint32()) // late replies are those to another question
	query, err := q.append(a.query[:0], id)
	if err != nil {
		return replies, err
	}
	a.query = query
	for _, s := range a.of {
		if err := a.send(s, q.way); err != nil {
			return replies, fmt.Errorf("%v: %v: %w", s, q, err)
		}
	}
	for _, s := range a.of {
		wire, err := a.receive(s, q.way, id)
		for try := 1; err != nil && try < tries; try++ {
			if err = a.send(s, q.way); err == nil {
				wire, err = a.receive(s, q.way, id)
			}
		}
		var r *reply
		if err == nil {
			r, err = parse(q, wire)
		}
		if err != nil {
			return replies, fmt.Errorf("%v: %v: %w", s, q, err)
		}
		replies = append(replies, r)
	}
	return replies, nil
}

// send sends the query.
func (a *asker) send(s server, w way) error {
	var err error
	if w != tcp {
		if a.udp[s] == nil {
			if a.udp[s], err = net.Dial("udp", s.address()); err != nil {
				return err
			}
		}
		_, err = a.udp[s].Write(a.query)
		return err
	}
	framed := append(binary.BigEndian.AppendUint16(nil, uint16(len(a.query))), a.query...)
	if a.tcp[s] != nil {
		if _, err = a.tcp[s].Write(framed); err == nil {
			return nil
		}
		a.hangUp(s) // the server may have closed it, for being idle
	}
	if a.tcp[s], err = net.Dial("tcp", s.address()); err != nil {
		a.tcp[s] = nil
		return err
	}
	_, err = a.tcp[s].Write(framed)
	return err
}

// hangUp closes a connection, so that the next question makes another one.
func (a *asker) hangUp(s server) {
	if a.tcp[s] != nil {
		a.tcp[s].Close()
		a.tcp[s] = nil
	}
}

// receive waits for the reply with that ID. It is valid until the next one.
func (a *asker) receive(s server, w way, id uint16) ([]byte, error) {
	if a.reply == nil {
		a.reply = make([]byte, dns.MaxMsgSize)
	}
	deadline := time.Now().Add(patience)
	if w != tcp {
		a.udp[s].SetReadDeadline(deadline)
		for {
			n, err := a.udp[s].Read(a.reply)
			if err != nil {
				return nil, err
			}
			if n >= 2 && binary.BigEndian.Uint16(a.reply) == id {
				return a.reply[:n], nil
			}
		}
	}
	c := a.tcp[s]
	if c == nil {
		return nil, net.ErrClosed
	}
	c.SetReadDeadline(deadline)
	for {
		_, err := io.ReadFull(c, a.reply[:2])
		n := int(binary.BigEndian.Uint16(a.reply))
		if err == nil {
			_, err = io.ReadFull(c, a.reply[:n])
		}
		if err != nil {
			a.hangUp(s)
			return nil, err
		}
		if n >= 2 && binary.BigEndian.Uint16(a.reply) == id {
			return a.reply[:n], nil
		}
	}
}
