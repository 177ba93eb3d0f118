package zones

import (
	"hash/maphash"
	"slices"
)

// table is an immutable hash table from a string of bytes to V, made so that a
// changed table shares all but the changed path with the one before: pages of short
// lists of keys, below pages of those. Changing one key copies a page of each level
// and one list, some 1.5 KB, whatever the number of keys. The zero table is empty.
//
// A table that has got more keys than its lists take is made anew with twice the lists.
// It does not shrink, so that its pages keep up to 8 octets for each key of the most it had,
// where those were many.
type table[V any] struct {
	top   []*upperPage[V] // a power of two of them
	n     int
	edits uint64 // that led to it
}

const (
	lowerBits = 4 // of a hash choose the list in a page of lists,
	upperBits = 6 // and that page in one of pages

	// perList is how many keys there are at most for each list. Of many keys, four to eight
	// in a list are a few lines of memory side by side, and the pages above them small
	// enough to stay near the processor.
	perList = 8
)

// upperPage and lowerPage have each with the number of the edit that made it and may
// change it. A page without keys is nil.
type upperPage[V any] struct {
	edit  uint64
	pages [1 << upperBits]*lowerPage[V]
}

type lowerPage[V any] struct {
	edit  uint64
	lists [1 << lowerBits][]slot[V]
}

type slot[V any] struct {
	key   string
	hash  uint32 // of the key, the upper half: it saves a look at most other keys
	value V
}

// seed is the same for all tables, so that a key is hashed once for several.
var seed = maphash.MakeSeed()

func (t *table[V]) len() int { return t.n }

// get finds the value of a key without keeping or copying it.
func (t *table[V]) get(key []byte) (v V, ok bool) {
	h := hashOf(key)
	list := t.page(h).list(h)
	for i := range list {
		if s := &list[i]; s.hash == uint32(h>>32) && s.key == string(key) {
			return s.value, true
		}
	}
	return v, false
}

func (t *table[V]) getString(key string) (v V, ok bool) {
	h := maphash.String(seed, key)
	list := t.page(h).list(h)
	for i := range list {
		if s := &list[i]; s.hash == uint32(h>>32) && s.key == key {
			return s.value, true
		}
	}
	return v, false
}

// hashOf is the hash of a key. It, page and list are the first steps of get. Where there are
// many keys each has to wait for what the one before has read; LookAhead takes one for many
// keys before the next.
func hashOf(key []byte) uint64 { return maphash.Bytes(seed, key) }

// page is the one that has the list of a hash, nil if there is none.
func (t *table[V]) page(h uint64) *lowerPage[V] {
	if len(t.top) == 0 {
		return nil
	}
	u := t.top[uint(h>>(lowerBits+upperBits))&uint(len(t.top)-1)]
	if u == nil {
		return nil
	}
	return u.pages[h>>lowerBits&(1<<upperBits-1)]
}

// list is the one that has a key of that hash, if any has.
func (l *lowerPage[V]) list(h uint64) []slot[V] {
	if l == nil {
		return nil
	}
	return l.lists[h&(1<<lowerBits-1)]
}

// all calls yield for each key in no particular order until it returns false.
func (t *table[V]) all(yield func(key string, value V) bool) {
	for _, u := range t.top {
		if u == nil {
			continue
		}
		for _, l := range u.pages {
			if l == nil {
				continue
			}
			for _, list := range l.lists {
				for i := range list {
					if !yield(list[i].key, list[i].value) {
						return
					}
				}
			}
		}
	}
}

// edit makes the next table out of one. The table it starts from stays as it is; the
// pages that the edit has made it changes in place. Lists are never changed.
type edit[V any] struct{ table[V] }

func (t table[V]) edit() *edit[V] {
	t.edits++ // more than any page has that the table is made of
	t.top = slices.Clone(t.top)
	return &edit[V]{t}
}

// own is the list of a hash, in pages that this edit owns.
func (e *edit[V]) own(h uint64) *[]slot[V] {
	u := &e.top[uint(h>>(lowerBits+upperBits))&uint(len(e.top)-1)]
	if *u == nil {
		*u = &upperPage[V]{edit: e.edits}
	} else if (*u).edit != e.edits {
		*u = &upperPage[V]{e.edits, (*u).pages}
	}
	l := &(*u).pages[h>>lowerBits&(1<<upperBits-1)]
	if *l == nil {
		*l = &lowerPage[V]{edit: e.edits}
	} else if (*l).edit != e.edits {
		*l = &lowerPage[V]{e.edits, (*l).lists}
	}
	return &(*l).lists[h&(1<<lowerBits-1)]
}

// set adds or replaces a key.
func (e *edit[V]) set(key string, value V) {
	if e.n >= len(e.top)*perList<<(lowerBits+upperBits) {
		e.grow()
	}
	h := maphash.String(seed, key)
	list := e.own(h)
	for i := range *list {
		if (*list)[i].key == key {
			*list = slices.Clone(*list)
			(*list)[i].value = value
			return
		}
	}
	next := make([]slot[V], len(*list)+1) // no larger, as there are many
	copy(next, *list)
	next[len(*list)] = slot[V]{key, uint32(h >> 32), value}
	*list = next
	e.n++
}

// grow makes twice as many lists, or the first ones.
func (e *edit[V]) grow() {
	old := e.table
	e.top = make([]*upperPage[V], max(1, 2*len(e.top)))
	bit := uint64(len(old.top)) << (lowerBits + upperBits)
	for _, u := range old.top {
		if u == nil {
			continue
		}
		for _, l := range u.pages {
			if l == nil {
				continue
			}
			for _, list := range l.lists {
				e.divide(list, bit)
			}
		}
	}
}

// divide puts the keys of a list into two, by a bit of their hashes.
func (e *edit[V]) divide(list []slot[V], bit uint64) {
	high := 0
	for i := range list {
		if maphash.String(seed, list[i].key)&bit != 0 {
			high++
		}
	}
	var parts [2][]slot[V] // no larger than they must be, as there are many
	parts[0], parts[1] = make([]slot[V], 0, len(list)-high), make([]slot[V], 0, high)
	for _, s := range list {
		in := &parts[0]
		if maphash.String(seed, s.key)&bit != 0 {
			in = &parts[1]
		}
		*in = append(*in, s)
	}
	for _, part := range parts {
		if len(part) > 0 {
			*e.own(maphash.String(seed, part[0].key)) = part
		}
	}
}

// remove takes a key out, if it is there.
func (e *edit[V]) remove(key string) {
	if _, ok := e.getString(key); !ok {
		return
	}
	list := e.own(maphash.String(seed, key))
	var next []slot[V]
	if len(*list) > 1 {
		next = make([]slot[V], 0, len(*list)-1)
	}
	for _, s := range *list {
		if s.key != key {
			next = append(next, s)
		}
	}
	*list = next
	e.n--
}

// done ends the edit, which is not to be used any more.
func (e *edit[V]) done() table[V] { return e.table }
