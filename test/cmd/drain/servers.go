package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"epdns/test/run"
)

// serveEpdns starts epdns and returns once its sockets are bound.
func (l *lab) serveEpdns(bin string) error {
	s, err := run.Serve(bin, l.cluster.Kubeconfig)
	if err != nil {
		return err
	}
	l.epdns = s.DNS
	l.ending = append(l.ending, s.Stop)
	return nil
}

// The server blocks of the one CoreDNS, each on a port of its own.
const (
	snippet    = "deploy/snippets/coredns.Corefile"
	kubeadm    = "as kubeadm sets it up"
	plainCache = "with a plain cache 30"
	lowTTL     = "with ttl 1 and no cache"
	nodeLocal  = "NodeLocal DNSCache"
)

var blocks = []string{snippet, kubeadm, plainCache, lowTTL, nodeLocal}

// ports are those of the blocks.
type ports map[string]int

func (p ports) addr(block string) string { return fmt.Sprintf("127.0.0.1:%d", p[block]) }

func freePorts() (ports, error) {
	p := ports{}
	for _, block := range blocks {
		var err error
		if p[block], err = run.FreePort(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// corefile has the blocks. The plugins that have no part in an answer are left out: health, ready,
// prometheus, loop, reload, and kubeadm's forward to the node's own resolver.
func (l *lab) corefile() (string, error) {
	b, err := os.ReadFile(filepath.Join(l.root, snippet))
	if err != nil {
		return "", err
	}
	shipped := string(b)
	for _, change := range [][2]string{
		{":53 {", fmt.Sprintf(":%d {\n    bind 127.0.0.1", l.ports[snippet])},
		{"forward . 10.96.0.53 ", "forward . " + l.epdns + " "},
	} {
		if !strings.Contains(shipped, change[0]) {
			return "", fmt.Errorf("%s has no %q", snippet, change[0])
		}
		shipped = strings.ReplaceAll(shipped, change[0], change[1])
	}

	// As kubeadm of Kubernetes 1.32 and later has it (cmd/kubeadm/app/phases/addons/dns). Before,
	// and in cluster/addons/dns/coredns still, it was "cache 30" without the block.
	const kubernetes = `
.:%d {
    bind 127.0.0.1
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
        ttl %d
        kubeconfig %s
    }
    %s
    loadbalance
}
`
	const uncached = `cache 30 {
        disable success cluster.local
        disable denial cluster.local
    }`
	// As in cluster/addons/dns/nodelocaldns.
	const nodeCache = `
cluster.local:%d {
    bind 127.0.0.1
    errors
    cache {
        success 9984 30
        denial 9984 5
    }
    forward . %s {
        force_tcp
    }
}
`
	return shipped +
		fmt.Sprintf(kubernetes, l.ports[kubeadm], 30, l.cluster.Kubeconfig, uncached) +
		fmt.Sprintf(kubernetes, l.ports[plainCache], 30, l.cluster.Kubeconfig, "cache 30") +
		fmt.Sprintf(kubernetes, l.ports[lowTTL], 1, l.cluster.Kubeconfig, "") +
		fmt.Sprintf(nodeCache, l.ports[nodeLocal], l.ports.addr(kubeadm)), nil
}

// serveCoreDNS starts one CoreDNS for all ways that lead through it. [lab.ready] finds out when
// it answers.
func (l *lab) serveCoreDNS() (err error) {
	if l.ports, err = freePorts(); err != nil {
		return err
	}
	text, err := l.corefile()
	if err != nil {
		return err
	}
	conf := filepath.Join(l.dir, "Corefile")
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(l.coreDNS, "-conf", conf)
	cmd.Env = []string{}
	p, err := run.Start(cmd)
	if err != nil {
		return err
	}
	l.ending = append(l.ending, p.Stop)
	return nil
}

// ready waits until all that answers without a cache answers with both pods of every Service.
// Nobody asks a cache before a repetition does, so what it keeps is of that time.
func (l *lab) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("not ready after %v", readyWithin))
	defer cancel()
	for _, w := range l.ways() {
		cached := w.life > 0 && w.ttl > 0
		if cached {
			continue
		}
		for _, s := range l.services {
			c, err := w.open(s, time.Now(), 0)
			if err != nil {
				return err
			}
			err = run.Until(ctx, pollEvery, func() error { return knowsBoth(c) })
			c.close()
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
		}
	}
	return nil
}

const readyWithin = 30 * time.Second

func knowsBoth(c client) error {
	addresses, err := c.addresses()
	if err == nil && len(addresses) != podsPerService {
		err = fmt.Errorf("%d addresses are known, not %d", len(addresses), podsPerService)
	}
	return err
}

// versions says on what the numbers were taken.
func (l *lab) versions(ctx context.Context) (string, error) {
	var kubernetes struct{ GitVersion string }
	if err := l.cluster.Request(ctx, http.MethodGet, "/version", nil, &kubernetes); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, l.coreDNS, "-version").Output()
	if err != nil {
		return "", fmt.Errorf("ask CoreDNS for its version: %w", err)
	}
	coreDNS, _, _ := strings.Cut(string(out), "\n")
	return fmt.Sprintf("%d cores, Kubernetes %s, %s, %s",
		runtime.NumCPU(), strings.TrimPrefix(kubernetes.GitVersion, "v"),
		strings.Replace(coreDNS, "-", " ", 1), strings.Replace(runtime.Version(), "go", "Go ", 1)), nil
}
