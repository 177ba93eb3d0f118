//go:build linux

package load

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Spray sends queries that nobody waits for: a flood, as fast as it is told whatever the server
// does.
type Spray struct {
	Server  string       // IPv4 address and port
	Sources []netip.Addr // to send from, in turns; none is any
	CPU     int          // to send on, negative for any
	Rate    int          // queries a second

	// Next writes the next query into b and returns it. All queries that follow each other are
	// best of one length.
	Next func(b []byte) []byte
}

// sprayPorts is how many ports it sends from at least, so that all of a server's workers get
// some of it.
const sprayPorts = 16

// Run sends until ctx ends, and returns how many queries have left.
func (s *Spray) Run(ctx context.Context) (sent int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if s.CPU >= 0 {
		back, err := pinThread(s.CPU)
		if err != nil {
			return 0, err
		}
		defer back()
	}
	var sockets []*udp
	defer func() {
		for _, u := range sockets {
			u.close()
		}
	}()
	for i := range max(sprayPorts, len(s.Sources)) {
		source := netip.IPv4Unspecified()
		if len(s.Sources) > 0 {
			source = s.Sources[i%len(s.Sources)]
		}
		u, err := dialUDPFrom(s.Server, source)
		if err != nil {
			return 0, err
		}
		unix.SetsockoptInt(u.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 0) // replies are of no use
		sockets = append(sockets, u)
	}
	var buffers [batch][maxQuery]byte
	messages := make([][]byte, batch)
	began := time.Now()
	for turn := 0; ; turn++ {
		now := time.Now()
		due := int(float64(s.Rate) * now.Sub(began).Seconds())
		if ctx.Err() != nil {
			return sent, nil
		}
		if due-sent < batch {
			rest(now.Add(300 * time.Microsecond))
			continue
		}
		if due-sent > s.Rate/10 { // it cannot be that fast: what is late for so long is left out
			began = now.Add(-time.Duration(float64(sent) / float64(s.Rate) * float64(time.Second)))
		}
		for i := range messages {
			messages[i] = s.Next(buffers[i][:])
			binary.BigEndian.PutUint16(messages[i], uint16(rand.Uint32()))
		}
		if err := sockets[turn%len(sockets)].send(messages); err != nil {
			return sent, err
		}
		sent += batch
	}
}
