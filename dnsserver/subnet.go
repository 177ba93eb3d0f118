package dnsserver

import (
	"encoding/binary"
	"errors"
	"net/netip"
)

// For whom a forwarder asks it says by the option EDNS Client Subnet (RFC 7871).
const (
	optionSubnet = 8

	// maxSubnet is the longest option: family, two lengths and an IPv6 address.
	maxSubnet = optionSize + 4 + 16
)

// Families (IANA "Address Family Numbers") that a subnet can be of.
const (
	familyIPv4 = 1
	familyIPv6 = 2
)

var errSubnet = errors.New("a subnet that is none")

// parseSubnet reads the option of a query. One of a family that is not known is as
// good as none.
func parseSubnet(data []byte) (p netip.Prefix, known bool, err error) {
	if len(data) < 4 {
		return p, false, errSubnet
	}
	bits, scope, address := int(data[2]), data[3], data[4:]
	var addr netip.Addr
	fits := false
	switch binary.BigEndian.Uint16(data) {
	case familyIPv4:
		var a [4]byte
		fits = copy(a[:], address) == len(address)
		addr = netip.AddrFrom4(a)
	case familyIPv6:
		var a [16]byte
		fits = copy(a[:], address) == len(address)
		addr = netip.AddrFrom16(a)
	default:
		return p, false, nil
	}
	// No more octets than the bits take, no bits beyond, and a scope is for replies
	// (section 6).
	p = netip.PrefixFrom(addr, bits)
	if !fits || bits > addr.BitLen() || len(address) != (bits+7)/8 || scope != 0 || p.Masked() != p {
		return p, false, errSubnet
	}
	return p, true, nil
}

// appendSubnet appends the option of the reply and says where its scope is, which is
// known when the answer is.
func appendSubnet(dst, data []byte) (out []byte, scope int) {
	dst = appendOption(dst, optionSubnet, len(data))
	return append(dst, data...), len(dst) + 3
}
