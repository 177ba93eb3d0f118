package registry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// shown is all that a store shows, in order.
func shown(s *Store) string {
	var lines []string
	for e := range s.all("") {
		svc := e.now.Load()
		if svc == nil {
			continue
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%v exists=%t", svc.Key, svc.Exists)
		if svc.Object != nil {
			fmt.Fprintf(&b, " object %+v", *svc.Object)
		}
		for _, sl := range svc.Slices {
			fmt.Fprintf(&b, "\n  slice %v %s %s created %d ports %v", sl.Key(), sl.Name, sl.UID, sl.Created, sl.Ports)
			for _, e := range sl.Endpoints.All() {
				zones, nodes := e.Hints.Zones(), e.Hints.Nodes()
				e.Hints = Hints{}
				fmt.Fprintf(&b, "\n    %+v for %q %q", e, zones, nodes)
			}
		}
		lines = append(lines, b.String())
	}
	slices.Sort(lines)
	for _, n := range s.AllNodes() {
		lines = append(lines, fmt.Sprintf("node %+v", *n))
	}
	return strings.Join(lines, "\n")
}

// randomStore is one that has read a small random cluster.
func randomStore(r *rand.Rand) *Store {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	s := NewStore(quiet)
	services, slices, nodes := s.Services(""), s.Slices(""), s.Nodes()
	var nn []*corev1.Node
	for i := range r.IntN(4) {
		n := node(fmt.Sprint("node-", i), pick("", "zone-a", "zone-b"))
		n.UID = types.UID(fmt.Sprint(i))
		n.Labels[corev1.LabelTopologyRegion] = pick("", "coast")
		n.Spec.PodCIDRs = []string{fmt.Sprintf("10.%d.0.0/16", i), fmt.Sprintf("2001:db8:%d::/64", i)}[:r.IntN(3)]
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprint("192.0.2.", i)}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionStatus(pick("True", "False"))}}
		nn = append(nn, n)
	}
	nodes.Replace(nn)
	var svcs []*corev1.Service
	var list []*discoveryv1.EndpointSlice
	for i := range r.IntN(6) {
		meta := metav1.ObjectMeta{Namespace: pick("shop", "data"), Name: fmt.Sprint("s", i), UID: types.UID(fmt.Sprint("uid-", i)),
			Labels:      map[string]string{"app": pick("a", "b"), "tier": pick("", "front")},
			Annotations: map[string]string{DefaultAnnotationPrefix + "/ttl": pick("2s", ""), "else": "x"},
		}
		o := &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: pick("", "http"), Port: 80}}}}
		switch r.IntN(4) {
		case 0:
			o.Spec.Type, o.Spec.ExternalName = corev1.ServiceTypeExternalName, pick("Example.com.", "no name", "a_b.example")
		case 1:
			o.Spec.ClusterIP, o.Spec.TrafficDistribution = corev1.ClusterIPNone, ptr("PreferClose")
		}
		if r.IntN(4) > 0 {
			svcs = append(svcs, o)
		}
		for j := range r.IntN(4) {
			family := pick("IPv4", "IPv6")
			sl := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressType(family), ObjectMeta: metav1.ObjectMeta{
				Namespace: meta.Namespace, Name: fmt.Sprintf("s%d-%d", i, j), UID: types.UID(fmt.Sprint(i, j)),
				Labels: map[string]string{discoveryv1.LabelServiceName: meta.Name},
			}}
			if r.IntN(2) == 0 {
				sl.CreationTimestamp = metav1.Unix(int64(r.IntN(1<<31)), 0)
			}
			for range r.IntN(3) {
				sl.Ports = append(sl.Ports, discoveryv1.EndpointPort{Name: ptr(pick("", "http", "dns")), Protocol: ptr(corev1.Protocol(pick("TCP", "UDP", "SCTP")))})
			}
			for range r.IntN(5) {
				e := discoveryv1.Endpoint{Addresses: []string{fmt.Sprint("10.0.0.", r.IntN(256))}}
				if family == "IPv6" {
					e.Addresses[0] = fmt.Sprintf("2001:db8::%x", r.IntN(1<<16))
				}
				e.Conditions = discoveryv1.EndpointConditions{Ready: ptr(r.IntN(2) == 0), Serving: ptr(r.IntN(2) == 0), Terminating: ptr(r.IntN(2) == 0)}
				if p := pick("", "p0", "a.pod"); p != "" {
					e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: p}
				}
				e.Hostname = ptr(pick("", "p0", "host"))
				e.NodeName, e.Zone = ptr(pick("", "node-0", "node-1", "elsewhere")), ptr(pick("", "zone-c"))
				if r.IntN(3) == 0 {
					e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: pick("zone-a", "zone-b", "")}}}
				}
				sl.Endpoints = append(sl.Endpoints, e)
			}
			list = append(list, sl)
		}
	}
	slices.Replace(list)
	if r.IntN(3) > 0 {
		services.Replace(svcs)
	} else {
		services.Off()
	}
	return s
}

func dump(t testing.TB, s *Store) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := s.Dump(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func restore(s *Store, octets []byte) error {
	d, err := ReadDump(bytes.NewReader(octets))
	if err == nil {
		s.Restore(d)
	}
	return err
}

// What one store writes, another one shows, and writes again.
func TestDumpIsRestored(t *testing.T) {
	services, endpoints := 0, 0
	for seed := range uint64(300) {
		from := randomStore(rand.New(rand.NewPCG(seed, 0)))
		want := shown(from)
		octets := dump(t, from)
		for range 2 {
			to := NewStore(quiet)
			to.Slices("")
			if err := restore(to, octets); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if got := shown(to); got != want {
				t.Fatalf("seed %d: restored is\n%s\nof\n%s", seed, got, want)
			}
			stats := to.Stats()
			services, endpoints = services+int(stats.Services), endpoints+int(stats.Endpoints)
			if f := to.FollowAll(); len(f.Take()) != int(stats.Services) {
				t.Errorf("seed %d: not all Services are told of", seed)
			}
			octets = dump(t, to)
		}
	}
	if services < 500 || endpoints < 500 {
		t.Errorf("there were %d Services with %d endpoints in all", services, endpoints)
	}
}

// One odd object must not make unreadable what is written of all others: whatever of it is
// kept can be written and read.
func TestOddObjectsAreRestored(t *testing.T) {
	texts := []string{"", " ", "a", "A", "a.b", "-", "\x00", "\xff", "é", "\u212a", "a b", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("x", 300)}
	addresses := []string{"", "10.0.0.1", "10.0.0.2", "2001:db8::1", "010.0.0.1", "::", "::1", "::ffff:10.0.0.1", "::10.0.0.1", "fe80::1%eth0", "::ffff:10.0.0.1%eth0", "10.0.0.1/32", "host"}
	prefixes := []string{"", "0.0.0.0/0", "::/0", "10.0.0.1/8", "10.0.0.1", "10.0.0.0/33", "::ffff:10.0.0.0/104", "::ffff:10.0.0.0/90", "::ffff:0:0/96", "::ffff:10.0.0.0/0", "fe80::%eth0/64", "2001:db8::1/128"}
	times := []int64{0, 1, -1, 1 << 31, 253402300799, 1 << 40, -1 << 40, 1<<63 - 1, -1 << 63}
	kept := 0
	for seed := range uint64(1000) {
		r := rand.New(rand.NewPCG(seed, 4))
		odd := func() string { return texts[r.IntN(len(texts))] }
		usual := func(text string) string { // most often
			if r.IntN(6) == 0 {
				return odd()
			}
			return text
		}
		s := NewStore(quiet)
		n := node(odd(), odd())
		n.UID = types.UID(odd())
		n.Spec.PodCIDR, n.Spec.PodCIDRs = prefixes[r.IntN(len(prefixes))], []string{prefixes[r.IntN(len(prefixes))], prefixes[r.IntN(len(prefixes))]}[:r.IntN(3)]
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addresses[r.IntN(len(addresses))]}}
		s.Nodes().Replace([]*corev1.Node{n})

		o := service(usual("web"), odd())
		o.Namespace = usual("shop")
		o.Labels, o.Annotations = map[string]string{odd(): odd(), odd(): odd()}, map[string]string{DefaultAnnotationPrefix + "/" + odd(): odd()}
		o.Spec.Type, o.Spec.ExternalName = corev1.ServiceType(usual("ExternalName")), usual("a_b.example.")
		o.Spec.TrafficDistribution = ptr(odd())
		o.Spec.Ports = []corev1.ServicePort{{Name: odd(), Protocol: corev1.Protocol(usual("SCTP")), Port: int32(r.IntN(1<<18) - 1<<16)}}
		if f := s.Services(""); r.IntN(2) == 0 {
			f.Replace([]*corev1.Service{o})
		} else {
			f.Off()
		}

		var list []*discoveryv1.EndpointSlice
		for range 3 {
			sl := slice(odd(), odd(), usual("web"))
			sl.Namespace, sl.AddressType = usual("shop"), discoveryv1.AddressType([]string{"IPv4", "IPv4", "IPv6", "IPv6", "FQDN", ""}[r.IntN(6)])
			sl.CreationTimestamp = metav1.Unix(times[r.IntN(len(times))], 0)
			sl.Ports = []discoveryv1.EndpointPort{{Name: ptr(odd()), Protocol: ptr(corev1.Protocol(usual("UDP"))), Port: ptr(int32(r.IntN(1<<18) - 1<<16))}, {}}
			for range r.IntN(4) {
				sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{addresses[r.IntN(len(addresses))], "x"}[:r.IntN(3)], Hostname: ptr(odd()), NodeName: ptr(odd()), Zone: ptr(odd()),
					TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: odd()},
					Hints:     &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: odd()}, {Name: odd()}}[:r.IntN(3)], ForNodes: []discoveryv1.ForNode{{Name: odd()}}[:r.IntN(2)]},
				})
			}
			list = append(list, sl)
		}
		s.Slices("").Replace(list)

		to := NewStore(quiet)
		if err := restore(to, dump(t, s)); err != nil {
			t.Fatalf("seed %d: %v; it shows\n%s", seed, err, shown(s))
		}
		if got, want := shown(to), shown(s); got != want {
			t.Fatalf("seed %d: restored is\n%s\nof\n%s", seed, got, want)
		}
		kept += int(to.Stats().Endpoints)
	}
	if kept < 100 {
		t.Errorf("only %d endpoints were kept in all", kept)
	}
}

// Until the last feed is synced, what was restored is shown whole, and then what the feeds
// have told, in one step.
func TestRestoredUntilAllIsRead(t *testing.T) {
	before := NewStore(quiet)
	before.Nodes().Replace([]*corev1.Node{node("n", "zone-a")})
	before.Services("").Replace([]*corev1.Service{service("web", "1"), service("same", "2"), service("gone", "3")})
	before.Slices("").Replace([]*discoveryv1.EndpointSlice{
		slice("web-1", "1", "web", "10.0.0.1"), slice("same-1", "2", "same", "10.0.0.7", "10.0.0.8!"), slice("gone-1", "3", "gone", "10.0.0.9")})
	octets := dump(t, before)

	// The truth: web has moved, gone is no more, late is new.
	truth := []*discoveryv1.EndpointSlice{
		slice("web-1", "1", "web", "10.0.0.2"), slice("same-1", "2", "same", "10.0.0.7", "10.0.0.8!"), slice("late-1", "4", "late", "10.0.0.4")}
	objects := []*corev1.Service{service("web", "1"), service("same", "2"), service("late", "4")}
	type feeds struct {
		all, shop, other SliceFeed
		services         ServiceFeed
		nodes            NodeFeed
	}
	for _, c := range []struct {
		what  string
		open  func(s *Store) feeds
		steps []func(f feeds) // after the last one, all is synced
		late  string
		nodes int
	}{
		{"slices, Services, Nodes", func(s *Store) feeds { return feeds{all: s.Slices(""), services: s.Services(""), nodes: s.Nodes()} },
			[]func(f feeds){
				func(f feeds) { f.all.Replace(truth) },
				func(f feeds) { f.services.Replace(objects) },
				func(f feeds) { f.nodes.Replace(nil) },
			}, "10.0.0.4", 0},
		{"Nodes first, and changes in between", func(s *Store) feeds { return feeds{all: s.Slices(""), services: s.Services(""), nodes: s.Nodes()} },
			[]func(f feeds){
				func(f feeds) { f.nodes.Replace([]*corev1.Node{node("n", "zone-a")}) },
				func(f feeds) { f.services.Replace(objects[:1]) },
				func(f feeds) { f.services.Put(service("same", "2")) },
				func(f feeds) { f.services.Put(service("late", "4")) },
				func(f feeds) { f.services.Put(service("gone", "3")) },
				func(f feeds) { f.services.Delete(service("gone", "3")) },
				func(f feeds) { f.all.Replace(truth) },
			}, "10.0.0.4", 1},
		{"Services and Nodes are not to be had", func(s *Store) feeds { return feeds{all: s.Slices(""), services: s.Services(""), nodes: s.Nodes()} },
			[]func(f feeds){
				func(f feeds) { f.services.Off() },
				func(f feeds) { f.nodes.Off() },
				func(f feeds) { f.all.Replace(truth) },
			}, "10.0.0.4", 0},
		{"namespaces, one after the other", func(s *Store) feeds {
			return feeds{shop: s.Slices("shop"), other: s.Slices("other"), services: s.Services("shop"), nodes: s.Nodes()}
		}, []func(f feeds){
			func(f feeds) { f.other.Replace(nil) },
			func(f feeds) { f.shop.Replace(truth) },
			func(f feeds) { f.nodes.Off() },
			func(f feeds) { f.services.Replace(objects) },
		}, "10.0.0.4", 0},
		{"a namespace less", func(s *Store) feeds { return feeds{other: s.Slices("other")} },
			[]func(f feeds){func(f feeds) { f.other.Replace(nil) }}, "-", 0},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := NewStore(quiet)
			follower := s.FollowAll()
			if err := restore(s, octets); err != nil {
				t.Fatal(err)
			}
			f := c.open(s)
			restored := shown(s)
			same := s.Snapshot("shop", "same")
			if got := len(follower.Take()); got != 3 {
				t.Errorf("%d Services are told of", got)
			}
			if nodes, changed := follower.TakeNodes(); !changed || len(nodes) != 1 {
				t.Errorf("Nodes are %v, told %t", nodes, changed)
			}
			for i, step := range c.steps {
				if got := shown(s); got != restored || !s.Restored() {
					t.Fatalf("after %d steps (restored: %t) it shows\n%s\nin place of\n%s", i, s.Restored(), got, restored)
				}
				select {
				case <-s.Synced():
					t.Fatalf("synced after %d steps", i)
				case <-follower.Changed():
					t.Fatalf("told of a change after %d steps", i)
				default:
				}
				if stats := s.Stats(); stats.Services != 3 || stats.Slices != 3 || stats.Endpoints != 4 || stats.Ready != 3 || stats.Nodes != 1 || !stats.ServicesAreListed {
					t.Errorf("after %d steps: %+v", i, stats)
				}
				step(f)
			}
			<-s.Synced()
			if s.Restored() {
				t.Error("it is restored still")
			}
			want := map[string]string{"web": "10.0.0.2", "same": "10.0.0.7 10.0.0.8!", "late": c.late, "gone": "-"}
			told := 3 // who has changed
			if c.late == "-" {
				want["web"], want["same"] = "-", "-"
			}
			for name, want := range want {
				if got := show(s.Snapshot("shop", name)); got != want {
					t.Errorf("%s is %s, want %s", name, got, want)
				}
			}
			services, objects := 0, s.Stats().ServicesAreListed
			for e := range s.all("") {
				if e.now.Load() != nil {
					services++
				}
			}
			if stats := s.Stats(); int(stats.Services) != services || int(stats.Nodes) != c.nodes || len(s.AllNodes()) != c.nodes {
				t.Errorf("%+v of %d Services and %d Nodes", stats, services, len(s.AllNodes()))
			}
			kept := s.Snapshot("shop", "same") == same
			if kept != objects && c.late != "-" {
				t.Errorf("a Service that has not changed is the same: %t", kept)
			}
			if !kept {
				told = 4
			}
			if c.late == "-" {
				told = 3
			}
			<-follower.Changed()
			if got := len(follower.Take()); got != told {
				t.Errorf("%d Services are told of, %d have changed", got, told)
			}
			if _, changed := follower.TakeNodes(); changed != (c.nodes != 1) {
				t.Errorf("other Nodes are told of: %t", changed)
			}
			if kept { // with the slices that its next change is to be compared with
				f := s.Slices("")
				f.Put(slice("same-1", "2", "same", "10.0.0.7", "10.0.0.8!"))
				if s.Snapshot("shop", "same") != same {
					t.Error("the same again is a change")
				}
				f.Put(slice("same-1", "2", "same", "10.0.0.7"))
				if got := show(s.Snapshot("shop", "same")); got != "10.0.0.7" || show(same) != "10.0.0.7 10.0.0.8!" {
					t.Errorf("changed it is %s, and was %s", got, show(same))
				}
			}
		})
	}
}

// A store that has nothing more to tell than what was restored changes nothing.
func TestRestoredIsWhatIsRead(t *testing.T) {
	for seed := range uint64(100) {
		from := randomStore(rand.New(rand.NewPCG(seed, 1)))
		to := NewStore(quiet)
		services, sliceFeed, nodes := to.Services(""), to.Slices(""), to.Nodes()
		follower := to.FollowAll()
		if err := restore(to, dump(t, from)); err != nil {
			t.Fatal(err)
		}
		follower.Take()
		follower.TakeNodes()
		again := func(kind string) {
			switch kind {
			case "nodes":
				var list []*Digest
				for _, n := range from.AllNodes() {
					c := *n
					list = append(list, &Digest{name: n.Name, of: &c})
				}
				nodes.ReplaceDigests(list)
			case "services":
				var list []*Digest
				for e := range from.all("") {
					if e.object != nil {
						c := *e.object
						list = append(list, &Digest{namespace: e.key.Namespace, name: e.key.Name, of: &c})
					}
				}
				if from.listed("shop") {
					services.ReplaceDigests(list)
				} else {
					services.Off()
				}
			case "slices":
				var list []*Digest
				for e := range from.all("") {
					for _, sl := range e.slices {
						c := *sl
						c.Endpoints.list = slices.Clone(sl.Endpoints.list)
						list = append(list, &Digest{namespace: c.Namespace, name: c.Name, of: &c})
					}
				}
				sliceFeed.ReplaceDigests(list)
			}
		}
		kinds := []string{"nodes", "services", "slices"}
		rand.New(rand.NewPCG(seed, 2)).Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		for _, k := range kinds {
			again(k)
		}
		<-to.Synced()
		if got := follower.Take(); len(got) > 0 {
			t.Errorf("seed %d, %v: %v has changed", seed, kinds, got[0].Key)
		}
		if _, changed := follower.TakeNodes(); changed {
			t.Errorf("seed %d, %v: Nodes have changed", seed, kinds)
		}
		if got, want := shown(to), shown(from); got != want {
			t.Errorf("seed %d: it shows\n%s\nof\n%s", seed, got, want)
		}
	}
}

// rules checks what holds for each snapshot that a source has made.
func rules(t *testing.T, s *Store) {
	t.Helper()
	for e := range s.all("") {
		svc := e.now.Load()
		if svc == nil {
			continue
		}
		if !svc.Exists || !isLabel(svc.Namespace) || !isLabel(svc.Name) || svc.Object == nil && len(svc.Slices) == 0 {
			t.Errorf("there is %+v", svc)
		}
		for i, sl := range svc.Slices {
			if sl.Key() != svc.Key || i > 0 && svc.Slices[i-1].Name >= sl.Name {
				t.Errorf("%v has slice %v %q", svc.Key, sl.Key(), sl.Name)
			}
			for _, e := range sl.Endpoints.All() {
				if !e.Addr.IsValid() || e.Addr.Is4In6() || e.Hostname != "" && !isLabel(e.Hostname) {
					t.Errorf("%v has endpoint %+v", svc.Key, e)
				}
			}
		}
	}
}

// Octets that are not those of a dump give an error, or what could be one.
func TestDamagedDumps(t *testing.T) {
	octets := dump(t, randomStore(rand.New(rand.NewPCG(7, 7))))
	if len(octets) < 300 {
		t.Fatalf("a dump of %d octets is too short to tell", len(octets))
	}
	try := func(b []byte) error {
		s := NewStore(quiet)
		err := restore(s, b)
		rules(t, s)
		if err != nil && (shown(s) != "" || s.Restored() || s.Stats().Services != 0) {
			t.Errorf("with %v it shows %s", err, shown(s))
		}
		return err
	}
	for n := range octets {
		if err := try(octets[:n]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d octets: %v", n, err)
		}
	}
	if err := try(append(slices.Clone(octets), 0)); !errors.Is(err, errDump) {
		t.Errorf("one more: %v", err)
	}
	refused := 0
	for i := range octets {
		for _, flip := range []byte{1, 0x80, 0xff} {
			b := slices.Clone(octets)
			b[i] ^= flip
			if try(b) != nil {
				refused++
			}
		}
	}
	if refused < len(octets)/2 {
		t.Errorf("of %d damaged dumps, %d were refused", 3*len(octets), refused)
	}
	// A length is no reason to take memory.
	huge := []byte{0xff, 0xff, 0xff, 0xff, 0x7f}
	for _, b := range [][]byte{huge, append([]byte{1}, huge...), append([]byte{0, 1, 0, 1, 'a', 1, 'b', 0}, huge...)} {
		if allocated := testing.AllocsPerRun(1, func() { try(b) }); allocated > 200 {
			t.Errorf("% x: %v allocations", b, allocated)
		}
	}
}

// A Dump does not wait for changes, nor changes for it, and each Service in it is one that
// there was.
func TestDumpAmongChanges(t *testing.T) {
	s := NewStore(quiet)
	f := s.Slices("")
	f.Replace([]*discoveryv1.EndpointSlice{slice("web-1", "1", "web", "10.0.0.1", "10.0.0.1"), slice("still", "2", "still", "10.0.0.9")})
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			a := fmt.Sprint("10.0.0.", i%9)
			f.Put(slice("web-1", "1", "web", a, a))
			f.Put(slice(fmt.Sprint("more-", i%5), "3", "more", a))
			f.Delete(slice(fmt.Sprint("more-", (i+2)%5), "3", "more"))
		}
	}()
	for range 200 {
		to := NewStore(quiet)
		if err := restore(to, dump(t, s)); err != nil {
			t.Fatal(err)
		}
		web := strings.Fields(show(to.Snapshot("shop", "web")))
		if len(web) != 2 || web[0] != web[1] || show(to.Snapshot("shop", "still")) != "10.0.0.9" {
			t.Errorf("there are %q and %s", web, show(to.Snapshot("shop", "still")))
		}
	}
	close(stop)
	<-ended
}

// failing is a disk that is full after so many octets.
type failing int

func (f *failing) Write(b []byte) (int, error) {
	if *f -= failing(len(b)); *f < 0 {
		return 0, io.ErrShortWrite
	}
	return len(b), nil
}

func TestDumpFails(t *testing.T) {
	s := cluster{20, 10, 100}.store()
	size := len(dump(t, s))
	for _, room := range []int{0, dumpBuffer, size - 1} {
		f := failing(room)
		if err := s.Dump(&f); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("into %d of %d octets: %v", room, size, err)
		}
	}
}

func FuzzRestore(f *testing.F) {
	for seed := range uint64(10) {
		f.Add(dump(f, randomStore(rand.New(rand.NewPCG(seed, 3)))))
	}
	f.Fuzz(func(t *testing.T, octets []byte) {
		s := NewStore(quiet)
		if restore(s, octets) != nil {
			return
		}
		rules(t, s)
		again := NewStore(quiet)
		if err := restore(again, dump(t, s)); err != nil || shown(again) != shown(s) {
			t.Errorf("%v: restored again it is\n%s\nof\n%s", err, shown(again), shown(s))
		}
	})
}

func BenchmarkDump(b *testing.B) {
	for _, c := range []cluster{{10_000, 1, 10}, {1000, 1, 100}} {
		b.Run(c.String(), func(b *testing.B) {
			s := c.store()
			b.ReportAllocs()
			for b.Loop() {
				var n counting
				if err := s.Dump(&n); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(n)/1e6, "MB")
			}
		})
	}
}

type counting int

func (c *counting) Write(b []byte) (int, error) {
	*c += counting(len(b))
	return len(b), nil
}

func BenchmarkRestore(b *testing.B) {
	for _, c := range []cluster{{10_000, 1, 10}, {1000, 1, 100}} {
		b.Run(c.String(), func(b *testing.B) {
			octets := dump(b, c.store())
			b.ReportAllocs()
			for b.Loop() {
				s := NewStore(quiet)
				if err := restore(s, octets); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
