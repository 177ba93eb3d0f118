package kube

import (
	"time"

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
	s.feed.event(d.Digest != nil)
	if s.feed.arrived(d) {
		d.CameAt(cameAt(object))
		s.to.PutDigest(d.Digest)
		s.feed.applied(d, false)
	}
	return nil
}

// Delete expects no tombstones, those come from informers, but reads them.
func (s *sink[T]) Delete(object any) error {
	if t, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = t.Obj
	}
	d := s.digest(object)
	s.feed.event(d.Digest != nil)
	if s.feed.arrived(d) {
		d.CameAt(cameAt(object))
		s.to.DeleteDigest(d.Digest)
		s.feed.applied(d, true)
	}
	return nil
}

// cameAt is when an object of a watch began to be read, or was read at last.
func cameAt(object any) time.Time {
	if a, ok := object.(*arrival); ok {
		return a.came
	}
	return time.Now()
}

func (s *sink[T]) Replace(objects []any, resourceVersion string) error {
	version := parseVersion(resourceVersion)
	if err := s.feed.admit(version); err != nil {
		return err
	}
	list := make([]*registry.Digest, 0, len(objects))
	versions := make(map[name]uint64, len(objects))
	for _, object := range objects {
		d := s.digest(object)
		if d.Digest == nil {
			s.feed.skip()
			continue
		}
		list = append(list, d.Digest)
		if d.version != 0 {
			versions[d.id()] = d.version
		}
	}
	kept := s.to.Relist(list, s.feed.guard())
	s.feed.listed(version, versions) // after: who reads "synced" finds the objects
	s.feed.keeping(kept)
	return nil
}

func (s *sink[T]) Bookmark(resourceVersion string) error {
	s.feed.bookmark(parseVersion(resourceVersion))
	return nil
}

// Resync is never asked for: there is no resync period.
func (s *sink[T]) Resync() error { return nil }

// Transformer takes from each object of a list what is kept of it. The reflector
// collects that until the list has ended; of whole objects, it would be several times
// the memory.
func (s *sink[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		if d := s.digest(object); d.Digest != nil {
			return d, nil
		}
		return object, nil
	}
}

// digest returns what is kept of an object, in whichever form it comes, with nothing in it
// where it is of another kind.
func (s *sink[T]) digest(object any) digest {
	switch o := object.(type) {
	case digest:
		return o
	case *arrival:
		if o.kind == s.feed.kind {
			return digest{o.digest, parseVersion(o.ResourceVersion)}
		}
	case T:
		return digest{s.to.Digest(o), parseVersion(o.GetResourceVersion())}
	}
	return digest{}
}

var _ runtime.Object = digest{}

// GetObjectKind implements [runtime.Object].
func (d digest) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements [runtime.Object]. Nobody changes a digest.
func (d digest) DeepCopyObject() runtime.Object { return d }

// GetObjectMeta implements [metav1.ObjectMetaAccessor].
func (d digest) GetObjectMeta() metav1.Object {
	return &metav1.ObjectMeta{Namespace: d.Namespace(), Name: d.Name()}
}
