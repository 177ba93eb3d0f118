package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"

	"epdns/registry"
	"epdns/registry/manifest"
)

// open starts a store on the sample cluster, and ends ctx with the reason if the
// source gives up. A program in a cluster has kube.New(kube.Config{}, log) in place
// of manifest.New, which returns an error besides.
func open(ctx context.Context) (*registry.Store, context.Context, context.CancelCauseFunc) {
	ctx, stop := context.WithCancelCause(ctx)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	store := registry.NewStore(log)
	source := manifest.New(manifest.Sample(), "sample", log)
	go func() {
		if err := source.Run(ctx, store); err != nil {
			stop(err)
		}
	}()
	return store, ctx, stop
}

// A balancer in the client: each request picks one of the pods that are ready at
// that moment. Snapshot takes no lock, so it may be called for every request; the
// list made of it is kept until there is another snapshot.
func Example_balancer() {
	store, ctx, stop := open(context.Background())
	defer stop(nil)
	select {
	case <-store.Synced():
	case <-ctx.Done():
		fmt.Println(context.Cause(ctx))
		return
	}

	var last *registry.Service
	var ready []netip.AddrPort
	pick := func() (netip.AddrPort, error) {
		if svc := store.Snapshot("shop", "jobs"); svc != last {
			last, ready = svc, ready[:0]
			for _, m := range svc.Members() {
				if number, ok := m.Port("http"); ok && m.Ready {
					ready = append(ready, netip.AddrPortFrom(m.Addr, number))
				}
			}
		}
		if len(ready) == 0 {
			return netip.AddrPort{}, errors.New("nobody is ready")
		}
		return ready[rand.IntN(len(ready))], nil
	}

	fmt.Println(pick())
	// Output: 10.244.1.41:8080 <nil>
}

// A scraper's list of targets, kept up to date: who has gone is dropped at once,
// who comes is there at once, and nothing is asked for again and again.
func Example_targets() {
	store, ctx, stop := open(context.Background())
	defer stop(nil)

	for svc := range store.Watch(ctx, "shop", "web") {
		targets := map[netip.AddrPort]string{} // address → pod
		for _, m := range svc.Members() {
			if number, ok := m.Port("metrics"); ok && m.Ready {
				targets[netip.AddrPortFrom(m.Addr, number)] = m.Pod
			}
		}
		fmt.Println(len(targets), "targets")
		break // a scraper would go on
	}
	// Output: 6 targets
}
