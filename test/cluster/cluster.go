package cluster

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Options say how a cluster is built and started. The zero value is a cluster without Nodes.
type Options struct {
	// Cache is the directory of the built programs; empty means [DefaultCache].
	Cache string

	// Progress gets a line for each step; nil means nobody listens.
	Progress io.Writer

	// Nodes are created and ready when Start returns; see [Cluster.AddNodes].
	Nodes int

	// Args are further flags for components, after those the cluster needs itself.
	Args map[Component][]string

	// Keep leaves the directory, with the logs, when the cluster stops.
	Keep bool
}

func (o Options) progress() io.Writer {
	if o.Progress == nil {
		return io.Discard
	}
	return o.Progress
}

// Cluster is a running control plane.
type Cluster struct {
	// Dir holds all that the cluster writes: data, keys, kubeconfigs, and COMPONENT.log.
	Dir string

	// Kubeconfig is the path of the administrator's file.
	Kubeconfig string

	// Server is the URL of the API server.
	Server string

	opts    Options
	built   *built
	secrets *secrets
	client  *http.Client
	ports   ports
	died    chan error

	mu      sync.Mutex
	running map[Component]*process
	stopped bool

	nodesMu sync.Mutex
	nodes   int // made so far
}

// portTries is how often Start looks for other ports. One collision is bad luck with another
// cluster that starts at the same time; five are something else.
const portTries = 5

// Start builds what has not been built yet, starts all components and waits until they are
// ready. ctx bounds the start only: the cluster runs until [Cluster.Stop] or until this
// process ends. If Start fails nothing is left running.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	built, err := build(ctx, o, controlPlane)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	for try := 1; ; try++ {
		c, err := start(ctx, o, built)
		if err == nil {
			fmt.Fprintf(o.progress(), "cluster is ready after %v\n", time.Since(begin).Round(100*time.Millisecond))
			return c, nil
		}
		if !errors.Is(err, errPortTaken) || try == portTries {
			return nil, err
		}
		fmt.Fprintln(o.progress(), "a port was taken meanwhile, starting again with others")
	}
}

func start(ctx context.Context, o Options, built *built) (_ *Cluster, err error) {
	dir, err := os.MkdirTemp("", "epdns-cluster-")
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		Dir:        dir,
		Kubeconfig: filepath.Join(dir, kubeconfigName(Admin)),
		opts:       o,
		built:      built,
		running:    map[Component]*process{},
		died:       make(chan error, len(Components())),
	}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if c.ports, err = freePorts(); err != nil {
		return nil, err
	}
	c.Server = "https://" + c.ports.addr(APIServer)
	if c.secrets, err = newSecrets(dir); err != nil {
		return nil, err
	}
	if err := c.secrets.writeKubeconfigs(dir, c.Server); err != nil {
		return nil, err
	}
	c.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: c.secrets.ca},
		ForceAttemptHTTP2: true,
	}}

	for _, name := range []Component{Etcd, APIServer} {
		if err := c.StartComponent(ctx, name); err != nil {
			return nil, err
		}
	}
	// The others don't need each other.
	rest := []Component{ControllerManager, Scheduler, Kwok}
	errs := make([]error, len(rest))
	var wg sync.WaitGroup
	for i, name := range rest {
		wg.Go(func() { errs[i] = c.StartComponent(ctx, name) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if err := c.AddNodes(ctx, o.Nodes); err != nil {
		return nil, err
	}
	return c, nil
}

// name is unique among the clusters of a machine.
func (c *Cluster) name() string { return filepath.Base(c.Dir) }

// KubeconfigFor returns the path of the file of [Admin], [Limited] or [Nobody].
func (c *Cluster) KubeconfigFor(user string) (path string, err error) {
	if !slices.Contains(users, user) {
		return "", fmt.Errorf("no user %q: there are %q", user, users)
	}
	return filepath.Join(c.Dir, kubeconfigName(user)), nil
}

// StartComponent starts a component that [Cluster.Kill] ended, on the same port and data, and
// waits until it is ready.
func (c *Cluster) StartComponent(ctx context.Context, name Component) error {
	p, err := c.launch(name)
	if err != nil {
		return err
	}
	return c.waitReady(ctx, p)
}

func (c *Cluster) launch(name Component) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.check(name); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if p := c.running[name]; p != nil && p.alive() {
		return nil, fmt.Errorf("start %s: it runs already", name)
	}
	p, err := startProcess(name, c.argv(name), c.Dir, c.LogFile(name), func(err error) {
		select {
		case c.died <- err:
		default: // nobody has read the earlier ones
		}
	})
	if err != nil {
		return nil, err
	}
	c.running[name] = p
	return p, nil
}

// Kill ends a component at once, as a crash would, and returns when it is gone.
func (c *Cluster) Kill(name Component) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.check(name); err != nil {
		return fmt.Errorf("kill %s: %w", name, err)
	}
	p := c.running[name]
	if p == nil || !p.alive() {
		return fmt.Errorf("kill %s: it does not run", name)
	}
	p.kill()
	return nil
}

func (c *Cluster) check(name Component) error {
	if c.stopped {
		return errors.New("the cluster is stopped")
	}
	if _, ok := c.built.program[name]; !ok {
		return errors.New("no such component")
	}
	return nil
}

// PID returns the process id of a component that was started last, or 0. Faults that have no
// method of their own are signals to it: SIGSTOP makes a component hang.
func (c *Cluster) PID(name Component) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.running[name]; p != nil {
		return p.cmd.Process.Pid
	}
	return 0
}

// LogFile is the path of a component's log; a restarted component appends to it.
func (c *Cluster) LogFile(name Component) string {
	return filepath.Join(c.Dir, string(name)+".log")
}

// Died delivers an error for each component that ends without Kill or Stop.
func (c *Cluster) Died() <-chan error { return c.died }

// Stop ends the components, the last started first, and removes the directory unless
// [Options.Keep] is set. A second call does nothing.
func (c *Cluster) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	if c.client != nil {
		// The API server would wait for idle connections.
		c.client.CloseIdleConnections()
	}
	for _, name := range slices.Backward(Components()) {
		if p := c.running[name]; p != nil && p.alive() {
			p.stop()
		}
	}
	if c.opts.Keep {
		fmt.Fprintf(c.opts.progress(), "kept %s\n", c.Dir)
		return nil
	}
	return os.RemoveAll(c.Dir)
}
