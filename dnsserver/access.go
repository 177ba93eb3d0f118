package dnsserver

import (
	"net/netip"

	"epdns/zones"
)

// access says who may ask. It never changes. Nil is everybody.
type access struct {
	deny  *zones.Prefixes
	allow *zones.Prefixes // nil: all others
}

func newAccess(allow, deny []netip.Prefix) *access {
	if len(allow)+len(deny) == 0 {
		return nil
	}
	a := &access{deny: zones.NewPrefixes(deny)}
	if len(allow) > 0 {
		a.allow = zones.NewPrefixes(allow)
	}
	return a
}

// admits says whether an address may ask.
func (a *access) admits(from netip.Addr) bool { return a == nil || a.has(from) }

// has is admits where somebody may not.
func (a *access) has(from netip.Addr) bool {
	return !a.deny.Contains(from) && (a.allow == nil || a.allow.Contains(from))
}
