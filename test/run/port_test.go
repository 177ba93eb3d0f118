package run

import (
	"fmt"
	"net"
	"testing"
)

func TestFreePort(t *testing.T) {
	seen := map[int]bool{}
	for range 100 {
		port, err := FreePort()
		if err != nil || seen[port] || port >= 32768 {
			t.Fatalf("port %d, %v", port, err)
		}
		seen[port] = true
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		l, err := net.Listen("tcp4", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		conn, err := net.ListenPacket("udp4", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
}
