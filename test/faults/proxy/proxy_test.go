package proxy

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
)

const slicesPath = "/apis/discovery.k8s.io/v1/endpointslices"

// behind is an API server with five slices, whose watches bring each of them and a bookmark, as
// JSON or as protobuf.
func behind(t *testing.T) *httptest.Server {
	t.Helper()
	slice := func(name string) *discoveryv1.EndpointSlice {
		s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "shop", ResourceVersion: "7"}}
		s.APIVersion, s.Kind = "discovery.k8s.io/v1", "EndpointSlice"
		return s
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			items := []any{}
			for i := range 5 {
				items = append(items, slice(fmt.Sprint("web-", i)))
			}
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(map[string]any{"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSliceList", "metadata": map[string]any{"resourceVersion": "9"}, "items": items})
			return
		}
		send := func(what string, o *discoveryv1.EndpointSlice) {
			json.NewEncoder(w).Encode(map[string]any{"type": what, "object": o})
		}
		if r.Header.Get("Accept") == runtime.ContentTypeProtobuf {
			w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
			info, _ := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
			e := streaming.NewEncoder(info.StreamSerializer.Framer.NewFrameWriter(w), info.StreamSerializer.Serializer)
			send = func(what string, o *discoveryv1.EndpointSlice) {
				var raw bytes.Buffer
				if err := protobuf.NewSerializer(nil, nil).Encode(o, &raw); err != nil {
					t.Error(err)
				}
				e.Encode(&metav1.WatchEvent{Type: what, Object: runtime.RawExtension{Raw: raw.Bytes()}})
			}
		} else {
			w.Header().Set("Content-Type", "application/json")
		}
		for i := range 5 {
			send("ADDED", slice(fmt.Sprint("web-", i)))
		}
		end := slice("")
		end.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		send("BOOKMARK", end)
	}))
	t.Cleanup(s.Close)
	return s
}

// before is a proxy, and a client that trusts it.
func before(t *testing.T, target string) (*Proxy, *http.Client) {
	t.Helper()
	p, err := New(target, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.CA())
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return p, &http.Client{Transport: transport, Timeout: 5 * time.Second}
}

func get(t *testing.T, c *http.Client, url, accept string) (*http.Response, []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, body
}

// Events come as often as they are to, as they were sent.
func TestEvents(t *testing.T) {
	server := behind(t)
	for _, accept := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
		t.Run(accept, func(t *testing.T) {
			p, c := before(t, server.URL)
			resp, all := get(t, c, p.URL+slicesPath+"?watch=1", accept)
			if resp.ProtoMajor != 2 {
				t.Errorf("%s, want HTTP/2", resp.Proto)
			}
			_, straight := get(t, server.Client(), server.URL+slicesPath+"?watch=1", accept)
			if !bytes.Equal(all, straight) {
				t.Errorf("%q, want %q", all, straight)
			}
			var seen []Event
			p.Events(func(e *Event) int {
				seen = append(seen, *e)
				switch {
				case e.Name == "web-2" || e.InitialEnd:
					return 0
				case e.Name == "web-3":
					return 2
				}
				return 1
			})
			_, some := get(t, c, p.URL+slicesPath+"?watch=1", accept)
			if len(seen) != 6 || seen[2] != (Event{"ADDED", "EndpointSlice", "shop", "web-2", "7", false}) || !seen[5].InitialEnd {
				t.Errorf("%+v", seen)
			}
			var names []string
			for r := bufio.NewReader(bytes.NewReader(some)); ; {
				read := jsonFrame
				if accept == runtime.ContentTypeProtobuf {
					read = protobufFrame
				}
				_, e, err := read(r)
				if err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				names = append(names, e.Name)
			}
			if want := []string{"web-0", "web-1", "web-3", "web-3", "web-4"}; !slices.Equal(names, want) {
				t.Errorf("%q, want %q", names, want)
			}
		})
	}
}

// What is no event ends the watch.
func TestBadEvents(t *testing.T) {
	huge := binary.BigEndian.AppendUint32(nil, maxFrame+1)
	for contentType, body := range map[string]string{
		"application/json": "no event\n",
		runtime.ContentTypeProtobuf + ";stream=watch": string(huge),
	} {
		f := newFilter(io.NopCloser(strings.NewReader(body)), contentType, func(*Event) int { return 1 })
		if b, err := io.ReadAll(f); err == nil || len(b) > 0 {
			t.Errorf("%s: %q, %v", contentType, b, err)
		}
	}
}

// Pages are handed out, the expired token is refused so often and then good, and what they hold
// together is the list.
func TestPages(t *testing.T) {
	p, c := before(t, behind(t).URL)
	p.Pages(2, 3, 1)
	var names []string
	token, expired := "", 0
	for {
		resp, body := get(t, c, p.URL+slicesPath+"?limit=500&continue="+token, "application/json")
		if resp.StatusCode == http.StatusGone {
			var status metav1.Status
			if err := json.Unmarshal(body, &status); err != nil || status.Reason != metav1.StatusReasonExpired {
				t.Errorf("%s, %v", body, err)
			}
			expired++
			continue
		}
		var l discoveryv1.EndpointSliceList
		if err := json.Unmarshal(body, &l); err != nil {
			t.Fatal(err)
		}
		if l.ResourceVersion != "9" || len(l.Items) > 2 {
			t.Errorf("version %s, %d objects", l.ResourceVersion, len(l.Items))
		}
		for _, item := range l.Items {
			names = append(names, item.Name)
		}
		if token = l.Continue; token == "" {
			break
		}
	}
	if want := []string{"web-0", "web-1", "web-2", "web-3", "web-4"}; !slices.Equal(names, want) || expired != 1 {
		t.Errorf("%q, want %q; %d times expired", names, want, expired)
	}
	p.Pages(0, 0, 0)
	if _, body := get(t, c, p.URL+slicesPath, "application/json"); bytes.Contains(body, []byte(`"continue"`)) {
		t.Errorf("pages still: %s", body)
	}
	if got := p.Requests(time.Time{}); len(got) != 5 || got[0].Path != slicesPath || got[0].Watch || got[4].Continue != "" {
		t.Errorf("%+v", got)
	}
}

// Nothing moves while the line is stalled, and then all that was sent comes.
func TestStalled(t *testing.T) {
	p, c := before(t, behind(t).URL)
	get(t, c, p.URL+slicesPath, "application/json")
	p.SetLine(Line{Stalled: true})
	came := make(chan error, 1)
	go func() {
		resp, err := c.Get(p.URL + slicesPath)
		if err == nil {
			resp.Body.Close()
		}
		came <- err
	}()
	select {
	case err := <-came:
		t.Errorf("it came through: %v", err)
	case <-time.After(100 * time.Millisecond): // nothing can be waited for
	}
	p.SetLine(Line{})
	if err := <-came; err != nil {
		t.Error(err)
	}
}

// Octets come no faster than they may.
func TestRate(t *testing.T) {
	p, c := before(t, behind(t).URL)
	_, body := get(t, c, p.URL+slicesPath, "application/json")
	const part = 4 // of a second
	p.SetLine(Line{Rate: part * len(body)})
	begun := time.Now()
	get(t, c, p.URL+slicesPath, "application/json")
	if d := time.Since(begun); d < time.Second/part {
		t.Errorf("%d octets within %v", len(body), d)
	}
}

// A reset hits the connections that are open; the next one is good.
func TestReset(t *testing.T) {
	p, _ := before(t, behind(t).URL)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(p.CA())
	dial := func() net.Conn {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(p.URL, "https://"), &tls.Config{RootCAs: pool})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	first := dial()
	p.Reset()
	first.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := first.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "reset") {
		t.Errorf("%v, want a reset", err)
	}
	dial()
}

// A new certificate is trusted by who trusts the authority, unless that is new, too.
func TestRenew(t *testing.T) {
	p, c := before(t, behind(t).URL)
	if err := p.Renew(false); err != nil {
		t.Fatal(err)
	}
	get(t, c, p.URL+slicesPath, "application/json")
	c.CloseIdleConnections() // a request on one that is being reset may not be sent again
	if err := p.Renew(true); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(p.URL + slicesPath); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("%v, want an unknown authority", err)
	}
}

// Requests can be answered, changed, or left alone.
func TestAnswer(t *testing.T) {
	p, c := before(t, behind(t).URL)
	p.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == slicesPath {
			return false
		}
		Fail(w, http.StatusTooManyRequests, "TooManyRequests", "slowly")
		return true
	})
	if resp, _ := get(t, c, p.URL+slicesPath, "application/json"); resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
	resp, body := get(t, c, p.URL+"/version", "application/json")
	if resp.StatusCode != http.StatusTooManyRequests || !bytes.Contains(body, []byte("slowly")) {
		t.Errorf("%s: %s", resp.Status, body)
	}
}

// Datagrams are lost, repeated and late as often as they are to be.
func TestUDP(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		for buf := make([]byte, 100); ; {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			server.WriteTo(buf[:n], from)
		}
	}()
	u, err := NewUDP(server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	client, err := net.Dial("udp", u.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	// count is how many datagrams come back of some, the first of them no sooner than after.
	count := func(send int, within time.Duration) (n int, first time.Duration) {
		begun := time.Now()
		for range send {
			client.Write([]byte("datagram"))
			time.Sleep(100 * time.Microsecond) // so that the sockets have room
		}
		for buf := make([]byte, 100); ; n++ {
			client.SetReadDeadline(time.Now().Add(within))
			if _, err := client.Read(buf); err != nil {
				return n, first
			}
			if n == 0 {
				first = time.Since(begun)
			}
		}
	}
	const few = 50 // so that the socket has room for all
	for _, test := range []struct {
		path     Path
		min, max int
	}{
		{Path{}, few, few},
		{Path{Loss: 1}, 0, 0},
		{Path{Loss: 0.5}, 1, few * 2 / 3}, // a quarter comes through both ways
		{Path{Duplicate: 1}, 4 * few, 4 * few},
		{Path{Delay: 20 * time.Millisecond, Jitter: 20 * time.Millisecond}, few, few},
	} {
		u.Set(test.path)
		n, first := count(few, 200*time.Millisecond)
		if n < test.min || n > test.max {
			t.Errorf("%+v: %d, want %d to %d", test.path, n, test.min, test.max)
		}
		if n > 0 && first < 2*test.path.Delay {
			t.Errorf("%+v: the first after %v", test.path, first)
		}
	}
}
