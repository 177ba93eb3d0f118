//go:build linux

package clients_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"epdns/test/netns"
	"epdns/test/run"

	"github.com/miekg/dns"
)

// The two ways to have CoreDNS in front: one that keeps nothing longer than epdns says, and
// one as in many clusters.
var corefile = strings.ReplaceAll(`
registry.local:53 {
    errors
    bind OTHER
    forward . EPDNS {
        prefer_udp
    }
    cache 5 {
        success 4096 5 0
        denial 2048 2 0
    }
}
registry.local:54 {
    errors
    bind OTHER
    forward . EPDNS
    cache 30
}
`, "EPDNS", epdnsIP)

const (
	honest = otherIP + ":53"
	usual  = otherIP + ":54"
)

// serveCoreDNS runs epdns with this TTL of records, and CoreDNS in front. It returns what
// epdns was started with, too.
func serveCoreDNS(t *testing.T, ttl string) (dir namespace, server *run.Process, args []string) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "epdns.yaml")
	if err := os.WriteFile(config, []byte("apiVersion: epdns/v1alpha1\nkind: Config\n"+
		"zones:\n- name: registry.local\n  defaults: {ttl: "+ttl+"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir, m := manifestsOf(t, addresses(1, 1))
	args = []string{"--manifests=" + string(m), "--config=" + config}
	server = serve(t, "readyz", args...)
	path := filepath.Join(t.TempDir(), "Corefile")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(corefile, "OTHER", otherIP)), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, coreDNS, "-conf", path)
	for _, server := range []string{honest, usual} {
		p.Eventually(t, func() error {
			// No name that a test asks for, since it is kept.
			_, err := askAt(server, "bulb.dock.registry.local.")
			return err
		})
	}
	return dir, server, args
}

func askAt(server, name string) (*dns.Msg, error) {
	client := dns.Client{Timeout: grace}
	reply, _, err := client.Exchange(new(dns.Msg).SetQuestion(name, dns.TypeA), server)
	return reply, err
}

// first is the address in a reply.
func first(reply *dns.Msg) string {
	if len(reply.Answer) == 1 {
		if a, ok := reply.Answer[0].(*dns.A); ok {
			return a.A.String()
		}
	}
	return kind(reply)
}

// busy is what a machine may need for a few questions when it has other things to do.
const busy = 250 * time.Millisecond

// follow asks both until they tell of a change that epdns tells of now. Until it tells, the
// answer is what it was before; who asks after this limit is told.
func follow(t *testing.T, name, before, after string, limits map[string]time.Duration) {
	t.Helper()
	begin := time.Now()
	var wg sync.WaitGroup
	for server, limit := range limits {
		wg.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for ; ; <-tick.C {
				asked := time.Since(begin)
				reply, err := askAt(server, name)
				if err != nil {
					t.Errorf("%s at %s: %v", name, server, err)
					return
				}
				switch got := first(reply); {
				case got == after:
					t.Logf("%s at %s changes %v after epdns", name, server, asked.Round(time.Millisecond))
					return
				case got != before || asked > limit+busy:
					t.Errorf("%s at %s is %s after %v, was %s, should be %s after %v", name, server, got, asked, before, after, limit)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestCoreDNS(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	t.Run("TTL 1", func(t *testing.T) {
		dir, _, _ := serveCoreDNS(t, "1s")
		pod := addresses(1, 2)
		for _, server := range []string{honest, usual} {
			if reply, err := askAt(server, lampName); err != nil || first(reply) != pod[0] {
				t.Fatalf("%v\n%v", err, reply)
			}
			if reply, err := askAt(server, "late.dock.registry.local."); err != nil || kind(reply) != "NXDOMAIN" {
				t.Fatalf("%v\n%v", err, reply)
			}
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		dir.lamp(t, pod[1:], nil)
		dir.write(t, "late", addresses(3, 3), nil)
		wg.Go(func() {
			follow(t, lampName, pod[0], pod[1], map[string]time.Duration{honest: time.Second, usual: 5 * time.Second})
		})
		eventually(t, func() error {
			reply, err := ask("tcp", "late.dock.registry.local.", dns.TypeA)
			if err == nil && len(reply.Answer) != 1 {
				err = fmt.Errorf("epdns answers\n%v", reply)
			}
			return err
		})
		wg.Go(func() {
			follow(t, "late.dock.registry.local.", "NXDOMAIN", "10.20.1.3",
				map[string]time.Duration{honest: 2 * time.Second, usual: 5 * time.Second})
		})
	})

	t.Run("TTL 0", func(t *testing.T) {
		_, server, args := serveCoreDNS(t, "0s")
		w := capture(t)
		const times = 100
		for range times {
			reply, err := askAt(honest, lampName)
			if err != nil || first(reply) != "10.20.1.1" || reply.Answer[0].Header().Ttl != 0 {
				t.Fatalf("%v\n%v", err, reply)
			}
		}
		if n := len(w.replies(t)); n != times {
			t.Errorf("epdns was asked %d times, want %d", n, times)
		}

		// Names of which none is kept yet.
		w.reset(t)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				if err := pipeline(usual, i*times, times); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		n := 0
		for _, m := range w.replies(t) {
			if m.network == "tcp" {
				n++
			}
		}
		t.Logf("epdns had %d of 1000 questions over TCP, in %d connections", n, w.connections(t))
		if n < 1000 {
			t.Errorf("epdns had %d of 1000 questions over TCP", n)
		}

		// When a server has failed, CoreDNS asks for the NS of the root, to see whether it is
		// there again, and any reply says that it is.
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			reply, err := askAt(honest, lampName)
			if err == nil && reply.Rcode != dns.RcodeServerFailure {
				err = fmt.Errorf("CoreDNS answers without epdns:\n%v", reply)
			}
			return err
		})
		w.reset(t)
		serve(t, "readyz", args...)
		eventually(t, func() error {
			for _, m := range w.replies(t) {
				if q := m.Question[0]; q.Name == "." && q.Qtype == dns.TypeNS && m.Rcode == dns.RcodeRefused {
					return nil
				}
			}
			return errors.New("CoreDNS has not been refused the NS of the root")
		})
		eventually(t, func() error {
			reply, err := askAt(honest, lampName)
			if err == nil && first(reply) != "10.20.1.1" {
				err = fmt.Errorf("CoreDNS answers with epdns:\n%v", reply)
			}
			return err
		})
	})
}

// pipeline asks for this many names that are not there, all at once over one connection.
func pipeline(server string, from, n int) error {
	tcp, err := net.DialTimeout("tcp", server, grace)
	if err != nil {
		return err
	}
	defer tcp.Close()
	tcp.SetDeadline(time.Now().Add(grace))
	conn := &dns.Conn{Conn: tcp}
	for i := range n {
		m := new(dns.Msg).SetQuestion(fmt.Sprintf("n%d.lamp.dock.registry.local.", from+i), dns.TypeA)
		m.Id = uint16(i)
		if err := conn.WriteMsg(m); err != nil {
			return err
		}
	}
	answered := map[uint16]bool{}
	for range n {
		reply, err := conn.ReadMsg()
		if err != nil {
			return fmt.Errorf("after %d replies of %d: %w", len(answered), n, err)
		}
		if kind(reply) != "NXDOMAIN" || len(reply.Ns) != 1 {
			return fmt.Errorf("not what epdns says:\n%v", reply)
		}
		answered[reply.Id] = true
	}
	if len(answered) != n {
		return fmt.Errorf("%d of %d questions have a reply", len(answered), n)
	}
	return nil
}
