//go:build linux

package diff_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// This file starts epdns and the servers that it is compared with.

// server is one of the five.
type server int

const (
	ours server = iota
	nsd
	knot
	bind
	servers // how many have the same zones

	coreDNS = servers // has the same cluster
)

func (s server) String() string { return [...]string{"epdns", "NSD", "Knot", "BIND", "CoreDNS"}[s] }

// address is where a server answers.
func (s server) address() string { return fmt.Sprintf("127.0.0.1:%d", 5300+int(s)) }

// programs are those servers', with Debian's packages and the flag that tells the
// version.
var programs = [servers]struct{ name, pkg, version string }{
	nsd:  {"nsd", "nsd", "-v"},
	knot: {"knotd", "knot", "--version"},
	bind: {"named", "bind9", "-v"},
}

// find is the path of a program, also of one that lies where only root's PATH goes.
func find(program string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return path, nil
	}
	return exec.LookPath(filepath.Join("/usr/sbin", program))
}

// needed says which Debian packages are missing.
func needed() error {
	var packages []string
	for _, p := range programs[nsd:] {
		if _, err := find(p.name); err != nil {
			packages = append(packages, p.pkg)
		}
	}
	if len(packages) == 0 {
		return nil
	}
	return fmt.Errorf("this test needs other servers: sudo apt-get install %s", strings.Join(packages, " "))
}

// version is what a program says of itself.
func version(s server) string {
	path, err := find(programs[s].name)
	if err != nil {
		return err.Error()
	}
	out, _ := exec.Command(path, programs[s].version).CombinedOutput() // NSD's status is 1
	line, _, _ := strings.Cut(string(out), "\n")
	return line
}

// zone is a zone as epdns hands it out.
type zone struct {
	apex    string
	file    string
	records []dns.RR // the SOA first, and not again at the end
}

// serial is that of the SOA.
func (z *zone) serial() uint32 { return z.records[0].(*dns.SOA).Serial }

// transfer gets a zone and writes it into a file.
func transfer(dir, apex string) (*zone, error) {
	z := &zone{apex: apex, file: filepath.Join(dir, apex+"zone")}
	tr := dns.Transfer{DialTimeout: grace, ReadTimeout: grace}
	envelopes, err := tr.In(new(dns.Msg).SetAxfr(apex), ours.address())
	if err != nil {
		return nil, fmt.Errorf("transfer %s: %w", apex, err)
	}
	for e := range envelopes {
		if e.Error != nil {
			return nil, fmt.Errorf("transfer %s: %w", apex, e.Error)
		}
		z.records = append(z.records, e.RR...)
	}
	z.records = z.records[:len(z.records)-1]
	return z, z.write(z.file, nil)
}

// write writes the zone into a file, with one record only of some sets.
func (z *zone) write(file string, short map[set]bool) error {
	var text bytes.Buffer
	written := map[set]bool{}
	for _, rr := range z.records {
		k := set{rr.Header().Name, rr.Header().Rrtype}
		if !short[k] || !written[k] {
			fmt.Fprintln(&text, rr)
		}
		written[k] = true
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}

// configure writes the configuration of a server and returns the arguments to run it
// with. Where a default makes a difference it stays as it is, if nothing would be lost
// by it.
func configure(s server, dir string, zones []*zone) (args []string, err error) {
	var c strings.Builder
	file := filepath.Join(dir, s.String()+".conf")
	host, port, _ := strings.Cut(s.address(), ":")
	switch s {
	case nsd:
		// A limit on replies a second is on by default in Debian.
		fmt.Fprintf(&c, "server:\n ip-address: %s@%s\n server-count: 1\n username: \"\"\n", host, port)
		fmt.Fprintf(&c, " zonesdir: %q\n database: \"\"\n pidfile: \"\"\n", dir)
		fmt.Fprintf(&c, " xfrdfile: \"%s/xfrd.state\"\n zonelistfile: \"%s/zone.list\"\n", dir, dir)
		fmt.Fprintf(&c, " rrl-ratelimit: 0\n rrl-whitelist-ratelimit: 0\n tcp-count: 200\n")
		fmt.Fprintf(&c, "remote-control:\n control-enable: no\n")
		for _, z := range zones {
			fmt.Fprintf(&c, "zone:\n name: %q\n zonefile: %q\n", z.apex, z.file)
		}
		args = []string{"-d", "-c", file}
	case knot:
		fmt.Fprintf(&c, "server:\n  listen: %s@%s\n  rundir: %q\n", host, port, dir)
		fmt.Fprintf(&c, "  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\n")
		fmt.Fprintf(&c, "database:\n  storage: %q\nlog:\n  - target: stderr\n    any: info\n", dir)
		fmt.Fprintf(&c, "template:\n  - id: default\n    zonefile-sync: -1\n    journal-content: none\n    semantic-checks: on\n")
		fmt.Fprintf(&c, "zone:\n")
		for _, z := range zones {
			fmt.Fprintf(&c, "  - domain: %q\n    file: %q\n", z.apex, z.file)
		}
		args = []string{"-c", file}
	case bind:
		// A set of more than a hundred records is refused by default, and one of more than
		// 65,535 octets always.
		fmt.Fprintf(&c, "options {\n directory %q;\n listen-on port %s { %s; };\n listen-on-v6 { none; };\n", dir, port, host)
		fmt.Fprintf(&c, " pid-file none;\n session-keyfile none;\n recursion no;\n dnssec-validation no;\n notify no;\n")
		fmt.Fprintf(&c, " max-records-per-type 0;\n max-types-per-name 0;\n tcp-clients 200;\n};\ncontrols { };\n")
		for _, z := range zones {
			held := filepath.Join(dir, z.apex+"zone")
			if err := z.write(held, huge(zones)); err != nil {
				return nil, err
			}
			fmt.Fprintf(&c, "zone %q { type primary; file %q; };\n", z.apex, held)
		}
		args = []string{"-g", "-n", "1", "-c", file}
	}
	return args, os.WriteFile(file, []byte(c.String()), 0o644)
}

// start starts a server with the zones and waits until it has them.
func start(t *testing.T, s server, zones []*zone) {
	t.Helper()
	dir := t.TempDir()
	if err := openUp(dir); err != nil {
		t.Fatal(err)
	}
	args, err := configure(s, dir, zones)
	if err != nil {
		t.Fatal(err)
	}
	path, err := find(programs[s].name)
	if err != nil {
		t.Fatal(err)
	}
	// What AppArmor lets a program read goes by the program's path, so it must have another
	// one to read files from here.
	p := launch(t, exec.Command(copyProgram(t, dir, path), args...))
	client := dns.Client{Timeout: time.Second}
	eventually(t, func() error {
		for _, z := range zones {
			r, _, err := client.Exchange(new(dns.Msg).SetQuestion(z.apex, dns.TypeSOA), s.address())
			switch {
			case p.running() != nil:
				t.Fatal(p.running())
			case err != nil:
				return err
			case len(r.Answer) != 1:
				return fmt.Errorf("%v does not have the zone %s: %s\n%v", s, z.apex, dns.RcodeToString[r.Rcode], &p.log)
			case r.Answer[0].(*dns.SOA).Serial != z.serial():
				return fmt.Errorf("%v has another serial: %v", s, r.Answer[0])
			}
		}
		return nil
	})
	t.Logf("%v: %s", s, version(s))
}

// copyProgram copies a program into a directory and returns its path there.
func copyProgram(t *testing.T, dir, path string) string {
	t.Helper()
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, filepath.Base(path))
	if err := os.WriteFile(copied, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return copied
}

// nobody is the user that the servers run as.
const nobody = 65534

// openUp gives a directory to nobody, with those above it open.
func openUp(dir string) error {
	if os.Getenv(envMapped) != "" {
		return nil // it is ours, and we are nobody
	}
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			return err
		}
	}
	return os.Chown(dir, nobody, nobody)
}

// serve starts epdns and waits until it is ready.
func serve(t *testing.T, args ...string) {
	t.Helper()
	const page = "127.0.0.1:9153"
	p := launch(t, exec.Command(epdns, append([]string{"serve", "--listen", ours.address(), "--http", page}, args...)...))
	eventually(t, func() error {
		if err := p.running(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+page+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

// grace is how long anything may take that is over in a moment on an idle machine.
const grace = 20 * time.Second

// eventually tries until there is no error.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	deadline := time.After(grace)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("after %v still: %v", grace, err)
		case <-tick.C:
		}
	}
}

// output is what a process writes, readable while it runs.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// process is a program that runs until the test ends.
type process struct {
	cmd   *exec.Cmd
	log   output
	ended chan struct{}
	err   error // read after ended
}

// launch starts cmd as nobody. At the end of the test it is told to end.
func launch(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	if os.Getenv(envMapped) == "" {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KUBE") })
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		if err := p.running(); err != nil {
			t.Error(err)
		}
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-p.ended:
		case <-time.After(grace):
			t.Errorf("%s does not end", cmd.Path)
			cmd.Process.Kill()
			<-p.ended
		}
	})
	return p
}

// running returns an error once p has ended.
func (p *process) running() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended: %v\n%v", p.cmd.Path, p.err, &p.log)
	default:
		return nil
	}
}
