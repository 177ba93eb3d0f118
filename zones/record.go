package zones

import (
	"encoding/binary"
	"net/netip"
)

// Records are kept as they go out: ready fragments in wire form whose owner is a
// compression pointer to the question (RFC 1035 section 4.1.4). Whoever asks in
// whatever spelling gets the same bytes, and the reply keeps the asker's spelling.

// Record types and classes (IANA "Domain Name System Parameters") that are asked for here.
const (
	TypeA     = 1
	TypeNS    = 2
	TypeCNAME = 5
	TypeSOA   = 6
	TypePTR   = 12
	TypeHINFO = 13
	TypeTXT   = 16
	TypeAAAA  = 28
	TypeSRV   = 33
	TypeIXFR  = 251
	TypeAXFR  = 252
	TypeANY   = 255

	classIN = 1
)

const (
	headerSize = 12 // of a message, RFC 1035 section 4.1.1: where the question's name starts
	fixedSize  = 12 // of a record before its RDATA, its owner being a pointer

	sizeA    = fixedSize + 4
	sizeAAAA = fixedSize + 16

	pointer = 0xc000 // the two high bits of a compression pointer
	// maxPointer is the last offset a pointer's 14 bits reach.
	maxPointer = 0x3fff
)

// appendFixed appends what stands before the RDATA: owner, type, class IN, TTL, length.
func appendFixed(dst []byte, owner int, typ uint16, ttl uint32, rdlength int) []byte {
	dst = binary.BigEndian.AppendUint16(dst, pointer|uint16(owner))
	dst = binary.BigEndian.AppendUint16(dst, typ)
	dst = binary.BigEndian.AppendUint16(dst, classIN)
	dst = binary.BigEndian.AppendUint32(dst, ttl)
	return binary.BigEndian.AppendUint16(dst, uint16(rdlength))
}

// appendAddr appends an A or AAAA record.
func appendAddr(dst []byte, owner int, ttl uint32, addr netip.Addr) []byte {
	if addr.Is4() {
		a := addr.As4()
		return append(appendFixed(dst, owner, TypeA, ttl, 4), a[:]...)
	}
	a := addr.As16()
	return append(appendFixed(dst, owner, TypeAAAA, ttl, 16), a[:]...)
}

// appendSRV appends an SRV record, but for what follows the label in the name of its
// target: so many octets, the same for all records of a Service. Targets are not
// compressed (RFC 2782).
func appendSRV(dst []byte, owner int, ttl uint32, priority, weight, port uint16, label []byte, suffix int) []byte {
	dst = appendFixed(dst, owner, TypeSRV, ttl, 6+1+len(label)+suffix)
	dst = binary.BigEndian.AppendUint16(dst, priority)
	dst = binary.BigEndian.AppendUint16(dst, weight)
	dst = binary.BigEndian.AppendUint16(dst, port)
	return append(append(dst, byte(len(label))), label...)
}

// srvTarget is where the target stands in an SRV record.
const srvTarget = fixedSize + 6

// appendNamed appends a record whose RDATA is one name: CNAME, NS, PTR.
func appendNamed(dst []byte, owner int, typ uint16, ttl uint32, name []byte) []byte {
	return append(appendFixed(dst, owner, typ, ttl, len(name)), name...)
}

// setOwner points a record at another owner.
func setOwner(record []byte, owner int) {
	binary.BigEndian.PutUint16(record, pointer|uint16(owner))
}

// SOA timers in seconds, for secondaries that no NOTIFY reaches: what CoreDNS's
// kubernetes plugin has made usual.
const (
	soaRefresh = 7200
	soaRetry   = 1800
	soaExpire  = 86400
)

// appendSOA appends the SOA of a zone whose server is ns.dns.<primary> and whose
// mailbox is hostmaster.<primary>. primary is a wire name.
func appendSOA(dst []byte, owner int, ttl uint32, primary []byte, serial, minimum uint32) []byte {
	dst = appendFixed(dst, owner, TypeSOA, ttl, len(nsLabels)+len(hostmasterLabel)+2*len(primary)+20)
	dst = append(append(dst, nsLabels...), primary...)
	dst = append(append(dst, hostmasterLabel...), primary...)
	return appendSOATimers(dst, serial, minimum)
}

// appendSOACompressed is appendSOA where the zone's own name stands in the message
// already, at offset apex.
func appendSOACompressed(dst []byte, ttl uint32, apex int, serial, minimum uint32) []byte {
	dst = appendFixed(dst, apex, TypeSOA, ttl, len(nsLabels)+len(hostmasterLabel)+2*2+20)
	dst = binary.BigEndian.AppendUint16(append(dst, nsLabels...), pointer|uint16(apex))
	dst = binary.BigEndian.AppendUint16(append(dst, hostmasterLabel...), pointer|uint16(apex))
	return appendSOATimers(dst, serial, minimum)
}

func appendSOATimers(dst []byte, serial, minimum uint32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, serial)
	dst = binary.BigEndian.AppendUint32(dst, soaRefresh)
	dst = binary.BigEndian.AppendUint32(dst, soaRetry)
	dst = binary.BigEndian.AppendUint32(dst, soaExpire)
	return binary.BigEndian.AppendUint32(dst, minimum)
}

var (
	nsLabels        = []byte("\x02ns\x03dns")
	hostmasterLabel = []byte("\x0ahostmaster")

	// schemaVersion is the TXT record of dns-version.<zone>, Kubernetes DNS
	// specification 1.1.0 section 2.2.
	schemaVersion = []byte("\x051.1.0")

	// minimalANY is the RDATA of the HINFO that stands for all types, RFC 8482 section 4.2.
	minimalANY = []byte("\x07RFC8482\x00")
)
