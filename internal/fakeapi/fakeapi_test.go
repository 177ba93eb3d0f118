package fakeapi

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// What this server lets pass, no test of its clients would find.

// grace is more than anything here takes.
const grace = 10 * time.Second

func service(namespace, name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// probe is a server and a client that takes one form only.
type probe struct {
	*testing.T
	*Server
	http   *httptest.Server
	accept string
}

// eachFormat runs a test in both. Its server has, of versions 101 to 105: a, b, a
// again, b no more, c. It knows of what happened since 103.
func eachFormat(t *testing.T, test func(*probe)) {
	for name, accept := range map[string]string{"protobuf": runtime.ContentTypeProtobuf, "json": runtime.ContentTypeJSON} {
		t.Run(name, func(t *testing.T) {
			s := New()
			s.Freshness = 20 * time.Millisecond
			s.Apply(service("shop", "a"))
			s.Apply(service("data", "b"))
			s.Apply(service("shop", "a"))
			if err := s.Delete("Service", ID{"data", "b"}); err != nil {
				t.Fatal(err)
			}
			s.Apply(service("shop", "c"))
			s.Compact(2)
			server := httptest.NewServer(s)
			t.Cleanup(server.Close)
			test(&probe{t, s, server, accept})
		})
	}
}

func (p *probe) get(query, accept string) *http.Response {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), grace)
	p.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.http.URL+"/api/v1/"+query, nil)
	if err != nil {
		p.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	resp, err := p.http.Client().Do(r)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { resp.Body.Close() })
	return resp
}

// decode reads an object as the documentation of the API describes it, not with what
// wrote it. An object in an object is one that has a kind of its own.
func (p *probe) decode(b []byte) (runtime.Object, error) {
	var unknown runtime.Unknown
	if p.accept == runtime.ContentTypeJSON {
		if err := json.Unmarshal(b, &unknown.TypeMeta); err != nil {
			return nil, err
		}
	} else {
		fields, ok := bytes.CutPrefix(b, []byte("k8s\x00"))
		if !ok {
			return nil, fmt.Errorf("%q is no protobuf of Kubernetes", b)
		}
		if err := unknown.Unmarshal(fields); err != nil {
			return nil, err
		}
	}
	o, err := scheme.New(unknown.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	if p.accept == runtime.ContentTypeJSON {
		return o, json.Unmarshal(b, o)
	}
	o.GetObjectKind().SetGroupVersionKind(unknown.GroupVersionKind())
	return o, o.(interface{ Unmarshal([]byte) error }).Unmarshal(unknown.Raw)
}

// short is an object in a word or two.
func short(o runtime.Object) string {
	if s, ok := o.(*metav1.Status); ok {
		return fmt.Sprint(s.Code)
	}
	m := o.(metav1.Object)
	text := m.GetName() + "@" + m.GetResourceVersion()
	if m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		text += " initial"
	}
	return text
}

// lists is a list in one line, or the code of an error.
func (p *probe) lists(query string) (line, page string) {
	p.Helper()
	resp := p.get(query, p.accept)
	if got := resp.Header.Get("Content-Type"); got != p.accept {
		p.Errorf("%s: Content-Type %s", query, got)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.Fatal(err)
	}
	o, err := p.decode(b)
	if err != nil {
		p.Fatalf("%s: %v", query, err)
	}
	if resp.StatusCode != http.StatusOK {
		return short(o), ""
	}
	m, err := meta.ListAccessor(o)
	if err != nil {
		p.Fatal(err)
	}
	items := []string{}
	err = meta.EachListItem(o, func(item runtime.Object) error {
		items = append(items, short(item))
		if kind := item.GetObjectKind().GroupVersionKind().Kind; kind != "" {
			p.Errorf("%s: %s says that it is a %s", query, short(item), kind)
		}
		return nil
	})
	if err != nil {
		p.Fatal(err)
	}
	return fmt.Sprintf("%v @%s", items, m.GetResourceVersion()), m.GetContinue()
}

func TestLists(t *testing.T) {
	eachFormat(t, func(p *probe) {
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
			if got, _ := p.lists(c.query); got != c.want {
				p.Errorf("%s: %s, expected %s", c.query, got, c.want)
			}
		}

		first, page := p.lists("services?limit=1")
		p.Apply(service("shop", "b"))
		second, _ := p.lists("services?limit=1&continue=" + page)
		if first != "[a@103] @105" || second != "[c@105] @105" {
			p.Errorf("two pages: %s, %s", first, second)
		}
		p.Compact(0)
		if late, _ := p.lists("services?limit=1&continue=" + page); late != "410" {
			p.Errorf("a page of a version that is compacted: %s", late)
		}

		p.LagBehind(1)
		for query, want := range map[string]string{
			"services?resourceVersion=0":   "[a@103 c@105] @105",
			"services?resourceVersion=105": "[a@103 c@105] @105",
			"services?resourceVersion=106": "504",
			"services":                     "[a@103 b@106 c@105] @106",
		} {
			if got, _ := p.lists(query); got != want {
				p.Errorf("lagging: %s: %s, expected %s", query, got, want)
			}
		}

		p.Fail(http.StatusServiceUnavailable)
		if got, _ := p.lists("services"); got != "503" {
			p.Errorf("a server that fails: %s", got)
		}
		p.Fail(0)
		p.Forbid("Node", true)
		if got, _ := p.lists("nodes"); got != "403" {
			p.Errorf("forbidden: %s", got)
		}
		p.Forbid("Node", false)

		// Somebody waits for a version, and it comes.
		p.Server.Freshness = grace
		p.SlowDown("Node", time.Millisecond)
		go p.LagBehind(0)
		if got, _ := p.lists("nodes?resourceVersion=106"); got != "[] @106" {
			p.Errorf("a version that was waited for: %s", got)
		}
	})
}

// The first form that is accepted and spoken is taken.
func TestNegotiation(t *testing.T) {
	const protobuf, json = runtime.ContentTypeProtobuf, runtime.ContentTypeJSON
	s := New()
	server := httptest.NewServer(s)
	defer server.Close()
	p := &probe{T: t, Server: s, http: server}
	for _, c := range []struct {
		accept   string
		jsonOnly bool
		want     string
		code     int
	}{
		{protobuf + "," + json, false, protobuf, http.StatusOK},
		{json + ", " + protobuf, false, json, http.StatusOK},
		{protobuf + ", */*", true, json, http.StatusOK},
		{"text/html, application/*;q=0.1", false, json, http.StatusOK},
		{"", false, json, http.StatusOK},
		{protobuf, true, json, http.StatusNotAcceptable},
		{"text/html", false, json, http.StatusNotAcceptable},
	} {
		s.JSONOnly = c.jsonOnly
		resp := p.get("services", c.accept)
		if got := resp.Header.Get("Content-Type"); got != c.want || resp.StatusCode != c.code {
			t.Errorf("Accept: %s: %s, %s, expected %s, %d", c.accept, got, resp.Status, c.want, c.code)
		}
	}
}

// stream is a watch.
type stream struct {
	*probe
	resp *http.Response
	json *json.Decoder
}

func (p *probe) streams(query string) *stream {
	p.Helper()
	resp := p.get(query, p.accept)
	want := p.accept
	if p.accept == runtime.ContentTypeProtobuf {
		want += ";stream=watch"
	}
	if got := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || got != want {
		p.Fatalf("%s: %s, %s", query, resp.Status, got)
	}
	return &stream{p, resp, json.NewDecoder(resp.Body)}
}

var errObject = errors.New("object")

// next reads an event. The error is errObject where only the object is not
// understood, io.EOF after the last one, any other where the event is not.
func (s *stream) next() (what string, o runtime.Object, err error) {
	var e metav1.WatchEvent
	if s.accept == runtime.ContentTypeJSON {
		err = s.json.Decode(&e)
	} else {
		var length [4]byte
		if _, err := io.ReadFull(s.resp.Body, length[:]); err != nil {
			return "", nil, err
		}
		b := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err := io.ReadFull(s.resp.Body, b); err != nil {
			return "", nil, err
		}
		err = e.Unmarshal(b)
	}
	if err != nil {
		return "", nil, err
	}
	if o, err = s.decode(e.Object.Raw); err != nil {
		err = fmt.Errorf("%w: %w", errObject, err)
	}
	return e.Type, o, err
}

// brings reads events and checks which they are. "end" is the end.
func (s *stream) brings(want ...string) {
	s.Helper()
	for _, want := range want {
		what, o, err := s.next()
		got := "end"
		if err == nil {
			got = what + " " + short(o)
		} else if !errors.Is(err, io.EOF) {
			got = err.Error()
		}
		if got != want {
			s.Errorf("%s: %s, expected %s", s.resp.Request.URL.RawQuery, got, want)
		}
	}
}

const streamingList = "services?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"

func TestWatches(t *testing.T) {
	eachFormat(t, func(p *probe) {
		begun := time.Now()
		resumed := p.streams("services?watch=true&resourceVersion=103")
		resumed.brings("DELETED b@104", "ADDED c@105")
		list := p.streams(streamingList)
		list.brings("ADDED a@103", "ADDED c@105", "BOOKMARK @105 initial")
		p.streams(streamingList+"&resourceVersion=101").brings("ADDED a@103", "ADDED c@105", "BOOKMARK @105 initial")
		p.streams("services?watch=true").brings("ADDED a@103", "ADDED c@105")
		p.streams("services?watch=true&resourceVersion=102").brings("ERROR 410", "end")
		data := p.streams("namespaces/data/services?watch=true&resourceVersion=103")
		data.brings("DELETED b@104")
		// The last one was sent what is older than the lists between it and the first.
		if n := p.Counts("Service", begun, time.Now()); n != (Counts{Lists: 3, Watches: 6, Replayed: 1}) {
			p.Errorf("counted: %+v", n)
		}
		if n := p.Counts("Node", begun, time.Now()); n != (Counts{Bookmarks: true}) {
			p.Errorf("counted: %+v", n)
		}

		// A watch that runs needs no history, and bookmarks are for those who asked.
		p.Apply(service("data", "d"))
		p.Compact(0)
		p.Apply(service("data", "d"))
		p.Advance(10)
		p.Announce()
		list.brings("ADDED d@106", "MODIFIED d@107", "BOOKMARK @117")
		data.brings("ADDED d@106", "MODIFIED d@107")
		resumed.brings("ADDED d@106", "MODIFIED d@107")

		// Watches lag.
		p.LagBehind(1)
		p.Apply(service("data", "e"))
		p.Apply(service("shop", "e"))
		resumed.brings("ADDED e@118")
		p.LagBehind(0)
		resumed.brings("ADDED e@119")
		list.brings("ADDED e@118", "ADDED e@119")

		// 410 into those that run, the next one, and as an answer.
		p.ExpireWatches("Service")
		list.brings("ERROR 410", "end")
		resumed.brings("ERROR 410", "end")
		p.ExpireWatches("Node")
		p.streams("nodes?watch=true&resourceVersion=119").brings("ERROR 410", "end")
		p.ExpireRequest("Node")
		if got, _ := p.lists("nodes?watch=true&resourceVersion=119"); got != "410" {
			p.Errorf("a watch request that is to be gone: %s", got)
		}

		// A change that watches are not told of, and 410 for all.
		silent := p.streams("services?watch=true&resourceVersion=119")
		if err := p.Swap("Service", ID{"data", "e"}, service("data", "f")); err != nil {
			p.Error(err)
		}
		p.Expire()
		silent.brings("ERROR 410", "end")
		if got, _ := p.lists("namespaces/data/services"); got != "[d@107 f@120] @122" {
			p.Errorf("after an exchange there are %s", got)
		}

		// Streaming lists without an end.
		p.Endless(true)
		endless := p.streams(strings.Replace(streamingList, "services", "nodes", 1))
		p.Announce()
		endless.brings("BOOKMARK @122")

		// Watches end in good order.
		p.streams("nodes?watch=true&resourceVersion=122&timeoutSeconds=1").brings("end")
		nodes := p.streams("nodes?watch=true&resourceVersion=122")
		p.EndEarly(time.Millisecond, grace)
		nodes.brings("end")
		p.streams("nodes?watch=true&resourceVersion=122").brings("end")
	})
}

// What a server may do wrong, and what happens to one.
func TestFaults(t *testing.T) {
	eachFormat(t, func(p *probe) {
		want := func(lists string) {
			p.Helper()
			if got, _ := p.lists("services"); got != lists {
				p.Errorf("there are %s, expected %s", got, lists)
			}
		}
		p.Older("Service", 2, 1)
		want("[a@103] @104")
		p.streams(streamingList).brings("ADDED a@103", "BOOKMARK @104 initial", "ADDED c@105")
		want("[a@103 c@105] @105")

		watch := p.streams("services?watch=true&allowWatchBookmarks=true&resourceVersion=105")
		p.ApplySilently(service("shop", "d"))
		if err := p.DeleteSilently("Service", ID{"shop", "c"}); err != nil {
			p.Error(err)
		}
		want("[a@103 d@106] @107")
		p.Announce()
		watch.brings("BOOKMARK @107")

		if err := p.Replay("Service", ID{"shop", "a"}, 1); err != nil {
			p.Error(err)
		}
		watch.brings("ADDED a@101")
		if p.Replay("Service", ID{"shop", "a"}, 2) == nil || p.DeleteSilently("Service", ID{"shop", "c"}) == nil {
			p.Error("what there is not is not noticed")
		}

		p.Restore(105)
		want("[a@103 c@105] @105")
		p.Apply(service("shop", "e"))
		p.Apply(service("shop", "f"))
		p.Apply(service("shop", "g"))
		watch.brings("ADDED g@108")
		if v := p.Version(); v != 108 {
			p.Errorf("version %d", v)
		}
	})
}

// Versions may be no numbers.
func TestVersionPrefix(t *testing.T) {
	s := New()
	s.VersionPrefix = "v"
	s.Apply(service("shop", "a"))
	server := httptest.NewServer(s)
	t.Cleanup(server.Close) // after the watch
	p := &probe{t, s, server, runtime.ContentTypeJSON}
	for _, query := range []string{"services", "services?resourceVersion=0", "services?resourceVersion=v101"} {
		if got, _ := p.lists(query); got != "[a@v101] @v101" {
			t.Errorf("%s: %s", query, got)
		}
	}
	watch := p.streams(streamingList)
	watch.brings("ADDED a@v101", "BOOKMARK @v101 initial")
	s.Apply(service("shop", "b"))
	watch.brings("ADDED b@v102")
}

// An event is damaged where it is said to be, and only that one: the first that a
// watch is sent after its beginning, or at its beginning.
func TestDamage(t *testing.T) {
	for _, damage := range Damages() {
		for _, running := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s,%t", damage, running), func(t *testing.T) {
				eachFormat(t, func(p *probe) { p.brings(damage, running) })
			})
		}
	}
	if New().Damage("Service", "all") == nil {
		t.Error("there is no such damage, and that is not noticed")
	}
}

func (p *probe) brings(damage Damage, running bool) {
	var s *stream
	if running {
		s = p.streams("services?watch=true")
		s.brings("ADDED a@103", "ADDED c@105")
	}
	if err := p.Damage("Service", damage); err != nil {
		p.Fatal(err)
	}
	if running {
		p.Apply(service("data", "damaged"))
		p.Apply(service("data", "well"))
	} else {
		s = p.streams("services?watch=true")
	}
	what, o, err := s.next()
	got := fmt.Sprintf("%s %T", what, o)
	switch {
	case errors.Is(err, errObject):
		got = "an object"
	case err != nil:
		got = "a message"
	}
	want := map[Damage]string{CutMessage: "a message", CutObject: "an object", BadField: "an object",
		UnknownKind: "ADDED *v1.Pod", OtherKind: "ADDED *v1.Node"}[damage]
	if got != want {
		p.Errorf("what is damaged: %s (%v), expected %s", got, err, want)
	}
	if damage == CutMessage && p.accept == runtime.ContentTypeJSON {
		return // where the next one begins nobody can tell
	}
	if what, o, err := s.next(); what != "ADDED" || err != nil {
		p.Errorf("the next one: %s %v, %v", what, o, err)
	}
}
