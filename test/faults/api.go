//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"time"

	"epdns/test/cluster"
	"epdns/test/faults/proxy"
)

// This file is about the API server and the way to it.

// freshWithin is how soon answers are to be right again when the API server is back.
const freshWithin = 5 * time.Second

// outage breaks something for a time, mends it, and judges what clients got.
func (t *trial) outage(ctx context.Context, broken func() error, d time.Duration, mended func() error, fresh time.Duration) error {
	t.cut()
	if err := broken(); err != nil {
		return err
	}
	if err := t.wait(ctx, d); err != nil {
		return err
	}
	if err := mended(); err != nil {
		return err
	}
	t.heal()
	if err := t.again(ctx, fresh); err != nil {
		return err
	}
	return t.settle(ctx, fresh)
}

// serverKilled kills the API server and starts it again.
func serverKilled(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{direct: true}); err != nil {
		return err
	}
	return t.outage(ctx,
		func() error { return t.kube.Kill(cluster.APIServer) }, t.long(10*time.Second, 3*time.Second),
		func() error { return t.kube.StartComponent(ctx, cluster.APIServer) }, freshWithin)
}

// frozen is an outage in which a component is stopped and closes nothing.
func (t *trial) frozen(ctx context.Context, c cluster.Component, d time.Duration) error {
	signal := func(s syscall.Signal) error {
		if err := syscall.Kill(t.kube.PID(c), s); err != nil {
			return fmt.Errorf("%s: signal %v: %w", c, s, err)
		}
		return nil
	}
	defer signal(syscall.SIGCONT) // where it was left
	return t.outage(ctx, func() error { return signal(syscall.SIGSTOP) }, d, func() error {
		if err := signal(syscall.SIGCONT); err != nil {
			return err
		}
		return t.until(ctx, 20*time.Second, func() error { // it is back when it answers
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return t.kube.Request(ctx, http.MethodGet, servicesPath, nil, nil)
		})
	}, freshWithin)
}

// noticedWithin is how soon a connection on which nothing comes is to be known to be dead.
const noticedWithin = 15 * time.Second

// serverStalled stops the API server while its connections stay open.
func serverStalled(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{direct: true}); err != nil {
		return err
	}
	notice := t.notices(ctx)
	if err := t.frozen(ctx, cluster.APIServer, t.long(30*time.Second, 11*time.Second)); err != nil {
		return err
	}
	notice()
	t.flat()
	return nil
}

// notices looks from now on when epdns says that a watch is not open any more. What it returns
// checks that it did in time.
func (t *trial) notices(ctx context.Context) (check func()) {
	ctx, stop := context.WithCancel(ctx)
	since := time.Now()
	after := make(chan time.Duration, 1)
	go func() {
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			if all, err := scrape(t.server); err == nil && all[`epdns_watch_connected{kind="EndpointSlice",namespace=""}`] == 0 {
				after <- time.Since(since)
				return
			}
			select {
			case <-ctx.Done():
				after <- 0
				return
			case <-tick.C:
			}
		}
	}()
	return func() {
		stop()
		took := <-after
		seen := brief(took)
		if took == 0 {
			seen = "not at all"
		}
		t.check(took > 0 && took <= noticedWithin, "noticed within "+brief(noticedWithin), "%s", seen)
	}
}

// flat checks that goroutines have not grown. Each request under way has a few.
func (t *trial) flat() {
	const few = 25
	least, most := t.watched.extreme("go_goroutines")
	t.check(most-least <= few, fmt.Sprintf("at most %d goroutines more", few), "%.0f to %.0f", least, most)
}

// blackHole loses every packet between epdns and the API server.
func blackHole(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	notice := t.notices(ctx)
	err := t.outage(ctx, func() error { return lose(t.proxy.Port()) }, t.long(30*time.Second, 10*time.Second), unfilter, freshWithin)
	if err != nil {
		return err
	}
	notice()
	return nil
}

// stalledPath keeps connections open and moves nothing, as a dying load balancer does.
func stalledPath(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	line := func(l proxy.Line) func() error {
		return func() error {
			t.proxy.SetLine(l)
			return nil
		}
	}
	err := t.outage(ctx, line(proxy.Line{Stalled: true}), t.long(30*time.Second, 10*time.Second), line(proxy.Line{}), freshWithin)
	if err != nil {
		return err
	}
	t.flat()
	return nil
}

// lists are the requests for whole lists of a resource that came after a time.
func (t *trial) lists(after time.Time, resource string) (n int) {
	for _, r := range t.proxy.Requests(after) {
		if !r.Watch && strings.HasSuffix(r.Path, "/"+resource) {
			n++
		}
	}
	return n
}

// audits is how many lists of a kind are taken for audits at most: every five seconds one in turn,
// and one because its watch was lost.
func audits(d time.Duration) int { return 2 * (int(d/(5*time.Second)) + 1) }

// resets resets all connections every second.
func resets(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	begun := time.Now()
	t.cut()
	n := int(t.long(15*time.Second, 6*time.Second) / time.Second)
	for range n {
		t.proxy.Reset()
		if err := t.wait(ctx, time.Second); err != nil {
			return err
		}
	}
	t.heal()
	d := time.Since(begun)
	lists := t.lists(begun, "endpointslices")
	if err := t.again(ctx, freshWithin); err != nil {
		return err
	}
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	t.note("%d resets in %s", n, brief(d))
	t.check(lists <= audits(d), "no lists but audits", "%d", lists)
	return nil
}

// goAway has the server end connections all the time, as one does that balances its load.
func goAway(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	begun := time.Now()
	t.proxy.GoAway(1)
	for range int(t.long(15*time.Second, 6*time.Second) / time.Second) {
		// A watch is closed by the server every few minutes, here every second.
		t.proxy.Reset()
		if err := t.wait(ctx, time.Second); err != nil {
			return err
		}
	}
	d := time.Since(begun)
	lists := t.lists(begun, "endpointslices")
	t.cuts = append(t.cuts, cut{begun, time.Now()})
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	t.check(lists <= audits(d), "no lists but audits", "%d", lists)
	return nil
}

// etcdStopped stops the store behind the API server.
func etcdStopped(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{direct: true}); err != nil {
		return err
	}
	return t.frozen(ctx, cluster.Etcd, t.long(20*time.Second, 6*time.Second))
}

// revision is that of etcd now.
func (t *trial) revision(ctx context.Context) (string, error) {
	var status struct{ Header struct{ Revision string } }
	err := t.etcd(ctx, "/v3/maintenance/status", "{}", &status)
	return status.Header.Revision, err
}

// etcd sends it a request.
func (t *trial) etcd(ctx context.Context, path, body string, out any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.kube.EtcdURL()+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, b)
	}
	if err == nil && out != nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		return fmt.Errorf("etcd: %s: %w", path, err)
	}
	return nil
}

// compacted cuts epdns off while Services change and go, and has the cluster forget how.
func compacted(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	t.cut()
	if err := lose(t.proxy.Port()); err != nil {
		return err
	}
	if err := t.wait(ctx, 2*time.Second); err != nil {
		return err
	}
	t.calm()
	gone := t.world.services[:3]
	for _, s := range gone {
		if err := t.world.remove(ctx, s); err != nil {
			return err
		}
	}
	// The API server's own memory of changes goes with it, etcd's by compaction.
	if err := t.kube.Kill(cluster.APIServer); err != nil {
		return err
	}
	revision, err := t.revision(ctx)
	if err != nil {
		return err
	}
	if err := t.etcd(ctx, "/v3/kv/compaction", fmt.Sprintf(`{"revision": %q, "physical": true}`, revision), nil); err != nil {
		return err
	}
	if err := t.kube.StartComponent(ctx, cluster.APIServer); err != nil {
		return err
	}
	healed := time.Now()
	before, err := t.metric(`epdns_relists_total`)
	if err != nil {
		return err
	}
	if err := unfilter(); err != nil {
		return err
	}
	t.heal()
	if err := t.again(ctx, freshWithin); err != nil {
		return err
	}
	after, err := t.metric(`epdns_relists_total`)
	if err != nil {
		return err
	}
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	there := 0
	for _, s := range gone {
		if a := ask(ctx, t.server.DNS, s.name, true); a.outcome != nxdomain {
			there++
		}
	}
	t.check(there == 0, "deleted Services are gone", "%d of %d still there", there, len(gone))
	expired := 0
	for _, r := range t.proxy.Requests(healed) {
		if r.Watch {
			expired++
		}
	}
	t.check(after-before >= 1 && after-before <= 3, "one new list of each kind at most", "%.0f of 3 kinds", after-before)
	return nil
}
