//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"epdns/test/cluster"
)

const (
	namespace    = "faults"
	servicesPath = "/api/v1/namespaces/" + namespace + "/services"
	slicesPath   = "/apis/discovery.k8s.io/v1/namespaces/" + namespace + "/endpointslices"

	// size is how many Services there are, and perSlice how many endpoints a slice of theirs has
	// at first.
	size     = 20
	perSlice = 4

	// quiet is for how long a Service is left alone after a change, at least.
	quiet = 4 * listEvery
)

// world is what is in the cluster, and changes it.
type world struct {
	kube     *cluster.Cluster
	services []*service
	marker   *service      // see there
	address  atomic.Uint32 // the last that was given out
	changes  atomic.Int64  // acknowledged
}

// service is a Service whose slices are written by us.
type service struct {
	name string

	mu      sync.Mutex
	exists  bool
	slices  [3][]endpoint // two of IPv4, one of IPv6
	changed time.Time
}

type endpoint struct {
	address netip.Addr
	ready   bool
}

type object = map[string]any

// newWorld makes the Services.
func newWorld(ctx context.Context, kube *cluster.Cluster) (*world, error) {
	w := &world{kube: kube, marker: &service{name: "marker"}}
	if err := kube.Request(ctx, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": namespace}}, nil); err != nil {
		return nil, err
	}
	for i := range size {
		w.services = append(w.services, &service{name: fmt.Sprintf("svc-%02d", i)})
	}
	for _, s := range append(w.services, w.marker) {
		s.mu.Lock()
		err := w.create(ctx, s)
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
	return w, nil
}

// names are those of the Services, and of one that never exists.
func (w *world) names() (names []string) {
	for _, s := range w.services {
		names = append(names, s.name)
	}
	return append(names, "never")
}

// fresh is an endpoint with an address that nobody ever had.
func (w *world) fresh(slice int) endpoint {
	n := w.address.Add(1)
	four := [4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}
	if slice < 2 {
		return endpoint{netip.AddrFrom4(four), true}
	}
	return endpoint{netip.AddrFrom16([16]byte{0xfd, 12: four[0], four[1], four[2], four[3]}), true}
}

// What follows needs s.mu.

func (w *world) create(ctx context.Context, s *service) error {
	o := object{"apiVersion": "v1", "kind": "Service", "metadata": object{"name": s.name}, "spec": object{
		"clusterIP": "None", "ports": []object{{"name": "http", "port": 80}},
	}}
	if err := w.kube.Request(ctx, http.MethodPost, servicesPath, o, nil); err != nil && !isStatus(err, http.StatusConflict) {
		return err
	}
	s.exists = true
	for i := range s.slices {
		s.slices[i] = nil
		for range perSlice {
			s.slices[i] = append(s.slices[i], w.fresh(i))
		}
		if err := w.put(ctx, s, i); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) delete(ctx context.Context, s *service) error {
	s.exists = false
	for i := range s.slices {
		if err := w.kube.Request(ctx, http.MethodDelete, slicesPath+"/"+s.slice(i), nil, nil); err != nil && !isStatus(err, http.StatusNotFound) {
			return err
		}
	}
	err := w.kube.Request(ctx, http.MethodDelete, servicesPath+"/"+s.name, nil, nil)
	if isStatus(err, http.StatusNotFound) {
		return nil
	}
	return err
}

func (s *service) slice(i int) string { return fmt.Sprintf("%s-%d", s.name, i) }

// put writes slice i as it is to be.
func (w *world) put(ctx context.Context, s *service, i int) error {
	endpoints := []object{}
	for _, e := range s.slices[i] {
		endpoints = append(endpoints, object{"addresses": []string{e.address.String()}, "conditions": object{"ready": e.ready}})
	}
	family := "IPv4"
	if i == 2 {
		family = "IPv6"
	}
	o := object{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
		"metadata": object{"name": s.slice(i), "namespace": namespace, "labels": object{
			"kubernetes.io/service-name": s.name, "endpointslice.kubernetes.io/managed-by": namespace,
		}},
		"endpoints": endpoints, "ports": []object{{"name": "http", "port": 8080, "protocol": "TCP"}},
	}
	err := w.kube.Request(ctx, http.MethodPut, slicesPath+"/"+s.slice(i), o, nil)
	if isStatus(err, http.StatusNotFound) {
		err = w.kube.Request(ctx, http.MethodPost, slicesPath, o, nil)
	}
	return err
}

func isStatus(err error, code int) bool {
	status, ok := errors.AsType[*cluster.StatusError](err)
	return ok && status.Code == code
}

// change makes a random change of a Service, unless it had one just now that the oracle, whose
// last look was begun at seen, may not know of, and says whether it did. What the API server does
// not take is tried again later: the whole of it is written each time.
func (w *world) change(ctx context.Context, s *service, seen time.Time) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.changed) < quiet || seen.Before(s.changed) {
		return false, nil
	}
	defer func() { s.changed = time.Now() }()
	if !s.exists {
		return true, w.create(ctx, s)
	}
	i := rand.IntN(len(s.slices))
	all := &s.slices[i]
	switch kind := rand.IntN(20); {
	case kind == 0:
		return true, w.delete(ctx, s)
	case kind < 4 && len(*all) < 2*perSlice:
		*all = append(*all, w.fresh(i))
	case kind < 7 && len(*all) > 0:
		*all = (*all)[1:]
	case kind < 10 && len(*all) > 0:
		e := &(*all)[rand.IntN(len(*all))]
		e.ready = !e.ready
	case kind < 13 && i < 2 && len(*all) > 0:
		// From one slice to the other: for a moment it is in both.
		to := &s.slices[1-i]
		*to = append(*to, (*all)[0])
		if err := w.put(ctx, s, 1-i); err != nil {
			return true, err
		}
		*all = (*all)[1:]
	case len(*all) > 0:
		(*all)[rand.IntN(len(*all))] = w.fresh(i)
	default:
		*all = append(*all, w.fresh(i))
	}
	*all = slices.Clone(*all)
	return true, w.put(ctx, s, i)
}

// churn makes this many changes a second until ctx ends, and none before the oracle has seen the
// one before it. What the API server does not take is passed over.
func (w *world) churn(ctx context.Context, rate int, seen func() time.Time) {
	var wg sync.WaitGroup
	for tick := time.NewTicker(time.Second / time.Duration(rate)); ; {
		select {
		case <-ctx.Done():
			wg.Wait()
			return
		case <-tick.C:
		}
		s := w.services[rand.IntN(len(w.services))]
		if !s.mu.TryLock() {
			continue // a request hangs
		}
		s.mu.Unlock()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, listWithin)
			defer cancel()
			if did, err := w.change(ctx, s, seen()); did && err == nil {
				w.changes.Add(1)
			}
		})
	}
}

// mend writes all Services once more, so that all that was asked for meanwhile is there.
func (w *world) mend(ctx context.Context) error {
	for _, s := range w.services {
		s.mu.Lock()
		var err error
		if s.exists {
			err = w.create(ctx, s)
		} else {
			err = w.delete(ctx, s)
		}
		s.mu.Unlock()
		if err != nil {
			return fmt.Errorf("write %s again: %w", s.name, err)
		}
	}
	return nil
}

// remove deletes a Service for good, or until churn finds it.
func (w *world) remove(ctx context.Context, s *service) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = time.Now()
	return w.delete(ctx, s)
}

// renew replaces all addresses of a Service.
func (w *world) renew(ctx context.Context, s *service) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = time.Now()
	return w.create(ctx, s)
}
