package dnsserver

import "sync/atomic"

// ring is a bounded queue of entries with many writers, none of which waits or allocates,
// and one reader. Each slot has a number which says whose turn it is: that of the writer who
// has this ticket, then, one higher, of the reader.
type ring[T any] struct {
	slots []ringSlot[T] // a power of two of them
	next  atomic.Uint64 // ticket of the next writer
	_     [56]byte
	read  uint64 // of the reader alone
}

type ringSlot[T any] struct {
	turn  atomic.Uint64
	entry T
}

func newRing[T any](size int) ring[T] {
	slots := make([]ringSlot[T], size)
	for i := range slots {
		slots[i].turn.Store(uint64(i))
	}
	return ring[T]{slots: slots}
}

// slot is room for an entry, and its ticket for put; nil where there is none.
func (r *ring[T]) slot() (*ringSlot[T], uint64) {
	for {
		ticket := r.next.Load()
		s := &r.slots[ticket&uint64(len(r.slots)-1)]
		switch turn := s.turn.Load(); {
		case turn == ticket:
			if r.next.CompareAndSwap(ticket, ticket+1) {
				return s, ticket
			}
		case turn < ticket: // the reader has yet to come round
			return nil, 0
		}
	}
}

// put hands a slot that is filled to the reader.
func (s *ringSlot[T]) put(ticket uint64) { s.turn.Store(ticket + 1) }

// take fills e with the next entry, if there is one.
func (r *ring[T]) take(e *T) bool {
	s := &r.slots[r.read&uint64(len(r.slots)-1)]
	if s.turn.Load() != r.read+1 {
		return false
	}
	*e = s.entry
	s.turn.Store(r.read + uint64(len(r.slots)))
	r.read++
	return true
}
