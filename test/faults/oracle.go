//go:build linux

package faults

import (
	"context"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"epdns/test/cluster"
)

// oracle lists what there is, over and over, and remembers when what was true. What it makes of
// the API's objects is written here once more, in as few words as will do.
type oracle struct {
	kube *cluster.Cluster

	mu       sync.Mutex
	services history // whether a Service exists
	slices   history // and its ready addresses
	looked   time.Time
	failed   int // lists
}

// state is what is true of a Service.
type state struct {
	exists    bool
	addresses []netip.Addr          // sorted
	pods      map[netip.Addr]string // who has an address, as far as a slice tells
}

func (s *state) equal(o *state) bool {
	return s.exists == o.exists && slices.Equal(s.addresses, o.addresses) && maps.Equal(s.pods, o.pods)
}

// keeps says whether an address is that of the same pod in both. One that was given from one pod to
// the next between two lists was perhaps nobody's for a moment.
func (s *state) keeps(a netip.Addr, o *state) bool {
	return contains(o.addresses, a) && s.pods[a] == o.pods[a]
}

// span is a state and when it may have held: until zero is for ever.
type span struct {
	state
	after, until time.Time
	last         time.Time // when a list was begun that showed it still
}

// history is what was true.
type history struct {
	spans map[string][]span // of each Service, the latest last
	last  time.Time         // when the latest list was begun
}

// note takes a list of all that is there. It is true of some moment between begun and ended.
func (h *history) note(now map[string]*state, begun, ended time.Time) {
	for name := range h.spans {
		if now[name] == nil {
			now[name] = &state{}
		}
	}
	for name, s := range now {
		spans := h.spans[name]
		if spans == nil {
			spans = []span{{last: h.last}} // it was not there, if we had looked
		}
		before := &spans[len(spans)-1]
		if before.equal(s) {
			before.last = begun
		} else {
			before.until = ended
			spans = append(spans, span{state: *s, after: before.last, last: begun})
		}
		h.spans[name] = spans
	}
	h.last = begun
}

// between are the states that may have held at some time between two.
func (h *history) between(name string, from, to time.Time) []span {
	spans := h.spans[name]
	if len(spans) == 0 {
		return []span{{}} // never heard of
	}
	begin := slices.IndexFunc(spans, func(s span) bool { return s.until.IsZero() || s.until.After(from) })
	end := begin
	for end < len(spans) && spans[end].after.Before(to) {
		end++
	}
	return spans[begin:max(end, begin+1)]
}

const (
	// listEvery is how often the oracle looks. What lasts for less may stay unseen, so no change
	// of the tests is taken back that soon.
	listEvery = 100 * time.Millisecond

	// listWithin is how long a list may take before the API server counts as away.
	listWithin = 2 * time.Second
)

func newOracle(kube *cluster.Cluster) *oracle {
	return &oracle{kube: kube, services: history{spans: map[string][]span{}}, slices: history{spans: map[string][]span{}}}
}

// run lists until ctx ends.
func (o *oracle) run(ctx context.Context) {
	for tick := time.NewTicker(listEvery); ; {
		o.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look lists once.
func (o *oracle) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	var services struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	looked := time.Now()
	begun := looked
	err := o.kube.Request(ctx, http.MethodGet, servicesPath, nil, &services)
	if err == nil {
		now := map[string]*state{}
		for _, s := range services.Items {
			now[s.Metadata.Name] = &state{exists: true}
		}
		o.mu.Lock()
		o.services.note(now, begun, time.Now())
		o.mu.Unlock()
		begun = time.Now()
		var found map[string]*state
		if found, err = o.addresses(ctx); err == nil {
			o.mu.Lock()
			o.slices.note(found, begun, time.Now())
			o.looked = looked
			o.mu.Unlock()
		}
	}
	if err != nil {
		o.mu.Lock()
		o.failed++
		o.mu.Unlock()
	}
	return err
}

// seen is when the last look was begun that came to an end.
func (o *oracle) seen() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.looked
}

// addresses are the ready ones of each Service, by the slices that there are now.
func (o *oracle) addresses(ctx context.Context) (map[string]*state, error) {
	var list struct {
		Items []struct {
			Metadata    struct{ Labels map[string]string }
			AddressType string
			Endpoints   []struct {
				Addresses  []string
				Conditions struct{ Ready *bool }
				TargetRef  struct{ Name string }
			}
		}
	}
	if err := o.kube.Request(ctx, http.MethodGet, slicesPath, nil, &list); err != nil {
		return nil, err
	}
	found := map[string]*state{}
	for _, item := range list.Items {
		name := item.Metadata.Labels["kubernetes.io/service-name"]
		s := found[name]
		if s == nil {
			s = &state{pods: map[netip.Addr]string{}}
			found[name] = s
		}
		if item.AddressType == "FQDN" {
			continue
		}
		for _, e := range item.Endpoints {
			if e.Conditions.Ready != nil && !*e.Conditions.Ready || len(e.Addresses) == 0 {
				continue
			}
			if a, err := netip.ParseAddr(e.Addresses[0]); err == nil {
				s.addresses = append(s.addresses, a)
				s.pods[a] = max(s.pods[a], e.TargetRef.Name)
			}
		}
	}
	for _, s := range found {
		slices.SortFunc(s.addresses, netip.Addr.Compare)
		s.addresses = slices.Compact(s.addresses)
	}
	return found, nil
}

// right says whether an answer is one that could be given by who knew the state of some moment
// between from and the reply: each address was ready at some time in it, and those that were ready
// all the time are there.
func (o *oracle) right(a *answer, from time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	to := a.at.Add(a.took)
	existed, missed := false, false
	for _, s := range o.services.between(a.service, from, to) {
		existed, missed = existed || s.exists, missed || !s.exists
	}
	switch a.outcome {
	case nxdomain:
		return missed
	case answered:
		if !existed {
			return false
		}
	default:
		return false
	}
	spans := o.slices.between(a.service, from, to)
	for _, got := range a.addresses {
		if !slices.ContainsFunc(spans, func(s span) bool { return contains(s.addresses, got) }) {
			return false
		}
	}
	for _, want := range spans[0].addresses {
		if want.Is4() != a.ipv4 || contains(a.addresses, want) {
			continue
		}
		if !slices.ContainsFunc(spans, func(s span) bool { return !spans[0].keeps(want, &s.state) }) {
			// It was there all the time, unless the Service was away meanwhile.
			if !missed {
				return false
			}
		}
	}
	return true
}

func contains(sorted []netip.Addr, a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(sorted, a, netip.Addr.Compare)
	return found
}

// now is what is true as far as is known, for a person.
func (o *oracle) now(service string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var b strings.Builder
	for what, h := range map[string]*history{"exists ": &o.services, "has ": &o.slices} {
		if spans := h.spans[service]; len(spans) > 0 {
			s := spans[len(spans)-1]
			b.WriteString(what)
			if what == "exists " && !s.exists {
				b.WriteString("no more ")
			}
			for _, a := range s.addresses {
				b.WriteString(a.String() + " ")
			}
		}
	}
	return b.String()
}
