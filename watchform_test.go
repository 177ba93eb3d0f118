package epdns_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The reader of steps and the API server that they are played on are tested here:
// what they let pass, nothing else would find.

// TestStepsForm: what a case says and the reader does not know must not pass for a
// step that was made.
func TestStepsForm(t *testing.T) {
	const (
		expect = "- expect: |\n    QUERY a. A\n      rcode=NOERROR\n"
		object = "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}}"
	)
	for _, c := range []struct{ text, err string }{
		{expect, ""},
		{"- apply: [" + object + "]\n" + expect + "  within: 1s\n  no-reply: servfail\n  meanwhile: |\n    rcode=SERVFAIL\n", ""},
		{"- stall: {state: 'on'}\n" + expect + "  hold: 1s\n  api: {window: 1s, kind: Node, lists: 0, watches: 1..2, replayed-events: '>=1', when: bookmarks}\n", ""},
		{"", "0: no expect"},
		{"- bookmark: {}\n", "0: no expect"},
		{"- bookmarks: {}\n", `1: unknown step "bookmarks"`},
		{"- bookmark:\n", "1: bookmark: it is empty"},
		{"- bookmark: {at: 3}\n", `1: bookmark: json: unknown field "at"`},
		{"- {}\n", "1: one step is expected"},
		{"- {bookmark: {}, compact: {}}\n", "1: one step is expected"},
		{"- {bookmark: {}, within: 1s}\n", "1: one step is expected"},
		{"- apply: []\n", "1: apply: no object"},
		{"- apply: [{apiVersion: v1, kind: Pod, metadata: {name: web}}]\n", `1: apply: kind "Pod"`},
		{"- apply: [{apiVersion: v1, kind: EndpointSlice, metadata: {name: web}}]\n", "1: apply: EndpointSlice is of discovery.k8s.io/v1"},
		{"- apply: [{apiVersion: v1, kind: Service, metadata: {}}]\n", "1: apply: a Service without a name"},
		{"- delete: []\n", "1: delete: no object"},
		{"- delete: [{kind: Pod, name: web}]\n", "1: delete: kind"},
		{"- drop-connection: {state: left}\n", "1: drop-connection: state"},
		{"- drop-connection: {every: 1s}\n", "1: drop-connection: "},
		{"- drop-connection: {every: 1s, for: 2s, state: up}\n", "1: drop-connection: "},
		{"- drop-connection: {every: 1, for: 2s}\n", "1: drop-connection: "},
		{"- drop-connection: {every: -1s, for: 2s}\n", "1: drop-connection: "},
		{"- stall: {}\n", "1: stall: state"},
		{"- compact: {keep: all}\n", "1: compact: "},
		{"- gone410: {at: list, kind: Node}\n", "1: gone410: at"},
		{"- gone410: {at: watch}\n", "1: kind"},
		{"- advance: {}\n", "1: advance: "},
		{"- lag: {}\n", "1: lag: "},
		{"- slow: {kind: Node}\n", "1: slow: delay"},
		{"- slow: {kind: Pod, delay: 1s}\n", "1: kind"},
		{"- restart: {}\n", "1: restart: state"},
		{"- compact: {}\n- compact: {keep: 1, keep: 2}\n", "yaml"},
		{"- expect: |\n    QUERY a. A\n", "1: expect: 1: a QUERY without checks"},
		{expect + "  until: 1s\n", `1: json: unknown field "until"`},
		{expect + "  within: 1s\n  hold: 1s\n", "1: expect: within and hold"},
		{expect + "  meanwhile: rcode=SERVFAIL\n", "1: expect: meanwhile"},
		{expect + "  within: 1s\n  meanwhile: rcode=OK\n", "1: meanwhile: 1: check"},
		{expect + "  no-reply: refused\n", "1: no-reply"},
		{expect + "  api: {window: 1s, lists: 1}\n", "1: api: no step before"},
		{expect + "- compact: {}\n" + expect + "  api: {lists: 1}\n", "3: api: window"},
		{expect + "- compact: {}\n" + expect + "  api: {window: 1s}\n", "3: api: nothing"},
		{expect + "- compact: {}\n" + expect + "  api: {window: 1s, posts: 1}\n", `3: json: unknown field "posts"`},
		{expect + "- compact: {}\n" + expect + "  api: {window: 1s, lists: many}\n", `3: "many"`},
		{expect + "- compact: {}\n" + expect + "  api: {window: 1s, lists: 3..2}\n", `3: "3..2" is empty`},
		{expect + "- compact: {}\n" + expect + "  api: {window: 1s, lists: 1, kind: Pod}\n", "3: api: kind"},
		{expect + "- compact: {}\n" + expect + "  api: {window: 1s, lists: 1, when: watches}\n", "3: api: when"},
	} {
		text := "steps:\n" + c.text
		if c.text == "" {
			text = "steps: []"
		}
		_, err := parseSteps(text)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.HasPrefix(err.Error(), c.err)) {
			t.Errorf("%q: %v, expected %s", c.text, err, c.err)
		}
	}
	if _, err := parseSteps("steps: []\nzone: a.\n"); err == nil {
		t.Error("something beside the steps is not noticed")
	}
}

// fakeObject is a Service.
func fakeObject(namespace, name string) apiObject {
	return apiObject{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"namespace": namespace, "name": name}}
}

// newFilledAPI has, of versions 101 to 105: a, b, a again, b no more, c. It knows
// of what happened since 103.
func newFilledAPI(t *testing.T) *fakeAPI {
	t.Helper()
	a := newFakeAPI(t)
	a.freshness = 20 * time.Millisecond
	for _, err := range []error{
		a.apply(fakeObject("shop", "a")),
		a.apply(fakeObject("data", "b")),
		a.apply(fakeObject("shop", "a")),
		a.delete("Service", objectID{"data", "b"}),
		a.apply(fakeObject("shop", "c")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	a.compact(2)
	return a
}

// fakeMeta is what the tests here look at.
type fakeMeta struct {
	Kind     string
	Metadata struct {
		Name, ResourceVersion, Continue string
		Annotations                     map[string]string
	}
	Code  int
	Items []fakeMeta
}

func (m fakeMeta) String() string { return m.Metadata.Name + "@" + m.Metadata.ResourceVersion }

func (a *fakeAPI) get(t *testing.T, path string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), grace)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.addr.String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := a.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// lists is a list in one line, or the code of an error.
func (a *fakeAPI) lists(t *testing.T, query string) (line, page string) {
	t.Helper()
	resp := a.get(t, "/api/v1/"+query)
	var list fakeMeta
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprint(list.Code), ""
	}
	return fmt.Sprint(list.Items, list), list.Metadata.Continue
}

func TestFakeLists(t *testing.T) {
	a := newFilledAPI(t)
	for _, c := range []struct{ query, want string }{
		{"services", "[a@103 c@105] @105"},
		{"services?resourceVersion=0", "[a@103 c@105] @105"},
		{"services?resourceVersion=0&limit=1", "[a@103 c@105] @105"},
		{"services?resourceVersion=101", "[a@103 c@105] @105"},
		{"services?resourceVersion=101&resourceVersionMatch=NotOlderThan", "[a@103 c@105] @105"},
		{"services?resourceVersion=106", "504"},
		{"services?resourceVersion=103&resourceVersionMatch=Exact", "[b@102 a@103] @103"},
		{"services?resourceVersion=102&resourceVersionMatch=Exact", "410"},
		{"services?resourceVersion=106&resourceVersionMatch=Exact", "504"},
		{"services?resourceVersion=104&limit=1", "[a@103] @104"},
		{"services?resourceVersion=102&limit=1", "410"},
		{"services?resourceVersion=102&limit=1&resourceVersionMatch=NotOlderThan", "[a@103] @105"},
		{"services?resourceVersion=0&resourceVersionMatch=Exact", "400"},
		{"services?resourceVersionMatch=NotOlderThan", "400"},
		{"services?sendInitialEvents=true", "400"},
		{"services?labelSelector=a", "400"},
		{"services?resourceVersion=x", "400"},
		{"services?continue=x", "400"},
		{"services?watch=true&limit=1", "400"},
		{"services?watch=true&sendInitialEvents=true", "400"},
		{"services?watch=true&resourceVersion=103&resourceVersionMatch=NotOlderThan", "400"},
		{"namespaces/data/services", "[] @105"},
		{"namespaces/shop/services", "[a@103 c@105] @105"},
		{"nodes", "[] @105"},
		{"endpointslices", "404"},
		{"pods", "404"},
	} {
		if got, _ := a.lists(t, c.query); got != c.want {
			t.Errorf("%s: %s, expected %s", c.query, got, c.want)
		}
	}

	first, page := a.lists(t, "services?limit=1")
	a.apply(fakeObject("shop", "b"))
	second, _ := a.lists(t, "services?limit=1&continue="+page)
	if first != "[a@103] @105" || second != "[c@105] @105" {
		t.Errorf("two pages: %s, %s", first, second)
	}
	a.compact(0)
	if late, _ := a.lists(t, "services?limit=1&continue="+page); late != "410" {
		t.Errorf("a page of a version that is compacted: %s", late)
	}

	a.lagBehind(1)
	for query, want := range map[string]string{
		"services?resourceVersion=0":   "[a@103 c@105] @105",
		"services?resourceVersion=105": "[a@103 c@105] @105",
		"services?resourceVersion=106": "504",
		"services":                     "[a@103 b@106 c@105] @106",
	} {
		if got, _ := a.lists(t, query); got != want {
			t.Errorf("lagging: %s: %s, expected %s", query, got, want)
		}
	}

	// Somebody waits for a version, and it comes.
	a.freshness = grace
	a.slowDown("Node", time.Millisecond)
	go a.lagBehind(0)
	if got, _ := a.lists(t, "nodes?resourceVersion=106"); got != "[] @106" {
		t.Errorf("a version that was waited for: %s", got)
	}
}

// fakeStream is a watch.
type fakeStream struct {
	*testing.T
	*json.Decoder
	resp *http.Response
}

func (a *fakeAPI) streams(t *testing.T, query string) *fakeStream {
	t.Helper()
	resp := a.get(t, "/api/v1/"+query)
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		t.Fatalf("%s: %s, %s", query, resp.Proto, resp.Status)
	}
	return &fakeStream{t, json.NewDecoder(resp.Body), resp}
}

// brings reads events and checks which they are. "end" is the end.
func (s *fakeStream) brings(want ...string) {
	s.Helper()
	for _, want := range want {
		var e struct {
			Type   string
			Object fakeMeta
		}
		got := "end"
		if err := s.Decode(&e); err == nil {
			got = fmt.Sprintf("%s %v", e.Type, e.Object)
			if e.Type == "ERROR" {
				got = fmt.Sprintf("ERROR %d", e.Object.Code)
			}
			if e.Object.Metadata.Annotations["k8s.io/initial-events-end"] == "true" {
				got += " initial"
			}
		}
		if got != want {
			s.Errorf("%s: %s, expected %s", s.resp.Request.URL.RawQuery, got, want)
		}
	}
}

func TestFakeWatches(t *testing.T) {
	a := newFilledAPI(t)
	begun := time.Now()
	const whole = "services?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	resumed := a.streams(t, "services?watch=true&resourceVersion=103")
	resumed.brings("DELETED b@104", "ADDED c@105")
	list := a.streams(t, whole)
	list.brings("ADDED a@103", "ADDED c@105", "BOOKMARK @105 initial")
	a.streams(t, whole+"&resourceVersion=101").brings("ADDED a@103", "ADDED c@105", "BOOKMARK @105 initial")
	a.streams(t, "services?watch=true").brings("ADDED a@103", "ADDED c@105")
	a.streams(t, "services?watch=true&resourceVersion=102").brings("ERROR 410", "end")
	data := a.streams(t, "namespaces/data/services?watch=true&resourceVersion=103")
	data.brings("DELETED b@104")
	// The last one was sent what is older than the lists between it and the first.
	if n := a.counts("Service", begun, time.Now()); n != (apiCounts{lists: 3, watches: 6, replayed: 1}) {
		t.Errorf("counted: %+v", n)
	}
	if n := a.counts("Node", begun, time.Now()); n != (apiCounts{bookmarks: true}) {
		t.Errorf("counted: %+v", n)
	}

	// A watch that runs needs no history, and bookmarks are for those who asked.
	a.apply(fakeObject("data", "d"))
	a.compact(0)
	a.apply(fakeObject("data", "d"))
	a.advance(10)
	a.announce()
	list.brings("ADDED d@106", "MODIFIED d@107", "BOOKMARK @117")
	data.brings("ADDED d@106", "MODIFIED d@107")
	resumed.brings("ADDED d@106", "MODIFIED d@107")

	// Watches lag.
	a.lagBehind(1)
	a.apply(fakeObject("data", "e"))
	a.apply(fakeObject("shop", "e"))
	resumed.brings("ADDED e@118")
	a.lagBehind(0)
	resumed.brings("ADDED e@119")
	list.brings("ADDED e@118", "ADDED e@119")

	// 410 into those that run, the next one, and as an answer.
	a.expireWatches("Service")
	list.brings("ERROR 410", "end")
	resumed.brings("ERROR 410", "end")
	a.expireWatches("Node")
	a.streams(t, "nodes?watch=true&resourceVersion=119").brings("ERROR 410", "end")
	a.expireRequest("Node")
	if resp := a.get(t, "/api/v1/nodes?watch=true&resourceVersion=119"); resp.StatusCode != http.StatusGone {
		t.Errorf("a watch request that is to be gone: %s", resp.Status)
	}

	// Watches end in good order.
	a.streams(t, "nodes?watch=true&resourceVersion=119&timeoutSeconds=1").brings("end")
	nodes := a.streams(t, "nodes?watch=true&resourceVersion=119")
	a.endEarly(time.Millisecond, grace)
	nodes.brings("end")
	a.streams(t, "nodes?watch=true&resourceVersion=119").brings("end")
}

// TestGate: connections are refused, cut and frozen.
func TestGate(t *testing.T) {
	a := newFilledAPI(t)
	const watch = "services?watch=true&resourceVersion=105"
	refused := func() error {
		_, err := a.client.Get("https://" + a.addr.String() + "/api/v1/nodes")
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("%v, expected that the connection is refused", err)
		}
		return nil
	}
	for _, reset := range []bool{true, false} {
		s := a.streams(t, watch)
		a.shut(reset)
		s.brings("end")
		eventually(t, refused) // the client finds out first that its connection is gone
		if err := a.open(); err != nil {
			t.Fatal(err)
		}
	}
	s := a.streams(t, watch)
	a.cut(false)
	s.brings("end")

	frozen := a.streams(t, watch)
	a.freeze()
	a.apply(fakeObject("shop", "d"))
	got := make(chan error, 1)
	go func() {
		var e frame
		got <- frozen.Decode(&e)
	}()
	a.client = &http.Client{Transport: a.client.Transport.(*http.Transport).Clone()} // with a connection of its own
	defer a.client.CloseIdleConnections()
	a.streams(t, watch).brings("ADDED d@106")
	select {
	case err := <-got:
		t.Errorf("a frozen connection brought something: %v", err)
	default:
	}
	a.thaw()
	if err := <-got; err != nil {
		t.Errorf("a connection that was frozen: %v", err)
	}
}
