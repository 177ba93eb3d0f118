//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"epdns/test/cluster"
)

// This file is about pods that a real cluster's controllers make, place and write into slices.

// deployment is a Deployment with a headless Service of its name.
type deployment struct {
	kube *cluster.Cluster
	name string
}

const deploymentsPath = "/apis/apps/v1/namespaces/" + namespace + "/deployments"

// patient is how long the controllers may take.
const patient = 90 * time.Second

// deploy makes one and waits until its pods are ready. They are asked for besides.
func (t *trial) deploy(ctx context.Context, name string, replicas int) (*deployment, error) {
	d := &deployment{t.kube, name}
	labels := d.labels()
	err := t.kube.Request(ctx, http.MethodPost, servicesPath, object{"metadata": object{"name": name}, "spec": object{
		"selector": labels, "clusterIP": "None", "ports": []object{{"name": "http", "port": 80}},
	}}, nil)
	if err != nil {
		return nil, err
	}
	err = t.kube.Request(ctx, http.MethodPost, deploymentsPath, object{"metadata": object{"name": name}, "spec": object{
		"replicas": replicas, "selector": object{"matchLabels": labels}, "template": d.template("1"),
		"strategy": object{"rollingUpdate": object{"maxUnavailable": "20%", "maxSurge": "20%"}},
	}}, nil)
	if err != nil {
		d.remove(ctx)
		return nil, err
	}
	t.extra = []string{name}
	if err := t.until(ctx, patient, func() error { return d.at(ctx, replicas) }); err != nil {
		d.remove(ctx)
		return nil, err
	}
	return d, nil
}

func (d *deployment) labels() object { return object{"app": d.name} }

func (d *deployment) template(version string) object {
	return object{
		"metadata": object{"labels": d.labels(), "annotations": object{"version": version}},
		"spec": object{
			"containers": []object{{"name": "it", "image": "it", "ports": []object{{"containerPort": 80}}}},
			// Those of a lost Node are replaced after 2 s instead of five minutes.
			"tolerations": []object{
				{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2},
			},
			// A third of them on each of three Nodes.
			"topologySpreadConstraints": []object{{
				"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
				"labelSelector": object{"matchLabels": d.labels()},
			}},
		},
	}
}

func (d *deployment) patch(ctx context.Context, spec object) error {
	return d.kube.Request(ctx, http.MethodPatch, deploymentsPath+"/"+d.name, object{"spec": spec}, nil)
}

// at fails unless there are so many pods, all ready and of the last version.
func (d *deployment) at(ctx context.Context, n int) error {
	var now struct {
		Metadata struct{ Generation int }
		Status   struct{ ObservedGeneration, Replicas, ReadyReplicas, UpdatedReplicas int }
	}
	if err := d.kube.Request(ctx, http.MethodGet, deploymentsPath+"/"+d.name, nil, &now); err != nil {
		return err
	}
	s := now.Status
	if s.ObservedGeneration < now.Metadata.Generation || s.Replicas != n || s.ReadyReplicas != n || s.UpdatedReplicas != n {
		return fmt.Errorf("the Deployment is not at %d: %+v", n, s)
	}
	return nil
}

// givenUp fails while a pod on a Node is not being deleted.
func (d *deployment) givenUp(ctx context.Context, node string) error {
	var pods struct {
		Items []struct {
			Metadata struct{ Name, DeletionTimestamp string }
			Spec     struct{ NodeName string }
		}
	}
	if err := d.kube.Request(ctx, http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods?labelSelector=app%3D"+d.name, nil, &pods); err != nil {
		return err
	}
	for _, p := range pods.Items {
		if p.Spec.NodeName == node && p.Metadata.DeletionTimestamp == "" {
			return fmt.Errorf("pod %s stays on %s", p.Metadata.Name, node)
		}
	}
	return nil
}

func (d *deployment) remove(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	d.kube.Request(ctx, http.MethodDelete, servicesPath+"/"+d.name, nil, nil)
	d.kube.Request(ctx, http.MethodDelete, deploymentsPath+"/"+d.name, nil, nil)
}

// rollout has pods come, be replaced and go, and slices be cut into smaller pieces meanwhile.
func rollout(ctx context.Context, t *trial) error {
	d, err := t.deploy(ctx, "roll", 30)
	if err != nil {
		return err
	}
	defer d.remove(ctx)
	if err := t.begin(ctx, setup{direct: true}); err != nil {
		return err
	}
	most := int(t.long(500, 100))
	for _, step := range []struct {
		what string
		do   func() error
		n    int
	}{
		{"a rolling update", func() error { return d.patch(ctx, object{"template": d.template("2")}) }, 30},
		{"more pods", func() error { return d.patch(ctx, object{"replicas": most}) }, most},
		{"slices of at most 10", func() error {
			t.args[cluster.ControllerManager] = []string{"--max-endpoints-per-slice=10"}
			if err := t.kube.Kill(cluster.ControllerManager); err != nil {
				return err
			}
			if err := t.kube.StartComponent(ctx, cluster.ControllerManager); err != nil {
				return err
			}
			return d.patch(ctx, object{"replicas": most / 2})
		}, most / 2},
		{"another update", func() error { return d.patch(ctx, object{"template": d.template("3")}) }, most / 2},
		{"none", func() error { return d.patch(ctx, object{"replicas": 0}) }, 0},
		{"some", func() error { return d.patch(ctx, object{"replicas": 20}) }, 20},
	} {
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		if err := t.until(ctx, patient, func() error { return d.at(ctx, step.n) }); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	delete(t.args, cluster.ControllerManager)
	if err := t.wait(ctx, 2*time.Second); err != nil {
		return err
	}
	return t.settle(ctx, freshWithin)
}

// nodeLost has one of three Nodes fall silent, as one does whose power is cut. The controllers give
// it up, take its pods out of the slices, and have others made elsewhere.
func nodeLost(ctx context.Context, t *trial) error {
	const pods, lost = 30, "node-3"
	d, err := t.deploy(ctx, "spread", pods)
	if err != nil {
		return err
	}
	defer d.remove(ctx)
	if err := t.begin(ctx, setup{direct: true}); err != nil {
		return err
	}
	answers := func() int { return len(ask(ctx, t.server.DNS, d.name, true).addresses) }
	label := func(value any) error {
		return t.kube.Request(ctx, http.MethodPatch, "/api/v1/nodes/"+lost, object{"metadata": object{"labels": object{silent: value}}}, nil)
	}
	begun := time.Now()
	if err := label("yes"); err != nil {
		return err
	}
	defer label(nil)
	// They wait for 50 s before they give it up.
	err = t.until(ctx, 2*patient, func() error {
		if n := answers(); n == pods {
			return errors.New("all its pods are in the answers")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%s is lost: %w", lost, err)
	}
	gone, fewest := time.Since(begun), pods
	err = t.until(ctx, patient, func() error {
		n := answers()
		fewest = min(fewest, n)
		// The Deployment hears of it later than epdns, and looks whole until then.
		if err := d.givenUp(ctx, lost); err != nil {
			return err
		}
		if n != pods {
			return fmt.Errorf("%d of %d pods are in the answers", n, pods)
		}
		return d.at(ctx, pods)
	})
	if err != nil {
		return fmt.Errorf("%s is lost: %w", lost, err)
	}
	replaced := time.Since(begun)
	if err := label(nil); err != nil {
		return err
	}
	if err := t.wait(ctx, 2*time.Second); err != nil {
		return err
	}
	if err := t.settle(ctx, freshWithin); err != nil {
		return err
	}
	last := answers()
	t.check(fewest >= pods-pods/3 && last == pods, "the pods of the other Nodes stay, and all are replaced", "%d, %d, then %d", pods, fewest, last)
	t.note("the first gone %s after the Node's last word, all replaced after %s", brief(gone), brief(replaced))
	return nil
}
