package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.Local)

// pod is an endpoint behind shop/web that is ready.
func pod(typ, address, name string) change {
	return change{Time: noon, Type: typ, Namespace: "shop", Service: "web", Address: netip.MustParseAddr(address), Pod: name,
		state: state{Ready: true, Serving: true, Zone: "zone-a", Node: "node-a1", Slice: "web-1",
			Ports: []port{{"http", "TCP", 8080}}}}
}

// leaving is a pod that has begun to shut down.
func leaving(c change) change {
	was := c.state
	c.Type, c.Was = changed, &was
	c.Ready, c.Terminating = false, true
	return c
}

func TestChangeTable(t *testing.T) {
	bare := change{Time: noon, Type: added, Namespace: "shop", Service: "web", Address: netip.MustParseAddr("10.0.0.3"), state: state{Slice: "web-1"}}
	moved := pod(changed, "10.0.0.2", "web-b")
	moved.Was = &state{Ready: true, Serving: true, Zone: "zone-a", Slice: "web-0", Ports: []port{{"http", "TCP", 80}, {"dns", "UDP", 53}}}
	long := pod(added, "2001:db8::1:2:3:4", "web-with-a-name-that-nobody-would-expect")

	var out bytes.Buffer
	table := changeTable{w: &out}
	for _, round := range [][]change{
		{pod(added, "10.0.0.1", "web-a"), pod(added, "10.0.0.2", "web-b"), bare},
		{leaving(pod(added, "10.0.0.1", "web-a"))},
		{moved},
		{long},
		{pod(removed, "10.0.0.1", "web-a")},
	} {
		if err := table.print(round); err != nil {
			t.Fatal(err)
		}
	}
	const want = `
TIME          CHANGE   SERVICE   ADDRESS          CONDITIONS             ZONE    NODE     ENDPOINT                  SLICE  WAS
12:00:00.000  ADDED    shop/web  10.0.0.1         ready                  zone-a  node-a1  web-a                     web-1
12:00:00.000  ADDED    shop/web  10.0.0.2         ready                  zone-a  node-a1  web-b                     web-1
12:00:00.000  ADDED    shop/web  10.0.0.3         not-ready              -       -        -                         web-1
12:00:00.000  CHANGED  shop/web  10.0.0.1         serving,terminating    zone-a  node-a1  web-a                     web-1  ready
12:00:00.000  CHANGED  shop/web  10.0.0.2         ready                  zone-a  node-a1  web-b                     web-1  node=-;slice=web-0;ports=http:80/TCP,dns:53/UDP
TIME          CHANGE   SERVICE   ADDRESS            CONDITIONS             ZONE    NODE     ENDPOINT                                  SLICE  WAS
12:00:00.000  ADDED    shop/web  2001:db8::1:2:3:4  ready                  zone-a  node-a1  web-with-a-name-that-nobody-would-expect  web-1
12:00:00.000  REMOVED  shop/web  10.0.0.1           ready                  zone-a  node-a1  web-a                                     web-1
`
	if got := "\n" + out.String(); got != want {
		t.Errorf("got:%s\nwant:%s", got, want)
	}
}

func TestChangeLines(t *testing.T) {
	c := leaving(pod(added, "10.0.0.1", "web-a"))
	c.Time = time.Date(2026, 5, 4, 12, 0, 0, 500_000_000, time.UTC)
	bare := change{Time: c.Time, Type: added, Namespace: "data", Service: "db", Address: netip.MustParseAddr("::1"), Hostname: "db-0",
		state: state{Slice: "db-1", Ports: []port{{Protocol: "SCTP"}}}}
	var out bytes.Buffer
	if err := (changeLines{&out}).print([]change{c, bare}); err != nil {
		t.Fatal(err)
	}
	const want = `{"time":"2026-05-04T12:00:00.5Z","type":"CHANGED","namespace":"shop","service":"web","address":"10.0.0.1","pod":"web-a",` +
		`"ready":false,"serving":true,"terminating":true,"zone":"zone-a","node":"node-a1","slice":"web-1","ports":[{"name":"http","protocol":"TCP","number":8080}],` +
		`"was":{"ready":true,"serving":true,"terminating":false,"zone":"zone-a","node":"node-a1","slice":"web-1","ports":[{"name":"http","protocol":"TCP","number":8080}]}}
{"time":"2026-05-04T12:00:00.5Z","type":"ADDED","namespace":"data","service":"db","address":"::1","hostname":"db-0",` +
		`"ready":false,"serving":false,"terminating":false,"slice":"db-1","ports":[{"protocol":"SCTP"}]}
`
	if out.String() != want {
		t.Errorf("got:\n%swant:\n%s", out.String(), want)
	}
	// What is printed can be read again.
	for line := range strings.Lines(out.String()) {
		var c change
		if err := json.Unmarshal([]byte(line), &c); err != nil || c.check() != nil {
			t.Errorf("%v, %v: %s", err, c.check(), line)
		}
	}
}

func TestConditions(t *testing.T) {
	for _, c := range []struct {
		ready, serving, terminating bool
		want                        string
	}{
		{true, true, false, "ready"},
		{true, true, true, "ready,terminating"}, // publishNotReadyAddresses
		{true, false, false, "ready,not-serving"},
		{true, false, true, "ready,not-serving,terminating"},
		{false, true, false, "serving"},
		{false, true, true, "serving,terminating"},
		{false, false, false, "not-ready"},
		{false, false, true, "not-ready,terminating"},
	} {
		s := state{Ready: c.ready, Serving: c.serving, Terminating: c.terminating}
		if got := s.conditions(); got != c.want {
			t.Errorf("%+v: %s, want %s", s, got, c.want)
		}
	}
}

func TestParseService(t *testing.T) {
	for _, c := range []struct {
		text, fault string
	}{
		{"shop/web", ""},
		{"shop/1web", ""},
		{"shop", "NAMESPACE/SERVICE"},
		{"", "NAMESPACE/SERVICE"},
		{"/web", `""`},
		{"shop/", `""`},
		{"shop/Web", `"Web"`},
		{"shop/web/1", `"web/1"`},
		{"shop/" + strings.Repeat("w", 64), "63"},
	} {
		k, err := parseService(c.text)
		switch {
		case c.fault == "" && (err != nil || k.String() != c.text):
			t.Errorf("%q: %v, %v", c.text, k, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
			t.Errorf("%q: error %v, want %s", c.text, err, c.fault)
		}
	}
}

// Who watches one Service needs no rights in other namespaces.
func TestWatchTarget(t *testing.T) {
	for _, c := range []struct {
		flags      watchFlags
		namespaces []string
	}{
		{watchFlags{}, []string{"shop"}},
		{watchFlags{ask: askFlags{source: sourceFlags{namespaces: []string{"data", "shop"}}}}, []string{"shop"}},
		{watchFlags{ask: askFlags{source: sourceFlags{manifests: "-"}}}, nil},
		{watchFlags{ask: askFlags{server: "http://127.0.0.1:9153"}}, nil},
		{watchFlags{ask: askFlags{short: true, source: sourceFlags{namespaces: []string{"shop"}}}}, []string{"shop"}},
		{watchFlags{ask: askFlags{short: true, source: sourceFlags{manifests: "-", namespaces: []string{"shop"}}}}, nil},
		{watchFlags{ask: askFlags{short: true, server: "http://127.0.0.1:9153", source: sourceFlags{namespaces: []string{"shop"}}}}, nil},
	} {
		service := "shop/web"
		if c.flags.ask.short {
			service = "web"
		}
		of, err := c.flags.target([]string{service})
		if err != nil || of.all || of.String() != "shop/web" || !slices.Equal(c.flags.ask.source.namespaces, c.namespaces) {
			t.Errorf("%+v, %v, %+v", of, err, c.flags)
		}
	}
	all := watchFlags{all: true}
	if of, err := all.target(nil); err != nil || !of.all || all.ask.source.namespaces != nil {
		t.Errorf("%+v, %v, %+v", of, err, all)
	}
}

// One who watches from afar, and whose stream breaks at any time, is told what
// makes the truth of what was told before: nothing twice, and nobody stays who is
// gone.
func TestKnown(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	truth := map[endpoint]change{} // at the server
	told := map[endpoint]change{}  // as the lines on the screen add up
	client := known{}
	hear := func(c change) {
		t.Helper()
		old, has := told[c.endpoint()]
		switch c.Type {
		case added:
			if has {
				t.Fatalf("added twice: %+v", c)
			}
		case changed:
			if !has || old.equal(&c.state) || c.Was == nil || !old.equal(c.Was) {
				t.Fatalf("a change of nothing: %+v, was %+v", c, old)
			}
		case removed:
			if !has {
				t.Fatalf("removed and never there: %+v", c)
			}
			delete(told, c.endpoint())
			return
		}
		told[c.endpoint()] = c
	}
	connected := false
	for range 20_000 {
		switch c := pod(added, fmt.Sprintf("10.0.0.%d", random.IntN(8)), ""); {
		case random.IntN(20) == 0:
			connected = !connected
			if !connected {
				continue
			}
			var all []change
			for _, c := range truth {
				all = append(all, c)
			}
			for _, c := range client.replace(all, noon) {
				hear(c)
			}
		default:
			old, has := truth[c.endpoint()]
			c.Ready = random.IntN(2) == 0
			c.Type = []string{added, changed, removed}[random.IntN(3)]
			if (c.Type == added) == has || c.Type == changed && old.equal(&c.state) {
				continue
			}
			if c.Type == removed {
				delete(truth, c.endpoint())
			} else {
				as := c
				as.Type = added
				truth[c.endpoint()] = as
			}
			if !connected {
				continue
			}
			if c, news := client.learn(c); news {
				hear(c)
			}
		}
		if !connected {
			continue
		}
		if len(told) != len(truth) {
			t.Fatalf("told %d, there are %d", len(told), len(truth))
		}
		for id, c := range truth {
			if has, ok := told[id]; !ok || !has.equal(&c.state) {
				t.Fatalf("told %+v, true is %+v", has, c)
			}
		}
	}
}

func TestEventReader(t *testing.T) {
	for _, c := range []struct{ what, stream, want string }{
		{"an event", "data: 1\n\n", "[|1]"},
		{"two, one with a name", "data: 1\n\nevent: services\ndata: 2\n\n", "[|1][services|2]"},
		{"no space", "event:services\ndata:2\n\n", "[services|2]"},
		{"one space of two", "data:  2\n\n", "[| 2]"},
		{"CRLF", "event: services\r\ndata: 2\r\n\r\n", "[services|2]"},
		{"lines of data", "data: 1\ndata\ndata: 3\n\n", "[|1\n\n3]"},
		{"a name without data is nothing, and not the next one's", "event: x\n\ndata: 1\n\n", "[|1]"},
		{"comments and unknown fields", ": alive\n\nid: 7\nretry: 1\nfoo: bar\ndata: 1\n: in between\n\n", "[|1]"},
		{"empty data", "data\n\ndata:\n\n", "[|][|]"},
		{"cut off", "data: 1\n\ndata: 2\n", "[|1]"},
		{"nothing", "", ""},
	} {
		var got strings.Builder
		r := newEventReader(strings.NewReader(c.stream))
		for {
			ev, err := r.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", c.what, err)
			}
			fmt.Fprintf(&got, "[%s|%s]", ev.name, ev.data)
		}
		if got.String() != c.want {
			t.Errorf("%s: got %q, want %q", c.what, got.String(), c.want)
		}
	}
	for _, long := range []string{"data: " + strings.Repeat("x", 2*maxEvent), strings.Repeat("data: 1234567\n", maxEvent/4) + "\n"} {
		if _, err := newEventReader(strings.NewReader(long)).next(); err != errLongEvent {
			t.Errorf("a long event: %v", err)
		}
	}
}

// FuzzEvents: whatever comes is read to its end, and what was read is written and
// read again as the same.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{"data: 1\n\n", "event: services\r\ndata: 2\r\n\r\n", ": x\n\ndata\ndata: \n\n", "data:1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := newEventReader(bytes.NewReader(stream))
		for {
			ev, err := r.next()
			if err != nil {
				return
			}
			if strings.ContainsAny(ev.data, "\n\r") || strings.Contains(ev.name, "\r") {
				continue // never written
			}
			again, err := newEventReader(bytes.NewReader(appendEvent(nil, ev.name, []byte(ev.data)))).next()
			if err != nil || again != ev {
				t.Fatalf("%q was read again as %q, %v", ev, again, err)
			}
		}
	})
}

// What somebody wrote into a slice moves no cursor and fakes no line.
func TestTableIsPlain(t *testing.T) {
	var out bytes.Buffer
	c := change{Type: added, Namespace: "shop", Service: "web", Address: netip.MustParseAddr("10.0.0.1"), Pod: "x\x1b[2J y"}
	c.Zone = "a\n22:00:00.000  REMOVED  kube-system/kube-dns"
	if err := (&changeTable{w: &out}).print([]change{c}); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); strings.Count(got, "\n") != 2 || strings.ContainsRune(got, '\x1b') || !strings.Contains(got, `x\u001b[2J\u0020y`) {
		t.Errorf("%q", got)
	}
}
