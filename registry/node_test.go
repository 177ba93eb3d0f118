package registry

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func node(name, zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "1", Labels: map[string]string{
		corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: "coast",
	}}}
}

// An endpoint without a zone has that of its Node, whichever is known first, and
// followers hear when it changes.
func TestZoneOfNode(t *testing.T) {
	s := NewStore(quiet)
	slices_, nodes := s.Slices(""), s.Nodes()
	f := s.Follow("shop", "web")
	o := slice("a", "1", "web", "10.0.0.1", "10.0.0.2", "10.0.0.3")
	o.Endpoints[0].NodeName = ptr("n1")
	o.Endpoints[1].NodeName, o.Endpoints[1].Zone = ptr("n1"), ptr("own")
	zones := func() (out []string) {
		t.Helper()
		for _, m := range s.Snapshot("shop", "web").Members() {
			out = append(out, m.Zone)
		}
		return out
	}
	for _, step := range []struct {
		what string
		do   func()
		want []string
		told bool
	}{
		{"no Node yet", func() { slices_.Replace([]*discoveryv1.EndpointSlice{o.DeepCopy()}) }, []string{"", "own", ""}, true},
		{"a Node comes", func() { nodes.Replace([]*corev1.Node{node("n1", "zone-a"), node("n2", "zone-b")}) }, []string{"zone-a", "own", ""}, true},
		{"its heartbeat", func() { nodes.Put(node("n1", "zone-a")) }, []string{"zone-a", "own", ""}, false},
		{"the slice again", func() { slices_.Put(o.DeepCopy()) }, []string{"zone-a", "own", ""}, false},
		{"the Node moves", func() { nodes.Put(node("n1", "zone-c")) }, []string{"zone-c", "own", ""}, true},
		{"another one goes", func() { nodes.Delete(node("n2", "zone-b")) }, []string{"zone-c", "own", ""}, false},
		{"it is not listed any more", func() { nodes.Replace(nil) }, []string{"", "own", ""}, true},
	} {
		f.Take()
		before := s.Snapshot("shop", "web")
		step.do()
		if got := zones(); !slices.Equal(got, step.want) {
			t.Errorf("%s: zones %q, want %q", step.what, got, step.want)
		}
		if told := len(f.Take()) > 0; told != step.told || (s.Snapshot("shop", "web") != before) != step.told {
			t.Errorf("%s: told is %v", step.what, told)
		}
	}
	if n := s.Stats().Nodes; n != 0 {
		t.Errorf("%d Nodes are left", n)
	}
}

func TestTranslateNode(t *testing.T) {
	o := node("n1", "zone-a")
	o.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::1"},
		{Type: corev1.NodeExternalIP, Address: "198.51.100.1"}, {Type: corev1.NodeInternalIP, Address: "host"},
		{Type: corev1.NodeInternalIP, Address: "fe80::1%eth0"},
	}
	o.Spec.PodCIDRs = []string{"10.244.1.0/24", "fd00:10::/64", "x", "::ffff:10.0.0.0/104"}
	o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n, problems := translateNode(o)
	if !slices.Equal(n.Addresses, []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}) ||
		!slices.Equal(n.PodCIDRs, []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10::/64")}) ||
		n.Zone != "zone-a" || n.Region != "coast" || !n.Ready || len(problems) != 4 {
		t.Errorf("%+v %q", n, problems)
	}
}

// Whoever follows everything hears when a Node is another than before, and not of
// its heartbeats.
func TestTakeNodes(t *testing.T) {
	s := NewStore(quiet)
	nodes := s.Nodes()
	nodes.Replace([]*corev1.Node{node("n2", "zone-b"), node("n1", "zone-a")})
	f := s.FollowAll()
	names := func() (out []string) {
		list, changed := f.TakeNodes()
		if !changed {
			return []string{"unchanged"}
		}
		for _, n := range list {
			out = append(out, n.Name+"/"+n.Zone)
		}
		return out
	}
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"at first", func() {}, []string{"n1/zone-a", "n2/zone-b"}},
		{"nothing", func() {}, []string{"unchanged"}},
		{"a heartbeat", func() { nodes.Put(node("n1", "zone-a")) }, []string{"unchanged"}},
		{"one moves", func() { nodes.Put(node("n1", "zone-c")) }, []string{"n1/zone-c", "n2/zone-b"}},
		{"one has an address", func() {
			o := node("n1", "zone-c")
			o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}
			nodes.Put(o)
		}, []string{"n1/zone-c", "n2/zone-b"}},
		{"one goes", func() { nodes.Delete(node("n2", "zone-b")) }, []string{"n1/zone-c"}},
		{"all go", func() { nodes.Off() }, nil},
	} {
		step.do()
		woken := false
		select {
		case <-f.Changed():
			woken = true
		default:
		}
		got := names()
		if !slices.Equal(got, step.want) {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
		if woken != !slices.Equal(got, []string{"unchanged"}) {
			t.Errorf("%s: woken is %v", step.what, woken)
		}
	}
}

func TestRegionOfNode(t *testing.T) {
	s := NewStore(quiet)
	slices_, nodes := s.Slices(""), s.Nodes()
	o := slice("a", "1", "web", "10.0.0.1")
	o.Endpoints[0].NodeName, o.Endpoints[0].Zone = ptr("n1"), ptr("own")
	slices_.Replace([]*discoveryv1.EndpointSlice{o})
	nodes.Replace([]*corev1.Node{node("n1", "zone-a")})
	if m := s.Snapshot("shop", "web").Members()[0]; m.Zone != "own" || m.Region != "coast" {
		t.Errorf("%+v", m)
	}
}

func TestTranslateHints(t *testing.T) {
	o := slice("a", "1", "web", "10.0.0.1", "10.0.0.2", "10.0.0.3")
	for i := range 2 {
		o.Endpoints[i].Hints = &discoveryv1.EndpointHints{
			ForZones: []discoveryv1.ForZone{{Name: "a"}, {Name: "b"}}, ForNodes: []discoveryv1.ForNode{{Name: "n.example"}},
		}
	}
	got, _ := translateSlice(o)
	hints := func(i int) Hints { return got.Endpoints.At(i).Hints }
	h := hints(0)
	if !slices.Equal(h.Zones(), []string{"a", "b"}) || !slices.Equal(h.Nodes(), []string{"n.example"}) {
		t.Errorf("%q %q", h.Zones(), h.Nodes())
	}
	if h != hints(1) || h == hints(2) || hints(2).Zones() != nil {
		t.Error("equal hints are not equal, or others are")
	}
}

// Labels and those annotations that are meant for us are kept, and a change of either
// is a change of the Service.
func TestLabelsAndAnnotations(t *testing.T) {
	s := NewStore(quiet, AnnotationPrefix("dns.example"))
	services := s.Services("")
	o := service("web", "1")
	o.Labels = map[string]string{"tier": "front", "app": "web"}
	o.Annotations = map[string]string{"dns.example/ttl": "2s", "dns.exampleX/ttl": "3s", "registry.local/ttl": "4s"}
	o.Spec.TrafficDistribution = ptr("PreferSameZone")
	services.Replace([]*corev1.Service{o})
	before := s.Snapshot("shop", "web")
	got := before.Object
	if !slices.Equal(got.Labels, Pairs{{"app", "web"}, {"tier", "front"}}) || !slices.Equal(got.Annotations, Pairs{{"ttl", "2s"}}) ||
		got.TrafficDistribution != "PreferSameZone" || got.Labels.Get("tier") != "front" || got.Labels.Has("x") {
		t.Errorf("%+v", got)
	}
	services.Put(o.DeepCopy())
	if s.Snapshot("shop", "web") != before {
		t.Error("the same object is a change")
	}
	for _, change := range []func(){
		func() { o.Annotations["dns.example/ttl"] = "5s" },
		func() { o.Labels["tier"] = "back" },
		func() { o.Spec.TrafficDistribution = nil },
	} {
		before = s.Snapshot("shop", "web")
		change()
		services.Put(o.DeepCopy())
		if s.Snapshot("shop", "web") == before {
			t.Error("a change is none")
		}
	}
}
