package registry

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// changed is a slice of Service web that says when the change it tells of was made.
func changed(at, address string) *discoveryv1.EndpointSlice {
	s := slice("web-1", "1", "web", address)
	s.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: at}
	return s
}

// Changes have times where a source told of them one by one, and where there was one.
func TestTimes(t *testing.T) {
	const at = "2026-11-30T08:00:00.250Z"
	store := NewStore(quiet)
	slices, services := store.Slices(""), store.Services("")
	f := store.FollowAll()
	f.KeepTimes()
	begun := time.Now()
	from := time.Date(2026, 11, 30, 8, 0, 0, 250e6, time.UTC)
	for _, tt := range []struct {
		what  string
		do    func()
		times int
		from  time.Time // of the last one
	}{
		{"a list", func() { slices.Replace([]*discoveryv1.EndpointSlice{changed(at, "10.0.0.1")}); services.Replace(nil) }, 0, time.Time{}},
		{"a change", func() { slices.Put(changed(at, "10.0.0.2")) }, 1, from},
		{"nothing new", func() { slices.Put(changed(at, "10.0.0.2")) }, 0, time.Time{}},
		{"two", func() { slices.Put(changed(at, "10.0.0.3")); slices.Put(changed("", "10.0.0.4")) }, 2, time.Time{}},
		{"a time that is none", func() { slices.Put(changed("yesterday", "10.0.0.5")) }, 1, time.Time{}},
		{"a Service", func() { services.Put(service("web", "1")) }, 1, time.Time{}},
		{"a list again", func() { slices.Replace([]*discoveryv1.EndpointSlice{changed(at, "10.0.0.6")}) }, 0, time.Time{}},
		{"an end, of which the slice says nothing", func() { slices.Delete(changed(at, "10.0.0.6")) }, 1, time.Time{}},
		{"of no Service", func() { slices.Put(slice("other", "2", "", "10.0.0.7")) }, 0, time.Time{}},
	} {
		tt.do()
		f.Take()
		times := f.Times()
		if len(times) != tt.times {
			t.Errorf("%s: %d times, want %d", tt.what, len(times), tt.times)
			continue
		}
		for i, c := range times {
			if c.Service != (Key{"shop", "web"}) || c.Came.Before(begun) || c.Came.After(time.Now()) {
				t.Errorf("%s: %+v", tt.what, c)
			}
			if i == len(times)-1 && !c.From.Equal(tt.from) {
				t.Errorf("%s: from %v, want %v", tt.what, c.From, tt.from)
			}
		}
	}

	// A burst without end takes a bounded room.
	addresses := []string{"10.0.0.1", "10.0.0.2"}
	for i := range maxTimes + 10 {
		slices.Put(changed(at, addresses[i%2]))
	}
	if f.Take(); len(f.Times()) != maxTimes {
		t.Errorf("%d times of a burst, want %d", len(f.Times()), maxTimes)
	}
}

// A slice in protobuf tells the same as one that was decoded.
func TestTimeInProtobuf(t *testing.T) {
	for _, at := range []string{"2026-11-30T08:00:00Z", "2026-11-30T09:00:00.123456789+01:00", "soon", ""} {
		o := changed(at, "10.0.0.1")
		octets, err := o.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		d, err := DecodeSlice(octets)
		if err != nil {
			t.Fatal(err)
		}
		if want := triggerTime(at); d.from != want {
			t.Errorf("%q is %d, want %d", at, d.from, want)
		}
	}
}

func TestServiceKinds(t *testing.T) {
	selector := map[string]string{"app": "web"}
	for _, tt := range []struct {
		spec corev1.ServiceSpec
		want string
	}{
		{corev1.ServiceSpec{ClusterIP: "10.96.0.1", Selector: selector}, "cluster_ip"},
		{corev1.ServiceSpec{ClusterIP: "None", Selector: selector}, "headless_with_selector"},
		{corev1.ServiceSpec{ClusterIP: "None"}, "headless_without_selector"},
		{corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}, "unknown"},
	} {
		s := service("web", "1")
		s.Spec = tt.spec
		if o, _ := translateService(s, "x/"); o.Kind.String() != tt.want {
			t.Errorf("%+v is %v, want %s", tt.spec, o.Kind, tt.want)
		}
	}
}
