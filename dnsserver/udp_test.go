package dnsserver

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/dnsserver/batch"
)

// Many questions at once, of all kinds: each has its own answer, what is no query has
// none, and what an upstream knows comes in between. However the sockets work.
func TestUDPBurst(t *testing.T) {
	upstream := elsewhere(t, has192)
	for what, o := range map[string]batch.Options{"batches": {}, "small batches": {Size: 3}, "plain": {Plain: true}} {
		for _, listen := range []string{"127.0.0.1:0", ":0"} {
			t.Run(fmt.Sprintf("%s on %s", what, listen), func(t *testing.T) {
				s := start(t, Config{Listen: []string{listen}, Workers: 2, udp: o, Upstream: []netip.AddrPort{upstream}})
				c, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", s.Addrs()[0].Port()))
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				c.SetDeadline(time.Now().Add(patience))
				kinds := []struct {
					name    string
					typ     uint16
					rcode   int
					answers int
				}{
					{"web.shop.registry.local.", dns.TypeA, dns.RcodeSuccess, 10},
					{"nope.shop.registry.local.", dns.TypeA, dns.RcodeNameError, 0},
					{"example.com.", dns.TypeA, dns.RcodeSuccess, 1},
					{"one.shop.registry.local.", dns.TypeAAAA, dns.RcodeSuccess, 1},
				}
				const questions = 80
				for id := range questions {
					k := kinds[id%len(kinds)]
					q := question(k.name, k.typ)
					q.Id = uint16(id)
					msg, err := q.Pack()
					if err != nil {
						t.Fatal(err)
					}
					if _, err := c.Write(msg); err != nil {
						t.Fatal(err)
					}
					if id%3 == 0 {
						c.Write(msg[:5])
					}
				}
				var got [questions]bool
				in := make([]byte, maxTCPSize)
				for range questions {
					n, err := c.Read(in)
					if err != nil {
						t.Fatal(err)
					}
					var m dns.Msg
					if err := m.Unpack(in[:n]); err != nil || int(m.Id) >= questions || got[m.Id] {
						t.Fatalf("%v: %v", &m, err)
					}
					got[m.Id] = true
					if k := kinds[int(m.Id)%len(kinds)]; m.Question[0].Name != k.name || m.Rcode != k.rcode || len(m.Answer) != k.answers {
						t.Errorf("%s has %d answers and RCODE %d:\n%v", k.name, len(m.Answer), m.Rcode, &m)
					}
				}
				if d := s.Stats().Dropped["short"]; d != (questions+2)/3 {
					t.Errorf("%d had no reply", d)
				}
			})
		}
	}
}

// A query may be as long as a datagram can be.
func TestLongQuery(t *testing.T) {
	s := start(t, Config{Workers: 1})
	short := len(query1(0, in("web", dns.TypeA), opt(1232, 0, option(optionPadding))))
	for _, n := range []int{4096, 4097, 65507} {
		q := query1(0, in("web", dns.TypeA), opt(1232, 0, option(optionPadding, make([]byte, n-short)...)))
		if len(q) != n {
			t.Fatalf("%d octets, want %d", len(q), n)
		}
		var m dns.Msg
		if err := m.Unpack(exchanged(t, s, "udp", q)); err != nil || m.Rcode != dns.RcodeSuccess || len(m.Answer) != 10 {
			t.Errorf("%d octets: %v\n%v", n, err, &m)
		}
	}
}

// What the kernel has no room for is in the statistics, to the last datagram.
func TestKernelDrops(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("counted on Linux alone")
	}
	s, err := Listen(Config{Listen: []string{"127.0.0.1:0"}, Workers: 1, udp: batch.Options{Buffer: 1}}, cluster(t), quiet)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("udp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	sent, reply := uint64(0), make([]byte, maxUDPSize)
	ask := func() {
		if _, err := c.Write(query1(0, in("web", dns.TypeA))); err != nil {
			t.Fatal(err)
		}
		sent++
	}
	for range 200 {
		ask()
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { s.Serve(ctx) })
	defer wg.Wait()
	defer stop()
	// The count comes with a later query. As replies lag behind, it may take some.
	for {
		ask()
		if _, err := c.Read(reply); err != nil {
			t.Fatalf("of %d datagrams, %+v: %v", sent, s.Stats(), err)
		}
		now := s.Stats()
		if now.UDPKernelDrops > 0 && now.UDPKernelDrops+now.Requests[RequestKind{UDP, 1, "A"}] == sent {
			break
		}
	}
}

// A worker that has no end of queries lets others run all the same: with one processor,
// somebody who looks again and again sees it advance in small steps.
func TestTurns(t *testing.T) {
	s, err := Listen(Config{Listen: []string{"127.0.0.1:0"}, Workers: 1}, cluster(t), quiet)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("udp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const queries = 15 * turn
	for range queries {
		if _, err := c.Write(query1(0, in("web", dns.TypeA))); err != nil {
			t.Fatal(err)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ctx, stop := context.WithTimeout(context.Background(), patience)
	var wg sync.WaitGroup
	wg.Go(func() { s.Serve(ctx) })
	steps := map[uint64]bool{}
	for now := uint64(0); now < queries && ctx.Err() == nil; {
		runtime.Gosched()
		now = s.Stats().Responses[ResponseKind{UDP, "NOERROR"}]
		steps[now] = true
	}
	stop()
	wg.Wait()
	if len(steps) < 10 {
		t.Errorf("%d queries were answered in %d steps", queries, len(steps))
	}
}
