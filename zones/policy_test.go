package zones

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"epdns/registry"
)

const web = "web.shop.registry.local."

// serving makes Service shop/web. Its knobs are written "topology=nearest; min=2", and
// trafficDistribution among them. An endpoint is an address and what else there is to
// say, in any order:
//
//	10.0.0.1 n1/a/r host=web-0 pod=p zones=a,b nodes=n1 slice=2 created=7 port=http:80 closing
//
// n1/a/r are its node, zone and region, with a dash for what is not known. It is ready
// unless it is "unready" (it serves), "closing" (it serves while it terminates), "dead"
// (it does not serve) or "leaving" (ready while it terminates). What is of a slice counts
// for all of the same slice.
func serving(t testing.TB, knobs string, endpoints ...string) *registry.Service {
	t.Helper()
	svc := &registry.Service{Key: registry.Key{Namespace: "shop", Name: "web"}, Exists: true, Object: &registry.Object{}}
	for knob := range strings.SplitSeq(knobs, ";") {
		if k, v, ok := strings.Cut(strings.TrimSpace(knob), "="); k == "trafficDistribution" {
			svc.Object.TrafficDistribution = v
		} else if ok {
			svc.Object.Annotations = append(svc.Object.Annotations, registry.Pair{Key: k, Value: v})
		}
	}
	if p := Problems(svc); len(p) > 0 {
		t.Fatal(p)
	}
	for _, text := range endpoints {
		e := registry.Endpoint{Ready: true, Serving: true}
		slice, created := "web-1", int64(0)
		ports := []registry.Port{{Name: "http", Number: 8080}}
		var zones, nodes []string
		for i, word := range strings.Fields(text) {
			k, v, _ := strings.Cut(word, "=")
			switch {
			case i == 0:
				e.Addr = netip.MustParseAddr(word)
			case k == "host":
				e.Hostname = v
			case k == "pod":
				e.Pod = v
			case k == "zones":
				zones = strings.Split(v, ",")
			case k == "nodes":
				nodes = strings.Split(v, ",")
			case k == "slice":
				slice = "web-" + v
			case k == "created":
				created, _ = strconv.ParseInt(v, 10, 64)
			case k == "port":
				name, number, _ := strings.Cut(v, ":")
				n, _ := strconv.Atoi(number)
				ports = []registry.Port{{Name: name, Number: uint16(n)}}
			case word == "unready":
				e.Ready = false
			case word == "closing":
				e.Ready, e.Terminating = false, true
			case word == "leaving":
				e.Terminating = true
			case word == "dead":
				e.Ready, e.Serving = false, false
			case strings.Count(word, "/") == 2:
				p := strings.Split(strings.ReplaceAll(word, "-/", "/"), "/")
				e.Node, e.Zone, e.Region = p[0], p[1], strings.TrimSuffix(p[2], "-")
			default:
				t.Fatalf("%q: what is %q?", text, word)
			}
		}
		if zones != nil || nodes != nil {
			e.Hints = registry.NewHints(zones, nodes)
		}
		i := slices.IndexFunc(svc.Slices, func(s *registry.Slice) bool { return s.Name == slice })
		if i < 0 {
			i = len(svc.Slices)
			svc.Slices = append(svc.Slices, &registry.Slice{Namespace: "shop", Name: slice, Service: "web"})
		}
		sl := svc.Slices[i]
		extend(sl, e)
		sl.Created, sl.Ports = max(sl.Created, created), ports
	}
	slices.SortFunc(svc.Slices, func(a, b *registry.Slice) int { return strings.Compare(a.Name, b.Name) })
	return svc
}

// asking asks one Set, always with the same chance.
type asking struct {
	testing.TB
	set    *Set
	answer *Answer
	limit  int // of the message
	from   netip.Addr
	wire   []byte
}

func asks(t testing.TB, set *Set) *asking {
	a := NewAnswer()
	a.client.Rand = rand.NewPCG(5, 6)
	return &asking{TB: t, set: set, answer: a, limit: 1 << 16, from: netip.MustParseAddr("203.0.113.1")}
}

// served is the Set of one Service in zone registry.local.
func served(t testing.TB, svc ...*registry.Service) *Set {
	t.Helper()
	b, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}})
	if err != nil {
		t.Fatal(err)
	}
	return b.Build(svc, someTime)
}

// place reads n1/a/r. It is "" for one that is not known, and "neutral" for no place.
func (k *asking) place(at string) (w where) {
	if at == "" || at == "neutral" {
		return w
	}
	p := strings.Split(strings.ReplaceAll(at, "-/", "/"), "/")
	ids := &k.set.ids
	lowered := func(text string) []byte { return []byte(strings.ToLower(text)) }
	return where{ids.nodes.find(lowered(p[0])), ids.zones.find(lowered(p[1])), ids.regions.find(lowered(strings.TrimSuffix(p[2], "-")))}
}

// at asks as somebody who is at a place.
func (k *asking) at(place, name string, typ uint16) *dns.Msg {
	k.Helper()
	return k.ask(&Question{Name: k.parse(name), Type: typ, From: k.from}, func(a *asker) {
		a.neutral, a.where = place == "neutral", k.place(place)
	})
}

func (k *asking) parse(name string) []byte {
	wire, err := ParseName(name)
	if err != nil {
		k.Fatal(err)
	}
	return wire
}

// addrs asks for A records as at does, but reads them by itself, which is faster where
// thousands are counted.
func (k *asking) addrs(place, name string) (out []netip.Addr) {
	k.Helper()
	q := Question{Name: k.parse(name), Type: TypeA, From: k.from}
	n := k.message(&q, func(a *asker) { a.neutral, a.where = place == "neutral", k.place(place) })
	for at := headerSize + len(q.Name) + 4; n.Answer > 0; n.Answer-- {
		addr, _ := netip.AddrFromSlice(k.wire[at+fixedSize : at+sizeA])
		out = append(out, addr)
		at += sizeA
	}
	return out
}

// ask asks; change may change who asks.
func (k *asking) ask(q *Question, change func(*asker)) *dns.Msg {
	k.Helper()
	k.message(q, change)
	var m dns.Msg
	if err := m.Unpack(k.wire); err != nil {
		k.Fatalf("%s %s: %v: %x", nameText(q.Name), dns.TypeToString[q.Type], err, k.wire)
	}
	return &m
}

// message leaves the reply in k.wire.
func (k *asking) message(q *Question, change func(*asker)) Counts {
	a := k.answer
	k.set.Lookup(q, a)
	if change != nil && a.service != nil && !a.isNegative && a.single == none {
		a.asked, a.asker = true, asker{}
		k.set.locate(q, &a.asker)
		change(&a.asker)
	}
	msg := append(append(k.wire[:0], make([]byte, headerSize)...), q.Name...)
	msg[5] = 1
	msg = append(msg, byte(q.Type>>8), byte(q.Type), 0, classIN)
	msg, n, cut := a.AppendTo(msg, 0, k.limit, k.limit)
	msg[2], msg[3] = 0x84, a.RCode
	if cut {
		msg[2] |= 2
	}
	msg[6], msg[7] = byte(n.Answer>>8), byte(n.Answer)
	msg[8], msg[9] = byte(n.Authority>>8), byte(n.Authority)
	msg[10], msg[11] = byte(n.Additional>>8), byte(n.Additional)
	k.wire = msg
	return n
}

// rdata is the text of a record after its type; of an SRV record the label of its
// target, with the priority where shown says so.
func rdata(rr dns.RR) string {
	switch rr := rr.(type) {
	case *dns.A:
		return rr.A.String()
	case *dns.AAAA:
		return rr.AAAA.String()
	case *dns.SRV:
		label, _, _ := strings.Cut(rr.Target, ".")
		return label
	}
	_, text, _ := strings.Cut(rr.String(), dns.TypeToString[rr.Header().Rrtype]+"\t")
	return text
}

// texts are the answers in their order.
func texts(m *dns.Msg) (out []string) {
	for _, rr := range m.Answer {
		out = append(out, rdata(rr))
	}
	return out
}

// addrs are the answered addresses, sorted, by their last part, or the RCODE.
func short(m *dns.Msg) string {
	out := texts(m)
	if len(out) == 0 {
		return dns.RcodeToString[m.Rcode]
	}
	for i := range out {
		out[i] = out[i][strings.LastIndexAny(out[i], ".:-")+1:]
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	return strings.Join(out, " ")
}

// tiers shows SRV records as "1 2 | 3": by priority, the last parts of their targets.
func tiers(m *dns.Msg) string {
	by := map[uint16][]string{}
	var order []uint16
	for _, rr := range m.Answer {
		p := rr.(*dns.SRV).Priority
		if _, ok := by[p]; !ok {
			order = append(order, p)
		}
		text := rdata(rr)
		by[p] = append(by[p], text[strings.LastIndexAny(text, "-")+1:])
	}
	slices.Sort(order)
	var out []string
	for _, p := range order {
		slices.Sort(by[p])
		out = append(out, strconv.Itoa(int(p))+": "+strings.Join(by[p], " "))
	}
	if out == nil {
		return dns.RcodeToString[m.Rcode]
	}
	return strings.Join(out, " | ")
}

// chiSquare is how far counts are from what is expected of each.
func chiSquare(counts map[string]float64, expected float64) (sum float64) {
	for _, n := range counts {
		sum += (n - expected) * (n - expected) / expected
	}
	return sum
}

// atMost is what chi-square exceeds by chance once in 10,000 times (Wilson and Hilferty,
// 1931).
func atMost(free int) float64 {
	v := 2 / (9 * float64(free))
	return float64(free) * math.Pow(1-v+3.719*math.Sqrt(v), 3)
}

func near(got, want, within float64) bool { return math.Abs(got-want) <= within }

// Weights take who has 0 out of every answer, unless there is nobody else; the more
// exact entry counts.
func TestWeightOf(t *testing.T) {
	for _, c := range []struct {
		what, knobs string
		endpoints   []string
		a, aaaa     string
		srv         string
		weights     string // of the SRV records, in order of the targets
	}{
		{"none", "", []string{"10.0.0.1 n1/a/r", "10.0.0.2 n2/b/r"}, "1 2", "NOERROR", "1 2", "1 1"},
		{"zone", "weights=zone:a=0", []string{"10.0.0.1 n1/a/r", "10.0.0.2 n2/b/r"}, "2", "NOERROR", "2", "1"},
		{"node beats zone", "weights=zone:a=0, node:n1=4", []string{"10.0.0.1 n1/a/r", "10.0.0.2 n2/a/r", "10.0.0.3 n3/b/r"}, "1 3", "NOERROR", "1 3", "4 1"},
		{"zone does not beat node", "weights=node:n1=0, zone:a=9", []string{"10.0.0.1 n1/a/r", "10.0.0.2 n2/a/r"}, "2", "NOERROR", "2", "9"},
		{"pod beats node", "weights=node:n1=0, p=7", []string{"10.0.0.1 n1/a/r pod=p", "10.0.0.2 n1/a/r"}, "1", "NOERROR", "1", "7"},
		{"address beats node", "weights=node:n1=0, 10-0-0-2=7", []string{"10.0.0.1 n1/a/r pod=p", "10.0.0.2 n1/a/r"}, "2", "NOERROR", "2", "7"},
		{"host name beats pod name", "weights=p=0, h=3", []string{"10.0.0.1 n1/a/r pod=p host=h", "10.0.0.2 n1/a/r"}, "1 2", "NOERROR", "2 h", "1 3"},
		{"all are 0", "weights=zone:a=0", []string{"10.0.0.1 n1/a/r", "10.0.0.2 n2/a/r"}, "1 2", "NOERROR", "1 2", "1 1"},
		{"all of a family are 0", "weights=zone:a=0", []string{"10.0.0.1 n1/a/r", "10.0.0.2 n2/b/r", "fd00::3 n1/a/r slice=2"}, "2", "3", "2", "1"},
		{"who is left is not ready", "weights=zone:a=0", []string{"10.0.0.1 n1/a/r", "10.0.0.2 n2/b/r unready"}, "1", "NOERROR", "1", "1"},
		{"and is published", "publish=all; weights=zone:a=0", []string{"10.0.0.1 n1/a/r", "10.0.0.2 n2/b/r dead"}, "2", "NOERROR", "2", "1"},
		{"the largest", "weights=zone:a=65535", []string{"10.0.0.1 n1/a/r", "10.0.0.2 n2/b/r"}, "1 2", "NOERROR", "1 2", "65535 1"},
		{"zones in any case", "weights=zone:A=0", []string{"10.0.0.1 n1/A/r", "10.0.0.2 n2/b/r"}, "2", "NOERROR", "2", "1"},
	} {
		t.Run(c.what, func(t *testing.T) {
			k := asks(t, served(t, serving(t, c.knobs, c.endpoints...)))
			if got := short(k.at("", web, dns.TypeA)); got != c.a {
				t.Errorf("A: %s, want %s", got, c.a)
			}
			if got := short(k.at("", web, dns.TypeAAAA)); got != c.aaaa {
				t.Errorf("AAAA: %s, want %s", got, c.aaaa)
			}
			for _, name := range []string{web, "_http._tcp." + web} {
				m := k.at("", name, dns.TypeSRV)
				if got := short(m); got != c.srv {
					t.Errorf("%s SRV: %s, want %s", name, got, c.srv)
				}
				slices.SortFunc(m.Answer, func(a, b dns.RR) int { return strings.Compare(rdata(a), rdata(b)) })
				var weights []string
				for _, rr := range m.Answer {
					weights = append(weights, strconv.Itoa(int(rr.(*dns.SRV).Weight)))
				}
				if got := strings.Join(weights, " "); got != c.weights {
					t.Errorf("%s SRV: weights %s, want %s", name, got, c.weights)
				}
			}
			// What has a name of its own answers to it, whatever its weight.
			for _, e := range c.endpoints {
				addr, _, _ := strings.Cut(e, " ")
				a := netip.MustParseAddr(addr)
				typ := uint16(dns.TypeAAAA)
				if a.Is4() {
					typ = dns.TypeA
				}
				if got := texts(k.at("", dashed(a)+"."+web, typ)); !strings.Contains(e, "dead") && !slices.Equal(got, []string{addr}) {
					t.Errorf("%s by its own name: %v", addr, got)
				}
			}
		})
	}
}

// Each endpoint comes first as often as every other, wherever the answer comes from.
func TestShuffleIsUniform(t *testing.T) {
	const rounds = 10_000
	endpoints := func(nodes ...string) (out []string) {
		for i := range 10 {
			out = append(out, "10.0.0."+strconv.Itoa(i+1)+" "+nodes[i%len(nodes)])
		}
		return out
	}
	for _, c := range []struct {
		what, knobs, at string
		endpoints       []string
		name            string
		n               int // that may be first
	}{
		{"unknown place", "", "", endpoints("n1/a/r", "n2/b/r"), web, 10},
		{"neutral", "order=hash", "neutral", endpoints("n1/a/r", "n2/b/r"), web, 10},
		{"off", "topology=off", "n1/a/r", endpoints("n1/a/r", "n2/b/r"), web, 10},
		{"near first", "", "n1/a/r", endpoints("n1/a/r", "n2/b/r"), web, 5},
		{"limit", "limit=3", "-/-/r", endpoints("n1/a/r", "n2/b/r"), web, 10},
		{"nearest", "topology=nearest", "-/a/r", endpoints("n1/a/r", "n2/b/r"), web, 5},
		{"near in two parts", "", "n1/b/r", endpoints("n1/b/r", "n2/c/r"), web, 5},
		{"pinned", "", "", endpoints("n1/a/r", "n2/b/r"), "b.pin._zone." + web, 5},
	} {
		for _, typ := range []uint16{dns.TypeA, dns.TypeSRV} {
			t.Run(c.what+" "+dns.TypeToString[typ], func(t *testing.T) {
				k := asks(t, served(t, serving(t, c.knobs, c.endpoints...)))
				first, pairs := map[string]float64{}, map[string]float64{}
				rounds := rounds
				if typ == dns.TypeSRV {
					rounds /= 5
				}
				for range rounds {
					if typ == dns.TypeA {
						got := k.addrs(c.at, c.name)
						first[got[0].String()]++
						pairs[got[0].String()+" "+got[1].String()]++
						continue
					}
					got := texts(k.at(c.at, c.name, typ))
					first[got[0]]++
					pairs[got[0]+" "+got[1]]++
				}
				if len(first) != c.n || len(pairs) != c.n*(c.n-1) {
					t.Fatalf("first are %v", first)
				}
				for _, counts := range []map[string]float64{first, pairs} {
					if chi := chiSquare(counts, float64(rounds)/float64(len(counts))); chi > atMost(len(counts)-1) {
						t.Errorf("chi-square %.1f of %d: %v", chi, len(counts), counts)
					}
				}
			})
		}
	}
}

// A is first as often as its weight says; with a limit, whoever is alone in the answer;
// and SRV records have the weights as they were written.
func TestWeightsOfAnswers(t *testing.T) {
	const rounds = 10_000
	four := []string{"10.0.0.1 n1/a/r", "10.0.0.2 n2/a/r", "10.0.0.3 n3/b/r", "10.0.0.4 n4/b/r"}
	const weights = "weights=10-0-0-1=10, 10-0-0-2=20, 10-0-0-3=30, 10-0-0-4=40"
	for _, c := range []struct {
		what, knobs, at, name string
		want                  []float64
	}{
		{"all", weights, "", web, []float64{.1, .2, .3, .4}},
		{"limit", weights + "; limit=1", "", web, []float64{.1, .2, .3, .4}},
		{"near", weights, "-/b/r", web, []float64{0, 0, 3. / 7, 4. / 7}},
		{"nearest", weights + "; topology=nearest", "-/a/r", web, []float64{1. / 3, 2. / 3, 0, 0}},
		{"pinned", weights, "", "b.pin._zone." + web, []float64{0, 0, 3. / 7, 4. / 7}},
		{"off", weights + "; topology=off", "n1/a/r", web, []float64{.1, .2, .3, .4}},
	} {
		t.Run(c.what, func(t *testing.T) {
			k := asks(t, served(t, serving(t, c.knobs, four...)))
			first := map[string]float64{}
			for range rounds {
				first[k.addrs(c.at, c.name)[0].String()]++
			}
			for i, want := range c.want {
				if got := first["10.0.0."+strconv.Itoa(i+1)] / rounds; !near(got, want, 0.05*want) {
					t.Errorf("endpoint %d: %.3f, want %.3f", i+1, got, want)
				}
			}
			for _, rr := range k.at(c.at, c.name, dns.TypeSRV).Answer {
				label, srv := rdata(rr), rr.(*dns.SRV)
				if want := 10 * int(label[len(label)-1]-'0'); int(srv.Weight) != want {
					t.Errorf("SRV %s has weight %d, want %d", label, srv.Weight, want)
				}
			}
		})
	}
	// With a limit of two, the first drawn is by weight, and the second by the weights
	// of those that are left.
	k := asks(t, served(t, serving(t, weights+"; limit=2", four...)))
	in := map[string]float64{}
	for range rounds {
		for _, a := range k.addrs("", web) {
			in[a.String()]++
		}
	}
	for i := range 4 {
		w := float64(i+1) / 10
		want := w
		for j := range 4 {
			if v := float64(j+1) / 10; j != i {
				want += v * w / (1 - v)
			}
		}
		if got := in["10.0.0."+strconv.Itoa(i+1)] / rounds; !near(got, want, 0.05*want) {
			t.Errorf("limit 2: endpoint %d is in %.3f of the answers, want %.3f", i+1, got, want)
		}
	}
}

// many are n endpoints in two zones, on nodes of ten.
func many(n int) (out []string) {
	for i := range n {
		zone := "ab"[i%2 : i%2+1]
		out = append(out, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String()+" "+zone+strconv.Itoa(i/20)+"/"+zone+"/r")
	}
	return out
}

// Replicas, which met the Nodes and endpoints in other orders, give an asker the same
// answer under hash, and everybody the same under fixed.
func TestReplicasAgree(t *testing.T) {
	endpoints := many(60)
	for i := range 12 {
		endpoints[i] += " unready" // on a0 and b0, which spill
	}
	other := slices.Clone(endpoints)
	slices.Reverse(other)
	for _, knobs := range []string{"order=hash; limit=5", "order=hash; topology=nearest", "order=fixed; topology=nearest", "order=hash; limit=5; weights=zone:a=3, 10-0-0-7=0", "order=fixed", "order=fixed; topology=nearest; min=50"} {
		t.Run(knobs, func(t *testing.T) {
			one := asks(t, served(t, serving(t, knobs, endpoints...)))
			b, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}})
			if err != nil {
				t.Fatal(err)
			}
			b.SetNodes([]*registry.Node{{Name: "zz", Zone: "zz", Region: "zz"}, {Name: "b2", Zone: "b", Region: "r"}})
			b.Build([]*registry.Service{behind("b", "shop", "h/-/10.9.0.1"), serving(t, "order=shuffle", other[:20]...)}, someTime)
			for i := range other { // as they came in slices of another layout
				other[i] += " slice=" + strconv.Itoa(i%7)
			}
			two := asks(t, b.Build([]*registry.Service{serving(t, knobs, other...)}, someTime))
			two.answer.client.Rand = rand.NewPCG(8, 9)
			for i := range 50 {
				one.from = netip.AddrFrom4([4]byte{10, 7, byte(i), 1})
				two.from = one.from
				for _, at := range []string{"a1/a/r", "-/b/r", ""} {
					for _, typ := range []uint16{dns.TypeA, dns.TypeSRV} {
						x, y := texts(one.at(at, web, typ)), texts(two.at(at, web, typ))
						if !slices.Equal(x, y) {
							t.Fatalf("asker %v at %q: %v and %v", one.from, at, x, y)
						}
					}
				}
			}
		})
	}
}

// Under hash askers keep what they have, but for what has left; different askers and
// different Services have different ones; who is not known is not hashed.
func TestHash(t *testing.T) {
	endpoints := many(50)
	const knobs = "order=hash; limit=5; topology=off"
	before := asks(t, served(t, serving(t, knobs, endpoints...)))
	after := asks(t, served(t, serving(t, knobs, slices.Delete(slices.Clone(endpoints), 17, 18)...)))
	otherName := serving(t, knobs, endpoints...)
	otherName.Name = "other"
	other := asks(t, served(t, otherName))
	const gone = "10.0.0.17"
	had, subsets, same := 0, map[string]bool{}, 0
	holders := map[string]float64{}
	const askers = 4000
	for i := range askers {
		before.from = netip.AddrFrom4([4]byte{10, 7, byte(i >> 8), byte(i)})
		after.from, other.from = before.from, before.from
		x := texts(before.at("", web, dns.TypeA))
		y := texts(after.at("", web, dns.TypeA))
		z := texts(other.at("", "other.shop.registry.local.", dns.TypeA))
		if slices.Equal(x, z) {
			same++
		}
		for _, a := range x {
			holders[a]++
		}
		slices.Sort(x)
		subsets[strings.Join(x, " ")] = true
		if slices.Contains(x, gone) {
			had++
			x = slices.DeleteFunc(x, func(a string) bool { return a == gone })
		} else if slices.Sort(y); !slices.Equal(x, y) {
			t.Fatalf("asker %d did not have it and had %v, now %v", i, x, y)
		}
		for _, a := range x {
			if !slices.Contains(y, a) {
				t.Fatalf("asker %d lost %s", i, a)
			}
		}
	}
	if !near(float64(had)/askers, 0.1, 0.02) || len(subsets) < askers*9/10 || same > 0 {
		t.Errorf("%d of %d had it, %d subsets, %d askers have the same of another Service", had, askers, len(subsets), same)
	}
	if chi := chiSquare(holders, askers/10); chi > atMost(49) {
		t.Errorf("chi-square of the endpoints %.1f", chi)
	}

	// An IPv6 asker and one of whom a forwarder gives the subnet are hashed likewise.
	for _, q := range []Question{{From: netip.MustParseAddr("fd00::7")}, {Subnet: netip.MustParsePrefix("198.51.100.0/24")}} {
		q.Name, q.Type = before.parse(web), dns.TypeA
		if x, y := texts(before.ask(&q, nil)), texts(before.ask(&q, nil)); !slices.Equal(x, y) {
			t.Errorf("%v %v: %v and %v", q.From, q.Subnet, x, y)
		}
	}
	// Who does not say is not.
	for _, q := range []Question{{Subnet: netip.MustParsePrefix("0.0.0.0/0")}, {Subnet: netip.MustParsePrefix("::/0")}} {
		q.Name, q.Type = before.parse(web), dns.TypeA
		if x, y := texts(before.ask(&q, nil)), texts(before.ask(&q, nil)); slices.Equal(x, y) {
			t.Errorf("%v: twice %v", q.Subnet, x)
		}
	}
	if x, y := texts(before.at("neutral", web, dns.TypeA)), texts(before.at("neutral", web, dns.TypeA)); slices.Equal(x, y) {
		t.Errorf("neutral: twice %v", x)
	}
}

// Fixed is by address within a tier, IPv4 and IPv6 alike.
func TestFixed(t *testing.T) {
	k := asks(t, served(t, serving(t, "order=fixed",
		"10.0.0.9 n1/a/r", "10.0.0.10 n2/a/r", "10.0.0.2 n3/b/r", "9.0.0.1 n4/b/r", "10.0.0.1 n1/a/r", "fd00::2 n1/a/r slice=2", "fd00::1 n3/b/r slice=2")))
	for _, c := range []struct {
		at, name string
		typ      uint16
		want     string
	}{
		{"", web, dns.TypeA, "9.0.0.1 10.0.0.1 10.0.0.2 10.0.0.9 10.0.0.10"},
		{"n1/a/r", web, dns.TypeA, "10.0.0.1 10.0.0.9 10.0.0.10 9.0.0.1 10.0.0.2"},
		{"n4/b/r", web, dns.TypeA, "9.0.0.1 10.0.0.2 10.0.0.1 10.0.0.9 10.0.0.10"},
		{"-/c/r", web, dns.TypeA, "9.0.0.1 10.0.0.1 10.0.0.2 10.0.0.9 10.0.0.10"},
		{"n2/a/r", web, dns.TypeAAAA, "fd00::2 fd00::1"},
		{"", web, dns.TypeAAAA, "fd00::1 fd00::2"},
		{"n2/a/r", web, dns.TypeSRV, "10-0-0-10 10-0-0-1 10-0-0-9 fd00--2 9-0-0-1 10-0-0-2 fd00--1"},
		{"n2/a/r", "b.pin._zone." + web, dns.TypeA, "9.0.0.1 10.0.0.2"},
	} {
		if got := strings.Join(texts(k.at(c.at, c.name, c.typ)), " "); got != c.want {
			t.Errorf("%s %s at %q: %s, want %s", c.name, dns.TypeToString[c.typ], c.at, got, c.want)
		}
	}
	// A name that several have, too.
	k = asks(t, served(t, serving(t, "order=fixed", "10.0.0.9 n/a/r host=h", "10.0.0.10 n/a/r host=h", "10.0.0.2 n/a/r host=h")))
	for range 20 {
		if got := strings.Join(texts(k.at("", "h."+web, dns.TypeA)), " "); got != "10.0.0.2 10.0.0.9 10.0.0.10" {
			t.Fatal(got)
		}
	}
}

// Rotate begins with the next one each time, for each type by itself: whoever asks for
// A and AAAA in turns must meet all. It goes on when the Service is compiled anew.
func TestRotate(t *testing.T) {
	b, err := NewBuilder(Config{Zones: []Zone{DefaultZone("registry.local")}})
	if err != nil {
		t.Fatal(err)
	}
	svc := serving(t, "order=rotate", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "fd00::1 slice=2", "fd00::2 slice=2")
	k := asks(t, b.Build([]*registry.Service{svc}, someTime))
	last := byte(0)
	for i := range 12 {
		k.set = b.Build([]*registry.Service{svc, serving(t, "order=rotate")}[:i%2], someTime) // now and then anew
		v4, v6 := texts(k.at("", web, dns.TypeA)), texts(k.at("", web, dns.TypeAAAA))
		k.at("", web, dns.TypeSRV)
		k.at("", "10-0-0-3."+web, dns.TypeA) // does not count
		if len(v4) != 4 || len(v6) != 2 {
			t.Fatal(v4, v6)
		}
		for j := 1; j < 4; j++ {
			if v4[j][7] != '1'+(v4[j-1][7]-'0')%4 {
				t.Fatalf("%v is no rotation", v4)
			}
		}
		if first := v4[0][7]; last != 0 && first != '1'+(last-'0')%4 {
			t.Fatalf("%v comes after the one that began with %c", v4, last)
		}
		last = v4[0][7]
	}
}

// someAddr is an address of nothing in these tests, a different one for each number.
func someAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}) }

// Whatever the knobs and whoever asks, an answer has distinct endpoints that are
// published, no more than the limit, and at least one if there is one; a pin has those
// in its scope. It is as large as it can be where the policy leaves nobody out.
func TestNoPolicyIsEmpty(t *testing.T) {
	r := rand.New(rand.NewPCG(31, 32))
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	knobs := map[string][]string{
		"topology": {"auto", "order", "hints", "nearest", "off"},
		"order":    {"shuffle", "rotate", "hash", "fixed"},
		"limit":    {"0", "1", "2", "7"},
		"min":      {"1", "2", "5"},
		"publish":  {"ready", "serving", "all"},
		"fallback": {"none", "serving", "all"},
		"fit":      {"truncate", "cut"},
		"weights":  {"", "zone:a=0", "zone:a=0, zone:b=0, zone:c=0", "node:n0=0, node:n1=3", "10-0-0-1=60000, zone:b=2"},
	}
	names := []string{"", "_all.", "_serving.", "_ready.", "a.pin._zone.", "n1.prefer._node.", "zz.prefer._region._all.", "_http._tcp.", "_http._tcp.b.prefer._zone.", "n0.pin._node._serving."}
	for round := range 60 {
		var set []string
		for _, k := range sortedKeys(knobs) {
			if r.IntN(2) == 0 {
				set = append(set, k+"="+one(knobs[k]...))
			}
		}
		var endpoints []string
		health := r.IntN(4)
		for range r.IntN(14) {
			place := fmt.Sprintf("n%d/%s/%s", r.IntN(4), one("a", "b", "c"), one("r", "s"))
			if r.IntN(6) == 0 {
				place = one("-/-/-", "n9/-/-", "-/b/-")
			}
			text := one("10.0.0.", "10.0.0.", "10.0.0.", "fd00::") + strconv.Itoa(r.IntN(16)) + " " + place
			if strings.HasPrefix(text, "fd") {
				text += " slice=6"
			} else {
				text += " slice=" + strconv.Itoa(r.IntN(2))
			}
			if r.IntN(2) == 0 {
				text += " zones=" + one("a", "b", "c", "a,b")
			}
			if r.IntN(3) == 0 {
				text += " nodes=" + one("n0", "n1", "n2,n3")
			}
			if r.IntN(4) >= health {
				text += one(" unready", " closing", " dead", " leaving")
			}
			if r.IntN(5) == 0 {
				text += " host=" + one("h", "g")
			}
			endpoints = append(endpoints, text)
		}
		svc := serving(t, strings.Join(set, "; "), endpoints...)
		k := asks(t, served(t, svc))
		settings, _ := k.set.cfg.zones[0].knobs.settings(svc)
		merged := map[netip.Addr]condition{}
		for _, sl := range svc.Slices {
			for _, e := range sl.Endpoints.All() {
				if c, ok := merged[e.Addr]; ok {
					merged[e.Addr] = c.with(conditionOf(&e))
				} else {
					merged[e.Addr] = conditionOf(&e)
				}
			}
		}
		for _, at := range []string{"", "neutral", "n0/a/r", "n1/b/s", "n9/-/-", "-/c/r", "-/-/s", "n7/z/z"} {
			k.from = netip.AddrFrom4([4]byte{10, 7, byte(r.Uint32()), byte(r.Uint32())})
			for _, before := range names {
				shown := readinessRules[settings.Publish]
				for view, rule := range map[string]Readiness{"_all.": All, "_serving.": Serving, "_ready.": Ready} {
					if strings.HasSuffix(before, view) {
						shown = readinessRules[rule]
					}
				}
				viewed := strings.Contains(before, "_all") || strings.Contains(before, "_serving") || strings.Contains(before, "_ready")
				anyShown := false
				for _, c := range merged {
					anyShown = anyShown || shown(c)
				}
				if !anyShown && !viewed {
					shown = fallbackRules[settings.Fallback]
				}
				for _, typ := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV} {
					there := 0
					for addr, c := range merged {
						if shown(c) && (typ == dns.TypeSRV || addr.Is4() == (typ == dns.TypeA)) {
							there++
						}
					}
					if strings.Contains(before, "_tcp") && typ != dns.TypeSRV {
						there = 0
					}
					for _, limit := range []int{1 << 16, 512} {
						k.limit = limit
						m := k.at(at, before+web, typ)
						what := fmt.Sprintf("round %d, %v at %q, %s%s in %d:\n%s\n%v", round, set, at, before+web, dns.TypeToString[typ], limit, strings.Join(endpoints, "\n"), m)
						if there > 0 && len(m.Answer) == 0 && !strings.Contains(before, "pin") || there == 0 && len(m.Answer) > 0 {
							t.Fatalf("%d are published: %s", there, what)
						}
						if settings.Limit > 0 && len(m.Answer) > settings.Limit {
							t.Fatalf("more than the limit: %s", what)
						}
						got := texts(m)
						slices.Sort(got)
						if len(slices.Compact(slices.Clone(got))) != len(got) {
							t.Fatalf("one stands twice: %s", what)
						}
						for _, text := range got {
							if typ == dns.TypeSRV {
								continue
							}
							if !shown(merged[netip.MustParseAddr(text)]) {
								t.Fatalf("%s is not published: %s", text, what)
							}
						}
						for _, rr := range m.Answer {
							if srv, ok := rr.(*dns.SRV); ok && srv.Weight == 0 {
								t.Fatalf("weight 0: %s", what)
							}
						}
						if o := k.answer.service.topology; limit > 512 && settings.Limit == 0 && !m.Truncated && (o == TopologyOrder || o == TopologyOff) {
							all := texts(k.at("", before+web, typ))
							if slices.Sort(all); !slices.Equal(got, all) {
								t.Fatalf("not all of %v: %s", all, what)
							}
						}
						if m.Truncated && (settings.Fit == Cut || limit > 512) {
							t.Fatalf("TC: %s", what)
						}
					}
				}
			}
		}
	}
}
