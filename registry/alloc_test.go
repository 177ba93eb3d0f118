//go:build !race

package registry

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"testing"
	"unsafe"
)

// Decoding makes no more pieces for many endpoints than for few, and little besides what
// is kept.
func TestDecodeAllocations(t *testing.T) {
	for _, n := range []int{1, 10, 100, 1000} {
		octets := marshalled(t, cluster{1, 1, n}.slice(0, 0))
		slice, _, _, err := decodeSlice(octets)
		if err != nil {
			t.Fatal(err)
		}
		kept := int(unsafe.Sizeof(Digest{})+unsafe.Sizeof(Slice{})) + n*int(unsafe.Sizeof(packed{})) + len(slice.Endpoints.text)
		const runs = 100
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		pieces := testing.AllocsPerRun(runs-1, func() {
			if _, err := DecodeSlice(octets); err != nil {
				t.Fatal(err)
			}
		})
		runtime.ReadMemStats(&after)
		made := int(after.TotalAlloc-before.TotalAlloc) / runs
		if pieces > 8 || made > kept*5/4+500 {
			t.Errorf("%d endpoints: %d octets in %v pieces, of which %d are kept", n, made, pieces, kept)
		}
	}
}

// Octets that claim to be more than they are don't make anything large.
func TestDecodeHostileAllocations(t *testing.T) {
	for what, octets := range map[string][]byte{
		"a long text":        field(4, "\xff\xff\xff\xff\x0f"),
		"a length":           []byte("\x12\xff\xff\xff\xff\x0f"),
		"a length inside":    field(2, "\x0a\xff\xff\xff\xff\x0f"),
		"empty endpoints":    bytes.Repeat([]byte("\x12\x00"), 10_000),
		"empty ports":        bytes.Repeat([]byte("\x1a\x00"), 10_000),
		"a group in a group": bytes.Repeat([]byte("\xa3\x06"), 10_000),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d, err := DecodeSlice(octets)
		runtime.ReadMemStats(&after)
		if made := int(after.TotalAlloc - before.TotalAlloc); made > 150*len(octets)+4096 {
			t.Errorf("%s, %d octets: made %d", what, len(octets), made)
		}
		fmt.Fprint(io.Discard, d, err)
	}
}
