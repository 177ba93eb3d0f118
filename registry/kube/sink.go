package kube

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	list := make([]*registry.Digest, 0, len(objects))
	for _, object := range objects {
		switch o := object.(type) {
		case digest:
			list = append(list, o.Digest)
		case T:
			list = append(list, s.to.Digest(o))
		default:
			s.feed.skip()
		}
	}
	s.to.ReplaceDigests(list)
	s.feed.listed() // after: who reads "synced" finds the objects
	return nil
}

func (s *sink[T]) Bookmark(string) error {
	s.feed.bookmark()
	return nil
}

// Resync is never asked for: there is no resync period.
func (s *sink[T]) Resync() error { return nil }

// Transformer takes from each object of a list what is kept of it. The reflector
// collects that until the list has ended; of whole objects, it would be several times
// the memory.
func (s *sink[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if o, ok := object.(T); ok {
			return digest{s.to.Digest(o)}, nil
		}
		return object, nil
	}
}

// digest is known to a reflector as an object with a name.
type digest struct{ *registry.Digest }

var _ runtime.Object = digest{}

// GetObjectKind implements [runtime.Object].
func (d digest) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object]. Nobody changes a digest.
func (d digest) DeepCopyObject() runtime.Object { return d }

// GetObjectMeta implements [metav1.ObjectMetaAccessor].
func (d digest) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: d.Namespace(), Name: d.Name()}
}
