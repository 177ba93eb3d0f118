package kube

import (
	"context"
	"fmt"
	"net/http/httptrace"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"epdns/registry"
)

const (
	// maxBackoff is the longest pause between two attempts, but for jitter. A server
	// that comes back should be noticed within the TTL of an answer.
	maxBackoff = 5 * time.Second

	// rightsInterval is how often a right that we lack is asked for again, and how long one
	// is insisted on: an API server that has just started and knows of no rights yet does
	// within seconds.
	rightsInterval = time.Minute

	// silence is how long a watch may stay without an event. Bookmarks are asked for
	// and come about every 60 s; this leaves them a quarter more.
	silence = 75 * time.Second

	// streamLimit is how long a streaming list may take in all. What is new in a cluster
	// looks like more of the list, so that one without an end could seem to get on for ever.
	streamLimit = 5 * time.Minute

	// unreached is how long a streaming list may wait for its connection. Dialling and
	// TLS have limits of their own below that; this is for proxies, which have not.
	unreached = 30 * time.Second
)

// backoff is between attempts, in the reflector and here.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 0.3, Cap: maxBackoff, Steps: 10}
}

// feed keeps one kind of object within one scope up to date.
type feed struct {
	src       *Source
	kind      *kind
	namespace string
	lister    *lister

	mu        sync.Mutex
	status    FeedStatus
	mode      string // of the initial state that is being read
	upSince   time.Time
	refusedAt time.Time // when an event was last an error
	lastError error     // of the last request that failed, until a state has been read
	failing   time.Time // since when there is one
	waitsFor  time.Time // since when what others have read waits for a right of ours; zero: it does not
	silent    bool      // a watch brought nothing for too long, and none has brought something since
	provedAt  time.Time // when the last audit began that found all as it is in the cluster
	watched   bool      // a watch was open before, and has ended if another one is opened
	ended     Restart   // why, as far as that is known

	held   held
	holds  holder       // what has been brought
	reason RelistReason // of the next relist
	wanted bool         // a relist, as soon as there is a watch to be ended for it

	// Services that the last relist has left as they were, with the times until when; and
	// those of the relist under way.
	holding, until map[registry.Key]time.Time
	holdTimer      *time.Timer

	auditFails bool // and the log says so

	// What is under way and may stall: a request, then its stream.
	cancel  context.CancelFunc
	stream  *overheard
	initial bool      // it is a streaming list
	reached bool      // and got as far as a connection
	limit   time.Time // when that must have ended
	brought int       // and how many objects it has brought
	most    int       // the most that any has brought since one ended well
	due     time.Time // when it counts as stalled; zero: nothing is watched over
	timer   *time.Timer
}

const (
	modeList      = "list"
	modeWatchList = "watchlist"
)

// holder is what a registry feed says of what it holds.
type holder interface {
	Compare(d *registry.Digest) registry.Comparison
	Names(each func(namespace, name string))
}

func newFeed(src *Source, k *kind, namespace string, c rest.Interface) *feed {
	f := &feed{src: src, kind: k, namespace: namespace, held: held{objects: map[name]uint64{}}}
	f.status = FeedStatus{Kind: k.name, Namespace: namespace, Missed: k.off, Grant: f.grant()}
	f.lister = newLister(f, c)
	return f
}

// run lists and watches until ctx ends. Its error means that there is no right to, and
// that the source does not insist.
func (f *feed) run(ctx context.Context, to cache.TransformingStore, off func()) error {
	f.lister.keep = to.Transformer()
	pause, within := backoff(), backoff()
	reflector := cache.NewReflectorWithOptions(f.lister, nil, to, cache.ReflectorOptions{ // overheard looks at the types
		Name:    f.kind.resource + " in " + f.scope(),
		Backoff: &within,
	})
	defer f.close()
	for {
		err := reflector.ListAndWatchWithContext(ctx)
		if ctx.Err() != nil {
			return nil
		}
		delay, err := f.next(err, &pause, off)
		if err != nil {
			return err
		}
		if !sleep(ctx, delay) {
			return nil
		}
	}
}

// next decides what follows a round of list and watch: an error to end with, or
// the pause before the next round.
func (f *feed) next(err error, pause *wait.Backoff, off func()) (time.Duration, error) {
	f.mu.Lock()
	up := f.upSince
	f.upSince = time.Time{}
	f.lost()
	f.due = time.Time{}
	f.release()
	fresh := f.status.Lists == 0
	f.mu.Unlock()

	forbidden, unauthorized := apierrors.IsForbidden(err), apierrors.IsUnauthorized(err)
	switch {
	case !fresh || !forbidden && !unauthorized:
	case f.insisted() && (unauthorized || f.holdsOut()):
		f.src.link.down(f, err)
	case f.kind == endpointSlices && forbidden && !f.src.Insist:
		return 0, fmt.Errorf("%s at %s: %w (%s); grant %s: %s",
			f.kind.fullResource(), f.src.server, ErrNoRight, reason(err), f.grant(), f.grantCommands(reason(err)))
	case f.kind == endpointSlices && unauthorized:
		return 0, fmt.Errorf("%s at %s: the API server does not accept our credentials (%s); check the user or the token of the %s",
			f.kind.fullResource(), f.src.server, reason(err), f.src.where)
	case forbidden:
		f.switchOff(err, off)
		return rightsInterval, nil
	default:
		f.src.link.down(f, err)
	}
	// A watch that lasted has earned an immediate next round: its end is a 410 or a
	// server's restart, and the state is to be read again.
	if !up.IsZero() && time.Since(up) >= maxBackoff {
		*pause = backoff()
		return 0, nil
	}
	return pause.Step(), nil
}

// insisted says whether there was something of this kind to serve before anything was read.
func (f *feed) insisted() bool {
	return f.kind == endpointSlices && f.src.Insist || slices.Contains(f.src.InsistOn, f.kind.name)
}

// holdsOut says whether a right is still insisted on. While no EndpointSlices at all have
// been read there is nothing else to show; from then on what they tell must not wait for
// long.
func (f *feed) holdsOut() bool {
	if !f.src.hasRead(endpointSlices) {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waitsFor.IsZero() {
		f.waitsFor = time.Now()
	}
	return time.Since(f.waitsFor) < rightsInterval
}

// hasRead says whether some of a kind were read, in any scope.
func (s *Source) hasRead(k *kind) bool {
	return slices.ContainsFunc(s.feeds, func(f *feed) bool { return f.kind == k && f.snapshot().Lists > 0 })
}

// switchOff tells the registry, once, that this kind is not to be had.
func (f *feed) switchOff(err error, off func()) {
	f.src.link.off(f, err)
	if f.snapshot().Off {
		return
	}
	off()
	f.mu.Lock()
	f.status.Off, f.status.Synced = true, true
	f.mu.Unlock()
	f.src.log.Warn("no right to list "+f.kind.name+"s: "+f.kind.off+"; asking again every minute",
		"in", f.scope(), "grant", f.grant(), "err", reason(err))
}

// scope is the feed's scope, for people.
func (f *feed) scope() string {
	if f.namespace == "" {
		return "all namespaces"
	}
	return "namespace " + f.namespace
}

// grant is what is missing where something is forbidden.
func (f *feed) grant() string {
	role := "Role"
	if f.namespace == "" {
		role = "ClusterRole"
	}
	return fmt.Sprintf("list and watch %s in %s (%s)", f.kind.fullResource(), f.scope(), role)
}

func (f *feed) snapshot() FeedStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// What follows is told by lister and sink.

// listing says that a LIST is being made, of the state as it is in the cluster or of any
// that is not too old, and whether it has to be the former. It has its own time limit.
func (f *feed) listing(consistent bool) (insist bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mode = modeList
	f.status.Read = 0
	f.due = time.Time{}
	f.held.consistent = consistent || f.held.insist
	return f.held.insist
}

// read says that a LIST under way has brought so many objects more.
func (f *feed) read(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.Read += n
}

// failed says that a request failed.
func (f *feed) failed(err error) {
	f.mu.Lock()
	f.due = time.Time{}
	f.lost()
	f.status.LastError = reason(err)
	f.status.LastErrorTime = time.Now()
	if f.lastError = err; f.failing.IsZero() {
		f.failing = f.status.LastErrorTime
	}
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		f.ended = RestartExpired
		f.expired()
	} else {
		f.status.Errors[errorReason(err)]++
	}
	fresh := f.status.Lists == 0
	f.mu.Unlock()

	if !answered(err) {
		f.src.streaming.CompareAndSwap(streamingDoubt, streamingOn) // it was not the stream's fault
	}
	if fresh && (apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)) {
		return // next decides
	}
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return // the usual way to be told to list again
	}
	f.src.link.down(f, err)
}

// opening says that a watch is about to be opened. From here on it is watched over:
// a streaming list has until the deadline, counted from the first connection it
// got; any other watch must not be silent for too long.
func (f *feed) opening(ctx context.Context, initial, consistent bool) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release()
	if initial {
		f.held.consistent = consistent
	}
	f.cancel = cancel
	switch {
	case !initial:
		f.lost() // the one before has ended
		f.expect(silence)
	case !f.initial || f.due.IsZero():
		f.reached = false
		f.expect(unreached)
		fallthrough
	default:
		f.mode = modeWatchList
		f.brought, f.status.Read = 0, 0
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { f.connection() }})
	}
	f.initial = initial
	return ctx
}

// connection says that a streaming list got one.
func (f *feed) connection() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.initial && !f.reached && !f.due.IsZero() {
		f.reached = true
		f.limit = time.Now().Add(streamLimit)
		f.expect(f.src.SyncDeadline)
	}
}

// inDoubt says that the streaming list under way has had its time.
func (f *feed) inDoubt() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.initial && f.reached
}

// opened says that the watch is open.
func (f *feed) opened(w *overheard) {
	f.mu.Lock()
	f.stream = w
	plain := !f.initial
	if plain {
		if lost := f.status.Lost; !lost.IsZero() && time.Since(lost) >= maxBackoff {
			f.src.doubt(f) // who knows what has become of the API server meanwhile
		}
		f.connected()
	}
	again := plain && f.wanted
	f.mu.Unlock()
	if again {
		w.expire()
	}
	if plain {
		f.src.link.up(f)
	}
}

// overheard sees the events of a watch before the reflector does, which tells nobody
// of errors and of objects of another kind, and says whether it gets them. To an error
// the reflector's answer is to read the whole state again. A stream that broke off is
// kept from it, so that the next watch goes on where this one was.
func (f *feed) overheard(e watch.Event) (pass bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e.Type != watch.Error {
		if pass = f.kind.is(e.Object); !pass {
			f.status.Skipped++
		}
		if f.initial && e.Type == watch.Added {
			f.status.Read++
			f.progress()
		}
		return pass
	}
	err := apierrors.FromObject(e.Object)
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		f.ended = RestartExpired
		f.expired()
		return true // the usual way to be told to list again
	}
	text, broken := broken(err)
	if broken {
		f.ended = RestartBroken
		f.lost()         // now, and not when the next attempt has failed
		return f.initial // of a list, there is no place to go on from
	}
	f.ended = RestartError
	if !f.wanted {
		f.reason = RelistEvent
	}
	again := time.Since(f.refusedAt) < silence
	f.refusedAt = time.Now()
	f.status.LastError, f.status.LastErrorTime = text, f.refusedAt
	if !again {
		f.src.log.Warn("an event of a watch is not understood or is an error; what is known stays, reading the state again",
			"server", f.src.server, "kind", f.kind.name, "in", f.scope(), "err", text)
	}
	return true
}

// listed says that an initial state of some version was handed over, with the versions of
// its objects.
func (f *feed) listed(version uint64, objects map[name]uint64) {
	f.mu.Lock()
	if f.status.Lists > 0 {
		f.status.RelistsBy[f.reason]++
	}
	f.reason, f.wanted = RelistOther, false
	f.held.insist, f.held.olderOnce = false, false
	f.held.objects, f.held.listed = objects, version
	if f.held.touched != nil {
		clear(f.held.touched)
	}
	if version < f.held.version {
		f.held.version = 0 // it was taken all the same
	}
	f.progressed(version)
	f.status.Version = f.held.version
	mode, wasOff := f.mode, f.status.Off
	f.status.Mode, f.status.Synced, f.status.Off = mode, true, false
	f.status.Lists++
	f.lastError, f.failing = nil, time.Time{}
	f.status.LastEvent = time.Now()
	f.silent = false
	f.most = 0
	if f.initial = false; mode == modeWatchList {
		f.connected() // the stream goes on as a watch
		f.expect(silence)
	} else {
		f.due = time.Time{}
		f.status.Lost = f.status.LastEvent // until the watch is open
	}
	f.mu.Unlock()

	if mode == modeWatchList {
		f.src.link.up(f)
	} else if f.src.streaming.CompareAndSwap(streamingDoubt, streamingOff) {
		f.src.log.Warn("the streaming list did not end in time; using LIST and WATCH from now on", "server", f.src.server, "deadline", f.src.SyncDeadline)
	}
	if wasOff {
		f.src.log.Info(f.kind.name+"s may be listed now: they are watched", "in", f.scope())
	}
}

// expired notes why the state is read again. It needs f.mu.
func (f *feed) expired() {
	if !f.wanted {
		f.reason = RelistExpired
	}
}

// event says that a watch brought an object, usable or not.
func (f *feed) event(usable bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.Events++
	if !usable {
		f.status.Skipped++
	}
	f.moved()
}

func (f *feed) bookmark(version uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.progressed(version)
	f.moved()
}

func (f *feed) skip() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.status.Skipped++
}

// What follows needs f.mu, except for check and close.

func (f *feed) moved() {
	f.status.LastEvent = time.Now()
	f.due = f.status.LastEvent.Add(silence) // the timer looks when it fires
	f.silent = false
	if f.status.Connected {
		f.status.Lost = time.Time{}
	}
}

// progress says that a streaming list under way brought an object. It has its time
// again, unless an earlier one that broke off had come as far.
func (f *feed) progress() {
	f.brought++
	if f.brought <= f.most || !f.reached || f.due.IsZero() {
		return
	}
	f.most = f.brought
	if due := time.Now().Add(f.src.SyncDeadline); due.Before(f.limit) {
		f.due = due // the timer looks when it fires
	}
}

// lost says that no watch is open. What the feed has brought was right until now, or
// where a watch was silent until it last was not, or an audit has proved it.
func (f *feed) lost() {
	f.status.Connected = false
	switch {
	case f.silent:
		f.status.Lost = f.status.LastEvent
		if f.provedAt.After(f.status.Lost) {
			f.status.Lost = f.provedAt
		}
	case f.status.Lost.IsZero():
		f.status.Lost = time.Now()
	}
}

// connected says that a watch is open. After a silence that alone says little: an API
// server may take watches and have nothing to tell, since it has lost its own store.
func (f *feed) connected() {
	f.status.Connected = true
	if !f.silent {
		f.status.Lost = time.Time{}
	}
	if f.watched {
		f.status.Restarts[f.ended]++
	}
	f.watched, f.ended = true, RestartClosed
	if f.upSince.IsZero() {
		f.upSince = time.Now()
	}
}

// proved says that what was held at some time since the last list is what existed. Where no
// bookmarks come and nothing happens, that is all that can be known. The watch has to bring
// something as soon as before: what it may leave out from now on, nobody has looked at.
func (f *feed) proved(at time.Time) {
	if f.status.Connected {
		f.provedAt, f.silent = at, false
		f.status.Lost = time.Time{}
	}
}

// expect sets the time by which something must have happened.
func (f *feed) expect(within time.Duration) {
	f.due = time.Now().Add(within)
	if f.timer == nil {
		f.timer = time.AfterFunc(within, f.check)
	} else {
		f.timer.Reset(within)
	}
}

// check runs when the timer fires: it ends what has stalled. The reflector then
// goes on by itself, with the next watch or, in place of a streaming list, a LIST.
func (f *feed) check() {
	f.mu.Lock()
	if f.due.IsZero() {
		f.mu.Unlock()
		return
	}
	if left := time.Until(f.due); left > 0 {
		f.timer.Reset(left)
		f.mu.Unlock()
		return
	}
	f.due = time.Time{}
	if f.initial && f.reached {
		f.src.streaming.CompareAndSwap(streamingOn, streamingDoubt)
	} else if !f.initial {
		f.status.Reopened++
		f.silent, f.ended = true, RestartSilence
	}
	f.lost()
	end := f.take()
	f.mu.Unlock()
	end() // not under the lock: a stalled connection may hold it up
}

// release ends what is under way and has ended already, but for its context.
func (f *feed) release() { f.take()() }

// take gives up the request or stream under way and returns the function that ends
// it. A stream is stopped rather than cancelled, so that to the reflector it ends
// like any other; unless that takes too long.
func (f *feed) take() (end func()) {
	stream, cancel := f.stream, f.cancel
	f.stream, f.cancel = nil, nil
	return func() {
		if cancel == nil {
			return
		}
		if stream != nil {
			late := time.AfterFunc(time.Second, cancel)
			stream.Stop()
			late.Stop()
		}
		cancel()
	}
}

func (f *feed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.due = time.Time{}
	f.release()
	f.lost()
	for _, t := range []*time.Timer{f.timer, f.holdTimer} {
		if t != nil {
			t.Stop()
		}
	}
}

// sleep waits, and says whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
