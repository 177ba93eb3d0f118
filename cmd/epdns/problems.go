package main

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"epdns/registry"
	"epdns/zones"
)

// annotationProblems keeps which annotations of Services do nothing, and logs a line
// for a Service where that changes.
type annotationProblems struct {
	log *slog.Logger

	mu sync.Mutex // of what follows
	of map[registry.Key]problemsOf
	n  int64
}

type problemsOf struct {
	n    int
	text string
}

func newAnnotationProblems(log *slog.Logger) *annotationProblems {
	return &annotationProblems{log: log, of: map[registry.Key]problemsOf{}}
}

// note takes Services as they are now.
func (a *annotationProblems) note(changed []*registry.Service) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, svc := range changed {
		problems := zones.Problems(svc)
		was, now := a.of[svc.Key], problemsOf{len(problems), problemsText(problems)}
		if now == was {
			continue
		}
		a.n += int64(now.n - was.n)
		if now.n > 0 {
			a.of[svc.Key] = now
			a.log.Warn("annotations do nothing", "service", svc.Key.String(), "why", now.text)
			continue
		}
		delete(a.of, svc.Key)
		if svc.Exists {
			a.log.Info("annotations are good again", "service", svc.Key.String())
		}
	}
}

// count is how many there are in all, from any goroutine.
func (a *annotationProblems) count() int64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// services are those that have some, in order, from any goroutine.
func (a *annotationProblems) services() []registry.Key {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.SortedFunc(maps.Keys(a.of), compareKeys)
}

func compareKeys(a, b registry.Key) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// why is what is wrong with those of a Service, in a line; empty where nothing is.
func (a *annotationProblems) why(k registry.Key) string {
	if a == nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.of[k].text
}

// problemsText is one line, which names the first few.
func problemsText(problems []zones.Problem) string {
	const few = 5
	var texts []string
	for i, p := range problems {
		if i == few {
			texts = append(texts, fmt.Sprintf("%d more (see epdns check)", len(problems)-few))
			break
		}
		texts = append(texts, p.String())
	}
	return strings.Join(texts, "; ")
}
