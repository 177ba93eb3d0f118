package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"time"

	"epdns/registry"
	"epdns/registry/kube"
	"epdns/registry/statedir"
)

// stateKeeper writes what is read to a directory, and reads it after a restart, so that
// there are answers before the source has told its own. Nothing that goes wrong with that
// keeps epdns from serving: it is a line in the log, once, and is tried again.
type stateKeeper struct {
	dir      *statedir.Dir
	identity string
	whole    bool // else it is for the serial alone: the source has all at once
	log      *slog.Logger
	grace    time.Duration // stateGrace
	gone     bool          // the directory has not answered once: all else here is not ours any more

	// What belongs to the goroutine of run, after restore.
	trouble  string // that was logged last
	told     bool   // that it has been written
	changes  uint64 // pipeline.publishes when it was written last
	keptAsOf time.Time

	// What is counted.
	asOf, written, size atomic.Int64 // the first two in Unix nanoseconds
	writes, failures    atomic.Uint64
}

const (
	// stateEvery is the least time between two writes. What is newer than that is soon
	// read again where anybody can be asked.
	stateEvery = 10 * time.Second

	// stateShare is by how much a pause is at least longer than the write before it: a
	// fiftieth of a processor is what it may take, and of a disk.
	stateShare = 50

	// stateRefresh is how often a state is written that has not changed, for it to say
	// as of when it is still right. It is a small part of the time after which it is too
	// old.
	stateRefresh = 10 * time.Minute

	// stateGrace is how long a start and an end wait for a disk. An end has to be within
	// what the kubelet gives it, besides the lameduck period.
	stateGrace = 10 * time.Second

	// lostSerials is by how much a serial is believed to have risen after it was
	// written where the clock does not tell: after it was set back. There is at most
	// one each second.
	lostSerials = 3600
)

func newStateKeeper(source registry.Source, s *settings, log *slog.Logger) *stateKeeper {
	k := &stateKeeper{dir: statedir.NewDir(s.stateDir), log: log, grace: stateGrace}
	k.dir.MaxAge = s.stateMaxAge
	of := s.source.manifests
	if c, ok := source.(*kube.Source); ok {
		k.whole, of = true, c.Identity()
	} else if abs, err := filepath.Abs(of); err == nil && of != "-" {
		of = abs
	}
	k.identity = of + ", annotations of " + s.prefix
	return k
}

// restore has what was written last be served until the source has been read, and serials
// go on from there. It is for before anything else.
func (k *stateKeeper) restore(ctx context.Context, p *pipeline) {
	began := time.Now()
	var h statedir.Header
	var dumped *registry.Dumped
	var err error
	at, cancel := context.WithCancel(ctx)
	cancel()
	if k.gone = !k.await(at, func() {
		k.note(k.dir.Lock())
		h, err = k.dir.Read(k.identity, func(r io.Reader) (err error) {
			if k.whole {
				dumped, err = registry.ReadDump(r)
			}
			return err
		})
	}); k.gone {
		k.failures.Add(1)
		k.log.Warn("the state directory does not answer; going on without", "dir", k.dir.String(), "after", k.grace.String())
		return
	}
	if h.Serial != 0 {
		p.builder.After(serialAfter(&h, time.Now()))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		k.log.Info("no state of before", "dir", k.dir.String())
	case err != nil:
		k.log.Warn("the state of before is not used", "dir", k.dir.String(), "err", err)
	case dumped != nil:
		p.registry.Restore(dumped)
		k.asOf.Store(h.AsOf.UnixNano())
		p.asOf.Store(h.AsOf.UnixNano())
		p.restored.Store(true)
		s := p.registry.Stats()
		if c, ok := p.source.(*kube.Source); ok {
			c.Insist, c.InsistOn = true, insistOn(s)
		}
		k.log.Warn("restored the state of before: it is served until all has been read", "dir", k.dir.String(),
			"services", s.Services, "endpoints", s.Endpoints, "as_of", h.AsOf.UTC().Format(time.RFC3339),
			"age", ageAt(h.AsOf, time.Now()).Round(time.Second).String(), "after", time.Since(began).Round(time.Millisecond).String())
	}
}

// insistOn are the kinds, besides EndpointSlices, of which a restored state has something.
func insistOn(restored registry.Stats) (kinds []string) {
	if restored.ServicesAreListed && restored.Services > 0 {
		kinds = append(kinds, "Service")
	}
	if restored.Nodes > 0 {
		kinds = append(kinds, "Node")
	}
	return kinds
}

// await waits until something is done, which a disk that hangs may never be; from the end
// of ctx on for k.grace. Where it returns false, k is lost to what is being done.
func (k *stateKeeper) await(ctx context.Context, do func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	select {
	case <-done:
		return true
	case <-time.After(k.grace):
		return false
	}
}

// serialAfter is not below any serial that was given before.
func serialAfter(h *statedir.Header, now time.Time) uint32 {
	since := now.Sub(h.Written)
	if since < 0 {
		return h.Serial + lostSerials
	}
	return h.Serial + uint32(min(since/time.Second, 1<<30))
}

// run writes from the first time on that all has been read, until ctx ends, and then once
// more.
func (k *stateKeeper) run(ctx context.Context, p *pipeline) {
	if k.gone {
		return
	}
	for _, ready := range []<-chan struct{}{p.registry.Synced(), p.served} {
		select {
		case <-ctx.Done():
			k.dir.Close()
			return // there is nothing new
		case <-ready:
		}
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			k.await(ctx, func() {
				if !p.restored.Load() {
					k.write(p)
				}
				k.dir.Close()
			})
			return
		case <-timer.C:
			began := time.Now()
			if k.isDue(p, began) && !k.await(ctx, func() { k.write(p) }) {
				return
			}
			timer.Reset(max(stateEvery, stateShare*time.Since(began)))
		}
	}
}

// isDue says whether the file says something else than it should.
func (k *stateKeeper) isDue(p *pipeline, now time.Time) bool {
	switch {
	case p.restored.Load(): // which is there already
		return false
	case p.publishes.Load() != k.changes, k.trouble != "":
		return true
	}
	refresh := stateRefresh
	if k.dir.MaxAge > 0 {
		refresh = min(refresh, k.dir.MaxAge/4)
	}
	return p.lost().IsZero() && now.Sub(k.keptAsOf) >= refresh
}

func (k *stateKeeper) write(p *pipeline) {
	began := time.Now()
	changes := p.publishes.Load()
	h := statedir.Header{Identity: k.identity, AsOf: p.lost(), Written: began, Serial: p.zones.Load().Serial()}
	if h.AsOf.IsZero() {
		h.AsOf = began
	}
	size, err := int64(0), k.dir.Lock()
	if err == nil {
		if size, err = k.dir.Write(h, k.content(p)); err != nil {
			k.dir.Close() // the directory may be another one next time
		}
	}
	k.note(err)
	if err != nil {
		k.failures.Add(1)
		return
	}
	k.changes, k.keptAsOf = changes, h.AsOf
	k.writes.Add(1)
	k.size.Store(size)
	k.asOf.Store(h.AsOf.UnixNano())
	k.written.Store(began.UnixNano())
	if !k.told {
		k.told = true
		k.log.Info("the state is written", "dir", k.dir.String(), "octets", size, "after", time.Since(began).Round(time.Millisecond).String())
	}
}

func (k *stateKeeper) content(p *pipeline) func(io.Writer) error {
	if !k.whole {
		return func(io.Writer) error { return nil }
	}
	return p.registry.Dump
}

// note logs trouble with the directory when it begins, when it becomes another one, and
// when it is over.
func (k *stateKeeper) note(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) { // its path is another one each time
		text = fmt.Sprintf("%s: %v", pe.Op, pe.Err)
	}
	switch {
	case text == k.trouble:
	case text == "":
		k.told = false // which says so
	default:
		k.log.Warn("the state is not written; serving goes on, and it is tried again", "dir", k.dir.String(), "err", err)
	}
	k.trouble = text
}
