package dnsserver

import (
	"log/slog"
	"net"
	"sync"
	"testing"

	"epdns/dnsserver/batch"
)

// A flood of one network fills a small socket: it is thinned, and told of, until it is over.
func TestThinnedServer(t *testing.T) {
	var out lines
	cfg := Config{RateLimit: RateLimitConfig{PerSecond: 5}, Workers: 1, udp: batch.Options{Buffer: 1, Size: 1}}
	s := startLogged(t, cfg, slog.New(slog.NewTextHandler(&out, nil)))
	var senders sync.WaitGroup
	done := make(chan struct{})
	for _, from := range []string{"127.9.0.1", "127.9.0.2"} {
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, net.UDPAddrFromAddrPort(s.Addrs()[0]))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		senders.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					c.Write(webA0) // replies are not read, so that some fail
				}
			}
		})
	}
	until(t, "a flood is thinned", func() bool { return s.Stats().ThinnedNetworks == 1 })
	close(done)
	senders.Wait()
	if s.Stats().UDPKernelDrops == 0 {
		t.Error("what is dropped is not counted")
	}
	until(t, "all is read again", func() bool { return s.Stats().ThinnedNetworks == 0 })
	c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP("127.9.0.3")}, net.UDPAddrFromAddrPort(s.Addrs()[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := s.Stats().LimitDropped
	until(t, "each query is read", func() bool {
		c.Write(webA0)
		return s.Stats().LimitDropped >= before+150
	})
	if n := out.count(`is dropped before" networks=[127.9.0.0/24]`); n != 1 {
		t.Errorf("it is told of in %d lines", n)
	}
}
