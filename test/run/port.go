package run

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
)

var (
	portsMu sync.Mutex
	ports   = map[int]bool{} // that FreePort has returned
)

// FreePort is one that no socket has, over UDP or TCP, for a program that has to be told its port;
// none that was returned before. It is below those that Linux gives to outgoing connections and for
// port 0 (ip_local_port_range), so that it stays free until the program has it. The kernel's tables
// tell: a socket bound to find out would be kept for a moment by a program that is started just then.
func FreePort() (port int, err error) {
	const low, high = 10000, 32000
	var taken strings.Builder
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6"} {
		b, err := os.ReadFile("/proc/thread-self/net/" + table)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // without IPv6
			return 0, err
		}
		taken.Write(b)
	}
	portsMu.Lock()
	defer portsMu.Unlock()
	for range 1000 {
		port = low + rand.IntN(high-low)
		if !ports[port] && !strings.Contains(taken.String(), fmt.Sprintf(":%04X ", port)) {
			ports[port] = true
			return port, nil
		}
	}
	return 0, errors.New("no port is free over UDP and TCP")
}
