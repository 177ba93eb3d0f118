//go:build linux

package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"

	"golang.org/x/sys/unix"
)

// echoBatch is how many messages one system call of the echo moves.
const echoBatch = 32

// EchoUDP answers queries of [ForEcho] on a socket, as fast as sockets can be used from Go: it
// receives a batch, turns the headers into those of replies, sends as many octets as each query
// asks for. It is not DNS. It goes on until the process ends, or the socket is bad.
func EchoUDP(conn *net.UDPConn) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer runtime.KeepAlive(conn) // else it might be closed
	fd, err := socket(conn)
	if err != nil {
		return err
	}
	// The runtime has it not block, since its poller waits for others.
	if err := unix.SetNonblock(fd, false); err != nil {
		return fmt.Errorf("echo: %w", err)
	}
	unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, socketBuffer)
	in, out := newVector(echoBatch, true), newVector(echoBatch, false)
	var queries, replies [echoBatch][]byte
	for i := range queries {
		queries[i], replies[i] = make([]byte, maxQuery), make([]byte, maxReply)
		in.set(i, queries[i])
	}
	for {
		for i := range queries {
			in.name(i)
		}
		n, err := in.call(unix.SYS_RECVMMSG, fd, echoBatch, unix.MSG_WAITFORONE, true)
		if err != nil {
			return fmt.Errorf("echo: receive: %w", err)
		}
		send := 0
		for i := range n {
			size, ok := echo(replies[send], queries[i][:in.headers[i].length])
			if !ok {
				continue
			}
			out.set(send, replies[send][:size])
			out.headers[send].header.Name = in.headers[i].header.Name
			out.headers[send].header.Namelen = in.headers[i].header.Namelen
			send++
		}
		if send > 0 {
			// Whom a reply does not reach has gone.
			if _, err := out.call(unix.SYS_SENDMMSG, fd, send, 0, false); err == unix.EBADF {
				return fmt.Errorf("echo: send: %w", err)
			}
		}
	}
}

// echo writes the header of a reply, and says how long the reply is to be.
func echo(reply, query []byte) (size int, ok bool) {
	if len(query) < header+2 {
		return 0, false
	}
	size = int(binary.BigEndian.Uint16(query[len(query)-2:]))
	if size < header {
		return 0, false
	}
	copy(reply, query[:len(query)-2])
	reply[2] |= 0x80 // QR
	return size, true
}

// EchoTCP is the same over TCP: it reads what is there, and answers all of it with one write. It
// returns when the listener is closed.
func EchoTCP(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("echo: accept: %w", err)
		}
		go func() {
			defer conn.Close()
			echoStream(conn) // until the asker goes
		}()
	}
}

func echoStream(conn io.ReadWriter) error {
	in := make([]byte, 64<<10)
	zeros := make([]byte, maxReply)
	var out []byte
	for end := 0; ; {
		n, err := conn.Read(in[end:])
		if err != nil {
			return err
		}
		end += n
		begin := 0
		out = out[:0]
		for end-begin >= 2 {
			length := int(binary.BigEndian.Uint16(in[begin:]))
			if length > maxQuery {
				return fmt.Errorf("echo: a query of %d octets", length)
			}
			if end-begin-2 < length {
				break
			}
			query := in[begin+2 : begin+2+length]
			begin += 2 + length
			if size, ok := echo(zeros, query); ok {
				out = append(binary.BigEndian.AppendUint16(out, uint16(size)), zeros[:size]...)
			}
		}
		end = copy(in, in[begin:end])
		if _, err := conn.Write(out); err != nil {
			return err
		}
	}
}
