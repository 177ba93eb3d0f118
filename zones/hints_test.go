package zones

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"epdns/registry"
)

// hintCases are what Kubernetes' documentation says of hints (Service, "Traffic
// distribution"; EndpointSlices, "Topology hints"; Topology Aware Routing, "Safeguards";
// the enhancements 2433, 3015 and 4444), one sentence each.
var hintCases = []struct {
	says      string
	knobs     string
	endpoints []string
	want      map[string]string // the asker's place → who is answered
}{
	{
		says:      "endpoints with hints for the zone of the node are what it uses",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a", "10.0.0.2 n2/b/r zones=b", "10.0.0.3 n3/a/r zones=a"},
		want:      map[string]string{"n1/a/r": "1 3", "n9/a/r": "1 3", "-/b/r": "2"},
	},
	{
		says:      "hints may give a zone endpoints of another zone",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a", "10.0.0.2 n2/a/r zones=b", "10.0.0.3 n3/b/r zones=b"},
		want:      map[string]string{"n1/a/r": "1", "n3/b/r": "2 3"},
	},
	{
		says:      "one endpoint may be meant for several zones",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a,c", "10.0.0.2 n2/b/r zones=b,c"},
		want:      map[string]string{"-/a/r": "1", "-/b/r": "2", "-/c/r": "1 2"},
	},
	{
		says:      "if one or more endpoints have no hint, all hints are ignored",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a", "10.0.0.2 n2/b/r", "10.0.0.3 n3/a/r zones=a"},
		want:      map[string]string{"n1/a/r": "1 2 3", "n2/b/r": "1 2 3"},
	},
	{
		says:      "if no endpoint has a hint for the zone of the node, all are used",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a", "10.0.0.2 n2/b/r zones=b"},
		want:      map[string]string{"n3/c/r": "1 2", "-/c/r2": "1 2"},
	},
	{
		says:      "a node without zone uses all",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a", "10.0.0.2 n2/b/r zones=b"},
		want:      map[string]string{"n3/-/-": "1 2", "": "1 2", "neutral": "1 2"},
	},
	{
		says:      "no hints at all: all",
		knobs:     "trafficDistribution=PreferClose",
		endpoints: []string{"10.0.0.1 n1/a/r", "10.0.0.2 n2/b/r"},
		want:      map[string]string{"n1/a/r": "1 2"},
	},
	{
		says:      "an endpoint that is not ready needs no hint",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a", "10.0.0.2 n2/b/r unready", "10.0.0.3 n3/b/r zones=b"},
		want:      map[string]string{"n1/a/r": "1", "n3/b/r": "3"},
	},
	{
		says:      "nor one that terminates",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a", "10.0.0.2 n2/b/r closing", "10.0.0.3 n3/b/r zones=b"},
		want:      map[string]string{"n1/a/r": "1", "n3/b/r": "3"},
	},
	{
		says:      "a zone with hints of endpoints that are not ready alone has none: all",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a", "10.0.0.2 n2/b/r zones=b unready"},
		want:      map[string]string{"n1/a/r": "1", "n2/b/r": "1"},
	},
	{
		says:      "which holds where those that are not ready are published, too",
		knobs:     "publish=all",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a", "10.0.0.2 n2/b/r zones=b unready", "10.0.0.3 n3/a/r zones=a dead"},
		want:      map[string]string{"n1/a/r": "1 3", "n2/b/r": "1 2 3"},
	},
	{
		says:      "falling back to endpoints that terminate regards no topology",
		knobs:     "fallback=serving",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a closing", "10.0.0.2 n2/b/r zones=b closing", "10.0.0.3 n3/a/r zones=a unready"},
		want:      map[string]string{"n1/a/r": "1 2", "n2/b/r": "1 2"},
	},
	{
		says:      "nor does the fallback to all",
		knobs:     "fallback=all",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a closing", "10.0.0.2 n2/b/r zones=b dead"},
		want:      map[string]string{"n1/a/r": "1 2", "n2/b/r": "1 2"},
	},
	{
		says:      "no fallback while one is ready anywhere",
		knobs:     "fallback=serving",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a closing", "10.0.0.2 n2/b/r zones=b"},
		want:      map[string]string{"n1/a/r": "2", "n2/b/r": "2"},
	},
	{
		says:      "PreferSameNode: hints for the node come before those for the zone",
		knobs:     "trafficDistribution=PreferSameNode",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a nodes=n1", "10.0.0.2 n2/a/r zones=a nodes=n2", "10.0.0.3 n3/b/r zones=b nodes=n3"},
		want:      map[string]string{"n1/a/r": "1", "n2/a/r": "2", "n3/b/r": "3"},
	},
	{
		says:      "a node without endpoint of its own takes its zone's",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a nodes=n1", "10.0.0.2 n2/a/r zones=a nodes=n2", "10.0.0.3 n3/b/r zones=b nodes=n3"},
		want:      map[string]string{"n9/a/r": "1 2", "-/a/r": "1 2", "n9/b/r": "3", "n9/c/r": "1 2 3"},
	},
	{
		says:      "hints for nodes count only if every ready endpoint has one: else those for zones",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a nodes=n1", "10.0.0.2 n2/a/r zones=a", "10.0.0.3 n3/b/r zones=b nodes=n3"},
		want:      map[string]string{"n1/a/r": "1 2", "n3/b/r": "3"},
	},
	{
		says:      "hints for nodes count where those for zones are not complete",
		endpoints: []string{"10.0.0.1 n1/a/r nodes=n1", "10.0.0.2 n2/a/r zones=a nodes=n2"},
		want:      map[string]string{"n1/a/r": "1", "n2/a/r": "2", "n9/a/r": "1 2"},
	},
	{
		says:      "a node whose endpoint is not ready takes its zone's",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a nodes=n1 unready", "10.0.0.2 n2/a/r zones=a nodes=n2", "10.0.0.3 n3/b/r zones=b nodes=n3"},
		want:      map[string]string{"n1/a/r": "2", "n2/a/r": "2"},
	},
	{
		says:      "several nodes, and the zone where the asker's node is not known",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a nodes=n1,n2", "10.0.0.2 n2/a/r zones=a nodes=n2"},
		want:      map[string]string{"n1/a/r": "1", "n2/a/r": "1 2", "-/a/r": "1 2"},
	},
	{
		says:      "hints and not zones decide: an endpoint in the zone that is meant for another is left out",
		endpoints: []string{"10.0.0.1 n1/a/r zones=b", "10.0.0.2 n2/b/r zones=a"},
		want:      map[string]string{"n1/a/r": "2", "n2/b/r": "1"},
	},
	{
		says:      "an endpoint in two slices is ready if it is in one",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a", "10.0.0.2 n2/b/r zones=b unready", "10.0.0.2 n2/b/r zones=b slice=2"},
		want:      map[string]string{"n1/a/r": "1", "n2/b/r": "2"},
	},
	{
		says:      "an endpoint of weight 0 is an endpoint: without a hint of its own hints are ignored",
		knobs:     "weights=10-0-0-2=0",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a", "10.0.0.2 n2/b/r", "10.0.0.3 n3/b/r zones=b"},
		want:      map[string]string{"n1/a/r": "1 3"},
	},
	{
		says:      "nothing is meant for the zone but what has weight 0: all",
		knobs:     "weights=10-0-0-2=0",
		endpoints: []string{"10.0.0.1 n1/a/r zones=a", "10.0.0.2 n2/b/r zones=b", "10.0.0.3 n3/c/r zones=c"},
		want:      map[string]string{"n2/b/r": "1 3", "n1/a/r": "1"},
	},
}

func TestHints(t *testing.T) {
	for _, c := range hintCases {
		t.Run(c.says, func(t *testing.T) {
			knobs := strings.Trim("topology=hints; "+c.knobs, "; ")
			if strings.Contains(c.knobs, "trafficDistribution") {
				knobs = c.knobs // which asks for them by itself
			}
			k := asks(t, served(t, serving(t, knobs, c.endpoints...)))
			for at, want := range c.want {
				if got := short(k.at(at, web, dns.TypeA)); got != want {
					t.Errorf("at %q: %s, want %s", at, got, want)
				}
				for _, name := range []string{web, "_http._tcp." + web} {
					if got := short(k.at(at, name, dns.TypeSRV)); got != want {
						t.Errorf("at %q: SRV of %s: %s, want %s", at, name, got, want)
					}
				}
			}
		})
	}
}

// The families are judged each for itself, and SRV records, which lead to both, together.
func TestHintsOfFamilies(t *testing.T) {
	k := asks(t, served(t, serving(t, "topology=hints",
		"10.0.0.1 n1/a/r zones=a", "10.0.0.2 n2/b/r zones=b",
		"fd00::1 n1/a/r zones=a slice=2", "fd00::2 n2/b/r slice=2")))
	if got := short(k.at("n1/a/r", web, dns.TypeA)); got != "1" {
		t.Errorf("A: %s", got)
	}
	if got := short(k.at("n1/a/r", web, dns.TypeAAAA)); got != "1 2" {
		t.Errorf("AAAA: %s", got)
	}
	if got := tiers(k.at("n1/a/r", web, dns.TypeSRV)); got != "0: 1 1 | 2: 2 2" {
		t.Errorf("SRV: %s", got)
	}
}

// Else all is near first; auto follows the field or the slices; SRV has members alone.
func TestHintsAndTiers(t *testing.T) {
	without := []string{"10.0.0.1 n1/a/r", "10.0.0.2 n2/a/r", "10.0.0.3 n3/b/r", "10.0.0.4 n4/c/s"}
	with := []string{"10.0.0.1 n1/a/r zones=a", "10.0.0.2 n2/a/r zones=a", "10.0.0.3 n3/b/r zones=b,a", "10.0.0.4 n4/c/s zones=c"}
	for _, c := range []struct {
		knobs     string
		endpoints []string
		at, want  string
	}{
		{"topology=hints", without, "n1/a/r", "0: 1 | 1: 2 | 2: 3 | 3: 4"},
		{"", without, "n1/a/r", "0: 1 | 1: 2 | 2: 3 | 3: 4"},
		{"", with, "n1/a/r", "0: 1 | 1: 2 | 2: 3"},
		{"trafficDistribution=PreferClose", with, "n3/b/r", "0: 3"},
		{"trafficDistribution=SomethingNew", with, "n3/b/r", "0: 3"},
		{"topology=order", with, "n3/b/r", "0: 3 | 2: 1 2 | 3: 4"},
		{"topology=off; trafficDistribution=PreferClose", with, "n3/b/r", "0: 1 2 3 4"},
		{"topology=hints", with, "n9/d/s", "2: 4 | 3: 1 2 3"},
		{"topology=hints", with, "", "0: 1 2 3 4"},
		{"topology=hints; limit=2", with, "n1/a/r", "0: 1 | 1: 2"},
	} {
		t.Run(c.knobs+" at "+c.at, func(t *testing.T) {
			k := asks(t, served(t, serving(t, c.knobs, c.endpoints...)))
			if got := tiers(k.at(c.at, web, dns.TypeSRV)); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			// A has the same endpoints in the same tiers.
			at := 0
			got := texts(k.at(c.at, web, dns.TypeA))
			for group := range strings.SplitSeq(c.want, " | ") {
				n := len(strings.Fields(group)) - 1
				if n > len(got)-at {
					t.Fatalf("A has %v, want %s", got, c.want)
				}
				part := slices.Sorted(slices.Values(got[at : at+n]))
				for i := range part {
					part[i] = part[i][7:]
				}
				if text := strings.Join(part, " "); !strings.HasSuffix(group, ": "+text) {
					t.Errorf("A has %v, want %s", got, c.want)
				}
				at += n
			}
			if at != len(got) {
				t.Errorf("A has %v, want %s", got, c.want)
			}
		})
	}
}

// proxyRule is kube-proxy's rule, told once more and straight on: who among the ready
// endpoints is used on a node in a zone.
func proxyRule(endpoints []registry.Endpoint, node, zone string) (used []string) {
	mode := ""
	allNodes, allZones, forNode, forZone := true, true, false, false
	for _, e := range endpoints {
		if !e.Ready {
			continue
		}
		allNodes = allNodes && len(e.Hints.Nodes()) > 0
		allZones = allZones && len(e.Hints.Zones()) > 0
		forNode = forNode || slices.Contains(e.Hints.Nodes(), node)
		forZone = forZone || slices.Contains(e.Hints.Zones(), zone)
	}
	if allNodes && forNode {
		mode = "node"
	} else if allZones && forZone {
		mode = "zone"
	}
	for _, e := range endpoints {
		if e.Ready && (mode == "" || mode == "node" && slices.Contains(e.Hints.Nodes(), node) || mode == "zone" && slices.Contains(e.Hints.Zones(), zone)) {
			used = append(used, e.Addr.String())
		}
	}
	slices.Sort(used)
	return used
}

// Against the rule, with whatever hints there may be.
func TestHintsAreKubeProxys(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	some := func(of string, n int) string {
		var out []string
		for i := range n {
			if r.IntN(3) > 0 {
				out = append(out, of[:1]+strconv.Itoa(i))
			}
		}
		return strings.Join(out, ",")
	}
	for round := range 1500 {
		var endpoints []string
		complete := r.IntN(3)
		for i := range 1 + r.IntN(6) {
			text := fmt.Sprintf("10.0.0.%d n%d/z%d/r", i+1, r.IntN(4), r.IntN(3))
			if h := some("z", 3); h != "" && (complete > 0 || r.IntN(3) > 0) {
				text += " zones=" + h
			}
			if h := some("n", 4); h != "" && (complete > 1 || r.IntN(3) > 0) {
				text += " nodes=" + h
			}
			text += []string{"", "", "", " unready", " closing", " dead"}[r.IntN(6)]
			endpoints = append(endpoints, text)
		}
		svc := serving(t, "topology=hints", endpoints...)
		k := asks(t, served(t, svc))
		for n := range 5 {
			for z := range 4 {
				want := proxyRule(svc.Slices[0].Endpoints.List(), "n"+strconv.Itoa(n), "z"+strconv.Itoa(z))
				got := texts(k.at(fmt.Sprintf("n%d/z%d/r", n, z), web, dns.TypeA))
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Fatalf("round %d: on n%d in z%d: %v, want %v of\n%s", round, n, z, got, want, strings.Join(endpoints, "\n"))
				}
			}
		}
	}
}
