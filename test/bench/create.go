//go:build linux

package bench

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"epdns/test/cluster"
	"epdns/test/run"
)

// writers is how many write at a time.
const writers = 16

const slicesPath = "/apis/discovery.k8s.io/v1/namespaces/%s/endpointslices"

// pair is what etcd stores, in base64.
type pair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

const (
	// transaction is how many objects etcd takes at once, as it comes.
	transaction = 128

	// transactionSize is how large they may be together: less than etcd takes, as it comes, when
	// base64 is off them.
	transactionSize = 1 << 20
)

// create creates Services and their slices, and returns when the API server has them. It writes
// them to etcd, as another API server would: for a million endpoints that takes some seconds, and
// some minutes through the API.
func create(ctx context.Context, c *cluster.Cluster, list []*service, progress io.Writer) error {
	began := time.Now()
	for i := range namespaces {
		err := c.Request(ctx, http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": fmt.Sprintf("ns-%d", i)}}, nil)
		if status, ok := errors.AsType[*cluster.StatusError](err); err != nil && (!ok || status.Code != http.StatusConflict) {
			return err
		}
	}
	if len(list) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan []pair)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for pairs := range work {
				if err := putAll(ctx, c.EtcdURL(), pairs); err != nil {
					cancel(err)
				}
			}
		})
	}
	var batch []pair
	size := 0
	send := func() {
		if batch == nil {
			return
		}
		select {
		case work <- batch:
		case <-ctx.Done():
		}
		batch, size = nil, 0
	}
	add := func(p pair) {
		if len(batch) == transaction || size+len(p.Value) > transactionSize {
			send()
		}
		batch, size = append(batch, p), size+len(p.Value)
	}
	// The last of either kind is written when all others are, so that who sees it has seen them.
	last := list[len(list)-1]
	lastSlice := last.slices() - 1
	for _, s := range list {
		if s != last {
			add(s.stored())
		}
		for i := range s.slices() {
			if s != last || i != lastSlice {
				add(s.storedSlice(i))
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	send()
	close(work)
	wg.Wait()
	err := context.Cause(ctx)
	if err == nil {
		err = putAll(ctx, c.EtcdURL(), []pair{last.stored(), last.storedSlice(lastSlice)})
	}
	if err == nil {
		err = arrived(ctx, c, last, lastSlice)
	}
	if err != nil {
		return fmt.Errorf("create Services: %w", err)
	}
	fmt.Fprintf(progress, "created %d Services in %v\n", len(list), time.Since(began).Round(100*time.Millisecond))
	return nil
}

// stored and storedSlice are the objects as an API server stores them.
func (s *service) stored() pair {
	return stored("services/specs/"+s.namespace+"/"+s.name, s.object())
}

func (s *service) storedSlice(i int) pair {
	return stored("endpointslices/"+s.namespace+"/"+s.sliceName(i), s.slice(i, 0))
}

func stored(path string, o object) pair {
	meta := o["metadata"].(object)
	meta["uid"] = path
	meta["creationTimestamp"] = "2026-01-01T00:00:00Z"
	b, err := json.Marshal(o)
	if err != nil {
		panic("bench: " + err.Error()) // it is made of strings and numbers
	}
	return pair{base64.StdEncoding.EncodeToString([]byte("/registry/" + path)), base64.StdEncoding.EncodeToString(b)}
}

// putAll has etcd put all in one transaction.
func putAll(ctx context.Context, etcd string, pairs []pair) error {
	var puts []object
	for _, p := range pairs {
		puts = append(puts, object{"requestPut": p})
	}
	body, err := json.Marshal(object{"success": puts})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, etcd+"/v3/kv/txn", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("write to etcd: %w", err)
	}
	defer resp.Body.Close()
	if said, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		return errors.Join(fmt.Errorf("write to etcd: %s: %s", resp.Status, said), err)
	}
	return nil
}

// arrived waits until the API server has a Service and a slice in what it gives its watches.
func arrived(ctx context.Context, c *cluster.Cluster, s *service, slice int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startWithin, fmt.Errorf("not there after %v", startWithin))
	defer cancel()
	for _, path := range []string{
		"/api/v1/namespaces/" + s.namespace + "/services/" + s.name,
		fmt.Sprintf(slicesPath, s.namespace) + "/" + s.sliceName(slice),
	} {
		const cached = "?resourceVersion=0"
		if err := run.Until(ctx, 10*time.Millisecond, func() error {
			return c.Request(ctx, http.MethodGet, path+cached, nil, nil)
		}); err != nil {
			return err
		}
	}
	return nil
}
