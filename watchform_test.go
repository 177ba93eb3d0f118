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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The reader of steps and the gate before the API server are tested here: what they
// let pass, nothing else would find.

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
		{"- apply: [{apiVersion: v1, kind: Node, metadata: {name: a}, zone: b}]\n", "1: apply: strict decoding error: unknown field \"zone\""},
		{"- delete: []\n", "1: delete: no object"},
		{"- delete: [{kind: Pod, name: web}]\n", "1: delete: kind"},
		{"- drop-connection: {state: left}\n", "1: drop-connection: state"},
		{"- drop-connection: {every: 1s}\n", "1: drop-connection: "},
		{"- drop-connection: {every: 1s, for: 2s, state: up}\n", "1: drop-connection: "},
		{"- drop-connection: {every: 1, for: 2s}\n", "1: drop-connection: "},
		{"- drop-connection: {every: -1s, for: 2s}\n", "1: drop-connection: "},
		{"- stall: {}\n", "1: stall: state"},
		{"- damage: {kind: Node, what: all}\n", "1: damage: what"},
		{"- damage: {kind: Pod, what: field}\n", "1: kind"},
		{"- compact: {keep: all}\n", "1: compact: "},
		{"- gone410: {at: list, kind: Node}\n", "1: gone410: at"},
		{"- gone410: {at: watch}\n", "1: kind"},
		{"- advance: {}\n", "1: advance: "},
		{"- lag: {}\n", "1: lag: "},
		{"- older: {kind: Node, lists: 1}\n", "1: older: "},
		{"- older: {kind: Pod, lists: 1, events: 1}\n", "1: kind"},
		{"- silently: {}\n", "1: silently: no object"},
		{"- silently: {delete: [{kind: Pod, name: web}]}\n", "1: delete: kind"},
		{"- slow: {kind: Node}\n", "1: slow: delay"},
		{"- slow: {kind: Pod, delay: 1s}\n", "1: kind"},
		{"- restart: {}\n", "1: restart: state"},
		{"- compact: {}\n- compact: {keep: 1, keep: 2}\n", "yaml"},
		{"- expect: |\n    QUERY a. A\n", "1: expect: 1: a QUERY without checks"},
		{"- expect: |\n    QUERY a. A repeat=2\n      rcode=NOERROR\n", "1: expect: QUERY a. A repeat=2: repeat"},
		{"- expect: |\n    QUERY a. A\n      rcode=NOERROR\n      keep: x\n", "1: expect: QUERY a. A: repeat"},
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

// watchServices opens a watch that is told of what will happen.
func (a *fakeAPI) watchServices(t *testing.T) *json.Decoder {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), grace)
	t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+a.addr.String()+"/api/v1/services?watch=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := a.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 2 {
		t.Fatalf("%s, %s", resp.Proto, resp.Status)
	}
	return json.NewDecoder(resp.Body)
}

// TestGate: connections are refused, cut and frozen.
func TestGate(t *testing.T) {
	a := newFakeAPI(t, false)
	var event any
	refused := func() error {
		_, err := a.client.Get("https://" + a.addr.String() + "/api/v1/nodes")
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("%v, expected that the connection is refused", err)
		}
		return nil
	}
	for _, reset := range []bool{true, false} {
		watch := a.watchServices(t)
		a.shut(reset)
		if err := watch.Decode(&event); err == nil {
			t.Errorf("a watch whose connection was cut brought %v", event)
		}
		eventually(t, refused) // the client finds out first that its connection is gone
		if err := a.open(); err != nil {
			t.Fatal(err)
		}
	}
	watch := a.watchServices(t)
	a.cut(false)
	if err := watch.Decode(&event); err == nil {
		t.Errorf("a watch whose connection was cut brought %v", event)
	}

	frozen := a.watchServices(t)
	a.freeze()
	a.Apply(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	got := make(chan error, 1)
	go func() {
		var event any
		got <- frozen.Decode(&event)
	}()
	a.client = &http.Client{Transport: a.client.Transport.(*http.Transport).Clone()} // with a connection of its own
	defer a.client.CloseIdleConnections()
	if err := a.watchServices(t).Decode(&event); err != nil {
		t.Errorf("a new connection: %v", err)
	}
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
