package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"epdns/test/run"
)

// Component is one of a cluster's programs, by its usual name.
type Component string

// The components, in the order in which they start.
const (
	Etcd              Component = "etcd"
	APIServer         Component = "kube-apiserver"
	ControllerManager Component = "kube-controller-manager"
	Scheduler         Component = "kube-scheduler"
	Kwok              Component = "kwok"
)

// Components are all of them, in the order in which they start.
func Components() []Component {
	return []Component{Etcd, APIServer, ControllerManager, Scheduler, Kwok}
}

const (
	loopback = "127.0.0.1"

	// serviceRange is dual-stack, so that tests can have Services of either family.
	serviceRange = "10.96.0.0/16,fd00:10:96::/112"

	// advertised is the endpoint of the Service kubernetes.default. Validation refuses loopback
	// there, and the machine's own address would differ from run to run (RFC 5737: TEST-NET-1).
	advertised = "192.0.2.1"
)

// etcdPeer keys the second port that etcd insists on.
const etcdPeer Component = "etcd-peer"

type ports map[Component]int

// freePorts are no ports that the kernel gives to outgoing connections: while the API server is
// down its clients dial its port all the time, and one that was given this very port as its source
// would connect to itself and keep the server from coming back.
func freePorts() (ports, error) {
	p := ports{}
	for _, name := range append(Components(), etcdPeer) {
		var err error
		if p[name], err = run.FreePort(); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return p, nil
}

func (ports) join(port int) string { return net.JoinHostPort(loopback, fmt.Sprint(port)) }

func (p ports) addr(name Component) string { return p.join(p[name]) }

// argv is the command line of a component.
func (c *Cluster) argv(name Component) []string {
	in := func(file string) string { return filepath.Join(c.Dir, file) }
	admin := in(kubeconfigName(Admin))
	port := fmt.Sprint(c.ports[name])
	serving := []string{
		"--bind-address=" + loopback,
		"--secure-port=" + port,
		"--tls-cert-file=" + in(certFile),
		"--tls-private-key-file=" + in(keyFile),
	}
	var args []string
	switch name {
	case Etcd:
		client, peer := "http://"+c.ports.addr(Etcd), "http://"+c.ports.addr(etcdPeer)
		args = []string{
			"--name=" + c.name(),
			"--data-dir=" + in("etcd"),
			"--listen-client-urls=" + client,
			"--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + c.name() + "=" + peer,
			// What a killed process wrote survives without it; only a crash of the machine needs fsync.
			"--unsafe-no-fsync",
		}
	case APIServer:
		args = append(serving,
			"--advertise-address="+advertised,
			"--etcd-servers=http://"+c.ports.addr(Etcd),
			"--service-account-key-file="+in(accountFile),
			"--service-account-signing-key-file="+in(accountFile),
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--authorization-mode=RBAC",
			"--token-auth-file="+in(tokenFile),
			"--service-cluster-ip-range="+serviceRange,
			"--kubelet-preferred-address-types=InternalDNS", // see AddNodes
			// Pods need not wait for their namespace's account.
			"--disable-admission-plugins=ServiceAccount",
		)
	case ControllerManager:
		args = append(serving,
			"--kubeconfig="+admin,
			"--service-account-private-key-file="+in(accountFile),
			"--root-ca-file="+in(caFile),
			"--authentication-skip-lookup=true",
			"--leader-elect=false",
			// The default of 20 writes a second would be what a test with many Pods waits for.
			"--kube-api-qps=1000",
			"--kube-api-burst=2000",
		)
	case Scheduler:
		args = append(serving,
			"--kubeconfig="+admin,
			"--authentication-skip-lookup=true",
			"--leader-elect=false",
			"--kube-api-qps=1000",
			"--kube-api-burst=2000",
		)
	case Kwok:
		args = []string{
			"--kubeconfig=" + admin,
			"--manage-all-nodes=true",
			// Without heartbeats all Pods of a Node are not ready after 50 s.
			"--node-lease-duration-seconds=40",
			"--server-address=" + c.ports.addr(Kwok),
			"--node-port=" + port, // of the kubelet, as Nodes have it
			"--tls-cert-file=" + in(certFile),
			"--tls-private-key-file=" + in(keyFile),
		}
		for _, stage := range c.built.stages {
			args = append(args, "--config="+stage)
		}
	}
	args = append(args, c.opts.Args[name]...)
	return append([]string{c.built.program[name]}, args...)
}

// ready asks a component once. Each question can only be answered by a component of this
// cluster: another cluster's may sit on a port that ours failed to get.
func (c *Cluster) ready(ctx context.Context, name Component) error {
	switch name {
	case Etcd:
		return c.ask(ctx, http.MethodPost, "http://"+c.ports.addr(Etcd)+"/v3/cluster/member/list", fmt.Sprintf("%q", c.name()))
	case APIServer:
		if err := c.ask(ctx, http.MethodGet, c.Server+"/readyz", "ok"); err != nil {
			return err
		}
		return c.Request(ctx, http.MethodGet, "/api/v1/namespaces/default", nil, nil)
	case ControllerManager:
		return c.ask(ctx, http.MethodGet, "https://"+c.ports.addr(name)+"/healthz?verbose", "endpointslice-controller")
	default:
		return c.ask(ctx, http.MethodGet, "https://"+c.ports.addr(name)+"/healthz", "ok")
	}
}

// ask wants status 200 and a body that contains want.
func (c *Cluster) ask(ctx context.Context, method, url, want string) error {
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("{}")
	}
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return err
	}
	if strings.HasPrefix(url, c.Server) { // nobody else needs to know it
		req.Header.Set("Authorization", "Bearer "+c.secrets.tokens[Admin])
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(b), want) {
		return fmt.Errorf("%s answers %s: %s", url, resp.Status, unwell(string(b)))
	}
	return nil
}

// unwell is what a health check complains of: of a list of checks those that failed.
func unwell(body string) string {
	var failed []string
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, "[-]") {
			failed = append(failed, strings.TrimSpace(line))
		}
	}
	if len(failed) == 0 {
		return lastLines(body, 1)
	}
	return strings.Join(failed, ", ")
}

const (
	// readyWithin is for a machine that is busy compiling; an idle one needs 3 s.
	readyWithin = 90 * time.Second

	// pollEvery is short against the second that a component takes to start.
	pollEvery = 50 * time.Millisecond

	// pollWithin bounds one question, so that a component that accepts and never answers is
	// asked again.
	pollWithin = 5 * time.Second
)

// waitReady waits until p answers, or has ended, or is too slow.
func (c *Cluster) waitReady(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("not ready after %v", readyWithin))
	defer cancel()
	for {
		once, stop := context.WithTimeout(ctx, pollWithin)
		err := c.ready(once, p.name)
		stop()
		if !p.alive() {
			return p.failure()
		}
		if err == nil {
			return nil
		}
		if pauseErr := pause(ctx, pollEvery); pauseErr != nil {
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("start %s: %w", p.name, pauseErr)
			}
			return fmt.Errorf("start %s: %w: %w; its log:\n%s", p.name, pauseErr, err, p.logged())
		}
	}
}

// pause sleeps, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
