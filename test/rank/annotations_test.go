//go:build linux

package rank_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"epdns/test/run"

	"github.com/miekg/dns"
)

// soon is how long after a change epdns may answer as before.
const soon = time.Second

// annotate sets annotations of a Service, as VALUE by name without prefix, and sees to it that
// they are taken away when the test ends. It returns when kubectl says that it is done.
func annotate(t *testing.T, service string, annotations map[string]string) {
	t.Helper()
	var sets, clears []string
	for name, value := range annotations {
		sets = append(sets, "registry.local/"+name+"="+value)
		clears = append(clears, "registry.local/"+name+"-")
	}
	command := []string{"-n", "shop", "annotate", "service", service}
	t.Cleanup(func() {
		if _, err := control(append(command, clears...)...); err != nil {
			t.Error(err)
		}
	})
	mustControl(t, append(command, sets...)...)
}

// soonSo fails unless within a second there is no error, and stays so for a few tries.
func soonSo(t *testing.T, what string, try func() error) {
	t.Helper()
	begin := time.Now()
	for {
		err := try()
		took := time.Since(begin)
		if err == nil {
			t.Logf("%s after %v", what, took.Round(100*time.Microsecond))
			break
		}
		if took > soon {
			t.Fatalf("%s: after %v still: %v", what, took, err)
		}
		time.Sleep(time.Millisecond) // between two questions
	}
	for range 5 {
		if err := try(); err != nil {
			t.Fatalf("%s, but not always: %v", what, err)
		}
	}
}

// What each annotation of a Service does for one on node-1, in zone-a and on the coast, and for
// one on node-3, in zone-c and in the hills. They ask by dig, over UDP; what an order by chance
// does not tell, the priorities of SRV records do.
func TestAnnotations(t *testing.T) {
	serve(t, "{}")
	list := endpoints(t, "tuned")
	all := those(list, (*endpoint).ready)
	asking := []asker{{"zone-a", strangerOn(0), nodes[0]}, {"zone-c", strangerOn(2), nodes[2]}}
	same := func(tier int) func(place) int { return func(place) int { return tier } }
	for _, test := range []struct {
		what        string
		annotations map[string]string

		nearest func(asker place) int // the farthest tier in an answer
		without string                // a zone that is in none
		limit   int
		flat    bool // far is as good as near
	}{
		{what: "none"},
		{what: "order", annotations: map[string]string{"topology": "order"}},
		{what: "off", annotations: map[string]string{"topology": "off"}, flat: true},
		{what: "nearest, two on the node", annotations: map[string]string{"topology": "nearest"}, nearest: same(onNode)},
		{what: "nearest, four in the zone", annotations: map[string]string{"topology": "nearest", "min": "3"}, nearest: same(inZone)},
		{what: "nearest, five in the region", annotations: map[string]string{"topology": "nearest", "min": "5"},
			nearest: func(asker place) int {
				if asker.region == "hills" { // which has four
					return anywhere
				}
				return inRegion
			}},
		{what: "limit", annotations: map[string]string{"limit": "3"}, limit: 3},
		{what: "limit and hash", annotations: map[string]string{"limit": "2", "order": "hash", "topology": "off"}, limit: 2, flat: true},
		{what: "no weight in zone-b", annotations: map[string]string{"weights": "zone:zone-b=0"}, without: "zone-b"},
	} {
		t.Run(test.what, func(t *testing.T) {
			if test.annotations != nil {
				annotate(t, "tuned", test.annotations)
			}
			right := func(a asker, answer []netip.Addr) error {
				want := those(list, func(e *endpoint) bool {
					return e.Zone != test.without && (test.nearest == nil || a.tier(e.place()) <= test.nearest(a.place))
				})
				var err error
				if test.limit == 0 {
					err = sameSet(answer, want)
				} else if len(answer) != test.limit {
					err = fmt.Errorf("the answer has %v, want %d", answer, test.limit)
				}
				if err == nil && !test.flat && test.nearest == nil { // which are equally near
					err = nearFirst(list, a.place, answer)
				}
				return err
			}
			soonSo(t, "it is so", func() error {
				for _, a := range asking {
					reply, err := question{network: "udp", from: a.addr, server: epdnsIP, name: full("tuned"), typ: dns.TypeA}.put()
					if err == nil {
						err = right(a, addrs(reply))
					}
					if err != nil {
						return fmt.Errorf("for %s: %w", a.what, err)
					}
				}
				return nil
			})
			for _, a := range asking {
				answer := dig(t, a.addr, "tuned")
				if err := right(a, answer); err != nil {
					t.Errorf("for %s: %v", a.what, err)
				}
				t.Logf("dig -b %v (%s): %s", a.addr, a.what, shown(list, answer))

				// An SRV client may go on to the rest when the near ones are gone.
				got := targets(ask(t, "tcp", a.addr, "tuned", dns.TypeSRV))
				if test.limit > 0 {
					if len(got) != test.limit {
						t.Errorf("for %s: SRV records of %v, want %d", a.what, got, test.limit)
					}
					continue
				}
				at, nearest := a.place, onNode
				if test.flat {
					at = place{}
				}
				if test.nearest != nil {
					nearest = test.nearest(a.place)
				}
				members := those(list, func(e *endpoint) bool { return e.Zone != test.without })
				if err := checkTargets(list, at, nearest, members, got); err != nil {
					t.Errorf("for %s: %v", a.what, err)
				}
			}
		})
	}
	t.Run("hash", func(t *testing.T) {
		annotate(t, "tuned", map[string]string{"order": "hash", "limit": "2", "topology": "off"})
		soonSo(t, "there are two", func() error {
			if n := len(addrs(ask(t, "udp", nodeIP(0), "tuned", dns.TypeA))); n != 2 {
				return fmt.Errorf("there are %d", n)
			}
			return nil
		})
		seen := map[string]bool{}
		for i := range 30 {
			from := netip.AddrFrom4([4]byte{10, 244, 1, byte(200 + i)})
			mine := addrs(ask(t, "udp", from, "tuned", dns.TypeA))
			for range 3 {
				if again := addrs(ask(t, "udp", from, "tuned", dns.TypeA)); !slices.Equal(again, mine) {
					t.Errorf("%v gets %v, then %v", from, mine, again)
				}
			}
			seen[fmt.Sprint(mine)] = true
		}
		if len(seen) < 10 {
			t.Errorf("30 askers have %d different answers", len(seen))
		}
	})
	t.Run("weights", func(t *testing.T) {
		pod := list[0].TargetRef.Name
		annotate(t, "tuned", map[string]string{"weights": "node:node-1=5, zone:zone-a=3, " + pod + "=40"})
		want := map[netip.Addr]int{}
		for i := range list {
			e := &list[i]
			switch {
			case e.TargetRef.Name == pod:
				want[e.addr()] = 40
			case e.NodeName == "node-1":
				want[e.addr()] = 5
			case e.Zone == "zone-a":
				want[e.addr()] = 3
			default:
				want[e.addr()] = 1
			}
		}
		soonSo(t, "SRV records have weights", func() error {
			reply, err := question{network: "tcp", from: nodeIP(0), server: epdnsIP, name: full("tuned"), typ: dns.TypeSRV}.put()
			if err != nil {
				return err
			}
			got := targets(reply)
			for addr, weight := range want {
				if got[addr].weight != weight {
					return fmt.Errorf("the weight of %v is %d, want %d", addr, got[addr].weight, weight)
				}
			}
			return nil
		})
	})
	if len(all) != 12 {
		t.Errorf("%d Pods are ready", len(all))
	}
}

// shown is an answer with the zones and nodes of its endpoints.
func shown(all []endpoint, answer []netip.Addr) string {
	var out []string
	for _, addr := range answer {
		i := slices.IndexFunc(all, func(e endpoint) bool { return e.addr() == addr })
		out = append(out, fmt.Sprintf("%v(%s %s)", addr, all[i].Zone, all[i].NodeName))
	}
	return strings.Join(out, " ")
}

// Which Pods are published where none is ready is the Service's choice.
func TestUnready(t *testing.T) {
	serve(t, "{}")
	list := endpoints(t, "weak")
	all := those(list, (*endpoint).ready)
	setReady := func(t *testing.T, pod string, to bool) {
		t.Helper()
		var object map[string]any
		path := "/api/v1/namespaces/shop/pods/" + pod
		if err := kube.Request(t.Context(), http.MethodGet, path, nil, &object); err != nil {
			t.Fatal(err)
		}
		for _, c := range object["status"].(map[string]any)["conditions"].([]any) {
			if c := c.(map[string]any); c["type"] == "Ready" {
				c["status"] = map[bool]string{true: "True", false: "False"}[to]
			}
		}
		if err := kube.Request(t.Context(), http.MethodPut, path+"/status", object, nil); err != nil {
			t.Fatal(err)
		}
	}
	answers := func(want []netip.Addr) func() error {
		return func() error {
			reply, err := question{network: "udp", from: nodeIP(0), server: epdnsIP, name: full("weak"), typ: dns.TypeA}.put()
			if err == nil && reply.Rcode != dns.RcodeSuccess {
				err = errors.New(dns.RcodeToString[reply.Rcode])
			}
			if err == nil {
				err = sameSet(addrs(reply), want)
			}
			return err
		}
	}
	ready := func() []netip.Addr { return those(endpoints(t, "weak"), (*endpoint).ready) }
	t.Cleanup(func() { run.Eventually(t, complete) })
	for _, e := range list {
		setReady(t, e.TargetRef.Name, false)
		defer setReady(t, e.TargetRef.Name, true)
	}
	run.Eventually(t, func() error {
		if now := ready(); len(now) > 0 {
			return fmt.Errorf("%v are ready", now)
		}
		return nil
	})
	soonSo(t, "nobody is there", answers(nil))
	for _, test := range []struct {
		what        string
		annotations map[string]string
		want        []netip.Addr
	}{
		{"all are published", map[string]string{"publish": "all"}, all},
		{"none serves", map[string]string{"publish": "serving"}, nil},
		{"none serves while it terminates", map[string]string{"fallback": "serving"}, nil},
		{"all are better than none", map[string]string{"fallback": "all"}, all},
	} {
		t.Run(test.what, func(t *testing.T) {
			annotate(t, "weak", test.annotations)
			soonSo(t, test.what, answers(test.want))
		})
	}
}

// What is wrong with an annotation is named by the log and by epdns check, and counted; the
// answer is what it would be without.
func TestBadAnnotation(t *testing.T) {
	p := serve(t, "{}")
	check := func() (string, int) {
		cmd := exec.Command(epdns, "check", "--kubeconfig", kube.Kubeconfig)
		out, err := cmd.Output()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	const problems = "epdns_annotation_problems"
	if out, status := check(); status != 0 || metric(t, problems) != "0" {
		t.Errorf("before: %d: %s, %s problems", status, out, metric(t, problems))
	}
	t.Run("two mistakes", func(t *testing.T) {
		annotate(t, "tuned", map[string]string{"limit": "few", "topolgy": "nearest", "min": "2"})
		soonSo(t, "they are counted", func() error {
			if n := metric(t, problems); n != "2" {
				return fmt.Errorf("%s problems, want 2", n)
			}
			return nil
		})
		out, status := check()
		want := `shop/tuned: annotation registry.local/limit "few": not a whole number, 0 or more
shop/tuned: annotation registry.local/topolgy "nearest": there is no such knob
warning: shop/tuned: annotation registry.local/min: it counts with the topology nearest alone
`
		if status != 1 || out != want {
			t.Errorf("epdns check exits with status %d and prints\n%s", status, out)
		}
		t.Logf("epdns check:\n%s", out)
		if log := p.Log(); strings.Count(log, "shop/tuned") != 1 || !strings.Contains(log, "level=WARN") {
			t.Errorf("the log has\n%s", log)
		}
		if got := addrs(ask(t, "udp", nodeIP(0), "tuned", dns.TypeA)); len(got) != 12 {
			t.Errorf("the answer has %v", got)
		}
	})
	soonSo(t, "nothing is wrong any more", func() error {
		if n := metric(t, problems); n != "0" {
			return fmt.Errorf("%s problems, want 0", n)
		}
		return nil
	})
	if out, status := check(); status != 0 || !strings.HasPrefix(out, "no faults: ") {
		t.Errorf("after: %d: %s", status, out)
	}
}
