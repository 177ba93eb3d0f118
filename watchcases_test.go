package epdns_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
	"sigs.k8s.io/yaml"

	"epdns/internal/fakeapi"
)

// The cases of testdata/cases/watch are faults of clients of the Kubernetes API,
// each with what happened to the cluster and to the connection. The README there
// describes their form, of which this file is the only reader.

func TestWatchCases(t *testing.T) {
	t.Parallel()
	dirs, err := filepath.Glob("testdata/cases/watch/*")
	if err != nil || len(dirs) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	// They wait, most of the time: all at once, however few processors there are. To
	// start a program is work, and is done one after the other.
	var cases sync.WaitGroup
	var starting sync.Mutex
	for _, dir := range dirs {
		cases.Go(func() {
			t.Run(filepath.Base(dir), func(t *testing.T) {
				if why := readFile(t, filepath.Join(dir, "why.md")); !strings.HasPrefix(why, "# ") {
					t.Error("why.md has no title")
				}
				path := filepath.Join(dir, "steps.yaml")
				steps, err := parseSteps(readFile(t, path))
				if err != nil {
					t.Fatalf("%s: %v", path, err)
				}
				var formats sync.WaitGroup
				for _, jsonOnly := range []bool{false, true} {
					name := "protobuf"
					if jsonOnly {
						name = "json"
					}
					formats.Go(func() {
						t.Run(name, func(t *testing.T) {
							runSteps(t, path, steps, newFakeAPI(t, jsonOnly), &starting)
						})
					})
				}
				formats.Wait()
			})
		})
	}
	cases.Wait()
}

// runSteps runs a case to its end or to the first step that does not hold.
func runSteps(t *testing.T, path string, steps []watchStep, api *fakeAPI, starting *sync.Mutex) {
	r := &watchRun{api: api}
	start := func(how func(*testing.T, ...string) *program) {
		starting.Lock()
		defer starting.Unlock()
		r.program = how(t, "--kubeconfig", r.api.kubeconfig, "--zone", zone, "--reverse", "10.0.0.0/8")
	}
	if first, ok := steps[0].(*restartStep); !ok || first.State != "down" {
		start(serve)
	}
	for i, s := range steps {
		_, expects := s.(*expectStep)
		if r.since.IsZero() {
			r.since = time.Now()
		}
		err := s.do(r)
		if r.program == nil {
			start(listen)
		}
		if err := errors.Join(err, r.program.running()); err != nil {
			t.Fatalf("%s: step %d: %v", path, i+1, err)
		}
		if expects {
			r.since = time.Time{}
		}
	}
}

// watchRun is a case that runs.
type watchRun struct {
	api     *fakeAPI
	program *program
	since   time.Time // when the first step after the last expect began
}

// watchStep is a step of a case.
type watchStep interface {
	check() error // of what the file says
	do(*watchRun) error
}

// watchSteps are all steps but expect.
var watchSteps = map[string]func() watchStep{
	"apply":           func() watchStep { return new(applyStep) },
	"delete":          func() watchStep { return new(deleteStep) },
	"drop-connection": func() watchStep { return new(dropStep) },
	"stall":           func() watchStep { return new(stallStep) },
	"damage":          func() watchStep { return new(damageStep) },
	"compact":         func() watchStep { return new(compactStep) },
	"gone410":         func() watchStep { return new(goneStep) },
	"bookmark":        func() watchStep { return new(bookmarkStep) },
	"advance":         func() watchStep { return new(advanceStep) },
	"lag":             func() watchStep { return new(lagStep) },
	"older":           func() watchStep { return new(olderStep) },
	"silently":        func() watchStep { return new(silentStep) },
	"slow":            func() watchStep { return new(slowStep) },
	"restart":         func() watchStep { return new(restartStep) },
}

// parseSteps reads a whole steps.yaml. Whatever it does not know is an error, which
// begins with the number of the step.
func parseSteps(text string) (steps []watchStep, err error) {
	j, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, err
	}
	var file struct {
		Steps []json.RawMessage `json:"steps"`
	}
	if err := strictly(j, &file); err != nil {
		return nil, err
	}
	expects, since := false, 0 // steps since the last expect
	for i, raw := range file.Steps {
		s, err := parseStep(raw)
		if err == nil {
			err = s.check()
		}
		since++
		if e, ok := s.(*expectStep); ok {
			if err == nil && e.API != nil && since == 1 {
				err = errors.New("api: no step before it, from which on to count")
			}
			expects, since = true, 0
		}
		if err != nil {
			return nil, fmt.Errorf("%d: %w", i+1, err)
		}
		steps = append(steps, s)
	}
	if !expects {
		return nil, errors.New("0: no expect")
	}
	return steps, nil
}

func parseStep(raw json.RawMessage) (watchStep, error) {
	var item map[string]json.RawMessage
	if err := json.Unmarshal(raw, &item); err != nil {
		return nil, err
	}
	if _, ok := item["expect"]; ok {
		e := &expectStep{}
		return e, strictly(raw, e)
	}
	if len(item) != 1 {
		return nil, fmt.Errorf("one step is expected: %s", raw)
	}
	for name, options := range item {
		fresh, ok := watchSteps[name]
		if !ok {
			return nil, fmt.Errorf("unknown step %q", name)
		}
		s := fresh()
		if err := strictly(options, s); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return s, nil
	}
	panic("not reached: there is one")
}

// strictly reads JSON of which it must know everything.
func strictly(raw []byte, into any) error {
	if bytes.Equal(raw, []byte("null")) {
		return errors.New("it is empty")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(into)
}

// duration is a time span as in Go, more than none.
type duration time.Duration

func (d *duration) UnmarshalJSON(raw []byte) error {
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	span, err := time.ParseDuration(s)
	if err == nil && span <= 0 {
		err = fmt.Errorf("duration %q", s)
	}
	*d = duration(span)
	return err
}

func knownKind(kind string) error {
	if !fakeapi.HasKind(kind) {
		return fmt.Errorf("kind: there is none %q", kind)
	}
	return nil
}

// oneOf says what an option must be.
func oneOf(option, value string, values ...string) error {
	if !slices.Contains(values, value) {
		return fmt.Errorf("%s: %q, not one of %q", option, value, values)
	}
	return nil
}

type applyStep []applied

// applied is an object as in a manifest.
type applied struct{ fakeapi.Object }

func (a *applied) UnmarshalJSON(raw []byte) (err error) {
	a.Object, err = fakeapi.Read(raw)
	return err
}

func (s *applyStep) check() error {
	if len(*s) == 0 {
		return errors.New("apply: no object")
	}
	return nil
}

func (s *applyStep) do(r *watchRun) error {
	for _, o := range *s {
		r.api.Apply(o.Object)
	}
	return nil
}

type deleteStep []struct{ Kind, Namespace, Name string }

func (s *deleteStep) check() error {
	for _, o := range *s {
		if err := knownKind(o.Kind); err != nil {
			return fmt.Errorf("delete: %w", err)
		}
	}
	if len(*s) == 0 {
		return errors.New("delete: no object")
	}
	return nil
}

func (s *deleteStep) do(r *watchRun) error {
	for _, o := range *s {
		if err := r.api.Delete(o.Kind, fakeapi.ID{Namespace: o.Namespace, Name: o.Name}); err != nil {
			return err
		}
	}
	return nil
}

type dropStep struct {
	State string
	Every duration
	For   duration
}

func (s *dropStep) check() error {
	if (s.Every == 0) != (s.For == 0) || s.Every != 0 && s.State != "" {
		return errors.New("drop-connection: state, every with for, or nothing is expected")
	}
	return oneOf("drop-connection: state", s.State, "", "down", "up")
}

func (s *dropStep) do(r *watchRun) error {
	switch {
	case s.Every != 0:
		r.api.EndEarly(time.Duration(s.Every), time.Duration(s.For))
	case s.State == "down":
		r.api.shut(false)
	case s.State == "up":
		return r.api.open()
	default:
		r.api.cut(false)
	}
	return nil
}

type stallStep struct{ State string }

func (s *stallStep) check() error { return oneOf("stall: state", s.State, "on", "off") }

func (s *stallStep) do(r *watchRun) error {
	if s.State == "on" {
		r.api.freeze()
	} else {
		r.api.thaw()
	}
	return nil
}

type damageStep struct {
	Kind string
	What fakeapi.Damage
}

func (s *damageStep) check() error {
	if !slices.Contains(fakeapi.Damages(), s.What) {
		return fmt.Errorf("damage: what: %q, not one of %q", s.What, fakeapi.Damages())
	}
	return knownKind(s.Kind)
}

func (s *damageStep) do(r *watchRun) error { return r.api.Damage(s.Kind, s.What) }

type compactStep struct{ Keep uint64 }

func (s *compactStep) check() error { return nil }

func (s *compactStep) do(r *watchRun) error {
	r.api.Compact(s.Keep)
	return nil
}

type goneStep struct{ At, Kind string }

func (s *goneStep) check() error {
	return errors.Join(oneOf("gone410: at", s.At, "watch", "request"), knownKind(s.Kind))
}

func (s *goneStep) do(r *watchRun) error {
	if s.At == "watch" {
		r.api.ExpireWatches(s.Kind)
	} else {
		r.api.ExpireRequest(s.Kind)
	}
	return nil
}

type bookmarkStep struct{}

func (s *bookmarkStep) check() error { return nil }

func (s *bookmarkStep) do(r *watchRun) error {
	r.api.Announce()
	return nil
}

type advanceStep struct{ Versions uint64 }

func (s *advanceStep) check() error {
	if s.Versions == 0 {
		return errors.New("advance: versions is expected")
	}
	return nil
}

func (s *advanceStep) do(r *watchRun) error {
	r.api.Advance(s.Versions)
	return nil
}

type lagStep struct{ Events *uint }

func (s *lagStep) check() error {
	if s.Events == nil {
		return errors.New("lag: events is expected")
	}
	return nil
}

func (s *lagStep) do(r *watchRun) error {
	r.api.LagBehind(int(*s.Events))
	return nil
}

type olderStep struct {
	Kind          string
	Lists, Events uint
}

func (s *olderStep) check() error {
	if s.Lists == 0 || s.Events == 0 {
		return errors.New("older: lists and events are expected")
	}
	return knownKind(s.Kind)
}

func (s *olderStep) do(r *watchRun) error {
	r.api.Older(s.Kind, int(s.Lists), int(s.Events))
	return nil
}

// silentStep changes what no watch is told.
type silentStep struct {
	Apply  applyStep
	Delete deleteStep
}

func (s *silentStep) check() error {
	if len(s.Apply)+len(s.Delete) == 0 {
		return errors.New("silently: no object")
	}
	if len(s.Delete) == 0 {
		return nil
	}
	return s.Delete.check()
}

func (s *silentStep) do(r *watchRun) error {
	for _, o := range s.Apply {
		r.api.ApplySilently(o.Object)
	}
	for _, o := range s.Delete {
		if err := r.api.DeleteSilently(o.Kind, fakeapi.ID{Namespace: o.Namespace, Name: o.Name}); err != nil {
			return err
		}
	}
	return nil
}

type slowStep struct {
	Kind  string
	Delay duration
}

func (s *slowStep) check() error {
	if s.Delay == 0 {
		return errors.New("slow: delay is expected")
	}
	return knownKind(s.Kind)
}

func (s *slowStep) do(r *watchRun) error {
	r.api.SlowDown(s.Kind, time.Duration(s.Delay))
	return nil
}

type restartStep struct{ State string }

func (s *restartStep) check() error { return oneOf("restart: state", s.State, "down", "up") }

func (s *restartStep) do(r *watchRun) error {
	if s.State == "up" {
		return r.api.open()
	}
	r.api.shut(true)
	return nil
}

// expectStep asks questions and holds the replies to what is said of them.
type expectStep struct {
	Expect    expectations `json:"expect"`
	Within    duration     `json:"within"`
	Hold      duration     `json:"hold"`
	Meanwhile meanwhile    `json:"meanwhile"`
	NoReply   string       `json:"no-reply"`
	API       *apiCheck    `json:"api"`
}

// expectations are what an expect.txt says.
type expectations []*expectation

func (e *expectations) UnmarshalJSON(raw []byte) error {
	var text string
	err := json.Unmarshal(raw, &text)
	if err == nil {
		*e, err = parseExpect(text)
	}
	if err != nil {
		return fmt.Errorf("expect: %w", err)
	}
	return nil
}

// meanwhile are checks without a question.
type meanwhile []check

func (m *meanwhile) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	var e expectation
	number := 0
	for line := range strings.Lines(text) {
		number++
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if err := e.add(number, line); err != nil {
			return fmt.Errorf("meanwhile: %d: %w", number, err)
		}
	}
	*m = e.checks
	return nil
}

func (s *expectStep) check() error {
	if s.Within != 0 && s.Hold != 0 {
		return errors.New("expect: within and hold exclude each other")
	}
	if s.Meanwhile != nil && s.Within == 0 {
		return errors.New("expect: meanwhile goes with within")
	}
	if err := oneOf("no-reply", s.NoReply, "", "servfail"); err != nil {
		return err
	}
	for _, e := range s.Expect {
		if e.repeat > 1 || e.keep != nil {
			return fmt.Errorf("expect: %s: repeat and keep are for cases that stand still", e.text)
		}
	}
	if s.API != nil {
		return s.API.check()
	}
	return nil
}

// poll is the time between two rounds of questions.
const poll = 50 * time.Millisecond

func (s *expectStep) do(r *watchRun) error {
	begun := time.Now()
	within, hold := time.Duration(s.Within), time.Duration(s.Hold)
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		wrong, never := s.ask(r.program)
		passed := time.Since(begun).Round(time.Millisecond)
		if never != nil {
			return fmt.Errorf("after %v: %w", passed, never)
		}
		if wrong != nil && passed >= within {
			return fmt.Errorf("after %v: %w", passed, wrong)
		}
		if wrong == nil && passed >= hold {
			break
		}
		select {
		case <-tick.C:
		case <-r.program.ended:
			return r.program.running()
		}
	}
	if s.API == nil {
		return nil
	}
	end := r.since.Add(time.Duration(s.API.Window))
	select {
	case <-time.After(time.Until(end)):
	case <-r.program.ended:
		return r.program.running()
	}
	return s.API.holds(r.api.Counts(s.API.Kind, r.since, end))
}

// ask asks each question once: wrong is what does not hold yet, never what may not
// even be so meanwhile.
func (s *expectStep) ask(p *program) (wrong, never error) {
	for _, e := range s.Expect {
		r, err := e.send(p.dns.Port())
		if network := net.Error(nil); r == nil && s.NoReply != "" && errors.As(err, &network) && network.Timeout() {
			r, err = &reply{rcode: dns.RcodeServerFailure, question: dns.Question{Qtype: e.qtype}}, nil
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", e.text, err)
			if s.Meanwhile != nil {
				never = errors.Join(never, err)
			}
		} else if err = e.against(e.checks, r); err != nil {
			never = errors.Join(never, e.against(s.Meanwhile, r))
		}
		wrong = errors.Join(wrong, err, p.running())
	}
	return wrong, never
}

// against holds a reply to checks.
func (e *expectation) against(checks []check, r *reply) (err error) {
	for _, c := range checks {
		if fault := c.holds(&e.question, r); fault != nil {
			err = errors.Join(err, fmt.Errorf("%s: %s: %s: %w", e.text, rcodeName(r.rcode), c.text, fault))
		}
	}
	return err
}

// apiCheck says what may be asked of the API server.
type apiCheck struct {
	Window   duration `json:"window"`
	Kind     string   `json:"kind"`
	When     string   `json:"when"`
	Lists    *span    `json:"lists"`
	Watches  *span    `json:"watches"`
	Replayed *span    `json:"replayed-events"`
}

func (c *apiCheck) check() error {
	switch {
	case c.Window == 0:
		return errors.New("api: window is expected")
	case c.Lists == nil && c.Watches == nil && c.Replayed == nil:
		return errors.New("api: nothing is counted")
	case c.Kind != "" && knownKind(c.Kind) != nil:
		return fmt.Errorf("api: %w", knownKind(c.Kind))
	}
	return oneOf("api: when", c.When, "", "bookmarks")
}

func (c *apiCheck) holds(n fakeapi.Counts) error {
	if c.When == "bookmarks" && !n.Bookmarks {
		return nil
	}
	return errors.Join(c.Lists.holds("lists", n.Lists), c.Watches.holds("watches", n.Watches), c.Replayed.holds("replayed-events", n.Replayed))
}

// span is N, <=N, >=N or A..B.
type span struct {
	text        string
	least, most int
}

func (s *span) UnmarshalJSON(raw []byte) (err error) {
	text := string(raw)
	if raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			return err
		}
	}
	*s, err = readSpan(text)
	return err
}

func readSpan(text string) (s span, err error) {
	s = span{text, 0, math.MaxInt}
	number := func(text string) (n int) {
		var wrong error
		n, wrong = strconv.Atoi(text)
		if err == nil && (wrong != nil || n < 0) {
			err = fmt.Errorf("%q: N, <=N, >=N or A..B is expected", s.text)
		}
		return n
	}
	if most, ok := strings.CutPrefix(s.text, "<="); ok {
		s.most = number(most)
	} else if least, ok := strings.CutPrefix(s.text, ">="); ok {
		s.least = number(least)
	} else if least, most, ok := strings.Cut(s.text, ".."); ok {
		s.least, s.most = number(least), number(most)
	} else {
		s.least = number(s.text)
		s.most = s.least
	}
	if err == nil && s.least > s.most {
		err = fmt.Errorf("%q is empty", s.text)
	}
	return s, err
}

func (s *span) has(n int) bool { return s.least <= n && n <= s.most }

func (s *span) holds(what string, n int) error {
	if s != nil && !s.has(n) {
		return fmt.Errorf("api: %s: %s: there were %d", what, s.text, n)
	}
	return nil
}
