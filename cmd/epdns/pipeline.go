package main

import (
	"context"
	"log/slog"
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

	served    chan struct{} // closed when all that exists is served
	synced    atomic.Bool   // the same, to look at
	publishes atomic.Uint64
	published atomic.Int64 // Unix nanoseconds of the last publish
}

func newPipeline(source registry.Source, cfg zones.Config, log *slog.Logger) (*pipeline, error) {
	b, err := zones.NewBuilder(cfg)
	if err != nil {
		return nil, err
	}
	p := &pipeline{source: source, registry: registry.NewStore(log), builder: b, zones: &zones.Store{}, log: log, served: make(chan struct{})}
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

// publish turns changes into Sets. Whatever comes while one is built waits for
// the next: a burst is one publish.
func (p *pipeline) publish(ctx context.Context) {
	started := time.Now()
	select {
	case <-ctx.Done():
		return
	case <-p.registry.Synced():
	}
	p.build()
	p.synced.Store(true)
	close(p.served)
	s := p.registry.Stats()
	p.log.Info("serving", "services", s.Services, "endpoints", s.Endpoints, "ready", s.Ready,
		"serial", p.zones.Load().Serial(), "after", time.Since(started).Round(time.Millisecond).String())
	// Decoding the first lists took several times the memory that is kept.
	debug.FreeOSMemory()

	// A serial is good for a second. What changes within it goes into transfers
	// when the second is over.
	second := time.NewTimer(0)
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.follower.Changed():
			if !p.build() {
				continue
			}
			if !p.builder.Frozen() {
				second.Reset(time.Until(p.builder.Due()))
			}
		case <-second.C:
			if !p.builder.Frozen() {
				p.zones.Publish(p.builder.Freeze(time.Now()))
			}
			if !p.builder.Frozen() { // a little early
				second.Reset(time.Until(p.builder.Due()))
			}
		}
	}
}

// build publishes what has changed, if anything has: the wake-up of a change that
// an earlier Take had already may still be on its way.
func (p *pipeline) build() bool {
	changed := p.follower.Take()
	if len(changed) == 0 && p.synced.Load() {
		return false
	}
	now := time.Now()
	p.zones.Publish(p.builder.Build(changed, now))
	p.publishes.Add(1)
	p.published.Store(now.UnixNano())
	return true
}
