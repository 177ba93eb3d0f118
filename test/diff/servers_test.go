//go:build linux

package diff_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"epdns/test/netns"
	"epdns/test/run"

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

// programs are those servers'.
var programs = [servers]netns.Program{
	nsd:  {Name: "nsd", Package: "nsd"},
	knot: {Name: "knotd", Package: "knot"},
	bind: {Name: "named", Package: "bind9"},
}

// version is what a server says of itself.
func version(s server) string {
	flag := "-v"
	if s == knot {
		flag = "--version"
	}
	out, _ := exec.Command(programs[s].Name, flag).CombinedOutput() // NSD's status is 1
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
	tr := dns.Transfer{DialTimeout: run.Grace, ReadTimeout: run.Grace}
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
		// Refused by default are sets of more than a hundred records and, from files, addresses
		// at names with underscores; always sets of more than 65,535 octets.
		fmt.Fprintf(&c, "options {\n directory %q;\n listen-on port %s { %s; };\n listen-on-v6 { none; };\n", dir, port, host)
		fmt.Fprintf(&c, " pid-file none;\n session-keyfile none;\n recursion no;\n dnssec-validation no;\n notify no;\n")
		fmt.Fprintf(&c, " max-records-per-type 0;\n max-types-per-name 0;\n check-names primary ignore;\n tcp-clients 200;\n};\ncontrols { };\n")
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
	path, err := exec.LookPath(programs[s].Name)
	if err != nil {
		t.Fatal(err)
	}
	program, err := run.Copied(path, dir)
	if err != nil {
		t.Fatal(err)
	}
	p := launch(t, exec.Command(program, args...))
	client := dns.Client{Timeout: time.Second}
	p.Eventually(t, func() error {
		for _, z := range zones {
			r, _, err := client.Exchange(new(dns.Msg).SetQuestion(z.apex, dns.TypeSOA), s.address())
			switch {
			case err != nil:
				return err
			case len(r.Answer) != 1:
				return fmt.Errorf("%v does not have the zone %s: %s\n%v", s, z.apex, dns.RcodeToString[r.Rcode], p.Log())
			case r.Answer[0].(*dns.SOA).Serial != z.serial():
				return fmt.Errorf("%v has another serial: %v", s, r.Answer[0])
			}
		}
		return nil
	})
	t.Logf("%v: %s", s, version(s))
}

// nobody is the user that the servers run as.
const nobody = 65534

// openUp gives a directory to nobody, with those above it open.
func openUp(dir string) error {
	if netns.Mapped() {
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
	p := launch(t, exec.Command(epdns, append([]string{"serve", "--lameduck=0", "--listen", ours.address(), "--http", page}, args...)...))
	p.Eventually(t, func() error {
		_, err := run.Get("http://" + page + "/readyz")
		return err
	})
}

// launch starts cmd as nobody, for as long as the test.
func launch(t *testing.T, cmd *exec.Cmd) *run.Process {
	t.Helper()
	if !netns.Mapped() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "KUBE") })
	return run.ForTest(t, cmd)
}
