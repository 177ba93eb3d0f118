package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"reflect"
	"runtime/pprof"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"epdns/dnsserver"
)

// The configuration is read again on SIGHUP and when its file, or one of the secrets that it
// names, holds something else. It is used whole or not at all: first all that can fail is
// done beside what is served, then it is put in force without a question lost.

// reloader does that. It belongs to one goroutine.
type reloader struct {
	flags *serveFlags
	given func(flag string) bool
	now   *settings // in force
	seen  *settings // that were read last, in force or not
	p     *pipeline
	dns   *dnsserver.Server
	http  *httpServer
	log   *slog.Logger

	asked chan os.Signal    // SIGHUP
	tried [sha256.Size]byte // what the files held when they were read last
}

// newReloader is for settings that have just been read. From now on SIGHUP ends the program
// no more; it is heeded by run, before which p, dns and http are to be set.
func newReloader(f *serveFlags, given func(flag string) bool, s *settings, log *slog.Logger) *reloader {
	r := &reloader{flags: f, given: given, now: s, seen: s, log: log, asked: make(chan os.Signal, 1)}
	r.tried = r.contents(s)
	signal.Notify(r.asked, syscall.SIGHUP)
	return r
}

// reloadEvery is how often the files are looked at. They are read once they have been the
// same twice: an editor may write them piece by piece.
const reloadEvery = time.Second

// configStatus is how it went, for metrics. It may be used from any goroutine.
type configStatus struct {
	bad  atomic.Bool  // what was read last could not be used
	at   atomic.Int64 // when one was put in force last, Unix nanoseconds
	hash atomic.Value // string: of the file in force
}

func (c *configStatus) used(file string) {
	c.bad.Store(false)
	c.at.Store(time.Now().UnixNano())
	c.hash.Store(hashOf(file))
}

// hashOf tells files apart. It is empty where there is none.
func hashOf(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:6])
}

// run reloads until ctx ends.
func (r *reloader) run(ctx context.Context) error {
	tick := time.NewTicker(reloadEvery)
	defer tick.Stop()
	before := r.tried
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.asked:
			r.reload(ctx)
			before = r.tried
		case <-tick.C:
			held := r.contents(r.seen)
			if held == before && held != r.tried {
				r.reload(ctx)
				held = r.tried
			}
			before = held
		}
	}
}

// contents tells apart what the file held at two times, and the secrets that settings name.
// A ConfigMap or Secret that is mounted changes by a symbolic link, which reading follows.
func (r *reloader) contents(s *settings) (sum [sha256.Size]byte) {
	all := sha256.New()
	for _, path := range append([]string{r.flags.file, s.cookieFile}, s.tsigFiles...) {
		if path == "" {
			continue
		}
		text, err := os.ReadFile(path)
		fmt.Fprintf(all, "%d %t\n", len(text), err == nil)
		all.Write(text)
	}
	return [sha256.Size]byte(all.Sum(nil))
}

// reload reads and uses the configuration, or logs all that is wrong with it.
func (r *reloader) reload(ctx context.Context) {
	before := r.seen
	r.tried = r.contents(before)
	s, err := r.flags.read(r.given)
	if s != nil {
		r.seen = s
	}
	if err == nil {
		err = r.apply(ctx, s)
	}
	if r.contents(before) == r.tried { // else it has changed again meanwhile
		r.tried = r.contents(r.seen)
	}
	if err != nil {
		r.p.config.bad.Store(true)
		for _, fault := range faultLines(err) {
			r.log.Error("the configuration cannot be used; the one before stays", "fault", fault)
		}
		return
	}
	r.p.config.used(r.flags.file)
	r.log.Info("read the configuration again", "file", r.flags.file, "hash", r.p.config.hash.Load())
}

// faultLines are all that is wrong, as FILE:LINE where that is known.
func faultLines(err error) (out []string) {
	bad := fileErrors(nil)
	if !errors.As(err, &bad) {
		return lines(err)
	}
	for _, e := range bad {
		out = append(out, e.place())
	}
	return out
}

// lasting is a key whose value has to stay.
type lasting struct {
	key   string
	value any
}

// lasting are the keys that hold from start to end: what is read, and how.
func (s *settings) lasting() []lasting {
	return []lasting{
		{"source.kubeconfig", s.source.kubeconfig},
		{"source.context", s.source.context},
		{"source.manifests", s.source.manifests},
		{"source.namespaces", s.source.namespaces},
		{"annotationPrefix", s.prefix},
		{"stateDir", s.stateDir},
		{"stateMaxAge", s.stateMaxAge},
		{"auditEvery", s.source.auditEvery},
		{"syncDeadline", s.source.syncDeadline},
		{"massEmpty", s.source.massEmpty},
	}
}

// apply puts settings in force. After an error all is as it was.
func (r *reloader) apply(ctx context.Context, s *settings) error {
	was := r.now.lasting()
	for i, l := range s.lasting() {
		if !reflect.DeepEqual(l, was[i]) {
			err := fmt.Errorf("%s has changed, which takes a restart", l.key)
			return fileErrors{{path: r.flags.file, key: l.key, line: lineOf(r.flags.file, l.key), err: err}}
		}
	}
	web, err := r.http.bind(s.http)
	if err != nil {
		return err
	}
	change, err := r.dns.Prepare(s.dns)
	if err != nil {
		if web != nil {
			web.Close()
		}
		return err
	}
	if !reflect.DeepEqual(s.zones, r.now.zones) {
		z, err := r.p.rebuild(s.zones)
		if err != nil { // which settings has not found: a mistake of ours
			change.Abort()
			if web != nil {
				web.Close()
			}
			return err
		}
		r.p.replace(ctx, z)
	}

	// From here on nothing fails.
	change.Commit()
	r.http.moveTo(s.http, web)
	s.use(r.p, r.http)
	r.flags.log.at.Set(s.logLevel)
	if moved := r.now; !slices.Equal(moved.dns.Listen, s.dns.Listen) || !slices.Equal(moved.dns.TLS.Listen, s.dns.TLS.Listen) || moved.http != s.http {
		logListening(r.log, r.dns, r.http, s)
	}
	r.now = s
	return nil
}

// use puts in force what is neither of zones nor of dnsserver.
func (s *settings) use(p *pipeline, h *httpServer) {
	p.lameduck.Store(int64(s.lameduck))
	p.readyMaxAge.Store(int64(s.readyMaxAge))
	p.staleAfter.Store(int64(s.staleAfter))
	h.details.Store(s.httpDetails)
	h.profiles.Store(s.pprof)
}

// dump writes what the goroutines do on each SIGUSR1, until ctx ends.
func dump(ctx context.Context, to io.Writer) error {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	defer signal.Stop(asked)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-asked:
			pprof.Lookup("goroutine").WriteTo(to, 1)
		}
	}
}
