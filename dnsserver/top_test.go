package dnsserver

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/dnsserver/batch"
)

// What is asked is counted by name, type and status, however it comes, and only while
// somebody wants to know.
func TestTop(t *testing.T) {
	s, err := Listen(Config{Listen: []string{"127.0.0.1:0"}}, cluster(t), quiet)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var served sync.WaitGroup
	served.Go(func() { s.Serve(ctx) })
	t.Cleanup(func() { stop(); served.Wait() })

	ask := func(network, name string, typ uint16, version uint8) {
		t.Helper()
		m := question(name, typ)
		m.SetEdns0(1232, false)
		m.IsEdns0().SetVersion(version)
		if _, _, err := (&dns.Client{Net: network, Timeout: patience}).Exchange(m, s.Addrs()[0].String()); err != nil {
			t.Fatal(err)
		}
	}
	// Over TCP, where a reply is looked at before it leaves.
	ask("tcp", "before.shop.registry.local.", dns.TypeA, 0)
	if top := s.Top(10); len(top.Questions) > 0 || !top.Since.IsZero() {
		t.Errorf("nobody wants to know, and there is %+v", top)
	}
	s.CountTop(true)
	s.CountTop(true) // the same again
	for range 3 {
		ask("udp", "WEB.shop.registry.local.", dns.TypeA, 0)
		ask("tcp", "web.SHOP.registry.local.", dns.TypeA, 0)
	}
	for range 2 {
		ask("udp", "nope.shop.registry.local.", dns.TypeHTTPS, 0)
	}
	ask("udp", "web.shop.registry.local.", dns.TypeA, 1)
	type line struct {
		of     TopQuestion
		twelve float64 // twelfths of all
	}
	want := []line{
		{TopQuestion{Name: "web.shop.registry.local.", Type: "A", RCode: "NOERROR"}, 8},
		{TopQuestion{Name: "nope.shop.registry.local.", Type: "HTTPS", RCode: "NXDOMAIN"}, 8. / 3},
		{TopQuestion{Name: "web.shop.registry.local.", Type: "A", RCode: "BADVERS"}, 4. / 3},
	}
	var top Top
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if top = s.Top(10); len(top.Questions) == len(want) && top.Questions[0].Share < 0.7 || time.Now().After(end) {
			break
		}
	}
	if len(top.Questions) != len(want) || top.Since.IsZero() || top.Every != 1 {
		t.Fatalf("%+v", top)
	}
	for i, w := range want {
		got := top.Questions[i]
		if math.Abs(got.Share*12-w.twelve) > 0.2 || got.PerSecond <= 0 { // a little of the first ones is forgotten
			t.Errorf("%+v, want a share of %.3f", got, w.twelve/12)
		}
		if got.Share, got.PerSecond = 0, 0; got != w.of {
			t.Errorf("%+v, want %+v", got, w.of)
		}
	}
	if top := s.Top(1); len(top.Questions) != 1 {
		t.Errorf("of one, there are %d", len(top.Questions))
	}
	s.CountTop(false)
	if top := s.Top(10); len(top.Questions) > 0 {
		t.Errorf("nobody wants to know any more, and there is %+v", top)
	}
}

// replyTo is a reply that has nothing but this question.
func replyTo(name string, typ uint16) []byte {
	m := question(name, typ)
	m.Response = true
	msg, err := m.Pack()
	if err != nil {
		panic(err)
	}
	return msg
}

// However much comes, and however many names come once, what is asked for most is there
// with its share, from a sample that gets smaller.
func TestTopOfMany(t *testing.T) {
	top := newTop()
	r := rand.New(rand.NewPCG(1, 2))
	now, number := top.started, uint(0)
	common := map[uint16][]byte{}
	for i := range uint16(10) {
		common[i] = replyTo(fmt.Sprintf("c%d.shop.registry.local.", i), dns.TypeA)
	}
	// 16,000 batches of 16 in a second: one in ten is for c0, one in twenty for c1, and so on.
	for range 40 {
		for range 4000 {
			var messages [16]batch.Message
			for i := range messages {
				messages[i].Reply = common[9]
				switch n := r.IntN(200); {
				case n < 20:
					messages[i].Reply = common[0]
				case n < 30:
					messages[i].Reply = common[1]
				case n < 100 && top.every.Load() == 1 || n < 32: // made only where it counts
					messages[i].Reply = replyTo(fmt.Sprintf("x%d.shop.registry.local.", r.Uint32()), dns.TypeA)
				}
			}
			number++
			top.batch(number, messages[:])
		}
		now = now.Add(topTick)
		top.drain(now)
	}
	if every := top.every.Load(); every < 64 || every > 1024 {
		t.Errorf("one batch in %d is looked at", every)
	}
	got := top.most(3, now)
	for i, want := range []struct {
		name  string
		share float64
	}{{"c9.shop.registry.local.", 0.84}, {"c0.shop.registry.local.", 0.1}, {"c1.shop.registry.local.", 0.05}} {
		if i >= len(got.Questions) || got.Questions[i].Name != want.name || math.Abs(got.Questions[i].Share-want.share) > 0.03 {
			t.Errorf("%d: %+v, want %+v", i, got.Questions, want)
		}
	}
	if rate := got.Questions[0].PerSecond; rate < 150_000 || rate > 280_000 {
		t.Errorf("%.0f a second, where some 215,000 come", rate)
	}
	// When little comes, all of it counts again.
	for range 20 {
		now = now.Add(topTick)
		top.drain(now)
	}
	if every := top.every.Load(); every != 1 {
		t.Errorf("one batch in %d is looked at, where none come", every)
	}
}

// A question that is asked no more is forgotten.
func TestTopForgets(t *testing.T) {
	top := newTop()
	now := top.started
	add := func(name string, times int) {
		for range times {
			top.note(replyTo(name, dns.TypeA), 1)
		}
		top.drain(now)
	}
	add("old.shop.registry.local.", 40)
	now = now.Add(topHalfLife)
	add("new.shop.registry.local.", 21)
	if q := top.most(2, now).Questions; len(q) != 2 || q[0].Name != "new.shop.registry.local." || math.Abs(q[1].Share-20./41) > 0.01 {
		t.Errorf("after a half-life: %+v", q)
	}
	now = now.Add(20 * topHalfLife)
	add("last.shop.registry.local.", 1)
	if q := top.most(9, now).Questions; len(q) != 1 || q[0].Name != "last.shop.registry.local." {
		t.Errorf("after twenty: %+v", q)
	}
	if n := len(top.counts.at); n != 1 {
		t.Errorf("%d keys are kept", n)
	}
}

// The counts are within the bounds that they are to have, whatever comes.
func TestSketch(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	const most = 16
	for range 50 {
		s, exact, total := newSketch(most), map[string]float64{}, 0.
		zipf := rand.NewZipf(r, 1.1, 1, 500)
		for range 2000 {
			key, weight := fmt.Sprint(zipf.Uint64()), float64(1+r.IntN(3))
			s.add([]byte(key), weight)
			exact[key] += weight
			total += weight
		}
		if len(s.list) != most || len(s.at) != most || s.total != total {
			t.Fatalf("%d keys, %d of them found, %v of %v", len(s.list), len(s.at), s.total, total)
		}
		for i, c := range s.list {
			if is := exact[c.key]; c.count < is || c.count-c.over > is || s.at[c.key] != i {
				t.Errorf("%q was met %v times; it has %+v at %d", c.key, is, c, s.at[c.key])
			}
		}
		for key, n := range exact {
			if _, ok := s.at[key]; n > total/most && !ok {
				t.Errorf("%q was met %v times of %v, and is not there", key, n, total)
			}
		}
	}
}

// What is no reply to one question counts for nothing, and does no harm.
func TestTopOddReplies(t *testing.T) {
	whole := replyTo("web.shop.registry.local.", dns.TypeA)
	long := slices.Concat(whole[:headerSize], bytesOf(63, 'a', 4), []byte{0, 0, 1, 0, 1})
	pointer := slices.Clone(whole)
	pointer[headerSize] = 0xc0
	none := slices.Clone(whole)
	binary.BigEndian.PutUint16(none[4:], 0)
	top := newTop()
	for i := range whole {
		top.note(whole[:i], 1)
	}
	for _, odd := range [][]byte{nil, long, pointer, none} {
		top.note(odd, 1)
	}
	top.drain(top.started)
	if len(top.counts.list) > 0 {
		t.Errorf("%+v", top.counts.list)
	}
	top.note(whole, 1)
	top.drain(top.started)
	if len(top.counts.list) != 1 {
		t.Errorf("%+v", top.counts.list)
	}
}

// bytesOf are so many labels of n octets.
func bytesOf(n int, octet byte, labels int) (out []byte) {
	for range labels {
		out = append(out, byte(n))
		for range n {
			out = append(out, octet)
		}
	}
	return out
}
