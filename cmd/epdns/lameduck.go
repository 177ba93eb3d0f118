package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// The end of serve has two steps, since those who ask hear of it later than epdns does:
//
//	SIGTERM, Ctrl-C    /readyz fails, and all is answered as before, for lameduck
//	then               nothing new is taken, what has come is answered, exit status 0
//
// A second signal goes on to the second step at once. A third one kills, as the system
// does it.

// endSignals are those that end the program.
var endSignals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// awaitEnd waits until told has ended and, if anybody has been told to ask here, until the
// lameduck period of then is over, too. It returns earlier when ctx ends.
func awaitEnd(ctx, told context.Context, p *pipeline, log *slog.Logger) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, endSignals...)
	defer signal.Stop(signals)
	select {
	case <-ctx.Done():
		return
	case <-told.Done():
	}
	p.stopping.Store(true)
	wait := time.Duration(p.lameduck.Load())
	if wait == 0 || !p.synced.Load() {
		return
	}
	log.Info("stopping; a second signal ends the wait", "lameduck", wait.String())
	over := time.NewTimer(wait)
	defer over.Stop()
	for range 2 { // the first one is what has ended told
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			return
		case <-signals:
		}
	}
}
