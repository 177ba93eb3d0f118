package freeport

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// A port that is bound in one way only, at any address, is not free.
func TestSockets(t *testing.T) {
	port, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range []string{fmt.Sprintf(":%d", port), fmt.Sprintf("127.0.0.1:%d", port)} {
		for _, bind := range []func() (interface{ Close() error }, error){
			func() (interface{ Close() error }, error) { return net.Listen("tcp", addr) },
			func() (interface{ Close() error }, error) { return net.ListenPacket("udp", addr) },
		} {
			if strings.Contains(sockets(), entry(port)) {
				t.Errorf("%s is taken before it is bound", addr)
			}
			bound, err := bind()
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(sockets(), entry(port)) {
				t.Errorf("%s is taken for free", addr)
			}
			bound.Close()
		}
	}
}

func TestFindNeverTheSame(t *testing.T) {
	seen := map[int]bool{}
	for range 200 {
		port, err := Find()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port < low || port >= high {
			t.Fatalf("port %d", port)
		}
		seen[port] = true
	}
}

// A port is free while programs are started, which have the sockets of who starts them until they
// run.
func TestFindWhileProgramsStart(t *testing.T) {
	var stop atomic.Bool
	ended := make(chan struct{}, 4)
	for range cap(ended) {
		go func() {
			for !stop.Load() {
				exec.Command("true").Run()
			}
			ended <- struct{}{}
		}()
	}
	for range 50 {
		l, err := net.Listen("tcp", Local(t))
		if err != nil {
			t.Error(err)
			break
		}
		l.Close()
	}
	stop.Store(true)
	for range cap(ended) {
		<-ended
	}
}
