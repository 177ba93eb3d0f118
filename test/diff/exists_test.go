//go:build linux

package diff_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// existence is the RCODE of each name asked for, in small letters.
type existence map[string]int

// note keeps what our reply says of a name. That is the same for all types (RFC 8020).
func (e existence) note(name string, r *reply) error {
	if r.Rcode != dns.RcodeSuccess && r.Rcode != dns.RcodeNameError || len(r.aliases()) > 0 {
		return nil
	}
	name = strings.ToLower(name)
	if before, ok := e[name]; ok && before != r.Rcode {
		return fmt.Errorf("%s to one type and %s to another", dns.RcodeToString[before], dns.RcodeToString[r.Rcode])
	}
	e[name] = r.Rcode
	return nil
}

// broken says which names exist below one that does not, but for those that are meant to.
func (e existence) broken(meant func(name string) bool) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(e)) {
		if e[name] != dns.RcodeSuccess || meant(name) {
			continue
		}
		for above := parent(name); above != "."; above = parent(above) {
			if e[above] == dns.RcodeNameError {
				out = append(out, fmt.Sprintf("%s is there, and %s above it is not", name, above))
			}
		}
	}
	return out
}
