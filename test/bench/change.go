//go:build linux

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/miekg/dns"

	"epdns/test/bench/load"
	"epdns/test/cluster"
	"epdns/test/run"
)

// changer changes slices: their first endpoint gets an address that was never there.
type changer struct {
	services []*service
	apply    func(context.Context, change) error // returns when it is acknowledged

	mu   sync.Mutex
	next int // address, counted down
}

// change is what is to become of a slice.
type change struct {
	service *service
	slice   int
	address int
}

// choose chooses a slice at random. It is never the first of the first Service, which is for
// [changer.looked]: what is looked for there must not go before it was seen.
func (c *changer) choose() change {
	for {
		s := c.services[rand.IntN(len(c.services))]
		if i := rand.IntN(s.slices()); i > 0 || s != c.services[0] {
			return change{s, i, c.address()}
		}
	}
}

// looked is a change of the slice that is looked at.
func (c *changer) looked() change { return change{c.services[0], 0, c.address()} }

// address is one that was never there.
func (c *changer) address() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next--
	return c.next
}

// name is that of the endpoint that there will be.
func (ch change) name() string { return dashed(address(ch.address)) + "." + ch.service.domain() }

// put changes a slice through an API server.
func put(c *cluster.Cluster) func(context.Context, change) error {
	return func(ctx context.Context, ch change) error {
		path := fmt.Sprintf(slicesPath, ch.service.namespace) + "/" + ch.service.sliceName(ch.slice)
		return c.Request(ctx, http.MethodPut, path, ch.service.slice(ch.slice, ch.address), nil)
	}
}

// changeEvery is so long that no change is folded into another.
const changeEvery = 20 * time.Millisecond

// rest waits until a server has done what it was asked before: until it uses little of its
// processor. One that never rests is waited for no longer than a few seconds.
func rest(ctx context.Context, pids []int) error {
	const look, little, most = 50 * time.Millisecond, 2 * time.Millisecond, 5 * time.Second
	for began := time.Now(); time.Since(began) < most; {
		before, err := cpuTime(pids)
		if err != nil {
			return err
		}
		if err := sleep(ctx, look); err != nil {
			return err
		}
		after, err := cpuTime(pids)
		if err != nil || after-before < little {
			return err
		}
	}
	return nil
}

// cost is the processor time of one change in a server that is not asked meanwhile, in µs.
func (c *changer) cost(ctx context.Context, server *server, d time.Duration) (float64, error) {
	pids, err := server.pids()
	if err != nil {
		return 0, err
	}
	spent := func(do func() error) (time.Duration, error) {
		before, err := cpuTime(pids)
		if err == nil {
			err = do()
		}
		if err != nil {
			return 0, err
		}
		after, err := cpuTime(pids)
		return after - before, err
	}
	if err := rest(ctx, pids); err != nil {
		return 0, err
	}
	idle, err := spent(func() error { return sleep(ctx, d) })
	if err != nil {
		return 0, err
	}
	n := 0
	began := time.Now()
	busy, err := spent(func() error {
		for tick := time.NewTicker(changeEvery); n == 0 || time.Since(began) < d; n++ {
			if err := c.apply(ctx, c.choose()); err != nil {
				return err
			}
			<-tick.C
		}
		return sleep(ctx, 2*changeEvery) // until the last has come
	})
	if err != nil {
		return 0, err
	}
	idle = time.Duration(float64(idle) * float64(time.Since(began)) / float64(d))
	return max(0, float64(busy-idle)) / float64(time.Microsecond) / float64(n), nil
}

const (
	// loadRate is how many queries a second there are while changes are looked at.
	loadRate = 2000

	// lookEvery is how often the name that a change brings is asked for: how fine it is seen.
	lookEvery = 100 * time.Microsecond

	// lookAgain is how long a reply may take.
	lookAgain = 500 * time.Millisecond
)

// lag changes slices at this rate for this long, with queries beside, and sees how late some of
// the changes are answered.
func (c *changer) lag(ctx context.Context, s *server, rate int, d time.Duration) (out lag, err error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	fail := func(err error) {
		if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			failed.CompareAndSwap(nil, &err)
			cancel()
		}
	}
	wg.Go(func() { fail(queryLoad(ctx, s.address, stays(c.services[len(c.services)-1]))) })
	var changes atomic.Int64
	for w := range min(rate, writers) {
		wg.Go(func() {
			every := time.Second * time.Duration(min(rate, writers)) / time.Duration(rate)
			time.Sleep(every * time.Duration(w) / time.Duration(writers)) // not all at once
			for tick := time.NewTicker(every); ctx.Err() == nil; <-tick.C {
				if err := c.apply(ctx, c.choose()); err != nil {
					fail(err)
					return
				}
				changes.Add(1)
			}
		})
	}
	began := time.Now()
	fail(c.look(ctx, s, &out))
	cancel()
	wg.Wait()
	out.reached = float64(changes.Load()) / min(time.Since(began), d).Seconds()
	slices.Sort(out.late)
	if err := failed.Load(); err != nil {
		return out, *err
	}
	return out, nil
}

// look changes one slice after the other, each when the change before is answered.
func (c *changer) look(ctx context.Context, s *server, out *lag) error {
	server, err := net.ResolveUDPAddr("udp4", s.address)
	if err != nil {
		return err
	}
	conn, err := net.DialUDP("udp4", nil, server)
	if err != nil {
		return err
	}
	defer conn.Close()
	for ctx.Err() == nil {
		ch := c.looked()
		type sight struct {
			at  time.Time
			err error
		}
		seen := make(chan sight, 1)
		looking, stop := context.WithCancel(context.WithoutCancel(ctx))
		go func() {
			at, err := await(looking, conn, ch.name())
			seen <- sight{at, err}
		}()
		err := c.apply(ctx, ch)
		acknowledged := time.Now()
		if err != nil {
			stop() // it will not come
		}
		got := <-seen
		stop()
		switch {
		case err != nil:
			return err
		case errors.Is(got.err, errNever):
			out.never++
			return nil
		case got.err != nil:
			return got.err
		}
		out.late = append(out.late, got.at.Sub(acknowledged))
		sleep(ctx, changeEvery)
	}
	return nil
}

// errNever means that a change was not answered while it was waited for.
var errNever = errors.New("has no address after")

// await asks for a name until it has an address.
func await(ctx context.Context, conn *net.UDPConn, name string) (time.Time, error) {
	query, err := new(dns.Msg).SetQuestion(name, dns.TypeA).Pack()
	if err != nil {
		return time.Time{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, run.Grace, fmt.Errorf("%s %w %v", name, errNever, run.Grace))
	defer cancel()
	return load.Await(ctx, conn, query, lookEvery, lookAgain, func(reply []byte) bool {
		// Its ID, and the number of its answer's records.
		return len(reply) >= 12 && bytes.Equal(reply[:2], query[:2]) && (reply[6] > 0 || reply[7] > 0)
	})
}

// queryLoad asks steadily until ctx ends, and does not look at the replies.
func queryLoad(ctx context.Context, address, name string) error {
	conn, err := net.Dial("udp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		for b := make([]byte, 4096); ; {
			if _, err := conn.Read(b); err != nil {
				return // closed
			}
		}
	}()
	wire, err := new(dns.Msg).SetQuestion(name, dns.TypeA).Pack()
	if err != nil {
		return err
	}
	const perTick = loadRate / 1000
	for tick := time.NewTicker(time.Millisecond); ctx.Err() == nil; <-tick.C {
		for range perTick {
			if _, err := conn.Write(wire); err != nil {
				return err
			}
		}
	}
	return nil
}
