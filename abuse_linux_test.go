package epdns_test

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// holdConnections opens TCP connections that say nothing, from as many addresses as
// needed, and closes them at the end of the test. Those that are not taken count as well.
func (p *program) holdConnections(t *testing.T, n int) (conns []net.Conn) {
	t.Helper()
	for i := range n {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i/16))}, Timeout: grace}
		c, err := d.Dial("tcp", p.dns.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		conns = append(conns, c)
	}
	return conns
}

// cpu is the processor time that a program has used.
func (p *program) cpu(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / 100 // USER_HZ
}

// answersSoon asks over TCP, as one who comes anew.
func (p *program) answersSoon(t *testing.T) {
	t.Helper()
	began := time.Now()
	q := ask("jobs.shop.registry.local.", dns.TypeA).overTCP()
	r, err := q.send(p.dns.Port())
	if err != nil {
		t.Errorf("over TCP: %v", err)
	} else if len(r.asked()) == 0 {
		t.Errorf("over TCP: %v", r)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("over TCP it takes %v", took)
	}
}

// Without descriptors UDP goes on as before, nothing spins, and who asks over TCP is
// answered: while others hold all the connections that there may be, and when descriptors
// have gone that were there at the start.
func TestDescriptors(t *testing.T) {
	const limit = 64
	quietly := func(t *testing.T, p *program) {
		t.Helper()
		before := p.cpu(t)
		l := startLoad(t, p.dns, 2, 500)
		time.Sleep(2 * time.Second)
		if err := l.end(t); err != nil {
			t.Error(err)
		}
		most := 400 * time.Millisecond // a fifth of a processor
		if underRace() {
			most *= 4
		}
		if used := p.cpu(t) - before; used > most {
			t.Errorf("it takes %v of processor time in 2 s", used)
		}
		p.answersSoon(t)
	}
	t.Run("few from the start", func(t *testing.T) {
		p := serveAs(t, exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, limit), epdns), "--manifests", "testdata/cluster")
		p.logged(t, "fewer TCP connections than configured", `"descriptors":64`, `"connections":32`)
		p.holdConnections(t, 3*limit)
		quietly(t, p)
		if code, body := p.get(t, "/readyz"); code != http.StatusOK {
			t.Errorf("/readyz: %d %s", code, body)
		}
		if n := metric(p.metrics(t), "epdns_tcp_connections"); n > limit/2 {
			t.Errorf("%v connections", n)
		}
	})
	t.Run("none later", func(t *testing.T) {
		p := serve(t, "--manifests", "testdata/cluster")
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		few := unix.Rlimit{Cur: uint64(len(open)) + 8, Max: uint64(len(open)) + 8}
		if err := unix.Prlimit(p.cmd.Process.Pid, unix.RLIMIT_NOFILE, &few, nil); err != nil {
			t.Skip("limit the descriptors of a process: ", err)
		}
		conns := p.holdConnections(t, 40)
		quietly(t, p)
		p.logged(t, "accept a TCP connection", "too many open files")
		for _, c := range conns {
			c.Close()
		}
		p.answersSoon(t)
		if code, body := p.get(t, "/readyz"); code != http.StatusOK {
			t.Errorf("/readyz: %d %s", code, body)
		}
	})
}

// memoryGroup makes a control group of version 1 or 2 with a limit of memory, and skips the
// test where that cannot be.
func memoryGroup(t *testing.T, limit int64) (dir string) {
	t.Helper()
	name := fmt.Sprintf("epdns-test-%d", os.Getpid())
	for _, v := range []struct{ root, file string }{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		dir := filepath.Join(v.root, name)
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, v.file), []byte(strconv.FormatInt(limit, 10)), 0) == nil {
			return dir
		}
	}
	t.Skip("there is no control group that could limit memory")
	return ""
}

// Under a flood over UDP and TCP the program stays within the memory that its container has,
// which is little more than it takes when nothing happens.
func TestMemoryLimit(t *testing.T) {
	if underRace() {
		t.Skip("the race detector takes memory of its own")
	}
	idle := serve(t, "--manifests", "testdata/cluster")
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", idle.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, _ := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	limit := pages * int64(os.Getpagesize()) * 12 / 10
	group := memoryGroup(t, limit)
	p := serveAs(t, exec.Command("sh", "-c", `echo $$ >"$0"/cgroup.procs && exec "$@"`, group, epdns), "--manifests", "testdata/cluster")
	p.logged(t, "GOMEMLIMIT")
	l := startLoad(t, p.dns, 8, 50_000)
	for range 5 {
		for _, c := range p.holdConnections(t, 200) {
			go func() {
				q := ask("registry.local.", dns.TypeAXFR)
				if query, err := q.pack(); err == nil {
					c.Write(append([]byte{0, byte(len(query))}, query...))
				}
			}()
		}
		time.Sleep(500 * time.Millisecond)
	}
	if err := l.end(t); err != nil {
		t.Error(err)
	}
	p.answersSoon(t)
	if err := p.running(); err != nil {
		t.Error(err)
	}
	for _, file := range []string{"memory.failcnt", "memory.max_usage_in_bytes", "memory.oom_control", "memory.events", "memory.peak"} {
		if text, err := os.ReadFile(filepath.Join(group, file)); err == nil {
			t.Logf("limit %d, %s: %s", limit, file, strings.Join(strings.Fields(string(text)), " "))
			if file == "memory.oom_control" && !strings.Contains(string(text), "oom_kill 0") || file == "memory.events" && !strings.Contains(string(text), "oom_kill 0") {
				t.Errorf("something was killed for want of memory")
			}
		}
	}
	p.stop(t, unix.SIGTERM) // before its group is removed
}

// Replies to a network that floods are limited, who asks from elsewhere is answered, and
// the program tells of it.
func TestRateLimit(t *testing.T) {
	config := settings(t, "source: {manifests: cluster}\nrateLimit: {perSecond: 20, slip: 4}\nlameduck: 0\n")
	p := serve(t, "--config", config)
	query := ask("jobs.shop.registry.local.", dns.TypeA)
	wire, err := query.pack()
	if err != nil {
		t.Fatal(err)
	}
	flood, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 7, 7, 7)}, net.UDPAddrFromAddrPort(p.dns))
	if err != nil {
		t.Fatal(err)
	}
	defer flood.Close()
	const n = 2000
	for range n {
		flood.Write(wire)
	}
	for i := range 10 {
		query.from = netip.AddrFrom4([4]byte{127, 8, byte(i), 1})
		if r, err := query.send(p.dns.Port()); err != nil || len(r.asked()) == 0 {
			t.Errorf("from %v: %v %v", query.from, r, err)
		}
	}
	eventually(t, func() error {
		m := p.metrics(t)
		drops, slips := metric(m, "epdns_dns_rate_limited_total", "action", "drop"), metric(m, "epdns_dns_rate_limited_total", "action", "slip")
		if lost := metric(m, "epdns_udp_kernel_drops_total"); drops+slips+lost < n-200 || slips == 0 || drops < slips {
			return fmt.Errorf("%v dropped and %v slipped of %d, %v lost", drops, slips, n, lost)
		}
		return nil
	})
	p.logged(t, "replies to a network are limited", "127.7.7.0/24")
	query.from = netip.MustParseAddr("127.7.7.8")
	if r, err := query.overTCP().send(p.dns.Port()); err != nil || len(r.asked()) == 0 {
		t.Errorf("over TCP: %v %v", r, err)
	}
}

// Profiles are there where they were asked for, for this machine only.
func TestPprof(t *testing.T) {
	const page = "/debug/pprof/goroutine?debug=1"
	p := serve(t, "--manifests", "testdata/cluster")
	if code, _ := p.get(t, page); code != http.StatusNotFound {
		t.Errorf("nobody asked for it: %d", code)
	}
	p = serve(t, "--manifests", "testdata/cluster", "--pprof")
	if code, body := p.get(t, page); code != http.StatusOK || !strings.Contains(body, "goroutine profile") {
		t.Errorf("%d %s", code, body)
	}
	if code, body := p.get(t, "/debug/pprof/profile?seconds=1"); code != http.StatusOK || len(body) == 0 {
		t.Errorf("a profile: %d %s", code, body)
	}
	if code, body := p.get(t, "/debug/pprof/"); code != http.StatusOK || !strings.Contains(body, "heap") {
		t.Errorf("the list of them: %d %s", code, body)
	}
	req, err := http.NewRequest(http.MethodGet, p.http+page, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "elsewhere.example"
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNotFound {
		t.Errorf("under a name of somebody else: %d", resp.StatusCode)
	}
}

// No page and no line of the log has a secret: cookies', of keys for transfers, of the API.
func TestNoSecrets(t *testing.T) {
	const cookie, key, token = "5ec2e7c00c1e5ec2e7c00c1e5ec2e7c0", "c2VjcmV0LWtleS1vZi10c2ln", "token-that-nobody-may-see"
	api := newFakeAPI(t, false)
	dir := t.TempDir()
	text := readFile(t, api.kubeconfig)
	with := strings.Replace(text, "user: {}", "user: {token: "+token+"}", 1)
	if with == text {
		t.Fatal("the kubeconfig has another form")
	}
	files := map[string]string{
		"kubeconfig": with, "cookies": cookie, "key": key,
		"epdns.yaml": `apiVersion: epdns/v1alpha1
kind: Config
source: {kubeconfig: kubeconfig}
cookies: {secretFile: cookies}
transfer: {tsig: [{name: secondary.key, secretFile: key}]}
httpDetails: true
pprof: true
lameduck: 0
`}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := serve(t, "--config", filepath.Join(dir, "epdns.yaml"), "--log-level", "debug")
	ca := strings.TrimSpace(strings.SplitAfter(strings.SplitAfter(text, "certificate-authority-data: ")[1], "}}")[0])
	secrets := map[string]string{"cookie": cookie, "key": key, "token": token, "certificate": ca[:40], "raw cookie": "\x5e\xc2\xe7\xc0\x0c\x1e", "raw key": "secret-key-of-tsig"}
	for _, page := range []string{"/", "/metrics", "/readyz", "/readyz?verbose", "/livez", "/explain?name=web.shop.registry.local", "/explain?name=%zz", "/lookup?name=nope",
		"/lookup?name=web.shop.registry.local&type=NOPE", "/watch?service=", "/nope", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1"} {
		_, body := p.get(t, page)
		for what, secret := range secrets {
			if strings.Contains(strings.ToLower(body), strings.ToLower(secret)) {
				t.Errorf("%s has the %s", page, what)
			}
		}
	}
	for what, secret := range secrets {
		if strings.Contains(p.stderr.String(), secret) {
			t.Errorf("the log has the %s", what)
		}
	}
}
