package dnsserver

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strings"

	"epdns/zones"
)

// TSIGKey is a key that gives a right to transfers.
type TSIGKey struct {
	Name      string
	Algorithm string // hmac-sha256 and its like; see CheckTSIGAlgorithm
	Secret    []byte
}

// tsigAlgorithms are those of RFC 8945 section 6 but for MD5 and GSS. SHA-1 is there
// for old secondaries.
var tsigAlgorithms = map[string]func() hash.Hash{
	"hmac-sha1": sha1.New, "hmac-sha224": sha256.New224, "hmac-sha256": sha256.New,
	"hmac-sha384": sha512.New384, "hmac-sha512": sha512.New,
}

// CheckTSIGAlgorithm says what is wrong with the name of an algorithm.
func CheckTSIGAlgorithm(name string) error {
	if tsigAlgorithms[name] == nil {
		return fmt.Errorf("algorithm %q is not hmac-sha256, hmac-sha384, hmac-sha512, hmac-sha224 or hmac-sha1", name)
	}
	return nil
}

// CheckTSIGName says what is wrong with the name of a key: it has the characters that
// names of zones may have.
func CheckTSIGName(name string) error {
	if name == "" {
		return errors.New("no name is given")
	}
	if _, err := zones.ParseName(name); err != nil {
		return err
	}
	for _, c := range name {
		if !strings.ContainsRune("-._", c) && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
			return fmt.Errorf("%q: character %q is not allowed in the name of a key", name, c)
		}
	}
	return nil
}

// minTSIGSecret keeps a secret from being guessed from one message: 128 bits. HMAC asks
// for as many as its hash has (RFC 2104 section 3), but keys of 128 bits are in use.
const minTSIGSecret = 16

// ParseTSIGSecret reads a secret in base64, as every program writes them. It has at
// least 16 octets.
func ParseTSIGSecret(text []byte) ([]byte, error) {
	secret, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(text)))
	if err != nil || len(secret) == 0 {
		return nil, errors.New("it is not a secret in base64 and nothing else")
	}
	if len(secret) < minTSIGSecret {
		return nil, fmt.Errorf("the secret has %d octets, fewer than %d", len(secret), minTSIGSecret)
	}
	return secret, nil
}

// tsigKey is a TSIGKey as messages have it.
type tsigKey struct {
	name, algorithm []byte // wire form, lower-case
	hash            func() hash.Hash
	secret          []byte
}

func newTSIGKeys(keys []TSIGKey) (out []tsigKey) {
	for _, k := range keys {
		name, err := zones.ParseName(k.Name)
		algorithm, aerr := zones.ParseName(k.Algorithm)
		if err != nil || aerr != nil || tsigAlgorithms[k.Algorithm] == nil {
			panic("dnsserver: a TSIG key that was not checked")
		}
		out = append(out, tsigKey{name, algorithm, tsigAlgorithms[k.Algorithm], k.Secret})
	}
	return out
}
