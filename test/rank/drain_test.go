//go:build linux

package rank_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"epdns/test/cluster"
	"epdns/test/run"

	"github.com/miekg/dns"
)

// holdPods keeps Pods that are deleted terminating until the test ends: the one program that
// would say they are gone stands still. New ones do not become ready either.
func holdPods(t *testing.T) {
	t.Helper()
	pid := kube.PID(cluster.Kwok)
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		run.Eventually(t, complete)
	})
}

// remove deletes Pods as a drain does, with the time that they have by default, and returns
// when they are terminating.
func remove(t *testing.T, gone []endpoint) {
	t.Helper()
	command := []string{"-n", "shop", "delete", "pod", "--wait=false"}
	for _, e := range gone {
		command = append(command, e.TargetRef.Name)
	}
	mustControl(t, command...)
}

// leaving are the Services of the Pods that are taken away.
var leaving = []string{"leaver-near", "leaver-zone", "leaver-serving", "leaver-fallback"}

// watcher asks for one Service until it is stopped, and keeps what answers there were.
type watcher struct {
	stop chan struct{}
	done chan error
	seen []string // each different from the one before
}

func watch(from netip.Addr, service string) *watcher {
	w := &watcher{stop: make(chan struct{}), done: make(chan error, 1)}
	go func() {
		q := question{network: "udp", from: from, server: epdnsIP, name: full(service), typ: dns.TypeA}
		for {
			select {
			case <-w.stop:
				w.done <- nil
				return
			default:
			}
			reply, err := q.put()
			if err != nil {
				w.done <- err
				return
			}
			if now := fmt.Sprint(sorted(addrs(reply))); len(w.seen) == 0 || w.seen[len(w.seen)-1] != now {
				w.seen = append(w.seen, now)
			}
			time.Sleep(200 * time.Microsecond) // leaves the processor to others
		}
	}()
	return w
}

// end are the answers that there were.
func (w *watcher) end(t *testing.T) []string {
	t.Helper()
	close(w.stop)
	if err := <-w.done; err != nil {
		t.Fatal(err)
	}
	return w.seen
}

// A Pod that is asked to end leaves the answers with the first event that says so: there is
// the answer with it, then the one without it, and no other.
func TestDrainOne(t *testing.T) {
	serve(t, "{}")
	before := endpoints(t, "leaver-zone")
	// The neighbour of the asker's, on the other Node of zone-a.
	at := slices.IndexFunc(before, func(e endpoint) bool { return e.NodeName == "node-4" })
	one := before[at]
	from := strangerOn(0)
	want := map[string][2][]netip.Addr{}
	zoneA := func(e *endpoint) bool { return e.Zone == "zone-a" }
	still := func(e *endpoint) bool { return e.addr() != one.addr() }
	all := those(before, (*endpoint).ready)
	for _, service := range leaving {
		// With hints; with two to be nearest of which one is left, so that it takes the region; and all.
		want[service] = [2][]netip.Addr{those(before, zoneA), those(before, func(e *endpoint) bool { return zoneA(e) && still(e) })}
	}
	coast := func(e *endpoint) bool { return e.place().region == "coast" }
	want["leaver-near"] = [2][]netip.Addr{those(before, zoneA), those(before, func(e *endpoint) bool { return coast(e) && still(e) })}
	want["leaver-serving"] = [2][]netip.Addr{all, all}

	watchers := map[string]*watcher{}
	for _, service := range leaving {
		watchers[service] = watch(from, service)
	}
	holdPods(t)
	remove(t, []endpoint{one})
	for _, service := range leaving {
		run.Eventually(t, func() error {
			for _, e := range endpoints(t, service) {
				if e.addr() == one.addr() && e.terminating() && e.serving() && !e.ready() {
					return nil
				}
			}
			return errors.New("the slice does not say that the Pod terminates")
		})
	}
	for _, service := range leaving {
		soonSo(t, service+" is answered without it", func() error {
			reply, err := question{network: "udp", from: from, server: epdnsIP, name: full(service), typ: dns.TypeA}.put()
			if err == nil {
				err = sameSet(addrs(reply), want[service][1])
			}
			return err
		})
	}
	// kube-proxy's rule and epdns are of one mind about those that stay.
	for _, service := range []string{"leaver-zone", "leaver-fallback"} {
		list := endpoints(t, service)
		for _, a := range askers(t) {
			answer := addrs(ask(t, "udp", a.addr, service, dns.TypeA))
			if err := sameSet(answer, proxied(list, a.node, a.zone)); err != nil {
				t.Errorf("%s asks for %s: %v", a.what, service, err)
			}
		}
	}
	for _, service := range leaving {
		seen := watchers[service].end(t)
		var should []string
		for _, set := range want[service] {
			if text := fmt.Sprint(set); !slices.Contains(should, text) {
				should = append(should, text)
			}
		}
		if !slices.Equal(seen, should) {
			t.Errorf("%s was answered with\n%s\nwant\n%s", service, strings.Join(seen, "\n"), strings.Join(should, "\n"))
		}
	}
}

// When all of them end, those serve to the last that the Service lets.
func TestDrainAll(t *testing.T) {
	serve(t, "{}")
	before := endpoints(t, "leaver-zone")
	all := those(before, (*endpoint).ready)
	from := strangerOn(0)
	holdPods(t)
	remove(t, before)
	for _, service := range leaving {
		run.Eventually(t, func() error {
			n := len(those(endpoints(t, service), func(e *endpoint) bool { return e.terminating() && e.serving() && !e.ready() }))
			if n != len(all) {
				return fmt.Errorf("%d of %d Pods terminate", n, len(all))
			}
			return nil
		})
	}
	for service, want := range map[string][]netip.Addr{"leaver-near": nil, "leaver-zone": nil, "leaver-serving": all, "leaver-fallback": all} {
		soonSo(t, service, func() error {
			q := question{network: "udp", from: from, server: epdnsIP, name: full(service), typ: dns.TypeA}
			reply, err := q.put()
			if err == nil && reply.Rcode != dns.RcodeSuccess {
				err = errors.New(dns.RcodeToString[reply.Rcode])
			}
			if err == nil {
				err = sameSet(addrs(reply), want)
			}
			return err
		})
	}
}
