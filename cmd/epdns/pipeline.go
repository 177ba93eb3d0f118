package main

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"epdns/registry"
	"epdns/zones"
)

// pipeline is the way in, the same under every command:
//
//	source → registry.Store → zones.Builder → zones.Store
type pipeline struct {
	source   registry.Source
	registry *registry.Store
	follower *registry.Follower // of what is to be published
	builder  *zones.Builder
	zones    *zones.Store
	log      *slog.Logger
	changed  func()              // called after each publish, if it is set before Run; must not wait
	problems *annotationProblems // of what is published, if it is set before Run
	files    string              // where it is odd if they hold nothing, if it is set before Run

	served    chan struct{} // closed when all that exists is served
	synced    atomic.Bool   // the same, to look at
	publishes atomic.Uint64
	published atomic.Int64 // Unix nanoseconds of the last publish
}

func newPipeline(source registry.Source, cfg zones.Config, log *slog.Logger, options ...registry.Option) (*pipeline, error) {
	b, err := zones.NewBuilder(cfg)
	if err != nil {
		return nil, err
	}
	p := &pipeline{source: source, registry: registry.NewStore(log, options...), builder: b, zones: &zones.Store{}, log: log, served: make(chan struct{})}
	p.follower = p.registry.FollowAll()
	p.zones.Publish(b.Last()) // not synced: SERVFAIL until it is
	return p, nil
}

// Run feeds and publishes until ctx ends. It returns an error if the source gives
// up, which it does only where it cannot start at all.
func (p *pipeline) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		p.log.Info("reading", "source", p.source.String())
		return p.source.Run(ctx, p.registry)
	})
	g.Go(func() error {
		p.publish(ctx)
		return nil
	})
	return g.Wait()
}

// once reads all that exists, calls do when it is published, and stops.
func (p *pipeline) once(ctx context.Context, do func() error) error {
	run, stop := context.WithCancel(ctx)
	defer stop()
	g, run := errgroup.WithContext(run)
	done, failed := false, error(nil)
	g.Go(func() error { return p.Run(run) })
	g.Go(func() error {
		if awaitSync(run, p) {
			done, failed = true, do()
		}
		stop()
		return nil
	})
	err := g.Wait()
	switch {
	case done:
		return failed
	case ctx.Err() != nil || err == nil:
		return fmt.Errorf("%v has not been read", p.source)
	}
	return err
}

// isEmpty says whether nothing that could be served has been read.
func (p *pipeline) isEmpty() bool {
	s := p.registry.Stats()
	return s.Services == 0 && s.Slices == 0
}

// publish turns changes into Sets. Whatever comes while one is built waits for
// the next: a burst is one publish.
func (p *pipeline) publish(ctx context.Context) {
	started := time.Now()
	select {
	case <-ctx.Done():
		return
	case <-p.registry.Synced():
	}
	limitGarbage()
	p.build()
	p.synced.Store(true)
	close(p.served)
	s := p.registry.Stats()
	p.log.Info("serving", "services", s.Services, "endpoints", s.Endpoints, "ready", s.Ready,
		"serial", p.zones.Load().Serial(), "after", time.Since(started).Round(time.Millisecond).String())
	if p.files != "" && p.isEmpty() {
		p.log.Warn("no Service or EndpointSlice in " + p.files)
	}
	debug.FreeOSMemory()

	var rest rests
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Stop()
		if at := p.builder.Next(); !at.IsZero() {
			timer.Reset(time.Until(at))
		}
		select {
		case <-ctx.Done():
			return
		case <-p.follower.Changed():
			began := time.Now()
			p.build()
			pause(ctx, rest.after(began, time.Now()))
		case <-timer.C:
			if set := p.builder.Tick(time.Now()); set != nil {
				p.serve(set)
			}
		}
	}
}

// rests are the pauses after builds. Whoever reads changes must get on, or they come in
// faster than they are read for ever: so builds take a quarter of the time at most, and each
// is for more changes. Whether more has come cannot decide it: who would say so has not had
// the processor. A few builds may go ahead of that, so that a change now and then does not
// wait for the one before, and none sleeps for less than the system's timers can.
type rests struct {
	due time.Time // when rest for the builds so far ends
}

const (
	restShare = 3 // times a build
	restAhead = 5 * time.Millisecond
	maxRest   = 20 * time.Millisecond
)

// after is how long to rest after a build.
func (r *rests) after(began, ended time.Time) time.Duration {
	if r.due.Before(began) {
		r.due = began
	}
	r.due = r.due.Add((1 + restShare) * ended.Sub(began))
	if latest := ended.Add(maxRest); r.due.After(latest) {
		r.due = latest
	}
	if left := r.due.Sub(ended); left > restAhead {
		return left
	}
	return 0
}

// pause lets others work.
func pause(ctx context.Context, d time.Duration) {
	if d == 0 {
		runtime.Gosched()
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// build publishes what has changed, if anything has: the wake-up of a change that
// an earlier Take had already may still be on its way.
func (p *pipeline) build() {
	changed := p.follower.Take()
	nodes, moved := p.follower.TakeNodes()
	if len(changed) == 0 && !moved && p.synced.Load() {
		return
	}
	if moved {
		p.builder.SetNodes(nodes)
	}
	if p.problems != nil {
		p.problems.note(changed)
	}
	now := time.Now()
	p.serve(p.builder.Build(changed, now))
	p.publishes.Add(1)
	p.published.Store(now.UnixNano())
}

func (p *pipeline) serve(set *zones.Set) {
	was := disbelieved(p.zones.Load())
	p.zones.Publish(set)
	if now := disbelieved(set); now != was && now {
		p.log.Warn("podCIDRs are not believed: too many endpoints lie in those of other Nodes")
	} else if now != was {
		p.log.Info("podCIDRs are believed again")
	}
	if p.changed != nil {
		p.changed()
	}
}

// disbelieved says whether podCIDRs tell nothing of where askers are.
func disbelieved(set *zones.Set) bool { return set.Disbelieved()&zones.FromPodCIDRs != 0 }
