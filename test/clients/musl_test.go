//go:build linux

package clients_test

import (
	"bytes"
	"errors"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"epdns/test/netns"

	"github.com/miekg/dns"
)

const search = "nameserver " + epdnsIP + "\nsearch dock.registry.local registry.local\noptions ndots:5\n"

// muslLib is a version of musl, by the path of its loader.
type muslLib struct {
	loader string
	tcp    bool   // asks again over TCP
	noData string // what it says of a name without addresses
}

// withMusl runs a test with musl as the machine has it, and with a later one.
func withMusl(t *testing.T, test func(*testing.T, muslLib)) {
	t.Run("musl", func(t *testing.T) {
		found, err := filepath.Glob("/lib/ld-musl-*.so.1")
		if err != nil || len(found) != 1 {
			t.Fatalf("musl's loader is one of %q: %v", found, err)
		}
		test(t, newMusl(t, found[0]))
	})
	t.Run("later musl", func(t *testing.T) {
		m := newMusl(t, need(t, "later-musl"))
		if !m.tcp {
			t.Fatal("it has no TCP")
		}
		test(t, m)
	})
}

var muslVersion = regexp.MustCompile(`(?m)^Version (\d+)\.(\d+)\.(\d+)$`)

func newMusl(t *testing.T, loader string) muslLib {
	t.Helper()
	out, _ := exec.Command(loader).CombinedOutput() // says how to use it, with status 1
	var version []int
	for _, text := range muslVersion.FindStringSubmatch(string(out)) {
		if n, err := strconv.Atoi(text); err == nil {
			version = append(version, n)
		}
	}
	if len(version) != 3 {
		t.Fatalf("%s does not say its version:\n%s", loader, out)
	}
	t.Logf("musl %d", version)
	if slices.Compare(version, []int{1, 2, 4}) < 0 {
		return muslLib{loader, false, notFound}
	}
	return muslLib{loader, true, "Name has no usable address"}
}

// lookup looks up. It returns what was found, and what the library says if nothing was.
func (m muslLib) lookup(t *testing.T, args ...string) (found []string, failure string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(m.loader, append([]string{musl}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 2) {
		t.Fatalf("lookup %q: %v\n%s", args, err, &stderr)
	}
	return strings.Fields(stdout.String()), strings.TrimSpace(stderr.String())
}

// finds fails unless musl finds exactly these.
func (m muslLib) finds(t *testing.T, want []string, args ...string) {
	t.Helper()
	found, failure := m.lookup(t, args...)
	if slices.Sort(found); !slices.Equal(found, want) || failure != "" {
		t.Errorf("musl finds for %q %q %s, want %q", args, found, failure, want)
	}
}

// What musl says, of a name for which an answer came, and of one for which none did.
const (
	notFound = "Name does not resolve"
	noAnswer = "Try again"
)

// fails fails unless musl says this.
func (m muslLib) fails(t *testing.T, name, want string) (took time.Duration) {
	t.Helper()
	begin := time.Now()
	found, failure := m.lookup(t, name)
	if len(found) > 0 || failure != want {
		t.Errorf("musl finds for %s %q %q, want %q", name, found, failure, want)
	}
	return time.Since(begin)
}

// getent looks up with glibc, and returns each address once.
func getent(t *testing.T, database, name string) (found []string) {
	t.Helper()
	out, err := exec.Command("getent", database, name).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 2) { // 2: not found
		t.Fatalf("getent %s %s: %v\n%s", database, name, err, out)
	}
	for line := range strings.Lines(string(out)) {
		found = append(found, strings.Fields(line)[0])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

var twoPods = addresses(11, 12)

func TestMuslBothFamilies(t *testing.T) {
	serveOther(t, upstreamIP, func(w dns.ResponseWriter, m *dns.Msg) { w.WriteMsg(new(dns.Msg).SetRcode(m, dns.RcodeNameError)) })
	// What is in no zone of epdns is for another server to know.
	dir := serveLamp(t, 2, "--upstream="+upstreamIP)
	resolvConf(t, search)
	w := capture(t)
	withMusl(t, func(t *testing.T, m muslLib) {
		dir.lamp(t, twoPods, nil)
		w.reset(t)
		m.finds(t, twoPods, "lamp")
		w.wantRcodes(t, map[string]string{"lamp.dock.registry.local.": "NOERROR"})

		w.reset(t)
		m.finds(t, twoPods, "lamp.dock")
		w.wantRcodes(t, map[string]string{
			"lamp.dock.dock.registry.local.": "NXDOMAIN",
			"lamp.dock.registry.local.":      "NOERROR",
		})

		w.reset(t)
		if took := m.fails(t, "nolamp", notFound); took > 4*time.Second {
			t.Errorf("nolamp takes %v, as if a reply were missing", took)
		}
		w.wantRcodes(t, map[string]string{
			"nolamp.dock.registry.local.": "NXDOMAIN",
			"nolamp.registry.local.":      "NXDOMAIN",
			"nolamp.":                     "NXDOMAIN",
		})

		w.reset(t)
		found, failure := m.lookup(t, "-r", "200", "lamp")
		if len(found) != 400 || failure != "" {
			t.Errorf("200 times: %d addresses, want 400; %s", len(found), failure)
		}
		w.wantRcodes(t, map[string]string{"lamp.dock.registry.local.": "NOERROR"})

		dir.lamp(t, nil, twoPods)
		w.reset(t)
		if took := m.fails(t, "lamp", m.noData); took > 4*time.Second {
			t.Errorf("lamp without pods takes %v, as if a reply were missing", took)
		}
		w.wantRcodes(t, map[string]string{"lamp.dock.registry.local.": "NODATA"})
	})
}

// Names in the tests of search lists.
const (
	full = "lamp.dock.registry.local"
	corp = "nameserver " + epdnsIP + "\nsearch dock.registry.local registry.local corp.example\noptions ndots:5\n"
)

// triedFirst are the candidates before the name itself, and these more.
func triedFirst(more map[string]string) map[string]string {
	all := map[string]string{
		full + ".dock.registry.local.": "NXDOMAIN",
		full + ".registry.local.":      "NXDOMAIN",
	}
	maps.Copy(all, more)
	return all
}

var deepName = map[string]string{
	"a.b.c.d.e.dock.registry.local.": "NXDOMAIN",
	"a.b.c.d.e.registry.local.":      "NXDOMAIN",
	"a.b.c.d.e.":                     "REFUSED",
}

func TestMuslSearch(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	dir := serveLamp(t, 2)
	w := capture(t)
	withMusl(t, func(t *testing.T, m muslLib) {
		dir.lamp(t, twoPods, nil)
		t.Run("with another zone", func(t *testing.T) {
			resolvConf(t, corp)
			w.reset(t)
			m.fails(t, full, noAnswer) // after 5 s, in which it waits for better than REFUSED
			w.wantRcodes(t, triedFirst(map[string]string{full + ".corp.example.": "REFUSED"}))
			m.finds(t, twoPods, full+".")
		})
		resolvConf(t, search)
		t.Run("without", func(t *testing.T) {
			w.reset(t)
			m.finds(t, twoPods, full)
			w.wantRcodes(t, triedFirst(map[string]string{full + ".": "NOERROR"}))
			m.finds(t, twoPods, full+".")
		})
		t.Run("a deep name", func(t *testing.T) {
			w.reset(t)
			m.fails(t, "a.b.c.d.e", noAnswer)
			w.wantRcodes(t, deepName)
		})
		t.Run("nobody is ready", func(t *testing.T) {
			dir.lamp(t, nil, twoPods)
			w.reset(t)
			m.fails(t, "lamp", m.noData)
			w.wantRcodes(t, map[string]string{"lamp.dock.registry.local.": "NODATA"}) // and stops there
		})
	})
}

// The same as TestMuslSearch with glibc.
func TestGlibcSearch(t *testing.T) {
	dir := serveLamp(t, 2)
	hosts(t)
	w := capture(t)
	finds := func(t *testing.T, want []string, name string) {
		t.Helper()
		if found := getent(t, "ahosts", name); !slices.Equal(found, want) {
			t.Errorf("glibc finds for %s %q, want %q", name, found, want)
		}
	}
	t.Run("with another zone", func(t *testing.T) {
		resolvConf(t, corp)
		w.reset(t)
		finds(t, twoPods, full)
		w.wantRcodes(t, triedFirst(map[string]string{full + ".corp.example.": "REFUSED", full + ".": "NOERROR"}))
		finds(t, twoPods, full+".")
	})
	resolvConf(t, search)
	t.Run("without", func(t *testing.T) {
		w.reset(t)
		finds(t, twoPods, full)
		w.wantRcodes(t, triedFirst(map[string]string{full + ".": "NOERROR"}))
		finds(t, twoPods, full+".")
	})
	t.Run("a deep name", func(t *testing.T) {
		w.reset(t)
		finds(t, nil, "a.b.c.d.e")
		w.wantRcodes(t, deepName)
	})
	t.Run("nobody is ready", func(t *testing.T) {
		dir.lamp(t, nil, twoPods)
		w.reset(t)
		finds(t, nil, "lamp")
		w.wantRcodes(t, map[string]string{
			"lamp.dock.registry.local.": "NODATA", // and goes on
			"lamp.registry.local.":      "NXDOMAIN",
			"lamp.":                     "REFUSED",
		})
	})
}

func TestBusyBox(t *testing.T) {
	serveLamp(t, 2)
	resolvConf(t, search)
	w := capture(t)
	nslookup := func(t *testing.T, busybox string) {
		w.reset(t)
		// Its status differs between versions.
		out, err := exec.Command(busybox, "nslookup", "lamp").CombinedOutput()
		for _, address := range twoPods {
			if !strings.Contains(string(out), address) {
				t.Errorf("%s is not in\n%s%v", address, out, err)
			}
		}
		for _, m := range w.replies(t) {
			want := "NXDOMAIN"
			switch q := m.Question[0]; {
			case q.Name == full+"." && q.Qtype == dns.TypeA:
				want = "NOERROR"
			case q.Name == full+".":
				want = "NODATA"
			case !inZone(q.Name):
				continue
			}
			if got := kind(m.Msg); got != want {
				t.Errorf("%s, want %s: %v", got, want, m)
			}
		}
	}
	t.Run("of the machine", func(t *testing.T) { nslookup(t, "busybox") })
	t.Run("later", func(t *testing.T) { nslookup(t, need(t, "busybox-later")) })
}

func TestTruncated(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	serveLamp(t, 60)
	hosts(t)
	resolvConf(t, "nameserver "+epdnsIP+"\nsearch dock.registry.local\noptions ndots:5\n")
	w := capture(t)
	// check checks the replies: cut ones over UDP, whole ones over TCP, nothing else.
	check := func(t *testing.T, overUDP, overTCP int) {
		t.Helper()
		n := map[string]int{}
		for _, m := range w.replies(t) {
			if m.Question[0].Qtype == dns.TypeAAAA {
				continue
			}
			n[m.network]++
			if m.network == "udp" && (!m.Truncated || m.size > 512 || len(m.Answer) != 29) || m.network == "tcp" && len(m.Answer) != 60 || m.IsEdns0() != nil {
				t.Errorf("with %d addresses: %v", len(m.Answer), m)
			}
		}
		if n["udp"] != overUDP || n["tcp"] != overTCP {
			t.Errorf("replies: %v, want %d over UDP, %d over TCP", n, overUDP, overTCP)
		}
	}
	withMusl(t, func(t *testing.T, m muslLib) {
		// As many as there is room for, (512 - 12 - 30) / 16, or as many as it takes.
		want, overTCP := 29, 0
		if m.tcp {
			want, overTCP = 48, 1
		}
		w.reset(t)
		found, failure := m.lookup(t, "-4", "lamp")
		slices.Sort(found)
		if n := len(slices.Compact(found)); n != want || failure != "" {
			t.Errorf("musl finds %d pods, want %d: %s", n, want, failure)
		}
		check(t, 1, overTCP)
		if n := w.connections(t); n != overTCP {
			t.Errorf("musl opens %d connections, want %d", n, overTCP)
		}

		if !m.tcp {
			return
		}
		nft(t, "add table inet test; add chain inet test input { type filter hook input priority 0; }; "+
			"add rule inet test input tcp dport 53 drop")
		begin := time.Now()
		found, failure = m.lookup(t, "-4", "lamp")
		took := time.Since(begin)
		t.Logf("without TCP: %d pods, %q, after %v", len(found), failure, took)
		// It gives up after 5 s.
		if took > 8*time.Second || len(found) == 0 && failure != noAnswer {
			t.Errorf("without TCP, after %v: %d pods, %q", took, len(found), failure)
		}
	})
	t.Run("glibc", func(t *testing.T) {
		w.reset(t)
		if found := getent(t, "ahostsv4", "lamp"); len(found) != 60 {
			t.Errorf("glibc finds %d pods", len(found))
		}
		check(t, 1, 1)
	})
}

// nft adds to the firewall until the test ends.
func nft(t *testing.T, rules string) {
	t.Helper()
	if out, err := exec.Command("nft", rules).CombinedOutput(); err != nil {
		t.Fatalf("nft %s: %v\n%s", rules, err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("nft", "flush ruleset").CombinedOutput(); err != nil {
			t.Errorf("nft flush: %v\n%s", err, out)
		}
	})
}
