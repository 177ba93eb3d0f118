package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"epdns/registry"
)

// target is what is watched: one Service, or all.
type target struct {
	registry.Key
	all bool
}

func (t target) String() string {
	if t.all {
		return "any Service"
	}
	return t.Key.String()
}

// parseService reads NAMESPACE/SERVICE.
func parseService(text string) (k registry.Key, err error) {
	var ok bool
	if k.Namespace, k.Name, ok = strings.Cut(text, "/"); !ok {
		return k, fmt.Errorf("%q is not NAMESPACE/SERVICE, such as shop/web", text)
	}
	for _, label := range []string{k.Namespace, k.Name} {
		if len(validation.IsDNS1123Label(label)) > 0 {
			return k, fmt.Errorf("%q is not NAMESPACE/SERVICE: %q has to be lower-case letters, digits and dashes, at most 63", text, label)
		}
	}
	return k, nil
}

// change is what has happened to one endpoint, in the form that "watch -o json"
// and /watch have. docs/watch.md tells the meaning of each field.
type change struct {
	Time      time.Time  `json:"time"`
	Type      string     `json:"type"`
	Namespace string     `json:"namespace"`
	Service   string     `json:"service"`
	Address   netip.Addr `json:"address"`
	Hostname  string     `json:"hostname,omitempty"`
	Pod       string     `json:"pod,omitempty"`
	state
	Was *state `json:"was,omitempty"`
}

// state is what may change of an endpoint.
type state struct {
	Ready       bool   `json:"ready"`
	Serving     bool   `json:"serving"`
	Terminating bool   `json:"terminating"`
	Zone        string `json:"zone,omitempty"`
	Node        string `json:"node,omitempty"`
	Slice       string `json:"slice"`
	Ports       []port `json:"ports"`
}

type port struct {
	Name     string `json:"name,omitempty"`
	Protocol string `json:"protocol"`
	Number   uint16 `json:"number,omitempty"`
}

var (
	added   = registry.Added.String()
	changed = registry.Changed.String()
	removed = registry.Removed.String()
)

func newChange(at time.Time, k registry.Key, c registry.Change) change {
	out := change{
		Time:      at.UTC(),
		Type:      c.Type.String(),
		Namespace: k.Namespace,
		Service:   k.Name,
		Address:   c.Addr,
		Hostname:  c.Hostname,
		Pod:       c.Pod,
		state:     newState(&c.Member),
	}
	if c.Type == registry.Changed {
		was := newState(&c.Was)
		out.Was = &was
	}
	return out
}

func newState(m *registry.Member) state {
	s := state{m.Ready, m.Serving, m.Terminating, m.Zone, m.Node, m.Slice, []port{}}
	for _, p := range m.Ports {
		s.Ports = append(s.Ports, port{p.Name, p.Protocol.String(), p.Number})
	}
	return s
}

func (s *state) equal(o *state) bool {
	return s.Ready == o.Ready && s.Serving == o.Serving && s.Terminating == o.Terminating &&
		s.Zone == o.Zone && s.Node == o.Node && s.Slice == o.Slice && slices.Equal(s.Ports, o.Ports)
}

// check says what a change that came from somebody else lacks.
func (c *change) check() error {
	switch {
	case c.Type != added && c.Type != changed && c.Type != removed:
		return fmt.Errorf("type %q is not known", c.Type)
	case c.Namespace == "" || c.Service == "" || !c.Address.IsValid():
		return errors.New("no namespace, service or address")
	}
	return nil
}

// round is what has happened since the round before. The first one has all that
// is there, as added.
type round struct {
	changes  []change
	services int // how many of the Services that are watched exist
}

// watcher follows a store. It belongs to one goroutine.
type watcher struct {
	*registry.Follower
	last map[registry.Key]*registry.Service
}

// newWatcher must be closed when it is not needed any more.
func newWatcher(store *registry.Store, of target) *watcher {
	w := &watcher{last: map[registry.Key]*registry.Service{}}
	if of.all {
		w.Follower = store.FollowAll()
	} else {
		w.Follower = store.Follow(of.Namespace, of.Name)
	}
	return w
}

// round is to be called once the store is synced, and then whenever Changed wakes.
func (w *watcher) round(at time.Time) round {
	services := w.Take()
	slices.SortFunc(services, func(a, b *registry.Service) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	var r round
	for _, svc := range services {
		for _, c := range registry.Diff(w.last[svc.Key], svc) {
			r.changes = append(r.changes, newChange(at, svc.Key, c))
		}
		if svc.Exists {
			w.last[svc.Key] = svc
		} else {
			delete(w.last, svc.Key)
		}
	}
	r.services = len(w.last)
	return r
}

// endpoint tells endpoints apart, as the registry does.
type endpoint struct {
	namespace, service string
	address            netip.Addr
	hostname, pod      string
}

func (c *change) endpoint() endpoint {
	return endpoint{c.Namespace, c.Service, c.Address, c.Hostname, c.Pod}
}

// known is what one who watches from afar has been told, and not told gone since.
type known map[endpoint]change

// learn returns a change as it is for one who knows this much, and whether it is
// anything new.
func (k known) learn(c change) (_ change, news bool) {
	id := c.endpoint()
	old, has := k[id]
	if c.Type == removed {
		delete(k, id)
		return c, has
	}
	if has && old.equal(&c.state) {
		return c, false
	}
	c.Type, c.Was = added, nil
	k[id] = c
	if has {
		c.Type, c.Was = changed, &old.state
	}
	return c, true
}

// replace learns all that is there now, and returns what is different: who has
// gone unseen, then the rest.
func (k known) replace(now []change, at time.Time) []change {
	there := make(map[endpoint]bool, len(now))
	for i := range now {
		there[now[i].endpoint()] = now[i].Type != removed
	}
	var out []change
	for id, old := range k {
		if !there[id] {
			old.Time, old.Type, old.Was = at.UTC(), removed, nil
			out = append(out, old)
		}
	}
	slices.SortFunc(out, func(a, b change) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Service, b.Service),
			a.Address.Compare(b.Address), strings.Compare(a.Hostname, b.Hostname), strings.Compare(a.Pod, b.Pod))
	})
	for _, c := range out {
		delete(k, c.endpoint())
	}
	for _, c := range now {
		if c, news := k.learn(c); news {
			out = append(out, c)
		}
	}
	return out
}
