//go:build linux

package load

import (
	"encoding/binary"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// tcp is some connections, read in turn. Which of them a query goes to is in its ID.
type tcp struct {
	connections []*stream
	messages    [][]byte
}

// stream is one connection. Its socket is used without the runtime's poller.
type stream struct {
	conn  *net.TCPConn
	fd    int
	out   []byte // framed queries that have not left yet
	in    []byte // what has come, from begin to end
	begin int
	end   int
}

// streamBuffer has room for some of the longest replies.
const streamBuffer = 4 * (maxReply + 2)

func dialTCP(server string, connections int) (*tcp, error) {
	t := &tcp{}
	for range max(connections, 1) {
		conn, err := net.Dial("tcp", server)
		if err != nil {
			t.close()
			return nil, fmt.Errorf("ask over TCP: %w", err)
		}
		s := &stream{conn: conn.(*net.TCPConn), in: make([]byte, streamBuffer)}
		t.connections = append(t.connections, s)
		if s.fd, err = socket(s.conn); err != nil {
			t.close()
			return nil, fmt.Errorf("ask %s over TCP: %w", server, err)
		}
	}
	return t, nil
}

func (t *tcp) send(messages [][]byte) error {
	for _, m := range messages {
		id := int(binary.BigEndian.Uint16(m))
		s := t.connections[id%MaxOutstanding%len(t.connections)]
		s.out = append(binary.BigEndian.AppendUint16(s.out, uint16(len(m))), m...)
	}
	for _, s := range t.connections {
		if err := s.flush(); err != nil {
			return err
		}
	}
	return nil
}

// flush sends as much as the kernel takes.
func (s *stream) flush() error {
	for len(s.out) > 0 {
		n, err := unix.SendmsgN(s.fd, s.out, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if err == unix.EAGAIN {
			return nil
		}
		if err != nil {
			return fmt.Errorf("send queries over TCP: %w", err)
		}
		s.out = s.out[:copy(s.out, s.out[n:])]
	}
	return nil
}

func (t *tcp) recv() ([][]byte, error) {
	t.messages = t.messages[:0]
	for _, s := range t.connections {
		if err := s.flush(); err != nil {
			return nil, err
		}
		if err := s.read(); err != nil {
			return nil, err
		}
		for s.end-s.begin >= 2 {
			n := int(binary.BigEndian.Uint16(s.in[s.begin:]))
			if s.end-s.begin-2 < n {
				break
			}
			t.messages = append(t.messages, s.in[s.begin+2:s.begin+2+n])
			s.begin += 2 + n
		}
	}
	return t.messages, nil
}

// read takes what is there. Messages that were handed out are over.
func (s *stream) read() error {
	if s.begin > 0 {
		s.end = copy(s.in, s.in[s.begin:s.end])
		s.begin = 0
	}
	n, _, err := unix.Recvfrom(s.fd, s.in[s.end:], unix.MSG_DONTWAIT)
	switch {
	case err == unix.EAGAIN:
		return nil
	case err != nil:
		return fmt.Errorf("receive replies over TCP: %w", err)
	case n == 0:
		return fmt.Errorf("the server %s has closed a TCP connection", s.conn.RemoteAddr())
	}
	s.end += n
	return nil
}

func (t *tcp) close() (err error) {
	for _, s := range t.connections {
		if e := s.conn.Close(); err == nil {
			err = e
		}
	}
	return err
}
