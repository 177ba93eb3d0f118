package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// syncPeriod is how far apart kube-proxy's changes of a node's rules are when there is always
// something to change: the default of minSyncPeriod for iptables and nftables. That the change
// itself takes time comes on top and is not modelled.
const syncPeriod = time.Second

// node is a model of what kube-proxy does on a node. What it has seen is real: a watch of the
// EndpointSlices. When that gets into the rules is computed, see [node.rules].
type node struct {
	mu   sync.Mutex
	seen map[string][]version // by Service, the oldest first
}

// version is what a slice held from some time on.
type version struct {
	from  time.Time
	ready []string
}

// watch begins with all slices there are. Each of our Services has one.
func (l *lab) watch(kubectl string) (*node, error) {
	cmd := exec.Command(kubectl, "--kubeconfig", l.cluster.Kubeconfig, "get", "--raw", slicesPath+"?watch=true")
	cmd.Env = []string{"HOME=" + l.dir}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	n := &node{seen: map[string][]version{}}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for events := json.NewDecoder(stdout); ; {
			var event struct{ Object endpointSlice }
			if events.Decode(&event) != nil {
				return
			}
			n.see(time.Now(), &event.Object)
		}
	}()
	l.ending = append(l.ending, func() error {
		select {
		case <-read:
			cmd.Wait()
			return errors.New("the watch of the slices ended")
		default:
		}
		cmd.Process.Kill()
		<-read
		cmd.Wait()
		return nil
	})
	return n, nil
}

func (n *node) see(now time.Time, s *endpointSlice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen[s.service()] = append(n.seen[s.service()], version{now, s.ready()})
}

// rules are the addresses of a Service in the node's rules: those that had been seen when the
// rules were last written, which is every syncPeriod, once of them at phase.
func (n *node) rules(service string, now, phase time.Time) ([]string, error) {
	late := now.Sub(phase) % syncPeriod
	if late < 0 {
		late += syncPeriod
	}
	written := now.Add(-late)
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, v := range slices.Backward(n.seen[service]) {
		if !v.from.After(written) && len(v.ready) > 0 {
			return v.ready, nil
		}
	}
	return nil, fmt.Errorf("a node has no rules for %s", service)
}

// proxied is a client that comes through two nodes in turn. The second writes its rules in the
// middle between two times of the first.
type proxied struct {
	nodes   [2]*node
	service string
	phase   time.Time
	sent    int
}

func newProxied(nodes [2]*node, service string, phase time.Time) *proxied {
	return &proxied{nodes: nodes, service: service, phase: phase}
}

func (p *proxied) addresses() ([]string, error) {
	i := p.sent % len(p.nodes)
	p.sent++
	return p.nodes[i].rules(p.service, time.Now(), p.phase.Add(time.Duration(i)*syncPeriod/2))
}

func (p *proxied) close() {}
