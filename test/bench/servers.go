//go:build linux

package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"epdns/test/bench/load"
	"epdns/test/cluster"
	"epdns/test/run"
)

// The servers, by the names that --only takes.
const (
	floor       = "floor"
	epdns       = "epdns"
	knot        = "knot"
	nsd         = "nsd"
	bind        = "bind"
	coreDNS     = "coredns"
	coreDNSKept = "coredns-cache"
)

// Servers are the names of all that can be compared.
var Servers = []string{floor, epdns, knot, nsd, bind, coreDNS, coreDNSKept}

// titles are those names for people.
var titles = map[string]string{
	floor: "UDP or TCP echo", epdns: "epdns", knot: "Knot", nsd: "NSD", bind: "BIND",
	coreDNS: "CoreDNS kubernetes", coreDNSKept: "CoreDNS kubernetes, cache",
}

// peers are the programs that take zones, and Debian's packages that have them.
var peers = map[string][2]string{knot: {"knotd", "knot"}, nsd: {"nsd", "nsd"}, bind: {"named", "bind9"}}

// server is one that runs.
type server struct {
	name    string
	address string // UDP and TCP
	page    string // of epdns, where it has its pages
	version string
	process *run.Process
}

// pids are its processes.
func (s *server) pids() ([]int, error) { return family(s.process.PID()) }

// resident is its memory, in MiB.
func (s *server) resident() (float64, error) {
	pids, err := s.pids()
	if err != nil {
		return 0, err
	}
	return resident(pids)
}

// signal sends a signal to all its processes.
func (s *server) signal(signal syscall.Signal) error {
	pids, err := s.pids()
	for _, pid := range pids {
		err = errors.Join(err, syscall.Kill(pid, signal))
	}
	return err
}

// lab has the servers of one run.
type lab struct {
	dir     string // temporary
	root    string // of the repository
	bin     string // epdns
	servers []*server
	cluster *cluster.Cluster
}

func (l *lab) stop() error {
	var errs []error
	for _, s := range l.servers {
		errs = append(errs, s.process.Stop())
	}
	if l.cluster != nil {
		errs = append(errs, l.cluster.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(l.dir))...)
}

// freeAddress is one that nobody uses, over UDP and TCP.
func freeAddress() (string, error) {
	port, err := run.FreePort()
	return fmt.Sprintf("127.0.0.1:%d", port), err
}

// write writes a file in the lab's directory.
func (l *lab) write(name, text string) (path string, err error) {
	path = filepath.Join(l.dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// launch starts a server and waits until it answers.
func (l *lab) launch(ctx context.Context, s *server, cmd *exec.Cmd, answers func() error) error {
	cmd.Dir = l.dir
	if cmd.Env == nil {
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.dir}
	}
	var err error
	if s.process, err = startOn(serverCPU, cmd); err != nil {
		return err
	}
	l.servers = append(l.servers, s)
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, fmt.Errorf("%s does not answer after %v", s.name, startWithin))
	defer cancel()
	return s.process.Until(ctx, 2*time.Millisecond, answers)
}

// startWithin is much more than a server needs for a million endpoints.
const startWithin = 3 * time.Minute

// source is where epdns reads from: a line of its configuration.
func (l *lab) source(kubeconfig, manifests string) string {
	if kubeconfig != "" {
		return fmt.Sprintf("source: {kubeconfig: %q}", kubeconfig)
	}
	return fmt.Sprintf("source: {manifests: %q}", manifests)
}

// startEpdns starts epdns with names as CoreDNS has them.
func (l *lab) startEpdns(ctx context.Context, source string) (*server, error) {
	s := &server{name: epdns}
	var err error
	if s.address, err = freeAddress(); err != nil {
		return nil, err
	}
	if s.page, err = freeAddress(); err != nil {
		return nil, err
	}
	// Another may run, which reads its file again when that changes.
	config, err := l.write(fmt.Sprintf("epdns-%d.yaml", len(l.servers)), fmt.Sprintf(`apiVersion: epdns/v1alpha1
kind: Config
%s
listen: [%q]
http: %q
zones: [{name: cluster.local, layout: kubernetes, endpointNames: address}]
reverse: [%s]
nameserver: [192.0.2.53] # BIND takes no zone whose name server has no address
`, source, s.address, s.page, reverseCIDR))
	if err != nil {
		return nil, err
	}
	s.version = "epdns " + revision(ctx, l.root)
	cmd := exec.Command(l.bin, "serve", "--config", config, "--lameduck=0")
	return s, l.launch(ctx, s, cmd, func() error {
		_, err := run.Get("http://" + s.page + "/readyz")
		return err
	})
}

// revision is that of the checkout.
func revision(ctx context.Context, root string) string {
	cmd := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty=, changed", "--exclude=*")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return "of no known revision"
	}
	return strings.TrimSpace(string(out))
}

// startCoreDNS starts CoreDNS with what it needs for the same names, and its cache if wanted.
func (l *lab) startCoreDNS(ctx context.Context, name, program, kubeconfig string, env ...string) (*server, error) {
	s := &server{name: name}
	var err error
	if s.address, err = freeAddress(); err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(s.address)
	cache := ""
	if name == coreDNSKept {
		cache = "    cache\n"
	}
	corefile, err := l.write(name+".Corefile", fmt.Sprintf(`cluster.local:%[1]s in-addr.arpa:%[1]s {
    bind 127.0.0.1
    errors
%[3]s    kubernetes cluster.local in-addr.arpa {
        kubeconfig %[2]s
        ttl 5
    }
}
`, port, kubeconfig, cache))
	if err != nil {
		return nil, err
	}
	if s.version, err = firstLine(ctx, program, "-version"); err != nil {
		return nil, err
	}
	s.version = strings.Replace(s.version, "-", " ", 1)
	cmd := exec.Command(program, "-conf", corefile)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + l.dir}, env...)
	return s, l.launch(ctx, s, cmd, func() error {
		// A name that is not there is SERVFAIL until all has been read.
		r, err := exchange(s.address, new(dns.Msg).SetQuestion("missing.ns-0.svc."+forwardZone, dns.TypeA), false)
		if err == nil && r.Rcode != dns.RcodeNameError {
			err = fmt.Errorf("CoreDNS has not read the cluster: %s", dns.RcodeToString[r.Rcode])
		}
		return err
	})
}

// startFloor starts the echo, which is this program with other arguments.
func (l *lab) startFloor(ctx context.Context, echo []string) (*server, error) {
	s := &server{name: floor, version: strings.Replace(runtime.Version(), "go", "Go ", 1)}
	var err error
	if s.address, err = freeAddress(); err != nil {
		return nil, err
	}
	cmd := exec.Command(echo[0], append(echo[1:len(echo):len(echo)], s.address)...)
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", EchoEnv+"="+s.address)
	return s, l.launch(ctx, s, cmd, func() error {
		conn, err := net.Dial("tcp4", s.address)
		if err == nil {
			conn.Close()
		}
		return err
	})
}

// EchoEnv is an environment variable that has the address of [Echo], for programs whose arguments
// are not their own.
const EchoEnv = "EPDNS_BENCH_ECHO"

// Echo is the floor: it answers on an address, over UDP and TCP, until the process ends.
func Echo(address string) error {
	a, err := net.ResolveUDPAddr("udp4", address)
	if err != nil {
		return err
	}
	conn, err := net.ListenUDP("udp4", a)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp4", address)
	if err != nil {
		return err
	}
	ended := make(chan error)
	go func() { ended <- load.EchoUDP(conn) }()
	go func() { ended <- load.EchoTCP(l) }()
	return <-ended
}

// zone is a zone as epdns hands it out.
type zone struct{ apex, file string }

// transfer gets the zones from epdns and writes them into files.
func (l *lab) transfer(from string) (zones []zone, err error) {
	for _, apex := range []string{forwardZone, reverseZone} {
		tr := dns.Transfer{DialTimeout: run.Grace, ReadTimeout: run.Grace}
		envelopes, err := tr.In(new(dns.Msg).SetAxfr(apex), from)
		if err != nil {
			return nil, fmt.Errorf("transfer %s: %w", apex, err)
		}
		var records []dns.RR
		for e := range envelopes {
			if e.Error != nil {
				return nil, fmt.Errorf("transfer %s: %w", apex, e.Error)
			}
			records = append(records, e.RR...)
		}
		var text bytes.Buffer
		for _, rr := range records[:len(records)-1] { // the SOA comes twice
			fmt.Fprintln(&text, rr)
		}
		file, err := l.write(apex+"zone", text.String())
		if err != nil {
			return nil, err
		}
		zones = append(zones, zone{apex, file})
	}
	return zones, nil
}

// startPeer starts Knot, NSD or BIND with the zones.
func (l *lab) startPeer(ctx context.Context, name string, zones []zone) (*server, error) {
	s := &server{name: name}
	var err error
	if s.address, err = freeAddress(); err != nil {
		return nil, err
	}
	path, err := exec.LookPath(peers[name][0])
	if err != nil {
		return nil, err
	}
	flag := map[string]string{knot: "--version", nsd: "-v", bind: "-v"}[name]
	if s.version, err = firstLine(ctx, path, flag); err != nil {
		return nil, err
	}
	program, err := run.Copied(path, l.dir)
	if err != nil {
		return nil, err
	}
	text, args := l.configuration(name, s.address, zones)
	file, err := l.write(name+".conf", text)
	if err != nil {
		return nil, err
	}
	return s, l.launch(ctx, s, exec.Command(program, append(args, file)...), func() error {
		for _, z := range zones {
			r, err := exchange(s.address, new(dns.Msg).SetQuestion(z.apex, dns.TypeSOA), false)
			if err != nil {
				return err
			}
			if len(r.Answer) != 1 {
				return fmt.Errorf("%s does not have the zone %s, its log:\n%s", name, z.apex, s.process.Log())
			}
		}
		return nil
	})
}

// configuration has one worker answer, and nothing count, log or hold back replies.
func (l *lab) configuration(name, address string, zones []zone) (text string, args []string) {
	var c strings.Builder
	host, port, _ := net.SplitHostPort(address)
	switch name {
	case nsd:
		// A limit on replies a second is on by default in Debian.
		fmt.Fprintf(&c, "server:\n ip-address: %s@%s\n server-count: 1\n username: \"\"\n", host, port)
		fmt.Fprintf(&c, " zonesdir: %q\n database: \"\"\n pidfile: \"\"\n", l.dir)
		fmt.Fprintf(&c, " xfrdfile: \"%s/xfrd.state\"\n zonelistfile: \"%s/zone.list\"\n", l.dir, l.dir)
		fmt.Fprintf(&c, " rrl-ratelimit: 0\n rrl-whitelist-ratelimit: 0\n tcp-count: 200\n")
		fmt.Fprintf(&c, "remote-control:\n control-enable: no\n")
		for _, z := range zones {
			fmt.Fprintf(&c, "zone:\n name: %q\n zonefile: %q\n", z.apex, z.file)
		}
		args = []string{"-d", "-c"}
	case knot:
		fmt.Fprintf(&c, "server:\n  listen: %s@%s\n  rundir: %q\n", host, port, l.dir)
		fmt.Fprintf(&c, "  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\n")
		fmt.Fprintf(&c, "database:\n  storage: %q\nlog:\n  - target: stderr\n    any: warning\n", l.dir)
		fmt.Fprintf(&c, "template:\n  - id: default\n    zonefile-sync: -1\n    journal-content: none\n    semantic-checks: off\n")
		fmt.Fprintf(&c, "zone:\n")
		for _, z := range zones {
			fmt.Fprintf(&c, "  - domain: %q\n    file: %q\n", z.apex, z.file)
		}
		args = []string{"-c"}
	case bind:
		// Like the others it says nothing in the authority section that nobody has asked for.
		fmt.Fprintf(&c, "options {\n directory %q;\n listen-on port %s { %s; };\n listen-on-v6 { none; };\n", l.dir, port, host)
		fmt.Fprintf(&c, " pid-file none;\n session-keyfile none;\n recursion no;\n dnssec-validation no;\n notify no;\n")
		fmt.Fprintf(&c, " minimal-responses no-auth;\n max-records-per-type 0;\n max-types-per-name 0;\n")
		fmt.Fprintf(&c, " check-names primary ignore;\n tcp-clients 200;\n zone-statistics none;\n};\ncontrols { };\n")
		for _, z := range zones {
			fmt.Fprintf(&c, "zone %q { type primary; file %q; };\n", z.apex, z.file)
		}
		args = []string{"-g", "-n", "1", "-c"}
	}
	return c.String(), args
}

// firstLine is what a program says of itself, without what stands in angle brackets.
func firstLine(ctx context.Context, program, flag string) (string, error) {
	out, err := exec.CommandContext(ctx, program, flag).CombinedOutput()
	line, _, _ := strings.Cut(string(out), "\n")
	if line == "" { // NSD's status is 1
		return "", fmt.Errorf("ask %s for its version: %w", program, err)
	}
	line = regexp.MustCompile(` *\(Extended.*| *<.*>`).ReplaceAllString(line, "")
	return strings.NewReplacer("knotd (Knot DNS), version", "Knot", "NSD version", "NSD").Replace(line), nil
}

// exchange asks one question.
func exchange(address string, m *dns.Msg, tcp bool) (*dns.Msg, error) {
	c := dns.Client{Timeout: 3 * time.Second, UDPSize: ednsSize}
	if tcp {
		c.Net = "tcp"
	}
	r, _, err := c.Exchange(m, address)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", address, err)
	}
	return r, nil
}
