package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"
)

// remoteWatch follows the stream of a running server, and another one when that
// breaks. What it knows outlives streams, so that it tells what is different and
// nothing twice.
type remoteWatch struct {
	*remote
	of   target
	tell func(round) error
	say  func(format string, args ...any)

	known    known
	services int
	streams  int  // that were had
	broken   bool // the last one is, and people know
	waiting  bool // for the server to have read what exists, and people know
}

// watch tells of all that is there and then of each change, until ctx ends. Before
// the first stream any trouble is an error; afterwards it tries again.
func (r *remote) watch(ctx context.Context, of target, tell func(round) error, say func(string, ...any)) error {
	w := &remoteWatch{remote: r, of: of, tell: tell, say: say, known: known{}}
	const shortest, longest = 100 * time.Millisecond, 5 * time.Second
	pause := shortest
	for {
		whole, err := w.stream(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.As(err, new(lostError)) || w.streams == 0 {
			return err
		}
		if !w.broken {
			w.broken = true
			w.say("%v; connecting again", err)
		}
		if whole {
			pause = shortest
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, longest)
	}
}

// stream follows one stream to its end, which is always an error. whole says that
// it told all that is there.
func (w *remoteWatch) stream(ctx context.Context) (whole bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	query := url.Values{"service": {w.of.String()}}
	if w.of.all {
		query = url.Values{"all": {"true"}}
	}
	body, err := w.get(ctx, "/watch", query, eventStream)
	if err != nil {
		return false, err
	}
	defer body.Close()
	w.streams++

	// A peer that is gone without a word is noticed by its silence.
	const silence = 3 * heartbeat
	watchdog := time.AfterFunc(silence, func() { cancel(fmt.Errorf("nothing was heard for %v", silence)) })
	defer watchdog.Stop()
	events := newEventReader(readerFunc(func(p []byte) (int, error) {
		n, err := body.Read(p)
		watchdog.Reset(silence)
		return n, err
	}))
	var now []change // before it is whole
	for {
		ev, err := events.next()
		switch {
		case errors.Is(err, errLongEvent):
			return whole, fmt.Errorf("watch %v: %w", w, err)
		case errors.Is(err, io.EOF):
			return whole, lostError{fmt.Errorf("watch %v: the server ended the stream", w)}
		case ctx.Err() != nil:
			return whole, lostError{fmt.Errorf("watch %v: %w", w, context.Cause(ctx))}
		case err != nil:
			return whole, lostError{fmt.Errorf("watch %v: %w", w, err)}
		}
		var r round
		switch ev.name {
		case eventChange:
			var c change
			if err := json.Unmarshal([]byte(ev.data), &c); err != nil {
				return whole, fmt.Errorf("watch %v: a change cannot be read: %w", w, err)
			}
			if err := c.check(); err != nil {
				return whole, fmt.Errorf("watch %v: a change cannot be used: %w", w, err)
			}
			if !whole {
				now = append(now, c)
				continue
			}
			c, news := w.known.learn(c)
			if !news {
				continue
			}
			r.changes = []change{c}
		case eventServices:
			if w.services, err = strconv.Atoi(ev.data); err != nil {
				return whole, fmt.Errorf("watch %v: the number of Services is %q", w, ev.data)
			}
			if !whole {
				whole = true
				switch {
				case w.broken:
					w.say("watch %v: connected again", w)
				case w.waiting:
					w.say("%v has read all that exists", w)
				}
				w.broken, w.waiting = false, false
				r.changes = w.known.replace(now, time.Now())
				now = nil
			}
		case eventWaiting:
			if !whole && !w.waiting {
				w.waiting = true
				w.say("%v has not read all that exists yet; waiting", w)
			}
			continue
		default:
			continue // of a later version
		}
		r.services = w.services
		if err := w.tell(r); err != nil {
			return whole, err
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
