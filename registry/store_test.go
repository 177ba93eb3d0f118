package registry

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// slice makes an EndpointSlice shop/NAME of a Service. An address that ends in
// "!" is not ready.
func slice(name, uid, service string, addresses ...string) *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid)},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	if service != "" {
		o.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	}
	for _, a := range addresses {
		ready := !strings.HasSuffix(a, "!")
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{strings.TrimSuffix(a, "!")},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		})
	}
	return o
}

func service(name, uid string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid)}}
}

// show writes down who is behind a Service: "-" where there is none.
func show(svc *Service) string {
	if svc == nil || !svc.Exists {
		return "-"
	}
	var out []string
	for _, s := range svc.Slices {
		for _, e := range s.Endpoints.All() {
			a := e.Addr.String()
			if !e.Ready {
				a += "!"
			}
			out = append(out, a)
		}
	}
	return strings.Join(out, " ")
}

func TestSlicesKeepTheirOwn(t *testing.T) {
	type feeds struct {
		slices   SliceFeed
		services ServiceFeed
	}
	for _, c := range []struct {
		what  string
		steps func(f feeds)
		web   string
		other string
	}{
		{"two slices of one Service", func(f feeds) {
			f.slices.Put(slice("b", "1", "web", "10.0.0.2"))
			f.slices.Put(slice("a", "2", "web", "10.0.0.1", "10.0.0.3!"))
		}, "10.0.0.1 10.0.0.3! 10.0.0.2", "-"},
		{"a changed slice replaces its own", func(f feeds) {
			f.slices.Put(slice("a", "1", "web", "10.0.0.1"))
			f.slices.Put(slice("b", "2", "web", "10.0.0.2"))
			f.slices.Put(slice("a", "1", "web", "10.0.0.9"))
		}, "10.0.0.9 10.0.0.2", "-"},
		{"a deleted slice takes its own away, whatever state came with the event", func(f feeds) {
			f.slices.Put(slice("a", "1", "web", "10.0.0.1"))
			f.slices.Put(slice("b", "2", "web", "10.0.0.2"))
			f.slices.Delete(slice("a", "1", "web", "10.0.0.2"))
		}, "10.0.0.2", "-"},
		{"an endpoint that moves is not lost, the old slice first", func(f feeds) {
			f.slices.Put(slice("a", "1", "web", "10.0.0.1"))
			f.slices.Put(slice("a", "1", "web"))
			f.slices.Put(slice("b", "2", "web", "10.0.0.1"))
		}, "10.0.0.1", "-"},
		{"nor the new slice first", func(f feeds) {
			f.slices.Put(slice("a", "1", "web", "10.0.0.1"))
			f.slices.Put(slice("b", "2", "web", "10.0.0.1"))
			f.slices.Delete(slice("a", "1", "web"))
		}, "10.0.0.1", "-"},
		{"a slice of the same name and another uid replaces", func(f feeds) {
			f.slices.Put(slice("a", "1", "web", "10.0.0.1"))
			f.slices.Put(slice("a", "2", "web", "10.0.0.2"))
		}, "10.0.0.2", "-"},
		{"and a late deletion of the old one takes nothing away", func(f feeds) {
			f.slices.Put(slice("a", "2", "web", "10.0.0.2"))
			f.slices.Delete(slice("a", "1", "web", "10.0.0.1"))
		}, "10.0.0.2", "-"},
		{"a slice that gets another label goes to the other Service", func(f feeds) {
			f.slices.Put(slice("a", "1", "web", "10.0.0.1"))
			f.slices.Put(slice("a", "1", "other", "10.0.0.1"))
		}, "-", "10.0.0.1"},
		{"a slice that loses its label belongs to nobody", func(f feeds) {
			f.slices.Put(slice("a", "1", "web", "10.0.0.1"))
			f.slices.Put(slice("a", "1", ""))
		}, "-", "-"},
		{"a list drops what it does not hold", func(f feeds) {
			f.slices.Put(slice("a", "1", "web", "10.0.0.1"))
			f.slices.Put(slice("b", "2", "other", "10.0.0.2"))
			f.slices.Replace([]*discoveryv1.EndpointSlice{slice("a", "1", "web", "10.0.0.1")})
		}, "10.0.0.1", "-"},
		{"with Services listed, a slice alone makes none", func(f feeds) {
			f.slices.Put(slice("a", "1", "web", "10.0.0.1"))
			f.slices.Put(slice("b", "2", "other", "10.0.0.2"))
			f.services.Replace([]*corev1.Service{service("web", "7")})
		}, "10.0.0.1", "-"},
		{"and the slices wait for their Service", func(f feeds) {
			f.services.Replace(nil)
			f.slices.Put(slice("a", "1", "web", "10.0.0.1"))
			f.services.Put(service("web", "7"))
			f.services.Put(service("other", "8"))
		}, "10.0.0.1", ""},
		{"a Service goes while its slices stay", func(f feeds) {
			f.services.Replace([]*corev1.Service{service("web", "7"), service("other", "8")})
			f.slices.Put(slice("a", "1", "web", "10.0.0.1"))
			f.services.Delete(service("web", "7"))
			f.services.Delete(service("other", "6")) // another one of that name, long gone
		}, "-", ""},
		{"Services may no longer be listed", func(f feeds) {
			f.services.Replace([]*corev1.Service{service("other", "8")})
			f.slices.Put(slice("a", "1", "web", "10.0.0.1"))
			f.services.Off()
		}, "10.0.0.1", "-"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s := NewStore(quiet)
			c.steps(feeds{s.Slices(""), s.Services("")})
			if got := show(s.Snapshot("shop", "web")); got != c.web {
				t.Errorf("web: %q, want %q", got, c.web)
			}
			if got := show(s.Snapshot("shop", "other")); got != c.other {
				t.Errorf("other: %q, want %q", got, c.other)
			}
		})
	}
}

func TestTakeFolds(t *testing.T) {
	s := NewStore(quiet)
	f := s.Slices("")
	follower := s.FollowAll()
	take := func() (out []string) {
		for _, svc := range follower.Take() {
			out = append(out, svc.Name+" "+show(svc))
		}
		slices.Sort(out)
		return out
	}
	f.Put(slice("a", "1", "web", "10.0.0.1"))
	f.Put(slice("a", "1", "web", "10.0.0.2"))
	f.Put(slice("b", "2", "other", "10.0.0.3"))
	if got := take(); !slices.Equal(got, []string{"other 10.0.0.3", "web 10.0.0.2"}) {
		t.Fatalf("a burst: %q", got)
	}
	f.Put(slice("a", "1", "web", "10.0.0.2"))
	if got := take(); got != nil {
		t.Fatalf("an event that changes nothing: %q", got)
	}
	f.Delete(slice("a", "1", "web"))
	if got := take(); !slices.Equal(got, []string{"web -"}) {
		t.Fatalf("a Service that is gone: %q", got)
	}
}

func TestSynced(t *testing.T) {
	s := NewStore(quiet)
	a, b, c := s.Slices("a"), s.Slices("b"), s.Services("a")
	isSynced := func() bool {
		select {
		case <-s.Synced():
			return true
		default:
			return false
		}
	}
	a.Put(slice("a", "1", "web", "10.0.0.1"))
	a.Replace(nil)
	c.Off()
	if isSynced() {
		t.Fatal("synced before the last feed is")
	}
	b.Replace(nil)
	if !isSynced() {
		t.Fatal("not synced after the last feed is")
	}
	b.Replace(nil) // once more is no panic
}

// A list holds for its scope alone.
func TestScopes(t *testing.T) {
	s := NewStore(quiet)
	shop, data := s.Slices("shop"), s.Slices("data")
	shop.Put(slice("a", "1", "web", "10.0.0.1"))
	data.Replace(nil)
	if got := show(s.Snapshot("shop", "web")); got != "10.0.0.1" {
		t.Fatalf("a list of another namespace took it away: %q", got)
	}
	s.Services("data").Replace(nil)
	if got := show(s.Snapshot("shop", "web")); got != "10.0.0.1" {
		t.Fatalf("Services of another namespace made it unknown: %q", got)
	}
	shop.Replace(nil)
	if got := show(s.Snapshot("shop", "web")); got != "-" {
		t.Fatalf("%q", got)
	}
}

func ptr[T any](v T) *T { return &v }

// What cannot be used is left out and named, once.
func TestOddObjects(t *testing.T) {
	for _, c := range []struct {
		what string
		odd  func(*discoveryv1.EndpointSlice)
		warn string
		want string
	}{
		{"no address", func(o *discoveryv1.EndpointSlice) { o.Endpoints[0].Addresses = nil }, "endpoints[0]: no address", "10.0.0.2"},
		{"not an address", func(o *discoveryv1.EndpointSlice) { o.Endpoints[0].Addresses[0] = "web.example" }, `address \"web.example\" is no IP address`, "10.0.0.2"},
		{"the other family", func(o *discoveryv1.EndpointSlice) { o.Endpoints[0].Addresses[0] = "2001:db8::1" }, "is not of type IPv4", "10.0.0.2"},
		{"IPv4 in IPv6", func(o *discoveryv1.EndpointSlice) {
			o.AddressType = discoveryv1.AddressTypeIPv6
			o.Endpoints = o.Endpoints[:1]
			o.Endpoints[0].Addresses[0] = "::ffff:10.0.0.1"
		}, "is not of type IPv6", ""},
		{"a zone index", func(o *discoveryv1.EndpointSlice) {
			o.AddressType = discoveryv1.AddressTypeIPv6
			o.Endpoints = o.Endpoints[:1]
			o.Endpoints[0].Addresses[0] = "fe80::1%eth0"
		}, "is not of type IPv6", ""},
		{"an unknown type", func(o *discoveryv1.EndpointSlice) { o.AddressType = "MAC" }, `addressType \"MAC\" is not known`, ""},
		{"type FQDN, which means nothing", func(o *discoveryv1.EndpointSlice) { o.AddressType = discoveryv1.AddressTypeFQDN }, "", ""},
		{"a host name that is no label", func(o *discoveryv1.EndpointSlice) { o.Endpoints[0].Hostname = ptr("a.b") }, `hostname \"a.b\" is not a DNS label`, "10.0.0.1 10.0.0.2"},
		{"a port out of range", func(o *discoveryv1.EndpointSlice) {
			o.Ports = []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(65536))}}
		}, "ports[0]: port 65536 is not between 0 and 65535", "10.0.0.1 10.0.0.2"},
		{"an unknown protocol", func(o *discoveryv1.EndpointSlice) {
			o.Ports = []discoveryv1.EndpointPort{{Protocol: ptr(corev1.Protocol("QUIC"))}}
		}, `protocol \"QUIC\" is not known`, "10.0.0.1 10.0.0.2"},
		{"a Service name that is no label", func(o *discoveryv1.EndpointSlice) { o.Labels[discoveryv1.LabelServiceName] = "Web.Shop" }, `kubernetes.io/service-name=\"Web.Shop\" is not a DNS label`, "-"},
		{"more than one address: the first counts", func(o *discoveryv1.EndpointSlice) {
			o.Endpoints[0].Addresses = append(o.Endpoints[0].Addresses, "10.0.0.99")
		}, "", "10.0.0.1 10.0.0.2"},
		{"no conditions: ready", func(o *discoveryv1.EndpointSlice) { o.Endpoints[0].Conditions = discoveryv1.EndpointConditions{} }, "", "10.0.0.1 10.0.0.2"},
	} {
		t.Run(c.what, func(t *testing.T) {
			var log bytes.Buffer
			s := NewStore(slog.New(slog.NewTextHandler(&log, nil)))
			f := s.Slices("")
			for range 3 {
				o := slice("a", "1", "web", "10.0.0.1", "10.0.0.2")
				c.odd(o)
				f.Put(o)
			}
			if got := show(s.Snapshot("shop", "web")); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			lines := strings.Count(log.String(), "\n")
			if c.warn == "" && lines > 0 || c.warn != "" && (lines != 1 || !strings.Contains(log.String(), "EndpointSlice shop/a")) || !strings.Contains(strings.ReplaceAll(log.String(), `\\`, `\`), c.warn) {
				t.Errorf("want one line with %q:\n%s", c.warn, log.String())
			}
			if got := s.Stats().Skipped > 0; got != (c.warn != "") {
				t.Errorf("counted: %v", got)
			}
			// The next object is none the worse for it.
			f.Put(slice("b", "2", "next", "10.0.0.7"))
			if got := show(s.Snapshot("shop", "next")); got != "10.0.0.7" {
				t.Errorf("the next object: %q", got)
			}
		})
	}
}

func TestOddServices(t *testing.T) {
	external := func(target string) *corev1.Service {
		o := service("web", "1")
		o.Spec.Type, o.Spec.ExternalName = corev1.ServiceTypeExternalName, target
		return o
	}
	for _, c := range []struct {
		what   string
		object *corev1.Service
		exists bool
		warn   string
	}{
		{"a name that is no label", service("Web.Shop", "1"), false, "not a DNS label"},
		{"a name that is too long", service(strings.Repeat("x", 64), "1"), false, "not a DNS label"},
		{"an alias", external("www.example.com."), true, ""},
		{"an alias with underscores", external("_a.example_1.com"), true, ""},
		{"an alias to an address", external("10.0.0.1"), true, "is an address"},
		{"an alias to no name", external("bad..name"), true, "not a domain name"},
		{"an alias to nothing", external(""), true, "not a domain name"},
	} {
		t.Run(c.what, func(t *testing.T) {
			var log bytes.Buffer
			s := NewStore(slog.New(slog.NewTextHandler(&log, nil)))
			f := s.Services("")
			for range 2 {
				f.Replace([]*corev1.Service{c.object.DeepCopy()})
			}
			svc := s.Snapshot("shop", c.object.Name)
			if (svc != nil) != c.exists {
				t.Fatalf("exists: %v", svc != nil)
			}
			if c.warn != "" && (strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), c.warn) || s.Stats().Skipped == 0) || c.warn == "" && log.Len() > 0 {
				t.Errorf("want one line with %q: %s", c.warn, log.String())
			}
			if svc != nil && (svc.Object.ExternalName == "") != (c.warn != "") {
				t.Errorf("target %q", svc.Object.ExternalName)
			}
			f.Replace(nil)
			if entries(s)+len(s.warned) > 0 {
				t.Error("something is left of what is gone")
			}
		})
	}
}

func TestStats(t *testing.T) {
	s := NewStore(quiet)
	f := s.Slices("")
	for i := range 10 {
		f.Put(slice(fmt.Sprint(i), "1", fmt.Sprint("svc-", i%3), "10.0.0.1", "10.0.0.2!"))
	}
	f.Put(slice("0", "1", "svc-0", "10.0.0.1"))
	f.Delete(slice("1", "1", ""))
	if got, want := s.Stats(), (Stats{Services: 3, Slices: 9, Endpoints: 17, Ready: 9}); got != want {
		t.Fatalf("%+v, want %+v", got, want)
	}
	f.Replace(nil)
	if got := s.Stats(); got != (Stats{}) {
		t.Fatalf("nothing is left: %+v", got)
	}
	if entries(s)+len(s.slices)+len(s.warned) > 0 {
		t.Fatal("the store keeps something of what is gone")
	}
}

// Readers take no lock and see whole snapshots while one writer works.
func TestSnapshotsWhileWriting(t *testing.T) {
	s := NewStore(quiet)
	f := s.Slices("")
	follower := s.FollowAll()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				svc := s.Snapshot("shop", "web")
				if svc == nil {
					continue
				}
				// The writer always puts two of a kind.
				if e := svc.Slices[0].Endpoints; e.Len() != 2 || e.Addr(0) != e.Addr(1) {
					t.Errorf("half a change: %v", e)
					return
				}
			}
		})
	}
	for i := range 2000 {
		a := fmt.Sprintf("10.0.%d.%d", i/250, i%250)
		f.Put(slice("a", "1", "web", a, a))
		if i%10 == 0 {
			follower.Take()
		}
	}
	close(stop)
	wg.Wait()
}

// entries counts what is known of Services.
func entries(s *Store) (n int) {
	for range s.all("") {
		n++
	}
	return n
}
