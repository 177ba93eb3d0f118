//go:build linux

package bench

import (
	"slices"
	"time"
)

// median of no values is 0.
func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// ratios are those of each round: of the values that were taken side by side. A round in which
// b has nothing has none.
func ratios(a, b []float64) (out []float64) {
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			out = append(out, a[i]/b[i])
		}
	}
	return out
}

// percentile is the smallest of sorted values that a share p of them, 0 to 1, does not exceed; 0
// of none.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	i := int(p * float64(len(sorted)))
	if float64(i) == p*float64(len(sorted)) {
		i--
	}
	return sorted[min(max(i, 0), len(sorted)-1)]
}
