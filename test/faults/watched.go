//go:build linux

package faults

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"epdns/test/run"
)

// watched is what epdns tells of itself during a trial.
type watched struct {
	server *run.Server

	mu          sync.Mutex
	first, last map[string]float64
	most, least map[string]float64
	begun       time.Time
	seen        time.Time
}

// watchEvery is how often its metrics are read.
const watchEvery = 500 * time.Millisecond

func (w *watched) run(ctx context.Context) {
	for tick := time.NewTicker(watchEvery); ; {
		if now, err := scrape(w.server); err == nil {
			w.mu.Lock()
			if w.first == nil {
				w.first, w.begun = now, time.Now()
				w.most, w.least = map[string]float64{}, map[string]float64{}
			}
			w.last, w.seen = now, time.Now()
			for name, v := range now {
				if most, has := w.most[name]; !has || v > most {
					w.most[name] = v
				}
				if least, has := w.least[name]; !has || v < least {
					w.least[name] = v
				}
			}
			w.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// scrape reads the metrics. A name stands for the sum over its labels; with labels, as they are
// written, it stands for that one.
func scrape(s *run.Server) (map[string]float64, error) {
	page, err := run.Get("http://" + s.HTTP + "/metrics")
	if err != nil {
		return nil, err
	}
	return parseMetrics(string(page))
}

func parseMetrics(page string) (map[string]float64, error) {
	out := map[string]float64{}
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("a metric without a number: %q", line)
		}
		full := line[:i]
		name, _, labels := strings.Cut(full, "{")
		out[name] += v
		if labels {
			out[full] += v
		}
	}
	return out, nil
}

// metric reads one metric now; what is not there is 0.
func (t *trial) metric(name string) (float64, error) {
	all, err := scrape(t.server)
	return all[name], err
}

// use is what epdns has taken of the machine.
func (w *watched) use() Use {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == nil {
		return Use{}
	}
	u := Use{
		Memory:      w.most["process_resident_memory_bytes"],
		Descriptors: int(w.most["process_open_fds"]),
		Goroutines:  int(w.most["go_goroutines"]),
	}
	if d := w.seen.Sub(w.begun).Seconds(); d > 0 {
		u.CPU = (w.last["process_cpu_seconds_total"] - w.first["process_cpu_seconds_total"]) / d
	}
	return u
}

// extreme are the least and the most that a metric was.
func (w *watched) extreme(name string) (least, most float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.least[name], w.most[name]
}
