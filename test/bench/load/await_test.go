//go:build linux

package load

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"time"
)

// The first query gets no reply, the second one two that are not wanted, the third one what is.
func TestAwait(t *testing.T) {
	server, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	conn, err := net.DialUDP("udp4", nil, server.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	asked := make(chan int)
	go func() {
		n := 0
		for b := make([]byte, 512); ; n++ {
			length, from, err := server.ReadFromUDP(b)
			if err != nil {
				asked <- n
				return
			}
			for _, reply := range [][]string{{}, {"no", "none"}, {"yes"}}[min(n, 2)] {
				server.WriteToUDP(append(b[:length:length], reply...), from)
			}
		}
	}()
	const every, patience = time.Millisecond, 20 * time.Millisecond
	var replies []string
	began := time.Now()
	at, err := Await(t.Context(), conn, wire, every, patience, func(reply []byte) bool {
		rest, ok := bytes.CutPrefix(reply, wire)
		replies = append(replies, string(rest))
		return ok && string(rest) == "yes"
	})
	if took := at.Sub(began); err != nil || took < every+patience {
		t.Errorf("%v after %v", err, took)
	}
	if want := []string{"no", "none", "yes"}; !slices.Equal(replies, want) {
		t.Errorf("replies %q, want %q", replies, want)
	}

	never := errors.New("never")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Millisecond, never)
	defer cancel()
	if at, err := Await(ctx, conn, wire, every, patience, func([]byte) bool { return false }); err != never || !at.IsZero() {
		t.Errorf("%v, %v", at, err)
	}
	server.Close()
	if n := <-asked; n < 4 {
		t.Errorf("it has asked %d times", n)
	}
}
