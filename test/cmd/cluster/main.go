// Command cluster runs a Kubernetes control plane for epdns to work against; see package
// cluster for what it consists of. Run "cluster help" for its usage.
//
// What a script needs goes to stdout, everything for people to stderr. Wrong arguments are exit
// status 2; any other error of the command's own is exit status 1.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"epdns/test/cluster"
	"epdns/test/cmd/internal/cli"
)

const usage = `cluster runs a Kubernetes control plane on loopback: etcd, kube-apiserver,
kube-controller-manager, kube-scheduler and kwok.

  cluster up [--keep] [--nodes N]
      starts a cluster with N Nodes (default 3), prints "export KUBECONFIG=..." and,
      where there is no kubectl, a line for one; stays until Ctrl-C
  cluster exec [--keep] [--nodes N] -- CMD ARG...
      starts a cluster with N Nodes (default 0), runs CMD and exits with its status;
      CMD finds kubeconfigs in KUBECONFIG and EPDNS_TEST_KUBECONFIG (administrator),
      EPDNS_TEST_KUBECONFIG_LIMITED and EPDNS_TEST_KUBECONFIG_NOBODY (no rights yet),
      and the paths of programs in EPDNS_TEST_KUBECTL, of the same release,
      EPDNS_TEST_COREDNS and EPDNS_TEST_HELM
  cluster build
      builds the programs, and those that tests run beside a cluster (CoreDNS, kubectl, Helm),
      unless the cache has them, and prints the cache's directory

  --keep     keep the cluster's directory, with its logs
  --nodes N  Nodes in the zones zone-a, zone-b, zone-c in turn

The first build takes 10 to 16 minutes. Its results are kept below XDG_CACHE_HOME.
`

var command = cli.Command{Name: "cluster", Usage: usage, Run: dispatch}

func main() { os.Exit(command.Main(os.Args[1:], os.Stdout, os.Stderr)) }

func dispatch(args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return cli.Mistake("say what to do: up, exec or build")
	}
	switch args[0] {
	case "up":
		return up(args[1:], stdout, stderr)
	case "exec":
		return execute(args[1:], stderr)
	case "build":
		return build(args[1:], stdout, stderr)
	default:
		return cli.Mistakef("unknown command %q", args[0])
	}
}

// parse reads the flags of up and exec and returns what follows them.
func parse(args []string, nodes int, stderr io.Writer) (cluster.Options, []string, error) {
	o := cluster.Options{Progress: stderr}
	fs := flag.NewFlagSet("cluster", flag.ContinueOnError)
	fs.BoolVar(&o.Keep, "keep", false, "")
	fs.IntVar(&o.Nodes, "nodes", nodes, "")
	if err := cli.Parse(fs, args); err != nil {
		return o, nil, err
	}
	if o.Nodes < 0 || o.Nodes > cluster.MaxNodes {
		return o, nil, cli.Mistakef("--nodes %d is not between 0 and %d", o.Nodes, cluster.MaxNodes)
	}
	return o, fs.Args(), nil
}

func build(args []string, stdout, stderr io.Writer) error {
	if len(args) > 0 {
		return cli.Mistakef("build takes no argument: %q", args[0])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := cluster.Build(ctx, cluster.Options{Progress: stderr}); err != nil {
		return err
	}
	dir, err := cluster.DefaultCache()
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, dir)
	return nil
}

func up(args []string, stdout, stderr io.Writer) (err error) {
	o, rest, err := parse(args, 3, stderr)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return cli.Mistakef("up takes no argument: %q", rest[0])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	c, err := cluster.Start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	fmt.Fprintf(stdout, "export KUBECONFIG=%s\n", c.Kubeconfig)
	if _, err := exec.LookPath("kubectl"); err != nil {
		kubectl, err := cluster.Kubectl(ctx, o)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "export PATH=\"$PATH:%s\"\n", filepath.Dir(kubectl))
	}
	fmt.Fprintf(stderr, "Paste that into another shell. Logs are in %s. Ctrl-C ends the cluster.\n", c.Dir)
	for {
		select {
		case err := <-c.Died():
			fmt.Fprintf(stderr, "cluster: %v\n", err)
		case <-ctx.Done():
			fmt.Fprintln(stderr, "stopping")
			return nil
		}
	}
}

func execute(args []string, stderr io.Writer) (err error) {
	o, argv, err := parse(args, 0, stderr)
	if err != nil {
		return err
	}
	if len(argv) == 0 {
		return cli.Mistake("exec needs a command")
	}
	// Better now than after the cluster has started.
	if _, err := exec.LookPath(argv[0]); err != nil {
		return cli.Mistake(err.Error())
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	c, err := startUnless(signals, o)
	if err != nil {
		return err
	}
	defer func() {
		if stopErr := c.Stop(); stopErr != nil {
			fmt.Fprintf(stderr, "cluster: %v\n", stopErr)
		}
	}()

	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig)
	for name, user := range map[string]string{
		"EPDNS_TEST_KUBECONFIG":         cluster.Admin,
		"EPDNS_TEST_KUBECONFIG_LIMITED": cluster.Limited,
		"EPDNS_TEST_KUBECONFIG_NOBODY":  cluster.Nobody,
	} {
		path, err := c.KubeconfigFor(user)
		if err != nil {
			return err
		}
		cmd.Env = append(cmd.Env, name+"="+path)
	}
	for name, build := range map[string]func(context.Context, cluster.Options) (string, error){
		"EPDNS_TEST_KUBECTL": cluster.Kubectl,
		"EPDNS_TEST_COREDNS": cluster.CoreDNS,
		"EPDNS_TEST_HELM":    cluster.Helm,
	} {
		path, err := build(context.Background(), o)
		if err != nil {
			return err
		}
		cmd.Env = append(cmd.Env, name+"="+path)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return attend(cmd, ended, signals, c.Died(), stderr)
}

// startUnless starts a cluster unless a signal comes first.
func startUnless(signals <-chan os.Signal, o cluster.Options) (*cluster.Cluster, error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() {
		select {
		case s := <-signals:
			cancel(fmt.Errorf("%v", s))
		case <-ctx.Done():
		}
	}()
	c, err := cluster.Start(ctx, o)
	if cause := context.Cause(ctx); err == nil && cause != nil {
		// It came when the start was all but done.
		return nil, errors.Join(cause, c.Stop())
	}
	return c, err
}

// interruptGrace is for a command that a terminal's Ctrl-C has reached as it has us.
const interruptGrace = 10 * time.Second

// attend waits for the command and passes signals on to it.
func attend(cmd *exec.Cmd, ended <-chan error, signals <-chan os.Signal, died <-chan error, stderr io.Writer) error {
	var late <-chan time.Time
	asked := false
	for {
		select {
		case err := <-ended:
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				return err
			}
			if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
				// As a shell reports it.
				return cli.Status(128 + int(ws.Signal()))
			}
			return cli.Status(exit.ExitCode())
		case err := <-died:
			fmt.Fprintf(stderr, "cluster: %v\n", err)
		case s := <-signals:
			switch {
			case asked:
				cmd.Process.Kill()
			case s == os.Interrupt:
				late = time.After(interruptGrace)
			default:
				cmd.Process.Signal(s)
			}
			asked = true
		case <-late:
			fmt.Fprintf(stderr, "cluster: %s does not end\n", filepath.Base(cmd.Path))
			cmd.Process.Signal(syscall.SIGTERM)
		}
	}
}
