package kube

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// wantLost says since when the watch of EndpointSlices is to be lost.
func (w *world) wantLost(what string, since time.Time) {
	w.t.Helper()
	if lost := w.status(0).Lost; !lost.Equal(since) {
		w.t.Errorf("%s: lost since %v, want %v", what, lost, since)
	}
}

// A watch is lost from when its connection is, and not while nothing happens.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		w.wantLost("at first", time.Time{})
		for range 20 {
			after(time.Minute)
			w.api.Announce() // bookmarks, and no change
		}
		synctest.Wait()
		w.wantLost("after 20 quiet minutes", time.Time{})

		w.api.Fail(503)
		w.api.Expire()
		after(time.Second)
		cut := w.status(0).Lost
		if cut.IsZero() || time.Since(cut) > time.Second {
			t.Fatalf("lost since %v, now it is %v", cut, time.Now())
		}
		after(time.Hour)
		w.wantLost("an hour later", cut)
		w.api.Fail(0)
		after(10 * time.Second)
		w.wantLost("when it is back", time.Time{})
		if st := w.status(0); st.Restarts[RestartExpired] != 1 {
			t.Errorf("restarts %v", st.Restarts)
		}
	})
}

// A watch that brings nothing for too long is lost from when it last brought something,
// however often it can be opened again, until one brings something.
func TestLostInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		began := w.status(0).LastEvent
		after(silence - time.Second)
		w.wantLost("before it is too long", time.Time{})
		after(2 * time.Second)
		w.wantLost("when it is", began)
		after(10 * silence)
		w.wantLost("opened ten times", began)
		if st := w.status(0); !st.Connected || st.Restarts[RestartSilence] < 10 {
			t.Errorf("status %+v", st)
		}
		w.api.Announce()
		synctest.Wait()
		w.wantLost("after a bookmark", time.Time{})
	})
}

// Where nothing happens and no bookmarks come, an audit is what proves a state: as of when it
// began. That is no event, and does not put off the next look at the silence.
func TestLostUntilAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.src.AuditEvery = time.Hour
		w.run()
		began := w.status(0).LastEvent
		after(silence + time.Second)
		w.wantLost("in silence", began)
		after(auditSettles)
		proved := w.status(0).LastAudit
		if st := w.status(0); st.Audits[AuditClean] != 1 || !st.LastEvent.Equal(began) || !st.Connected {
			t.Fatalf("status %+v", st)
		}
		w.wantLost("after the audit", time.Time{})
		after(silence - auditSettles - 2*time.Second)
		w.wantLost("before it is silent again", time.Time{})
		after(2 * time.Second)
		w.wantLost("silent again", proved)
		after(3 * silence) // until an audit is due
		w.wantLost("and for long", proved)
		w.api.Announce()
		synctest.Wait()
		w.wantLost("after a bookmark", time.Time{})
	})
}

// An audit that cannot read its list proves nothing.
func TestLostWithoutAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.src.AuditEvery = time.Hour
		w.run()
		began := w.status(0).LastEvent
		w.pipe.stalls.Store(true)
		after(silence + 2*auditSettles)
		w.wantLost("while it is read", began)
		w.pipe.cut(io.ErrUnexpectedEOF)
		after(time.Second)
		w.wantLost("when that has failed", began)
		if n := w.audited(AuditClean); n != 0 || w.audited(AuditFailed) == 0 {
			t.Errorf("%d audits are clean", n)
		}
	})
}

// Requests are counted with how long their answers took to begin.
func TestRequestsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.api.Forbid("Node", true)
		w.run()
		after(90 * time.Second)
		got := w.src.Requests()
		ok, forbidden := got[RequestKind{"GET", "200"}], got[RequestKind{"GET", "403"}]
		if ok.Count < 2 || forbidden.Count < 2 {
			t.Errorf("requests %+v", got)
		}
		var within uint64
		for _, n := range ok.Within {
			within += n
		}
		if within != ok.Count {
			t.Errorf("%d of %d requests took no longer than a minute", within, ok.Count)
		}
		if w.src.Host() != "cluster" {
			t.Errorf("host %q", w.src.Host())
		}
	})
}
