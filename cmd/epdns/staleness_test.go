package main

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"epdns/registry/kube"
	"epdns/registry/manifest"
	"epdns/zones"
)

// flaky is a source whose watches can be lost.
type flaky struct {
	*manifest.Source
	mu    sync.Mutex
	feeds []kube.FeedStatus
}

func (f *flaky) Status() []kube.FeedStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]kube.FeedStatus(nil), f.feeds...)
}

func (f *flaky) lose(i int, since time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.feeds[i].Lost = since
}

// Answers are stale when a watch has been lost for long enough, and not any more when all
// are back. What has no right to be watched does not count.
func TestStaleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		log := slog.New(slog.NewTextHandler(&said, nil))
		source := &flaky{Source: manifest.New(fstest.MapFS{}, "nothing", quiet), feeds: []kube.FeedStatus{{Kind: "EndpointSlice"}, {Kind: "Service"}, {Kind: "Node", Off: true}}}
		p, err := newPipeline(source, zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}}, log)
		if err != nil {
			t.Fatal(err)
		}
		err = p.once(t.Context(), func() error {
			want := func(what string, asOf time.Time, age time.Duration) {
				t.Helper()
				synctest.Wait()
				if got := p.zones.Load().AsOf(); !got.Equal(asOf) {
					t.Errorf("%s: as of %v, want %v", what, got, asOf)
				}
				if got := p.age(time.Now()); got != age {
					t.Errorf("%s: of age %v, want %v", what, got, age)
				}
			}
			start := time.Now()
			time.Sleep(time.Hour)
			want("nothing happens", time.Time{}, 0)

			source.lose(2, start)
			time.Sleep(2 * time.Minute)
			want("a kind that is off", time.Time{}, 0)

			lost := time.Now()
			source.lose(1, lost)
			time.Sleep(defaultStaleAfter - time.Second)
			want("for less than staleAfter", time.Time{}, defaultStaleAfter-time.Second)
			time.Sleep(3 * time.Second)
			want("for longer", lost, defaultStaleAfter+2*time.Second)
			serial := p.zones.Load().Serial()

			source.lose(0, lost.Add(-time.Minute))
			time.Sleep(2 * time.Second)
			want("another one for longer still", lost.Add(-time.Minute), 2*time.Minute+4*time.Second)
			if p.zones.Load().Serial() != serial {
				t.Error("another serial, and no change")
			}

			source.lose(0, time.Time{})
			source.lose(1, time.Time{})
			time.Sleep(2 * time.Second)
			want("all are back", time.Time{}, 0)

			p.staleAfter.Store(0)
			source.lose(0, time.Now())
			time.Sleep(time.Hour)
			want("no limit", time.Time{}, time.Hour)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		for text, n := range map[string]int{"answers are stale from now on": 1, "answers are up to date again": 1} {
			if got := strings.Count(said.String(), text); got != n {
				t.Errorf("%d lines with %q, want %d:\n%s", got, text, n, &said)
			}
		}
	})
}

// What was restored is stale from the start, and until it is replaced.
func TestRestoredIsStale(t *testing.T) {
	p, err := newPipeline(manifest.New(fstest.MapFS{}, "nothing", quiet), zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	asOf := time.Now().Add(-time.Second)
	p.asOf.Store(asOf.UnixNano())
	p.restored.Store(true)
	if p.serve(p.builder.Last()); !p.zones.Load().AsOf().Equal(asOf) {
		t.Errorf("as of %v, want %v", p.zones.Load().AsOf(), asOf)
	}
	p.restored.Store(false)
	if p.serve(p.builder.Last()); !p.zones.Load().AsOf().IsZero() {
		t.Errorf("as of %v, and it is not restored any more", p.zones.Load().AsOf())
	}
}
