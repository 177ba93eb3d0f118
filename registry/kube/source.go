package kube

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"epdns/registry"
)

// Source watches a cluster. It implements [registry.Source].
type Source struct {
	// SyncDeadline is how long a streaming list may bring nothing, be it its next
	// object or its end, before LIST and WATCH are used, and how long to wait for the API
	// server's version. It may be changed before Run.
	SyncDeadline time.Duration

	log    *slog.Logger
	where  string
	server string
	link   link
	api    rest.Interface // for what is of no group
	feeds  []*feed        // two for each namespace, and one for Nodes

	// streaming is what feeds do for their initial state.
	streaming    atomic.Int32
	versionAsked atomic.Bool // and answered: streaming takes it into account
}

// Values of Source.streaming.
const (
	streamingOn    = iota // lists are streamed
	streamingDoubt        // a stream did not end in time: is LIST any better?
	streamingOff          // LIST and WATCH from now on: it was, or the server's version says so
)

var _ registry.Source = (*Source)(nil)

// New finds the cluster that cfg means and makes a client for it. It opens no
// connection.
func New(cfg Config, log *slog.Logger) (*Source, error) {
	namespaces, err := cfg.namespaces()
	if err != nil {
		return nil, err
	}
	rc, where, err := cfg.resolve()
	if err != nil {
		return nil, err
	}
	return newSource(rc, where, namespaces, log)
}

func newSource(rc *rest.Config, where string, namespaces []string, log *slog.Logger) (*Source, error) {
	c, err := newClient(rc)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where, oneLine(err))
	}
	s := &Source{
		SyncDeadline: 10 * time.Second,
		log:          log,
		where:        where,
		server:       rc.Host,
		link:         newLink(log, rc.Host),
		api:          c.groups[services.group],
	}
	for _, ns := range namespaces {
		s.feeds = append(s.feeds,
			newFeed(s, endpointSlices, ns, c.groups[endpointSlices.group]),
			newFeed(s, services, ns, c.groups[services.group]))
	}
	s.feeds = append(s.feeds, newFeed(s, nodes, "", c.groups[nodes.group]))
	return s, nil
}

// String names the cluster and how it was found.
func (s *Source) String() string { return s.where }

// Run watches until ctx ends. It returns an error only where EndpointSlices may
// not be read from the start. It must not be called twice.
func (s *Source) Run(ctx context.Context, store *registry.Store) error {
	// client-go logs through the context; its lines, one for each attempt, are
	// replaced by ours.
	ctx = logr.NewContext(ctx, logr.Discard())

	run := make([]func(context.Context) error, len(s.feeds))
	for i, f := range s.feeds {
		// All feeds are open before the first one is used.
		switch f.kind {
		case endpointSlices:
			run[i] = runInto(f, store.Slices(f.namespace))
		case services:
			run[i] = runInto(f, store.Services(f.namespace))
		case nodes:
			run[i] = runInto(f, store.Nodes())
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, run := range run {
		g.Go(func() error { return run(gctx) })
	}
	return g.Wait()
}

func runInto[T metav1.Object](f *feed, to registry.Feed[T]) func(context.Context) error {
	return func(ctx context.Context) error { return f.run(ctx, newSink(f, to), to.Off) }
}

// FeedStatus is the state of one feed, for metrics and people.
type FeedStatus struct {
	Kind      string // "EndpointSlice", "Service" or "Node"
	Namespace string // empty: all
	Mode      string // how the initial state came: "watchlist", "list", empty before

	Synced    bool // the initial state has been read, or the feed is off
	Off       bool // no right to list
	Connected bool // a watch is open

	LastEvent time.Time // the last list, event or bookmark
	Events    uint64    // added, modified and deleted objects
	Lists     uint64    // initial states read; all but the first are relists
	Reopened  uint64    // watches ended by us because nothing moved
	Skipped   uint64    // events that held no object of the kind

	LastError     string // as of LastErrorTime; it may be long mended
	LastErrorTime time.Time
}

// Relists is how often the whole state was read again.
func (s FeedStatus) Relists() uint64 {
	if s.Lists == 0 {
		return 0
	}
	return s.Lists - 1
}

// Status returns the state of each feed. It may be called from any goroutine, at
// any time.
func (s *Source) Status() []FeedStatus {
	out := make([]FeedStatus, len(s.feeds))
	for i, f := range s.feeds {
		out[i] = f.snapshot()
	}
	return out
}
