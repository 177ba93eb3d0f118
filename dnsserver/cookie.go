package dnsserver

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// DNS cookies (RFC 7873) with the server cookies of RFC 9018, which all servers that
// have the same secret make and take alike.
//
// A client whose cookie is wrong or missing is answered like any other and gets a
// fresh one: a cookie is only a sign that it has the address that it asks from.

const (
	clientCookieSize = 8
	cookieSize       = clientCookieSize + 16 // with ours
	// A cookie may come back with a server cookie of 8 to 32 octets, ours or not
	// (RFC 7873 section 4).
	minCookieSize = clientCookieSize + 8
	maxCookieSize = clientCookieSize + 32

	cookieVersion = 1

	// How old a cookie may be, and how far from the future where clocks of servers
	// differ; and from what age on it is replaced (RFC 9018 section 4.3).
	cookieAge     = int32(time.Hour / time.Second)
	cookieFuture  = int32(5 * time.Minute / time.Second)
	cookieRenewal = int32(30 * time.Minute / time.Second)
)

// CookieSecret is what server cookies are made with. All servers behind one address
// need the same.
type CookieSecret [16]byte

// ParseCookieSecrets reads one or two secrets, each 32 hexadecimal digits on a line of
// its own.
func ParseCookieSecrets(text []byte) (secrets []CookieSecret, err error) {
	for i, line := range bytes.Split(text, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var s CookieSecret
		if len(line) != hex.EncodedLen(len(s)) {
			return nil, fmt.Errorf("line %d: a secret has 32 hexadecimal digits, not %d characters", i+1, len(line))
		}
		if _, err := hex.Decode(s[:], line); err != nil {
			return nil, fmt.Errorf("line %d: a secret has hexadecimal digits only", i+1)
		}
		secrets = append(secrets, s)
	}
	switch {
	case len(secrets) == 0:
		return nil, errors.New("no secret is in it")
	case len(secrets) > 2:
		return nil, fmt.Errorf("%d secrets are in it, two is the most: the one in use and one before or after it", len(secrets))
	}
	return secrets, nil
}

// cookies makes and checks server cookies. It may be used from any goroutine.
type cookies struct {
	secrets []CookieSecret // the first one makes cookies, each is accepted
	now     func() uint32  // Unix seconds, which wrap (RFC 9018 section 4.3)
}

func newCookies(secrets []CookieSecret) *cookies {
	if len(secrets) == 0 {
		return nil
	}
	return &cookies{secrets: secrets, now: func() uint32 { return uint32(time.Now().Unix()) }}
}

// legalCookie says whether a COOKIE option may have that many octets.
func legalCookie(n int) bool {
	return n == clientCookieSize || n >= minCookieSize && n <= maxCookieSize
}

// appendReply appends the cookie to answer a legal one with, and says whether that
// one was good.
func (c *cookies) appendReply(dst, cookie []byte, from netip.Addr) (out []byte, good bool) {
	now := c.now()
	age, secret := c.check(cookie, from, now)
	good = secret >= 0
	if secret == 0 && age >= 0 && age <= cookieRenewal && [3]byte(cookie[9:12]) == [3]byte{} {
		return append(dst, cookie...), true
	}
	base := len(dst)
	dst = append(dst, cookie[:clientCookieSize]...)
	dst = append(dst, cookieVersion, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, now)
	return binary.LittleEndian.AppendUint64(dst, cookieHash(&c.secrets[0], dst[base:], from)), good
}

// check returns the age of a cookie and the number of the secret that it was made
// with, or -1 if it is not good.
func (c *cookies) check(cookie []byte, from netip.Addr, now uint32) (age int32, secret int) {
	if len(cookie) != cookieSize || cookie[clientCookieSize] != cookieVersion {
		return 0, -1
	}
	age = int32(now - binary.BigEndian.Uint32(cookie[12:])) // serial number arithmetic, RFC 1982
	if age > cookieAge || age < -cookieFuture {
		return age, -1
	}
	hash := binary.LittleEndian.Uint64(cookie[16:])
	for i := range c.secrets {
		if cookieHash(&c.secrets[i], cookie[:16], from) == hash {
			return age, i
		}
	}
	return age, -1
}

// cookieHash is the last part of a server cookie: of the client's cookie, the first
// part and the client's address (RFC 9018 section 4.4).
func cookieHash(secret *CookieSecret, first []byte, from netip.Addr) uint64 {
	var buf [16 + 16]byte
	msg := append(buf[:0], first[:16]...)
	if from = from.Unmap(); from.Is4() {
		a := from.As4()
		msg = append(msg, a[:]...)
	} else {
		a := from.As16()
		msg = append(msg, a[:]...)
	}
	return sipHash((*[16]byte)(secret), msg)
}
