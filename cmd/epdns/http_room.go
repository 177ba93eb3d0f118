package main

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What HTTP can take of the machine is bounded, so that whoever looks at pages, or leaves
// connections open, takes nothing from DNS, and probes and scrapes get through.

const (
	// maxHTTPConnections is far more than probes, scrapers and people need, and leaves
	// most of the 1024 file descriptors that a process often has to DNS.
	maxHTTPConnections = 256

	// maxStreams is how many of them may be streams, which stay: /watch and the status
	// page.
	maxStreams = 64

	// maxScrapes is how many have metrics collected at a time. Others are told to come again.
	maxScrapes = 8
)

// httpRoom closes connections where there are too many: the one that has been without a
// request for longest, or where all have one, one of the address that has most, so that a
// probe gets in beside those who hold what they can.
type httpRoom struct {
	log *slog.Logger

	mu       sync.Mutex
	open     map[net.Conn]time.Time // since when it has no request; zero: it has one
	full     bool                   // which was logged
	rejected uint64
}

func newHTTPRoom(log *slog.Logger) *httpRoom {
	return &httpRoom{log: log, open: map[net.Conn]time.Time{}}
}

// note is for http.Server.ConnState.
func (r *httpRoom) note(c net.Conn, state http.ConnState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch state {
	case http.StateNew:
		r.open[c] = time.Now()
		if len(r.open) > maxHTTPConnections {
			r.makeRoom(c)
		}
	case http.StateActive, http.StateIdle:
		if _, ok := r.open[c]; !ok {
			return // closed to make room
		}
		r.open[c] = time.Time{}
		if state == http.StateIdle {
			r.open[c] = time.Now()
		}
	default:
		delete(r.open, c)
		if r.full && len(r.open) <= maxHTTPConnections/2 {
			r.full = false
			r.log.Info("there is room for HTTP connections again")
		}
	}
}

// makeRoom closes one connection. It needs r.mu.
func (r *httpRoom) makeRoom(newest net.Conn) {
	close, since := newest, time.Time{}
	for c, idle := range r.open {
		if c != newest && !idle.IsZero() && (since.IsZero() || idle.Before(since)) {
			close, since = c, idle
		}
	}
	if close == newest {
		close = r.ofHeaviest(newest)
	}
	delete(r.open, close)
	close.Close()
	r.rejected++
	if !r.full {
		r.full = true
		r.log.Warn("too many HTTP connections: idle ones are closed, else new ones", "most", maxHTTPConnections)
	}
}

// ofHeaviest is a connection of the address that has most, or the newest if it has that many,
// too. It needs r.mu.
func (r *httpRoom) ofHeaviest(newest net.Conn) net.Conn {
	address := func(c net.Conn) string {
		host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
		return host
	}
	has := map[string]int{}
	for c := range r.open {
		has[address(c)]++
	}
	chosen := newest
	for c := range r.open {
		if has[address(c)] > has[address(chosen)] {
			chosen = c
		}
	}
	return chosen
}

// Describe implements [prometheus.Collector].
func (r *httpRoom) Describe(ch chan<- *prometheus.Desc) {
	ch <- descHTTPOpen
	ch <- descHTTPRejected
}

// Collect implements [prometheus.Collector].
func (r *httpRoom) Collect(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	open, rejected := len(r.open), r.rejected
	r.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(descHTTPOpen, prometheus.GaugeValue, float64(open))
	ch <- prometheus.MustNewConstMetric(descHTTPRejected, prometheus.CounterValue, float64(rejected))
}

// streams are the places for those that stay.
type streams chan struct{}

// limited lets in as many requests as there are places.
func (s streams) limited(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case s <- struct{}{}:
			defer func() { <-s }()
			next(w, r)
		default:
			w.Header().Set("Retry-After", "10")
			http.Error(w, "too many streams are open; try again later", http.StatusServiceUnavailable)
		}
	}
}
