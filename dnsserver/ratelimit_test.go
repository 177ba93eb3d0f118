package dnsserver

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"epdns/registry"
	"epdns/zones"
)

// limitedTo is a limiter of so many replies a second.
func limitedTo(perSecond, slip int, exempt ...string) *limiter {
	c := RateLimitConfig{PerSecond: perSecond, Slip: slip}
	for _, p := range exempt {
		c.Exempt = append(c.Exempt, netip.MustParsePrefix(p))
	}
	return newLimiter(c)
}

// A bucket takes a second's worth at once, and then as much as runs out.
func TestBucket(t *testing.T) {
	const ms = int64(1000)
	l := limitedTo(10, 0)
	now := 5 * second
	for _, step := range []struct {
		what string
		wait int64 // microseconds
		key  string
		want int // of 20 replies
	}{
		{"a second's worth", 0, "a", 10},
		{"another key", 0, "b", 10},
		{"at once again", 0, "a", 0},
		{"half the time of one", 50 * ms, "a", 0},
		{"the other half", 50 * ms, "a", 1},
		{"half a second", 500 * ms, "a", 5},
		{"a second", second, "a", 10},
		{"not more after a day", 86400 * second, "a", 10},
		{"nor after the clock's bits have gone round", 1<<timeBits + 2*second, "a", 10},
		{"or half round", 1 << (timeBits - 1), "a", 10},
	} {
		now += step.wait
		got := 0
		for range 20 {
			if l.take([]byte(step.key), now) {
				got++
			}
		}
		if got != step.want {
			t.Errorf("%s: %d replies, want %d", step.what, got, step.want)
		}
	}
}

// What is in a bucket is what was put there, at any time.
func TestLevel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		now := r.Int64N(1 << 50)
		in, tag := r.Int64N(second+1), r.Uint64()&^timeMask
		if got := level(tag|uint64(now+in)&timeMask, now); got != in {
			t.Fatalf("%d at %d is %d", in, now, got)
		}
		if got := level(tag|uint64(now-1-r.Int64N(1<<38))&timeMask, now); got != 0 {
			t.Fatalf("what has run out at %d is %d", now, got)
		}
	}
}

// FuzzBuckets holds the buckets against numbers that do not go round and have a place each.
// Of each three octets one is the key and two are the time since the last.
func FuzzBuckets(f *testing.F) {
	f.Add(byte(5), []byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 255, 255})
	f.Add(byte(0), []byte("aaaaaabbbbbbcccccc"))
	l := limitedTo(1, 1)
	now := int64(1)<<timeBits - 60*second // so that it does go round
	f.Fuzz(func(t *testing.T, perSecond byte, steps []byte) {
		l.each = second / (1 + int64(perSecond))
		until, times := map[byte]int64{}, map[byte][]int64{}
		now += 2 * second // all have run out
		for ; len(steps) >= 3; steps = steps[3:] {
			key := steps[0] % 5 // fewer than a set has
			now += int64(binary.BigEndian.Uint16(steps[1:])) * 37
			full := max(until[key], now)
			want := full+l.each <= now+second
			if got := l.take([]byte{key}, now); got != want {
				t.Fatalf("at %d, full until %d: %v, want %v", now, full, got, want)
			}
			if want {
				until[key] = full + l.each
				times[key] = append(times[key], now)
			}
		}
		// Whatever second one looks at: what was in the bucket, and what has run out.
		most := int(2*second/l.each) + 1
		for key, all := range times {
			for i := most; i < len(all); i++ {
				if all[i]-all[i-most] < second {
					t.Errorf("key %d: more than %d replies in a second", key, most)
				}
			}
		}
	})
}

// Full buckets stay whatever else comes, and a key that does not come back takes no room for
// long.
func TestFullBucketsStay(t *testing.T) {
	l := limitedTo(20, 0)
	now := second
	key := func(i int) []byte { return fmt.Appendf(nil, "key %d", i) }
	const full = 1000
	for i := range full {
		for l.take(key(i), now) {
		}
	}
	for i := range 4 * bucketSets * setSize {
		l.take(key(full+i), now)
	}
	for i := range full {
		if l.take(key(i), now) {
			t.Fatalf("bucket %d has been given to another", i)
		}
	}
}

// Workers that fill one bucket at the same time get little more than one alone would.
func TestBucketOfManyWorkers(t *testing.T) {
	const workers, perSecond = 4, 1000
	l := limitedTo(perSecond, 0)
	var got atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range perSecond {
				if l.take([]byte("key"), 7) {
					got.Add(1)
				}
			}
		})
	}
	wg.Wait()
	// Who is let off has been beaten twice, by one who was not.
	if n := got.Load(); n < perSecond || n > perSecond*(workers+1)/2 {
		t.Errorf("%d replies, %d a second are allowed", n, perSecond)
	}
}

// A worker whose batch was taken a little earlier finds a full bucket full, too.
func TestBucketOfLateWorker(t *testing.T) {
	const perSecond = 1000
	l := limitedTo(perSecond, 0)
	for range perSecond {
		l.take([]byte("key"), 5*second)
	}
	for _, late := range []int64{1, 1000, second / 2} {
		if l.take([]byte("key"), 5*second-late) {
			t.Errorf("%d µs late: one more reply", late)
		}
	}
}

// limitedResponder answers as over UDP, with a limit of one reply.
func limitedResponder(t testing.TB, a Authority, slip int, exempt ...string) *Responder {
	t.Helper()
	s := *everything
	s.limiter = limitedTo(1, slip, exempt...)
	r := newResponder(a)
	r.use(&s)
	r.moment = second
	return r
}

// shopCluster knows a forwarder, a cache and the cluster's own DNS.
func shopCluster(t testing.TB) *zones.Store {
	t.Helper()
	b, err := zones.NewBuilder(zones.Config{
		Zones:   []zones.Zone{zones.DefaultZone("registry.local")},
		Reverse: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
		Clients: zones.Clients{
			TrustedForwarders: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")},
			SharedCaches:      []netip.Prefix{netip.MustParsePrefix("192.0.2.2/32")},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	service := func(namespace, name string, addrs ...string) *registry.Service {
		sl := &registry.Slice{Namespace: namespace, Name: name + "-1", Service: name, Ports: []registry.Port{{Name: "http", Number: 80}}}
		var endpoints []registry.Endpoint
		for _, a := range addrs {
			endpoints = append(endpoints, registry.Endpoint{Addr: netip.MustParseAddr(a), Zone: "a", Ready: true, Serving: true})
		}
		sl.Endpoints = registry.NewEndpoints(endpoints...)
		return &registry.Service{Key: registry.Key{Namespace: namespace, Name: name}, Exists: true, Slices: []*registry.Slice{sl}}
	}
	out := &zones.Store{}
	out.Publish(b.Build([]*registry.Service{
		service("shop", "web", "10.0.0.1", "10.0.0.2"), service("shop", "db", "10.0.0.3"), service("kube-system", "kube-dns", "192.0.2.3"),
	}, time.Unix(1_800_000_000, 0)))
	return out
}

// Which replies are of one kind, and to whom: of two the second one is beyond the limit.
func TestLimitedReplies(t *testing.T) {
	const (
		other     = "other"     // it has a bucket of its own
		truncated = "truncated" // come over TCP
		refused   = "refused"   // an error as it is
	)
	from := func(addr string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(addr), 4711) }
	plain := func(name string, typ uint16) []byte { return query1(0, in(name, typ)) }
	seen := opt(1232, 0, option(optionCookie, goodCookieOf("198.51.100.9")...))
	for _, c := range []struct {
		what          string
		first, second []byte
		from          [2]string
		want          string
	}{
		{"the same again", plain("web", dns.TypeA), plain("web", dns.TypeA), [2]string{}, truncated},
		{"in other letters", plain("web", dns.TypeA), plain("WEB", dns.TypeA), [2]string{}, truncated},
		{"of another type", plain("web", dns.TypeA), plain("web", dns.TypeSRV), [2]string{}, truncated},
		{"a neighbour", plain("web", dns.TypeA), plain("web", dns.TypeA), [2]string{"198.51.100.9", "198.51.100.200"}, truncated},
		{"a neighbour in IPv6", plain("web", dns.TypeA), plain("web", dns.TypeA), [2]string{"2001:db8:1:200::1", "2001:db8:1:2ff::2"}, truncated},
		{"in IPv6 form", plain("web", dns.TypeA), plain("web", dns.TypeA), [2]string{"198.51.100.9", "::ffff:198.51.100.9"}, truncated},
		{"another network", plain("web", dns.TypeA), plain("web", dns.TypeA), [2]string{"198.51.100.9", "198.51.101.9"}, other},
		{"another network in IPv6", plain("web", dns.TypeA), plain("web", dns.TypeA), [2]string{"2001:db8:1:200::1", "2001:db8:1:300::1"}, other},
		{"another Service", plain("web", dns.TypeA), plain("db", dns.TypeA), [2]string{}, other},
		{"with EDNS", plain("web", dns.TypeA), query1(0, in("web", dns.TypeA), opt(1232, 0)), [2]string{}, truncated},

		{"two names that are not", plain("x1", dns.TypeA), plain("x2", dns.TypeAAAA), [2]string{}, truncated},
		{"one that is and one that is not", plain("web", dns.TypeA), plain("x2", dns.TypeA), [2]string{}, other},
		{"a zone has nothing to do with another", plain("x1", dns.TypeA), plain("9.9.9.10.in-addr.arpa.", dns.TypePTR), [2]string{}, other},
		{"two addresses that are not", plain("8.9.9.10.in-addr.arpa.", dns.TypePTR), plain("9.9.9.10.in-addr.arpa.", dns.TypePTR), [2]string{}, truncated},
		{"two that are", plain("1.0.0.10.in-addr.arpa.", dns.TypePTR), plain("3.0.0.10.in-addr.arpa.", dns.TypePTR), [2]string{}, other},
		{"scopes without number", plain("x1.prefer._zone.web", dns.TypeA), plain("x2.prefer._zone.web", dns.TypeA), [2]string{}, truncated},
		{"or with nothing in them", plain("x1.pin._node.web", dns.TypeA), plain("x2.pin._zone.web", dns.TypeA), [2]string{}, truncated},

		{"two errors", plain("example.com.", dns.TypeA), plain("example.net.", dns.TypeA), [2]string{}, refused},
		{"of any kind", message(2<<11, [4]int{1, 0, 0, 0}, in("web", dns.TypeA)), plain("example.net.", dns.TypeA), [2]string{}, refused},
		{"and of any class", ch("version.bind.", dns.TypeTXT), plain("example.net.", dns.TypeA), [2]string{}, refused},
		{"a zone transfer", plain("example.com.", dns.TypeA), plain("registry.local.", dns.TypeAXFR), [2]string{}, "notimp"},

		{"who has shown that he is there", query1(0, in("web", dns.TypeA), seen), query1(0, in("web", dns.TypeA), seen), [2]string{"198.51.100.9", "198.51.100.9"}, other},
		{"who has another's cookie", query1(0, in("web", dns.TypeA), seen), query1(0, in("web", dns.TypeA), seen), [2]string{"198.51.100.8", "198.51.100.8"}, truncated},
		{"a trusted forwarder", plain("web", dns.TypeA), plain("web", dns.TypeA), [2]string{"192.0.2.1", "192.0.2.1"}, other},
		{"a shared cache", plain("web", dns.TypeA), plain("web", dns.TypeA), [2]string{"192.0.2.2", "192.0.2.2"}, other},
		{"the cluster's DNS", plain("web", dns.TypeA), plain("web", dns.TypeA), [2]string{"192.0.2.3", "192.0.2.3"}, other},
		{"these take nothing from their neighbours", plain("web", dns.TypeA), plain("web", dns.TypeA), [2]string{"192.0.2.3", "192.0.2.4"}, other},
		{"nor do they have any of theirs", plain("web", dns.TypeA), plain("web", dns.TypeA), [2]string{"192.0.2.4", "192.0.2.5"}, truncated},
		{"one who is exempt", plain("web", dns.TypeA), plain("web", dns.TypeA), [2]string{"203.0.113.7", "203.0.113.8"}, other},
		{"and errors to him", plain("example.com.", dns.TypeA), plain("example.com.", dns.TypeA), [2]string{"203.0.113.7", "203.0.113.8"}, other},
	} {
		t.Run(c.what, func(t *testing.T) {
			store := shopCluster(t)
			for i, a := range c.from {
				if a == "" {
					c.from[i] = "198.51.100.9"
				}
			}
			for _, slip := range []int{1, 0} {
				r := limitedResponder(t, store, slip, "203.0.113.0/24")
				whole := limitedResponder(t, store, slip).Respond(nil, c.second, from(c.from[1]), Via{UDP, local})
				if out := r.Respond(nil, c.first, from(c.from[0]), Via{UDP, local}); len(out) == 0 {
					t.Fatal("no reply to the first query")
				}
				out := r.Respond(nil, c.second, from(c.from[1]), Via{UDP, local})
				if c.want != other && slip == 0 {
					if len(out) > 0 {
						t.Fatalf("beyond the limit it is answered: %x", out)
					}
					continue
				}
				var m, all dns.Msg
				if err := m.Unpack(out); err != nil {
					t.Fatal(err)
				}
				if err := all.Unpack(whole); err != nil {
					t.Fatal(err)
				}
				records := len(m.Answer) + len(m.Ns)
				got := other
				switch {
				case m.Truncated && m.Rcode == dns.RcodeSuccess && records == 0:
					got = truncated
				case m.Rcode == dns.RcodeRefused && c.want != other:
					got = refused
				case m.Rcode == dns.RcodeNotImplemented:
					got = "notimp"
				case m.Truncated || m.Rcode != all.Rcode || records != len(all.Answer)+len(all.Ns):
					t.Fatalf("neither what it should be nor the reply:\n%v\n%v", &m, &all)
				}
				if got != c.want {
					t.Fatalf("it is %s, want %s:\n%v", got, c.want, &m)
				}
				if got != other && len(out) > len(c.second)+optSize+optionSize+cookieSize {
					t.Errorf("the reply has %d octets, the query %d", len(out), len(c.second))
				}
				// Over TCP there is no limit, and the same Responder may answer there.
				r.moment = 0
				out = r.Respond(nil, c.second, from(c.from[1]), Via{TCP, local})
				if err := m.Unpack(out); err != nil || m.Truncated {
					t.Errorf("over TCP: %v %v", err, &m)
				}
			}
		})
	}
}

func goodCookieOf(addr string) []byte {
	c, _ := everything.cookies.appendReply(nil, clientCookie, netip.MustParseAddr(addr))
	return c
}

// One in so many slips, whoever asks; the counters tell.
func TestSlip(t *testing.T) {
	for _, slip := range []int{0, 1, 2, 10} {
		r := limitedResponder(t, shopCluster(t), slip)
		const n = 20_000
		replies := 0
		for range n + 1 {
			if len(r.Respond(nil, webA0, client, Via{UDP, local})) > 0 {
				replies++
			}
		}
		var c counters
		r.tally.flush(&c)
		slipped, dropped := int(c.load(countLimited)), int(c.load(countLimited+1))
		if slipped+dropped != n || slipped != replies-1 {
			t.Errorf("slip %d: %d replies, %d slipped, %d dropped", slip, replies, slipped, dropped)
		}
		want := 0
		if slip > 0 {
			want = n / slip
		}
		if slipped < want*9/10 || slipped > want*11/10 { // of which a fair coin is far away
			t.Errorf("slip %d: %d of %d", slip, slipped, n)
		}
	}
}

var webA0 = query1(0, in("web", dns.TypeA))

// A server over sockets: one network is answered so much, others go on, and TCP is open.
func TestLimitedServer(t *testing.T) {
	s := start(t, Config{RateLimit: RateLimitConfig{PerSecond: 5, Slip: 2}, Workers: 2})
	ask := func(local string, n int) (whole, truncated int) {
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(local)}, net.UDPAddrFromAddrPort(s.Addrs()[0]))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		before := s.Stats()
		for range n {
			if _, err := c.Write(webA0); err != nil {
				t.Fatal(err)
			}
		}
		answered := func() (n int) {
			now := s.Stats()
			for kind := range now.Responses {
				n += int(now.Responses[kind] - before.Responses[kind])
			}
			return n
		}
		until(t, "all are dealt with", func() bool {
			return answered()+int(s.Stats().LimitDropped-before.LimitDropped) >= n
		})
		buf := make([]byte, 2048)
		for want := answered(); whole+truncated < want; {
			c.SetReadDeadline(time.Now().Add(patience))
			size, err := c.Read(buf)
			if err != nil {
				t.Fatalf("%d and %d of %d replies: %v", whole, truncated, want, err)
			}
			var m dns.Msg
			if err := m.Unpack(buf[:size]); err != nil {
				t.Fatal(err)
			}
			if m.Truncated {
				truncated++
			} else {
				whole++
			}
		}
		return whole, truncated
	}
	began := time.Now()
	whole, truncated := ask("127.0.0.1", 200)
	if most := 5 + int(time.Since(began).Seconds()*5) + 1; whole < 5 || whole > most {
		t.Errorf("%d replies, 5 a second are allowed", whole)
	}
	if truncated < 50 || truncated > 150 {
		t.Errorf("%d of 195 are truncated", truncated)
	}
	if whole, truncated := ask("127.0.1.1", 5); whole != 5 {
		t.Errorf("another network gets %d and %d", whole, truncated)
	}
	c := dial(t, s)
	for range 20 {
		c.Write(framed(t, question("web.shop.registry.local.", dns.TypeA)))
		if m := read(t, c); m.Truncated || len(m.Answer) != 10 {
			t.Fatalf("over TCP: %v", m)
		}
	}
}

// What is told of networks is a line when it begins and one when it is over, and not many.
func TestLimitNotice(t *testing.T) {
	var out lines
	log := slog.New(slog.NewTextHandler(&out, nil))
	l := limitedTo(5, 0)
	one := networkOf(netip.MustParseAddr("192.0.2.77"))
	six := networkOf(netip.MustParseAddr("2001:db8:1:234::1"))
	now := 60 * second
	for i := range 30 {
		now += second
		if i < 10 {
			for range 100 {
				l.notice.note(one, now)
			}
			l.notice.note(six, now)
		}
		l.tell(log, now)
	}
	for part, want := range map[string]int{
		"replies to a network are limited": 2, "network=192.0.2.0/24 perSecond=5": 1, "network=2001:db8:1:200::/56 perSecond=5": 1,
		"are not limited any more": 2, "network=192.0.2.0/24 beyond=1000": 1, "network=2001:db8:1:200::/56 beyond=10": 1,
	} {
		if got := out.count(part); got != want {
			t.Errorf("%d lines say %q, want %d", got, part, want)
		}
	}

	// It begins again later. Of very many networks some are told of, and how many are not.
	now += 3600 * second
	before := out.count("")
	for range 120 {
		now += second
		for i := range 5000 {
			l.notice.note(networkOf(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1})), now)
		}
		l.tell(log, now)
	}
	if n := out.count("") - before; n < noticeLines || n > 3*(noticeLines+1) {
		t.Errorf("%d lines in two minutes of very many networks", n)
	}
	for range 2 * quietFor {
		now += second
		l.tell(log, now)
	}
	if began, over := out.count("replies to a network are limited"), out.count("any more"); began != over {
		t.Errorf("%d lines that it begins, %d that it is over", began, over)
	}
	for i := range l.notice.notes {
		if n := l.notice.notes[i].network.Load(); n != 0 {
			t.Errorf("note %d is still of %v", i, networkPrefix(n))
		}
	}
}

// Other settings have buckets of their own, the same ones go on with theirs.
func TestLimiterStays(t *testing.T) {
	c := RateLimitConfig{PerSecond: 3, Slip: 2, Exempt: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}
	l := (*limiter)(nil).with(c)
	if l == nil || l.with(c) != l {
		t.Error("the same settings make another limiter")
	}
	for _, other := range []RateLimitConfig{{PerSecond: 4, Slip: 2, Exempt: c.Exempt}, {PerSecond: 3, Slip: 1, Exempt: c.Exempt}, {PerSecond: 3, Slip: 2}, {}} {
		if next := l.with(other); next == l || (next == nil) != (other.PerSecond == 0) {
			t.Errorf("%+v: %v", other, next)
		}
	}
	var none *limiter
	if none.with(RateLimitConfig{}) != nil || none.now() != 0 {
		t.Error("no limit is one")
	}
}

func TestCheckRateLimit(t *testing.T) {
	for n, ok := range map[int]bool{-1: false, 0: true, 1: true, 100_000: true, 100_001: false} {
		if err := CheckRateLimit(n); (err == nil) != ok {
			t.Errorf("%d replies a second: %v", n, err)
		}
	}
	for n, ok := range map[int]bool{-1: false, 0: true, 1: true, 100: true, 101: false} {
		if err := CheckSlip(n); (err == nil) != ok {
			t.Errorf("slip %d: %v", n, err)
		}
	}
}

// One network's addresses, forged, get no more octets than were sent in their name, whatever
// is asked.
func TestReflection(t *testing.T) {
	const n = 10_000 // queries within a second
	for _, c := range []struct {
		what  string
		query func(i int) []byte
	}{
		{"an answer of many records", func(int) []byte { return query1(0, bigA, opt(1232, 0)) }},
		{"without EDNS", func(int) []byte { return query1(0, bigA) }},
		{"ANY", func(int) []byte { return query1(0, in("big", dns.TypeANY), opt(1232, 0)) }},
		{"no such names", func(i int) []byte { return query1(0, in(fmt.Sprintf("x%d", i), dns.TypeA), opt(1232, 0)) }},
		{"scopes", func(i int) []byte {
			return query1(0, in(fmt.Sprintf("x%d.prefer._zone.web", i), dns.TypeA), opt(1232, 0))
		}},
		{"errors", func(int) []byte { return query1(0, in("example.com.", dns.TypeA), opt(1232, 0)) }},
	} {
		octets := func(l *limiter) (in, out int) {
			s := *plain
			s.limiter = l
			r := newResponder(cluster(t))
			r.use(&s)
			for i := range n {
				if l != nil {
					r.moment = second + int64(i)*second/n
				}
				q := c.query(i)
				from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 53)
				in, out = in+len(q), out+len(r.Respond(nil, q, from, Via{UDP, local}))
			}
			return in, out
		}
		in, all := octets(nil)
		_, some := octets(limitedTo(5, 2))
		t.Logf("%s: %.2f of what came, without a limit %.2f", c.what, float64(some)/float64(in), float64(all)/float64(in))
		if some > in {
			t.Errorf("%s: %d octets for %d", c.what, some, in)
		}
	}
}

// What is beyond the limit no upstream is asked.
func TestLimitedBeforeUpstream(t *testing.T) {
	r := limitedResponder(t, shopCluster(t), 1)
	r.passes = true
	q := query1(0, in("example.com.", dns.TypeA))
	if out := r.Respond(nil, q, client, Via{UDP, local}); !r.passed || len(out) > 0 {
		t.Fatalf("it is not passed on: %x", out)
	}
	// Such names are without number: any other one is of the same kind.
	for _, name := range []string{"example.com.", "x1.example.com.", "example.net."} {
		out := r.Respond(nil, query1(0, in(name, dns.TypeA)), client, Via{UDP, local})
		if r.passed || len(out) < headerSize || out[2]&(flagTC>>8) == 0 {
			t.Errorf("%s, beyond the limit: passed %v, %x", name, r.passed, out)
		}
	}
	for _, name := range []string{"web", "x1"} {
		if out := r.Respond(nil, query1(0, in(name, dns.TypeA)), client, Via{UDP, local}); len(out) < headerSize || out[2]&(flagTC>>8) != 0 {
			t.Errorf("%s is of the same kind: %x", name, out)
		}
	}
	neighbour := netip.AddrPortFrom(netip.MustParseAddr("203.0.113.1"), 4711)
	if r.Respond(nil, q, neighbour, Via{UDP, local}); !r.passed {
		t.Error("another network has no bucket of its own")
	}
}

// Names outside by chance, over sockets: the upstream is asked for as many as the limit lets.
func TestLimitedUpstream(t *testing.T) {
	s := start(t, Config{RateLimit: RateLimitConfig{PerSecond: 5}, Workers: 1, Upstream: []netip.AddrPort{elsewhere(t, has192)}})
	c, err := net.Dial("udp", s.Addrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const n = 100
	began := time.Now()
	for i := range n {
		if _, err := c.Write(query1(0, in(fmt.Sprintf("x%d.example.com.", i), dns.TypeA))); err != nil {
			t.Fatal(err)
		}
	}
	var st Stats
	until(t, "not all are dealt with", func() bool {
		st = s.Stats()
		return st.Upstream+st.LimitDropped == n
	})
	if most := 5 + uint64(time.Since(began).Seconds()*5) + 1; st.Upstream < 5 || st.Upstream > most {
		t.Errorf("%d are passed on, 5 a second are allowed", st.Upstream)
	}
}
