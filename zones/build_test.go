package zones

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"epdns/registry"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func testConfig() Config {
	kubernetes := DefaultZone("k8s.example")
	kubernetes.Layout, kubernetes.EndpointNames = Kubernetes, ByPod
	kubernetes.Rules = []Rule{
		{Namespace: "data", Set: Values{"topology": "nearest", "order": "fixed", "publish": "serving", "weights": "zone:b=0, web-0=3"}},
		{Selector: "tier=front", Set: Values{"limit": "2", "order": "hash", "fallback": "all"}},
	}
	return Config{
		Zones:   []Zone{DefaultZone("registry.local"), kubernetes},
		Reverse: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/12"), netip.MustParsePrefix("2001:db8::/33")},
	}
}

func newTestBuilder(t testing.TB) *Builder {
	t.Helper()
	b, err := NewBuilder(testConfig())
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// world is a random cluster: a few namespaces, Services, slices and Nodes with few
// enough names that events meet the same ones again and again.
type world struct {
	r        *rand.Rand
	slices   map[string]*discoveryv1.EndpointSlice
	services map[string]*corev1.Service
	nodes    map[string]*corev1.Node
	uid      int
	asked    int // questions that were compared
}

func newWorld(seed uint64) *world {
	return &world{
		r: rand.New(rand.NewPCG(seed, 1)), slices: map[string]*discoveryv1.EndpointSlice{},
		services: map[string]*corev1.Service{}, nodes: map[string]*corev1.Node{},
	}
}

// feeds are those of a store that a world tells.
type feeds struct {
	slices   registry.SliceFeed
	services registry.ServiceFeed
	nodes    registry.NodeFeed
}

func feedsOf(s *registry.Store) feeds { return feeds{s.Slices(""), s.Services(""), s.Nodes()} }

// worldNodes and worldZones are the nodes and zones that there may be.
var worldNodes, worldZones = []string{"n1", "n2", "n3", "n4"}, []string{"a", "b", "C"}

func pick[T any](w *world, of ...T) T { return of[w.r.IntN(len(of))] }

func maybe[T any](w *world, v T) *T {
	if w.r.IntN(4) == 0 {
		return nil
	}
	return &v
}

func (w *world) meta(namespace, name string) metav1.ObjectMeta {
	w.uid++
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(fmt.Sprint(w.uid))}
}

func (w *world) slice() *discoveryv1.EndpointSlice {
	ns, svc := pick(w, "shop", "data", "dns"), pick(w, "web", "db", "ns")
	o := &discoveryv1.EndpointSlice{ObjectMeta: w.meta(ns, pick(w, "s1", "s2", "s3", "s4", "s5", "s6", "s7"))}
	if w.r.IntN(8) > 0 {
		o.Labels = map[string]string{discoveryv1.LabelServiceName: svc}
	}
	o.CreationTimestamp = metav1.Unix(int64(w.r.IntN(3)), 0)
	hinted := w.r.IntN(2) == 0
	o.AddressType = pick(w, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6, discoveryv1.AddressTypeFQDN)
	for _, name := range []string{"http", "metrics", ""} {
		if w.r.IntN(2) == 0 {
			o.Ports = append(o.Ports, discoveryv1.EndpointPort{
				Name:     maybe(w, name),
				Protocol: maybe(w, pick(w, corev1.ProtocolTCP, corev1.ProtocolUDP)),
				Port:     maybe(w, int32(8080+w.r.IntN(3))),
			})
		}
	}
	for range w.r.IntN(9) {
		e := discoveryv1.Endpoint{
			Conditions: discoveryv1.EndpointConditions{
				Ready: maybe(w, w.r.IntN(3) > 0), Serving: maybe(w, w.r.IntN(2) > 0), Terminating: maybe(w, w.r.IntN(2) > 0),
			},
			Hostname: maybe(w, pick(w, "", "web-0", "web-1", "10-1-0-2", "Upper", "a.b")),
			NodeName: maybe(w, pick(w, worldNodes...)),
			Zone:     maybe(w, pick(w, worldZones...)),
		}
		if hinted && w.r.IntN(8) > 0 {
			e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: pick(w, worldZones...)}}}
			if w.r.IntN(2) == 0 {
				e.Hints.ForNodes = []discoveryv1.ForNode{{Name: pick(w, worldNodes...)}}
			}
		}
		switch o.AddressType {
		case discoveryv1.AddressTypeIPv4:
			e.Addresses = []string{fmt.Sprintf("10.%d.0.%d", w.r.IntN(20), w.r.IntN(6))}
		case discoveryv1.AddressTypeIPv6:
			e.Addresses = []string{fmt.Sprintf("2001:db8:%d::%d", w.r.IntN(2)*0x9000, w.r.IntN(6))}
		default:
			e.Addresses = []string{"host.example"}
		}
		if w.r.IntN(3) > 0 {
			e.TargetRef = &corev1.ObjectReference{Kind: pick(w, "Pod", "Pod", "Node"), Name: pick(w, "pod-a", "pod-b", "web-0", "pod.c")}
		}
		o.Endpoints = append(o.Endpoints, e)
	}
	return o
}

func (w *world) service() *corev1.Service {
	o := &corev1.Service{ObjectMeta: w.meta(pick(w, "shop", "data", "dns"), pick(w, "web", "db", "ns"))}
	if w.r.IntN(5) == 0 {
		o.Spec.Type = corev1.ServiceTypeExternalName
		o.Spec.ExternalName = pick(w, "web.shop.registry.local", "db.data.registry.local.", "example.com", "bad..name", "")
	}
	if w.r.IntN(3) == 0 {
		o.Spec.TrafficDistribution = maybe(w, "PreferClose")
	}
	o.Labels = map[string]string{"tier": pick(w, "front", "back")}
	o.Annotations = map[string]string{}
	for _, knob := range []struct {
		name   string
		values []string
	}{
		{"topology", []string{"order", "hints", "nearest", "off", "auto"}},
		{"order", []string{"shuffle", "hash", "fixed"}}, // not by rotate, which has a history
		{"limit", []string{"1", "3", "-1"}},
		{"min", []string{"2", "3"}},
		{"publish", []string{"serving", "all", "none"}},
		{"fallback", []string{"serving", "all"}},
		{"weights", []string{"zone:a=0", "node:n1=0, web-0=5, pod-a=7", "zone:a=0, zone:b=0, zone:c=0"}},
		{"ttl", []string{"1", "7s"}},
	} {
		if w.r.IntN(4) == 0 {
			o.Annotations["registry.local/"+knob.name] = pick(w, knob.values...)
		}
	}
	for _, name := range []string{"http", ""} {
		if w.r.IntN(2) == 0 {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: 80})
		}
	}
	return o
}

// node is one with the address and podCIDRs of any.
func (w *world) node() *corev1.Node {
	o := &corev1.Node{ObjectMeta: w.meta("", pick(w, worldNodes...))}
	o.Labels = map[string]string{}
	if z := maybe(w, pick(w, worldZones...)); z != nil {
		o.Labels[corev1.LabelTopologyZone] = *z
	}
	if r := maybe(w, pick(w, "coast", "hills")); r != nil {
		o.Labels[corev1.LabelTopologyRegion] = *r
	}
	o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.0.0.%d", w.r.IntN(8))}}
	for range w.r.IntN(3) {
		o.Spec.PodCIDRs = append(o.Spec.PodCIDRs, fmt.Sprintf("10.%d.0.0/%d", w.r.IntN(20), 11+w.r.IntN(6)))
	}
	if w.r.IntN(2) == 0 {
		o.Spec.PodCIDRs = append(o.Spec.PodCIDRs, "2001:db8::/33")
	}
	o.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: pick(w, corev1.ConditionTrue, corev1.ConditionFalse)}}
	return o
}

// step makes one random event and tells the feeds.
func (w *world) step(to feeds) {
	slicesFeed, servicesFeed := to.slices, to.services
	switch w.r.IntN(20) {
	case 0, 1, 2, 3:
		o := w.slice()
		w.slices[o.Namespace+"/"+o.Name] = o
		slicesFeed.Put(o.DeepCopy())
	case 4, 5:
		for _, k := range sortedKeys(w.slices) {
			o := w.slices[k]
			delete(w.slices, k)
			slicesFeed.Delete(o.DeepCopy())
			break
		}
	case 6: // a late event for an object that another has replaced since
		o := w.slice()
		slicesFeed.Delete(o)
	case 7, 8:
		o := w.service()
		w.services[o.Namespace+"/"+o.Name] = o
		servicesFeed.Put(o.DeepCopy())
	case 9:
		for _, k := range sortedKeys(w.services) {
			o := w.services[k]
			delete(w.services, k)
			servicesFeed.Delete(o.DeepCopy())
			break
		}
	case 10: // events were lost: the list tells
		for range 3 {
			if o := w.slice(); w.r.IntN(2) == 0 {
				w.slices[o.Namespace+"/"+o.Name] = o
			} else {
				delete(w.slices, o.Namespace+"/"+o.Name)
			}
		}
		slicesFeed.Replace(w.sliceList())
	case 11:
		o := w.service()
		w.services[o.Namespace+"/"+o.Name] = o
		servicesFeed.Replace(w.serviceList())
	case 12, 13:
		o := w.node()
		w.nodes[o.Name] = o
		to.nodes.Put(o.DeepCopy())
	case 14:
		for _, k := range sortedKeys(w.nodes) {
			o := w.nodes[k]
			delete(w.nodes, k)
			to.nodes.Delete(o.DeepCopy())
			break
		}
	case 15, 16, 17, 18: // more comes than goes
		o := w.slice()
		w.slices[o.Namespace+"/"+o.Name] = o
		to.slices.Put(o.DeepCopy())
	case 19:
		o := w.node()
		w.nodes[o.Name] = o
		to.nodes.Replace(w.nodeList())
	}
}

func (w *world) nodeList() (out []*corev1.Node) {
	for _, k := range sortedKeys(w.nodes) {
		out = append(out, w.nodes[k].DeepCopy())
	}
	return out
}

// take takes over what changed, as the program does.
func (b *Builder) take(f *registry.Follower, now time.Time) *Set {
	changed := f.Take()
	if nodes, ok := f.TakeNodes(); ok {
		b.SetNodes(nodes)
	}
	return b.Build(changed, now)
}

// checkAddresses checks that nothing is answered which no slice has at the moment.
func (w *world) checkAddresses(t *testing.T, s *Set) {
	t.Helper()
	there := map[netip.Addr]bool{}
	for _, o := range w.slices {
		for _, e := range o.Endpoints {
			if a, err := netip.ParseAddr(e.Addresses[0]); err == nil {
				there[a] = true
			}
		}
	}
	for _, services := range s.services {
		for _, svc := range services.all {
			for addr := range svc.addrs() {
				if !there[addr] {
					t.Fatalf("%s has %v, which no slice has", nameText(svc.suffix), addr)
				}
			}
		}
	}
	for addr := range s.index.all {
		if !there[addr] {
			t.Fatalf("the reverse index has %v, which no slice has", addr)
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (w *world) sliceList() (out []*discoveryv1.EndpointSlice) {
	for _, k := range sortedKeys(w.slices) {
		out = append(out, w.slices[k].DeepCopy())
	}
	return out
}

func (w *world) serviceList() (out []*corev1.Service) {
	for _, k := range sortedKeys(w.services) {
		out = append(out, w.services[k].DeepCopy())
	}
	return out
}

var someTime = time.Unix(1_800_000_000, 0)

// dump is all that a Set serves, as bytes: each zone's transfer, sorted, and the
// namespaces and reverse names that only show in negative answers.
func dump(t *testing.T, s *Set) string {
	t.Helper()
	var out []string
	apexes := [][]byte{}
	for _, z := range s.cfg.zones {
		apexes = append(apexes, z.apex)
	}
	for _, z := range s.cfg.reverse {
		apexes = append(apexes, z.apex)
	}
	for _, apex := range apexes {
		records, ok := s.Transfer(apex, netip.Addr{})
		if !ok {
			t.Fatalf("no transfer of %s", nameText(apex))
		}
		for r := range records {
			rr, _, err := dns.UnpackRR(r, 0)
			if err != nil {
				t.Fatalf("record %x of %s: %v", r, nameText(apex), err)
			}
			if _, soa := rr.(*dns.SOA); !soa {
				out = append(out, rr.String())
			}
		}
	}
	for i := range s.namespaces {
		for ns, n := range s.namespaces[i].all {
			out = append(out, fmt.Sprintf("zone %d: namespace %q: %d", i, ns, n))
		}
	}
	for addr, holders := range s.index.all {
		line := fmt.Sprintf("address %x:", addr.AsSlice())
		for _, h := range holders {
			var w where // in names, since numbers are others in each Builder
			if h.place != nil {
				w = *h.place
			}
			line += fmt.Sprintf(" %+v ready %v named %v host %v created %v on %q in %q in %q", *h.by, h.ready, h.named, h.host, h.created,
				s.ids.nodes.text(w.node), s.ids.zones.text(w.zone), s.ids.regions.text(w.region))
		}
		out = append(out, line)
	}
	out = append(out, fmt.Sprintf("without %v", s.without))
	for b, n := range s.blocks.all {
		out = append(out, fmt.Sprintf("block %x: %d", b, n))
	}
	slices.Sort(out)
	if dup := slices.Compact(slices.Clone(out)); len(dup) != len(out) {
		t.Fatalf("a record stands twice:\n%s", strings.Join(out, "\n"))
	}
	return strings.Join(out, "\n")
}

// Whatever the events and their order, what is served in the end is what the
// final objects alone would give, byte for byte, and nothing on the way there has an
// address that no slice has.
func TestChangesEndAsIfBuiltFromNothing(t *testing.T) {
	asked := 0
	for seed := range uint64(60) {
		w := newWorld(seed)
		store := registry.NewStore(quiet)
		follower := store.FollowAll()
		to := feedsOf(store)
		withServices := seed%3 > 0
		if withServices {
			to.services.Replace(nil)
		}
		to.slices.Replace(nil)
		b := newTestBuilder(t)
		b.take(follower, someTime)
		for i := range 150 {
			w.step(to)
			if !withServices && i == 149 {
				to.services.Off()
			}
			if w.r.IntN(3) == 0 || i == 149 {
				b.take(follower, someTime.Add(time.Duration(i+1)*time.Second))
				w.checkAddresses(t, b.Last())
				var count lies
				b.Last().index.all(func(addr netip.Addr, holders []holder) bool {
					count.count(b.Last().atlas, addr, holders, 1)
					return true
				})
				if b.index.podCIDRs != count {
					t.Fatalf("seed %d: lies are counted %+v, and anew %+v", seed, b.index.podCIDRs, count)
				}
			}
		}
		fresh := registry.NewStore(quiet)
		anew := feedsOf(fresh)
		list := w.sliceList()
		w.r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		anew.slices.Replace(list)
		if withServices {
			anew.services.Replace(w.serviceList())
		}
		anew.nodes.Replace(w.nodeList())
		fb := newTestBuilder(t)
		fb.take(fresh.FollowAll(), someTime)

		if got, want := dump(t, b.Last()), dump(t, fb.Last()); got != want {
			t.Fatalf("seed %d: after events:\n%s\n\nbuilt from nothing:\n%s", seed, got, want)
		}
		w.compareAnswers(t, b.Last(), fb.Last())
		asked += w.asked
		if got, want := b.Last().Services(), fb.Last().Services(); got != want {
			t.Fatalf("seed %d: %d services after events, %d built from nothing", seed, got, want)
		}
	}
	if asked < 10_000 {
		t.Errorf("only %d questions were compared", asked)
	}
}

// worldNames are names to ask for below a Service.
var worldNames = []string{
	"", "_all.", "_serving.", "_ready.", "_http._tcp.", "_metrics._udp._all.", "web-0.", "10-1-0-2.", "a.pin._zone.", "b.prefer._zone.",
	"c.pin._zone._serving.", "n1.pin._node.", "n2.prefer._node._all.", "coast.pin._region.", "_http._tcp.a.prefer._zone.", "_zone.", "_nope._tcp.",
}

// compareAnswers asks both Sets the same as many askers and, chance being the same for
// both, wants the same answers in the same order.
func (w *world) compareAnswers(t *testing.T, one, two *Set) {
	t.Helper()
	x, y := asks(t, one), asks(t, two)
	for at, z := range one.cfg.zones {
		services := map[string]*service{}
		for key, svc := range one.services[at].all {
			services[key] = svc
		}
		for _, key := range sortedKeys(services) {
			for _, before := range worldNames {
				name, err := ParseName(before + nameText(services[key].suffix))
				if err != nil {
					t.Fatal(err)
				}
				for range 4 {
					q := Question{Name: name, Type: pick(w, uint16(TypeA), TypeAAAA, TypeSRV, TypeTXT)}
					q.From = netip.MustParseAddr(pick(w, "10.0.0.1", "10.1.0.2", "10.7.0.3", "10.3.0.99", "2001:db8::1", "2001:db8::99", "203.0.113.9"))
					if w.r.IntN(3) == 0 {
						q.Subnet, _ = q.From.Prefix(w.r.IntN(q.From.BitLen()))
					}
					got, want := x.ask(&q, nil).Answer, y.ask(&q, nil).Answer
					scope, wantScope := x.answer.Scope(), y.answer.Scope()
					lines := func(list []dns.RR) (out []string) {
						for _, rr := range list {
							out = append(out, rr.String())
						}
						return out
					}
					w.asked++
					if a, b := lines(got), lines(want); !slices.Equal(a, b) || scope != wantScope {
						t.Fatalf("zone %s, Service %q, %+v: after events\n%s\nscope %d, built from nothing\n%s\nscope %d", nameText(z.apex), key, q,
							strings.Join(a, "\n"), scope, strings.Join(b, "\n"), wantScope)
					}
				}
			}
		}
	}
}

// Every record of a transfer is what a question for its name and type gets, and
// nothing more; every name above one exists (RFC 8020).
func TestTransferIsWhatIsAnswered(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(1000 + seed)
		store := registry.NewStore(quiet)
		follower := store.FollowAll()
		to := feedsOf(store)
		for range 40 {
			w.step(to)
		}
		if seed%2 == 0 {
			to.services.Off()
		}
		b := newTestBuilder(t)
		set := b.take(follower, someTime)
		for _, apex := range []string{"registry.local", "k8s.example", "1.10.in-addr.arpa", "0.8.b.d.0.1.0.0.2.ip6.arpa"} {
			wire, _ := ParseName(apex)
			records, ok := set.Transfer(wire, netip.Addr{})
			if !ok {
				t.Fatalf("no transfer of %s", apex)
			}
			sets := map[string][]string{}
			for r := range records {
				rr, _, err := dns.UnpackRR(r, 0)
				if err != nil {
					t.Fatal(err)
				}
				k := rr.Header().Name + " " + dns.TypeToString[rr.Header().Rrtype]
				if !slices.Contains(sets[k], rr.String()) {
					sets[k] = append(sets[k], rr.String())
				}
			}
			for k, want := range sets {
				name, typ, _ := strings.Cut(k, " ")
				for _, r := range want {
					if !strings.HasPrefix(k, "_all.") && !strings.Contains(k, "._all.") { // who does not serve has no name
						checkTarget(t, set, r)
					}
				}
				c := asks(t, set)
				m := c.ask(&Question{Name: c.parse(name), Type: dns.StringToType[typ]}, nil)
				var got []string
				for _, rr := range m.Answer {
					if rr.Header().Name == name {
						got = append(got, rr.String())
					}
				}
				slices.Sort(got)
				slices.Sort(want)
				if s := c.answer.service; s != nil && s.limit > 0 && !c.answer.own && typ != "CNAME" && len(got) < len(want) {
					if len(c.answer.order) != int(s.limit) {
						t.Fatalf("seed %d: %s: the limit is %d, the answer is\n%v", seed, k, s.limit, m)
					}
					want = slices.DeleteFunc(want, func(r string) bool { return !slices.Contains(got, r) })
				}
				if m.Rcode != dns.RcodeSuccess && typ != "CNAME" || !slices.Equal(got, want) {
					t.Fatalf("seed %d: %s: transfer has\n%v\nthe answer is\n%v", seed, k, want, m)
				}
				for above := name; above != apex+"."; {
					_, above, _ = strings.Cut(above, ".")
					if m := ask(t, set, above, dns.TypeTXT); m.Rcode != dns.RcodeSuccess {
						t.Fatalf("seed %d: %s exists, but %s above it is %s", seed, name, above, dns.RcodeToString[m.Rcode])
					}
				}
			}
		}
	}
}

// checkTarget follows an SRV or PTR record: its target has addresses, and that of a
// PTR record the very one that it is of.
func checkTarget(t *testing.T, set *Set, record string) {
	t.Helper()
	rr, err := dns.NewRR(record)
	if err != nil {
		t.Fatal(err)
	}
	var target string
	switch rr := rr.(type) {
	case *dns.SRV:
		target = rr.Target
	case *dns.PTR:
		target = rr.Ptr
	default:
		return
	}
	answers := append(ask(t, set, target, dns.TypeA).Answer, ask(t, set, target, dns.TypeAAAA).Answer...)
	for _, a := range answers {
		var ip string
		switch a := a.(type) {
		case *dns.A:
			ip = a.A.String()
		case *dns.AAAA:
			ip = a.AAAA.String()
		}
		if name, _ := dns.ReverseAddr(ip); rr.Header().Rrtype == dns.TypeSRV || name == rr.Header().Name {
			return
		}
	}
	t.Fatalf("%v leads to %v", rr, answers)
}

// ask looks up and writes down an answer, and reads it with another codec.
func ask(t testing.TB, set *Set, name string, typ uint16) *dns.Msg {
	t.Helper()
	wire, err := ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	a := NewAnswer()
	set.Lookup(&Question{Name: wire, Type: typ}, a)
	msg := append(make([]byte, headerSize), wire...)
	msg[5] = 1
	msg = append(msg, byte(typ>>8), byte(typ), 0, classIN)
	msg, n, cut := a.AppendTo(msg, 0, 65535, 65535)
	msg[2], msg[3] = 0x84, a.RCode
	if cut {
		msg[2] |= 2
	}
	msg[6], msg[7] = byte(n.Answer>>8), byte(n.Answer)
	msg[8], msg[9] = byte(n.Authority>>8), byte(n.Authority)
	msg[10], msg[11] = byte(n.Additional>>8), byte(n.Additional)
	var m dns.Msg
	if err := m.Unpack(msg); err != nil {
		t.Fatalf("%s %s: %v: %x", name, dns.TypeToString[typ], err, msg)
	}
	return &m
}

// A serial stands for one frozen Set and never comes back.
func TestSerial(t *testing.T) {
	store := registry.NewStore(quiet)
	follower := store.FollowAll()
	feed := store.Slices("")
	feed.Replace(nil)
	b := newTestBuilder(t)
	at := someTime
	first := b.Build(follower.Take(), at)
	if first.Serial() != uint32(at.Unix()) || !b.Frozen() {
		t.Fatalf("the first serial is %d", first.Serial())
	}
	put := func(addr string) {
		feed.Put(&discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "s", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{addr}}},
		})
	}
	put("10.0.0.1")
	second := b.Build(follower.Take(), at.Add(300*time.Millisecond))
	if second.Serial() != first.Serial() || b.Frozen() {
		t.Fatal("within a second the serial must stay, and the transfer must be the older one")
	}
	if strings.Contains(dump(t, second), "10.0.0.1") {
		t.Fatal("the transfer shows what its serial does not stand for")
	}
	if m := ask(t, second, "web.shop.registry.local.", dns.TypeA); len(m.Answer) != 1 {
		t.Fatal("the answer must be the newest")
	}
	third := b.Freeze(at.Add(time.Second))
	if third.Serial() != first.Serial()+1 || !b.Frozen() || !strings.Contains(dump(t, third), "10.0.0.1") {
		t.Fatal("a second later the newest Set must have a serial of its own")
	}
	put("10.0.0.2")
	at = at.Add(-time.Hour) // the clock was set back
	back := b.Build(follower.Take(), at)
	if back.Serial() != third.Serial()+1 || !b.Frozen() {
		t.Fatal("a serial must go on where the clock does not")
	}
	put("10.0.0.3")
	if s := b.Build(follower.Take(), at.Add(999*time.Millisecond)); s.Serial() != back.Serial() || b.Frozen() {
		t.Fatal("and still be good for a second")
	}
	if s := b.Freeze(at.Add(time.Second)); s.Serial() != back.Serial()+1 || !b.Frozen() || !b.Due().Equal(at.Add(2*time.Second)) {
		t.Fatal("and no longer")
	}
}

func TestTable(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var now table[int]
	want := map[string]int{}
	for i := range 80 {
		before, beforeLen := now, now.len()
		frozen := map[string]int{}
		for k, v := range want {
			frozen[k] = v
		}
		e := now.edit()
		more := 1 + i/10%4 // it grows beyond its lists, and shrinks
		for range 300 {
			k := fmt.Sprint(r.IntN(5000))
			if r.IntN(5) >= more {
				e.remove(k)
				delete(want, k)
			} else {
				v := r.Int()
				e.set(k, v)
				want[k] = v
			}
		}
		now = e.done()
		check := func(what string, tab table[int], want map[string]int, n int) {
			if n != len(want) {
				t.Fatalf("%s: length %d, want %d", what, n, len(want))
			}
			for k, v := range want {
				if got, ok := tab.get([]byte(k)); !ok || got != v {
					t.Fatalf("%s: %q is %d, %v; want %d", what, k, got, ok, v)
				}
				if got, ok := tab.getString(k); !ok || got != v {
					t.Fatalf("%s: %q, a string, is %d, %v; want %d", what, k, got, ok, v)
				}
			}
			for range 100 {
				k := fmt.Sprint(r.IntN(9000))
				got, ok := tab.get([]byte(k))
				if v, there := want[k]; ok != there || got != v {
					t.Fatalf("%s: %q is %d, %v; want %d, %v", what, k, got, ok, v, there)
				}
			}
			for k, v := range tab.all {
				if want[k] != v {
					t.Fatalf("%s: has %q = %d", what, k, v)
				}
			}
		}
		check("changed", now, want, now.len())
		check("before the change", before, frozen, beforeLen)
	}
}

// A table of more keys than its lists take has more lists, and what it was before is as it
// was.
func TestTableGrows(t *testing.T) {
	const most = 5 * perList << (lowerBits + upperBits)
	var now table[int]
	for n := 0; n < most; {
		before, had := now, n
		e := now.edit()
		for end := n + 1 + most/7; n < end; n++ {
			e.set(fmt.Sprint(n), n)
		}
		now = e.done()
		for i := range n {
			key := []byte(fmt.Sprint(i))
			if got, ok := now.get(key); !ok || got != i {
				t.Fatalf("of %d keys %s is %d, %v", n, key, got, ok)
			}
			if _, ok := before.get(key); ok != (i < had) {
				t.Fatalf("of %d keys before there is %s: %v", had, key, ok)
			}
		}
		if now.len() != n || n > len(now.top)*perList<<(lowerBits+upperBits) {
			t.Fatalf("%d keys: length %d, %d pages", n, now.len(), len(now.top))
		}
	}
	if len(now.top) != 8 {
		t.Errorf("%d pages", len(now.top))
	}
}

func TestBlocksOf(t *testing.T) {
	for prefix, want := range map[string][]string{
		"10.0.0.0/8":    {"10.in-addr.arpa."},
		"10.8.0.0/14":   {"8.10.in-addr.arpa.", "9.10.in-addr.arpa.", "10.10.in-addr.arpa.", "11.10.in-addr.arpa."},
		"192.0.2.7/32":  {"7.2.0.192.in-addr.arpa."},
		"fd00::/8":      {"d.f.ip6.arpa."},
		"2001:db8::/31": {"8.b.d.0.1.0.0.2.ip6.arpa.", "9.b.d.0.1.0.0.2.ip6.arpa."},
		"0.0.0.0/0":     {"in-addr.arpa."},
	} {
		var got []string
		for _, b := range blocksOf(netip.MustParsePrefix(prefix)) {
			got = append(got, nameText(appendReverse(nil, &b)))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", prefix, got, want)
		}
	}
}

func FuzzDashed(f *testing.F) {
	for _, s := range []string{"10-1-2-3", "0--1", "fd00--0", "2001-db8--1", "1-2-3-4-5-6-7-8", "--", "1--2--3", "010-1-1-1", "web-0", "0-0-0-0-0-0-0-0", "1--2-3-4-5-6-7-8"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, label []byte) {
		got, ok := parseDashed(label)
		// Another reader of the same text: dashes put back by the standard library.
		s := string(label)
		var want netip.Addr
		if a, err := netip.ParseAddr(strings.ReplaceAll(s, "-", ".")); err == nil && a.Is4() && !strings.Contains(s, ".") {
			want = a
		} else if a, err := netip.ParseAddr(strings.ReplaceAll(s, "-", ":")); err == nil && a.Is6() && a.Zone() == "" && !strings.ContainsAny(s, ":.") {
			want = a
		}
		if ok != want.IsValid() || ok && got != want {
			t.Fatalf("%q: %v %v, want %v", label, got, ok, want)
		}
		if ok {
			text := dashed(got)
			back, ok := parseDashed([]byte(text))
			if !ok || back != got || strings.HasPrefix(text, "-") || strings.HasSuffix(text, "-") {
				t.Fatalf("%v as a label is %q, read back as %v", got, text, back)
			}
			s := &service{suffix: []byte{0}}
			s.v4, s.v6 = noAddresses[0], noAddresses[1]
			if name := s.appendCanonical(nil, got); !bytes.Equal(name, append(appendLabel(nil, text), 0)) {
				t.Fatalf("%v: canonical name %q, label %q", got, name, text)
			}
		}
	})
}

func FuzzReverse(f *testing.F) {
	f.Add("4.3.2.10.in-addr.arpa")
	f.Add("0.0.2.10.in-addr.arpa")
	f.Add("8.b.d.0.1.0.0.2.ip6.arpa")
	f.Add("256.in-addr.arpa")
	f.Add("01.in-addr.arpa")
	f.Fuzz(func(t *testing.T, text string) {
		name, err := ParseName(text)
		if err != nil {
			return
		}
		b, ok := parseReverse(name)
		if !ok {
			return
		}
		if back := appendReverse(nil, &b); !bytes.Equal(back, name) {
			t.Fatalf("%q is read as %v, which is written %q", name, b, back)
		}
		if b.whole() {
			want, err := dns.ReverseAddr(b.addr().String())
			if err != nil || want != nameText(name) {
				t.Fatalf("%q is the name of %v, which is %q", name, b.addr(), want)
			}
		}
	})
}
