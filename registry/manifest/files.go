package manifest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"time"
)

// file is what we know of a file.
type file struct {
	stamp stamp
	young bool // as of the last look; it has to be read again
	hash  [sha256.Size]byte
	held  bool // empty or gone, and given one more look

	read *content // as it stands in the file, perhaps with faults
	good *content // as it is used, nil: nothing yet
	next *content // candidate while accept decides
	dup  *Fault   // an object that stands elsewhere too

	told []string // faults that were logged
}

// faults are those of the last read.
func (f *file) faults() Faults {
	out := slices.Clone(f.read.faults)
	if f.dup != nil {
		out = append(out, f.dup)
	}
	return out
}

// look reads what has changed since the last look. It says whether anything has.
func (s *Source) look(now time.Time) (changed bool, err error) {
	found, err := s.scan()
	if err == nil && len(found) == 0 && s.uses() {
		err = errNone
	}
	if err != nil {
		return false, err
	}
	for name, st := range found {
		f := s.files[name]
		if f == nil {
			f = &file{}
		} else if f.stamp == st && !f.young && !f.held {
			continue
		}
		if s.reread(name, f, st, now) {
			s.files[name] = f
			changed = true
		}
	}
	for name, f := range s.files {
		if _, ok := found[name]; ok {
			continue
		}
		if !f.held {
			f.held = true // renamed away, perhaps, and about to come back
			continue
		}
		delete(s.files, name)
		if len(f.told) > 0 {
			s.log.Info("a manifest with a fault is gone", "file", s.shown(name))
		}
		s.dropped = s.dropped || f.good != nil
		changed = true
	}
	return changed, nil
}

// errNone is of a directory that had manifests. A volume that is not mounted looks so, and a
// checkout that is half done.
var errNone = errors.New("no manifest is there any more")

// uses says whether a file is in use.
func (s *Source) uses() bool {
	for _, f := range s.files {
		if f.good != nil {
			return true
		}
	}
	return false
}

// reread reads a file and says whether it has something new to say.
func (s *Source) reread(name string, f *file, st stamp, now time.Time) bool {
	data, err := fs.ReadFile(s.fsys, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false // the next scan misses it
	}
	if err != nil {
		f.stamp, f.young, f.hash = st, true, [sha256.Size]byte{}
		c := &content{faults: Faults{{File: s.shown(name), Err: fmt.Errorf("can't be read: %w", bare(err))}}}
		same := f.read != nil && f.read.faults.Error() == c.faults.Error()
		f.read = c
		return !same
	}
	hash := sha256.Sum256(data)
	if f.read != nil && f.hash == hash {
		f.stamp, f.young, f.held = st, st.young(now), false
		return false
	}
	if len(bytes.TrimSpace(data)) == 0 && f.good != nil && !f.held {
		f.held = true // truncated, perhaps, and about to be written
		return false
	}
	f.stamp, f.young, f.hash, f.held = st, st.young(now), hash, false
	f.read = decode(s.shown(name), data)
	return true
}

// bare is the error without the path, which stands in front already.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// accept decides which content of each file is used: the new one, or where that
// has a fault the one before. No object is in two of them. It says whether anything
// in use has changed.
func (s *Source) accept() (changed bool) {
	changed, s.dropped = s.dropped, false
	names := s.names()
	for _, name := range names {
		f := s.files[name]
		f.next, f.dup = f.read, nil
		if len(f.read.faults) > 0 && !s.Partial {
			f.next = f.good
		}
	}
	// Each round turns one file back to what it said before. What all said before
	// was free of doubles, so the rounds end.
	for s.turnBack(names) {
	}
	for _, name := range names {
		f := s.files[name]
		changed = changed || f.good != f.next
		f.good = f.next
	}
	return changed
}

// turnBack finds an object that stands in two files and turns back the one that
// has just come to it, or the later of the two where both have.
func (s *Source) turnBack(names []string) bool {
	owner := map[id]string{}
	for _, name := range names {
		f := s.files[name]
		if f.next == nil {
			continue
		}
		for _, i := range f.next.ids {
			other, twice := owner[i]
			if !twice {
				owner[i] = name
				continue
			}
			loser, winner := name, other
			if f.next == f.good {
				loser, winner = other, name
			}
			l, w := s.files[loser], s.files[winner]
			at := l.next.places[i]
			l.dup = &Fault{File: s.shown(loser), Document: at.document, Item: at.item, Line: at.line,
				Err: fmt.Errorf("%s is in %s, %s, too", i, s.shown(winner), w.next.places[i])}
			l.next = l.good
			return true
		}
	}
	return false
}

func (s *Source) names() []string { return slices.Sorted(maps.Keys(s.files)) }
