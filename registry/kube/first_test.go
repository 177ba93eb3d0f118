package kube

import (
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A server that sends lists object by object is asked for those.
func TestVersionDecides(t *testing.T) {
	for _, c := range []struct{ minor, mode string }{
		{"", "watchlist"},
		{"32", "watchlist"},
		{"33", "list"},
		{"36+", "list"},
		{"next", "watchlist"},
	} {
		t.Run(c.minor, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.api.Minor = c.minor
				w.run()
				if !w.synced() {
					t.Fatal("not synced")
				}
				w.wantAddresses("web", "10.0.0.1")
				w.api.Apply(slice("web", "web-2", "10.0.0.2"))
				synctest.Wait()
				w.wantAddresses("web", "10.0.0.1", "10.0.0.2")
				w.api.Expire()
				after(time.Second)
				for _, st := range w.src.Status()[:2] {
					if st.Mode != c.mode || st.Lists != 2 || !st.Connected {
						t.Errorf("status %+v, want mode %s and 2 lists", st, c.mode)
					}
				}
				w.wantLines(0, "")
			})
		})
	}
}

// An answer that has begun and does not go on is given up.
func TestListThatStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Minor = "33"
		w.pipe.stalls.Store(true)
		w.run()
		after(listSilence + time.Second)
		if st := w.status(0); st.Synced || st.LastError != errNoAnswer.Error() {
			t.Errorf("status %+v", st)
		}
		w.wantLines(1, "level=WARN msg=\"no connection")
		w.pipe.stalls.Store(false)
		after(listSilence + 7*time.Second) // the attempt under way, and the longest pause
		if st := w.status(0); !w.synced() || st.Mode != "list" {
			t.Errorf("status %+v", st)
		}
		w.wantLines(2, "")
	})
}

// A version that was not told is asked for again, and waited for no longer than for a
// streaming list that brings nothing.
func TestVersionIsNotTold(t *testing.T) {
	for _, c := range []struct {
		what  string
		fault func(*pipe) *atomic.Bool
		mode  string // meanwhile
	}{
		{"no connection", func(p *pipe) *atomic.Bool { return &p.refused }, ""},
		{"no answer", func(p *pipe) *atomic.Bool { return &p.holdsVersion }, "watchlist"},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.api.Minor = "33"
				c.fault(w.pipe).Store(true)
				w.run()
				after(w.src.SyncDeadline + time.Second)
				if st := w.status(0); st.Mode != c.mode {
					t.Errorf("status %+v, want mode %q", st, c.mode)
				}
				c.fault(w.pipe).Store(false)
				w.api.Expire()
				after(7 * time.Second) // the longest pause, with jitter
				if st := w.status(0); st.Mode != "list" {
					t.Errorf("status %+v, want mode list", st)
				}
			})
		})
	}
}

func TestStreamingListWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Endless(true)
		w.run()
		after(w.src.SyncDeadline - time.Second)
		if w.synced() {
			t.Fatal("synced too early")
		}
		after(2 * time.Second)
		if !w.synced() {
			t.Fatal("not synced after the deadline")
		}
		w.wantAddresses("web", "10.0.0.1")
		for i := range 2 {
			if st := w.status(i); st.Mode != "list" || !st.Connected {
				t.Errorf("status %+v", st)
			}
		}
		w.wantLines(1, "using LIST and WATCH")
		w.wantLines(1, "")

		w.api.Apply(slice("web", "web-2", "10.0.0.2"))
		synctest.Wait()
		w.wantAddresses("web", "10.0.0.1", "10.0.0.2")

		w.api.Expire() // no streaming list this time
		after(time.Second)
		if st := w.status(0); st.Lists != 2 || st.Mode != "list" {
			t.Errorf("status %+v", st)
		}
	})
}

// A proxy that cuts endless lists short must not win time by it.
func TestStreamingListCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Endless(true)
		w.run()
		for range 4 {
			after(3 * time.Second)
			w.pipe.cut(io.EOF)
		}
		synctest.Wait()
		if !w.synced() {
			t.Error("not synced")
		}
	})
}

// A large cluster's list takes longer than the deadline and comes to its end, as long
// as something comes.
func TestStreamingListThatGetsOn(t *testing.T) {
	for _, c := range []struct {
		what   string
		slices int
		took   time.Duration // less than this
		mode   string
	}{
		{"longer than the deadline", 10, streamLimit, "watchlist"},
		{"longer than any list may take", 100, streamLimit + 30*time.Second, "list"},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				for i := range c.slices {
					w.api.Apply(slice("web", fmt.Sprint("web-", i+2), fmt.Sprint("10.0.1.", i)))
				}
				w.pipe.pause.Store(int64(4 * time.Second)) // an event is two pieces
				w.run()
				after(2 * w.src.SyncDeadline)
				if w.synced() {
					t.Fatal("synced too early")
				}
				after(c.took - 2*w.src.SyncDeadline)
				if !w.synced() {
					t.Fatal("not synced")
				}
				if n := w.store.Stats().Endpoints; n != int64(c.slices)+1 {
					t.Errorf("%d endpoints", n)
				}
				if st := w.status(0); st.Mode != c.mode {
					t.Errorf("status %+v, want mode %s", st, c.mode)
				}
			})
		})
	}
}

// The deadline judges streams, not connections: where nothing is answered at all,
// streaming lists are not given up.
func TestDeadlineNeedsAnAnswer(t *testing.T) {
	for _, connected := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.pipe.connects.Store(connected)
			w.pipe.stuck.Store(true)
			w.run()
			after(time.Hour)
			if st := w.status(0); st.Synced || st.LastError != errNoAnswer.Error() {
				t.Errorf("status %+v", st)
			}
			w.wantLines(1, "level=WARN msg=\"no connection")
			w.pipe.stuck.Store(false)
			after(3 * time.Minute)
			if !w.synced() {
				t.Fatal("not synced")
			}
			w.api.Expire()
			after(time.Minute)
			if st := w.status(0); st.Mode != "watchlist" {
				t.Errorf("status %+v", st)
			}
			w.wantLines(0, "using LIST and WATCH")
			w.wantLines(2, "")
		})
	}
}

// A proxy may hold back the head of a streaming list until there is a body. That is
// an endless list, too.
func TestStreamingListWithoutHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.pipe.holdsStreams.Store(true)
		w.run()
		after(w.src.SyncDeadline + time.Second)
		if !w.synced() {
			t.Fatal("not synced after the deadline")
		}
		w.wantLines(1, "using LIST and WATCH")
		w.wantLines(1, "")
	})
}
