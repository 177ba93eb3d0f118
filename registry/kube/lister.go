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
	feed *feed
	keep cache.TransformFunc // what is kept of the objects of a LIST; set before use
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
	l := &lister{feed: f}
	l.ListWatch = &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			body, err := request(&opts).Stream(ctx)
			if err != nil {
				return nil, err
			}
			defer body.Close()
			stalled := time.AfterFunc(listSilence, cancel)
			defer stalled.Stop()
			list, err := readList(moving{body, func() { stalled.Reset(listSilence) }}, f.kind, l.keep)
			if err != nil && ctx.Err() != nil {
				err = errNoAnswer
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			opts.Watch = true
			return request(&opts).Watch(ctx)
		},
	}
	return l
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
	l.feed.listing()
	lctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := l.ListWatch.ListWithContext(lctx, opts)
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
	if initial && !l.feed.src.streams(ctx) {
		return nil, errNoStreaming
	}
	wctx := l.feed.opening(ctx, initial)
	w, err := l.ListWatch.WatchWithContext(wctx, opts)
	if err == nil && reflect.TypeOf(w) == emptyWatch {
		err = errCut
	}
	if err == nil {
		w = newOverheard(wctx, w, l.feed.overheard)
		l.feed.opened(w)
		return w, nil
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
}

func newOverheard(ctx context.Context, w watch.Interface, pass func(watch.Event) bool) *overheard {
	o := &overheard{Interface: w, events: make(chan watch.Event), stopped: make(chan struct{})}
	go func() {
		defer close(o.events)
		for e := range w.ResultChan() {
			if o.ended(ctx) {
				return
			}
			if !pass(e) {
				continue
			}
			select {
			case o.events <- e:
			case <-o.stopped:
				return
			}
		}
	}()
	return o
}

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
