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
	d := s.digest(object)
	s.feed.event(d != nil)
	if d != nil {
		s.to.PutDigest(d)
	}
	return nil
}

// Delete expects no tombstones, those come from informers, but reads them.
func (s *sink[T]) Delete(object any) error {
	if t, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = t.Obj
	}
	d := s.digest(object)
	s.feed.event(d != nil)
	if d != nil {
		s.to.DeleteDigest(d)
	}
	return nil
}

func (s *sink[T]) Replace(objects []any, _ string) error {
	list := make([]*registry.Digest, 0, len(objects))
	for _, object := range objects {
		if d := s.digest(object); d != nil {
			list = append(list, d)
		} else {
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
		if d := s.digest(object); d != nil {
			return digest{d}, nil
		}
		return object, nil
	}
}

// digest returns what is kept of an object, in whichever form it comes, or nil where it is
// of another kind.
func (s *sink[T]) digest(object any) *registry.Digest {
	switch o := object.(type) {
	case digest:
		return o.Digest
	case *arrival:
		if o.kind == s.feed.kind {
			return o.digest
		}
	case T:
		return s.to.Digest(o)
	}
	return nil
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
