package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// warmUp is how long before the change clients begin, at the latest.
const warmUp = time.Second

// request is one request of a client.
type request struct {
	at  time.Time // when the pod was chosen
	old bool      // it is the pod that is going to stop being ready
}

// series are the requests of one client, in their order.
type series struct {
	requests []request
	dropped  int // due, but not sent, because the client or the machine was too slow
}

// age is how old caches are at the change of repetition i of n, as a part of their life. The
// repetitions are spread evenly over it: a cache has no reason to be filled at one moment rather
// than at another. The first has the oldest, so that its change comes late.
func age(i, n int) float64 { return 1 - (float64(i)+0.5)/float64(n) }

// duration is how long measure takes.
func duration(o options, ways []*way) time.Duration {
	var until time.Duration
	life := longest(ways)
	for i := range o.repetitions {
		change := time.Duration(i)*o.every + change(i, o.repetitions, life)
		until = max(until, change+life+after)
	}
	return until
}

// change is when the pod stops being ready, since the start of repetition i of n.
func change(i, n int, life time.Duration) time.Duration {
	return warmUp + time.Duration(age(i, n)*float64(life))
}

// measure runs the repetitions, each begun when its turn comes whether or not the one before has
// ended. They have nothing in common but the servers.
func measure(ctx context.Context, l *lab, ways []*way, o options) ([]*result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make([]*result, len(ways))
	for i, w := range ways {
		results[i] = &result{way: w}
	}
	begin := time.Now()
	life := longest(ways)
	var mu sync.Mutex // of results
	var wg sync.WaitGroup
	for i, s := range l.services {
		at := begin.Add(time.Duration(i)*o.every + change(i, o.repetitions, life))
		wg.Go(func() {
			clients, acknowledged, err := repeat(ctx, l, s, ways, at, age(i, o.repetitions), o.rate)
			if err != nil {
				cancel(fmt.Errorf("repetition %d: %w", i+1, err))
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for w := range ways {
				results[w].add(clients[w], acknowledged)
			}
		})
	}
	wg.Wait()
	return results, context.Cause(ctx)
}

// repeat makes one pod not ready at the given time while a client of every way sends requests.
func repeat(ctx context.Context, l *lab, s *service, ways []*way, at time.Time, age float64, rate int) (clients []series, acknowledged time.Time, err error) {
	clients = make([]series, len(ways))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for i, w := range ways {
		wg.Go(func() {
			var err error
			if clients[i], err = w.send(ctx, s, at, age, rate); err != nil {
				cancel(fmt.Errorf("%s, %v after the change: %w", w.name, time.Since(at).Round(time.Millisecond), err))
			}
		})
	}
	wg.Go(func() {
		err := wait(ctx, at)
		if err == nil {
			acknowledged, err = s.fail(ctx, l.cluster)
		}
		if err != nil {
			cancel(err)
		}
	})
	wg.Wait()
	return clients, acknowledged, context.Cause(ctx)
}

// send fills the caches of a way so that they have the given age at the change, then sends
// requests at a steady rate until the way's window is over.
func (w *way) send(ctx context.Context, s *service, change time.Time, age float64, rate int) (sent series, err error) {
	c, err := w.open(s, change, age)
	if err != nil {
		return sent, err
	}
	defer c.close()
	old := time.Duration(age * float64(w.life))
	if err := wait(ctx, change.Add(-old)); err != nil {
		return sent, err
	}
	if err := knowsBoth(c); err != nil {
		return sent, fmt.Errorf("at the beginning: %w", err)
	}
	period := time.Second / time.Duration(rate)
	// Not all clients at the same moment, nor any at one that the change knows of.
	if err := wait(ctx, change.Add(-warmUp+rand.N(period))); err != nil {
		return sent, err
	}
	sent.requests = make([]request, 0, int((warmUp+w.window())/period))
	begin := time.Now()
	tick := time.NewTicker(period)
	defer tick.Stop()
	for time.Since(change) < w.window() {
		addresses, err := c.addresses()
		if err != nil {
			return sent, err
		}
		sent.requests = append(sent.requests, request{time.Now(), choose(addresses) == s.address})
		select {
		case <-ctx.Done():
			return sent, context.Cause(ctx)
		case <-tick.C:
		}
	}
	sent.dropped = dropped(len(sent.requests), time.Since(begin), period)
	return sent, nil
}

// dropped is how many requests were left out of those that are due in that time, as a ticker waits
// for nobody.
func dropped(sent int, took, period time.Duration) int { return max(0, int(took/period)-sent) }

// wait returns at once if that time has passed.
func wait(ctx context.Context, until time.Time) error {
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
