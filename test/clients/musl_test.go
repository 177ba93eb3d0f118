//go:build linux

package clients_test

import (
	"bytes"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
)

const search = "nameserver " + epdnsIP + "\nsearch dock.registry.local registry.local\noptions ndots:5\n"

// muslLookup looks up with musl. It returns what was found, and what the library says if
// nothing was.
func muslLookup(t *testing.T, args ...string) (found []string, failure string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(musl, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 2) {
		t.Fatalf("lookup %q: %v\n%s", args, err, &stderr)
	}
	return strings.Fields(stdout.String()), strings.TrimSpace(stderr.String())
}

// muslFinds fails unless musl finds exactly these.
func muslFinds(t *testing.T, want []string, args ...string) {
	t.Helper()
	found, failure := muslLookup(t, args...)
	if slices.Sort(found); !slices.Equal(found, want) || failure != "" {
		t.Errorf("musl finds for %q %q %s, want %q", args, found, failure, want)
	}
}

// What musl says, of a name for which an answer came, and of one for which none did.
const (
	notFound = "Name does not resolve"
	noAnswer = "Try again"
)

// muslFails fails unless musl says this.
func muslFails(t *testing.T, want string, args ...string) (took time.Duration) {
	t.Helper()
	begin := time.Now()
	found, failure := muslLookup(t, args...)
	if len(found) > 0 || failure != want {
		t.Errorf("musl finds for %q %q %q, want %q", args, found, failure, want)
	}
	return time.Since(begin)
}

var twoPods = addresses(11, 12)

func TestMuslBothFamilies(t *testing.T) {
	other(t, func(w dns.ResponseWriter, m *dns.Msg) { w.WriteMsg(new(dns.Msg).SetRcode(m, dns.RcodeNameError)) })
	// What is in no zone of epdns is for another server to know.
	dir := serveLamp(t, 2, "--upstream="+otherIP)
	resolvConf(t, search)
	w := capture(t)

	muslFinds(t, twoPods, "lamp")
	w.wantRcodes(t, map[string]string{"lamp.dock.registry.local.": "NOERROR"})

	w.reset(t)
	muslFinds(t, twoPods, "lamp.dock")
	w.wantRcodes(t, map[string]string{
		"lamp.dock.dock.registry.local.": "NXDOMAIN",
		"lamp.dock.registry.local.":      "NOERROR",
	})

	w.reset(t)
	if took := muslFails(t, notFound, "nolamp"); took > 4*time.Second {
		t.Errorf("nolamp takes %v, as if a reply were missing", took)
	}
	w.wantRcodes(t, map[string]string{
		"nolamp.dock.registry.local.": "NXDOMAIN",
		"nolamp.registry.local.":      "NXDOMAIN",
		"nolamp.":                     "NXDOMAIN",
	})

	w.reset(t)
	found, failure := muslLookup(t, "-r", "200", "lamp")
	if len(found) != 400 || failure != "" {
		t.Errorf("200 times: %d addresses, want 400; %s", len(found), failure)
	}
	w.wantRcodes(t, map[string]string{"lamp.dock.registry.local.": "NOERROR"})

	dir.lamp(t, nil, twoPods)
	w.reset(t)
	if took := muslFails(t, notFound, "lamp"); took > 4*time.Second {
		t.Errorf("lamp without pods takes %v, as if a reply were missing", took)
	}
	w.wantRcodes(t, map[string]string{"lamp.dock.registry.local.": "NODATA"})
}

func TestMuslSearch(t *testing.T) {
	dir := serveLamp(t, 2)
	w := capture(t)
	const full = "lamp.dock.registry.local"
	missing := map[string]string{
		"lamp.dock.registry.local.dock.registry.local.": "NXDOMAIN",
		"lamp.dock.registry.local.registry.local.":      "NXDOMAIN",
	}
	with := func(more map[string]string) map[string]string {
		all := map[string]string{}
		for _, m := range []map[string]string{missing, more} {
			for name, rcode := range m {
				all[name] = rcode
			}
		}
		return all
	}

	t.Run("with another zone", func(t *testing.T) {
		resolvConf(t, "nameserver "+epdnsIP+"\nsearch dock.registry.local registry.local corp.example\noptions ndots:5 timeout:1 attempts:1\n")
		w.reset(t)
		muslFails(t, noAnswer, full)
		w.wantRcodes(t, with(map[string]string{full + ".corp.example.": "REFUSED"}))
		muslFinds(t, twoPods, full+".")
	})
	resolvConf(t, search+"options ndots:5 timeout:1 attempts:1\n")
	t.Run("without", func(t *testing.T) {
		w.reset(t)
		muslFinds(t, twoPods, full)
		w.wantRcodes(t, with(map[string]string{full + ".": "NOERROR"}))
		muslFinds(t, twoPods, full+".")
	})
	t.Run("BusyBox", func(t *testing.T) {
		w.reset(t)
		// Its status differs between versions.
		out, err := exec.Command("busybox", "nslookup", "lamp").CombinedOutput()
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
	})
	t.Run("a deep name", func(t *testing.T) {
		w.reset(t)
		muslFails(t, noAnswer, "a.b.c.d.e")
		w.wantRcodes(t, map[string]string{
			"a.b.c.d.e.dock.registry.local.": "NXDOMAIN",
			"a.b.c.d.e.registry.local.":      "NXDOMAIN",
			"a.b.c.d.e.":                     "REFUSED",
		})
	})
	t.Run("nobody is ready", func(t *testing.T) {
		dir.lamp(t, nil, twoPods)
		w.reset(t)
		muslFails(t, notFound, "lamp")
		w.wantRcodes(t, map[string]string{"lamp.dock.registry.local.": "NODATA"}) // and stops there
		reply, err := ask("udp", "lamp.registry.local.", dns.TypeA)
		if err != nil || kind(reply) != "NXDOMAIN" {
			t.Errorf("the next one: %v\n%v", err, reply)
		}
	})
}

func TestMuslTruncated(t *testing.T) {
	serveLamp(t, 60)
	resolvConf(t, "nameserver "+epdnsIP+"\nsearch dock.registry.local\noptions ndots:5\n")
	w := capture(t)
	found, failure := muslLookup(t, "-4", "lamp")
	if failure != "" {
		t.Fatal(failure)
	}
	slices.Sort(found)
	// As many as there is room for: (512 - 12 - 30) / 16.
	if n := len(slices.Compact(found)); n != 29 {
		t.Errorf("musl finds %d pods, want 29", n)
	}
	replies := w.replies(t)
	if len(replies) != 1 {
		t.Fatalf("%d replies", len(replies))
	}
	m := replies[0]
	if m.network != "udp" || !m.Truncated || m.size > 512 || m.IsEdns0() != nil || len(m.Answer) != 29 {
		t.Errorf("with %d addresses: %v", len(m.Answer), m)
	}
	if n := w.connections(t); n > 0 {
		t.Errorf("musl before 1.2.4 has no TCP, and opened %d connections", n)
	}
	// What a later one would be told.
	reply, err := ask("tcp", "lamp.dock.registry.local.", dns.TypeA)
	if err != nil || len(reply.Answer) != 60 || reply.IsEdns0() != nil {
		t.Errorf("over TCP: %v\n%v", err, reply)
	}
}
