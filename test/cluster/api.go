package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// StatusError is an answer of the API server other than success.
type StatusError struct {
	Method, Path string
	Code         int
	Message      string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s %s: %d: %s", e.Method, e.Path, e.Code, e.Message)
}

// Request sends in as JSON to a path of the API server, as the administrator, and decodes the
// answer into out. Either may be nil. An answer other than 2xx is a [*StatusError].
func (c *Cluster) Request(ctx context.Context, method, path string, in, out any) error {
	return c.RequestAs(ctx, Admin, method, path, in, out)
}

// RequestAs is [Cluster.Request] with the rights of [Admin], [Limited] or [Nobody].
func (c *Cluster) RequestAs(ctx context.Context, user, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Server+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.secrets.tokens[user])
	req.Header.Set("Accept", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if resp.StatusCode/100 != 2 {
		var status struct{ Message string }
		if json.Unmarshal(b, &status) != nil {
			status.Message = lastLines(string(b), 1)
		}
		return &StatusError{method, path, resp.StatusCode, status.Message}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// EtcdURL is where etcd takes requests, in JSON too. What is written there bypasses the API
// server, which sees it as written by another.
func (c *Cluster) EtcdURL() string { return "http://" + c.ports.addr(Etcd) }

// MaxNodes is how many Nodes have room in the addresses that [Cluster.AddNodes] gives them.
const MaxNodes = 255

// zones are those of the Nodes, in turn.
var zones = []string{"zone-a", "zone-b", "zone-c"}

// AddNodes creates n more Nodes and waits until they are ready. The i-th of the cluster, from 1,
// is node-i in zone-a, zone-b or zone-c in turn, of the region coast, with the address 10.243.0.i
// and Pods in 10.244.i.0/24.
func (c *Cluster) AddNodes(ctx context.Context, n int) error {
	c.nodesMu.Lock()
	defer c.nodesMu.Unlock()
	if n < 0 || c.nodes+n > MaxNodes {
		return fmt.Errorf("add %d nodes to %d: a cluster has at most %d", n, c.nodes, MaxNodes)
	}
	type object = map[string]any
	first := c.nodes + 1
	for range n {
		i := c.nodes + 1
		name := fmt.Sprintf("node-%d", i)
		err := c.Request(ctx, http.MethodPost, "/api/v1/nodes", object{
			"apiVersion": "v1",
			"kind":       "Node",
			"metadata": object{
				"name": name,
				"labels": object{
					"kubernetes.io/hostname":        name,
					"topology.kubernetes.io/zone":   zones[(i-1)%len(zones)],
					"topology.kubernetes.io/region": "coast",
				},
			},
			"spec": object{"podCIDR": fmt.Sprintf("10.244.%d.0/24", i), "podCIDRs": []string{fmt.Sprintf("10.244.%d.0/24", i)}},
			"status": object{"addresses": []object{
				{"type": "InternalIP", "address": fmt.Sprintf("10.243.0.%d", i)},
				{"type": "Hostname", "address": name},
				{"type": "InternalDNS", "address": "localhost"}, // where kwok is, as its kubelet
			}},
		}, nil)
		if err != nil {
			return fmt.Errorf("add %s: %w", name, err)
		}
		c.nodes = i
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, fmt.Errorf("not ready after %v", readyWithin))
	defer cancel()
	for i := first; i <= c.nodes; i++ {
		for {
			ready, err := c.nodeReady(ctx, i)
			if err == nil && !ready {
				err = pause(ctx, pollEvery)
			}
			if err != nil {
				return fmt.Errorf("add node-%d: %w", i, err)
			}
			if ready {
				break
			}
		}
	}
	return nil
}

func (c *Cluster) nodeReady(ctx context.Context, i int) (bool, error) {
	var node struct {
		Spec   struct{ Taints []struct{ Key string } }
		Status struct {
			Conditions []struct{ Type, Status string }
		}
	}
	if err := c.Request(ctx, http.MethodGet, fmt.Sprintf("/api/v1/nodes/node-%d", i), nil, &node); err != nil {
		return false, err
	}
	// The scheduler looks at the taint, which goes some time after the condition came.
	for _, t := range node.Spec.Taints {
		if t.Key == "node.kubernetes.io/not-ready" {
			return false, nil
		}
	}
	for _, cond := range node.Status.Conditions {
		if cond.Type == "Ready" && cond.Status == "True" {
			return true, nil
		}
	}
	return false, nil
}
