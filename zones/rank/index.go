package rank

import (
	"slices"
	"sync"
)

// Index is where the targets of a set are among the slots, for Hash to find the first
// without looking at all. It never changes.
type Index struct {
	// cells are of cellSlots slots each, by table. From the lowest bit on, a cell says which
	// slots have targets, which have more than one, and where among the numbers those of
	// the cell begin.
	cells [tables]cells
	// numbers are those of the targets, by table, in order of the slots: below numberBits.
	// Above is the slot in its cell.
	numbers [tables][]uint32

	heaviest float64 // weight
	inverse  *[slots]uint16
}

// cells have one more at the end.
type cells [slots/cellSlots + 2]uint64

const (
	cellSlots  = 16
	numberBits = 28

	// fewest is how many targets an index is made for. Of fewer, a look at each is as
	// fast, unless very few are wanted, and the cells would take much room for each.
	fewest = 256
)

// NewIndex makes the index of targets that have these keys and weights; nil are weights
// that are all the same. It returns nil where an index would be of no use.
func NewIndex(keys []uint64, weights []uint16) *Index {
	n := len(keys)
	if n < fewest || n > 1<<numberBits {
		return nil
	}
	x := &Index{heaviest: 1, inverse: inverses()}
	if weights != nil {
		x.heaviest = float64(slices.Max(weights))
	}
	all, room := make([]uint32, tables*n), make([]uint32, n)
	for table := range tables {
		x.numbers[table] = all[table*n : (table+1)*n]
		x.fill(table, keys, room)
	}
	return x
}

// fill makes one of the tables. It sorts the targets by their slots in the cells, and
// those by the cells.
func (x *Index) fill(table int, keys []uint64, room []uint32) {
	cells, numbers := &x.cells[table], x.numbers[table]
	// How many are in each slot of a cell and in each cell, then where the next one goes.
	var nextIn [cellSlots]uint32
	var next [len(cells)]uint32
	for _, key := range keys {
		s := slot(key, table)
		nextIn[s%cellSlots]++
		next[s/cellSlots]++
		cell, bit := &cells[s/cellSlots], uint64(1)<<(s%cellSlots)
		*cell |= bit | *cell&bit<<cellSlots
	}
	sumBefore(nextIn[:])
	sumBefore(next[:])
	for i := range cells {
		cells[i] |= uint64(next[i]) << 32
	}
	for i, key := range keys {
		in := slot(key, table) % cellSlots
		room[nextIn[in]] = uint32(i)
		nextIn[in]++
	}
	for _, number := range room {
		s := slot(keys[number], table)
		numbers[next[s/cellSlots]] = s%cellSlots<<numberBits | number
		next[s/cellSlots]++
	}
}

// sumBefore replaces each number by the sum of those before it.
func sumBefore(numbers []uint32) {
	sum := uint32(0)
	for i, n := range numbers {
		numbers[i] = sum
		sum += n
	}
}

// inverses are 1/n modulo slots.
var inverses = sync.OnceValue(func() *[slots]uint16 {
	inverse := &[slots]uint16{1: 1}
	for n := 2; n < slots; n++ {
		inverse[n] = uint16((slots - slots/n) * int(inverse[slots%n]) % slots)
	}
	return inverse
})
