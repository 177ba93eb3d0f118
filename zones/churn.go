package zones

import (
	"time"

	"epdns/registry"
)

// churnFor is how long after a change a Service counts as one that changes. The next
// pod of a rollout follows within that time.
const churnFor = 30 * time.Second

// churn remembers which Services have just changed, where that shortens their TTLs.
type churn struct {
	ttl   uint32 // 0: it does not
	until map[registry.Key]time.Time
	queue []settling // by time
}

// settling is a Service that has its own TTLs again from that time on, unless it
// changes before.
type settling struct {
	registry.Key
	at time.Time
}

// note notes what changes, if it is a change and not what was there at first, and
// returns what has changed of late among these.
func (c *churn) note(changed []*registry.Service, synced bool, now time.Time) map[registry.Key]bool {
	if c.ttl == 0 || !synced {
		return nil
	}
	if c.until == nil {
		c.until = map[registry.Key]time.Time{}
	}
	hot := make(map[registry.Key]bool, len(changed))
	at := now.Add(churnFor)
	for _, svc := range changed {
		if !svc.Exists {
			delete(c.until, svc.Key)
			continue
		}
		hot[svc.Key] = true
		c.until[svc.Key] = at
		c.queue = append(c.queue, settling{svc.Key, at})
	}
	return hot
}

// settle adds to the changed Services those that have not changed for long enough.
func (c *churn) settle(changed []*registry.Service, now time.Time, last *Set) []*registry.Service {
	for len(c.queue) > 0 && !c.queue[0].at.After(now) {
		s := c.queue[0]
		c.queue = c.queue[1:]
		if until, ok := c.until[s.Key]; !ok || !until.Equal(s.at) {
			continue // it has changed again, or is gone
		}
		delete(c.until, s.Key)
		if svc := last.registryService(s.Key); svc != nil {
			changed = append(changed, svc)
		}
	}
	return changed
}

// registryService is a Service as it was compiled last, nil if there is none.
func (s *Set) registryService(k registry.Key) *registry.Service {
	key := appendLabel(appendLabel(nil, k.Name), k.Namespace)
	for i := range s.services {
		if svc, ok := s.services[i].get(key); ok {
			return svc.source
		}
	}
	return nil
}

// next is when settle has something to add, zero if it never has.
func (c *churn) next() time.Time {
	for len(c.queue) > 0 && !c.until[c.queue[0].Key].Equal(c.queue[0].at) {
		c.queue = c.queue[1:] // it has changed again, or is gone
	}
	if len(c.queue) == 0 {
		return time.Time{}
	}
	return c.queue[0].at
}
