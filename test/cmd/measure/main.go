// Command measure prints how epdns does on a real control plane that it starts. Run "measure
// help" for its usage.
//
// It builds epdns from the repository that it is run in. Numbers are this machine's.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"epdns/test/cluster"
	"epdns/test/cmd/internal/cli"
	"epdns/test/run"
)

const usage = `measure prints how epdns does on a real control plane that it starts.

  measure propagation [--updates N] [--every D]
      from the API's acknowledgement of a slice update to the new answer, of N updates
      (default 300), with D between them (default 10ms)
  measure scale [--services N] [--endpoints N] [--settle D]
      time to ready and resident memory with N Services (default 5000) of N endpoints
      each (default 20), the memory again after D (default 1m)
`

var command = cli.Command{Name: "measure", Usage: usage, Run: measure}

func main() { os.Exit(command.Main(os.Args[1:], os.Stdout, os.Stderr)) }

// experiment is what is measured, with an epdns that is built.
type experiment func(ctx context.Context, c *cluster.Cluster, bin string) error

func measure(args []string, _, stderr io.Writer) (err error) {
	what, err := parse(args)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "epdns-measure-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	root, err := run.Repository()
	if err != nil {
		return err
	}
	bin, err := run.Build(ctx, root, dir)
	if err != nil {
		return err
	}
	c, err := cluster.Start(ctx, cluster.Options{Progress: stderr})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	return what(ctx, c, bin)
}

// parse says what the arguments want measured.
func parse(args []string) (what experiment, err error) {
	if len(args) == 0 {
		return nil, cli.Mistake("say what to measure: propagation or scale")
	}
	fs := flag.NewFlagSet(args[0], flag.ContinueOnError)
	switch args[0] {
	case "propagation":
		updates, every := fs.Int("updates", 300, ""), fs.Duration("every", 10*time.Millisecond, "")
		what = func(ctx context.Context, c *cluster.Cluster, bin string) error {
			return propagation(ctx, c, bin, *updates, *every)
		}
	case "scale":
		services, endpoints, settle := fs.Int("services", 5000, ""), fs.Int("endpoints", 20, ""), fs.Duration("settle", time.Minute, "")
		what = func(ctx context.Context, c *cluster.Cluster, bin string) error {
			return scale(ctx, c, bin, *services, *endpoints, *settle)
		}
	default:
		return nil, cli.Mistakef("%q is not propagation or scale", args[0])
	}
	if err := cli.Parse(fs, args[1:]); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, cli.Mistakef("%s takes no argument: %q", args[0], fs.Arg(0))
	}
	fs.VisitAll(func(f *flag.Flag) {
		switch v := f.Value.(flag.Getter).Get().(type) {
		case int:
			if v < 1 {
				err = cli.Mistakef("--%s %d is less than 1", f.Name, v)
			}
		case time.Duration:
			if v < 0 {
				err = cli.Mistakef("--%s %v is negative", f.Name, v)
			}
		}
	})
	return what, err
}

// memory is a field of /proc/PID/status in MiB, such as VmRSS.
func memory(pid int, field string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && name == field {
			var kb float64
			if _, err := fmt.Sscanf(value, "%f kB", &kb); err != nil {
				return 0, err
			}
			return kb / 1024, nil
		}
	}
	return 0, fmt.Errorf("no %s in /proc/%d/status", field, pid)
}

type object = map[string]any

func service(namespace, name string) object {
	return object{
		"apiVersion": "v1", "kind": "Service",
		"metadata": object{"namespace": namespace, "name": name},
		"spec":     object{"ports": []object{{"name": "http", "port": 80}}},
	}
}

func slice(namespace, service string, addresses []string) object {
	endpoints := make([]object, len(addresses))
	for i, a := range addresses {
		endpoints[i] = object{
			"addresses":  []string{a},
			"conditions": object{"ready": true, "serving": true, "terminating": false},
			"nodeName":   fmt.Sprintf("node-%d", i%3), "zone": fmt.Sprintf("zone-%d", i%3),
			"targetRef": object{"kind": "Pod", "namespace": namespace, "name": service + "-" + strings.ReplaceAll(a, ".", "-")},
		}
	}
	return object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata":  object{"namespace": namespace, "name": service + "-1", "labels": object{"kubernetes.io/service-name": service}},
		"endpoints": endpoints,
		"ports":     []object{{"name": "http", "port": 8080, "protocol": "TCP"}},
	}
}

func createNamespace(ctx context.Context, c *cluster.Cluster, name string) error {
	return c.Request(ctx, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": name}}, nil)
}

const slicesPath = "/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices"

// propagation updates one slice of ten endpoints again and again, each time with one
// address that was never there, while another goroutine asks without a pause.
func propagation(ctx context.Context, c *cluster.Cluster, bin string, updates int, every time.Duration) (err error) {
	const namespace = "measure"
	if err := createNamespace(ctx, c, namespace); err != nil {
		return err
	}
	addresses := make([]string, 10)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("10.0.0.%d", i+1)
	}
	if err := c.Request(ctx, http.MethodPost, "/api/v1/namespaces/"+namespace+"/services", service(namespace, "web"), nil); err != nil {
		return err
	}
	if err := c.Request(ctx, http.MethodPost, fmt.Sprintf(slicesPath, namespace), slice(namespace, "web", addresses), nil); err != nil {
		return err
	}
	s, err := run.Serve(bin, c.Kubeconfig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	if _, err := s.Ready(ctx); err != nil {
		return err
	}
	conn, err := net.Dial("udp", s.DNS)
	if err != nil {
		return err
	}
	defer conn.Close()

	var took []time.Duration
	for i := range updates {
		next := fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)
		addresses[i%len(addresses)] = next
		body := slice(namespace, "web", addresses)
		want := net.ParseIP(next).To4()
		seen := make(chan time.Time, 1)
		failed := make(chan error, 1)
		go func() {
			at, err := await(conn, "web."+namespace+".registry.local", want)
			if err != nil {
				failed <- err
			} else {
				seen <- at
			}
		}()
		runtime.Gosched()
		if err := c.Request(ctx, http.MethodPut, fmt.Sprintf(slicesPath, namespace)+"/web-1", body, nil); err != nil {
			return err
		}
		acknowledged := time.Now()
		select {
		case at := <-seen:
			took = append(took, at.Sub(acknowledged))
		case err := <-failed:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
	}
	slices.Sort(took)
	at := func(p float64) time.Duration {
		return took[min(len(took)-1, int(p*float64(len(took))))].Round(time.Microsecond)
	}
	early, _ := slices.BinarySearch(took, 0)
	fmt.Printf("from the acknowledgement of a slice update to the new answer, %d updates, %v apart:\n", updates, every)
	fmt.Printf("p50 %v  p90 %v  p99 %v  max %v; %d of them were answered before the acknowledgement came\n",
		at(0.5), at(0.9), at(0.99), took[len(took)-1].Round(time.Microsecond), early)
	return nil
}

// await asks for the A records of a name until one of them is want, and says when
// the reply with it came.
func await(conn net.Conn, name string, want net.IP) (time.Time, error) {
	query := make([]byte, 12, 512)
	query[5] = 1
	for label := range strings.SplitSeq(name, ".") {
		query = append(append(query, byte(len(label))), label...)
	}
	query = append(query, 0, 0, 1, 0, 1)
	reply := make([]byte, 512)
	deadline := time.Now().Add(10 * time.Second)
	for id := uint16(0); time.Now().Before(deadline); id++ {
		binary.BigEndian.PutUint16(query, id)
		if _, err := conn.Write(query); err != nil {
			return time.Time{}, err
		}
		conn.SetReadDeadline(time.Now().Add(time.Second))
		n, err := conn.Read(reply)
		if err != nil {
			return time.Time{}, err
		}
		now := time.Now()
		// The records follow the question: a pointer, ten octets, four of address.
		for at := len(query); at+16 <= n; at += 16 {
			if want.Equal(net.IP(reply[at+12 : at+16])) {
				return now, nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("%v is not among the answers after 10s", want)
}

// scale loads the API server with Services, then starts epdns.
func scale(ctx context.Context, c *cluster.Cluster, bin string, services, endpoints int, settle time.Duration) (err error) {
	const namespaces = 50
	for i := range namespaces {
		if err := createNamespace(ctx, c, fmt.Sprintf("ns-%d", i)); err != nil {
			return err
		}
	}
	began := time.Now()
	var next atomic.Int64
	var wg sync.WaitGroup
	var failure atomic.Pointer[error]
	for range 16 {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= services || failure.Load() != nil {
					return
				}
				namespace, name := fmt.Sprintf("ns-%d", i%namespaces), fmt.Sprintf("service-%d", i)
				addresses := make([]string, endpoints)
				for e := range addresses {
					n := i*endpoints + e
					addresses[e] = fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255)
				}
				err := c.Request(ctx, http.MethodPost, "/api/v1/namespaces/"+namespace+"/services", service(namespace, name), nil)
				if err == nil {
					err = c.Request(ctx, http.MethodPost, fmt.Sprintf(slicesPath, namespace), slice(namespace, name, addresses), nil)
				}
				if err != nil {
					failure.Store(&err)
				}
			}
		})
	}
	wg.Wait()
	if err := failure.Load(); err != nil {
		return *err
	}
	fmt.Fprintf(os.Stderr, "loaded %d Services in %v\n", services, time.Since(began).Round(time.Second))

	s, err := run.Serve(bin, c.Kubeconfig)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	ready, err := s.Ready(ctx)
	if err != nil {
		return err
	}
	at, err := memory(s.PID(), "VmRSS")
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(settle):
	}
	later, err := memory(s.PID(), "VmRSS")
	if err != nil {
		return err
	}
	peak, err := memory(s.PID(), "VmHWM")
	if err != nil {
		return err
	}
	fmt.Printf("%d Services with %d endpoints each: ready %v after the start of the process;\n", services, endpoints, ready.Round(time.Millisecond))
	fmt.Printf("resident %.0f MiB when ready, %.0f MiB %v later, %.0f MiB at most\n", at, later, settle, peak)
	return nil
}
