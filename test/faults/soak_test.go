//go:build linux

package faults

import (
	"context"
	"slices"
	"testing"
	"time"

	"epdns/test/faults/proxy"
)

// A minute of a soak, in which the watch is cut off once. How memory goes takes an hour to see.
func TestSoak(t *testing.T) {
	r, err := lab.Soak(t.Context(), time.Minute)
	holds(t, r, err)
}

// A soak sees what goes wrong: here, no event arrives, and audits mend that late.
func TestSoakSees(t *testing.T) {
	f := &Fault{Name: "soak-unheard", run: func(ctx context.Context, t *trial) error {
		t.proxy.Events(never(func(e *proxy.Event) bool { return e.Namespace == namespace }))
		return t.soak(ctx, time.Second)
	}}
	r, err := lab.Run(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"none wrong during it", "no drift"} {
		if !slices.ContainsFunc(r.Checks, func(c Check) bool { return c.What == what && !c.Holds }) {
			t.Errorf("%q does not fail; what does is %q", what, r.Failures())
		}
	}
}
