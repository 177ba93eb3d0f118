package main

import (
	"testing"
	"time"
)

// Builds that come now and then follow each other without a rest. Those that come as fast
// as they can have a quarter of the time, and the first of them not even that.
func TestRests(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name        string
		took, every time.Duration // of each build; every is from the end of a rest to the next
		n           int
		rested      int           // of the n builds
		longest     time.Duration // rest
	}{
		{"now and then", 1 * ms, 9 * ms, 100, 0, 0},
		{"often and short", 100 * time.Microsecond, 900 * time.Microsecond, 1000, 0, 0},
		{"one that is long", 4 * ms, 0, 1, 1, 12 * ms},
		{"one that is very long", 1000 * ms, 0, 1, 1, maxRest},
		{"always long", 10 * ms, 0, 10, 10, maxRest},
		{"always short", 1 * ms, 0, 100, 50, 6 * ms},
		{"always shorter", 100 * time.Microsecond, 0, 1700, 100, 5100 * time.Microsecond},
	} {
		var r rests
		now := time.Unix(1_800_000_000, 0)
		rested, longest, built, began := 0, time.Duration(0), time.Duration(0), now
		for range tt.n {
			ended := now.Add(tt.took)
			d := r.after(now, ended)
			if d > 0 {
				rested++
			}
			longest, built = max(longest, d), built+tt.took
			now = ended.Add(d + tt.every)
		}
		if rested != tt.rested || longest != tt.longest {
			t.Errorf("%s: %d rests of at most %v, want %d of %v", tt.name, rested, longest, tt.rested, tt.longest)
		}
		if all := now.Sub(began); tt.took < maxRest/restShare && built > (all+restAhead)/(1+restShare)+tt.took {
			t.Errorf("%s: builds took %v of %v", tt.name, built, all)
		}
	}
}
