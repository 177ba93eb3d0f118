package batch

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"testing"
)

// A socket that is finished hands over what it has got, replies to it, and gets no more:
// that goes to the other one that is bound to the address.
func TestFinish(t *testing.T) {
	for _, at := range places {
		t.Run(fmt.Sprintf("%s %s, asked at %s", at.network, at.addr, at.ask), func(t *testing.T) {
			each(t, Options{}, func(t *testing.T, o Options) {
				old := listen(t, at.network, at.addr, o)
				var clients []*net.UDPConn
				for i := range 40 {
					c := dial(t, old, at.ask)
					send(t, c, fmt.Sprint("before ", i))
					clients = append(clients, c)
				}
				network := "udp4"
				if !old.LocalAddr().Addr().Is4() {
					network = at.network
				}
				other := listen(t, network, old.LocalAddr().String(), o)
				old.Finish()
				for n := 0; n < len(clients); {
					messages, err := old.Receive()
					if err != nil {
						t.Fatalf("after %d of %d: %v", n, len(clients), err)
					}
					for i := range messages {
						messages[i].Reply = append(append(messages[i].Reply, "re: "...), messages[i].Data...)
					}
					old.Send(len(messages))
					n += len(messages)
				}
				for i, c := range clients {
					expect(t, c, fmt.Sprint("re: before ", i))
				}
				if runtime.GOOS == "linux" {
					for i, c := range clients {
						send(t, c, fmt.Sprint("after ", i))
					}
					receive(t, other, len(clients))
				}
				if messages, err := old.Receive(); !errors.Is(err, net.ErrClosed) {
					t.Errorf("%d messages, %v", len(messages), err)
				}
				old.Finish()
				if err := old.Close(); err != nil {
					t.Error(err)
				}
				old.Finish()
			})
		})
	}
}

// Who waits for a datagram when the socket is finished waits no more.
func TestFinishWakes(t *testing.T) {
	each(t, Options{}, func(t *testing.T, o Options) {
		s := listen(t, "udp4", "127.0.0.1:0", o)
		failed := make(chan error)
		go func() {
			_, err := s.Receive()
			failed <- err
		}()
		s.Finish()
		if err := <-failed; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}
