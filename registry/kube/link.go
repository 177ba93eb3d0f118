package kube

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// link is what goes wrong between us and the API server, told once. Feeds share
// it: a lost connection hits all of them and is one line, not one for each.
type link struct {
	log    *slog.Logger
	server string

	mu      sync.Mutex
	trouble map[*feed]string // what is wrong with a feed
	told    map[string]bool  // and not taken back yet
}

func newLink(log *slog.Logger, server string) link {
	return link{log: log, server: server, trouble: map[*feed]string{}, told: map[string]bool{}}
}

// down says that a feed failed.
func (l *link) down(f *feed, err error) {
	what, text := classify(f, err)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trouble[f] = what
	if l.told[what] {
		return
	}
	l.told[what] = true
	l.log.Warn(what+"; what is known stays, trying again", "server", l.server, "kind", f.kind.name, "in", f.scope(), "err", text)
}

// up says that a feed works. What nobody suffers from any more is taken back.
func (l *link) up(f *feed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, was := l.trouble[f]; !was {
		return
	}
	delete(l.trouble, f)
	var mended []string
	for what := range l.told {
		if !l.suffers(what) {
			mended = append(mended, what)
			delete(l.told, what)
		}
	}
	if len(mended) > 0 {
		slices.Sort(mended)
		l.log.Info("watching again", "server", l.server, "was", strings.Join(mended, "; "))
	}
}

// off says that a feed will do without a right that it lacks. Who decides that tells of it,
// in place of what was told of the right before.
func (l *link) off(f *feed, err error) {
	what, _ := classify(f, err)
	l.mu.Lock()
	delete(l.told, what) // it names the kind and the scope: nobody else's
	l.mu.Unlock()
	l.up(f) // it is an answer; whatever else was wrong is not any more
}

func (l *link) suffers(what string) bool {
	for _, w := range l.trouble {
		if w == what {
			return true
		}
	}
	return false
}

// classify puts errors that mean the same trouble under the same words: no
// connection is no connection, whatever the port number or the text.
func classify(f *feed, err error) (what, text string) {
	text = reason(err)
	switch errorReason(err) {
	case ErrorForbidden:
		return "no right to read " + f.kind.fullResource() + " in " + f.scope(), text
	case ErrorUnauthorized:
		return "the API server does not accept our credentials", text
	case ErrorServer:
		if apierrors.IsNotFound(err) {
			return "the API server does not have " + f.kind.fullResource(), text
		}
		return "the API server reports an error", text
	case ErrorUnreachable:
		return "no connection to the API server", text
	}
	return "the answer of the API server is not understood", text
}

// ErrorReason is what was wrong with a request to the API server.
type ErrorReason uint8

const (
	ErrorUnreachable  ErrorReason = iota // no connection, or no answer
	ErrorUnauthorized                    // 401
	ErrorForbidden                       // 403
	ErrorServer                          // any other answer that is an error
	ErrorMalformed                       // an answer that is not understood

	errorReasons // how many there are
)

func (r ErrorReason) String() string {
	return [errorReasons]string{"unreachable", "unauthorized", "forbidden", "server", "malformed"}[r]
}

func errorReason(err error) ErrorReason {
	var network net.Error
	switch {
	case apierrors.IsForbidden(err):
		return ErrorForbidden
	case apierrors.IsUnauthorized(err):
		return ErrorUnauthorized
	case answered(err):
		return ErrorServer
	case errors.As(err, &network), errors.Is(err, errNoAnswer), errors.Is(err, errCut), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return ErrorUnreachable
	}
	return ErrorMalformed
}

// answered says whether an error is an answer of the API server.
func answered(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// reason is the text of an error on one line, without the URL of the request and
// what client-go puts in front.
func reason(err error) string {
	var status apierrors.APIStatus
	var request *url.Error
	if errors.As(err, &status) && status.Status().Message != "" {
		return strings.Join(strings.Fields(status.Status().Message), " ")
	}
	if errors.As(err, &request) {
		err = request.Err
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
