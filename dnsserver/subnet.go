package dnsserver

import (
	"encoding/binary"
	"net/netip"

	"epdns/zones"
)

const optionSubnet = 8 // RFC 7871

// maxSubnet is the longest option: family, two lengths and an IPv6 address.
const maxSubnet = optionSize + 4 + 16

// subnet is for whom a forwarder asks, by the option EDNS Client Subnet (RFC 7871).
type subnet struct {
	data   []byte // as it came, nil: it did not
	prefix netip.Prefix
	wrong  bool // not of the form that section 6 gives it
}

// Families (IANA "Address Family Numbers") that a subnet can be of.
const (
	familyIPv4 = 1
	familyIPv6 = 2
)

// parseSubnet reads the option of a query. One of another family is as good as none.
func parseSubnet(data []byte) (s subnet) {
	s.data = data
	if len(data) < 4 {
		s.wrong = true
		return s
	}
	bits, scope, address := int(data[2]), data[3], data[4:]
	var addr netip.Addr
	switch binary.BigEndian.Uint16(data) {
	case familyIPv4:
		var a [4]byte
		s.wrong = copy(a[:], address) < len(address)
		addr = netip.AddrFrom4(a)
	case familyIPv6:
		var a [16]byte
		s.wrong = copy(a[:], address) < len(address)
		addr = netip.AddrFrom16(a)
	default:
		s.data = nil
		return s
	}
	// No more octets than the bits take, no bits beyond, and a scope is for replies.
	s.prefix = netip.PrefixFrom(addr, bits)
	s.wrong = s.wrong || bits > addr.BitLen() || len(address) != (bits+7)/8 || scope != 0 ||
		s.prefix.Masked() != s.prefix
	return s
}

// believed says whether the subnet of a query counts: only if it is one and comes from
// a forwarder that is trusted.
func (s *subnet) believed(set *zones.Set, from netip.Addr) bool {
	return s.data != nil && set.Trusts(from)
}

// appendOption appends the option of the reply and says where its scope is, which is
// known when the answer is.
func (s *subnet) appendOption(dst []byte) (out []byte, scope int) {
	dst = appendOption(dst, optionSubnet, len(s.data))
	return append(dst, s.data...), len(dst) + 3
}
