//go:build linux

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"epdns/test/bench/load"
	"epdns/test/cluster"
	"epdns/test/run"
)

// Options are those of [Compare] and [Scale].
type Options struct {
	// Only are the servers, questions and transports that are wanted; none of a kind is all.
	Only []string

	// Seconds is how long a rate is measured; the latency takes as long besides, and the warm-up
	// a fifth.
	Seconds float64

	// Rounds is how often everything is measured.
	Rounds int

	// Services is how many there are with ten endpoints each.
	Services int

	// Echo is the command that runs [Echo]; it gets the address as its last argument, and in
	// [EchoEnv].
	Echo []string

	// Progress gets a line for each step; it must not be nil.
	Progress io.Writer
}

// Transports are the names of those.
var Transports = []string{"udp", "tcp"}

// Questions are the names of all kinds of questions.
func Questions() (names []string) {
	for _, q := range NewWorld(1).questions {
		names = append(names, q.name)
	}
	return names
}

// chosen are those of all that are wanted.
func (o *Options) chosen(all []string) []string {
	wanted := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !slices.Contains(o.Only, name) })
	if len(wanted) == 0 {
		return all
	}
	return wanted
}

const (
	// outstanding is how many queries are on their way. A socket as the kernel makes it has room
	// for 256 datagrams of a query, or some less where it cut them, so that none are lost.
	outstanding = 224
	connections = 4

	// saturated is the share of its processor that a server must have used for its answers a
	// second to be all that it can.
	saturated = 0.95

	// disturbed is the share of either processor that something else may have: a little more than
	// what Linux keeps for others beside a thread of highest priority. A measurement in which it was
	// more is made again, up to a number of times, and the least disturbed one counts.
	disturbed = 0.06
	attempts  = 3

	// spot is how many names are checked after the measurement. Before it, all are.
	spot = 50
)

// key is what is measured.
type key struct {
	server, question string
	tcp              bool
}

func (k key) transport() string {
	if k.tcp {
		return "TCP"
	}
	return "UDP"
}

// sample is what came of one round.
type sample struct {
	rate          float64 // answers a second
	cpu           float64 // the server's, µs a query
	busy          float64 // share of its processor that the server used, 0 to 1
	others        float64 // share of that processor, or of the asker's, that neither used nor left idle
	lost          float64 // share of the queries
	wrong         int     // replies
	p50, p90, p99 float64 // latency at the steady rate, µs
	dnsperf       float64 // answers a second as dnsperf sees it; 0 where it was not asked
}

// Comparison is what [Compare] found.
type Comparison struct {
	Machine  string
	Versions []string

	options   Options
	servers   []string
	questions []*question
	tcp       []bool // transports
	samples   map[key][]sample
	sizes     map[key][2]int        // of replies, smallest and largest
	resident  map[string][2]float64 // MiB, before and after

	disturbances int // measurements beside which too much else ran
}

// Compare starts the servers and asks them all the same. The control plane is only started where
// CoreDNS takes part, which needs it.
func Compare(ctx context.Context, o Options) (_ *Comparison, err error) {
	if runtime.NumCPU() < 2 {
		return nil, errors.New("the servers need a processor, and who asks another: there is one only")
	}
	c := &Comparison{options: o, servers: o.chosen(Servers), samples: map[key][]sample{}, sizes: map[key][2]int{}, resident: map[string][2]float64{}}
	world := NewWorld(o.Services)
	questions := o.chosen(Questions())
	for _, q := range world.questions {
		if slices.Contains(questions, q.name) {
			c.questions = append(c.questions, q)
		}
	}
	for _, t := range o.chosen(Transports) {
		c.tcp = append(c.tcp, t == "tcp")
	}
	l := &lab{}
	defer func() { err = errors.Join(err, l.stop()) }()
	if err := l.start(ctx, c, world); err != nil {
		return nil, err
	}
	queries, err := c.learn(l)
	if err != nil {
		return nil, err
	}
	if err := l.pinOthers(askerCPU); err != nil {
		return nil, err
	}
	if err := c.weigh(l, 0); err != nil {
		return nil, err
	}
	fmt.Fprintf(o.Progress, "measuring, which takes about %v\n", c.takes().Round(time.Second))
	for round := range o.Rounds {
		for _, q := range c.questions {
			for _, tcp := range c.tcp {
				// Each round begins with another, so that none always follows the same.
				for i := range l.servers {
					s := l.servers[(i+round)%len(l.servers)]
					if err := ctx.Err(); err != nil {
						return nil, err
					}
					k := key{s.name, q.name, tcp}
					sample, err := c.measure(ctx, l, s, k, q, queries[k])
					if err != nil {
						return nil, fmt.Errorf("%s, %s over %s: %w", s.name, q.name, k.transport(), err)
					}
					c.samples[k] = append(c.samples[k], sample)
				}
			}
		}
		fmt.Fprintf(o.Progress, "round %d of %d done, %d measurements disturbed\n", round+1, o.Rounds, c.disturbances)
	}
	if err := c.weigh(l, 1); err != nil {
		return nil, err
	}
	for _, s := range l.servers {
		for _, q := range c.questions {
			for _, tcp := range c.tcp {
				if _, err := c.ask(s, q, tcp, max(1, len(q.names)/spot)); err != nil {
					return nil, fmt.Errorf("after the measurement: %w", err)
				}
			}
		}
	}
	return c, nil
}

// takes is how long the measurement takes.
func (c *Comparison) takes() time.Duration {
	cells := len(c.servers) * len(c.questions) * len(c.tcp) * c.options.Rounds
	return time.Duration(float64(cells) * (c.options.Seconds*2.2 + 0.1) * float64(time.Second))
}

// weigh takes the servers' memory, before (0) or after (1).
func (c *Comparison) weigh(l *lab, when int) error {
	for _, s := range l.servers {
		pids, err := s.pids()
		if err != nil {
			return err
		}
		m, err := resident(pids)
		if err != nil {
			return err
		}
		both := c.resident[s.name]
		both[when] = m
		c.resident[s.name] = both
	}
	return nil
}

// start starts what is compared.
func (l *lab) start(ctx context.Context, c *Comparison, world *World) (err error) {
	o := c.options
	if err := l.prepare(ctx); err != nil {
		return err
	}
	wants := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(c.servers, n) })
	}
	var missing []string
	for _, name := range []string{knot, nsd, bind} {
		if _, err := exec.LookPath(peers[name][0]); err != nil && wants(name) {
			missing = append(missing, peers[name][1])
		}
	}
	if missing != nil {
		return fmt.Errorf("some servers are not installed: sudo apt-get install %s, or leave them out with --only", strings.Join(missing, " "))
	}
	c.Machine = machine()
	var kubeconfig, core string
	source := ""
	if wants(coreDNS, coreDNSKept) {
		if core, err = cluster.CoreDNS(ctx, cluster.Options{Progress: o.Progress}); err != nil {
			return err
		}
		if err := l.startCluster(ctx, o.Progress); err != nil {
			return err
		}
		if err := create(ctx, l.cluster, world.services, o.Progress); err != nil {
			return err
		}
		kubeconfig = l.cluster.Kubeconfig
		var version struct{ GitVersion string }
		if err := l.cluster.Request(ctx, http.MethodGet, "/version", nil, &version); err != nil {
			return err
		}
		c.Versions = append(c.Versions, "Kubernetes "+strings.TrimPrefix(version.GitVersion, "v"))
		source = l.source(kubeconfig, "")
	} else {
		file := filepath.Join(l.dir, "manifests.yaml")
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		if err := errors.Join(writeManifests(f, world.services), f.Close()); err != nil {
			return err
		}
		source = l.source("", file)
	}
	var zones []zone
	if wants(epdns, knot, nsd, bind) {
		s, err := l.startEpdns(ctx, source)
		if err != nil {
			return err
		}
		if wants(knot, nsd, bind) {
			if zones, err = l.transfer(s.address); err != nil {
				return err
			}
		}
		if !wants(epdns) {
			l.servers = nil
			if err := s.process.Stop(); err != nil {
				return err
			}
		}
	}
	for _, name := range c.servers {
		switch name {
		case floor:
			_, err = l.startFloor(ctx, o.Echo)
		case knot, nsd, bind:
			_, err = l.startPeer(ctx, name, zones)
		case coreDNS, coreDNSKept:
			_, err = l.startCoreDNS(ctx, name, core, kubeconfig)
		}
		if err != nil {
			return fmt.Errorf("start %s: %w", name, err)
		}
	}
	for _, s := range l.servers {
		if !slices.Contains(c.Versions, s.version) {
			c.Versions = append(c.Versions, s.version)
		}
	}
	slices.Sort(c.Versions)
	fmt.Fprintf(o.Progress, "%s\n%s\n", c.Machine, strings.Join(c.Versions, ", "))
	return nil
}

// prepare builds epdns and makes the directory.
func (l *lab) prepare(ctx context.Context) (err error) {
	os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin") // where Debian puts servers
	if l.dir, err = os.MkdirTemp("", "epdns-bench-"); err != nil {
		return err
	}
	if l.root, err = run.Repository(); err != nil {
		return err
	}
	l.bin, err = run.Build(ctx, l.root, l.dir)
	return err
}

// startCluster starts a control plane and ends those of its parts that nothing here needs, and
// that would work beside a measurement.
func (l *lab) startCluster(ctx context.Context, progress io.Writer) (err error) {
	// A million endpoints are more than etcd takes by default.
	args := map[cluster.Component][]string{cluster.Etcd: {"--quota-backend-bytes=8589934592"}}
	if l.cluster, err = cluster.Start(ctx, cluster.Options{Progress: progress, Args: args}); err != nil {
		return err
	}
	for _, name := range []cluster.Component{cluster.ControllerManager, cluster.Scheduler, cluster.Kwok} {
		if err := l.cluster.Kill(name); err != nil {
			return err
		}
	}
	return nil
}

// learn asks each server for all names, and checks what it says. It returns the queries with what
// is then known of their replies.
func (c *Comparison) learn(l *lab) (map[key][]load.Query, error) {
	queries := map[key][]load.Query{}
	fill := func(k key, q *question, make func(wire []byte) load.Query) error {
		for i := range q.names {
			wire, err := q.message(i).Pack()
			if err != nil {
				return err
			}
			queries[k] = append(queries[k], make(wire))
		}
		return nil
	}
	for _, q := range c.questions {
		for _, tcp := range c.tcp {
			size := 0 // of the first server's replies, which is epdns if it is there
			for _, s := range l.servers {
				if s.name == floor {
					continue
				}
				k := key{s.name, q.name, tcp}
				span, err := c.ask(s, q, tcp, 1)
				if err != nil {
					return nil, err
				}
				c.sizes[k] = span
				if size == 0 {
					size = span[1]
				}
				if err := fill(k, q, func(wire []byte) load.Query {
					return load.Query{Wire: wire, RCODE: q.rcode, Truncated: q.large && !tcp, Min: span[0], Max: span[1]}
				}); err != nil {
					return nil, err
				}
			}
			if slices.Contains(c.servers, floor) {
				k := key{floor, q.name, tcp}
				if size == 0 {
					size = alone
				}
				c.sizes[k] = [2]int{size, size}
				if err := fill(k, q, func(wire []byte) load.Query { return load.ForEcho(wire, size) }); err != nil {
					return nil, err
				}
			}
		}
	}
	return queries, nil
}

// alone is the size of the echo's replies where there is nobody to learn it from.
const alone = 230

// ask asks for each name, or for one of every so many, and checks the replies. It returns the
// sizes of the smallest and the largest.
func (c *Comparison) ask(s *server, q *question, tcp bool, every int) (span [2]int, err error) {
	if s.name == floor {
		return span, nil
	}
	network := "udp"
	if tcp {
		network = "tcp"
	}
	conn, err := net.Dial(network, s.address)
	if err != nil {
		return span, err
	}
	defer conn.Close()
	d := &dns.Conn{Conn: conn, UDPSize: ednsSize}
	for i := 0; i < len(q.names); i += every {
		m := q.message(i)
		d.SetDeadline(time.Now().Add(run.Grace))
		if err := d.WriteMsg(m); err != nil {
			return span, fmt.Errorf("ask %s: %w", s.name, err)
		}
		wire, err := d.ReadMsgHeader(nil)
		reply := new(dns.Msg)
		if err == nil {
			err = reply.Unpack(wire)
		}
		if err == nil && reply.Id != m.Id {
			err = errors.New("a reply to something else")
		}
		if err == nil {
			err = q.check(i, reply, tcp)
		}
		if err != nil {
			return span, fmt.Errorf("%s, %s over %s: %w", titles[s.name], q.name, network, err)
		}
		if span[0] == 0 || len(wire) < span[0] {
			span[0] = len(wire)
		}
		span[1] = max(span[1], len(wire))
	}
	return span, nil
}

// measure asks one server one kind of question.
func (c *Comparison) measure(ctx context.Context, l *lab, s *server, k key, q *question, queries []load.Query) (out sample, err error) {
	open := func() (*load.Generator, error) { return load.NewUDP(s.address, outstanding, askerCPU) }
	if k.tcp {
		open = func() (*load.Generator, error) { return load.NewTCP(s.address, connections, outstanding, askerCPU) }
	}
	g, err := open()
	if err != nil {
		return out, err
	}
	defer g.Close()
	seconds := func(share float64) time.Duration {
		return time.Duration(share * c.options.Seconds * float64(time.Second))
	}
	if _, err := g.Flood(queries, seconds(0.2)); err != nil {
		return out, err
	}
	pids, err := s.pids()
	if err != nil {
		return out, err
	}
	wrong := 0
	for try := range attempts {
		got, err := flood(g, pids, queries, seconds(1))
		if err != nil {
			return out, err
		}
		wrong += got.wrong
		if try == 0 || got.others < out.others {
			out = got
		}
		if out.others <= disturbed {
			break
		}
		c.disturbances++
	}
	r, err := g.Pace(queries, q.rate, seconds(1))
	if err != nil {
		return out, err
	}
	out.wrong = wrong + r.Wrong
	us := func(p float64) float64 { return float64(percentile(r.Latencies, p)) / float64(time.Microsecond) }
	out.p50, out.p90, out.p99 = us(0.5), us(0.9), us(0.99)
	if out.wrong > 0 {
		fmt.Fprintf(c.options.Progress, "%s, %s over %s: %d replies were wrong\n", s.name, q.name, k.transport(), out.wrong)
	}
	// Its second is the shortest that it takes, and one look is enough.
	if len(c.samples[k]) == 0 && !k.tcp && s.name != floor && !q.large && (q.qtype == dns.TypeSRV || q.name == "A10") {
		out.dnsperf, err = dnsperf(ctx, l, s, q, seconds(1))
	}
	return out, err
}

// flood measures answers a second and processor time, and looks at what else ran meanwhile.
func flood(g *load.Generator, pids []int, queries []load.Query, d time.Duration) (out sample, err error) {
	before, err := cpuTime(pids)
	if err != nil {
		return out, err
	}
	idle, err := idleTime(serverCPU)
	if err != nil {
		return out, err
	}
	r, err := g.Flood(queries, d)
	if err != nil {
		return out, err
	}
	after, err := cpuTime(pids)
	if err != nil {
		return out, err
	}
	idled, err := idleTime(serverCPU)
	if err != nil {
		return out, err
	}
	active := max(r.Active, r.Elapsed)
	out = sample{
		rate:  r.Rate(),
		busy:  (after - before).Seconds() / active.Seconds(),
		lost:  float64(max(0, r.Lost-r.Stale)) / float64(max(1, r.Asked)),
		wrong: r.Wrong,
	}
	out.others = max(0, 1-out.busy-(idled-idle).Seconds()/active.Seconds(), r.Kept.Seconds()/r.Elapsed.Seconds())
	out.cpu = float64(after-before) / float64(time.Microsecond) / float64(max(1, r.Replies()))
	return out, nil
}

// dnsperf has dnsperf ask, if it is installed.
func dnsperf(ctx context.Context, l *lab, s *server, q *question, d time.Duration) (rate float64, err error) {
	path, err := exec.LookPath("dnsperf")
	if err != nil {
		return 0, nil
	}
	var text strings.Builder
	for _, name := range q.names {
		fmt.Fprintln(&text, name, dns.TypeToString[q.qtype])
	}
	file, err := l.write("dnsperf."+q.name, text.String())
	if err != nil {
		return 0, err
	}
	host, port, _ := net.SplitHostPort(s.address)
	cmd := exec.CommandContext(ctx, path, "-s", host, "-p", port, "-d", file, "-e", "-q", strconv.Itoa(outstanding),
		"-l", strconv.Itoa(max(1, int(d.Seconds()))))
	// It inherits the processor of the asker.
	out, err := cmd.CombinedOutput()
	m := dnsperfRate.FindSubmatch(out)
	if err != nil || m == nil {
		return 0, fmt.Errorf("dnsperf: %w\n%s", err, out)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

var dnsperfRate = regexp.MustCompile(`Queries per second:\s+([0-9.]+)`)

// pinOthers has everything but the servers run on one processor, or on any: this program, and the
// control plane.
func (l *lab) pinOthers(cpu int) error {
	all, err := family(os.Getpid())
	if err != nil {
		return err
	}
	served := map[int]bool{}
	for _, s := range l.servers {
		pids, err := s.pids()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			served[pid] = true
		}
	}
	var allowed unix.CPUSet
	if cpu == anyCPU {
		for i := range runtime.NumCPU() {
			allowed.Set(i)
		}
	} else {
		allowed.Set(cpu)
	}
	for _, pid := range all {
		if served[pid] {
			continue
		}
		tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pid))
		if err != nil {
			return err
		}
		for _, task := range tasks {
			id, _ := strconv.Atoi(filepath.Base(task))
			if err := unix.SchedSetaffinity(id, &allowed); err != nil && err != unix.ESRCH {
				return fmt.Errorf("run %d on processor %d: %w", pid, cpu, err)
			}
		}
	}
	return nil
}

// machine says what this is, in a few words.
func machine() string {
	model := runtime.GOARCH
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := regexp.MustCompile(`(?m)^model name\s*:\s*(.*)$`).FindSubmatch(b); m != nil {
			model = string(m[1])
		}
	}
	kernel := ""
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		kernel = regexp.MustCompile(`^\d+\.\d+`).FindString(unix.ByteSliceToString(u.Release[:]))
	}
	return fmt.Sprintf("%d processors (%s), Linux %s", runtime.NumCPU(), model, kernel)
}
