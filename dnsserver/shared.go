package dnsserver

import (
	"fmt"
	"time"
)

// shared is what the Responders of a server have in common. It never changes.
type shared struct {
	udpSize   uint16
	nsid      string
	version   string
	keepalive uint16 // in units of 100 ms, 0: not told
	cookies   *cookies
	keys      []tsigKey
}

// plain is what Responders without a server have.
var plain = &shared{udpSize: defaultUDPSize}

// maxNSID leaves room for it in any reply: of 512 octets the longest question takes
// 271, a cookie 28 and the OPT record 11.
const maxNSID = 128

func newShared(cfg *Config) *shared {
	s := &shared{
		udpSize:   defaultUDPSize,
		nsid:      cfg.NSID,
		version:   cfg.Version,
		keepalive: uint16(min(cfg.TCP.Idle/(100*time.Millisecond), 1<<16-1)), // RFC 7828 section 3.1
		cookies:   newCookies(cfg.Cookies),
		keys:      newTSIGKeys(cfg.TSIG),
	}
	if cfg.UDPSize > 0 {
		s.udpSize = uint16(cfg.UDPSize)
	}
	return s
}

// CheckNSID says what is wrong with a name of this server.
func CheckNSID(nsid string) error {
	if len(nsid) > maxNSID {
		return fmt.Errorf("it has %d octets, more than %d", len(nsid), maxNSID)
	}
	return nil
}

// CheckUDPSize says what is wrong with a limit for replies over UDP.
func CheckUDPSize(n int) error {
	if n < minUDPSize || n > maxUDPSize {
		return fmt.Errorf("%d is not %d to %d octets: less is no DNS (RFC 1035), more does not arrive everywhere (RFC 9715)", n, minUDPSize, maxUDPSize)
	}
	return nil
}
