//go:build linux

package faults

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"epdns/test/faults/proxy"
)

// This file is about what the API server says, and does not say.

// never has those events lost of which this is true.
func never(these func(*proxy.Event) bool) (times func(*proxy.Event) int) {
	return func(e *proxy.Event) int {
		if these(e) {
			return 0
		}
		return 1
	}
}

// skipped loses events silently: the watch goes on as if nothing had been.
func skipped(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	t.calm()
	before, err := t.metric("epdns_audit_drift_total")
	if err != nil {
		return err
	}
	t.cut()
	t.proxy.Events(never(func(e *proxy.Event) bool { return e.Namespace == namespace }))
	for i, s := range t.world.services[:6] {
		if i%2 == 0 {
			err = t.world.renew(ctx, s)
		} else {
			err = t.world.remove(ctx, s)
		}
		if err != nil {
			return err
		}
	}
	// Until then an answer may be as old as that.
	if err := t.wait(ctx, lag+500*time.Millisecond); err != nil {
		return err
	}
	t.proxy.Events(nil) // what was lost stays lost
	t.heal()
	if err := t.again(ctx, auditedWithin); err != nil {
		return err
	}
	after, err := t.metric("epdns_audit_drift_total")
	if err != nil {
		return err
	}
	if err := t.settle(ctx, auditedWithin); err != nil {
		return err
	}
	t.check(after > before, "drift is counted", "%.0f objects", after-before)
	return nil
}

// auditedWithin is how long audits of all kinds take: they begin within five seconds in these tests,
// one after the other, and each looks for five more whether the watch is only late.
const auditedWithin = 20 * time.Second

// noBookmarks is a server that never says how far it is. When nothing changes, nothing comes at all.
func noBookmarks(ctx context.Context, t *trial) error {
	t.proxy.Events(never(func(e *proxy.Event) bool { return e.Type == "BOOKMARK" }))
	if err := t.begin(ctx, setup{audit: "0"}); err != nil {
		return err
	}
	t.calm()
	before, err := scrape(t.server)
	if err != nil {
		return err
	}
	begun := time.Now()
	// Bookmarks come each minute, and a quarter of one more is allowed.
	if err := t.wait(ctx, 85*time.Second); err != nil {
		return err
	}
	after, err := scrape(t.server)
	if err != nil {
		return err
	}
	opened := 0
	for _, r := range t.proxy.Requests(begun) {
		if r.Watch {
			opened++
		}
	}
	t.churn(ctx, churnRate)
	if err := t.wait(ctx, 2*time.Second); err != nil {
		return err
	}
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	t.check(opened > 0, "silent watches are opened again", "%d", opened)
	relists := after["epdns_relists_total"] - before["epdns_relists_total"]
	t.check(relists == 0, "without new lists", "%.0f", relists)
	return nil
}

// beginAsked starts epdns and has it asked before it is ready. How long that takes it returns.
func (t *trial) beginAsked(ctx context.Context) (took time.Duration, err error) {
	if t.server, err = t.start(setup{}); err != nil {
		return 0, err
	}
	t.waiting = []span{{after: time.Now()}}
	t.ask(ctx)
	if err := t.ready(ctx); err != nil {
		return 0, err
	}
	t.waiting[0].until = time.Now().Add(50 * time.Millisecond) // of a reply that is on its way
	return time.Since(t.server.Started), nil
}

// noBookmark is a server whose streaming lists do not end.
func noBookmark(ctx context.Context, t *trial) error {
	t.proxy.Events(never(func(e *proxy.Event) bool { return e.InitialEnd }))
	// The program asks for such lists where LIST is expensive.
	t.proxy.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/version" {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"major": "1", "minor": "32", "gitVersion": "v1.32.0"}`)
		return true
	})
	took, err := t.beginAsked(ctx)
	if err != nil {
		return err
	}
	t.churn(ctx, churnRate)
	if err := t.wait(ctx, 2*time.Second); err != nil {
		return err
	}
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	const within = 8 * time.Second
	t.check(took <= within, "ready within "+brief(within)+" (deadline 3 s)", "%s", brief(took))
	return nil
}

// notReady is the extended error of RFC 8914 that goes with SERVFAIL before there is a state.
const notReady = 14

// slowList has lists come at a modem's pace: at the start, and again when everything is known.
func slowList(ctx context.Context, t *trial) error {
	const rate = 12_000
	t.proxy.SetLine(proxy.Line{Rate: rate})
	took, err := t.beginAsked(ctx)
	if err != nil {
		return err
	}
	ready := time.Now()
	t.proxy.SetLine(proxy.Line{})
	t.churn(ctx, churnRate)
	if err := t.wait(ctx, time.Second); err != nil {
		return err
	}
	// Now a watch that has expired, and the new list as slow.
	t.cut()
	t.proxy.SetLine(proxy.Line{Rate: rate})
	var expired atomic.Int32
	t.proxy.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") == "" || expired.Add(1) > 3 { // one of each kind
			return false
		}
		proxy.Fail(w, http.StatusGone, "Expired", "too old resource version")
		return true
	})
	t.proxy.Reset()
	if err := t.wait(ctx, 6*time.Second); err != nil {
		return err
	}
	t.proxy.Answer(nil)
	t.proxy.SetLine(proxy.Line{})
	t.heal()
	if err := t.wait(ctx, 2*time.Second); err != nil {
		return err
	}
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	early, told := 0, 0
	for _, a := range t.asking.answers() {
		if a.at.Before(ready.Add(-100 * time.Millisecond)) {
			early++
			if a.outcome == servfail && len(a.ede) == 1 && a.ede[0] == notReady {
				told++
			}
		}
	}
	t.check(early > 0 && told == early, "SERVFAIL with \"not ready\" until then", "%d of %d in %s", told, early, brief(took))
	return nil
}

// pagedList has lists come in pages, and the token of the third refused.
func pagedList(ctx context.Context, t *trial) error {
	t.proxy.Pages(10, 3, 2)
	took, err := t.beginAsked(ctx)
	if err != nil {
		return err
	}
	t.churn(ctx, churnRate)
	if err := t.wait(ctx, 3*time.Second); err != nil {
		return err
	}
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	t.note("ready after %s", brief(took))
	return nil
}

// refusals are the ways in which an API server, or what stands before it, says no.
var refusals = []struct {
	what   string
	answer func(w http.ResponseWriter)
}{
	{"429", func(w http.ResponseWriter) {
		w.Header().Set("Retry-After", "1")
		proxy.Fail(w, http.StatusTooManyRequests, "TooManyRequests", "The server has received too many requests")
	}},
	{"500", func(w http.ResponseWriter) { proxy.Fail(w, http.StatusInternalServerError, "InternalError", "etcd") }},
	{"504, version too large", func(w http.ResponseWriter) {
		proxy.Fail(w, http.StatusGatewayTimeout, "Timeout", "Too large resource version: 999999999, current: 1")
	}},
	{"HTML", func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<html><body>Service temporarily unavailable</body></html>")
	}},
	{"JSON of another kind", func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": null}`)
	}},
	{"an empty reply", func(w http.ResponseWriter) { w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf") }},
}

// refused has all requests answered by refusals, one kind after the other.
func refused(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	begun := time.Now()
	t.cut()
	each := t.long(8*time.Second, 1500*time.Millisecond)
	for _, refusal := range refusals {
		t.proxy.Answer(func(w http.ResponseWriter, r *http.Request) bool {
			refusal.answer(w)
			return true
		})
		t.proxy.Reset()
		if err := t.wait(ctx, each); err != nil {
			return fmt.Errorf("%s: %w", refusal.what, err)
		}
	}
	d := time.Since(begun)
	requests := len(t.proxy.Requests(begun))
	t.proxy.Answer(nil)
	t.heal()
	// The pause between two tries is 5 s at most, and a third of jitter.
	const fresh = 7 * time.Second
	if err := t.again(ctx, fresh); err != nil {
		return err
	}
	if err := t.settle(ctx, fresh); err != nil {
		return err
	}
	// Each of three kinds tries a watch and a list, after a reset at once, then in growing pauses.
	most := 6 * (4*len(refusals) + int(d/(2*time.Second)))
	t.check(requests <= most, fmt.Sprintf("at most %d requests", most), "%d in %s", requests, brief(d))
	return nil
}

// oddObjects puts objects into watches that no API server would let in.
func oddObjects(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	// Written to etcd behind the API server's back: no validation.
	odd := map[string]string{
		"junk":      `{"addressType":"IPv4","endpoints":[{"addresses":["not an address"]},{"addresses":["0.0.0.0"]},{"addresses":["127.0.0.1"]},{"addresses":["::ffff:10.0.0.1"]},{"addresses":[]}]`,
		"hostnames": `{"addressType":"IPv4","endpoints":[{"addresses":["10.254.0.1"],"hostname":"a.b"},{"addresses":["10.254.0.2"],"hostname":"` + strings.Repeat("x", 64) + `"},{"addresses":["10.254.0.3"],"hostname":"ümläut"}]`,
		"family":    `{"addressType":"IPv7","endpoints":[{"addresses":["10.254.0.4"]}]`,
	}
	for name, spec := range odd {
		value := fmt.Sprintf(`%s,"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"odd-%s","namespace":%q,"uid":"odd-%s","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"kubernetes.io/service-name":"odd-%s"}},"ports":[{"name":"UPPER CASE","port":70000},{"port":80},{"name":"http","port":80},{"name":"http","port":80}]}`,
			spec, name, namespace, name, name)
		key := "/registry/endpointslices/" + namespace + "/odd-" + name
		body := fmt.Sprintf(`{"key": %q, "value": %q}`, base64.StdEncoding.EncodeToString([]byte(key)), base64.StdEncoding.EncodeToString([]byte(value)))
		if err := t.etcd(ctx, "/v3/kv/put", body, nil); err != nil {
			return err
		}
		defer t.etcd(ctx, "/v3/kv/deleterange", fmt.Sprintf(`{"key": %q}`, base64.StdEncoding.EncodeToString([]byte(key))), nil)
		o := object{"metadata": object{"name": "odd-" + name}, "spec": object{"clusterIP": "None", "ports": []object{{"port": 80}}}}
		if err := t.kube.Request(ctx, http.MethodPost, servicesPath, o, nil); err != nil && !isStatus(err, http.StatusConflict) {
			return err
		}
		defer t.kube.Request(ctx, http.MethodDelete, servicesPath+"/odd-"+name, nil, nil)
	}
	if err := t.wait(ctx, 3*time.Second); err != nil {
		return err
	}
	junk := ask(ctx, t.server.DNS, "odd-junk", true)
	named := ask(ctx, t.server.DNS, "odd-hostnames", true)
	skipped, err := t.metric("epdns_objects_partly_skipped_total")
	if err != nil {
		return err
	}
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	t.check(junk.outcome == answered && named.outcome == answered && len(named.addresses) == 3, "the rest of an odd object is answered",
		"%d addresses beside no address, %d beside odd host names", len(junk.addresses), len(named.addresses))
	t.check(skipped > 0, "what is left out is counted", "%.0f objects", skipped)
	return nil
}
