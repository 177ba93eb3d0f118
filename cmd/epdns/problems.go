package main

import (
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"epdns/registry"
	"epdns/zones"
)

// annotationProblems keeps which annotations of Services do nothing, and logs a line
// for a Service where that changes.
type annotationProblems struct {
	log *slog.Logger
	of  map[registry.Key]problemsOf
	n   atomic.Int64
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
	for _, svc := range changed {
		problems := zones.Problems(svc)
		was, now := a.of[svc.Key], problemsOf{len(problems), problemsText(problems)}
		if now == was {
			continue
		}
		a.n.Add(int64(now.n - was.n))
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
	return a.n.Load()
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
