//go:build linux

package rank_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"epdns/test/run"

	"github.com/miekg/dns"
)

// moveCIDRs gives each Node the podCIDR of the one so many places further on. A Node keeps the one
// it has as long as it exists, so they are made anew, with the Pods on them none the wiser.
func moveCIDRs(t *testing.T, by int) {
	t.Helper()
	type object = map[string]any
	request := func(method, path string, in, out any) {
		t.Helper()
		if err := kube.Request(t.Context(), method, "/api/v1/nodes"+path, in, out); err != nil {
			t.Fatal(err)
		}
	}
	var old []object
	for _, n := range nodes {
		var o object
		request(http.MethodGet, "/"+n.node, nil, &o)
		old = append(old, o)
	}
	for i, n := range nodes {
		from := old[(i+by+len(old))%len(old)]["spec"].(object)
		now := object{
			"metadata": object{"name": n.node, "labels": old[i]["metadata"].(object)["labels"]},
			"spec":     object{"podCIDR": from["podCIDR"], "podCIDRs": from["podCIDRs"]},
			"status":   old[i]["status"],
		}
		request(http.MethodDelete, "/"+n.node, nil, nil)
		request(http.MethodPost, "", now, nil)
	}
	run.Eventually(t, complete)
}

// Where Pods have the addresses of other Nodes' podCIDRs, podCIDRs are believed no longer; what
// the slices and the Nodes' own addresses tell is as good as before.
func TestLyingPodCIDRs(t *testing.T) {
	serve(t, "{}")
	all := endpoints(t, "plain")
	everybody := those(all, (*endpoint).ready)
	check := func(t *testing.T, believed bool) {
		t.Helper()
		want := map[bool]string{true: "0", false: "1"}[believed]
		soonSo(t, "epdns_pod_cidrs_disbelieved is "+want, func() error {
			if got := metric(t, "epdns_pod_cidrs_disbelieved"); got != want {
				return fmt.Errorf("epdns_pod_cidrs_disbelieved is %s", got)
			}
			return nil
		})
		for i, n := range nodes {
			stranger := n
			if !believed {
				stranger = place{}
			}
			pod := those(all, func(e *endpoint) bool { return e.NodeName == n.node })[0]
			for _, a := range []asker{{"a Pod of web", pod, n}, {"the Node", nodeIP(i), n}, {"some Pod", strangerOn(i), stranger}} {
				for _, network := range []string{"udp", "tcp"} {
					got := targets(ask(t, network, a.addr, "plain", dns.TypeSRV))
					if err := checkTargets(all, a.place, onNode, everybody, got); err != nil {
						t.Errorf("%s on %s over %s: %v", a.what, n.node, network, err)
					}
				}
			}
		}
	}
	check(t, true)
	t.Cleanup(func() { run.Eventually(t, complete) })
	moveCIDRs(t, 1)
	check(t, false)
	explained := question{network: "tcp", from: strangerOn(0), server: epdnsIP, name: full("_explain.plain"), typ: dns.TypeTXT}.must(t)
	if text := fmt.Sprint(explained.Answer); !strings.Contains(text, "podCIDRs are not believed") {
		t.Errorf("it is not explained: %s", text)
	}
	moveCIDRs(t, -1)
	check(t, true)
}
