//go:build linux

package clients_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

const prometheusURL = "http://127.0.0.1:9090"

// targets are those of Prometheus, by job.
func targets() (map[string][]string, error) {
	var body bytes.Buffer
	if err := get(prometheusURL+"/api/v1/targets?state=active", &body); err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			ActiveTargets []struct {
				Labels map[string]string
			}
		}
	}
	if err := json.Unmarshal(body.Bytes(), &answer); err != nil {
		return nil, err
	}
	found := map[string][]string{}
	for _, target := range answer.Data.ActiveTargets {
		job := target.Labels["job"]
		found[job] = append(found[job], target.Labels["instance"])
	}
	for _, list := range found {
		slices.Sort(list)
	}
	return found, nil
}

// haveTargets returns an error unless Prometheus has exactly those of these pods.
func haveTargets(pods []string) error {
	found, err := targets()
	if err != nil {
		return err
	}
	var byA, bySRV []string
	for _, address := range pods {
		byA = append(byA, address+":8080")
		bySRV = append(bySRV, strings.ReplaceAll(address, ".", "-")+".lamp.dock.registry.local:8080")
	}
	slices.Sort(byA)
	slices.Sort(bySRV)
	if !slices.Equal(found["by_a"], byA) || !slices.Equal(found["by_srv"], bySRV) {
		return fmt.Errorf("the targets are %q, want those of %d pods", found, len(pods))
	}
	return nil
}

// sdMetric is the value of a metric of its service discovery.
func sdMetric(t *testing.T, name string) float64 {
	t.Helper()
	var body bytes.Buffer
	if err := get(prometheusURL+"/metrics", &body); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(body.String()) {
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
	eventually(t, func() error {
		if n := sdMetric(t, lookups) - before; n < more {
			return fmt.Errorf("only %v lookups", n)
		}
		return nil
	})
}

func TestPrometheus(t *testing.T) {
	servePods(t)
	dir := namespace(t.TempDir())
	dir.write(t, "bulb", []string{"10.20.9.9"}, nil)
	dir.write(t, "lamp", twoPods, nil)
	server := serve(t, "readyz", "--manifests="+string(dir))
	resolvConf(t, "nameserver "+epdnsIP+"\n")
	w := capture(t)

	home := t.TempDir()
	config := filepath.Join(home, "prometheus.yml")
	if err := os.WriteFile(config, []byte(`
global:
  scrape_interval: 1m
scrape_configs:
- job_name: by_srv
  dns_sd_configs:
  - names: [_http._tcp.lamp.dock.registry.local]
    type: SRV
    refresh_interval: 1s
- job_name: by_a
  dns_sd_configs:
  - names: [lamp.dock.registry.local]
    type: A
    port: 8080
    refresh_interval: 1s
`), 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, "prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(home, "data"),
		"--web.listen-address=127.0.0.1:9090")
	become := func(pods []string) {
		t.Helper()
		eventually(t, func() error {
			if err := p.running(); err != nil {
				t.Fatal(err)
			}
			return haveTargets(pods)
		})
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
	server.stop(t)
	kubeconfig := filepath.Join(home, "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "none",
"contexts": [{"name": "none", "context": {"cluster": "none", "user": "none"}}], "users": [{"name": "none"}],
"clusters": [{"name": "none", "cluster": {"server": "http://127.0.0.1:1"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	serve(t, "livez", "--kubeconfig="+kubeconfig)
	before := sdMetric(t, failures)
	eventually(t, func() error {
		reply, err := ask("udp", lampName, dns.TypeA)
		if err == nil && reply.Rcode != dns.RcodeServerFailure {
			t.Fatalf("epdns knows nothing, and answers\n%v", reply)
		}
		return err
	})
	lookedUp(t, 14) // Prometheus takes over what it found every 5 s
	if n := sdMetric(t, failures); n == before {
		t.Error("no lookup has failed")
	}
	if err := haveTargets(many); err != nil {
		t.Error(err)
	}
}
