//go:build linux

package clients_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"epdns/test/netns"
	"epdns/test/run"

	"github.com/miekg/dns"
)

const (
	nginxIn    = "127.0.0.1:8404"
	badGateway = "502 Bad Gateway"
)

// startNginx starts one with the shipped configuration, changed so. Port 8080 is the pods'.
func startNginx(t *testing.T, changes ...string) *run.Process {
	t.Helper()
	return runNginx(t, snippet(t, "nginx.conf", append([]string{"listen 8080;", "listen " + nginxIn + ";"}, changes...)...))
}

func runNginx(t *testing.T, conf string) *run.Process {
	t.Helper()
	p := start(t, nginxCommand(t, conf)...)
	p.Eventually(t, func() error {
		_, err := whoServes(nginxIn)
		return err
	})
	return p
}

// nginxCommand runs it with this for conf.d.
func nginxCommand(t *testing.T, conf string) []string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "nginx.conf")
	for file, text := range map[string]string{
		filepath.Join(dir, "site.conf"): conf,
		path: "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr info;\nevents {}\n" +
			"http {\n    access_log off;\n    include site.conf;\n}\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"nginx", "-p", dir, "-c", path, "-e", "stderr"}
}

// nginxServes is who answers so many requests, and how often each.
func nginxServes(t *testing.T, n int) map[string]int {
	t.Helper()
	count := map[string]int{}
	for range n {
		who, err := whoServes(nginxIn)
		if err != nil {
			t.Fatal(err)
		}
		count[who]++
	}
	return count
}

// nginxFinds waits until a request has this answer, and says how long that took and, if the limit
// is over, what it is instead.
func nginxFinds(t *testing.T, want string) time.Duration {
	t.Helper()
	begin := time.Now()
	eventually(t, func() error {
		who, err := whoServes(nginxIn)
		if err == nil && who != want {
			err = fmt.Errorf("nginx says %s, want %s", who, want)
		}
		return err
	})
	return time.Since(begin)
}

// TestNginx sees what the table says of nginx's resolver.
func TestNginx(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	row := Row{Client: "nginx `resolver`", Page: "nginx", Search: none, SRV: none}
	servePods(t)
	dir, m := manifestsOf(t, twoPods)
	args := []string{"--manifests=" + string(m), "--config=" + configured(t, "defaults: {ttl: 2s}")}
	server := serve(t, "readyz", args...)
	w := capture(t)
	p := startNginx(t)

	// An answer is kept for its TTL, and whole: any of its pods may be next.
	w.reset(t)
	begin := time.Now()
	count := map[string]int{}
	for time.Since(begin) < 7*time.Second {
		for who, n := range nginxServes(t, 20) {
			count[who] += n
		}
	}
	took := time.Since(begin)
	questions := w.answers(t, lampName, dns.TypeA)
	t.Logf("%v requests, %d questions in %v", count, len(questions), took)
	for _, pod := range twoPods {
		if share := float64(count[pod]) / float64(count[twoPods[0]]+count[twoPods[1]]); share < 0.4 {
			t.Errorf("%s has %v of the requests: %v", pod, share, count)
		}
	}
	if len(count) == 2 {
		row.Order = "any of them at random, for each request"
	}
	// It counts whole seconds, up to 3 here.
	if n := len(questions); n >= 2 && n <= 5 {
		row.TTL = "kept for it"
	} else {
		t.Errorf("%d questions in %v, with a TTL of 2 s", n, took)
	}
	for _, m := range w.replies(t) {
		if m.Question[0].Qtype != dns.TypeA {
			t.Errorf("with ipv6=off nginx asks\n%v", m)
		}
	}

	dir.lamp(t, addresses(13, 13), nil)
	t.Logf("others are found %v after they are there", nginxFinds(t, "10.20.1.13"))

	// negative says what comes of a change after which there is no address, until there is again.
	negative := func(happen, undo func()) string {
		t.Helper()
		happen()
		t.Logf("no address: an error after %v", nginxFinds(t, badGateway))
		w.reset(t)
		begin := time.Now()
		if got := nginxServes(t, 10); got[badGateway] != 10 {
			t.Errorf("without an address: %v", got)
		}
		t.Logf("ten requests take %v, and %d questions", time.Since(begin), len(w.answers(t, lampName, dns.TypeA)))
		kept := "not kept"
		if len(w.answers(t, lampName, dns.TypeA)) < 10 {
			kept = "kept"
		}
		undo()
		t.Logf("there again: found after %v", nginxFinds(t, "10.20.1.13"))
		return "502, " + kept
	}
	row.Empty = negative(func() { dir.lamp(t, nil, twoPods) }, func() { dir.lamp(t, addresses(13, 13), nil) })
	row.Gone = negative(func() { dir.noLamp(t) }, func() { dir.lamp(t, addresses(13, 13), nil) })
	var ignorant *run.Process
	row.Failed = negative(func() {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
		ignorant = serveIgnorant(t)
	}, func() {
		if err := ignorant.Stop(); err != nil {
			t.Fatal(err)
		}
		server = serve(t, "readyz", args...)
	})

	// Nobody answers: a request that has to ask waits for resolver_timeout.
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	nginxFinds(t, badGateway)
	begin = time.Now()
	nginxServes(t, 1)
	if took := time.Since(begin); took < 1500*time.Millisecond || took > 2*grace {
		t.Errorf("without epdns, a request takes %v; resolver_timeout is 2 s", took)
	}
	serve(t, "readyz", args...)
	t.Logf("there again: found after %v", nginxFinds(t, "10.20.1.13"))
	for _, says := range []string{"(2: Server failure)", "(3: Host not found)", "(110: Operation timed out)"} {
		if !strings.Contains(p.Log(), "lamp.dock.registry.local could not be resolved "+says) {
			t.Errorf("nginx does not say %s in its log", says)
		}
	}

	dir.lamp(t, addresses(1, 200), nil)
	w.reset(t)
	eventually(t, func() error {
		nginxServes(t, 1)
		for _, m := range w.answers(t, lampName, dns.TypeA) {
			if len(m.Answer) == 200 {
				return nil
			}
		}
		return errors.New("nginx has not asked over TCP")
	})
	seen := map[string]bool{}
	within(t, 3*grace, 20*time.Millisecond, func() error {
		for who := range nginxServes(t, 200) {
			seen[who] = true
		}
		if len(seen) < 200 {
			return fmt.Errorf("%d of 200 have requests", len(seen))
		}
		return nil
	})
	cut := slices.ContainsFunc(w.answers(t, lampName, dns.TypeA), func(m message) bool { return m.network == "udp" && m.Truncated && m.size <= 512 })
	if cut && len(seen) == 200 {
		row.Many = "all, over TCP"
	}
	observed(t, row)
}

// What nginx does with other settings than those that are shipped.
func TestNginxSettings(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	servePods(t)
	hosts(t)
	resolvConf(t, search)
	literal := snippet(t, "nginx.conf", "listen 8080;", "listen "+nginxIn+";",
		"set $pods lamp.dock.registry.local;\n        proxy_pass http://$pods:8080;", "proxy_pass http://lamp.dock.registry.local:8080;")

	dir, m := manifestsOf(t, nil)
	serve(t, "readyz", "--manifests="+string(m), "--config="+configured(t, "defaults: {ttl: 1h}"))
	w := capture(t)

	// A name that stands there as it is must be there at the start, and is not looked up again.
	argv := nginxCommand(t, literal)
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if want := `host not found in upstream "lamp.dock.registry.local"`; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("nginx starts, or does not say %q: %v\n%s", want, err, out)
	}
	dir.lamp(t, addresses(11, 11), nil)
	p := runNginx(t, literal)
	dir.lamp(t, addresses(12, 12), nil)
	if got := nginxServes(t, 10); got["10.20.1.11"] != 10 {
		t.Errorf("a name that is no variable: %v", got)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}

	// valid= is in place of the TTL, which is 1 h.
	p = startNginx(t, "10.96.0.53 ipv6=off;", "10.96.0.53 ipv6=off valid=1s;")
	nginxFinds(t, "10.20.1.12")
	dir.lamp(t, addresses(13, 13), nil)
	t.Logf("with valid=1s, a change shows after %v", nginxFinds(t, "10.20.1.13"))
	if err := p.Stop(); err != nil {
		t.Error(err)
	}

	// Without ipv6=off it asks for both families.
	w.reset(t)
	p = startNginx(t, " ipv6=off;", ";")
	nginxFinds(t, "10.20.1.13")
	types := map[uint16]bool{}
	for _, m := range w.replies(t) {
		types[m.Question[0].Qtype] = true
	}
	if !types[dns.TypeA] || !types[dns.TypeAAAA] {
		t.Errorf("types that are asked for: %v", types)
	}

	// One that takes no connections: the next has the request.
	nft(t, "add table ip refuse; add chain ip refuse output { type filter hook output priority 0; }; "+
		"add rule ip refuse output ip daddr 10.20.1.14 tcp dport 8080 reject with tcp reset")
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	dir.lamp(t, addresses(13, 14), nil)
	p = startNginx(t)
	if got := nginxServes(t, 40); got["10.20.1.13"] != 40 || !strings.Contains(p.Log(), "connect() failed") {
		t.Errorf("with one that refuses: %v", got)
	}
}
