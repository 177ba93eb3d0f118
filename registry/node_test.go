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
	}
	o.Spec.PodCIDRs = []string{"10.244.1.0/24", "fd00:10::/64", "x"}
	o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n, problems := translateNode(o)
	if !slices.Equal(n.Addresses, []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}) ||
		!slices.Equal(n.PodCIDRs, []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:10::/64")}) ||
		n.Zone != "zone-a" || n.Region != "coast" || !n.Ready || len(problems) != 2 {
		t.Errorf("%+v %q", n, problems)
	}
}
