package dnsserver

import (
	"sync"
	"time"
)

// sayEvery is how often a line is logged at most of what others can bring about at will.
const sayEvery = 10 * time.Second

// seldom tells when there may be such a line. The zero value is ready.
type seldom struct {
	mu     sync.Mutex
	next   time.Time // when there may be one again
	unsaid int       // times since the last one without
}

// now says whether there may be one now, and for how many times there was none since the
// last.
func (s *seldom) now() (unsaid int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Before(s.next) {
		s.unsaid++
		return 0, false
	}
	unsaid, s.unsaid = s.unsaid, 0
	s.next = now.Add(sayEvery)
	return unsaid, true
}
