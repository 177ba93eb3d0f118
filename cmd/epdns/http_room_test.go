package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Only so many streams are open at a time, and there is room again when one has ended.
func TestStreamsAreBounded(t *testing.T) {
	h, _ := pageOf(t, &fed{begin: shop})
	open := func(path string) (*http.Response, context.CancelFunc) {
		ctx, stop := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+h.Addr().String()+path, nil)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp, stop
	}
	var stops []context.CancelFunc
	for i := range maxStreams {
		resp, stop := open([]string{"/live?view=", "/watch?all=true"}[i%2])
		defer resp.Body.Close()
		if stops = append(stops, stop); resp.StatusCode != http.StatusOK {
			t.Fatalf("%d: %s", i, resp.Status)
		}
	}
	resp, stop := open("/live?view=")
	if text, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(string(text), "too many streams") {
		t.Errorf("one too many: %s %s", resp.Status, text)
	}
	stop()
	if status, _, _ := get(t, h, "/livez"); status != http.StatusOK {
		t.Errorf("a probe: %d", status)
	}
	stops[0]()
	for end := time.Now().Add(grace); ; {
		resp, stop := open("/live?view=")
		defer stop()
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			break
		}
		if time.Now().After(end) {
			t.Fatal("there is no room though one has ended")
		}
	}
	for _, stop := range stops {
		stop()
	}
}

// Where too many connections are open, those that nobody asks on are closed, though something
// may have come over them, and probes get through.
func TestConnectionsAreBounded(t *testing.T) {
	h, _ := pageOf(t, &fed{begin: shop})
	var all []net.Conn
	for range maxHTTPConnections + 50 {
		c, err := net.Dial("tcp", h.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET /livez HTTP/1.1\r\n")
		all = append(all, c)
	}
	if status, _, _ := get(t, h, "/livez"); status != http.StatusOK {
		t.Errorf("a probe: %d", status)
	}
	all[0].SetReadDeadline(time.Now().Add(grace))
	if _, err := all[0].Read(make([]byte, 1)); err != io.EOF && !strings.Contains(fmt.Sprint(err), "reset") {
		t.Errorf("the first one: %v", err)
	}
	last := all[len(all)-1]
	fmt.Fprint(last, "Host: localhost\r\n\r\n")
	last.SetReadDeadline(time.Now().Add(grace))
	if line, err := bufio.NewReader(last).ReadString('\n'); err != nil || line != "HTTP/1.1 200 OK\r\n" {
		t.Errorf("the last one: %q %v", line, err)
	}
	h.room.mu.Lock()
	defer h.room.mu.Unlock()
	if len(h.room.open) > maxHTTPConnections || h.room.rejected == 0 {
		t.Errorf("%d are open, %d were closed", len(h.room.open), h.room.rejected)
	}
}

// Of connections that are all in use, none is closed for a new one.
func TestConnectionsInUseStay(t *testing.T) {
	var said bytes.Buffer
	r := newHTTPRoom(slog.New(slog.NewTextHandler(&said, nil)))
	pipe := func() net.Conn {
		c, other := net.Pipe()
		t.Cleanup(func() { other.Close() })
		r.note(c, http.StateNew)
		r.note(c, http.StateActive)
		return c
	}
	closed := func(c net.Conn) bool {
		c.SetReadDeadline(time.Now())
		_, err := c.Read(make([]byte, 1))
		return err == io.ErrClosedPipe
	}
	var all []net.Conn
	for range maxHTTPConnections {
		all = append(all, pipe())
	}
	if c := pipe(); !closed(c) {
		t.Error("there is one more than may be")
	}
	r.note(all[5], http.StateIdle)
	time.Sleep(time.Millisecond)
	r.note(all[3], http.StateIdle)
	if c := pipe(); closed(c) || !closed(all[5]) || closed(all[3]) {
		t.Error("not the one that was idle for longest has made room")
	}
	r.note(all[5], http.StateClosed)
	if strings.Count(said.String(), "\n") != 1 {
		t.Errorf("the log says %s", &said)
	}
	for _, c := range all {
		r.note(c, http.StateClosed)
	}
	if lines := strings.Count(said.String(), "\n"); lines != 2 || len(r.open) != 1 || r.rejected != 2 {
		t.Errorf("%d open, %d closed, the log says %s", len(r.open), r.rejected, &said)
	}
}

// Bodies that never come hold connections that count as in use. A probe from elsewhere gets in all
// the same, at once, and so does everybody when their time is over.
func TestBodiesThatNeverCome(t *testing.T) {
	t.Parallel()
	h, _ := pageOf(t, &fed{begin: shop})
	for range maxHTTPConnections {
		c, err := net.Dial("tcp", h.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprint(c, "GET /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
	}
	for end := time.Now().Add(grace); ; time.Sleep(time.Millisecond) {
		h.room.mu.Lock()
		inUse := 0
		for _, idle := range h.room.open {
			if idle.IsZero() {
				inUse++
			}
		}
		h.room.mu.Unlock()
		if inUse == maxHTTPConnections {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections are in use", inUse)
		}
	}
	elsewhere := http.Client{Timeout: grace, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}).DialContext,
	}}
	resp, err := elsewhere.Get("http://" + h.Addr().String() + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("a probe: %s", resp.Status)
	}
	for end := time.Now().Add(grace); ; time.Sleep(50 * time.Millisecond) {
		h.room.mu.Lock()
		open := len(h.room.open)
		h.room.mu.Unlock()
		if open == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d connections are still open", open)
		}
	}
}

// Headers have a limit.
func TestHeadersAreBounded(t *testing.T) {
	h, _ := pageOf(t, &fed{begin: shop})
	for size, want := range map[int]int{8 << 10: http.StatusOK, 64 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+h.Addr().String()+"/livez", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Long", strings.Repeat("x", size))
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%d octets: %s, want %d", size, resp.Status, want)
		}
	}
}

// A stream goes on for longer than a request may take to come.
func TestStreamsStay(t *testing.T) {
	t.Parallel()
	h, _ := pageOf(t, &fed{begin: shop})
	resp, err := http.Get("http://" + h.Addr().String() + "/watch?all=true")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Errorf("it ended: %v", err)
	case <-time.After(12 * time.Second): // 10 s and some
	}
}
