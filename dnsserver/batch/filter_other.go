//go:build unix && !linux

package batch

import (
	"errors"
	"net/netip"
)

// thin fails: systems have no such thing, or another.
func thin(int, []netip.Prefix, uint) error { return errors.ErrUnsupported }
