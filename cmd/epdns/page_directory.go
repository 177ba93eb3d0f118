package main

import (
	"slices"
	"strings"
	"sync"
	"time"

	"epdns/registry"
)

// directory is the list of all Services in the order of their names, for who looks through
// them. It is made when it is asked for, and not again before something has changed and some
// time has passed: however many look, it takes a small part of one processor.
type directory struct {
	store   *registry.Store
	changes func() uint64 // a number that is another one where something has changed

	mu     sync.Mutex
	list   []listedService // never changed
	of     uint64          // what changes was
	made   time.Time
	took   time.Duration
	forget *time.Timer
}

// listedService is a Service with how many endpoints it has.
type listedService struct {
	*registry.Service
	total, ready int
}

const (
	// directoryShare is how many times as long as it takes to make a list it is good for
	// at least.
	directoryShare = 20

	// directoryKept is after what time a list that nobody has asked for is forgotten: it
	// holds on to Services that may be gone.
	directoryKept = time.Minute
)

// services are all, with a number that is another one where the list is.
func (d *directory) services() (list []listedService, version time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.forget != nil {
		d.forget.Stop()
	}
	d.forget = time.AfterFunc(directoryKept, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.list, d.made = nil, time.Time{}
	})
	changes := d.changes()
	if !d.made.IsZero() && (changes == d.of || time.Since(d.made) < directoryShare*d.took) {
		return d.list, d.made
	}
	began := time.Now()
	list = make([]listedService, 0, len(d.list)+16)
	for svc := range d.store.All() {
		l := listedService{Service: svc}
		for _, slice := range svc.Slices {
			l.total += slice.Endpoints.Len()
			for i := range slice.Endpoints.Len() {
				if slice.Endpoints.Ready(i) {
					l.ready++
				}
			}
		}
		list = append(list, l)
	}
	slices.SortFunc(list, func(a, b listedService) int { return compareKeys(a.Key, b.Key) })
	d.list, d.of, d.made, d.took = list, changes, began, time.Since(began)
	return d.list, d.made
}

// matches says whether a Service is one that is looked for: each word is in its namespace or
// its name, or on both sides of a slash at the end of the one and the start of the other.
func (l *listedService) matches(words []string) bool {
	for _, word := range words {
		namespace, name, both := strings.Cut(word, "/")
		if both && !(strings.HasSuffix(l.Namespace, namespace) && strings.HasPrefix(l.Name, name)) ||
			!both && !strings.Contains(l.Namespace, word) && !strings.Contains(l.Name, word) {
			return false
		}
	}
	return true
}
