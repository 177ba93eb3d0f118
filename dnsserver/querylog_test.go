package dnsserver

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// jsonLines is a log that can be read while it is written.
type jsonLines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *jsonLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *jsonLines) all(t *testing.T) (out []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		out = append(out, m)
	}
	return out
}

// Each query has its line, which says what was asked and answered.
func TestQueryLog(t *testing.T) {
	var to jsonLines
	s, err := Listen(Config{Listen: []string{"127.0.0.1:0"}, QueryLog: 1}, cluster(t), slog.New(slog.NewJSONHandler(&to, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Serve(ctx)
	}()
	odd := `w\010b"\.x.shop.registry.local.`
	for _, q := range []struct {
		network, name string
		typ           uint16
		edns          bool
	}{
		{"udp", "WEB.shop.registry.local.", dns.TypeA, true},
		{"tcp", "nope.shop.registry.local.", dns.TypeHTTPS, false},
		{"udp", odd, dns.TypeNone + 300, false},
	} {
		m := question(q.name, q.typ)
		if q.edns {
			m.SetEdns0(1300, true)
		}
		if _, _, err := (&dns.Client{Net: q.network}).Exchange(m, s.Addrs()[0].String()); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	<-ended // what waited is written

	want := []map[string]any{
		{"proto": "udp", "name": "web.shop.registry.local.", "type": "A", "class": "IN", "do": true, "bufsize": 1300.0, "rcode": "NOERROR", "flags": "qr aa rd"},
		{"proto": "tcp", "name": "nope.shop.registry.local.", "type": "HTTPS", "class": "IN", "do": nil, "bufsize": nil, "rcode": "NXDOMAIN"},
		{"proto": "udp", "name": `w\010b\"\.x.shop.registry.local.`, "type": "TYPE300", "rcode": "NXDOMAIN"},
	}
	got := to.all(t)
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d: %v", len(got), len(want), got)
	}
	for i, w := range want {
		g := got[i]
		for key, value := range w {
			if g[key] != value {
				t.Errorf("line %d: %s is %v, want %v", i, key, g[key], value)
			}
		}
		client, err := netip.ParseAddrPort(g["client"].(string))
		if err != nil || !client.Addr().IsLoopback() || g["msg"] != "query" {
			t.Errorf("line %d: %v", i, g)
		}
		if g["size"].(float64) < headerSize || g["octets"].(float64) < headerSize || g["took"].(float64) < 0 {
			t.Errorf("line %d: %v", i, g)
		}
	}
}

// However many want to write at once, each entry comes out once and whole, and what there
// is no room for is counted.
func TestQueryLogIsBounded(t *testing.T) {
	var lost atomic.Uint64
	l := (*queryLog)(nil).withShare(1, quiet, &lost)
	const writers, each = 4, 5000
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				s, ticket := l.slot()
				if s == nil {
					runtime.Gosched()
					continue
				}
				s.entry.qtype, s.entry.size, s.entry.octets = uint16(w), uint16(i), uint16(w)+uint16(i)
				s.put(ticket)
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	var e queryEntry
	read, last := 0, [writers]int{-1, -1, -1, -1}
	for over := false; ; {
		if l.take(&e) {
			if read++; e.octets != e.qtype+e.size || int(e.size) <= last[e.qtype] {
				t.Fatalf("an entry of writer %d is %d, %d after %d", e.qtype, e.size, e.octets, last[e.qtype])
			}
			last[e.qtype] = int(e.size)
			continue
		}
		if over {
			break
		}
		select {
		case <-done:
			over = true // but for what came since
		default:
			runtime.Gosched()
		}
	}
	if read+int(lost.Load()) != writers*each {
		t.Errorf("%d were read and %d lost, of %d", read, lost.Load(), writers*each)
	}
	for range queryLogSize + 7 {
		if s, ticket := l.slot(); s != nil {
			s.put(ticket)
		}
	}
	if n := int(lost.Load()) + read - writers*each; n != 7 {
		t.Errorf("%d lost of 7 that there was no room for", n)
	}
}

// No more than a thousand lines are written in a second.
func TestQueryLogRate(t *testing.T) {
	if perSecond := queryLogBurst * int(time.Second/queryLogTick); perSecond != 1000 {
		t.Errorf("%d lines a second", perSecond)
	}
	var to jsonLines
	l := (*queryLog)(nil).withShare(1, slog.New(slog.NewJSONHandler(&to, nil)), new(atomic.Uint64))
	for range queryLogSize {
		s, ticket := l.slot()
		s.put(ticket)
	}
	for i := range 3 {
		l.write(queryLogBurst)
		if n := len(to.all(t)); n != (i+1)*queryLogBurst {
			t.Errorf("%d lines after %d ticks", n, i+1)
		}
	}
}

// A share is kept to, and settings that leave it as it is leave the log as it is.
func TestQueryLogShare(t *testing.T) {
	for _, share := range []float64{-0.1, 1.1, 1e300} {
		if CheckQueryLog(share) == nil {
			t.Errorf("%v is a share", share)
		}
	}
	r := newResponder(cluster(t))
	if r.logged() != nil {
		t.Error("without a log, a query is logged")
	}
	l := (*queryLog)(nil).withShare(0.25, quiet, new(atomic.Uint64))
	settings := *plain
	settings.queries = l
	r.shared = &settings
	n := 0
	for range 100_000 {
		if r.logged() != nil {
			n++
		}
	}
	if n < 24_000 || n > 26_000 {
		t.Errorf("%d of 100000 are logged, for a quarter", n)
	}
	if l.withShare(0.25, quiet, nil) != l || l.withShare(0.5, quiet, nil) == l || l.withShare(0, quiet, nil) != nil {
		t.Error("a log that was to stay did not, or the other way round")
	}
}

// Whatever a name holds, what is written is printable and leads back to it.
func FuzzPresentName(f *testing.F) {
	for _, name := range []string{"", "web.shop.registry.local", "a\x00b.\xff.\\", `".;()@$ `} {
		f.Add([]byte(name))
	}
	f.Fuzz(func(t *testing.T, octets []byte) {
		var wire []byte
		for label := range bytes.SplitSeq(octets, []byte{'/'}) {
			label = label[:min(len(label), 63)]
			if len(label) == 0 || len(wire)+len(label)+2 > maxName {
				continue
			}
			wire = append(append(wire, byte(len(label))), label...)
		}
		wire = append(wire, 0)
		text := presentName(wire)
		if strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Errorf("%q", text)
		}
		back := make([]byte, maxName)
		n, err := dns.PackDomainName(text, back, 0, nil, false)
		if err != nil || !bytes.Equal(back[:n], wire) {
			t.Errorf("%x is %q, which is %x, %v", wire, text, back[:n], err)
		}
	})
}
