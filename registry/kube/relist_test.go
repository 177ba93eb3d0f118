package kube

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// massEmpty is that of these tests.
var massEmpty = MassEmpty{Above: 20, Share: 0.8, Hold: 10 * time.Second}

// filled is a world whose Service web has so many endpoints, in slices of ten.
func filled(t *testing.T, endpoints int) *world {
	t.Helper()
	w := newWorld(t)
	w.src.MassEmpty = massEmpty
	for i := 0; i < endpoints; i += 10 {
		w.api.Apply(slice("web", fmt.Sprintf("web-%d", i/10+1), addresses(i, 10)...))
	}
	return w
}

func addresses(from, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint("10.0.0.", from+i))
	}
	return out
}

func (w *world) endpoints(service string) (n int) {
	if svc := w.store.Snapshot("shop", service); svc != nil {
		for _, s := range svc.Slices {
			n += s.Endpoints.Len()
		}
	}
	return n
}

// emptied takes the slices of web away and says so with a list only.
func (w *world) emptied(from, to int) {
	for i := from; i < to; i++ {
		w.api.DeleteSilently("EndpointSlice", shop(fmt.Sprintf("web-%d", i)))
	}
	w.api.ExpireWatches("EndpointSlice")
	after(3 * time.Second)
}

func TestMassEmptyIsHeld(t *testing.T) {
	for _, minor := range []string{"", "33"} {
		t.Run(minor, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := filled(t, 30)
				w.api.Minor = minor
				w.run()
				after(time.Minute)
				w.emptied(1, 4)
				if n := w.endpoints("web"); n != 30 {
					t.Errorf("%d endpoints at once", n)
				}
				if svc := w.store.Snapshot("shop", "web"); svc.Held == 0 || time.Until(time.Unix(svc.Held, 0)) > massEmpty.Hold {
					t.Errorf("held until %v", time.Unix(svc.Held, 0))
				}
				if st := w.status(0); st.Held != 1 || st.Holds != 1 {
					t.Errorf("status %+v", st)
				}
				// Another list says the same: that does not begin anew.
				w.emptied(0, 0)
				if n := w.endpoints("web"); n != 30 {
					t.Errorf("%d endpoints after another list", n)
				}
				after(massEmpty.Hold + maxBackoff)
				if n := w.endpoints("web"); n != 0 {
					t.Errorf("%d endpoints after the time", n)
				}
				if svc := w.store.Snapshot("shop", "web"); svc == nil || svc.Held != 0 {
					t.Errorf("Service %+v", svc)
				}
				if st := w.status(0); st.Held != 0 || st.Holds != 1 || st.RelistsBy[RelistHeld] != 1 || !st.Connected {
					t.Errorf("status %+v", st)
				}
				w.wantLines(1, "level=WARN msg=\"a list lacks most endpoints")
				w.wantLines(1, "")
			})
		})
	}
}

// The list was wrong: nobody has lost anything.
func TestMassEmptyWasWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := filled(t, 30)
		w.run()
		after(time.Minute)
		w.emptied(1, 4)
		for i := range 3 {
			w.api.ApplySilently(slice("web", fmt.Sprintf("web-%d", i+1), addresses(10*i, 10)...))
		}
		after(massEmpty.Hold + maxBackoff)
		if n := w.endpoints("web"); n != 30 {
			t.Errorf("%d endpoints", n)
		}
		if st := w.status(0); st.Held != 0 || st.Holds != 1 {
			t.Errorf("status %+v", st)
		}
	})
}

// While a Service is held, events are taken.
func TestEventsBeatTheHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := filled(t, 30)
		w.run()
		after(time.Minute)
		w.emptied(1, 4)
		w.api.Apply(slice("web", "web-1", "10.0.9.9"))
		synctest.Wait()
		if n := w.endpoints("web"); n != 21 {
			t.Errorf("%d endpoints", n)
		}
		w.delete("EndpointSlice", "web-1")
		synctest.Wait()
		if n := w.endpoints("web"); n != 20 {
			t.Errorf("%d endpoints", n)
		}
		after(massEmpty.Hold + maxBackoff)
		if n := w.endpoints("web"); n != 0 {
			t.Errorf("%d endpoints after the time", n)
		}
	})
}

// What is not held: few endpoints, a small part of them, events, a Service that is gone,
// and nothing where the guard is off.
func TestMassEmptyIsNotHeld(t *testing.T) {
	for _, c := range []struct {
		what      string
		endpoints int
		prepare   func(*world)
		change    func(*world)
		left      int
	}{
		{"a small Service", 20, nil, func(w *world) { w.emptied(1, 3) }, 0},
		{"a part", 50, nil, func(w *world) { w.emptied(1, 5) }, 10},
		{"events", 30, nil, func(w *world) {
			for i := range 3 {
				w.delete("EndpointSlice", fmt.Sprintf("web-%d", i+1))
			}
			synctest.Wait()
		}, 0},
		{"a Service that is gone", 30, nil, func(w *world) {
			w.delete("Service", "web")
			synctest.Wait() // or the list may be first
			w.emptied(1, 4)
			w.api.Apply(service("web"))
			synctest.Wait()
		}, 0},
		{"off", 30, func(w *world) { w.src.MassEmpty.Hold = 0 }, func(w *world) { w.emptied(1, 4) }, 0},
		{"moved to other slices", 30, nil, func(w *world) {
			for i := range 3 {
				w.api.ApplySilently(slice("web", fmt.Sprint("other-", i), addresses(10*i, 10)...))
			}
			w.emptied(1, 4)
		}, 30},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := filled(t, c.endpoints)
				if c.prepare != nil {
					c.prepare(w)
				}
				w.run()
				after(time.Minute)
				c.change(w)
				if n := w.endpoints("web"); n != c.left {
					t.Errorf("%d endpoints, want %d", n, c.left)
				}
				if st := w.status(0); st.Held != 0 || st.Holds != 0 {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

// An audit that finds most endpoints of a Service gone goes the same way.
func TestAuditIsGuarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := filled(t, 30)
		w.src.AuditEvery = auditEvery
		w.run()
		after(auditEvery)
		for i := range 3 {
			w.api.DeleteSilently("EndpointSlice", shop(fmt.Sprintf("web-%d", i+1)))
		}
		for w.status(0).Held == 0 {
			after(time.Second)
		}
		if n := w.endpoints("web"); n != 30 {
			t.Errorf("%d endpoints", n)
		}
		after(massEmpty.Hold + maxBackoff)
		if n := w.endpoints("web"); n != 0 {
			t.Errorf("%d endpoints after the time", n)
		}
		after(2 * auditEvery)
		if st := w.status(0); st.Audits[AuditDrift] != 1 || st.Drift != 3 {
			t.Errorf("status %+v", st)
		}
	})
}

// Without a connection nothing that is held goes: there is nobody to say that it is gone.
func TestHoldWithoutConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := filled(t, 30)
		w.run()
		after(time.Minute)
		w.emptied(1, 4)
		w.pipe.refused.Store(true)
		w.pipe.cut(fmt.Errorf("reset"))
		after(time.Hour)
		if n := w.endpoints("web"); n != 30 {
			t.Errorf("%d endpoints", n)
		}
		w.pipe.refused.Store(false)
		after(2 * (maxBackoff + 2*time.Second))
		if n := w.endpoints("web"); n != 0 {
			t.Errorf("%d endpoints once the list could be read again", n)
		}
	})
}
