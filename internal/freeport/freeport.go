// Package freeport finds ports for tests that need to know one before it is bound, bind one again
// that they have let go of, or bind the same one over UDP and TCP. Whoever needs none of these asks
// the kernel for port 0.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
)

// The ports are below those that Linux gives to outgoing connections and for port 0 (32768 and up,
// see ip_local_port_range): what is free stays so, whoever dials meanwhile.
const low, high = 10000, 32000

var (
	mu    sync.Mutex
	given = map[int]bool{}
)

// Find returns a port that no socket has, over UDP or TCP at any address, and that it has not
// returned before. It may be called from any goroutine.
func Find() (int, error) {
	mu.Lock()
	defer mu.Unlock()
	taken := sockets()
	for range 1000 {
		port := low + rand.IntN(high-low)
		if !given[port] && !strings.Contains(taken, entry(port)) {
			given[port] = true
			return port, nil
		}
	}
	return 0, errors.New("no port is free over UDP and TCP")
}

// sockets are the kernel's tables. To bind a port and let go of it again would tell as well, but a
// program that is started just then has the socket too, and keeps it for a moment.
func sockets() string {
	var all strings.Builder
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		b, _ := os.ReadFile("/proc/thread-self/net/" + table) // Linux has it, with IPv6 or without
		all.Write(b)
	}
	return all.String()
}

// entry is how the tables write a port: behind the address, in hexadecimal.
func entry(port int) string { return fmt.Sprintf(":%04X ", port) }

// Local is 127.0.0.1 with such a port, as ADDR:PORT, for a test.
func Local(t interface {
	Helper()
	Fatal(...any)
}) string {
	t.Helper()
	port, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}
