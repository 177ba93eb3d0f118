package registry_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"

	"epdns/registry"
	"epdns/registry/manifest"
)

// open starts a store on the sample cluster. A program in a cluster has
// kube.New(kube.Config{}, log) in place of manifest.New.
func open(ctx context.Context) *registry.Store {
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	store := registry.NewStore(log)
	source := manifest.New(manifest.Sample(), "sample", log)
	go source.Run(ctx, store) // its error says why nothing can be read
	return store
}

// A balancer in the client: each request picks one of the pods that are ready at
// that moment. Snapshot takes no lock, so it may be called for every request.
func Example_balancer() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := open(ctx)
	<-store.Synced()

	pick := func(namespace, name, port string) (netip.AddrPort, error) {
		var ready []netip.AddrPort
		for _, m := range store.Snapshot(namespace, name).Members() {
			if number, ok := m.Port(port); ok && m.Ready {
				ready = append(ready, netip.AddrPortFrom(m.Addr, number))
			}
		}
		if len(ready) == 0 {
			return netip.AddrPort{}, fmt.Errorf("nobody is ready behind %s/%s", namespace, name)
		}
		return ready[rand.IntN(len(ready))], nil
	}

	to, err := pick("shop", "jobs", "http")
	fmt.Println(to, err)
	_, err = pick("shop", "nope", "http")
	fmt.Println(err)
	// Output:
	// 10.244.1.41:8080 <nil>
	// nobody is ready behind shop/nope
}

// A scraper's list of targets, kept up to date: who has gone is dropped at once,
// who comes is added once, and nothing is asked for again and again.
func Example_targets() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	store := open(ctx)

	targets := map[netip.AddrPort]string{} // address → pod
	for _, changes := range store.Watch(ctx, "shop", "web") {
		for _, c := range changes {
			number, ok := c.Port("metrics")
			if !ok {
				continue
			}
			at := netip.AddrPortFrom(c.Addr, number)
			if c.Type == registry.Removed || !c.Ready {
				delete(targets, at)
			} else {
				targets[at] = c.Pod
			}
		}
		fmt.Println(len(targets), "targets")
		stop() // a scraper would go on
	}
	// Output: 6 targets
}
