package dnsserver

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// Of each octet, in each place of a name of each length, lower-case is what it is of an
// octet alone; and nothing beyond the name is touched.
func TestLowerCase(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for n := range maxName + 1 {
		for first := range 256 {
			name, dst := make([]byte, n), bytes.Repeat([]byte{'#'}, n+8)
			for i := range name {
				name[i] = byte(first + i)
				if first%2 == 1 {
					name[i] = byte(rnd.Uint32())
				}
			}
			want := bytes.Repeat([]byte{'#'}, n+8)
			for i, c := range name {
				if 'A' <= c && c <= 'Z' {
					c += 'a' - 'A'
				}
				want[i] = c
			}
			if lowerCase(dst[:n], name); !bytes.Equal(dst, want) {
				t.Fatalf("%x: %x, want %x", name, dst, want)
			}
		}
	}
}
