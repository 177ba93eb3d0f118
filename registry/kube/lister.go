package kube

import (
	"context"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// lister makes the requests of one feed. It stands between the reflector and the
// client because here, and only here, every outcome passes: the reflector hides
// refused connections and broken watches from its error handler.
type lister struct {
	*cache.ListWatch
	feed    *feed
	request func(opts *metav1.ListOptions) *rest.Request
	keep    cache.TransformFunc // what is kept of the objects of a LIST; set before use
}

var _ cache.ListerWatcherWithContext = (*lister)(nil)

func newLister(f *feed, c rest.Interface) *lister {
	request := func(opts *metav1.ListOptions) *rest.Request {
		return c.Get().
			MaxRetries(0). // client-go repeats what times out ten times before it says so
			Namespace(f.namespace).
			Resource(f.kind.resource).
			VersionedParams(opts, metav1.ParameterCodec)
	}
	l := &lister{feed: f, request: request}
	l.ListWatch = &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (list runtime.Object, err error) {
			err = l.read(ctx, opts, func(body io.Reader) (err error) {
				list, err = readList(body, f.kind, l.keep, f.read)
				return err
			})
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.Watch = true
			return request(&opts).Watch(ctx)
		},
	}
	return l
}

// read makes a LIST and hands its answer on as it comes.
func (l *lister) read(ctx context.Context, opts metav1.ListOptions, to func(body io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	body, err := l.request(&opts).Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	stalled := time.AfterFunc(listSilence, cancel)
	defer stalled.Stop()
	err = to(moving{body, func() { stalled.Reset(listSilence) }})
	if err != nil && ctx.Err() != nil {
		err = errNoAnswer
	}
	return err
}

// listPage is how many objects a page has of a list that an API server gets from etcd.
const listPage = 500

// newest makes opts those of a list of what exists now. A list without a version would do,
// but is served from the same cache as watches are: what is missing in one of them may be
// missing in the other. One of a version goes to etcd, or to a cache that is compared with
// it. What the newest version is, the API server always asks etcd.
func (l *lister) newest(ctx context.Context, opts *metav1.ListOptions) error {
	var meta metav1.ListMeta
	err := l.read(ctx, metav1.ListOptions{Limit: 1}, func(body io.Reader) (err error) {
		meta, err = readItems(body, l.feed.kind, l.keep, func(runtime.Object) {})
		return err
	})
	if err != nil {
		return err
	}
	opts.ResourceVersion, opts.ResourceVersionMatch, opts.Limit = meta.ResourceVersion, metav1.ResourceVersionMatchExact, 0
	if opts.ResourceVersion == "" || opts.ResourceVersion == "0" {
		opts.ResourceVersionMatch = ""
	}
	if !l.feed.src.versionLists.Load() {
		opts.Limit = listPage
	}
	return nil
}

// listAll calls each for what is kept of all that exists, as of the version that it
// returns: the newest there is. It has nothing to do with the reflector's lists.
func (l *lister) listAll(ctx context.Context, each func(runtime.Object)) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	opts := metav1.ListOptions{}
	if err := l.newest(ctx, &opts); err != nil {
		return "", err
	}
	for {
		var page metav1.ListMeta
		err := l.read(ctx, opts, func(body io.Reader) (err error) {
			page, err = readItems(body, l.feed.kind, l.keep, each)
			return err
		})
		if err != nil {
			return "", err
		}
		version = page.ResourceVersion
		if page.Continue == "" {
			return version, nil
		}
		opts = metav1.ListOptions{Limit: opts.Limit, Continue: page.Continue}
	}
}

const (
	// listTimeout is how long a LIST may take. The API server itself gives up after a
	// minute.
	listTimeout = 2 * time.Minute

	// listSilence is how long the answer to a LIST may bring nothing once it has begun. An
	// API server may be busy with its garbage for seconds.
	listSilence = 30 * time.Second
)

// moving is a body that tells when it is read.
type moving struct {
	io.Reader
	moved func()
}

func (m moving) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.moved()
	return n, err
}

// errNoStreaming makes the reflector LIST instead: it does so after any error of a
// streaming list.
var errNoStreaming = errors.New("streaming lists are not used")

var (
	// errNoAnswer is a request that we ended ourselves.
	errNoAnswer = errors.New("no answer in time")
	// errCut is a watch whose connection ended before the answer.
	errCut = errors.New("the connection timed out or was closed")
)

// emptyWatch is what client-go returns, without an error, where a watch timed out or
// was cut off before it began.
var emptyWatch = reflect.TypeOf(watch.NewEmptyWatch())

func (l *lister) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	lctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	var list runtime.Object
	var err error
	if opts.Continue == "" && l.feed.listing(opts.ResourceVersion == "") {
		err = l.newest(lctx, &opts)
	}
	if err == nil {
		list, err = l.ListWatch.ListWithContext(lctx, opts)
	}
	if err != nil && ctx.Err() == nil {
		if lctx.Err() != nil {
			err = errNoAnswer
		}
		l.feed.failed(err)
	}
	return list, err
}

func (l *lister) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	initial := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if initial && (!l.feed.src.streams(ctx) || l.feed.insists()) { // which asks for the version
		return nil, errNoStreaming
	}
	wctx := l.feed.opening(ctx, initial, opts.ResourceVersion == "")
	w, err := l.ListWatch.WatchWithContext(wctx, opts)
	if err == nil && reflect.TypeOf(w) == emptyWatch {
		err = errCut
	}
	if err == nil {
		o := newOverheard(wctx, w, l.feed.overheard)
		l.feed.opened(o)
		return o, nil
	}
	if ctx.Err() != nil {
		return nil, err
	}
	stalled := wctx.Err() != nil
	if stalled {
		err = errNoAnswer
	}
	if !initial {
		l.feed.failed(err)
		return nil, err
	}
	// Any answer, and the lack of one from a server that was reached, may be about
	// streaming only: the LIST that follows decides whether something is wrong.
	if !answered(err) && !(stalled && l.feed.inDoubt()) {
		l.feed.failed(err)
	}
	// A refused connection and a "too many requests" would be repeated right here by
	// the reflector, which then sits out its backoff without looking at ctx; hidden
	// in text they come back to the feed's own loop.
	if utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err) {
		err = errors.New(err.Error())
	}
	return nil, err
}

// overheard is a watch whose events are shown to somebody, who says which of them are
// passed on. Once it is stopped there are none: what client-go makes of a stream that
// was closed under it is an event, too, and looks like an error of the server.
type overheard struct {
	watch.Interface
	events  chan watch.Event
	stop    sync.Once
	stopped chan struct{}
	expires sync.Once
	expired chan struct{}
}

func newOverheard(ctx context.Context, w watch.Interface, pass func(watch.Event) bool) *overheard {
	o := &overheard{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{}), expired: make(chan struct{})}
	go func() {
		defer close(o.events)
		for {
			e, last := expiry, true
			select {
			case <-o.expired:
			case event, open := <-w.ResultChan():
				if !open || o.ended(ctx) {
					return
				}
				if !pass(event) {
					continue
				}
				e, last = event, false
			}
			select {
			case o.events <- e:
			case <-o.stopped:
				return
			}
			if last {
				return
			}
		}
	}()
	return o
}

// expire ends the watch as the API server would that has forgotten where it was.
func (o *overheard) expire() { o.expires.Do(func() { close(o.expired) }) }

func (o *overheard) ended(ctx context.Context) bool {
	select {
	case <-o.stopped:
		return true
	default:
		return ctx.Err() != nil
	}
}

func (o *overheard) ResultChan() <-chan watch.Event { return o.events }

func (o *overheard) Stop() {
	o.stop.Do(func() { close(o.stopped) })
	o.Interface.Stop()
}

// decoding marks an error event that client-go made of what it read.
const decoding metav1.CauseType = "ClientWatchDecoding"

// broken says whether an error event is about the stream: its connection was lost, or
// where the next event begins can't be told. text is the error without wrapping. An
// object that is not understood comes in a stream that is well.
func broken(err error) (text string, yes bool) {
	cause, ours := apierrors.StatusCause(err, decoding)
	if !ours {
		return reason(err), false
	}
	return cause.Message, !strings.Contains(cause.Message, "unable to decode watch event")
}
