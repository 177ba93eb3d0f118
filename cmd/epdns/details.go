package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"epdns/dnsserver"
	"epdns/registry"
)

// This file is what is told of single Services by HTTP:
//
//	/watch?service=NS/SVC   each change as it happens, as server-sent events;
//	/watch?all=true         of all Services
//	/lookup?name=N&type=T   the reply to a question, the message that goes over TCP,
//	       &from=ADDR       to one who asks from this address
//	       &subnet=PREFIX   for these, as a forwarder says
//	       &format=json     or text, as "epdns lookup" prints them; so does Accept
//	/explain?…              the same question, and why it is answered so; see explain_http.go
//
// Whoever can read it knows the cluster's Services and pods. So it is for this
// machine, unless it was opened to others.

// detailed lets in requests over loopback and, with details, all. Over loopback they
// must be to an address or to localhost: a web page elsewhere can point a name of its
// own at this machine, and its reader's browser would ask us.
func (h *httpServer) detailed(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !h.isFor(r) {
			http.Error(w, r.URL.Path+" is for this machine only; httpDetails: true in the configuration opens it to others", http.StatusForbidden)
			return
		}
		next(w, r)
	}
}

// isFor says whether details are for who asks.
func (h *httpServer) isFor(r *http.Request) bool {
	return h.details.Load() || overLoopback(r) && byAddress(r.Host)
}

func overLoopback(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	for _, text := range []string{r.RemoteAddr, fmt.Sprint(local)} {
		if a, err := netip.ParseAddrPort(text); err == nil && a.Addr().Unmap().IsLoopback() {
			return true
		}
	}
	return false
}

func byAddress(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	_, err = netip.ParseAddr(host)
	return err == nil || host == "localhost"
}

// parameters reads the query of a URL, in which only these names may stand, each once.
func parameters(u *url.URL, names ...string) (map[string]string, error) {
	all, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("the query %q cannot be read: %w", u.RawQuery, err)
	}
	out := map[string]string{}
	for _, name := range names {
		if values := all[name]; len(values) > 1 {
			return nil, fmt.Errorf("parameter %q is given more than once", name)
		} else if len(values) == 1 {
			out[name] = values[0]
		}
		delete(all, name)
	}
	for name := range all {
		return nil, fmt.Errorf("parameter %q is not known", name)
	}
	return out, nil
}

func badRequest(w http.ResponseWriter, err error) {
	http.Error(w, err.Error(), http.StatusBadRequest)
}

// patience is how long a reader may take for what one write sends. Meanwhile
// changes are folded, so it costs no memory.
const patience = 30 * time.Second

// serveWatch streams the changes of a store.
func serveWatch(store *registry.Store) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		of, err := watchTarget(r.URL)
		if err != nil {
			badRequest(w, err)
			return
		}
		send := beginStream(w)
		if r.Method == http.MethodHead {
			return
		}
		streamChanges(r.Context(), store, of, send)
	}
}

// beginStream makes a reply a stream of server-sent events. What it returns sends some, and
// says whether there is still somebody who reads.
func beginStream(w http.ResponseWriter) (send func([]byte) bool) {
	w.Header().Set("Content-Type", eventStream)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold it back
	control := http.NewResponseController(w)
	control.SetReadDeadline(time.Time{}) // what is waited for is that the reader goes
	return func(b []byte) bool {
		control.SetWriteDeadline(time.Now().Add(patience))
		_, err := w.Write(b)
		return err == nil && control.Flush() == nil
	}
}

func watchTarget(u *url.URL) (of target, err error) {
	p, err := parameters(u, "service", "all")
	if err != nil {
		return of, err
	}
	service, one := p["service"]
	if all, ok := p["all"]; ok {
		if of.all, err = strconv.ParseBool(all); err != nil {
			return of, fmt.Errorf("parameter %q: %q is not true or false", "all", all)
		}
	}
	switch {
	case one && of.all:
		return of, errors.New(`parameters "service" and "all" cannot be given together`)
	case one:
		if of.Key, err = parseService(service); err != nil {
			return of, fmt.Errorf(`parameter "service": %w`, err)
		}
	case !of.all:
		return of, errors.New(`parameter "service" is missing: NAMESPACE/SERVICE, or all=true`)
	}
	return of, nil
}

// sendSize is about how much one write sends: a few packets, so that a slow reader
// is seen to be reading.
const sendSize = 32 << 10

// streamChanges sends until ctx ends or send fails.
func streamChanges(ctx context.Context, store *registry.Store, of target, send func([]byte) bool) {
	hello := []byte(": epdns\n\n")
	synced := store.Synced() // before that, nothing is known for certain
	select {
	case <-synced:
	default:
		hello = appendEvent(hello, eventWaiting, nil)
	}
	if !send(hello) { // the header goes out at once
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	var w *watcher
	var woken <-chan struct{}
	services := -1
	var buf []byte
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
			if !send([]byte(": alive\n\n")) {
				return
			}
			continue
		case <-synced:
			synced = nil
			w = newWatcher(store, of)
			defer w.Close()
			woken = w.Changed()
		case <-woken:
		}
		r := w.round(time.Now())
		buf = buf[:0]
		for i := range r.changes {
			data, err := json.Marshal(&r.changes[i])
			if err != nil {
				panic("epdns: a change has no JSON form: " + err.Error())
			}
			if buf = appendEvent(buf, eventChange, data); len(buf) >= sendSize {
				if !send(buf) {
					return
				}
				buf = buf[:0]
			}
		}
		if r.services != services {
			services = r.services
			buf = appendEvent(buf, eventServices, fmt.Append(nil, services))
		}
		if len(buf) > 0 && !send(buf) {
			return
		}
	}
}

// serveLookup answers questions.
func serveLookup(newResponder func() *dnsserver.Responder) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		q, p, err := readQuestion(r.URL, "format")
		if err != nil {
			badRequest(w, err)
			return
		}
		form, err := wantedForm(r, p, dnsMessage, applicationJSON, textPlain)
		if err != nil {
			badRequest(w, err)
			return
		}
		reply, err := q.answer(newResponder())
		if err != nil {
			badRequest(w, fmt.Errorf(`parameter "name": %w`, err))
			return
		}
		setForm(w, form)
		if form == dnsMessage {
			w.Write(reply)
			return
		}
		m, err := unpackReply(reply)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
		case form == textPlain:
			printReply(w, m)
		default:
			printReplyJSON(w, m)
		}
	}
}
