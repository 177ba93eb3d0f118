//go:build linux

package diff_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"epdns/test/run"

	"github.com/miekg/dns"
)

// types are what is asked for at every name.
var types = []uint16{
	dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypePTR, dns.TypeTXT, dns.TypeNS, dns.TypeSOA,
	dns.TypeCNAME, dns.TypeMX, dns.TypeHTTPS, dns.TypeANY, 65280,
}

// seed is that of everything that is left to chance here.
const seed = 1

func TestDifferences(t *testing.T) {
	total := newCounts()
	clusters := []struct {
		what      string
		manifests func(t *testing.T, dir string) facts
		reverse   []string
	}{
		{"the sample cluster", from(sample), []string{"10.0.0.0/8", "fd00::/8"}},
		{"the cluster of the tests", from(testCluster, "quiet.shop"), []string{"10.0.0.0/8", "2001:db8::/32"}},
		{"a large cluster", large, []string{"10.0.0.0/8", "fd00::/8"}},
	}
	compared := 0
	for _, c := range clusters {
		t.Run(c.what, func(t *testing.T) {
			dir := t.TempDir()
			f := c.manifests(t, dir)
			if err := openUp(dir); err != nil {
				t.Fatal(err)
			}
			args := []string{"--manifests", dir, "--zone", zoneName, "--nameserver", "192.0.2.53", "--nameserver", "2001:db8::53"}
			apexes := []string{zoneName}
			for _, r := range c.reverse {
				args = append(args, "--reverse", r)
				apexes = append(apexes, reverseApex(r))
			}
			serve(t, args...)
			var zones []*zone
			// Until what is answered and what is transferred have the same serial.
			run.Eventually(t, func() (err error) {
				zones = nil
				for _, apex := range apexes {
					z, err := transfer(dir, apex)
					if err != nil {
						return err
					}
					zones = append(zones, z)
				}
				r, err := dns.Exchange(new(dns.Msg).SetQuestion(zoneName, dns.TypeSOA), ours.address())
				if err != nil {
					return err
				}
				for _, z := range zones {
					if len(r.Answer) != 1 || r.Answer[0].(*dns.SOA).Serial != z.serial() {
						return fmt.Errorf("in the transfer of %s the serial is %d, asked for it is %v", z.apex, z.serial(), r.Answer)
					}
				}
				return nil
			})
			for s := nsd; s < servers; s++ {
				start(t, s, zones)
			}
			w := newWorld(zones, f)
			w.study()
			w.checkTransfer(t)
			began := time.Now()
			n := compareAll(t, w, w.names())
			n.log(t, fmt.Sprintf("%d records, %d names that exist, %v", len(w.truth), len(w.types), time.Since(began).Round(time.Millisecond)))
			total.add(n)
			compared++
		})
	}
	for _, c := range classes {
		if total.classes[c.name] == nil && compared == len(clusters) { // else not all were run
			t.Errorf("nothing differs by %q", c.name)
		}
	}
	total.log(t, "in all")
}

// from copies manifests. The Services named have nothing, but for a port http.
func from(manifests string, empty ...string) func(*testing.T, string) facts {
	return func(t *testing.T, dir string) facts {
		if err := os.CopyFS(dir, os.DirFS(manifests)); err != nil {
			t.Fatal(err)
		}
		f := newFacts(zoneName)
		for _, svc := range empty {
			f.service(svc+"."+zoneName, "_http._tcp")
		}
		return f
	}
}

func large(t *testing.T, dir string) facts {
	f, err := generate(dir, seed)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func reverse(addr string) string {
	name, err := dns.ReverseAddr(addr)
	if err != nil {
		panic(err)
	}
	return name
}

// reverseApex is the reverse zone of a prefix of whole octets or nibbles.
func reverseApex(prefix string) string {
	addr, bits, _ := strings.Cut(prefix, "/")
	var n int
	fmt.Sscan(bits, &n)
	name := reverse(addr)
	parts, each := 4, 8
	if strings.Contains(addr, ":") {
		parts, each = 32, 4
	}
	for range parts - n/each {
		name = parent(name)
	}
	return name
}

// crowd is at most how many names of a kind are asked for below one name.
const crowd = 24

// names are those to ask for.
func (w *world) names() []string {
	rnd := rand.New(rand.NewPCG(seed, 1))
	all := map[string]bool{}

	// Of most Services that are like others the views are left out.
	thin := map[string]bool{}
	for _, svc := range slices.Sorted(maps.Keys(w.facts.services)) {
		s := w.facts.services[svc]
		thin[svc] = s.object != nil && !s.placed() && !dns.IsSubDomain("states."+zoneName, svc) && rnd.IntN(6) > 0
	}

	// What exists, but of many alike some. Whether they have names below is part of
	// their kind.
	above := map[string]bool{}
	for name := range w.types {
		above[parent(name)] = true
	}
	kinds := map[string][]string{}
	for _, name := range slices.SortedFunc(maps.Keys(w.types), byName) {
		if m := w.facts.means(name); m != nil && thin[m.svc] && m.viewed {
			continue
		}
		k := fmt.Sprint(parent(name), w.types[name], above[name])
		kinds[k] = append(kinds[k], name)
	}
	var existing []string
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		names := kinds[k]
		rnd.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		alias := w.sets[set{names[0], dns.TypeCNAME}] != nil
		if !above[names[0]] && !alias && len(names) > crowd {
			names = names[:crowd]
		}
		existing = append(existing, names...)
	}
	for i, name := range existing {
		all[name] = true
		// Others below and beside, of some.
		if i%4 == 0 {
			for _, label := range []string{"x", "*", "_tcp", "10-0-0-1", "www.x", "0", "a\\.b", strings.Repeat("y", 63)} {
				if rnd.IntN(4) == 0 {
					all[label+"."+name] = true
				}
			}
			all[fmt.Sprintf("x%07x.%s", rnd.Uint32()>>4, parent(name))] = true
			all[mutate(rnd, name)] = true
			all[mixCase(rnd, name)] = true
		}
	}
	for name := range w.facts.bare {
		all[name] = true
		all["x."+name] = true
	}
	for _, svc := range slices.Sorted(maps.Keys(w.facts.services)) {
		if thin[svc] {
			continue
		}
		for name := range w.facts.services[svc].names(rnd, svc) {
			all[name] = true
		}
	}
	for _, list := range [][]string{slices.Collect(maps.Keys(w.facts.spellings)), slices.Collect(maps.Keys(w.facts.outside)), {
		".", "local.", "arpa.", "in-addr.arpa.", "ip6.arpa.", "example.com.", "xregistry.local.", "11.in-addr.arpa.", "1.0.0.11.in-addr.arpa.",
		"256.0.0.10.in-addr.arpa.", "01.0.0.10.in-addr.arpa.", "1.1.0.0.0.10.in-addr.arpa.", "x.10.in-addr.arpa.", "*.10.in-addr.arpa.",
		"g.d.f.ip6.arpa.", "10.d.f.ip6.arpa.", "dns." + zoneName, "ns.dns." + zoneName, "x.ns.dns." + zoneName, "x.dns-version." + zoneName, "svc." + zoneName,
		"\\000." + zoneName, "\\255\\ ." + zoneName,
		strings.Repeat("abcdefghi.", 24) + zoneName[len("registry."):],
		strings.Repeat("abcdefghi.", 23) + zoneName,
	}} {
		for _, name := range list {
			all[name] = true
		}
	}
	maps.DeleteFunc(all, func(name string, _ bool) bool {
		_, err := question{name: name}.append(nil, 0) // too long
		return err != nil
	})
	return slices.Sorted(maps.Keys(all))
}

// mutate changes a letter or digit of the first labels.
func mutate(rnd *rand.Rand, name string) string {
	b := []byte(name)
	i := rnd.IntN(max(1, min(len(b)-1, 24)))
	if b[i] == '.' || b[i] == '\\' {
		return name
	}
	b[i] = "0123456789abcdefghijklmnopqrstuvwxyz-_"[rnd.IntN(38)]
	return string(b)
}

// mixCase writes a name in another way.
func mixCase(rnd *rand.Rand, name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' && rnd.IntN(2) == 0 {
			return r - 'a' + 'A'
		}
		return r
	}, name)
}

// compareAll asks for all types at the names in all ways, and compares the replies.
func compareAll(t *testing.T, w *world, names []string) *counts {
	const workers = 12 // each with two sockets to each server
	// mostSilent is when to give up: a server that has ended would be waited for all day.
	const mostSilent = 20
	var silent atomic.Int32
	todo := make(chan string)
	total := newCounts()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			a := asker{of: []server{ours, nsd, knot, bind}}
			defer a.close()
			n := newCounts()
			for name := range todo {
				for _, qtype := range types {
					for way := range ways {
						q := question{name, qtype, way}
						if silent.Load() > mostSilent {
							continue
						}
						replies, err := a.ask(q)
						if err != nil {
							n.fault("no reply", err)
							silent.Add(1)
							continue
						}
						n.compare(w, q, replies)
					}
				}
			}
			mu.Lock()
			defer mu.Unlock()
			total.add(n)
		})
	}
	for _, name := range names {
		todo <- name
	}
	close(todo)
	wg.Wait()
	total.names = len(names)
	if b := total.exists.broken(func(string) bool { return false }); len(b) > 0 {
		t.Errorf("%s\n    and %d more like it", b[0], len(b)-1)
	}
	kinds := slices.Sorted(maps.Keys(total.faults))
	for i, kind := range kinds {
		const most = 20
		if i == most {
			t.Errorf("and of %d more kinds", len(kinds)-most)
			break
		}
		t.Errorf("%v\n    and %d more like it", total.faults[kind].err, total.faults[kind].times-1)
	}
	return total
}
