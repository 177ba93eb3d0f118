package kube

import (
	"errors"
	"hash/maphash"
	"strconv"
	"time"

	"epdns/internal/protobuf"
	"epdns/registry"
)

// This file keeps older states from taking the place of newer ones. API servers of one
// cluster are not equally new, and one may be restored from a backup. Resource versions of
// one kind are numbers that rise with each change; where a server has others, nothing here
// is known and all that comes is taken.

// parseVersion is a resource version as a number, or 0 where it is none.
func parseVersion(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// readVersion finds the resource version in the octets of an object, or 0.
func readVersion(octets []byte) uint64 {
	const metadata, resourceVersion = 1, 6 // of every kind
	for m := protobuf.Read(octets); m.Next(); {
		if m.Field != metadata {
			continue
		}
		for meta := m.Message(); meta.Next(); {
			if meta.Field == resourceVersion {
				return parseVersion(meta.Text())
			}
		}
	}
	return 0
}

// name stands for an object's name: versions and comparisons of many objects need their
// names, and nothing else of those texts should stay.
type name uint64

var nameSeed = maphash.MakeSeed()

func nameOf(namespace, object string) name {
	return name(maphash.Comparable(nameSeed, [2]string{namespace, object}))
}

// digest is what is kept of an object, and its version. To a reflector it is an object
// with a name.
type digest struct {
	*registry.Digest
	version uint64
}

func (d digest) id() name { return nameOf(d.Namespace(), d.Name()) }

// held is what a feed knows of the versions of what it has brought. It is guarded by the
// feed's mutex.
type held struct {
	version uint64          // as of which all is known: of the last list, event or bookmark
	listed  uint64          // of the last list
	objects map[name]uint64 // of each object

	// touched are the versions of events that came while an audit is under way.
	touched map[name]uint64

	consistent bool // the list under way is as new as the cluster
	insist     bool // the next one has to be
	olderOnce  bool // a consistent list was older than version already
}

// isOlder says whether an object of an event is older than what is held of it: the object
// itself, or that the last list did not have it.
func (h *held) isOlder(d digest) bool {
	if d.version == 0 {
		return false
	}
	if have, ok := h.objects[d.id()]; ok {
		return d.version < have
	}
	return d.version <= h.listed
}

// note takes over the version of what was read.
func (h *held) note(version uint64) (newer bool) {
	newer = version > h.version
	h.version = max(h.version, version)
	return newer
}

// errOlder is why a list was not taken.
var errOlder = errors.New("the list is older than what is known")

// insists says whether the state that is read next has to be as new as the cluster.
func (f *feed) insists() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.held.insist
}

// admit says whether a list of some version may take the place of what is held. One that
// is older may not, unless it is as new as the cluster, for the second time: then it is the
// cluster that has gone back, as it does when its store is restored from a backup.
func (f *feed) admit(version uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	have := f.held.version
	if version == 0 || version >= have || f.status.Lists == 0 {
		f.held.olderOnce = false
		return nil
	}
	log := f.src.log.With("server", f.src.server, "kind", f.kind.name, "in", f.scope(), "version", version, "known", have)
	if f.held.consistent && f.held.olderOnce {
		f.status.OlderTaken++
		log.Warn("an older state is taken: the API server insists on it, as after a restore of its store")
		return nil
	}
	f.held.olderOnce = f.held.consistent
	f.held.insist = true
	f.status.OlderLists++
	f.reason = RelistOlder
	log.Warn("an older state is not taken; what is known stays, reading the state again")
	return errOlder
}

// arrived decides about an event with an object: whether it is to be taken.
func (f *feed) arrived(d digest) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if d.Digest == nil {
		return false
	}
	if f.held.isOlder(d) {
		f.status.OlderEvents++
		return false
	}
	if f.held.touched != nil {
		f.held.touched[d.id()] = d.version
	}
	return true
}

// applied says that what an event brought is in the registry.
func (f *feed) applied(d digest, gone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case gone:
		delete(f.held.objects, d.id())
	case d.version != 0:
		f.held.objects[d.id()] = d.version
	}
	f.progressed(d.version)
}

// progressed notes a version. It needs f.mu.
func (f *feed) progressed(version uint64) {
	if f.held.note(version) {
		f.status.Version = f.held.version
		f.status.Progressed = time.Now()
	}
}
