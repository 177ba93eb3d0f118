//go:build linux

// Command flood measures how many of those who ask in earnest are answered while others flood
// a server with more than it can answer, with and without a limit of replies. Run "flood help"
// for its usage.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"epdns/test/bench/load"
	"epdns/test/cmd/internal/cli"
	"epdns/test/run"
)

const usage = `flood measures how many of those who ask in earnest are answered while others flood epdns.
The table goes to stdout. It needs two processors: one for epdns, one for all who ask.

  flood [--for D] [--limit N] [--slip N] [--times N,N] [--beside N] [--program FILE]

  --for D         how long each flood lasts (default 5s)
  --limit N       rateLimit.perSecond of the runs that have a limit (default 50)
  --slip N        rateLimit.slip of these (default 2)
  --times N,N     floods, as multiples of what epdns can answer (default 0.5,1,2,5)
  --beside N      threads that take time of epdns's processor, each as much as it, so that
                  who floods can be that much faster (default 2)
  --program FILE  epdns to measure (default: built from the repository)
`

var command = cli.Command{Name: "flood", Usage: usage, Run: flood}

func main() { os.Exit(command.Main(os.Args[1:], os.Stdout, os.Stderr)) }

// The processors.
const (
	serverCPU = 0
	askerCPU  = 1
)

// Who asks in earnest does so at a steady rate that is little beside what epdns can answer, for
// many names, each of which stays within the limit.
const (
	services   = 500
	honestRate = 2000
)

type options struct {
	span    time.Duration
	limit   int
	slip    int
	times   []float64
	beside  int
	program string
}

func parse(args []string) (o options, err error) {
	fs := flag.NewFlagSet("flood", flag.ContinueOnError)
	fs.DurationVar(&o.span, "for", 5*time.Second, "")
	fs.IntVar(&o.limit, "limit", 50, "")
	fs.IntVar(&o.slip, "slip", 2, "")
	times := fs.String("times", "0.5,1,2,5", "")
	fs.IntVar(&o.beside, "beside", 2, "")
	fs.StringVar(&o.program, "program", "", "")
	if err := cli.Parse(fs, args); err != nil {
		return o, err
	}
	switch {
	case fs.NArg() > 0:
		return o, cli.Mistakef("no argument is expected: %q", fs.Arg(0))
	case o.span <= 0:
		return o, cli.Mistakef("--for %v is not more than 0", o.span)
	case o.slip < 0:
		return o, cli.Mistakef("--slip %d is less than 0", o.slip)
	case o.beside < 0 || o.beside > 100:
		return o, cli.Mistakef("--beside %d is not 0 to 100", o.beside)
	case o.limit < 1:
		return o, cli.Mistakef("--limit %d is less than 1", o.limit)
	}
	for text := range strings.SplitSeq(*times, ",") {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n <= 0 || n > 100 {
			return o, cli.Mistakef("--times %q is not a number up to 100", text)
		}
		o.times = append(o.times, n)
	}
	return o, nil
}

func flood(args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "epdns-flood-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if o.program == "" {
		root, err := run.Repository()
		if err != nil {
			return err
		}
		if o.program, err = run.Build(ctx, root, dir); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "cluster.yaml"), []byte(manifests()), 0o600); err != nil {
		return err
	}
	for range o.beside {
		go spin(ctx)
	}
	out := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "limit\tflood of\tmultiple\tqueries/s\treplies/s\tCPU/query\tnot lost\tin earnest, answered\tp50\tp99\tresident\t")
	for _, kind := range floods {
		capacity := 0.0
		for _, limit := range []int{0, o.limit} {
			if err := measure(ctx, o, dir, limit, kind, &capacity, out); err != nil {
				return err
			}
			out.Flush()
		}
	}
	return ctx.Err()
}

// spin takes time of the server's processor.
func spin(ctx context.Context) {
	runtime.LockOSThread() // and never back: the thread ends with it
	var only unix.CPUSet
	only.Set(serverCPU)
	if unix.SchedSetaffinity(0, &only) != nil {
		return
	}
	for ctx.Err() == nil {
	}
}

// floodOf is what a flood is of.
type floodOf struct {
	what   string
	name   string
	random bool // the first label, of eight letters, is another each time
	rcode  int
}

var floods = []floodOf{
	{"one name", "svc-000.flood.registry.local.", false, dns.RcodeSuccess},
	{"names that are not", "xxxxxxxx.flood.registry.local.", true, dns.RcodeNameError},
}

// measure floods one epdns more and more. How much it can answer is found out where there is
// no limit.
func measure(ctx context.Context, o options, dir string, limit int, kind floodOf, capacity *float64, out io.Writer) (err error) {
	addr, page, err := addresses()
	if err != nil {
		return err
	}
	config := filepath.Join(dir, "epdns.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `apiVersion: epdns/v1alpha1
kind: Config
source: {manifests: cluster.yaml}
listen: [%q]
http: %q
rateLimit: {perSecond: %d, slip: %d}
lameduck: 0
`, addr, page, limit, o.slip), 0o600); err != nil {
		return err
	}
	cmd := exec.Command("taskset", "-c", strconv.Itoa(serverCPU), o.program, "serve", "--config", config)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	p, err := run.Start(cmd)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	ready, cancel := context.WithTimeout(ctx, run.Grace)
	defer cancel()
	if err := p.Until(ready, 10*time.Millisecond, func() error {
		_, err := run.Get("http://" + page + "/readyz")
		return err
	}); err != nil {
		return err
	}
	honest, err := earnest()
	if err != nil {
		return err
	}
	if limit == 0 {
		if *capacity, err = capacityOf(addr, kind, o.span); err != nil {
			return err
		}
	}
	for _, times := range append([]float64{0}, o.times...) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r, did, err := during(ctx, addr, page, p.PID(), kind, int(times**capacity), honest, o.span)
		if err != nil {
			return err
		}
		seconds := r.Elapsed.Seconds()
		fmt.Fprintf(out, "%d\t%s\t%.1f\t%.0f\t%.0f\t%v\t%.1f %%\t%.1f %%\t%v\t%v\t%s\t\n", limit, kind.what, (did.taken+did.lost)/seconds / *capacity,
			(did.taken+did.lost)/seconds, did.replies/seconds, (did.cpu / time.Duration(max(1, did.taken))).Round(10*time.Nanosecond), 100*did.taken/(did.taken+did.lost), 100*float64(r.Answers)/float64(r.Asked),
			quantile(r.Latencies, 0.5), quantile(r.Latencies, 0.99), resident(p.PID()))
	}
	return nil
}

// during asks in earnest while a flood of that many queries a second goes on, and returns what
// came of it, and what epdns did.
func during(ctx context.Context, addr, page string, pid int, kind floodOf, rate int, honest []load.Query, span time.Duration) (r *load.Result, did done, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	if rate > 0 {
		s := load.Spray{Server: addr, CPU: askerCPU, Rate: rate, Next: querying(kind)}
		for i := range 64 {
			s.Sources = append(s.Sources, netip.AddrFrom4([4]byte{127, 66, 0, byte(1 + i)}))
		}
		go func() {
			_, err := s.Run(ctx)
			ended <- err
		}()
		time.Sleep(500 * time.Millisecond) // until the queues are full
	} else {
		ended <- nil
	}
	before, err := doneBy(page, pid)
	if err != nil {
		return nil, did, err
	}
	g, err := load.NewUDP(addr, load.MaxOutstanding, askerCPU)
	if err != nil {
		return nil, did, err
	}
	defer g.Close()
	if r, err = g.Pace(honest, honestRate, span); err != nil {
		return nil, did, err
	}
	did, err = doneBy(page, pid)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return nil, did, err
	}
	did = done{did.taken - before.taken, did.lost - before.lost, did.replies - before.replies, did.cpu - before.cpu}
	return r, did, nil
}

// querying writes the queries of a flood.
func querying(kind floodOf) func(b []byte) []byte {
	q := new(dns.Msg).SetQuestion(kind.name, dns.TypeA).SetEdns0(1232, false)
	wire, err := q.Pack()
	if err != nil {
		panic(err)
	}
	return func(b []byte) []byte {
		b = append(b[:0], wire...)
		if kind.random {
			const hex = "0123456789abcdef"
			for n, i := rand.Uint32(), 13; i < 21; i++ { // behind the header and the label's length
				b[i], n = hex[n&15], n>>4
			}
		}
		return b
	}
}

// earnest are the queries of those who ask in earnest.
func earnest() (all []load.Query, err error) {
	for i := range services {
		wire, err := new(dns.Msg).SetQuestion(fmt.Sprintf("svc-%03d.shop.registry.local.", i), dns.TypeA).SetEdns0(1232, false).Pack()
		if err != nil {
			return nil, err
		}
		all = append(all, load.Query{Wire: wire, Min: len(wire) + 10*16, Max: 1232})
	}
	return all, nil
}

// capacityOf is how many queries a second of a flood epdns can answer.
func capacityOf(addr string, kind floodOf, span time.Duration) (float64, error) {
	next := querying(kind)
	var queries []load.Query
	for range 4096 {
		queries = append(queries, load.Query{Wire: next(nil), Max: 1232, RCODE: kind.rcode})
	}
	g, err := load.NewUDP(addr, load.MaxOutstanding, askerCPU)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	r, err := g.Flood(queries, span)
	if err != nil {
		return 0, err
	}
	return float64(r.Replies()) / r.Active.Seconds(), nil
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))].Round(10 * time.Microsecond)
}

// done is what a server has done with queries: taken them, lost them since its socket had no
// room for more, replied to them; and in how much time of its processor.
type done struct {
	taken, lost, replies float64
	cpu                  time.Duration
}

func doneBy(page string, pid int) (d done, err error) {
	if d.cpu, err = used(pid); err != nil {
		return d, err
	}
	text, err := run.Get("http://" + page + "/metrics")
	if err != nil {
		return d, err
	}
	for line := range strings.Lines(string(text)) {
		name, _, _ := strings.Cut(line, "{")
		name, value, _ := strings.Cut(name, " ")
		to := map[string]*float64{"epdns_dns_requests_total": &d.taken, "epdns_udp_kernel_drops_total": &d.lost, "epdns_dns_responses_total": &d.replies}[name]
		if to == nil {
			continue
		}
		if value == "" {
			value = line[strings.LastIndexByte(line, ' '):]
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
		if err != nil {
			return d, fmt.Errorf("metric %q: %w", line, err)
		}
		*to += v
	}
	return d, nil
}

// used is the processor time that a process has used.
func used(pid int) (sum time.Duration, err error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, err
	}
	for _, path := range tasks {
		b, err := os.ReadFile(path)
		if err != nil {
			return 0, err
		}
		ran, _, _ := strings.Cut(string(b), " ")
		n, err := strconv.ParseInt(ran, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", path, err)
		}
		sum += time.Duration(n)
	}
	return sum, nil
}

func resident(pid int) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "?"
}

// addresses are two that are free now.
func addresses() (dns, http string, err error) {
	for _, to := range []*string{&dns, &http} {
		port, err := run.FreePort()
		if err != nil {
			return "", "", err
		}
		*to = fmt.Sprintf("127.0.0.1:%d", port)
	}
	return dns, http, nil
}

// manifests are Services of ten endpoints each, one of which is flooded.
func manifests() string {
	var b strings.Builder
	slice := func(namespace string, i int) {
		fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata: {namespace: %s, name: svc-%03d-x, labels: {kubernetes.io/service-name: svc-%03d}}\nports: [{name: http, port: 8080}]\nendpoints:\n", namespace, i, i)
		for j := range 10 {
			fmt.Fprintf(&b, "- {addresses: [10.%d.%d.%d], conditions: {ready: true}}\n", len(namespace), i/25, i%25*10+j)
		}
	}
	for i := range services {
		slice("shop", i)
	}
	slice("flood", 0)
	return b.String()
}
