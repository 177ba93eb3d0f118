package epdns_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// sendClass asks in another class than IN, and returns the records of the answer.
func (q question) sendClass(port uint16, class uint16) (string, error) {
	m := new(dns.Msg).SetQuestion(q.name, q.qtype)
	m.Question[0].Qclass = class
	r, err := dns.Exchange(m, fmt.Sprintf("%v:%d", q.to, port))
	if err != nil {
		return "", err
	}
	return fmt.Sprint(r.Answer), nil
}

// TestReadyVerbose: the list of what has to be so is there for who asks for it, and
// wherever something is not.
func TestReadyVerbose(t *testing.T) {
	p := listen(t, "--kubeconfig", silentCluster(t))
	code, body := p.get(t, "/readyz")
	if code != http.StatusServiceUnavailable || !strings.Contains(body, "[-]sync failed: ") || !strings.HasSuffix(body, "readyz check failed\n") {
		t.Errorf("before the sync: %d %q", code, body)
	}
	p = serve(t, "--manifests", "testdata/cluster")
	if code, body := p.get(t, "/readyz"); code != http.StatusOK || body != "ok\n" {
		t.Errorf("%d %q", code, body)
	}
	if code, body := p.get(t, "/readyz?verbose"); code != http.StatusOK || body != "[+]dns ok\n[+]sync ok\n[+]shutdown ok\nreadyz check passed\n" {
		t.Errorf("%d %q", code, body)
	}
}

// TestLameduck: once told to end, it is not ready, and all is answered as before until the
// time is over: over UDP, over connections that were there and over new ones.
func TestLameduck(t *testing.T) {
	const period = 3 * time.Second
	p := serve(t, "--manifests", "testdata/cluster", "--lameduck", period.String())
	open, err := net.Dial("tcp", p.dns.String())
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	old := &dns.Conn{Conn: open}
	q := ask("jobs.shop.registry.local.", dns.TypeA)
	l := startLoad(t, p.dns, 4, 2_000)
	p.stopped = true
	told := time.Now()
	p.cmd.Process.Signal(syscall.SIGTERM)
	eventually(t, func() error {
		if code, body := p.get(t, "/readyz"); code != http.StatusServiceUnavailable || !strings.Contains(body, "[-]shutdown failed: ") {
			return fmt.Errorf("/readyz: %d %s", code, body)
		}
		return nil
	})
	for time.Since(told) < period-500*time.Millisecond {
		for _, q := range []question{q, q.overTCP()} {
			if err := p.answer(q, noerror("10.1.1.41")); err != nil {
				t.Fatalf("after %v: %v", time.Since(told), err)
			}
		}
		old.SetDeadline(time.Now().Add(patience))
		if err := old.WriteMsg(new(dns.Msg).SetQuestion("jobs.shop.registry.local.", dns.TypeA)); err != nil {
			t.Fatal(err)
		}
		if m, err := old.ReadMsg(); err != nil || len(m.Answer) != 1 {
			t.Fatalf("over the old connection, after %v: %v, %v", time.Since(told), m, err)
		}
		if code, body := p.get(t, "/livez"); code != http.StatusOK {
			t.Fatalf("/livez: %d %s", code, body)
		}
	}
	if v := metric(p.metrics(t), "epdns_lameduck"); v != 1 {
		t.Errorf("epdns_lameduck is %v", v)
	}
	if err := l.end(t); err != nil {
		t.Error(err)
	}
	select {
	case <-p.ended:
	case <-time.After(grace):
		t.Fatal("it does not end")
	}
	if took := time.Since(told); p.err != nil || took < period {
		t.Errorf("it ended after %v: %v", took, p.err)
	}
	p.logged(t, "stopped")
}

// TestSecondSignal: it ends the wait, with exit status 0.
func TestSecondSignal(t *testing.T) {
	for _, signals := range [][2]os.Signal{{syscall.SIGTERM, syscall.SIGTERM}, {os.Interrupt, os.Interrupt}, {os.Interrupt, syscall.SIGTERM}} {
		t.Run(fmt.Sprint(signals), func(t *testing.T) {
			p := serve(t, "--manifests", "testdata/cluster", "--lameduck", "1h")
			p.cmd.Process.Signal(signals[0])
			p.logged(t, "stopping", "1h0m0s")
			if err := p.answer(ask("jobs.shop.registry.local.", dns.TypeA), noerror("10.1.1.41")); err != nil {
				t.Error(err)
			}
			p.stop(t, signals[1])
		})
	}
}

// TestNeverReady: where nobody was told to ask here, there is nothing to wait for.
func TestNeverReady(t *testing.T) {
	p := listen(t, "--kubeconfig", silentCluster(t), "--lameduck", "1h")
	p.stop(t, syscall.SIGTERM)
}

// TestDump: what it does can be seen without a debugger.
func TestDump(t *testing.T) {
	p := launch(t, environment(), "serve", "--manifests", "testdata/cluster", "--listen", "127.0.0.1:0", "--http", "", "--lameduck", "0")
	said := func(text string) {
		t.Helper()
		eventually(t, func() error {
			if !strings.Contains(p.stderr.String(), text) {
				return fmt.Errorf("it does not say %q", text)
			}
			return p.running()
		})
	}
	said("serving")
	p.cmd.Process.Signal(syscall.SIGUSR1)
	said("goroutine profile")
	said("dnsserver")
}

// TestRestart: a new program takes over from an old one at the same address, and no
// question is lost.
func TestRestart(t *testing.T) {
	old := serve(t, "--manifests", "testdata/cluster", "--reuse-port")
	l := startLoad(t, old.dns, 32, 20_000)
	for range 3 {
		p := serve(t, "--manifests", "testdata/cluster", "--reuse-port", "--listen", old.dns.String(), "--lameduck", "500ms")
		if !slices.ContainsFunc(p.log(t), func(r record) bool { return r["msg"] == "serving" }) {
			t.Error("it is ready and does not serve")
		}
		old.stop(t, syscall.SIGTERM)
		old = p
	}
	if err := l.end(t); err != nil {
		t.Error(err)
	}
}
