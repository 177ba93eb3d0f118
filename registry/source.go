package registry

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Source tells a Store what exists.
type Source interface {
	// Run opens its feeds, all of them before it uses the first one, and keeps
	// feeding the store until ctx ends; then it returns nil. It returns an error
	// only where going on is pointless from the start (no right to list, an
	// unreadable file); once it has fed something it retries for ever, and what
	// the store holds stays.
	Run(ctx context.Context, store *Store) error

	// String says where the source reads from, for people.
	String() string
}

// Feed is the way in for one kind of object, within one namespace or all of
// them. Its methods may be called from any goroutine. They take ownership of
// the objects.
type Feed[T any] interface {
	// Replace says that these objects, and no others, exist within the scope.
	// From then on the feed is synced.
	Replace(objects []T)

	// Digest takes from an object what is kept of it, so that a source need not keep
	// a long list of whole objects until the last one is there. It changes nothing.
	Digest(object T) *Digest

	// ReplaceDigests, PutDigest and DeleteDigest are Replace, Put and Delete with what
	// Digest of this feed has made, or for one of EndpointSlices DecodeSlice. Each
	// digest is used once.
	ReplaceDigests(list []*Digest)
	PutDigest(d *Digest)
	DeleteDigest(d *Digest)

	// Relist is ReplaceDigests for a list that may lack what exists: guard, if there is
	// one, says which Services keep their EndpointSlices. Those that do are returned.
	Relist(list []*Digest, guard *Guard) (kept []Key)

	// Compare looks at what is held of the object of a digest, and uses the digest up for
	// nothing but another Compare.
	Compare(d *Digest) Comparison

	// Names calls each for all objects held within the scope. It must not call the Store.
	Names(each func(namespace, name string))

	// Put adds an object or replaces the one of the same namespace and name.
	Put(object T)

	// Delete removes what this very object contributed: a newer one of the same
	// name with another UID stays.
	Delete(object T)

	// Off says that this kind is not to be had within the scope. The feed counts
	// as synced, and what it fed before is gone.
	Off()
}

type (
	// SliceFeed is the feed for EndpointSlices.
	SliceFeed = Feed[*discoveryv1.EndpointSlice]
	// ServiceFeed is the feed for Services.
	ServiceFeed = Feed[*corev1.Service]
)

// Digest is what a Store keeps of one API object.
type Digest struct {
	namespace, name string
	of              any // *Slice, *Object or *Node, of the kind that the feed is for
	problems        []string

	came time.Time // see CameAt
	from int64     // Unix milliseconds of what it tells of, 0 where it does not say
}

// CameAt says when the event that brought the object began to be read. Unless it is said,
// that is when the digest is put or deleted.
func (d *Digest) CameAt(t time.Time) { d.came = t }

// Namespace is that of the object, empty where it is in none.
func (d *Digest) Namespace() string { return d.namespace }

// Name is that of the object.
func (d *Digest) Name() string { return d.name }

func digests[T any](f Feed[T], objects []T) []*Digest {
	list := make([]*Digest, len(objects))
	for i, o := range objects {
		list[i] = f.Digest(o)
	}
	return list
}
