package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"epdns/test/cluster"
	"epdns/test/run"
)

// namespace is that of all Services here.
const namespace = "drain"

const (
	podsPath   = "/api/v1/namespaces/" + namespace + "/pods"
	slicesPath = "/apis/discovery.k8s.io/v1/namespaces/" + namespace + "/endpointslices"

	// maxRepetitions is how many Services have room, even if all their pods are put on one Node,
	// which has 254 addresses.
	maxRepetitions = 100

	podsPerService = 2
)

// service is a Service with two pods, of which one will stop being ready.
type service struct {
	name    string
	pod     string
	address string // of that pod
}

type object = map[string]any

// endpointSlice has the few fields that are looked at.
type endpointSlice struct {
	Metadata  struct{ Labels map[string]string }
	Endpoints []struct {
		Addresses  []string
		Conditions struct{ Ready bool }
		TargetRef  struct{ Name string }
	}
}

func (s *endpointSlice) service() string { return s.Metadata.Labels["kubernetes.io/service-name"] }

func (s *endpointSlice) ready() (addresses []string) {
	for _, e := range s.Endpoints {
		if e.Conditions.Ready {
			addresses = append(addresses, e.Addresses...)
		}
	}
	return addresses
}

// createServices returns when the slices say that all pods are ready. The Services are headless
// because CoreDNS has the pods of no others; to epdns it makes no difference.
func createServices(ctx context.Context, c *cluster.Cluster, n int) ([]*service, error) {
	post := func(path string, o object) error { return c.Request(ctx, http.MethodPost, path, o, nil) }
	if err := post("/api/v1/namespaces", object{"metadata": object{"name": namespace}}); err != nil {
		return nil, err
	}
	services := map[string]*service{}
	var list []*service
	for i := range n {
		s := &service{name: fmt.Sprintf("web-%d", i+1)}
		s.pod = s.name + "-a"
		services[s.name] = s
		list = append(list, s)
		labels := object{"app": s.name}
		for _, pod := range []string{s.pod, s.name + "-b"} {
			if err := post(podsPath, object{
				"metadata": object{"name": pod, "labels": labels},
				"spec":     object{"containers": []object{{"name": "main", "image": "none"}}},
			}); err != nil {
				return nil, err
			}
		}
		if err := post("/api/v1/namespaces/"+namespace+"/services", object{
			"metadata": object{"name": s.name},
			"spec":     object{"clusterIP": "None", "selector": labels, "ports": []object{{"name": "http", "port": 8080}}},
		}); err != nil {
			return nil, err
		}
	}
	return list, run.Until(ctx, pollEvery, func() error {
		var slices struct{ Items []endpointSlice }
		if err := c.Request(ctx, http.MethodGet, slicesPath, nil, &slices); err != nil {
			return err
		}
		complete := 0
		for _, slice := range slices.Items {
			if len(slice.ready()) == podsPerService {
				complete++
			}
			for _, e := range slice.Endpoints {
				if s := services[slice.service()]; s != nil && s.pod == e.TargetRef.Name {
					s.address = e.Addresses[0]
				}
			}
		}
		if complete != n {
			return fmt.Errorf("%d of %d Services have their pods", complete, n)
		}
		return nil
	})
}

// fail makes the pod not ready, as a kubelet does whose probe has failed, and returns when the
// API server has acknowledged that.
func (s *service) fail(ctx context.Context, c *cluster.Cluster) (acknowledged time.Time, err error) {
	now := time.Now().UTC().Format(time.RFC3339)
	conditions := []object{
		{"type": "Initialized", "status": "True", "lastTransitionTime": now},
		{"type": "PodScheduled", "status": "True", "lastTransitionTime": now},
		{"type": "ContainersReady", "status": "False", "lastTransitionTime": now},
		{"type": "Ready", "status": "False", "lastTransitionTime": now},
	}
	err = c.Request(ctx, http.MethodPatch, podsPath+"/"+s.pod+"/status", object{"status": object{"conditions": conditions}}, nil)
	return time.Now(), err
}

// pollEvery is how long we wait before we ask again whether all is there.
const pollEvery = 50 * time.Millisecond
