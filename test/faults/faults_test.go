//go:build linux

package faults

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"epdns/test/faults/proxy"
	"epdns/test/netns"
)

var lab *Lab

func TestMain(m *testing.M) {
	netns.Main(netns.Tests{
		Programs: Programs,
		Prepare:  func(dir string) error { return Build(context.Background(), dir, false) },
		Run: func(dir string) (status int, err error) {
			if lab, err = Open(context.Background(), dir, os.Stderr); err != nil {
				return 0, err
			}
			defer func() { err = errors.Join(err, lab.Close()) }()
			lab.Short = true
			return m.Run(), nil
		},
	})
}

// Those that can be tried within 20 seconds each.
func TestFaults(t *testing.T) {
	for _, f := range Faults {
		if !f.Short {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			r, err := lab.Run(t.Context(), f)
			holds(t, r, err)
		})
	}
}

func holds(t *testing.T, r *Result, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	for _, failure := range r.Failures() {
		t.Error(failure)
	}
	for _, c := range r.Checks {
		t.Logf("%s: %s", c.What, c.Seen)
	}
	t.Log(r.Notes, r.Took)
}

// A fault that epdns does nothing against is seen: without audits, an event that is lost stays lost.
func TestWrongIsSeen(t *testing.T) {
	f := &Fault{Name: "unaudited", run: func(ctx context.Context, t *trial) error {
		if err := t.begin(ctx, setup{audit: "0"}); err != nil {
			return err
		}
		t.calm()
		t.proxy.Events(never(func(e *proxy.Event) bool { return e.Namespace == namespace }))
		if err := t.world.renew(ctx, t.world.services[0]); err != nil {
			return err
		}
		if err := t.world.remove(ctx, t.world.services[1]); err != nil {
			return err
		}
		return t.settle(ctx, 0)
	}}
	r, err := lab.Run(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	if r.Holds() || r.Wrong < 10 {
		t.Errorf("%d answers are wrong, of %d; %v", r.Wrong, r.Asked, r.Failures())
	}
}

// The oracle itself: what may be answered, and what not.
func TestRight(t *testing.T) {
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	addrs := func(texts ...string) (out []netip.Addr) {
		for _, text := range texts {
			out = append(out, netip.MustParseAddr(text))
		}
		return out
	}
	o := newOracle(nil)
	list := func(s float64, exists bool, texts ...string) {
		o.services.note(map[string]*state{"web": {exists: exists}}, at(s), at(s+.01))
		o.slices.note(map[string]*state{"web": {addresses: addrs(texts...)}}, at(s), at(s+.01))
	}
	list(1, true, "10.0.0.1", "10.0.0.2")
	list(2, true, "10.0.0.1", "10.0.0.2")
	list(3, true, "10.0.0.1", "10.0.0.3", "fd00::1")
	list(4, true, "10.0.0.1", "10.0.0.3", "fd00::1")
	list(5, false)
	list(6, false)
	// One pod after the other has the address.
	given := func(s float64, pod string) {
		o.services.note(map[string]*state{"web": {exists: true}}, at(s), at(s+.01))
		o.slices.note(map[string]*state{"web": {addresses: addrs("10.0.0.7"), pods: map[netip.Addr]string{addrs("10.0.0.7")[0]: pod}}}, at(s), at(s+.01))
	}
	given(7, "a")
	given(8, "a")
	given(9, "b")
	given(10, "b")
	for _, test := range []struct {
		what string
		at   float64
		lag  float64
		a    answer
		want bool
	}{
		{"the truth", 1.5, 0, answer{outcome: answered, ipv4: true, addresses: addrs("10.0.0.1", "10.0.0.2")}, true},
		{"one is missing", 1.5, 0, answer{outcome: answered, ipv4: true, addresses: addrs("10.0.0.1")}, false},
		{"one never was", 1.5, 0, answer{outcome: answered, ipv4: true, addresses: addrs("10.0.0.1", "10.0.0.2", "10.0.0.9")}, false},
		{"one is not there yet", 1.5, 0, answer{outcome: answered, ipv4: true, addresses: addrs("10.0.0.1", "10.0.0.3")}, false},
		{"between two lists: the old", 2.5, 0, answer{outcome: answered, ipv4: true, addresses: addrs("10.0.0.1", "10.0.0.2")}, true},
		{"between two lists: the new", 2.5, 0, answer{outcome: answered, ipv4: true, addresses: addrs("10.0.0.1", "10.0.0.3")}, true},
		{"between two lists: both", 2.5, 0, answer{outcome: answered, ipv4: true, addresses: addrs("10.0.0.1", "10.0.0.2", "10.0.0.3")}, true},
		{"between two lists: without what stays", 2.5, 0, answer{outcome: answered, ipv4: true, addresses: addrs("10.0.0.2")}, false},
		{"the old, too late", 3.5, 0, answer{outcome: answered, ipv4: true, addresses: addrs("10.0.0.1", "10.0.0.2")}, false},
		{"the old, late as allowed", 3.5, 1, answer{outcome: answered, ipv4: true, addresses: addrs("10.0.0.1", "10.0.0.2")}, true},
		{"the other family", 3.5, 0, answer{outcome: answered, addresses: addrs("fd00::1")}, true},
		{"the other family, missing", 3.5, 0, answer{outcome: answered}, false},
		{"no such name, wrongly", 3.5, 1, answer{outcome: nxdomain, ipv4: true}, false},
		{"no such name, rightly", 5.5, 0, answer{outcome: nxdomain, ipv4: true}, true},
		{"gone, but answered", 5.5, 0, answer{outcome: answered, ipv4: true}, false},
		{"nothing, though the pod has its address", 7.5, 0, answer{outcome: answered, ipv4: true}, false},
		{"nothing, while the address goes from pod to pod", 8.5, 0, answer{outcome: answered, ipv4: true}, true},
		{"nothing, though the next pod has it", 9.5, 0, answer{outcome: answered, ipv4: true}, false},
		{"no answer", 1.5, 0, answer{outcome: servfail, ipv4: true}, false},
		{"another Service", 1.5, 0, answer{service: "never", outcome: nxdomain, ipv4: true}, true},
		{"another Service, answered", 1.5, 0, answer{service: "never", outcome: answered, ipv4: true}, false},
	} {
		if test.a.service == "" {
			test.a.service = "web"
		}
		test.a.at = at(test.at)
		if got := o.right(&test.a, at(test.at-test.lag)); got != test.want {
			t.Errorf("%s: %v", test.what, got)
		}
	}
}
