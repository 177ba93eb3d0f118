//go:build linux

package clients_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"epdns/test/netns"
	"epdns/test/run"

	"github.com/miekg/dns"
)

// This file has what docs/clients/prometheus.md says beyond the case in testdata/cases/client.

// labelled are the targets of a job, and the labels of each, by instance.
func labelled(t *testing.T, job string) map[string]map[string]string {
	t.Helper()
	var body []byte
	eventually(t, func() (err error) {
		body, err = run.Get(prometheusURL + "/api/v1/targets?state=active")
		return err
	})
	var answer struct {
		Data struct {
			ActiveTargets []struct {
				Labels map[string]string
			}
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]string{}
	for _, target := range answer.Data.ActiveTargets {
		if target.Labels["job"] == job {
			all[target.Labels["instance"]] = target.Labels
		}
	}
	return all
}

// hasTargets waits until a job has so many.
func hasTargets(t *testing.T, job string, n int) {
	t.Helper()
	within(t, 2*grace, 200*time.Millisecond, func() error {
		if got := labelled(t, job); len(got) != n {
			return fmt.Errorf("job %s has %d targets, want %d: %v", job, len(got), n, slices.Sorted(maps.Keys(got)))
		}
		return nil
	})
}

// TestPrometheusRow sees what the table says of Prometheus, configured as shipped but in more of a
// hurry.
func TestPrometheusRow(t *testing.T) {
	if netns.Alone(t) {
		return
	}
	row := Row{Client: "Prometheus `dns_sd_configs`", Page: "prometheus", Order: none}
	servePods(t)
	dir, m := manifestsOf(t, nil)
	pods := []pod{{address: "10.20.1.11", name: "lamp-a", zone: "zone-a"}, {address: "10.20.1.12", name: "lamp-b", zone: "zone-b"}}
	weights := map[string]string{"registry.local/weights": "lamp-a=10", "registry.local/topology": "order"}
	m.service(t, weights, pods)
	// The TTL is no help to those who look at it; who asks is in zone-a.
	args := []string{"--manifests=" + string(m), "--config=" + configured(t, "endpointNames: pod\ndefaults: {ttl: 1h, ttl-empty: 1h, ttl-nxdomain: 1h}",
		"clients: {places: [{cidr: "+epdnsIP+"/32, zone: zone-a}]}")}
	server := serve(t, "readyz", args...)
	resolvConf(t, "nameserver "+epdnsIP+"\nsearch dock.registry.local\n")
	hosts(t)
	w := capture(t)

	home := t.TempDir()
	config := filepath.Join(home, "prometheus.yml")
	text := snippet(t, "prometheus.yml", "_metrics._tcp", "_http._tcp", "refresh_interval: 5s", "refresh_interval: 1s") + `
- job_name: short
  dns_sd_configs:
  - {names: [lamp], type: A, port: 8080, refresh_interval: 1s}
`
	if err := os.WriteFile(config, []byte("global: {scrape_interval: 20s}\n"+text), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("promtool", "check", "config", config).CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v\n%s", err, out)
	}
	p := start(t, "prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(home, "data"),
		"--web.listen-address=127.0.0.1:9090")
	p.Eventually(t, func() error {
		_, err := run.Get(prometheusURL + "/-/ready")
		return err
	})

	const bySRV, byA, short = "web", "web-by-address", "short"
	hasTargets(t, bySRV, 2)
	hasTargets(t, byA, 2)
	for _, name := range []string{"lamp-a", "lamp-b"} {
		instance := name + ".lamp.dock.registry.local:8080"
		if got := labelled(t, bySRV)[instance]; got["pod"] != name {
			t.Errorf("the labels of %s: %v", instance, got)
		}
	}
	hasTargets(t, short, 2)
	row.Search = "yes"
	for _, m := range w.answers(t, srvName, dns.TypeSRV) {
		first, ok := m.Answer[0].(*dns.SRV)
		second, ok2 := m.Answer[1].(*dns.SRV)
		if ok && ok2 && first.Priority != second.Priority && first.Weight != second.Weight {
			row.SRV = "a target each; priority and weight are not used"
		}
	}
	// becomes says what becomes of the targets when there are none any more, or nobody knows.
	// leftByShort are those by a short name.
	becomes := func(leftByShort int, happen, undo func()) string {
		t.Helper()
		happen()
		before := sdMetric(t, failures)
		lookedUp(t, 30) // in 10 s; Prometheus takes over what it found every 5 s
		if n := len(labelled(t, short)); n != leftByShort {
			t.Errorf("by a short name there are %d targets, want %d", n, leftByShort)
		}
		failed := sdMetric(t, failures) > before
		left := []int{len(labelled(t, bySRV)), len(labelled(t, byA))}
		undo()
		hasTargets(t, bySRV, 2)
		hasTargets(t, byA, 2)
		hasTargets(t, short, 2)
		switch {
		case slices.Equal(left, []int{0, 0}):
			return "no targets"
		case slices.Equal(left, []int{2, 2}) && failed:
			return "targets stay"
		}
		t.Errorf("targets by SRV and by A: %d; failures: %v", left, failed)
		return ""
	}
	there := func() { m.service(t, weights, pods) }
	row.Empty = becomes(0, func() { dir.lamp(t, nil, twoPods) }, there)
	// What Prometheus holds now is of before the changes, and was said to be good for 1 h.
	row.TTL = "not looked at: asks every `refresh_interval`"
	// The search list ends with the short name itself, which is REFUSED: not a clear no.
	row.Gone = becomes(2, func() { dir.noLamp(t) }, there)
	var ignorant *run.Process
	row.Failed = becomes(2, func() {
		if err := server.Stop(); err != nil {
			t.Fatal(err)
		}
		ignorant = serveIgnorant(t)
	}, func() {
		if err := ignorant.Stop(); err != nil {
			t.Fatal(err)
		}
		server = serve(t, "readyz", args...)
	})

	// To scrape it, Prometheus looks up the name.
	within(t, 2*grace, 200*time.Millisecond, func() error {
		if len(w.answers(t, "lamp-a.lamp.dock.registry.local.", dns.TypeA)) == 0 {
			return fmt.Errorf("the target's name was not asked for")
		}
		return nil
	})

	w.reset(t)
	dir.lamp(t, addresses(1, 200), nil)
	hasTargets(t, bySRV, 200)
	hasTargets(t, byA, 200)
	overTCP := func(name string, typ uint16) bool {
		return slices.ContainsFunc(w.answers(t, name, typ), func(m message) bool { return m.network == "tcp" && len(m.Answer) == 200 })
	}
	if overTCP(srvName, dns.TypeSRV) && overTCP(lampName, dns.TypeA) {
		row.Many = "all, over TCP"
	}
	observed(t, row)
}
