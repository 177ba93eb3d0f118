package proxy

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Path is what happens to datagrams, in either direction. Shares are from 0 to 1.
type Path struct {
	Loss, Duplicate float64
	Delay, Jitter   time.Duration // Jitter comes on top, evenly from nothing: it changes the order
}

// UDP is a relay of datagrams between clients and a server.
type UDP struct {
	conn   *net.UDPConn
	server *net.UDPAddr
	path   atomic.Pointer[Path]

	mu      sync.Mutex
	clients map[string]*net.UDPConn // to the server, by the client's address
	closed  bool
}

// NewUDP starts a relay to a server. Close must be called.
func NewUDP(server string) (*UDP, error) {
	to, err := net.ResolveUDPAddr("udp", server)
	if err != nil {
		return nil, fmt.Errorf("relay to %s: %w", server, err)
	}
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("relay to %s: %w", server, err)
	}
	u := &UDP{conn: conn, server: to, clients: map[string]*net.UDPConn{}}
	u.path.Store(&Path{})
	go u.run()
	return u, nil
}

// Addr is where clients ask.
func (u *UDP) Addr() string { return u.conn.LocalAddr().String() }

// Set changes what happens to datagrams from now on.
func (u *UDP) Set(p Path) { u.path.Store(&p) }

// Close ends it.
func (u *UDP) Close() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for _, c := range u.clients {
		c.Close()
	}
	return u.conn.Close()
}

func (u *UDP) run() {
	for buf := make([]byte, 65535); ; {
		n, client, err := u.conn.ReadFromUDP(buf)
		if err != nil {
			return // closed
		}
		if c := u.toServer(client); c != nil {
			u.pass(buf[:n], func(b []byte) { c.Write(b) })
		}
	}
}

// toServer is the socket that stands for a client.
func (u *UDP) toServer(client *net.UDPAddr) *net.UDPConn {
	u.mu.Lock()
	defer u.mu.Unlock()
	if c := u.clients[client.String()]; c != nil || u.closed {
		return c
	}
	c, err := net.DialUDP("udp", nil, u.server)
	if err != nil {
		return nil // it is lost, as datagrams are
	}
	u.clients[client.String()] = c
	go func() {
		for buf := make([]byte, 65535); ; {
			n, err := c.Read(buf)
			switch {
			case err == nil:
				u.pass(buf[:n], func(b []byte) { u.conn.WriteToUDP(b, client) })
			case isClosed(u):
				return
			default: // nobody listens there at the moment
				time.Sleep(time.Millisecond)
			}
		}
	}()
	return c
}

func isClosed(u *UDP) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.closed
}

// pass sends a datagram as often, and as late, as the path has it.
func (u *UDP) pass(b []byte, send func([]byte)) {
	p := u.path.Load()
	if rand.Float64() < p.Loss {
		return
	}
	copies := 1
	if rand.Float64() < p.Duplicate {
		copies = 2
	}
	b = append([]byte(nil), b...)
	for range copies {
		delay := p.Delay
		if p.Jitter > 0 {
			delay += rand.N(p.Jitter)
		}
		if delay == 0 {
			send(b)
			continue
		}
		time.AfterFunc(delay, func() { send(b) })
	}
}
