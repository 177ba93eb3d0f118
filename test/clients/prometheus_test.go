//go:build linux

package clients_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"epdns/test/cluster"
	"epdns/test/netns"
	"epdns/test/run"

	"github.com/miekg/dns"
)

const prometheusURL = "http://127.0.0.1:9090"

// targets are those of Prometheus.
func targets() (found []string, err error) {
	body, err := run.Get(prometheusURL + "/api/v1/targets?state=active")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			ActiveTargets []struct {
				Labels map[string]string
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	for _, target := range answer.Data.ActiveTargets {
		found = append(found, target.Labels["instance"])
	}
	slices.Sort(found)
	return found, nil
}

// haveTargets returns an error unless Prometheus has exactly those of these pods.
func haveTargets(pods []string) error {
	found, err := targets()
	if err != nil {
		return err
	}
	var want []string
	for _, address := range pods {
		want = append(want, address+":8080", strings.ReplaceAll(address, ".", "-")+".lamp.dock.registry.local:8080")
	}
	slices.Sort(want)
	if !slices.Equal(found, want) {
		return fmt.Errorf("the targets are %q, want those of %d pods, by SRV and by A", found, len(pods))
	}
	return nil
}

// sdMetric is the value of a metric of its service discovery.
func sdMetric(t *testing.T, name string) float64 {
	t.Helper()
	var body []byte
	eventually(t, func() (err error) { // a busy machine may take too long for it once
		body, err = run.Get(prometheusURL + "/metrics")
		return err
	})
	for line := range strings.Lines(string(body)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("Prometheus has no metric %s", name)
	return 0
}

const (
	lookups  = "prometheus_sd_dns_lookups_total"
	failures = "prometheus_sd_dns_lookup_failures_total"
)

// lookedUp waits until that many more lookups were made.
func lookedUp(t *testing.T, more float64) {
	t.Helper()
	before := sdMetric(t, lookups)
	within(t, 2*grace, 100*time.Millisecond, func() error {
		if n := sdMetric(t, lookups) - before; n < more {
			return fmt.Errorf("only %v lookups", n)
		}
		return nil
	})
}

// apiServer is that of a control plane.
type apiServer struct{ *cluster.Cluster }

// startCluster starts a control plane with namespace dock, in which there is nothing.
func startCluster(t *testing.T) apiServer {
	t.Helper()
	kube, err := cluster.Start(t.Context(), cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kube.Stop(); err != nil {
			t.Error(err)
		}
	})
	err = kube.Request(t.Context(), http.MethodPost, "/api/v1/namespaces", object{"metadata": object{"name": "dock"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return apiServer{kube}
}

const (
	servicesPath = "/api/v1/namespaces/dock/services"
	slicesPath   = "/apis/discovery.k8s.io/v1/namespaces/dock/endpointslices"
)

func (a apiServer) put(t *testing.T, name string, service, slice object) {
	t.Helper()
	for _, o := range []struct {
		path, name string
		object     object
	}{{servicesPath, name, service}, {slicesPath, name + "-1", slice}} {
		err := a.Request(t.Context(), http.MethodPut, o.path+"/"+o.name, o.object, nil)
		if status, ok := errors.AsType[*cluster.StatusError](err); ok && status.Code == http.StatusNotFound {
			err = a.Request(t.Context(), http.MethodPost, o.path, o.object, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (a apiServer) remove(t *testing.T, name string) {
	t.Helper()
	for _, path := range []string{servicesPath + "/" + name, slicesPath + "/" + name + "-1"} {
		if err := a.Request(t.Context(), http.MethodDelete, path, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPrometheus(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	servePods(t)
	kube := startCluster(t)
	dir := namespace{kube}
	dir.write(t, "lamp", twoPods, nil)
	server := serve(t, "readyz", "--kubeconfig="+kube.Kubeconfig)
	dir.lamp(t, twoPods, nil)
	resolvConf(t, "nameserver "+epdnsIP+"\n")
	w := capture(t)

	home := t.TempDir()
	config := filepath.Join(home, "prometheus.yml")
	if err := os.WriteFile(config, []byte(`
global:
  scrape_interval: 1m
scrape_configs:
- job_name: lamp
  dns_sd_configs:
  - names: [_http._tcp.lamp.dock.registry.local]
    type: SRV
    refresh_interval: 5s
  - names: [lamp.dock.registry.local]
    type: A
    port: 8080
    refresh_interval: 5s
`), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, "prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(home, "data"),
		"--web.listen-address=127.0.0.1:9090")
	become := func(pods []string) {
		t.Helper()
		begin := time.Now()
		p.Eventually(t, func() error { return haveTargets(pods) })
		t.Logf("the targets are those of %d pods after %v", len(pods), time.Since(begin))
	}

	become(twoPods)
	dir.lamp(t, nil, twoPods)
	become(nil)
	dir.lamp(t, twoPods, nil)
	become(twoPods)
	dir.noLamp(t)
	become(nil)
	lookedUp(t, 4) // of the name that is not there
	if n := sdMetric(t, failures); n != 0 {
		t.Errorf("%v lookups have failed, while epdns answered", n)
	}

	// More than a datagram holds. Addresses that no Prometheus connects to for long.
	many := addresses(1, 200)
	dir.lamp(t, many, nil)
	w.reset(t)
	become(many)
	cut, whole := 0, 0
	for _, m := range w.replies(t) {
		switch {
		case m.Question[0].Name != lampName || m.Question[0].Qtype != dns.TypeA:
		case m.network == "udp" && m.Truncated && m.IsEdns0() != nil:
			cut++
		case m.network == "tcp" && len(m.Answer) == 200:
			whole++
		}
	}
	if cut == 0 || whole == 0 {
		t.Errorf("%d replies with TC over UDP, %d whole ones over TCP", cut, whole)
	}

	// An epdns that knows nothing yet says so.
	if err := kube.Kill(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	serve(t, "livez", "--kubeconfig="+kube.Kubeconfig)
	before := sdMetric(t, failures)
	eventually(t, func() error {
		reply, err := ask("udp", lampName, dns.TypeA)
		if err == nil && reply.Rcode != dns.RcodeServerFailure {
			t.Fatalf("epdns knows nothing, and answers\n%v", reply)
		}
		return err
	})
	lookedUp(t, 8) // in 20 s; Prometheus takes over what it found every 5 s
	if n := sdMetric(t, failures); n == before {
		t.Error("no lookup has failed")
	}
	if err := haveTargets(many); err != nil {
		t.Error(err)
	}
}
