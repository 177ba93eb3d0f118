package manifest

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"epdns/registry"
)

// Source reads manifests. It implements [registry.Source].
type Source struct {
	// Interval is how often the files are looked at. It may be changed before Run.
	Interval time.Duration

	// Partial uses what is right of a file that has faults, for programs that tell
	// them: Load then returns them and Run may follow. It is set before Load.
	Partial bool

	log    *slog.Logger
	fsys   fs.FS
	where  string
	single string // the one file to read, in fsys; empty: all of them
	pipe   bool   // the one file can be read only once

	files    map[string]*file
	loaded   bool // the first read is done
	dropped  bool // a file in use is gone, and accept has not seen it yet
	failures int  // looks in a row that could not list the files, or found none any more

	reads      uint64
	lastChange time.Time

	mu     sync.Mutex
	status Status
}

var _ registry.Source = (*Source)(nil)

// New reads the manifests of a file system. where names it for people and begins
// the names of its files in messages.
func New(fsys fs.FS, where string, log *slog.Logger) *Source {
	return &Source{
		Interval: 500 * time.Millisecond,
		log:      log,
		fsys:     fsys,
		where:    where,
	}
}

// Open reads the manifests of a directory, or one file, which may be a pipe: "-"
// is the standard input. The error says why that can't work.
func Open(name string, log *slog.Logger) (*Source, error) {
	where := name
	if name == "-" {
		name, where = "/dev/stdin", "standard input"
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("manifests %s: %w", where, bare(err))
	}
	if info.IsDir() {
		if _, err := os.ReadDir(name); err != nil {
			return nil, fmt.Errorf("manifests %s: %w", where, bare(err))
		}
		return New(os.DirFS(name), where, log), nil
	}
	dir, base := filepath.Split(name)
	if dir == "" {
		dir = "."
	}
	s := New(os.DirFS(dir), where, log)
	s.single = base
	if s.pipe = !info.Mode().IsRegular(); !s.pipe {
		f, err := os.Open(name)
		if err != nil {
			return nil, fmt.Errorf("manifests %s: %w", where, bare(err))
		}
		f.Close()
	}
	return s, nil
}

// String names the directory or file.
func (s *Source) String() string { return "manifests " + s.where }

// shown is the name of a file for people.
func (s *Source) shown(name string) string {
	if s.single != "" {
		return s.where
	}
	return path.Join(s.where, name)
}

// Load does the first read, so that a program can fail early. Its error is [Faults]
// where files have mistakes. Run does it where it was not done before.
func (s *Source) Load() error {
	s.files, s.loaded = map[string]*file{}, false
	if _, err := s.look(time.Now()); err != nil {
		return fmt.Errorf("manifests %s: %w", s.where, bare(err))
	}
	s.accept()
	s.note()
	faults := s.faults()
	s.loaded = len(faults) == 0 || s.Partial
	if len(faults) > 0 {
		return faults
	}
	return nil
}

func (s *Source) faults() (all Faults) {
	for _, name := range s.names() {
		all = append(all, s.files[name].faults()...)
	}
	return all
}

// Run feeds the store with what the files say until ctx ends. It returns an error
// only where the first read fails.
func (s *Source) Run(ctx context.Context, store *registry.Store) error {
	to := feeds{store.Slices(""), store.Services(""), store.Nodes()}
	if !s.loaded {
		if err := s.Load(); err != nil {
			return err
		}
	}
	s.feed(to)
	if s.never() {
		<-ctx.Done()
		return nil
	}
	t := time.NewTicker(s.Interval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-t.C:
			if s.again(now) {
				s.feed(to)
			}
		}
	}
}

// never says that the files can't change: they have no modification times, or the
// only one has been read to its end.
func (s *Source) never() bool {
	for _, f := range s.files {
		if !f.stamp.time.IsZero() {
			return s.pipe
		}
	}
	return len(s.files) > 0
}

// patience is how many looks in a row must fail before it is news: a file that an
// editor replaces is gone for a moment.
const patience = 2

// again looks at the files and says whether there is something to feed.
func (s *Source) again(now time.Time) bool {
	defer s.note()
	changed, err := s.look(now)
	if err != nil {
		if s.failures++; s.failures == patience {
			s.log.Warn("manifests can't be read; what is known stays", "at", s.where, "err", bare(err))
		}
		return false
	}
	if s.failures >= patience {
		s.log.Info("manifests can be read again", "at", s.where)
	}
	s.failures = 0
	if !changed {
		return false
	}
	changed = s.accept()
	s.tell()
	return changed
}

// tell logs the faults that are new, and the files that are right again.
func (s *Source) tell() {
	for _, name := range s.names() {
		f := s.files[name]
		var now []string
		for _, fault := range f.faults() {
			now = append(now, fault.Error())
			if slices.Contains(f.told, fault.Error()) {
				continue
			}
			effect := "what the file said before stays"
			if f.good == nil {
				effect = "nothing of the file is used"
			}
			s.log.Warn("a manifest has a fault; "+effect, "err", fault)
		}
		if len(now) == 0 && len(f.told) > 0 {
			s.log.Info("a manifest is right again", "file", s.shown(name))
		}
		f.told = now
	}
}

// feeds are where objects go.
type feeds struct {
	slices   registry.SliceFeed
	services registry.ServiceFeed
	nodes    registry.NodeFeed
}

// feed hands over all that is in use. The feeds take ownership, so they get copies.
// Nodes go first and Services last: a new Service then appears with its endpoints,
// and those in their zones.
func (s *Source) feed(to feeds) {
	var ss []*discoveryv1.EndpointSlice
	var vs []*corev1.Service
	var ns []*corev1.Node
	for _, name := range s.names() {
		if c := s.files[name].good; c != nil {
			for _, o := range c.slices {
				ss = append(ss, o.DeepCopy())
			}
			for _, o := range c.services {
				vs = append(vs, o.DeepCopy())
			}
			for _, o := range c.nodes {
				ns = append(ns, o.DeepCopy())
			}
		}
	}
	to.nodes.Replace(ns)
	to.slices.Replace(ss)
	if len(vs) == 0 {
		to.services.Off()
	} else {
		to.services.Replace(vs)
	}
	s.reads++
	s.lastChange = time.Now()
	s.note()
	st := s.Status()
	s.log.Info("manifests read", "at", s.where, "files", st.Files, "services", st.Services, "slices", st.Slices, "ignored", st.Ignored)
}

// Status is the state of a Source, for metrics and people.
type Status struct {
	Files    int // found
	Broken   int // of these, with a fault: an older content is in use, or none
	Services int // in use
	Slices   int // in use
	Ignored  int // objects of other kinds
	Faults   []string

	Unreadable bool      // the files can't be listed, or there are none any more
	Reads      uint64    // how often the registry was fed
	LastChange time.Time // and when last
}

// Status may be called from any goroutine.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.status
	st.Faults = slices.Clone(st.Faults)
	return st
}

// note brings the status up to date.
func (s *Source) note() {
	st := Status{Files: len(s.files), Unreadable: s.failures >= patience, Reads: s.reads, LastChange: s.lastChange}
	for _, name := range s.names() {
		f := s.files[name]
		if c := f.good; c != nil {
			st.Services += len(c.services)
			st.Slices += len(c.slices)
			st.Ignored += c.ignored
		}
		faults := f.faults()
		if len(faults) > 0 {
			st.Broken++
		}
		for _, fault := range faults {
			st.Faults = append(st.Faults, fault.Error())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status = st
}
