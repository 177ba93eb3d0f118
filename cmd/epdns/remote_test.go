package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"epdns/registry"
)

func TestNewRemote(t *testing.T) {
	for text, ok := range map[string]bool{
		"http://127.0.0.1:9153":        true,
		"https://epdns.example/behind": true,
		"http://[::1]:9153/":           true,
		"":                             false,
		"127.0.0.1:9153":               false,
		"localhost":                    false,
		"ftp://127.0.0.1":              false,
		"http://":                      false,
		"http://:9153":                 false,
		"http://h/?a=b":                false,
		"http://h:port":                false,
	} {
		if _, err := newRemote(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// script is a server whose streams are given: the first request gets the first.
type script struct {
	t       *testing.T
	streams []func(w http.ResponseWriter)
	asked   int
}

func (s *script) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/watch" || r.URL.Query().Get("service") != "shop/web" {
		s.t.Errorf("asked for %v", r.URL)
	}
	s.asked++
	if s.asked > len(s.streams) {
		<-r.Context().Done()
		return
	}
	s.streams[s.asked-1](w)
}

// stream sends events and ends.
func stream(events ...any) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		for _, ev := range events {
			switch ev := ev.(type) {
			case change:
				data, _ := json.Marshal(&ev)
				w.Write(appendEvent(nil, eventChange, data))
			case int:
				w.Write(appendEvent(nil, eventServices, fmt.Append(nil, ev)))
			case string:
				fmt.Fprint(w, ev)
			}
		}
	}
}

func eventOf(name string) string { return string(appendEvent(nil, name, nil)) }

func status(code int, text string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { http.Error(w, text, code) }
}

func TestRemoteWatch(t *testing.T) {
	a, b, c := pod(added, "10.0.0.1", "a"), pod(added, "10.0.0.2", "b"), pod(added, "10.0.0.3", "c")
	sick := b
	sick.Ready = false
	gone := a
	gone.Type = removed
	enough := errors.New("enough")

	for _, tc := range []struct {
		what    string
		streams []func(http.ResponseWriter)
		until   int      // changes
		want    []string // changes, in their order
		said    []string // parts of the lines
		err     string   // if it ends before
	}{
		{"as it comes", []func(http.ResponseWriter){stream(a, 1, b, leaving(b), gone)}, 4,
			[]string{"ADDED 1", "ADDED 2", "CHANGED 2", "REMOVED 1"}, nil, ""},
		{"nothing happened while it was away", []func(http.ResponseWriter){stream(a, b, 1), stream(a, b, 1, c)}, 3,
			[]string{"ADDED 1", "ADDED 2", "ADDED 3"}, []string{"connecting again", "connected again"}, ""},
		{"all kinds of things happened", []func(http.ResponseWriter){stream(a, b, 1), stream(sick, c, 1)}, 5,
			[]string{"ADDED 1", "ADDED 2", "REMOVED 1", "CHANGED 2", "ADDED 3"}, []string{"connecting again", "connected again"}, ""},
		{"what was told in part says nothing of the rest",
			[]func(http.ResponseWriter){stream(a, b, 1), stream(a), status(503, "no"), stream(), stream(a, 1)}, 3,
			[]string{"ADDED 1", "ADDED 2", "REMOVED 2"}, []string{"connecting again", "connected again"}, ""},
		{"the Service goes and comes", []func(http.ResponseWriter){stream(0, 1, a, gone, 0), stream(b, 1)}, 3,
			[]string{"ADDED 1", "REMOVED 1", "ADDED 2"},
			[]string{"there is no Service shop/web", "there is no Service shop/web", "connecting again", "connected again"}, ""},
		{"the server is not ready at first", []func(http.ResponseWriter){stream(eventOf(eventWaiting), a, 1)}, 1,
			[]string{"ADDED 1"}, []string{"has not read all that exists yet; waiting", "has read all that exists"}, ""},
		{"nor when it is back", []func(http.ResponseWriter){stream(a, 1), stream(eventOf(eventWaiting)), stream(eventOf(eventWaiting), b, 1)}, 3,
			[]string{"ADDED 1", "REMOVED 1", "ADDED 2"},
			[]string{"connecting again", "has not read all that exists yet; waiting", "connected again"}, ""},
		{"later versions may say more", []func(http.ResponseWriter){stream("event: weather\ndata: fine\n\n", a, 1, ": x\n\n")}, 1,
			[]string{"ADDED 1"}, nil, ""},

		{"not for us", []func(http.ResponseWriter){status(403, "for this machine only\n")}, 1, nil, nil, "403 Forbidden: for this machine only"},
		{"not at all", []func(http.ResponseWriter){status(503, "no\n")}, 1, nil, nil, "503"},
		{"no more for us", []func(http.ResponseWriter){stream(a, 1), status(403, "")}, 2, []string{"ADDED 1"}, []string{"connecting again"}, "403"},
		{"somebody else", []func(http.ResponseWriter){func(w http.ResponseWriter) { fmt.Fprint(w, "<p>hello") }}, 1, nil, nil, "is this an epdns?"},
		{"nonsense", []func(http.ResponseWriter){stream("data: {\n\n")}, 1, nil, nil, "cannot be read"},
		{"half a change", []func(http.ResponseWriter){stream(`data: {"type":"ADDED"}` + "\n\n")}, 1, nil, nil, "cannot be used"},
		{"another kind", []func(http.ResponseWriter){stream(`data: {"type":"MODIFIED"}` + "\n\n")}, 1, nil, nil, "MODIFIED"},
		{"no number", []func(http.ResponseWriter){stream("event: services\ndata: many\n\n")}, 1, nil, nil, "many"},
		{"no end", []func(http.ResponseWriter){stream("data: " + strings.Repeat("x", 2*maxEvent))}, 1, nil, nil, "too long"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(&script{t: t, streams: tc.streams})
			defer server.Close()
			r, err := newRemote(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			defer r.client.CloseIdleConnections()
			ctx, cancel := context.WithTimeout(t.Context(), grace)
			defer cancel()
			var got, said []string
			p := changePrinter{of: target{Key: registry.Key{Namespace: "shop", Name: "web"}}}
			p.say = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
			p.print = func(changes []change) error {
				for _, c := range changes {
					got = append(got, c.Type+" "+c.Address.String()[len("10.0.0."):])
				}
				if len(got) >= tc.until {
					return enough
				}
				return nil
			}
			err = r.watch(ctx, p.of, p.tell, p.say)
			if tc.err == "" && !errors.Is(err, enough) || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("it ended with: %v", err)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if !slices.EqualFunc(said, tc.said, strings.Contains) {
				t.Errorf("it said %q, want %q", said, tc.said)
			}
		})
	}
}

func TestRemoteWatchEnds(t *testing.T) {
	server := httptest.NewServer(&script{t: t, streams: []func(http.ResponseWriter){stream(1)}})
	defer server.Close()
	r, err := newRemote(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer r.client.CloseIdleConnections()
	ctx, stop := context.WithCancel(t.Context())
	say := func(string, ...any) { stop() } // that the stream broke
	tell := func(round) error { return nil }
	if err := r.watch(ctx, target{Key: registry.Key{Namespace: "shop", Name: "web"}}, tell, say); err != nil {
		t.Error(err)
	}
}

// TestNoHTTP: whoever names another port than that of HTTP is told so.
func TestNoHTTP(t *testing.T) {
	for _, tc := range []struct {
		what   string
		answer func(net.Conn)
		says   string
	}{
		{"another protocol", func(c net.Conn) { c.Read(make([]byte, 1024)); fmt.Fprint(c, "SSH-2.0-x\r\n"); c.Close() }, `malformed HTTP response "SSH-2.0-x"): is it the address of --http?`},
		{"hung up, as DNS does", func(c net.Conn) { c.Read(make([]byte, 1024)); c.Close() }, "no HTTP there (EOF): is it the address of --http?"},
		{"silence", func(net.Conn) {}, "no HTTP from http://"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				var open []net.Conn // one that is let go of is closed sooner or later
				for {
					c, err := l.Accept()
					if err != nil {
						runtime.KeepAlive(open)
						return
					}
					open = append(open, c)
					tc.answer(c)
				}
			}()
			r, err := newRemote("http://" + l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer r.client.CloseIdleConnections()
			wait := grace
			if tc.what == "silence" {
				wait = 50 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, err = r.lookup(ctx, lookupQuestion{})
			if text := fmt.Sprint(err); !strings.Contains(text, tc.says) || !strings.Contains(text, "is it the address of --http?") {
				t.Errorf("it says: %v, expected %s", err, tc.says)
			}
		})
	}
}
