package fakeapi

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Request is a LIST or a WATCH.
type Request struct {
	Kind   string
	Watch  bool
	Header http.Header

	at        time.Time
	namespace string

	version string
	match   metav1.ResourceVersionMatch
	limit   int    // of a page
	page    string // which one to go on with

	bookmarks bool
	initial   *bool // sendInitialEvents
	timeout   time.Duration
}

// whole says whether the answer is the whole state, or begins with it.
func (r *Request) whole() bool {
	if !r.Watch {
		return r.page == ""
	}
	if r.initial != nil {
		return *r.initial
	}
	return r.version == "" || r.version == "0"
}

// Consistent says whether what is asked for is the newest state there is.
func (r *Request) Consistent() bool { return r.version == "" }

// Exact says whether it is the state of one version.
func (r *Request) Exact() bool { return r.match == metav1.ResourceVersionMatchExact }

// number is the version asked for.
func (r *Request) number() uint64 {
	n, _ := strconv.ParseUint(r.version, 10, 64) // it was read once before
	return n
}

// readRequest takes everything a client may ask. What it does not know is an
// error: nothing may be left out of an answer for being overlooked.
// Resource versions may have a prefix.
func readRequest(q url.Values, prefix string) (r Request, err error) {
	for name, values := range q {
		value := values[0]
		switch name {
		case "watch":
			r.Watch, err = strconv.ParseBool(value)
		case "allowWatchBookmarks":
			r.bookmarks, err = strconv.ParseBool(value)
		case "sendInitialEvents":
			var initial bool
			initial, err = strconv.ParseBool(value)
			r.initial = &initial
		case "resourceVersion":
			if r.version = strings.TrimPrefix(value, prefix); value != "" {
				_, err = strconv.ParseUint(r.version, 10, 64)
			}
		case "resourceVersionMatch":
			r.match = metav1.ResourceVersionMatch(value)
		case "limit":
			r.limit, err = strconv.Atoi(value)
		case "continue":
			r.page = value
		case "timeoutSeconds":
			var seconds int
			seconds, err = strconv.Atoi(value)
			r.timeout = time.Duration(seconds) * time.Second
		default:
			err = fmt.Errorf("it is not known here")
		}
		if err != nil {
			return r, fmt.Errorf("parameter %s=%s: %w", name, value, err)
		}
	}
	exact, notOlder := r.match == metav1.ResourceVersionMatchExact, r.match == metav1.ResourceVersionMatchNotOlderThan
	switch {
	case r.match != "" && !exact && !notOlder:
		err = fmt.Errorf("resourceVersionMatch: %q", r.match)
	case r.Watch && (r.limit != 0 || r.page != ""):
		err = fmt.Errorf("limit and continue are for lists")
	case r.Watch && (r.initial == nil) != (r.match == ""), r.Watch && exact:
		err = fmt.Errorf("sendInitialEvents: with a watch it needs and is needed by resourceVersionMatch=NotOlderThan")
	case !r.Watch && r.initial != nil:
		err = fmt.Errorf("sendInitialEvents is for watches")
	case !r.Watch && r.match != "" && r.version == "", exact && r.version == "0":
		err = fmt.Errorf("resourceVersionMatch=%s: not with resourceVersion=%q", r.match, r.version)
	case r.page != "" && r.version != "" && r.version != "0":
		err = fmt.Errorf("continue: not with a resourceVersion")
	}
	return r, err
}
