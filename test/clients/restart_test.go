//go:build linux

package clients_test

import (
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"epdns/test/netns"
	"epdns/test/run"

	"github.com/miekg/dns"
)

// This file restarts two epdns behind one address, one after the other, as a Deployment does, and
// counts the questions that get no answer. docs/draining.md has the figures.

// replicas are the Pods of Service epdns, whose ClusterIP is epdnsIP.
var replicas = []string{"10.20.200.1", "10.20.200.2"}

// syncsAfter is how late kube-proxy takes up that a Pod is not ready: the time between two syncs of
// a busy node.
const syncsAfter = time.Second

func TestRollingRestart(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	for client, tally := range rollingRestart(t, 5*time.Second, true) {
		if tally.asked < 10 || tally.lost > 0 {
			t.Errorf("%s: %v", client, tally)
		}
	}
}

func TestRollingRestartWithoutLameduck(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	if tally := rollingRestart(t, 0, true)["new socket each time"]; tally.lost == 0 {
		t.Errorf("nothing is lost without lameduck: %v", tally)
	}
}

// Some proxies do not forget where they sent the datagrams of a socket.
func TestRollingRestartStuck(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	all := rollingRestart(t, 5*time.Second, false)
	if tally := all["one socket"]; tally.lost == 0 {
		t.Errorf("nothing is lost by who stays with one socket: %v", tally)
	}
	// A new socket may have the port of one before.
	if tally := all["new socket each time"]; tally.lost > tally.asked/20 {
		t.Errorf("who takes a new socket each time loses: %v", tally)
	}
}

// patient clients lose nothing because a machine is busy. Who asks where nobody listens is told so
// at once.
const patient = 5 * time.Second

// tally counts the questions of one client.
type tally struct {
	asked, lost int
	slowest     time.Duration // answer
}

func (c tally) String() string {
	return fmt.Sprintf("%d of %d lost (%.1f %%), slowest answer %v", c.lost, c.asked, 100*float64(c.lost)/float64(max(1, c.asked)), c.slowest.Round(time.Millisecond))
}

// rollingRestart restarts both with this lameduck. forgets is whether the proxy deletes what it
// remembers of who is gone.
func rollingRestart(t *testing.T, lameduck time.Duration, forgets bool) map[string]tally {
	t.Helper()
	_, m := manifestsOf(t, twoPods)
	// No cache has an answer that it may give meanwhile.
	config := configured(t, "defaults: {ttl: 0s}")
	serveReplica := func(ip string) *run.Process {
		p := start(t, epdns, "serve", "--manifests="+string(m), "--config="+config, "--listen="+ip+":53", "--http="+ip+":9153",
			"--lameduck="+lameduck.String())
		p.Eventually(t, func() error {
			_, err := run.Get("http://" + ip + ":9153/readyz")
			return err
		})
		return p
	}
	running := []*run.Process{serveReplica(replicas[0]), serveReplica(replicas[1])}
	proxy := newProxy(t, forgets)
	proxy.sync(t, replicas...)

	startShippedCoreDNS(t)
	proxies := map[string]haproxy{}
	for name, nameserver := range map[string]string{"HAProxy, UDP": "", "HAProxy, TCP": "tcp@"} {
		proxies[name] = listenHAProxy(t, "resolvers epdns\n    nameserver d1 "+nameserver+epdnsIP+":53\n    "+large+
			"\n    timeout resolve 100ms\n    timeout retry "+patient.String()+"\n"+backends(2))
		proxies[name].has(t, "by_srv", twoPods)
	}

	one, err := dns.Dial("udp", epdnsIP+":53")
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	client := dns.Client{Timeout: patient}
	question := func() *dns.Msg { return new(dns.Msg).SetQuestion(lampName, dns.TypeA) }
	clients := map[string]func() (*dns.Msg, error){
		"new socket each time": func() (*dns.Msg, error) {
			reply, _, err := client.Exchange(question(), epdnsIP+":53")
			return reply, err
		},
		"one socket": func() (*dns.Msg, error) {
			reply, _, err := client.ExchangeWithConn(question(), one)
			return reply, err
		},
		"new connection each time": func() (*dns.Msg, error) {
			tcp := dns.Client{Net: "tcp", Timeout: patient}
			reply, _, err := tcp.Exchange(question(), epdnsIP+":53")
			return reply, err
		},
		"through CoreDNS": func() (*dns.Msg, error) {
			reply, _, err := client.Exchange(question(), otherIP+":53")
			return reply, err
		},
	}
	end := make(chan struct{})
	var mu sync.Mutex
	var wg sync.WaitGroup
	all := map[string]tally{}
	for name, ask := range clients {
		wg.Go(func() {
			var c tally
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				begin := time.Now()
				reply, err := ask()
				if c.asked++; err != nil || len(reply.Answer) != 2 {
					if c.lost++; c.lost == 1 {
						t.Logf("%s: the first one that is lost: %v\n%v", name, err, reply)
					}
				} else {
					c.slowest = max(c.slowest, time.Since(begin))
				}
				select {
				case <-end:
					mu.Lock()
					defer mu.Unlock()
					all[name] = c
					return
				case <-tick.C:
				}
			}
		})
	}

	for i, ip := range replicas {
		stopped := make(chan error, 1)
		go func() { stopped <- running[i].Stop() }()
		time.Sleep(syncsAfter) // as long as the proxy of another node may take
		proxy.sync(t, replicas[1-i])
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		// Nobody has the address for a while, as the next Pod has another one.
		time.Sleep(3 * time.Second)
		running[i] = serveReplica(ip)
		proxy.sync(t, replicas...)
	}
	time.Sleep(time.Second)
	close(end)
	wg.Wait()
	for name, h := range proxies {
		all[name] = h.tally(t)
		if up := h.in(t, "by_srv"); len(up) != 2 {
			t.Errorf("%s: %v are up", name, up)
		}
	}
	for name, c := range all {
		t.Logf("lameduck %v, proxy forgets %v, %s: %v", lameduck, forgets, name, c)
	}
	return all
}

// tally counts what it has asked, and what had no answer in time.
func (h haproxy) tally(t *testing.T) tally {
	t.Helper()
	least := tally{lost: math.MaxInt}
	for range 50 { // some may be on their way
		counters := h.counters(t)
		sent, err := strconv.Atoi(counters["sent"])
		valid, err2 := strconv.Atoi(counters["valid"])
		if err != nil || err2 != nil {
			t.Fatalf("HAProxy counts %v", counters)
		}
		if lost := sent - valid; lost < least.lost {
			least = tally{asked: sent, lost: lost}
		}
		if least.lost == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return least
}

// proxy does for Service epdns what kube-proxy does: each new flow goes to one of those that are
// ready, at random, and the packets of a flow all go the same way.
type proxy struct {
	forgets bool // what it remembers of who is gone, as kube-proxy does
	ready   []string
}

func newProxy(t *testing.T, forgets bool) *proxy {
	t.Helper()
	nft(t, "add table ip proxy; add chain ip proxy output { type nat hook output priority -100; }")
	return &proxy{forgets: forgets}
}

// sync makes these the ready ones.
func (p *proxy) sync(t *testing.T, ready ...string) {
	t.Helper()
	var to []string
	for i, ip := range ready {
		to = append(to, fmt.Sprintf("%d : %s", i, ip))
	}
	script := "flush chain ip proxy output\n"
	for _, protocol := range []string{"udp", "tcp"} {
		script += fmt.Sprintf("add rule ip proxy output ip daddr %s %s dport 53 dnat to numgen random mod %d map { %s }\n",
			epdnsIP, protocol, len(ready), strings.Join(to, ", "))
	}
	rules := exec.Command("nft", "-f", "-")
	rules.Stdin = strings.NewReader(script)
	if out, err := rules.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v\n%s%s", err, script, out)
	}
	for _, ip := range p.ready {
		if slices.Contains(ready, ip) || !p.forgets {
			continue
		}
		out, err := exec.Command("conntrack", "-D", "-p", "udp", "--orig-dst", epdnsIP, "--reply-src", ip).CombinedOutput()
		if err != nil && !strings.Contains(string(out), "0 flow entries") {
			t.Fatalf("conntrack: %v\n%s", err, out)
		}
	}
	p.ready = ready
}
