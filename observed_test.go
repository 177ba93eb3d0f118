package epdns_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// observations are how often a histogram has noted something, over the series with these
// labels.
func (p *program) observations(t *testing.T, name string, labels ...string) (n uint64) {
	t.Helper()
	for _, m := range p.metrics(t)[name].GetMetric() {
		of := map[string]string{}
		for _, l := range m.GetLabel() {
			of[l.GetName()] = l.GetValue()
		}
		is := true
		for i := 0; i < len(labels); i += 2 {
			is = is && of[labels[i]] == labels[i+1]
		}
		if is {
			n += m.GetHistogram().GetSampleCount()
		}
	}
	return n
}

// How long changes take is noted of each change of a watch and of nothing in a list, from when
// it was made where its slice says so.
func TestPropagationIsMeasured(t *testing.T) {
	api := newFakeAPI(t, false)
	slice := func(address string, when time.Time) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1", UID: "2", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
				Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: when.UTC().Format(time.RFC3339Nano)}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
		}
	}
	at := func(address string, when time.Time) { api.Apply(slice(address, when)) }
	api.Apply(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"},
		Spec: corev1.ServiceSpec{ClusterIP: "None", Selector: map[string]string{"app": "web"}}})
	at("10.0.0.1", time.Now())
	p := serve(t, "--kubeconfig", api.kubeconfig)
	want := func(what, address string, changes, told uint64) {
		t.Helper()
		eventually(t, func() error {
			if got, err := p.address("web"); err != nil || got != address {
				return fmt.Errorf("%s: web is answered %q, %v", what, got, err)
			}
			propagation := p.observations(t, "epdns_propagation_duration_seconds")
			programming := p.observations(t, "epdns_dns_programming_duration_seconds", "service_kind", "headless_with_selector")
			if all := p.observations(t, "epdns_dns_programming_duration_seconds"); propagation != changes || programming != told || all != told {
				return fmt.Errorf("%s: %d propagations, %d programmings of %d, want %d and %d", what, propagation, programming, all, changes, told)
			}
			return nil
		})
	}
	want("the first list", "10.0.0.1", 0, 0)
	at("10.0.0.2", time.Now())
	want("a change", "10.0.0.2", 1, 1)
	at("10.0.0.3", time.Now().Add(-time.Hour))
	want("a change from before the start", "10.0.0.3", 2, 1)

	api.ApplySilently(slice("10.0.0.4", time.Now()))
	api.Expire()
	want("another list", "10.0.0.4", 2, 1)
	if n := p.observations(t, "epdns_snapshot_publish_duration_seconds"); n < 4 {
		t.Errorf("%d Sets were published", n)
	}
}

// The query log begins and ends with the configuration, without a restart, and so does what
// else is logged.
func TestQueryLog(t *testing.T) {
	t.Parallel()
	config := t.TempDir() + "/epdns.yaml"
	configure := func(text string) {
		t.Helper()
		replaceFile(t, config, "apiVersion: epdns/v1alpha1\nkind: Config\n"+text)
	}
	configure("queryLog: {sample: 1}\n")
	p := serve(t, "--manifests", "testdata/cluster", "--config", config)
	send := func(name string) {
		t.Helper()
		if _, err := ask(name, dns.TypeA).send(p.dns.Port()); err != nil {
			t.Fatal(err)
		}
	}
	send("web.shop." + zone)
	p.logged(t, `"msg":"query"`, `"name":"web.shop.`+zone+`"`, `"proto":"udp"`, `"rcode":"NOERROR"`, `"type":"A"`)

	reloads := 0
	reload := func(text string) {
		t.Helper()
		configure(text)
		reloads++
		eventually(t, func() error {
			if n := strings.Count(p.stderr.String(), "read the configuration again"); n < reloads {
				return fmt.Errorf("%d reloads of %d", n, reloads)
			}
			return p.running()
		})
	}
	reload("queryLog: {sample: 0}\n")
	send("silent.shop." + zone)
	reload("queryLog: {sample: 1}\n")
	send(`a\027[2Jb.shop.` + zone) // what would clear a terminal
	p.logged(t, `"msg":"query"`, `"name":"a\\027[2jb.shop.`+zone+`"`)
	if strings.Contains(p.stderr.String(), "silent") || strings.Contains(p.stderr.String(), "\x1b") {
		t.Errorf("the log is\n%v", &p.stderr)
	}
}
