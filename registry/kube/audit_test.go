package kube

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"epdns/internal/fakeapi"
)

// auditEvery is that of these tests: each of the three feeds has its turn within it.
const auditEvery = 30 * time.Second

// ID of an object in namespace shop.
func shop(name string) fakeapi.ID { return fakeapi.ID{Namespace: "shop", Name: name} }

// audited sums the audits of all feeds that came to a result.
func (w *world) audited(result AuditResult) (n uint64) {
	for _, st := range w.src.Status() {
		n += st.Audits[result]
	}
	return n
}

// A watch that leaves out events is found out and put right, whatever it left out.
func TestAuditRepairs(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*fakeapi.Server)
		check  func(*world)
		kind   int // of the feed
		drift  uint64
	}{
		{"an object added", func(a *fakeapi.Server) { a.ApplySilently(slice("web", "web-2", "10.0.0.2")) },
			func(w *world) { w.wantAddresses("web", "10.0.0.1", "10.0.0.2") }, 0, 1},
		{"an object changed", func(a *fakeapi.Server) { a.ApplySilently(slice("web", "web-1", "10.0.0.9")) },
			func(w *world) { w.wantAddresses("web", "10.0.0.9") }, 0, 1},
		{"an object deleted", func(a *fakeapi.Server) { a.DeleteSilently("EndpointSlice", shop("web-1")) },
			func(w *world) { w.wantAddresses("web") }, 0, 1},
		{"one in the place of another", func(a *fakeapi.Server) {
			a.Swap("EndpointSlice", shop("web-1"), slice("web", "web-2", "10.0.0.2"))
		}, func(w *world) { w.wantAddresses("web", "10.0.0.2") }, 0, 2},
		{"a Service added", func(a *fakeapi.Server) { a.ApplySilently(service("new")) },
			func(w *world) { w.wantAddresses("new") }, 1, 1},
		{"a Service deleted", func(a *fakeapi.Server) { a.DeleteSilently("Service", shop("web")) },
			func(w *world) {
				if w.store.Snapshot("shop", "web") != nil {
					w.t.Error("the deleted Service is there")
				}
			}, 1, 1},
		{"a Node", func(a *fakeapi.Server) {
			a.ApplySilently(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
		}, func(w *world) {
			if w.store.Node("n1") == nil {
				w.t.Error("the Node is not there")
			}
		}, 2, 1},
	} {
		for _, minor := range []string{"", "33"} { // streamed and listed
			t.Run(c.what+","+minor, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.api.Minor = minor
					w.src.AuditEvery = auditEvery
					w.run()
					after(auditEvery)
					if n := w.audited(AuditClean); n != 3 {
						t.Errorf("%d audits of nothing, want one of each kind", n)
					}
					c.change(w.api)
					w.api.Announce() // the watch says that it is up to date
					after(auditEvery + 2*auditSettles)
					c.check(w)
					st := w.status(c.kind)
					if st.Drift != c.drift || st.Audits[AuditDrift] != 1 || st.RelistsBy[RelistAudit] != 1 || st.Relists() != 1 || st.LastAudit.IsZero() {
						t.Errorf("status %+v", st)
					}
					w.wantLines(1, "level=WARN msg=\"audit: what is held differs")
					w.wantLines(1, "")

					// The watch that followed is well, and nothing is found any more.
					w.api.Apply(slice("web", "web-9", "10.0.0.99"))
					synctest.Wait()
					after(3 * auditEvery)
					if st := w.status(c.kind); st.Drift != c.drift || !st.Connected {
						t.Errorf("status %+v", st)
					}
					w.wantLines(1, "")
				})
			})
		}
	}
}

// What changes while the state is read is no drift, whichever of both brings it first.
func TestAuditAmongChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.src.AuditEvery = auditEvery
		w.run()
		w.api.SlowDown("EndpointSlice", 3*time.Second) // and the watch goes on meanwhile
		for i := range 600 {
			name := fmt.Sprint("web-", i%7)
			if i%5 == 4 {
				w.api.Delete("EndpointSlice", shop(name)) // if it is there
			} else {
				w.api.Apply(slice("web", name, fmt.Sprint("10.0.1.", i%200)))
			}
			after(300 * time.Millisecond)
		}
		after(auditEvery)
		st := w.status(0)
		if st.Drift != 0 || st.Relists() != 0 || st.Audits[AuditClean] < 4 || st.Audits[AuditDrift] != 0 {
			t.Errorf("status %+v", st)
		}
		w.wantLines(0, "")
	})
}

// A watch that is behind is waited for; one that is not heard of any more is not compared.
func TestAuditWaitsForTheWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.src.AuditEvery = auditEvery
		w.run()
		after(auditEvery)
		w.api.LagBehind(2)
		w.api.Apply(slice("web", "web-1", "10.0.0.2"))
		w.api.Apply(slice("web", "web-2", "10.0.0.3"))
		for st := w.status(0); st.Audits[AuditClean]+st.Audits[AuditDrift] < 2; st = w.status(0) {
			after(time.Second)
			if lists := w.lists("EndpointSlice"); lists == 4 { // the second audit has read
				after(auditSettles / 2)
				w.api.LagBehind(0)
			}
		}
		if st := w.status(0); st.Drift != 0 || st.Relists() != 0 {
			t.Errorf("status %+v", st)
		}
		w.wantAddresses("web", "10.0.0.2", "10.0.0.3")
	})
}

// Where the list cannot be read, or there is no watch, nothing is said of what is held. The
// log says so once.
func TestAuditWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.src.AuditEvery = auditEvery
		w.run()
		w.api.Forbid("EndpointSlice", true) // the watch goes on
		for range 3 {
			after(auditEvery)
			w.api.Announce()
		}
		if st := w.status(0); st.Audits[AuditFailed] < 3 || st.Audits[AuditClean] != 0 || !st.Connected || !st.LastAudit.IsZero() {
			t.Errorf("status %+v", st)
		}
		w.wantLines(1, "level=WARN msg=\"audit: the list could not be read")
		w.wantLines(1, "")
		w.wantAddresses("web", "10.0.0.1")
		w.api.Forbid("EndpointSlice", false)
		after(auditEvery + time.Second)
		if st := w.status(0); st.Audits[AuditClean] == 0 {
			t.Errorf("status %+v", st)
		}

		w.pipe.refused.Store(true)
		w.pipe.cut(fmt.Errorf("reset"))
		synctest.Wait()
		clean := w.audited(AuditClean)
		after(3 * auditEvery)
		if n := w.audited(AuditInconclusive); n < 6 || w.audited(AuditClean) != clean {
			t.Errorf("%d audits without a watch, %d of them clean", n, w.audited(AuditClean)-clean)
		}
		w.wantAddresses("web", "10.0.0.1")
		w.pipe.refused.Store(false)
	})
}

// A kind that is off is not audited, and without an interval nothing is.
func TestNoAudit(t *testing.T) {
	for _, every := range []time.Duration{0, auditEvery} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.src.AuditEvery = every
			w.api.Forbid("Node", true)
			w.run()
			after(time.Hour)
			if st := w.src.Status()[2]; st.Audits != [auditResults]uint64{} {
				t.Errorf("status %+v", st)
			}
			if n := w.audited(AuditClean); (n > 0) != (every > 0) {
				t.Errorf("%d audits", n)
			}
		})
	}
}

// An audit reads page by page where the server gets the pages from etcd.
func TestAuditPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range listPage + 1 {
			w.api.Apply(slice("web", fmt.Sprintf("web-%04d", i), "10.0.0.1"))
		}
		w.src.AuditEvery = auditEvery
		w.run()
		after(auditEvery)
		if st := w.status(0); st.Audits[AuditClean] != 1 || w.lists("EndpointSlice") != 3 {
			t.Errorf("%d lists, status %+v", w.lists("EndpointSlice"), st)
		}
	})
}

// After its store was restored from a backup an API server has older versions than its
// watches have seen, and those are told nothing.
func TestRestoredCluster(t *testing.T) {
	for _, minor := range []string{"", "33"} {
		t.Run(minor, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.api.Minor = minor
				w.src.AuditEvery = auditEvery
				w.run()
				backup := w.api.Version()
				w.api.Apply(slice("web", "web-1", "10.0.0.2"))
				w.api.Apply(slice("web", "web-2", "10.0.0.3"))
				w.api.Advance(100)
				w.api.Announce()
				synctest.Wait()
				w.wantAddresses("web", "10.0.0.2", "10.0.0.3")
				w.api.Restore(backup)
				w.api.Apply(slice("web", "web-3", "10.0.0.4")) // which the watch is not told
				after(auditEvery + 2*auditSettles)
				w.wantAddresses("web", "10.0.0.1", "10.0.0.4")
				st := w.status(0)
				if st.OlderTaken != 1 || st.Audits[AuditOlder] != 1 || st.RelistsBy[RelistAudit] != 1 || st.Version != w.api.Version() {
					t.Errorf("status %+v", st)
				}
				w.wantLines(3, "level=WARN msg=\"an older state is taken") // of each kind

				w.api.Apply(slice("web", "web-1", "10.0.0.5"))
				synctest.Wait()
				w.wantAddresses("web", "10.0.0.5", "10.0.0.4")
			})
		})
	}
}

// A watch that was silent for too long is not believed until the next audit is due. One of
// a server without bookmarks is silent all the time, and that is no reason to ask for more.
func TestAuditAfterSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.src.AuditEvery = time.Hour
		w.run()
		after(time.Second)
		backup := w.api.Version()
		w.api.Apply(slice("web", "web-1", "10.0.0.2"))
		synctest.Wait()
		w.api.Restore(backup)
		after(silence + 2*auditSettles)
		w.wantAddresses("web", "10.0.0.1")
		if st := w.status(0); st.OlderTaken != 1 {
			t.Errorf("status %+v", st)
		}
		after(30 * time.Minute)
		if st := w.status(0); st.Audits[AuditClean] > 2 {
			t.Errorf("status %+v", st)
		}
	})
}

// Nor is one that was lost for a while: the cluster may be another one by now.
func TestAuditAfterLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.src.AuditEvery = time.Hour
		w.run()
		after(time.Minute)
		backup := w.api.Version()
		w.api.Apply(slice("web", "web-1", "10.0.0.2"))
		synctest.Wait()
		w.pipe.refused.Store(true)
		w.pipe.cut(fmt.Errorf("reset"))
		after(20 * time.Second)
		w.api.Restore(backup)
		w.pipe.refused.Store(false)
		after(maxBackoff + 2*time.Second + auditSettles)
		w.wantAddresses("web", "10.0.0.1")
		after(time.Minute)
		if st := w.status(0); st.OlderTaken != 1 || st.Audits[AuditOlder] != 1 || st.Relists() != 1 || !st.Connected {
			t.Errorf("status %+v", st)
		}

		// A watch that ends and goes on is nothing to ask about.
		w.pipe.cut(fmt.Errorf("reset"))
		after(time.Minute)
		if st := w.status(0); st.Audits[AuditClean] != 0 {
			t.Errorf("status %+v", st)
		}
	})
}

func TestFirstFew(t *testing.T) {
	for n, want := range map[int]string{0: "", 1: "a", 5: "a a a a a", 6: "a a a a a …"} {
		if have := firstFew(strings.Fields(strings.Repeat("a ", n))); have != want {
			t.Errorf("%d: %q", n, have)
		}
	}
}
