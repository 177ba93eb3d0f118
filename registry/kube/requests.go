package kube

import (
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// requests are what went over the wire, for metrics. client-go has hooks for that, one
// for the whole process, which time neither streams nor watches: all that is sent here.
type requests struct {
	mu     sync.Mutex
	counts map[RequestKind]*Requests
}

// RequestKind is what requests to the API server are counted by.
type RequestKind struct {
	Method string
	Code   string // the status code, or "<error>" where there was no answer, as client-go has it
}

// Requests are those of one kind.
type Requests struct {
	Count   uint64
	Seconds float64 // until the header of the answer was there, all together

	// Within are the requests that took no longer than the bound of that number in
	// RequestBounds, and than no smaller one.
	Within [len(RequestBounds)]uint64
}

// RequestBounds are seconds. What takes longer than all is in none.
var RequestBounds = [...]float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}

// counted is a transport whose requests are counted.
type counted struct {
	*requests
	next http.RoundTripper
}

func (r *requests) around(next http.RoundTripper) http.RoundTripper { return counted{r, next} }

// RoundTrip implements [http.RoundTripper].
func (c counted) RoundTrip(req *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := c.next.RoundTrip(req)
	kind := RequestKind{req.Method, "<error>"}
	if err == nil {
		kind.Code = strconv.Itoa(resp.StatusCode)
	}
	c.note(kind, time.Since(began))
	return resp, err
}

// WrappedRoundTripper is for client-go, which looks for what a transport can do.
func (c counted) WrappedRoundTripper() http.RoundTripper { return c.next }

func (r *requests) note(kind RequestKind, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[RequestKind]*Requests{}
	}
	n := r.counts[kind]
	if n == nil {
		n = &Requests{}
		r.counts[kind] = n
	}
	n.Count++
	n.Seconds += took.Seconds()
	for i, bound := range RequestBounds {
		if took.Seconds() <= bound {
			n.Within[i]++
			break
		}
	}
}

// Requests returns what was asked of the API server so far. It may be called from any
// goroutine, at any time.
func (s *Source) Requests() map[RequestKind]Requests {
	s.sent.mu.Lock()
	defer s.sent.mu.Unlock()
	out := make(map[RequestKind]Requests, len(s.sent.counts))
	for kind, n := range s.sent.counts {
		out[kind] = *n
	}
	return out
}

// Host is the API server's, with its port where its URL has one.
func (s *Source) Host() string {
	if u, err := url.Parse(s.server); err == nil && u.Host != "" {
		return u.Host
	}
	return s.server
}
