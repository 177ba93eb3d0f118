package kube

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"epdns/internal/fakeapi"
)

// After an object that can't be decoded the state is read again; one that can and is of
// another kind is passed over. Neither goes unnoticed.
func TestDamagedEvents(t *testing.T) {
	for _, jsonOnly := range []bool{false, true} {
		for _, damage := range fakeapi.Damages() {
			t.Run(fmt.Sprintf("%s,json=%t", damage, jsonOnly), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t)
					w.api.JSONOnly = jsonOnly
					w.run()
					after(time.Minute)
					if err := w.api.Damage("EndpointSlice", damage); err != nil {
						t.Fatal(err)
					}
					w.api.Apply(slice("web", "web-1", "10.0.0.2"))
					w.api.Apply(slice("web", "web-1", "10.0.0.3"))
					after(time.Second)
					w.wantAddresses("web", "10.0.0.3")
					w.api.Apply(slice("web", "web-1", "10.0.0.4"))
					synctest.Wait()
					w.wantAddresses("web", "10.0.0.4")

					relists, skipped, lines := uint64(1), uint64(0), 1
					switch {
					case damage == fakeapi.OtherKind:
						relists, skipped, lines = 0, 1, 0
					case damage == fakeapi.CutMessage:
						relists, lines = 0, 0 // the stream is broken, and the next one goes on where it was
					}
					if st := w.status(0); st.Relists() != relists || st.Skipped != skipped || !st.Connected || (st.LastError != "") != (lines > 0) {
						t.Errorf("status %+v", st)
					}
					w.wantLines(lines, "level=WARN msg=\"an event of a watch is not understood")
					w.wantLines(lines, "")
				})
			})
		}
	}
}

// A server or a proxy that damages every watch is not asked without a pause, and is
// one line in the log.
func TestDamageWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run()
		for range 120 {
			if err := w.api.Damage("EndpointSlice", fakeapi.BadField); err != nil {
				t.Fatal(err)
			}
			w.api.Apply(slice("web", "web-1", "10.0.0.2"))
			after(time.Second)
		}
		w.wantAddresses("web", "10.0.0.2")
		if n := w.status(0).Lists; n > 40 {
			t.Errorf("%d lists in two minutes", n)
		}
		w.wantLines(1, "level=WARN msg=\"an event of a watch is not understood")
		w.wantLines(1, "")
	})
}
