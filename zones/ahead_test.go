package zones

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/miekg/dns"

	"epdns/registry"
)

// LookAhead comes to the same Services as answers do, whatever they have, and whatever is
// asked.
func TestLookAhead(t *testing.T) {
	kinds := []string{"v4", "v6", "both", "named", "empty", "external", "ports"}
	var services []*registry.Service
	for i := range few + 100 {
		key := registry.Key{Namespace: fmt.Sprintf("ns-%d", i%7), Name: fmt.Sprintf("web-%d", i)}
		svc := &registry.Service{Key: key, Exists: true, Object: &registry.Object{}}
		sl := &registry.Slice{Namespace: key.Namespace, Name: key.Name, Service: key.Name}
		var endpoints []registry.Endpoint
		add := func(addr netip.Addr, host string) {
			endpoints = append(endpoints, registry.Endpoint{Addr: addr, Hostname: host, Pod: fmt.Sprintf("pod-%d", len(endpoints)), Ready: true, Serving: true})
		}
		v4, v6 := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)})
		switch kinds[i%len(kinds)] {
		case "v4":
			add(v4, "")
		case "v6":
			add(v6, "")
		case "both":
			add(v4, "")
			add(v6, "")
		case "named":
			for n := range 40 {
				add(netip.AddrFrom4([4]byte{10, byte(1 + n), byte(i >> 8), byte(i)}), fmt.Sprintf("host-%d", n))
			}
		case "external":
			svc.Object.IsExternalName, svc.Object.ExternalName = true, "example.com"
		case "ports":
			sl.Ports = []registry.Port{{Name: "http", Number: 8080}, {Name: "dns", Number: 53, Protocol: registry.UDP}}
			add(v4, "first")
		}
		sl.Endpoints = registry.NewEndpoints(endpoints...)
		svc.Slices = []*registry.Slice{sl}
		services = append(services, svc)
	}
	for _, layout := range []Layout{Short, Kubernetes} {
		zone := DefaultZone("registry.local")
		zone.Layout = layout
		b, err := NewBuilder(Config{Zones: []Zone{DefaultZone("example.com"), zone}})
		if err != nil {
			t.Fatal(err)
		}
		set := b.Build(services, someTime)
		apex := "registry.local."
		if layout == Kubernetes {
			apex = "svc." + apex
		}
		a := NewAnswer()
		for _, typ := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeSRV, dns.TypeTXT} {
			for _, below := range []string{"", "pod-0.", "host-39.", "10-0-0-0.", "fd00--1.", "_http._tcp.", "_ready.", "a.pin._zone.", "none.", "x.y.z.", "_x."} {
				var asked []Asked
				var want []*service
				for i := 0; i <= len(services); i++ { // the last one is none
					key := fmt.Sprintf("web-%d.ns-%d.", i, i%7)
					name, _ := ParseName(below + key + apex)
					asked = append(asked, Asked{name, typ})
					bare, _ := ParseName(key)
					svc, ok := set.services[1].get(bare[:len(bare)-1])
					if ok != (i < len(services)) {
						t.Fatalf("%s is in the table: %v", key, ok)
					}
					want = append(want, svc)
				}
				for _, text := range []string{"registry.local.", "ns-1." + apex, ".", "example.org.", "1.0.0.10.in-addr.arpa."} {
					name, _ := ParseName(text)
					asked = append(asked, Asked{name, typ})
				}
				a.LookAhead(set, asked)
				if len(a.ahead) != len(want) {
					t.Fatalf("%d questions are looked ahead for, not %d", len(a.ahead), len(want))
				}
				for i := range want {
					if got := a.ahead[i].service; got != want[i] {
						t.Errorf("%s %d: %p, want %p", nameText(asked[i].Name), typ, got, want[i])
					}
				}
				if n := testing.AllocsPerRun(1, func() { a.LookAhead(set, asked) }); n != 0 {
					t.Errorf("%v allocations", n)
				}
			}
		}
	}
}
