package epdns_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// load asks a server all the time and misses nothing that is lost. Each of its sockets has so
// many questions under way at most, so that no buffer on the way overflows: what is not
// answered has been lost by the server.
type load struct {
	sent, answered, wrong atomic.Int64
	last                  atomic.Int64 // when the last answer came, Unix nanoseconds

	began time.Time
	stop  chan struct{}
	wg    sync.WaitGroup

	mu     sync.Mutex
	failed error
}

const loadUnderWay = 16

// startLoad asks for jobs.shop over so many sockets, at most perSecond times in all.
func startLoad(t *testing.T, to netip.AddrPort, sockets, perSecond int) *load {
	t.Helper()
	q := ask("jobs.shop.registry.local.", dns.TypeA)
	query, err := q.pack()
	if err != nil {
		t.Fatal(err)
	}
	l := &load{began: time.Now(), stop: make(chan struct{})}
	for range sockets {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
		if err != nil {
			t.Fatal(err)
		}
		free := make(chan struct{}, loadUnderWay)
		asking := make(chan struct{})
		l.wg.Go(func() {
			defer close(asking)
			l.ask(c, query, free, perSecond/sockets)
		})
		l.wg.Go(func() {
			defer c.Close()
			l.hear(c, free, asking)
		})
	}
	return l
}

func (l *load) ask(c net.Conn, query []byte, free chan struct{}, perSecond int) {
	query = append([]byte(nil), query...)
	began := time.Now()
	for i := 0; ; i++ {
		if ahead := time.Duration(i)*time.Second/time.Duration(perSecond) - time.Since(began); ahead > time.Millisecond {
			time.Sleep(ahead)
		}
		select {
		case <-l.stop:
			return
		case free <- struct{}{}:
		}
		binary.BigEndian.PutUint16(query, uint16(i))
		l.sent.Add(1)
		if _, err := c.Write(query); err != nil {
			l.fail(err)
		}
	}
}

// hear reads until all is answered, or nothing more comes.
func (l *load) hear(c net.Conn, free, asking chan struct{}) {
	in := make([]byte, dns.MaxMsgSize)
	for {
		c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := c.Read(in)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			select {
			case <-asking:
				if len(free) == 0 || time.Since(time.Unix(0, l.last.Load())) > patience {
					return
				}
			default:
			}
			continue
		}
		if err != nil {
			l.fail(err)
			continue
		}
		l.last.Store(time.Now().UnixNano())
		l.answered.Add(1)
		if n < 12 || in[3]&0xf != dns.RcodeSuccess || binary.BigEndian.Uint16(in[6:]) == 0 {
			l.wrong.Add(1)
		}
		<-free
	}
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = err
	}
}

// end stops asking, and returns an error if anything was lost or not answered as it should.
func (l *load) end(t *testing.T) error {
	took := time.Since(l.began)
	close(l.stop)
	l.wg.Wait()
	sent, answered, wrong := l.sent.Load(), l.answered.Load(), l.wrong.Load()
	t.Logf("%d questions in %v, %.0f a second", sent, took.Round(time.Millisecond), float64(sent)/took.Seconds())
	if lost := sent - answered; lost != 0 || wrong != 0 || l.failed != nil {
		return fmt.Errorf("of %d questions %d are lost and %d answered wrongly, %v", sent, lost, wrong, l.failed)
	}
	return nil
}
