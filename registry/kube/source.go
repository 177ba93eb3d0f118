package kube

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
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

	// Insist says that there is something to serve already: not to have the right to read
	// EndpointSlices at the start is then no reason to give up. Where those of another
	// namespace can be read, it is for a minute no reason to do without them. It may be
	// changed before Run.
	Insist bool

	// InsistOn are further kinds, "Service" or "Node", of which there is something to serve
	// already: not to have the right to read them at the start does not switch them off
	// then, until EndpointSlices could be read for a minute. It may be changed before Run.
	InsistOn []string

	// AuditEvery is how often each kind is compared with the cluster, 0 or less for never. It may
	// be changed before Run.
	AuditEvery time.Duration

	// MassEmpty says when a list is not believed at once. It may be changed before Run.
	MassEmpty MassEmpty

	log    *slog.Logger
	where  string
	server string
	link   link
	sent   *requests
	api    rest.Interface // for what is of no group
	feeds  []*feed        // two for each namespace, and one for Nodes

	doubted chan doubt // feeds to be audited early

	// streaming is what feeds do for their initial state.
	streaming    atomic.Int32
	versionAsked atomic.Bool // and answered: streaming takes it into account
	versionLists atomic.Bool // it is one that lists versions of the last minutes cheaply
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
	s, err := newSource(rc, where, namespaces, log)
	if err != nil {
		return nil, err
	}
	s.AuditEvery, s.MassEmpty = cfg.AuditEvery, cfg.MassEmpty
	if s.AuditEvery == 0 {
		s.AuditEvery = DefaultAuditEvery
	}
	if s.MassEmpty.Hold == 0 {
		s.MassEmpty = DefaultMassEmpty
	}
	if cfg.SyncDeadline > 0 {
		s.SyncDeadline = cfg.SyncDeadline
	}
	return s, nil
}

func newSource(rc *rest.Config, where string, namespaces []string, log *slog.Logger) (*Source, error) {
	sent := &requests{}
	rc = rest.CopyConfig(rc)
	rc.Wrap(sent.around)
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
		sent:         sent,
		api:          c.groups[services.group],
	}
	for _, ns := range namespaces {
		s.feeds = append(s.feeds,
			newFeed(s, endpointSlices, ns, c.groups[endpointSlices.group]),
			newFeed(s, services, ns, c.groups[services.group]))
	}
	s.feeds = append(s.feeds, newFeed(s, nodes, "", c.groups[nodes.group]))
	s.doubted = make(chan doubt, len(s.feeds))
	return s, nil
}

// String names the cluster and how it was found.
func (s *Source) String() string { return s.where }

// Identity names the cluster and what is read of it, the same whenever and wherever the
// same is meant.
func (s *Source) Identity() string {
	var namespaces []string
	for _, f := range s.feeds {
		if f.kind == endpointSlices {
			namespaces = append(namespaces, f.scope())
		}
	}
	slices.Sort(namespaces)
	return s.server + ", " + strings.Join(namespaces, ", ")
}

// Run watches until ctx ends. It returns an error only where EndpointSlices may
// not be read from the start, unless Insist is set. It must not be called twice.
func (s *Source) Run(ctx context.Context, store *registry.Store) error {
	// client-go logs through the context; its lines, one for each attempt, are
	// replaced by ours.
	ctx = logr.NewContext(ctx, logr.Discard())

	run := make([]func(context.Context) error, len(s.feeds))
	for i, f := range s.feeds {
		// What is served already may be newer than what an API server has at hand.
		f.held.insist = s.Insist
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
	g.Go(func() error {
		s.audits(gctx)
		return nil
	})
	return g.Wait()
}

func runInto[T metav1.Object](f *feed, to registry.Feed[T]) func(context.Context) error {
	f.holds = to
	return func(ctx context.Context) error { return f.run(ctx, newSink(f, to), to.Off) }
}

// FeedStatus is the state of one feed, for metrics and people.
type FeedStatus struct {
	Kind      string // "EndpointSlice", "Service" or "Node"
	Namespace string // empty: all
	Mode      string // how the initial state came: "watchlist", "list", empty before

	Read int // objects of the state that is being read, or was read last

	Synced    bool // the initial state has been read, or the feed is off
	Off       bool // no right to list
	Connected bool // a watch is open

	Missed string // what is not known where it is off, for people
	Grant  string // the right that it needs, for people

	// Lost is until when what the feed has brought is known to be right: when its watch
	// ended, or if it was silent for too long, when it last brought something or an audit
	// began that proved it. It is zero while a watch is open that is not silent, or is
	// since that audit.
	Lost time.Time

	LastEvent time.Time // the last list, event or bookmark
	Events    uint64    // added, modified and deleted objects
	Lists     uint64    // initial states read; all but the first are relists
	Reopened  uint64    // watches ended by us because nothing moved
	Restarts  Restarts  // watches that followed another one
	Skipped   uint64    // events that held no object of the kind

	// Version is the newest resource version that was heard of, 0 where the server has
	// others than numbers; Progressed is when it last rose. On a watch that is well it
	// does with each event, and with a bookmark as soon as anything in the cluster changes.
	Version    uint64
	Progressed time.Time

	RelistsBy [relistReasons]uint64 // Relists by RelistReason
	Errors    [errorReasons]uint64  // requests that failed, by ErrorReason

	OlderLists  uint64 // lists not taken, being older than what was known
	OlderEvents uint64 // events not taken, being older than what was known of their object
	OlderTaken  uint64 // lists taken though they were older: the cluster itself has gone back

	Audits    [auditResults]uint64 // by AuditResult
	Drift     uint64               // objects that an audit found held otherwise than they exist
	LastAudit time.Time            // the last that came to a result

	Held  int    // Services that keep their endpoints though the last list lacked most of them
	Holds uint64 // how often a Service did

	LastError     string // as of LastErrorTime; it may be long mended
	LastErrorTime time.Time
}

// Restart is why a watch ended that another one followed.
type Restart uint8

const (
	RestartClosed  Restart = iota // the API server ended it, as it does every few minutes
	RestartBroken                 // the connection was lost
	RestartSilence                // it brought nothing, not even a bookmark, for too long
	RestartExpired                // the API server does not know any more what came next (410)
	RestartError                  // it brought an error, or what is not understood

	restarts // how many there are
)

// Restarts are how many watches followed one that ended so.
type Restarts [restarts]uint64

func (r Restart) String() string {
	return [restarts]string{"closed", "broken", "silence", "expired", "error"}[r]
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
