package zones

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// in makes endpoints 10.0.<net>.1 and so on at a place; "x" is one that is not ready,
// "t" one that terminates and "." one that is ready.
func in(net int, place, conditions string) (out []string) {
	for i, c := range conditions {
		out = append(out, fmt.Sprintf("10.0.%d.%d %s%s", net, i+1, place, map[rune]string{'.': "", 'x': " unready", 't': " closing", 'l': " leaving"}[c]))
	}
	return out
}

// nets counts the answered addresses by the third number, "1: 3 2: 1".
func nets(m *dns.Msg) (n [10]int) {
	for _, rr := range m.Answer {
		text := strings.FieldsFunc(rdata(rr), func(r rune) bool { return r == '.' || r == '-' })
		i, _ := strconv.Atoi(text[2])
		n[i]++
	}
	return n
}

// By Envoy's factor a tier takes 1.4 times the part of it that is ready, and the next
// one the rest: each answered endpoint gets its part of the load.
func TestSpillShares(t *testing.T) {
	const rounds = 10_000
	for _, c := range []struct {
		what, knobs string
		endpoints   []string
		want        map[int]float64 // of the load: 10.0.1.x, 10.0.2.x …
	}{
		{"0 of 10 ready", "", slices.Concat(in(1, "n1/a/r", "xxxxxxxxxx"), in(2, "n2/b/r", "..........")), map[int]float64{1: 0, 2: 1}},
		{"1 of 10", "", slices.Concat(in(1, "n1/a/r", ".xxxxxxxxx"), in(2, "n2/b/r", "..........")), map[int]float64{1: .14, 2: .86}},
		{"2 of 10", "", slices.Concat(in(1, "n1/a/r", "..xxxxxxxx"), in(2, "n2/b/r", "..................")), map[int]float64{1: .28, 2: .72}},
		{"5 of 10", "", slices.Concat(in(1, "n1/a/r", ".....xxxxx"), in(2, "n2/b/r", "..........")), map[int]float64{1: .7, 2: .3}},
		{"7 of 10", "", slices.Concat(in(1, "n1/a/r", ".......xxx"), in(2, "n2/b/r", "..........")), map[int]float64{1: .98, 2: .02}},
		{"8 of 10", "", slices.Concat(in(1, "n1/a/r", "........xx"), in(2, "n2/b/r", "..........")), map[int]float64{1: 1, 2: 0}},
		{"10 of 10", "", slices.Concat(in(1, "n1/a/r", ".........."), in(2, "n2/b/r", "..........")), map[int]float64{1: 1, 2: 0}},
		{"1 of 2", "", slices.Concat(in(1, "n1/a/r", ".x"), in(2, "n2/b/r", "...")), map[int]float64{1: .7, 2: .3}},
		{"1 of 3", "", slices.Concat(in(1, "n1/a/r", ".xx"), in(2, "n2/b/r", "...")), map[int]float64{1: 1.4 / 3, 2: 1 - 1.4/3}},
		{"terminating ones are in neither", "", slices.Concat(in(1, "n1/a/r", ".xtttttt"), in(2, "n2/b/r", "...")), map[int]float64{1: .7, 2: .3}},
		{"nor are those that are ready all the same", "", slices.Concat(in(1, "n1/a/r", ".xlll"), in(2, "n2/b/r", "..........")), map[int]float64{1: .7, 2: .3}},
		{"who is ready among terminating ones", "", slices.Concat(in(1, "n1/a/r", ".tttttt"), in(2, "n2/b/r", "...")), map[int]float64{1: 1, 2: 0}},
		{"all spill over into the region", "", slices.Concat(in(1, "-/a/r", ".x"), in(2, "-/b/r", "..."), in(3, "-/c/s", "...")), map[int]float64{1: .7, 2: .3, 3: 0}},
		{"the next tier has nobody", "", slices.Concat(in(1, "-/a/r", ".x"), in(3, "-/c/s", "...")), map[int]float64{1: .7, 3: .3}},
		{"the next tier has too few, the one after it the rest", "", slices.Concat(in(1, "-/a/r", ".xx"), in(2, "-/b/r", "."), in(3, "-/c/s", "...")), map[int]float64{1: 1.4 / 3}},
		{"limit", "limit=3", slices.Concat(in(1, "n1/a/r", ".....xxxxx"), in(2, "n2/b/r", "..........")), map[int]float64{1: .7, 2: .3}},
		{"limit 1", "limit=1", slices.Concat(in(1, "n1/a/r", ".....xxxxx"), in(2, "n2/b/r", "..........")), map[int]float64{1: .7, 2: .3}},
		{"limit as large as the tier", "limit=5", slices.Concat(in(1, "n1/a/r", ".....xxxxx"), in(2, "n2/b/r", "..........")), map[int]float64{1: .7, 2: .3}},
		{"min: the tier is that of two", "min=2", slices.Concat(in(1, "n1/a/r", "."), in(2, "-/a/r", ".xx"), in(3, "-/b/r", ".........")), map[int]float64{1: .35, 2: .35, 3: .3}},
		{"hash", "order=hash", slices.Concat(in(1, "n1/a/r", "..xx"), in(2, "n2/b/r", "..........")), map[int]float64{1: .7, 2: .3}},
	} {
		t.Run(c.what, func(t *testing.T) {
			k := asks(t, served(t, serving(t, "topology=nearest; "+c.knobs, c.endpoints...)))
			at := "n1/a/r"
			if strings.Contains(c.endpoints[0], "-/a") {
				at = "-/a/r"
			}
			load, first := map[int]float64{}, map[int]float64{}
			for i := range rounds {
				k.from = someAddr(i)
				got := k.addrs(at, web)
				for _, addr := range got {
					load[int(addr.As4()[2])] += 1 / float64(len(got)) / rounds
				}
				first[int(got[0].As4()[2])] += 1. / rounds
			}
			for net, want := range c.want {
				if !near(load[net], want, 0.01) {
					t.Errorf("10.0.%d.x get %.4f of the load, want %.4f", net, load[net], want)
				}
				// Who takes the first address keeps to it as well.
				if !strings.Contains(c.knobs, "hash") && !near(first[net], want, 0.015) {
					t.Errorf("10.0.%d.x are first in %.4f of the answers, want %.4f", net, first[net], want)
				}
			}

			// SRV: the near ones and those that take the rest have one priority, and
			// the weights of the two parts are as their loads.
			for i, name := range slices.Repeat([]string{web, "_http._tcp." + web}, 10) {
				if c.knobs == "limit=1" {
					break // one alone divides nothing
				}
				k.from = someAddr(i)
				m := k.at(at, name, dns.TypeSRV)
				near1 := map[int]float64{}
				sum := 0.0
				lowest := m.Answer[0].(*dns.SRV).Priority
				for _, rr := range m.Answer {
					srv := rr.(*dns.SRV)
					lowest = min(lowest, srv.Priority)
					if srv.Weight == 0 {
						t.Fatalf("weight 0: %v", srv)
					}
				}
				for _, rr := range m.Answer {
					if srv := rr.(*dns.SRV); srv.Priority == lowest {
						f := strings.Split(rdata(rr), "-")
						net, _ := strconv.Atoi(f[2])
						near1[net] += float64(srv.Weight)
						sum += float64(srv.Weight)
					}
				}
				for net, want := range c.want {
					if !near(near1[net]/sum, want, 0.01) {
						t.Errorf("SRV: 10.0.%d.x have %.4f of the weights, want %.4f:\n%v", net, near1[net]/sum, want, m)
					}
				}
				if !strings.Contains(c.knobs, "limit") && len(m.Answer) != published(c.endpoints) {
					t.Errorf("SRV has %d of %d:\n%v", len(m.Answer), published(c.endpoints), m)
				}
			}
		})
	}
}

func published(endpoints []string) (n int) {
	for _, e := range endpoints {
		if !strings.Contains(e, "unready") && !strings.Contains(e, "closing") {
			n++
		}
	}
	return n
}

// The next tier has one and the last three. Of the three that a third of the tier
// that is ready calls for, all there is, is what there is.
func TestSpillIntoSmallTiers(t *testing.T) {
	k := asks(t, served(t, serving(t, "topology=nearest", slices.Concat(in(1, "-/a/r", "...xxxxxxx"), in(2, "-/b/r", "."), in(3, "-/c/s", "..."))...)))
	for range 100 {
		// 0.42 of the load for 3 is 4.14 others, so all there are.
		if got := nets(k.at("-/a/r", web, dns.TypeA)); got[1] != 3 || got[2] != 1 || got[3] != 3 {
			t.Fatal(got)
		}
	}
	// 7 of 11: 0.89 of the load for 7 is 0.86 others, of the next tier.
	k = asks(t, served(t, serving(t, "topology=nearest", slices.Concat(in(1, "-/a/r", ".......xxxx"), in(2, "-/b/r", "."), in(3, "-/c/s", "..."))...)))
	for range 100 {
		if got := nets(k.at("-/a/r", web, dns.TypeA)); got[1] != 7 || got[2] > 1 || got[3] != 0 {
			t.Fatal(got)
		}
	}
}

// The nearest tier that has min, and who is in it; unknown and neutral askers get all.
func TestNearest(t *testing.T) {
	all := slices.Concat(in(1, "n1/a/r", ".."), in(2, "n2/a/r", ".."), in(3, "n3/b/r", "..."), in(4, "n4/c/s", "...."))
	for _, c := range []struct {
		knobs, at, want string
		endpoints       []string
	}{
		{"", "n1/a/r", "2 0 0 0", all},
		{"min=2", "n1/a/r", "2 0 0 0", all},
		{"min=3", "n1/a/r", "2 2 0 0", all},
		{"min=5", "n1/a/r", "2 2 3 0", all},
		{"min=8", "n1/a/r", "2 2 3 4", all},
		{"min=99", "n1/a/r", "2 2 3 4", all},
		{"", "n9/a/r", "2 2 0 0", all},
		{"", "-/a/-", "2 2 0 0", all},
		{"", "n9/d/r", "2 2 3 0", all},
		{"", "-/-/s", "0 0 0 4", all},
		{"", "n4/-/-", "0 0 0 4", all},
		{"", "n9/z/t", "2 2 3 4", all},
		{"", "", "2 2 3 4", all},
		{"", "neutral", "2 2 3 4", all},
		{"weights=node:n1=0", "n1/a/r", "0 2 0 0", all},
		{"weights=zone:a=0", "n1/a/r", "0 0 3 0", all},
		{"publish=all", "n1/a/r", "2 0 0 0", all},
		{"publish=all", "n1/a/r", "1 1 0 0", slices.Concat(in(1, "n1/a/r", "x"), in(2, "n2/a/r", "."))},
		{"fallback=serving", "n1/a/r", "2 0 0 0", slices.Concat(in(1, "n1/a/r", "tt"), in(2, "n2/a/r", "t"))},
		{"fallback=all", "n1/a/r", "2 0 0 0", slices.Concat(in(1, "n1/a/r", "tt"), in(2, "n2/a/r", "x"))},
		{"limit=1", "n1/a/r", "1 0 0 0", all},
	} {
		t.Run(c.knobs+" at "+c.at, func(t *testing.T) {
			k := asks(t, served(t, serving(t, "topology=nearest; "+c.knobs, c.endpoints...)))
			got := nets(k.at(c.at, web, dns.TypeA))
			if text := strings.Trim(fmt.Sprint(got[1:5]), "[]"); text != c.want {
				t.Errorf("%s, want %s", text, c.want)
			}
		})
	}
}

// SRV holds all, the nearer at lower priorities.
func TestNearestPriorities(t *testing.T) {
	all := slices.Concat(in(1, "n1/a/r", "."), in(2, "n2/a/r", "."), in(3, "n3/b/r", "."), in(4, "n4/c/s", "."))
	for at, want := range map[string]string{
		"n1/a/r": "1 0 | 2 1 | 3 2 | 4 3",
		"n9/a/r": "1 1 | 2 1 | 3 2 | 4 3",
		"n9/d/r": "1 2 | 2 2 | 3 2 | 4 3",
		"":       "1 0 | 2 0 | 3 0 | 4 0",
	} {
		k := asks(t, served(t, serving(t, "topology=nearest", all...)))
		got := []string{}
		for _, rr := range k.at(at, web, dns.TypeSRV).Answer {
			got = append(got, fmt.Sprintf("%s %d", strings.Split(rdata(rr), "-")[2], rr.(*dns.SRV).Priority))
		}
		if slices.Sort(got); strings.Join(got, " | ") != want {
			t.Errorf("at %q: %v, want %s", at, got, want)
		}
	}
}

// Scaled weights keep to the ratios that were written, within a part and between the
// two, and to what 16 bits hold.
func TestSpilledWeights(t *testing.T) {
	for _, weights := range []string{"", "10-0-1-1=3, 10-0-2-2=7", "10-0-1-1=60000, 10-0-2-1=65535", "10-0-1-1=65535", "zone:b=1000", "zone:a=65535"} {
		endpoints := slices.Concat(in(1, "n1/a/r", "..xx"), in(2, "n2/b/r", "..."), in(3, "n3/c/s", ".."))
		svc := serving(t, "topology=nearest", endpoints...)
		if weights != "" {
			svc = serving(t, "topology=nearest; weights="+weights, endpoints...)
		}
		k := asks(t, served(t, svc))
		plain, scaled := map[string]float64{}, map[string]float64{}
		for _, rr := range k.at("", web, dns.TypeSRV).Answer {
			plain[rdata(rr)] = float64(rr.(*dns.SRV).Weight)
		}
		for _, rr := range k.at("n1/a/r", web, dns.TypeSRV).Answer {
			scaled[rdata(rr)] = float64(rr.(*dns.SRV).Weight)
		}
		sum := func(m map[string]float64, net string) (sum float64) {
			for label, w := range m {
				if strings.HasPrefix(label, "10-0-"+net+"-") {
					sum += w
				}
			}
			return sum
		}
		if got := sum(scaled, "1") / (sum(scaled, "1") + sum(scaled, "2")); !near(got, .7, .01) {
			t.Errorf("%q: the near ones have %.4f of the weight, want 0.7: %v", weights, got, scaled)
		}
		for _, net := range []string{"1", "2", "3"} {
			for label, w := range scaled {
				if !strings.HasPrefix(label, "10-0-"+net+"-") {
					continue
				}
				want := plain[label] / sum(plain, net)
				// One that 16 bits cannot hold beside the largest is the least there is.
				if got := w / sum(scaled, net); math.Abs(got-want) > 0.02*want && w > 1 {
					t.Errorf("%q: %s has %.4f of its part, want %.4f: %v", weights, label, got, want, scaled)
				}
			}
		}
		if net3 := sum(scaled, "3"); net3 != sum(plain, "3") {
			t.Errorf("%q: those that nothing spills into have other weights: %v", weights, scaled)
		}
	}
}

// What fits is the answer, and divides the load as the whole of it would.
func TestSpillThatIsCut(t *testing.T) {
	k := asks(t, served(t, serving(t, "topology=nearest; fit=cut", slices.Concat(in(1, "n1/a/r", strings.Repeat(".", 100)+strings.Repeat("x", 100)), in(2, "n2/b/r", strings.Repeat(".", 100)))...)))
	k.limit = 512
	load := 0.0
	const rounds = 5000
	for range rounds {
		got := k.addrs("n1/a/r", web)
		if k.wire[2]&2 != 0 || len(got) != (512-headerSize-len(k.parse(web))-4)/sizeA {
			t.Fatalf("%d records, flags %x", len(got), k.wire[2])
		}
		for _, addr := range got {
			if addr.As4()[2] == 2 {
				load += 1 / float64(len(got)) / rounds
			}
		}
	}
	if !near(load, .3, .01) {
		t.Errorf("the far ones get %.4f of the load, want 0.3", load)
	}
	k.limit = 1232
	m := k.at("n1/a/r", web, dns.TypeSRV)
	var weights [3]float64
	for _, rr := range m.Answer {
		weights[strings.Split(rdata(rr), "-")[2][0]-'0'] += float64(rr.(*dns.SRV).Weight)
	}
	if got := weights[2] / (weights[1] + weights[2]); !near(got, .3, .03) || len(m.Answer) < 15 || m.Truncated {
		t.Errorf("SRV: the far ones have %.4f of the weights of %d records, want 0.3", got, len(m.Answer))
	}
}
