package kube

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"epdns/registry"
)

// sink hands what a reflector reads to a registry feed. The reflector knows it as
// its store, but it stores nothing.
type sink[T metav1.Object] struct {
	feed *feed
	to   registry.Feed[T]
}

func newSink[T metav1.Object](f *feed, to registry.Feed[T]) *sink[T] { return &sink[T]{f, to} }

var (
	_ cache.TransformingStore      = (*sink[metav1.Object])(nil)
	_ cache.ReflectorBookmarkStore = (*sink[metav1.Object])(nil)
)

func (s *sink[T]) Add(object any) error { return s.Update(object) }

func (s *sink[T]) Update(object any) error {
	o, ok := object.(T)
	s.feed.event(ok)
	if ok {
		s.to.Put(o)
	}
	return nil
}

// Delete expects no tombstones, those come from informers, but reads them.
func (s *sink[T]) Delete(object any) error {
	if t, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = t.Obj
	}
	o, ok := object.(T)
	s.feed.event(ok)
	if ok {
		s.to.Delete(o)
	}
	return nil
}

func (s *sink[T]) Replace(objects []any, _ string) error {
	list := make([]T, 0, len(objects))
	for _, object := range objects {
		o, ok := object.(T)
		if !ok {
			s.feed.skip()
			continue
		}
		list = append(list, o)
	}
	s.to.Replace(list)
	s.feed.listed() // after: who reads "synced" finds the objects
	return nil
}

func (s *sink[T]) Bookmark(string) error {
	s.feed.bookmark()
	return nil
}

// Resync is never asked for: there is no resync period.
func (s *sink[T]) Resync() error { return nil }

// Transformer drops what is large and never read while a streaming list is being
// collected. Labels and annotations stay: they tune the answers.
func (s *sink[T]) Transformer() cache.TransformFunc { return trim }

// lastApplied is kubectl's copy of the whole object.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

func trim(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
		o.SetOwnerReferences(nil)
		if a := o.GetAnnotations(); a != nil {
			delete(a, lastApplied)
		}
	}
	if n, ok := object.(*corev1.Node); ok {
		n.Status.Images, n.Status.VolumesAttached, n.Status.VolumesInUse = nil, nil, nil
	}
	return object, nil
}
