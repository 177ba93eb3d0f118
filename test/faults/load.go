//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/miekg/dns"

	"epdns/test/bench/load"
	"epdns/test/faults/proxy"
)

// This file is about what clients, the machine and the administrator do to epdns.

// query is a question for a Service that exists.
func (t *trial) query() (load.Query, error) {
	name := ""
	for _, s := range t.world.services {
		s.mu.Lock()
		if s.exists {
			name = s.name
		}
		s.mu.Unlock()
	}
	wire, err := new(dns.Msg).SetQuestion(name+"."+namespace+"."+zone, dns.TypeA).Pack()
	return load.Query{Wire: wire, RCODE: dns.RcodeSuccess, Min: len(wire), Max: 1232}, err
}

// paceRate is a load, in queries a second, that leaves the machine room for the control plane.
const paceRate = 3000

// pace asks steadily.
func (t *trial) pace(server string, d time.Duration) (*load.Result, error) {
	q, err := t.query()
	if err != nil {
		return nil, err
	}
	g, err := load.NewUDP(server, load.MaxOutstanding, -1)
	if err != nil {
		return nil, err
	}
	defer g.Close()
	return g.Pace([]load.Query{q}, paceRate, d)
}

// whole checks that each query of a load has a reply, however late: the load gives up those that
// take several times as long as others did.
func (t *trial) whole(r *load.Result, what string) {
	t.check(r.Replies() == r.Asked && r.Wrong == 0, fmt.Sprintf("%s at %s queries a second", what, thousands(paceRate)), "%s of %s answered, %s of them late",
		thousands(r.Replies()), thousands(r.Asked), thousands(r.Stale))
	if n := len(r.Latencies); n > 0 {
		t.note("99 %% of the others within %s", brief(r.Latencies[n*99/100]))
	}
}

// reloads changes the file and sends SIGHUP every second, every other time a file that is wrong.
func reloads(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	before, err := t.serial(ctx)
	if err != nil {
		return err
	}
	t.calm() // the question is for one that stays
	d := t.long(12*time.Second, 6*time.Second)
	var result *load.Result
	var failed error
	var asking sync.WaitGroup
	asking.Go(func() { result, failed = t.pace(t.server.DNS, d) })
	file := filepath.Join(t.dir, "epdns.yaml")
	good, bad := 0, 0
	for i := range int(d / time.Second) {
		s := setup{config: fmt.Sprintf("nsid: \"%d\"\n", i)}
		if i%2 == 1 {
			s.config = "zones: [{name: 17.., rules: 3}]\n"
			bad++
		} else {
			good++
		}
		err := os.WriteFile(file, []byte(s.text()), 0o600)
		if err == nil {
			err = syscall.Kill(t.server.PID(), syscall.SIGHUP)
		}
		if err == nil {
			err = t.wait(ctx, time.Second)
		}
		if err != nil {
			asking.Wait()
			return err
		}
	}
	asking.Wait()
	if failed != nil {
		return failed
	}
	last, err := t.metric("epdns_config_last_reload_successful")
	if err != nil {
		return err
	}
	after, err := t.serial(ctx)
	if err != nil {
		return err
	}
	t.churn(ctx, churnRate)
	if err := t.wait(ctx, time.Second); err != nil {
		return err
	}
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	t.whole(result, "nothing lost")
	t.check(last == 0, "the bad file is told of", "%d good, %d bad files", good, bad)
	t.check(int32(after-before) >= 0, "the serial does not go back", "%d, then %d", before, after)
	return nil
}

// ended sends SIGTERM under load.
func ended(ctx context.Context, t *trial) error {
	const lameduck = 3 * time.Second
	var err error
	if t.server, err = t.start(setup{lameduck: lameduck}); err != nil {
		return err
	}
	if err := t.ready(ctx); err != nil {
		return err
	}
	var result *load.Result
	var failed error
	var asking sync.WaitGroup
	asking.Go(func() { result, failed = t.pace(t.server.DNS, lameduck) })
	time.Sleep(500 * time.Millisecond)
	begun := time.Now()
	unready := make(chan time.Duration, 1)
	go func() {
		for {
			if time.Since(begun) > lameduck {
				unready <- lameduck
				return
			}
			if !isReady(t.server.HTTP) {
				unready <- time.Since(begun)
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}()
	end := t.server.Stop()
	took := time.Since(begun)
	asking.Wait()
	t.server = nil
	if failed != nil {
		return failed
	}
	told := <-unready
	t.check(end == nil, "status 0", "%v", orNothing(end))
	t.check(told < 100*time.Millisecond, "not ready within 100 ms", "%s", brief(told))
	t.whole(result, "all answered until the lame duck period ends")
	t.check(took < lameduck+3*time.Second, "ended within "+brief(lameduck+3*time.Second), "%s", brief(took))
	return nil
}

func orNothing(err error) string {
	if err == nil {
		return "0"
	}
	first, _, _ := strings.Cut(err.Error(), "\n")
	return first
}

// cgroup is where control groups of version 1 are.
const cgroup = "/sys/fs/cgroup"

// inGroup is a control group of version 1 with these values, and the command that starts a program
// in it.
func inGroup(controller string, values ...string) (dir string, by []string, err error) {
	dir = filepath.Join(cgroup, controller, fmt.Sprintf("epdns-faults-%d", time.Now().UnixNano()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("this fault needs control groups of version 1, and root: %w", err)
	}
	for i := 0; i < len(values); i += 2 {
		if err := os.WriteFile(filepath.Join(dir, values[i]), []byte(values[i+1]), 0o644); err != nil {
			return "", nil, errors.Join(err, os.Remove(dir))
		}
	}
	return dir, []string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, dir}, nil
}

// memoryShort gives epdns a fifth more memory than it needs, and floods it.
func memoryShort(ctx context.Context, t *trial) error {
	dir, by, err := inGroup("memory")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := t.begin(ctx, setup{by: by}); err != nil {
		return err
	}
	needs, err := groupValue(dir, "memory.usage_in_bytes")
	if err != nil {
		return err
	}
	t.calm()
	t.stopAsking()
	if err := t.server.Stop(); err != nil {
		return err
	}
	limited, by, err := inGroup("memory", "memory.limit_in_bytes", strconv.Itoa(needs*12/10))
	if err != nil {
		return err
	}
	defer os.Remove(limited)
	if err := t.begin(ctx, setup{by: by}); err != nil {
		return err
	}
	rate, err := t.flood(ctx, t.long(10*time.Second, 4*time.Second), 512)
	if err != nil {
		return err
	}
	t.note("flood with %s answers a second", thousands(rate))
	most, err := groupValue(limited, "memory.max_usage_in_bytes")
	if err != nil {
		return err
	}
	control, err := os.ReadFile(filepath.Join(limited, "memory.oom_control"))
	if err != nil {
		return err
	}
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	_, kills, _ := strings.Cut(string(control), "oom_kill ")
	kills = strings.TrimSpace(kills)
	t.check(kills == "0", "not killed", "%s times", kills)
	t.note("needs %.1f MB of its own, used at most %.1f MB", float64(needs)/1e6, float64(most)/1e6)
	err = t.server.Stop()
	t.server = nil
	return err
}

// groupValue reads a number of a control group.
func groupValue(dir, name string) (int, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}

// processorShort gives epdns a fifth of a processor.
func processorShort(ctx context.Context, t *trial) error {
	dir, by, err := inGroup("cpu", "cpu.cfs_period_us", "100000", "cpu.cfs_quota_us", "20000")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := t.begin(ctx, setup{by: by}); err != nil {
		return err
	}
	before, err := scrape(t.server)
	if err != nil {
		return err
	}
	// Beyond the time within which a dead connection is noticed.
	if err := t.wait(ctx, t.long(25*time.Second, 13*time.Second)); err != nil {
		return err
	}
	after, err := scrape(t.server)
	if err != nil {
		return err
	}
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	errs := after["epdns_watch_errors_total"] - before["epdns_watch_errors_total"]
	t.check(errs == 0, "the watch is not taken for dead", "%.0f errors", errs)
	err = t.server.Stop()
	t.server = nil
	return err
}

// flood sends random names with so many queries under way, and returns how many a second were
// answered.
func (t *trial) flood(ctx context.Context, d time.Duration, outstanding int) (rate int, err error) {
	var queries []load.Query
	for range 1000 {
		m := new(dns.Msg).SetQuestion(fmt.Sprintf("x%x.%s.%s", rand.Uint64(), namespace, zone), dns.TypeA)
		wire, err := m.Pack()
		if err != nil {
			return 0, err
		}
		queries = append(queries, load.Query{Wire: wire, RCODE: dns.RcodeNameError, Min: 12, Max: 1232})
	}
	g, err := load.NewUDP(t.server.DNS, outstanding, -1)
	if err != nil {
		return 0, err
	}
	defer g.Close()
	r, err := g.Flood(queries, d)
	if err != nil {
		return 0, err
	}
	return int(r.Rate()), t.wait(ctx, 0)
}

// The processors of a flood. epdns has half of its own, so that whoever floods it can send twice what
// it answers, and the control plane has the rest.
const (
	floodedCPU  = 0
	floodingCPU = 1
)

// poured pours so many datagrams a second into epdns, each of a name that is not there, from
// several sources, and waits for no replies.
func (t *trial) poured(ctx context.Context, d time.Duration, rate int) (sent int, err error) {
	wire, err := new(dns.Msg).SetQuestion("x00000000."+namespace+"."+zone, dns.TypeA).Pack()
	if err != nil {
		return 0, err
	}
	s := load.Spray{Server: t.server.DNS, CPU: floodingCPU, Rate: rate, Next: func(b []byte) []byte {
		b = append(b[:0], wire...)
		const hex = "0123456789abcdef"
		for n, i := rand.Uint32(), 14; i < 22; i++ { // behind the header, the label's length and the x
			b[i], n = hex[n&15], n>>4
		}
		return b
	}}
	for i := range 16 {
		s.Sources = append(s.Sources, netip.AddrFrom4([4]byte{127, 9, byte(i % 2), byte(1 + i)}))
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return s.Run(ctx)
}

// peak is the most that epdns answers in a second, by pouring more and more until it does not keep
// up. Who waits for replies would not find that out: its questions wait where epdns's turn is over.
func (t *trial) peak(ctx context.Context) (most int, err error) {
	const answers = "epdns_dns_responses_total"
	behind := 0
	for rate := 50_000; behind < 2; rate = rate * 5 / 4 { // once may be chance
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if rate > 10_000_000 {
			return 0, fmt.Errorf("nobody here can send more than epdns answers: %d a second", most)
		}
		before, err := t.metric(answers)
		if err != nil {
			return 0, err
		}
		begun := time.Now()
		sent, err := t.poured(ctx, time.Second, rate)
		if err != nil {
			return 0, err
		}
		after, err := t.metric(answers)
		if err != nil {
			return 0, err
		}
		most = max(most, int((after-before)/time.Since(begun).Seconds()))
		if after-before < 0.9*float64(sent) {
			behind++
		}
	}
	return most, nil
}

// flooded has honest clients beside a flood of more than twice what epdns can answer. Without a
// limit half of all datagrams find no room, and the kernel does not ask whose they are: what
// counts is that epdns answers as many as ever. With a limit it makes room for those who are
// within it.
func flooded(config string) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		dir, by, err := inGroup("cpu", "cpu.cfs_period_us", "20000", "cpu.cfs_quota_us", "10000")
		if err != nil {
			return err
		}
		defer os.Remove(dir)
		if err := t.begin(ctx, setup{by: append(by, "taskset", "-c", strconv.Itoa(floodedCPU))}); err != nil {
			return err
		}
		d := t.long(10*time.Second, 5*time.Second)
		first := time.Now()
		peak, err := t.peak(ctx)
		if err != nil {
			return err
		}
		if config != "" {
			if err := t.reload(ctx, config); err != nil {
				return err
			}
		}
		before, err := scrape(t.server)
		if err != nil {
			return err
		}
		begun := time.Now()
		sent, err := t.poured(ctx, d, peak*11/5)
		if err != nil {
			return err
		}
		ended := time.Now()
		after, err := scrape(t.server)
		if err != nil {
			return err
		}
		if err := t.wait(ctx, time.Second); err != nil {
			return err
		}
		asked, got := 0, 0
		for _, a := range t.asking.answers() {
			if a.at.After(begun) && a.at.Before(ended) {
				asked++
				if a.outcome != silence {
					got++
				}
			}
		}
		t.excuse = append(t.excuse, span{after: first.Add(-askWithin), until: ended.Add(askWithin)})
		if err := t.settle(ctx, freshWithin); err != nil {
			return err
		}
		did := func(metric string) float64 { return after[metric] - before[metric] }
		perSecond := func(n float64) string { return thousands(int(n / ended.Sub(begun).Seconds())) }
		honest := 100 * float64(got) / float64(max(asked, 1))
		goodput := 0.0
		if config == "" {
			goodput = did("epdns_dns_responses_total") / ended.Sub(begun).Seconds()
		}
		most := max(goodput, float64(peak))
		offered := float64(sent) / ended.Sub(begun).Seconds() / most
		t.check(offered >= 2, "a flood of at least twice what can be answered", "%.2f times %s a second", offered, thousands(int(most)))
		if config != "" {
			t.check(honest >= 80, "at least 80 % of the honest clients' questions answered meanwhile", "%.1f %%", honest)
			t.note("%s a second were limited", perSecond(did("epdns_dns_rate_limited_total")))
		} else {
			t.check(goodput >= 0.8*float64(peak), "answers at least 80 % of the most that it can", "%.1f %%", 100*goodput/float64(peak))
			t.note("%.1f %% of the honest clients' questions answered meanwhile", honest)
		}
		seen := (did("epdns_dns_requests_total") + did("epdns_udp_kernel_drops_total")) / float64(max(sent, 1))
		t.check(seen >= 0.98, "what the kernel drops is counted", "%s a second dropped, with those that were read %.1f %% of all", perSecond(did("epdns_udp_kernel_drops_total")), 100*seen)
		const more = 5e6
		grown := did("process_resident_memory_bytes")
		t.check(grown <= more, "at most 5 MB of memory more", "%.1f MB", grown/1e6)
		t.flat()
		err = t.server.Stop()
		t.server = nil
		return err
	}
}

// reload has epdns take another configuration.
func (t *trial) reload(ctx context.Context, config string) error {
	const when = "epdns_config_last_reload_timestamp_seconds"
	before, err := t.metric(when)
	if err != nil {
		return err
	}
	s := setup{config: config}
	if err := os.WriteFile(filepath.Join(t.dir, "epdns.yaml"), []byte(s.text()), 0o600); err != nil {
		return err
	}
	if err := syscall.Kill(t.server.PID(), syscall.SIGHUP); err != nil {
		return err
	}
	return t.until(ctx, readyWithin, func() error {
		after, err := t.metric(when)
		if err == nil && after == before {
			err = errors.New("the configuration is the one from before")
		}
		return err
	})
}

// descriptors lets epdns have few, and takes all of them with connections.
func descriptors(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{by: []string{"prlimit", "--nofile=64"}}); err != nil {
		return err
	}
	var conns []net.Conn
	closeAll := func() {
		for _, c := range conns {
			c.Close()
		}
	}
	defer closeAll()
	for i := range 120 {
		dialer := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 8, 0, byte(1+i%20))}}
		if c, err := dialer.DialContext(ctx, "tcp4", t.server.DNS); err == nil {
			conns = append(conns, c)
		}
	}
	before, err := processorTime(t.server.PID())
	if err != nil {
		return err
	}
	d := t.long(8*time.Second, 4*time.Second)
	if err := t.wait(ctx, d); err != nil {
		return err
	}
	after, err := processorTime(t.server.PID())
	if err != nil {
		return err
	}
	closeAll()
	begun := time.Now()
	err = t.until(ctx, 10*time.Second, func() error {
		m := new(dns.Msg).SetQuestion(zone, dns.TypeSOA)
		_, err := exchange(ctx, "tcp", t.server.DNS, m)
		return err
	})
	again := time.Since(begun)
	if settle := t.settle(ctx, freshWithin); settle != nil {
		return settle
	}
	cpu := (after - before).Seconds() / d.Seconds()
	t.check(cpu < 0.5, "less than half a processor meanwhile", "%.2f", cpu)
	t.check(err == nil && again < 2*time.Second, "TCP within 2 s again", "%s", brief(again))
	t.note("%d connections", len(conns))
	return nil
}

// processorTime is what a process has used.
func processorTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, errors.Join(err1, err2)
}

// badPath has clients ask over a network that loses, repeats and reorders.
func badPath(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	relay, err := proxy.NewUDP(t.server.DNS)
	if err != nil {
		return err
	}
	defer relay.Close()
	relay.Set(proxy.Path{Loss: 0.1, Duplicate: 0.1, Delay: 10 * time.Millisecond, Jitter: 50 * time.Millisecond})
	const clients, tries = 50, 4
	var wg sync.WaitGroup
	var mu sync.Mutex
	asked, got := 0, 0
	until := time.Now().Add(t.long(15*time.Second, 6*time.Second))
	for range clients {
		wg.Go(func() {
			for time.Now().Before(until) && ctx.Err() == nil {
				ok := stubborn(ctx, relay.Addr(), t.world.services[rand.IntN(size)].name, tries)
				mu.Lock()
				asked++
				if ok {
					got++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	// Of four tries all are lost, on one of the two ways, once in 800 times.
	share := float64(got) / float64(max(asked, 1))
	t.check(share >= 0.995, fmt.Sprintf("99.5 %% have an answer after %d tries", tries), "%.2f %% of %s", 100*share, thousands(asked))
	return nil
}

// stubborn asks again when there is no reply, as resolvers do.
func stubborn(ctx context.Context, server, service string, tries int) bool {
	for range tries {
		m := new(dns.Msg).SetQuestion(service+"."+namespace+"."+zone, dns.TypeA)
		c := dns.Client{Timeout: 200 * time.Millisecond}
		if reply, _, err := c.ExchangeContext(ctx, m, server); err == nil && reply.Id == m.Id {
			return true
		}
	}
	return false
}

// slowTCP has clients that open connections and say nothing, half a message, one octet at a time,
// or never read.
func slowTCP(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	slow, stop := context.WithCancel(ctx)
	defer stop()
	question, err := new(dns.Msg).SetQuestion(t.world.services[0].name+"."+namespace+"."+zone, dns.TypeA).Pack()
	if err != nil {
		return err
	}
	framed := append([]byte{0, byte(len(question))}, question...)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	for i := range 1200 {
		dialer := net.Dialer{Timeout: time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 7, 0, byte(1+i%24))}}
		c, err := dialer.DialContext(slow, "tcp4", t.server.DNS)
		if err != nil {
			continue
		}
		wg.Go(func() {
			defer c.Close()
			switch i % 4 {
			case 0:
			case 1:
				c.Write(framed[:1])
			case 2:
				for j := 0; j < len(framed) && slow.Err() == nil; j++ {
					if _, err := c.Write(framed[j : j+1]); err != nil {
						return
					}
					select {
					case <-slow.Done():
					case <-time.After(5 * time.Second):
					}
				}
			case 3:
				for range 1000 { // whose replies nobody reads
					c.SetWriteDeadline(time.Now().Add(time.Second))
					if _, err := c.Write(framed); err != nil {
						break
					}
				}
			}
			<-slow.Done()
		})
	}
	var worst time.Duration
	failed := 0
	for end := time.Now().Add(t.long(15*time.Second, 5*time.Second)); time.Now().Before(end); {
		begun := time.Now()
		if _, err := exchange(ctx, "tcp", t.server.DNS, new(dns.Msg).SetQuestion(zone, dns.TypeSOA)); err != nil {
			failed++
		}
		worst = max(worst, time.Since(begun))
		if err := t.wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	open, err := t.metric("epdns_tcp_connections")
	if err != nil {
		return err
	}
	stop()
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	t.check(failed == 0 && worst < time.Second, "an honest TCP client within 1 s", "%s at worst, %d failed", brief(worst), failed)
	t.check(open <= 1024, "at most 1,024 connections", "%.0f", open)
	return nil
}

// damaged sends messages with random damage.
func damaged(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{}); err != nil {
		return err
	}
	m := new(dns.Msg).SetQuestion(t.world.services[0].name+"."+namespace+"."+zone, dns.TypeSRV)
	m.SetEdns0(1232, true)
	whole, err := m.Pack()
	if err != nil {
		return err
	}
	conn, err := net.Dial("udp4", t.server.DNS)
	if err != nil {
		return err
	}
	defer conn.Close()
	sent, replies, unreadable := 0, 0, 0
	var reading sync.WaitGroup
	reading.Go(func() {
		for buf := make([]byte, 65535); ; {
			n, err := conn.Read(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			replies++
			if new(dns.Msg).Unpack(buf[:n]) != nil {
				unreadable++
			}
		}
	})
	for end := time.Now().Add(t.long(15*time.Second, 5*time.Second)); time.Now().Before(end); sent++ {
		b := append([]byte(nil), whole...)
		for range 1 + rand.IntN(4) {
			b[rand.IntN(len(b))] = byte(rand.Uint32())
		}
		b[2] &^= 0x80 // not a reply, which would be dropped at once
		if rand.IntN(4) == 0 {
			b = b[:rand.IntN(len(b))]
		}
		conn.Write(b)
		if sent%100 == 99 {
			time.Sleep(time.Millisecond)
		}
	}
	time.Sleep(200 * time.Millisecond)
	conn.Close()
	reading.Wait()
	panics, err := t.metric("epdns_panics_total")
	if err != nil {
		return err
	}
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	t.check(panics == 0, "no panic", "%.0f", panics)
	t.check(replies > 0 && unreadable == 0, "all replies can be read", "%d of %s not", unreadable, thousands(replies))
	t.note("%s damaged messages", thousands(sent))
	return nil
}

// anotherClock runs epdns with a monotonic clock that is a thousand days ahead.
func anotherClock(ctx context.Context, t *trial) error {
	if err := t.begin(ctx, setup{by: []string{"unshare", "-T", "--monotonic", "86400000", "--boottime", "86400000"}}); err != nil {
		return err
	}
	if err := t.wait(ctx, 4*time.Second); err != nil {
		return err
	}
	all, err := scrape(t.server)
	if err != nil {
		return err
	}
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	age := float64(time.Now().UnixNano())/1e9 - all[`epdns_watch_last_event_timestamp_seconds{kind="EndpointSlice",namespace=""}`]
	t.check(age >= -1 && age < 60, "times in metrics are those of the wall", "%.0f s ago", age)
	return nil
}
