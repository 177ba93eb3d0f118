package cluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"epdns/test/cluster"
)

type object = map[string]any

// mustBeBuilt wants the programs built beforehand: go test's time limit is shorter than a first
// build.
func mustBeBuilt(t *testing.T, o cluster.Options) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	if err := cluster.Built(o); err != nil {
		t.Fatal(err)
	}
}

func startCluster(t *testing.T, o cluster.Options) *cluster.Cluster {
	t.Helper()
	mustBeBuilt(t, o)
	o.Progress = t.Output()
	c, err := cluster.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// eventually polls until check returns "", and fails with what it said last.
func eventually(t *testing.T, check func(context.Context) string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		said := check(ctx)
		if said == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after a minute still: %s", said)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

type sliceList struct {
	Items []struct {
		Endpoints []struct {
			Addresses  []string
			Conditions struct{ Ready bool }
			Zone       string
			NodeName   string
		}
	}
}

const slicesOfWeb = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dweb"

// threeReady says what is missing until the Service web has three ready endpoints, one in each zone.
func threeReady(ctx context.Context, c *cluster.Cluster) string {
	var list sliceList
	if err := c.Request(ctx, http.MethodGet, slicesOfWeb, nil, &list); err != nil {
		return err.Error()
	}
	var zones []string
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			if e.Conditions.Ready && len(e.Addresses) == 1 && strings.HasPrefix(e.Addresses[0], "10.244.") {
				zones = append(zones, e.Zone)
			}
		}
	}
	slices.Sort(zones)
	if want := []string{"zone-a", "zone-b", "zone-c"}; !slices.Equal(zones, want) {
		return fmt.Sprintf("ready endpoints are in zones %q, want %q", zones, want)
	}
	return ""
}

func TestCluster(t *testing.T) {
	c := startCluster(t, cluster.Options{Nodes: 3})
	create := func(path string, o object) {
		t.Helper()
		if err := c.Request(t.Context(), http.MethodPost, path, o, nil); err != nil {
			t.Fatal(err)
		}
	}
	labels := object{"app": "web"}
	create("/apis/apps/v1/namespaces/default/deployments", object{
		"metadata": object{"name": "web"},
		"spec": object{
			"replicas": 3,
			"selector": object{"matchLabels": labels},
			"template": object{
				"metadata": object{"labels": labels},
				"spec": object{
					"containers": []object{{"name": "web", "image": "web"}},
					"topologySpreadConstraints": []object{{
						"maxSkew":           1,
						"topologyKey":       "topology.kubernetes.io/zone",
						"whenUnsatisfiable": "DoNotSchedule",
						"labelSelector":     object{"matchLabels": labels},
					}},
				},
			},
		},
	})
	create("/api/v1/namespaces/default/services", object{
		"metadata": object{"name": "web"},
		"spec":     object{"selector": labels, "ports": []object{{"name": "http", "port": 80}}},
	})
	eventually(t, func(ctx context.Context) string { return threeReady(ctx, c) })

	t.Run("the API server comes back", func(t *testing.T) {
		before := c.PID(cluster.APIServer)
		if err := c.Kill(cluster.APIServer); err != nil {
			t.Fatal(err)
		}
		if !gone(before) {
			t.Fatalf("process %d is there after Kill", before)
		}
		if said := threeReady(t.Context(), c); said == "" {
			t.Fatal("a killed API server answers")
		}
		if err := c.StartComponent(t.Context(), cluster.APIServer); err != nil {
			t.Fatal(err)
		}
		if said := threeReady(t.Context(), c); said != "" {
			t.Fatal(said)
		}
	})

	t.Run("etcd comes back with its data", func(t *testing.T) {
		if err := c.Kill(cluster.Etcd); err != nil {
			t.Fatal(err)
		}
		if err := c.StartComponent(t.Context(), cluster.Etcd); err != nil {
			t.Fatal(err)
		}
		eventually(t, func(ctx context.Context) string { return threeReady(ctx, c) })
	})

	t.Run("users have the rights they should", func(t *testing.T) {
		for user, want := range map[string]int{cluster.Admin: 0, cluster.Limited: http.StatusForbidden, cluster.Nobody: http.StatusForbidden} {
			var status cluster.StatusError
			err := c.RequestAs(t.Context(), user, http.MethodGet, slicesOfWeb, nil, nil)
			if e, ok := errors.AsType[*cluster.StatusError](err); ok {
				status = *e
			} else if err != nil {
				t.Fatal(err)
			}
			if status.Code != want {
				t.Errorf("%s lists EndpointSlices: %v", user, err)
			}
			if path, err := c.KubeconfigFor(user); err != nil {
				t.Error(err)
			} else if _, err := os.Stat(path); err != nil {
				t.Error(err)
			}
		}
		if _, err := c.KubeconfigFor("somebody"); err == nil {
			t.Error("there is a kubeconfig for somebody")
		}
	})

	t.Run("a namespace is missing", func(t *testing.T) {
		var status *cluster.StatusError
		err := c.Request(t.Context(), http.MethodGet, "/api/v1/namespaces/none", nil, nil)
		if !errors.As(err, &status) || status.Code != http.StatusNotFound {
			t.Errorf("%v, want a StatusError 404", err)
		}
	})

	t.Run("nothing died by itself", func(t *testing.T) {
		select {
		case err := <-c.Died():
			t.Error(err)
		default:
		}
	})

	t.Run("nothing is left", func(t *testing.T) {
		pids := map[cluster.Component]int{}
		for _, name := range cluster.Components() {
			pids[name] = c.PID(name)
		}
		begin := time.Now()
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
		t.Logf("stopped in %v", time.Since(begin).Round(time.Millisecond))
		for name, pid := range pids {
			if pid == 0 || !gone(pid) {
				t.Errorf("%s: process %d is there after Stop", name, pid)
			}
		}
		if _, err := os.Stat(c.Dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there after Stop", c.Dir)
		}
		if err := c.StartComponent(t.Context(), cluster.Etcd); err == nil {
			t.Error("etcd starts in a stopped cluster")
		}
	})
}

func TestStartFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, test := range []struct {
		what      string
		component cluster.Component
		arg       string
		want      []string
	}{
		{"a flag is unknown", cluster.Etcd, "--no-such-flag", []string{"etcd ended", "no-such-flag"}},
		{"a flag is unknown later", cluster.APIServer, "--no-such-flag", []string{"kube-apiserver ended", "no-such-flag"}},
		{"a port is taken", cluster.Etcd, "--listen-peer-urls=http://" + taken.Addr().String(), []string{"etcd ended", "port is taken"}},
	} {
		t.Run(test.what, func(t *testing.T) {
			o := cluster.Options{Args: map[cluster.Component][]string{test.component: {test.arg}}}
			mustBeBuilt(t, o)
			c, err := cluster.Start(t.Context(), o)
			if err == nil {
				c.Stop()
				t.Fatal("the cluster starts")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in the error: %v", want, err)
				}
			}
		})
	}
}

// doomed makes this test binary start a cluster and wait for its death.
const doomed = "EPDNS_TEST_DOOMED"

func TestChildrenDieWithParent(t *testing.T) {
	if os.Getenv(doomed) != "" {
		c, err := cluster.Start(context.Background(), cluster.Options{})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("dir", c.Dir)
		for _, name := range cluster.Components() {
			fmt.Println("pid", c.PID(name))
		}
		fmt.Println("end")
		select {}
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends children with their parent")
	}
	mustBeBuilt(t, cluster.Options{})
	parent := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestChildrenDieWithParent$")
	parent.Env = append(os.Environ(), doomed+"=yes")
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	var pids []int
	for lines := bufio.NewScanner(out); lines.Scan() && lines.Text() != "end"; {
		switch what, value, _ := strings.Cut(lines.Text(), " "); what {
		case "dir":
			// Nobody else is left to do it.
			t.Cleanup(func() { os.RemoveAll(value) })
		case "pid":
			pid, err := strconv.Atoi(value)
			if err != nil {
				t.Error(err)
			}
			pids = append(pids, pid)
		default:
			t.Log(lines.Text())
		}
	}
	parent.Process.Kill()
	parent.Wait()
	if len(pids) != len(cluster.Components()) {
		t.Fatalf("the parent started %d components", len(pids))
	}
	eventually(t, func(context.Context) string {
		for _, pid := range pids {
			if !gone(pid) {
				return fmt.Sprintf("process %d lives", pid)
			}
		}
		return ""
	})
}

// gone reports that no process has this id, or only one that waits to be reaped by whoever
// inherited it.
func gone(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return runtime.GOOS == "linux"
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(state, "Z")
}
