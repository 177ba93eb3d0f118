package dnsserver

import (
	"fmt"
	"net/netip"
	"time"
)

// shared is what the Responders of a server have in common: its settings, but for where
// it listens. It never changes; other settings are another one, which workers take up
// between two batches, and connections between two queries.
type shared struct {
	udpSize   uint16
	nsid      string
	version   string
	keepalive uint16 // in units of 100 ms, 0: not told
	cookies   *cookies
	keys      []tsigKey
	transfer  []netip.Prefix
	upstream  *upstream // nil: none
	queries   *queryLog // nil: none
	access    *access   // nil: all may ask
	limiter   *limiter  // nil: no limit; a Server's only
	tcp       TCPConfig
}

// plain is what Responders without a server have.
var plain = &shared{udpSize: defaultUDPSize, tcp: TCPConfig{}.withDefaults()}

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
		transfer:  cfg.Transfer,
		access:    newAccess(cfg.Allow, cfg.Deny),
		tcp:       cfg.TCP.withDefaults(),
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
