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

	state *stateKeeper // of what is read, if it is set before Run

	rebuilt  chan *rebuilt // other settings, to be served from now on
	unserved bool          // the builder has another configuration than what is served

	served    chan struct{} // closed when all that exists is served, as it is or as it was
	synced    atomic.Bool   // the same, to look at
	publishes atomic.Uint64
	published atomic.Int64 // Unix nanoseconds of the last publish

	restored atomic.Bool  // what is served comes from a file: it is as of
	asOf     atomic.Int64 // this time, Unix nanoseconds

	config      configStatus // how the configuration was read last
	lameduck    atomic.Int64 // how long to go on when told to end, nanoseconds
	stopping    atomic.Bool  // it was told to
	readyMaxAge atomic.Int64 // how old what is known may be while it is ready, nanoseconds; 0: as old as it gets

	staleAfter atomic.Int64 // how long a watch may be lost before answers are stale, nanoseconds; 0: they never are
	stale      bool         // a watch is; it belongs to the goroutine of publish
	timing     *timing
}

func newPipeline(source registry.Source, cfg zones.Config, log *slog.Logger, options ...registry.Option) (*pipeline, error) {
	b, err := zones.NewBuilder(cfg)
	if err != nil {
		return nil, err
	}
	p := &pipeline{source: source, registry: registry.NewStore(log, options...), builder: b, zones: &zones.Store{}, log: log, rebuilt: make(chan *rebuilt), served: make(chan struct{})}
	p.staleAfter.Store(int64(defaultStaleAfter))
	p.timing = newTiming()
	p.follower = p.registry.FollowAll()
	p.follower.KeepTimes()
	p.zones.Publish(b.Last()) // not synced: SERVFAIL until it is
	return p, nil
}

// Run feeds and publishes until ctx ends. It returns an error if the source gives
// up, which it does only where it cannot start at all.
func (p *pipeline) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	if p.state != nil {
		p.state.restore(ctx, p)
		g.Go(func() error {
			p.state.run(ctx, p)
			return nil
		})
	}
	g.Go(func() error {
		p.log.Info("reading", "source", p.source.String())
		return p.source.Run(ctx, p.registry)
	})
	g.Go(func() error {
		p.publish(ctx)
		return nil
	})
	g.Go(func() error {
		p.tellReading(ctx)
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
	synced := p.registry.Synced()
	for !p.restored.Load() && synced != nil {
		select {
		case <-ctx.Done():
			return
		case r := <-p.rebuilt:
			p.adopt(r)
		case <-synced:
			synced = nil
		}
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
	// Reading all that exists, and building from nothing, took more memory than is kept.
	debug.FreeOSMemory()

	var rest rests
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	look := time.NewTicker(staleEvery)
	defer look.Stop()
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
		case <-synced: // what was restored is now as it is, changed or not
			synced = nil
			p.build()
			debug.FreeOSMemory()
		case r := <-p.rebuilt:
			p.adopt(r)
			debug.FreeOSMemory()
		case <-timer.C:
			if set := p.builder.Tick(time.Now()); set != nil {
				p.serve(set)
			}
		case <-look.C:
			p.lookAtStaleness()
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
	began := time.Now()
	released := p.isReleased()
	changed := p.follower.Take()
	nodes, moved := p.follower.TakeNodes()
	if len(changed) == 0 && !moved && !released && !p.unserved && p.synced.Load() {
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
	p.unserved = false
	p.timing.note(began, time.Now(), p.follower.Times(), p.kindOf)
	p.publishes.Add(1)
	p.published.Store(now.UnixNano())
}

// isReleased says, once, that what the registry holds is no more what was restored.
func (p *pipeline) isReleased() bool {
	if !p.restored.Load() || p.registry.Restored() {
		return false
	}
	p.restored.Store(false)
	p.log.Info("read what exists: the restored state is served no more", "source", p.source.String())
	return true
}

func (p *pipeline) serve(set *zones.Set) {
	before := p.zones.Load()
	was := disbelieved(before)
	set = p.mark(set)
	p.zones.Publish(set)
	p.tellStaleness(before, set)
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
