//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"epdns/test/faults/proxy"
	"epdns/test/run"
)

// Fault is one thing that goes wrong.
type Fault struct {
	// Name is for flags and tests, Title for people: what is done.
	Name, Title string

	// Short is whether it can be tried within 20 seconds.
	Short bool

	run func(ctx context.Context, t *trial) error
}

// trial is one fault, tried once.
type trial struct {
	*Lab
	result *Result
	dir    string
	proxy  *proxy.Proxy
	server *run.Server
	oracle *oracle
	asking *asking

	extra []string // Services that are asked for besides

	stop   context.CancelFunc // of all that runs beside
	beside sync.WaitGroup
	still  context.CancelFunc // of the churn
	churns sync.WaitGroup

	cuts    []cut
	waiting []span // in which SERVFAIL is what is to be said
	excuse  []span // in which a reply may be missing
	watched *watched
	marker  *marker

	stopAsking func() // and returns when the last reply is there
}

// cut is a time in which epdns cannot know better. What was right when it began may be answered
// until it is over, and some time longer.
type cut struct{ from, to time.Time }

// Run tries a fault. An error means that it could not be tried, not that epdns failed.
func (l *Lab) Run(ctx context.Context, f *Fault) (r *Result, err error) {
	dir, err := os.MkdirTemp(l.dir, f.Name+"-")
	if err != nil {
		return nil, err
	}
	t := &trial{Lab: l, dir: dir, result: &Result{Name: f.Name, Title: f.Title}}
	defer func() { err = errors.Join(err, t.end()) }()
	if t.proxy, err = proxy.New(l.kube.Server, l.ca); err != nil {
		return nil, err
	}
	if err := l.world.mend(ctx); err != nil {
		return nil, err
	}
	beside, stop := context.WithCancel(ctx)
	t.stop = stop
	t.oracle = newOracle(l.kube)
	if err := t.oracle.look(ctx); err != nil {
		return nil, err
	}
	t.beside.Go(func() { t.oracle.run(beside) })
	began := time.Now()
	if err := f.run(ctx, t); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Name, err)
	}
	t.result.Took = time.Since(began)
	return t.result, nil
}

// end ends all that the trial has begun.
func (t *trial) end() error {
	t.calm()
	if t.stop != nil {
		t.stop()
	}
	t.beside.Wait()
	var errs []error
	if t.server != nil {
		errs = append(errs, t.server.Stop())
	}
	if t.proxy != nil {
		errs = append(errs, t.proxy.Close())
	}
	errs = append(errs, unfilter(), os.RemoveAll(t.dir))
	return errors.Join(errs...)
}

// setup says how epdns is started.
type setup struct {
	direct     bool     // without the proxy
	kubeconfig string   // empty is one that leads through the proxy
	config     string   // more of the file
	by         []string // a program that starts it, with its arguments
	listen     string   // empty is any port
	lameduck   time.Duration
	audit      string // how often it audits; empty is every five seconds
}

// text is the file. What is recovered from is recovered from in seconds.
func (s *setup) text() string {
	audit := s.audit
	if audit == "" {
		audit = "5s"
	}
	return "apiVersion: epdns/v1alpha1\nkind: Config\nsyncDeadline: 3s\nauditEvery: " + audit + "\n" + s.config
}

// start starts epdns, and returns once its sockets are bound.
func (t *trial) start(s setup) (*run.Server, error) {
	kubeconfig := s.kubeconfig
	if s.direct {
		kubeconfig = t.kube.Kubeconfig
	} else if kubeconfig == "" {
		kubeconfig = filepath.Join(t.dir, "kubeconfig")
		if err := os.WriteFile(kubeconfig, t.proxy.Kubeconfig(t.token), 0o600); err != nil {
			return nil, err
		}
	}
	config := filepath.Join(t.dir, "epdns.yaml")
	if err := os.WriteFile(config, []byte(s.text()), 0o600); err != nil {
		return nil, err
	}
	if s.listen == "" {
		s.listen = "127.0.0.1:0"
	}
	args := append(s.by, t.bin, "serve", "--config", config, "--kubeconfig", kubeconfig,
		"--listen", s.listen, "--http", "127.0.0.1:0", "--lameduck", s.lameduck.String(), "--log-format", "json")
	return run.ServeBy(exec.Command(args[0], args[1:]...))
}

// begin starts epdns, waits until it is ready, and has it asked from then on, while the Services
// change.
func (t *trial) begin(ctx context.Context, s setup) (err error) {
	if t.server, err = t.start(s); err != nil {
		return err
	}
	if err := t.ready(ctx); err != nil {
		return err
	}
	t.ask(ctx)
	t.churn(ctx, churnRate)
	return t.wait(ctx, 2*time.Second)
}

// churnRate is how many changes a second there are in most trials.
const churnRate = 20

// readyWithin is far more than it takes.
const readyWithin = 30 * time.Second

func (t *trial) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("after %v still", readyWithin))
	defer cancel()
	_, err := t.server.Ready(ctx)
	return err
}

// ask begins with the questions.
func (t *trial) ask(ctx context.Context) {
	ctx, stop := context.WithCancel(ctx)
	before := t.stop
	t.stop = func() { stop(); before() }
	asking, watched := &asking{server: t.server.DNS}, &watched{server: t.server}
	t.asking, t.watched = asking, watched
	var all sync.WaitGroup
	names := append(t.world.names(), t.extra...)
	all.Go(func() { asking.run(ctx, names) })
	all.Go(func() { watched.run(ctx) })
	marker := &marker{}
	t.marker = marker
	all.Go(func() { marker.run(ctx, t.world, asking.server) })
	t.beside.Go(all.Wait)
	t.stopAsking = func() { stop(); all.Wait() }
}

// churn begins to change the Services.
func (t *trial) churn(ctx context.Context, rate int) {
	ctx, t.still = context.WithCancel(ctx)
	t.churns.Go(func() { t.world.churn(ctx, rate, t.oracle.seen) })
}

// calm ends the changes.
func (t *trial) calm() {
	if t.still != nil {
		t.still()
	}
	t.churns.Wait()
}

// wait lets time pass, and fails where epdns has ended.
func (t *trial) wait(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil { // where no time is left, either might be chosen
		return context.Cause(ctx)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
	}
	if t.server == nil {
		return nil
	}
	return t.server.Running()
}

// again waits until all watches are open and each question has a right answer, or within is over,
// which the judgement will tell.
func (t *trial) again(ctx context.Context, within time.Duration) error {
	names := append(t.world.names(), t.extra...)
	for end := time.Now().Add(within); time.Now().Before(end); {
		open, err := t.metric("epdns_watch_connected")
		wrong := err != nil || open < kinds
		for _, name := range names {
			a := ask(ctx, t.server.DNS, name, true)
			wrong = wrong || !t.oracle.right(&a, a.at.Add(-lag))
		}
		if !wrong {
			return t.wait(ctx, 500*time.Millisecond)
		}
		if err := t.wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// kinds are EndpointSlices, Services and Nodes: a watch each.
const kinds = 3

// until waits for something that epdns or the control plane is to do.
func (t *trial) until(ctx context.Context, d time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d, fmt.Errorf("after %v still", d))
	defer cancel()
	return run.Until(ctx, 20*time.Millisecond, try)
}

// long is d, or the other where trials are short.
func (t *trial) long(d, short time.Duration) time.Duration {
	if t.Short {
		return short
	}
	return d
}

// cut says that from now on epdns cannot know what is new, heal that it can again.
func (t *trial) cut() { t.cuts = append(t.cuts, cut{from: time.Now()}) }

func (t *trial) heal() { t.cuts[len(t.cuts)-1].to = time.Now() }

// lag is how old an answer may be while nothing is wrong: a busy machine with two processors has
// a whole control plane to run besides.
const lag = time.Second

// settle ends the changes, waits until all has come to rest, and judges every answer. Within
// fresh after each cut, answers must be right again.
func (t *trial) settle(ctx context.Context, fresh time.Duration) error {
	t.calm()
	if err := t.wait(ctx, lag+500*time.Millisecond); err != nil {
		return err
	}
	if n := len(t.cuts); n > 0 { // what has changed since may be late, too
		if err := t.again(ctx, time.Until(t.cuts[n-1].to.Add(fresh))); err != nil {
			return err
		}
	}
	rest := time.Now()
	if err := t.wait(ctx, time.Second); err != nil {
		return err
	}
	answers := t.asking.answers()
	if err := t.looked(ctx, time.Now()); err != nil {
		return err
	}
	j := t.judge(answers, fresh, rest)
	t.check(j.silent == 0, "all questions answered", "%s of %s", thousands(j.asked-j.silent), thousands(j.asked))
	t.check(j.wrong == 0, "no wrong answer", "%s%s", thousands(j.wrong), j.seconds())
	if len(t.cuts) > 0 {
		t.check(j.recovered <= fresh, "right again within "+brief(fresh), "%s", j.again())
	}
	t.check(j.resting > 0 && j.restingWrong == 0, "none wrong at rest", "%s of %s", thousands(j.restingWrong), thousands(j.resting))
	t.result.Asked, t.result.Wrong = j.asked, j.wrong
	t.result.P50, t.result.P99 = j.p50, j.p99
	t.result.Seen50, t.result.Seen99 = t.marker.latencies(t.cuts, fresh)
	t.result.Use = t.watched.use()
	return nil
}

// check is a thing that must hold, and what was seen.
func (t *trial) check(holds bool, what, format string, args ...any) {
	t.result.Checks = append(t.result.Checks, Check{what, fmt.Sprintf(format, args...), holds})
}

// note is a figure without a bar.
func (t *trial) note(format string, args ...any) {
	t.result.Notes = append(t.result.Notes, fmt.Sprintf(format, args...))
}

// isReady asks /readyz.
func isReady(http string) bool {
	_, err := run.Get("http://" + http + "/readyz")
	return err == nil
}
