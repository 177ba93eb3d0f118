package kube

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"epdns/internal/fakeapi"
)

func TestParseVersion(t *testing.T) {
	for text, want := range map[string]uint64{
		"": 0, "0": 0, "1": 1, "18446744073709551615": 1<<64 - 1,
		"18446744073709551616": 0, "v7": 0, "-1": 0, " 1": 0, "1.0": 0,
	} {
		if have := parseVersion(text); have != want {
			t.Errorf("%q is %d, want %d", text, have, want)
		}
	}
}

// The version is found in the octets as it is in the object.
func TestReadVersion(t *testing.T) {
	s := large(7, 1, 3)
	s.ResourceVersion = "123456789012"
	octets, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if v := readVersion(octets); v != 123456789012 {
		t.Errorf("version %d", v)
	}
	for i := range octets {
		readVersion(octets[:i]) // must not go beyond its end
	}
	if v := readVersion(nil); v != 0 {
		t.Errorf("version %d of nothing", v)
	}
}

// A list that is older than what is held is not taken; the next one is as new as the
// cluster.
func TestOlderList(t *testing.T) {
	for _, minor := range []string{"", "33"} {
		t.Run(minor, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.api.Minor = minor
				w.api.Endless(minor == "") // so that there are lists
				w.run()
				after(time.Minute)
				w.api.Apply(slice("web", "web-1", "10.0.0.2"))
				w.api.Apply(slice("web", "web-2", "10.0.0.3"))
				synctest.Wait()
				w.api.Older("EndpointSlice", 1, 2)
				w.api.ExpireWatches("EndpointSlice")
				after(maxBackoff + 2*time.Second)
				w.wantAddresses("web", "10.0.0.2", "10.0.0.3")
				st := w.status(0)
				if st.OlderLists != 1 || st.OlderTaken != 0 || st.Relists() != 1 || st.RelistsBy[RelistOlder] != 1 || !st.Connected {
					t.Errorf("status %+v", st)
				}
				w.wantLines(1, "level=WARN msg=\"an older state is not taken")
				last := w.api.Requests()
				for i := len(last) - 1; i >= 0; i-- {
					if last[i].Kind == "EndpointSlice" && !last[i].Watch {
						if !last[i].Exact() {
							t.Error("the second list need not be as new as the cluster")
						}
						break
					}
				}
			})
		})
	}
}

// Who serves something already reads a state as new as the cluster from the start.
func TestInsistingReadsTheNewest(t *testing.T) {
	for _, insist := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.api.Minor = "33"
			w.api.Apply(slice("web", "web-1", "10.0.0.2"))
			w.api.LagBehind(1)
			w.src.Insist = insist
			w.run()
			want := "10.0.0.1"
			if insist {
				want = "10.0.0.2"
			}
			w.wantAddresses("web", want)
			for _, r := range w.api.Requests() {
				if !r.Watch && (r.Consistent() || r.Exact()) != insist {
					t.Errorf("insist=%t, request %+v", insist, r)
				}
			}
		})
	}
}

// Two consistent lists that are older are the truth.
func TestOlderListTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Minor = "33"
		w.run()
		after(time.Minute)
		w.api.Apply(slice("web", "web-1", "10.0.0.2"))
		synctest.Wait()
		w.api.Older("EndpointSlice", 5, 1) // the first of them may be of any age, the others are asked for in pairs
		w.api.ExpireWatches("EndpointSlice")
		after(time.Minute)
		st := w.status(0)
		if st.OlderLists != 2 || st.OlderTaken != 1 || st.Relists() != 1 {
			t.Errorf("status %+v", st)
		}
		w.wantLines(1, "level=WARN msg=\"an older state is taken")
	})
}

// An event that tells of what was before is not taken.
func TestOlderEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		w.api.Apply(slice("web", "web-1", "10.0.0.2"))
		w.api.Apply(slice("web", "web-2", "10.0.0.3"))
		w.delete("EndpointSlice", "web-2")
		synctest.Wait()
		replay := func(name string, ago int, kind string) {
			t.Helper()
			if err := w.api.Replay(kind, shop(name), ago); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		replay("web-1", 1, "EndpointSlice") // as it was
		w.wantAddresses("web", "10.0.0.2")
		replay("web-1", 0, "EndpointSlice") // as it is: said twice
		w.wantAddresses("web", "10.0.0.2")
		if st := w.status(0); st.OlderEvents != 1 || !st.Connected || st.Relists() != 0 {
			t.Errorf("status %+v", st)
		}

		// What was gone when the state was read does not come back.
		w.api.ExpireWatches("EndpointSlice")
		after(maxBackoff)
		replay("web-2", 1, "EndpointSlice")
		w.wantAddresses("web", "10.0.0.2")
		if st := w.status(0); st.OlderEvents != 2 {
			t.Errorf("status %+v", st)
		}

		// What was deleted before it was made again is not deleted by that.
		w.api.Apply(slice("web", "web-2", "10.0.0.4"))
		synctest.Wait()
		replay("web-2", 1, "EndpointSlice")
		w.wantAddresses("web", "10.0.0.2", "10.0.0.4")
	})
}

// Versions that are no numbers have no order: all that comes is taken, and audits find what
// the watch has left out.
func TestVersionsWithoutOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := fakeapi.New()
		api.VersionPrefix = "v"
		w := newWorldOn(t, api)
		w.src.AuditEvery = auditEvery
		w.run()
		w.wantAddresses("web", "10.0.0.1")
		w.api.Apply(slice("web", "web-1", "10.0.0.2"))
		synctest.Wait()
		if err := w.api.Replay("EndpointSlice", shop("web-1"), 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		w.wantAddresses("web", "10.0.0.1")
		after(auditEvery + 2*auditSettles)
		w.wantAddresses("web", "10.0.0.2")
		if st := w.status(0); st.Drift != 1 || st.Version != 0 || st.OlderEvents+st.OlderLists != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

// Why the state was read again is counted.
func TestRelistReasons(t *testing.T) {
	for _, c := range []struct {
		reason RelistReason
		cause  func(*fakeapi.Server)
	}{
		{RelistExpired, func(a *fakeapi.Server) { a.ExpireWatches("EndpointSlice") }},
		{RelistEvent, func(a *fakeapi.Server) {
			a.Damage("EndpointSlice", fakeapi.BadField)
			a.Apply(slice("web", "web-1", "10.0.0.2"))
		}},
	} {
		t.Run(c.reason.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.run()
				after(time.Minute)
				c.cause(w.api)
				after(maxBackoff)
				st := w.status(0)
				if st.RelistsBy[c.reason] != 1 || st.Relists() != 1 {
					t.Errorf("status %+v", st)
				}
			})
		})
	}
}

// Requests that fail are counted by what was wrong with them, and what is known stays.
func TestErrorReasons(t *testing.T) {
	for _, c := range []struct {
		reason ErrorReason
		cause  func(*world)
	}{
		{ErrorUnreachable, func(w *world) { w.pipe.refused.Store(true) }},
		{ErrorUnauthorized, func(w *world) { w.api.Fail(http.StatusUnauthorized) }},
		{ErrorForbidden, func(w *world) { w.api.Forbid("EndpointSlice", true) }},
		{ErrorServer, func(w *world) { w.api.Fail(http.StatusInternalServerError) }},
	} {
		t.Run(c.reason.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.run()
				c.cause(w)
				w.pipe.cut(io.EOF)
				after(time.Minute)
				st := w.status(0)
				if n := st.Errors[c.reason]; n < 10 || n > 120 {
					t.Errorf("%d errors, status %+v", n, st)
				}
				w.wantAddresses("web", "10.0.0.1")
				w.api.Fail(0)
				w.api.Forbid("EndpointSlice", false)
				w.pipe.refused.Store(false)
				w.api.Apply(slice("web", "web-1", "10.0.0.2"))
				after(maxBackoff + 2*time.Second)
				w.wantAddresses("web", "10.0.0.2")
			})
		})
	}
	if r := errorReason(errors.New("invalid character '<'")); r != ErrorMalformed {
		t.Errorf("HTML is %v", r)
	}
}

// A bookmark that brings a new version is progress, one without is not.
func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		begin := w.status(0)
		if begin.Version == 0 || begin.Progressed.IsZero() {
			t.Errorf("status %+v", begin)
		}
		after(time.Minute)
		w.api.Announce()
		synctest.Wait()
		if st := w.status(0); st.Progressed != begin.Progressed || !st.LastEvent.After(begin.LastEvent) {
			t.Errorf("status %+v", st)
		}
		w.api.Advance(1)
		w.api.Announce()
		synctest.Wait()
		if st := w.status(0); st.Version != begin.Version+1 || !st.Progressed.After(begin.Progressed) {
			t.Errorf("status %+v", st)
		}
	})
}

// Names that differ in where the namespace ends are others.
func TestNameOf(t *testing.T) {
	if nameOf("a", "bc") == nameOf("ab", "c") || nameOf("", "a") == nameOf("a", "") || nameOf("a", "b") != nameOf("a", strings.Clone("b")) {
		t.Error("names")
	}
}
