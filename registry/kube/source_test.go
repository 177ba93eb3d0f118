package kube

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"epdns/internal/fakeapi"
	"epdns/registry"
)

func TestFollowsTheCluster(t *testing.T) {
	for _, namespaces := range [][]string{nil, {"shop"}, {"data", "shop"}} {
		t.Run(strings.Join(namespaces, ","), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, namespaces...)
				w.run()
				if !w.synced() {
					t.Fatal("not synced")
				}
				w.wantAddresses("web", "10.0.0.1")

				w.api.Apply(slice("web", "web-2", "10.0.0.2"))
				synctest.Wait()
				w.wantAddresses("web", "10.0.0.1", "10.0.0.2")

				w.api.Apply(slice("web", "web-1", "10.0.0.9"))
				synctest.Wait()
				w.wantAddresses("web", "10.0.0.9", "10.0.0.2")

				w.delete("EndpointSlice", "web-2")
				synctest.Wait()
				w.wantAddresses("web", "10.0.0.9")

				placed := slice("web", "web-1", "10.0.0.9")
				nodeName := "n1"
				placed.Endpoints[0].NodeName = &nodeName
				w.api.Apply(placed)
				w.api.Apply(&corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: map[string]string{corev1.LabelTopologyZone: "zone-a"}},
				})
				synctest.Wait()
				if zone := w.store.Snapshot("shop", "web").Members()[0].Zone; zone != "zone-a" {
					t.Errorf("zone %q of an endpoint on a Node in zone-a", zone)
				}

				w.delete("Service", "web")
				synctest.Wait()
				if w.store.Snapshot("shop", "web") != nil {
					t.Error("deleted Service still exists")
				}
				for _, st := range w.src.Status() {
					if st.Mode != "watchlist" || !st.Synced || !st.Connected || st.Off || st.Lists != 1 || st.Skipped != 0 {
						t.Errorf("status %+v", st)
					}
				}
				w.wantLines(0, "")
			})
		})
	}
}

func TestUnreachableAtStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.pipe.refused.Store(true)
		w.run()
		after(time.Hour)
		if w.synced() {
			t.Fatal("synced with nothing")
		}
		w.wantLines(1, "level=WARN msg=\"no connection to the API server")
		w.wantLines(1, "")
		if st := w.status(0); st.Synced || st.Connected || !strings.Contains(st.LastError, "connection refused") {
			t.Errorf("status %+v", st)
		}

		w.pipe.refused.Store(false)
		after(7 * time.Second) // the longest pause, with jitter
		w.wantAddresses("web", "10.0.0.1")
		if !w.synced() {
			t.Error("not synced")
		}
		w.wantLines(1, "level=INFO msg=\"watching again")
		w.wantLines(2, "")
		if st := w.status(0); st.Mode != "watchlist" {
			t.Errorf("mode %q after a time without connection", st.Mode)
		}
	})
}

func TestLostLater(t *testing.T) {
	for _, how := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, errors.New("http2: client connection lost")} {
		t.Run(how.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.run()
				after(time.Minute)
				w.pipe.refused.Store(true)
				w.pipe.cut(how)
				after(time.Hour)
				w.wantAddresses("web", "10.0.0.1")
				if st := w.status(0); st.Connected || !st.Synced {
					t.Errorf("status %+v", st)
				}
				w.api.Apply(slice("web", "web-2", "10.0.0.2")) // meanwhile

				w.pipe.refused.Store(false)
				after(7 * time.Second)
				w.wantAddresses("web", "10.0.0.1", "10.0.0.2")
				w.wantLines(1, "level=WARN msg=\"no connection")
				w.wantLines(1, "watching again")
				w.wantLines(2, "")
				if st := w.status(0); st.Lists != 1 || !st.Connected {
					t.Errorf("status %+v: the watch should have gone on where it was", st)
				}
			})
		})
	}
}

// client-go shows a watch that timed out or was cut off before it began as one that
// is empty. It is a lost connection all the same.
func TestWatchCutBeforeItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		w.pipe.cutsEarly.Store(true)
		w.pipe.cut(io.EOF)
		after(time.Minute)
		w.wantAddresses("web", "10.0.0.1")
		if w.status(0).Connected {
			t.Error("connected")
		}
		w.wantLines(1, "level=WARN msg=\"no connection")
		w.pipe.cutsEarly.Store(false)
		after(7 * time.Second)
		w.wantLines(1, "watching again")
		w.wantLines(2, "")
	})
}

// A server in trouble is not a missing right: nothing is off, nothing is synced.
func TestErrorsAtStart(t *testing.T) {
	for _, code := range []int{http.StatusInternalServerError, http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusNotFound} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.api.Fail(code)
				w.run()
				after(10 * time.Minute)
				if w.synced() || w.status(1).Off {
					t.Error("taken for an answer")
				}
				w.api.Fail(0)
				after(7 * time.Second)
				if !w.synced() {
					t.Error("not synced")
				}
				if warned, mended := w.log.lines("level=WARN"), w.log.lines("watching again"); warned == 0 || warned != mended {
					t.Errorf("%d warnings, %d of them taken back", warned, mended)
				}
			})
		})
	}
}

// 410: the state is read again and replaced in one step.
func TestExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		after(time.Minute)
		follower := w.store.FollowAll()
		follower.Take()
		stop := make(chan struct{})
		defer close(stop)
		go func() {
			for {
				select {
				case <-stop:
					return
				case <-follower.Changed():
				}
				for _, svc := range follower.Take() {
					if !svc.Exists || len(svc.Slices) == 0 {
						t.Errorf("%s was empty for a moment", svc.Key)
					}
				}
			}
		}()
		// A change that no watch tells.
		err := w.api.Swap("EndpointSlice", fakeapi.ID{Namespace: "shop", Name: "web-1"}, slice("web", "web-2", "10.0.0.2"))
		if err != nil {
			t.Fatal(err)
		}
		w.api.Expire()
		synctest.Wait()
		w.wantAddresses("web", "10.0.0.2")
		if st := w.status(0); st.Lists != 2 || st.Relists() != 1 {
			t.Errorf("status %+v", st)
		}
		w.wantLines(0, "")
	})
}

// No event and no bookmark for longer than bookmarks take: the watch is opened
// again, from where it was.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		after(silence + time.Second)
		st := w.status(0)
		if st.Reopened != 1 || !st.Connected || st.Relists() != 0 {
			t.Errorf("status %+v", st)
		}
		w.api.Apply(slice("web", "web-2", "10.0.0.2"))
		synctest.Wait()
		w.wantAddresses("web", "10.0.0.1", "10.0.0.2")
		after(silence - time.Second)
		if st := w.status(0); st.Reopened != 1 {
			t.Errorf("status %+v: an event counts as life", st)
		}
		w.wantLines(0, "")
	})
}

// Foreign objects are counted.
func TestSinkIgnoresOtherTypes(t *testing.T) {
	w := newWorld(t)
	s := newSink(w.src.feeds[0], w.store.Slices(""))
	s.Replace([]any{slice("web", "web-1", "10.0.0.1"), service("web"), nil}, "1")
	s.Add("text")
	s.Update(nil)
	s.Delete(service("web"))
	if st := w.status(0); st.Skipped != 5 || st.Lists != 1 {
		t.Errorf("status %+v", st)
	}
	w.wantAddresses("web", "10.0.0.1")
}

// The real client, over a socket, from a kubeconfig.
func TestOverHTTP(t *testing.T) {
	api := fakeapi.New()
	api.Apply(service("web"))
	api.Apply(slice("web", "web-1", "10.0.0.1"))
	server := httptest.NewServer(api)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "config")
	writeKubeconfig(t, file, server.URL)

	src, err := New(Config{Kubeconfig: file}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if want := "cluster " + server.URL + " (context admin of " + file + ")"; src.String() != want {
		t.Errorf("String() = %q, want %q", src, want)
	}
	store := registry.NewStore(slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- src.Run(ctx, store) }()
	<-store.Synced()
	if store.Snapshot("shop", "web") == nil {
		t.Error("Service web does not exist")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, r := range api.Requests() {
		if agent := r.Header.Get("User-Agent"); !strings.HasPrefix(agent, "epdns/") {
			t.Errorf("user agent %q", agent)
		}
		if a := r.Header.Get("Accept"); !strings.HasPrefix(a, "application/vnd.kubernetes.protobuf") || !strings.Contains(a, "json") {
			t.Errorf("accept %q", a)
		}
	}
}

func TestPingSettingsAreTheUsers(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "77")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "")
	os.Unsetenv("HTTP2_PING_TIMEOUT_SECONDS")
	undo := setPings()
	if have := os.Getenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS"); have != "77" {
		t.Errorf("the user's setting became %q", have)
	}
	if have := os.Getenv("HTTP2_PING_TIMEOUT_SECONDS"); have != "4" {
		t.Errorf("ping timeout is %q", have)
	}
	undo()
	if have, set := os.LookupEnv("HTTP2_PING_TIMEOUT_SECONDS"); set {
		t.Errorf("%q was left behind", have)
	}
}
