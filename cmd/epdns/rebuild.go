package main

import (
	"context"
	"time"

	"epdns/registry"
	"epdns/zones"
)

// rebuilt is what other settings of zones make of all that exists. It follows the registry,
// so that it can be brought up to date when it is put in service.
type rebuilt struct {
	builder  *zones.Builder
	follower *registry.Follower
	adopted  chan struct{} // closed when it is served
}

// rebuild compiles all that exists with other settings, beside what is served meanwhile. What
// it returns is to be given to adopt, by way of the channel, or closed.
func (p *pipeline) rebuild(cfg zones.Config) (*rebuilt, error) {
	b, err := zones.NewBuilder(cfg)
	if err != nil {
		return nil, err
	}
	r := &rebuilt{builder: b, follower: p.registry.FollowAll(), adopted: make(chan struct{})}
	if p.synced.Load() {
		if nodes, some := r.follower.TakeNodes(); some {
			b.SetNodes(nodes)
		}
		b.Build(r.follower.Take(), time.Now())
	}
	r.follower.KeepTimes()
	return r, nil
}

func (r *rebuilt) close() { r.follower.Close() }

// replace has what was rebuilt served, and returns when it is.
func (p *pipeline) replace(ctx context.Context, r *rebuilt) {
	select {
	case <-ctx.Done():
		r.close()
	case p.rebuilt <- r:
		<-r.adopted
	}
}

// adopt goes on with another builder. The serial goes on where the one before has come to.
// It belongs to the goroutine of publish.
func (p *pipeline) adopt(r *rebuilt) {
	defer close(r.adopted)
	if p.problems != nil && p.synced.Load() {
		p.problems.note(p.follower.Take()) // the other builder may have had these already
	}
	p.follower.Close()
	serial := p.builder.Last().Serial() // before the sync, that of a state on disk
	p.builder, p.follower = r.builder, r.follower
	p.builder.After(serial)
	if !p.synced.Load() {
		p.zones.Publish(p.builder.Last())
		return
	}
	p.unserved = true
	p.build()
}
