package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"epdns/registry"
	"epdns/registry/statedir"
	"epdns/zones"
)

// told is a source that tells what the test tells it.
type told struct {
	slices registry.SliceFeed
	nodes  registry.NodeFeed
	opened chan struct{}
}

func (s *told) String() string { return "a test" }

func (s *told) Run(ctx context.Context, store *registry.Store) error {
	s.slices, s.nodes = store.Slices(""), store.Nodes()
	close(s.opened)
	<-ctx.Done()
	return nil
}

// web is the Service shop/web at an address.
func web(address string) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "shop", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}}},
	}
}

// kept is a pipeline with a state directory.
type kept struct {
	*pipeline
	*told
	log  logText // of state
	stop func()  // and wait
}

// logText is a log that may be read while it is written.
type logText struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func newKept(t *testing.T, dir string, maxAge time.Duration) *kept {
	t.Helper()
	k := &kept{told: &told{opened: make(chan struct{})}}
	log := slog.New(slog.NewTextHandler(&k.log, nil))
	var err error
	if k.pipeline, err = newPipeline(k.told, zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}}, quiet); err != nil {
		t.Fatal(err)
	}
	k.state = newStateKeeper(k.told, &settings{stateDir: dir, stateMaxAge: maxAge, prefix: "registry.local"}, log)
	k.state.whole = true
	return k
}

func (k *kept) start(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := k.pipeline.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	k.stop = func() { cancel(); <-ended }
	<-k.opened
}

// keep starts one, in a bubble.
func keep(t *testing.T, dir string, maxAge time.Duration) *kept {
	t.Helper()
	k := newKept(t, dir, maxAge)
	k.start(t)
	synctest.Wait()
	return k
}

// address is that of shop/web, and until when it is known to be right.
func (k *kept) address() (address string, asOf time.Time) {
	for _, m := range k.registry.Snapshot("shop", "web").Members() {
		address += m.Addr.String()
	}
	return address, k.zones.Load().AsOf()
}

// A state is written when all has been read, after changes with a pause, now and then
// without any, and at the end.
func TestStateIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "new")
		k := keep(t, dir, 24*time.Hour)
		writes := func(after time.Duration, want uint64) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			if got := k.state.writes.Load(); got != want {
				t.Fatalf("written %d times, want %d", got, want)
			}
		}
		writes(time.Minute, 0)
		k.slices.Replace([]*discoveryv1.EndpointSlice{web("10.0.0.1")})
		writes(time.Minute, 0)
		k.nodes.Replace(nil)
		writes(0, 1)
		k.slices.Put(web("10.0.0.2"))
		writes(stateEvery-time.Second, 1)
		writes(time.Second, 2)
		writes(stateRefresh-time.Second, 2)
		writes(time.Second+stateEvery, 3)
		for i := range 600 { // at most so often
			k.slices.Put(web([]string{"10.0.0.3", "10.0.0.4"}[i%2]))
			time.Sleep(100 * time.Millisecond)
		}
		writes(time.Second, 9)
		k.slices.Put(web("10.0.0.5"))
		synctest.Wait()
		k.stop()
		if got := k.state.writes.Load(); got != 10 {
			t.Errorf("written %d times in all", got)
		}
		if asOf := time.Unix(0, k.state.asOf.Load()); time.Since(asOf) != 0 {
			t.Errorf("the last one is as of %v before", time.Since(asOf))
		}
		if lines := strings.Split(strings.TrimSpace(k.log.String()), "\n"); len(lines) != 2 || !strings.Contains(lines[0], "no state of before") || !strings.Contains(lines[1], "the state is written") {
			t.Errorf("the log says %q", lines)
		}
	})
}

// What was written is served after a restart, as stale, until all has been read; serials
// go on.
func TestStateIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		first := keep(t, dir, 24*time.Hour)
		first.slices.Replace([]*discoveryv1.EndpointSlice{web("10.0.0.1")})
		first.nodes.Replace([]*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}})
		synctest.Wait()
		for i := range 20 { // more serials than seconds would be: a change each
			time.Sleep(time.Second)
			first.slices.Put(web([]string{"10.0.0.2", "10.0.0.1"}[i%2]))
			synctest.Wait()
		}
		serial := first.zones.Load().Serial()
		ended := time.Now()
		first.stop()

		for range 2 { // the second time the first one has written nothing
			time.Sleep(time.Hour)
			k := keep(t, dir, 24*time.Hour)
			if got, asOf := k.address(); got != "10.0.0.1" || !asOf.Equal(ended) || !k.restored.Load() || !k.synced.Load() || !k.zones.Load().Synced() {
				t.Fatalf("it serves %s as of %v, want %v", got, asOf, ended)
			}
			if got := k.zones.Load().Serial(); int32(got-serial) <= 0 {
				t.Errorf("the serial is %d after %d", got, serial)
			}
			time.Sleep(time.Hour)
			k.nodes.Replace(nil)
			synctest.Wait()
			if got, asOf := k.address(); got != "10.0.0.1" || !asOf.Equal(ended) || len(k.registry.AllNodes()) != 1 {
				t.Errorf("with a part read it serves %s as of %v", got, asOf)
			}
			k.stop()
		}

		k := keep(t, dir, 24*time.Hour)
		before := k.zones.Load().Serial()
		time.Sleep(time.Second)
		k.nodes.Replace(nil)
		k.slices.Replace([]*discoveryv1.EndpointSlice{web("10.0.0.3")})
		synctest.Wait()
		if got, asOf := k.address(); got != "10.0.0.3" || !asOf.IsZero() || k.restored.Load() {
			t.Errorf("it serves %s as of %v", got, asOf)
		}
		if got := k.zones.Load().Serial(); int32(got-before) <= 0 {
			t.Errorf("the serial is %d after %d", got, before)
		}
		time.Sleep(stateEvery)
		synctest.Wait()
		// At once, or before what was read is served, and then once more.
		if n := k.state.writes.Load(); n < 1 || n > 2 {
			t.Errorf("written %d times", n)
		}
		k.stop()

		// What is read is what was there: nothing changes, but it is not stale any more.
		k = keep(t, dir, 24*time.Hour)
		set := k.zones.Load()
		k.nodes.Replace(nil)
		k.slices.Replace([]*discoveryv1.EndpointSlice{web("10.0.0.3")})
		synctest.Wait()
		if got, asOf := k.address(); got != "10.0.0.3" || set.AsOf().IsZero() || !asOf.IsZero() {
			t.Errorf("it serves %s as of %v, and before of %v", got, asOf, set.AsOf())
		}
		k.stop()

		time.Sleep(25 * time.Hour) // too old, but the serial counts
		k = keep(t, dir, 24*time.Hour)
		if k.restored.Load() || k.zones.Load().Synced() || !strings.Contains(k.log.String(), "the state of before is not used") {
			t.Errorf("an old state is used: %s", &k.log)
		}
		k.slices.Replace(nil)
		k.nodes.Replace(nil)
		synctest.Wait()
		if got, _ := k.address(); got != "" {
			t.Errorf("it serves %s", got)
		}
		k.stop()
	})
}

// Trouble with the directory is told once, counted, and over when it is over.
func TestStateDirectoryTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		k := keep(t, filepath.Join(file, "dir"), 0)
		k.slices.Replace([]*discoveryv1.EndpointSlice{web("10.0.0.1")})
		k.nodes.Off()
		time.Sleep(10 * stateEvery)
		synctest.Wait()
		if got, _ := k.address(); got != "10.0.0.1" || !k.zones.Load().Synced() || k.state.failures.Load() != 11 {
			t.Errorf("it serves %s, with %d failures", got, k.state.failures.Load())
		}
		if n := strings.Count(k.log.String(), "the state is not written"); n != 1 {
			t.Errorf("told %d times: %s", n, &k.log)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(file, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * stateEvery)
		synctest.Wait()
		if n := strings.Count(k.log.String(), "the state is written"); n != 1 || k.state.writes.Load() != 1 {
			t.Errorf("told %d times, written %d times", n, k.state.writes.Load())
		}
		if err := os.RemoveAll(filepath.Join(file, "dir")); err != nil { // somebody has tidied up
			t.Fatal(err)
		}
		k.slices.Put(web("10.0.0.2"))
		time.Sleep(3 * stateEvery)
		synctest.Wait()
		if off, on := strings.Count(k.log.String(), "the state is not written"), strings.Count(k.log.String(), "the state is written"); off != 2 || on != 2 {
			t.Errorf("told %d and %d times: %s", off, on, &k.log)
		}
		k.stop()
	})
}

// A disk that hangs keeps nobody from serving, nor from ending.
func TestStateDirectoryHangs(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "state") // whoever opens it waits
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	k := newKept(t, dir, 0)
	k.state.grace = 50 * time.Millisecond
	k.start(t)
	k.slices.Replace([]*discoveryv1.EndpointSlice{web("10.0.0.1")})
	k.nodes.Off()
	<-k.served
	if got, _ := k.address(); got != "10.0.0.1" {
		t.Errorf("it serves %s", got)
	}
	k.stop()
	if n := strings.Count(k.log.String(), "the state directory does not answer"); n != 1 || k.state.failures.Load() != 1 {
		t.Errorf("told %d times: %s", n, &k.log)
	}
	f, err := os.OpenFile(pipe, os.O_RDWR, 0) // lets the one who waits go on
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, err := os.Stat(filepath.Join(dir, "state.bad")); err != nil; _, err = os.Stat(filepath.Join(dir, "state.bad")) {
		time.Sleep(time.Millisecond)
	}
}

// Kinds of which nothing was restored may be off, and others not.
func TestInsistOn(t *testing.T) {
	for _, c := range []struct {
		of   registry.Stats
		want string
	}{
		{registry.Stats{ServicesAreListed: true}, "[]"}, // of nothing at all
		{registry.Stats{Services: 3}, "[]"},
		{registry.Stats{Services: 3, ServicesAreListed: true}, "[Service]"},
		{registry.Stats{Services: 3, Nodes: 2}, "[Node]"},
		{registry.Stats{Services: 3, ServicesAreListed: true, Nodes: 2}, "[Service Node]"},
	} {
		if got := fmt.Sprint(insistOn(c.of)); got != c.want {
			t.Errorf("%+v: %s, want %s", c.of, got, c.want)
		}
	}
}

// A serial is above those that may have been given after the last one that was written.
func TestSerialAfterRestart(t *testing.T) {
	const at = 1_800_000_000
	for _, c := range []struct {
		what           string
		written, ahead int64 // Unix seconds; by how much the serial is ahead of that
		now            int64
		least, most    uint32
	}{
		{"as usual", at, 0, at + 60, at + 60, at + 61},
		{"at once", at, 0, at, at + 1, at + 1},
		{"ahead of the clock", at, 100, at + 60, at + 161, at + 161},
		{"a day ahead of the clock", at, 86_400, at + 60, at + 86_461, at + 86_461},
		{"a clock set back by an hour", at, 0, at - 3600, at + lostSerials, at + lostSerials + 1},
		{"a clock set back by years", at, 0, 1, at + lostSerials, at + lostSerials + 1},
		{"a clock set forward by years", at, 0, at + 500_000_000, at + 500_000_000, at + 500_000_001},
	} {
		h := statedir.Header{Written: time.Unix(c.written, 0), Serial: uint32(c.written + c.ahead)}
		now := time.Unix(c.now, 0)
		b, err := zones.NewBuilder(zones.Config{Zones: []zones.Zone{zones.DefaultZone("registry.local")}})
		if err != nil {
			t.Fatal(err)
		}
		b.After(serialAfter(&h, now))
		if got := b.Build(nil, now).Serial(); got < c.least || got > c.most {
			t.Errorf("%s: %d, want %d to %d", c.what, got, c.least, c.most)
		}
		if last := b.Last(); last.TransferSerial() != last.Serial() || !b.Frozen() {
			t.Errorf("%s: transfers are of %d, answers of %d", c.what, last.TransferSerial(), last.Serial())
		}
	}
}
