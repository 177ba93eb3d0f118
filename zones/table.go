package zones

import "hash/maphash"

// table is an immutable hash table from a string of bytes to V, made so that a
// changed table shares all but the changed path with the one before: a fixed
// array of fixed arrays of small buckets. Changing one key copies one array of
// each level and one bucket, whatever the number of keys. The zero table is empty.
//
// 256 by 256 buckets hold one to two keys each at 100,000 keys and sixteen at a
// million, still within a few cache lines.
type table[V any] struct {
	dirs *[256]*dir[V]
	n    int
}

type dir[V any] [256][]slot[V]

type slot[V any] struct {
	key   string
	value V
}

// seed is the same for all tables, so that a key is hashed once for several.
var seed = maphash.MakeSeed()

func (t *table[V]) len() int { return t.n }

// get finds the value of a key without keeping or copying it.
func (t *table[V]) get(key []byte) (v V, ok bool) {
	for _, s := range t.bucket(maphash.Bytes(seed, key)) {
		if s.key == string(key) {
			return s.value, true
		}
	}
	return v, false
}

func (t *table[V]) getString(key string) (v V, ok bool) {
	for _, s := range t.bucket(maphash.String(seed, key)) {
		if s.key == key {
			return s.value, true
		}
	}
	return v, false
}

func (t *table[V]) bucket(h uint64) []slot[V] {
	if t.dirs == nil {
		return nil
	}
	d := t.dirs[h&0xff]
	if d == nil {
		return nil
	}
	return d[h>>8&0xff]
}

// all calls yield for each key in no particular order until it returns false.
func (t *table[V]) all(yield func(key string, value V) bool) {
	if t.dirs == nil {
		return
	}
	for _, d := range t.dirs {
		if d == nil {
			continue
		}
		for _, bucket := range d {
			for i := range bucket {
				if !yield(bucket[i].key, bucket[i].value) {
					return
				}
			}
		}
	}
}

// edit makes the next table out of one. The table it starts from stays as it is;
// what the edit has copied already it changes in place.
type edit[V any] struct {
	table[V]
	owned map[*dir[V]]struct{}
}

func (t table[V]) edit() *edit[V] { return &edit[V]{table: t} }

// own returns the bucket of a key, in a path that this edit owns.
func (e *edit[V]) own(key string) *[]slot[V] {
	if e.owned == nil {
		e.owned = map[*dir[V]]struct{}{}
		var dirs [256]*dir[V]
		if e.dirs != nil {
			dirs = *e.dirs
		}
		e.dirs = &dirs
	}
	h := maphash.String(seed, key)
	d := e.dirs[h&0xff]
	if _, ok := e.owned[d]; !ok || d == nil {
		var c dir[V]
		if d != nil {
			c = *d
		}
		d = &c
		e.owned[d] = struct{}{}
		e.dirs[h&0xff] = d
	}
	return &d[h>>8&0xff]
}

// set adds or replaces a key.
func (e *edit[V]) set(key string, value V) {
	b := e.own(key)
	next := make([]slot[V], 0, len(*b)+1)
	for _, s := range *b {
		if s.key != key {
			next = append(next, s)
		}
	}
	e.n += len(next) + 1 - len(*b)
	*b = append(next, slot[V]{key, value})
}

// remove takes a key out, if it is there.
func (e *edit[V]) remove(key string) {
	b := e.own(key)
	var next []slot[V]
	for _, s := range *b {
		if s.key != key {
			next = append(next, s)
		}
	}
	e.n -= len(*b) - len(next)
	*b = next
}

// done ends the edit; its copies belong to the table from now on.
func (e *edit[V]) done() table[V] {
	e.owned = nil
	return e.table
}
