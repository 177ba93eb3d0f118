package registry

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// All has each Service that exists once, and ends when it is told to.
func TestAll(t *testing.T) {
	s := NewStore(quiet)
	feed := s.Services("")
	names := func() (out []string) {
		for svc := range s.All() {
			out = append(out, svc.Name)
		}
		slices.Sort(out)
		return out
	}
	if got := names(); got != nil {
		t.Errorf("of nothing: %q", got)
	}
	feed.Replace([]*corev1.Service{service("a", "1"), service("b", "2"), service("c", "3")})
	feed.Delete(service("b", "2"))
	if got := names(); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("%q", got)
	}
	for range s.All() {
		break
	}
}
