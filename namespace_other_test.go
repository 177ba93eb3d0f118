//go:build !linux

package epdns_test

import (
	"net/netip"
	"testing"
)

const envIsolated = "EPDNS_TEST_ISOLATED"

// isolated would run the test in a network of its own, which only Linux has.
func isolated(t *testing.T, _ []netip.Addr) bool {
	t.Skip("this test needs Linux: it runs in a network namespace")
	return false
}
